//! Quotas of users, groups and projects through the administration: set, shown, enforced, and the
//! used space of all owners.

mod support;

use support::{Bench, call, owned};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    Create, DatasetKind, Describe, ListOwners, MakeClone, Mount, OwnerKind, OwnerUse, Owners,
    Snapshot, Unmount,
};
use tarn_administration::messages::pool::Upgrade;
use tarn_administration::messages::{Caller, Refusal, RefusalKind, Source, Value};
use tarn_engine::files::{Credentials, Operation, SetAttributes};

const EDQUOT: i32 = 122;

/// A user that is neither root nor the engine's own.
fn stranger(uid: u32) -> Call {
    let caller = Caller {
        uid,
        gid: uid,
        ..Caller::default()
    };
    Call {
        caller,
        ..Call::default()
    }
}

/// The value of a property that a caller sees; none for `-`.
fn seen(bench: &Bench, call: &Call, name: &str, property: &str) -> Option<u64> {
    let describe = Describe {
        names: vec![name.to_string()],
        depth: Some(0),
        kinds: vec![DatasetKind::Filesystem],
        properties: vec![property.to_string()],
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(call, describe)
        .unwrap();
    let found = described.datasets[0].properties.get(property)?;
    match found.value {
        Value::Number(number) => Some(number),
        _ => None,
    }
}

fn owners(bench: &Bench, call: &Call, name: &str) -> Result<Owners, Refusal> {
    let list = ListOwners {
        name: name.to_string(),
        users: true,
        groups: true,
        projects: true,
        wants_names: true,
    };
    bench.administrator.dataset_list_owners(call, list)
}

fn row(owners: &Owners, kind: OwnerKind, id: u32) -> Option<&OwnerUse> {
    owners
        .rows
        .iter()
        .find(|row| row.kind == kind && row.id == id)
}

/// Changes the owner of a file.
fn give(bench: &Bench, path: &str, name: &str, changes: &SetAttributes) {
    let tree = bench.tree(path);
    let (files, operation) = (tree.files(), Operation::unmeasured());
    let root = Credentials::root();
    let found = files.lookup(&root, files.root(), name.as_bytes(), &operation);
    let id = found.unwrap().id;
    files
        .set_attributes(&root, id, changes, &operation)
        .unwrap();
}

fn user(uid: u32) -> SetAttributes {
    SetAttributes {
        uid: Some(uid),
        gid: Some(uid),
        ..SetAttributes::default()
    }
}

fn unmount(bench: &Bench, name: &str) {
    let unmount = Unmount {
        name: Some(name.to_string()),
        ..Unmount::default()
    };
    bench
        .administrator
        .dataset_unmount(&call(""), unmount)
        .unwrap();
}

#[test]
fn a_quota_is_set_shown_and_enforced_whether_the_file_system_is_mounted_or_not() {
    let bench = Bench::new();
    bench.create("tank/a", &[("compression", "off")]).unwrap();
    bench.write("/tank/a", "f", 1 << 20).unwrap();
    bench.sync();
    let used = bench.number("tank/a", "userused@root");
    assert!(used > 1 << 20, "{used}");
    assert_eq!(bench.number("tank/a", "userused@0"), used);
    assert_eq!(bench.get("tank/a", "userquota@0").0, Value::Number(0));
    assert_eq!(bench.get("tank/a", "userquota@0").1, Source::Local);
    bench.set("tank/a", &[("userquota@root", "512K")]).unwrap();
    assert_eq!(bench.number("tank/a", "userquota@0"), 512 << 10);
    assert_eq!(bench.write("/tank/a", "g", 4096), Err(EDQUOT));
    bench.set("tank/a", &[("userquota@0", "none")]).unwrap();
    bench.write("/tank/a", "g", 4096).unwrap();
    bench.set("tank/a", &[("groupobjquota@root", "2")]).unwrap();
    bench.sync();
    assert_eq!(bench.write("/tank/a", "h", 4096), Err(EDQUOT));
    // The same when it is not mounted.
    bench.set("tank/a", &[("readonly", "on")]).unwrap();
    unmount(&bench, "tank/a");
    assert_eq!(bench.number("tank/a", "groupobjquota@0"), 2);
    let given = [("groupobjquota@0", "none"), ("projectquota@7", "1M")];
    bench.set("tank/a", &given).unwrap();
    assert_eq!(bench.number("tank/a", "groupobjquota@0"), 0);
    assert_eq!(bench.number("tank/a", "projectquota@7"), 1 << 20);
    assert_eq!(bench.mounted(), ["/tank"]);
}

#[test]
fn owners_without_a_quota_have_the_default() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    assert_eq!(
        bench.get("tank/a", "defaultuserobjquota"),
        (Value::Number(0), Source::None)
    );
    // `zfs get all` shows it where it is set.
    let is_among_all = || {
        let describe = Describe {
            names: vec!["tank/a".to_string()],
            depth: Some(0),
            kinds: vec![DatasetKind::Filesystem],
            ..Describe::default()
        };
        let described = bench
            .administrator
            .dataset_describe(&call(""), describe)
            .unwrap();
        let all = &described.datasets[0].properties;
        assert!(!all.contains_key("defaultgroupquota") && all.contains_key("quota"));
        all.contains_key("defaultuserobjquota")
    };
    assert!(!is_among_all());
    bench
        .set("tank/a", &[("defaultuserobjquota", "3")])
        .unwrap();
    assert!(is_among_all());
    assert_eq!(bench.number("tank/a", "defaultuserobjquota"), 3);
    bench.write("/tank/a", "f", 10).unwrap();
    bench.write("/tank/a", "g", 10).unwrap();
    bench.sync();
    assert_eq!(bench.write("/tank/a", "h", 10), Err(EDQUOT));
    bench.set("tank/a", &[("userobjquota@0", "4")]).unwrap();
    bench.write("/tank/a", "h", 10).unwrap();
    bench.sync();
    assert_eq!(bench.write("/tank/a", "i", 10), Err(EDQUOT));
    bench
        .set("tank/a", &[("defaultuserobjquota", "none")])
        .unwrap();
    bench.set("tank/a", &[("userobjquota@0", "none")]).unwrap();
    bench.write("/tank/a", "i", 10).unwrap();
    let refused = bench.inherit("tank/a", "defaultuserquota", false);
    assert!(refused.is_err());
}

