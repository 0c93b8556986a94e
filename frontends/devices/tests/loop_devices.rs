//! Block devices of volumes, by loop devices of this machine. Where this process may not make any,
//! the tests say so and test nothing.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::Refusal;
use tarn_administration::messages::dataset::{Create, Destroy, Rename, Rollback, Set, Snapshot};
use tarn_administration::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_devices::{BlockDevices, VolumeLinks};
use tarn_engine::instance::Instance;
use tarn_engine::mounts::{
    Ending, Found, Left, MountKey, MountOptions, MountRefusal, MountRequest, Mounter, Standing,
};
use tarn_engine::volumes::VolumeDevices;
use tarn_engine::{Engine, EngineOptions, Host, RealOptions};
use tarn_serving::{AwakeProcessors, ServingThreads};
use tempfile::TempDir;

const SIZE: u64 = 16 << 20;

/// Mounts nothing.
struct NoMounts;

impl Mounter for NoMounts {
    fn mount(&self, _: MountRequest<'_>) -> Result<MountKey, MountRefusal> {
        Ok(MountKey(1))
    }

    fn attach(&self, _: MountKey, _: &str, _: &Path, _: MountOptions) -> Result<(), MountRefusal> {
        Err(MountRefusal::Busy)
    }

    fn standing(&self, _: MountKey, _: &Path) -> Standing {
        Standing::Mounted
    }

    fn places(&self) -> Vec<(MountKey, std::path::PathBuf)> {
        Vec::new()
    }

    fn mount_number(&self, _: &Path) -> Option<u64> {
        None
    }

    fn find(&self, _: &Path) -> Found {
        Found::Foreign
    }

    fn unmount(&self, _: MountKey, _: &Path, _: Ending) -> Result<Left, MountRefusal> {
        Ok(Left::Nothing)
    }

    fn abandon(&self, _: &[(MountKey, &Path)]) {}

    fn change_options(&self, _: MountKey, _: &Path, _: MountOptions) -> Result<(), MountRefusal> {
        Ok(())
    }

    fn clear_remains(&self, _: &Path) -> bool {
        false
    }
}

/// A pool with the volume `tank/v`.
struct Bench {
    administrator: Arc<Administrator>,
    links: VolumeLinks,
    threads: Arc<ServingThreads>,
    _folder: TempDir,
}

fn call() -> Call {
    Call {
        command: "test".to_string(),
        ..Call::default()
    }
}

fn log(line: &str) {
    println!("log: {line}");
}

impl Bench {
    /// None where this process may not make block devices.
    fn new() -> Option<Bench> {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        File::create(&disk).unwrap().set_len(128 << 20).unwrap();
        let options = EngineOptions {
            cache_bytes: Some(64 << 20),
            ..EngineOptions::default()
        };
        let host = Host::real(RealOptions::default());
        let instance = Instance::at(folder.path());
        let engine = Engine::new(host, instance.clone(), Arc::new(NoMounts), options);
        let threads = ServingThreads::new(AwakeProcessors::new(false)).unwrap();
        let links = VolumeLinks::in_folder(&folder.path().join("zvol"));
        let devices = BlockDevices::start(&instance.volumes(), links.clone(), threads.clone(), log);
        if let Err(why) = devices.check() {
            println!("nothing is tested: {why}");
            return None;
        }
        engine.set_volume_devices(devices);
        let administrator = Administrator::new(engine);
        let leaf = VdevSpec {
            kind: VdevKind::Leaf,
            path: Some(disk.display().to_string()),
            children: Vec::new(),
            role: VdevRole::Data,
        };
        let create = pool::Create {
            name: "tank".to_string(),
            altroot: Some(folder.path().join("mnt").display().to_string()),
            vdevs: vec![leaf],
            ..pool::Create::default()
        };
        administrator.pool_create(&call(), create).unwrap();
        let request = Create {
            name: "tank/v".to_string(),
            volume_bytes: Some(SIZE),
            sparse: true,
            ..Create::default()
        };
        let created = administrator.dataset_create(&call(), request).unwrap();
        // A container may have /dev/loop-control and no leave to mount.
        if let Some(why) = created.warnings.first() {
            println!("nothing is tested: {why}");
            return None;
        }
        Some(Bench {
            administrator,
            links,
            threads,
            _folder: folder,
        })
    }

