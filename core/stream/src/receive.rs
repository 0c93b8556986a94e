//! Receive: applies the records of a stream to an object set.
//!
//! # Mechanism
//! Each record is one change, in a transaction of its own. Records come ordered by object, and in
//! an object by offset, so the position of the receive is one object number and one offset, which
//! every transaction notes ([`ReceiveClaim::note`]): a cut stream is resumed from the stored
//! position. A record that comes twice changes nothing the second time.
//!
//! An object of the stream may exist already: unchanged, changed, or as another object with its
//! number. If its dnode has room for what the stream says, its contents are replaced in place.
//! Otherwise it is freed, and created again when that is stored, since only then its number can be
//! allocated.
//!
//! # Invariants
//! - A record is checked before anything is changed for it.
//! - No transaction is open while the stream waits for bytes.
//!
//! # Knows nothing about
//! What happens to the object set afterwards.

mod sealed;

use crate::reading::{Received, StreamError, StreamReader};
use std::io::Read;
use std::sync::Arc;
use tarn_block::{Block, GivenForm};
use tarn_dataset::crypto_key::KeyFacts;
use tarn_dataset::limits::AdmitRefusal;
use tarn_dataset::ops::receive::StreamFacts;
use tarn_dataset::receiving::{ReceiveClaim, ResumePoint};
use tarn_dataset::space_door::SpaceUse;
use tarn_host::buffer::Buffer;
use tarn_object::{
    AssignError, Caching, NewObject, Object, ObjectError, ObjectSet, OpenTx, TO_END, TxEstimate,
};
use tarn_ondisk::attributes;
use tarn_ondisk::bookmark::SPILL_BLOCK;
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{ByteOrder, narrow, widen};
use tarn_ondisk::dnode::{DNODE_BYTES_MAX, OBJECT_BITS, SLOT_BYTES, Spill, bonus_room};
use tarn_ondisk::embedded::EmbeddedType;
use tarn_ondisk::object_type::{Layout, ObjectType};
use tarn_ondisk::stream::{
    FreeObjects, FreeRecord, ObjectRange, ObjectRecord, Record, SpillRecord, StreamFeatures,
    WriteEmbedded, WriteRecord, record_flags,
};
use tarn_ondisk::units::{BlockId, LogicalSize, ObjectId};
use tarn_pool::Pool;
use tarn_probe::Operation;
use tarn_transform::compress::{CompressionAlgorithm, decompress};
use thiserror::Error;

/// Largest block size that needs no feature.
#[doc(alias = "SPA_OLD_MAXBLOCKSIZE")]
const OLD_BLOCK_BYTES_MAX: u64 = 128 << 10;

/// Estimate of the bytes written beside a record's contents: its object's dnode.
const OVERHEAD_BYTES: u64 = 16 << 10;

/// Largest block size.
#[doc(alias = "SPA_MAXBLOCKSIZE")]
const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// Bytes of an object freed in one transaction. A guess: some thousand indirect blocks.
const FREE_STEP_BYTES: u64 = 64 << 30;

