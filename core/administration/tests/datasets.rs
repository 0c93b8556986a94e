//! Datasets through the administration: created, changed, renamed, destroyed, with their mounts.
//! The pool is on a file; mounts are only noted.

mod support;

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use support::{Bench, call, owned};
use tarn_administration::administration::Administration;
use tarn_administration::messages::dataset::{
    Create, ListActivities, MakeClone, Mount, Snapshot, Unmount, Upgrade,
};
use tarn_administration::messages::{RefusalKind, Source, Value, pool};
use tarn_engine::files::{Credentials, Operation};

#[test]
fn file_systems_are_made_mounted_and_destroyed() {
    let bench = Bench::new();
    bench.create("tank/a", &[("compression", "off")]).unwrap();
    bench.create("tank/a/b", &[]).unwrap();
    bench.create("tank/off", &[("canmount", "off")]).unwrap();
    assert_eq!(bench.mounted(), ["/tank", "/tank/a", "/tank/a/b"]);
    let inherited = Source::Inherited("tank/a".to_string());
    let compression = bench.get("tank/a/b", "compression");
    assert_eq!(compression, (Value::Text("off".to_string()), inherited));
    let refused = bench.destroy("tank/a", false).unwrap_err();
    assert_eq!(refused.reason, "filesystem has children");
    assert_eq!(refused.hints[1..], ["tank/a/b"]);
    assert_eq!(
        bench.destroy("tank/a", true).unwrap(),
        ["tank/a/b", "tank/a"]
    );
    assert_eq!(bench.mounted(), ["/tank"]);
    assert_eq!(bench.names(), ["tank", "tank/off"]);
    assert!(!bench.path("/tank/a").exists());
}

#[test]
fn refusals_to_create_have_the_words_of_openzfs() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    for (name, properties, reason) in [
        ("tank/a", &[][..], "dataset already exists"),
        ("tank/x/y", &[], "parent does not exist"),
        ("dozer/a", &[], "no such pool 'dozer'"),
        ("tank", &[], "missing dataset name"),
        ("tank/a%", &[], "invalid character '%' in name"),
        (
            "tank/b",
            &[("atime", "maybe")],
            "'atime' must be one of 'on | off'",
        ),
        (
            "tank/b",
            &[("quota", "1T"), ("reservation", "1T")],
            "size is greater than available space",
        ),
    ] {
        let refused = bench.create(name, properties).unwrap_err();
        assert_eq!(refused.reason, reason, "{name}");
        assert_eq!(refused.action, format!("cannot create '{name}'"));
    }
    let refused = bench.create("tank/b", &[("encryption", "on")]).unwrap_err();
    assert!(refused.reason.contains("encrypted datasets"), "{refused}");
    assert_eq!(bench.names(), ["tank", "tank/a"]);
}

#[test]
fn parents_are_made_when_that_is_asked_for() {
    let bench = Bench::new();
    let create = Create {
        name: "tank/a/b/c".to_string(),
        parents: true,
        ..Create::default()
    };
    let created = bench
        .administrator
        .dataset_create(&call(""), create.clone())
        .unwrap();
    assert_eq!(created.names, ["tank/a", "tank/a/b", "tank/a/b/c"]);
    let again = bench
        .administrator
        .dataset_create(&call(""), create)
        .unwrap();
    assert_eq!(again.names, Vec::<String>::new());
}

#[test]
fn a_volume_reserves_its_size_and_can_change_it() {
    let bench = Bench::new();
    let create = Create {
        name: "tank/v".to_string(),
        volume_bytes: Some(10_000_000),
        ..Create::default()
    };
    bench
        .administrator
        .dataset_create(&call(""), create)
        .unwrap();
    let size = 10_000_000_u64.next_multiple_of(16 << 10);
    assert_eq!(bench.number("tank/v", "volsize"), size);
    let reserved = bench.number("tank/v", "refreservation");
    assert!(reserved > size);
    bench.set("tank/v", &[("volsize", "16M")]).unwrap();
    assert_eq!(bench.number("tank/v", "volsize"), 16 << 20);
    assert!(bench.number("tank/v", "refreservation") > reserved);
    let refused = bench.set("tank/v", &[("volsize", "100")]).unwrap_err();
    let reason = "'volsize' must be a multiple of volume block size (16K)";
    assert_eq!(refused.reason, reason);
}

