//! The log of one file system or volume: [`IntentLog`].
//!
//! # Mechanism
//! The state in memory is under one short lock: records that wait ([`pending`](crate::pending)),
//! the blocks of the chain, and the batches under way ([`batches`](crate::batches)). No thread
//! waits under it. Operations on files add records; `commit` takes them out and writes them;
//! `storing` keeps the chain and the head true as groups are stored.
//!
//! # Invariants
//! - While `must_wait` is not stored, no batch is begun: changes that the log lacks are in that txg
//!   or earlier ones.
//! - The last block of a chain has a place and was not written.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_object::{AssignError, ObjectSet, OpenTx, Tx, TxEstimate, Txgs, Urgency};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::checksum::Checksum;
use tarn_ondisk::intent_log::{OBJECT_SET_WORD, SEQUENCE_WORD};
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;

use crate::batches::Batches;
use crate::chain::OWN_BLOCKS_MAX;
use crate::chain::place_in_chain;
use crate::pending::{Limits, Pending};
use crate::probes::{Event, LogCounts};
use crate::record::{Contents, IntentRecord, LogSource};
use crate::sync_policy::LogBias;

/// The source of contents; taken for a moment.
const SOURCE: Rank = Rank::new(tarn_host::ranks::ZIL, "intent log source");
/// Records, chain, and batches under way; taken for a moment.
const STATE: Rank = Rank::new(tarn_host::ranks::ZIL + 1, "intent log");

/// A commit with more than this in the log's own blocks waits for its txg: everything is written
/// once, and memory for the log stays small.
const CARRIED_BYTES_MAX: u64 = 8 << 20;
/// A commit with more than this in blocks that records lead to waits for its txg. A guess: batches
/// behind it wait for so much to be written.
const LED_BYTES_MAX: u64 = 128 << 20;

/// Into how many signals the threads that wait for batches are divided, so that few are woken in
/// vain.
const TURNS: u64 = 4;

/// How commits make things durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// By blocks of the log.
    ByLog,
    /// By waiting for the group. Records are not kept.
    ByGroup,
}

/// The intent log of one file system or volume. Shared.
pub struct IntentLog {
    pub(crate) set: Arc<ObjectSet>,
    pub(crate) durability: Durability,
    source: Mutex<Option<Weak<dyn LogSource>>>,
    pub(crate) state: Mutex<State>,
    /// A batch was finished: for threads that wait for all batches up to one.
    pub(crate) changed: Condvar,
    /// For threads that wait in a batch: it was finished, or one of them is to begin it.
    turns: [Condvar; TURNS as usize],
    /// The record that is being replayed; zero for none.
    replaying: AtomicU64,
    takes_xattrs: AtomicBool,
    spares_devices: AtomicBool,
    blocks_max: AtomicU64,
    carried_bytes_max: AtomicU64,
    led_bytes_max: AtomicU64,
    watcher: OnceLock<Watcher>,
    pub(crate) counts: LogCounts,
}

/// Hears of every record.
type Watcher = Box<dyn Fn(&IntentRecord) + Send + Sync>;

/// The state of a log in memory.
pub(crate) struct State {
    pub(crate) pending: Pending,
    pub(crate) batches: Batches,
    /// Nothing is durable by the log before this group is stored.
    pub(crate) must_wait: Txg,
    pub(crate) chain: Chain,
    /// The number of the last record written.
    pub(crate) sequence: u64,
    /// No more commits by this log: it is being closed.
    pub(crate) is_closed: bool,
}

/// The blocks that the head leads to.
#[derive(Default)]
pub(crate) struct Chain {
    pub(crate) blocks: VecDeque<ChainBlock>,
    /// No batch is put behind it any more: a block failed, or the log is closed.
    pub(crate) is_ended: bool,
    /// The random numbers in the names of its blocks.
    name: [u64; 2],
    /// How many blocks were made.
    pub(crate) count: u64,
}

/// A block of the chain.
#[derive(Debug, Clone)]
pub(crate) struct ChainBlock {
    pub(crate) pointer: BlockPointer,
    /// The newest group of a record in it; `None` while it is not written.
    pub(crate) newest: Option<Txg>,
}

impl Chain {
    /// A chain without blocks, with a name of its own.
    pub(crate) fn named(name: [u64; 2]) -> Chain {
        Chain {
            name,
            ..Chain::default()
        }
    }

