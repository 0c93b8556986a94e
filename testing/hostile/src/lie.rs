//! Disks that lie with right checksums.
//!
//! # Mechanism
//! The blocks of a pool are found by walking from its uberblock, each with the place of its pointer
//! in its parent. To tell a lie, the plain contents of one are changed ([`crate::lies`]),
//! compressed and stored again, its pointer is put right in its parent, and so on up to the
//! uberblock, which is sealed anew in all labels. Everything then verifies, on every copy and with
//! its parity; only the meaning is wrong.
//!
//! A block is stored where it was if it gets no larger, else near the end of the first vdev, where
//! nothing is.
//!
//! # Limits
//! Little-endian, no gangs, no encryption. A block that a snapshot shares is wrong for the snapshot
//! afterwards: one more lie.

use crate::devices::{Devices, Slot, seal};
use std::collections::BTreeMap;
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind};
use tarn_ondisk::checksum::{Checksum, ChecksumKind};
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{ByteOrder, Stored, narrow};
use tarn_ondisk::label::{CONFIGURATION_BYTES, CONFIGURATION_OFFSET, LABEL_COUNT, label_offset};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::{PhysicalSize, VdevId, VdevOffset};
use tarn_transform::checksum::embedded;
use tarn_transform::{ChecksumAlgorithm, CompressionAlgorithm, checksum, compress};

/// The size of a pointer.
pub const POINTER_BYTES: usize = 128;
/// The size of a dnode's slot.
pub const SLOT_BYTES: usize = 512;
/// The fixed part of a dnode.
pub const CORE_BYTES: usize = 64;
/// Where the pointer to the object set is in the bonus of a dataset.
const DATASET_ROOT_OFFSET: usize = 128;
/// Where dnodes are in an object set: meta, user, group, project.
const OBJSET_DNODES: [usize; 4] = [0, 1024, 1536, 2048];
/// No more blocks than this are looked at.
const BLOCKS_MAX: usize = 20_000;

/// What a block is, as far as it matters for lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The head of an object set.
    Objset,
    /// Pointers.
    Indirect,
    /// Dnodes.
    Dnodes,
    /// The data of an object of this type, by its code.
    Data(u8),
    /// The continuation of a bonus.
    Spill,
}

/// One block that was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// In the object set of the whole pool.
    pub is_mos: bool,
    /// The pointer that leads to it.
    pub pointer: BlockPointer,
    /// Where that pointer is: in the block of this index, at this offset. None in the uberblock.
    pub parent: Option<(usize, usize)>,
}

/// Disks about to lie.
pub struct Liar<'a> {
    devices: &'a Devices,
    uberblock: Uberblock,
    slots: Vec<Slot>,
    /// Where blocks that grew go: a vdev, and the next place, counting down.
    tail: (VdevId, u64),
    /// What was found.
    pub blocks: Vec<Found>,
}

impl<'a> Liar<'a> {
    /// Finds the blocks of the pool on these disks, unless they are known. None when there is no
    /// pool that this can walk.
    pub fn new(devices: &'a Devices, known: Option<Vec<Found>>) -> Option<Liar<'a>> {
        let (uberblock, slots) = devices.newest_uberblock()?;
        let mut liar = Liar {
            devices,
            uberblock,
            slots,
            tail: devices.tail()?,
            blocks: known.unwrap_or_default(),
        };
        if liar.blocks.is_empty() {
            liar.walk();
        }
        Some(liar)
    }

    /// The blocks of each kind, those of the whole pool apart.
    pub fn by_kind(&self) -> BTreeMap<(bool, Kind), Vec<usize>> {
        let mut kinds: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, block) in self.blocks.iter().enumerate() {
            kinds
                .entry((block.is_mos, block.kind))
                .or_default()
                .push(index);
        }
        kinds
    }

    fn walk(&mut self) {
        let root = self.uberblock.root;
        self.add(Kind::Objset, true, root, None);
        let mut next = 0;
        while next < self.blocks.len() && self.blocks.len() < BLOCKS_MAX {
            self.look_into(next);
            next += 1;
        }
    }

