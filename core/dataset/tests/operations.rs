//! What commands do to the tree of datasets, judged by what every block belongs to and what every
//! directory is charged.

mod support;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use support::{Filler, POOL_BYTES, Pool};
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::error::DatasetError;
use tarn_dataset::limits::{AdmitRefusal, Leave};
use tarn_dataset::look_through::Look;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::create::{CreateFilesystem, CreateVolume, NameRules};
use tarn_dataset::ops::destroy::Destroy;
use tarn_dataset::ops::inherit::{BackTo, InheritProperty};
use tarn_dataset::ops::rename::Rename;
use tarn_dataset::ops::set::{SetProperties, Source};
use tarn_dataset::ops::volume_size;
use tarn_dataset::properties::native::{Shown, of_dataset};
use tarn_dataset::properties::parse::{Checked, Moment, check};
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::space_door::SpaceUse;
use tarn_dataset::task::TaskRefusal;
use tarn_object::{NewObject, TxEstimate};
use tarn_ondisk::dataset_dir::{FILESYSTEM_COUNT, SNAPSHOT_COUNT};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{BLOCK_TREE, POOL_DIRECTORY};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

const MIB: u64 = 1 << 20;

fn settings(kinds: Kinds, list: &[(&str, &str)]) -> Vec<Checked> {
    list.iter()
        .map(|(name, value)| check(name, value, kinds, Moment::Later).unwrap())
        .collect()
}

fn create_with(name: &str, list: &[(&str, &str)]) -> CreateFilesystem {
    CreateFilesystem {
        name: name.to_string(),
        settings: settings(Kinds::FILESYSTEM, list),
        rules: NameRules::default(),
        user: 0,
        group: 0,
        fill: Arc::new(Filler),
    }
}

fn create(pool: &mut Pool, names: &[&str]) {
    for name in names {
        pool.run(create_with(name, &[])).unwrap();
    }
}

fn set(name: &str, list: &[(&str, &str)]) -> SetProperties {
    SetProperties {
        name: name.to_string(),
        settings: settings(Kinds::FILESYSTEM, list),
        source: Source::Local,
    }
}

fn rename(from: &str, to: &str) -> Rename {
    Rename {
        from: from.to_string(),
        to: to.to_string(),
    }
}

fn destroy(name: &str) -> Destroy {
    Destroy {
        name: name.to_string(),
    }
}

/// A native property, as it is shown.
fn shown(pool: &Pool, name: &str, property: &str) -> Option<Shown> {
    let view = pool.namespace.view(&pool.operation);
    let dataset = view.dataset(&DatasetName::parse(name).unwrap()).unwrap();
    let values = of_dataset(&dataset, |row| row.name == property).unwrap();
    values.into_iter().next().map(|value| value.value)
}

fn word(text: &str) -> Option<Shown> {
    Some(Shown::Text(text.to_string()))
}

#[test]
fn a_new_pool_is_charged_for_what_it_has() {
    let pool = Pool::new();
    pool.judge();
}

#[test]
fn file_systems_are_made_written_and_charged() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    pool.write("tank/a/b", 0, 2 * MIB);
    pool.sync();
    pool.judge();
    assert!(pool.directory("tank/a/b").used.get() >= 2 * MIB);
    assert!(pool.directory("tank").used.get() >= 2 * MIB);
    pool.write("tank/a/b", 0, 2 * MIB);
    pool.sync();
    pool.judge();
}

#[test]
fn what_cannot_be_made_is_refused_by_name() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    let mut refused = |name: &str| pool.run(create_with(name, &[])).unwrap_err();
    assert!(matches!(refused("tank/a"), TaskRefusal::Exists { .. }));
    assert!(matches!(refused("tank/x/y"), TaskRefusal::NoParent { .. }));
    let long = format!("tank/{}", "a".repeat(251));
    assert!(matches!(refused(&long), TaskRefusal::NameTooLong { .. }));
}

#[test]
fn rules_of_names_that_stand_for_nothing_are_refused() {
    let mut pool = Pool::new();
    let numbers = |version, normalization, case| NameRules {
        version,
        normalization,
        case,
        utf8_only: None,
    };
    for rules in [
        numbers(Some(6), None, None),
        numbers(Some(0), None, None),
        numbers(None, Some(3), None),
        numbers(None, None, Some(7)),
    ] {
        let refused = pool.run(CreateFilesystem {
            rules,
            ..create_with("tank/a", &[])
        });
        assert!(matches!(refused, Err(TaskRefusal::BadValue { .. })));
    }
    assert!(!pool.exists("tank/a"));
}

