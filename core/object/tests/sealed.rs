//! Encrypted object sets as raw streams bring them: blocks are stored as they came, in the given
//! shape, and no local change is accepted.

mod support;

use std::sync::Arc;
use support::{Pool, SET};
use tarn_block::{Block, BlockScope, GivenForm, seal_of_pointers};
use tarn_object::{
    HeadSealing, META_DNODE, NewObject, NewSealedSet, Object, ObjectError, ObjectForm, ObjectSet,
    SealedBlock, TO_END,
};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::sealing::Sealing;
use tarn_ondisk::units::{BlockId, LogicalSize, ObjectId};
use tarn_transform::CompressionAlgorithm;

const FILE: ObjectId = ObjectId::new(8);
const BLOCK_BYTES: u64 = 4096;
const LAST_BLOCK: u64 = 40;
/// All the room for the bonus in a dnode of one slot with one pointer.
const ROOM_BYTES: usize = 320;

fn sealing(of: u8) -> Sealing {
    let mut sealing = Sealing::of_code([of; 16]);
    sealing.salt.0 = [of + 1; 8];
    sealing.initialization_vector.0 = [of + 2; 12];
    sealing
}

fn contents(of: u8) -> SealedBlock {
    SealedBlock {
        bytes: Block::from_slice(&[of; 1024]),
        logical_size: LogicalSize::from(BLOCK_BYTES),
        given: GivenForm {
            compression: CompressionAlgorithm::Lz4,
            order: ByteOrder::Little,
        },
        sealing: sealing(of),
    }
}

fn form(room: u8) -> ObjectForm {
    ObjectForm {
        block_size: LogicalSize::from(BLOCK_BYTES),
        indirect_shift: 14,
        levels: 3,
        max_block: BlockId::from(LAST_BLOCK),
        bonus_type: ObjectType::SystemAttributes,
        bonus_length: 168,
        bonus_room: vec![room; ROOM_BYTES],
    }
}

fn create(pool: &mut Pool) -> Arc<ObjectSet> {
    let new = NewSealedSet {
        levels: 7,
        block_size: LogicalSize::from(16384),
        indirect_shift: 17,
    };
    let mut tx = pool.begin();
    let (env, policy) = (pool.env.clone(), Pool::policy());
    let set = ObjectSet::create_sealed(env, SET, ObjsetType::Zfs, new, policy, &tx).unwrap();
    pool.store(&set, &mut tx);
    pool.finish(tx);
    set
}

fn make_file(pool: &Pool, set: &ObjectSet) -> Arc<Object> {
    let tx = pool.tx();
    let new = NewObject {
        indirect_shift: 14,
        ..NewObject::plain(ObjectType::PlainFile, BLOCK_BYTES)
            .with_bonus(ObjectType::SystemAttributes, 168)
    };
    let file = set.claim(&tx, FILE, new, &pool.operation).unwrap();
    set.seal_dnodes(&tx, 0, sealing(1));
    file.set_form(&tx, form(9)).unwrap();
    for block in [0, 7, LAST_BLOCK] {
        let of = u8::try_from(block).unwrap();
        let block = BlockId::from(block);
        file.write_sealed(&tx, block, contents(of), &pool.operation)
            .unwrap();
    }
    file
}

/// Where a block belongs, as far as these tests care.
fn scope_of(pointer: &BlockPointer) -> BlockScope {
    let mark = TraversalMark {
        objset: ObjectId::from(54),
        object: ObjectId::from(8),
        level: 0,
        block: 3,
    };
    BlockScope::of_visit(mark, pointer)
}