/// Why a stream was not received.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// The stream ends too soon, is damaged, or cannot be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A record contradicts the format or the object set.
    #[error("invalid stream: the record at byte {offset} (object {object}): {why}")]
    Record {
        /// Position of the record, in bytes from the start of the stream.
        offset: u64,
        /// The object of the record.
        object: u64,
        /// The fault.
        why: String,
    },
    /// The dataset has no room.
    #[error(transparent)]
    Room(#[from] AdmitRefusal),
    /// The pool is suspended or closed.
    #[error(transparent)]
    Stopped(#[from] AssignError),
    /// An existing object cannot be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// The target of a stream.
pub struct Destination<'a> {
    /// The pool.
    pub pool: &'a Pool,
    /// The object set.
    pub set: Arc<ObjectSet>,
    /// The permission to receive into it.
    pub claim: &'a ReceiveClaim,
    /// Whether the position is noted, so that the receive can be resumed.
    pub is_resumable: bool,
    /// Bytes of earlier, cut streams.
    pub bytes_before: u64,
    /// The key that a raw stream brings.
    pub key: Option<&'a KeyFacts>,
}

/// Receives a stream, whose first record was read, to its end.
///
/// # Errors
/// Why it ended early. The records before that are applied.
#[doc(alias = "dmu_recv_stream")]
pub fn receive<R: Read>(
    reader: &mut StreamReader<R>,
    facts: &StreamFacts,
    flags: u32,
    destination: Destination<'_>,
    operation: &Operation,
) -> Result<(), ReceiveError> {
    let begun_at = reader.offset();
    let mut taker = Taker {
        destination,
        facts,
        tells_spill: flags & tarn_ondisk::stream::begin_flags::SPILL_BLOCK != 0,
        order: reader.order(),
        last: (0, 0),
        highest: 0,
        current: None,
        range: None,
        record_offset: 0,
        operation,
    };
    taker.check_set()?;
    loop {
        let received = reader.next()?;
        let bytes = reader.offset().saturating_sub(begun_at);
        if let Record::End(_) = received.record {
            return taker.finish();
        }
        taker.take(received, bytes)?;
    }
}

/// Applies records, one after the other.
struct Taker<'a> {
    destination: Destination<'a>,
    facts: &'a StreamFacts,
    /// Whether objects and spill blocks name all spill blocks (`DRR_FLAG_SPILL_BLOCK` streams).
    tells_spill: bool,
    order: ByteOrder,
    /// Position of the last contents: object and offset.
    last: (u64, u64),
    highest: u64,
    /// The object of the current records.
    current: Option<Arc<Object>>,
    /// The block of dnodes of the current objects, in raw streams.
    range: Option<ObjectRange>,
    /// Position of the current record.
    record_offset: u64,
    operation: &'a Operation,
}

/// The current record, for errors.
#[derive(Clone, Copy)]
struct At {
    offset: u64,
    object: u64,
}

impl At {
    fn refuse(self, why: impl Into<String>) -> ReceiveError {
        ReceiveError::Record {
            offset: self.offset,
            object: self.object,
            why: why.into(),
        }
    }
}

