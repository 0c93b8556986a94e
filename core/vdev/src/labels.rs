//! Labels on devices: reading them, and updating configuration and uberblock so that a crash leaves
//! valid ones.
//!
//! # Problem
//! An import starts from devices; their labels lead to the uberblock. Whenever the power fails, the
//! labels must have an uberblock, and a configuration that fits it.
//!
//! # Mechanism
//! Where labels and their parts are on a device is in `ondisk::label`. Each part carries its own
//! checksum, so a half-written one is seen.
//!
//! Labels are updated for a txg in three steps, each of them flushed before the next:
//!
//! 1. if the configuration changed: labels 0 and 2 get the new one. After a crash now, labels 1 and
//!    3 fit the old uberblock; labels 0 and 2 are of a later txg than any uberblock and do not
//!    count.
//! 2. The uberblock is written to all four labels. A crash in the midst leaves some of the new
//!    ones, or none.
//! 3. If the configuration changed: labels 1 and 3 follow.
//!
//! When the configuration did not change, uberblocks go to a few top-level vdevs only, in turns: a
//! pool with hundreds of devices need not write to each of them in every txg.
//!
//! # Invariants
//! - The uberblock of a txg is written only after all blocks it leads to are flushed: the caller
//!   flushes them.
//! - A ring slot that is overwritten held the oldest uberblock.

use crate::config::VdevConfig;
use crate::error::{LabelError, VdevWriteError};
use crate::health::{Reason, Standing, VdevState};
use crate::label_config::PoolState;
use crate::leaf::{Leaf, Window};
use crate::queue::{self, LeafIo, Owner};
use crate::top::TopVdev;
use crate::tree::VdevTree;
use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_host::device::{Request, WriteData};
use tarn_ondisk::declare::{ByteOrder, narrow, widen};
use tarn_ondisk::label::{
    BOOT_ENVIRONMENT_BYTES, BOOT_ENVIRONMENT_OFFSET, CONFIGURATION_BYTES, CONFIGURATION_OFFSET,
    DATA_START_BYTES, LABEL_BYTES, LABEL_COUNT, RING_BYTES, RING_OFFSET, Ring, data_size,
    label_offset, pack_configuration, unpack_configuration,
};
use tarn_ondisk::nvlist::{Encoding, NvList, Text};
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::{Guid, Txg};
use tarn_probe::Operation;
use tarn_transform::ChecksumAlgorithm;
use tarn_transform::checksum::embedded;

/// Without a change of the configuration, an uberblock goes to this many top-level vdevs.
#[doc(alias = "SPA_SYNC_MIN_VDEVS")]
const UBERBLOCK_VDEVS: usize = 3;

/// A label that verified.
#[derive(Debug, Clone)]
pub struct Label {
    /// Which of the four it is.
    pub index: u64,
    /// What it says.
    pub list: NvList,
    /// The byte order of the machine that wrote it.
    pub order: ByteOrder,
}

impl Label {
    fn number(&self, name: &str) -> Option<u64> {
        self.list.optional_u64(name).ok().flatten()
    }

    /// Whether the pool is in use, or what else the device is for.
    pub fn state(&self) -> Option<PoolState> {
        self.number("state").map(PoolState::from_number)
    }

    /// The txg of the label. None for a hot spare; zero for a device that was about to join.
    pub fn txg(&self) -> Option<Txg> {
        self.number("txg").map(Txg::from)
    }

    /// The pool's guid.
    pub fn pool_guid(&self) -> Option<Guid> {
        self.number("pool_guid").map(Guid::from)
    }

    /// The guid of the device's top-level vdev.
    pub fn top_guid(&self) -> Option<Guid> {
        self.number("top_guid").map(Guid::from)
    }

    /// The device's own guid.
    pub fn guid(&self) -> Option<Guid> {
        self.number("guid").map(Guid::from)
    }

    /// The pool's name.
    pub fn pool_name(&self) -> Option<&Text> {
        self.list.optional_text("name").ok().flatten()
    }