#[test]
fn what_is_set_at_creation_is_there_with_the_file_system() {
    let mut pool = Pool::new();
    pool.take_events();
    let list = [
        ("atime", "off"),
        ("quota", "30M"),
        ("reservation", "20M"),
        ("refreservation", "10M"),
        ("com.example:note", "kept"),
    ];
    pool.run(create_with("tank/a", &list)).unwrap();
    let events = pool.take_events();
    assert_eq!(events[0], ("create", " ".to_string()));
    assert!(events.contains(&("set", "com.example:note=kept".to_string())));
    assert_eq!(shown(&pool, "tank/a", "atime"), word("off"));
    let directory = pool.directory("tank/a");
    assert_eq!(directory.quota.get(), 30 * MIB);
    assert_eq!(directory.reservation.get(), 20 * MIB);
    assert!(directory.used.get() >= 10 * MIB);
    pool.judge();
    // The quota is too small for the reservation: nothing is made.
    let refused = pool.run(create_with(
        "tank/b",
        &[("quota", "1M"), ("reservation", "2M")],
    ));
    assert!(matches!(refused, Err(TaskRefusal::NoSpace { .. })));
    assert!(!pool.exists("tank/b"));
    pool.run(destroy("tank/a")).unwrap();
    pool.judge();
}

#[test]
fn nothing_is_made_where_a_quota_is_used_up_or_blocks_would_be_encrypted() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(set("tank/a", &[("quota", "2M")])).unwrap();
    pool.write("tank/a", 0, 3 * MIB);
    pool.sync();
    let refused = pool.run(create_with("tank/a/b", &[])).unwrap_err();
    assert_eq!(refused.to_string(), "out of space");
    let mut encrypted = create_with("tank/c", &[]);
    let checked = check("encryption", "on", Kinds::FILESYSTEM, Moment::Creation);
    encrypted.settings.push(checked.unwrap());
    assert!(matches!(
        pool.run(encrypted),
        Err(TaskRefusal::NotSupported { .. })
    ));
}

#[test]
fn a_value_is_seen_by_children_until_they_have_their_own() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    pool.take_events();
    pool.run(set("tank/a", &[("atime", "off"), ("com.example:x", "y")]))
        .unwrap();
    assert_eq!(shown(&pool, "tank/a/b", "atime"), word("off"));
    assert_eq!(
        pool.take_events(),
        [
            ("set", "atime=0".to_string()),
            ("set", "com.example:x=y".to_string())
        ]
    );
    pool.run(set("tank/a/b", &[("atime", "on")])).unwrap();
    assert_eq!(shown(&pool, "tank/a/b", "atime"), word("on"));
    pool.take_events();
    pool.run(InheritProperty {
        name: "tank/a/b".to_string(),
        property: "atime".to_string(),
        back_to: BackTo::Parent,
    })
    .unwrap();
    assert_eq!(shown(&pool, "tank/a/b", "atime"), word("off"));
    assert_eq!(pool.take_events(), [("inherit", "atime=0".to_string())]);
    pool.judge();
}

#[test]
fn a_word_that_older_programs_do_not_know_is_kept_beside_one_that_they_do() {
    let mut pool = Pool::new();
    pool.run(set("tank", &[("snapdir", "disabled")])).unwrap();
    assert_eq!(shown(&pool, "tank", "snapdir"), word("disabled"));
    pool.run(set("tank", &[("snapdir", "visible")])).unwrap();
    assert_eq!(shown(&pool, "tank", "snapdir"), word("visible"));
}

#[test]
fn what_cannot_be_inherited_is_refused_in_known_words() {
    let mut pool = Pool::new();
    for (property, why) in [
        ("quota", "property cannot be inherited"),
        ("used", "read-only property"),
        ("nonsense", "invalid property"),
    ] {
        let refused = pool.run(InheritProperty {
            name: "tank".to_string(),
            property: property.to_string(),
            back_to: BackTo::Parent,
        });
        assert_eq!(refused.unwrap_err().to_string(), why, "{property}");
    }
}

#[test]
fn open_file_systems_write_as_their_properties_say() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    let open = pool.head_set("tank/a");
    pool.run(set("tank", &[("copies", "2")])).unwrap();
    assert_eq!(open.policy().blocks.copies, 2);
    pool.write("tank/a", 0, MIB);
    pool.sync();
    assert!(pool.directory("tank/a").used.get() >= 2 * MIB);
    pool.judge();
}