    fn device(&self, name: &str) -> PathBuf {
        self.links.path_of(name).canonicalize().unwrap()
    }

    fn is_linked(&self, name: &str) -> bool {
        std::fs::symlink_metadata(self.links.path_of(name)).is_ok()
    }

    fn set(&self, property: &str, value: &str) {
        let request = Set {
            name: "tank/v".to_string(),
            properties: vec![(property.to_string(), value.to_string())],
            ..Set::default()
        };
        self.administrator.dataset_set(&call(), request).unwrap();
    }

    fn destroy(&self) -> Result<(), Refusal> {
        let request = Destroy {
            name: "tank/v".to_string(),
            recursive: true,
            ..Destroy::default()
        };
        let destroyed = self.administrator.dataset_destroy(&call(), request);
        destroyed.map(drop)
    }

    fn snapshot(&self) {
        let request = Snapshot {
            names: vec!["tank/v@s".to_string()],
            ..Snapshot::default()
        };
        let taken = self.administrator.dataset_snapshot(&call(), request);
        taken.unwrap();
    }

    fn export(&self, force: bool) -> Result<(), Refusal> {
        let request = pool::Export {
            name: "tank".to_string(),
            force,
        };
        self.administrator.pool_export(&call(), request).map(drop)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Fails where the test has exported it.
        let _ = self.export(true);
        self.threads.stop();
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).open(path).unwrap()
}

/// What Linux says of a device.
fn attribute(device: &Path, name: &str) -> String {
    let device = device.file_name().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(format!("/sys/block/{device}/{name}"));
    text.unwrap().trim().to_string()
}

fn read(device: &File, offset: u64) -> [u8; 512] {
    let mut bytes = [0; 512];
    device.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

#[test]
fn a_volume_is_a_block_device_until_it_is_destroyed() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.device("tank/v");
    assert_eq!(attribute(&path, "size"), (SIZE / 512).to_string());
    assert_eq!(attribute(&path, "queue/logical_block_size"), "512");
    assert_eq!(attribute(&path, "queue/discard_granularity"), "16384");
    assert_eq!(
        (attribute(&path, "ro"), attribute(&path, "loop/dio")),
        ("0".into(), "1".into())
    );
    let device = open(&path);
    device.write_all_at(&[7; 100_000], 4096).unwrap();
    device.sync_all().unwrap();
    assert_eq!(read(&device, 4096 + 50_000), [7; 512]);
    let refused = bench.destroy().unwrap_err().to_string();
    assert_eq!(refused, "cannot destroy 'tank/v': dataset is busy");
    let refused = bench.export(false).unwrap_err().to_string();
    assert!(
        refused.contains("the block device of the volume 'tank/v' is in use"),
        "{refused}"
    );
    assert_eq!(bench.device("tank/v"), path);
    drop(device);
    bench.destroy().unwrap();
    assert!(!bench.is_linked("tank/v"));
}

#[test]
fn size_name_and_read_only_follow_while_it_is_open() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.device("tank/v");
    let device = open(&path);
    bench.set("volsize", &(2 * SIZE).to_string());
    assert_eq!(attribute(&path, "size"), (2 * SIZE / 512).to_string());
    device.write_all_at(&[7; 512], 2 * SIZE - 512).unwrap();
    device.sync_all().unwrap();
    let request = Rename {
        from: "tank/v".to_string(),
        to: "tank/w".to_string(),
        ..Rename::default()
    };
    bench
        .administrator
        .dataset_rename(&call(), request)
        .unwrap();
    assert!(!bench.is_linked("tank/v"));
    assert_eq!(bench.device("tank/w"), path);
    assert_eq!(read(&device, 2 * SIZE - 512), [7; 512]);
    let request = Rename {
        from: "tank/w".to_string(),
        to: "tank/v".to_string(),
        ..Rename::default()
    };
    bench
        .administrator
        .dataset_rename(&call(), request)
        .unwrap();
    bench.set("readonly", "on");
    assert!(device.write_all_at(&[8; 512], 0).is_err());
    bench.set("readonly", "off");
    device.write_all_at(&[8; 512], 0).unwrap();
    device.sync_all().unwrap();
}