    /// The sector size of its top-level vdev, as a power of two.
    pub fn ashift(&self) -> Option<u32> {
        let tree = self.list.optional_list("vdev_tree").ok().flatten()?;
        u32::try_from(tree.optional_u64("ashift").ok().flatten()?).ok()
    }
}

/// Reads the four labels of a device.
pub fn read_labels(window: &Window) -> [Result<Label, LabelError>; 4] {
    let areas = read_areas(window, CONFIGURATION_OFFSET, CONFIGURATION_BYTES);
    let mut index = 0;
    areas.map(|area| {
        let label = area.and_then(|(offset, area)| {
            let order = verify(&area, offset)?;
            let list = NvList::decode(unpack_configuration(&area)?.contents)?;
            Ok(Label { index, list, order })
        });
        index += 1;
        label
    })
}

/// The label that counts: the one of the latest txg. Labels of a hot spare, or of a device that was
/// about to join, have no txg; then the first.
#[doc(alias = "vdev_label_read_config")]
pub fn best_label(labels: &[Result<Label, LabelError>]) -> Option<&Label> {
    best_label_until(labels, Txg::MAX)
}

/// As [`best_label`], up to a txg: later labels do not count.
pub fn best_label_until(labels: &[Result<Label, LabelError>], until: Txg) -> Option<&Label> {
    let mut best: Option<&Label> = None;
    for label in labels.iter().flatten() {
        let Some(txg) = label.txg().filter(|txg| !txg.is_zero()) else {
            match best {
                None => return Some(label),
                Some(_) => continue,
            }
        };
        if txg <= until && best.is_none_or(|best| best.txg() < Some(txg)) {
            best = Some(label);
        }
    }
    best
}

/// An uberblock that verified.
#[derive(Debug, Clone)]
pub struct FoundUberblock {
    /// In which of the four labels.
    pub label: u64,
    /// In which slot of its ring.
    pub slot: u64,
    /// What it says.
    pub uberblock: Uberblock,
    /// The byte order of the machine that wrote it.
    pub order: ByteOrder,
}

/// Reads the uberblock rings of all labels of a device with sectors of `2^ashift` bytes. Slots that
/// do not verify are left out.
pub fn read_uberblocks(window: &Window, ashift: u32) -> Vec<FoundUberblock> {
    let ring = Ring::new(ashift);
    let mut found = Vec::new();
    let rings = read_areas(window, RING_OFFSET, RING_BYTES);
    for (label, area) in (0..LABEL_COUNT).zip(rings) {
        let Ok((offset, area)) = area else { continue };
        let slots = area.chunks_exact(narrow(ring.slot_bytes()));
        for (slot, bytes) in (0..ring.slot_count()).zip(slots) {
            let place = offset + slot * ring.slot_bytes();
            if verify(bytes, place).is_ok()
                && let Ok((uberblock, order)) = Uberblock::from_slot(bytes)
            {
                found.push(FoundUberblock {
                    label,
                    slot,
                    uberblock,
                    order,
                });
            }
        }
    }
    found
}

/// The newest uberblock among those of all devices: the one that an import uses.
pub fn best_uberblock<'a>(
    found: impl IntoIterator<Item = &'a FoundUberblock>,
) -> Option<&'a FoundUberblock> {
    // Of equals the first, so that the result does not depend on which copies there are.
    found.into_iter().reduce(|best, other| {
        if other.uberblock.compare(&best.uberblock).is_gt() {
            other
        } else {
            best
        }
    })
}

/// Reads the same part of all four labels. Gives where on the device it is, and its bytes.
fn read_areas(
    window: &Window,
    offset_in_label: u64,
    size: u64,
) -> [Result<(u64, Buffer), LabelError>; 4] {
    let places = [0, 1, 2, 3].map(|index| {
        let offset = label_offset(window.size_bytes(), index);
        offset.map(|offset| offset + offset_in_label)
    });
    let read = |offset: &u64| Request::read(window.device_offset(*offset), narrow(size));
    let requests = places.iter().flatten().map(read).collect();
    let mut completions = window.device().submit(requests).wait().into_iter();
    places.map(|place| {
        let offset = place.ok_or(LabelError::TooSmall {
            size: window.size_bytes(),
        })?;
        let completion = completions.next().expect("one request, one completion");
        let buffer = completion.result?.expect("a read gives its buffer back");
        Ok((offset, buffer))
    })
}

