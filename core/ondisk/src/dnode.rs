//! Dnodes: what an object is, and where its blocks are.
//!
//! # Mechanism
//! A dnode takes one or more *slots* of 512 bytes in a block of dnodes (usually 16 KiB); its
//! object's number is the index of its first slot. A 64-byte core is followed by a tail:
//!
//! ```text
//!  0      64                                                       512 .. 16K
//!  +------+-----------+-----------+-----------+---------------------+
//!  | core | pointer 0 | pointer 1 | pointer 2 |                     |
//!  +------+-----------+-----------+-----------+---------------------+
//!  | core | pointer 0 | bonus                                       |
//!  +------+-----------+-------------------------------+-------------+
//!  | core | pointer 0 | bonus                         | spill       |
//!  +------+-----------+-------------------------------+-------------+
//! ```
//!
//! One to three pointers root the object's tree of blocks. The *bonus* holds a small structure that
//! belongs to the object (a file's attributes, a dataset's header); when it outgrows its room, a
//! *spill* block continues it. The bonus is carried here as bytes.
//!
//! # Invariants
//! - The slots of a dnode lie in one block. Slots in its interior have no meaning of their own, so
//!   a block of dnodes is walked from its start, or a number is trusted to be a first slot.
//! - Room for the bonus beyond its length may hold stale bytes; they are carried unchanged.
//! - Bonus bytes of a decoded dnode are little-endian, or of a kind that tells its own order.

use crate::block_pointer::{BLOCK_BYTES_MAX, BlockPointer};
use crate::checksum::ChecksumKind;
use crate::compression::Compression;
use crate::declare::{ByteOrder, Corrupt, Reader, Reserved, Writer, narrow, widen};
use crate::object_type::{Layout, ObjectType};
use crate::on_disk;
use crate::units::{AllocatedSize, BlockId, Level, LogicalSize};

/// The size of a slot, and of the smallest dnode, in bytes.
#[doc(alias = "DNODE_MIN_SIZE")]
pub const SLOT_BYTES: usize = 512;
/// The size of the largest dnode, and of a usual block of dnodes, in bytes.
#[doc(alias = "DNODE_MAX_SIZE")]
pub const DNODE_BYTES_MAX: usize = 16 << 10;
/// The size of a dnode without its tail, in bytes.
#[doc(alias = "DNODE_CORE_SIZE")]
pub const CORE_BYTES: usize = 64;
/// The size of a block of dnodes, as a power of two.
pub const DNODE_BLOCK_SHIFT: u32 = 14;
/// The smallest block of pointers is `2^12` bytes.
#[doc(alias = "DN_MIN_INDBLKSHIFT")]
pub const INDIRECT_SHIFT_MIN: u8 = 12;
/// The largest block of pointers is `2^17` bytes, which is also the default.
#[doc(alias = "DN_MAX_INDBLKSHIFT")]
pub const INDIRECT_SHIFT_MAX: u8 = 17;
/// How many pointers a dnode has at most.
#[doc(alias = "DN_MAX_NBLKPTR")]
pub const POINTERS_MAX: usize = 3;
/// Object numbers have 48 bits.
#[doc(alias = "DN_MAX_OBJECT_SHIFT")]
pub const OBJECT_BITS: u32 = 48;
/// The largest bonus of a dnode of one slot with one pointer, in bytes.
#[doc(alias = "DN_OLD_MAX_BONUSLEN")]
pub const OLD_BONUS_BYTES_MAX: usize = bonus_room(1, 1, Spill::Absent);

/// The size of a block pointer, in bytes, as a power of two.
pub const POINTER_SHIFT: u32 = 7;

const POINTER_BYTES: usize = 1 << POINTER_SHIFT;

/// Whether a dnode's tail ends in a spill pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spill {
    /// It does not.
    Absent,
    /// It does.
    Present,
}