#[test]
fn values_use_features_from_the_moment_the_format_wants_it() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(set(
        "tank/a",
        &[("compression", "zstd"), ("checksum", "sha512")],
    ))
    .unwrap();
    assert_eq!(pool.features.count(Feature::ZstdCompress), 1);
    assert_eq!(pool.features.count(Feature::Sha512), 0);
    pool.write("tank/a", 0, MIB);
    pool.sync();
    assert_eq!(pool.features.count(Feature::Sha512), 1);
    pool.run(set("tank/a", &[("compression", "zstd-9")]))
        .unwrap();
    assert_eq!(pool.features.count(Feature::ZstdCompress), 1);
    pool.run(destroy("tank/a")).unwrap();
    assert_eq!(pool.features.count(Feature::ZstdCompress), 0);
    assert_eq!(pool.features.count(Feature::Sha512), 0);
}

#[test]
fn a_value_whose_feature_is_not_enabled_is_refused() {
    let mut pool = Pool::without(&[Feature::LargeBlocks, Feature::Blake3]);
    for (name, value) in [("recordsize", "1M"), ("checksum", "blake3")] {
        let refused = pool.run(set("tank", &[(name, value)])).unwrap_err();
        assert!(matches!(refused, TaskRefusal::FeatureDisabled { .. }));
    }
    pool.run(set("tank", &[("recordsize", "128K")])).unwrap();
}

#[test]
fn a_reservation_is_charged_to_the_ancestors_until_it_is_used() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    let before = pool.directory("tank").used.get();
    pool.run(set("tank/a/b", &[("reservation", "10M")]))
        .unwrap();
    pool.judge();
    let reserved = pool.directory("tank").used.get();
    assert!(reserved > before + 9 * MIB);
    pool.write("tank/a/b", 0, 4 * MIB);
    pool.sync();
    pool.judge();
    let used = |pool: &Pool| pool.directory("tank/a").used.get();
    let held = used(&pool);
    pool.write("tank/a/b", 4 * MIB, 4 * MIB);
    pool.sync();
    pool.judge();
    assert_eq!(used(&pool), held, "the reservation pays");
    pool.run(set("tank/a/b", &[("reservation", "none")]))
        .unwrap();
    pool.judge();
    assert!(used(&pool) < held);
}

#[test]
fn a_refreservation_is_charged_to_its_own_directory() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(set("tank/a", &[("refreservation", "10M")]))
        .unwrap();
    pool.judge();
    assert_eq!(pool.directory("tank/a").used.get(), 10 * MIB);
    pool.write("tank/a", 0, 4 * MIB);
    pool.sync();
    pool.judge();
    assert_eq!(pool.directory("tank/a").used.get(), 10 * MIB);
    pool.run(set("tank/a", &[("refreservation", "none")]))
        .unwrap();
    pool.judge();
    assert!(pool.directory("tank/a").used.get() < 5 * MIB);
}

#[test]
fn limits_that_leave_no_room_are_refused_in_known_words() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 4 * MIB);
    pool.sync();
    let mut refused = |name, value| {
        let outcome = pool.run(set("tank/a", &[(name, value)]));
        outcome.unwrap_err().to_string()
    };
    let used = "size is less than current used or reserved space";
    let available = "size is greater than available space";
    assert_eq!(refused("quota", "1M"), used);
    assert_eq!(refused("refquota", "1M"), used);
    assert_eq!(refused("reservation", "1G"), available);
    assert_eq!(refused("refreservation", "1G"), available);
}

#[test]
fn limits_set_together_are_checked_together_in_any_order() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(set("tank/a", &[("quota", "10M"), ("reservation", "10M")]))
        .unwrap();
    // The reservation exceeds the old quota, not the new one.
    pool.run(set("tank/a", &[("reservation", "20M"), ("quota", "20M")]))
        .unwrap();
    assert_eq!(pool.directory("tank/a").quota.get(), 20 * MIB);
    assert_eq!(pool.directory("tank/a").reservation.get(), 20 * MIB);
    let refused = pool.run(set("tank/a", &[("atime", "off"), ("quota", "5M")]));
    assert!(matches!(refused, Err(TaskRefusal::NoSpace { .. })));
    assert_eq!(
        shown(&pool, "tank/a", "atime"),
        word("on"),
        "all or nothing"
    );
    pool.judge();
}

