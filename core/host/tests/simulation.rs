//! The simulated host keeps its promises: one seed, one run; nothing that was flushed is lost;
//! faults and deadlocks are seen.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tarn_host::channel::{self, NoMessage};
use tarn_host::sim::{Fault, PowerCut, SimHost, SimOptions, Trace};
use tarn_host::{
    Action, Condvar, Device, DeviceError, Errno, Host, Mutex, OpenMode, Rank, Request, RwLock,
};

const RANK: Rank = Rank::new(10, "test");

fn always_switching(seed: u64) -> SimHost {
    SimHost::new(SimOptions {
        switch_one_in: 1,
        ..SimOptions::seed(seed)
    })
}

fn with_disk(seed: u64) -> SimHost {
    let simulation = SimHost::new(SimOptions::seed(seed));
    simulation.add_disk("/dev/a", 1 << 20);
    simulation
}

fn open(host: &Host) -> Arc<dyn Device> {
    host.open_device("/dev/a".as_ref(), OpenMode::ReadWriteExclusive)
        .unwrap()
}

fn sector(fill: u8) -> tarn_host::WriteData {
    tarn_host::Buffer::from_slice(&[fill; 512]).into()
}

/// Four threads that compete for a lock, a channel, time, entropy and a disk. Gives what each did,
/// in order.
fn fight(seed: u64) -> (Vec<u64>, Trace) {
    let simulation = with_disk(seed);
    let story = simulation.run(|host| {
        let story = Arc::new(Mutex::new(RANK, Vec::new()));
        let device = open(host);
        let (sender, receiver) = channel::bounded(2);
        let threads: Vec<_> = (0..4_u64)
            .map(|number| {
                let (host, story, device) = (host.clone(), story.clone(), device.clone());
                let sender = sender.clone();
                host.clone().spawn(&format!("fighter {number}"), move || {
                    for round in 0..10 {
                        host.sleep(Duration::from_nanos(host.random_u64() % 1000));
                        device.write_at(number * 512, sector(7)).unwrap();
                        story.lock().push(number * 100 + round);
                        sender.send(number).unwrap();
                    }
                })
            })
            .collect();
        drop(sender);
        while let Some(number) = receiver.recv() {
            story.lock().push(1000 + number);
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        story.lock().push(host.monotonic_ns());
        std::mem::take(&mut *story.lock())
    });
    (story.unwrap(), simulation.trace())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let first = fight(42);
    assert_eq!(first.0.len(), 81);
    for _ in 0..3 {
        assert_eq!(fight(42), first);
    }
}

#[test]
fn different_seeds_give_different_runs() {
    let traces: BTreeSet<u64> = (0..20).map(|seed| fight(seed).1.hash).collect();
    assert_eq!(traces.len(), 20);
}

/// The canary of the scheduler: a race that needs an unlucky order must be found by some seed.
#[test]
fn some_seed_finds_a_race_and_finds_it_again() {
    let loses_an_update = |seed| {
        always_switching(seed).run(|host| {
            let value = Arc::new(Mutex::new(RANK, 0));
            let increment = {
                let value = value.clone();
                move || {
                    let seen = *value.lock();
                    *value.lock() = seen + 1;
                }
            };
            let other = host.spawn("other", increment.clone());
            increment();
            other.join().unwrap();
            *value.lock() == 1
        })
    };
    let found: Vec<u64> = (0..50)
        .filter(|seed| loses_an_update(*seed).unwrap())
        .collect();
    assert!(!found.is_empty() && found.len() < 50);
    assert!(found.iter().all(|seed| loses_an_update(*seed).unwrap()));
}

#[test]
fn a_deadlock_is_found_and_says_which_thread_waits_for_what() {
    let run = || {
        always_switching(1).run(|host| {
            let (never, receiver) = channel::bounded::<()>(1);
            let waiter = host.spawn("waiter", move || receiver.recv());
            let joined = waiter.join();
            drop(never);
            joined.is_ok()
        })
    };
    let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let message = payload.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("thread 0 main: waits for the end of a thread"),
        "{message}"
    );
    assert!(
        message.contains("thread 1 waiter: waits for channel"),
        "{message}"
    );
}

