//! Block pointers: where a block is, how it was made, and what its bytes must add up to.
//!
//! # Problem
//! A parent must be able to prove that the block it reads is the one that was written, even when a
//! device lies. So the proof, a checksum, is kept with the parent, next to the place; and since
//! parents are guarded the same way, one checksum in the uberblock vouches for the whole pool.
//!
//! # Mechanism
//! A pointer is sixteen words. Up to three *DVAs* name places that hold the same bytes:
//!
//! ```text
//!          64      56              32      24              0
//!          +-------+---------------+-------+---------------+
//!  0, 2, 4 |   0   |     vdev      | grid  | allocated/512 |
//!          +-+-----+---------------+-------+---------------+
//!  1, 3, 5 |G|              offset / 512                   |
//!          +-+---------------------------------------------+
//! ```
//!
//! `G`: the place holds a gang header, not the block ([`gang`](crate::gang)). Word 6 says how the
//! block was made:
//!
//! ```text
//!   63  62  61  60   56 55  48 47      40 39 38       32 31      16 15     0
//!  +---+---+---+-------+------+----------+--+-----------+----------+--------+
//!  | B | D | X | level | type | checksum |E | compress. | physical | logical|
//!  +---+---+---+-------+------+----------+--+-----------+----------+--------+
//! ```
//!
//! `B`: the block is little-endian. `D`: its twins are known to the dedup table. `X`: encrypted
//! or authenticated. `E`: there is no block, the pointer's other words are its contents
//! ([`embedded`](crate::embedded)). Sizes count 512-byte sectors, less one.
//!
//! Word 7, bit 63: the block was rewritten in its physical birth without a change to its contents.
//! Word 9 is the physical birth, or zero where it equals the logical birth in word 10. Word 11 is
//! the *fill*: how many allocated things are below (data blocks; for dnode blocks, dnodes). Words
//! 12 to 15 are the checksum.
//!
//! # Invariants
//! - A pointer whose first DVA is zero is a *hole*: its block reads as zeros. A hole that was once
//!   filled keeps type, level, logical size and the txg in which it was punched, so that an
//!   incremental send can tell.
//! - Pointers we make are little-endian in every bit they have.

use crate::checksum::{Checksum, ChecksumKind};
use crate::compression::Compression;
use crate::declare::{Corrupt, Reader, Stored, Writer, bit, bits, with_bits};
use crate::object_type::ObjectType;
use crate::on_disk;
use crate::units::{AllocatedSize, Level, LogicalSize, PhysicalSize, Txg, VdevId, VdevOffset};
use std::fmt;

/// The unit of sizes and places in a pointer, in bytes. From the format.
#[doc(alias = "SPA_MINBLOCKSIZE")]
pub const SECTOR_BYTES: u64 = 512;

/// The largest block, in bytes. From the format.
#[doc(alias = "SPA_MAXBLOCKSIZE")]
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// The largest block without the feature `large_blocks`, in bytes. From the format.
#[doc(alias = "SPA_OLD_MAXBLOCKSIZE")]
pub const OLD_BLOCK_BYTES_MAX: u64 = 128 << 10;

/// How many places a pointer can name.
#[doc(alias = "SPA_DVAS_PER_BP")]
pub const DVA_COUNT: usize = 3;

/// The largest allocation one DVA can express: 24 bits of sectors.
#[doc(alias = "SPA_ASIZEBITS")]
pub const ALLOCATED_BYTES_MAX: u64 = ((1 << 24) - 1) * SECTOR_BYTES;

/// One place: on which top-level vdev, where, and how much was allocated there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[doc(alias = "dva_t")]
pub struct Dva {
    words: [u64; 2],
}

impl Dva {
    /// No place.
    pub const EMPTY: Dva = Dva { words: [0; 2] };

    /// A place for a block.
    ///
    /// # Panics
    /// When the vdev has more than 24 bits, the size is not sectors or more than
    /// [`ALLOCATED_BYTES_MAX`], or the offset is not sectors.
    pub fn new(vdev: VdevId, offset: VdevOffset, size: AllocatedSize) -> Dva {
        assert!(
            offset.is_multiple_of(SECTOR_BYTES),
            "a place starts at a sector"
        );
        assert!(
            size.is_multiple_of(SECTOR_BYTES),
            "an allocation is whole sectors"
        );
        let place = with_bits(with_bits(0, 0, 24, size.sectors()), 32, 24, vdev.get());
        Dva {
            words: [place, offset.get() / SECTOR_BYTES],
        }
    }