#[test]
fn all_owners_with_used_space_or_a_quota_are_listed() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "f", 200_000).unwrap();
    give(&bench, "/tank/a", "f", &user(1000));
    bench.write("/tank/a", "g", 10).unwrap();
    let project = SetAttributes {
        project: Some(9),
        ..SetAttributes::default()
    };
    give(&bench, "/tank/a", "g", &project);
    bench
        .set(
            "tank/a",
            &[("userquota@2000", "1G"), ("defaultgroupquota", "5G")],
        )
        .unwrap();
    let names = vec!["tank/a@s".to_string()];
    let request = Snapshot {
        names,
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), request)
        .unwrap();
    give(&bench, "/tank/a", "f", &user(3000));
    bench.sync();
    let now = owners(&bench, &call(""), "tank/a").unwrap();
    let one = row(&now, OwnerKind::User, 3000).unwrap();
    assert!(one.used.unwrap() > 200_000);
    assert_eq!((one.quota, one.objects_used), (None, Some(1)));
    assert_eq!(row(&now, OwnerKind::User, 1000), None);
    let limited = row(&now, OwnerKind::User, 2000).unwrap();
    assert_eq!((limited.used, limited.quota), (None, Some(1 << 30)));
    let root = row(&now, OwnerKind::User, 0).unwrap();
    assert_eq!(root.name.as_deref(), Some("root"));
    assert_eq!(
        row(&now, OwnerKind::Project, 9).unwrap().objects_used,
        Some(1)
    );
    let of_groups = now.defaults.iter().find(|one| one.kind == OwnerKind::Group);
    assert_eq!(of_groups.unwrap().quota, 5 << 30);
    // A snapshot keeps its own counts.
    let then = owners(&bench, &call(""), "tank/a@s").unwrap();
    assert!(row(&then, OwnerKind::User, 1000).unwrap().used.unwrap() > 200_000);
    assert_eq!(row(&then, OwnerKind::User, 3000), None);
    assert_eq!(bench.number("tank/a@s", "userobjused@1000"), 1);
    // Also by a path.
    let path = bench.path("/tank/a").display().to_string();
    assert_eq!(owners(&bench, &call(""), &path).unwrap(), now);
}

#[test]
fn unprivileged_users_see_only_their_own_space() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "f", 10).unwrap();
    give(&bench, "/tank/a", "f", &user(4_000_000));
    bench.sync();
    let (ann, bob) = (stranger(4_000_000), stranger(4_000_001));
    for property in ["userobjused@4000000", "groupobjused@4000000"] {
        assert_eq!(
            seen(&bench, &ann, "tank/a", property),
            Some(1),
            "{property}"
        );
        assert_eq!(seen(&bench, &bob, "tank/a", property), None, "{property}");
        assert_eq!(seen(&bench, &call(""), "tank/a", property), Some(1));
    }
    assert_eq!(seen(&bench, &ann, "tank/a", "projectused@0"), None);
    let refused = owners(&bench, &ann, "tank/a").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot get used/quota for tank/a: permission denied"
    );
    assert_eq!(refused.kind, RefusalKind::Denied);
}

