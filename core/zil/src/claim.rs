//! Claiming the intent logs that a crash has left, before anything is allocated.
//!
//! # Problem
//! After a crash no space map has the blocks of a log: they were written between txgs. Allocating
//! in such a pool would overwrite them.
//!
//! # Mechanism
//! When a pool is opened for writing, all logs are surveyed first ([`survey`]). The survey of a log
//! gives the blocks to be marked as allocated, those born after the newest stored txg, and the new
//! head: how far the log goes, and whether it has records to replay. The pool marks the blocks, and
//! stores heads and space maps in its first txg. From then on the log stays until it is replayed,
//! also over further crashes.
//!
//! Records of clones lead to blocks of other files, which may be freed before the log is replayed,
//! for it is replayed when its dataset is mounted. So each of these blocks gets a reference when
//! the log is claimed, and gives it up when the log is destroyed. All records count, also of txgs
//! that were stored: destroying a log, here and in OpenZFS, gives up a reference for each.
//!
//! The last blocks of a log may be on some devices only, for the power failed while they were being
//! written. The claim includes them, so the survey lists the blocks that it read, and the pool
//! self-heals these on all devices in use before it stores the claim. Otherwise the log would end
//! before its claimed end as soon as such a device is taken out of use.
//!
//! # Invariants
//! - If the log of any dataset cannot be read to its end, no log is claimed and the pool is not
//!   opened for writing.
//!
//! # After a crash
//! Before the first txg is stored nothing has changed; after it, all logs are claimed.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use tarn_block::{BlockIo, BlockScope, ReadError};
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind};
use tarn_ondisk::intent_log::{LogRecord, LoggedChange, OBJECT_SET_WORD};
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::{Operation, OperationKind};

use crate::chain::{ChainEnd, Found, place_in_chain, walk};

/// No log is further ahead of the newest stored txg than this. A guess: txgs follow each other in
/// milliseconds at best while devices hang, and an administrator looks after an hour.
const GROUPS_AHEAD_MAX: u64 = 1 << 20;

/// The result of surveying a log.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The claim, if the log has to be claimed.
    pub claim: Option<Claim>,
    /// Blocks that all devices in use must have before the log is claimed, and should have if it
    /// was claimed before: the log's own that were read, and blocks of data that its records name
    /// and perhaps no txg has stored.
    pub needed: Vec<BlockPointer>,
    /// The newest birth of a block of the log. The pool's next txg is behind it, since a block must
    /// not be born after the txg that frees it.
    pub newest: Txg,
}

/// The changes that claim a log.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Blocks that no space map has: those of the log, and those that its records name.
    pub blocks: Vec<BlockPointer>,
    /// Blocks of files that records of clones lead to, each as often as it is led to: they get so
    /// many references.
    pub shared: Vec<BlockPointer>,
    /// The head as it has to be stored.
    pub head: IntentLogHead,
}

impl Claim {
    /// There is nothing in the log, or it is given up and what it holds is lost: its head is
    /// emptied.
    #[doc(alias = "SPA_LOG_CLEAR")]
    pub const NOTHING: Claim = Claim {
        blocks: Vec::new(),
        shared: Vec::new(),
        head: IntentLogHead::EMPTY,
    };
}

/// Why a log cannot be claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// Devices could not give a block. Attaching the missing ones cures it.
    #[error("block {block} of the intent log cannot be read: {why}")]
    Unreadable {
        /// The place of the block in its chain.
        block: u64,
        /// Why not.
        why: ReadError,
    },
    /// The dataset is encrypted, which this version cannot open. OpenZFS can, and can replay the
    /// log.
    #[error("the intent log is encrypted, which is not supported")]
    Encrypted,
    /// Blocks are shared that cannot be: no reference to them can be counted.
    #[error(
        "record {sequence} (TX_CLONE_RANGE) of the intent log shares a block that cannot be shared: {what}"
    )]
    Clones {
        /// The record.
        sequence: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A block says that it is much younger than the pool.
    #[error("block {block} of the intent log is of the future: born in txg {birth}")]
    OfTheFuture {
        /// The place of the block in its chain.
        block: u64,
        /// When it says it was born.
        birth: Txg,
    },
    /// The log makes no sense.
    #[error("the intent log is damaged: {end}")]
    Damaged {
        /// Where and why.
        end: ChainEnd,
    },
}

