//! Records into blocks.
//!
//! # Mechanism
//! The first block of a batch has the size it was allocated with; those after it are as large as
//! what is left, up to the largest. A record is whole in its block, but a write whose bytes were
//! fetched may be cut: its parts are writes of their own. One that had its bytes from the start may
//! not: they are the value of an attribute, which was never set by halves.
//!
//! Some records must be in the log all or not at all: they are in one block.
//!
//! # Invariants
//! - Records are in their order, and their sequence numbers grow by one.

use std::ops::RangeInclusive;

use tarn_ondisk::declare::{ByteOrder, Stored, widen};
use tarn_ondisk::dnode::POINTER_SHIFT;
use tarn_ondisk::intent_log::{BLOCK_BYTES_MIN, LogChain, LogRecord, LoggedChange, LoggedWrite};
use tarn_ondisk::units::Txg;

use crate::pending::Entry;
use crate::record::Contents;

/// The largest log block.
#[doc(alias = "zil_maxblocksize")]
pub(crate) const BLOCK_BYTES_MAX: usize = 128 << 10;
/// What a write takes beside its bytes.
pub(crate) const WRITE_HEADER_BYTES: usize = 192;
/// A write is not cut into parts smaller than this.
const PART_BYTES_MIN: usize = 4096;

/// The records of one block.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// How large the block is.
    pub(crate) block_bytes: usize,
    /// The records, encoded.
    pub(crate) records: Vec<u8>,
    /// The newest group of a record in it.
    pub(crate) newest: Txg,
}

impl Packed {
    /// Whether its records are within the block.
    fn fits(&self) -> bool {
        LogChain::SIZE + self.records.len() <= self.block_bytes
    }
}

/// A record that is larger than the largest block, or records that must be in one block and cannot
/// be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// The smallest size of a block for so many bytes of records.
pub(crate) fn block_bytes_for(record_bytes: usize) -> usize {
    record_bytes
        .saturating_add(LogChain::SIZE)
        .next_multiple_of(BLOCK_BYTES_MIN)
        .clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
}

/// Packs records, the first ones into a block of `first_bytes`. Those whose places among all are in
/// one range of `together`, which are apart and in order, are in one block; none of them may lead
/// to a block of its own, which might not be written. Their numbers follow `sequence`, which is
/// counted up.
pub(crate) fn pack(
    entries: Vec<Entry>,
    first_bytes: usize,
    together: &[RangeInclusive<u64>],
    sequence: &mut u64,
) -> Result<Vec<Packed>, NoRoom> {
    let mut left_bytes = entries.iter().map(room_of).sum();
    let mut packer = Packer {
        full: Vec::new(),
        block: Packed {
            block_bytes: first_bytes,
            ..Packed::default()
        },
    };
    let range_of = |entry: &Entry| {
        let place = together.partition_point(|range| *range.end() < entry.order);
        let range = together.get(place)?;
        range.contains(&entry.order).then_some(place)
    };
    let mut kept: Vec<usize> = vec![0; together.len()];
    for entry in &entries {
        if let Some(place) = range_of(entry) {
            kept[place] += whole_room_of(entry)?;
        }
    }
    for entry in entries {
        if let Some(place) = range_of(&entry) {
            packer.keep_room(std::mem::take(&mut kept[place]), left_bytes)?;
        }
        let bytes = room_of(&entry);
        packer.add(entry, left_bytes, sequence)?;
        left_bytes -= bytes;
    }
    packer.full.push(packer.block);
    assert!(
        packer.full.iter().all(Packed::fits),
        "records are within their blocks"
    );
    Ok(packer.full)
}

/// About how much room a record takes; exact for writes.
fn room_of(entry: &Entry) -> usize {
    match &entry.record.change {
        LoggedChange::Write(write) => {
            WRITE_HEADER_BYTES + write.data.as_ref().map_or(0, Vec::len).next_multiple_of(8)
        }
        LoggedChange::SetXattr { value, .. } => 512 + value.len(),
        LoggedChange::CloneRange { pointers, .. } => 512 + (pointers.len() << POINTER_SHIFT),
        _ => 512,
    }
}

/// What a record takes in one block, exactly. None of a write that leads to its block.
fn whole_room_of(entry: &Entry) -> Result<usize, NoRoom> {
    match &entry.record.change {
        LoggedChange::Write(write) if write.data.is_some() => Ok(room_of(entry)),
        LoggedChange::Write(_) => Err(NoRoom),
        change => {
            let (txg, change) = (entry.txg, change.clone());
            Ok(encode(txg, 0, change).len())
        }
    }
}

fn encode(txg: Txg, sequence: u64, change: LoggedChange) -> Vec<u8> {
    let record = LogRecord {
        txg,
        sequence,
        case_insensitive: false,
        change,
    };
    record.encode()
}