/// How many bytes of bonus a dnode has room for.
pub const fn bonus_room(slots: usize, pointers: usize, spill: Spill) -> usize {
    let spill_bytes = match spill {
        Spill::Absent => 0,
        Spill::Present => POINTER_BYTES,
    };
    slots * SLOT_BYTES - CORE_BYTES - pointers * POINTER_BYTES - spill_bytes
}

/// The flags of a dnode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DnodeFlags(pub u8);

impl DnodeFlags {
    /// Used space is stored in bytes, not sectors.
    #[doc(alias = "DNODE_FLAG_USED_BYTES")]
    pub const USED_BYTES: DnodeFlags = DnodeFlags(1);
    /// The object's space is counted for its owner.
    #[doc(alias = "DNODE_FLAG_USERUSED_ACCOUNTED")]
    pub const USED_ACCOUNTED: DnodeFlags = DnodeFlags(2);
    /// The tail ends in a spill pointer.
    #[doc(alias = "DNODE_FLAG_SPILL_BLKPTR")]
    pub const SPILL: DnodeFlags = DnodeFlags(4);
    /// The object itself is counted for its owner.
    #[doc(alias = "DNODE_FLAG_USEROBJUSED_ACCOUNTED")]
    pub const OBJECT_ACCOUNTED: DnodeFlags = DnodeFlags(8);

    /// True when all of `flags` are set.
    pub const fn contains(self, flags: DnodeFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and `flags`.
    pub const fn with(self, flags: DnodeFlags) -> DnodeFlags {
        DnodeFlags(self.0 | flags.0)
    }

    /// These but `flags`.
    pub const fn without(self, flags: DnodeFlags) -> DnodeFlags {
        DnodeFlags(self.0 & !flags.0)
    }
}

on_disk! {
    /// The fixed part of a dnode, as it is stored.
    struct Core [64 bytes] {
        0  => object_type: ObjectType,
        1  => indirect_shift: u8,
        2  => levels: u8,
        3  => pointer_count: u8,
        4  => bonus_type: ObjectType,
        5  => checksum: ChecksumKind,
        6  => compression: Compression,
        7  => flags: u8,
        8  => data_block_sectors: u16,
        10 => bonus_length: u16,
        12 => extra_slots: u8,
        13 => reserved: Reserved<3>,
        16 => max_block: BlockId,
        24 => used: u64,
        32 => reserved2: Reserved<32>,
    }
}

/// What an object is, and where its blocks are.
#[doc(alias = "dnode_phys_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dnode {
    /// What the object is for; `None` in a free slot.
    pub object_type: ObjectType,
    /// The size of its blocks of pointers, as a power of two.
    pub indirect_shift: u8,
    /// How many levels its tree has; with one, the dnode's pointers are to data.
    pub levels: u8,
    /// What the bonus is.
    pub bonus_type: ObjectType,
    /// How its blocks are checksummed; `Inherit` for as the dataset says.
    pub checksum: ChecksumKind,
    /// How its blocks are compressed; `Inherit` for as the dataset says.
    pub compression: Compression,
    /// See [`DnodeFlags`]. Whether there is a spill pointer is said by `spill` alone.
    pub flags: DnodeFlags,
    /// The size of its data blocks: whole sectors.
    pub data_block_size: LogicalSize,
    /// How many slots it takes beyond the first.
    pub extra_slots: u8,
    /// The highest data block ever written.
    pub max_block: BlockId,
    /// What its blocks take on disk.
    pub used: AllocatedSize,
    /// One to three roots of its tree.
    pub pointers: Vec<BlockPointer>,
    /// The block that continues the bonus.
    pub spill: Option<BlockPointer>,
    bonus_length: u16,
    /// All the room for the bonus. Behind `bonus_length` there may be stale bytes.
    bonus_room: Vec<u8>,
    reserved: Reserved<3>,
    reserved2: Reserved<32>,
}

