//! Permissions of users without privilege: reading, and what `zfs allow` delegates to them.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use support::{Bench, call, owned};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    Create, DatasetKind, Describe, Destroy, Diff, Hold, Inherit, MakeBookmark, MakeClone, Mount,
    Promote, Receive, ReceiveNames, Rename, Rollback, Send, Set, Snapshot, Unmount,
};
use tarn_administration::messages::delegation::{Allow, Grant, Holder, ListAllowed, Unallow};
use tarn_administration::messages::pool;
use tarn_administration::messages::{Caller, Refusal, RefusalKind};
use tarn_engine::Pipe;
use tarn_engine::mounts::MountOptions;

const ANN: u32 = 4_000_001;
const STAFF: u32 = 4_000_100;

/// A call by a user other than root, with a group.
fn ann() -> Call {
    Call {
        caller: Caller {
            uid: ANN,
            gid: ANN,
            groups: vec![4_000_099, STAFF],
            ..Caller::default()
        },
        ..call("zfs of ann")
    }
}

fn grant(holder: Holder, scopes: &str, permissions: &str) -> Grant {
    let names = permissions.split(',').filter(|name| !name.is_empty());
    Grant {
        holder,
        local: scopes.contains('l'),
        descendent: scopes.contains('d'),
        permissions: names.map(str::to_string).collect(),
    }
}

fn allow_by(bench: &Bench, by: &Call, name: &str, grant: Grant) -> Result<(), Refusal> {
    let request = Allow {
        name: name.to_string(),
        grants: vec![grant],
    };
    bench.administrator.dataset_allow(by, request).map(drop)
}

fn allow(bench: &Bench, name: &str, holder: Holder, scopes: &str, permissions: &str) {
    allow_by(
        bench,
        &call("zfs allow"),
        name,
        grant(holder, scopes, permissions),
    )
    .unwrap();
}

fn to_ann(bench: &Bench, name: &str, permissions: &str) {
    allow(bench, name, Holder::User(ANN), "ld", permissions);
}

fn unallow_by(bench: &Bench, by: &Call, name: &str, grant: Grant) -> Result<(), Refusal> {
    let request = Unallow {
        name: name.to_string(),
        grants: vec![grant],
        recursive: false,
    };
    bench.administrator.dataset_unallow(by, request).map(drop)
}

fn snapshot(bench: &Bench, by: &Call, name: &str) -> Result<(), Refusal> {
    let request = Snapshot {
        names: vec![name.to_string()],
        ..Snapshot::default()
    };
    bench.administrator.dataset_snapshot(by, request).map(drop)
}

fn destroy(bench: &Bench, by: &Call, name: &str) -> Result<(), Refusal> {
    let request = Destroy {
        name: name.to_string(),
        ..Destroy::default()
    };
    bench.administrator.dataset_destroy(by, request).map(drop)
}

fn create(
    bench: &Bench,
    by: &Call,
    name: &str,
    given: &[(&str, &str)],
) -> Result<Vec<String>, Refusal> {
    let request = Create {
        name: name.to_string(),
        properties: owned(given),
        ..Create::default()
    };
    let created = bench.administrator.dataset_create(by, request)?;
    Ok(created.warnings)
}

fn set(bench: &Bench, by: &Call, name: &str, property: &str, value: &str) -> Result<(), Refusal> {
    let request = Set {
        name: name.to_string(),
        properties: owned(&[(property, value)]),
        no_mount: false,
    };
    bench.administrator.dataset_set(by, request).map(drop)
}

fn names(bench: &Bench, below: &str) -> Vec<String> {
    let describe = Describe {
        names: vec![below.to_string()],
        kinds: vec![
            DatasetKind::Filesystem,
            DatasetKind::Snapshot,
            DatasetKind::Bookmark,
        ],
        properties: vec!["name".to_string()],
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(&ann(), describe)
        .unwrap();
    described.datasets.into_iter().map(|one| one.name).collect()
}

/// The delegated permissions, as lines: `tank/a user 7 ld send,snapshot`.
fn listed(bench: &Bench, name: &str) -> Vec<String> {
    let request = ListAllowed {
        name: name.to_string(),
    };
    let allowed = bench
        .administrator
        .dataset_list_allowed(&ann(), request)
        .unwrap();
    let mut lines = Vec::new();
    for place in allowed.places {
        for grant in place.grants {
            let scope = match (grant.local, grant.descendent) {
                (true, false) => "l",
                (false, true) => "d",
                _ => "-",
            };
            let mut names = grant.permissions;
            names.sort();
            lines.push(format!(
                "{} {:?} {scope} {}",
                place.dataset,
                grant.holder,
                names.join(",")
            ));
        }
    }
    lines.sort();
    lines
}

#[track_caller]
fn denied<T: std::fmt::Debug>(outcome: Result<T, Refusal>) -> String {
    let refusal = outcome.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Denied, "{refusal}");
    refusal.to_string()
}