    /// The same place, holding a gang header instead of the block.
    pub fn as_gang(self) -> Dva {
        Dva {
            words: [self.words[0], with_bits(self.words[1], 63, 1, 1)],
        }
    }

    /// The two words as they are stored.
    pub const fn words(self) -> [u64; 2] {
        self.words
    }

    /// From the two words as they are stored.
    pub const fn from_words(words: [u64; 2]) -> Dva {
        Dva { words }
    }

    /// The top-level vdev.
    pub const fn vdev(self) -> VdevId {
        VdevId::new(bits(self.words[0], 32, 24))
    }

    /// The place on it. A sector number that no byte offset can express gives the largest offset,
    /// which is beyond the end of any vdev.
    pub const fn offset(self) -> VdevOffset {
        VdevOffset::new(bits(self.words[1], 0, 63).saturating_mul(SECTOR_BYTES))
    }

    /// How much was allocated, redundancy and padding included. For a gang header: all that its
    /// members were allocated as well.
    pub const fn allocated_size(self) -> AllocatedSize {
        AllocatedSize::new(bits(self.words[0], 0, 24) * SECTOR_BYTES)
    }

    /// True where a gang header is, not the block.
    pub const fn is_gang(self) -> bool {
        bit(self.words[1], 63)
    }

    /// True for no place at all.
    pub const fn is_empty(self) -> bool {
        self.words[0] == 0 && self.words[1] == 0
    }

    /// True where something was allocated.
    #[doc(alias = "DVA_IS_VALID")]
    pub const fn is_allocated(self) -> bool {
        !self.allocated_size().is_zero()
    }
}

impl fmt::Display for Dva {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "<{}:{:x}:{:x}>",
            self.vdev(),
            self.offset(),
            self.allocated_size()
        )
    }
}

impl fmt::Debug for Dva {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dva{self}{}", if self.is_gang() { "gang" } else { "" })
    }
}

impl Stored for Dva {
    const SIZE: usize = 16;
    const NAME: &'static str = "Dva";

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Dva {
            words: reader.value()?,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.words.encode(writer);
    }
}

on_disk! {
    /// Where a block is, how it was made, and its checksum. The fields are the stored words; the
    /// methods say what they mean, and know that an embedded pointer uses most of them otherwise.
    #[doc(alias = "blkptr_t")]
    #[derive(Copy, Default, Hash)]
    pub struct BlockPointer [128 bytes] {
        0   => dva_words: [Dva; 3],
        48  => properties: u64,
        56  => properties2: u64,
        64  => reserved: u64,
        /// Zero where it equals the logical birth.
        72  => physical_birth_word: Txg,
        80  => logical_birth: Txg,
        88  => fill_word: u64,
        96  => checksum_words: Checksum,
    }
}

/// Everything that decides a pointer to a stored block.
#[derive(Debug, Clone, Copy)]
pub struct StoredBlock<'a> {
    /// One to three places.
    pub dvas: &'a [Dva],
    /// Size before compression: whole sectors.
    pub logical_size: LogicalSize,
    /// Size after compression: whole sectors.
    pub physical_size: PhysicalSize,
    /// How it was compressed.
    pub compression: Compression,
    /// How it was checksummed.
    pub checksum_kind: ChecksumKind,
    /// The checksum.
    pub checksum: Checksum,
    /// What its object is for.
    pub object_type: ObjectType,
    /// Its height in the tree of its object.
    pub level: Level,
    /// The txg that writes it.
    pub birth: Txg,
    /// How many allocated things are below it.
    pub fill: u64,
}

/// What a pointer is, decided once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointerKind {
    /// The block reads as zeros.
    Hole,
    /// The block is in the pointer.
    Embedded,
    /// The block was left out of a redacted stream: it cannot be read.
    Redacted,
    /// The block is stored.
    Stored,
}