#[test]
fn a_limit_begins_the_counting_of_everything_below() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b", "tank/a/b/c", "tank/d"]);
    pool.run(set("tank/a", &[("filesystem_limit", "10")]))
        .unwrap();
    assert_eq!(pool.features.count(Feature::FilesystemLimits), 1);
    let counts = |pool: &Pool, name: &str| {
        let view = pool.namespace.view(&pool.operation);
        let directory = view.directory(name).unwrap();
        let count = |field| directory.extension(field).unwrap();
        (count(FILESYSTEM_COUNT), count(SNAPSHOT_COUNT))
    };
    assert_eq!(counts(&pool, "tank/a"), (Some(2), Some(0)));
    assert_eq!(counts(&pool, "tank/d"), (None, None));
    create(&mut pool, &["tank/a/e"]);
    assert_eq!(counts(&pool, "tank/a"), (Some(3), Some(0)));
    pool.run(rename("tank/a/b", "tank/b")).unwrap();
    assert_eq!(counts(&pool, "tank/a"), (Some(1), Some(0)));
    assert_eq!(counts(&pool, "tank/b"), (Some(1), Some(0)));
    pool.run(destroy("tank/a/e")).unwrap();
    assert_eq!(counts(&pool, "tank/a"), (Some(0), Some(0)));
    pool.judge();
}

#[test]
fn a_rename_takes_children_space_and_reservations_along() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b", "tank/a/b/c", "tank/x"]);
    pool.write("tank/a/b", 0, 2 * MIB);
    pool.write("tank/a/b/c", 0, MIB);
    pool.sync();
    pool.run(set("tank/a/b", &[("reservation", "8M")])).unwrap();
    pool.take_events();
    let root_before = pool.directory("tank").used.get();
    let head = pool.head_id("tank/a/b/c");
    pool.run(rename("tank/a/b", "tank/x/y")).unwrap();
    assert_eq!(pool.take_events(), [("rename", "-> tank/x/y".to_string())]);
    assert!(!pool.exists("tank/a/b"));
    assert_eq!(pool.head_id("tank/x/y/c"), head);
    assert!(pool.directory("tank/x").used.get() >= 8 * MIB);
    assert!(pool.directory("tank/a").used.get() < MIB);
    // What the MOS takes may change by a block.
    let root_after = pool.directory("tank").used.get();
    assert!(root_after.abs_diff(root_before) < MIB);
    pool.judge();
    pool.write("tank/x/y/c", 0, MIB);
    pool.sync();
    pool.judge();
}

#[test]
fn a_rename_that_cannot_be_is_refused() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b", "tank/x"]);
    pool.write("tank/a/b", 0, 4 * MIB);
    pool.sync();
    pool.run(set("tank/x", &[("quota", "2M")])).unwrap();
    let mut refused = |from, to: &str| pool.run(rename(from, to)).unwrap_err();
    assert!(matches!(
        refused("tank/a/b", "tank/x/b"),
        TaskRefusal::NoSpace { .. }
    ));
    assert!(matches!(
        refused("tank/a", "tank/x"),
        TaskRefusal::Exists { .. }
    ));
    assert!(matches!(
        refused("tank/a", "tank/q/r"),
        TaskRefusal::NoParent { .. }
    ));
    assert!(matches!(
        refused("tank/none", "tank/q"),
        TaskRefusal::NotFound { .. }
    ));
    assert_eq!(
        refused("tank/a", "tank/a/b/c").to_string(),
        "New dataset name cannot be a descendant of current dataset name"
    );
    assert_eq!(
        refused("tank/a", "other/a").to_string(),
        "datasets must be within same pool"
    );
    // The name itself would fit, that of the child would not.
    let long = format!("tank/{}", "n".repeat(249));
    assert!(matches!(
        refused("tank/a", &long),
        TaskRefusal::NameTooLong { .. }
    ));
}

#[test]
fn a_renamed_file_system_inherits_from_its_new_parent() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b", "tank/x"]);
    pool.run(set("tank/x", &[("copies", "3")])).unwrap();
    let open = pool.head_set("tank/a/b");
    pool.run(rename("tank/a/b", "tank/x/b")).unwrap();
    assert_eq!(open.policy().blocks.copies, 3);
}