    fn add(
        &mut self,
        kind: Kind,
        is_mos: bool,
        pointer: BlockPointer,
        parent: Option<(usize, usize)>,
    ) {
        let is_readable = pointer.kind() == PointerKind::Stored
            && !pointer.is_gang()
            && pointer.check().is_ok()
            && pointer.is_little_endian();
        let is_known = |found: &Found| {
            let (ours, theirs) = (found.pointer.dvas().next(), pointer.dvas().next());
            ours == theirs
        };
        // A file's own blocks are enough of a sample when there are many.
        if is_readable && !self.blocks.iter().rev().take(64).any(is_known) {
            self.blocks.push(Found {
                kind,
                is_mos,
                pointer,
                parent,
            });
        }
    }

    fn look_into(&mut self, index: usize) {
        let Found {
            kind,
            is_mos,
            pointer,
            ..
        } = self.blocks[index].clone();
        let Some(bytes) = self.read(&pointer) else {
            return;
        };
        match kind {
            Kind::Objset => {
                for at in OBJSET_DNODES {
                    self.look_into_dnode(index, is_mos, &bytes, at);
                }
            }
            Kind::Dnodes => {
                let mut at = 0;
                while at + SLOT_BYTES <= bytes.len() {
                    let extra = usize::from(bytes[at + 12]);
                    self.look_into_dnode(index, is_mos, &bytes, at);
                    at += SLOT_BYTES * (1 + if bytes[at] == 0 { 0 } else { extra });
                }
            }
            Kind::Indirect => {
                for at in (0..bytes.len() / POINTER_BYTES).map(|slot| slot * POINTER_BYTES) {
                    let Some(child) = pointer_at(&bytes, at) else {
                        continue;
                    };
                    let kind = kind_of(&child);
                    self.add(kind, is_mos, child, Some((index, at)));
                }
            }
            Kind::Data(_) | Kind::Spill => {}
        }
    }

    fn look_into_dnode(&mut self, index: usize, is_mos: bool, bytes: &[u8], at: usize) {
        let Some(core) = bytes.get(at..at + CORE_BYTES) else {
            return;
        };
        if core[0] == 0 {
            return;
        }
        let count = usize::from(core[3]);
        let has_spill = core[7] & 4 != 0;
        for number in 0..count.min(3) {
            let place = at + CORE_BYTES + number * POINTER_BYTES;
            if let Some(child) = pointer_at(bytes, place) {
                self.add(kind_of(&child), is_mos, child, Some((index, place)));
            }
        }
        let end = at + SLOT_BYTES * (1 + usize::from(core[12]));
        if has_spill && let Some(child) = pointer_at(bytes, end - POINTER_BYTES) {
            self.add(
                Kind::Spill,
                is_mos,
                child,
                Some((index, end - POINTER_BYTES)),
            );
        }
        if core[4] == ObjectType::DslDataset.code() && is_mos {
            let place = at + CORE_BYTES + count * POINTER_BYTES + DATASET_ROOT_OFFSET;
            if let Some(child) = pointer_at(bytes, place) {
                self.add(Kind::Objset, false, child, Some((index, place)));
            }
        }
    }

    /// A block as it is stored.
    pub fn read_stored(&self, pointer: &BlockPointer) -> Option<Vec<u8>> {
        self.devices
            .read(pointer.dvas().next()?, pointer.physical_size().to_usize())
    }

    /// The plain contents of a block.
    pub fn read(&self, pointer: &BlockPointer) -> Option<Vec<u8>> {
        let stored = self.read_stored(pointer)?;
        let algorithm = CompressionAlgorithm::from_code(pointer.compression().code()).ok()?;
        let mut plain = vec![0; pointer.logical_size().to_usize()];
        compress::decompress(algorithm, &stored, &mut plain).ok()?;
        Some(plain)
    }

    /// The plain contents of the block of this index.
    pub fn contents(&self, index: usize) -> Option<Vec<u8>> {
        self.read(&self.blocks[index].pointer)
    }

    /// Gives a block other contents of the same size, and makes everything above it verify. False
    /// when that cannot be.
    pub fn tell(&mut self, index: usize, contents: &[u8]) -> bool {
        let mut contents = contents.to_vec();
        let mut index = index;
        loop {
            let Some(pointer) = self.store(self.blocks[index].pointer, &contents) else {
                return false;
            };
            self.blocks[index].pointer = pointer;
            let Some((parent, at)) = self.blocks[index].parent else {
                self.uberblock.root = pointer;
                self.seal();
                return true;
            };
            let Some(mut above) = self.contents(parent) else {
                return false;
            };
            pointer.write_to(&mut above[at..at + POINTER_BYTES]);
            (contents, index) = (above, parent);
        }
    }

