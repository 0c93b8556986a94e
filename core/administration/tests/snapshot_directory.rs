//! `.zfs/snapshot`: mkdir, rmdir and rename take, destroy and rename snapshots.

mod support;

use std::sync::Arc;
use support::{Bench, call};
use tarn_administration::administration::Administration;
use tarn_administration::messages::dataset::{DatasetKind, Describe, Hold, MakeClone};
use tarn_administration::messages::delegation::{Allow, Grant, Holder};
use tarn_administration::messages::pool;
use tarn_engine::files::{
    CheckedByCaller, ControlEntry, Credentials, DeviceNumber, FileKind, NewFile, Operation,
    RenameMode, Tree,
};

const ANN: u32 = 4_000_001;

struct Directory {
    tree: Arc<dyn Tree>,
    who: Credentials,
    operation: Operation,
}

impl Directory {
    fn of(bench: &Bench, path: &str, who: Credentials) -> Directory {
        Directory {
            tree: bench.tree(path),
            who,
            operation: Operation::unmeasured(),
        }
    }

    fn make(&self, name: &str, kind: FileKind) -> Result<(), i32> {
        let new = NewFile {
            kind,
            permissions: 0o755,
            umask: 0,
            device: DeviceNumber::default(),
            target: None,
        };
        let parent = ControlEntry::Snapshots.id();
        let files = self.tree.files();
        let made = files.create(&self.who, parent, name.as_bytes(), &new, &self.operation);
        match made {
            Ok(made) => {
                assert!(matches!(
                    ControlEntry::of(made.id),
                    Some(ControlEntry::Snapshot(_))
                ));
                Ok(())
            }
            Err(error) => Err(error.errno()),
        }
    }

    fn take(&self, name: &str) -> Result<(), i32> {
        self.make(name, FileKind::Directory)
    }

    fn destroy(&self, name: &str) -> Result<(), i32> {
        let parent = ControlEntry::Snapshots.id();
        let files = self.tree.files();
        let removed = files.remove_directory(&self.who, parent, name.as_bytes(), &self.operation);
        removed.map_err(|error| error.errno())
    }

    fn rename_to(&self, from: &str, to: &str, within: bool, mode: RenameMode) -> Result<(), i32> {
        let parent = ControlEntry::Snapshots.id();
        let files = self.tree.files();
        let to_parent = if within { parent } else { files.root() };
        let renamed = files.rename(
            &self.who,
            parent,
            from.as_bytes(),
            to_parent,
            to.as_bytes(),
            mode,
            &self.operation,
        );
        renamed.map_err(|error| error.errno())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), i32> {
        self.rename_to(from, to, true, RenameMode::Replace)
    }
}

fn ann() -> Credentials {
    Credentials {
        checked: CheckedByCaller::ModeAndPosixAcls,
        ..Credentials::user(ANN, ANN, Vec::new())
    }
}

fn snapshots(bench: &Bench, name: &str) -> Vec<String> {
    let describe = Describe {
        names: vec![name.to_string()],
        kinds: vec![DatasetKind::Snapshot],
        properties: vec!["name".to_string()],
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(&call(""), describe)
        .unwrap();
    let names = described.datasets.into_iter().map(|one| one.name);
    names.filter(|name| name.contains('@')).collect()
}

/// The internal events in the pool's history.
fn events(bench: &Bench) -> Vec<String> {
    let request = pool::History {
        name: "tank".to_string(),
    };
    let history = bench
        .administrator
        .pool_history(&call(""), request)
        .unwrap();
    let records = history.records.into_iter().filter(|record| {
        let dataset = record.dataset.as_deref().unwrap_or_default();
        dataset.starts_with("tank/a@")
    });
    records.filter_map(|record| record.internal_name).collect()
}

fn bench() -> (Bench, Directory) {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "file", 1000).unwrap();
    let directory = Directory::of(&bench, "/tank/a", Credentials::root());
    (bench, directory)
}

#[test]
fn mkdir_takes_and_rmdir_destroys_a_snapshot() {
    let (bench, directory) = bench();
    directory.take("one").unwrap();
    directory.take("two").unwrap();
    assert_eq!(snapshots(&bench, "tank/a"), ["tank/a@one", "tank/a@two"]);
    let entered = directory
        .tree
        .snapshot(b"one", &directory.operation)
        .unwrap();
    let entered = entered.files();
    let found = entered.lookup(
        &directory.who,
        entered.root(),
        b"file",
        &directory.operation,
    );
    let file = found.unwrap().id;
    directory.rename("one", "uno").unwrap();
    directory.rename("uno", "uno").unwrap();
    // A file of it is open.
    entered.opened(file, &directory.operation).unwrap();
    assert_eq!(directory.destroy("uno"), Err(libc::EBUSY));
    entered.closed(file, &directory.operation).unwrap();
    directory.destroy("uno").unwrap();
    assert!(entered.is_ending());
    assert_eq!(snapshots(&bench, "tank/a"), ["tank/a@two"]);
    assert_eq!(
        events(&bench),
        ["snapshot", "snapshot", "rename", "destroy"]
    );
}

