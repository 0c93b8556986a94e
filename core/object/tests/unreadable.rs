//! Unreadable indirect blocks: a change below them fails with an error, and the txg can be stored.

mod support;

use std::ops::Range;
use std::sync::Arc;

use support::Pool;
use tarn_host::buffer::Buffer;
use tarn_object::{Block, NewObject, Object, ObjectSet, TO_END};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::BlockId;

const BLOCK: u64 = 4096;

/// How many pointers a block of pointers holds.
const FANOUT: u64 = 1024;

fn contents() -> Block {
    let mut buffer = Buffer::zeroed(4096);
    buffer.fill(7);
    Block::from(buffer)
}

/// A file with these blocks, and the pointers to its blocks of pointers.
fn file(
    pool: &mut Pool,
    set: &Arc<ObjectSet>,
    blocks: &[Range<u64>],
) -> (Arc<Object>, Vec<BlockPointer>) {
    let tx = pool.tx();
    let new = NewObject::plain(ObjectType::PlainFile, BLOCK);
    let object = set.allocate(&tx, new, &pool.operation).unwrap();
    for block in blocks.iter().cloned().flatten() {
        let block = BlockId::from(block);
        object
            .write_block(&tx, block, contents(), &pool.operation)
            .unwrap();
    }
    drop(tx);
    pool.sync(set);
    let is_of_pointers = |pointer: &&BlockPointer| {
        pointer.object_type() == ObjectType::PlainFile && !pointer.level().is_data()
    };
    let pointers = pool.alive.values().filter(is_of_pointers);
    (object, pointers.copied().collect())
}

/// Drops these blocks from memory, and damages them on disk.
fn spoil(pool: &Pool, pointers: &[BlockPointer]) {
    pool.env.cache.forget_all();
    pointers.iter().for_each(|pointer| pool.flip(pointer));
}

fn bytes(blocks: Range<u64>) -> (u64, u64) {
    (blocks.start * BLOCK, (blocks.end - blocks.start) * BLOCK)
}

#[test]
fn who_changes_what_cannot_be_found_hears_of_it_and_the_group_is_stored() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let blocks = 0..20;
    let (object, pointers) = file(&mut pool, &set, std::slice::from_ref(&blocks));
    assert_eq!(pointers.len(), 1);
    spoil(&pool, &pointers);
    for block in [3, 25] {
        let tx = pool.tx();
        let block = BlockId::from(block);
        let written = object.write_block(&tx, block, contents(), &pool.operation);
        written.unwrap_err();
        object.set_bonus(&tx, b"changed").unwrap();
        drop(tx);
        pool.sync(&set);
    }
    for freed in [0..5, 5..10, 15..20] {
        let tx = pool.tx();
        let (offset, length) = bytes(freed);
        let freed = object.free_range(&tx, offset, length, &pool.operation);
        freed.unwrap_err();
        object.set_bonus(&tx, b"again").unwrap();
        drop(tx);
        pool.sync(&set);
    }
}

/// All blocks below it are freed, readable or not, unless a part is written again before that is
/// stored.
#[test]
fn what_is_freed_in_whole_need_not_be_found() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let blocks = 0..20;
    let (object, pointers) = file(&mut pool, &set, std::slice::from_ref(&blocks));
    spoil(&pool, &pointers);
    let tx = pool.tx();
    object.free_range(&tx, 0, TO_END, &pool.operation).unwrap();
    let operation = &pool.operation;
    let written = object.write_block(&tx, BlockId::from(10), contents(), operation);
    written.unwrap_err();
    object.write(&tx, 100, b"a part", operation).unwrap_err();
    drop(tx);
    pool.sync(&set);
    let tx = pool.tx();
    object.write(&tx, 100, b"a part", &pool.operation).unwrap();
    drop(tx);
    pool.sync(&set);
    let mut read = [0; 6];
    object.read(100, &mut read, &pool.operation).unwrap();
    assert_eq!(&read, b"a part");
}

#[test]
fn a_range_of_whole_blocks_of_pointers_is_freed_unread() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let ranges = [0..4, FANOUT..FANOUT + 4, 2 * FANOUT..2 * FANOUT + 4];
    let (object, pointers) = file(&mut pool, &set, &ranges);
    assert_eq!(pointers.len(), 3);
    spoil(&pool, &pointers);
    let free = |range: Range<u64>| {
        let tx = pool.tx();
        let (offset, length) = bytes(range);
        object.free_range(&tx, offset, length, &pool.operation)
    };
    free(FANOUT..2 * FANOUT + 1).unwrap_err();
    free(FANOUT - 1..2 * FANOUT).unwrap_err();
    free(FANOUT..2 * FANOUT).unwrap();
    pool.sync(&set);
    let read = |block: u64| object.read_block(BlockId::from(block), &pool.operation);
    assert!(read(FANOUT).unwrap().iter().all(|byte| *byte == 0));
    read(0).unwrap_err();
}

/// The search for contents from the end on does not end at an unreadable block.
#[test]
fn what_is_below_an_unreadable_block_of_pointers_counts_as_contents() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let ranges = [0..4, FANOUT..FANOUT + 4, 40 * FANOUT..40 * FANOUT + 4];
    let (object, pointers) = file(&mut pool, &set, &ranges);
    assert_eq!(pointers.len(), 4);
    let is_lowest = |pointer: &&BlockPointer| pointer.level().get() == 1;
    let lowest: Vec<BlockPointer> = pointers.iter().filter(is_lowest).copied().collect();
    spoil(&pool, &lowest);
    let mut end = 100 * FANOUT;
    for top in [40 * FANOUT, FANOUT, 0] {
        let within = BlockId::from(0)..BlockId::from(end);
        let last = object.last_data(within, 100, &pool.operation).unwrap();
        let last = last.unwrap();
        assert!(last.end.get() > top && last.start.get() < top + FANOUT);
        assert_eq!(last.end.get() - last.start.get(), 100);
        end = top;
    }
}
