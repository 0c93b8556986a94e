//! Volumes that front ends hold: one state for all holders, busy for what would destroy it, and
//! watchers that hear what commands change.

mod support;

use std::sync::{Arc, Mutex};
use support::{Bench, call, owned};
use tarn_administration::administration::Administration;
use tarn_administration::messages::Refusal;
use tarn_administration::messages::dataset::{Create, Rollback, Snapshot};
use tarn_administration::messages::pool::Export;
use tarn_engine::volumes::{
    Durable, HeldVolume, NewContents, Operation, VolumeAccess, VolumeError, VolumeWatcher,
};

const SIZE: u64 = 4 << 20;

/// `tank/v`, a volume with a snapshot `tank/v@s` of before it was written.
fn bench() -> Bench {
    let bench = Bench::new();
    let request = Create {
        name: "tank/v".to_string(),
        volume_bytes: Some(SIZE),
        properties: owned(&[("volblocksize", "8K")]),
        sparse: true,
        ..Create::default()
    };
    let administrator = &bench.administrator;
    administrator.dataset_create(&call(""), request).unwrap();
    let request = Snapshot {
        names: vec!["tank/v@s".to_string()],
        ..Snapshot::default()
    };
    administrator.dataset_snapshot(&call(""), request).unwrap();
    bench
}

fn hold_as(bench: &Bench, name: &str, access: VolumeAccess) -> Result<Arc<HeldVolume>, Refusal> {
    let operation = Operation::unmeasured();
    bench.engine.hold_volume(name, access, &operation)
}

fn hold(bench: &Bench, name: &str) -> Arc<HeldVolume> {
    hold_as(bench, name, VolumeAccess::ReadWrite).unwrap()
}

fn write(held: &HeldVolume, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
    let contents = NewContents::Bytes(bytes);
    held.write(offset, contents, Durable::Now, &Operation::unmeasured())
}

fn read(held: &HeldVolume, offset: u64, length: usize) -> Vec<u8> {
    let read = held.read(offset, length, &Operation::unmeasured());
    read.unwrap().to_vec()
}

fn export(bench: &Bench, force: bool) -> Result<(), Refusal> {
    let request = Export {
        name: "tank".to_string(),
        force,
    };
    let done = bench.administrator.pool_export(&call(""), request);
    done.map(drop)
}

/// Writes down what it hears.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl VolumeWatcher for Diary {
    fn size_changed(&self, size_bytes: u64) {
        self.note(format!("size {size_bytes}"));
    }

    fn read_only_changed(&self, is_read_only: bool) {
        self.note(format!("read-only {is_read_only}"));
    }

    fn renamed(&self, name: &str) {
        self.note(format!("name {name}"));
    }

    fn ended(&self) {
        self.note("end".to_string());
    }
}

fn create(bench: &Bench, name: &str, block_bytes: &str) -> Arc<HeldVolume> {
    let request = Create {
        name: name.to_string(),
        volume_bytes: Some(SIZE),
        properties: owned(&[("volblocksize", block_bytes)]),
        sparse: true,
        ..Create::default()
    };
    let administrator = &bench.administrator;
    administrator.dataset_create(&call(""), request).unwrap();
    hold(bench, name)
}

/// Has everything stored that was written.
fn store(bench: &Bench, snapshot: &str) {
    let request = Snapshot {
        names: vec![snapshot.to_string()],
        ..Snapshot::default()
    };
    let administrator = &bench.administrator;
    administrator.dataset_snapshot(&call(""), request).unwrap();
}

#[test]
fn volumes_of_a_pool_are_copied_to_each_other_by_clones_in_both_directions_at_once() {
    const HALF: u64 = SIZE / 2;
    let bench = bench();
    let (one, two) = (hold(&bench, "tank/v"), create(&bench, "tank/w", "8K"));
    let other = create(&bench, "tank/x", "16K");
    let half = usize::try_from(HALF).unwrap();
    write(&one, 0, &vec![1; half]).unwrap();
    write(&two, HALF, &vec![2; half]).unwrap();
    store(&bench, "tank/v@written");
    let copy = |target: &HeldVolume, source: &HeldVolume, offset| {
        let operation = Operation::unmeasured();
        let copied = target.copy_from((source, offset), offset, HALF, &operation);
        copied.map(|copied| (copied.cloned_bytes, copied.written_bytes))
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20 {
                    copy(&two, &one, 0).unwrap();
                }
            });
            scope.spawn(|| {
                for _ in 0..20 {
                    copy(&one, &two, HALF).unwrap();
                }
            });
        }
    });
    let is_whole = |held: &HeldVolume| {
        read(held, 0, half) == vec![1; half] && read(held, HALF, half) == vec![2; half]
    };
    assert!(is_whole(&one) && is_whole(&two));
    assert_eq!(copy(&two, &one, 0).unwrap(), (HALF, 0));
    assert_eq!(copy(&other, &one, 0).unwrap(), (0, HALF), "larger blocks");
    assert!(read(&other, 0, half) == vec![1; half]);
    // A snapshot is copied from, not to.
    let before = hold_as(&bench, "tank/v@s", VolumeAccess::ReadOnly).unwrap();
    assert_eq!(copy(&two, &before, 0).unwrap(), (HALF, 0));
    assert!(read(&two, 0, half) == vec![0; half]);
    let refused = copy(&before, &two, 0).unwrap_err();
    assert!(matches!(refused, VolumeError::ReadOnly));
    for held in [&one, &two, &other, &before] {
        bench.engine.release_volume(held).unwrap();
    }
}