#[test]
fn a_thread_that_polls_for_ever_is_found() {
    let run = |sleeps: u64| {
        let machine = SimHost::new(SimOptions {
            run_time_max: Duration::from_secs(100),
            ..SimOptions::seed(1)
        });
        machine.run(|host| {
            let other = host.clone();
            let sleeper = host.spawn("sleeper", move || {
                (0..sleeps).for_each(|_| other.sleep(Duration::from_secs(10)));
            });
            sleeper.join().is_ok()
        })
    };
    assert_eq!(run(9), Ok(true));
    let payload = catch_unwind(AssertUnwindSafe(|| run(u64::MAX))).unwrap_err();
    let message = payload.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("came to no end") && message.contains("sleeper: waits for time to pass"),
        "{message}"
    );
}

#[test]
fn a_thread_that_polls_for_one_that_panicked_is_found() {
    let run = || {
        let machine = SimHost::new(SimOptions::seed(1));
        machine.run(|host| {
            let worker = host.spawn("worker", || panic!("an assertion failed"));
            let is_done = std::sync::atomic::AtomicBool::new(false);
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                host.sleep(Duration::from_secs(10));
            }
            drop(worker);
        })
    };
    let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let message = payload.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("came to no end") && message.contains("worker: an assertion failed"),
        "{message}"
    );
}

#[test]
fn a_panic_of_a_thread_that_is_not_joined_is_not_lost() {
    let run = || {
        always_switching(1).run(|host| {
            let thread = host.spawn("unlucky", || panic!("out of luck"));
            while !thread.is_finished() {
                host.sleep(Duration::from_millis(1));
            }
        })
    };
    let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let message = payload.downcast_ref::<String>().unwrap();
    assert!(message.contains("unlucky: out of luck"), "{message}");
}

#[test]
fn time_is_virtual_and_waits_end_in_its_order() {
    let simulation = SimHost::new(SimOptions::seed(3));
    let order = simulation.run(|host| {
        let begun = (host.monotonic_ns(), host.unix_time());
        let order = Arc::new(Mutex::new(RANK, Vec::new()));
        let sleepers = [30, 10, 20].map(|minutes| {
            let (host, order) = (host.clone(), order.clone());
            host.clone().spawn("sleeper", move || {
                host.sleep(Duration::from_secs(minutes * 60));
                order.lock().push(minutes);
            })
        });
        sleepers
            .into_iter()
            .for_each(|sleeper| sleeper.join().unwrap());
        assert!(host.monotonic_ns() - begun.0 >= 1800 * 1_000_000_000);
        assert!(host.unix_time().seconds - begun.1.seconds >= 1800);
        order.lock().clone()
    });
    assert_eq!(order, Ok(vec![10, 20, 30]));
}

#[test]
fn conditions_and_channels_time_out_in_virtual_time() {
    let simulation = SimHost::new(SimOptions::seed(4));
    let run = simulation.run(|_| {
        let (lock, condition) = (Mutex::new(RANK, ()), Condvar::new());
        let mut guard = lock.lock();
        assert!(
            condition
                .wait_timeout(&mut guard, Duration::from_secs(3600))
                .timed_out()
        );
        drop(guard);
        let (_sender, receiver) = channel::bounded::<()>(1);
        assert_eq!(
            receiver.recv_timeout(Duration::from_secs(60)),
            Err(NoMessage::NotYet)
        );
    });
    assert_eq!(run, Ok(()));
}

