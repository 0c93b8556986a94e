//! Intent logs that an earlier run left behind.
//!
//! A pool that was not exported can have intent logs whose blocks are in no space map: they were promised, not
//! stored. Whoever writes such a pool without replaying them loses what they hold. So a pool is not
//! imported for writing while any dataset has one; read-only it can be.

use crate::error::{ImportError, PoolError};
use std::sync::Arc;
use tarn_dataset::namespace::Namespace;
use tarn_object::{ObjectSet, read_head};
use tarn_ondisk::intent_log::{LogBlock, LogForm};
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::units::ObjectId;
use tarn_probe::{Operation, OperationKind};

/// Refuses when a dataset has an intent log.
///
/// # Errors
/// The datasets that have one; or what could not be read.
pub(crate) fn refuse_left_logs(
    namespace: &Namespace,
    mos: &Arc<ObjectSet>,
    operation: &Operation,
) -> Result<(), ImportError> {
    let view = namespace.view(operation);
    let mut left = Vec::new();
    let mut pending = vec![view.root().map_err(PoolError::from)?];
    while let Some(directory) = pending.pop() {
        pending.extend(directory.children().map_err(PoolError::from)?);
        let Some(head) = directory.head().map_err(PoolError::from)? else {
            continue;
        };
        let root = head.stored().map_err(PoolError::from)?.root;
        if root.is_hole() {
            continue;
        }
        let objset = read_head(&mos.env().cache, head.id(), &root, operation)
            .map_err(|cause| in_set(head.id(), cause))?;
        if has_records(mos, &objset.intent_log, operation) {
            left.push(directory.name().to_string());
        }
    }
    match left.is_empty() {
        true => Ok(()),
        false => Err(ImportError::IntentLogs { datasets: left }),
    }
}

/// Whether a log holds records. The last block of a log was made ready and never written: it does not verify, which
/// is how a log ends. A log of which only that is left is empty.
fn has_records(mos: &Arc<ObjectSet>, log: &IntentLogHead, operation: &Operation) -> bool {
    if log.first.is_hole() {
        return false;
    }
    let Some(form) = LogForm::of_checksum(log.first.checksum_kind()) else {
        return false;
    };
    let search = Operation::internal(operation.clock(), OperationKind::LogSearch);
    let Ok(block) = mos.env().cache.io().read(&log.first, &search) else {
        return false;
    };
    LogBlock::decode(&block, form).is_ok_and(|block| block.records().next().is_some())
}

fn in_set(object: ObjectId, cause: tarn_object::ObjectError) -> ImportError {
    ImportError::Pool(PoolError::Object { object, cause })
}