fn bench() -> Bench {
    let bench = Bench::new();
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        bench.create(name, &[]).unwrap();
    }
    bench
}

#[test]
fn nothing_is_allowed_until_it_is_given_and_after_it_is_taken_back() {
    let bench = bench();
    let refused = denied(snapshot(&bench, &ann(), "tank/a@x"));
    assert_eq!(refused, "cannot create snapshots : permission denied");
    to_ann(&bench, "tank/a", "snapshot");
    snapshot(&bench, &ann(), "tank/a@x").unwrap();
    snapshot(&bench, &ann(), "tank/a/b@x").unwrap();
    denied(snapshot(&bench, &ann(), "tank@x"));
    denied(snapshot(&bench, &ann(), "tank/c@x"));
    let back = grant(Holder::User(ANN), "ld", "snapshot");
    unallow_by(&bench, &call("zfs unallow"), "tank/a", back).unwrap();
    denied(snapshot(&bench, &ann(), "tank/a@y"));
    assert!(listed(&bench, "tank/a").is_empty());
}

#[test]
fn local_permissions_are_not_for_descendents_and_the_other_way_round() {
    let bench = bench();
    let user = Holder::User(ANN);
    allow(&bench, "tank/a", user.clone(), "l", "snapshot");
    snapshot(&bench, &ann(), "tank/a@x").unwrap();
    denied(snapshot(&bench, &ann(), "tank/a/b@x"));
    allow(&bench, "tank/c", user, "d", "snapshot");
    denied(snapshot(&bench, &ann(), "tank/c@x"));
    // All or none are taken.
    let request = Snapshot {
        names: vec!["tank/a@z".to_string()],
        recursive: true,
        ..Snapshot::default()
    };
    denied(bench.administrator.dataset_snapshot(&ann(), request));
}

#[test]
fn groups_everyone_and_sets_give_permissions() {
    let bench = bench();
    allow(&bench, "tank/a", Holder::Group(STAFF), "ld", "snapshot");
    snapshot(&bench, &ann(), "tank/a@group").unwrap();
    allow(&bench, "tank/c", Holder::Everyone, "ld", "@outer");
    denied(snapshot(&bench, &ann(), "tank/c@set"));
    // Defined above, with a set in it.
    allow(
        &bench,
        "tank",
        Holder::Set("@outer".to_string()),
        "",
        "@inner,hold",
    );
    allow(
        &bench,
        "tank",
        Holder::Set("@inner".to_string()),
        "",
        "snapshot",
    );
    snapshot(&bench, &ann(), "tank/c@set").unwrap();
    // The nearest definition counts.
    allow(
        &bench,
        "tank/c",
        Holder::Set("@outer".to_string()),
        "",
        "hold",
    );
    denied(snapshot(&bench, &ann(), "tank/c@nearer"));
    let expected = [
        "tank Set(\"@inner\") - snapshot",
        "tank Set(\"@outer\") - @inner",
        "tank Set(\"@outer\") - hold",
        "tank/c Everyone d @outer",
        "tank/c Everyone l @outer",
        "tank/c Set(\"@outer\") - hold",
    ];
    assert_eq!(listed(&bench, "tank/c"), expected);
}

#[test]
fn creators_get_the_permissions_of_create_time() {
    let bench = bench();
    to_ann(&bench, "tank/a", "create");
    let refused = denied(create(&bench, &ann(), "tank/a/new", &[]));
    assert_eq!(refused, "cannot create 'tank/a/new': permission denied");
    to_ann(&bench, "tank/a", "mount");
    let given = [("compression", "lz4")];
    denied(create(&bench, &ann(), "tank/a/new", &given));
    allow(
        &bench,
        "tank",
        Holder::Creator,
        "",
        "compression,destroy,@kept",
    );
    create(&bench, &ann(), "tank/a/new", &given).unwrap();
    let user = format!("User({ANN})");
    let own = listed(&bench, "tank/a/new");
    assert!(
        own.contains(&format!("tank/a/new {user} l compression,destroy")),
        "{own:?}"
    );
    assert!(
        own.contains(&format!("tank/a/new {user} l @kept")),
        "{own:?}"
    );
    set(&bench, &ann(), "tank/a/new", "compression", "off").unwrap();
    denied(set(&bench, &ann(), "tank/a/b", "compression", "off"));
    bench.set("tank/a/new", &[("canmount", "off")]).unwrap();
    destroy(&bench, &ann(), "tank/a/new").unwrap();
    denied(destroy(&bench, &ann(), "tank/a/b"));
}