/// The pointer to a block, from a dnode's first pointer down. Each block of pointers on the way
/// must be sealed by what is in it.
fn pointer_to(pool: &Pool, dnode: &tarn_ondisk::dnode::Dnode, block: u64) -> BlockPointer {
    let shift = dnode.pointers_per_block_shift();
    let mut level = u32::from(dnode.levels) - 1;
    let mut pointer = dnode.pointers[0];
    while level > 0 && !pointer.is_hole() {
        assert!(pointer.uses_encryption() && !pointer.is_encrypted());
        let scope = scope_of(&pointer);
        let pointers = pool.io.read(&pointer, scope, &pool.operation).unwrap();
        assert_eq!(Sealing::of_pointer(&pointer), seal_of_pointers(&pointers));
        level -= 1;
        let entry = usize::try_from(block >> (level * shift)).unwrap() % (1 << shift);
        let bytes = &pointers[entry * BlockPointer::SIZE..][..BlockPointer::SIZE];
        pointer = BlockPointer::from_bytes(bytes, ByteOrder::Little).unwrap();
    }
    pointer
}

fn is_encrypted_error<T>(outcome: Result<T, ObjectError>) -> bool {
    matches!(outcome, Err(ObjectError::Encrypted { .. }))
}

#[test]
fn what_is_sealed_is_stored_as_it_came() {
    let mut pool = Pool::new();
    let set = create(&mut pool);
    assert!(set.root_pointer().uses_encryption());
    make_file(&pool, &set);
    pool.sync(&set);
    let set = pool.reopen(&set, None);
    assert!(set.is_sealed());
    let file = set.object(FILE, &pool.operation).unwrap();
    let dnode = file.stored_dnode();
    assert_eq!((dnode.levels, dnode.indirect_shift), (3, 14));
    assert_eq!(dnode.max_block.get(), LAST_BLOCK);
    assert_eq!(dnode.bonus().len(), 168);
    assert_eq!(dnode.bonus_room(), [9; ROOM_BYTES]);
    for block in [0, 7, LAST_BLOCK] {
        let of = u8::try_from(block).unwrap();
        let pointer = pointer_to(&pool, &dnode, block);
        assert!(pointer.is_encrypted(), "{pointer}");
        assert_eq!(pointer.compression(), Compression::Lz4);
        assert_eq!(pointer.logical_size().get(), BLOCK_BYTES);
        assert_eq!(Sealing::of_pointer(&pointer), sealing(of));
        let scope = scope_of(&pointer);
        let stored = pool.io.read_raw(&pointer, scope, &pool.operation).unwrap();
        assert_eq!(&*stored, [of; 1024]);
        let refused = pool.io.read(&pointer, scope, &pool.operation);
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("<54, 8, 0, 3>"),
            "it names the object set: {refused}"
        );
    }
    assert!(pointer_to(&pool, &dnode, 1).is_hole());
    let meta = set.object(META_DNODE, &pool.operation).unwrap();
    let dnodes = pointer_to(&pool, &meta.stored_dnode(), 0);
    assert_eq!(Sealing::of_pointer(&dnodes), sealing(1));
    assert_eq!(dnodes.compression(), Compression::Off);
    assert!(dnodes.dva_count() <= 2);
}

#[test]
fn a_block_of_dnodes_stays_sealed_as_it_was_until_somebody_says_otherwise() {
    let mut pool = Pool::new();
    let set = create(&mut pool);
    let file = make_file(&pool, &set);
    pool.sync(&set);
    let sealed_as = |pool: &Pool, set: &ObjectSet| {
        let meta = set.object(META_DNODE, &pool.operation).unwrap();
        let pointer = pointer_to(pool, &meta.stored_dnode(), 0);
        (!pointer.is_hole()).then(|| Sealing::of_pointer(&pointer))
    };
    let tx = pool.tx();
    file.write_sealed(&tx, BlockId::from(3), contents(3), &pool.operation)
        .unwrap();
    drop(tx);
    pool.sync(&set);
    assert_eq!(sealed_as(&pool, &set), Some(sealing(1)));
    let tx = pool.tx();
    set.seal_dnodes(&tx, 31, sealing(5));
    file.set_form(&tx, form(4)).unwrap();
    drop(tx);
    pool.sync(&set);
    assert_eq!(sealed_as(&pool, &set), Some(sealing(5)));
    let tx = pool.tx();
    file.free_range(&tx, 0, TO_END, &pool.operation).unwrap();
    set.free_object(&tx, FILE, &pool.operation).unwrap();
    drop(tx);
    pool.sync(&set);
    assert_eq!(sealed_as(&pool, &set), None, "dnodes of nothing are a hole");
    assert_eq!(pool.alive.len(), 1, "only the head is left");
}