/// Looks at a log that was perhaps never claimed. `first` is the first group that could be stored.
///
/// # Errors
/// When the log cannot be claimed.
#[doc(alias("zil_claim", "zil_check_log_chain"))]
pub fn survey(
    io: &BlockIo,
    head: &IntentLogHead,
    first: Txg,
    operation: &Operation,
) -> Result<Survey, ClaimError> {
    let mut survey = Look {
        io,
        set: ObjectId::from(head.first.checksum_words.0[OBJECT_SET_WORD]),
        first,
        operation,
        claimed: head.claim_txg,
        blocks: Vec::new(),
        needed: Vec::new(),
        shared: Vec::new(),
        places: BTreeSet::new(),
        block_count: 0,
        last_block: 0,
        last_record: 0,
        newest: Txg::ZERO,
        is_encrypted: false,
        refused: None,
    };
    let end = walk(io, head, operation, &mut |found| survey.look(&found));
    if let Some(refused) = survey.refused {
        return Err(refused);
    }
    if !head.claim_txg.is_zero() {
        // How far it goes is known. What cannot be read of it now is said when it is replayed.
        return Ok(Survey {
            claim: None,
            newest: survey.newest,
            needed: survey.needed,
        });
    }
    match end {
        ChainEnd::Hole | ChainEnd::NotWritten { .. } | ChainEnd::Stopped => {}
        ChainEnd::Unreadable { block, why } => return Err(ClaimError::Unreadable { block, why }),
        ChainEnd::Encrypted { .. } => return Err(ClaimError::Encrypted),
        end => return Err(ClaimError::Damaged { end }),
    }
    let is_empty = survey.block_count <= 1 && survey.last_record == 0;
    if is_empty {
        // A block that was made ready and never written: there is nothing to keep, and nothing to
        // lose. What is encrypted is not changed without its key, and what no space map has is not
        // free for others only as long as the head is right.
        let is_left = head.first.is_hole() || survey.is_encrypted;
        if survey.is_encrypted && !survey.blocks.is_empty() {
            return Err(ClaimError::Encrypted);
        }
        return Ok(Survey {
            claim: (!is_left).then_some(Claim::NOTHING),
            newest: Txg::ZERO,
            needed: Vec::new(),
        });
    }
    let claimed = IntentLogHead {
        claim_txg: first,
        claimed_block_sequence: survey.last_block,
        claimed_record_sequence: survey.last_record,
        flags: head.flags | IntentLogHead::CLAIMED_RECORD_VALID | IntentLogHead::REPLAY_NEEDED,
        ..*head
    };
    Ok(Survey {
        newest: survey.newest,
        needed: survey.needed,
        claim: Some(Claim {
            blocks: survey.blocks,
            shared: survey.shared,
            head: claimed,
        }),
    })
}

struct Look<'a> {
    io: &'a BlockIo,
    /// The object set of the log.
    set: ObjectId,
    first: Txg,
    operation: &'a Operation,
    /// When the log was claimed, if it was.
    claimed: Txg,
    blocks: Vec<BlockPointer>,
    needed: Vec<BlockPointer>,
    shared: Vec<BlockPointer>,
    places: BTreeSet<Option<Dva>>,
    block_count: u64,
    last_block: u64,
    last_record: u64,
    newest: Txg,
    is_encrypted: bool,
    refused: Option<ClaimError>,
}