#[test]
fn readers_share_a_lock_and_a_writer_has_it_alone() {
    for seed in 0..20 {
        let inside = Arc::new(AtomicU64::new(0));
        let run = always_switching(seed).run(|host| {
            let lock = Arc::new(RwLock::new(RANK.across_waits(), ()));
            let writers = (0..2).map(|_| {
                let (lock, inside, host) = (lock.clone(), inside.clone(), host.clone());
                host.clone().spawn("writer", move || {
                    let _guard = lock.write();
                    assert_eq!(inside.fetch_add(100, Ordering::Relaxed), 0);
                    host.sleep(Duration::from_micros(5));
                    inside.fetch_sub(100, Ordering::Relaxed);
                })
            });
            let writers: Vec<_> = writers.collect();
            for _ in 0..3 {
                let _guard = lock.read();
                assert!(inside.fetch_add(1, Ordering::Relaxed) < 100);
                host.sleep(Duration::from_micros(5));
                inside.fetch_sub(1, Ordering::Relaxed);
            }
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
        });
        assert_eq!(run, Ok(()));
    }
}

#[test]
fn when_the_first_thread_returns_the_others_unwind_with_their_destructors() {
    struct SetOnDrop(Arc<AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let on_drop = SetOnDrop(dropped.clone());
    let run = always_switching(5).run(move |host| {
        let lock = Arc::new(Mutex::new(RANK.across_waits(), ()));
        let condition = Arc::new(Condvar::new());
        let (own_lock, own_condition) = (lock.clone(), condition.clone());
        host.spawn("waits for ever", move || {
            let _on_drop = on_drop;
            let mut guard = own_lock.lock();
            own_condition.wait(&mut guard);
            own_condition.wait(&mut guard);
        });
        let (own_host, own_lock) = (host.clone(), lock.clone());
        host.spawn("holds the lock", move || {
            let _guard = own_lock.lock();
            own_host.sleep(Duration::from_secs(1_000_000));
        });
        host.sleep(Duration::from_secs(1));
    });
    assert_eq!(run, Ok(()));
    assert!(dropped.load(Ordering::Relaxed));
}

#[test]
fn what_was_flushed_survives_a_power_cut_and_what_was_not_may_go_in_any_part() {
    let mut fates = BTreeSet::new();
    for seed in 0..200 {
        let simulation = with_disk(seed);
        let ended = simulation.run(|host| {
            let device = open(host);
            device.write_at(0, sector(1)).unwrap();
            device.flush().unwrap();
            device.write_at(512, sector(2)).unwrap();
            device
                .write_at(8192, tarn_host::Buffer::from_slice(&[3; 1024]).into())
                .unwrap();
            assert_eq!(device.read_at(512, 512).unwrap()[0], 2);
            simulation.cut_power();
        });
        assert_eq!(ended, Err(PowerCut));
        let rebooted = simulation.reboot();
        let bytes = rebooted
            .run(|host| open(host).read_at(0, 16384).unwrap())
            .unwrap();
        assert_eq!(bytes[..512], [1; 512], "what was flushed is there");
        let fate = [512, 8192, 8704].map(|at| bytes[at]);
        for (at, written) in [(512, 2), (8192, 3), (8704, 3)] {
            let piece = &bytes[at..at + 512];
            assert!(
                piece == [0; 512] || piece == [written; 512],
                "sectors are whole"
            );
        }
        fates.insert(fate);
    }
    let seen = |wanted: [Option<u8>; 3]| {
        fates.iter().any(|fate| {
            wanted
                .iter()
                .zip(fate)
                .all(|(w, f)| w.is_none_or(|w| w == *f))
        })
    };
    assert!(seen([Some(0), Some(0), Some(0)]) && seen([Some(2), Some(3), Some(3)]));
    assert!(
        seen([Some(0), Some(3), None]),
        "a later write without an earlier one: {fates:?}"
    );
    assert!(
        seen([Some(2), Some(0), Some(0)]),
        "an earlier write without a later one: {fates:?}"
    );
    assert!(seen([None, Some(0), Some(3)]), "half a write: {fates:?}");
}

#[test]
fn of_overlapping_writes_either_may_be_the_last() {
    let last = |seed| {
        let simulation = with_disk(seed);
        let _ = simulation.run(|host| {
            let device = open(host);
            device.write_at(0, sector(1)).unwrap();
            device.write_at(0, sector(2)).unwrap();
            simulation.cut_power();
        });
        simulation.reboot().disk("/dev/a").unwrap().peek(0, 1)[0]
    };
    let seen: BTreeSet<u8> = (0..100).map(last).collect();
    assert_eq!(seen, BTreeSet::from([0, 1, 2]));
}

#[test]
fn power_can_be_cut_at_any_write() {
    let work = |simulation: &SimHost| {
        simulation.run(|host| {
            let device = open(host);
            for round in 0..5 {
                let batch = (0..4)
                    .map(|n| Request::write(n * 512, sector(round)))
                    .collect();
                device.submit(batch).wait().into_iter().for_each(|done| {
                    done.result.unwrap();
                });
                device.flush().unwrap();
            }
        })
    };
    let whole = with_disk(1);
    assert_eq!(work(&whole), Ok(()));
    assert_eq!(whole.device_writes(), 25);
    for cut in 1..=25 {
        let simulation = with_disk(1);
        simulation.cut_power_after_writes(cut);
        assert_eq!(work(&simulation), Err(PowerCut));
        assert_eq!(simulation.device_writes(), cut);
        // Whatever round was flushed last is on the disk, or a later one.
        let flushed = (cut - 1) / 5;
        let disk = simulation.reboot().disk("/dev/a").unwrap();
        let oldest = (0..4).map(|n| disk.peek(n * 512, 1)[0]).min().unwrap();
        assert!(u64::from(oldest) + 1 >= flushed);
    }
}

#[test]
fn a_process_that_ends_loses_nothing_and_can_run_again() {
    let simulation = with_disk(1);
    let write = |host: &Host| open(host).write_at(0, sector(9)).unwrap();
    assert_eq!(simulation.run(write), Ok(()));
    let read = |host: &Host| open(host).read_at(0, 512).unwrap()[0];
    assert_eq!(simulation.run(read), Ok(9));
}

#[test]
fn faults_happen_when_and_where_they_were_ordered() {
    let simulation = with_disk(1);
    let disk = simulation.disk("/dev/a").unwrap();
    let run = simulation.run(|host| {
        let device = open(host);
        disk.inject(Fault::FailNth {
            action: Action::Read,
            nth: 1,
            errno: Errno::IO,
        });
        assert!(device.read_at(0, 512).is_ok());
        let error = device.read_at(1024, 512).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read /dev/a: offset 1024, 512 bytes: Input/output error"
        );
        assert!(device.read_at(1024, 512).is_ok());

        disk.inject(Fault::FailRange {
            action: Action::Write,
            range: 512..1024,
            errno: Errno::IO,
        });
        assert!(device.write_at(512, sector(1)).is_err());
        assert!(device.write_at(1024, sector(1)).is_ok());

        disk.clear_faults();
        disk.inject(Fault::LoseWrite { nth: 0 });
        disk.inject(Fault::MisdirectWrite { nth: 0, to: 4096 });
        device.write_at(0, sector(5)).unwrap();
        assert_eq!(device.read_at(0, 512).unwrap()[0], 0);
        device.write_at(0, sector(6)).unwrap();
        assert_eq!(device.read_at(0, 512).unwrap()[0], 0);
        assert_eq!(device.read_at(4096, 512).unwrap()[0], 6);

        disk.rot(4096..4097);
        assert_ne!(device.read_at(4096, 512).unwrap()[0], 6);

        disk.inject(Fault::Vanish);
        assert!(device.read_at(0, 512).unwrap_err().is_gone());
    });
    assert_eq!(run, Ok(()));
}

