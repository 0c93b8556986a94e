//! Makes records of the found parts.
//!
//! # Mechanism
//! Adjacent holes become one record, and so do free object numbers: the last such record waits
//! until another part comes. Everything else is a record of its own, with the fields that OpenZFS
//! fills: receivers ignore most of them, but two senders of the same snapshot make the same bytes.

use super::SendError;
use super::find::Found;
use super::form::Forms;
use super::read_ahead::Item;
use crate::writing::StreamWriter;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_block::{Block, Form, ReadError};
use tarn_ondisk::block_pointer::{BlockPointer, OLD_BLOCK_BYTES_MAX};
use tarn_ondisk::bookmark::SPILL_BLOCK;
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{ByteOrder, narrow, widen};
use tarn_ondisk::dedup::DedupKey;
use tarn_ondisk::dnode::Dnode;
use tarn_ondisk::object_type::{Layout, ObjectType};
use tarn_ondisk::sealing::Sealing;
use tarn_ondisk::stream::{
    FreeObjects, FreeRecord, ObjectRange, ObjectRecord, RECORD_BYTES, Record, SpillRecord,
    StreamFeatures, TO_OBJECT_END, WriteEmbedded, WriteRecord, record_flags,
};
use tarn_ondisk::units::{ObjectId, Txg};

/// The destination of records.
pub(crate) enum Sink<W: Write> {
    /// Into a stream.
    Stream(StreamWriter<W>),
    /// None: only the size is wanted.
    Size,
}

/// Fields of records that are the same in the whole stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub forms: Forms,
    pub to_guid: u64,
    pub base_txg: Txg,
    /// The end of the object numbers that the receiver can have.
    pub numbers_end: u64,
}

/// Makes and writes records.
pub(crate) struct Records<'a, W: Write> {
    sink: Sink<W>,
    terms: Terms,
    /// The hole or free numbers that may still grow.
    pending: Option<Pending>,
    bytes: &'a AtomicU64,
}

#[derive(Debug, Clone, Copy)]
enum Pending {
    Free(FreeRecord),
    FreeObjects(FreeObjects),
}

/// A block to send.
struct Sent<'a> {
    object: ObjectId,
    object_type: ObjectType,
    block: u64,
    pointer: &'a BlockPointer,
}

impl<'a, W: Write> Records<'a, W> {
    /// For one stream whose bytes are counted in `bytes`.
    pub fn new(sink: Sink<W>, terms: Terms, bytes: &'a AtomicU64) -> Self {
        Records {
            sink,
            terms,
            pending: None,
            bytes,
        }
    }

    /// Writes the records of one part.
    pub fn add(&mut self, item: Item) -> Result<(), SendError> {
        let Item { found, contents } = item;
        match found {
            Found::Object {
                id,
                dnode,
                order,
                old_spill,
            } => {
                self.object(id, &dnode, order)?;
                match old_spill {
                    Some(pointer) => {
                        let sent = Sent {
                            object: id,
                            object_type: dnode.object_type,
                            block: SPILL_BLOCK,
                            pointer: &pointer,
                        };
                        self.spill(&sent, contents)
                    }
                    None => Ok(()),
                }
            }
            Found::FreeNumbers { first, count } => self.free_numbers(first, count),
            Found::Dnodes {
                pointer,
                first,
                count,
            } => self.dnodes(&pointer, first, count),
            Found::Hole {
                object,
                start,
                end,
                block_size,
            } => self.hole(object, start, end, block_size),
            Found::Data {
                object,
                object_type,
                block,
                pointer,
            } => {
                let sent = Sent {
                    object,
                    object_type,
                    block,
                    pointer: &pointer,
                };
                match block {
                    SPILL_BLOCK => self.spill(&sent, contents),
                    _ => self.data(&sent, contents),
                }
            }
        }
    }

    /// Writes the waiting record, and returns the destination.
    pub fn finish(mut self) -> Result<Sink<W>, SendError> {
        self.flush()?;
        Ok(self.sink)
    }

