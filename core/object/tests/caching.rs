//! What the cache holds of what was written.

mod support;

use std::sync::Arc;

use support::Pool;
use tarn_host::buffer::Buffer;
use tarn_object::{Caching, NewObject, Object, ObjectSet};
use tarn_ondisk::declare::widen;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, LogicalSize};

const BLOCK: usize = 128 << 10;
const COUNT: usize = 16;

fn new_file(pool: &Pool, set: &Arc<ObjectSet>) -> Arc<Object> {
    let new = NewObject::plain(ObjectType::PlainFile, 128 << 10);
    let tx = pool.tx();
    set.allocate(&tx, new, &pool.operation).unwrap()
}

/// Writes, stores, and tells by how many blocks the cache has grown.
fn growth(caching: Caching, write_bytes: usize) -> u64 {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let file = new_file(&pool, &set);
    pool.sync(&set);
    let before = pool.env.cache.cache().used_bytes();
    let contents: Vec<u8> = (0..BLOCK * COUNT)
        .map(|at| (at % 251) as u8 ^ (at / 977) as u8)
        .collect();
    let tx = pool.tx();
    for (index, part) in contents.chunks(write_bytes).enumerate() {
        let offset = u64::try_from(index * write_bytes).unwrap();
        file.write_caching(&tx, offset, part, caching, &pool.operation)
            .unwrap();
    }
    drop(tx);
    pool.sync(&set);
    let after = pool.env.cache.cache().used_bytes();
    let mut read = vec![0; contents.len()];
    file.read(0, &mut read, &pool.operation).unwrap();
    assert!(read == contents);
    after.saturating_sub(before) / u64::try_from(BLOCK).unwrap()
}

#[test]
fn blocks_that_their_writer_caches_are_not_cached_when_they_are_stored() {
    assert!(growth(Caching::Callers, BLOCK) < 2);
    assert!(growth(Caching::Callers, 4 * BLOCK) < 2);
    assert!(growth(Caching::Ours, BLOCK) >= 16);
}

#[test]
fn a_range_that_begins_behind_its_end_has_no_bytes() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let file = new_file(&pool, &set);
    pool.sync(&set);
    // So a read that begins behind the end of a file asks.
    let block = widen(BLOCK);
    for (start, end) in [(9 * block, block), (block, block), (block + 1, block)] {
        let read = file.read_data(start..end, Caching::Ours, &pool.operation);
        assert!(read.unwrap().is_empty());
    }
}

#[test]
fn blocks_written_in_parts_are_cached_whoever_wrote_them() {
    assert!(growth(Caching::Callers, BLOCK / 2) >= 16);
}

/// Writes through `write_buffers` in buffers of this size, from this offset on, over what a group
/// before has stored; and over what the same group has changed.
fn write_buffers(
    (pool, set): (&mut Pool, &Arc<ObjectSet>),
    buffer_bytes: usize,
    offset: usize,
    length: usize,
) {
    let file = new_file(pool, set);
    let mut model = vec![0_u8; offset + length + BLOCK];
    for round in [0_u8, 1, 2] {
        let tx = pool.tx();
        let spot = offset + length / 2;
        file.write(&tx, spot as u64, &[round; 9], &pool.operation)
            .unwrap();
        model[spot..spot + 9].fill(round);
        let contents: Vec<u8> = (0..length)
            .map(|at| (at % 251) as u8 ^ round.wrapping_mul(91))
            .collect();
        let part = |part: &[u8]| {
            let mut buffer = Buffer::zeroed(buffer_bytes);
            buffer[..part.len()].copy_from_slice(part);
            buffer
        };
        let buffers = contents.chunks(buffer_bytes).map(part).collect();
        let (whole, operation) = ((buffers, length), &pool.operation);
        file.write_buffers(&tx, offset as u64, whole, Caching::Callers, operation)
            .unwrap();
        model[offset..offset + length].copy_from_slice(&contents);
        drop(tx);
        if round > 0 {
            pool.sync(set);
        }
        let mut read = vec![0; model.len()];
        file.read(0, &mut read, &pool.operation).unwrap();
        assert!(read == model, "{buffer_bytes} {offset} {length} {round}");
    }
}

#[test]
fn buffers_become_blocks_or_are_copied_into_them() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    for offset in [0, BLOCK, BLOCK / 2, 4096, 1] {
        for length in [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK - 4096] {
            for buffer_bytes in [BLOCK, BLOCK / 2, 2 * BLOCK] {
                write_buffers((&mut pool, &set), buffer_bytes, offset, length);
            }
        }
    }
}

#[test]
fn versions_that_were_overwritten_leave_the_cache() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let file = new_file(&pool, &set);
    let mut sizes = Vec::new();
    for round in 0..20_u8 {
        let tx = pool.tx();
        file.write(&tx, 0, &[round; 4 * BLOCK], &pool.operation)
            .unwrap();
        drop(tx);
        pool.sync(&set);
        sizes.push(pool.env.cache.cache().used_bytes());
    }
    assert!(sizes[19] < sizes[3] + u64::try_from(BLOCK).unwrap());
}

/// A file whose only block grows by small writes: its bytes are not copied for each of them, and
/// nothing of the room it had to grow is kept.
#[test]
fn a_block_that_grows_by_small_writes_seldom_moves() {
    const STEP: usize = 4096;
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let file = {
        let new = NewObject::plain(ObjectType::PlainFile, 512);
        let tx = pool.tx();
        set.allocate(&tx, new, &pool.operation).unwrap()
    };
    pool.sync(&set);
    let contents: Vec<u8> = (0..257 * STEP).map(|at| (at % 251) as u8).collect();
    let (mut moves, mut place, mut cached) = (0, std::ptr::null(), 0);
    for part in 0..4 {
        let tx = pool.tx();
        for (index, bytes) in contents.chunks(STEP).enumerate().skip(part * 64).take(64) {
            let end = widen((index + 1) * STEP);
            file.set_block_size(&tx, LogicalSize::from(end), &pool.operation)
                .unwrap();
            file.write(&tx, widen(index * STEP), bytes, &pool.operation)
                .unwrap();
            let block = file.read_block(BlockId::ZERO, &pool.operation).unwrap();
            moves += usize::from(block.as_ptr() != place);
            place = block.as_ptr();
        }
        drop(tx);
        let before = pool.env.cache.cache().used_bytes();
        pool.sync(&set);
        cached = pool.env.cache.cache().used_bytes().saturating_sub(before);
    }
    assert!(moves < 30, "{moves} of 256 writes copied the block");
    let mut read = vec![0; 256 * STEP];
    file.read(0, &mut read, &pool.operation).unwrap();
    assert!(read == contents[..256 * STEP]);
    assert!(cached < widen(300 * STEP), "{cached}");
}