#[test]
fn a_failed_flush_retires_the_device_for_writing() {
    let simulation = with_disk(1);
    let disk = simulation.disk("/dev/a").unwrap();
    let run = simulation.run(|host| {
        let device = open(host);
        disk.inject(Fault::FailNth {
            action: Action::Flush,
            nth: 0,
            errno: Errno::IO,
        });
        device.write_at(0, sector(1)).unwrap();
        assert!(device.flush().is_err());
        assert!(device.is_retired());
        assert!(matches!(
            device.flush(),
            Err(DeviceError::Retired {
                errno: Errno::IO,
                ..
            })
        ));
        assert!(device.write_at(0, sector(2)).is_err());
        assert!(device.read_at(0, 512).is_ok());
    });
    assert_eq!(run, Ok(()));
}

/// Takes a lock when it goes.
struct LocksWhenItGoes(Arc<Mutex<u64>>);

impl Drop for LocksWhenItGoes {
    fn drop(&mut self) {
        *self.0.lock() += 1;
    }
}

#[test]
fn threads_that_never_began_end_with_the_world_whatever_they_hold() {
    for seed in 0..20 {
        let simulation = always_switching(seed);
        let lock = Arc::new(Mutex::new(RANK, 0));
        let power_cut = simulation.run(|host| {
            for _ in 0..4 {
                let held = LocksWhenItGoes(lock.clone());
                host.spawn("late", move || drop(held));
            }
            simulation.cut_power();
        });
        assert_eq!(power_cut, Err(PowerCut));
    }
}

