//! Names and values that no ZAP can hold are refused before the group: after it, they would suspend
//! the pool.

mod support;

use std::sync::Arc;
use support::{Filler, Pool};
use tarn_dataset::ops::create::{CreateFilesystem, NameRules};
use tarn_dataset::ops::delegate::Delegate;
use tarn_dataset::ops::hold::{HoldSnapshots, ReleaseHolds};
use tarn_dataset::ops::inherit::{BackTo, InheritProperty};
use tarn_dataset::ops::rename_snapshot::RenameSnapshots;
use tarn_dataset::ops::set::{SetProperties, Source};
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_dataset::ops::temporary_snapshot::TakeTemporarySnapshot;
use tarn_dataset::properties::parse::{Checked, Setting};
use tarn_dataset::task::TaskRefusal;
use tarn_object::zap::{ObjectZap, ZapValue};
use tarn_ondisk::delegation::{Holder, Key, Listed, Scope};

/// A pool with `tank/a` and `tank/a@one`.
fn pool() -> Pool {
    let mut pool = Pool::new();
    let create = CreateFilesystem {
        name: "tank/a".to_string(),
        settings: Vec::new(),
        rules: NameRules::default(),
        user: 0,
        group: 0,
        fill: Arc::new(Filler),
    };
    pool.run(create).unwrap();
    let taken = TakeSnapshots {
        names: vec!["tank/a@one".to_string()],
        settings: Vec::new(),
    };
    pool.run(taken).unwrap();
    pool
}

fn user_property(name: &str, value: &str) -> Vec<Checked> {
    vec![Checked {
        name: name.to_string(),
        property: None,
        setting: Setting::Text(value.to_string()),
    }]
}

/// What a ZAP of the MOS cannot have as a name.
fn impossible() -> [String; 4] {
    [
        String::new(),
        "a\0b".to_string(),
        "x".repeat(256),
        "x".repeat(5000),
    ]
}

#[test]
fn tags_that_cannot_be_stored_are_refused() {
    let mut pool = pool();
    let names = || vec!["tank/a@one".to_string()];
    for tag in impossible() {
        let hold = HoldSnapshots {
            names: names(),
            tag: tag.clone(),
        };
        let refused = pool.run(hold).unwrap_err();
        let is_single = matches!(refused, TaskRefusal::BadValue { .. });
        assert_eq!(is_single, tag.is_empty() || tag.contains('\0'), "{refused}");
        let release = ReleaseHolds {
            names: names(),
            tag: tag.clone(),
        };
        assert!(matches!(pool.run(release), Err(TaskRefusal::NoSuchTag)));
        let taken = TakeTemporarySnapshot {
            name: "tank/a@two".to_string(),
            tag,
        };
        assert!(pool.run(taken).is_err());
    }
    let longest = HoldSnapshots {
        names: names(),
        tag: "x".repeat(255),
    };
    pool.run(longest).unwrap();
    pool.judge();
}

#[test]
fn snapshots_get_no_name_that_no_snapshot_can_have() {
    let mut pool = pool();
    let bad = ["a/b", "a@b", "a#b", "a%b", "%recv/x", "é", ".", ".."];
    let bad = bad.into_iter().map(str::to_string).chain(impossible());
    for to in bad {
        let rename = RenameSnapshots {
            head: "tank/a".to_string(),
            from: "one".to_string(),
            to: to.clone(),
            recursive: false,
        };
        assert!(pool.run(rename).is_err(), "{to}");
    }
    assert!(pool.exists("tank/a"));
    pool.judge();
}

#[test]
fn properties_whose_names_or_values_cannot_be_stored_are_refused() {
    let mut pool = pool();
    let mut set = |name: &str, value: &str, source: Source| {
        pool.run(SetProperties {
            name: "tank/a".to_string(),
            settings: user_property(name, value),
            source,
        })
    };
    for name in impossible() {
        assert!(set(&name, "", Source::Local).is_err());
    }
    assert!(set("x:a", "a\0b", Source::Local).is_err());
    assert!(set("x:a", &"v".repeat(8192), Source::Local).is_err());
    set("x:a", &"v".repeat(8191), Source::Local).unwrap();
    // With the suffix of what was received, a name of 250 bytes is too long.
    let long = format!("x:{}", "n".repeat(248));
    set(&long, "", Source::Local).unwrap();
    assert!(set(&long, "", Source::Received).is_err());
    set(&long[..240], "", Source::Received).unwrap();
    pool.judge();
}

/// Where properties were received, one that is inherited again is marked: under its name, with a
/// suffix.
#[test]
fn a_property_is_not_inherited_where_its_mark_could_not_be_stored() {
    let mut pool = pool();
    let long = format!("x:{}", "n".repeat(248));
    let inherit = |name: &str| InheritProperty {
        name: "tank/a".to_string(),
        property: name.to_string(),
        back_to: BackTo::Parent,
    };
    pool.run(inherit(&long)).unwrap();
    assert!(
        pool.run(inherit(&format!("x:{}", "n".repeat(2000))))
            .is_err()
    );
    let properties = pool.directory("tank/a").properties;
    pool.sync_with(|context| {
        let zap = context.mos().object(properties, context.operation).unwrap();
        let zap = ObjectZap::of(&zap, context.operation);
        zap.update(context.tx, "$hasrecvd", &ZapValue::word(0))
            .unwrap();
    });
    assert!(pool.run(inherit(&long)).is_err());
    pool.run(inherit("x:short")).unwrap();
    pool.judge();
}

#[test]
fn permissions_that_cannot_be_stored_are_refused() {
    let mut pool = pool();
    let key = |holder: Holder| Key {
        holder,
        scope: Scope::Local,
        listed: Listed::Permissions,
    };
    for name in impossible() {
        let mut give = |key: Key, permission: &str| {
            pool.run(Delegate {
                name: "tank/a".to_string(),
                given: vec![(key, vec![permission.to_string()])],
            })
        };
        assert!(give(key(Holder::User(7)), &name).is_err());
        if !name.is_empty() {
            assert!(give(key(Holder::Set(name)), "send").is_err());
        }
    }
    pool.judge();
}
