//! Changes that were prepared before their transaction.

mod support;

use std::sync::Arc;

use support::Pool;
use tarn_object::{NewObject, Object, ObjectSet, TO_END};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::LogicalSize;
use tarn_probe::{Operation, Outcome};

const BLOCK: u64 = 16 << 10;
const BLOCKS: u64 = 8;

/// Bytes that do not compress.
fn noise(length: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(step).collect()
}

/// A file that is stored, and what it holds.
fn stored_file(pool: &mut Pool) -> (Arc<ObjectSet>, Arc<Object>, Vec<u8>) {
    let set = pool.create_set(None);
    let tx = pool.tx();
    let new = NewObject::plain(ObjectType::PlainFile, BLOCK);
    let file = set.allocate(&tx, new, &pool.operation).unwrap();
    let model = noise(BLOCK * BLOCKS, 1);
    file.write(&tx, 0, &model, &pool.operation).unwrap();
    drop(tx);
    pool.sync(&set);
    pool.env.cache.forget_all();
    (set, file, model)
}

fn contents(pool: &Pool, file: &Object, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    file.read(0, &mut bytes, &pool.operation).unwrap();
    bytes
}

#[test]
fn a_prepared_write_reads_nothing_even_when_the_cache_has_lost_all() {
    let mut pool = Pool::new();
    let (set, file, mut model) = stored_file(&mut pool);
    let (offset, bytes) = (BLOCK + 7, noise(2 * BLOCK, 2));
    let before = Operation::unmeasured();
    let prepared = file.prepare_write(offset, widen(bytes.len()), &before);
    let prepared = prepared.unwrap();
    assert!(before.is_marked(Outcome::Disk));
    let tx = pool.tx();
    let within = Operation::unmeasured();
    pool.env.cache.forget_all();
    // The first and the last block of the range are held.
    for part in [offset..offset + 9, 3 * BLOCK..3 * BLOCK + 7] {
        let at = narrow(part.start - offset);
        let part_bytes = &bytes[at..at + narrow(part.end - part.start)];
        file.write(&tx, part.start, part_bytes, &within).unwrap();
    }
    assert!(!within.is_marked(Outcome::Disk), "what is held is used");
    file.write(&tx, offset, &bytes, &pool.operation).unwrap();
    drop((prepared, tx));
    model[narrow(offset)..][..bytes.len()].copy_from_slice(&bytes);
    assert!(contents(&pool, &file, model.len()) == model);
    pool.sync(&set);
    pool.env.cache.forget_all();
    assert!(contents(&pool, &file, model.len()) == model);
}

#[test]
fn what_is_held_is_dropped_by_a_change_of_its_block() {
    type Change = fn(&Pool, &Object, &mut Vec<u8>);
    let changes: [Change; 4] = [
        |pool, file, model| {
            file.write(&pool.tx(), BLOCK + 100, b"other", &pool.operation)
                .unwrap();
            model[narrow(BLOCK + 100)..][..5].copy_from_slice(b"other");
        },
        |pool, file, model| {
            let whole = noise(BLOCK, 3);
            file.write(&pool.tx(), BLOCK, &whole, &pool.operation)
                .unwrap();
            model[narrow(BLOCK)..narrow(2 * BLOCK)].copy_from_slice(&whole);
        },
        |pool, file, model| {
            file.free_range(&pool.tx(), BLOCK, BLOCK, &pool.operation)
                .unwrap();
            model[narrow(BLOCK)..narrow(2 * BLOCK)].fill(0);
        },
        |pool, file, model| {
            file.free_range(&pool.tx(), BLOCK + 50, TO_END, &pool.operation)
                .unwrap();
            model[narrow(BLOCK + 50)..].fill(0);
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for is_stored in [false, true] {
            let mut pool = Pool::new();
            let (set, file, mut model) = stored_file(&mut pool);
            let prepared = file.prepare_write(BLOCK + 7, 4, &pool.operation).unwrap();
            change(&pool, &file, &mut model);
            if is_stored {
                pool.sync(&set);
            }
            let tx = pool.tx();
            file.write(&tx, BLOCK + 7, b"mine", &pool.operation)
                .unwrap();
            drop((prepared, tx));
            model[narrow(BLOCK + 7)..][..4].copy_from_slice(b"mine");
            let found = contents(&pool, &file, model.len());
            assert!(found == model, "change {number}, stored: {is_stored}");
            pool.sync(&set);
            pool.env.cache.forget_all();
            let found = contents(&pool, &file, model.len());
            assert!(found == model, "change {number}, stored: {is_stored}");
        }
    }
}

#[test]
fn a_prepared_truncation_reads_nothing() {
    let mut pool = Pool::new();
    let (set, file, mut model) = stored_file(&mut pool);
    let size = 3 * BLOCK + 11;
    let prepared = file.prepare_free(size, TO_END, &pool.operation).unwrap();
    let tx = pool.tx();
    let within = Operation::unmeasured();
    file.free_range(&tx, size, TO_END, &within).unwrap();
    assert!(!within.is_marked(Outcome::Disk));
    drop((prepared, tx));
    model[narrow(size)..].fill(0);
    pool.sync(&set);
    pool.env.cache.forget_all();
    assert!(contents(&pool, &file, model.len()) == model);
}

#[test]
fn the_only_block_of_an_object_grows_with_what_is_held_of_it() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let tx = pool.tx();
    let new = NewObject::plain(ObjectType::PlainFile, 4096);
    let file = set.allocate(&tx, new, &pool.operation).unwrap();
    let mut model = noise(4096, 5);
    file.write(&tx, 0, &model, &pool.operation).unwrap();
    drop(tx);
    pool.sync(&set);
    pool.env.cache.forget_all();
    let prepared = file.prepare_write(4096, 100, &pool.operation).unwrap();
    pool.env.cache.forget_all();
    let tx = pool.tx();
    let within = Operation::unmeasured();
    let size = LogicalSize::from(8192);
    file.set_block_size(&tx, size, &within).unwrap();
    let more = noise(100, 6);
    file.write(&tx, 4096, &more, &within).unwrap();
    assert!(!within.is_marked(Outcome::Disk));
    drop((prepared, tx));
    model.extend(&more);
    pool.sync(&set);
    pool.env.cache.forget_all();
    assert!(contents(&pool, &file, model.len()) == model);
}
