//! Records of raw streams: encrypted contents are stored as they come.
//!
//! # Mechanism
//! As for other streams, except that everything under the owner's MAC must come out unchanged: the
//! shape of every tree, every dnode, and the sealing of each block ([`tarn_object::SealedBlock`]).
//! Objects come in blocks of dnodes, whose sealing precedes them.
//!
//! An existing object stays if it can have the shape in the stream. Otherwise it is freed, and
//! created again.

use super::{At, OLD_BLOCK_BYTES_MAX, ReceiveError, Taker, Wanted, object_type};
use std::sync::Arc;
use tarn_block::{Block, GivenForm};
use tarn_host::buffer::Buffer;
use tarn_object::{Object, ObjectError, ObjectForm, SealedBlock, TO_END, TxEstimate};
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{ByteOrder, widen};
use tarn_ondisk::dnode::{
    CORE_BYTES, INDIRECT_SHIFT_MAX, INDIRECT_SHIFT_MIN, LEVELS_MAX, POINTER_SHIFT, POINTERS_MAX,
    SLOT_BYTES,
};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::sealing::Sealing;
use tarn_ondisk::stream::{
    ObjectRange, ObjectRecord, SpillRecord, StreamFeatures, WriteRecord, record_flags,
};
use tarn_ondisk::units::{BlockId, LogicalSize};
use tarn_transform::compress::CompressionAlgorithm;

/// The size of a pointer.
const POINTER_BYTES: usize = 1 << POINTER_SHIFT;

/// Bytes of bonus in the smallest dnode with one pointer. They decide the number of pointers in
/// dnodes of every size.
#[doc(alias = "DN_OLD_MAX_BONUSLEN")]
const OLD_BONUS_BYTES_MAX: usize = SLOT_BYTES - CORE_BYTES - POINTER_BYTES;

/// The fields of an object record that only raw streams have.
struct Told {
    levels: u8,
    indirect_shift: u8,
    pointers: usize,
    max_block: u64,
}

impl Told {
    fn check(at: At, record: &ObjectRecord, wanted: &Wanted) -> Result<Told, ReceiveError> {
        let pointers = usize::from(record.pointer_count);
        let spare = OLD_BONUS_BYTES_MAX.checked_sub(wanted.bonus_bytes);
        let expected = match wanted.bonus_type {
            ObjectType::SystemAttributes => 1,
            _ => 1 + spare.unwrap_or(0) / POINTER_BYTES,
        };
        let shifts = INDIRECT_SHIFT_MIN..=INDIRECT_SHIFT_MAX;
        let levels = 1..=LEVELS_MAX;
        if pointers != expected.min(POINTERS_MAX)
            || !shifts.contains(&record.indirect_shift)
            || !levels.contains(&record.levels)
        {
            return Err(at.refuse(format!(
                "a tree of {} levels below {pointers} pointers, with blocks of 2^{} bytes",
                record.levels, record.indirect_shift
            )));
        }
        let fanout = u32::from(record.indirect_shift) - POINTER_SHIFT;
        let depth = (u32::from(record.levels - 1) * fanout).min(120);
        let reach = u128::from(record.pointer_count) << depth;
        if u128::from(record.max_block) >= reach {
            return Err(at.refuse(format!("no room for block {}", record.max_block)));
        }
        Ok(Told {
            levels: record.levels,
            indirect_shift: record.indirect_shift,
            pointers,
            max_block: record.max_block,
        })
    }
}