    fn object(&mut self, id: ObjectId, dnode: &Dnode, order: ByteOrder) -> Result<(), SendError> {
        let features = self.terms.forms.features;
        let block_size = dnode.data_block_size.get();
        let shown_size = match features.has(StreamFeatures::LARGE_BLOCKS) {
            true => block_size,
            false => block_size.min(OLD_BLOCK_BYTES_MAX),
        };
        let mut record = ObjectRecord {
            object: id.get(),
            object_type: u32::from(dnode.object_type.code()),
            bonus_type: u32::from(dnode.bonus_type.code()),
            block_size: u32::try_from(shown_size).expect("a block is at most 16 MiB"),
            bonus_bytes: u32::try_from(dnode.bonus().len()).expect("a bonus is at most 16 KiB"),
            checksum_type: dnode.checksum.code(),
            compression: dnode.compression.code(),
            slots: dnode.extra_slots + 1,
            to_guid: self.terms.to_guid,
            ..ObjectRecord::default()
        };
        let mut bonus_bytes = dnode.bonus().len().next_multiple_of(8);
        if features.has(StreamFeatures::RAW) {
            record.flags |= order_flag(order);
            record.max_block = dnode.max_block.get();
            record.indirect_shift = dnode.indirect_shift;
            record.levels = dnode.levels;
            record.pointer_count = u8::try_from(dnode.pointers.len()).expect("three at most");
            if bonus_bytes != 0 {
                bonus_bytes = dnode.bonus_room().len();
                record.raw_bonus_bytes =
                    u32::try_from(bonus_bytes).expect("a dnode is at most 16 KiB");
            }
        }
        if dnode.spill.is_some() {
            record.flags |= record_flags::HAS_SPILL;
        }
        self.put(&Record::Object(record), &dnode.bonus_room()[..bonus_bytes])?;
        let end = dnode.max_block.get().wrapping_add(1);
        self.free(id.get(), end.wrapping_mul(block_size), TO_OBJECT_END)
    }

    fn dnodes(&mut self, pointer: &BlockPointer, first: u64, count: u64) -> Result<(), SendError> {
        let record = ObjectRange {
            first_object: first,
            slots: count,
            to_guid: self.terms.to_guid,
            sealing: Sealing::of_pointer(pointer),
            flags: order_flag(pointer.byte_order()),
            ..ObjectRange::default()
        };
        self.put(&Record::ObjectRange(record), &[])
    }

    fn hole(
        &mut self,
        object: ObjectId,
        start: u64,
        end: u64,
        block_size: u64,
    ) -> Result<(), SendError> {
        if object.is_zero() {
            let per_block = block_size / 512;
            let first = start.saturating_mul(per_block);
            let count = end.saturating_mul(per_block).wrapping_sub(first);
            return self.free_numbers(first, count);
        }
        // Beyond the largest offset there were never blocks.
        let Some(offset) = start.checked_mul(block_size) else {
            return Ok(());
        };
        let end = end.saturating_mul(block_size);
        self.free(object.get(), offset, end.wrapping_sub(offset))
    }

    #[doc(alias = "dump_free")]
    fn free(&mut self, object: u64, offset: u64, length: u64) -> Result<(), SendError> {
        let is_to_end = offset.checked_add(length).is_none();
        if let Some(Pending::Free(pending)) = &mut self.pending
            && pending.object == object
            && pending.offset.wrapping_add(pending.length) == offset
        {
            pending.length = match is_to_end || length == TO_OBJECT_END {
                true => TO_OBJECT_END,
                false => pending.length.wrapping_add(length),
            };
            return Ok(());
        }
        self.flush()?;
        let record = FreeRecord {
            object,
            offset,
            length: if is_to_end { TO_OBJECT_END } else { length },
            to_guid: self.terms.to_guid,
        };
        self.pending = Some(Pending::Free(record));
        match length {
            TO_OBJECT_END => self.flush(),
            _ => Ok(()),
        }
    }

