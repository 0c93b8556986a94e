//! Events of devices that fail, hang or vanish, and of blocks that no device has right.

mod support;

use std::sync::Arc;
use std::time::Duration;
use support::files::{check_files, head, vdev, wait_for_scan, write_files};
use support::{create_of, machine, path};
use tarn_host::sim::{Fault, SimHost};
use tarn_host::{Action, Errno, Host};
use tarn_object::ObjectSet;
use tarn_ondisk::label::DATA_START_BYTES;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_ondisk::units::{BlockId, Guid, ObjectId};
use tarn_pool::events::EventRing;
use tarn_pool::find_block::{FoundBlock, find_block};
use tarn_pool::{Leaving, Pool, ScanChange};
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::VdevKind;
use tarn_vdev::health::{Reason, Standing, VdevState};

const EIO: Errno = Errno(5);

/// A pool of a mirror, two files in it, and the ring of its events.
struct Scene {
    pool: Arc<Pool>,
    ring: Arc<EventRing>,
    set: Arc<ObjectSet>,
    files: Vec<ObjectId>,
}

fn scene(host: &Host, kind: VdevKind, disks: &[&str]) -> Scene {
    let operation = Operation::unmeasured();
    let pool = create_of(host, vec![vdev(kind, disks)], &operation);
    let ring = EventRing::new();
    pool.join_events(&ring);
    let files = write_files(&pool, 2, &operation);
    let set = head(&pool, &operation);
    Scene {
        pool,
        ring,
        set,
        files,
    }
}

impl Scene {
    /// The errors that were posted, once the thread that posts them had time.
    fn errors(&self, host: &Host) -> Vec<NvList> {
        host.sleep(Duration::from_secs(1));
        let all = self.ring.after(0, 512).events;
        let errors = all.iter().filter(|event| !class(&event.list).is_empty());
        errors.map(|event| event.list.clone()).collect()
    }

    fn close(&self) {
        let operation = Operation::unmeasured();
        self.pool.close(Leaving::Exported, &operation).unwrap();
    }

    /// Reads the first file from its devices. Whether that succeeds.
    fn can_read(&self) -> bool {
        let operation = read();
        self.pool.cache().forget_all();
        let file = self.set.object(self.files[0], &operation);
        file.is_ok_and(|file| file.read(0, &mut vec![0; 4096], &operation).is_ok())
    }

    fn standing(&self, index: usize) -> Standing {
        self.pool.vdevs().leaves()[index].standing()
    }
}

/// An operation whose clock runs: what it finds is known to be stored.
fn read() -> Operation {
    Operation::internal(tarn_host::monotonic_ns, OperationKind::Read)
}

/// The name of an error, or of a change of state; else nothing.
fn class(list: &NvList) -> &str {
    let class = list.string("class").unwrap();
    let error = class.strip_prefix("ereport.fs.zfs.");
    let state = class.strip_prefix("resource.fs.zfs.");
    error.or(state).unwrap_or_default()
}

fn classes(errors: &[NvList]) -> Vec<&str> {
    let mut classes: Vec<&str> = errors.iter().map(class).collect();
    classes.dedup();
    classes
}

fn of_class<'a>(errors: &'a [NvList], name: &str) -> Vec<&'a NvList> {
    errors.iter().filter(|list| class(list) == name).collect()
}

fn inject(machine: &SimHost, disk: &str, fault: Fault) {
    machine.disk(path(disk)).unwrap().inject(fault);
}

/// All requests of a kind fail, from this offset on.
fn failing(action: Action, from: u64) -> Fault {
    Fault::FailRange {
        action,
        range: from..u64::MAX,
        errno: EIO,
    }
}