impl Dnode {
    /// A dnode of `slots` slots with `pointer_count` pointers, all holes, and an empty bonus.
    /// Everything else has the value of an object just allocated.
    ///
    /// # Panics
    /// When there are no slots or more than 32, or no pointers or more than three.
    pub fn new(object_type: ObjectType, slots: u8, pointer_count: usize) -> Dnode {
        assert!((1..=32).contains(&slots), "a dnode has 1 to 32 slots");
        assert!(
            (1..=POINTERS_MAX).contains(&pointer_count),
            "a dnode has 1 to 3 pointers"
        );
        Dnode {
            object_type,
            indirect_shift: INDIRECT_SHIFT_MAX,
            levels: 1,
            bonus_type: ObjectType::None,
            checksum: ChecksumKind::Inherit,
            compression: Compression::Inherit,
            flags: DnodeFlags::USED_BYTES,
            data_block_size: LogicalSize::from(512),
            extra_slots: slots - 1,
            max_block: BlockId::ZERO,
            used: AllocatedSize::ZERO,
            pointers: vec![BlockPointer::HOLE; pointer_count],
            spill: None,
            bonus_length: 0,
            bonus_room: vec![0; bonus_room(usize::from(slots), pointer_count, Spill::Absent)],
            reserved: Reserved::default(),
            reserved2: Reserved::default(),
        }
    }

    /// A free slot.
    pub fn free() -> Dnode {
        Dnode {
            object_type: ObjectType::None,
            indirect_shift: 0,
            levels: 0,
            bonus_type: ObjectType::None,
            checksum: ChecksumKind::Inherit,
            compression: Compression::Inherit,
            flags: DnodeFlags::default(),
            data_block_size: LogicalSize::ZERO,
            extra_slots: 0,
            max_block: BlockId::ZERO,
            used: AllocatedSize::ZERO,
            pointers: Vec::new(),
            spill: None,
            bonus_length: 0,
            bonus_room: vec![0; bonus_room(1, 0, Spill::Absent)],
            reserved: Reserved::default(),
            reserved2: Reserved::default(),
        }
    }

    /// True for a slot without an object.
    pub fn is_free(&self) -> bool {
        self.object_type == ObjectType::None
    }