    /// Old receivers do not stop at the largest object number, so the range is cut here.
    #[doc(alias = "dump_freeobjects")]
    fn free_numbers(&mut self, first: u64, count: u64) -> Result<(), SendError> {
        if self.terms.numbers_end <= first {
            return Ok(());
        }
        let count = count.min(self.terms.numbers_end - first);
        if let Some(Pending::FreeObjects(pending)) = &mut self.pending
            && pending.first_object.wrapping_add(pending.count) == first
        {
            pending.count += count;
            return Ok(());
        }
        self.flush()?;
        self.pending = Some(Pending::FreeObjects(FreeObjects {
            first_object: first,
            count,
            to_guid: self.terms.to_guid,
        }));
        Ok(())
    }

    fn spill(
        &mut self,
        sent: &Sent<'_>,
        contents: Option<Result<Block, ReadError>>,
    ) -> Result<(), SendError> {
        let pointer = sent.pointer;
        let mut record = SpillRecord {
            object: sent.object.get(),
            length: pointer.logical_size().get(),
            to_guid: self.terms.to_guid,
            ..SpillRecord::default()
        };
        if pointer.logical_birth <= self.terms.base_txg {
            record.flags |= record_flags::UNCHANGED_SPILL;
        }
        if self.is_raw() {
            record.flags |= order_flag(pointer.byte_order());
            record.compression = pointer.compression().code();
            record.compressed_size = pointer.physical_size().get();
            record.sealing = Sealing::of_pointer(pointer);
        }
        let contents = self.contents(sent, contents)?;
        self.put(&Record::Spill(record), &contents)
    }

    fn data(
        &mut self,
        sent: &Sent<'_>,
        contents: Option<Result<Block, ReadError>>,
    ) -> Result<(), SendError> {
        let pointer = sent.pointer;
        if self.terms.forms.embeds(pointer) {
            return self.embedded(sent);
        }
        let size = pointer.logical_size().get();
        // The pointers were checked, so the offset is in range.
        let offset = sent.block.wrapping_mul(size);
        let contents = self.contents(sent, contents)?;
        if !self.terms.forms.splits(pointer) {
            let record = self.write_record(sent, offset);
            return self.put(&Record::Write(record), &contents);
        }
        let mut done = 0;
        while done < size {
            let part = (size - done).min(OLD_BLOCK_BYTES_MAX);
            let record = WriteRecord {
                object: sent.object.get(),
                object_type: u32::from(sent.object_type.code()),
                offset: offset.wrapping_add(done),
                logical_size: part,
                to_guid: self.terms.to_guid,
                checksum_type: ChecksumKind::Off.code(),
                ..WriteRecord::default()
            };
            let bytes = match self.terms.forms.is_dry {
                true => &[],
                false => &contents[narrow(done)..narrow(done + part)],
            };
            self.put(&Record::Write(record), bytes)?;
            done += part;
        }
        Ok(())
    }

    #[doc(alias = "dmu_dump_write")]
    fn write_record(&self, sent: &Sent<'_>, offset: u64) -> WriteRecord {
        let pointer = sent.pointer;
        let mut record = WriteRecord {
            object: sent.object.get(),
            object_type: u32::from(sent.object_type.code()),
            offset,
            logical_size: pointer.logical_size().get(),
            to_guid: self.terms.to_guid,
            ..WriteRecord::default()
        };
        let is_stored = self.terms.forms.of_block(pointer) == Form::Stored;
        if self.is_raw() || (is_stored && pointer.compression() != Compression::Off) {
            record.compression = pointer.compression().code();
            record.compressed_size = pointer.physical_size().get();
        }
        if self.is_raw() {
            record.flags |= order_flag(pointer.byte_order());
            record.sealing = Sealing::of_pointer(pointer);
        }
        if pointer.is_embedded() {
            record.checksum_type = ChecksumKind::Off.code();
            return record;
        }
        let checksum = pointer.checksum_kind();
        record.checksum_type = checksum.code();
        if checksum.may_deduplicate() {
            record.flags |= record_flags::STRONG_CHECKSUM;
        }
        record.key = DedupKey::of_pointer(pointer);
        record
    }

