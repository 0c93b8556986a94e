//! Datasets through the administration: made, changed, renamed, destroyed, and what is mounted meanwhile. The pool is on a file; mounts are
//! only noted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tarn_engine::administration::{Administration, Call};
use tarn_engine::engine::{Engine, EngineOptions};
use tarn_engine::files::{Credentials, DeviceNumber, FileKind, NewFile, Operation, WriteAt};
use tarn_engine::instance::Instance;
use tarn_engine::messages::dataset::{
    Create, DatasetKind, Describe, Destroy, Inherit, Rename, Set, Upgrade,
};
use tarn_engine::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_engine::messages::{Refusal, Source, Value};
use tarn_engine::mounts::{MountKey, MountOptions, MountRefusal, MountRequest, Mounter};
use tarn_engine::{Host, RealOptions, files::Tree};
use tempfile::TempDir;

/// A mount that was asked for.
struct Noted {
    source: String,
    options: MountOptions,
    tree: Arc<dyn Tree>,
}

/// Notes mounts, and makes none.
#[derive(Default)]
struct Notebook {
    mounts: Mutex<BTreeMap<PathBuf, Noted>>,
    busy: Mutex<BTreeSet<PathBuf>>,
}

impl Mounter for Notebook {
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal> {
        let noted = Noted {
            source: request.source.to_string(),
            options: request.options,
            tree: request.tree,
        };
        let path = request.path.to_path_buf();
        self.mounts.lock().unwrap().insert(path, noted);
        Ok(MountKey(1))
    }

    fn unmount(&self, _: MountKey, path: &Path, force: bool) -> Result<(), MountRefusal> {
        if !force && self.busy.lock().unwrap().contains(path) {
            return Err(MountRefusal::Busy);
        }
        self.mounts.lock().unwrap().remove(path);
        Ok(())
    }

    fn abandon(&self, mounts: &[(MountKey, &Path)]) {
        for (key, path) in mounts {
            let _ = self.unmount(*key, path, true);
        }
    }

    fn change_options(
        &self,
        _: MountKey,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal> {
        if let Some(noted) = self.mounts.lock().unwrap().get_mut(path) {
            noted.options = options;
        }
        Ok(())
    }

    fn clear_remains(&self, _: &Path) {}
}

/// An engine with one pool.
struct Bench {
    engine: Arc<Engine>,
    notebook: Arc<Notebook>,
    folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        std::fs::File::create(&disk)
            .unwrap()
            .set_len(128 << 20)
            .unwrap();
        let notebook = Arc::new(Notebook::default());
        let engine = Engine::new(
            Host::real(RealOptions::default()),
            Instance::at(folder.path()),
            notebook.clone(),
            EngineOptions {
                cache_bytes: Some(64 << 20),
            },
        );
        let bench = Bench {
            engine,
            notebook,
            folder,
        };
        let create = pool::Create {
            name: "tank".to_string(),
            altroot: Some(bench.root()),
            vdevs: vec![VdevSpec {
                kind: VdevKind::Leaf,
                path: Some(disk.display().to_string()),
                children: Vec::new(),
                role: VdevRole::Data,
            }],
            ..pool::Create::default()
        };
        bench
            .engine
            .pool_create(&call("zpool create"), create)
            .unwrap();
        bench
    }

    fn root(&self) -> String {
        self.folder.path().join("mnt").display().to_string()
    }

    /// A path below the alternate root.
    fn path(&self, below: &str) -> PathBuf {
        PathBuf::from(format!("{}{below}", self.root()))
    }

    fn create(&self, name: &str, properties: &[(&str, &str)]) -> Result<(), Refusal> {
        let create = Create {
            name: name.to_string(),
            properties: owned(properties),
            ..Create::default()
        };
        let created = self.engine.dataset_create(&call("zfs create"), create)?;
        assert_eq!(created.warnings, Vec::<String>::new());
        Ok(())
    }

    fn set(&self, name: &str, properties: &[(&str, &str)]) -> Result<(), Refusal> {
        let set = Set {
            name: name.to_string(),
            properties: owned(properties),
            no_mount: false,
        };
        self.engine.dataset_set(&call("zfs set"), set).map(|_| ())
    }

