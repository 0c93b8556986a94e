//! Dnodes, blocks of them, heads of object sets, and the bonuses of every kind that a dnode has.

use super::block_pointer;
use crate::piece::{Kind, Piece};
use crate::target::{Input, Target, told};
use tarn_ondisk::bookmark::Bookmark;
use tarn_ondisk::bpobj::PointerListHead;
use tarn_ondisk::bptree::BlockTreeHead;
use tarn_ondisk::dataset::Dataset;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::deadlist::DeadlistHead;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::dnode::{Dnode, dnode_in_slot, place_of_object, walk_block};
use tarn_ondisk::indirect::MappingHead;
use tarn_ondisk::objset::Objset;
use tarn_ondisk::space_map::SpaceMapHead;
use tarn_ondisk::units::ObjectId;

/// What one dnode, or a block of them, may be.
pub const DNODE: Target = Target {
    name: "dnode",
    about: "dnodes with their bonuses, blocks of dnodes, heads of object sets",
    run: dnode,
    seed,
    size_max: 4097,
    memory_per_byte: 32,
    memory_extra: 0,
};

/// The object set of an input, and the block.
const IS_OBJSET: u8 = 2;

fn seed(piece: &Piece) -> Option<Vec<u8>> {
    match piece.kind {
        Kind::Dnode => told(&[0], &piece.bytes),
        Kind::Objset => told(&[IS_OBJSET], &piece.bytes),
        _ => None,
    }
}

fn dnode(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.byte();
    let order = crate::target::order_of(how);
    let block = input.rest;
    if how & IS_OBJSET != 0 {
        objset(block, order);
        return;
    }
    let mut reached = 0;
    for (slot, found) in walk_block(block, order) {
        assert!(slot >= reached, "slots are walked once");
        let Ok(found) = found else { break };
        reached = slot + found.slots();
        assert!(reached * 512 <= block.len(), "a dnode ends in its block");
        let again = dnode_in_slot(block, slot, order).expect("it was there");
        assert_eq!(again.to_slots(), found.to_slots());
        ask(&found, order, &block[slot * 512..]);
    }
    if let Ok(found) = Dnode::from_slots(block, order) {
        ask(&found, order, block);
    }
    let _ = dnode_in_slot(block, usize::MAX, order);
}

fn ask(dnode: &Dnode, order: ByteOrder, bytes: &[u8]) {
    let stored = dnode.to_slots();
    if order == ByteOrder::Little {
        assert_eq!(
            stored,
            bytes[..dnode.size()],
            "a dnode changed by being stored"
        );
    }
    let again = Dnode::from_slots(&stored, ByteOrder::Little).expect("what we wrote is a dnode");
    assert_eq!(again.to_slots(), stored);
    assert!(dnode.bonus().len() <= dnode.bonus_capacity());
    for pointer in dnode.pointers.iter().chain(&dnode.spill) {
        block_pointer::ask(pointer);
    }
    if dnode.check().is_ok() && !dnode.is_free() {
        let _ = (dnode.top_level(), dnode.pointers_per_block_shift());
        let _ = place_of_object(ObjectId::new(u64::MAX), dnode.data_block_size);
    }
    bonus(dnode.bonus());
    let mut changed = again;
    changed.set_spill(None);
    let changed = Dnode::from_slots(&changed.to_slots(), ByteOrder::Little);
    assert!(changed.is_ok_and(|changed| changed.spill.is_none()));
}

/// A bonus is in little-endian form here.
fn bonus(bytes: &[u8]) {
    let order = ByteOrder::Little;
    let _ = SpaceMapHead::from_bonus(bytes, order);
    let _ = PointerListHead::from_bonus(bytes, order);
    let _ = MappingHead::from_bonus(bytes, order);
    let _ = Bookmark::from_stored(bytes, order);
    let _ = DatasetDirectory::from_short_bytes(bytes, order);
    if let Ok(dataset) = Dataset::from_short_bytes(bytes, order) {
        assert_eq!(Dataset::from_bytes(&dataset.to_bytes(), order), Ok(dataset));
    }
    let _ = DeadlistHead::from_short_bytes(bytes, order);
    let _ = BlockTreeHead::from_short_bytes(bytes, order);
}

fn objset(block: &[u8], order: ByteOrder) {
    let Ok(objset) = Objset::from_block(block, order) else {
        return;
    };
    let stored = objset.to_block();
    assert_eq!(stored.len(), objset.size());
    let again =
        Objset::from_block(&stored, ByteOrder::Little).expect("what we wrote is an object set");
    assert_eq!(again.to_block(), stored);
    block_pointer::ask(&objset.intent_log.first);
    let _ = objset.meta_dnode.check();
}
