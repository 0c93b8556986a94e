//! The four labels of a device, and the uberblocks in them.
//!
//! A label whose checksum does not hold is decoded all the same, and marked as damaged: `zdb -l` is
//! often used on damaged labels.

use super::error::InspectError;
use std::path::Path;
use tarn_host::device::Request;
use tarn_host::{Host, OpenMode};
use tarn_ondisk::declare::{ByteOrder, Stored, narrow};
use tarn_ondisk::label::{
    CONFIGURATION_BYTES, CONFIGURATION_OFFSET, LABEL_BYTES, LABEL_COUNT, RING_OFFSET, Ring,
    label_offset,
};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::uberblock::Uberblock;
use tarn_transform::ChecksumAlgorithm;
use tarn_transform::checksum::embedded;
use tarn_vdev::Window;

/// The sector size where no label names one, as a power of two.
const ASHIFT_DEFAULT: u32 = 9;

/// Bytes of the configuration area without its checksum.
pub const CONFIGURATION_ROOM: usize = 114_648;

/// A slot of the uberblock ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The uberblock in it.
    pub uberblock: Uberblock,
    /// The byte order of the machine that wrote it.
    pub order: ByteOrder,
}

/// One label, as far as it could be read.
#[derive(Debug)]
pub struct DeviceLabel {
    /// Its configuration, if it can be decoded.
    pub configuration: Option<NvList>,
    /// Whether the checksum of the configuration holds.
    pub is_intact: bool,
    /// Its uberblock ring; slots without an uberblock have none.
    pub slots: Vec<Option<Slot>>,
}

/// The labels of a device.
#[derive(Debug)]
pub struct DeviceLabels {
    /// The labels; none where one cannot be read.
    pub labels: Vec<Option<DeviceLabel>>,
}

impl DeviceLabels {
    /// Reads the labels of a device, or of a file.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn read(host: &Host, path: &Path) -> Result<DeviceLabels, InspectError> {
        let device = host
            .open_device(path, OpenMode::ReadOnly)
            .map_err(|cause| InspectError::Device {
                path: path.to_path_buf(),
                cause,
            })?;
        let window = Window::whole(device);
        let mut ashift = ASHIFT_DEFAULT;
        let labels = (0..LABEL_COUNT)
            .map(|index| read_label(&window, index, &mut ashift))
            .collect();
        Ok(DeviceLabels { labels })
    }

    /// The indexes of the labels with this configuration.
    pub fn labels_like(&self, configuration: &NvList) -> Vec<usize> {
        self.which(|label| label.configuration.as_ref() == Some(configuration))
    }

    /// The indexes of the labels with this uberblock, in any slot.
    pub fn labels_with(&self, slot: &Slot) -> Vec<usize> {
        self.which(|label| label.slots.iter().flatten().any(|other| other == slot))
    }

    fn which(&self, is_meant: impl Fn(&DeviceLabel) -> bool) -> Vec<usize> {
        let labels = self.labels.iter().enumerate();
        labels
            .filter(|(_, label)| label.as_ref().is_some_and(&is_meant))
            .map(|(index, _)| index)
            .collect()
    }
}

/// Reads one label. Where it does not name a sector size, that of the label before counts.
fn read_label(window: &Window, index: u64, ashift: &mut u32) -> Option<DeviceLabel> {
    let offset = label_offset(window.size_bytes(), index)?;
    let request = Request::read(window.device_offset(offset), narrow(LABEL_BYTES));
    let completion = window.device().submit(vec![request]).wait().pop()?;
    let bytes = completion.result.ok()??;
    let start = narrow(CONFIGURATION_OFFSET);
    let area = bytes.get(start..start + narrow(CONFIGURATION_BYTES))?;
    let verifier = embedded::label_verifier(offset + CONFIGURATION_OFFSET);
    let is_intact = embedded::verify(ChecksumAlgorithm::Label, area, &verifier).is_ok();
    // An area of zeros decodes to an empty list.
    let configuration = NvList::decode(&area[..CONFIGURATION_ROOM]).ok();
    let configuration = configuration.filter(|list| !list.is_empty());
    if let Some(list) = &configuration {
        *ashift = ashift_of(list).unwrap_or(ASHIFT_DEFAULT);
    }
    let ring = Ring::new(*ashift);
    let slots = bytes[narrow(RING_OFFSET)..].chunks_exact(narrow(ring.slot_bytes()));
    let slots = slots.take(narrow(ring.slot_count())).map(|slot| {
        let (uberblock, order) = Uberblock::from_slot(slot.get(..Uberblock::SIZE)?).ok()?;
        Some(Slot { uberblock, order })
    });
    Some(DeviceLabel {
        configuration,
        is_intact,
        slots: slots.collect(),
    })
}

/// The sector size that a label names, as a power of two.
fn ashift_of(list: &NvList) -> Option<u32> {
    let tree = list.optional_list("vdev_tree").ok()??;
    u32::try_from(tree.optional_u64("ashift").ok()??).ok()
}