#[test]
fn a_block_that_no_device_has_right_is_a_data_error_with_its_place() {
    let machine = machine(&["a"]);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let scene = scene(host, VdevKind::File, &["a"]);
        let disk = world.disk(path("a")).unwrap();
        disk.poke(DATA_START_BYTES + first_block_of(&scene), &[1; 512]);
        assert!(!scene.can_read());
        let errors = scene.errors(host);
        let data = of_class(&errors, "data");
        assert_eq!(data.len(), 1, "{:?}", classes(&errors));
        let data = data[0];
        assert_eq!(data.u64("zio_objset").unwrap(), scene.set.id().get());
        assert_eq!(data.u64("zio_object").unwrap(), scene.files[0].get());
        assert_eq!(data.get("zio_level"), Some(&NvValue::Int64(0)));
        assert_eq!(data.u64("zio_blkid").unwrap(), 0);
        assert_eq!(data.get("zio_err"), Some(&NvValue::Int32(52)));
        assert_eq!(data.get("zio_type"), Some(&NvValue::Uint32(1)));
        assert!(data.get("vdev_guid").is_none() && data.get("zio_offset").is_none());
        let guid = scene.pool.facts().guid.get();
        let detector = NvList::new()
            .with("version", NvValue::Uint8(0))
            .with("scheme", "zfs")
            .with("pool", guid);
        assert_eq!(data.get("detector"), Some(&NvValue::List(detector)));
        // The error is logged and not repeated, and a scrub finds it once more.
        let operation = Operation::unmeasured();
        let scrub = scene.pool.change_scan(ScanChange::Scrub, &operation);
        scrub.unwrap().unwrap();
        wait_for_scan(host, &scene.pool);
        let errors = scene.errors(host);
        let data = of_class(&errors, "data");
        assert_eq!(data.len(), 2, "{:?}", classes(&errors));
        assert_eq!(data[1].u64("zio_object").unwrap(), scene.files[0].get());
        let priority = data[1].get("zio_priority");
        assert_eq!(priority, Some(&NvValue::Uint32(4)), "that of scrubs");
        scene.close();
    });
    run.unwrap();
}

/// Where the first block of the first file is on its vdev.
fn first_block_of(scene: &Scene) -> u64 {
    let block = (0, BlockId::from(0));
    match find_block(&scene.set, scene.files[0], block, &read()) {
        FoundBlock::At(pointer) => pointer.dvas().next().unwrap().offset().get(),
        found => panic!("{found:?}"),
    }
}

/// The errors of one operation have one number, and another operation has another.
#[test]
fn errors_of_one_operation_have_one_ena() {
    let machine = machine(&["a"]);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let scene = scene(host, VdevKind::File, &["a"]);
        let disk = world.disk(path("a")).unwrap();
        disk.poke(DATA_START_BYTES + first_block_of(&scene), &[1; 512]);
        for _ in 0..2 {
            assert!(!scene.can_read());
            host.sleep(Duration::from_secs(1));
        }
        let errors = scene.errors(host);
        let ena = |list: &&NvList| list.u64("ena").unwrap();
        let data: Vec<u64> = of_class(&errors, "data").iter().map(ena).collect();
        let wrong: Vec<u64> = of_class(&errors, "checksum").iter().map(ena).collect();
        assert_eq!(data.len(), 2);
        assert_ne!(data[0], data[1]);
        assert_eq!(wrong, [data[0]], "the same wrong bytes are left out later");
        scene.close();
    });
    run.unwrap();
}

/// The events of the operation that hung first. Reads and writes of txgs hang besides.
fn of_first_hung(errors: &[NvList]) -> Vec<&NvList> {
    let mut found = of_class(errors, "deadman");
    let first = found.first().map(|list| list.u64("ena"));
    found.retain(|list| Some(list.u64("ena")) == first);
    found
}

#[test]
fn a_read_that_is_not_answered_is_a_deadman_event_each_minute_after_the_fifth() {
    let machine = machine(&["a"]);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let scene = Arc::new(scene(host, VdevKind::File, &["a"]));
        inject(&world, "a", Fault::Hang);
        let reader = {
            let scene = scene.clone();
            host.spawn("reader", move || scene.can_read())
        };
        host.sleep(Duration::from_secs(298));
        assert_eq!(classes(&scene.errors(host)), [""; 0]);
        host.sleep(Duration::from_secs(10));
        let errors = scene.errors(host);
        let deadman = of_first_hung(&errors);
        assert_eq!(deadman.len(), 1, "{deadman:#?}");
        let leaf = scene.pool.vdevs().leaves()[0].guid.get();
        assert_eq!(deadman[0].u64("vdev_guid").unwrap(), leaf);
        assert_eq!(deadman[0].get("zio_err"), Some(&NvValue::Int32(0)));
        assert!(deadman[0].u64("zio_delay").unwrap() >= 300_000_000_000);
        host.sleep(Duration::from_secs(120));
        let errors = scene.errors(host);
        assert_eq!(of_first_hung(&errors).len(), 3);
        assert_eq!(scene.standing(0), Standing::ONLINE, "only events");
        world.disk(path("a")).unwrap().clear_faults();
        assert!(reader.join().unwrap());
        scene.close();
    });
    run.unwrap();
}