    fn embedded(&mut self, sent: &Sent<'_>) -> Result<(), SendError> {
        let pointer = sent.pointer;
        let size = pointer.logical_size().get();
        let payload = pointer.payload().map_err(|what| SendError::BadBlock {
            object: sent.object,
            block: sent.block,
            what,
        })?;
        let mut bytes = payload.bytes().to_vec();
        let record = WriteEmbedded {
            object: sent.object.get(),
            offset: sent.block.wrapping_mul(size),
            length: size,
            to_guid: self.terms.to_guid,
            compression: pointer.compression().code(),
            embedded_type: 0,
            logical_size: u32::try_from(size).expect("a block is at most 16 MiB"),
            physical_size: u32::try_from(bytes.len()).expect("a pointer has few bytes"),
            ..WriteEmbedded::default()
        };
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        self.put(&Record::WriteEmbedded(record), &bytes)
    }

    /// The payload of a block; none where only sizes are wanted.
    fn contents(
        &self,
        sent: &Sent<'_>,
        contents: Option<Result<Block, ReadError>>,
    ) -> Result<Block, SendError> {
        if self.terms.forms.is_dry {
            return Ok(Block::zeroed(0));
        }
        let contents = contents.expect("what is sent was read");
        let contents = contents.map_err(|cause| SendError::Block {
            object: sent.object,
            block: sent.block,
            cause,
        })?;
        let is_foreign = sent.pointer.byte_order() == ByteOrder::Big && !self.is_raw();
        match sent.pointer.object_type().layout() {
            Some(Layout::Bytes) => Ok(contents),
            _ if !is_foreign => Ok(contents),
            _ => Err(SendError::ByteOrder {
                object: sent.object,
            }),
        }
    }

    fn is_raw(&self) -> bool {
        self.terms.forms.features.has(StreamFeatures::RAW)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        match self.pending.take() {
            None => Ok(()),
            Some(Pending::Free(record)) => self.write(&Record::Free(record), &[]),
            Some(Pending::FreeObjects(record)) => self.write(&Record::FreeObjects(record), &[]),
        }
    }

    fn put(&mut self, record: &Record, payload: &[u8]) -> Result<(), SendError> {
        self.flush()?;
        self.write(record, payload)
    }

    fn write(&mut self, record: &Record, payload: &[u8]) -> Result<(), SendError> {
        let count = record.payload_bytes().map_err(SendError::Record)?;
        match &mut self.sink {
            Sink::Stream(_) if payload.len() != count => {
                return Err(SendError::Length {
                    expected: count,
                    found: payload.len(),
                });
            }
            Sink::Stream(writer) => writer.write(record, payload).map_err(SendError::Pipe)?,
            Sink::Size => {}
        }
        self.bytes
            .fetch_add(widen(RECORD_BYTES + count), Ordering::Relaxed);
        Ok(())
    }
}

