//! Tasks as most tests want them.

use super::{Filler, Pool};
use std::sync::Arc;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::bookmark::{DestroyBookmarks, MakeBookmarks};
use tarn_dataset::ops::clone::CloneSnapshot;
use tarn_dataset::ops::create::{CreateFilesystem, NameRules};
use tarn_dataset::ops::destroy::Destroy;
use tarn_dataset::ops::destroy_snapshot::DestroySnapshots;
use tarn_dataset::ops::promote::Promote;
use tarn_dataset::ops::receive::{
    BeginReceive, FinishReceive, ReceiveSettings, Receiver, StreamFacts,
};
use tarn_dataset::ops::rename_snapshot::RenameSnapshots;
use tarn_dataset::ops::set::{SetProperties, Source};
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_dataset::properties::parse::{Moment, check};
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::task::TaskRefusal;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::StreamFeatures;

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

pub fn create(name: &str) -> CreateFilesystem {
    CreateFilesystem {
        name: name.to_string(),
        settings: Vec::new(),
        rules: NameRules::default(),
        user: 0,
        group: 0,
        fill: Arc::new(Filler),
    }
}

/// A file system whose names have this stored number for `casesensitivity`.
pub fn create_with_case(name: &str, case: u64) -> CreateFilesystem {
    let mut task = create(name);
    task.rules.case = Some(case);
    task
}

pub fn set(name: &str, property: &str, value: &str) -> SetProperties {
    let kinds = Kinds::FILESYSTEM;
    SetProperties {
        name: name.to_string(),
        settings: vec![check(property, value, kinds, Moment::Later).unwrap()],
        source: Source::Local,
    }
}

pub fn snapshot(name: &str) -> TakeSnapshots {
    TakeSnapshots {
        names: names(&[name]),
        settings: Vec::new(),
    }
}

pub fn rename_snapshot(head: &str, from: &str, to: &str) -> RenameSnapshots {
    RenameSnapshots {
        head: head.to_string(),
        from: from.to_string(),
        to: to.to_string(),
        recursive: false,
    }
}

pub fn clone(origin: &str, name: &str) -> CloneSnapshot {
    CloneSnapshot {
        origin: origin.to_string(),
        name: name.to_string(),
        settings: Vec::new(),
    }
}

pub fn promote(name: &str) -> Promote {
    Promote {
        name: name.to_string(),
    }
}

pub fn destroy(name: &str) -> Destroy {
    Destroy {
        name: name.to_string(),
    }
}

pub fn destroy_snapshots(list: &[&str]) -> DestroySnapshots {
    DestroySnapshots {
        names: names(list),
        defer: false,
    }
}

/// Marks those that something keeps.
pub fn mark_snapshot(name: &str) -> DestroySnapshots {
    DestroySnapshots {
        names: names(&[name]),
        defer: true,
    }
}

pub fn bookmark(name: &str, origin: &str) -> MakeBookmarks {
    MakeBookmarks {
        bookmarks: vec![(name.to_string(), origin.to_string())],
    }
}

pub fn destroy_bookmark(name: &str) -> DestroyBookmarks {
    DestroyBookmarks {
        names: names(&[name]),
    }
}

/// A stream for `@three` that goes on from the snapshot of this guid; or, with zero, one for
/// something new.
pub fn begin_receive(target: &str, from_guid: u64) -> BeginReceive {
    BeginReceive {
        target: target.to_string(),
        snapshot: "three".to_string(),
        origin: None,
        stream: StreamFacts {
            to_guid: 7,
            from_guid,
            to_name: "far/away@three".to_string(),
            creation_time_s: 1_000_000_000,
            objset_type: ObjsetType::Zfs,
            is_clone: false,
            has_free_records: true,
            is_case_insensitive: false,
            features: StreamFeatures::SPILL,
        },
        force: true,
        resumable: false,
        settings: ReceiveSettings::default(),
        key: None,
    }
}

pub fn finish_receive(target: &str, receiver: Receiver) -> FinishReceive {
    FinishReceive {
        target: target.to_string(),
        snapshot: "three".to_string(),
        receiver,
        to_guid: 7,
        creation_time_s: 1_000_000_000,
        force: true,
        settings: ReceiveSettings::default(),
        is_set: true,
        has_properties: false,
        snapshot_settings: Vec::new(),
        key: None,
    }
}

/// What is told of a dataset that is there.
pub fn with_dataset<T>(pool: &Pool, name: &str, tell: impl FnOnce(&Dataset<'_>) -> T) -> T {
    let view = pool.namespace.view(&pool.operation);
    let name = DatasetName::parse(name).unwrap();
    tell(&view.dataset(&name).unwrap())
}

pub fn there_is(pool: &Pool, name: &str) -> bool {
    let view = pool.namespace.view(&pool.operation);
    view.dataset(&DatasetName::parse(name).unwrap()).is_ok()
}

/// Why a task was refused; of several names, the first.
pub fn refusal<T: std::fmt::Debug>(refused: Result<T, TaskRefusal>) -> TaskRefusal {
    match refused.unwrap_err() {
        TaskRefusal::Several(mut refused) => refused.remove(0).1,
        other => other,
    }
}

/// Frees all that is to be freed in the background, and judges what is left.
pub fn free_all(pool: &mut Pool) {
    while pool.free_in_background(1000).more {}
    pool.judge();
}