#[test]
fn a_device_that_cannot_be_read_at_all_fails_its_probe_and_is_faulted() {
    let machine = machine(&["a", "b"]);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let scene = scene(host, VdevKind::Mirror, &["a", "b"]);
        inject(&world, "a", failing(Action::Read, 0));
        let operation = Operation::unmeasured();
        while of_class(&scene.errors(host), "io").is_empty() {
            scene.pool.cache().forget_all();
            check_files(&scene.pool, &scene.files, &operation);
        }
        let errors = scene.errors(host);
        let [probe] = of_class(&errors, "probe_failure")[..] else {
            panic!("{:?}", classes(&errors));
        };
        let leaf = scene.pool.vdevs().leaves()[0].guid.get();
        assert_eq!(probe.u64("vdev_guid").unwrap(), leaf);
        assert_eq!(probe.u64("prev_state").unwrap(), 7);
        assert!(probe.get("zio_err").is_none());
        assert!(classes(&errors).starts_with(&["io", "probe_failure", "statechange"]));
        let faulted = Standing::because(VdevState::Faulted, Reason::ErrorsExceeded);
        assert_eq!(scene.standing(0), faulted);
        check_files(&scene.pool, &scene.files, &operation);
        scene.close();
    });
    run.unwrap();
}

/// Its labels can be read and written: the read has met a bad sector.
#[test]
fn a_device_with_bad_sectors_passes_its_probe() {
    let machine = machine(&["a", "b"]);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let scene = scene(host, VdevKind::Mirror, &["a", "b"]);
        let data = DATA_START_BYTES..(100 << 20);
        let fault = Fault::FailRange {
            action: Action::Read,
            range: data,
            errno: EIO,
        };
        inject(&world, "a", fault);
        let operation = Operation::unmeasured();
        while of_class(&scene.errors(host), "io").is_empty() {
            scene.pool.cache().forget_all();
            check_files(&scene.pool, &scene.files, &operation);
        }
        assert_eq!(classes(&scene.errors(host)), ["io"]);
        assert_eq!(scene.standing(0), Standing::ONLINE);
        scene.close();
    });
    run.unwrap();
}

#[test]
fn the_only_device_is_degraded_when_its_probe_fails() {
    let machine = machine(&["a"]);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let scene = scene(host, VdevKind::File, &["a"]);
        inject(&world, "a", failing(Action::Read, 0));
        assert!(!scene.can_read());
        let errors = scene.errors(host);
        assert_eq!(of_class(&errors, "probe_failure").len(), 1);
        assert!(!of_class(&errors, "data").is_empty());
        let degraded = Standing::because(VdevState::Degraded, Reason::ErrorsExceeded);
        assert_eq!(scene.standing(0), degraded);
        world.disk(path("a")).unwrap().clear_faults();
        assert!(scene.can_read());
        // A txg may have met the device meanwhile, and could not read the MOS.
        let _ = scene.pool.close(Leaving::Kept, &Operation::unmeasured());
    });
    run.unwrap();
}

#[test]
fn a_device_that_cannot_be_written_fails_its_probe_before_it_is_faulted() {
    let machine = machine(&["a", "b"]);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let scene = scene(host, VdevKind::Mirror, &["a", "b"]);
        inject(&world, "b", failing(Action::Write, 0));
        let operation = Operation::unmeasured();
        write_files(&scene.pool, 1, &operation);
        let errors = scene.errors(host);
        let states: Vec<&str> = classes(&errors);
        assert_eq!(states, ["io", "probe_failure", "statechange"]);
        assert_eq!(of_class(&errors, "probe_failure").len(), 1);
        let leaf = scene.pool.vdevs().leaves()[1].guid;
        let found = of_class(&errors, "probe_failure")[0].u64("vdev_guid");
        assert_eq!(found.map(Guid::from), Ok(leaf));
        assert_eq!(scene.standing(1).state, VdevState::Faulted);
        scene.close();
    });
    run.unwrap();
}

#[test]
fn a_device_that_vanished_is_removed_by_the_probe_without_an_event_of_its_own() {
    let machine = machine(&["a", "b"]);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let scene = scene(host, VdevKind::Mirror, &["a", "b"]);
        inject(&world, "a", Fault::Vanish);
        let operation = Operation::unmeasured();
        while of_class(&scene.errors(host), "io").is_empty() {
            scene.pool.cache().forget_all();
            check_files(&scene.pool, &scene.files, &operation);
        }
        let errors = scene.errors(host);
        assert!(of_class(&errors, "probe_failure").is_empty());
        assert_eq!(scene.standing(0).state, VdevState::Removed);
        scene.close();
    });
    run.unwrap();
}