fn verify(area: &[u8], offset: u64) -> Result<ByteOrder, LabelError> {
    let verifier = embedded::label_verifier(offset);
    match embedded::verify(ChecksumAlgorithm::Label, area, &verifier) {
        Ok(tarn_transform::ByteOrder::Little) => Ok(ByteOrder::Little),
        Ok(tarn_transform::ByteOrder::Big) => Ok(ByteOrder::Big),
        Err(_) => Err(LabelError::Checksum),
    }
}

/// Seals a part of a label, which is at this offset of the device.
pub(crate) fn seal(area: &mut [u8], offset: u64) {
    let verifier = embedded::label_verifier(offset);
    let order = tarn_transform::ByteOrder::Little;
    embedded::seal(ChecksumAlgorithm::Label, area, &verifier, order);
    debug_assert!(
        verify(area, offset).is_ok(),
        "a sealed part of a label verifies at its offset"
    );
}

/// A configuration as it goes into a label at `label` bytes of the device.
fn configuration(list: &NvList, label: u64) -> Result<Vec<u8>, LabelError> {
    let bytes = list.encode(Encoding::Xdr);
    let too_large = LabelError::TooLarge { size: bytes.len() };
    let mut area = pack_configuration(&bytes).ok_or(too_large)?;
    assert_eq!(
        widen(area.len()),
        CONFIGURATION_BYTES,
        "a configuration fills its part of the label"
    );
    seal(&mut area, label + CONFIGURATION_OFFSET);
    Ok(area)
}

/// Writes all four labels of a device that is about to join a pool: no boot environment, this
/// configuration, no uberblock. Older contents are overwritten.
///
/// # Errors
/// The configuration has no room in a label, or the device cannot be written.
#[doc(alias = "vdev_label_init")]
pub fn create_labels(window: &Window, list: &NvList) -> Result<(), LabelError> {
    let mut requests = Vec::new();
    for index in 0..LABEL_COUNT {
        let start = label_offset(window.size_bytes(), index).ok_or(LabelError::TooSmall {
            size: window.size_bytes(),
        })?;
        let mut label = Buffer::zeroed(narrow(LABEL_BYTES));
        let area = configuration(list, start)?;
        let parts = [
            (BOOT_ENVIRONMENT_OFFSET, BOOT_ENVIRONMENT_BYTES),
            (RING_OFFSET, RING_BYTES),
        ];
        for (offset, size) in parts {
            let range = narrow(offset)..narrow(offset + size);
            seal(&mut label[range], start + offset);
        }
        label[narrow(CONFIGURATION_OFFSET)..][..area.len()].copy_from_slice(&area);
        requests.push(Request::write(
            window.device_offset(start),
            WriteData::from(label),
        ));
    }
    write_and_flush(window, requests)
}

/// Overwrites those labels that verify with zeros, and the header of a cache device: `zpool
/// labelclear`. What lies where another label was stays.
///
/// # Errors
/// The device cannot be written.
#[doc(alias = "zpool_clear_label")]
pub fn clear_valid_labels(window: &Window) -> Result<(), LabelError> {
    let labels = read_labels(window);
    let zeros = |length: u64| Arc::new(Buffer::zeroed(narrow(length)));
    let mut requests = Vec::new();
    let label = zeros(LABEL_BYTES);
    for index in (0..LABEL_COUNT)
        .zip(&labels)
        .filter(|(_, label)| label.is_ok())
    {
        if let Some(start) = label_offset(window.size_bytes(), index.0) {
            requests.push(Request::write(window.device_offset(start), label.clone()));
        }
    }
    let state = best_label(&labels).and_then(Label::state);
    if state == Some(PoolState::Cache) && data_size(window.size_bytes()).is_some() {
        let sector_bytes = u64::from(window.info().logical_sector_bytes).max(512);
        let header = window.device_offset(DATA_START_BYTES);
        requests.push(Request::write(header, zeros(sector_bytes)));
    }
    write_and_flush(window, requests)
}