impl BlockPointer {
    /// A hole that was never filled: all zero.
    pub const HOLE: BlockPointer = BlockPointer {
        dva_words: [Dva::EMPTY; 3],
        properties: 0,
        properties2: 0,
        reserved: 0,
        physical_birth_word: Txg::ZERO,
        logical_birth: Txg::ZERO,
        fill_word: 0,
        checksum_words: Checksum::ZERO,
    };

    /// A pointer to a stored, little-endian block.
    ///
    /// # Panics
    /// When there are no places or more than three, or a size is not whole sectors up to
    /// [`BLOCK_BYTES_MAX`].
    pub fn stored(block: &StoredBlock<'_>) -> BlockPointer {
        assert!(!block.dvas.is_empty(), "a stored block has a place");
        let mut pointer = BlockPointer::HOLE;
        pointer.set_logical_size(block.logical_size);
        pointer.set_physical_size(block.physical_size);
        pointer.set_compression(block.compression);
        pointer.set_checksum(block.checksum_kind, block.checksum);
        pointer.set_object_type(block.object_type);
        pointer.set_level(block.level);
        pointer.set_little_endian();
        pointer.set_births(block.birth, block.birth);
        pointer.set_fill(block.fill);
        pointer.set_dvas(block.dvas);
        pointer
    }

    /// A hole where something was until `birth` (feature `hole_birth`).
    pub fn punched(
        logical_size: LogicalSize,
        object_type: ObjectType,
        level: Level,
        birth: Txg,
    ) -> BlockPointer {
        let mut pointer = BlockPointer::HOLE;
        pointer.set_logical_size(logical_size);
        pointer.set_object_type(object_type);
        pointer.set_level(level);
        pointer.logical_birth = birth;
        pointer
    }

    /// What the pointer is.
    pub fn kind(&self) -> PointerKind {
        if self.is_embedded() {
            return if self.is_redacted() {
                PointerKind::Redacted
            } else {
                PointerKind::Embedded
            };
        }
        if self.dva_words[0].is_empty() {
            PointerKind::Hole
        } else {
            PointerKind::Stored
        }
    }

    /// True where the block reads as zeros.
    pub const fn is_hole(&self) -> bool {
        !self.is_embedded() && self.dva_words[0].is_empty()
    }

    /// True where the pointer itself holds the block, or what stands for it.
    pub const fn is_embedded(&self) -> bool {
        bit(self.properties, 39)
    }

    /// True where the block was left out of a redacted stream.
    pub const fn is_redacted(&self) -> bool {
        self.is_embedded() && bits(self.properties, 40, 8) == 2
    }

    /// True where the first place holds a gang header.
    pub const fn is_gang(&self) -> bool {
        !self.is_embedded() && self.dva_words[0].is_gang()
    }

    /// True for data of a dataset with encryption: encrypted, authenticated, or above such blocks.
    pub const fn uses_encryption(&self) -> bool {
        bit(self.properties, 61)
    }

    /// True where the bytes of the block are encrypted.
    #[doc(alias = "BP_IS_ENCRYPTED")]
    pub const fn is_encrypted(&self) -> bool {
        self.uses_encryption() && self.level().is_data() && self.object_type().is_encrypted()
    }

    /// True where the block is plain, but authenticated by its dataset's key.
    #[doc(alias = "BP_IS_AUTHENTICATED")]
    pub const fn is_authenticated(&self) -> bool {
        self.uses_encryption() && self.level().is_data() && !self.object_type().is_encrypted()
    }

    /// True where the dedup table knows the block.
    pub const fn is_dedup(&self) -> bool {
        bit(self.properties, 62)
    }

    /// True where the block is little-endian.
    pub const fn is_little_endian(&self) -> bool {
        bit(self.properties, 63)
    }

    /// The byte order of the block.
    pub const fn byte_order(&self) -> crate::declare::ByteOrder {
        use crate::declare::ByteOrder;
        if self.is_little_endian() {
            ByteOrder::Little
        } else {
            ByteOrder::Big
        }
    }

    /// True where the block was moved in its physical birth without a change to its contents.
    #[doc(alias = "BP_GET_REWRITE")]
    pub const fn is_rewritten(&self) -> bool {
        !self.is_embedded() && bit(self.properties2, 63)
    }

