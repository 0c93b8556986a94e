//! Allocation classes: which vdevs serve which blocks.
//!
//! # Mechanism
//! Each top-level vdev serves one class, and one metaslab of a large ordinary vdev serves the
//! embedded log, so that intent log blocks do not cut the others' free space to pieces. A class
//! that has no vdev, or no room, is served by the next in its chain; the chain ends at `Normal`
//! always.

/// What a block is for, as far as its place is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Everything without a class of its own.
    Normal,
    /// The intent log, on vdevs of its own.
    Log,
    /// The intent log, on one metaslab of each ordinary vdev.
    EmbeddedLog,
    /// Metadata, and data blocks that are small.
    Special,
    /// Dedup tables.
    Dedup,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 5] = [
        Class::Normal,
        Class::Log,
        Class::EmbeddedLog,
        Class::Special,
        Class::Dedup,
    ];

    /// Where to look for room, in this order, for a block of this class.
    pub const fn chain(self) -> &'static [Class] {
        match self {
            Class::Normal => &[Class::Normal],
            Class::Log => &[Class::Log, Class::EmbeddedLog, Class::Normal],
            Class::EmbeddedLog => &[Class::EmbeddedLog, Class::Normal],
            Class::Special => &[Class::Special, Class::Normal],
            Class::Dedup => &[Class::Dedup, Class::Special, Class::Normal],
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Class::Normal => "normal",
            Class::Log => "log",
            Class::EmbeddedLog => "embedded_log",
            Class::Special => "special",
            Class::Dedup => "dedup",
        })
    }
}
