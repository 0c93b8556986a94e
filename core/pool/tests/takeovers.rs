//! Hosts that share disks take a pool with `multihost` over from each other, while any of them is
//! paused: never do two of them write it.
//!
//! `TARN_TAKEOVERS` is how many rounds to play (20 unless set), `TARN_TAKEOVERS_SEED` the seed of
//! the first of their worlds.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{create_multihost, import_as, path};
use tarn_host::Host;
use tarn_host::sim::{Random, SimHost, SimOptions, SimWrite};
use tarn_ondisk::label::{LABEL_COUNT, Ring, label_offset};
use tarn_pool::error::ImportError;
use tarn_pool::{Leaving, Pool, PoolOwner};
use tarn_probe::Operation;

const DISKS: [&str; 2] = ["a", "b"];
const DISK_BYTES: u64 = 128 << 20;
const ROUNDS_OF_A_WORLD: u64 = 20;

/// Milliseconds between heartbeats, and the lease: ten of them.
const INTERVAL_MS: u64 = 100;

/// A host, and the pool that it has.
struct Seat {
    host: Host,
    owner: PoolOwner,
    pool: Option<Arc<Pool>>,
}

impl Seat {
    fn number(&self) -> u64 {
        self.host.simulation().unwrap().host_number()
    }

    fn pause(&self, duration: Duration) {
        self.host.simulation().unwrap().pause_host(duration);
    }
}

/// Writes a pool until it is told to stop, or the pool is suspended. Gives how many txgs it stored.
fn write_on(pool: &Pool, stop: &AtomicBool) -> u64 {
    let operation = Operation::unmeasured();
    let mut stored = 0;
    while !stop.load(Ordering::Relaxed) && pool.store_labels(&operation).is_ok() {
        stored += 1;
        pool.host().sleep(Duration::from_millis(100));
    }
    stored
}

/// Whether a write lies in the slots of heartbeats.
fn is_heartbeat(write: &SimWrite) -> bool {
    let ring = Ring::new(12);
    let slot = ring.slot_offset(ring.slot_count() - 1);
    (0..LABEL_COUNT).any(|label| {
        label_offset(DISK_BYTES, label).unwrap() + slot == write.offset
            && write.length == ring.slot_bytes()
    })
}

/// A duration up to so many milliseconds; a tenth and a hundredth of it are as likely.
fn some_ms(random: &mut Random, most: u64) -> Duration {
    let most = most / [1, 10, 100][usize::try_from(random.below(3)).unwrap()];
    Duration::from_millis(random.below(most.max(1)))
}

/// What two writers did.
#[derive(Debug)]
#[allow(dead_code, reason = "it is shown when a test fails")]
struct TwoWriters {
    first_of_new: SimWrite,
    then_of_other: SimWrite,
}

/// After the first write of a host that took over, no other host writes.
fn judge(writes: &[SimWrite], old: u64, new: Option<u64>) -> Result<(), TwoWriters> {
    let mut of_blocks = writes.iter().filter(|write| !is_heartbeat(write));
    let Some(first) = of_blocks.find(|write| write.host != old) else {
        return Ok(());
    };
    assert_eq!(new, Some(first.host), "a host without the pool wrote it");
    match of_blocks.find(|write| write.host != first.host) {
        None => Ok(()),
        Some(other) => Err(TwoWriters {
            first_of_new: *first,
            then_of_other: *other,
        }),
    }
}

/// How a world went.
#[derive(Debug, Default)]
struct Tally {
    taken: u64,
    refused: u64,
    both_wanted: u64,
    left: u64,
    stored: u64,
}

