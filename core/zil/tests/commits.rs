//! What commits promise, and what they store: with power cut at every write, with many threads, and
//! with nothing wrong.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{
    Files, GONE, Memory, SHORTENED, SHORTENED_BYTES, World, byte_at, check, machine, mark_of, path,
    read_log, told,
};
use tarn_host::sim::Fault;
use tarn_host::{Action, Errno, Host, SimHost};
use tarn_object::{ObjectError, Tx, Txgs};
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::intent_log::{LoggedAttributes, LoggedChange, LoggedWrite, mask};

use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::ObjectId;
use tarn_probe::{Operation, Outcome};
use tarn_zil::{Contents, Fetched, IntentRecord, LogClosing, LogSource, PlacedWrites, WholeBlocks};

const FILE: ObjectId = ObjectId::new(128);
const OTHER: ObjectId = ObjectId::new(129);

fn stored(txgs: &Arc<Txgs>) {
    txgs.wait_stored(txgs.open_txg(), &Operation::unmeasured())
        .unwrap();
}

/// A pool whose log has begun, so that commits are written.
fn with_log(host: &Host, memory: &Memory, body: impl FnOnce(&Arc<World>)) {
    let world = World::create(host, 1, memory);
    let storer = world.spawn_storer();
    let source: Arc<dyn LogSource> = Arc::new(Files);
    world.log.set_source(Arc::downgrade(&source));
    world.change(None);
    world.commit(None);
    body(&world);
    world.env.txgs.stop();
    storer.join().unwrap();
}

/// Runs `body` on a machine with one disk.
fn run(body: impl FnOnce(&Arc<World>)) {
    let memory = Memory::default();
    machine(1, 1)
        .run(|host| with_log(host, &memory, body))
        .expect("power stays on");
}

fn marks_in_log(host: &Host, memory: &Memory) -> Vec<u64> {
    let durable = told(memory).durable.clone().unwrap();
    let found = read_log(host, 1, &durable);
    let live = found
        .records
        .iter()
        .filter(|record| record.txg > durable.stored);
    live.filter_map(mark_of).collect()
}

#[test]
fn an_operation_tells_that_it_was_synchronous_and_waited_for_the_log() {
    run(|world| {
        let [waits, finds_nothing] = [(); 2].map(|()| Operation::unmeasured());
        world.change(Some(FILE));
        world.log.commit(Some(FILE), &waits).unwrap();
        world.log.commit(Some(FILE), &finds_nothing).unwrap();
        for operation in [&waits, &finds_nothing] {
            assert!(operation.is_marked(Outcome::Synchronous));
        }
        assert!(waits.is_marked(Outcome::Log) && !finds_nothing.is_marked(Outcome::Log));
    });
}

#[test]
fn a_commit_stores_what_its_file_needs_in_order_and_nothing_else() {
    run(|world| {
        let first = world.change(None);
        let own = world.change(Some(FILE));
        let others = world.change(Some(OTHER));
        let second = world.change(None);
        world.commit(Some(FILE));
        let in_log = marks_in_log(&world.host, &world.memory);
        assert_eq!(in_log, [first, own, second]);
        world.commit(Some(OTHER));
        let in_log = marks_in_log(&world.host, &world.memory);
        assert_eq!(in_log, [first, own, second, others]);
    });
}

#[test]
fn what_is_shared_is_stored_by_every_commit_and_what_is_forgotten_by_none() {
    run(|world| {
        let shared = world.change(Some(OTHER));
        world.log.share(OTHER);
        let rename = world.change(None);
        world.change(Some(FILE));
        world.log.forget(FILE);
        world.commit(Some(FILE));
        let in_log = marks_in_log(&world.host, &world.memory);
        assert_eq!(in_log, [shared, rename]);
    });
}

#[test]
fn what_is_stored_with_its_group_is_not_written() {
    run(|world| {
        world.change(Some(FILE));
        stored(&world.env.txgs);
        let late = world.change(Some(FILE));
        world.commit(Some(FILE));
        assert_eq!(marks_in_log(&world.host, &world.memory), [late]);
        stored(&world.env.txgs);
        assert!(marks_in_log(&world.host, &world.memory).is_empty());
        let durable = told(&world.memory).durable.clone().unwrap();
        let found = read_log(&world.host, 1, &durable);
        assert_eq!(found.blocks.len(), 1, "one block waits to be written");
    });
}

