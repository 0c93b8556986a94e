//! The disks of a pool, and where in them its blocks are.
//!
//! # Mechanism
//! Each disk's label says which top-level vdev it is of, and what that is: a disk by itself, a
//! mirror, a RAID-Z. A place in a pool is read from the children that hold it, and written to all
//! of them, parity included, so that what is told is the same however it is read.
//!
//! # Limits
//! No dRAID, no RAID-Z that was expanded, nothing below a replaced or spare device; a vdev of these
//! cannot be read, and the rest of the pool can.

use std::collections::BTreeMap;
use tarn_host::sim::SimDisk;
use tarn_ondisk::block_pointer::Dva;
use tarn_ondisk::declare::{ByteOrder, narrow, widen};
use tarn_ondisk::label::{
    CONFIGURATION_BYTES, CONFIGURATION_OFFSET, DATA_START_BYTES, LABEL_COUNT, Ring, label_offset,
    unpack_configuration,
};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::{AllocatedSize, VdevId, VdevOffset};
use tarn_transform::checksum::{self, embedded};
use tarn_transform::{ChecksumAlgorithm, parity};
use tarn_vdev::layout::raidz::RaidzShape;
use tarn_vdev::{VdevConfig, VdevKind};

/// The ends of disks are left alone from here on: labels are there.
const TAIL_BYTES: u64 = 2 << 20;

/// One disk.
pub struct Disk {
    /// The disk.
    pub disk: SimDisk,
    /// How large it is.
    pub size_bytes: u64,
}

/// A top-level vdev: its children by number, those that are there.
struct Top {
    children: Vec<Option<usize>>,
    raidz: Option<RaidzShape>,
}

/// All disks of a pool.
pub struct Devices {
    disks: Vec<Disk>,
    tops: BTreeMap<VdevId, Top>,
}

/// A slot of the ring of uberblocks.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// Which disk.
    pub disk: usize,
    /// Where on it.
    pub offset: u64,
    /// How large it is.
    pub bytes: u64,
}

impl Devices {
    /// What the labels of these disks say.
    pub fn new(disks: Vec<Disk>) -> Devices {
        let mut tops = BTreeMap::new();
        let labels: Vec<Option<(u64, VdevConfig)>> = disks.iter().map(label).collect();
        for (_, config) in labels.iter().flatten() {
            let place = |child: &VdevConfig| {
                let is_it = |label: &Option<(u64, VdevConfig)>| {
                    label
                        .as_ref()
                        .is_some_and(|(guid, _)| *guid == child.guid.get())
                };
                labels.iter().position(is_it)
            };
            let children: Vec<Option<usize>> = match config.kind.is_leaf() {
                true => vec![place(config)],
                false => config.children.iter().map(place).collect(),
            };
            let Some(raidz) = shape(config) else { continue };
            tops.entry(VdevId::from(config.id))
                .or_insert(Top { children, raidz });
        }
        Devices { disks, tops }
    }

    /// The disk of this number.
    pub fn disk(&self, number: usize) -> &Disk {
        &self.disks[number]
    }

    /// How many disks there are.
    pub fn count(&self) -> usize {
        self.disks.len()
    }

    /// What is stored at a place; none where that cannot be known here.
    pub fn read(&self, place: Dva, size: usize) -> Option<Vec<u8>> {
        let top = self.tops.get(&place.vdev())?;
        let Some(shape) = top.raidz else {
            let disk = top.children.iter().flatten().next()?;
            return self.read_from(*disk, place.offset().get(), size);
        };
        let map = shape.map(checked(shape, place)?, whole(shape, size)?);
        let mut bytes = Vec::new();
        for column in map.data() {
            let disk = (*top.children.get(column.child)?)?;
            bytes.extend(self.read_from(disk, column.offset, column.size)?);
        }
        bytes.truncate(size);
        Some(bytes)
    }

    /// Stores bytes at a place; none where that cannot be done here.
    pub fn write(&self, place: Dva, bytes: &[u8]) -> Option<()> {
        let top = self.tops.get(&place.vdev())?;
        let Some(shape) = top.raidz else {
            for disk in top.children.iter().flatten() {
                self.write_to(*disk, place.offset().get(), bytes)?;
            }
            return Some(());
        };
        let size = whole(shape, bytes.len())?;
        let mut padded = bytes.to_vec();
        padded.resize(narrow(size), 0);
        let map = shape.map(checked(shape, place)?, size);
        let data: Vec<&[u8]> = map.data_ranges().map(|range| &padded[range]).collect();
        let mut parities = vec![vec![0; map.column_size_max()]; map.parity];
        let mut rows: Vec<&mut [u8]> = parities.iter_mut().map(|row| &mut row[..]).collect();
        parity::generate(&data, &mut rows);
        let all = parities.iter().map(|row| &row[..]).chain(data);
        for (column, bytes) in map.columns.iter().zip(all) {
            if let Some(disk) = top.children.get(column.child).copied().flatten() {
                self.write_to(disk, column.offset, bytes)?;
            }
        }
        Some(())
    }

    /// The end of what the first vdev can hold: blocks that grew are put there, backwards.
    pub fn tail(&self) -> Option<(VdevId, u64)> {
        let (vdev, top) = self
            .tops
            .iter()
            .find(|(_, top)| top.children.iter().any(Option::is_some))?;
        let sizes = top
            .children
            .iter()
            .flatten()
            .map(|disk| self.disks[*disk].size_bytes);
        let room = sizes.min()?.checked_sub(DATA_START_BYTES + TAIL_BYTES)?;
        let width = top.raidz.map_or(1, |shape| shape.width);
        Some((*vdev, (room * width) & !0xffff))
    }