#[test]
fn a_snapshot_is_a_descendent_of_its_dataset() {
    let bench = bench();
    let user = || Holder::User(ANN);
    snapshot(&bench, &call("zfs snapshot"), "tank/a@x").unwrap();
    let send = || {
        let (line, callers) = UnixStream::pair().unwrap();
        let sink = tempfile::tempfile().unwrap();
        let call = Call {
            pipe: Some(Pipe::new(sink.into(), line.into()).unwrap()),
            ..ann()
        };
        let request = Send {
            name: "tank/a@x".to_string(),
            ..Send::default()
        };
        let outcome = bench.administrator.dataset_send(&call, request);
        drop(callers);
        outcome
    };
    allow(
        &bench,
        "tank/a",
        user(),
        "l",
        "send,destroy,mount,rename,create",
    );
    assert_eq!(
        denied(send()),
        "warning: cannot send 'tank/a@x': permission denied"
    );
    let refused = denied(destroy(&bench, &ann(), "tank/a@x"));
    assert_eq!(refused, "cannot destroy snapshots: permission denied");
    allow(
        &bench,
        "tank/a",
        user(),
        "d",
        "send,destroy,mount,rename,create",
    );
    send().unwrap();
    let rename = Rename {
        from: "tank/a@x".to_string(),
        to: "tank/a@y".to_string(),
        ..Rename::default()
    };
    bench.administrator.dataset_rename(&ann(), rename).unwrap();
    destroy(&bench, &ann(), "tank/a@y").unwrap();
}

#[test]
fn each_command_needs_its_own_permissions() {
    let bench = bench();
    let administrator = &bench.administrator;
    snapshot(&bench, &call(""), "tank/a@x").unwrap();
    let hold = || Hold {
        name: "tank/a@x".to_string(),
        tag: "mine".to_string(),
        recursive: false,
    };
    denied(administrator.dataset_hold(&ann(), hold()));
    to_ann(&bench, "tank/a", "hold");
    administrator.dataset_hold(&ann(), hold()).unwrap();
    denied(administrator.dataset_release(&ann(), hold()));
    to_ann(&bench, "tank/a", "release");
    administrator.dataset_release(&ann(), hold()).unwrap();

    let bookmark = || MakeBookmark {
        origin: "tank/a@x".to_string(),
        name: "tank/a#m".to_string(),
        ..MakeBookmark::default()
    };
    let refused = denied(administrator.dataset_bookmark(&ann(), bookmark()));
    assert_eq!(
        refused,
        "cannot create bookmark 'tank/a#m': permission denied"
    );
    to_ann(&bench, "tank/a", "bookmark");
    administrator.dataset_bookmark(&ann(), bookmark()).unwrap();
    denied(destroy(&bench, &ann(), "tank/a#m"));

    let clone = || MakeClone {
        origin: "tank/a@x".to_string(),
        name: "tank/a/clone".to_string(),
        ..MakeClone::default()
    };
    to_ann(&bench, "tank/a", "create,mount");
    denied(administrator.dataset_clone(&ann(), clone()));
    to_ann(&bench, "tank/a", "clone");
    administrator.dataset_clone(&ann(), clone()).unwrap();
    let promote = || Promote {
        name: "tank/a/clone".to_string(),
    };
    let refused = denied(administrator.dataset_promote(&ann(), promote()));
    assert_eq!(refused, "cannot promote 'tank/a/clone': permission denied");
    to_ann(&bench, "tank/a", "promote");
    administrator.dataset_promote(&ann(), promote()).unwrap();

    let rollback = || Rollback {
        name: "tank/a/clone@x".to_string(),
        ..Rollback::default()
    };
    let refused = denied(administrator.dataset_rollback(&ann(), rollback()));
    assert_eq!(refused, "cannot rollback 'tank/a/clone': permission denied");

    let inherit = |property: &str| Inherit {
        name: "tank/a".to_string(),
        property: property.to_string(),
        recursive: false,
        received: false,
    };
    denied(set(&bench, &ann(), "tank/a", "com.example:x", "y"));
    denied(administrator.dataset_inherit(&ann(), inherit("com.example:x")));
    to_ann(&bench, "tank/a", "userprop");
    set(&bench, &ann(), "tank/a", "com.example:x", "y").unwrap();
    administrator
        .dataset_inherit(&ann(), inherit("com.example:x"))
        .unwrap();
    let refused = denied(set(&bench, &ann(), "tank/a", "quota", "1G"));
    assert_eq!(
        refused,
        "cannot set property for 'tank/a': permission denied"
    );
    to_ann(&bench, "tank/a", "quota");
    set(&bench, &ann(), "tank/a", "quota", "1G").unwrap();
    denied(set(&bench, &ann(), "tank/a", "userquota@4000001", "1G"));
    to_ann(&bench, "tank/a", "userquota");
    set(&bench, &ann(), "tank/a", "userquota@4000001", "1G").unwrap();
}

