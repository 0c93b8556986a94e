//! A pool of one object set, on files, for the tests of objects: a short form of what `dataset` and
//! `pool` do around a txg.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_block::{BlockIo, WritePhase};
use tarn_host::Host;
use tarn_host::sim::Random;
use tarn_object::{
    BlockLedger, NewObjectSet, ObjectEnv, ObjectSet, Ownership, SetLedger, SetPolicy, SyncTx,
    TxEstimate, TxgLimits, sync_objsets,
};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;
use tarn_scaffold::{Shape, Stack, key_of, repairing};
use tarn_space::Space;

pub const SET: ObjectId = ObjectId::new(54);

pub use tarn_scaffold::BLOCKS;

/// What the ledger heard, and what it makes of it: everything killed is freed.
#[derive(Default)]
pub struct Ledger {
    pub killed: Vec<BlockPointer>,
    pub born: Vec<BlockPointer>,
}

impl BlockLedger for Ledger {
    fn born(&mut self, pointer: &BlockPointer) {
        self.born.push(*pointer);
    }

    fn killed(&mut self, pointer: &BlockPointer) {
        self.killed.push(*pointer);
    }
}

pub struct Pool {
    pub host: Host,
    pub io: Arc<BlockIo>,
    pub space: Arc<Space>,
    pub env: Arc<ObjectEnv>,
    pub operation: Operation,
    /// All pointers the set has, as the ledger knows: by place and birth.
    pub alive: BTreeMap<(u64, u64, u64, u64), BlockPointer>,
    /// Bytes the set has, as the ledger counts.
    pub used: u64,
    stack: Stack,
}

impl Pool {
    pub fn new() -> Pool {
        Pool::with_limits(TxgLimits::default())
    }

    pub fn with_limits(limits: TxgLimits) -> Pool {
        let stack = Stack::new(Shape::default(), repairing(), None);
        let env = stack.env(Txg::from(9), limits);
        Pool {
            host: stack.host.clone(),
            io: stack.io.clone(),
            space: stack.space.clone(),
            env,
            operation: Operation::unmeasured(),
            alive: BTreeMap::new(),
            used: 0,
            stack,
        }
    }

    pub fn policy() -> SetPolicy {
        SetPolicy::new(BLOCKS)
    }

    /// Makes an empty file system, and stores it.
    pub fn create_set(&mut self, owner: Option<Arc<dyn Ownership>>) -> Arc<ObjectSet> {
        let new = NewObjectSet {
            objset_type: ObjsetType::Zfs,
            has_accounting: true,
            levels: 0,
        };
        self.create(new, owner)
    }

    pub fn create(
        &mut self,
        new: NewObjectSet,
        owner: Option<Arc<dyn Ownership>>,
    ) -> Arc<ObjectSet> {
        let mut tx = self.begin();
        let set = ObjectSet::create(self.env.clone(), SET, new, Pool::policy(), owner, &tx);
        self.store(&set, &mut tx);
        self.finish(tx);
        set
    }

    /// Closes the open group.
    pub fn begin(&self) -> SyncTx {
        let txg = self.env.txgs.quiesce();
        self.env.txgs.begin_sync(txg)
    }

    /// Closes the open group, to be stored later.
    pub fn begin_only(&self) -> Txg {
        self.env.txgs.quiesce()
    }

    /// One pass.
    pub fn store(&mut self, set: &Arc<ObjectSet>, tx: &mut SyncTx) {
        let mut ledger = Ledger::default();
        let mut sets = [SetLedger {
            set: set.clone(),
            ledger: &mut ledger,
        }];
        let roots = sync_objsets(&mut sets, tx, &self.io, &self.operation).unwrap();
        assert_eq!(roots, [set.root_pointer()]);
        let phase = WritePhase {
            txg: tx.txg(),
            pass: tx.pass(),
        };
        for pointer in ledger.born {
            self.used += self.io.deflated_size(&pointer).get();
            if let Some(key) = key_of(&pointer) {
                assert!(
                    self.alive.insert(key, pointer).is_none(),
                    "{pointer} is born once"
                );
            }
        }
        for pointer in ledger.killed {
            self.used -= self.io.deflated_size(&pointer).get();
            if let Some(key) = key_of(&pointer) {
                assert!(
                    self.alive.remove(&key).is_some(),
                    "{pointer} is killed once"
                );
                self.io.free(&pointer, phase, &self.operation).unwrap();
            }
        }
        tx.next_pass();
    }

    pub fn finish(&mut self, tx: SyncTx) {
        let txg = tx.txg();
        for pointer in self.io.take_deferred_frees() {
            let phase = WritePhase { txg, pass: 1 };
            self.io.free(&pointer, phase, &self.operation).unwrap();
        }
        let _ = self.space.take_changes(txg);
        self.space.txg_stored(txg);
        self.env.txgs.finish_sync(tx);
    }

    /// Stores what is open.
    pub fn sync(&mut self, set: &Arc<ObjectSet>) {
        let mut tx = self.begin();
        if set.is_dirty(tx.txg()) {
            self.store(set, &mut tx);
        }
        assert!(!set.is_dirty(tx.txg()), "one pass stores all");
        self.finish(tx);
    }

    pub fn tx(&self) -> tarn_object::OpenTx {
        self.env
            .txgs
            .assign(&TxEstimate::default(), &self.operation)
            .unwrap()
    }

    /// An environment with nothing of the pool in memory.
    pub fn forgetful(&self) -> Arc<ObjectEnv> {
        let stored = self.env.txgs.stored_txg();
        self.stack.env(stored, TxgLimits::default())
    }

    /// Turns the first bits of all copies of a block around, or back.
    pub fn flip(&self, pointer: &BlockPointer) {
        self.stack.flip(pointer);
    }

    /// The set as it is opened with nothing in memory.
    pub fn reopen(&self, set: &ObjectSet, owner: Option<Arc<dyn Ownership>>) -> Arc<ObjectSet> {
        let root = set.root_pointer();
        ObjectSet::open(
            self.forgetful(),
            SET,
            &root,
            Pool::policy(),
            owner,
            &self.operation,
        )
        .unwrap()
    }
}

/// Contents of a block: one byte, zeros or noise.
pub fn some_bytes(random: &mut Random, count: usize) -> Vec<u8> {
    match random.below(3) {
        0 => vec![random.byte(); count],
        1 => vec![0; count],
        _ => random.bytes(count),
    }
}
