//! Preparing a batch: its records go into blocks, which get their places in the chain.
//!
//! # Mechanism
//! The first block is the one that waits at the end of the chain; others and the one that will wait
//! then are allocated under a hold on the open group, which is not stored before they are written
//! or have failed.
//!
//! For large writes in a pool without log devices, or with `logbias=throughput`, records carry no
//! bytes: the blocks themselves are written to their final places ([`Indirect`]), with the log's
//! blocks and before these count as written.
//!
//! When the power fails during a batch, the log may have it up to some block. Records of one
//! operation are in one block, so that the log has all of them or none. Where a batch renames a
//! file, and a later record of it (a truncation, a removal) drops bytes that were written before
//! the rename, the file could be found under its new name without them: these records are in one
//! block, too. Where they are too large for that, the batch waits for its txg.
//!
//! # Invariants
//! - Batches are made ready one after the other, each behind the last block of the one before.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use tarn_block::{LogBlockWrite, LogPlace, PlacedBlocks};
use tarn_host::buffer::Buffer;
use tarn_object::{IndirectWrites, OpenTx};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{Stored, widen};
use tarn_ondisk::intent_log::{
    BLOCK_BYTES_MIN, LogBlock, LogChain, LogForm, LoggedChange, LoggedWrite, mask,
};
use tarn_ondisk::units::{ObjectId, PhysicalSize, Txg};
use tarn_probe::Operation;

use crate::log::{Chain, ChainBlock, IntentLog};
use crate::packing::{Packed, WRITE_HEADER_BYTES, block_bytes_for, pack};
use crate::pending::{Entry, INDIRECT_BYTES_MIN};
use crate::probes::Event;
use crate::record::{Contents, Fetched, IntentRecord, WholeBlocks};
use crate::sync_policy::LogBias;

/// The state of the log from which a batch begins.
pub(crate) struct Basis {
    /// The block that waits at the end of the chain; none if there is no chain.
    pub(crate) last: Option<BlockPointer>,
    /// About how many bytes of records the next batch will have.
    pub(crate) likely_bytes: usize,
    /// The number of the last record.
    pub(crate) sequence: u64,
}

/// How making a batch ready ended.
pub(crate) enum Preparation {
    /// Its blocks are part of the chain.
    Ready(Ready),
    /// Its files are gone: there is nothing to write.
    Nothing,
    /// It cannot be written; the chain is as it was, or begins with this group.
    Impossible { wait_for: Txg },
}

impl Preparation {
    /// How many bytes of records are to be written.
    pub(crate) fn record_bytes(&self) -> usize {
        match self {
            Preparation::Ready(ready) => ready.record_bytes,
            Preparation::Nothing | Preparation::Impossible { .. } => 0,
        }
    }
}

/// A batch that only has to be written.
pub(crate) struct Ready {
    /// The log's blocks, and the data of indirect writes.
    pub(crate) writes: (Vec<LogBlockWrite>, Vec<PlacedBlocks>),
    /// The indirect writes among them.
    pub(crate) indirect: Indirect,
    /// The log's blocks, with the newest group of a record in each.
    pub(crate) newest: Vec<(BlockPointer, Txg)>,
    /// How large the records are.
    pub(crate) record_bytes: usize,
}

/// Blocks of a batch that are written where they will stay.
#[derive(Default)]
pub(crate) struct Indirect {
    blocks: Vec<IndirectWrites>,
}

impl Indirect {
    /// They may be written or not: they are stored with their txgs.
    pub(crate) fn withdraw(self) {
        self.blocks.into_iter().for_each(IndirectWrites::withdraw);
    }
}

