//! The pool's error log: known data errors.

use std::collections::BTreeSet;
use tarn_ondisk::error_log::{ErrorPlace, HeadErrorPlace};
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::units::ObjectId;
use tarn_pool::{Pool, PoolError};
use tarn_probe::Operation;

/// A damaged object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Damaged {
    /// Its dataset; 0 is the MOS.
    dataset: ObjectId,
    /// The object.
    object: ObjectId,
}

/// All known damaged objects. Malformed entries are skipped.
pub(super) fn known(pool: &Pool, operation: &Operation) -> Result<Vec<Damaged>, PoolError> {
    let directory = pool.directory(operation);
    let is_by_head = pool.features().is_active(Feature::HeadErrlog.guid());
    let mut damaged = BTreeSet::new();
    for log in [name::ERROR_LOG_LAST, name::ERROR_LOG_SCRUB] {
        let Some(log) = directory.find(log)?.filter(|log| !log.is_zero()) else {
            continue;
        };
        for (entry, value) in directory.entries(log)? {
            if !is_by_head {
                if let Ok(place) = ErrorPlace::from_name(entry.as_bytes()) {
                    let (dataset, object) = (place.dataset, place.object);
                    damaged.insert(Damaged { dataset, object });
                }
                continue;
            }
            let dataset = u64::from_str_radix(&entry, 16).map(ObjectId::new);
            let (Ok(dataset), Some(zap)) = (dataset, value.as_word().map(ObjectId::new)) else {
                continue;
            };
            for (entry, _) in directory.entries(zap)? {
                if let Ok(place) = HeadErrorPlace::from_name(entry.as_bytes()) {
                    let object = place.object;
                    damaged.insert(Damaged { dataset, object });
                }
            }
        }
    }
    Ok(damaged.into_iter().collect())
}

/// The lines of `zpool status -v` for damaged objects.
#[doc(alias = "zpool_obj_to_path")]
pub(super) fn paths(pool: &Pool, damaged: &[Damaged], operation: &Operation) -> Vec<String> {
    let view = pool.namespace().view(operation);
    damaged
        .iter()
        .map(|damaged| {
            let object = damaged.object.get();
            if damaged.dataset.is_zero() {
                return format!("<metadata>:<{object:#x}>");
            }
            match view.dataset_by_id(damaged.dataset) {
                Ok(dataset) => format!("{}:<{object:#x}>", dataset.name()),
                Err(_) => format!("<{:#x}>:<{object:#x}>", damaged.dataset.get()),
            }
        })
        .collect()
}