/// Plays rounds on one machine. Where `ignores_lease`, the host that has the pool writes without a
/// lease.
fn world(seed: u64, rounds: u64, ignores_lease: bool) -> Result<Tally, TwoWriters> {
    let options = SimOptions {
        stall_one_in: 400,
        stall_max: Duration::from_millis(400),
        run_time_max: Duration::from_secs(100 * rounds.max(10)),
        ..SimOptions::seed(seed)
    };
    let machine = SimHost::new(options);
    for disk in DISKS {
        machine.add_disk(path(disk), DISK_BYTES);
    }
    let run = machine.run(|first| {
        let mut random = Random::new(seed ^ 0x7a6b);
        let operation = Operation::unmeasured();
        let others = ["two", "three"].iter().zip(2..);
        let others = others.map(|(name, id)| machine.second_host(name, id).host());
        let hosts = std::iter::once(first.clone()).chain(others);
        let mut seats: Vec<Seat> = hosts
            .zip(1..)
            .map(|(host, host_id)| Seat {
                host,
                owner: PoolOwner {
                    host_id,
                    host_name: format!("host{host_id}"),
                },
                pool: None,
            })
            .collect();
        let created = create_multihost(first, &DISKS, INTERVAL_MS, &seats[0].owner, &operation);
        seats[0].pool = Some(created);
        let (mut holder, mut tally) = (0, Tally::default());
        machine.take_journal();
        for _ in 0..rounds {
            let old = seats[holder].number();
            let pool = seats[holder].pool.clone().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let writer = seats[holder].host.spawn("writer", {
                let (pool, stop) = (pool.clone(), stop.clone());
                move || write_on(&pool, &stop)
            });
            first.sleep(some_ms(&mut random, 2_000));
            if ignores_lease {
                pool.vdevs().lease().lift();
            }
            // Half of the time long enough for another host to take over.
            if random.below(4) > 0 {
                seats[holder].pause(some_ms(&mut random, 12_000));
            }
            let mut wanting: Vec<usize> = (0..seats.len()).filter(|seat| *seat != holder).collect();
            random.shuffle(&mut wanting);
            wanting.truncate(1 + usize::try_from(random.below(2)).unwrap());
            tally.both_wanted += u64::from(wanting.len() == 2);
            let mut imports = Vec::new();
            for seat in &wanting {
                let Seat { host, owner, .. } = &seats[*seat];
                let (host, owner) = (host.clone(), owner.clone());
                let (after, pause) = (some_ms(&mut random, 500), some_ms(&mut random, 4_000));
                let pauses = random.below(3) == 0;
                if pauses {
                    let paused = host.clone();
                    let when = some_ms(&mut random, 4_000);
                    host.spawn("pauses", move || {
                        paused.sleep(when);
                        paused.simulation().unwrap().pause_host(pause);
                    });
                }
                let import = host.clone().spawn("import", move || {
                    host.sleep(after);
                    import_as(&host, &owner, &Operation::unmeasured())
                });
                imports.push((*seat, import));
            }
            let mut new = None;
            for (seat, import) in imports {
                let imported = import.join().unwrap_or_else(|panicked| panicked.resume());
                match imported {
                    Ok(imported) => {
                        assert_eq!(new, None, "two hosts have the pool");
                        new = Some(seat);
                        seats[seat].pool = Some(imported);
                    }
                    Err(ImportError::InUseElsewhere | ImportError::WrittenElsewhere) => {
                        tally.refused += 1;
                    }
                    // A host that was paused after its claim finds its lease expired.
                    Err(error) => assert!(error.to_string().contains("multihost"), "{error}"),
                }
            }
            if let Some(new) = new {
                let pool = seats[new].pool.as_ref().unwrap();
                drop(pool.store_labels(&operation));
            }
            // What was paused goes on.
            first.sleep(Duration::from_secs(13));
            let writes = machine.take_journal();
            let outcome = judge(&writes, old, new.map(|new| seats[new].number()));
            stop.store(true, Ordering::Relaxed);
            tally.stored += writer.join().unwrap_or_else(|panicked| panicked.resume());
            // Pools are not closed then: the machine ends here.
            outcome?;
            if let Some(new) = new {
                let lost = seats[holder].pool.take().unwrap();
                assert!(lost.is_lease_expired(), "its host had the pool before");
                lost.give_up();
                drop(lost.close(Leaving::Kept, &operation));
                holder = new;
                tally.taken += 1;
            }
            let has_pool = seats[holder].pool.as_ref().unwrap();
            if has_pool.is_lease_expired() {
                // It was paused, and no other host took the pool: it takes it back, unless another
                // has claimed the pool, and was paused then.
                if has_pool.resume(&operation).is_err() {
                    has_pool.give_up();
                    drop(has_pool.close(Leaving::Kept, &operation));
                    let Seat { host, owner, .. } = &seats[holder];
                    seats[holder].pool = Some(import_as(host, owner, &operation).unwrap());
                    tally.left += 1;
                }
            }
            machine.take_journal();
        }
        for seat in &mut seats {
            if let Some(pool) = seat.pool.take() {
                pool.close(Leaving::Exported, &operation).unwrap();
            }
        }
        Ok(tally)
    });
    run.unwrap()
}

#[test]
fn never_do_two_hosts_write_a_pool() {
    let number = |name: &str, otherwise: u64| {
        let value = std::env::var(name).ok();
        value.map_or(otherwise, |value| value.parse().unwrap())
    };
    let rounds = number("TARN_TAKEOVERS", 20);
    let first = number("TARN_TAKEOVERS_SEED", 0);
    let mut sum = Tally::default();
    for seed in first..first + rounds / ROUNDS_OF_A_WORLD {
        let tally = world(seed, ROUNDS_OF_A_WORLD, false);
        let tally = tally.unwrap_or_else(|two| panic!("seed {seed}: {two:?}"));
        sum.taken += tally.taken;
        sum.refused += tally.refused;
        sum.both_wanted += tally.both_wanted;
        sum.left += tally.left;
        sum.stored += tally.stored;
    }
    println!("{rounds} rounds: {sum:?}");
    assert!(sum.taken > 0 && sum.refused > 0 && sum.stored > 0);
}

/// The judge finds two writers where the lease is ignored.
#[test]
fn a_host_that_ignores_its_lease_is_caught() {
    let caught = (0..10).any(|seed| world(seed, 4, true).is_err());
    assert!(caught);
}