impl IntentLog {
    /// Makes a batch ready, and puts its blocks behind the chain's last.
    pub(crate) fn prepare(
        &self,
        entries: Vec<Entry>,
        basis: Basis,
        operation: &Operation,
    ) -> Preparation {
        let Some(last) = basis.last else {
            let begun = self.begin_chain(basis.likely_bytes, operation);
            return Preparation::Impossible {
                wait_for: begun.unwrap_or(Txg::ZERO),
            };
        };
        let (entries, indirect) = self.place_indirect(entries, operation);
        let impossible = |indirect: Indirect| {
            self.counts.add(Event::Failed, 1);
            indirect.withdraw();
            Preparation::Impossible {
                wait_for: Txg::ZERO,
            }
        };
        if self.carries_too_much(&entries) {
            // A group was closed meanwhile, or blocks have no places.
            indirect.withdraw();
            return Preparation::Impossible {
                wait_for: Txg::ZERO,
            };
        }
        let Some((entries, together)) = self.with_contents(entries, operation) else {
            return impossible(indirect);
        };
        if entries.is_empty() {
            return Preparation::Nothing;
        }
        let mut sequence = basis.sequence;
        let first_bytes = last.physical_size().to_usize();
        let together = ranges_together(&entries, together);
        let packed = pack(entries, first_bytes, &together, &mut sequence);
        self.state.lock().sequence = sequence;
        let Ok(packed) = packed else {
            return impossible(indirect);
        };
        let record_bytes: usize = packed.iter().map(|block| block.records.len()).sum();
        let likely = basis.likely_bytes.max(record_bytes);
        let Some(pointers) = self.take_places(&packed, last, likely, operation) else {
            return impossible(indirect);
        };
        let mut indirect = indirect;
        let data = indirect.blocks.iter_mut();
        let data = data.filter_map(IndirectWrites::take_unwritten).collect();
        let newest = pointers.iter().zip(&packed);
        let newest = newest.map(|(pointer, block)| (*pointer, block.newest));
        let writes = packed.iter().zip(pointers.windows(2));
        let writes = writes.map(|(block, pointers)| {
            let contents = encode(block, pointers[1]);
            self.count_block(&pointers[0], block.records.len(), contents.len());
            LogBlockWrite {
                pointer: pointers[0],
                contents,
            }
        });
        Preparation::Ready(Ready {
            writes: (writes.collect(), data),
            indirect,
            newest: newest.collect(),
            record_bytes,
        })
    }

    /// The first block of a chain: gives back the group that puts it into the head. `None` when
    /// there is none.
    fn begin_chain(&self, likely: usize, operation: &Operation) -> Option<Txg> {
        // Blocks of an earlier log must be gone first.
        if !self.set.phys().intent_log.first.is_hole() {
            return None;
        }
        let host = &self.set.env().host;
        let mut chain = Chain::named([host.random_u64(), host.random_u64()]);
        let tx = self.assign(operation).ok()?;
        let name = chain.next_name(self.set.id());
        let size = PhysicalSize::new(widen(block_bytes_for(likely)));
        let io = self.set.env().cache.io();
        let pointer = io
            .allocate_log_block(self.place(), size, name, tx.txg())
            .ok()?;
        self.set.touch(&tx);
        chain.blocks.push_back(ChainBlock {
            pointer,
            newest: None,
        });
        self.state.lock().chain = chain;
        Some(tx.txg())
    }

    /// Whether records of large writes lead to their blocks, if these can be placed.
    pub(crate) fn leads_to_large_writes(&self) -> bool {
        let io = self.set.env().cache.io();
        self.bias() == LogBias::Throughput || !io.has_log_vdevs()
    }