struct Packer {
    full: Vec<Packed>,
    block: Packed,
}

impl Packer {
    fn room(&self) -> usize {
        self.block.block_bytes - LogChain::SIZE - self.block.records.len()
    }

    fn next_block(&mut self, left_bytes: usize) {
        let next = Packed {
            block_bytes: block_bytes_for(left_bytes),
            ..Packed::default()
        };
        self.full.push(std::mem::replace(&mut self.block, next));
    }

    /// What comes now, so many bytes, is in one block. The first one is left empty where it has
    /// less room: a block without records is one of the chain like any other.
    fn keep_room(&mut self, bytes: usize, left_bytes: usize) -> Result<(), NoRoom> {
        if bytes <= self.room() {
            return Ok(());
        }
        if bytes > BLOCK_BYTES_MAX - LogChain::SIZE {
            return Err(NoRoom);
        }
        self.next_block(left_bytes.max(bytes));
        Ok(())
    }

    fn add(&mut self, entry: Entry, left_bytes: usize, sequence: &mut u64) -> Result<(), NoRoom> {
        let txg = entry.txg;
        let was_fetched = entry.record.contents != Contents::InRecord;
        match entry.record.change {
            LoggedChange::Write(write) if was_fetched && write.data.is_some() => {
                self.add_write(*write, txg, left_bytes, sequence)
            }
            change => self.add_whole(change, txg, left_bytes, sequence),
        }
    }

    fn add_whole(
        &mut self,
        change: LoggedChange,
        txg: Txg,
        left_bytes: usize,
        sequence: &mut u64,
    ) -> Result<(), NoRoom> {
        *sequence += 1;
        let bytes = encode(txg, *sequence, change);
        if bytes.len() > BLOCK_BYTES_MAX - LogChain::SIZE {
            return Err(NoRoom);
        }
        if bytes.len() > self.room() {
            self.next_block(left_bytes.max(bytes.len()));
        }
        debug_assert!(
            LogRecord::decode(&bytes, ByteOrder::Little)
                .is_ok_and(|(_, length)| length == bytes.len()),
            "what is written can be read back"
        );
        if self.block.records.is_empty() {
            self.block.records = bytes;
        } else {
            self.block.records.extend(bytes);
        }
        self.block.newest = self.block.newest.max(txg);
        Ok(())
    }

    fn add_write(
        &mut self,
        mut write: LoggedWrite,
        txg: Txg,
        left_bytes: usize,
        sequence: &mut u64,
    ) -> Result<(), NoRoom> {
        let mut left_bytes = left_bytes;
        loop {
            let data = write.data.as_deref().unwrap_or_default();
            let room = self.room().saturating_sub(WRITE_HEADER_BYTES);
            if data.len() <= room {
                return self.add_whole(
                    LoggedChange::Write(Box::new(write)),
                    txg,
                    left_bytes,
                    sequence,
                );
            }
            let part_bytes = room - room % PART_BYTES_MIN;
            if part_bytes > 0 {
                let part = LoggedWrite {
                    length: widen(part_bytes),
                    data: Some(data[..part_bytes].to_vec()),
                    ..write.clone_without_data()
                };
                let rest = data[part_bytes..].to_vec();
                write.offset += widen(part_bytes);
                write.length -= widen(part_bytes);
                write.data = Some(rest);
                left_bytes -= part_bytes;
                self.add_whole(
                    LoggedChange::Write(Box::new(part)),
                    txg,
                    left_bytes,
                    sequence,
                )?;
            }
            self.next_block(left_bytes);
        }
    }
}

trait WithoutData {
    fn clone_without_data(&self) -> LoggedWrite;
}