#[test]
fn the_head_gets_its_code_and_the_dnodes_their_end() {
    let mut pool = Pool::new();
    let set = create(&mut pool);
    make_file(&pool, &set);
    pool.sync(&set);
    let tx = pool.tx();
    let said = HeadSealing {
        portable_code: [6; 32],
        checksum: ChecksumKind::Inherit,
        compression: Compression::Inherit,
        max_block: BlockId::from(12),
    };
    set.seal(&tx, said).unwrap();
    drop(tx);
    pool.sync(&set);
    let head = pool.reopen(&set, None).phys();
    assert_eq!(head.portable_mac, [6; 32]);
    assert_eq!(head.local_mac, [0; 32]);
    assert_eq!(
        (head.meta_dnode.max_block.get(), head.meta_dnode.levels),
        (12, 7)
    );
}

#[test]
fn nobody_without_the_key_changes_contents() {
    let mut pool = Pool::new();
    let set = create(&mut pool);
    let file = make_file(&pool, &set);
    let try_all = |pool: &Pool, set: &ObjectSet, file: &Object| {
        let (tx, operation) = (pool.tx(), &pool.operation);
        assert!(is_encrypted_error(file.write(&tx, 0, &[1; 100], operation)));
        let whole = Block::zeroed(4096);
        let block = BlockId::ZERO;
        assert!(is_encrypted_error(
            file.write_block(&tx, block, whole, operation)
        ));
        assert!(is_encrypted_error(
            file.free_range(&tx, 100, 200, operation)
        ));
        assert!(is_encrypted_error(file.set_bonus(&tx, &[1])));
        assert!(is_encrypted_error(file.set_spill(&tx, Some(&[1]))));
        let new = NewObject::plain(ObjectType::PlainFile, 512);
        assert!(is_encrypted_error(set.allocate(&tx, new, operation)));
        assert!(file.read(0, &mut [0; 10], operation).is_err());
    };
    try_all(&pool, &set, &file);
    drop(file);
    pool.sync(&set);
    let file = set.object(FILE, &pool.operation).unwrap();
    try_all(&pool, &set, &file);
    let tx = pool.tx();
    let beyond = BlockId::from(LAST_BLOCK + 1);
    let refused = file.write_sealed(&tx, beyond, contents(1), &pool.operation);
    assert!(matches!(refused, Err(ObjectError::TooLarge { .. })));
}

#[test]
fn a_sealed_spill_block_comes_and_goes() {
    let mut pool = Pool::new();
    let set = create(&mut pool);
    let file = make_file(&pool, &set);
    let tx = pool.tx();
    let spill = SealedBlock {
        bytes: Block::from_slice(&[3; 512]),
        logical_size: LogicalSize::from(512),
        ..contents(3)
    };
    file.set_sealed_spill(&tx, spill).unwrap();
    assert!(is_encrypted_error(file.spill(&pool.operation)));
    drop(tx);
    pool.sync(&set);
    let spill = file.stored_dnode().spill.unwrap();
    assert_eq!(Sealing::of_pointer(&spill), sealing(3));
    assert_eq!(spill.object_type(), ObjectType::SystemAttributes);
    assert_eq!(file.stored_dnode().bonus_room().len(), ROOM_BYTES - 128);
    let tx = pool.tx();
    file.set_spill(&tx, None).unwrap();
    drop(tx);
    pool.sync(&set);
    assert_eq!(file.stored_dnode().spill, None);
}
