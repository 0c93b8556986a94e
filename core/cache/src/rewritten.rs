//! The earlier contents of MOS blocks that a later sync pass wrote again in the same place.
//!
//! # Problem
//! A txg is stored in passes, and a block that changes again in a later pass is written where the
//! earlier pass put it. A reader that looked up the pointer just before reads bytes that do not
//! verify. Looking it up again gives the same pointer until the pass is done.
//!
//! # Mechanism
//! Before such a block is written again, its contents are put here under the pointer that led to
//! them. Readers look here before they read a device, and once more if that failed. One txg later
//! no reader uses the old pointer any more.

use crate::contents::Contents;
use crate::key::fingerprint;
use crate::ranks::REWRITTEN;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_host::lock::Mutex;
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::units::Txg;

/// When a block was born, where, and what else its pointer says.
type Name = (Txg, Dva, u64);

fn name_of(pointer: &BlockPointer) -> Name {
    let birth = pointer.physical_birth();
    (birth, pointer.dva_words[0], fingerprint(pointer))
}

/// Those of one pool.
pub(crate) struct Rewritten {
    kept: Mutex<BTreeMap<Name, Contents>>,
    /// Nearly always there are none, and readers need not ask.
    has_any: AtomicBool,
}

impl Rewritten {
    pub(crate) fn new() -> Rewritten {
        Rewritten {
            kept: Mutex::new(REWRITTEN, BTreeMap::new()),
            has_any: AtomicBool::new(false),
        }
    }

    pub(crate) fn keep(&self, pointer: &BlockPointer, contents: Contents) {
        let mut kept = self.kept.lock();
        kept.insert(name_of(pointer), contents);
        self.has_any.store(true, Ordering::Release);
    }

    pub(crate) fn find(&self, pointer: &BlockPointer) -> Option<Contents> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        self.kept.lock().get(&name_of(pointer)).cloned()
    }

    pub(crate) fn forget_before(&self, txg: Txg) {
        if !self.has_any.load(Ordering::Acquire) {
            return;
        }
        let mut kept = self.kept.lock();
        let later = kept.split_off(&(txg, Dva::EMPTY, 0));
        let forgotten = std::mem::replace(&mut *kept, later);
        self.has_any.store(!kept.is_empty(), Ordering::Release);
        drop(kept);
        drop(forgotten);
    }
}