fn order_flag(order: ByteOrder) -> u8 {
    match order {
        ByteOrder::Little => 0,
        ByteOrder::Big => record_flags::OTHER_BYTE_ORDER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::StreamReader;
    use tarn_ondisk::stream::{Begin, MAGIC, StreamKind, StreamName};

    /// The records of these parts in a stream without features, for receivers with object numbers
    /// up to 64.
    fn records_of(found: Vec<Found>) -> Vec<Record> {
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::new(&mut bytes);
        let begin = Begin {
            magic: MAGIC,
            version: Begin::version_of(StreamKind::Single, StreamFeatures::NONE),
            creation_time_s: 0,
            objset_type: 2,
            flags: 0,
            to_guid: 7,
            from_guid: 0,
            to_name: StreamName::new("tank@a").unwrap(),
        };
        let begin = Record::Begin {
            begin: Box::new(begin),
            payload_bytes: 0,
        };
        writer.write(&begin, &[]).unwrap();
        let terms = Terms {
            forms: Forms {
                set: ObjectId::from(54),
                features: StreamFeatures::NONE,
                is_dry: false,
            },
            to_guid: 7,
            base_txg: Txg::ZERO,
            numbers_end: 64,
        };
        let count = AtomicU64::new(0);
        let mut records = Records::new(Sink::Stream(writer), terms, &count);
        for found in found {
            let item = Item {
                found,
                contents: None,
            };
            records.add(item).unwrap();
        }
        let Sink::Stream(writer) = records.finish().unwrap() else {
            panic!("it is a stream");
        };
        writer.finish(7).unwrap();
        let mut reader = StreamReader::new(&bytes[..]);
        reader.begin().unwrap().unwrap();
        let mut read = Vec::new();
        loop {
            match reader.next().unwrap().record {
                Record::End(_) => return read,
                record => read.push(record),
            }
        }
    }

    fn hole(object: u64, start: u64, end: u64) -> Found {
        Found::Hole {
            object: ObjectId::new(object),
            start,
            end,
            block_size: 4096,
        }
    }

    fn free(object: u64, offset: u64, length: u64) -> Record {
        Record::Free(FreeRecord {
            object,
            offset,
            length,
            to_guid: 7,
        })
    }

    fn free_numbers(first_object: u64, count: u64) -> Record {
        Record::FreeObjects(FreeObjects {
            first_object,
            count,
            to_guid: 7,
        })
    }

    #[test]
    fn holes_that_touch_are_one() {
        let read = records_of(vec![
            hole(3, 0, 2),
            hole(3, 2, 3),
            hole(3, 9, 10),
            hole(4, 10, 11),
        ]);
        let expected = [
            free(3, 0, 3 * 4096),
            free(3, 9 * 4096, 4096),
            free(4, 10 * 4096, 4096),
        ];
        assert_eq!(read, expected);
    }

    /// The end of a hole of 2^64 blocks cannot be encoded, so the hole reaches the largest offset.
    #[test]
    fn holes_reach_as_far_as_there_are_addresses() {
        let read = records_of(vec![hole(3, 1, 0), hole(4, 1 << 60, 1 << 61)]);
        assert_eq!(read, [free(3, 4096, TO_OBJECT_END)]);
    }

    #[test]
    fn free_numbers_end_where_the_receiver_knows_none() {
        let numbers = |first, count| Found::FreeNumbers { first, count };
        let read = records_of(vec![
            numbers(5, 1),
            numbers(6, 4),
            numbers(60, 10),
            numbers(70, 9),
        ]);
        assert_eq!(read, [free_numbers(5, 5), free_numbers(60, 4)]);
    }

    #[test]
    fn a_hole_in_the_table_of_objects_is_free_numbers() {
        let read = records_of(vec![hole(0, 1, 3)]);
        assert_eq!(read, [free_numbers(8, 16)]);
    }

    #[test]
    fn an_object_is_followed_by_its_end() {
        let mut dnode = Dnode::new(ObjectType::PlainFile, 1, 1);
        dnode.set_bonus(ObjectType::SystemAttributes, &[1, 2, 3]);
        let read = records_of(vec![Found::Object {
            id: ObjectId::new(9),
            dnode: Box::new(dnode),
            order: ByteOrder::Little,
            old_spill: None,
        }]);
        let Record::Object(object) = &read[0] else {
            panic!("{read:?}");
        };
        assert_eq!((object.object, object.bonus_bytes, object.slots), (9, 3, 1));
        assert_eq!(read[1..], [free(9, 512, TO_OBJECT_END)]);
    }
}
