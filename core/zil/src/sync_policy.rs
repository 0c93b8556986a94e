//! What a dataset's properties ask of its log: `sync` and `logbias`. Files and volumes share them.

/// What is durable when it is answered (property `sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncPolicy {
    /// What is asked to be durable is.
    #[default]
    Standard,
    /// Every change is durable when it is answered.
    Always,
    /// Nothing is waited for.
    Disabled,
}

/// What commits are to spare (property `logbias`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogBias {
    /// Latency of synchronous writes: log vdevs are used, and up to 8 MiB are written twice.
    #[default]
    Latency,
    /// The devices: log vdevs are left to others, and what fills its blocks is written once, where
    /// it stays.
    Throughput,
}