#[test]
fn the_permission_diff_shows_changes() {
    let bench = bench();
    snapshot(&bench, &call(""), "tank/a@x").unwrap();
    let diff = |to: Option<&str>| {
        let (line, callers) = UnixStream::pair().unwrap();
        let sink = tempfile::tempfile().unwrap();
        let call = Call {
            pipe: Some(Pipe::new(sink.into(), line.into()).unwrap()),
            ..ann()
        };
        let request = Diff {
            from: "tank/a@x".to_string(),
            to: to.map(str::to_string),
        };
        let outcome = bench.administrator.dataset_diff(&call, request);
        drop(callers);
        outcome
    };
    assert!(denied(diff(None)).starts_with("The diff delegated permission is needed in order\n"));
    to_ann(&bench, "tank/a", "diff");
    diff(None).unwrap();
    let left = names(&bench, "tank/a");
    assert!(
        !left.iter().any(|name| name.contains("zfs-diff")),
        "{left:?}"
    );
}

#[test]
fn a_user_with_allow_delegates_only_own_permissions() {
    let bench = bench();
    let friend = || Holder::User(4_000_002);
    let by = ann();
    let refused = denied(allow_by(
        &bench,
        &by,
        "tank/a",
        grant(friend(), "ld", "send"),
    ));
    assert_eq!(
        refused,
        "cannot set permissions on 'tank/a': permission denied"
    );
    to_ann(&bench, "tank/a", "allow,snapshot");
    denied(allow_by(
        &bench,
        &by,
        "tank/a",
        grant(friend(), "ld", "send"),
    ));
    denied(allow_by(
        &bench,
        &by,
        "tank/a",
        grant(friend(), "ld", "allow"),
    ));
    denied(allow_by(
        &bench,
        &by,
        "tank/c",
        grant(friend(), "ld", "snapshot"),
    ));
    allow_by(&bench, &by, "tank/a", grant(friend(), "ld", "snapshot")).unwrap();
    denied(unallow_by(&bench, &by, "tank/a", grant(friend(), "ld", "")));
    unallow_by(
        &bench,
        &by,
        "tank/a",
        grant(Holder::User(ANN), "ld", "snapshot"),
    )
    .unwrap();
    denied(allow_by(
        &bench,
        &by,
        "tank/a",
        grant(friend(), "ld", "snapshot"),
    ));
}

#[test]
fn unknown_permissions_are_refused() {
    let bench = bench();
    let root = call("zfs allow");
    for names in ["nothing", "used", "@", "send,nothing", "@a/b", ""] {
        let outcome = allow_by(
            &bench,
            &root,
            "tank/a",
            grant(Holder::Everyone, "ld", names),
        );
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "cannot set permissions on 'tank/a': operation not applicable to datasets of this type",
            "{names}"
        );
    }
    let outcome = allow_by(
        &bench,
        &root,
        "tank/x",
        grant(Holder::Everyone, "ld", "send"),
    );
    let refused = outcome.unwrap_err().to_string();
    assert_eq!(refused, "cannot open 'tank/x': dataset does not exist");
}