#[test]
fn holders_share_a_volume_which_is_as_they_left_it_when_it_is_opened_again() {
    let bench = bench();
    let (one, two) = (hold(&bench, "tank/v"), hold(&bench, "tank/v"));
    assert_eq!((one.size_bytes(), one.block_size()), (SIZE, 8192));
    write(&one, 5000, &[7; 10_000]).unwrap();
    assert_eq!(read(&two, 5000, 10_000), [7; 10_000]);
    bench.engine.release_volume(&one).unwrap();
    bench.engine.release_volume(&two).unwrap();
    let again = hold_as(&bench, "tank/v", VolumeAccess::ReadOnly).unwrap();
    assert_eq!(read(&again, 5000, 10_000), [7; 10_000]);
    assert_eq!(again.guid(), one.guid());
    let refused = write(&again, 0, &[1]).unwrap_err();
    assert!(matches!(refused, VolumeError::ReadOnly), "{refused}");
}

#[test]
fn a_snapshot_is_held_read_only_and_has_what_was_there_when_it_was_taken() {
    let bench = bench();
    let volume = hold(&bench, "tank/v");
    write(&volume, 0, &[7; 100]).unwrap();
    let snapshot = hold(&bench, "tank/v@s");
    assert!(snapshot.is_read_only() && !volume.is_read_only());
    assert_eq!(read(&snapshot, 0, 100), [0; 100]);
    assert!(write(&snapshot, 0, &[1]).is_err());
    let refused = bench.destroy("tank/v@s", false).unwrap_err().to_string();
    assert_eq!(refused, "cannot destroy snapshot tank/v@s: dataset is busy");
    bench.engine.release_volume(&snapshot).unwrap();
    bench.destroy("tank/v@s", false).unwrap();
}

fn roll_back(bench: &Bench) -> Result<(), Refusal> {
    let request = Rollback {
        name: "tank/v@s".to_string(),
        ..Rollback::default()
    };
    let done = bench.administrator.dataset_rollback(&call(""), request);
    done.map(drop)
}

#[test]
fn a_held_volume_is_busy_for_destroy_and_export_until_it_is_released() {
    let bench = bench();
    let held = hold(&bench, "tank/v");
    write(&held, 0, &[7; 100]).unwrap();
    let refused = bench.destroy("tank/v", true).unwrap_err().to_string();
    assert_eq!(refused, "cannot destroy 'tank/v': dataset is busy");
    let refused = export(&bench, false).unwrap_err().to_string();
    let expected = "cannot export 'tank': pool is busy\nthe volume 'tank/v' is served";
    assert_eq!(refused, expected);
    bench.engine.release_volume(&held).unwrap();
    roll_back(&bench).unwrap();
    let held = hold(&bench, "tank/v");
    assert_eq!(read(&held, 0, 100), [0; 100]);
    // A hold that is only dropped does not keep it.
    write(&held, 0, &[7; 100]).unwrap();
    drop(held);
    roll_back(&bench).unwrap();
    assert_eq!(read(&hold(&bench, "tank/v"), 0, 100), [0; 100]);
    bench.destroy("tank/v", true).unwrap();
}

#[test]
fn a_held_volume_goes_back_to_a_snapshot_under_its_holders() {
    let bench = bench();
    let held = hold(&bench, "tank/v");
    let diary = Arc::new(Diary::default());
    held.watch(diary.clone());
    write(&held, 0, &[7; 100]).unwrap();
    let larger = (2 * SIZE).to_string();
    bench.set("tank/v", &[("volsize", &larger)]).unwrap();
    write(&held, SIZE, &[8; 100]).unwrap();
    diary.take();
    roll_back(&bench).unwrap();
    assert_eq!(read(&held, 0, 100), [0; 100]);
    assert_eq!((held.size_bytes(), held.is_ended()), (SIZE, false));
    assert_eq!(diary.take(), [format!("size {SIZE}")]);
    // It is written and durable as before, and one that is refused changes nothing.
    write(&held, 0, &[9; 100]).unwrap();
    let request = Snapshot {
        names: vec!["tank/v@newer".to_string()],
        ..Snapshot::default()
    };
    let administrator = &bench.administrator;
    administrator.dataset_snapshot(&call(""), request).unwrap();
    assert!(roll_back(&bench).is_err());
    assert_eq!(read(&held, 0, 100), [9; 100]);
    bench.engine.release_volume(&held).unwrap();
    export(&bench, false).unwrap();
}