    /// These blocks were written, with records of up to these groups.
    pub(crate) fn note_written(&mut self, written: &[(BlockPointer, Txg)]) {
        debug_assert!(self.is_in_order(), "a chain is in order");
        for (pointer, newest) in written {
            let mut from_last = self.blocks.iter_mut().rev();
            if let Some(block) = from_last.find(|block| block.pointer == *pointer) {
                block.newest = block.newest.max(Some(*newest));
            }
        }
    }

    /// Whether its blocks follow each other without a gap, each named by its place.
    pub(crate) fn is_in_order(&self) -> bool {
        let places = self.blocks.iter();
        let mut places = places.map(|block| place_in_chain(&block.pointer));
        let first = places.next();
        first.is_none_or(|first| {
            let is_next = |(expected, place): (u64, u64)| expected == place;
            first > 0 && (first + 1..).zip(places).all(is_next)
        })
    }

    /// The name of the next block of this chain. Blocks are counted from 1.
    pub(crate) fn next_name(&mut self, set: ObjectId) -> Checksum {
        self.count += 1;
        let mut words = [self.name[0], self.name[1], 0, 0];
        words[OBJECT_SET_WORD] = set.get();
        words[SEQUENCE_WORD] = self.count;
        Checksum(words)
    }
}

impl IntentLog {
    /// For an object set that is open for writing.
    pub fn new(set: Arc<ObjectSet>, durability: Durability) -> Arc<IntentLog> {
        Arc::new(IntentLog {
            set,
            durability,
            source: Mutex::new(SOURCE, None),
            state: Mutex::new(
                STATE,
                State {
                    pending: Pending::default(),
                    batches: Batches::default(),
                    must_wait: Txg::ZERO,
                    chain: Chain::default(),
                    sequence: 0,
                    is_closed: false,
                },
            ),
            changed: Condvar::new(),
            turns: Default::default(),
            replaying: AtomicU64::new(0),
            takes_xattrs: AtomicBool::new(false),
            spares_devices: AtomicBool::new(false),
            blocks_max: AtomicU64::new(OWN_BLOCKS_MAX),
            carried_bytes_max: AtomicU64::new(CARRIED_BYTES_MAX),
            led_bytes_max: AtomicU64::new(LED_BYTES_MAX),
            watcher: OnceLock::new(),
            counts: LogCounts::default(),
        })
    }

    /// What it has counted since it was opened, by OpenZFS's names.
    pub fn counted(&self) -> Vec<(&'static str, u64)> {
        self.counts.by_name()
    }

    /// Sets the source of the contents of files.
    pub fn set_source(&self, source: Weak<dyn LogSource>) {
        *self.source.lock() = Some(source);
    }

    /// How many blocks its chain may have. Beyond that, commits wait for their txg.
    pub(crate) fn blocks_max(&self) -> u64 {
        self.blocks_max.load(Ordering::Relaxed)
    }

    /// Makes its chain end at a block that was not written.
    pub fn set_blocks_max(&self, blocks: u64) {
        self.blocks_max.store(blocks, Ordering::Relaxed);
    }