    /// Changes the uberblock itself.
    pub fn tell_uberblock(&mut self, change: impl FnOnce(&mut Uberblock)) {
        change(&mut self.uberblock);
        self.seal();
    }

    /// How many disks have labels.
    pub fn disk_count(&self) -> usize {
        self.devices.count()
    }

    /// Changes what the labels of a disk say of the pool: all of them, or one.
    pub fn tell_labels(&mut self, disk: usize, only: Option<u64>, change: impl FnOnce(&mut [u8])) {
        let disk = self.devices.disk(disk);
        let length = narrow(CONFIGURATION_BYTES);
        let places = (0..LABEL_COUNT).filter_map(|label| {
            let is_wanted = only.is_none_or(|only| only == label);
            let label = label_offset(disk.size_bytes, label).filter(|_| is_wanted)?;
            Some(label + CONFIGURATION_OFFSET)
        });
        let places: Vec<u64> = places.collect();
        let Some(first) = places.first() else {
            return;
        };
        let mut area = disk.disk.peek(*first, length);
        change(&mut area[..length - embedded::TRAILER_BYTES]);
        for offset in places {
            seal(disk, offset, &mut area);
        }
    }

    /// Stores contents in all places of a pointer, and gives back the pointer to them.
    fn store(&mut self, pointer: BlockPointer, contents: &[u8]) -> Option<BlockPointer> {
        let mut pointer = pointer;
        let room = pointer.physical_size().to_usize();
        let algorithm = CompressionAlgorithm::from_code(pointer.compression().code()).ok()?;
        let compressed = match algorithm {
            CompressionAlgorithm::Off => Some(contents.to_vec()),
            algorithm => compress::compress(algorithm, contents, room),
        };
        let bytes = match compressed.filter(|bytes| bytes.len() <= room) {
            Some(mut bytes) => {
                bytes.resize(room, 0);
                bytes
            }
            None => {
                let (vdev, end) = self.tail;
                let size = self.devices.allocated(vdev, contents.len());
                let at = end.checked_sub(size.get().next_multiple_of(1 << 16))?;
                self.tail = (vdev, at);
                pointer.set_dvas(&[Dva::new(vdev, VdevOffset::from(at), size)]);
                pointer.set_compression(Compression::Off);
                pointer.set_physical_size(PhysicalSize::of(contents));
                contents.to_vec()
            }
        };
        for place in pointer.dvas().collect::<Vec<_>>() {
            // A copy that cannot be written here is an old one: it does not verify, and another is
            // taken.
            let _ = self.devices.write(place, &bytes);
        }
        let algorithm = ChecksumAlgorithm::from_code(pointer.checksum_kind().code()).ok()?;
        if algorithm.is_embedded() || algorithm.needs_salt() {
            return None;
        }
        let order = checksum::ByteOrder::Little;
        let sum = checksum::checksum(algorithm, &bytes, order, None);
        pointer.set_checksum(pointer.checksum_kind(), Checksum(sum.0));
        Some(pointer)
    }

    /// Puts the uberblock where the newest was, in all labels.
    fn seal(&self) {
        for slot in &self.slots {
            let mut bytes = self.uberblock.to_slot(slot.bytes);
            seal(self.devices.disk(slot.disk), slot.offset, &mut bytes);
        }
    }

    /// The uberblock.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }
}

/// What is behind a pointer.
fn kind_of(pointer: &BlockPointer) -> Kind {
    match (pointer.level().get(), pointer.object_type()) {
        (0, ObjectType::Dnode) => Kind::Dnodes,
        (0, ObjectType::Objset) => Kind::Objset,
        (0, other) => Kind::Data(other.code()),
        _ => Kind::Indirect,
    }
}

fn pointer_at(bytes: &[u8], at: usize) -> Option<BlockPointer> {
    let bytes = bytes.get(at..at + POINTER_BYTES)?;
    BlockPointer::from_bytes(bytes, ByteOrder::Little).ok()
}

/// A pointer whose checksum is not looked at.
pub fn without_checksum(pointer: &BlockPointer) -> BlockPointer {
    let mut pointer = *pointer;
    pointer.set_checksum(ChecksumKind::Off, Checksum::ZERO);
    pointer
}