#[test]
fn all_is_taken_back_at_once_and_below() {
    let bench = bench();
    for name in ["tank/a", "tank/a/b"] {
        to_ann(&bench, name, "send,@set,hold");
        allow(&bench, name, Holder::Everyone, "l", "mount");
    }
    let request = Unallow {
        name: "tank/a".to_string(),
        grants: vec![grant(Holder::User(ANN), "ld", "")],
        recursive: true,
    };
    bench
        .administrator
        .dataset_unallow(&call("zfs unallow"), request)
        .unwrap();
    let expected = ["tank/a Everyone l mount", "tank/a/b Everyone l mount"];
    assert_eq!(listed(&bench, "tank/a/b"), expected);
}

#[test]
fn with_delegation_off_nothing_is_delegated() {
    let bench = bench();
    to_ann(&bench, "tank/a", "snapshot");
    let turn = |value: &str| {
        let set = pool::Set {
            name: "tank".to_string(),
            property: "delegation".to_string(),
            value: value.to_string(),
        };
        bench
            .administrator
            .pool_set(&call("zpool set"), set)
            .unwrap();
    };
    turn("off");
    assert_eq!(
        denied(snapshot(&bench, &ann(), "tank/a@x")),
        "cannot create snapshots : delegated administration is disabled on pool"
    );
    snapshot(&bench, &call(""), "tank/a@x").unwrap();
    turn("on");
    snapshot(&bench, &ann(), "tank/a@y").unwrap();
}

#[test]
fn limits_bind_users_without_permission_to_change_them() {
    let bench = bench();
    to_ann(&bench, "tank/a", "snapshot,create,mount");
    bench
        .set(
            "tank/a",
            &[("snapshot_limit", "2"), ("filesystem_limit", "2")],
        )
        .unwrap();
    snapshot(&bench, &ann(), "tank/a@1").unwrap();
    snapshot(&bench, &ann(), "tank/a/b@2").unwrap();
    let refused = snapshot(&bench, &ann(), "tank/a@3").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot create snapshot 'tank/a@3': out of space"
    );
    assert_eq!(refused.kind, RefusalKind::NoSpace);
    snapshot(&bench, &call(""), "tank/a@root").unwrap();
    create(&bench, &ann(), "tank/a/one", &[]).unwrap();
    let refused = create(&bench, &ann(), "tank/a/two", &[]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot create 'tank/a/two': out of space"
    );
    // A limit does not bind a user with permission to change it; limits above do.
    allow(
        &bench,
        "tank/a/b",
        Holder::User(ANN),
        "ld",
        "snapshot_limit",
    );
    bench.set("tank/a/b", &[("snapshot_limit", "0")]).unwrap();
    assert!(snapshot(&bench, &ann(), "tank/a/b@3").is_err());
    bench.set("tank/a", &[("snapshot_limit", "none")]).unwrap();
    snapshot(&bench, &ann(), "tank/a/b@3").unwrap();
}

/// A promotion gives the clone the snapshots up to its origin. Where both are below a limit, they
/// counted there before.
#[test]
fn a_promotion_is_bound_by_the_limit_on_snapshots() {
    let bench = bench();
    let promote = |name: &str| {
        let name = name.to_string();
        bench
            .administrator
            .dataset_promote(&ann(), Promote { name })
    };
    for name in ["tank/a@1", "tank/a@2", "tank/a@3"] {
        snapshot(&bench, &call(""), name).unwrap();
    }
    create(&bench, &call(""), "tank/other", &[]).unwrap();
    let clone = |origin: &str, name: &str| {
        let request = MakeClone {
            origin: origin.to_string(),
            name: name.to_string(),
            ..MakeClone::default()
        };
        bench
            .administrator
            .dataset_clone(&call(""), request)
            .unwrap();
    };
    clone("tank/a@2", "tank/other/clone");
    to_ann(&bench, "tank/a", "promote,mount");
    to_ann(&bench, "tank/other", "promote,mount");
    bench.set("tank/other", &[("snapshot_limit", "1")]).unwrap();
    bench.set("tank/a", &[("snapshot_limit", "3")]).unwrap();
    let refused = promote("tank/other/clone").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot promote 'tank/other/clone': out of space"
    );
    assert_eq!(refused.kind, RefusalKind::NoSpace);
    bench.set("tank/other", &[("snapshot_limit", "2")]).unwrap();
    promote("tank/other/clone").unwrap();
    // Below its own limit the snapshots counted already; below the other they did not.
    snapshot(&bench, &call(""), "tank/a@4").unwrap();
    clone("tank/a@4", "tank/a/below");
    bench
        .set("tank/a/below", &[("snapshot_limit", "1")])
        .unwrap();
    promote("tank/a/below").unwrap_err();
    bench
        .set("tank/a/below", &[("snapshot_limit", "2")])
        .unwrap();
    bench.set("tank/a", &[("snapshot_limit", "1")]).unwrap();
    promote("tank/a/below").unwrap();
}

