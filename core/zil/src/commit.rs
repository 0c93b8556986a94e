//! Making changes durable now.
//!
//! # Mechanism
//! The thread that asks writes itself: it takes the records that its file needs, packs them into the block that waits at the end of the
//! chain, allocates the next one under a hold on the open group, writes, and flushes. Who comes meanwhile waits for the next
//! batch, which one of them writes for all. A single thread waits for nobody.
//!
//! Where much was written into a file of a pool without log device, or devices are to be spared (`logbias=throughput`), records carry no bytes: the
//! blocks themselves are written where they will stay ([`Early`]), with the log's blocks and before these count as written.
//!
//! Where the log cannot do it, the group does: commits wait until it is stored. That is so for the first commit of all, whose
//! chain begins in a head that must be stored first; for very much data; and when a block has no room, cannot be
//! written, or contents cannot be read. From then on until that group is stored no block is written, so the log has no gaps.
//!
//! # Invariants
//! - A commit returns well only when each record it needs is in a stored group, or in a block that was written and flushed, after all
//!   blocks before it.
//! - No lock and no transaction is held while contents are fetched or a device is waited for.

use tarn_block::{LogBlockWrite, LogPlace};
use tarn_host::buffer::Buffer;
use tarn_host::lock::MutexGuard;
use tarn_object::{AssignError, EarlyBlocks, OpenTx};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{Stored, widen};
use tarn_ondisk::intent_log::{BLOCK_BYTES_MIN, LogBlock, LogChain, LogForm, LoggedChange, mask};
use tarn_ondisk::units::{ObjectId, PhysicalSize, Txg};
use tarn_probe::Operation;

use crate::error::CommitError;
use crate::log::{Chain, ChainBlock, Durability, IntentLog, LogBias, State};
use crate::packing::{Packed, block_bytes_for, pack};
use crate::pending::Entry;
use crate::probes::probes;
use crate::record::{Contents, Fetched, IntentRecord, WholeBlocks};

/// A commit that needs more than this waits for its group: everything is written once, and memory for the log stays small.
const COMMIT_BYTES_MAX: u64 = 8 << 20;

/// From this length on a write leads to its blocks where there is no log device.
#[doc(alias = "zfs_immediate_write_sz")]
const EARLY_BYTES_MIN: u64 = 32 << 10;

/// Blocks of a batch that are written where they will stay.
#[derive(Default)]
struct Early {
    blocks: Vec<EarlyBlocks>,
}

impl Early {
    /// Nobody knows whether they are written: they are stored with their groups.
    fn withdraw(self) {
        self.blocks.into_iter().for_each(EarlyBlocks::withdraw);
    }
}

/// How a batch ended.
enum Outcome {
    /// Everything is durable; these blocks follow the one that was waiting, the last of them not written.
    Written(Vec<ChainBlock>),
    /// Nothing was written, and the chain is as it was.
    NotWritten,
    /// It is unknown what was written. These blocks have places, and the chain ends.
    Failed(Vec<ChainBlock>),
}

impl IntentLog {
    /// Returns when all changes of this file that were recorded before are durable, and what they build on; without a file
    /// all changes. The caller holds no transaction, and no lock that whoever makes records may wait for.
    ///
    /// # Errors
    /// When the pool is suspended or being closed, or devices are lost.
    #[doc(alias = "zil_commit")]
    pub fn commit(
        &self,
        object: Option<ObjectId>,
        operation: &Operation,
    ) -> Result<(), CommitError> {
        probes().commits.increment();
        let txgs = self.txgs();
        if self.durability == Durability::ByGroup || txgs.is_suspended() {
            return Ok(txgs.wait_stored(txgs.open_txg(), operation)?);
        }
        let stored = txgs.stored_txg();
        let mut state = self.state.lock();
        if let Some(txg) = state.group_to_wait_for(object, stored) {
            drop(state);
            probes().waited.increment();
            return Ok(txgs.wait_stored(txg, operation)?);
        }
        if state.is_closed {
            drop(state);
            return Ok(txgs.wait_stored(txgs.open_txg(), operation)?);
        }
        state.batches.wanted.push(object);
        let mine = state.batches.begun + 1;
        while state.batches.done < mine {
            if state.batches.writing.is_some() {
                self.changed.wait(&mut state);
            } else {
                state = self.lead(state, operation);
            }
        }
        let must_wait = state.must_wait;
        drop(state);
        if must_wait > stored {
            probes().waited.increment();
            txgs.wait_stored(must_wait, operation)?;
        }
        Ok(())
    }

