//! Records that lead to blocks which are written where they will stay: what a commit stores of
//! them, what becomes of their places, and all of it with power cut at every write.

mod support;

use std::sync::{Arc, Weak};
use std::time::Duration;

use support::{Memory, World, check, machine, path, read_log, told};
use tarn_block::BlockScope;
use tarn_host::sim::Fault;
use tarn_host::{Action, Errno, Host};
use tarn_object::{NewObject, ObjectError, TO_END, Tx};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::widen;
use tarn_ondisk::intent_log::{LoggedChange, LoggedWrite};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, ObjectId};
use tarn_probe::Operation;
use tarn_zil::{Fetched, LogBias, LogSource, PlacedWrites, WholeBlocks};

const FILE: ObjectId = ObjectId::new(1);
const BLOCK_BYTES: u64 = 16 << 10;

/// Objects of the set, which are never removed.
struct Objects(Weak<World>);

impl LogSource for Objects {
    fn contents(
        &self,
        write: &LoggedWrite,
        _: u64,
        operation: &Operation,
    ) -> Result<Fetched, ObjectError> {
        let world = self.0.upgrade().unwrap();
        let object = world.set.object(write.object, operation)?;
        let mut bytes = vec![0; usize::try_from(write.length).unwrap()];
        object.read(write.offset, &mut bytes, operation)?;
        Ok(Fetched::Bytes(bytes))
    }

    fn place(
        &self,
        write: &LoggedWrite,
        _: u64,
        whole_blocks: WholeBlocks,
        tx: &Tx,
        operation: &Operation,
    ) -> Option<PlacedWrites> {
        let world = self.0.upgrade().unwrap();
        let object = world.set.object(write.object, operation).ok()?;
        let end = write.offset + write.length;
        let is_whole = write.offset.is_multiple_of(BLOCK_BYTES) && end.is_multiple_of(BLOCK_BYTES);
        if whole_blocks == WholeBlocks::Needed && !is_whole {
            return None;
        }
        let range = write.offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let blocks = object.place_for_log(tx, range.clone(), operation)?;
        let part = |block: u64| {
            let offset = write.offset.max(block * BLOCK_BYTES);
            LoggedWrite {
                offset,
                length: end.min((block + 1) * BLOCK_BYTES) - offset,
                pointer: *blocks.pointer(BlockId::from(block)).unwrap(),
                ..write.clone()
            }
        };
        Some(PlacedWrites {
            parts: range.map(part).collect(),
            rest: None,
            blocks,
        })
    }
}

/// A world with a file, whose log has begun.
struct House {
    world: Arc<World>,
    _source: Arc<dyn LogSource>,
}

impl House {
    fn new(world: Arc<World>) -> House {
        let source: Arc<dyn LogSource> = Arc::new(Objects(Arc::downgrade(&world)));
        world.log.set_source(Arc::downgrade(&source));
        let operation = Operation::unmeasured();
        let new = NewObject::plain(ObjectType::PlainFile, BLOCK_BYTES);
        let tx = world.tx();
        world.set.claim(&tx, FILE, new, &operation).unwrap();
        drop(tx);
        world.change(None);
        world.commit(None);
        House {
            world,
            _source: source,
        }
    }

    /// Writes bytes that cannot be compressed, by a seed, and leaves the record.
    fn write(&self, offset: u64, length: u64, seed: u64) {
        let operation = Operation::unmeasured();
        let object = self.world.set.object(FILE, &operation).unwrap();
        let tx = self.world.tx();
        object
            .write(&tx, offset, &bytes(length, seed), &operation)
            .unwrap();
        self.world.write_record(&tx, FILE, offset, length);
    }

    fn free(&self, offset: u64, length: u64) {
        let operation = Operation::unmeasured();
        let object = self.world.set.object(FILE, &operation).unwrap();
        let tx = self.world.tx();
        object.free_range(&tx, offset, length, &operation).unwrap();
    }

    fn commit(&self) {
        self.world.commit(Some(FILE));
    }

    fn store(&self) {
        let txgs = &self.world.env.txgs;
        txgs.wait_stored(txgs.open_txg(), &Operation::unmeasured())
            .unwrap();
        check(&self.world.host, 1, &self.world.memory);
    }

    /// Pointers of writes in the log of groups that are not stored, with their offsets.
    fn logged(&self) -> Vec<(u64, BlockPointer)> {
        logged(&self.world.host, &self.world.memory)
    }

    /// Whether a stored tree leads to this block.
    fn is_stored(&self, pointer: &BlockPointer) -> bool {
        let durable = told(&self.world.memory).durable.clone().unwrap();
        support::sectors_of(pointer).all(|sector| durable.alive.contains(&sector))
    }
}

