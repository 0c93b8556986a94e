//! The door [`BlockLedger`]: blocks that are born and killed while an object set is stored.

use std::sync::Arc;

use tarn_ondisk::block_pointer::BlockPointer;

use crate::objset::ObjectSet;

/// Is called for every pointer that a stored object set gains or loses. It decides what becomes of
/// a lost block: freed, or kept for a snapshot.
pub trait BlockLedger {
    /// The set has this block now. Never a hole; embedded ones are told of too, for they have a
    /// size.
    #[doc(alias = "dsl_dataset_block_born")]
    fn born(&mut self, pointer: &BlockPointer);

    /// The set does not have this block any more.
    #[doc(alias = "dsl_dataset_block_kill")]
    fn killed(&mut self, pointer: &BlockPointer);
}

/// An object set to be stored, with its ledger.
pub struct SetLedger<'a> {
    /// The object set.
    pub set: Arc<ObjectSet>,
    /// The ledger of its blocks.
    pub ledger: &'a mut dyn BlockLedger,
}

impl SetLedger<'_> {
    pub(crate) fn born(&mut self, pointer: &BlockPointer) {
        self.ledger.born(pointer);
    }

    /// What was overwritten or freed need not be cached: only a snapshot could read it again.
    pub(crate) fn killed(&mut self, pointer: &BlockPointer) {
        self.set.env().cache.forget(pointer);
        self.ledger.killed(pointer);
    }
}