    /// Says that its births are as they were written: the block was not moved since.
    pub fn clear_rewritten(&mut self) {
        if !self.is_embedded() {
            self.properties2 = with_bits(self.properties2, 63, 1, 0);
        }
    }

    /// The places of the block. An encrypted block has at most two; the third word pair is its
    /// salt.
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + '_ {
        let count = match (self.is_embedded(), self.is_encrypted()) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 3,
        };
        self.dva_words[..count]
            .iter()
            .copied()
            .filter(|dva| dva.is_allocated())
    }

    /// How many places the block has.
    #[doc(alias = "BP_GET_NDVAS")]
    pub fn dva_count(&self) -> usize {
        self.dvas().count()
    }

    /// What was allocated, over all places.
    #[doc(alias = "BP_GET_ASIZE")]
    pub fn allocated_size(&self) -> AllocatedSize {
        self.dvas().map(Dva::allocated_size).sum()
    }

    /// The size of the block before compression. Zero where it was redacted.
    #[doc(alias = "BP_GET_LSIZE")]
    pub const fn logical_size(&self) -> LogicalSize {
        if !self.is_embedded() {
            return LogicalSize::new((bits(self.properties, 0, 16) + 1) * SECTOR_BYTES);
        }
        if bits(self.properties, 40, 8) != 0 {
            return LogicalSize::ZERO;
        }
        LogicalSize::new(bits(self.properties, 0, 25) + 1)
    }

    /// The size of the block on each place before redundancy. Zero for an embedded one, which
    /// occupies nothing.
    #[doc(alias = "BP_GET_PSIZE")]
    pub const fn physical_size(&self) -> PhysicalSize {
        if self.is_embedded() {
            return PhysicalSize::ZERO;
        }
        PhysicalSize::new((bits(self.properties, 16, 16) + 1) * SECTOR_BYTES)
    }

    /// What the block counts as before compression: metadata counts what it takes.
    #[doc(alias = "BP_GET_UCSIZE")]
    pub fn uncompressed_size(&self) -> u64 {
        if self.is_metadata() {
            self.physical_size().get()
        } else {
            self.logical_size().get()
        }
    }

    /// How the block was compressed.
    pub const fn compression(&self) -> Compression {
        Compression::from_code(low_byte(bits(self.properties, 32, 7)))
    }

    /// How the block was checksummed. An embedded block shares its pointer's fate: `Off`.
    pub const fn checksum_kind(&self) -> ChecksumKind {
        if self.is_embedded() {
            return ChecksumKind::Off;
        }
        ChecksumKind::from_code(low_byte(bits(self.properties, 40, 8)))
    }

    /// The checksum of the block; zero for an embedded one.
    pub const fn checksum(&self) -> Checksum {
        if self.is_embedded() {
            Checksum::ZERO
        } else {
            self.checksum_words
        }
    }

    /// What the block's object is for.
    pub const fn object_type(&self) -> ObjectType {
        ObjectType::from_code(low_byte(bits(self.properties, 48, 8)))
    }

    /// The block's height in the tree of its object.
    pub const fn level(&self) -> Level {
        Level::new(low_byte(bits(self.properties, 56, 5)))
    }

    /// True for everything but the contents of files and volumes.
    #[doc(alias = "BP_IS_METADATA")]
    pub fn is_metadata(&self) -> bool {
        !self.level().is_data() || self.object_type().is_metadata()
    }

    /// The txg that wrote the block where it is. Later than the logical birth for a block that
    /// was moved, earlier for a clone or a twin. Zero for an embedded one.
    #[doc(alias = "BP_GET_PHYSICAL_BIRTH")]
    pub const fn physical_birth(&self) -> Txg {
        if self.is_embedded() {
            return Txg::ZERO;
        }
        if self.physical_birth_word.is_zero() {
            self.logical_birth
        } else {
            self.physical_birth_word
        }
    }

    /// When the block was allocated for the dataset that points at it: what deadlists and
    /// snapshots compare.
    #[doc(alias = "BP_GET_BIRTH")]
    pub const fn birth(&self) -> Txg {
        if self.is_rewritten() {
            self.physical_birth()
        } else {
            self.logical_birth
        }
    }

    /// How many allocated things are below: data blocks, or dnodes below the meta dnode.
    #[doc(alias = "BP_GET_FILL")]
    pub const fn fill(&self) -> u64 {
        if self.is_embedded() {
            1
        } else if self.is_encrypted() {
            bits(self.fill_word, 0, 32)
        } else {
            self.fill_word
        }
    }

    /// What is allocated below the pointer that these little-endian bytes are, or `None` where it
    /// is a hole. For blocks of a thousand pointers of which nothing else is asked.
    ///
    /// # Panics
    /// When there are less bytes than a pointer has.
    pub fn fill_in(bytes: &[u8]) -> Option<u64> {
        let word = |offset: usize| {
            let bytes = bytes[offset..offset + 8].try_into();
            u64::from_le_bytes(bytes.expect("a word has eight bytes"))
        };
        let pointer = BlockPointer {
            dva_words: [
                Dva {
                    words: [word(0), word(8)],
                },
                Dva::EMPTY,
                Dva::EMPTY,
            ],
            properties: word(48),
            fill_word: word(88),
            ..BlockPointer::HOLE
        };
        (!pointer.is_hole()).then(|| pointer.fill())
    }

    /// True where both point at the same bytes in the same place, whatever else they say.
    #[doc(alias = "BP_EQUAL")]
    pub fn is_same_block(&self, other: &BlockPointer) -> bool {
        self.physical_birth() == other.physical_birth()
            && self.logical_birth == other.logical_birth
            && self.dva_words == other.dva_words
    }

    /// The mark of a freed block in a list of allocated and freed ones: the lowest bit of the
    /// fill, which has no other meaning there.
    #[doc(alias = "BP_GET_FREE")]
    pub const fn is_marked_free(&self) -> bool {
        bit(self.fill_word, 0)
    }

    /// Sets that mark.
    #[doc(alias = "BP_SET_FREE")]
    pub fn set_marked_free(&mut self, free: bool) {
        self.fill_word = with_bits(self.fill_word, 0, 1, u64::from(free));
    }

    /// Sets the places; those not given become empty.
    ///
    /// # Panics
    /// When there are more than three.
    pub fn set_dvas(&mut self, dvas: &[Dva]) {
        self.dva_words = [Dva::EMPTY; DVA_COUNT];
        self.dva_words[..dvas.len()].copy_from_slice(dvas);
    }

    /// Sets the size before compression.
    ///
    /// # Panics
    /// When it is not whole sectors, at least one and at most 65,536.
    pub fn set_logical_size(&mut self, size: LogicalSize) {
        assert!(
            size.is_multiple_of(SECTOR_BYTES),
            "a logical size is whole sectors"
        );
        self.properties = with_bits(self.properties, 0, 16, size.sectors() - 1);
    }

    /// Sets the size after compression.
    ///
    /// # Panics
    /// When it is not whole sectors, at least one and at most 65,536.
    pub fn set_physical_size(&mut self, size: PhysicalSize) {
        assert!(
            size.is_multiple_of(SECTOR_BYTES),
            "a physical size is whole sectors"
        );
        self.properties = with_bits(self.properties, 16, 16, size.sectors() - 1);
    }

    /// Sets how the block was compressed.
    pub fn set_compression(&mut self, compression: Compression) {
        self.properties = with_bits(self.properties, 32, 7, u64::from(compression.code()));
    }

    /// Sets the checksum and how it was made.
    pub fn set_checksum(&mut self, kind: ChecksumKind, checksum: Checksum) {
        self.properties = with_bits(self.properties, 40, 8, u64::from(kind.code()));
        self.checksum_words = checksum;
    }

    /// Sets what the block's object is for.
    pub fn set_object_type(&mut self, object_type: ObjectType) {
        self.properties = with_bits(self.properties, 48, 8, u64::from(object_type.code()));
    }

    /// Sets the block's height in the tree of its object.
    pub fn set_level(&mut self, level: Level) {
        self.properties = with_bits(self.properties, 56, 5, u64::from(level));
    }

    /// Sets whether the dedup table knows the block.
    pub fn set_dedup(&mut self, dedup: bool) {
        self.properties = with_bits(self.properties, 62, 1, u64::from(dedup));
    }

    /// Says that the block belongs to an encrypted dataset.
    #[doc(alias = "BP_SET_CRYPT")]
    pub fn set_uses_encryption(&mut self) {
        self.properties = with_bits(self.properties, 61, 1, 1);
    }

    /// Says that the block is big-endian, as something that was received so, and cannot be turned
    /// around.
    pub fn set_big_endian(&mut self) {
        self.properties = with_bits(self.properties, 63, 1, 0);
    }

    /// Says that the block is little-endian, as everything that we store.
    pub fn set_little_endian(&mut self) {
        self.properties = with_bits(self.properties, 63, 1, 1);
    }

    /// Sets both births.
    #[doc(alias = "BP_SET_BIRTH")]
    pub fn set_births(&mut self, logical: Txg, physical: Txg) {
        self.logical_birth = logical;
        self.physical_birth_word = if physical == logical {
            Txg::ZERO
        } else {
            physical
        };
    }

    /// Sets how many allocated things are below.
    ///
    /// # Panics
    /// For an encrypted block with more than 32 bits of them.
    pub fn set_fill(&mut self, fill: u64) {
        if self.is_encrypted() {
            self.fill_word = with_bits(self.fill_word, 0, 32, fill);
        } else {
            self.fill_word = fill;
        }
    }

    /// Refuses a pointer that no correct program writes. What needs the pool to decide (does the
    /// vdev exist, is the offset inside it) is left to layers that have one.
    #[doc(alias = "zfs_blkptr_verify")]
    pub fn check(&self) -> Result<(), Corrupt> {
        let refuse = |field, offset, found| {
            Err(Corrupt::Value {
                what: "BlockPointer",
                field,
                offset,
                found,
            })
        };
        if self.object_type().layout().is_none() {
            return refuse("object type", 48, bits(self.properties, 48, 8));
        }
        if !self.compression().is_known() {
            return refuse("compression", 48, bits(self.properties, 32, 7));
        }
        if self.logical_size().get() > BLOCK_BYTES_MAX {
            return refuse("logical size", 48, self.logical_size().get());
        }
        if self.is_embedded() {
            return self.check_embedded();
        }
        if self.is_hole() {
            return Ok(());
        }
        if !self.dva_words[0].is_allocated() {
            return refuse("allocated size of the first place", 0, 0);
        }
        if !self.checksum_kind().is_known() {
            return refuse("checksum", 48, bits(self.properties, 40, 8));
        }
        if self.physical_size().get() > BLOCK_BYTES_MAX {
            return refuse("physical size", 48, self.physical_size().get());
        }
        Ok(())
    }

    /// How the pointed-at block and its kin are described in listings: without DVAs and checksum.
    fn write_description(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protection = match (self.uses_encryption(), self.level().is_data()) {
            (false, _) => "unencrypted",
            (true, false) => "indirect-MAC",
            (true, true) if self.is_encrypted() => "encrypted",
            (true, true) => "authenticated",
        };
        let copies = ["zero", "single", "double", "triple"][self.dva_count()];
        write!(
            f,
            "[L{} {}] {} {} {protection} {} {} {} {copies}",
            self.level(),
            self.object_type(),
            self.checksum_kind(),
            self.compression(),
            if self.is_little_endian() { "LE" } else { "BE" },
            if self.is_gang() { "gang" } else { "contiguous" },
            if self.is_dedup() { "dedup" } else { "unique" },
        )
    }
}