/// Overwrites all four labels with zeros.
///
/// # Errors
/// The device cannot be written.
pub fn clear_labels(window: &Window) -> Result<(), LabelError> {
    let starts = (0..LABEL_COUNT).filter_map(|index| label_offset(window.size_bytes(), index));
    let zeros = Arc::new(Buffer::zeroed(narrow(LABEL_BYTES)));
    let clear = |start| Request::write(window.device_offset(start), zeros.clone());
    write_and_flush(window, starts.map(clear).collect())
}

fn write_and_flush(window: &Window, requests: Vec<Request>) -> Result<(), LabelError> {
    for completion in window.device().submit(requests).wait() {
        completion.result?;
    }
    Ok(window.device().flush()?)
}

/// Composes the label of a device, given the root, the index of its top-level vdev, and the device.
pub type ComposeLabel<'a> = dyn Fn(&VdevConfig, usize, &VdevConfig) -> NvList + 'a;

/// An update of a pool's labels.
#[derive(Clone, Copy)]
pub struct LabelUpdate<'a> {
    /// The uberblock.
    pub uberblock: &'a Uberblock,
    /// The pool keeps the last slot for writes that show its host alive.
    pub is_multihost: bool,
    /// Composes the new configuration; none where it did not change.
    pub configuration: Option<&'a ComposeLabel<'a>>,
}

impl std::fmt::Debug for LabelUpdate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut update = f.debug_struct("LabelUpdate");
        update
            .field("txg", &self.uberblock.txg)
            .finish_non_exhaustive()
    }
}

impl VdevTree {
    /// Writes the labels and the uberblock of a txg. The caller has flushed all blocks that it
    /// leads to.
    ///
    /// When this fails, an import finds either the old or the new uberblock; the call can be
    /// repeated.
    #[doc(alias = "vdev_config_sync")]
    pub fn write_labels(
        &self,
        update: LabelUpdate<'_>,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        self.until_devices_are_back(|| self.try_write_labels(update, operation))
    }

    fn try_write_labels(
        &self,
        update: LabelUpdate<'_>,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        if !self.is_writable() {
            return Err(VdevWriteError::ReadOnly);
        }
        let tops = self.tops();
        let tops: Vec<_> = tops.into_iter().filter(|top| top.holds_data()).collect();
        self.write_configuration(&tops, [0, 2], &update, operation)?;
        self.write_uberblock(&tops, &update, operation)?;
        self.note_stored_txg(update.uberblock.txg);
        self.write_configuration(&tops, [1, 3], &update, operation)
    }

    /// Writes two labels of every device, and flushes them.
    fn write_configuration(
        &self,
        tops: &[Arc<TopVdev>],
        labels: [u64; 2],
        update: &LabelUpdate<'_>,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        let Some(compose) = update.configuration else {
            return Ok(());
        };
        let root = self.config();
        let mut ios = Vec::new();
        for top in tops {
            let config = &root.children[top.id.index()];
            let configs = config.leaves();
            for leaf in &top.leaves {
                let Some(window) = leaf.window() else {
                    continue;
                };
                let config = configs.iter().find(|config| config.guid == leaf.guid);
                let config = config.expect("the tree and its configuration have the same leaves");
                let list = compose(&root, top.id.index(), config);
                for index in labels {
                    let start = label_offset(window.size_bytes(), index);
                    let start = start.expect("a device of a pool has room for labels");
                    let area = configuration(&list, start)
                        .map_err(|_| VdevWriteError::ConfigurationTooLarge)?;
                    let data = WriteData::from(Buffer::from_slice(&area));
                    let offset = start + CONFIGURATION_OFFSET;
                    let txg = Some(update.uberblock.txg);
                    ios.push(LeafIo::write(leaf, offset, data, txg));
                }
            }
        }
        self.store(tops, ios, operation)
    }

    /// Writes the uberblock into the ring of all four labels, and flushes it.
    fn write_uberblock(
        &self,
        tops: &[Arc<TopVdev>],
        update: &LabelUpdate<'_>,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        let chosen = match update.configuration {
            Some(_) => tops.to_vec(),
            None => in_turn(tops, update.uberblock.txg),
        };
        let mut ios = Vec::new();
        for top in &chosen {
            for leaf in top.leaves.iter() {
                add_uberblock(leaf, top.ashift, update, &mut ios);
            }
        }
        if ios.is_empty() {
            return Err(VdevWriteError::NoLabelWritten);
        }
        self.store(&chosen, ios, operation)?;
        for leaf in chosen.iter().flat_map(|top| &top.leaves) {
            leaf.note_written_uberblock();
        }
        Ok(())
    }

    /// Writes and flushes. A leaf that cannot is taken out of use.
    pub(crate) fn store(
        &self,
        tops: &[Arc<TopVdev>],
        ios: Vec<LeafIo>,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        let owners: Vec<Owner> = ios.iter().map(Owner::of).collect();
        let outcomes = queue::run(ios, queue::write_class(operation), operation);
        let standing = Standing::because(VdevState::Faulted, Reason::ErrorsExceeded);
        self.judge(tops, &owners, outcomes, standing)?;
        self.try_flush(operation)
    }
}