impl Taker<'_> {
    fn take(&mut self, received: Received, bytes: u64) -> Result<(), ReceiveError> {
        let at = |object| At {
            offset: received.offset,
            object,
        };
        self.record_offset = received.offset;
        let payload = received.payload;
        let is_raw = self.destination.key.is_some();
        match &received.record {
            Record::Object(record) => {
                match is_raw {
                    true => self.sealed_object(at(record.object), record, payload)?,
                    false => self.object(at(record.object), record, &payload)?,
                }
                self.come_to(record.object, 0, bytes)
            }
            Record::FreeObjects(record) => self.free_objects(record),
            Record::Write(record) => {
                match is_raw {
                    true => self.sealed_write(at(record.object), record, payload)?,
                    false => self.write(at(record.object), record, payload)?,
                }
                self.come_to(record.object, record.offset, bytes)
            }
            Record::WriteEmbedded(record) if is_raw => {
                Err(at(record.object)
                    .refuse("embedded contents, in a stream of something encrypted"))
            }
            Record::WriteEmbedded(record) => {
                self.write_embedded(at(record.object), record, &payload)?;
                self.come_to(record.object, record.offset, bytes)
            }
            Record::Free(record) => self.free(at(record.object), record),
            Record::Spill(record) if is_raw => {
                self.sealed_spill(at(record.object), record, payload)
            }
            Record::Spill(record) => self.spill(at(record.object), record, &payload),
            Record::WriteByReference(record) => Err(at(record.object).refuse(
                "a deduplicated stream; 'zstream redup' makes it one that can be received",
            )),
            Record::Redact(record) => Err(at(record.object).refuse("a redacted range")),
            Record::ObjectRange(record) if is_raw => self.range(record),
            Record::ObjectRange(record) => {
                Err(at(record.first_object)
                    .refuse("a range of objects, in a stream that is not raw"))
            }
            Record::Begin { .. } => Err(at(0).refuse("a stream begins in the midst of another")),
            Record::End(_) => unreachable!("the end is not taken"),
        }
    }

    /// Ends the receive. A full stream frees all objects above its highest.
    fn finish(mut self) -> Result<(), ReceiveError> {
        if self.facts.from_guid == 0 {
            let rest = FreeObjects {
                first_object: self.highest.saturating_add(1),
                count: u64::MAX,
                to_guid: 0,
            };
            self.free_objects(&rest)?;
        }
        self.seal()
    }

    /// Notes the position of the stream, in a transaction of its own: the record's transaction is
    /// over, and its change is in the same txg or an earlier one.
    fn come_to(&mut self, object: u64, offset: u64, bytes: u64) -> Result<(), ReceiveError> {
        self.highest = self.highest.max(object);
        if !self.destination.is_resumable {
            return Ok(());
        }
        let tx = self.begin(TxEstimate::default())?;
        self.destination.set.touch(&tx);
        let point = ResumePoint {
            object,
            offset,
            bytes: self.destination.bytes_before.saturating_add(bytes),
        };
        self.destination.claim.note(&tx, point);
        Ok(())
    }

    fn begin(&self, estimate: TxEstimate) -> Result<OpenTx, ReceiveError> {
        let txgs = self.destination.pool.txgs();
        Ok(txgs.assign(&estimate, self.operation)?)
    }

    /// Opens a transaction to write a block of this size, if there is room.
    fn begin_writing(&self, bytes: u64) -> Result<OpenTx, ReceiveError> {
        let namespace = self.destination.pool.namespace();
        let set = &self.destination.set;
        let worst = set.worst_of_contents(1, bytes.max(1));
        let worst = worst.saturating_add(set.worst_of_metadata(OVERHEAD_BYTES));
        let head = self.destination.claim.head();
        let leave = namespace.admit(head, worst, SpaceUse::Whole, self.operation)?;
        let mut tx = self.begin(TxEstimate::writing(bytes))?;
        if leave.is_to_be_kept() {
            tx.keep(Box::new(leave));
        }
        Ok(tx)
    }

    /// Waits until all changes so far are stored.
    fn wait_stored(&self) -> Result<(), ReceiveError> {
        let txgs = self.destination.pool.txgs();
        let open = txgs.open_txg();
        txgs.kick();
        Ok(txgs.wait_stored(open, self.operation)?)
    }

    /// The object of a record, which an object record must have named.
    fn current(&mut self, at: At) -> Result<Arc<Object>, ReceiveError> {
        let known = self.current.as_ref();
        if let Some(object) = known.filter(|object| object.id().get() == at.object) {
            return Ok(object.clone());
        }
        let id = check_id(at)?;
        let found = self.destination.set.object(id, self.operation);
        let object = found.map_err(|error| match error {
            ObjectError::NoSuchObject { .. } => at.refuse("there is no such object"),
            error => error.into(),
        })?;
        self.current = Some(object.clone());
        Ok(object)
    }

    #[doc(alias = "receive_object")]
    fn object(
        &mut self,
        at: At,
        record: &ObjectRecord,
        payload: &[u8],
    ) -> Result<(), ReceiveError> {
        let wanted = Wanted::check(at, record, self.facts.features)?;
        self.highest = self.highest.max(at.object);
        self.current = None;
        let mut bonus = payload[..narrow(u64::from(record.bonus_bytes))].to_vec();
        turn(at, wanted.bonus_type, &mut bonus, self.order)?;
        let existing = match self.destination.set.object(wanted.id, self.operation) {
            Ok(object) => Some(object),
            Err(ObjectError::NoSuchObject { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let kept = match existing {
            Some(object) => self.adapt(at, &object, &wanted, &bonus)?.then_some(object),
            None => None,
        };
        let object = match kept {
            Some(object) => object,
            None => self.make(at, &wanted, 0, 0)?,
        };
        let tx = self.begin_writing(widen(SLOT_BYTES * wanted.slots))?;
        if self.tells_spill && !wanted.has_spill && object.info().has_spill {
            object.set_spill(&tx, None)?;
        }
        object.set_object_type(&tx, wanted.object_type)?;
        object.set_typed_bonus(&tx, wanted.bonus_type, &bonus)?;
        object.set_checksum(&tx, wanted.checksum)?;
        object.set_compression(&tx, wanted.compression)?;
        self.current = Some(object);
        Ok(())
    }

    /// Gives an existing object the stream's block size, if possible. False when it was freed
    /// instead, to be created again.
    #[doc(alias = "receive_handle_existing_object")]
    fn adapt(
        &self,
        at: At,
        object: &Arc<Object>,
        wanted: &Wanted,
        bonus: &[u8],
    ) -> Result<bool, ReceiveError> {
        let info = object.info();
        let fits = info.slots == wanted.slots && wanted.fits(object);
        if !fits {
            self.free_object(object)?;
            self.wait_stored()?;
            return Ok(false);
        }
        if info.block_size.get() == wanted.block_size {
            return Ok(true);
        }
        // A file that was sent in small blocks before keeps them and its contents. Another file
        // with its number does not.
        let is_file = |object_type| object_type == ObjectType::PlainFile;
        let has_several = info.max_block.get() > 0;
        let may_be_the_same = self.facts.from_guid != 0
            && is_file(info.object_type)
            && is_file(wanted.object_type)
            && has_several;
        let generations = (
            generation(info.bonus_type, &object.bonus()),
            generation(wanted.bonus_type, bonus),
        );
        match generations {
            _ if !may_be_the_same => {}
            (Some(before), Some(now)) if before != now => {}
            (Some(_), Some(_)) if wanted.block_size > info.block_size.get() => return Ok(true),
            (Some(_), Some(_)) => return Err(at.refuse("a file has smaller blocks than before")),
            _ => return Err(at.refuse("a file of which nobody knows whether it was sent before")),
        }
        self.free_contents(object, 0, TO_END)?;
        let tx = self.begin(TxEstimate::default())?;
        let size = LogicalSize::from(wanted.block_size);
        object.set_block_size(&tx, size, self.operation)?;
        Ok(true)
    }

    /// Creates an object. Its number, or the slots of its dnode, may belong to objects that are
    /// freed and not stored yet, or that the stream no longer has. Raw streams give the shape of
    /// the tree; in others these fields are zero, and it is chosen here.
    fn make(
        &self,
        at: At,
        wanted: &Wanted,
        indirect_shift: u8,
        pointer_count: usize,
    ) -> Result<Arc<Object>, ReceiveError> {
        let set = &self.destination.set;
        let beside = wanted.id.get() + 1..wanted.id.get() + widen(wanted.slots);
        for slot in beside {
            match set.object(ObjectId::from(slot), self.operation) {
                Ok(object) => self.free_object(&object)?,
                Err(ObjectError::NoSuchObject { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let claim = || -> Result<_, ReceiveError> {
            let tx = self.begin_writing(widen(SLOT_BYTES * wanted.slots))?;
            let new = NewObject {
                indirect_shift,
                pointer_count,
                ..wanted.new_object()
            };
            let made = set.claim(&tx, wanted.id, new, self.operation);
            match made {
                Ok(object) => Ok(Some(object)),
                Err(ObjectError::Exists { .. }) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        if let Some(object) = claim()? {
            return Ok(object);
        }
        self.wait_stored()?;
        claim()?.ok_or_else(|| at.refuse("its number is part of another object"))
    }

    #[doc(alias = "receive_freeobjects")]
    fn free_objects(&mut self, record: &FreeObjects) -> Result<(), ReceiveError> {
        self.current = None;
        let end = record.first_object.saturating_add(record.count);
        let mut after = ObjectId::from(record.first_object.max(1) - 1);
        let set = self.destination.set.clone();
        while let Some(id) = set.next_object(after, self.operation)? {
            if id.get() >= end {
                return Ok(());
            }
            let object = set.object(id, self.operation)?;
            self.free_object(&object)?;
            after = id;
        }
        Ok(())
    }

    #[doc(alias = "receive_free")]
    fn free(&mut self, at: At, record: &FreeRecord) -> Result<(), ReceiveError> {
        let is_range =
            record.length == TO_END || record.offset.checked_add(record.length).is_some();
        if !is_range {
            return Err(at.refuse("a range that does not end"));
        }
        let object = self.current(at)?;
        self.highest = self.highest.max(at.object);
        self.free_contents(&object, record.offset, record.length)
    }

    /// Frees a range of an object from its end on, in as many txgs as it takes.
    #[doc(alias = "dmu_free_long_range")]
    fn free_contents(
        &self,
        object: &Arc<Object>,
        offset: u64,
        length: u64,
    ) -> Result<(), ReceiveError> {
        let info = object.info();
        let block_size = info.block_size.get();
        let end = offset.saturating_add(length).min(info.end_offset());
        let first = BlockId::from(offset / block_size);
        let mut within = first..BlockId::from(end.div_ceil(block_size));
        let blocks_max = (FREE_STEP_BYTES / block_size).max(1);
        while let Some(last) = object.last_data(within, blocks_max, self.operation)? {
            if last.start == first {
                break;
            }
            let start = last.start.get().saturating_mul(block_size);
            let stop = last.end.get().saturating_mul(block_size).min(end);
            let length = if length == TO_END {
                TO_END
            } else {
                stop - start
            };
            let _prepared = object.prepare_free(start, length, self.operation)?;
            let tx = self.begin(TxEstimate::freeing(FREE_STEP_BYTES))?;
            object.free_range(&tx, start, length, self.operation)?;
            within = first..last.start;
        }
        let _prepared = object.prepare_free(offset, length, self.operation)?;
        let tx = self.begin(TxEstimate::freeing(
            (end - offset.min(end)).min(FREE_STEP_BYTES),
        ))?;
        Ok(object.free_range(&tx, offset, length, self.operation)?)
    }

    /// Checks that contents come in order.
    fn in_order(&mut self, at: At, offset: u64, length: u64) -> Result<(), ReceiveError> {
        if (at.object, offset) < self.last {
            return Err(at.refuse("it comes after what it should come before"));
        }
        let is_range = offset.checked_add(length).is_some();
        if length == 0 || length > BLOCK_BYTES_MAX || !is_range {
            return Err(at.refuse(format!("contents of {length} bytes at {offset}")));
        }
        self.last = (at.object, offset);
        Ok(())
    }

    #[doc(alias = "receive_write")]
    fn write(&mut self, at: At, record: &WriteRecord, payload: Buffer) -> Result<(), ReceiveError> {
        self.in_order(at, record.offset, record.logical_size)?;
        let object = self.current(at)?;
        let is_large = record.logical_size > OLD_BLOCK_BYTES_MAX;
        if is_large && !self.facts.features.has(StreamFeatures::LARGE_BLOCKS) {
            return Err(at.refuse("a large block, in a stream that shall have none"));
        }
        if record.compression != 0 {
            return self.write_compressed(at, &object, record, payload);
        }
        let (object_type, mut contents) = (object_type(at, record.object_type)?, payload);
        turn(at, object_type, &mut contents, self.order)?;
        self.put(&object, record.offset, contents)
    }

    /// A payload that the sender compressed is stored as it came, if it can be a block here and the
    /// stream has the feature of its compression: after `zstream recompress` it may not have.
    /// Before that it is decompressed as a test.
    fn write_compressed(
        &self,
        at: At,
        object: &Arc<Object>,
        record: &WriteRecord,
        payload: Buffer,
    ) -> Result<(), ReceiveError> {
        let compression = record.compression();
        let contents = self.expand(at, compression, &payload, record.logical_size)?;
        let block_size = object.block_size().get();
        let is_block =
            record.logical_size == block_size && record.offset.is_multiple_of(block_size);
        let stored = widen(payload.len());
        let is_stored_form = stored.is_multiple_of(512) && (1..block_size).contains(&stored);
        let algorithm = CompressionAlgorithm::from_code(compression.code());
        let is_meant = self.check_compression(at, compression).is_ok();
        let may_be = is_block && is_stored_form && is_meant;
        let Some(compression) = algorithm.ok().filter(|_| may_be) else {
            return self.put(object, record.offset, contents);
        };
        let form = GivenForm {
            compression,
            order: ByteOrder::Little,
        };
        let tx = self.begin_writing(record.logical_size)?;
        let index = BlockId::from(record.offset / block_size);
        let given = (Block::new(payload), form);
        object.write_block_given(&tx, index, Block::new(contents), given, self.operation)?;
        Ok(())
    }

    #[doc(alias = "receive_write_embedded")]
    fn write_embedded(
        &mut self,
        at: At,
        record: &WriteEmbedded,
        payload: &[u8],
    ) -> Result<(), ReceiveError> {
        // OpenZFS sends an embedded spill block as an ordinary block, at the offset that its block
        // number gives.
        let is_spill = record.offset == SPILL_BLOCK.wrapping_mul(record.length);
        if !is_spill {
            self.in_order(at, record.offset, record.length)?;
        }
        let object = self.current(at)?;
        let kind = EmbeddedType::from_code(record.embedded_type);
        if kind != EmbeddedType::Data || !self.facts.features.has(StreamFeatures::EMBEDDED) {
            return Err(at.refuse("an embedded block of a kind that the stream shall not have"));
        }
        let size = u64::from(record.logical_size);
        let stored = payload.get(..narrow(u64::from(record.physical_size)));
        let is_size = (1..=record.length.min(BLOCK_BYTES_MAX)).contains(&size);
        let stored = stored.filter(|_| is_size);
        let stored = stored.ok_or_else(|| at.refuse("an embedded block larger than its place"))?;
        let compression = Compression::from_code(record.compression);
        let mut contents = self.expand(at, compression, stored, size)?;
        contents.resize(narrow(record.length));
        match is_spill {
            true => self.set_spill(at, &object, &contents),
            false => self.put(&object, record.offset, contents),
        }
    }

    /// Refuses a compression for which the stream lacks the feature.
    fn check_compression(&self, at: At, compression: Compression) -> Result<(), ReceiveError> {
        let needs = match compression {
            Compression::Lz4 => Some(StreamFeatures::LZ4),
            Compression::Zstd => Some(StreamFeatures::ZSTD),
            _ => None,
        };
        match needs.is_some_and(|needed| !self.facts.features.has(needed)) {
            true => Err(at.refuse(format!(
                "{compression} contents, in a stream that shall have none"
            ))),
            false => Ok(()),
        }
    }

    /// Decompresses a payload.
    fn expand(
        &self,
        at: At,
        compression: Compression,
        stored: &[u8],
        size: u64,
    ) -> Result<Buffer, ReceiveError> {
        let unknown = |_| at.refuse(format!("contents compressed with {compression}"));
        let algorithm = CompressionAlgorithm::from_code(compression.code()).map_err(unknown)?;
        let mut contents = Buffer::zeroed(narrow(size));
        decompress(algorithm, stored, &mut contents)
            .map_err(|why| at.refuse(format!("contents that cannot be decompressed: {why}")))?;
        Ok(contents)
    }

    /// Writes contents. Those of files and volumes bypass the cache: they would fill it, and are
    /// rarely read soon.
    fn put(&self, object: &Arc<Object>, offset: u64, contents: Buffer) -> Result<(), ReceiveError> {
        let length = contents.len();
        let _prepared = object.prepare_write(offset, widen(length), self.operation)?;
        let tx = self.begin_writing(widen(length))?;
        let caching = match object.object_type() {
            ObjectType::PlainFile | ObjectType::Zvol => Caching::Callers,
            _ => Caching::Ours,
        };
        let contents = (vec![contents], length);
        object.write_buffers(&tx, offset, contents, caching, self.operation)?;
        Ok(())
    }

    #[doc(alias = "receive_spill")]
    fn spill(&mut self, at: At, record: &SpillRecord, payload: &[u8]) -> Result<(), ReceiveError> {
        if self.tells_spill && record.flags & record_flags::UNCHANGED_SPILL != 0 {
            return Ok(());
        }
        let sizes = 512..=OLD_BLOCK_BYTES_MAX;
        let is_size = sizes.contains(&record.length) && record.length.is_multiple_of(512);
        if !is_size || widen(payload.len()) != record.length {
            return Err(at.refuse(format!("a spill block of {} bytes", record.length)));
        }
        let object = self.current(at)?;
        self.set_spill(at, &object, payload)
    }

    fn set_spill(&self, at: At, object: &Arc<Object>, contents: &[u8]) -> Result<(), ReceiveError> {
        let tx = self.begin_writing(widen(contents.len()))?;
        let done = object.set_spill(&tx, Some(contents));
        done.map_err(|error| match error {
            ObjectError::BonusTooLarge { .. } => at.refuse("there is no room for a spill block"),
            error => error.into(),
        })
    }
}

/// The properties of a new object, checked.
struct Wanted {
    id: ObjectId,
    object_type: ObjectType,
    bonus_type: ObjectType,
    bonus_bytes: usize,
    block_size: u64,
    slots: usize,
    checksum: ChecksumKind,
    compression: Compression,
    has_spill: bool,
}

impl Wanted {
    #[doc(alias = "recv_check_drr_object")]
    fn check(
        at: At,
        record: &ObjectRecord,
        features: StreamFeatures,
    ) -> Result<Wanted, ReceiveError> {
        let block_size = u64::from(record.block_size);
        let is_large = block_size > OLD_BLOCK_BYTES_MAX;
        let is_allowed = !is_large || features.has(StreamFeatures::LARGE_BLOCKS);
        let sizes = 512..=BLOCK_BYTES_MAX;
        if !is_allowed || !sizes.contains(&block_size) || !block_size.is_multiple_of(512) {
            return Err(at.refuse(format!("blocks of {block_size} bytes")));
        }
        let slots = usize::from(record.slots.max(1));
        let is_allowed = slots == 1 || features.has(StreamFeatures::LARGE_DNODES);
        if !is_allowed || slots > DNODE_BYTES_MAX / SLOT_BYTES {
            return Err(at.refuse(format!("a dnode of {slots} slots")));
        }
        let has_spill = record.flags & record_flags::HAS_SPILL != 0;
        let spill = if has_spill {
            Spill::Present
        } else {
            Spill::Absent
        };
        let bonus_bytes = narrow(u64::from(record.bonus_bytes));
        let is_plain = record.raw_bonus_bytes == 0 || features.has(StreamFeatures::RAW);
        if bonus_bytes > bonus_room(slots, 1, spill) || !is_plain {
            return Err(at.refuse(format!("a bonus of {bonus_bytes} bytes")));
        }
        let checksum = ChecksumKind::from_code(record.checksum_type);
        let compression = Compression::from_code(record.compression);
        if !checksum.is_known() || !compression.is_known() {
            return Err(at.refuse("a checksum or compression that nobody knows"));
        }
        Ok(Wanted {
            id: check_id(at)?,
            object_type: object_type(at, record.object_type)?,
            bonus_type: match record.bonus_type {
                0 => ObjectType::None,
                code => object_type(at, code)?,
            },
            bonus_bytes,
            block_size,
            slots,
            checksum,
            compression,
            has_spill,
        })
    }

    /// Whether an object's dnode has room for the bonus.
    fn fits(&self, object: &Object) -> bool {
        let info = object.info();
        let spill_bytes = 128;
        let has_room_beside = match (self.has_spill, info.has_spill) {
            (true, false) => info.bonus_room.saturating_sub(spill_bytes),
            (false, true) => info.bonus_room + spill_bytes,
            _ => info.bonus_room,
        };
        self.bonus_bytes <= has_room_beside
    }

    fn new_object(&self) -> NewObject {
        let new = NewObject::plain(self.object_type, self.block_size)
            .with_bonus(self.bonus_type, self.bonus_bytes);
        NewObject {
            slots: self.slots,
            ..new
        }
    }
}

fn check_id(at: At) -> Result<ObjectId, ReceiveError> {
    match at.object == 0 || at.object >> OBJECT_BITS != 0 {
        true => Err(at.refuse("no object can have this number")),
        false => Ok(ObjectId::from(at.object)),
    }
}

/// The type with this stored code, if this version can store it.
fn object_type(at: At, code: u32) -> Result<ObjectType, ReceiveError> {
    let known = u8::try_from(code).ok().map(ObjectType::from_code);
    let known = known.filter(|known| *known != ObjectType::None && known.layout().is_some());
    known.ok_or_else(|| at.refuse(format!("an object type {code}, which nobody knows")))
}

/// Swaps contents of the other byte order.
#[doc(alias = "dmu_ot_byteswap")]
fn turn(
    at: At,
    object_type: ObjectType,
    contents: &mut [u8],
    order: ByteOrder,
) -> Result<(), ReceiveError> {
    if order == ByteOrder::Little {
        return Ok(());
    }
    let word = match object_type.layout() {
        Some(Layout::Bytes) => return Ok(()),
        Some(Layout::Words16) => 2,
        Some(Layout::Words32) => 4,
        Some(Layout::Words64) => 8,
        Some(Layout::Zap) => {
            return tarn_ondisk::zap::to_little_endian(contents, order)
                .map_err(|what| at.refuse(what.to_string()));
        }
        _ => {
            let why = format!("{object_type:?} contents of the other byte order");
            return Err(at.refuse(why));
        }
    };
    contents.chunks_exact_mut(word).for_each(<[u8]>::reverse);
    Ok(())
}

/// The generation of a file, from its bonus: it tells a file from others that had its number.
#[doc(alias = "receive_object_is_same_generation")]
fn generation(bonus_type: ObjectType, bonus: &[u8]) -> Option<u64> {
    /// Position in a file's system attributes: after mode and size.
    const IN_ATTRIBUTES: usize = 16;
    const IN_ZNODE: usize = 64;
    let at = match bonus_type {
        ObjectType::SystemAttributes => {
            let (magic, rest) = bonus.split_first_chunk::<4>()?;
            let (info, _) = rest.split_first_chunk::<2>()?;
            if u32::from_le_bytes(*magic) != attributes::MAGIC {
                return None;
            }
            8 * usize::from(u16::from_le_bytes(*info) >> 10) + IN_ATTRIBUTES
        }
        ObjectType::Znode => IN_ZNODE,
        _ => return None,
    };
    let word = bonus.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word))
}
