//! The order in which this crate takes its locks. `lib.rs` says why.

use tarn_host::Rank;
use tarn_host::ranks::{LEAF, POSIX};

/// One rename of a directory to another parent at a time.
pub(crate) const RENAME: Rank = Rank::new(POSIX, "rename of directories").across_waits();
/// One change of a file at a time. Several files are taken in the order of their numbers.
pub(crate) const CHANGE: Rank = Rank::new(POSIX + 10, "file change").multi().across_waits();
/// The contents of a file stay while they are read.
pub(crate) const CONTENT: Rank = Rank::new(POSIX + 20, "file content").multi().across_waits();
/// One new layout of attributes at a time.
pub(crate) const LAYOUTS: Rank = Rank::new(POSIX + 30, "attribute layouts").across_waits();
/// One part of the table of files in memory.
pub(crate) const NODES: Rank = Rank::new(POSIX + 40, "files in memory");
/// The file systems in the order in which they drop idle files.
pub(crate) const TURNS: Rank = Rank::new(LEAF + 16, "turns of file systems");
/// The quota tables in the master node.
pub(crate) const QUOTAS: Rank = Rank::new(LEAF + 15, "quotas");
/// The attributes of a file, as they are now.
pub(crate) const FACTS: Rank = Rank::new(LEAF + 10, "file facts");
/// When a file was last read.
pub(crate) const ACCESSED: Rank = Rank::new(LEAF + 11, "file access time");
/// The attribute tables, as they are now.
pub(crate) const TABLES: Rank = Rank::new(LEAF + 12, "attribute tables");
/// The properties, as they are now.
pub(crate) const PROPERTIES: Rank = Rank::new(LEAF + 13, "mount properties");
/// Removed directories that a kernel still knows.
pub(crate) const REMOVED: Rank = Rank::new(LEAF + 17, "removed directories");
/// The holders of the file system.
pub(crate) const HOLDERS: Rank = Rank::new(LEAF + 18, "holders of the file system");
/// Locks that programs have taken.
pub(crate) const LOCKS: Rank = Rank::new(LEAF + 19, "locks of files");
/// Share reservations, by file and holder.
pub(crate) const SHARES: Rank = Rank::new(LEAF + 20, "share reservations");
/// Whether a file is open, or gone.
pub(crate) const LIFE: Rank = Rank::new(LEAF + 14, "file life");