fn bytes(length: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(byte).collect()
}

fn logged(host: &Host, memory: &Memory) -> Vec<(u64, BlockPointer)> {
    let durable = told(memory).durable.clone().unwrap();
    let found = read_log(host, 1, &durable);
    let live = found
        .records
        .iter()
        .filter(|record| record.txg > durable.stored);
    let pointers = live.filter_map(|record| match &record.change {
        LoggedChange::Write(write) if write.data.is_none() => Some((write.offset, write.pointer)),
        _ => None,
    });
    pointers.collect()
}

fn with_house(host: &Host, memory: &Memory, body: impl FnOnce(&House)) {
    let world = World::create(host, 1, memory);
    let storer = world.spawn_storer();
    let house = House::new(world.clone());
    body(&house);
    world.env.txgs.stop();
    storer.join().unwrap();
}

fn run(body: impl FnOnce(&House)) {
    let memory = Memory::default();
    machine(1, 1)
        .run(|host| with_house(host, &memory, body))
        .expect("power stays on");
}

#[test]
fn large_writes_are_written_once_where_they_stay() {
    run(|house| {
        house.write(5000, 70_000, 1);
        house.commit();
        let logged = house.logged();
        let offsets: Vec<u64> = logged.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, [5000, 16384, 32768, 49152, 65536]);
        for (offset, pointer) in &logged {
            let (set, object) = (house.world.set.id(), ObjectId::from(1));
            let scope = BlockScope::of_logged_write(set, object, *offset, pointer);
            let io = &house.world.io;
            let block = io.read(pointer, scope, &Operation::unmeasured()).unwrap();
            let within = usize::try_from(offset % BLOCK_BYTES).unwrap();
            let from = usize::try_from(offset - 5000).unwrap();
            let length = (block.len() - within).min(70_000 - from);
            let expected = &bytes(70_000, 1)[from..from + length];
            assert_eq!(&block[within..within + length], expected);
        }
        house.store();
        assert!(logged.iter().all(|(_, pointer)| house.is_stored(pointer)));
    });
}

#[test]
fn what_changes_after_it_was_logged_is_stored_elsewhere_and_its_early_place_is_free() {
    run(|house| {
        house.write(0, 10 * BLOCK_BYTES, 1);
        house.commit();
        let first = house.logged();
        // One block is logged again, one changes and is not logged, one is freed, and the end is
        // cut off.
        house.write(2 * BLOCK_BYTES, 2 * BLOCK_BYTES, 2);
        house.commit();
        let all = house.logged();
        assert_eq!(all.len(), 12);
        assert_eq!(all[..10], first);
        house.write(5 * BLOCK_BYTES + 7, 9, 3);
        house.free(6 * BLOCK_BYTES, BLOCK_BYTES);
        house.free(8 * BLOCK_BYTES, TO_END);
        house.store();
        let is_stored: Vec<bool> = all.iter().map(|(_, at)| house.is_stored(at)).collect();
        let stored = [
            true, true, false, false, true, false, false, true, false, false,
        ];
        assert_eq!(is_stored[..10], stored);
        assert_eq!(is_stored[10..], [true, true]);
        // The same once more, with nothing new: nothing is written early twice.
        house.write(0, 4 * BLOCK_BYTES, 4);
        house.commit();
        house.write(BLOCK_BYTES * 20, 3 * BLOCK_BYTES, 4);
        house.commit();
        assert_eq!(house.logged().len(), 7);
        house.store();
    });
}

#[test]
fn small_writes_carry_their_bytes_unless_devices_are_to_be_spared() {
    run(|house| {
        house.write(0, BLOCK_BYTES, 1);
        house.commit();
        assert_eq!(house.logged(), []);
        house.world.log.set_bias(LogBias::Throughput);
        house.write(0, 100, 2);
        house.commit();
        assert_eq!(house.logged(), []);
        house.write(BLOCK_BYTES, BLOCK_BYTES, 3);
        house.commit();
        assert_eq!(house.logged().len(), 1);
        house.store();
    });
}

#[test]
fn zeros_are_logged_with_their_bytes() {
    run(|house| {
        let operation = Operation::unmeasured();
        let object = house.world.set.object(FILE, &operation).unwrap();
        let tx = house.world.tx();
        let length = 4 * BLOCK_BYTES;
        object.write(&tx, 0, &[0; 4 << 14], &operation).unwrap();
        house.world.write_record(&tx, FILE, 0, length);
        drop(tx);
        house.commit();
        assert_eq!(house.logged(), []);
        house.store();
    });
}