    /// Has records of large writes lead to their blocks, which get their places. From here until
    /// the batch is written or has failed, no group that has such a place is stored.
    fn place_indirect(&self, entries: Vec<Entry>, operation: &Operation) -> (Vec<Entry>, Indirect) {
        let mut indirect = Indirect::default();
        let (bytes_min, whole_blocks) = match self.bias() {
            LogBias::Latency if !self.leads_to_large_writes() => return (entries, indirect),
            LogBias::Latency => (INDIRECT_BYTES_MIN, WholeBlocks::NotNeeded),
            LogBias::Throughput => (0, WholeBlocks::Needed),
        };
        let large = |entry: &Entry| match (&entry.record.change, entry.record.contents) {
            (LoggedChange::Write(write), Contents::Fetch { generation }) => {
                (write.length >= bytes_min).then(|| ((**write).clone(), generation))
            }
            _ => None,
        };
        let source = self.source();
        let (Some(source), true) = (source, entries.iter().any(|entry| large(entry).is_some()))
        else {
            return (entries, indirect);
        };
        let Ok(tx) = self.assign(operation) else {
            return (entries, indirect);
        };
        self.state.lock().batches.hold(tx.txg());
        let mut led = Vec::with_capacity(entries.len());
        for entry in entries {
            // What an older group has is on its way to where it will stay.
            let write = large(&entry).filter(|_| entry.txg == tx.txg());
            let whole_blocks = match &write {
                Some((write, _)) if write.length >= INDIRECT_BYTES_MIN => WholeBlocks::NotNeeded,
                _ => whole_blocks,
            };
            let placed = write.and_then(|(write, generation)| {
                source.place(&write, generation, whole_blocks, &tx, operation)
            });
            let Some(placed) = placed else {
                led.push(entry);
                continue;
            };
            indirect.blocks.push(placed.blocks);
            let (object, contents) = (entry.record.object, entry.record.contents);
            let of_write = |part: LoggedWrite, contents: Contents| Entry {
                record: IntentRecord {
                    change: LoggedChange::Write(Box::new(part)),
                    object,
                    contents,
                },
                ..entry
            };
            let parts = placed.parts.into_iter();
            led.extend(parts.map(|part| of_write(part, Contents::InRecord)));
            let rest = placed.rest.into_iter();
            led.extend(rest.map(|rest| of_write(rest, contents)));
        }
        (led, indirect)
    }

    /// Counts a block that is about to be written.
    fn count_block(&self, pointer: &BlockPointer, record_bytes: usize, written_bytes: usize) {
        let io = self.set.env().cache.io();
        let events = match io.is_on_log_device(pointer) {
            false => [
                Event::Block,
                Event::BlockRecordBytes,
                Event::BlockWrittenBytes,
                Event::BlockAllocatedBytes,
            ],
            true => [
                Event::LogDeviceBlock,
                Event::LogDeviceRecordBytes,
                Event::LogDeviceWrittenBytes,
                Event::LogDeviceAllocatedBytes,
            ],
        };
        let allocated_bytes = pointer.physical_size().get();
        let counts = [
            1,
            widen(record_bytes),
            widen(written_bytes),
            allocated_bytes,
        ];
        for (event, count) in events.into_iter().zip(counts) {
            self.counts.add(event, count);
        }
    }

    /// Whether the log's own blocks would have more bytes of one file than a commit may write.
    fn carries_too_much(&self, entries: &[Entry]) -> bool {
        let mut of_files: BTreeMap<Option<ObjectId>, u64> = BTreeMap::new();
        for entry in entries {
            let LoggedChange::Write(write) = &entry.record.change else {
                continue;
            };
            let bytes = of_files.entry(entry.record.object).or_default();
            *bytes += widen(WRITE_HEADER_BYTES);
            *bytes += match entry.record.contents {
                Contents::Fetch { .. } => write.length,
                Contents::InRecord => 0,
            };
        }
        let max = self.limits().carried_bytes;
        of_files.values().any(|bytes| *bytes > max)
    }