    /// How many slots it takes.
    pub fn slots(&self) -> usize {
        usize::from(self.extra_slots) + 1
    }

    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        self.slots() * SLOT_BYTES
    }

    /// The level of the dnode's own pointers' blocks.
    pub fn top_level(&self) -> Level {
        Level::new(self.levels.saturating_sub(1))
    }

    /// How many pointers a block of pointers holds, as a power of two.
    pub fn pointers_per_block_shift(&self) -> u32 {
        u32::from(self.indirect_shift).saturating_sub(POINTER_SHIFT)
    }

    /// The bonus.
    pub fn bonus(&self) -> &[u8] {
        &self.bonus_room[..usize::from(self.bonus_length)]
    }

    /// The bonus, to change in place.
    pub fn bonus_mut(&mut self) -> &mut [u8] {
        &mut self.bonus_room[..usize::from(self.bonus_length)]
    }

    /// All the room for the bonus, with what is behind it there: zeros, or stale bytes; in an
    /// encrypted dataset, the rest of what was encrypted.
    pub fn bonus_room(&self) -> &[u8] {
        &self.bonus_room
    }

    /// How many bytes of bonus there is room for.
    pub fn bonus_capacity(&self) -> usize {
        self.bonus_room.len()
    }

    /// Replaces the bonus; the rest of its room becomes zero.
    ///
    /// # Panics
    /// When there is not enough room.
    pub fn set_bonus(&mut self, bonus_type: ObjectType, bonus: &[u8]) {
        assert!(
            bonus.len() <= self.bonus_room.len(),
            "a bonus fits its dnode"
        );
        self.bonus_type = bonus_type;
        self.bonus_length = u16::try_from(bonus.len()).expect("a bonus is at most 16 KiB");
        self.bonus_room.fill(0);
        self.bonus_room[..bonus.len()].copy_from_slice(bonus);
    }

    /// Replaces all the room for the bonus, as far as there is room: what is encrypted is more than
    /// the bonus. Its length stays.
    ///
    /// # Panics
    /// When that is longer than what is given.
    pub fn set_bonus_room(&mut self, bytes: &[u8]) {
        assert!(
            usize::from(self.bonus_length) <= bytes.len(),
            "what is encrypted has the bonus in it"
        );
        let kept = bytes.len().min(self.bonus_room.len());
        self.bonus_room.fill(0);
        self.bonus_room[..kept].copy_from_slice(&bytes[..kept]);
    }

    /// Sets or takes away the spill pointer, which shrinks or grows the room for the bonus.
    ///
    /// # Panics
    /// When a spill pointer would cover bytes of the bonus.
    pub fn set_spill(&mut self, spill: Option<BlockPointer>) {
        let kind = if spill.is_some() {
            Spill::Present
        } else {
            Spill::Absent
        };
        let room = bonus_room(self.slots(), self.pointers.len(), kind);
        assert!(
            usize::from(self.bonus_length) <= room,
            "a spill pointer spares the bonus"
        );
        self.bonus_room.resize(room, 0);
        self.spill = spill;
    }

    /// Decodes the dnode at the start of `bytes`.
    pub fn from_slots(bytes: &[u8], order: ByteOrder) -> Result<Dnode, Corrupt> {
        let mut reader = Reader::new("Dnode", bytes, order);
        let core = reader.value::<Core>()?;
        let slots = usize::from(core.extra_slots) + 1;
        if slots * SLOT_BYTES > DNODE_BYTES_MAX {
            return Err(refuse("extra slots", 12, u64::from(core.extra_slots)));
        }
        if usize::from(core.pointer_count) > POINTERS_MAX {
            return Err(refuse("pointer count", 3, u64::from(core.pointer_count)));
        }
        let mut tail = reader.part("Dnode", slots * SLOT_BYTES - CORE_BYTES)?;
        Dnode::from_parts(core, &mut tail)
    }

    fn from_parts(core: Core, tail: &mut Reader<'_>) -> Result<Dnode, Corrupt> {
        let pointers = (0..core.pointer_count)
            .map(|_| tail.value::<BlockPointer>())
            .collect::<Result<Vec<_>, _>>()?;
        let flags = DnodeFlags(core.flags);
        let has_spill = flags.contains(DnodeFlags::SPILL);
        let spill_bytes = if has_spill { POINTER_BYTES } else { 0 };
        let Some(room) = tail.remaining().checked_sub(spill_bytes) else {
            return Err(refuse("flags", 7, u64::from(core.flags)));
        };
        if usize::from(core.bonus_length) > room {
            return Err(refuse("bonus length", 10, u64::from(core.bonus_length)));
        }
        let mut bonus_room = tail.take(room)?.to_vec();
        if tail.order() == ByteOrder::Big {
            swap_bonus(
                core.bonus_type,
                &mut bonus_room[..usize::from(core.bonus_length)],
            );
        }
        let spill = has_spill
            .then(|| tail.value::<BlockPointer>())
            .transpose()?;
        let used = if flags.contains(DnodeFlags::USED_BYTES) {
            Some(AllocatedSize::from(core.used))
        } else {
            AllocatedSize::from_sectors(core.used)
        };
        Ok(Dnode {
            object_type: core.object_type,
            indirect_shift: core.indirect_shift,
            levels: core.levels,
            bonus_type: core.bonus_type,
            checksum: core.checksum,
            compression: core.compression,
            flags,
            data_block_size: LogicalSize::from(u64::from(core.data_block_sectors) * 512),
            extra_slots: core.extra_slots,
            max_block: core.max_block,
            used: used.ok_or(refuse("used sectors", 24, core.used))?,
            pointers,
            spill,
            bonus_length: core.bonus_length,
            bonus_room,
            reserved: core.reserved,
            reserved2: core.reserved2,
        })
    }

    /// Encodes into the start of `bytes`, over all its slots.
    ///
    /// # Panics
    /// When `bytes` is too small, or a field has a value that cannot be stored.
    pub fn write_to_slots(&self, bytes: &mut [u8]) {
        let flags = match self.spill {
            Some(_) => self.flags.with(DnodeFlags::SPILL),
            None => self.flags.without(DnodeFlags::SPILL),
        };
        let sectors = self.data_block_size.sectors();
        let used = match flags.contains(DnodeFlags::USED_BYTES) {
            true => self.used.get(),
            false => self.used.sectors(),
        };
        let core = Core {
            object_type: self.object_type,
            indirect_shift: self.indirect_shift,
            levels: self.levels,
            pointer_count: u8::try_from(self.pointers.len()).expect("at most 3 pointers"),
            bonus_type: self.bonus_type,
            checksum: self.checksum,
            compression: self.compression,
            flags: flags.0,
            data_block_sectors: u16::try_from(sectors).expect("a block is below 32 MiB"),
            bonus_length: self.bonus_length,
            extra_slots: self.extra_slots,
            reserved: self.reserved,
            max_block: self.max_block,
            used,
            reserved2: self.reserved2,
        };
        let mut writer = Writer::new(&mut bytes[..self.size()]);
        writer.value(&core);
        for pointer in &self.pointers {
            writer.value(pointer);
        }
        writer.bytes(&self.bonus_room);
        if let Some(spill) = &self.spill {
            writer.value(spill);
        }
        assert_eq!(writer.remaining(), 0, "a dnode fills its slots");
        debug_assert!(
            Dnode::from_slots(&bytes[..self.size()], ByteOrder::Little).is_ok(),
            "a dnode that is written can be read back"
        );
    }

    /// Encodes into bytes of its own.
    pub fn to_slots(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size()];
        self.write_to_slots(&mut bytes);
        bytes
    }

    /// Refuses a dnode that no correct program writes, and whose tree could not be walked.
    #[doc(alias = "dnode_verify")]
    pub fn check(&self) -> Result<(), Corrupt> {
        if self.is_free() {
            return Ok(());
        }
        if self.object_type.layout().is_none() {
            return Err(refuse("object type", 0, u64::from(self.object_type.code())));
        }
        if self.pointers.is_empty() {
            return Err(refuse("pointer count", 3, 0));
        }
        if self.levels == 0 || self.levels > LEVELS_MAX {
            return Err(refuse("levels", 2, u64::from(self.levels)));
        }
        let shifts = INDIRECT_SHIFT_MIN..=INDIRECT_SHIFT_MAX;
        if self.levels > 1 && !shifts.contains(&self.indirect_shift) {
            return Err(refuse("indirect shift", 1, u64::from(self.indirect_shift)));
        }
        let size = self.data_block_size;
        if size.is_zero() || size.get() > BLOCK_BYTES_MAX {
            return Err(refuse("data block size", 8, size.get()));
        }
        if self.bonus_type.layout().is_none() {
            return Err(refuse("bonus type", 4, u64::from(self.bonus_type.code())));
        }
        Ok(())
    }
}

