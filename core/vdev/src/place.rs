//! Places: where on the pool's top-level vdevs the bytes of a block are, and what is written there.

use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_ondisk::units::{Txg, VdevId, VdevOffset};

/// Where the bytes of a block are, and since which txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The index of the top-level vdev.
    pub vdev: VdevId,
    /// Where on it, as block pointers count.
    pub offset: VdevOffset,
    /// How many bytes, without parity.
    pub size: u64,
    /// The txg in which the block was given this place: its physical birth. A device whose dirty
    /// time log has that txg does not have the block. A RAID-Z that was expanded places a block by
    /// the width that it had then.
    pub birth: Txg,
}

/// Bytes for a place.
#[derive(Debug, Clone)]
pub struct PhysicalWrite {
    /// Where.
    pub place: Place,
    /// What. As many bytes as the place has.
    pub data: Arc<Buffer>,
}
