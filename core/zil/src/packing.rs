//! Records into blocks.
//!
//! # Mechanism
//! The first block of a batch has the size it was allocated with; those after it are as large as what is left, up to the largest. A
//! record is whole in its block, but a write whose bytes were fetched may be cut: its parts are writes of their own.
//!
//! # Invariants
//! - Records are in their order, and their sequence numbers grow by one.

use tarn_ondisk::declare::{Stored, widen};
use tarn_ondisk::dnode::POINTER_SHIFT;
use tarn_ondisk::intent_log::{BLOCK_BYTES_MIN, LogChain, LogRecord, LoggedChange, LoggedWrite};
use tarn_ondisk::units::Txg;

use crate::pending::Entry;

/// The largest log block.
#[doc(alias = "zil_maxblocksize")]
pub(crate) const BLOCK_BYTES_MAX: usize = 128 << 10;
/// What a write takes beside its bytes.
const WRITE_HEADER_BYTES: usize = 192;
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

/// A record that is larger than the largest block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// The smallest size of a block for so many bytes of records.
pub(crate) fn block_bytes_for(record_bytes: usize) -> usize {
    record_bytes
        .saturating_add(LogChain::SIZE)
        .next_multiple_of(BLOCK_BYTES_MIN)
        .clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
}

/// Packs records, the first ones into a block of `first_bytes`. Their numbers follow `sequence`, which is counted up.
pub(crate) fn pack(
    entries: Vec<Entry>,
    first_bytes: usize,
    sequence: &mut u64,
) -> Result<Vec<Packed>, TooLarge> {
    let mut left_bytes = entries.iter().map(room_of).sum();
    let mut packer = Packer {
        full: Vec::new(),
        block: Packed {
            block_bytes: first_bytes,
            ..Packed::default()
        },
    };
    for entry in entries {
        let bytes = room_of(&entry);
        packer.add(entry, left_bytes, sequence)?;
        left_bytes -= bytes;
    }
    packer.full.push(packer.block);
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

    fn add(&mut self, entry: Entry, left_bytes: usize, sequence: &mut u64) -> Result<(), TooLarge> {
        let txg = entry.txg;
        match entry.record.change {
            LoggedChange::Write(write) if write.data.is_some() => {
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
    ) -> Result<(), TooLarge> {
        *sequence += 1;
        let record = LogRecord {
            txg,
            sequence: *sequence,
            case_insensitive: false,
            change,
        };
        let bytes = record.encode();
        if bytes.len() > BLOCK_BYTES_MAX - LogChain::SIZE {
            return Err(TooLarge);
        }
        if bytes.len() > self.room() {
            self.next_block(left_bytes.max(bytes.len()));
        }
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
    ) -> Result<(), TooLarge> {
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
