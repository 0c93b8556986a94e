//! Places (DVAs) of blocks on top-level vdevs, and the bytes to be written there.

use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_ondisk::units::{Txg, VdevId, VdevOffset};

/// Where the bytes of a block are, and since which txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The index of the top-level vdev.
    pub vdev: VdevId,
    /// The offset in the top-level vdev, as block pointers count.
    pub offset: VdevOffset,
    /// The size in bytes, without parity.
    pub size: u64,
    /// The physical birth of the block: the txg that allocated this place. A device whose dirty
    /// time log has that txg does not have the block. A RAID-Z that was expanded places a block by
    /// the width that it had then.
    pub birth: Txg,
}

/// A write of one block to its place.
#[derive(Debug, Clone)]
pub struct PhysicalWrite {
    /// Where.
    pub place: Place,
    /// The bytes, as many as the place has.
    pub data: Arc<Buffer>,
}
