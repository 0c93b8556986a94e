//! What a sync pass has to write into the space maps.

use crate::range_tree::Range;
use tarn_ondisk::units::VdevId;

/// What happened in one metaslab, in one txg, since it was last asked.
///
/// A range may be in both lists: it was allocated and given back. `pool` writes
/// `allocated` first, then `freed`. The other order cannot be: what is freed is not allocated again
/// in the same txg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaslabChanges {
    /// The vdev.
    pub vdev: VdevId,
    /// The metaslab.
    pub index: u64,
    /// Ranges handed out, in order of their start.
    pub allocated: Vec<Range>,
    /// Ranges given back, in order of their start.
    pub freed: Vec<Range>,
    /// Ranges given back that the checkpoint has, in order of their start. In the space map of the
    /// metaslab they stay allocated.
    pub kept: Vec<Range>,
}