/// How many levels a tree has at most: as many as it takes to cover 64 bits of bytes with the
/// smallest blocks.
#[doc(alias = "DN_MAX_LEVELS")]
pub const LEVELS_MAX: u8 = 12;

fn refuse(field: &'static str, offset: u64, found: u64) -> Corrupt {
    Corrupt::Value {
        what: "Dnode",
        field,
        offset,
        found,
    }
}

/// Walks a block of dnodes from its start, and gives the index of the first slot of each object
/// with its dnode. Free slots and the interiors of large dnodes are passed over. After an error
/// nothing more comes: without the size of one dnode, the next cannot be found.
pub fn walk_block(
    block: &[u8],
    order: ByteOrder,
) -> impl Iterator<Item = (usize, Result<Dnode, Corrupt>)> + '_ {
    let slots = block.len() / SLOT_BYTES;
    let mut next = 0;
    std::iter::from_fn(move || {
        while next < slots {
            let (slot, bytes) = (next, &block[next * SLOT_BYTES..]);
            if bytes[0] == ObjectType::None.code() {
                next += 1;
                continue;
            }
            let dnode = Dnode::from_slots(bytes, order);
            next = dnode.as_ref().map_or(slots, |dnode| slot + dnode.slots());
            return Some((slot, dnode));
        }
        None
    })
}