/// Beside a sparse volume, which reserves nothing.
#[test]
fn a_clone_of_a_volume_reserves_its_size_where_that_was_asked_for() {
    let bench = Bench::new();
    for (name, sparse) in [("tank/v", true), ("tank/full", false)] {
        let create = Create {
            name: name.to_string(),
            volume_bytes: Some(16 << 20),
            sparse,
            ..Create::default()
        };
        bench
            .administrator
            .dataset_create(&call(""), create)
            .unwrap();
    }
    let snapshot = Snapshot {
        names: vec!["tank/v@1".to_string()],
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), snapshot)
        .unwrap();
    let clone = |name: &str, reserved: &str| {
        let request = MakeClone {
            origin: "tank/v@1".to_string(),
            name: name.to_string(),
            properties: owned(&[("refreservation", reserved)]),
            ..MakeClone::default()
        };
        bench.administrator.dataset_clone(&call(""), request)
    };
    clone("tank/clone", "auto").unwrap();
    let of_volume = bench.number("tank/full", "refreservation");
    assert!(of_volume > 16 << 20);
    assert_eq!(bench.number("tank/clone", "refreservation"), of_volume);
    let left = bench.number("tank", "available");
    let most = (left - (4 << 20)).to_string();
    bench
        .create("tank/most", &[("reservation", &most)])
        .unwrap();
    let refused = clone("tank/other", "auto").unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NoSpace, "{refused}");
}

#[test]
fn one_mount_in_use_keeps_all_from_being_destroyed() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.create("tank/a/b", &[]).unwrap();
    bench.is_busy("/tank/a");
    let refused = bench.destroy("tank/a", true).unwrap_err();
    assert_eq!(refused.reason, "pool or dataset is busy");
    assert_eq!(bench.mounted(), ["/tank", "/tank/a", "/tank/a/b"]);
    assert_eq!(bench.names(), ["tank", "tank/a", "tank/a/b"]);
}

#[test]
fn a_late_end_of_a_mount_does_not_end_the_next_one() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    let unmount = || {
        let name = Some("tank/a".to_string());
        let unmount = Unmount { name, force: false };
        bench
            .administrator
            .dataset_unmount(&call("zfs unmount"), unmount)
    };
    let mount = || {
        let name = Some("tank/a".to_string());
        let mount = Mount {
            name,
            ..Mount::default()
        };
        bench.administrator.dataset_mount(&call("zfs mount"), mount)
    };
    unmount().unwrap();
    mount().unwrap();
    // The first is that of the pool's root.
    let end = |which: usize| bench.notebook.ends.lock().unwrap()[which]();
    end(1);
    assert_eq!(
        mount().unwrap_err().reason,
        "filesystem already mounted",
        "it is still known"
    );
    end(2);
    mount().unwrap();
    unmount().unwrap();
}

#[test]
fn properties_reach_what_is_mounted_at_once() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.create("tank/a/b", &[("exec", "off")]).unwrap();
    bench.write("/tank/a/b", "one", 1000).unwrap();
    bench
        .set("tank/a", &[("readonly", "on"), ("setuid", "off")])
        .unwrap();
    const EROFS: i32 = 30;
    assert_eq!(bench.write("/tank/a/b", "two", 1000), Err(EROFS));
    let options = bench.notebook.mounts.lock().unwrap()[&bench.path("/tank/a/b")].options;
    assert!(options.read_only && !options.setuid && !options.exec);
    bench.inherit("tank/a", "readonly", false).unwrap();
    bench.write("/tank/a/b", "two", 1000).unwrap();
    assert_eq!(bench.get("tank/a", "readonly").1, Source::Default);
}

#[test]
fn file_systems_move_with_their_mount_points() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.create("tank/a/b", &[]).unwrap();
    bench
        .create("tank/a/own", &[("mountpoint", "/own")])
        .unwrap();
    let volume = Create {
        name: "tank/a/v".to_string(),
        volume_bytes: Some(1 << 20),
        ..Create::default()
    };
    bench
        .administrator
        .dataset_create(&call(""), volume)
        .unwrap();
    bench.set("tank/a", &[("mountpoint", "/new")]).unwrap();
    assert_eq!(bench.mounted(), ["/new", "/new/b", "/own", "/tank"]);
    bench.set("tank/a", &[("mountpoint", "none")]).unwrap();
    assert_eq!(bench.mounted(), ["/own", "/tank"]);
    bench.inherit("tank/a", "mountpoint", true).unwrap();
    let all = ["/tank", "/tank/a", "/tank/a/b", "/tank/a/own"];
    assert_eq!(bench.mounted(), all);
    bench.is_busy("/tank/a/b");
    let refused = bench
        .set("tank/a", &[("mountpoint", "/other")])
        .unwrap_err();
    assert_eq!(refused.reason, "pool or dataset is busy");
    assert_eq!(bench.mounted(), all);
    assert_eq!(bench.get("tank/a", "mountpoint").1, Source::Default);
}

