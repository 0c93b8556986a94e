//! The pool's error log: known data errors, and the files that they are in.
//!
//! # Mechanism
//! With the feature `head_errlog` an entry names the file system, and the birth of the block. The
//! block is in the file system if that has a block of the same birth in the same place, and in each
//! snapshot and clone that has. Without the feature an entry names the dataset that was read.
//!
//! An object has the path of its file, below the mount point where the file system is mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use tarn_dataset::contents;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::namespace::View;
use tarn_engine::engine::OpenPool;
use tarn_ondisk::error_log::{ErrorPlace, HeadErrorPlace};
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_pool::find_block::{FoundBlock, find_block};
use tarn_pool::{Pool, PoolError};
use tarn_posix::diff::paths_of;
use tarn_probe::Operation;

/// No more datasets are searched for one block: a bound on the time of a crafted pool.
const DATASETS_MAX: usize = 1 << 16;

/// A known error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Known {
    /// The dataset that was read, or the file system that it belongs to; 0 is the MOS.
    dataset: ObjectId,
    /// The block. Its birth is zero where the log does not have it.
    place: HeadErrorPlace,
}

/// A damaged object of a dataset.
type Damaged = (ObjectId, ObjectId);

/// All known errors. Malformed entries are skipped.
pub(super) fn known(pool: &Pool, operation: &Operation) -> Result<Vec<Known>, PoolError> {
    let directory = pool.directory(operation);
    let is_by_head = pool.features().is_active(Feature::HeadErrlog.guid());
    let mut known = BTreeSet::new();
    for log in [name::ERROR_LOG_LAST, name::ERROR_LOG_SCRUB] {
        let Some(log) = directory.find(log)?.filter(|log| !log.is_zero()) else {
            continue;
        };
        for (entry, value) in directory.entries(log)? {
            if !is_by_head {
                if let Ok(place) = ErrorPlace::from_name(entry.as_bytes()) {
                    known.insert(Known {
                        dataset: place.dataset,
                        place: HeadErrorPlace {
                            object: place.object,
                            level: place.level,
                            block: place.block,
                            birth: Txg::ZERO,
                        },
                    });
                }
                continue;
            }
            let dataset = u64::from_str_radix(&entry, 16).map(ObjectId::new);
            let (Ok(dataset), Some(zap)) = (dataset, value.as_word().map(ObjectId::new)) else {
                continue;
            };
            for (entry, _) in directory.entries(zap)? {
                if let Ok(place) = HeadErrorPlace::from_name(entry.as_bytes()) {
                    known.insert(Known { dataset, place });
                }
            }
        }
    }
    for (place, birth) in pool.unstored_errors() {
        known.insert(Known {
            dataset: place.dataset,
            place: HeadErrorPlace {
                object: place.object,
                level: place.level,
                block: place.block,
                birth,
            },
        });
    }
    Ok(known.into_iter().collect())
}

/// The lines of `zpool status -v` for known errors.
#[doc(alias = "zpool_get_errlog")]
pub(super) fn paths(open: &OpenPool, known: &[Known], operation: &Operation) -> Vec<String> {
    let view = open.pool.namespace().view(operation);
    let mut damaged: BTreeMap<ObjectId, BTreeSet<ObjectId>> = BTreeMap::new();
    for (dataset, object) in known.iter().flat_map(|one| affected(view, one)) {
        damaged.entry(dataset).or_default().insert(object);
    }
    let named = damaged.into_iter();
    named
        .flat_map(|(dataset, objects)| lines_of(open, view, dataset, &objects))
        .collect()
}

/// The lines of the damaged objects of one dataset.
#[doc(alias = "zpool_obj_to_path")]
fn lines_of(
    open: &OpenPool,
    view: View<'_>,
    dataset: ObjectId,
    objects: &BTreeSet<ObjectId>,
) -> Vec<String> {
    let by_number = |name: &str| -> Vec<String> {
        let line = |object: &ObjectId| format!("{name}:<{:#x}>", object.get());
        objects.iter().map(line).collect()
    };
    if dataset.is_zero() {
        return by_number("<metadata>");
    }
    let Ok(found) = view.dataset_by_id(dataset) else {
        return by_number(&format!("<{:#x}>", dataset.get()));
    };
    let name = found.name();
    let Ok(set) = contents::objset(&found) else {
        return by_number(&name);
    };
    let ids: Vec<ObjectId> = objects.iter().copied().collect();
    let Ok(paths) = paths_of(&set, &ids, view.operation()) else {
        return by_number(&name);
    };
    let mount = mount_point(open, &name);
    let line = |(object, path): (ObjectId, Option<Vec<u8>>)| match (path, &mount) {
        (Some(path), Some(mount)) => format!("{mount}{}", String::from_utf8_lossy(&path)),
        (Some(path), None) => format!("{name}:{}", String::from_utf8_lossy(&path)),
        (None, _) => format!("{name}:<{:#x}>", object.get()),
    };
    ids.into_iter().zip(paths).map(line).collect()
}

/// Where a dataset is mounted; empty for the root folder, as each path begins with a slash.
fn mount_point(open: &OpenPool, name: &str) -> Option<String> {
    let mounted = open.mount_of(name)?;
    let path = String::from_utf8_lossy(mounted.path.as_os_str().as_bytes()).into_owned();
    Some(path.trim_end_matches('/').to_string())
}

/// The objects of datasets that an error is in.
#[doc(alias = "check_filesystem")]
fn affected(view: View<'_>, known: &Known) -> Vec<Damaged> {
    let place = &known.place;
    let named = (known.dataset, place.object);
    // What has no object of its own, and errors of logs without births, are as they are named.
    if known.dataset.is_zero() || place.birth.is_zero() || place.object.is_zero() || place.level < 0
    {
        return vec![named];
    }
    let mut found = Vec::new();
    let mut waiting = vec![known.dataset];
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) || seen.len() > DATASETS_MAX {
            continue;
        }
        let Ok(head) = view.dataset_by_id(id) else {
            if id == known.dataset {
                found.push(named);
            }
            continue;
        };
        if has_block(view, &head, place) {
            found.push((id, place.object));
        }
        for snapshot in head.snapshots().unwrap_or_default() {
            let is_later = snapshot
                .stored()
                .is_ok_and(|stored| stored.creation_txg >= place.birth);
            if is_later && has_block(view, &snapshot, place) {
                found.push((snapshot.id(), place.object));
                waiting.extend(snapshot.clone_ids().unwrap_or_default());
            }
        }
    }
    found
}

/// Whether a dataset has a block of this birth in this place.
#[doc(alias = "find_birth_txg")]
fn has_block(view: View<'_>, dataset: &Dataset<'_>, place: &HeadErrorPlace) -> bool {
    let Ok(set) = contents::objset(dataset) else {
        // It is damaged itself: that the file is, too, cannot be excluded.
        return true;
    };
    match find_block(
        &set,
        place.object,
        (place.level, place.block),
        view.operation(),
    ) {
        FoundBlock::At(pointer) => pointer.logical_birth == place.birth,
        FoundBlock::Absent => false,
        FoundBlock::Unreadable => true,
    }
}
