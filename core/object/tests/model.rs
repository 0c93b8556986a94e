//! Objects against plain bytes in memory.

mod support;

use std::sync::Arc;

use support::{Pool, some_bytes};
use tarn_host::sim::Random;
use tarn_object::{NewObject, Object, ObjectSet, TO_END};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, LogicalSize, ObjectId};
use tarn_probe::Operation;

/// An object and what it should hold.
struct Twin {
    object: Arc<Object>,
    bytes: Vec<u8>,
}

impl Twin {
    fn check(&self, object: &Object, operation: &Operation) {
        let mut found = vec![0xee; self.bytes.len() + 5000];
        object.read(0, &mut found, operation).unwrap();
        let differs = found
            .iter()
            .zip(&self.bytes)
            .position(|(one, other)| one != other);
        assert_eq!(differs, None, "{object:?} of {} bytes", self.bytes.len());
        assert!(found[self.bytes.len()..].iter().all(|byte| *byte == 0));
        self.check_holes(object, operation);
    }

    /// What is a hole reads as zeros, and what does not is found as data.
    fn check_holes(&self, object: &Object, operation: &Operation) {
        let size = object.block_size().to_usize();
        let mut data = Vec::new();
        let mut from = BlockId::ZERO;
        while let Some(found) = object.next_data(from, operation).unwrap() {
            data.push(found);
            from = found.next();
        }
        let blocks = u64::try_from(self.bytes.len() / size).unwrap() + 9;
        for (first, end, most) in [(0, blocks, 1), (0, blocks, 3), (2, blocks / 2, 2)] {
            let within = BlockId::from(first)..BlockId::from(end);
            let last = object.last_data(within.clone(), most, operation).unwrap();
            let expected = data.iter().rev().find(|block| within.contains(block));
            let found = last
                .as_ref()
                .is_some_and(|last| last.contains(expected.unwrap()));
            assert_eq!(found, expected.is_some(), "{last:?} of {within:?}");
            assert!(last.is_none_or(|last| last.end.get() - last.start.get() <= most));
        }
        for (index, block) in (0..).zip(self.bytes.chunks(size)) {
            let is_data = data.binary_search(&BlockId::from(index)).is_ok();
            assert!(
                is_data || block.iter().all(|byte| *byte == 0),
                "block {index}"
            );
            let id = BlockId::from(index);
            assert_eq!(
                object.has_block(id, operation).unwrap(),
                is_data,
                "block {index}"
            );
            let hole = object.next_hole(id, operation).unwrap();
            assert_eq!(
                hole == id,
                !is_data || id > object.max_block(),
                "block {index}"
            );
        }
    }

    fn write(&mut self, pool: &Pool, offset: usize, bytes: &[u8]) {
        let tx = pool.tx();
        let offset64 = u64::try_from(offset).unwrap();
        self.object
            .write(&tx, offset64, bytes, &pool.operation)
            .unwrap();
        if self.bytes.len() < offset + bytes.len() {
            self.bytes.resize(offset + bytes.len(), 0);
        }
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn free(&mut self, pool: &Pool, offset: usize, length: Option<usize>) {
        let tx = pool.tx();
        let (offset64, length64) = (
            u64::try_from(offset).unwrap(),
            length.map_or(TO_END, |length| u64::try_from(length).unwrap()),
        );
        self.object
            .free_range(&tx, offset64, length64, &pool.operation)
            .unwrap();
        let end = length.map_or(self.bytes.len(), |length| {
            (offset + length).min(self.bytes.len())
        });
        if offset < end {
            self.bytes[offset..end].fill(0);
        }
    }

    fn step(&mut self, pool: &Pool, random: &mut Random, reach: u64) {
        let mut number = |sides: u64| usize::try_from(random.below(sides)).unwrap();
        let (kind, offset, length) = (number(10), number(reach), number(20_000) + 1);
        match kind {
            0 => self.free(pool, offset, None),
            1 => self.free(pool, offset, Some(length)),
            2 => self.free(pool, offset, Some(number(reach) + 1)),
            _ => self.write(pool, offset, &some_bytes(random, length)),
        }
    }
}

fn new_object(pool: &Pool, set: &ObjectSet, block_size: u64, shift: u8) -> Twin {
    let tx = pool.tx();
    let new = NewObject {
        indirect_shift: shift,
        ..NewObject::plain(ObjectType::PlainFile, block_size)
    };
    Twin {
        object: set.allocate(&tx, new, &pool.operation).unwrap(),
        bytes: Vec::new(),
    }
}

/// Small blocks of pointers make trees high, and steps between storings leave several versions in
/// memory.
#[test]
fn an_object_holds_what_was_written_across_groups_and_reopening() {
    let mut random = Random::new(0x1234_5678_9abc_def1);
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let shapes = [(512, 12), (4096, 12), (16 << 10, 13), (128 << 10, 17)];
    let mut twins: Vec<Twin> = shapes
        .iter()
        .map(|&(size, shift)| new_object(&pool, &set, size, shift))
        .collect();
    for round in 0..120 {
        for twin in &mut twins {
            let reach = if round % 3 == 0 { 2_000_000 } else { 100_000 };
            twin.step(&pool, &mut random, reach);
        }
        let chosen = usize::try_from(random.below(4)).unwrap();
        twins[chosen].check(&twins[chosen].object, &pool.operation);
        if random.below(3) == 0 {
            pool.sync(&set);
            let reopened = pool.reopen(&set, None);
            let object = reopened
                .object(twins[chosen].object.id(), &pool.operation)
                .unwrap();
            twins[chosen].check(&object, &pool.operation);
        }
    }
    pool.sync(&set);
    let reopened = pool.reopen(&set, None);
    for twin in &twins {
        let object = reopened.object(twin.object.id(), &pool.operation).unwrap();
        twin.check(&object, &pool.operation);
        let (new, old) = (object.info(), twin.object.info());
        assert_eq!(
            (new.used, new.fill, new.max_block),
            (old.used, old.fill, old.max_block)
        );
    }
}

#[test]
fn three_groups_in_flight_never_see_each_other() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let mut twin = new_object(&pool, &set, 4096, 12);
    assert!(
        twin.object.set_spill(&pool.tx(), Some(&[1])).is_err(),
        "pointers leave no room"
    );
    let tx = pool.tx();
    let new = NewObject {
        indirect_shift: 12,
        ..NewObject::plain(ObjectType::PlainFile, 4096).with_bonus(ObjectType::SystemAttributes, 0)
    };
    twin.object = set.allocate(&tx, new, &pool.operation).unwrap();
    let id = twin.object.id();
    drop(tx);
    let mut waiting = Vec::new();
    let mut expected = Vec::new();
    for group in 1..=3_u8 {
        twin.write(&pool, 100, &[group; 9000]);
        twin.write(&pool, usize::from(group) * 50_000, &[group; 5000]);
        if group == 3 {
            twin.free(&pool, 4096, Some(4096));
        }
        let tx = pool.tx();
        twin.object.set_spill(&tx, Some(&[group; 700])).unwrap();
        drop(tx);
        expected.push(twin.bytes.clone());
        waiting.push(pool.begin_only());
    }
    for (group, (txg, bytes)) in (1..=3_u8).zip(waiting.into_iter().zip(expected)) {
        let mut tx = pool.env.txgs.begin_sync(txg);
        pool.store(&set, &mut tx);
        pool.finish(tx);
        let object = pool.reopen(&set, None).object(id, &pool.operation).unwrap();
        let stored = Twin {
            object: object.clone(),
            bytes,
        };
        stored.check(&object, &pool.operation);
        let spill = object.spill(&pool.operation).unwrap().unwrap();
        assert_eq!(spill.len(), 1024);
        assert!(spill[..700].iter().all(|byte| *byte == group));
        twin.check(&twin.object, &pool.operation);
    }
    assert_eq!(pool.env.txgs.dirty_bytes(), 0);
}