#[test]
fn only_the_administrators_links_are_followed_to_a_mount_point() {
    let bench = Bench::new();
    let path = |below: &str| bench.path(below);
    let link = |target: &str, below: &str| symlink(target, path(below)).unwrap();
    let make_folder = |below: &str, mode: u32| {
        std::fs::create_dir_all(path(below)).unwrap();
        std::fs::set_permissions(path(below), Permissions::from_mode(mode)).unwrap();
    };
    for folder in [
        "/victim",
        "/srv/home",
        "/tank/home/alice",
        "/tank/home/bob",
        "/tank/www",
    ] {
        make_folder(folder, 0o755);
    }
    link("home", "/srv/link");
    link("srv/link", "/home");
    link("/", "/tank/up");
    link("tank/home", "/people");
    link(path("/victim").to_str().unwrap(), "/tank/home/alice/p");
    link(path("/victim").to_str().unwrap(), "/tank/home/bob/p");
    link("tank/www/current", "/www");
    link("../../victim", "/tank/www/current");
    link("round", "/round");
    // Another user with write permission has put a link there.
    make_folder("/all", 0o777);
    link("../victim", "/all/work");
    make_folder("/staff", 0o2775);
    link("../victim", "/staff/work");
    make_folder("/tmp", 0o1777);
    link("../victim", "/tmp/roots");
    let mut number = 0;
    let mut mount_at = |point: &str| {
        number += 1;
        let create = Create {
            name: format!("tank/{number}"),
            properties: owned(&[("mountpoint", point)]),
            ..Create::default()
        };
        let warnings = bench
            .administrator
            .dataset_create(&call(""), create)
            .unwrap();
        warnings.warnings.join("")
    };
    let places = [
        ("/home", "/srv/home"),
        ("/home/ann", "/srv/home/ann"),
        ("/people/alice", "/tank/home/alice"),
        ("/people/alice/deep/er", "/tank/home/alice/deep/er"),
        ("/tmp/roots/x", "/victim/x"),
    ];
    for (point, place) in places {
        assert_eq!(mount_at(point), "", "{point}");
        assert!(bench.mounted().contains(&place.to_string()), "{point}");
    }
    let mounted = bench.mounted();
    for point in [
        "/people/alice/p/x",
        "/people/bob/p/x",
        "/www",
        "/www/x",
        "/tank/up/victim",
        "/all/work",
        "/all/work/x",
        "/staff/work",
        "/round",
        "/round/x",
    ] {
        let warned = mount_at(point);
        assert!(warned.contains(" leads to "), "{point}: {warned}");
    }
    assert_eq!(bench.mounted(), mounted);
}

#[test]
fn a_folder_that_a_link_leads_to_stays_when_nothing_is_mounted_there() {
    let bench = Bench::new();
    for folder in ["/disk/b", "/x"] {
        std::fs::create_dir_all(bench.path(folder)).unwrap();
    }
    symlink("../disk/b", bench.path("/x/b")).unwrap();
    let above = [("mountpoint", "/x"), ("canmount", "off")];
    bench.create("tank/x", &above).unwrap();
    for name in ["tank/x/a", "tank/x/b"] {
        bench.create(name, &[]).unwrap();
    }
    assert_eq!(bench.mounted(), ["/disk/b", "/tank", "/x/a"]);
    // The dead mount of an earlier daemon is searched for where the link leads.
    let cleared = bench.notebook.cleared.lock().unwrap().clone();
    assert!(cleared.contains(&bench.path("/disk/b")));
    bench.set("tank/x", &[("mountpoint", "/y")]).unwrap();
    assert_eq!(bench.mounted(), ["/tank", "/y/a", "/y/b"]);
    assert!(!bench.path("/x/a").exists());
    bench.set("tank/x", &[("mountpoint", "/x")]).unwrap();
    assert_eq!(bench.mounted(), ["/disk/b", "/tank", "/x/a"]);
    bench.destroy("tank/x", true).unwrap();
    assert!(bench.path("/x/b").is_dir(), "the link leads there");
    assert!(!bench.path("/x/a").exists());
}

#[test]
fn a_rename_moves_all_datasets_below() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.create("tank/a/b", &[]).unwrap();
    bench
        .create("tank/a/own", &[("mountpoint", "/own")])
        .unwrap();
    bench.create("tank/c", &[]).unwrap();
    bench.rename("tank/a", "tank/c/d").unwrap();
    let pair = |path: &str, name: &str| (path.to_string(), name.to_string());
    // A file system with a mount point of its own stays mounted, with its options.
    let mounts = [
        pair("/own", "tank/a/own"),
        pair("/tank", "tank"),
        pair("/tank/c", "tank/c"),
        pair("/tank/c/d", "tank/c/d"),
        pair("/tank/c/d/b", "tank/c/d/b"),
    ];
    assert_eq!(bench.mounts(), mounts);
    assert_eq!(bench.text("tank/c/d/own", "mounted"), "yes");
    let refused = bench.rename("tank/c", "tank/c/x").unwrap_err();
    assert!(
        refused
            .reason
            .starts_with("New dataset name cannot be a descendant")
    );
    let refused = bench.rename("tank/c/d", "tank/c").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot rename 'tank/c/d': dataset already exists"
    );
}