pub(crate) fn add_uberblock(
    leaf: &Arc<Leaf>,
    ashift: u32,
    update: &LabelUpdate<'_>,
    ios: &mut Vec<LeafIo>,
) {
    let Some(window) = leaf.window() else { return };
    leaf.note_tried_uberblock(update.uberblock.txg);
    let ring = Ring::new(ashift);
    let slot = match update.is_multihost {
        true => ring.slot_of_multihost(update.uberblock.txg),
        false => ring.slot_of(update.uberblock.txg),
    };
    for index in 0..LABEL_COUNT {
        let start = label_offset(window.size_bytes(), index);
        let offset =
            start.expect("a device of a pool has room for labels") + ring.slot_offset(slot);
        let mut bytes = update.uberblock.to_slot(ring.slot_bytes());
        assert_eq!(
            widen(bytes.len()),
            ring.slot_bytes(),
            "an uberblock fills its slot of the ring"
        );
        seal(&mut bytes, offset);
        let data = WriteData::from(Buffer::from_slice(&bytes));
        let txg = Some(update.uberblock.txg);
        ios.push(LeafIo::write(leaf, offset, data, txg));
    }
}

/// A few top-level vdevs for an uberblock, others in every txg. No log vdevs, which can be removed.
pub(crate) fn in_turn(tops: &[Arc<TopVdev>], txg: Txg) -> Vec<Arc<TopVdev>> {
    let lasting: Vec<_> = tops.iter().filter(|top| !top.is_log).cloned().collect();
    let count = widen(lasting.len());
    let start = if count == 0 {
        0
    } else {
        narrow(txg.get() % count)
    };
    let turned = lasting.iter().cycle().skip(start);
    turned
        .take(lasting.len().min(UBERBLOCK_VDEVS))
        .cloned()
        .collect()
}

impl VdevTree {
    /// The newest uberblock of all devices; none when none verifies.
    pub fn newest_uberblock(&self) -> Option<Uberblock> {
        self.uberblock_until(Txg::MAX)
    }

    /// The newest uberblock up to a txg.
    pub fn uberblock_until(&self, until: Txg) -> Option<Uberblock> {
        let mut found = self.found_uberblocks();
        found.retain(|found| found.uberblock.txg <= until);
        best_uberblock(&found).map(|best| best.uberblock)
    }

    /// All uberblocks that verify, of all labels of all devices.
    pub fn uberblocks(&self) -> Vec<Uberblock> {
        let found = self.found_uberblocks().into_iter();
        found.map(|found| found.uberblock).collect()
    }

    fn found_uberblocks(&self) -> Vec<FoundUberblock> {
        let mut found = Vec::new();
        for top in self.tops() {
            for window in top.leaves.iter().filter_map(|leaf| leaf.window()) {
                found.extend(read_uberblocks(&window, top.ashift));
            }
        }
        found
    }
}