#[test]
fn a_freed_object_leaves_nothing_behind() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let empty = pool.used;
    let mut twins: Vec<_> = (0..40).map(|_| new_object(&pool, &set, 4096, 12)).collect();
    for twin in &mut twins {
        twin.write(&pool, 0, &[7; 700_000]);
    }
    pool.sync(&set);
    assert!(pool.used > empty);
    let tx = pool.tx();
    for twin in &twins {
        set.free_object(&tx, twin.object.id(), &pool.operation)
            .unwrap();
        assert!(set.object(twin.object.id(), &pool.operation).is_err());
        assert!(twin.object.write(&tx, 0, &[1], &pool.operation).is_err());
    }
    assert_eq!(
        set.next_object(ObjectId::ZERO, &pool.operation).unwrap(),
        None
    );
    drop(tx);
    pool.sync(&set);
    let reopened = pool.reopen(&set, None);
    assert_eq!(
        reopened
            .next_object(ObjectId::ZERO, &pool.operation)
            .unwrap(),
        None
    );
    assert_eq!(reopened.object_count(), 0);
    // One block: the head. All others are holes again.
    assert_eq!(pool.alive.len(), 1);
    assert_eq!(pool.used, empty);
}

#[test]
fn the_only_block_grows_with_its_contents() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let mut twin = new_object(&pool, &set, 512, 17);
    for (size, fill) in [(512, 1), (1536, 2), (8192, 3), (131_072, 4)] {
        let tx = pool.tx();
        twin.object
            .set_block_size(&tx, LogicalSize::from(size), &pool.operation)
            .unwrap();
        drop(tx);
        let at = usize::try_from(size).unwrap() - 100;
        twin.write(&pool, at, &[fill; 100]);
        twin.check(&twin.object, &pool.operation);
        if fill % 2 == 0 {
            pool.sync(&set);
            let object = pool
                .reopen(&set, None)
                .object(twin.object.id(), &pool.operation)
                .unwrap();
            assert_eq!(object.block_size().get(), size);
            twin.check(&object, &pool.operation);
        }
    }
    twin.write(&pool, 131_072, &[9; 10]);
    let tx = pool.tx();
    let refused = twin
        .object
        .set_block_size(&tx, LogicalSize::from(512), &pool.operation);
    assert!(refused.is_err(), "with two blocks the size is fixed");
}

#[test]
fn rewriting_in_place_in_later_passes_changes_no_space() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let mut tx = pool.begin();
    let new = NewObject::plain(ObjectType::OtherWords, 4096);
    let object = set.allocate(&tx, new, &pool.operation).unwrap();
    let mut random = Random::new(77);
    for pass in 1..=4 {
        let noise: Vec<u8> = (0..20_000).map(|_| random.byte()).collect();
        object.write(&tx, 0, &noise, &pool.operation).unwrap();
        let before = pool.alive.clone();
        pool.store(&set, &mut tx);
        if pass > 1 {
            let places = |alive: &std::collections::BTreeMap<_, _>| {
                alive.keys().copied().collect::<Vec<(u64, u64, u64, u64)>>()
            };
            assert_eq!(places(&before), places(&pool.alive), "pass {pass}");
        }
        let reopened = pool.reopen(&set, None);
        let stored = reopened.object(object.id(), &pool.operation).unwrap();
        let mut found = vec![0; noise.len()];
        stored.read(0, &mut found, &pool.operation).unwrap();
        assert_eq!(found, noise);
        object.read(0, &mut found, &pool.operation).unwrap();
        assert_eq!(found, noise);
    }
    pool.finish(tx);
}