impl WithoutData for LoggedWrite {
    fn clone_without_data(&self) -> LoggedWrite {
        LoggedWrite {
            is_stored_already: self.is_stored_already,
            object: self.object,
            offset: self.offset,
            length: 0,
            block_offset: self.block_offset,
            pointer: self.pointer,
            data: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::IntentRecord;
    use tarn_ondisk::block_pointer::BlockPointer;
    use tarn_ondisk::nvlist::Text;
    use tarn_ondisk::units::ObjectId;

    /// With bytes that were fetched; without any it leads to a block.
    fn write(order: u64, bytes: Option<usize>) -> Entry {
        let write = LoggedWrite {
            is_stored_already: false,
            object: ObjectId::new(7),
            offset: 0,
            length: widen(bytes.unwrap_or(4096)),
            block_offset: 0,
            pointer: BlockPointer::HOLE,
            data: bytes.map(|bytes| vec![1; bytes]),
        };
        let mut entry = entry(order, LoggedChange::Write(Box::new(write)));
        if bytes.is_some() {
            entry.record.contents = Contents::Fetch { generation: 1 };
        }
        entry
    }

    /// With bytes that it had from the start.
    fn value(order: u64, bytes: usize) -> Entry {
        let mut entry = write(order, Some(bytes));
        entry.record.contents = Contents::InRecord;
        entry
    }

    fn removal(order: u64) -> Entry {
        entry(
            order,
            LoggedChange::Remove {
                directory: ObjectId::new(34),
                name: Text::from("name".as_bytes()),
            },
        )
    }

    fn entry(order: u64, change: LoggedChange) -> Entry {
        let record = IntentRecord {
            change,
            object: None,
            contents: Contents::InRecord,
        };
        Entry {
            order,
            first_order: order,
            txg: Txg::from(1),
            record,
            is_built_on: false,
        }
    }

    /// How many bytes of records each block has.
    fn packed(entries: &[Entry], together: RangeInclusive<u64>) -> Result<Vec<usize>, NoRoom> {
        packed_into(4096, entries, &[together])
    }

    /// The same, with so many bytes in the first block.
    fn packed_into(
        first_bytes: usize,
        entries: &[Entry],
        together: &[RangeInclusive<u64>],
    ) -> Result<Vec<usize>, NoRoom> {
        let packed = pack(entries.to_vec(), first_bytes, together, &mut 0)?;
        for block in &packed {
            assert!(block.records.len() + LogChain::SIZE <= block.block_bytes);
        }
        Ok(packed.iter().map(|block| block.records.len()).collect())
    }

    #[test]
    fn records_that_must_not_be_parted_are_in_one_block() {
        let written = WRITE_HEADER_BYTES + 1000;
        let removed = whole_room_of(&removal(0)).unwrap();
        let entries = [
            write(1, Some(1000)),
            write(2, Some(1000)),
            write(3, Some(1000)),
            removal(4),
            removal(5),
        ];
        let all = 3 * written + 2 * removed;
        assert!(3 * written + removed < 4096 - LogChain::SIZE);
        assert_eq!(packed(&entries, 2..=4), Ok(vec![all]));
        let mut longer = entries.to_vec();
        longer.insert(3, write(3, Some(1000)));
        let moved = 3 * written + 2 * removed;
        assert_eq!(packed(&longer, 2..=4), Ok(vec![written, moved]));
        // Apart from that a write is cut.
        let cut = [write(1, Some(1000)), write(2, Some(9000))];
        assert!(packed_into(8192, &cut, &[1..=1]).unwrap()[0] > written);
        assert_eq!(packed_into(8192, &cut, &[2..=2]).unwrap()[0], written);
    }

    #[test]
    fn two_operations_may_be_in_two_blocks() {
        let written = WRITE_HEADER_BYTES + 1400;
        let entries: Vec<Entry> = (1..=5).map(|order| write(order, Some(1400))).collect();
        let ranges = [1..=2, 4..=5];
        assert_eq!(
            packed_into(4096, &entries, &ranges),
            Ok(vec![2 * written, 3 * written])
        );
        assert_eq!(
            packed_into(8192, &entries, &ranges),
            Ok(vec![5 * written]),
            "there is room for both"
        );
    }

    #[test]
    fn a_write_is_cut_only_where_its_bytes_were_fetched() {
        let whole = WRITE_HEADER_BYTES + 46_528;
        let before = WRITE_HEADER_BYTES + 1000;
        let fetched = [write(1, Some(1000)), write(2, Some(46_525))];
        assert!(packed_into(12 << 10, &fetched, &[]).unwrap()[0] > before);
        let valued = [write(1, Some(1000)), value(2, 46_525)];
        assert_eq!(packed_into(12 << 10, &valued, &[]), Ok(vec![before, whole]));
        let alone = [value(1, 46_525)];
        assert_eq!(packed_into(12 << 10, &alone, &[]), Ok(vec![0, whole]));
        assert_eq!(
            packed_into(12 << 10, &[value(1, 131_000)], &[]),
            Err(NoRoom)
        );
    }

    #[test]
    fn what_cannot_be_in_one_block_is_not_written() {
        let removed = whole_room_of(&removal(0)).unwrap();
        let large = [removal(1), write(2, Some(130_000)), removal(3)];
        let all = 2 * removed + WRITE_HEADER_BYTES + 130_000;
        assert_eq!(packed(&large, 1..=3), Ok(vec![0, all]));
        let larger = [removal(1), write(2, Some(131_000)), removal(3)];
        assert_eq!(packed(&larger, 2..=2), Err(NoRoom));
        assert!(packed(&larger, 3..=3).is_ok(), "it may be cut");
        let elsewhere = [removal(1), write(2, None), removal(3)];
        assert_eq!(packed(&elsewhere, 1..=3), Err(NoRoom));
        assert!(packed(&elsewhere, 3..=3).is_ok());
    }
}