#[test]
fn limits_hold() {
    const EDQUOT: i32 = 122;
    let bench = Bench::new();
    bench
        .create("tank/a", &[("quota", "4M"), ("compression", "off")])
        .unwrap();
    let mut outcome = Ok(());
    for index in 0..40 {
        outcome = outcome.and(bench.write("/tank/a", &format!("f{index}"), 1 << 20));
        bench.sync();
    }
    assert_eq!(outcome, Err(EDQUOT));
    let used = bench.number("tank/a", "used");
    assert!((4 << 20..6 << 20).contains(&used), "{used}");
    let refused = bench.set("tank/a", &[("quota", "1M")]).unwrap_err();
    assert_eq!(
        refused.reason,
        "size is less than current used or reserved space"
    );
    bench.set("tank/a", &[("quota", "none")]).unwrap();
    bench.write("/tank/a", "more", 1 << 20).unwrap();
    bench.sync();
    let before = bench.number("tank", "available");
    bench.set("tank/a", &[("reservation", "32M")]).unwrap();
    let reserved = before - bench.number("tank", "available");
    let unused = (32 << 20) - bench.number("tank/a", "used");
    // What the MOS uses changes with each group, too.
    assert!(reserved.abs_diff(unused) < 256 << 10, "{reserved} {unused}");
}

#[test]
fn an_old_file_system_is_upgraded_while_it_is_mounted() {
    let bench = Bench::new();
    bench.create("tank/old", &[("version", "4")]).unwrap();
    bench.write("/tank/old", "file", 100).unwrap();
    let upgrade = Upgrade {
        names: vec!["tank".to_string()],
        recursive: true,
        version: None,
    };
    let upgraded = bench
        .administrator
        .dataset_upgrade(&call(""), upgrade)
        .unwrap();
    assert!(upgraded.refused.is_empty());
    assert_eq!(upgraded.datasets[1], ("tank/old".to_string(), 4, 5));
    assert_eq!(bench.text("tank/old", "version"), "5");
    let version = || bench.tree("/tank/old").files().version();
    assert_eq!(version(), 4, "it is not mounted anew");
}

#[test]
fn a_change_and_its_command_are_in_the_history() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.set("tank/a", &[("atime", "off")]).unwrap();
    bench.set("tank/a", &[("atime", "maybe")]).unwrap_err();
    bench.destroy("tank/a", false).unwrap();
    // A long line is cut after a whole character.
    let request = Create {
        name: "tank/b".to_string(),
        ..Create::default()
    };
    let long = format!("x{}", "é".repeat(1 << 20));
    bench
        .administrator
        .dataset_create(&call(&long), request)
        .unwrap();
    let history = pool::History {
        name: "tank".to_string(),
    };
    let history = bench
        .administrator
        .pool_history(&call(""), history)
        .unwrap();
    let commands: Vec<_> = history
        .records
        .iter()
        .filter_map(|record| record.command.clone())
        .collect();
    let expected = ["zpool create", "zfs create", "zfs set", "zfs destroy"];
    assert_eq!(commands[..4], expected);
    assert_eq!(commands[4], long[..8191]);
}

#[test]
fn a_file_without_a_name_is_in_the_delete_queue_as_long_as_it_is_open() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    let goes_on = |name: &str| {
        let request = ListActivities {
            name: name.to_string(),
        };
        let listed = bench
            .administrator
            .dataset_list_activities(&call(""), request);
        listed.map(|activities| activities.delete_queue)
    };
    bench.write("/tank/a", "file", 1000).unwrap();
    let tree = bench.tree("/tank/a");
    let (files, operation) = (tree.files(), Operation::unmeasured());
    let found = files.lookup(&Credentials::root(), files.root(), b"file", &operation);
    let id = found.unwrap().id;
    files.opened(id, &operation).unwrap();
    bench.unlink("/tank/a", "file");
    assert_eq!(goes_on("tank/a"), Ok(true));
    assert_eq!(goes_on("tank"), Ok(false));
    files.closed(id, &operation).unwrap();
    assert_eq!(goes_on("tank/a"), Ok(false));
    assert_eq!(
        goes_on("tank/b").unwrap_err().to_string(),
        "cannot open 'tank/b': dataset does not exist"
    );
}