#[test]
fn what_is_destroyed_is_charged_to_free_and_freed_over_several_groups() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 8 * MIB);
    pool.sync();
    pool.take_events();
    let uses = pool.features.count(Feature::ExtensibleDataset);
    pool.run(destroy("tank/a")).unwrap();
    let events = pool.take_events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].0, "destroy");
    assert_eq!(events[0].1, "(bptree, mintxg=1)");
    assert!(!pool.exists("tank/a"));
    assert!(pool.features.count(Feature::ExtensibleDataset) < uses);
    assert_eq!(pool.features.count(Feature::AsyncDestroy), 1);
    let waiting = pool.namespace.waiting_to_be_freed(&pool.operation).unwrap();
    assert!(waiting.freeing >= 8 * MIB);
    pool.judge();
    let mut groups = 0;
    while pool.free_in_background(20).more {
        pool.judge();
        groups += 1;
        assert!(groups < 100);
    }
    assert!(groups > 2);
    pool.judge();
    let waiting = pool.namespace.waiting_to_be_freed(&pool.operation).unwrap();
    assert_eq!(waiting.freeing, 0);
    assert_eq!(pool.features.count(Feature::AsyncDestroy), 0);
    let mos = pool.namespace.mos();
    let directory = mos.object(POOL_DIRECTORY, &pool.operation).unwrap();
    let directory = tarn_object::zap::ObjectZap::of(&directory, &pool.operation);
    assert!(directory.lookup(BLOCK_TREE).unwrap().is_none());
}

#[test]
fn without_the_feature_everything_is_freed_at_once() {
    let mut pool = Pool::without(&[Feature::AsyncDestroy]);
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 8 * MIB);
    pool.sync();
    pool.take_events();
    pool.run(destroy("tank/a")).unwrap();
    assert_eq!(pool.take_events()[0].1, "(synchronous, mintxg=1)");
    pool.judge();
    assert!(pool.directory("tank").used.get() < 4 * MIB);
}

#[test]
fn reservations_end_with_their_file_system() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    let limits = [("reservation", "10M"), ("refreservation", "20M")];
    pool.run(set("tank/a", &limits)).unwrap();
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.run(destroy("tank/a")).unwrap();
    pool.judge();
    while pool.free_in_background(1000).more {}
    assert!(pool.directory("tank").used.get() < 4 * MIB);
    pool.judge();
}

#[test]
fn looking_through_the_tree_sees_what_is_there_when_its_turn_comes() {
    let mut pool = Pool::new();
    create(
        &mut pool,
        &[
            "tank/b", "tank/a", "tank/a/y", "tank/a/x", "tank/c", "tank/c/z",
        ],
    );
    let (namespace, operation) = (pool.namespace.clone(), Operation::unmeasured());
    let names = |first: &str, depth| {
        namespace.look_through(first, depth, &operation, |directory| {
            Ok(Look {
                found: vec![directory.name().to_string()],
                goes_on: directory.name() != "tank/c",
            })
        })
    };
    let all = ["tank", "tank/a", "tank/a/x", "tank/a/y", "tank/b", "tank/c"];
    assert_eq!(names("tank", None).unwrap(), all);
    assert_eq!(
        names("tank", Some(1)).unwrap(),
        ["tank", "tank/a", "tank/b", "tank/c"]
    );
    assert_eq!(names("tank/a/x", Some(0)).unwrap(), ["tank/a/x"]);
    assert!(matches!(
        names("tank/no", None),
        Err(DatasetError::NotFound { .. })
    ));
    // One that comes later is destroyed, and one is made that has been passed.
    let pool = RefCell::new(pool);
    let looks = Cell::new(0);
    let found = namespace.look_through("tank", None, &operation, |directory| {
        looks.set(looks.get() + 1);
        if directory.name() == "tank/a/x" && looks.get() == 3 {
            let mut pool = pool.borrow_mut();
            pool.run(destroy("tank/b")).unwrap();
            create(&mut pool, &["tank/a/w"]);
        }
        Ok(Look {
            found: vec![directory.name().to_string()],
            goes_on: true,
        })
    });
    let seen = [
        "tank", "tank/a", "tank/a/x", "tank/a/y", "tank/c", "tank/c/z",
    ];
    assert_eq!(found.unwrap(), seen);
    assert_eq!(looks.get(), seen.len() + 1, "one is looked at again");
}

