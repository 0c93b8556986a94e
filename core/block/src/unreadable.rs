//! Blocks that readers could not read: for the pool's error log, and for its events.
//!
//! # Mechanism
//! A read that fails leaves where its block belongs and when the block was born. The pool takes
//! that with the next txg. The failure is also a report of the devices, which becomes an event at
//! once. Reads of scans are left out, as a scan notes its errors itself, and so are prefetches and
//! the search for the ends of intent logs.

use crate::error::ReadError;
use crate::io::{BlockIo, Repair};
use crate::ranks;
use crate::scope::{BlockKind, BlockScope};
use std::collections::BTreeMap;
use tarn_host::lock::Mutex;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::units::Txg;
use tarn_probe::{Operation, OperationKind};

/// No more are kept until the pool takes them: the next read or scrub finds them again.
const COUNT_MAX: usize = 4096;

/// The blocks that could not be read since the last call of [`BlockIo::take_unreadable`], with
/// their births.
#[derive(Debug)]
pub(crate) struct Unreadable(Mutex<BTreeMap<TraversalMark, Txg>>);

impl Unreadable {
    pub(crate) fn new() -> Unreadable {
        Unreadable(Mutex::new(ranks::UNREADABLE, BTreeMap::new()))
    }
}

impl BlockIo {
    /// The blocks that could not be read since the last call, each with its birth.
    #[doc(alias = "spa_log_error")]
    pub fn take_unreadable(&self) -> BTreeMap<TraversalMark, Txg> {
        std::mem::take(&mut *self.unreadable.0.lock())
    }

    /// Whether there are any.
    pub fn has_unreadable(&self) -> bool {
        !self.unreadable.0.lock().is_empty()
    }

    /// Notes a failed read.
    pub(crate) fn note_unreadable(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        error: &ReadError,
        operation: &Operation,
    ) {
        let is_logged = !matches!(
            operation.what().kind,
            OperationKind::Scan | OperationKind::Prefetch | OperationKind::LogSearch
        );
        // A key that is not there, and blocks that never came, are no damage.
        let is_damage = !matches!(
            error,
            ReadError::Encrypted { .. } | ReadError::Redacted { .. }
        );
        let is_here = scope.kind != BlockKind::IntentLog && self.is_settled(pointer, operation);
        if !(is_logged && is_damage && is_here) {
            return;
        }
        let vdevs = self.vdevs();
        vdevs.report_unreadable(scope.mark, error.errno(), operation);
        if self.options.repair == Repair::Rewrite {
            let mut noted = self.unreadable.0.lock();
            if noted.len() < COUNT_MAX {
                noted.insert(scope.mark, pointer.logical_birth);
            }
        }
    }
}
