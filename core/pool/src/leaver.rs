//! Devices that left the pool in the syncing txg.

use tarn_ondisk::nvlist::NvList;
use tarn_vdev::Departed;

/// A device that left the pool in the syncing txg. When that is stored it gets this label: of txg
/// 0, or of a hot spare that is idle from then on. Without one its labels are cleared.
#[derive(Debug)]
pub(crate) struct Leaver {
    /// The device.
    pub(crate) device: Departed,
    /// Its label.
    pub(crate) label: Option<NvList>,
}
