//! A door upward: what is free in a metaslab that is not in memory?

use crate::error::LoadError;
use crate::range_tree::RangeTree;
use tarn_ondisk::units::VdevId;

/// Reads space maps. Declared here, implemented by `pool`, which has the objects they are stored
/// in.
pub trait LoadSpaceMap: Send + Sync {
    /// The ranges of a metaslab that are allocated, with offsets as the vdev counts them.
    ///
    /// They may be as of any moment between the last stored txg and the newest changes that
    /// `take_changes` gave out: `space` knows what happened in between, and goes by that.
    ///
    /// Called without any lock of `space`, in the thread that wants the space. It may read from
    /// devices; it must not allocate.
    fn load(&self, vdev: VdevId, index: u64) -> Result<RangeTree, LoadError>;
}