#[test]
fn destroying_a_parent_is_refused() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    let mut refused = |name| pool.run(destroy(name)).unwrap_err();
    assert!(matches!(refused("tank/a"), TaskRefusal::Exists { .. }));
    assert!(matches!(refused("tank"), TaskRefusal::Busy { .. }));
    assert!(matches!(refused("tank/x"), TaskRefusal::NotFound { .. }));
}

#[test]
fn a_name_can_be_used_again_at_once() {
    let mut pool = Pool::new();
    for round in 0..5 {
        create(&mut pool, &["tank/a"]);
        pool.write("tank/a", 0, MIB + round);
        pool.sync();
        pool.run(destroy("tank/a")).unwrap();
    }
    pool.judge();
    while pool.free_in_background(1000).more {}
    pool.judge();
}

#[test]
fn what_is_changed_in_a_destroyed_file_system_goes_nowhere() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    let gone = pool.head_set("tank/a");
    pool.run(destroy("tank/a")).unwrap();
    // The number can come back.
    create(&mut pool, &["tank/b"]);
    pool.write_to(&gone, 0, 2 * MIB);
    pool.write("tank/b", 0, MIB);
    pool.sync();
    while pool.free_in_background(1000).more {}
    pool.judge();
    assert!(pool.directory("tank/b").used.get() < 2 * MIB);
    assert!(pool.env.txgs.dirty_bytes() == 0);
}

#[test]
fn large_dnodes_are_a_feature_of_the_file_system_that_has_them() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b"]);
    assert_eq!(pool.features.count(Feature::LargeDnode), 0);
    let set = pool.head_set("tank/a");
    let large = NewObject {
        slots: 4,
        ..NewObject::plain(ObjectType::PlainFile, 0)
    };
    for _ in 0..2 {
        let tx = pool
            .env
            .txgs
            .assign(&TxEstimate::default(), &pool.operation);
        set.allocate(&tx.unwrap(), large, &pool.operation).unwrap();
        pool.sync();
    }
    assert_eq!(pool.features.count(Feature::LargeDnode), 1);
    pool.run(destroy("tank/a")).unwrap();
    assert_eq!(pool.features.count(Feature::LargeDnode), 0);
}

#[test]
fn long_names_are_a_feature_of_the_file_system_that_has_them() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b"]);
    let set = pool.head_set("tank/a");
    set.note_long_name();
    for round in 0..2 {
        pool.write_to(&set, 0, MIB + round);
        pool.write("tank/b", 0, MIB + round);
        pool.sync();
        assert_eq!(pool.features.count(Feature::Longname), 1);
    }
    pool.run(destroy("tank/a")).unwrap();
    assert_eq!(pool.features.count(Feature::Longname), 0);
}

#[test]
fn a_volume_has_what_it_needs_set_aside() {
    let mut pool = Pool::new();
    let volume = |name: &str, sparse| CreateVolume {
        name: name.to_string(),
        size_bytes: 16 * MIB,
        block_bytes: 16 << 10,
        sparse,
        settings: Vec::new(),
    };
    pool.run(volume("tank/v", false)).unwrap();
    pool.judge();
    let used = pool.directory("tank/v").used.get();
    assert!(used > 16 * MIB && used < 20 * MIB);
    pool.run(volume("tank/s", true)).unwrap();
    assert!(pool.directory("tank/s").used.get() < MIB);
    let view = pool.namespace.view(&pool.operation);
    let head = view.directory("tank/v").unwrap().head().unwrap().unwrap();
    let Contents::Volume(facts) = contents::read(&head).unwrap() else {
        panic!("it is a volume");
    };
    assert_eq!((facts.size_bytes, facts.block_bytes), (16 * MIB, 16 << 10));
    let grown = volume_size::matching_reservation(view, "tank/v", 32 * MIB).unwrap();
    assert!(grown.is_some_and(|bytes| bytes > 32 * MIB));
    let sparse = volume_size::matching_reservation(view, "tank/s", 32 * MIB).unwrap();
    assert_eq!(sparse, None);
    let refused = volume_size::check(view, "tank/v", 20_000).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "'volsize' must be a multiple of volume block size (16K)"
    );
    let below = pool.run(create_with("tank/v/x", &[])).unwrap_err();
    assert!(matches!(below, TaskRefusal::ParentNotFilesystem { .. }));
    pool.run(destroy("tank/v")).unwrap();
    pool.judge();
}