    /// Puts bytes into records that were made without. Those of files that are gone are left out.
    /// `None` when bytes cannot be read, or may be gone because the file was shortened or removed
    /// by what is not among these records: in a log without that, they would be missing. What is
    /// among them must cut the file at least as short as it is. The places of what must not be
    /// parted are given, too: from the first bytes that are left out, and on which others build, to
    /// the last record for which they are.
    fn with_contents(
        &self,
        entries: Vec<Entry>,
        operation: &Operation,
    ) -> Option<(Vec<Entry>, Option<RangeInclusive<u64>>)> {
        let cuts: Vec<Cut> = entries.iter().filter_map(Cut::of).collect();
        let removals = entries.iter().filter(|entry| entry.may_remove());
        let last_removal = removals.map(|entry| entry.order).max();
        let mut together: Option<RangeInclusive<u64>> = None;
        let mut keep_together = |first: u64, last: u64| {
            let (before, after) = together.clone().unwrap_or(first..=last).into_inner();
            together = Some(before.min(first)..=after.max(last));
        };
        let mut complete = Vec::with_capacity(entries.len());
        for mut entry in entries {
            let Contents::Fetch { generation } = entry.record.contents else {
                match &entry.record.change {
                    LoggedChange::Write(write) if write.data.is_none() => {
                        self.counts.add(Event::Indirect, 1);
                        self.counts.add(Event::IndirectBytes, write.length);
                    }
                    change => {
                        self.counts.add(Event::Whole, 1);
                        if let LoggedChange::Write(write) = change {
                            self.counts.add(Event::WholeBytes, write.length);
                        }
                    }
                }
                complete.push(entry);
                continue;
            };
            let LoggedChange::Write(write) = &mut entry.record.change else {
                unreachable!("only writes have contents to be fetched");
            };
            let (order, is_built_on) = (entry.order, entry.is_built_on);
            let cut_to = |size_bytes| {
                let mut of_file = cuts.iter().filter(|cut| cut.file == write.object);
                of_file.find(|cut| cut.order > order && cut.size_bytes <= size_bytes)
            };
            let data = match self.source()?.contents(write, generation, operation).ok()? {
                Fetched::Bytes(data) => data,
                Fetched::Shortened { bytes, size_bytes } => {
                    let cut = cut_to(size_bytes)?;
                    if is_built_on {
                        keep_together(order, cut.order);
                    }
                    bytes
                }
                // Where the removal is not among these records, the file must be found as it was
                // promised.
                Fetched::Gone if self.state.lock().pending.has_removals() => return None,
                Fetched::Gone => {
                    if let Some(last) = last_removal.filter(|last| is_built_on && *last > order) {
                        keep_together(order, last);
                    }
                    continue;
                }
            };
            if data.is_empty() {
                continue;
            }
            self.counts.add(Event::Fetched, 1);
            self.counts.add(Event::FetchedBytes, widen(data.len()));
            write.length = widen(data.len());
            write.data = Some(data);
            complete.push(entry);
        }
        Some((complete, together))
    }

    /// Gives packed records their places: the first is put into the block that waits, each other
    /// into a new one, and one more is made ready. From here on the group is not stored before
    /// these blocks are written, nor is an older one that has indirect writes. `None` when there is
    /// no room, the chain is as long as a chain may be, or it was ended meanwhile.
    fn take_places(
        &self,
        packed: &[Packed],
        last: BlockPointer,
        likely: usize,
        operation: &Operation,
    ) -> Option<Vec<BlockPointer>> {
        if widen(self.state.lock().chain.blocks.len()) >= self.blocks_max() {
            return None;
        }
        let tx = self.assign(operation).ok()?;
        let sizes = packed.iter().skip(1).map(|block| block.block_bytes);
        let sizes: Vec<usize> = sizes.chain([block_bytes_for(likely)]).collect();
        let next = self.allocate_blocks(&sizes, &tx)?;
        let mut state = self.state.lock();
        let back = state.chain.blocks.back();
        if state.chain.is_ended || back.is_none_or(|block| block.pointer != last) {
            let io = self.set.env().cache.io();
            next.iter().for_each(|pointer| io.forget_log_block(pointer));
            return None;
        }
        let new = next.iter().map(|pointer| ChainBlock {
            pointer: *pointer,
            newest: None,
        });
        state.chain.blocks.extend(new);
        state.batches.hold(tx.txg());
        drop(state);
        Some(std::iter::once(last).chain(next).collect())
    }

