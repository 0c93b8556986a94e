//! Datasets in use: a dataset that is being read is not destroyed, and no read begins of one that
//! is about to be.

mod support;

use std::cell::Cell;
use std::sync::Arc;
use support::{Filler, Pool};
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::create::{CreateFilesystem, NameRules};
use tarn_dataset::ops::destroy_snapshot::DestroySnapshots;
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_dataset::task::SyncTask;
use tarn_ondisk::units::ObjectId;

fn pool_with_snapshots() -> Pool {
    let mut pool = Pool::new();
    pool.run(CreateFilesystem {
        name: "tank/a".to_string(),
        settings: Vec::new(),
        rules: NameRules::default(),
        user: 0,
        group: 0,
        fill: Arc::new(Filler),
    })
    .unwrap();
    for name in ["tank/a@1", "tank/a@2"] {
        pool.run(TakeSnapshots {
            names: vec![name.to_string()],
            settings: Vec::new(),
        })
        .unwrap();
    }
    pool
}

fn destroy(name: &str) -> DestroySnapshots {
    DestroySnapshots {
        names: vec![name.to_string()],
        defer: false,
    }
}

fn id_of(pool: &Pool, name: &str) -> ObjectId {
    let view = pool.namespace.view(&pool.operation);
    let parsed = DatasetName::parse(name).unwrap();
    view.dataset(&parsed).unwrap().id()
}

#[test]
fn what_a_task_has_decided_on_is_not_taken_into_use() {
    let mut pool = pool_with_snapshots();
    let (one, two) = (id_of(&pool, "tank/a@1"), id_of(&pool, "tank/a@2"));
    pool.sync_with(|context| {
        let namespace = context.namespace;
        let used = namespace.use_dataset(two).unwrap();
        let refused = destroy("tank/a@2").check(context.view(), context.features);
        assert!(refused.is_err());
        drop(used);
        let task = destroy("tank/a@1");
        task.check(context.view(), context.features).unwrap();
        // It still exists for new readers.
        let name = DatasetName::parse("tank/a@1").unwrap();
        assert!(context.view().dataset(&name).is_ok());
        assert!(namespace.use_dataset(one).is_none());
        assert!(namespace.use_dataset(two).is_some());
        task.apply(context).unwrap();
    });
    assert!(!pool.exists("tank/a@1"));
    // A number is free again, and another may get it.
    assert!(pool.namespace.use_dataset(one).is_some());
}

#[test]
fn a_quick_look_decides_nothing() {
    let pool = pool_with_snapshots();
    let view = pool.namespace.view(&pool.operation);
    destroy("tank/a@1").check(view, &pool.features).unwrap();
    let id = id_of(&pool, "tank/a@1");
    assert!(pool.namespace.use_dataset(id).is_some());
}

#[test]
fn what_is_found_is_what_is_there_when_it_is_in_use() {
    let pool = pool_with_snapshots();
    let (one, two) = (id_of(&pool, "tank/a@1"), id_of(&pool, "tank/a@2"));
    let namespace = &pool.namespace;
    // Between looking and taking it into use another gets the name.
    let (now, is_over) = (Cell::new(one), Cell::new(false));
    let which = |found: &ObjectId| {
        if !is_over.replace(true) {
            namespace.change(|| now.set(two));
        }
        vec![*found]
    };
    let found = namespace.use_found(|| Ok(now.get()), which).unwrap();
    let (id, uses) = found.unwrap();
    assert_eq!(id, two);
    assert!(namespace.is_in_use(two) && !namespace.is_in_use(one));
    drop(uses);
    assert!(!namespace.is_in_use(two));
}