/// Decodes the dnode in one slot of a block of dnodes; free when there is no object. The caller
/// knows that the slot is not the interior of a larger dnode.
pub fn dnode_in_slot(block: &[u8], slot: usize, order: ByteOrder) -> Result<Dnode, Corrupt> {
    let start = slot.saturating_mul(SLOT_BYTES);
    let bytes = block.get(start..).ok_or(Corrupt::Truncated {
        what: "Dnode",
        offset: widen(start),
        needed: widen(SLOT_BYTES),
        present: 0,
    })?;
    Dnode::from_slots(bytes, order)
}

/// Turns the bonus of a big-endian dnode into little-endian, as far as its type tells how.
fn swap_bonus(bonus_type: ObjectType, bonus: &mut [u8]) {
    match bonus_type.layout() {
        Some(Layout::Words16) => swap_words(bonus, 2),
        Some(Layout::Words32) => swap_words(bonus, 4),
        Some(Layout::Words64) => swap_words(bonus, 8),
        Some(Layout::Znode) => swap_znode(bonus),
        // Bytes have no order, and system attributes tell theirs. Others are never a bonus.
        _ => {}
    }
}

fn swap_words(bytes: &mut [u8], size: usize) {
    bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
}

/// An old znode: 22 words, then an ACL head (a word, 32 bits, twice 16 bits), then 72 bytes of ACL
/// entries, whose arrangement depends on the version in the head; what follows is text.
fn swap_znode(bonus: &mut [u8]) {
    const WORDS: usize = 176;
    const HEAD: usize = 16;
    const ENTRIES: usize = 72;
    if bonus.len() < WORDS + HEAD + ENTRIES {
        return;
    }
    swap_words(&mut bonus[..WORDS + 8], 8);
    swap_words(&mut bonus[WORDS + 8..WORDS + 12], 4);
    swap_words(&mut bonus[WORDS + 12..WORDS + HEAD], 2);
    let version = u16::from_le_bytes([bonus[WORDS + 12], bonus[WORDS + 13]]);
    let entries = &mut bonus[WORDS + HEAD..WORDS + HEAD + ENTRIES];
    if version == 0 {
        for entry in entries.chunks_exact_mut(12) {
            swap_words(&mut entry[..8], 4);
            swap_words(&mut entry[8..], 2);
        }
        return;
    }
    let mut at = 0;
    while at + 8 <= entries.len() {
        swap_words(&mut entries[at..at + 4], 2);
        swap_words(&mut entries[at + 4..at + 8], 4);
        let kind = u16::from_le_bytes([entries[at], entries[at + 1]]);
        let flags = u16::from_le_bytes([entries[at + 2], entries[at + 3]]);
        let size = acl_entry_size(kind, flags);
        if size >= 16 && at + 16 <= entries.len() {
            swap_words(&mut entries[at + 8..at + 16], 8);
        }
        at += size;
    }
}

/// How many bytes an ACL entry takes: those for owner, owning group and everyone name no user, and
/// object entries (types 5 to 8) carry two 16-byte guids.
fn acl_entry_size(kind: u16, flags: u16) -> usize {
    const WHO: u16 = 0x7040;
    match (kind, flags & WHO) {
        (5..=8, _) => 48,
        (_, 0x1000 | 0x2040 | 0x4000) => 8,
        _ => 16,
    }
}