    fn inherit(&self, name: &str, property: &str, recursive: bool) -> Result<(), Refusal> {
        let inherit = Inherit {
            name: name.to_string(),
            property: property.to_string(),
            recursive,
            received: false,
        };
        let done = self.engine.dataset_inherit(&call("zfs inherit"), inherit);
        done.map(|_| ())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Refusal> {
        let rename = Rename {
            from: from.to_string(),
            to: to.to_string(),
            ..Rename::default()
        };
        let done = self.engine.dataset_rename(&call("zfs rename"), rename);
        done.map(|_| ())
    }

    fn destroy(&self, name: &str, recursive: bool) -> Result<Vec<String>, Refusal> {
        let destroy = Destroy {
            name: name.to_string(),
            recursive,
            ..Destroy::default()
        };
        let done = self.engine.dataset_destroy(&call("zfs destroy"), destroy);
        done.map(|destroyed| destroyed.names)
    }

    /// A property, with where it comes from.
    fn get(&self, name: &str, property: &str) -> (Value, Source) {
        let describe = Describe {
            names: vec![name.to_string()],
            depth: Some(0),
            kinds: vec![DatasetKind::Filesystem],
            properties: vec![property.to_string()],
            ..Describe::default()
        };
        let described = self.engine.dataset_describe(&call(""), describe).unwrap();
        let found = &described.datasets[0].properties[property];
        (found.value.clone(), found.source.clone())
    }

    fn text(&self, name: &str, property: &str) -> String {
        match self.get(name, property).0 {
            Value::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    fn number(&self, name: &str, property: &str) -> u64 {
        match self.get(name, property).0 {
            Value::Number(number) => number,
            other => panic!("{other:?}"),
        }
    }

    fn names(&self) -> Vec<String> {
        let describe = Describe {
            kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume],
            properties: vec!["name".to_string()],
            ..Describe::default()
        };
        let described = self.engine.dataset_describe(&call(""), describe).unwrap();
        described.datasets.into_iter().map(|one| one.name).collect()
    }

    /// What is mounted, by path below the alternate root.
    fn mounts(&self) -> Vec<(String, String)> {
        let root = self.root();
        let mounts = self.notebook.mounts.lock().unwrap();
        let shown = |(path, noted): (&PathBuf, &Noted)| {
            let below = path.display().to_string()[root.len()..].to_string();
            (below, noted.source.clone())
        };
        mounts.iter().map(shown).collect()
    }

    fn mounted(&self) -> Vec<String> {
        self.mounts().into_iter().map(|(path, _)| path).collect()
    }

    fn is_busy(&self, path: &str) {
        let path = self.path(path);
        self.notebook.busy.lock().unwrap().insert(path);
    }

    fn tree(&self, path: &str) -> Arc<dyn Tree> {
        let mounts = self.notebook.mounts.lock().unwrap();
        mounts[&self.path(path)].tree.clone()
    }

    /// Writes a file of so many bytes that do not compress, and says what came of it.
    fn write(&self, path: &str, name: &str, bytes: usize) -> Result<(), i32> {
        let tree = self.tree(path);
        let files = tree.files();
        let operation = Operation::unmeasured();
        let root = Credentials::root();
        let new = NewFile {
            kind: FileKind::Regular,
            permissions: 0o644,
            umask: 0,
            device: DeviceNumber::default(),
            target: None,
        };
        let made = files.create(&root, files.root(), name.as_bytes(), &new, &operation);
        let id = made.map_err(|error| error.errno())?.id;
        let mut state = 1_u64;
        let mut noise = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_le_bytes()[7]
        };
        let part: Vec<u8> = (0..64 << 10).map(|_| noise()).collect();
        let mut at = 0;
        while at < bytes {
            let now = part.len().min(bytes - at);
            let offset = WriteAt::Offset(u64::try_from(at).unwrap());
            let written = files.write(&root, id, offset, &part[..now], &operation);
            at += written.map_err(|error| error.errno())?;
        }
        Ok(())
    }

    fn sync(&self) {
        let sync = pool::Sync::default();
        self.engine.pool_sync(&call(""), sync).unwrap();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

fn call(command: &str) -> Call {
    Call {
        command: command.to_string(),
        ..Call::default()
    }
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    pairs.iter().map(own).collect()
}

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
fn what_cannot_be_made_is_refused_in_known_words() {
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
        .engine
        .dataset_create(&call(""), create.clone())
        .unwrap();
    assert_eq!(created.names, ["tank/a", "tank/a/b", "tank/a/b/c"]);
    let again = bench.engine.dataset_create(&call(""), create).unwrap();
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
    bench.engine.dataset_create(&call(""), create).unwrap();
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
    bench.engine.dataset_create(&call(""), volume).unwrap();
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
fn a_rename_takes_everything_below_along() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.create("tank/a/b", &[]).unwrap();
    bench
        .create("tank/a/own", &[("mountpoint", "/own")])
        .unwrap();
    bench.create("tank/c", &[]).unwrap();
    bench.rename("tank/a", "tank/c/d").unwrap();
    let pair = |path: &str, name: &str| (path.to_string(), name.to_string());
    // What has a mount point of its own stays mounted, as it was when it was mounted.
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
fn an_old_file_system_is_upgraded_and_mounted_again() {
    let bench = Bench::new();
    bench.create("tank/old", &[("version", "4")]).unwrap();
    bench.write("/tank/old", "file", 100).unwrap();
    let upgrade = Upgrade {
        names: vec!["tank".to_string()],
        recursive: true,
        version: None,
    };
    let upgraded = bench.engine.dataset_upgrade(&call(""), upgrade).unwrap();
    assert!(upgraded.refused.is_empty());
    assert_eq!(upgraded.datasets[1], ("tank/old".to_string(), 4, 5));
    assert_eq!(bench.tree("/tank/old").files().version(), 5);
}

#[test]
fn a_change_and_its_command_are_in_the_history() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.set("tank/a", &[("atime", "off")]).unwrap();
    bench.set("tank/a", &[("atime", "maybe")]).unwrap_err();
    bench.destroy("tank/a", false).unwrap();
    let history = pool::History {
        name: "tank".to_string(),
    };
    let history = bench.engine.pool_history(&call(""), history).unwrap();
    let commands: Vec<_> = history
        .records
        .iter()
        .filter_map(|record| record.command.clone())
        .collect();
    let expected = ["zpool create", "zfs create", "zfs set", "zfs destroy"];
    assert_eq!(commands, expected);
}
