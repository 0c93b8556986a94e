//! The state of a ZAP in memory between calls.
//!
//! # Mechanism
//! A micro ZAP is a list, and a lookup would scan all of it. An index from hash and differentiator
//! to slot is made when the ZAP is first used and updated with each change; it is also the order of
//! walks. Of a fat ZAP the decoded header is kept, and which leaves were checked, since a check
//! reads every chunk.
//!
//! # Invariants
//! - The state agrees with the newest contents of the blocks. A thread that changes the blocks
//!   holds the write lock.
//! - The state can be dropped at any time; it is made again from the blocks.

use std::collections::{BTreeMap, BTreeSet};
use tarn_host::lock::RwLock;
use tarn_ondisk::zap::fat::FatHeader;
use tarn_ondisk::zap::{Cursor, ZapFlags};

use crate::ranks::ZAP;

/// How many leaves are remembered as checked.
pub(super) const CHECKED_LEAVES_MAX: usize = 4096;

/// The state of one ZAP.
#[derive(Debug)]
pub struct ZapState {
    pub(super) kind: RwLock<Option<Kind>>,
}

impl Default for ZapState {
    fn default() -> Self {
        ZapState {
            kind: RwLock::new(ZAP, None),
        }
    }
}

impl ZapState {
    /// Drops the state: the object was freed, or its contents were replaced from outside.
    pub fn forget(&self) {
        *self.kind.write() = None;
    }
}

/// What is remembered of each form.
#[derive(Debug)]
pub(super) enum Kind {
    Micro(MicroIndex),
    Fat(FatState),
}

impl Kind {
    /// How names are hashed.
    pub(super) fn rules(&self) -> Rules {
        match self {
            Kind::Micro(index) => index.rules,
            Kind::Fat(fat) => Rules {
                salt: fat.header.salt,
                normalization: fat.header.normalization,
                flags: fat.header.flags(),
            },
        }
    }
}

/// What decides the hash of a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) salt: u64,
    pub(super) normalization: u64,
    pub(super) flags: ZapFlags,
}

/// The index of a micro ZAP.
#[derive(Debug)]
pub(super) struct MicroIndex {
    pub(super) rules: Rules,
    /// Slots in the order of walks.
    pub(super) slots: BTreeMap<Cursor, usize>,
    /// Where to look for a free slot.
    pub(super) free_from: usize,
}

/// The state of a fat ZAP.
#[derive(Debug)]
pub(super) struct FatState {
    pub(super) header: FatHeader,
    /// Blocks whose leaf was looked at in whole.
    pub(super) checked: BTreeSet<u64>,
}