/// The slot an object's dnode starts at within its block of dnodes, and that block.
pub fn place_of_object(
    object: crate::units::ObjectId,
    block_size: LogicalSize,
) -> (BlockId, usize) {
    let per_block = (block_size.get() / widen(SLOT_BYTES)).max(1);
    (
        BlockId::from(object.get() / per_block),
        narrow(object.get() % per_block),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dnode_of_any_shape_reads_back() {
        for slots in [1, 2, 32] {
            for pointers in 1..=3 {
                let mut dnode = Dnode::new(ObjectType::PlainFile, slots, pointers);
                dnode.set_bonus(ObjectType::SystemAttributes, &[9; 60]);
                if slots > 1 {
                    dnode.set_spill(Some(BlockPointer::HOLE));
                }
                let back = Dnode::from_slots(&dnode.to_slots(), ByteOrder::Little).unwrap();
                assert_eq!(back.to_slots(), dnode.to_slots());
                assert_eq!(back.bonus(), [9; 60]);
                assert_eq!(back.check(), Ok(()));
            }
        }
    }

    #[test]
    fn a_block_is_walked_over_free_slots_and_interiors() {
        let mut block = vec![0; 16 << 10];
        Dnode::new(ObjectType::PlainFile, 1, 1).write_to_slots(&mut block[512..]);
        Dnode::new(ObjectType::Directory, 4, 1).write_to_slots(&mut block[1024..]);
        Dnode::new(ObjectType::PlainFile, 1, 3).write_to_slots(&mut block[31 * 512..]);
        let found: Vec<_> = walk_block(&block, ByteOrder::Little)
            .map(|(slot, dnode)| (slot, dnode.unwrap().object_type))
            .collect();
        use ObjectType::{Directory, PlainFile};
        assert_eq!(found, [(1, PlainFile), (2, Directory), (31, PlainFile)]);
    }

    #[test]
    fn a_dnode_that_claims_more_than_its_block_is_refused() {
        let mut block = Dnode::new(ObjectType::PlainFile, 1, 1).to_slots();
        block[12] = 1;
        assert!(matches!(
            Dnode::from_slots(&block, ByteOrder::Little),
            Err(Corrupt::Truncated { .. })
        ));
        block[12] = 32;
        assert!(Dnode::from_slots(&block, ByteOrder::Little).is_err());
    }

    #[test]
    fn blocks_larger_than_any_are_refused() {
        for (bytes, is_right) in [(512, true), (16 << 20, true), ((16 << 20) + 512, false)] {
            let mut dnode = Dnode::new(ObjectType::PlainFile, 1, 1);
            dnode.data_block_size = LogicalSize::from(bytes);
            let back = Dnode::from_slots(&dnode.to_slots(), ByteOrder::Little).unwrap();
            assert_eq!(back.check().is_ok(), is_right, "{bytes}");
        }
    }

    #[test]
    fn a_bonus_longer_than_its_room_is_refused() {
        let mut slot = Dnode::new(ObjectType::PlainFile, 1, 3).to_slots();
        slot[10..12].copy_from_slice(&65u16.to_le_bytes());
        assert!(matches!(
            Dnode::from_slots(&slot, ByteOrder::Little),
            Err(Corrupt::Value {
                field: "bonus length",
                ..
            })
        ));
    }

    #[test]
    fn a_big_endian_bonus_of_words_becomes_little_endian() {
        let mut dnode = Dnode::new(ObjectType::DslDirectory, 1, 1);
        dnode.set_bonus(ObjectType::DslDirectory, &7u64.to_be_bytes());
        let mut bytes = dnode.to_slots();
        swap_words(&mut bytes[8..12], 2);
        let back = Dnode::from_slots(&bytes, ByteOrder::Big).unwrap();
        assert_eq!(back.bonus(), 7u64.to_le_bytes());
    }

    #[test]
    fn an_object_has_one_place() {
        let block = LogicalSize::from(16 << 10);
        let place = place_of_object(crate::units::ObjectId::from(70), block);
        assert_eq!(place, (BlockId::from(2), 6));
    }
}
