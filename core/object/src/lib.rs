//! Objects: numbered things made of blocks, changed in transactions, stored in groups.
//!
//! # Problem
//! The layers above write bytes at an offset; the layers below have blocks that are never
//! overwritten, each found by a pointer in another block. In between, changes must be gathered,
//! visible at once, stored together, and after a crash be all there or not at all.
//!
//! # Mechanism
//! An *object* ([`object`]) is a tree of blocks with a dnode at its root; an *object set*
//! ([`objset`]) is a numbered collection of them, whose dnodes are the blocks of one more object.
//! Changes are made under a [`Tx`] ([`tx`]), gathered in memory by transaction group ([`dirty`],
//! [`buffer`]), and stored level by level with their group ([`sync`], [`sync_tree`]). [`txg`] has
//! the open group and delays writers that are too fast; [`in_flight`] counts the space of unstored
//! changes. [`walk`] finds blocks by index, [`traverse`] visits all blocks of an object set.
//! [`prepare`] reads before a transaction what a change needs. [`numbers`] allocates object
//! numbers; the door in [`owner_door`] tells the owner of an object.
//!
//! On top of objects are the two kinds of contents that all layers above share: ZAPs ([`zap`]), and
//! lists of block pointers ([`pointer_list`], [`block_tree`]).
//!
//! # Invariants
//! Those of the files above, and: a reader sees the last write before it, whether that is in
//! memory, on its way to the disk, or there.
//!
//! # Knows nothing about
//! Datasets, snapshots, files. Whether a killed block can be freed is decided through
//! [`BlockLedger`].

mod block_ledger;
mod block_tree;
mod buffer;
mod cloned;
mod counting;
mod dirty;
mod encrypted_blocks;
mod error;
mod head;
mod held_blocks;
mod in_flight;
mod indirect_writes;
mod last_read;
mod number_tables;
mod numbers;
mod object;
mod objset;
mod owner;
mod owner_door;
mod pointer_list;
mod prefetch;
mod prepare;
mod ranks;
mod set_sealing;
mod sync;
mod sync_tree;
mod traverse;
mod tree_shape;
mod tx;
mod txg;
mod uncopied;
mod walk;
mod walk_ahead;
mod worst_case;
pub mod zap;

pub use block_ledger::{BlockLedger, SetLedger};
pub use block_tree::{BlockTrees, Freeing, Unreadable};
pub use buffer::TO_END;
pub use counting::{CountError, Countable};
pub use error::{AssignError, ObjectError, SyncError};
pub use head::{GROUP_USED, META_DNODE, MOS_ID, PROJECT_USED, USER_USED, read_head};
pub use indirect_writes::IndirectWrites;
pub use object::Caching;
pub use object::{Object, ObjectInfo};
pub use objset::{NewObject, NewObjectSet, ObjectEnv, ObjectSet, SetPolicy};
pub use owner_door::{OBJECT_COUNT_PREFIX, Owner, Ownership};
pub use pointer_list::{BlockSpace, Entry, LIST_BLOCK_BYTES, PointerList};
pub use prepare::PreparedChange;
pub use set_sealing::{HeadSealing, NewSealedSet, ObjectForm, SealedBlock};
pub use sync::{discard_changes, sync_objsets};
/// The unit in which contents are read: verified, plain, shared, unchangeable.
pub use tarn_block::Block;
pub use tarn_cache::SecondLevelUse;
pub use traverse::{Holes, Step, Visit, Visitor, WalkOptions, Walked, walk_object, walk_objset};
pub use tx::{OpenTx, SyncTx, Tx, TxEstimate, Urgency};
pub use txg::{FailMode, ThrottleStatistics, TxgLimits, Txgs, Wake};
pub use uncopied::{NewContents, ReadData};
