//! Crashes: a copy of the disk while the pool is in use is what a power cut at that moment would
//! leave, for the disk is a file whose every write is made in the thread that asks for it. The copy
//! is imported by another engine.
//!
//! A copy takes time, and a txg may be stored meanwhile: then the copy may have its uberblock
//! without the blocks below it. So a copy counts only if the labels are the same before and after
//! it.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{Create, Set};
use tarn_administration::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_engine::engine::{Engine, EngineOptions};
use tarn_engine::files::{
    Credentials, DeviceNumber, FileKind, NewFile, Operation, RenameMode, WriteAt,
};
use tarn_engine::instance::Instance;
use tarn_engine::{Host, RealOptions, files::Tree};
use tarn_unmounted::NoMounts;
use tempfile::TempDir;

const DISK_BYTES: u64 = 128 << 20;
/// The two labels at each end of a disk.
const LABELS_BYTES: u64 = 512 << 10;

/// An engine with disks of its own.
struct Machine {
    engine: Arc<Engine>,
    administrator: Arc<Administrator>,
    mounter: Arc<NoMounts>,
    folder: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let mounter = Arc::new(NoMounts::default());
        std::fs::create_dir(folder.path().join("disks")).unwrap();
        let options = EngineOptions {
            cache_bytes: Some(64 << 20),
            ..EngineOptions::default()
        };
        let host = Host::real(RealOptions::default());
        let instance = Instance::at(folder.path());
        let engine = Engine::new(host, instance, mounter.clone(), options);
        Machine {
            administrator: Administrator::new(engine.clone()),
            engine,
            mounter,
            folder,
        }
    }

    fn disks(&self) -> PathBuf {
        self.folder.path().join("disks")
    }

    fn altroot(&self) -> Option<String> {
        Some(self.folder.path().join("mnt").display().to_string())
    }

    /// With a pool of one disk and a file system in it.
    fn with_pool() -> Machine {
        Machine::with_disks(&[("disk", VdevRole::Data)])
    }

    /// With a pool of these disks and a file system in it.
    fn with_disks(disks: &[(&str, VdevRole)]) -> Machine {
        let machine = Machine::new();
        let leaf = |(name, role): &(&str, VdevRole)| {
            let disk = machine.disks().join(name);
            let file = std::fs::File::create(&disk).unwrap();
            file.set_len(DISK_BYTES).unwrap();
            VdevSpec {
                kind: VdevKind::Leaf,
                path: Some(disk.display().to_string()),
                children: Vec::new(),
                role: *role,
            }
        };
        let create = pool::Create {
            name: "tank".to_string(),
            altroot: machine.altroot(),
            vdevs: disks.iter().map(leaf).collect(),
            ..pool::Create::default()
        };
        let administrator = &machine.administrator;
        administrator
            .pool_create(&call("zpool create"), create)
            .unwrap();
        let create = Create {
            name: "tank/fs".to_string(),
            ..Create::default()
        };
        administrator
            .dataset_create(&call("zfs create"), create)
            .unwrap();
        machine
    }

    /// The labels of the disk. While they are the same no txg was stored.
    fn labels(&self) -> [Vec<u8>; 2] {
        let disk = std::fs::File::open(self.disks().join("disk")).unwrap();
        [0, DISK_BYTES - LABELS_BYTES].map(|at| {
            let mut two = vec![0; usize::try_from(LABELS_BYTES).unwrap()];
            disk.read_exact_at(&mut two, at).unwrap();
            two
        })
    }

    /// A copy of the disks as they are now, with the pool imported by another engine.
    fn crashed(&self) -> Machine {
        let other = Machine::new();
        loop {
            let before = self.labels();
            std::fs::copy(self.disks().join("disk"), other.disks().join("disk")).unwrap();
            if self.labels() == before {
                break;
            }
        }
        let import = pool::Import {
            search: pool::Search {
                places: vec![other.disks().display().to_string()],
                ..pool::Search::default()
            },
            pool: Some("tank".to_string()),
            altroot: other.altroot(),
            force: true,
            ..pool::Import::default()
        };
        let imported = other
            .administrator
            .pool_import(&call("zpool import"), import);
        assert_eq!(imported.unwrap().warnings, Vec::<String>::new());
        other
    }

    fn tree(&self) -> Arc<dyn Tree> {
        self.mounter.tree("tank/fs").expect("it is mounted")
    }

    fn create(&self, name: &str) -> tarn_engine::files::ObjectId {
        let new = NewFile {
            kind: FileKind::Regular,
            permissions: 0o644,
            umask: 0,
            device: DeviceNumber::default(),
            target: None,
        };
        let tree = self.tree();
        let files = tree.files();
        let (root, name) = (Credentials::root(), name.as_bytes());
        let operation = Operation::unmeasured();
        let made = files.create(&root, files.root(), name, &new, &operation);
        made.unwrap().id
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) {
        let tree = self.tree();
        let (root, operation) = (Credentials::root(), Operation::unmeasured());
        let id = self.find(name).unwrap();
        let at = WriteAt::Offset(at);
        let written = tree.files().write(&root, id, at, bytes, &operation);
        assert_eq!(written.unwrap(), bytes.len());
    }

    fn fsync(&self, name: &str) {
        let id = self.find(name).unwrap();
        let synced = self
            .tree()
            .files()
            .sync(id, false, &Operation::unmeasured());
        synced.unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let tree = self.tree();
        let files = tree.files();
        let (root, operation) = (Credentials::root(), Operation::unmeasured());
        let top = files.root();
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let mode = RenameMode::Replace;
        files
            .rename(&root, top, from, top, to, mode, &operation)
            .unwrap();
    }

    fn find(&self, name: &str) -> Option<tarn_engine::files::ObjectId> {
        let tree = self.tree();
        let files = tree.files();
        let (root, operation) = (Credentials::root(), Operation::unmeasured());
        let found = files.lookup(&root, files.root(), name.as_bytes(), &operation);
        found.ok().map(|found| found.id)
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let id = self.find(name)?;
        let tree = self.tree();
        let (root, operation) = (Credentials::root(), Operation::unmeasured());
        let read = tree.files().read(&root, id, 0, 1 << 20, &operation);
        Some(read.unwrap().to_vec())
    }
}