#[test]
fn a_new_file_system_gets_its_quotas_or_is_not_created() {
    let bench = Bench::new();
    let given = [("userquota@1000", "1G"), ("defaultprojectquota", "2G")];
    bench.create("tank/a", &given).unwrap();
    assert_eq!(bench.number("tank/a", "userquota@1000"), 1 << 30);
    assert_eq!(bench.number("tank/a", "defaultprojectquota"), 2 << 30);
    let names = vec!["tank/a@s".to_string()];
    let request = Snapshot {
        names,
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), request)
        .unwrap();
    let clone = MakeClone {
        origin: "tank/a@s".to_string(),
        name: "tank/c".to_string(),
        properties: owned(&[("userquota@2000", "3G")]),
        ..MakeClone::default()
    };
    bench.administrator.dataset_clone(&call(""), clone).unwrap();
    assert_eq!(bench.number("tank/c", "userquota@1000"), 1 << 30);
    assert_eq!(bench.number("tank/c", "userquota@2000"), 3 << 30);
    assert_eq!(bench.number("tank/a", "userquota@2000"), 0);
    let refused = bench.create("tank/b", &[("version", "3"), ("userquota@0", "1G")]);
    assert_eq!(
        refused.unwrap_err().reason,
        "pool and or dataset must be upgraded to set this property or value"
    );
    assert_eq!(bench.names(), ["tank", "tank/a", "tank/c"]);
}

#[test]
fn refused_quotas_change_nothing() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    let volume = Create {
        name: "tank/v".to_string(),
        volume_bytes: Some(1 << 20),
        ..Create::default()
    };
    bench
        .administrator
        .dataset_create(&call(""), volume)
        .unwrap();
    let names = vec!["tank/a@s".to_string()];
    let request = Snapshot {
        names,
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), request)
        .unwrap();
    for (name, property, value, reason) in [
        (
            "tank/a",
            "userquota@nobody-here",
            "1G",
            "'userquota@nobody-here' has an invalid user/group name",
        ),
        ("tank/a", "userused@0", "1G", "'userused@0' is readonly"),
        ("tank/a", "groupquota@0", "big", "bad numeric value 'big'"),
        (
            "tank/a",
            "defaultuserquota",
            "m0.12m",
            "bad numeric value 'm0.12m'",
        ),
        (
            "tank/a@s",
            "userquota@0",
            "1G",
            "this property can not be modified for snapshots",
        ),
        (
            "tank/a@s",
            "defaultuserquota",
            "1G",
            "this property can not be modified for snapshots",
        ),
        (
            "tank/v",
            "userquota@0",
            "1G",
            "'userquota@0' does not apply to datasets of this type",
        ),
        (
            "tank/v",
            "defaultgroupquota",
            "1G",
            "'defaultgroupquota' does not apply to datasets of this type",
        ),
    ] {
        let given = [("com.example:note", "new"), (property, value)];
        let refused = bench.set(name, &given).unwrap_err();
        assert_eq!(refused.reason, reason, "{name} {property}");
        assert_eq!(refused.action, format!("cannot set property for '{name}'"));
    }
    let given = [("userobjquota@5", "5"), ("groupquota@0", "big")];
    bench.set("tank/a", &given).unwrap_err();
    assert_eq!(bench.number("tank/a", "userobjquota@5"), 0);
    let refused = owners(&bench, &call(""), "tank/v").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "operation is only applicable to filesystems and their snapshots"
    );
    assert_eq!(seen(&bench, &call(""), "tank/v", "userused@0"), None);
    assert_eq!(
        seen(&bench, &call(""), "tank/a", "userused@nobody-here"),
        None
    );
    let refused = owners(&bench, &call(""), "tank/none").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot open 'tank/none': dataset does not exist"
    );
}

fn mount(bench: &Bench, name: &str) {
    let mount = Mount {
        name: Some(name.to_string()),
        ..Mount::default()
    };
    bench.administrator.dataset_mount(&call(""), mount).unwrap();
}

fn enable_features(bench: &Bench) {
    let upgrade = Upgrade {
        names: vec!["tank".to_string()],
        ..Upgrade::default()
    };
    bench
        .administrator
        .pool_upgrade(&call(""), upgrade)
        .unwrap();
}

/// Root's number of objects, straight from the counts; none where objects are not counted.
fn objects_of_root(bench: &Bench, name: &str) -> Option<u64> {
    let all = owners(bench, &call(""), name).unwrap();
    row(&all, OwnerKind::User, 0).and_then(|row| row.objects_used)
}