impl Look<'_> {
    fn look(&mut self, found: &Found<'_>) -> ControlFlow<()> {
        match found {
            Found::Block(pointer) => {
                self.block_count += 1;
                self.last_block = place_in_chain(pointer);
                self.is_encrypted |= pointer.uses_encryption();
                if pointer.uses_encryption() && self.is_written(pointer) {
                    return self.refuse(ClaimError::Encrypted);
                }
                self.take(pointer)
            }
            Found::Written(pointer) => {
                self.needed.push(**pointer);
                ControlFlow::Continue(())
            }
            Found::Record(record) => self.look_at_record(record),
        }
    }

    fn look_at_record(&mut self, record: &LogRecord) -> ControlFlow<()> {
        match &record.change {
            LoggedChange::Write(write) if self.is_new(&write.pointer) => {
                let (object, offset) = (write.object, write.offset);
                let scope = BlockScope::of_logged_write(self.set, object, offset, &write.pointer);
                // A log block can be on the disk before the block that it names. Then the commit
                // had not returned: the log ends there.
                match self.io.read(&write.pointer, scope, &self.search()) {
                    Ok(_) => {
                        self.take(&write.pointer)?;
                        self.needed.push(write.pointer);
                    }
                    Err(ReadError::Encrypted { .. }) => return self.refuse(ClaimError::Encrypted),
                    Err(why) if why.is_mismatch() => return ControlFlow::Break(()),
                    Err(why) => {
                        let block = self.last_block;
                        return self.refuse(ClaimError::Unreadable { block, why });
                    }
                }
            }
            // What was new when the log was claimed.
            LoggedChange::Write(write)
                if !self.claimed.is_zero() && write.pointer.logical_birth >= self.claimed =>
            {
                self.needed.push(write.pointer);
            }
            LoggedChange::CloneRange { pointers, .. } => {
                self.look_at_clones(record.sequence, pointers)?;
            }
            _ => {}
        }
        self.last_record = record.sequence;
        ControlFlow::Continue(())
    }

    /// The blocks of a record of clones.
    #[doc(alias = "zil_claim_clone_range")]
    fn look_at_clones(&mut self, sequence: u64, pointers: &[BlockPointer]) -> ControlFlow<()> {
        let mut stored = Vec::new();
        for pointer in pointers {
            if matches!(pointer.kind(), PointerKind::Hole | PointerKind::Embedded) {
                continue;
            }
            // Only stored blocks are cloned, so no commit of this record had returned.
            if pointer.physical_birth() >= self.first {
                return ControlFlow::Break(());
            }
            let wrong = match () {
                () if pointer.kind() != PointerKind::Stored => Some("it was left out of a stream"),
                () if pointer.is_dedup() => Some("it is in the dedup table"),
                () if pointer.uses_encryption() => Some("it is encrypted"),
                () if !self.io.shares_blocks() => Some("feature block_cloning is not enabled"),
                () if !self.io.has_places(pointer) => Some("it is on no device of the pool"),
                () => None,
            };
            if let Some(what) = wrong {
                return self.refuse(ClaimError::Clones { sequence, what });
            }
            stored.push(*pointer);
        }
        self.shared.extend(stored);
        ControlFlow::Continue(())
    }

    /// Whether a block of the log was written, encrypted as it is.
    fn is_written(&self, pointer: &BlockPointer) -> bool {
        let scope = BlockScope::of_log_block(pointer);
        match self.io.read_raw(pointer, scope, &self.search()) {
            Ok(_) => true,
            Err(why) => !why.is_mismatch(),
        }
    }

    fn search(&self) -> Operation {
        Operation::internal(self.operation.clock(), OperationKind::LogSearch)
    }

    fn is_new(&self, pointer: &BlockPointer) -> bool {
        pointer.kind() == PointerKind::Stored && pointer.logical_birth >= self.first
    }

    fn take(&mut self, pointer: &BlockPointer) -> ControlFlow<()> {
        let birth = pointer.logical_birth.max(pointer.physical_birth());
        if birth.get() > self.first.get().saturating_add(GROUPS_AHEAD_MAX) {
            return self.refuse(ClaimError::OfTheFuture {
                block: self.last_block,
                birth,
            });
        }
        self.newest = self.newest.max(birth);
        if self.is_new(pointer) && self.places.insert(pointer.dvas().next()) {
            self.blocks.push(*pointer);
        }
        ControlFlow::Continue(())
    }

    fn refuse(&mut self, why: ClaimError) -> ControlFlow<()> {
        self.refused = Some(why);
        ControlFlow::Break(())
    }
}