#[test]
fn operations_on_a_volume_that_is_rolled_back_again_and_again_all_succeed() {
    let bench = bench();
    let held = hold(&bench, "tank/v");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (1..3_u8)
            .map(|client| {
                let (held, is_over) = (&held, &is_over);
                scope.spawn(move || {
                    let offset = u64::from(client) * (SIZE / 4);
                    while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                        write(held, offset, &[client; 512]).unwrap();
                        let found = read(held, offset, 512);
                        assert!(found == [client; 512] || found == [0; 512]);
                    }
                })
            })
            .collect();
        for _ in 0..10 {
            roll_back(&bench).unwrap();
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        clients.into_iter().for_each(|one| one.join().unwrap());
    });
    roll_back(&bench).unwrap();
    assert_eq!(read(&held, SIZE / 4, 512), [0; 512]);
}

#[test]
fn watchers_hear_of_sizes_properties_names_and_of_the_end() {
    let bench = bench();
    let held = hold(&bench, "tank/v");
    let diary = Arc::new(Diary::default());
    held.watch(diary.clone());
    write(&held, SIZE - 8192, &[7; 8192]).unwrap();
    bench.set("tank/v", &[("volsize", "2M")]).unwrap();
    assert_eq!(diary.take(), ["size 2097152"]);
    let refused = write(&held, SIZE - 8192, &[7; 8192]).unwrap_err();
    assert!(matches!(refused, VolumeError::OutOfRange { .. }));
    bench.set("tank/v", &[("volsize", "4M")]).unwrap();
    assert_eq!(diary.take(), ["size 4194304"]);
    let grown = read(&held, SIZE - 8192, 8192);
    assert_eq!(grown, [0; 8192], "what was cut off stays away");
    bench.set("tank", &[("readonly", "on")]).unwrap();
    assert_eq!(diary.take(), ["read-only true"]);
    assert!(matches!(
        write(&held, 0, &[1]).unwrap_err(),
        VolumeError::ReadOnly
    ));
    bench.set("tank", &[("readonly", "off")]).unwrap();
    write(&held, 0, &[1]).unwrap();
    bench.rename("tank/v", "tank/w").unwrap();
    assert_eq!(diary.take(), ["read-only false", "name tank/w"]);
    assert_eq!(held.name(), "tank/w");
    export(&bench, true).unwrap();
    assert_eq!(diary.take(), ["end"]);
    let operation = Operation::unmeasured();
    let gone = held.read(0, 512, &operation).unwrap_err();
    assert!(matches!(gone, VolumeError::Gone), "{gone}");
    assert!(matches!(
        held.flush(&operation).unwrap_err(),
        VolumeError::Gone
    ));
    bench.engine.release_volume(&held).unwrap();
}

#[test]
fn what_is_served_and_listed_follows_volmode_and_snapdev() {
    let bench = bench();
    let names = || {
        let listed = bench.engine.list_volumes(&Operation::unmeasured());
        let listed = listed.unwrap().into_iter();
        listed.map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["tank/v"]);
    bench.set("tank/v", &[("snapdev", "visible")]).unwrap();
    assert_eq!(names(), ["tank/v", "tank/v@s"]);
    bench.set("tank", &[("volmode", "none")]).unwrap();
    assert_eq!(names(), [""; 0]);
    let refused = hold_as(&bench, "tank/v", VolumeAccess::ReadWrite).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("cannot open 'tank/v': volmode=none\n")
    );
    let refused = hold_as(&bench, "tank", VolumeAccess::ReadWrite).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot open 'tank': operation not applicable to datasets of this type"
    );
}

#[test]
fn a_full_pool_refuses_writes_and_frees_by_discards() {
    let bench = bench();
    let bytes: Vec<u8> = (0..1_u32 << 18)
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .collect();
    bench
        .set("tank/v", &[("volsize", "1G"), ("compression", "off")])
        .unwrap();
    let held = hold(&bench, "tank/v");
    let operation = Operation::unmeasured();
    let part = u64::try_from(bytes.len()).unwrap();
    let full = (0..1024).find_map(|number| {
        let contents = NewContents::Bytes(&bytes);
        let written = held.write(number * part, contents, Durable::Later, &operation);
        written.err().map(|error| (number, error))
    });
    let (written, error) = full.unwrap();
    assert!(matches!(error, VolumeError::NoSpace), "{error}");
    assert!(written > 40, "{written} MiB are written");
    held.discard(0, 16 * part, Durable::Now, &operation)
        .unwrap();
    bench.sync();
    assert_eq!(read(&held, 0, 4096), [0; 4096]);
    let allocated = held.allocated(0, 32 * part, &operation).unwrap();
    assert_eq!(allocated, [(16 * part, false), (16 * part, true)]);
    bench.sync();
    bench.sync();
    write(&held, 0, &bytes).unwrap();
}