#[test]
fn writes_that_touch_are_one_and_their_bytes_are_fetched_and_cut_to_blocks() {
    run(|world| {
        const BYTES: u64 = 400_000;
        for offset in (0..BYTES).step_by(10_000) {
            world.write(FILE, offset, 10_000);
        }
        world.write(GONE, 0, 5000);
        world.commit(None);
        let durable = told(&world.memory).durable.clone().unwrap();
        let found = read_log(&world.host, 1, &durable);
        let mut end = 0;
        let live = found
            .records
            .iter()
            .filter(|record| record.txg > durable.stored);
        for record in live {
            let LoggedChange::Write(write) = &record.change else {
                panic!("{record:?} is a write");
            };
            assert_eq!((write.object, write.offset), (FILE, end));
            end += write.length;
            let data = write.data.as_ref().unwrap();
            let expected: Vec<u8> = (write.offset..end).map(|at| byte_at(FILE, at)).collect();
            assert_eq!(*data, expected);
        }
        assert_eq!(end, BYTES);
    });
}

#[test]
fn a_file_that_was_shortened_unseen_waits_for_its_group() {
    run(|world| {
        world.write(SHORTENED, 0, 5000);
        let mark = world.change(Some(FILE));
        world.commit(None);
        let (txg, _) = told(&world.memory).made[&mark];
        assert!(world.env.txgs.stored_txg() >= txg);
        assert_eq!(marks_in_log(&world.host, &world.memory), []);
        world.write(SHORTENED, 0, 5000);
        let mark = world.change(Some(SHORTENED));
        world.commit(Some(SHORTENED));
        assert_eq!(marks_in_log(&world.host, &world.memory), [mark]);
    });
}

/// What was cut off is missing in the log only if the log cuts the file as short.
#[test]
fn bytes_are_left_out_only_before_a_cut_that_is_as_short_as_the_file() {
    let cut = |offset, length| LoggedChange::Truncate {
        object: SHORTENED,
        offset,
        length,
    };
    let resized = |size| {
        LoggedChange::SetAttributes(Box::new(LoggedAttributes {
            object: SHORTENED,
            mask: mask::SIZE,
            mode: 0,
            owner: Fuid::posix(0),
            group: Fuid::posix(0),
            size,
            access_time: [0, 0],
            modification_time: [0, 0],
            extended: None,
            domains: Vec::new(),
        }))
    };
    let end = SHORTENED_BYTES;
    run(|world| {
        for (change, is_logged) in [
            (cut(0, end), false),
            (cut(end, 50), false),
            (cut(end + 1, 0), false),
            (cut(end, 0), true),
            (resized(9 * end), false),
            (resized(end + 1), false),
            (resized(end - 1), true),
        ] {
            let told = format!("{change:?}");
            world.write(SHORTENED, 0, 5000);
            let txg = world.change_as(SHORTENED, change);
            world.commit(Some(SHORTENED));
            let is_stored = world.env.txgs.stored_txg() >= txg;
            assert_eq!(is_stored, !is_logged, "{told}");
        }
    });
}

/// A file that was renamed and then cut is in the log with the cut or not at all: if they cannot be
/// in one block, they wait for their group.
#[test]
fn what_others_build_on_is_in_one_block_with_what_cut_it() {
    run(|world| {
        for (bytes, is_shared, is_logged) in [
            (2000, true, true),
            (100_000, true, true),
            (200_000, false, true),
            (200_000, true, false),
        ] {
            world.write(SHORTENED, 0, bytes);
            if is_shared {
                world.log.share(SHORTENED);
            }
            world.change(None);
            let cut = LoggedChange::Truncate {
                object: SHORTENED,
                offset: SHORTENED_BYTES,
                length: 0,
            };
            let txg = world.change_as(SHORTENED, cut);
            world.commit(Some(SHORTENED));
            let is_stored = world.env.txgs.stored_txg() >= txg;
            assert_eq!(is_stored, !is_logged, "{bytes} {is_shared}");
        }
    });
}