impl Drop for Machine {
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

#[test]
fn fsynced_writes_survive_a_crash_and_a_second_crash() {
    let machine = Machine::with_pool();
    machine.create("first");
    // The log begins.
    machine.fsync("first");
    machine.write("first", 0, &[1; 5000]);
    machine.create("new");
    machine.write("new", 0, &[2; 70_000]);
    machine.rename("new", "second");
    machine.write("second", 0, &[3; 100]);
    machine.write("first", 3000, &[4; 4000]);
    machine.fsync("first");
    // Un-fsynced creates: absent in the crash, then present where a txg has them.
    let crash = |round: u32| {
        let (late, labels) = (format!("late{round}"), machine.labels());
        machine.create(&late);
        let other = machine.crashed();
        (machine.labels() == labels).then_some((other, late))
    };
    let (other, late) = (0..).find_map(crash).unwrap();
    let mut first = vec![1; 7000];
    first[3000..].fill(4);
    assert_eq!(other.read("first"), Some(first.clone()));
    // A write before the rename is there with the new name.
    let second = other.read("second").unwrap();
    assert_eq!(second.len(), 70_000);
    assert!(second[100..].iter().all(|byte| *byte == 2));
    assert_eq!(other.read("new"), None);
    assert_eq!(other.read(&late), None);
    // The log was replayed and stored: a new log may begin.
    other.write("second", 100, &[5; 10]);
    other.fsync("second");
    other.write("second", 200, &[6; 10]);
    other.fsync("second");
    let third = other.crashed();
    assert_eq!(third.read("first"), Some(first));
    assert_eq!(third.read("second").unwrap()[200..210], [6; 10]);
}

#[test]
fn a_log_device_is_used_unless_logbias_is_throughput() {
    let machine = Machine::with_disks(&[("disk", VdevRole::Data), ("log", VdevRole::Log)]);
    let is_used = || {
        let bytes = std::fs::read(machine.disks().join("log")).unwrap();
        // Between the labels.
        let data = &bytes[4 << 20..bytes.len() - (1 << 20)];
        data.iter().any(|byte| *byte != 0)
    };
    let bias = |bias: &str| {
        let set = Set {
            name: "tank/fs".to_string(),
            properties: vec![("logbias".to_string(), bias.to_string())],
            no_mount: false,
        };
        machine
            .administrator
            .dataset_set(&call("zfs set"), set)
            .unwrap();
    };
    let work = |name: &str| {
        machine.create(name);
        for round in 0..5 {
            machine.write(name, round * 100, &[1; 100]);
            machine.fsync(name);
        }
    };
    bias("throughput");
    work("first");
    assert!(!is_used());
    bias("latency");
    work("second");
    assert!(is_used());
}

#[test]
fn with_sync_always_every_answered_call_survives_a_crash() {
    let machine = Machine::with_pool();
    let set = Set {
        name: "tank/fs".to_string(),
        properties: vec![("sync".to_string(), "always".to_string())],
        no_mount: false,
    };
    machine
        .administrator
        .dataset_set(&call("zfs set"), set)
        .unwrap();
    for number in 0..5_u8 {
        let name = format!("file{number}");
        machine.create(&name);
        machine.write(&name, 0, &[number; 3000]);
    }
    let other = machine.crashed();
    for number in 0..5_u8 {
        let name = format!("file{number}");
        assert_eq!(other.read(&name), Some(vec![number; 3000]));
    }
}
