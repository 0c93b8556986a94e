//! Block devices of volumes, by a front end that only writes them down: which there are after each
//! command, and what is busy while one is open.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use support::{Bench, call, owned};
use tarn_administration::administration::Administration;
use tarn_administration::messages::Refusal;
use tarn_administration::messages::dataset::{Create, MakeClone, Promote, Rollback, Snapshot};
use tarn_administration::messages::pool::Export;
use tarn_engine::volumes::{DeviceIsOpen, HeldVolume, VolumeDevice, VolumeDevices};

/// The devices that there are: whether each shows partitions, by the name of its volume.
#[derive(Default)]
struct Shelf {
    devices: Mutex<BTreeMap<u64, (Arc<HeldVolume>, bool)>>,
    /// Volumes whose devices are open.
    open: Mutex<Vec<String>>,
    obstacle: Mutex<Option<String>>,
    dropped_caches: Mutex<u32>,
}

struct OnShelf(Arc<Shelf>, Arc<HeldVolume>);

impl Shelf {
    fn names(&self) -> Vec<String> {
        let devices = self.devices.lock().unwrap();
        let mut names: Vec<String> = devices
            .values()
            .map(|(held, has_partitions)| match has_partitions {
                true => held.name(),
                false => format!("{} without partitions", held.name()),
            })
            .collect();
        names.sort();
        names
    }

    fn set_open(&self, names: &[&str]) {
        *self.open.lock().unwrap() = names.iter().map(|name| (*name).to_string()).collect();
    }
}

/// The front end.
struct Front(Arc<Shelf>);

impl VolumeDevices for Front {
    fn check(&self) -> Result<(), String> {
        self.0.obstacle.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn make(
        &self,
        held: &Arc<HeldVolume>,
        has_partitions: bool,
    ) -> Result<Arc<dyn VolumeDevice>, String> {
        let mut devices = self.0.devices.lock().unwrap();
        let before = devices.insert(held.guid(), (held.clone(), has_partitions));
        assert!(before.is_none(), "a volume has one device");
        Ok(Arc::new(OnShelf(self.0.clone(), held.clone())))
    }
}

impl VolumeDevice for OnShelf {
    fn remove(&self) -> Result<(), DeviceIsOpen> {
        match self.0.open.lock().unwrap().contains(&self.1.name()) {
            true => Err(DeviceIsOpen),
            false => {
                self.0.devices.lock().unwrap().remove(&self.1.guid());
                Ok(())
            }
        }
    }