#[test]
fn a_flush_that_lies_is_found_out_by_a_power_cut() {
    let mut lost = 0;
    for seed in 0..20 {
        let simulation = with_disk(seed);
        simulation
            .disk("/dev/a")
            .unwrap()
            .inject(Fault::IgnoreFlushes);
        let _ = simulation.run(|host| {
            let device = open(host);
            device.write_at(0, sector(1)).unwrap();
            device.flush().unwrap();
            simulation.cut_power();
        });
        let survived = simulation.reboot().disk("/dev/a").unwrap().peek(0, 1)[0];
        lost += u32::from(survived == 0);
    }
    assert!(lost > 0 && lost < 20);
}

#[test]
fn a_device_taken_exclusively_is_refused_to_others_until_it_is_dropped() {
    let run = with_disk(1).run(|host| {
        let device = open(host);
        let again = host.open_device("/dev/a".as_ref(), OpenMode::ReadWriteExclusive);
        assert!(matches!(again, Err(tarn_host::OpenError::Busy { .. })));
        drop(device);
        open(host);
        let missing = host.open_device("/dev/b".as_ref(), OpenMode::ReadOnly);
        assert!(matches!(
            missing,
            Err(tarn_host::OpenError::NotFound { .. })
        ));
    });
    assert_eq!(run, Ok(()));
}

#[test]
fn state_files_survive_a_power_cut() {
    let simulation = SimHost::new(SimOptions::seed(1));
    let _ = simulation.run(|host| {
        host.write_file_atomically("/state/cache".as_ref(), b"pools")
            .unwrap();
        simulation.cut_power();
    });
    let read = simulation.reboot().run(|host| {
        let names = host.list_directory("/state".as_ref()).unwrap();
        (
            names.len(),
            host.read_file("/state/cache".as_ref()).unwrap(),
        )
    });
    assert_eq!(read, Ok((1, b"pools".to_vec())));
}

