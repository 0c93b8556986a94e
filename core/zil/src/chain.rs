//! Walking a log that is on the disk: block after block, record after record.
//!
//! # Problem
//! A log has no table of its blocks. Each block names the next one before that is written, so every
//! log ends with a pointer to a block that was never written, and its place can hold anything, even
//! a block of an older log. And the disk may lie: a chain may lead back to itself, and lengths may
//! have no bounds.
//!
//! # Mechanism
//! A block belongs to the log when it verifies with the verifier in the pointer to it: the number
//! of its log, its object set, its place in the chain. The first block that does not is the end.
//! The head of a log that was *claimed* after a crash says how far the log goes: blocks behind that
//! are not read, and blocks before it have to be readable.
//!
//! # Invariants
//! - The walk ends: places in the chain only grow, and are counted.
//! - A block that is no log block by its pointer is not read.
//! - The walk says why it ended; its caller decides what an end means.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;

use tarn_block::{BlockIo, BlockScope, ReadError};
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind};
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::intent_log::{LogBlock, LogForm, LogRecord, SEQUENCE_WORD};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::IntentLogHead;
use tarn_probe::{Operation, OperationKind};

/// Longest log that is followed. Tarn's are shorter; for others a guess: more blocks than any pool
/// writes between two txgs.
const BLOCKS_MAX: u64 = 1 << 20;
/// At this length a chain of Tarn does not grow before a txg is stored. On the disk it may be
/// longer by the blocks that the syncing txg frees.
pub(crate) const OWN_BLOCKS_MAX: u64 = BLOCKS_MAX / 4;

/// A block or record that a walk finds.
#[derive(Debug)]
pub enum Found<'a> {
    /// A block that a pointer of the chain names; it is read after this, and perhaps was never
    /// written.
    Block(&'a BlockPointer),
    /// The same block, which was read and is of this log.
    Written(&'a BlockPointer),
    /// A record of the block before.
    Record(&'a LogRecord),
}

/// Why a walk ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChainEnd {
    /// The chain names no further block.
    Hole,
    /// The walk found all that was claimed.
    Claimed,
    /// A block does not verify, or is not the next of this log: it was never written. The usual end
    /// of a log that was not closed.
    NotWritten {
        /// The place of the block in the chain.
        block: u64,
    },
    /// Devices could not give a block: whether it was written is not known.
    Unreadable {
        /// The place of the block in the chain.
        block: u64,
        /// What the devices said.
        why: ReadError,
    },
    /// A block verified and is encrypted: what is in it is not known, nor which block is next.
    Encrypted {
        /// The place of the block in the chain.
        block: u64,
    },
    /// A block verified, and has a record that cannot be decoded.
    BadRecord {
        /// The place of the block in the chain.
        block: u64,
        /// The record before it; zero for none.
        after: u64,
        /// What makes no sense.
        what: Corrupt,
    },
    /// Longer than logs can be.
    TooLong,
    /// The visitor stopped the walk.
    Stopped,
}

impl fmt::Display for ChainEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChainEnd::Hole => write!(f, "it ends"),
            ChainEnd::Claimed => write!(f, "it ends where it was claimed"),
            ChainEnd::NotWritten { block } => write!(f, "block {block} was not written"),
            ChainEnd::Unreadable { block, why } => write!(f, "block {block}: {why}"),
            ChainEnd::Encrypted { block } => write!(f, "block {block} is encrypted"),
            ChainEnd::BadRecord { block, after, what } => {
                write!(f, "the record after {after} in block {block}: {what}")
            }
            ChainEnd::TooLong => write!(f, "it does not end"),
            ChainEnd::Stopped => write!(f, "it was not followed further"),
        }
    }
}

/// The place of a log block in its chain, by the pointer to it.
pub fn place_in_chain(pointer: &BlockPointer) -> u64 {
    pointer.checksum_words.0[SEQUENCE_WORD]
}