/// Whatever else is in the batch, records of one operation are in one block.
#[test]
fn an_operation_is_not_parted() {
    let xattr = |number: usize, bytes| IntentRecord {
        change: LoggedChange::SetXattr {
            object: FILE,
            name: Text::from(format!("user.{number}").as_bytes()),
            value: vec![1; bytes],
        },
        object: Some(FILE),
        contents: Contents::InRecord,
    };
    run(|world| {
        for bytes in (200..3800).step_by(300) {
            let tx = world.tx();
            let group = tx.txg();
            world.log.record(&tx, xattr(0, bytes));
            world
                .log
                .record_together(&tx, vec![xattr(1, 700), xattr(2, 700)]);
            drop(tx);
            world.commit(Some(FILE));
            if world.env.txgs.stored_txg() >= group {
                continue;
            }
            let durable = told(&world.memory).durable.clone().unwrap();
            let found = read_log(&world.host, 1, &durable);
            let [.., first, second] = &found.block_of[..] else {
                panic!("nothing is in the log");
            };
            assert_eq!(first, second, "behind {bytes} bytes");
        }
        // The block that waits has less room than that: nothing is in it.
        let tx = world.tx();
        let large = vec![xattr(1, 50_000), xattr(2, 60_000)];
        world.log.record_together(&tx, large);
        let group = tx.txg();
        drop(tx);
        let mark = world.change(Some(FILE));
        world.commit(Some(FILE));
        told(&world.memory).acknowledged.insert(mark);
        assert!(world.env.txgs.stored_txg() < group, "it is in the log");
        let durable = told(&world.memory).durable.clone().unwrap();
        let found = read_log(&world.host, 1, &durable);
        let last = found.block_of.last().unwrap();
        assert_eq!(found.block_of[found.block_of.len() - 3..], [*last; 3]);
        assert!(!found.block_of.contains(&(last - 1)));
        check(&world.host, 1, &world.memory);
        let parted = |blocks: &[usize]| blocks.windows(2).any(|two| two[0] != two[1]);
        let durable = told(&world.memory).durable.clone().unwrap();
        let found = read_log(&world.host, 1, &durable);
        assert!(parted(&found.block_of), "all were in the same block");
    });
}

/// Its file is removed while its bytes are fetched.
struct Removing(std::sync::Weak<World>);

impl LogSource for Removing {
    fn contents(&self, _: &LoggedWrite, _: u64, _: &Operation) -> Result<Fetched, ObjectError> {
        let removal = self.0.upgrade().unwrap().change(None);
        assert!(removal > 0);
        Ok(Fetched::Gone)
    }

    fn place(
        &self,
        _: &LoggedWrite,
        _: u64,
        _: WholeBlocks,
        _: &Tx,
        _: &Operation,
    ) -> Option<PlacedWrites> {
        None
    }
}

#[test]
fn a_file_that_was_removed_unseen_waits_for_its_group() {
    run(|world| {
        let source: Arc<dyn LogSource> = Arc::new(Removing(Arc::downgrade(world)));
        world.log.set_source(Arc::downgrade(&source));
        let mark = world.change(Some(FILE));
        world.write(FILE, 0, 5000);
        world.commit(Some(FILE));
        let (txg, _) = told(&world.memory).made[&mark];
        assert!(world.env.txgs.stored_txg() >= txg);
    });
}

/// Whether a commit of so many bytes waited for its group.
fn waits(world: &World, bytes: u64) -> bool {
    world.write(FILE, 0, bytes);
    let mark = world.change(Some(FILE));
    world.commit(Some(FILE));
    let (txg, _) = told(&world.memory).made[&mark];
    let is_stored = world.env.txgs.stored_txg() >= txg;
    assert!(is_stored || marks_in_log(&world.host, &world.memory).contains(&mark));
    is_stored
}

#[test]
fn much_data_waits_for_its_group() {
    run(|world| {
        world.change(Some(OTHER));
        world.commit(Some(OTHER));
        assert!(!waits(world, 200 << 10));
        assert!(waits(world, 9 << 20));
        let small = world.change(Some(OTHER));
        world.commit(Some(OTHER));
        assert_eq!(marks_in_log(&world.host, &world.memory), [small]);
    });
}

#[test]
fn a_chain_is_no_longer_than_readers_follow_it() {
    run(|world| {
        world.log.set_blocks_max(5);
        let (mut waited, mut longest) = (0, 0);
        for _ in 0..40 {
            waited += usize::from(waits(world, 4096));
            let durable = told(&world.memory).durable.clone().unwrap();
            longest = longest.max(read_log(&world.host, 1, &durable).blocks.len());
        }
        assert!((5..20).contains(&waited), "{waited}");
        assert!((5..=11).contains(&longest), "{longest}");
    });
}