/// Objects are counted in the background.
fn wait_until_counted(bench: &Bench, name: &str) -> u64 {
    let begun = std::time::Instant::now();
    loop {
        if let Some(objects) = objects_of_root(bench, name) {
            return objects;
        }
        assert!(begun.elapsed().as_secs() < 60, "{name} is not counted");
        std::thread::yield_now();
    }
}

/// A file system with files of root and of another user, from before the features were enabled.
fn old_file_system(bench: &Bench, name: &str) {
    bench.create(name, &[("compression", "off")]).unwrap();
    let path = format!("/{name}");
    for file in 0..40 {
        bench.write(&path, &format!("f{file}"), 3000).unwrap();
    }
    for file in 0..10 {
        give(bench, &path, &format!("f{file}"), &user(7));
    }
    bench.sync();
}

#[test]
fn objects_of_an_old_file_system_are_counted_when_it_is_mounted_anew() {
    let bench = Bench::without_features();
    let expected = {
        let new = Bench::new();
        old_file_system(&new, "tank/a");
        let all = owners(&new, &call(""), "tank/a").unwrap();
        let of = |kind, id| row(&all, kind, id).and_then(|row| row.objects_used);
        (
            of(OwnerKind::User, 0),
            of(OwnerKind::User, 7),
            of(OwnerKind::Project, 0),
        )
    };
    for name in ["tank/a", "tank/b", "tank/c"] {
        old_file_system(&bench, name);
        unmount(&bench, name);
        mount(&bench, name);
        assert_eq!(objects_of_root(&bench, name), None);
    }
    let bytes_of_7 = bench.number("tank/a", "userused@7");
    enable_features(&bench);
    // It was not mounted or changed since.
    assert_eq!(objects_of_root(&bench, "tank/a"), None);
    unmount(&bench, "tank/a");
    mount(&bench, "tank/a");
    wait_until_counted(&bench, "tank/a");
    bench.sync();
    let all = owners(&bench, &call(""), "tank/a").unwrap();
    let of = |kind, id| row(&all, kind, id).and_then(|row| row.objects_used);
    let counted = (
        of(OwnerKind::User, 0),
        of(OwnerKind::User, 7),
        of(OwnerKind::Project, 0),
    );
    assert_eq!(counted, expected);
    assert_eq!(bench.number("tank/a", "userused@7"), bytes_of_7);
    let used = |kind, id| row(&all, kind, id).and_then(|row| row.used).unwrap_or(0);
    assert_eq!(
        used(OwnerKind::Project, 0),
        used(OwnerKind::User, 0) + used(OwnerKind::User, 7)
    );
    // Creating a file starts the counting, too.
    assert_eq!(objects_of_root(&bench, "tank/b"), None);
    bench.write("/tank/b", "new", 100).unwrap();
    bench.sync();
    assert_eq!(
        wait_until_counted(&bench, "tank/b"),
        expected.0.unwrap() + 1
    );
    // So does setting the version, which waits for it.
    bench.set("tank/c", &[("version", "current")]).unwrap();
    assert_eq!(objects_of_root(&bench, "tank/c"), expected.0);
    assert_eq!(objects_of_root(&bench, "tank"), None);
}

#[test]
fn a_file_of_an_old_file_system_gets_a_project_and_is_counted_for_it() {
    let bench = Bench::without_features();
    old_file_system(&bench, "tank/a");
    let project = SetAttributes {
        project: Some(100),
        ..SetAttributes::default()
    };
    let set = |name: &str| {
        let tree = bench.tree("/tank/a");
        let (files, operation) = (tree.files(), Operation::unmeasured());
        let root = Credentials::root();
        let found = files.lookup(&root, files.root(), name.as_bytes(), &operation);
        let id = found.unwrap().id;
        files
            .set_attributes(&root, id, &project, &operation)
            .map(drop)
    };
    assert!(set("f1").is_err());
    assert!(bench.set("tank/a", &[("projectquota@100", "1M")]).is_err());
    enable_features(&bench);
    let before = bench.number("tank/a", "userused@7");
    set("f1").unwrap();
    wait_until_counted(&bench, "tank/a");
    bench.sync();
    assert_eq!(
        seen(&bench, &call(""), "tank/a", "projectobjused@100"),
        Some(1)
    );
    assert_eq!(bench.number("tank/a", "userused@7"), before);
    let of_project = bench.number("tank/a", "projectused@100");
    assert!(of_project > 3000, "{of_project}");
    let (all, users) = (
        bench.number("tank/a", "projectused@0") + of_project,
        before + bench.number("tank/a", "userused@0"),
    );
    assert_eq!(all, users);
    bench.set("tank/a", &[("projectquota@100", "1K")]).unwrap();
}