    /// Writes the next batch for all who wait for it.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        operation: &Operation,
    ) -> MutexGuard<'a, State> {
        let stored = self.txgs().stored_txg();
        let wanted = std::mem::take(&mut state.batches.wanted);
        state.batches.begun += 1;
        let entries = state.pending.take(&wanted, stored);
        let newest = entries.last().map(|entry| entry.txg);
        if let Some(newest) = newest {
            if state.must_wait > stored || state.chain.is_ended {
                state.must_wait = state.must_wait.max(newest);
            } else {
                state.batches.writing = Some(newest);
                let last = state.chain.blocks.back().map(|block| block.pointer);
                let likely = state.batches.likely_bytes();
                let sequence = state.sequence;
                drop(state);
                state = self.write_batch(entries, last, sequence, likely, newest, operation);
            }
        }
        state.batches.done += 1;
        state.batches.writing = None;
        self.changed.notify_all();
        state
    }

    /// Writes records behind the chain's last block, and notes what came of it.
    fn write_batch(
        &self,
        entries: Vec<Entry>,
        last: Option<BlockPointer>,
        mut sequence: u64,
        likely: usize,
        newest: Txg,
        operation: &Operation,
    ) -> MutexGuard<'_, State> {
        probes().batches.increment();
        let Some(last) = last else {
            let begun = self.begin_chain(likely, operation);
            let mut state = self.state.lock();
            state.must_wait = state.must_wait.max(newest).max(begun.unwrap_or(newest));
            return state;
        };
        let mut record_bytes = 0;
        let (entries, mut early) = self.place_early(entries, operation);
        let outcome = match self.with_contents(entries, operation) {
            None => Outcome::NotWritten,
            Some(entries) if entries.is_empty() => Outcome::Written(Vec::new()),
            Some(entries) => {
                let first_bytes = last.physical_size().to_usize();
                match pack(entries, first_bytes, &mut sequence) {
                    Err(_) => Outcome::NotWritten,
                    Ok(packed) => {
                        record_bytes = packed.iter().map(|block| block.records.len()).sum();
                        let likely = likely.max(record_bytes);
                        self.write_blocks(packed, last, likely, &mut early, operation)
                    }
                }
            }
        };
        if !matches!(outcome, Outcome::Written(_)) {
            early.withdraw();
        }
        let mut state = self.state.lock();
        state.sequence = sequence;
        state.batches.remember(record_bytes);
        state.in_flight = None;
        match outcome {
            Outcome::Written(blocks) => {
                let mut blocks = blocks.into_iter();
                if let (Some(written), Some(back)) = (blocks.next(), state.chain.blocks.back_mut())
                {
                    back.newest = written.newest;
                }
                state.chain.blocks.extend(blocks);
            }
            Outcome::NotWritten => {
                probes().errors.increment();
                state.must_wait = state.must_wait.max(newest);
            }
            Outcome::Failed(blocks) => {
                probes().errors.increment();
                let births = blocks.iter().map(|block| block.pointer.birth());
                let last_birth = births.max().unwrap_or(newest);
                state.must_wait = state.must_wait.max(newest).max(last_birth);
                state.chain.blocks.extend(blocks.into_iter().skip(1));
                state.chain.end(newest);
            }
        }
        state
    }

    /// The first block of a chain: gives back the group that puts it into the head. `None` when there is none.
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

    /// Has records of large writes lead to their blocks, which get their places. From here until the batch is written or has failed, no group
    /// that has such a place is stored.
    fn place_early(&self, entries: Vec<Entry>, operation: &Operation) -> (Vec<Entry>, Early) {
        let mut early = Early::default();
        let io = self.set.env().cache.io();
        let (bytes_min, whole_blocks) = match self.bias() {
            LogBias::Latency if io.has_log_vdevs() => return (entries, early),
            LogBias::Latency => (EARLY_BYTES_MIN, WholeBlocks::NotNeeded),
            LogBias::Throughput => (0, WholeBlocks::Needed),
        };
        let large = |entry: &Entry| match &entry.record.change {
            LoggedChange::Write(write) if entry.record.contents == Contents::Fetch => {
                (write.length >= bytes_min).then(|| (**write).clone())
            }
            _ => None,
        };
        let source = self.source();
        let (Some(source), true) = (source, entries.iter().any(|entry| large(entry).is_some()))
        else {
            return (entries, early);
        };
        let Ok(tx) = self.assign(operation) else {
            return (entries, early);
        };
        self.state.lock().in_flight = Some(tx.txg());
        let mut led = Vec::with_capacity(entries.len());
        for entry in entries {
            // What an older group has is on its way to where it will stay.
            let write = large(&entry).filter(|_| entry.txg == tx.txg());
            let whole_blocks = match &write {
                Some(write) if write.length >= EARLY_BYTES_MIN => WholeBlocks::NotNeeded,
                _ => whole_blocks,
            };
            let placed = write.and_then(|write| source.place(&write, whole_blocks, &tx, operation));
            let Some(placed) = placed else {
                led.push(entry);
                continue;
            };
            early.blocks.push(placed.blocks);
            led.extend(placed.parts.into_iter().map(|part| Entry {
                record: IntentRecord {
                    change: LoggedChange::Write(Box::new(part)),
                    object: entry.record.object,
                    contents: Contents::InRecord,
                },
                ..entry
            }));
        }
        (led, early)
    }

    /// Puts bytes into records that were made without. Those of files that are gone are left out. `None` when bytes cannot be read,
    /// or may be gone because the file was shortened or removed after these records were taken: in a log without that, they would be
    /// missing.
    fn with_contents(&self, entries: Vec<Entry>, operation: &Operation) -> Option<Vec<Entry>> {
        let shortened: Vec<(ObjectId, u64)> = entries.iter().filter_map(shortens).collect();
        let mut complete = Vec::with_capacity(entries.len());
        for mut entry in entries {
            if entry.record.contents == Contents::InRecord {
                match &entry.record.change {
                    LoggedChange::Write(write) if write.data.is_none() => {
                        probes().early_records.increment();
                        probes().early_bytes.add(write.length);
                    }
                    _ => probes().whole_records.increment(),
                }
                complete.push(entry);
                continue;
            }
            let LoggedChange::Write(write) = &mut entry.record.change else {
                unreachable!("only writes have contents to be fetched");
            };
            let is_logged = || {
                let mut of_file = shortened.iter().filter(|(file, _)| *file == write.object);
                of_file.any(|(_, order)| *order > entry.order)
            };
            let data = match self.source()?.contents(write, operation).ok()? {
                Fetched::Bytes(data) => data,
                Fetched::Shortened(data) if is_logged() => data,
                Fetched::Shortened(_) => return None,
                // Where the removal is not among these records, the file must be found as it was promised.
                Fetched::Gone if self.state.lock().pending.has_removals() => return None,
                Fetched::Gone => continue,
            };
            if data.is_empty() {
                continue;
            }
            probes().fetched_records.increment();
            probes().fetched_bytes.add(widen(data.len()));
            write.length = widen(data.len());
            write.data = Some(data);
            complete.push(entry);
        }
        Some(complete)
    }

    /// Writes packed records: the first into the block that waits, each other into a new one, and one more is made ready.
    fn write_blocks(
        &self,
        packed: Vec<Packed>,
        last: BlockPointer,
        likely: usize,
        early: &mut Early,
        operation: &Operation,
    ) -> Outcome {
        let Ok(tx) = self.assign(operation) else {
            return Outcome::NotWritten;
        };
        let sizes = packed.iter().skip(1).map(|block| block.block_bytes);
        let sizes: Vec<usize> = sizes.chain([block_bytes_for(likely)]).collect();
        let Some(next) = self.allocate_blocks(&sizes, &tx) else {
            return Outcome::NotWritten;
        };
        // From here on the group is not stored before these blocks are; nor is an older one that has early blocks.
        self.state.lock().in_flight.get_or_insert(tx.txg());
        drop(tx);
        let pointers: Vec<BlockPointer> = std::iter::once(last).chain(next).collect();
        let mut writes = Vec::with_capacity(packed.len());
        let mut blocks = Vec::with_capacity(pointers.len());
        for (index, block) in packed.iter().enumerate() {
            writes.push(LogBlockWrite {
                pointer: pointers[index],
                contents: encode(block, pointers[index + 1]),
            });
            blocks.push(ChainBlock {
                pointer: pointers[index],
                newest: Some(block.newest),
            });
            probes().blocks.increment();
            probes().record_bytes.add(widen(block.records.len()));
            let size = pointers[index].physical_size();
            probes().allocated_bytes.add(size.get());
        }
        blocks.push(ChainBlock {
            pointer: pointers[packed.len()],
            newest: None,
        });
        let data = early.blocks.iter_mut();
        let data = data.filter_map(EarlyBlocks::take_unwritten).collect();
        match self.set.env().cache.io().write_log(writes, data, operation) {
            Ok(()) => Outcome::Written(blocks),
            Err(_) => Outcome::Failed(blocks),
        }
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

impl State {
    /// The group that has to be stored where the log is not to be used. `None` where it is.
    fn group_to_wait_for(&self, object: Option<ObjectId>, stored: Txg) -> Option<Txg> {
        let is_much = || self.pending.bytes(object, stored) > COMMIT_BYTES_MAX;
        if self.must_wait <= stored && !is_much() {
            return None;
        }
        let newest = self.pending.newest(object).max(self.must_wait);
        Some(newest.max(self.batches.writing.unwrap_or(Txg::ZERO)))
    }
}

/// The file that a record may shorten, and the record's place among all.
fn shortens(entry: &Entry) -> Option<(ObjectId, u64)> {
    let object = match &entry.record.change {
        LoggedChange::Truncate { object, .. } => *object,
        LoggedChange::SetAttributes(set) if set.mask & mask::SIZE != 0 => set.object,
        _ => return None,
    };
    Some((object, entry.order))
}

/// The used part of a block.
fn encode(block: &Packed, next: BlockPointer) -> Buffer {
    let used = LogChain::SIZE + block.records.len();
    let mut contents = Buffer::zeroed(used.next_multiple_of(BLOCK_BYTES_MIN));
    LogBlock::encode(&mut contents, LogForm::Zilog2, next, &block.records);
    contents
}

impl From<AssignError> for CommitError {
    fn from(cause: AssignError) -> CommitError {
        CommitError::NotStored { cause }
    }
}