/// Asked for together, while the group of the one is being stored and the other was changed in the
/// next.
#[test]
fn a_file_beside_one_that_waits_for_its_group_is_as_durable_as_by_itself() {
    run(|world| {
        let txgs = &world.env.txgs;
        let large = world.change(Some(OTHER));
        world.write(OTHER, 0, 9 << 20);
        let (group, _) = told(&world.memory).made[&large];
        let storing = world.clone();
        let storing = world
            .host
            .spawn("storing", move || stored(&storing.env.txgs));
        while txgs.open_txg() == group {
            world.host.sleep(Duration::from_micros(1));
        }
        let small = world.change(Some(FILE));
        assert!(txgs.stored_txg() < group, "it is on its way");
        let both = [Some(OTHER), Some(FILE)];
        let committed = world.log.commit_together(&both, &Operation::unmeasured());
        committed.unwrap();
        told(&world.memory).acknowledged.extend([large, small]);
        assert!(txgs.stored_txg() >= group);
        check(&world.host, 1, &world.memory);
        storing.join().unwrap();
    });
}

#[test]
fn a_closed_log_promises_what_it_does_not_record() {
    run(|world| {
        world.log.close(&Operation::unmeasured()).unwrap();
        let tx = world.tx();
        let unlogged = tx.txg();
        world.log.note_unlogged(&tx);
        let storing = world.clone();
        let storing = world
            .host
            .spawn("storing", move || stored(&storing.env.txgs));
        drop(tx);
        while world.env.txgs.open_txg() == unlogged {
            world.host.sleep(Duration::from_micros(1));
        }
        let mark = world.change(Some(FILE));
        world.commit(Some(FILE));
        let (txg, _) = told(&world.memory).made[&mark];
        assert!(txg > unlogged && world.env.txgs.stored_txg() >= txg);
        storing.join().unwrap();
    });
}

#[test]
fn a_closed_log_leaves_nothing_on_the_disk() {
    run(|world| {
        world.change(Some(FILE));
        world.commit(Some(FILE));
        let closing = world.log.close(&Operation::unmeasured()).unwrap();
        assert_eq!(closing, LogClosing::WithGroup);
        world.change(Some(FILE));
        world.commit(Some(FILE));
        stored(&world.env.txgs);
        let closing = world.log.close(&Operation::unmeasured()).unwrap();
        assert_eq!(closing, LogClosing::Done);
        let durable = told(&world.memory).durable.clone().unwrap();
        assert!(read_log(&world.host, 1, &durable).blocks.is_empty());
        check(&world.host, 1, &world.memory);
    });
}

#[test]
fn a_log_that_is_vacated_leaves_all_its_blocks_and_begins_another_chain() {
    run(|world| {
        world.change(Some(FILE));
        world.commit(Some(FILE));
        let found = || {
            let durable = told(&world.memory).durable.clone().unwrap();
            read_log(&world.host, 1, &durable).blocks
        };
        let before = found();
        assert!(!before.is_empty());
        let vacated = world.log.vacate(&Operation::unmeasured()).unwrap();
        assert_eq!(vacated, LogClosing::WithGroup);
        // What is promised meanwhile is in the group.
        world.change(Some(FILE));
        world.commit(Some(FILE));
        stored(&world.env.txgs);
        check(&world.host, 1, &world.memory);
        for _ in 0..3 {
            world.change(Some(FILE));
            world.commit(Some(FILE));
        }
        let after = found();
        assert!(!after.is_empty());
        assert!(after.iter().all(|pointer| !before.contains(pointer)));
        check(&world.host, 1, &world.memory);
    });
}

#[test]
fn a_block_that_cannot_be_written_makes_commits_wait_for_their_group() {
    let machine = machine(1, 1);
    let disk = machine.disk(path(0)).unwrap();
    let memory = Memory::default();
    let body = |world: &Arc<World>| {
        disk.inject(Fault::FailNth {
            action: Action::Write,
            nth: 0,
            errno: Errno::IO,
        });
        let mark = world.change(Some(FILE));
        world.commit(Some(FILE));
        let (txg, _) = told(&world.memory).made[&mark];
        assert!(world.env.txgs.stored_txg() >= txg);
        check(&world.host, 1, &world.memory);
        // A new chain begins, and goes on.
        world.change(Some(FILE));
        world.commit(Some(FILE));
        let mark = world.change(Some(FILE));
        world.commit(Some(FILE));
        assert_eq!(marks_in_log(&world.host, &world.memory), [mark]);
        check(&world.host, 1, &world.memory);
    };
    machine
        .run(|host| with_log(host, &memory, body))
        .expect("power stays on");
}