    fn drop_cache(&self) {
        *self.0.dropped_caches.lock().unwrap() += 1;
    }
}

fn bench() -> (Bench, Arc<Shelf>) {
    let (bench, shelf) = (Bench::new(), Arc::new(Shelf::default()));
    bench
        .engine
        .set_volume_devices(Arc::new(Front(shelf.clone())));
    (bench, shelf)
}

fn create(bench: &Bench, name: &str, properties: &[(&str, &str)]) -> Vec<String> {
    let request = Create {
        name: name.to_string(),
        volume_bytes: Some(4 << 20),
        properties: owned(properties),
        sparse: true,
        ..Create::default()
    };
    let created = bench.administrator.dataset_create(&call(""), request);
    created.unwrap().warnings
}

fn snapshot(bench: &Bench, name: &str) {
    let request = Snapshot {
        names: vec![name.to_string()],
        ..Snapshot::default()
    };
    let taken = bench.administrator.dataset_snapshot(&call(""), request);
    taken.unwrap();
}

fn roll_back(bench: &Bench, name: &str, newer: bool) -> Result<(), Refusal> {
    let request = Rollback {
        name: name.to_string(),
        newer,
        ..Rollback::default()
    };
    let done = bench.administrator.dataset_rollback(&call(""), request);
    done.map(drop)
}

fn export(bench: &Bench, force: bool) -> Result<(), Refusal> {
    let request = Export {
        name: "tank".to_string(),
        force,
    };
    bench
        .administrator
        .pool_export(&call(""), request)
        .map(drop)
}

#[test]
fn devices_follow_volumes_and_their_properties() {
    let (bench, shelf) = bench();
    create(&bench, "tank/v", &[]);
    create(&bench, "tank/w", &[("volmode", "dev")]);
    create(&bench, "tank/none", &[("volmode", "none")]);
    assert_eq!(shelf.names(), ["tank/v", "tank/w without partitions"]);
    bench.set("tank", &[("volmode", "none")]).unwrap();
    assert_eq!(shelf.names(), ["tank/w without partitions"]);
    bench.inherit("tank", "volmode", false).unwrap();
    bench.set("tank/w", &[("volmode", "geom")]).unwrap();
    assert_eq!(shelf.names(), ["tank/v", "tank/w"]);
    bench.rename("tank/w", "tank/x").unwrap();
    bench.destroy("tank/v", false).unwrap();
    assert_eq!(shelf.names(), ["tank/x"]);
    export(&bench, false).unwrap();
    assert!(shelf.names().is_empty());
}

#[test]
fn snapshots_have_devices_where_they_are_visible() {
    let (bench, shelf) = bench();
    create(&bench, "tank/v", &[]);
    snapshot(&bench, "tank/v@a");
    assert_eq!(shelf.names(), ["tank/v"]);
    bench.set("tank/v", &[("snapdev", "visible")]).unwrap();
    snapshot(&bench, "tank/v@b");
    assert_eq!(shelf.names(), ["tank/v", "tank/v@a", "tank/v@b"]);
    bench.rename("tank/v@b", "tank/v@c").unwrap();
    assert_eq!(shelf.names(), ["tank/v", "tank/v@a", "tank/v@c"]);
    shelf.set_open(&["tank/v@c"]);
    let refused = bench.destroy("tank/v@c", false).unwrap_err().to_string();
    assert_eq!(refused, "cannot destroy snapshot tank/v@c: dataset is busy");
    shelf.set_open(&[]);
    // Those that are promoted go to the clone.
    let request = MakeClone {
        origin: "tank/v@a".to_string(),
        name: "tank/clone".to_string(),
        properties: owned(&[("snapdev", "visible")]),
        ..MakeClone::default()
    };
    bench
        .administrator
        .dataset_clone(&call(""), request)
        .unwrap();
    let request = Promote {
        name: "tank/clone".to_string(),
    };
    bench
        .administrator
        .dataset_promote(&call(""), request)
        .unwrap();
    let expected = ["tank/clone", "tank/clone@a", "tank/v", "tank/v@c"];
    assert_eq!(shelf.names(), expected);
    roll_back(&bench, "tank/clone@a", true).unwrap();
    assert_eq!(shelf.names(), expected);
    bench.set("tank/v", &[("snapdev", "hidden")]).unwrap();
    assert_eq!(shelf.names(), ["tank/clone", "tank/clone@a", "tank/v"]);
}

#[test]
fn an_open_device_makes_its_volume_busy_and_others_come_back() {
    let (bench, shelf) = bench();
    create(&bench, "tank/v", &[]);
    create(&bench, "tank/w", &[]);
    shelf.set_open(&["tank/w"]);
    let refused = bench.destroy("tank/w", false).unwrap_err().to_string();
    assert_eq!(refused, "cannot destroy 'tank/w': dataset is busy");
    let refused = export(&bench, false).unwrap_err().to_string();
    let expected = "cannot export 'tank': pool is busy\n\
                    the block device of the volume 'tank/w' is in use";
    assert_eq!(refused, expected);
    bench.set("tank/w", &[("volmode", "none")]).unwrap();
    assert_eq!(shelf.names(), ["tank/v", "tank/w"]);
    shelf.set_open(&[]);
    bench.set("tank/w", &[("volmode", "none")]).unwrap();
    assert_eq!(shelf.names(), ["tank/v"]);
    export(&bench, true).unwrap();
}

#[test]
fn a_volume_whose_device_is_open_is_rolled_back() {
    let (bench, shelf) = bench();
    create(&bench, "tank/v", &[]);
    snapshot(&bench, "tank/v@a");
    shelf.set_open(&["tank/v"]);
    roll_back(&bench, "tank/v@a", false).unwrap();
    // Before its contents are replaced, and after.
    assert_eq!(*shelf.dropped_caches.lock().unwrap(), 2);
    assert_eq!(shelf.names(), ["tank/v"]);
}

#[test]
fn a_volume_is_made_where_devices_cannot_be_and_the_command_says_so() {
    let (bench, shelf) = bench();
    *shelf.obstacle.lock().unwrap() = Some("no devices here".to_string());
    assert_eq!(create(&bench, "tank/v", &[]), ["no devices here"]);
    assert!(create(&bench, "tank/w", &[("volmode", "none")]).is_empty());
    assert_eq!(bench.names(), ["tank", "tank/v", "tank/w"]);
    *shelf.obstacle.lock().unwrap() = None;
    bench.set("tank/v", &[("volmode", "full")]).unwrap();
    assert_eq!(shelf.names(), ["tank/v"]);
}