#[test]
fn users_mount_only_on_harmless_folders() {
    let bench = bench();
    let administrator = &bench.administrator;
    let mount = |name: &str| Mount {
        name: Some(name.to_string()),
        ..Mount::default()
    };
    let unmount = |name: &str| Unmount {
        name: Some(name.to_string()),
        ..Unmount::default()
    };
    let refused = denied(administrator.dataset_unmount(&ann(), unmount("tank/a/b")));
    assert_eq!(refused, "cannot unmount 'tank/a/b': permission denied");
    administrator
        .dataset_unmount(&call(""), unmount("tank/a/b"))
        .unwrap();
    let refused = denied(administrator.dataset_mount(&ann(), mount("tank/a/b")));
    assert_eq!(refused, "cannot mount 'tank/a/b': Insufficient privileges");
    to_ann(&bench, "tank/a", "mount,create,mountpoint,rename");
    administrator
        .dataset_mount(&ann(), mount("tank/a/b"))
        .unwrap();
    let options = bench.notebook.mounts.lock().unwrap()[&bench.path("/tank/a/b")].options;
    assert!(!options.setuid && !options.devices);
    administrator
        .dataset_unmount(&ann(), unmount("tank/a/b"))
        .unwrap();
    // Elsewhere it would cover contents.
    let elsewhere = bench.path("/elsewhere").display().to_string();
    set(&bench, &ann(), "tank/a/b", "mountpoint", &elsewhere).unwrap();
    denied(administrator.dataset_mount(&ann(), mount("tank/a/b")));
    let warnings = create(&bench, &ann(), "tank/a/new", &[]).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let rename = Rename {
        from: "tank/a/new".to_string(),
        to: "tank/a/newer".to_string(),
        ..Rename::default()
    };
    denied(administrator.dataset_rename(&ann(), rename));
    denied(administrator.dataset_mount(&ann(), Mount::default()));
}

#[test]
fn creating_parents_needs_permission() {
    let bench = bench();
    bench.create("tank/to", &[]).unwrap();
    snapshot(&bench, &call(""), "tank/a@1").unwrap();
    let with_parents = |name: &str, given: &[(&str, &str)]| {
        let request = Create {
            name: name.to_string(),
            properties: owned(given),
            parents: true,
            ..Create::default()
        };
        bench
            .administrator
            .dataset_create(&ann(), request)
            .map(drop)
    };
    let clone = |name: &str| {
        let request = MakeClone {
            origin: "tank/a@1".to_string(),
            name: name.to_string(),
            parents: true,
            ..MakeClone::default()
        };
        bench.administrator.dataset_clone(&ann(), request).map(drop)
    };
    let rename = |from: &str, to: &str| {
        let request = Rename {
            from: from.to_string(),
            to: to.to_string(),
            parents: true,
            ..Rename::default()
        };
        bench
            .administrator
            .dataset_rename(&ann(), request)
            .map(drop)
    };
    allow(&bench, "tank/to", Holder::User(ANN), "l", "create,mount");
    to_ann(&bench, "tank/a", "clone,rename,mount");
    let before = bench.names();
    let refused = denied(with_parents("tank/to/x/y", &[]));
    assert_eq!(refused, "cannot create 'tank/to/x/y': permission denied");
    denied(clone("tank/to/x/y"));
    denied(rename("tank/a/b", "tank/to/x/y"));
    assert_eq!(bench.names(), before);
    with_parents("tank/to/x", &[]).unwrap();
    // The creator's permissions suffice for datasets below.
    allow(
        &bench,
        "tank/to",
        Holder::Creator,
        "",
        "create,mount,compression",
    );
    let compressed = [("compression", "lz4")];
    with_parents("tank/to/one/two/three", &compressed).unwrap();
    denied(with_parents("tank/to/four/five", &[("atime", "off")]));
    clone("tank/to/six/seven").unwrap();
    assert!(!bench.names().contains(&"tank/to/four".to_string()));
}