#[test]
fn when_the_log_cannot_be_written_the_group_stores_everything() {
    let machine = machine(1, 1);
    let disk = machine.disk(path(0)).unwrap();
    let memory = Memory::default();
    let body = |house: &House| {
        disk.inject(Fault::FailNth {
            action: Action::Write,
            nth: 0,
            errno: Errno::IO,
        });
        house.write(0, 6 * BLOCK_BYTES, 1);
        house.commit();
        check(&house.world.host, 1, &house.world.memory);
        let operation = Operation::unmeasured();
        let object = house.world.set.object(FILE, &operation).unwrap();
        let mut found = vec![0; 6 << 14];
        object.read(0, &mut found, &operation).unwrap();
        assert_eq!(found, bytes(6 * BLOCK_BYTES, 1));
        house.store();
    };
    machine
        .run(|host| with_house(host, &memory, body))
        .expect("power stays on");
}

#[test]
fn a_commit_of_much_data_writes_it_once_and_waits_for_no_group() {
    run(|house| {
        let length = 24 << 20;
        for offset in (0..length).step_by(1 << 20) {
            house.write(offset, 1 << 20, offset);
        }
        let txgs = &house.world.env.txgs;
        let open = txgs.open_txg();
        house.commit();
        assert!(txgs.stored_txg() < open, "the group is open");
        let logged = house.logged();
        assert_eq!(widen(logged.len()), length / BLOCK_BYTES);
        house.store();
        assert!(logged.iter().all(|(_, pointer)| house.is_stored(pointer)));
    });
}

#[test]
fn what_is_too_much_to_lead_to_waits_for_its_group() {
    run(|house| {
        house.world.log.set_commit_bytes_max(64 << 10, 1 << 20);
        let txgs = &house.world.env.txgs;
        house.write(0, 1 << 20, 1);
        let open = txgs.open_txg();
        house.commit();
        assert!(txgs.stored_txg() < open);
        house.write(0, (1 << 20) + BLOCK_BYTES, 2);
        let open = txgs.open_txg();
        house.commit();
        assert!(txgs.stored_txg() >= open);
        assert_eq!(house.logged(), []);
        // Zeros lead to no block, and so have no place: all is stored with the group.
        house.write(0, 64 << 10, 3);
        let operation = Operation::unmeasured();
        let object = house.world.set.object(FILE, &operation).unwrap();
        let (tx, length) = (house.world.tx(), 128 << 10);
        object.write(&tx, 0, &[0; 128 << 10], &operation).unwrap();
        house.world.write_record(&tx, FILE, 0, length);
        let txg = tx.txg();
        drop(tx);
        house.commit();
        assert!(txgs.stored_txg() >= txg);
    });
}

#[test]
fn much_data_of_a_closed_group_waits_for_that_group_alone() {
    run(|house| {
        house.world.log.set_commit_bytes_max(64 << 10, 1 << 20);
        let world = &house.world;
        let txgs = &world.env.txgs;
        let closed = txgs.open_txg();
        house.write(0, 20 * BLOCK_BYTES, 1);
        let storing = world.clone();
        let storing = world.host.spawn("storing", move || {
            let txgs = &storing.env.txgs;
            txgs.wait_stored(closed, &Operation::unmeasured()).unwrap();
        });
        while txgs.open_txg() == closed {
            world.host.sleep(Duration::from_micros(1));
        }
        house.write(30 * BLOCK_BYTES, 10 * BLOCK_BYTES, 2);
        let open = txgs.open_txg();
        assert!(txgs.stored_txg() < closed, "it is on its way");
        house.commit();
        assert!(txgs.stored_txg() >= closed && txgs.stored_txg() < open);
        let logged = house.logged();
        let offsets: Vec<u64> = logged.iter().map(|(offset, _)| *offset).collect();
        let expected: Vec<u64> = (30..40).map(|block| block * BLOCK_BYTES).collect();
        assert_eq!(offsets, expected);
        storing.join().unwrap();
        house.store();
    });
}

#[test]
fn what_a_record_leads_to_stays_as_it_was_when_its_block_changes() {
    run(|house| {
        house.write(0, 4 * BLOCK_BYTES, 1);
        house.commit();
        let logged = house.logged();
        // In part, whole, and again without a commit.
        house.write(7, 100, 2);
        house.write(BLOCK_BYTES, 2 * BLOCK_BYTES, 3);
        house.commit();
        house.write(2 * BLOCK_BYTES, 2 * BLOCK_BYTES, 4);
        let io = &house.world.io;
        for (offset, pointer) in logged {
            let (set, object) = (house.world.set.id(), FILE);
            let scope = BlockScope::of_logged_write(set, object, offset, &pointer);
            let block = io.read(&pointer, scope, &Operation::unmeasured()).unwrap();
            let from = narrow(offset);
            let expected = &bytes(4 * BLOCK_BYTES, 1)[from..][..narrow(BLOCK_BYTES)];
            assert_eq!(&block[..], expected, "at {offset}");
        }
        house.store();
    });
}