/// A thread that waits for a disk which does not answer gets an error when the disk is given up;
/// opened anew, the disk answers again.
#[test]
fn a_disk_that_hangs_can_be_given_up() {
    let machine = SimHost::new(SimOptions::seed(3));
    let disk = machine.add_disk("/dev/a", 1 << 20);
    let run = machine.run(|host| {
        let device = open(host);
        disk.inject(Fault::Hang);
        let other = device.clone();
        let waiter = host.spawn("waiter", move || other.read_at(0, 512));
        host.sleep(Duration::from_secs(3));
        assert!(!waiter.is_finished());
        assert!(device.silent_ns() > 2_000_000_000);
        device.give_up();
        let outcome = waiter.join().unwrap_or_else(|panicked| panicked.resume());
        assert!(matches!(outcome, Err(DeviceError::GivenUp { .. })));
        assert!(device.read_at(0, 512).is_err());
        drop(device);
        disk.clear_faults();
        let device = open(host);
        assert_eq!(device.silent_ns(), 0);
        device.read_at(0, 512).unwrap();
    });
    run.unwrap();
}

/// Power can be cut after a flush is done and before its thread continues: what was flushed is
/// there, the thread is not.
#[test]
fn power_is_cut_after_the_flush_that_was_chosen() {
    let machine = with_disk(5);
    let disk = machine.disk("/dev/a").unwrap();
    disk.inject(Fault::CutAfterFlush { nth: 1 });
    let run = machine.run(|host| {
        let device = open(host);
        for fill in 1..=3 {
            device.write_at(0, sector(fill)).unwrap();
            device.flush().unwrap();
        }
    });
    assert_eq!(run, Err(PowerCut));
    let after = machine.reboot();
    assert_eq!(after.disk("/dev/a").unwrap().peek(0, 1), [2]);
}

/// What a flush covers is durable when it ends, not when it begins.
#[test]
fn what_is_being_flushed_when_power_is_cut_may_be_lost() {
    let survives = |seed: u64, has_ended: bool| {
        let machine = with_disk(seed);
        let disk = machine.disk("/dev/a").unwrap();
        let ended = machine.run(|host| {
            let device = open(host);
            device.write_at(0, sector(1)).unwrap();
            disk.inject(Fault::Slow { factor: 1000 });
            let flushing = device.clone();
            let flush = host.spawn("flush", move || flushing.flush());
            host.sleep(Duration::from_millis(10));
            assert_eq!(disk.requests().2, 1, "it is on its way");
            assert_eq!(disk.unflushed_writes(), 1);
            if has_ended {
                flush.join().unwrap().unwrap();
                assert_eq!(disk.unflushed_writes(), 0);
            }
            machine.cut_power();
        });
        assert_eq!(ended, Err(PowerCut));
        let after = machine.reboot();
        after.disk("/dev/a").unwrap().peek(0, 1) == [1]
    };
    let count = |has_ended| (0..50).filter(|seed| survives(*seed, has_ended)).count();
    assert_eq!(count(true), 50);
    let lucky = count(false);
    assert!(lucky > 0 && lucky < 50, "{lucky} of 50");
}

/// Threads that are set aside for a while leave time in which others do much.
#[test]
fn a_thread_that_is_set_aside_is_overtaken() {
    let overtaken = |stall_one_in| {
        let machine = SimHost::new(SimOptions {
            switch_one_in: 1,
            stall_one_in,
            ..SimOptions::seed(6)
        });
        machine
            .run(|host| {
                let (done, lock) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(RANK, ())));
                let (other_done, other_lock) = (done.clone(), lock.clone());
                let other = host.spawn("other", move || {
                    for _ in 0..2000 {
                        drop(other_lock.lock());
                        other_done.fetch_add(1, Ordering::Relaxed);
                    }
                });
                let mut most = 0;
                for _ in 0..200 {
                    let before = done.load(Ordering::Relaxed);
                    drop(lock.lock());
                    most = most.max(done.load(Ordering::Relaxed) - before);
                }
                other.join().unwrap_or_else(|panicked| panicked.resume());
                most
            })
            .unwrap()
    };
    let (never, sometimes) = (overtaken(0), overtaken(100));
    assert!(never * 5 < sometimes, "{never} and {sometimes}");
}
