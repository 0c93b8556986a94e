//! Mounted file systems, and served ones that are only in use elsewhere. Mounts are only noted.

mod support;

use std::sync::Arc;
use support::{Bench, call, owned};
use tarn_administration::administration::Administration;
use tarn_administration::messages::dataset::{Mount, Rollback, Set, Snapshot, Unmount, Upgrade};
use tarn_administration::messages::{Changed, Refusal};

fn unmount(bench: &Bench, name: Option<&str>, force: bool) -> Result<(), String> {
    let name = name.map(str::to_string);
    let request = Unmount { name, force };
    let unmounted = bench
        .administrator
        .dataset_unmount(&call("zfs unmount"), request);
    let unmounted = unmounted.map_err(|refusal| refusal.to_string())?;
    let refused: Vec<String> = unmounted.refused.iter().map(Refusal::to_string).collect();
    match refused.is_empty() {
        true => Ok(()),
        false => Err(refused.join("\n")),
    }
}

fn mount(bench: &Bench, name: &str, options: &str, place: Option<&str>) -> Result<(), String> {
    let request = Mount {
        name: Some(name.to_string()),
        options: vec![options.to_string()],
        place: place.map(|place| bench.path(place).display().to_string()),
        ..Mount::default()
    };
    let mounted = bench
        .administrator
        .dataset_mount(&call("zfs mount"), request);
    mounted.map(drop).map_err(|refusal| refusal.to_string())
}

fn set(bench: &Bench, name: &str, property: &str, value: &str) -> Result<Changed, Refusal> {
    let request = Set {
        name: name.to_string(),
        properties: owned(&[(property, value)]),
        no_mount: false,
    };
    bench.administrator.dataset_set(&call("zfs set"), request)
}

fn roll_back(bench: &Bench, name: &str) -> Result<(), Refusal> {
    let request = Rollback {
        name: name.to_string(),
        ..Rollback::default()
    };
    let done = bench
        .administrator
        .dataset_rollback(&call("zfs rollback"), request);
    done.map(drop)
}

#[test]
fn a_file_system_in_use_elsewhere_stays_served_and_is_attached_again() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    let snapshot = Snapshot {
        names: vec!["tank/a@1".to_string()],
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), snapshot)
        .unwrap();
    let tree = bench.tree("/tank/a");
    let path = bench.path("/tank/a");
    bench.notebook.copied.lock().unwrap().insert(path.clone());
    unmount(&bench, Some("tank/a"), false).unwrap();
    assert_eq!(bench.text("tank/a", "mounted"), "no");
    let again = unmount(&bench, Some("tank/a"), false).unwrap_err();
    assert_eq!(again, "cannot unmount 'tank/a': not currently mounted");
    let busy = roll_back(&bench, "tank/a@1").unwrap_err();
    assert_eq!(busy.reason, "pool or dataset is busy");
    assert_eq!(busy.hints.len(), 1);
    mount(&bench, "tank/a", "", None).unwrap();
    assert_eq!(bench.text("tank/a", "mounted"), "yes");
    assert!(Arc::ptr_eq(&tree, &bench.tree("/tank/a")));
    // Busy, and still mounted.
    roll_back(&bench, "tank/a@1").unwrap_err();
    assert_eq!(bench.mounted(), ["/tank", "/tank/a"]);
    // A move is possible.
    set(&bench, "tank/a", "mountpoint", "/b").unwrap();
    assert_eq!(bench.mounted(), ["/b", "/tank"]);
    assert!(Arc::ptr_eq(&tree, &bench.tree("/b")));
    unmount(&bench, Some("tank/a"), true).unwrap();
    roll_back(&bench, "tank/a@1").unwrap();
    mount(&bench, "tank/a", "", None).unwrap();
    assert!(!Arc::ptr_eq(&tree, &bench.tree("/b")));
}

#[test]
fn a_mount_with_another_readonly_than_the_one_in_use_is_refused() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    let path = bench.path("/tank/a");
    bench.notebook.copied.lock().unwrap().insert(path);
    unmount(&bench, Some("tank/a"), false).unwrap();
    let busy = "cannot mount 'tank/a': mountpoint or dataset is busy";
    assert_eq!(mount(&bench, "tank/a", "ro", None), Err(busy.to_string()));
    mount(&bench, "tank/a", "noexec", None).unwrap();
}

#[test]
fn unknown_options_are_refused_and_remount_changes_options() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    let invalid = Err("cannot mount 'tank/a': Invalid argument".to_string());
    assert_eq!(mount(&bench, "tank/a", "remount,nonsense", None), invalid);
    mount(&bench, "tank/a", "remount,noexec,strictatime", None).unwrap();
    assert_eq!(bench.text("tank/a", "exec"), "off");
    assert_eq!(bench.text("tank/a", "relatime"), "off");
    mount(&bench, "tank/a", "remount", None).unwrap();
    assert_eq!(bench.text("tank/a", "exec"), "on");
    unmount(&bench, Some("tank/a"), false).unwrap();
    for options in ["nonsense", "remount", "ro,nonsense"] {
        assert_eq!(mount(&bench, "tank/a", options, None), invalid, "{options}");
    }
    assert_eq!(bench.text("tank/a", "mounted"), "no");
}