#[test]
fn a_volume_that_cannot_be_is_refused() {
    let mut pool = Pool::new();
    let mut refused = |size_bytes, block_bytes, settings| {
        let volume = CreateVolume {
            name: "tank/v".to_string(),
            size_bytes,
            block_bytes,
            sparse: false,
            settings,
        };
        pool.run(volume).unwrap_err().to_string()
    };
    let block = "'volblocksize' must be power of 2 from 512B to 16M";
    assert_eq!(refused(MIB, 3000, Vec::new()), block);
    assert_eq!(refused(MIB, 0, Vec::new()), block);
    assert_eq!(refused(0, 8192, Vec::new()), "volume size cannot be zero");
    assert_eq!(
        refused(10_000, 8192, Vec::new()),
        "volume size must be a multiple of volume block size"
    );
    assert_eq!(refused(POOL_BYTES, 8192, Vec::new()), "out of space");
    // It would fit once.
    let twice = settings(Kinds::VOLUME, &[("copies", "2")]);
    assert_eq!(refused(POOL_BYTES * 3 / 4, 8192, twice), "out of space");
    assert!(!pool.exists("tank/v"));
}

#[test]
fn a_full_pool_admits_nobody() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    let head = pool.head_id("tank/a");
    drop(admit(&pool, head, MIB, SpaceUse::Whole).unwrap());
    pool.sync();
    let used = pool.directory("tank").used.get();
    pool.namespace.set_adjusted_bytes(used);
    for space_use in [SpaceUse::Whole, SpaceUse::Divisible, SpaceUse::Freeing] {
        let refused = admit(&pool, head, 1, space_use);
        assert!(matches!(refused, Err(AdmitRefusal::NoSpace)));
    }
    pool.namespace.set_slop_bytes(64 * MIB);
    let refused = admit(&pool, head, 1, SpaceUse::Whole);
    assert!(matches!(refused, Err(AdmitRefusal::NoSpace)));
    drop(admit(&pool, head, MIB, SpaceUse::Freeing).unwrap());
    pool.namespace
        .set_adjusted_bytes(used.saturating_sub(40 * MIB));
    pool.namespace.set_slop_bytes(0);
    let refused = admit(&pool, head, 1, SpaceUse::Freeing);
    assert!(
        matches!(refused, Err(AdmitRefusal::NoSpace)),
        "half of the slop"
    );
    pool.namespace.set_adjusted_bytes(POOL_BYTES);
    drop(admit(&pool, head, 1, SpaceUse::Whole).unwrap());
}

fn admit(
    pool: &Pool,
    head: ObjectId,
    bytes: u64,
    space_use: SpaceUse,
) -> Result<Leave, AdmitRefusal> {
    pool.namespace
        .admit(head, bytes, space_use, &pool.operation)
}

#[test]
fn what_is_dirty_and_what_is_promised_count_until_they_are_stored() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b"]);
    let (a, b) = (pool.head_id("tank/a"), pool.head_id("tank/b"));
    let used = pool.directory("tank").used.get();
    pool.namespace.set_adjusted_bytes(used + 32 * MIB);
    // No sync thread runs here, so a caller that would have to wait is refused; in pieces it would
    // not be.
    let is_admitted = |pool: &Pool, bytes| admit(pool, b, bytes, SpaceUse::Divisible).is_ok();
    assert!(is_admitted(&pool, 24 * MIB));
    let leave = admit(&pool, a, 16 * MIB, SpaceUse::Divisible).unwrap();
    assert!(is_admitted(&pool, 8 * MIB));
    let txgs = pool.env.txgs.clone();
    let in_flight = || txgs.in_flight_bytes();
    assert_eq!(in_flight(), 0);
    pool.write("tank/a", 0, 4 * MIB);
    let worst = in_flight();
    assert!((4 * MIB..16 * MIB).contains(&worst), "{worst}");
    drop(leave);
    assert_eq!(pool.head_set("tank/a").in_flight_bytes(), worst);
    assert!(is_admitted(&pool, 28 * MIB - worst));
    pool.sync();
    assert_eq!(in_flight(), 0);
    let taken = pool.directory("tank").used.get() - used;
    assert!(taken <= worst, "{taken} of {worst}");
    assert!(is_admitted(&pool, 28 * MIB - taken));
    let refused = admit(&pool, b, 32 * MIB - taken + 1, SpaceUse::Divisible);
    assert!(matches!(refused, Err(AdmitRefusal::NoSpace)));
}