#[test]
fn a_snapshot_is_taken_of_the_mounted_dataset_after_a_rename() {
    let (bench, directory) = bench();
    bench.set("tank/a", &[("mountpoint", "/own")]).unwrap();
    bench.rename("tank/a", "tank/b").unwrap();
    bench.create("tank/a", &[]).unwrap();
    let directory = Directory::of(&bench, "/own", directory.who);
    directory.take("one").unwrap();
    assert_eq!(snapshots(&bench, "tank/b"), ["tank/b@one"]);
    assert!(snapshots(&bench, "tank/a").is_empty());
}

#[test]
fn refusals_are_those_of_openzfs() {
    let (bench, directory) = bench();
    directory.take("one").unwrap();
    directory.take("two").unwrap();
    assert_eq!(directory.take("one"), Err(libc::EEXIST));
    for name in ["a/b", "a%b", "a@b", "", "über"] {
        assert_eq!(directory.take(name), Err(libc::EILSEQ), "{name}");
    }
    assert_eq!(directory.take(&"n".repeat(255)), Err(libc::ENAMETOOLONG));
    assert_eq!(directory.make("file", FileKind::Regular), Err(libc::EACCES));
    assert_eq!(directory.make("fifo", FileKind::Fifo), Err(libc::EPERM));
    assert_eq!(directory.destroy("none"), Err(libc::ENOENT));
    assert_eq!(directory.rename("none", "some"), Err(libc::ENOENT));
    assert_eq!(directory.rename("one", "two"), Err(libc::EEXIST));
    assert_eq!(directory.rename("one", "a%"), Err(libc::EILSEQ));
    let out = directory.rename_to("one", "out", false, RenameMode::Replace);
    assert_eq!(out, Err(libc::EINVAL));
    let flags = directory.rename_to("one", "three", true, RenameMode::NoReplace);
    assert_eq!(flags, Err(libc::EINVAL));
    let files = directory.tree.files();
    let into = files.rename(
        &directory.who,
        files.root(),
        b"file",
        ControlEntry::Snapshots.id(),
        b"file",
        RenameMode::Replace,
        &directory.operation,
    );
    assert_eq!(into.unwrap_err().errno(), libc::EXDEV);
    let hold = Hold {
        name: "tank/a@one".to_string(),
        tag: "kept".to_string(),
        recursive: false,
    };
    bench.administrator.dataset_hold(&call(""), hold).unwrap();
    assert_eq!(directory.destroy("one"), Err(libc::EBUSY));
    let clone = MakeClone {
        origin: "tank/a@two".to_string(),
        name: "tank/clone".to_string(),
        ..MakeClone::default()
    };
    bench.administrator.dataset_clone(&call(""), clone).unwrap();
    assert_eq!(directory.destroy("two"), Err(libc::EEXIST));
    bench.set("tank/a", &[("readonly", "on")]).unwrap();
    assert_eq!(directory.take("three"), Err(libc::EROFS));
}

#[test]
fn users_need_the_permissions_of_the_command() {
    let (bench, directory) = bench();
    directory.take("one").unwrap();
    let own = Directory::of(&bench, "/tank/a", ann());
    let give = |local, descendent, names: &str| {
        let request = Allow {
            name: "tank/a".to_string(),
            grants: vec![Grant {
                holder: Holder::User(ANN),
                local,
                descendent,
                permissions: names.split(',').map(str::to_string).collect(),
            }],
        };
        bench
            .administrator
            .dataset_allow(&call("zfs allow"), request)
            .unwrap();
    };
    assert_eq!(own.take("two"), Err(libc::EPERM));
    assert_eq!(own.destroy("one"), Err(libc::EPERM));
    assert_eq!(own.rename("one", "uno"), Err(libc::EPERM));
    give(true, false, "snapshot,create,mount,destroy");
    own.take("two").unwrap();
    assert_eq!(own.destroy("two"), Err(libc::EPERM));
    give(false, true, "destroy,mount");
    own.destroy("two").unwrap();
    assert_eq!(own.rename("one", "uno"), Err(libc::EPERM));
    give(false, true, "rename");
    own.rename("one", "uno").unwrap();
    bench.set("tank/a", &[("snapshot_limit", "1")]).unwrap();
    assert_eq!(own.take("two"), Err(libc::EDQUOT));
    directory.take("two").unwrap();
    let off = pool::Set {
        name: "tank".to_string(),
        property: "delegation".to_string(),
        value: "off".to_string(),
    };
    bench
        .administrator
        .pool_set(&call("zpool set"), off)
        .unwrap();
    assert_eq!(own.take("three"), Err(libc::ECANCELED));
}