#[test]
fn canmount_off_unmounts_file_systems_below_only_for_a_moment() {
    let bench = Bench::new();
    for name in ["tank/a", "tank/a/b", "tank/a/b/c"] {
        bench.create(name, &[]).unwrap();
    }
    set(&bench, "tank/a", "canmount", "off").unwrap();
    assert_eq!(bench.mounted(), ["/tank", "/tank/a/b", "/tank/a/b/c"]);
    let by_name = [("canmount", "noauto"), ("mountpoint", "/n")];
    bench.create("tank/n", &by_name).unwrap();
    mount(&bench, "tank/n", "", None).unwrap();
    unmount(&bench, None, false).unwrap();
    assert_eq!(bench.mounted(), ["/n"]);
}

#[test]
fn unmount_all_goes_on_past_a_busy_mount() {
    let bench = Bench::new();
    for name in ["tank/a", "tank/b", "tank/b/c", "tank/d"] {
        bench.create(name, &[]).unwrap();
    }
    bench.is_busy("/tank/b/c");
    bench.is_busy("/tank/d");
    let refused = unmount(&bench, None, false).unwrap_err();
    let busy = |place: &str| {
        let place = bench.path(place);
        format!(
            "cannot unmount '{}': pool or dataset is busy",
            place.display()
        )
    };
    // File systems with others mounted on them stay.
    let expected = ["/tank/d", "/tank/b/c", "/tank/b", "/tank"].map(busy);
    assert_eq!(refused, expected.join("\n"));
    assert!(!bench.mounted().contains(&"/tank/a".to_string()));
}

#[test]
fn a_mountpoint_is_set_though_mounting_there_fails() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    let place = bench.path("/file");
    std::fs::write(&place, "").unwrap();
    let changed = set(&bench, "tank/a", "mountpoint", "/file").unwrap();
    let told = format!(
        "cannot mount '{}': failed to create mountpoint: File exists",
        place.display()
    );
    let told_of = |warning: &String| warning.starts_with(&told);
    assert!(changed.warnings.iter().all(told_of) && changed.warnings.len() == 1);
    assert_eq!(
        bench.text("tank/a", "mountpoint"),
        place.display().to_string()
    );
    let changed = set(&bench, "tank/a", "vscan", "on").unwrap();
    assert_eq!(changed.warnings.len(), 1);
    let changed = set(&bench, "tank/a", "atime", "off").unwrap();
    assert_eq!(changed.warnings, Vec::<String>::new());
}

#[test]
fn a_legacy_file_system_is_mounted_by_hand_and_stays_where_it_is() {
    let bench = Bench::new();
    bench.create("tank/l", &[("mountpoint", "legacy")]).unwrap();
    std::fs::create_dir(bench.path("/l")).unwrap();
    let by_name = mount(&bench, "tank/l", "", None).unwrap_err();
    let words = "cannot mount 'tank/l': legacy mountpoint\nuse mount(8) to mount this filesystem";
    assert_eq!(by_name, words);
    mount(&bench, "tank/l", "noexec", Some("/l")).unwrap();
    assert_eq!(bench.text("tank/l", "mounted"), "yes");
    let words =
        "cannot unmount 'tank/l': legacy mountpoint\nuse umount(8) to unmount this filesystem";
    assert_eq!(unmount(&bench, Some("tank/l"), false).unwrap_err(), words);
    unmount(&bench, None, false).unwrap();
    assert_eq!(bench.mounted(), ["/l"]);
    let snapshot = Snapshot {
        names: vec!["tank/l@1".to_string()],
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), snapshot)
        .unwrap();
    roll_back(&bench, "tank/l@1").unwrap();
    bench.rename("tank/l", "tank/m").unwrap();
    assert_eq!(bench.mounted(), ["/l"]);
    assert_eq!(bench.text("tank/m", "exec"), "off");
    set(&bench, "tank/m", "mountpoint", "/m").unwrap();
    assert!(bench.mounted().contains(&"/m".to_string()));
}

#[test]
fn an_upgrade_unmounts_nothing() {
    let bench = Bench::new();
    bench.create("tank/a", &[("version", "4")]).unwrap();
    bench.create("tank/a/b", &[]).unwrap();
    bench.is_busy("/tank/a");
    let tree = bench.tree("/tank/a");
    let request = Upgrade {
        names: vec!["tank/a".to_string()],
        ..Upgrade::default()
    };
    let upgraded = bench
        .administrator
        .dataset_upgrade(&call("zfs upgrade"), request);
    let upgraded = upgraded.unwrap();
    assert_eq!(upgraded.refused, []);
    assert_eq!(upgraded.datasets, [("tank/a".to_string(), 4, 5)]);
    assert!(Arc::ptr_eq(&tree, &bench.tree("/tank/a")));
    assert_eq!(bench.text("tank/a", "version"), "5");
}