#[test]
fn what_is_in_flight_counts_where_it_is_and_above() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b", "tank/c"]);
    pool.run(set("tank/a", &[("quota", "20M")])).unwrap();
    pool.run(set("tank/a/b", &[("reservation", "10M")]))
        .unwrap();
    let head = |name| pool.head_id(name);
    let _of_other = admit(&pool, head("tank/c"), 64 * MIB, SpaceUse::Whole).unwrap();
    let _paid = admit(&pool, head("tank/a/b"), 8 * MIB, SpaceUse::Whole).unwrap();
    let is_admitted = |name, bytes| {
        // What has to wait for a group would wait for ever.
        let found = pool
            .namespace
            .admit(head(name), bytes, SpaceUse::Divisible, &pool.operation);
        found.is_ok()
    };
    assert!(
        is_admitted("tank/a", 9 * MIB),
        "the reservation is used already"
    );
    assert!(is_admitted("tank/c", 20 * MIB));
}

#[test]
fn leave_is_given_in_advance_where_there_is_plenty_of_room_until_the_group_is_closed() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b", "tank/c"]);
    pool.run(set("tank/b", &[("quota", "64M")])).unwrap();
    // As a volume that is not sparse has it.
    pool.run(set("tank/c", &[("refreservation", "1M")]))
        .unwrap();
    let (plenty, little) = (pool.head_id("tank/a"), pool.head_id("tank/b"));
    let reserved = pool.head_id("tank/c");
    pool.sync();
    pool.namespace.set_adjusted_bytes(8 * POOL_BYTES);
    let admit = |pool: &Pool, head| {
        let admitted = pool
            .namespace
            .admit(head, 4096, SpaceUse::Divisible, &pool.operation);
        admitted.map(|leave| leave.is_to_be_kept())
    };
    for (head, later_are_counted) in [(plenty, false), (reserved, false), (little, true)] {
        assert!(admit(&pool, head).unwrap());
        assert_eq!(admit(&pool, head).unwrap(), later_are_counted);
    }
    pool.namespace
        .set_adjusted_bytes(pool.directory("tank").used.get());
    admit(&pool, plenty).unwrap();
    pool.sync();
    for head in [plenty, little] {
        let refused = admit(&pool, head);
        assert!(matches!(refused, Err(AdmitRefusal::NoSpace)));
    }
}

#[test]
fn a_used_up_quota_admits_nobody_below_it() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b", "tank/c"]);
    pool.run(set("tank/a", &[("quota", "3M")])).unwrap();
    pool.write("tank/a/b", 0, 4 * MIB);
    pool.sync();
    let admit = |name: &str| {
        let head = pool.head_id(name);
        pool.namespace
            .admit(head, 1, SpaceUse::Whole, &pool.operation)
            .map(drop)
    };
    for name in ["tank/a/b", "tank/a"] {
        assert!(matches!(admit(name), Err(AdmitRefusal::QuotaExceeded)));
    }
    admit("tank/c").unwrap();
}

#[test]
fn who_gives_back_room_passes_no_quota_for_those_who_come_after_him() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b"]);
    pool.run(set("tank/a", &[("refquota", "3M")])).unwrap();
    pool.run(set("tank/b", &[("quota", "3M")])).unwrap();
    let used = pool.directory("tank").used.get();
    pool.namespace.set_adjusted_bytes(used + 1024 * MIB);
    for name in ["tank/a", "tank/b"] {
        let head = pool.head_id(name);
        drop(admit(&pool, head, MIB, SpaceUse::Freeing).unwrap());
        drop(admit(&pool, head, 2 * MIB, SpaceUse::Divisible).unwrap());
        let refused = admit(&pool, head, 4 * MIB, SpaceUse::Divisible);
        assert!(
            matches!(refused, Err(AdmitRefusal::QuotaExceeded)),
            "{name}"
        );
    }
}

#[test]
fn a_used_up_refquota_admits_its_children() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    pool.run(set("tank/a", &[("refquota", "3M")])).unwrap();
    pool.write("tank/a", 0, 4 * MIB);
    pool.sync();
    let admit = |name: &str| {
        let head = pool.head_id(name);
        pool.namespace
            .admit(head, 1, SpaceUse::Whole, &pool.operation)
            .map(drop)
    };
    assert!(matches!(admit("tank/a"), Err(AdmitRefusal::QuotaExceeded)));
    admit("tank/a/b").unwrap();
}