/// What was on its way behind the block that failed is not in the log either, and no `fsync` says
/// that it is.
#[test]
fn a_block_that_cannot_be_written_fails_those_on_their_way_behind_it() {
    for seed in 0..8 {
        let run = |machine: &SimHost, memory: &Memory| {
            let disk = machine.disk(path(0)).unwrap();
            let body = move |world: &Arc<World>| {
                disk.inject(Fault::FailNth {
                    action: Action::Write,
                    nth: 3 + seed,
                    errno: Errno::IO,
                });
                clients(world, 8, 4);
            };
            machine.run(|host| with_log(host, memory, body))
        };
        let whole = machine(seed, 1);
        let memory = Memory::default();
        run(&whole, &memory).expect("power stays on");
        whole.run(|host| check(host, 1, &memory)).unwrap();
        for cut in 1..=whole.device_writes() {
            let machine = machine(seed, 1);
            machine.cut_power_after_writes(cut);
            let memory = Memory::default();
            if run(&machine, &memory).is_ok() || told(&memory).durable.is_none() {
                continue;
            }
            let rebooted = machine.reboot();
            let checked = rebooted.run(|host| check(host, 1, &memory));
            checked.expect("power stays on");
        }
    }
}

/// Some threads that change and commit, each its own file and the names.
fn clients(world: &Arc<World>, threads: u64, rounds: u64) {
    let workers: Vec<_> = (0..threads)
        .map(|number| {
            let world = world.clone();
            world.host.clone().spawn("client", move || {
                let file = ObjectId::from(200 + number);
                for round in 0..rounds {
                    let mut marks = Vec::new();
                    // Without a change of its own it may need nothing but a batch of others.
                    if round % 7 != 3 {
                        marks.push(world.change(Some(file)));
                    }
                    if round % 3 == 0 {
                        marks.push(world.change(None));
                    }
                    if round % 5 == 1 {
                        world.write(file, round * 1000, 60_000);
                    }
                    if round % 4 == number % 4 {
                        world.host.sleep(Duration::from_secs(2));
                    }
                    world.commit(Some(file));
                    told(&world.memory).acknowledged.extend(marks);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
}

/// Runs clients once to count the writes, and then with power cut at some of them: each time, what
/// was acknowledged must be there.
fn cut_power_everywhere(seed: u64, disks: u64, threads: u64, rounds: u64, step: usize) {
    let program = |memory: &Memory| {
        let memory = memory.clone();
        move |host: &Host| {
            let world = World::create(host, disks, &memory);
            let storer = world.spawn_storer();
            let source: Arc<dyn LogSource> = Arc::new(Files);
            world.log.set_source(Arc::downgrade(&source));
            let eager = world.clone();
            let syncer = host.spawn("eager", move || {
                for _ in 0..rounds {
                    stored(&eager.env.txgs);
                }
            });
            clients(&world, threads, rounds);
            syncer.join().unwrap();
            world.log.close(&Operation::unmeasured()).unwrap();
            stored(&world.env.txgs);
            world.env.txgs.stop();
            storer.join().unwrap();
        }
    };
    let whole = machine(seed, disks);
    let memory = Memory::default();
    whole.run(program(&memory)).expect("power stays on");
    let writes = whole.device_writes();
    let asked = usize::try_from(threads * rounds).unwrap();
    assert!(told(&memory).acknowledged.len() >= asked);
    whole.run(|host| check(host, disks, &memory)).unwrap();
    for cut in (1..=writes).step_by(step) {
        let machine = machine(seed, disks);
        machine.cut_power_after_writes(cut);
        let memory = Memory::default();
        if machine.run(program(&memory)).is_ok() || told(&memory).durable.is_none() {
            continue;
        }
        let rebooted = machine.reboot();
        let checked = rebooted.run(|host| check(host, disks, &memory));
        checked.expect("power stays on");
    }
}

#[test]
fn a_single_thread_loses_nothing_wherever_power_is_cut() {
    cut_power_everywhere(1, 1, 1, 60, 1);
}

#[test]
fn many_threads_lose_nothing_wherever_power_is_cut() {
    for seed in 2..6 {
        cut_power_everywhere(seed, 1, 6, 20, 2);
    }
}

#[test]
fn a_mirror_loses_nothing_wherever_power_is_cut() {
    cut_power_everywhere(5, 2, 3, 20, 2);
}

#[test]
fn many_threads_share_batches() {
    let machine = machine(5, 1);
    let disk = machine.disk(path(0)).unwrap();
    let memory = Memory::default();
    let (threads, rounds) = (16, 8);
    let body = |world: &Arc<World>| {
        let (_, _, before) = disk.requests();
        clients(world, threads, rounds);
        let (_, _, after) = disk.requests();
        assert!(after - before < threads * rounds / 2, "{before} to {after}");
        check(&world.host, 1, &world.memory);
    };
    machine
        .run(|host| with_log(host, &memory, body))
        .expect("power stays on");
}