/// Writes that were acknowledged as durable: where, how many bytes, and their seeds.
type Promised = std::sync::Mutex<Vec<(u64, u64, u64)>>;

/// Rounds of writes, all of them promised, beside groups being stored.
fn promise(house: &House, promised: &Promised) {
    let eager = house.world.clone();
    let storing = house.world.host.spawn("eager", move || {
        for _ in 0..6 {
            let txgs = &eager.env.txgs;
            txgs.wait_stored(txgs.open_txg(), &Operation::unmeasured())
                .unwrap();
        }
    });
    for round in 0..14 {
        let (offset, length) = extent(round);
        house.write(offset, length, seed_of(round));
        if round % 4 == 1 {
            // Cut off, and not promised: the place of what was logged goes with it or stays, and is
            // never anything else.
            house.free(9 * BLOCK_BYTES, BLOCK_BYTES);
        }
        house.commit();
        promised
            .lock()
            .unwrap()
            .push((offset, length, seed_of(round)));
    }
    storing.join().unwrap();
}

#[test]
fn what_was_promised_can_be_read_wherever_power_is_cut() {
    let led_to = cut_everywhere(|_| {});
    assert!(led_to > 100, "only {led_to} records led to a block");
}

#[test]
fn what_was_promised_can_be_read_where_commits_have_too_much_for_the_log() {
    let led_to = cut_everywhere(|house| {
        house.world.log.set_commit_bytes_max(16 << 10, 64 << 10);
    });
    assert!(led_to > 20, "only {led_to} records led to a block");
}

/// Cuts power at every write. Gives how many blocks logs led to.
fn cut_everywhere(set: impl Fn(&House) + Copy) -> usize {
    let live = |host: &Host, memory: &Memory, promised: &Promised| {
        with_house(host, memory, |house| {
            set(house);
            promise(house, promised);
        });
    };
    let promised = Promised::default();
    let whole = machine(7, 1);
    let memory = Memory::default();
    let counted = whole.run(|host| live(host, &memory, &promised));
    counted.expect("power stays on");
    let mut led_to = 0;
    for cut in 1..=whole.device_writes() {
        let machine = machine(7, 1);
        machine.cut_power_after_writes(cut);
        let memory = Memory::default();
        let promised = Promised::default();
        let ran = machine.run(|host| live(host, &memory, &promised));
        if ran.is_ok() || told(&memory).durable.is_none() {
            continue;
        }
        let promised = promised.into_inner().unwrap();
        let rebooted = machine.reboot();
        let checked = rebooted.run(|host| {
            check(host, 1, &memory);
            led_to += expect_promised(host, &memory, &promised);
        });
        checked.expect("power stays on");
    }
    led_to
}

/// What was promised is in the stored file with what the log adds to it; what was written after
/// that may be. Gives how many blocks the log led to.
fn expect_promised(host: &Host, memory: &Memory, promised: &[(u64, u64, u64)]) -> usize {
    let (mut contents, led_to) = support::replayed_file(host, memory, FILE);
    let mut expected = vec![0; 300_000];
    contents.resize(expected.len(), 0);
    for &(offset, length, seed) in promised {
        put(&mut expected, offset, &bytes(length, seed));
    }
    let mut newer = expected.clone();
    let (offset, length) = extent(promised.len());
    put(&mut newer, offset, &bytes(length, seed_of(promised.len())));
    let freed = narrow(9 * BLOCK_BYTES)..narrow(10 * BLOCK_BYTES);
    for (at, byte) in contents.iter().enumerate() {
        let is_fine = *byte == expected[at] || *byte == newer[at] || freed.contains(&at);
        assert!(
            is_fine,
            "byte {at} is {byte}, promised was {}",
            expected[at]
        );
    }
    led_to
}

fn put(contents: &mut [u8], offset: u64, bytes: &[u8]) {
    contents[narrow(offset)..][..bytes.len()].copy_from_slice(bytes);
}

fn narrow(count: u64) -> usize {
    usize::try_from(count).unwrap()
}

/// Where a round writes, and how much.
fn extent(round: usize) -> (u64, u64) {
    let round = u64::try_from(round).unwrap();
    (round % 5 * 40_000, 33_000 + round * 3000)
}

fn seed_of(round: usize) -> u64 {
    u64::try_from(round).unwrap() + 10
}