    /// How much a commit may write to the log. What has more waits for its txg.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            carried_bytes: self.carried_bytes_max.load(Ordering::Relaxed),
            led_bytes: self.led_bytes_max.load(Ordering::Relaxed),
        }
    }

    /// For tests: commits wait for their txgs from so many bytes on, in the log's own blocks and in
    /// those that records lead to.
    pub fn set_commit_bytes_max(&self, carried: u64, led: u64) {
        self.carried_bytes_max.store(carried, Ordering::Relaxed);
        self.led_bytes_max.store(led, Ordering::Relaxed);
    }

    pub(crate) fn source(&self) -> Option<Arc<dyn LogSource>> {
        self.source.lock().as_ref().and_then(Weak::upgrade)
    }

    /// Where threads wait for this batch.
    pub(crate) fn turn_of(&self, batch: u64) -> &Condvar {
        &self.turns[tarn_ondisk::declare::narrow(batch % TURNS)]
    }

    /// The object set it belongs to.
    pub fn set(&self) -> &Arc<ObjectSet> {
        &self.set
    }

    pub(crate) fn txgs(&self) -> &Arc<Txgs> {
        &self.set.env().txgs
    }

    /// A hold on the open group for the log's own sake. Never waits for a suspended pool: commits
    /// of other threads wait for the writer.
    pub(crate) fn assign(&self, operation: &Operation) -> Result<OpenTx, AssignError> {
        let estimate = TxEstimate {
            urgency: Urgency::Now,
            ..TxEstimate::default()
        };
        self.txgs().assign(&estimate, operation)
    }

    /// Whether records are to be made at all.
    pub fn is_wanted(&self) -> bool {
        self.durability == Durability::ByLog || self.is_replaying() || self.watcher.get().is_some()
    }

    /// Whether records of extended attributes among a file's own can be in the log: older programs
    /// do not know them, so the dataset has to say that it has such (feature `zilsaxattr`).
    pub fn takes_xattrs(&self) -> bool {
        self.takes_xattrs.load(Ordering::Relaxed)
    }

    /// The feature is enabled: the dataset uses it as soon as its log has a block.
    pub fn allow_xattrs(&self) {
        self.takes_xattrs.store(true, Ordering::Relaxed);
    }

    /// Sets the property `logbias`.
    pub fn set_bias(&self, bias: LogBias) {
        self.spares_devices
            .store(bias == LogBias::Throughput, Ordering::Relaxed);
    }

    pub(crate) fn bias(&self) -> LogBias {
        match self.spares_devices.load(Ordering::Relaxed) {
            true => LogBias::Throughput,
            false => LogBias::Latency,
        }
    }

    /// For tests: calls a function for every record as it is made. Once.
    pub fn watch(&self, watcher: impl Fn(&IntentRecord) + Send + Sync + 'static) {
        let _ = self.watcher.set(Box::new(watcher));
    }

    /// Whether it was closed: a new one takes its place.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Takes a change into the log's memory. Called with the transaction of the change and the
    /// locks of its files held, so that records are in the order of changes.
    #[doc(alias = "zil_itx_assign")]
    pub fn record(&self, tx: &Tx, record: IntentRecord) {
        if self.note_replayed(tx) {
            return;
        }
        if let Some(watcher) = self.watcher.get() {
            watcher(&record);
        }
        self.remember(tx, [record]);
    }

    /// As [`IntentLog::record`], for one operation that takes several records, of which a part
    /// would be wrong: either all are in the log or none. All are of one file, or every commit
    /// needs all of them; and none has contents to be fetched.
    pub fn record_together(&self, tx: &Tx, records: Vec<IntentRecord>) {
        assert!(
            records.windows(2).all(|two| two[0].object == two[1].object)
                && (records.iter()).all(|record| record.contents == Contents::InRecord)
        );
        if records.is_empty() || self.note_replayed(tx) {
            return;
        }
        if let Some(watcher) = self.watcher.get() {
            records.iter().for_each(watcher);
        }
        self.remember(tx, records);
    }

    fn remember(&self, tx: &Tx, records: impl IntoIterator<Item = IntentRecord>) {
        let mut is_first = false;
        {
            let mut state = self.state.lock();
            if self.durability == Durability::ByLog && !state.is_closed {
                let first = state.pending.next_order();
                for record in records {
                    self.counts.add(Event::Record, 1);
                    is_first |= state.pending.add(tx.txg(), first, record);
                }
            }
        }
        if is_first {
            self.set.touch(tx);
        }
    }

    /// Notes a change that no record can express: commits wait until its txg is stored.
    pub fn note_unlogged(&self, tx: &Tx) {
        let mut state = self.state.lock();
        state.must_wait = state.must_wait.max(tx.txg());
    }

    /// While the log is replayed: the record that is being replayed was applied by this
    /// transaction. False when nothing is replayed.
    #[doc(alias = "zil_replaying")]
    pub fn note_replayed(&self, tx: &Tx) -> bool {
        let sequence = self.replaying.load(Ordering::Relaxed);
        if sequence != 0 {
            self.set.note_replayed(tx, sequence);
        }
        sequence != 0
    }

    /// Whether a record is being replayed.
    pub fn is_replaying(&self) -> bool {
        self.replaying.load(Ordering::Relaxed) != 0
    }

    /// This record is being replayed from now on.
    pub(crate) fn begin_replay(&self, sequence: u64) {
        assert_ne!(sequence, 0, "records are counted from 1");
        self.replaying.store(sequence, Ordering::Relaxed);
    }

    /// Nothing is replayed any more.
    pub(crate) fn end_replay(&self) {
        self.replaying.store(0, Ordering::Relaxed);
    }

    /// Drops the records that only commits of a freed file need.
    #[doc(alias = "zil_remove_async")]
    pub fn forget(&self, object: ObjectId) {
        self.state.lock().pending.forget(object);
    }

    /// Makes the records of this file shared, so that every commit stores them, in order: a later
    /// change builds on them, as a rename does on writes to the file.
    #[doc(alias = "zil_async_to_sync")]
    pub fn share(&self, object: ObjectId) {
        self.state.lock().pending.share(object);
    }
}

impl std::fmt::Debug for IntentLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IntentLog({:?})", self.set)
    }
}