    /// Where blocks go.
    fn place(&self) -> LogPlace {
        match self.bias() {
            LogBias::Latency => LogPlace::LogVdevs,
            LogBias::Throughput => LogPlace::Embedded,
        }
    }

    /// Places for blocks of these sizes, all or none.
    fn allocate_blocks(&self, sizes: &[usize], tx: &OpenTx) -> Option<Vec<BlockPointer>> {
        let io = self.set.env().cache.io();
        let mut pointers: Vec<BlockPointer> = Vec::with_capacity(sizes.len());
        for &size in sizes {
            let name = self.state.lock().chain.next_name(self.set.id());
            let size = PhysicalSize::new(widen(size));
            match io.allocate_log_block(self.place(), size, name, tx.txg()) {
                Ok(pointer) => pointers.push(pointer),
                Err(_) => {
                    for pointer in &pointers {
                        io.forget_log_block(pointer);
                    }
                    self.state.lock().chain.unname(pointers.len() + 1);
                    return None;
                }
            }
        }
        self.set.touch(tx);
        Some(pointers)
    }
}

/// The places of records that must not be parted: of one operation, and of this range. The ranges
/// are in order and apart.
fn ranges_together(
    entries: &[Entry],
    range: Option<RangeInclusive<u64>>,
) -> Vec<RangeInclusive<u64>> {
    let operations = entries
        .iter()
        .filter(|entry| entry.first_order < entry.order)
        .map(|entry| entry.first_order..=entry.order);
    let mut ranges: Vec<RangeInclusive<u64>> = operations.chain(range).collect();
    ranges.sort_by_key(|range| *range.start());
    let mut apart: Vec<RangeInclusive<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match apart.last_mut() {
            Some(last) if range.start() <= last.end() => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => apart.push(range),
        }
    }
    apart
}

/// A record after which a file ends where it says.
struct Cut {
    file: ObjectId,
    size_bytes: u64,
    /// The record's place among all.
    order: u64,
}

impl Cut {
    /// A range that is freed leaves the size: only one without a length reaches to the end.
    fn of(entry: &Entry) -> Option<Cut> {
        let (file, size_bytes) = match &entry.record.change {
            LoggedChange::Truncate {
                object,
                offset,
                length: 0,
            } => (*object, *offset),
            LoggedChange::SetAttributes(set) if set.mask & mask::SIZE != 0 => {
                (set.object, set.size)
            }
            _ => return None,
        };
        Some(Cut {
            file,
            size_bytes,
            order: entry.order,
        })
    }
}

/// The used part of a block.
fn encode(block: &Packed, next: BlockPointer) -> Buffer {
    let used = LogChain::SIZE + block.records.len();
    let mut contents = Buffer::zeroed(used.next_multiple_of(BLOCK_BYTES_MIN));
    LogBlock::encode(&mut contents, LogForm::Zilog2, next, &block.records);
    contents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_records_that_stay_together_are_apart() {
        let entry = |first_order, order| Entry {
            order,
            first_order,
            txg: Txg::ZERO,
            record: IntentRecord {
                change: LoggedChange::Remove {
                    directory: ObjectId::new(34),
                    name: tarn_ondisk::nvlist::Text::from("name".as_bytes()),
                },
                object: None,
                contents: Contents::InRecord,
            },
            is_built_on: false,
        };
        let entries = [
            entry(1, 1),
            entry(2, 2),
            entry(2, 3),
            entry(2, 4),
            entry(7, 7),
            entry(8, 8),
            entry(8, 9),
        ];
        assert_eq!(ranges_together(&entries, None), [2..=4, 8..=9]);
        assert_eq!(
            ranges_together(&entries, Some(5..=6)),
            [2..=4, 5..=6, 8..=9]
        );
        assert_eq!(ranges_together(&entries, Some(3..=8)), [2..=9]);
        assert_eq!(ranges_together(&entries[..2], None), []);
    }
}
