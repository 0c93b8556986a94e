//! The properties `sync` and `logbias`, which files and volumes share.

/// Which changes are durable when they are answered (property `sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncPolicy {
    /// Synchronous ones.
    #[default]
    Standard,
    /// Every change is durable when it is answered.
    Always,
    /// None: commits do not wait.
    Disabled,
}

/// The property `logbias`: latency or throughput of synchronous writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogBias {
    /// Latency of synchronous writes: log vdevs are used, and up to 8 MiB are written twice.
    #[default]
    Latency,
    /// Throughput: log vdevs are not used, and writes of whole blocks are written once, to their
    /// final places.
    Throughput,
}