/// Walks a log from its head. `visit` is called for every block before it is read, and for its
/// records.
#[doc(alias = "zil_parse")]
pub fn walk(
    io: &BlockIo,
    head: &IntentLogHead,
    operation: &Operation,
    visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
) -> ChainEnd {
    // A block that does not verify at the end of a log is no fault of a device.
    let search = Operation::internal(operation.clock(), OperationKind::LogSearch);
    let limits = Limits::of(head);
    let mut seen: BTreeSet<Option<Dva>> = BTreeSet::new();
    let mut next = head.first;
    let mut last_record = 0;
    for _ in 0..BLOCKS_MAX {
        let pointer = next;
        if pointer.is_hole() {
            return ChainEnd::Hole;
        }
        let block = place_in_chain(&pointer);
        if block > limits.block {
            return ChainEnd::Claimed;
        }
        if !is_of_a_log(&pointer) || !seen.insert(pointer.dvas().next()) {
            return ChainEnd::NotWritten { block };
        }
        if visit(Found::Block(&pointer)).is_break() {
            return ChainEnd::Stopped;
        }
        if block == limits.block && last_record == limits.record {
            return ChainEnd::Claimed;
        }
        let contents = match io.read(&pointer, BlockScope::of_log_block(&pointer), &search) {
            Ok(contents) => contents,
            Err(why) => return end_of(block, why),
        };
        let form = LogForm::of_checksum(pointer.checksum_kind()).expect("it is of a log");
        let Ok(decoded) = LogBlock::decode(&contents, form) else {
            return ChainEnd::NotWritten { block };
        };
        if !is_followed_by(&pointer, &decoded.chain.next) {
            return ChainEnd::NotWritten { block };
        }
        if visit(Found::Written(&pointer)).is_break() {
            return ChainEnd::Stopped;
        }
        for record in decoded.records() {
            let after = last_record;
            let record = match record {
                Ok(record) => record,
                Err(what) => return ChainEnd::BadRecord { block, after, what },
            };
            if record.sequence > limits.record {
                return ChainEnd::Claimed;
            }
            if record.sequence <= last_record {
                let what = Corrupt::Value {
                    what: "intent log record",
                    field: "sequence",
                    offset: 24,
                    found: record.sequence,
                };
                return ChainEnd::BadRecord { block, after, what };
            }
            if visit(Found::Record(&record)).is_break() {
                return ChainEnd::Stopped;
            }
            last_record = record.sequence;
        }
        next = decoded.chain.next;
    }
    ChainEnd::TooLong
}

/// How far a claimed log goes.
struct Limits {
    block: u64,
    record: u64,
}

impl Limits {
    fn of(head: &IntentLogHead) -> Limits {
        let is_claimed = !head.claim_txg.is_zero();
        let has_record = head.flags & IntentLogHead::CLAIMED_RECORD_VALID != 0;
        Limits {
            block: match is_claimed {
                true => head.claimed_block_sequence,
                false => u64::MAX,
            },
            record: match is_claimed && has_record {
                true => head.claimed_record_sequence,
                false => u64::MAX,
            },
        }
    }
}

/// Whether a pointer can be one to a log block.
fn is_of_a_log(pointer: &BlockPointer) -> bool {
    pointer.kind() == PointerKind::Stored
        && pointer.object_type() == ObjectType::IntentLog
        && LogForm::of_checksum(pointer.checksum_kind()).is_some()
}

/// Whether the pointer to the next block is of the same log, and of the next place in it.
fn is_followed_by(pointer: &BlockPointer, next: &BlockPointer) -> bool {
    let mut expected = pointer.checksum_words.0;
    expected[SEQUENCE_WORD] = expected[SEQUENCE_WORD].wrapping_add(1);
    next.is_hole() || (next.checksum_words.0 == expected && expected[SEQUENCE_WORD] != 0)
}

/// The end of a log at a block that could not be read.
fn end_of(block: u64, why: ReadError) -> ChainEnd {
    match why {
        ReadError::Encrypted { .. } => ChainEnd::Encrypted { block },
        why if why.is_mismatch() => ChainEnd::NotWritten { block },
        why => ChainEnd::Unreadable { block, why },
    }
}