/// Linux says of the file of the first device that its name is gone.
#[test]
fn the_device_of_a_renamed_volume_goes_when_another_volume_has_its_old_name() {
    let Some(bench) = Bench::new() else { return };
    let (first, administrator) = (bench.device("tank/v"), &bench.administrator);
    let request = Rename {
        from: "tank/v".to_string(),
        to: "tank/w".to_string(),
        ..Rename::default()
    };
    administrator.dataset_rename(&call(), request).unwrap();
    let request = Create {
        name: "tank/v".to_string(),
        volume_bytes: Some(SIZE),
        sparse: true,
        ..Create::default()
    };
    administrator.dataset_create(&call(), request).unwrap();
    let second = bench.device("tank/v");
    assert_ne!(first, second);
    let device = open(&first);
    bench.set("volmode", "none");
    let request = Set {
        name: "tank/w".to_string(),
        properties: vec![("volmode".to_string(), "none".to_string())],
        ..Set::default()
    };
    administrator.dataset_set(&call(), request.clone()).unwrap();
    assert!(bench.is_linked("tank/w"), "it is open");
    drop(device);
    administrator.dataset_set(&call(), request).unwrap();
    for device in [first, second] {
        let number = device.file_name().unwrap();
        let file = Path::new("/sys/block").join(number).join("loop");
        assert!(!file.exists(), "{} has a file", device.display());
    }
}

#[test]
fn a_snapshot_is_a_device_that_is_not_written_and_leaves_a_clean_loop_device() {
    let Some(bench) = Bench::new() else { return };
    bench.set("snapdev", "visible");
    bench.snapshot();
    let path = bench.device("tank/v@s");
    assert_eq!(attribute(&path, "ro"), "1");
    assert!(
        open(&bench.device("tank/v"))
            .write_all_at(&[7; 512], 0)
            .is_ok()
    );
    assert_eq!(read(&File::open(&path).unwrap(), 0), [0; 512]);
    bench.set("readonly", "on");
    bench.set("volmode", "none");
    bench.set("readonly", "off");
    bench.set("volmode", "full");
    let device = open(&bench.device("tank/v"));
    device.write_all_at(&[9; 512], 0).unwrap();
    device.sync_all().unwrap();
}

#[test]
fn a_rollback_is_seen_by_a_program_that_has_the_device_open() {
    let Some(bench) = Bench::new() else { return };
    let device = open(&bench.device("tank/v"));
    device.write_all_at(&[7; 4096], 0).unwrap();
    device.sync_all().unwrap();
    bench.snapshot();
    device.write_all_at(&[8; 4096], 0).unwrap();
    let request = Rollback {
        name: "tank/v@s".to_string(),
        ..Rollback::default()
    };
    bench
        .administrator
        .dataset_rollback(&call(), request)
        .unwrap();
    assert_eq!(read(&device, 0), [7; 512]);
    device.write_all_at(&[9; 4096], 0).unwrap();
    device.sync_all().unwrap();
    assert_eq!(read(&device, 1024), [9; 512]);
}

#[test]
fn an_export_by_force_ends_a_device_that_is_open() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.device("tank/v");
    let device = open(&path);
    let file = attribute(&path, "loop/backing_file");
    bench.export(true).unwrap();
    assert!(!bench.is_linked("tank/v"));
    let written = device
        .write_all_at(&[7; 4096], 0)
        .and_then(|()| device.sync_all());
    assert!(written.is_err());
    // The last close unbinds it; another test may have its number then.
    drop(device);
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let after = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
    let after = after.unwrap_or_default();
    assert!(after.is_empty() || after.contains("/volumes/"), "{after}");
    assert_ne!(after.trim(), file);
}