/// The last eight bits of a bit field that has no more.
pub(crate) const fn low_byte(field: u64) -> u8 {
    field.to_le_bytes()[0]
}

/// One line, as `zdb` prints it.
impl fmt::Display for BlockPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, object_type, birth) = (self.level(), self.object_type(), self.logical_birth);
        match self.kind() {
            PointerKind::Hole => write!(
                f,
                "HOLE [L{level} {object_type}] size={:x}L birth={birth}L",
                self.logical_size(),
            ),
            PointerKind::Embedded | PointerKind::Redacted => write!(
                f,
                "EMBEDDED [L{level} {object_type}] et={} {} size={:x}L/{:x}P birth={birth}L",
                bits(self.properties, 40, 8),
                self.compression(),
                bits(self.properties, 0, 25) + 1,
                bits(self.properties, 25, 7) + 1,
            ),
            PointerKind::Stored => {
                for (index, dva) in self.dvas().enumerate() {
                    write!(f, "DVA[{index}]={dva} ")?;
                }
                if self.is_encrypted() {
                    let [salt, iv] = self.dva_words[2].words();
                    write!(
                        f,
                        "salt={salt:x} iv={iv:x}:{:x} ",
                        bits(self.fill_word, 32, 32)
                    )?;
                }
                self.write_description(f)?;
                write!(
                    f,
                    " size={:x}L/{:x}P birth={birth}L/{}P fill={} cksum={}",
                    self.logical_size(),
                    self.physical_size(),
                    self.physical_birth(),
                    self.fill(),
                    self.checksum_words,
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BlockPointer {
        let place = |vdev, offset| {
            Dva::new(
                VdevId::from(vdev),
                VdevOffset::from(offset),
                AllocatedSize::from(0x3000),
            )
        };
        BlockPointer::stored(&StoredBlock {
            dvas: &[place(0, 0x4000), place(3, 0x1_0000_0000)],
            logical_size: LogicalSize::from(128 << 10),
            physical_size: PhysicalSize::from(0x2e00),
            compression: Compression::Lz4,
            checksum_kind: ChecksumKind::Fletcher4,
            checksum: Checksum([1, 2, 3, 4]),
            object_type: ObjectType::PlainFile,
            level: Level::ZERO,
            birth: Txg::from(77),
            fill: 1,
        })
    }

    #[test]
    fn the_fill_is_found_in_bytes_without_decoding_them() {
        let filled = |pointer: &BlockPointer| BlockPointer::fill_in(&pointer.to_bytes());
        let mut pointer = sample();
        pointer.set_fill(77);
        assert_eq!(filled(&pointer), Some(77));
        assert_eq!(filled(&BlockPointer::HOLE), None);
        let (size, level) = (LogicalSize::from(512), Level::ZERO);
        let birth = Txg::from(9);
        let hole = BlockPointer::punched(size, ObjectType::PlainFile, level, birth);
        assert_eq!(filled(&hole), None);
    }

    #[test]
    fn a_stored_pointer_gives_back_what_it_was_made_of() {
        let pointer = sample();
        assert_eq!(pointer.kind(), PointerKind::Stored);
        assert_eq!(pointer.dva_count(), 2);
        assert_eq!(pointer.allocated_size().get(), 0x6000);
        assert_eq!(pointer.logical_size().get(), 128 << 10);
        assert_eq!(pointer.physical_size().get(), 0x2e00);
        assert_eq!(pointer.birth(), Txg::from(77));
        assert_eq!(pointer.physical_birth(), Txg::from(77));
        assert!(!pointer.is_metadata());
        assert_eq!(pointer.check(), Ok(()));
    }

    #[test]
    fn a_pointer_prints_as_zdb_prints_it() {
        assert_eq!(
            sample().to_string(),
            "DVA[0]=<0:4000:3000> DVA[1]=<3:100000000:3000> [L0 ZFS plain file] fletcher4 lz4 \
             unencrypted LE contiguous unique double size=20000L/2e00P birth=77L/77P fill=1 \
             cksum=0000000000000001:0000000000000002:0000000000000003:0000000000000004"
        );
    }

    #[test]
    fn a_punched_hole_remembers_when() {
        let hole = BlockPointer::punched(
            LogicalSize::from(4096),
            ObjectType::PlainFile,
            Level::ZERO,
            Txg::from(9),
        );
        assert!(hole.is_hole());
        assert_eq!(
            hole.to_string(),
            "HOLE [L0 ZFS plain file] size=1000L birth=9L"
        );
        assert_eq!(hole.check(), Ok(()));
    }

    #[test]
    fn a_pointer_with_an_unknown_code_is_refused_when_checked() {
        let mut pointer = sample();
        pointer.set_compression(Compression::Unknown(99));
        assert!(matches!(
            pointer.check(),
            Err(Corrupt::Value {
                field: "compression",
                ..
            })
        ));
    }

    #[test]
    fn an_offset_beyond_64_bits_of_bytes_is_beyond_every_vdev() {
        assert_eq!(
            Dva::from_words([1, u64::MAX >> 1]).offset(),
            VdevOffset::MAX
        );
    }
}