fn roll_back(bench: &Bench, by: &Call, name: &str) -> Result<(), Refusal> {
    let request = Rollback {
        name: name.to_string(),
        ..Rollback::default()
    };
    bench.administrator.dataset_rollback(by, request).map(drop)
}

fn options(bench: &Bench, path: &str) -> MountOptions {
    bench.notebook.mounts.lock().unwrap()[&bench.path(path)].options
}

#[test]
fn a_remount_after_a_change_keeps_the_mount_options() {
    let bench = bench();
    let root = call("");
    let administrator = &bench.administrator;
    for name in ["tank/a/b@1", "tank/c@1"] {
        snapshot(&bench, &root, name).unwrap();
    }
    let unmount = |name: &str| {
        let request = Unmount {
            name: Some(name.to_string()),
            ..Unmount::default()
        };
        administrator.dataset_unmount(&root, request).unwrap();
    };
    let mount = |by: &Call, name: &str, options: &[&str]| {
        let request = Mount {
            name: Some(name.to_string()),
            options: options.iter().map(|one| (*one).to_string()).collect(),
            ..Mount::default()
        };
        administrator.dataset_mount(by, request).unwrap();
    };
    to_ann(&bench, "tank", "mount,rollback,setuid,devices");
    unmount("tank/c");
    mount(&root, "tank/c", &["ro,noexec"]);
    roll_back(&bench, &root, "tank/c@1").unwrap();
    let kept = options(&bench, "/tank/c");
    assert!(kept.read_only && !kept.exec && kept.setuid && kept.devices);
    unmount("tank/a/b");
    mount(&ann(), "tank/a/b", &[]);
    roll_back(&bench, &root, "tank/a/b@1").unwrap();
    let is_harmless = |path| {
        let options = options(&bench, path);
        !options.setuid && !options.devices
    };
    assert!(is_harmless("/tank/a/b"));
    // Ann cannot change options that her mount was made without.
    for property in ["setuid", "devices"] {
        set(&bench, &ann(), "tank/a/b", property, "on").unwrap();
        assert!(is_harmless("/tank/a/b"), "{property}");
    }
    // A file system that Ann mounted keeps her options, whichever user mounts it again.
    roll_back(&bench, &ann(), "tank/c@1").unwrap();
    assert!(is_harmless("/tank/c"));
    assert!(options(&bench, "/tank/c").read_only);
    // Root can.
    set(&bench, &root, "tank/c", "setuid", "on").unwrap();
    assert!(options(&bench, "/tank/c").setuid);
}

#[test]
fn a_users_rollback_remounts_only_on_the_same_folder() {
    let bench = bench();
    to_ann(&bench, "tank", "mount,rollback");
    for name in ["tank/a/b@1", "tank/c@1"] {
        snapshot(&bench, &call(""), name).unwrap();
    }
    let (b, c) = (bench.path("/tank/a/b"), bench.path("/tank/c"));
    let victim = bench.path("/victim");
    std::fs::create_dir(&victim).unwrap();
    // After the unmount there is a link in its place.
    bench.notebook.then_links_to(&b, &victim);
    let refused = denied(roll_back(&bench, &ann(), "tank/a/b@1"));
    let leads = format!("{} leads to {}", b.display(), victim.display());
    assert_eq!(refused, format!("cannot mount 'tank/a/b': {leads}"));
    // Or other users can put one there.
    bench.notebook.then_is_open_to_all(&bench.path("/tank"));
    let refused = denied(roll_back(&bench, &ann(), "tank/c@1"));
    let reason = format!("others can lead {} elsewhere", c.display());
    assert_eq!(refused, format!("cannot mount 'tank/c': {reason}"));
    assert_eq!(bench.mounted(), ["/tank", "/tank/a"]);
    // A privileged user mounts it.
    let mount = Mount::default();
    bench.administrator.dataset_mount(&call(""), mount).unwrap();
    assert_eq!(bench.mounted(), ["/tank", "/tank/a", "/tank/c"]);
}