impl Taker<'_> {
    #[doc(alias = "receive_object_range")]
    pub(super) fn range(&mut self, record: &ObjectRange) -> Result<(), ReceiveError> {
        let at = At {
            offset: self.record_offset,
            object: record.first_object,
        };
        let meta = self.destination.set.phys().meta_dnode;
        let slots = meta.data_block_size.get() / widen(SLOT_BYTES);
        let is_block = record.slots == slots && record.first_object.is_multiple_of(slots);
        if !is_block {
            return Err(at.refuse(format!("a block of {} dnodes", record.slots)));
        }
        if self.order_of(record.flags) == ByteOrder::Big {
            return Err(at.refuse(
                "dnodes of a machine of the other byte order, which are not supported by this version",
            ));
        }
        self.highest = self.highest.max(record.first_object);
        self.range = Some(*record);
        Ok(())
    }

    /// The byte order of encrypted contents: the stream's, unless their record has the other.
    fn order_of(&self, flags: u8) -> ByteOrder {
        let is_other = flags & record_flags::OTHER_BYTE_ORDER != 0;
        match (self.order, is_other) {
            (ByteOrder::Little, false) | (ByteOrder::Big, true) => ByteOrder::Little,
            (ByteOrder::Little, true) | (ByteOrder::Big, false) => ByteOrder::Big,
        }
    }

    pub(super) fn sealed_object(
        &mut self,
        at: At,
        record: &ObjectRecord,
        payload: Buffer,
    ) -> Result<(), ReceiveError> {
        let range = self.range.filter(|range| {
            let end = range.first_object.saturating_add(range.slots);
            (range.first_object..end).contains(&at.object)
        });
        let range = range.ok_or_else(|| at.refuse("nothing was said of its block of dnodes"))?;
        let wanted = Wanted::check(at, record, self.facts.features)?;
        let told = Told::check(at, record, &wanted)?;
        let room = wanted.slots * SLOT_BYTES - CORE_BYTES - told.pointers * POINTER_BYTES;
        if payload.len() < wanted.bonus_bytes || payload.len() > room {
            return Err(at.refuse(format!("an encrypted bonus of {} bytes", payload.len())));
        }
        self.highest = self.highest.max(at.object);
        self.current = None;
        let existing = match self.destination.set.object(wanted.id, self.operation) {
            Ok(object) => Some(object),
            Err(ObjectError::NoSuchObject { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let kept = match existing {
            Some(object) => self.reshape(&object, &wanted, &told)?.then_some(object),
            None => None,
        };
        let object = match kept {
            Some(object) => object,
            None => self.make(at, &wanted, told.indirect_shift, told.pointers)?,
        };
        let tx = self.begin_writing(widen(SLOT_BYTES * wanted.slots))?;
        if !wanted.has_spill && object.info().has_spill {
            object.set_spill(&tx, None)?;
        }
        let set = &self.destination.set;
        set.seal_dnodes(&tx, range.first_object, range.sealing);
        object.set_object_type(&tx, wanted.object_type)?;
        object.set_checksum(&tx, wanted.checksum)?;
        object.set_compression(&tx, wanted.compression)?;
        object.set_form(
            &tx,
            ObjectForm {
                block_size: LogicalSize::from(wanted.block_size),
                indirect_shift: told.indirect_shift,
                levels: told.levels,
                max_block: BlockId::from(told.max_block),
                bonus_type: wanted.bonus_type,
                bonus_length: wanted.bonus_bytes,
                bonus_room: payload.to_vec(),
            },
        )?;
        self.current = Some(object);
        Ok(())
    }

    /// Frees the parts of an existing object that the stream does not have. False when all of it
    /// was freed, to be created again.
    #[doc(alias = "receive_handle_existing_object")]
    fn reshape(
        &self,
        object: &Arc<Object>,
        wanted: &Wanted,
        told: &Told,
    ) -> Result<bool, ReceiveError> {
        let info = object.info();
        let pointers = object.stored_dnode().pointers.len();
        let is_tree = info.levels > 1;
        let can_be = info.slots == wanted.slots
            && pointers == told.pointers
            && info.levels <= told.levels
            && (!is_tree || info.indirect_shift == told.indirect_shift);
        if !can_be {
            self.free_object(object)?;
            self.wait_stored()?;
            return Ok(false);
        }
        let is_same = info.block_size.get() == wanted.block_size
            && info.indirect_shift == told.indirect_shift;
        let end = match is_same {
            true => told
                .max_block
                .saturating_add(1)
                .saturating_mul(wanted.block_size),
            false => 0,
        };
        self.free_contents(object, end, TO_END)?;
        Ok(true)
    }

    pub(super) fn free_object(&self, object: &Arc<Object>) -> Result<(), ReceiveError> {
        self.free_contents(object, 0, TO_END)?;
        let tx = self.begin(TxEstimate::default())?;
        let set = &self.destination.set;
        Ok(set.free_object(&tx, object.id(), self.operation)?)
    }

    pub(super) fn sealed_write(
        &mut self,
        at: At,
        record: &WriteRecord,
        payload: Buffer,
    ) -> Result<(), ReceiveError> {
        self.in_order(at, record.offset, record.logical_size)?;
        let object = self.current(at)?;
        let info = object.info();
        let is_block = record.logical_size == info.block_size.get()
            && record.offset.is_multiple_of(record.logical_size);
        let index = record.offset / record.logical_size;
        if !is_block || index > info.max_block.get() {
            return Err(at.refuse(format!(
                "{} encrypted bytes at {}, which are no block of it",
                record.logical_size, record.offset
            )));
        }
        if object_type(at, record.object_type)? != info.object_type {
            return Err(at.refuse(format!("contents of type {}", record.object_type)));
        }
        let compression = Compression::from_code(record.compression);
        let contents = self.sealed_block(
            at,
            payload,
            record.logical_size,
            compression,
            record.flags,
            (info.object_type, record.sealing),
        )?;
        let tx = self.begin_writing(widen(contents.bytes.len()))?;
        object.write_sealed(&tx, BlockId::from(index), contents, self.operation)?;
        Ok(())
    }

    pub(super) fn sealed_spill(
        &mut self,
        at: At,
        record: &SpillRecord,
        payload: Buffer,
    ) -> Result<(), ReceiveError> {
        if record.flags & record_flags::UNCHANGED_SPILL != 0 {
            return Ok(());
        }
        let sizes = 512..=OLD_BLOCK_BYTES_MAX;
        if !sizes.contains(&record.length) || !record.length.is_multiple_of(512) {
            return Err(at.refuse(format!("a spill block of {} bytes", record.length)));
        }
        let object = self.current(at)?;
        let compression = Compression::from_code(record.compression);
        let contents = self.sealed_block(
            at,
            payload,
            record.length,
            compression,
            record.flags,
            (object.info().bonus_type, record.sealing),
        )?;
        let tx = self.begin_writing(widen(contents.bytes.len()))?;
        let done = object.set_sealed_spill(&tx, contents);
        done.map_err(|error| match error {
            ObjectError::BonusTooLarge { .. } => at.refuse("there is no room for a spill block"),
            error => error.into(),
        })
    }

    /// The stored form of a block.
    fn sealed_block(
        &self,
        at: At,
        payload: Buffer,
        logical_size: u64,
        compression: Compression,
        flags: u8,
        (of_type, sealing): (ObjectType, Sealing),
    ) -> Result<SealedBlock, ReceiveError> {
        let stored = widen(payload.len());
        let is_plain = compression == Compression::Off;
        let is_size = stored != 0
            && stored.is_multiple_of(512)
            && stored <= logical_size
            && (!is_plain || stored == logical_size);
        if !is_size {
            return Err(at.refuse(format!(
                "{stored} encrypted bytes for a block of {logical_size}"
            )));
        }
        let is_large = logical_size > OLD_BLOCK_BYTES_MAX;
        if is_large && !self.facts.features.has(StreamFeatures::LARGE_BLOCKS) {
            return Err(at.refuse("a large block, in a stream that shall have none"));
        }
        self.check_compression(at, compression)?;
        let unknown = |_| at.refuse(format!("contents compressed with {compression}"));
        let algorithm = CompressionAlgorithm::from_code(compression.code()).map_err(unknown)?;
        // Unencrypted contents have a MAC only.
        let sealing = match of_type.is_encrypted() {
            true => sealing,
            false => Sealing::of_code(sealing.message_authentication_code.0),
        };
        Ok(SealedBlock {
            bytes: Block::new(payload),
            logical_size: LogicalSize::from(logical_size),
            given: GivenForm {
                compression: algorithm,
                order: self.order_of(flags),
            },
            sealing,
        })
    }

    /// Sets the object set's MACs, which the owner of the key will verify. All changes of dnodes
    /// are stored before.
    pub(super) fn seal(&self) -> Result<(), ReceiveError> {
        let Some(key) = self.destination.key else {
            return Ok(());
        };
        self.wait_stored()?;
        let tx = self.begin(TxEstimate::default())?;
        let set = &self.destination.set;
        set.seal(&tx, key.head())?;
        drop(tx);
        Ok(())
    }

    /// Checks that the stream's key belongs to the object set.
    pub(super) fn check_set(&self) -> Result<(), ReceiveError> {
        let is_fit = match self.destination.key {
            Some(key) => key.fits(&self.destination.set),
            None => !self.destination.set.is_sealed(),
        };
        let at = At {
            offset: 0,
            object: 0,
        };
        match is_fit {
            true => Ok(()),
            false => Err(at.refuse("the dataset is not arranged as the stream says")),
        }
    }
}
