//! Tasks of snapshots and clones in one line.

use super::{Filler, Pool};
use std::sync::Arc;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::clone::CloneSnapshot;
use tarn_dataset::ops::create::{CreateFilesystem, NameRules};
use tarn_dataset::ops::destroy_snapshot::DestroySnapshots;
use tarn_dataset::ops::set::{SetProperties, Source};
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_dataset::properties::parse::{Checked, Moment, check};
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::task::TaskRefusal;

pub const MIB: u64 = 1 << 20;
pub const BLOCK: u64 = 128 << 10;

pub fn settings(kinds: Kinds, list: &[(&str, &str)]) -> Vec<Checked> {
    list.iter()
        .map(|(name, value)| check(name, value, kinds, Moment::Later).unwrap())
        .collect()
}

pub fn create(pool: &mut Pool, names: &[&str]) {
    for name in names {
        pool.run(CreateFilesystem {
            name: (*name).to_string(),
            settings: Vec::new(),
            rules: NameRules::default(),
            user: 0,
            group: 0,
            fill: Arc::new(Filler),
        })
        .unwrap();
    }
}

pub fn set(name: &str, property: &str, value: &str) -> SetProperties {
    SetProperties {
        name: name.to_string(),
        settings: settings(Kinds::FILESYSTEM, &[(property, value)]),
        source: Source::Local,
    }
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

pub fn snapshot(list: &[&str]) -> TakeSnapshots {
    TakeSnapshots {
        names: names(list),
        settings: Vec::new(),
    }
}

pub fn destroy(list: &[&str]) -> DestroySnapshots {
    DestroySnapshots {
        names: names(list),
        defer: false,
    }
}

pub fn clone(origin: &str, name: &str) -> CloneSnapshot {
    CloneSnapshot {
        origin: origin.to_string(),
        name: name.to_string(),
        settings: Vec::new(),
    }
}

pub fn there_is(pool: &Pool, name: &str) -> bool {
    let view = pool.namespace.view(&pool.operation);
    view.dataset(&DatasetName::parse(name).unwrap()).is_ok()
}

pub fn several(refused: Result<(), TaskRefusal>) -> Vec<(String, TaskRefusal)> {
    match refused {
        Err(TaskRefusal::Several(refused)) => refused,
        other => panic!("{other:?}"),
    }
}