    /// How much room a block takes on a vdev.
    pub fn allocated(&self, vdev: VdevId, size: usize) -> AllocatedSize {
        let shape = self.tops.get(&vdev).and_then(|top| top.raidz);
        match shape {
            Some(shape) => shape.allocated_size(widen(size)),
            None => AllocatedSize::from(widen(size.next_multiple_of(4096))),
        }
    }

    /// The newest uberblock, and all slots that hold it.
    pub fn newest_uberblock(&self) -> Option<(Uberblock, Vec<Slot>)> {
        let found: Vec<(Uberblock, Slot)> = (0..self.disks.len())
            .filter_map(|disk| newest(&self.disks[disk], disk))
            .collect();
        let (best, _) = found
            .iter()
            .max_by(|(first, _), (second, _)| first.compare(second))?;
        let mut slots = Vec::new();
        for (_, slot) in found.iter().filter(|(other, _)| other.txg == best.txg) {
            let labels = (0..LABEL_COUNT)
                .filter_map(|label| label_offset(self.disks[slot.disk].size_bytes, label));
            slots.extend(labels.map(|label| Slot {
                offset: label + slot.offset,
                ..*slot
            }));
        }
        Some((*best, slots))
    }

    fn read_from(&self, disk: usize, offset: u64, size: usize) -> Option<Vec<u8>> {
        let disk = &self.disks[disk];
        let at = DATA_START_BYTES.checked_add(offset)?;
        let is_there = at.checked_add(widen(size))? <= disk.size_bytes;
        is_there.then(|| disk.disk.peek(at, size))
    }

    fn write_to(&self, disk: usize, offset: u64, bytes: &[u8]) -> Option<()> {
        let disk = &self.disks[disk];
        let at = DATA_START_BYTES.checked_add(offset)?;
        let is_there = at.checked_add(widen(bytes.len()))? <= disk.size_bytes;
        is_there.then(|| disk.disk.poke(at, bytes))
    }
}

/// The guid of a disk, and the top-level vdev it is of.
fn label(disk: &Disk) -> Option<(u64, VdevConfig)> {
    let offset = label_offset(disk.size_bytes, 0)? + CONFIGURATION_OFFSET;
    let area = disk.disk.peek(offset, narrow(CONFIGURATION_BYTES));
    let list = NvList::decode(unpack_configuration(&area).ok()?.contents).ok()?;
    let tree = list.optional_list("vdev_tree").ok()??;
    Some((list.u64("guid").ok()?, VdevConfig::parse(tree).ok()?))
}

/// The shape of a vdev that can be read here: none inside for one that is no RAID-Z.
fn shape(config: &VdevConfig) -> Option<Option<RaidzShape>> {
    match config.kind {
        VdevKind::Mirror => Some(None),
        VdevKind::Raidz { parity } => {
            let was_expanded = config
                .other
                .iter()
                .any(|(name, _)| name.to_string().starts_with("raidz_expan"));
            let top = config.top_level.as_ref().filter(|_| !was_expanded)?;
            Some(Some(RaidzShape {
                width: widen(config.children.len()),
                parity: u64::from(parity),
                ashift: top.ashift,
            }))
        }
        kind if kind.is_leaf() => Some(None),
        _ => None,
    }
}

/// A place as RAID-Z wants it: at a sector.
fn checked(shape: RaidzShape, place: Dva) -> Option<VdevOffset> {
    let offset = place.offset();
    offset
        .get()
        .is_multiple_of(1 << shape.ashift)
        .then_some(offset)
}

/// Whole sectors.
fn whole(shape: RaidzShape, size: usize) -> Option<u64> {
    (size > 0).then(|| widen(size).next_multiple_of(1 << shape.ashift))
}

/// The newest uberblock of a disk, and where it is in each label.
fn newest(disk: &Disk, number: usize) -> Option<(Uberblock, Slot)> {
    let mut best: Option<(Uberblock, Slot)> = None;
    for ashift in 9..=16 {
        let ring = Ring::new(ashift);
        for slot in 0..ring.slot_count() {
            let offset = ring.slot_offset(slot);
            let bytes = disk.disk.peek(offset, narrow(ring.slot_bytes()));
            let verifier = embedded::label_verifier(offset);
            if embedded::verify(ChecksumAlgorithm::Label, &bytes, &verifier).is_err() {
                continue;
            }
            let Ok((uberblock, ByteOrder::Little)) = Uberblock::from_slot(&bytes) else {
                continue;
            };
            if best
                .as_ref()
                .is_none_or(|(other, _)| uberblock.compare(other).is_gt())
            {
                let slot = Slot {
                    disk: number,
                    offset,
                    bytes: ring.slot_bytes(),
                };
                best = Some((uberblock, slot));
            }
        }
    }
    best
}

/// Seals a piece of a label, whose checksum follows from its place.
pub fn seal(disk: &Disk, offset: u64, piece: &mut [u8]) {
    let verifier = embedded::label_verifier(offset);
    let order = checksum::ByteOrder::Little;
    embedded::seal(ChecksumAlgorithm::Label, piece, &verifier, order);
    disk.disk.poke(offset, piece);
}