#[test]
fn a_user_unmounts_a_file_system_that_the_user_owns() {
    let bench = bench();
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return; // Only root gives a folder away.
    }
    to_ann(&bench, "tank/a", "create,mount,destroy,rollback");
    // The root of a file system that Ann creates is hers.
    *bench.notebook.owner.lock().unwrap() = Some(ANN);
    create(&bench, &ann(), "tank/a/hers", &[]).unwrap();
    let path = bench.path("/tank/a/hers");
    assert_eq!(std::fs::metadata(&path).unwrap().uid(), ANN);
    snapshot(&bench, &call(""), "tank/a/hers@1").unwrap();
    roll_back(&bench, &ann(), "tank/a/hers@1").unwrap();
    assert!(bench.mounted().contains(&"/tank/a/hers".to_string()));
    let administrator = &bench.administrator;
    let name = Some("tank/a/hers".to_string());
    let unmount = Unmount {
        name: name.clone(),
        ..Unmount::default()
    };
    administrator
        .dataset_unmount(&ann(), unmount.clone())
        .unwrap();
    let mount = Mount {
        name,
        ..Mount::default()
    };
    administrator.dataset_mount(&ann(), mount).unwrap();
    // Other users could replace it.
    let mode = |mode| {
        let folder = bench.path("/tank/a");
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o777);
    denied(administrator.dataset_unmount(&ann(), unmount));
    denied(roll_back(&bench, &ann(), "tank/a/hers@1"));
    mode(0o755);
    let destroyed = Destroy {
        name: "tank/a/hers".to_string(),
        recursive: true,
        ..Destroy::default()
    };
    administrator.dataset_destroy(&ann(), destroyed).unwrap();
    assert!(!path.exists());
}

#[test]
fn without_permission_to_receive_no_parents_are_created() {
    let bench = Bench::new();
    for name in ["tank/x", "tank/x/y", "tank/x/y/a"] {
        bench.create(name, &[]).unwrap();
    }
    snapshot(&bench, &call(""), "tank/x/y/a@one").unwrap();
    let stream = || {
        let mut file = tempfile::tempfile().unwrap();
        let (line, _callers) = UnixStream::pair().unwrap();
        let pipe = Pipe::new(file.try_clone().unwrap().into(), line.into()).unwrap();
        let sending = Call {
            pipe: Some(pipe),
            ..call("")
        };
        let request = Send {
            name: "tank/x/y/a@one".to_string(),
            ..Send::default()
        };
        bench.administrator.dataset_send(&sending, request).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        file
    };
    let receive = || {
        let (line, _callers) = UnixStream::pair().unwrap();
        let by_ann = Call {
            pipe: Some(Pipe::new(stream().into(), line.into()).unwrap()),
            ..ann()
        };
        let request = Receive {
            target: "tank/to/the".to_string(),
            names: ReceiveNames::AllButPool,
            ..Receive::default()
        };
        bench.administrator.dataset_receive(&by_ann, request)
    };
    bench.create("tank/to", &[]).unwrap();
    bench.create("tank/to/the", &[]).unwrap();
    let before = bench.names();
    let history = || {
        let request = pool::History {
            name: "tank".to_string(),
        };
        format!(
            "{:?}",
            bench
                .administrator
                .pool_history(&call(""), request)
                .unwrap()
        )
    };
    let recorded = history();
    assert_eq!(receive().unwrap_err().kind, RefusalKind::Denied);
    assert_eq!(bench.names(), before);
    assert_eq!(history(), recorded, "what was denied is not in the history");
    to_ann(&bench, "tank/to/the", "receive,create,mount");
    receive().unwrap();
    assert!(bench.names().contains(&"tank/to/the/x/y/a".to_string()));
}

#[test]
fn the_reservation_of_a_volume_needs_its_permission() {
    let bench = bench();
    let volume = |name: &str, sparse| {
        let request = Create {
            name: name.to_string(),
            volume_bytes: Some(1 << 20),
            properties: owned(&[("volblocksize", "8K")]),
            sparse,
            ..Create::default()
        };
        bench
            .administrator
            .dataset_create(&ann(), request)
            .map(drop)
    };
    to_ann(&bench, "tank/a", "create,mount,volsize");
    let refused = denied(volume("tank/a/v", false));
    assert_eq!(refused, "cannot create 'tank/a/v': permission denied");
    volume("tank/a/sparse", true).unwrap();
    set(&bench, &ann(), "tank/a/sparse", "volsize", "2M").unwrap();
    to_ann(&bench, "tank/a", "refreservation");
    volume("tank/a/v", false).unwrap();
    let grant = grant(Holder::User(ANN), "ld", "refreservation");
    unallow_by(&bench, &call(""), "tank/a", grant).unwrap();
    let refused = denied(set(&bench, &ann(), "tank/a/v", "volsize", "2M"));
    assert_eq!(
        refused,
        "cannot set property for 'tank/a/v': permission denied"
    );
}
