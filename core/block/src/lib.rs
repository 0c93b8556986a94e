//! One block by its pointer: the read, write and free pipelines.
//!
//! # Problem
//! Between an object, which knows contents, and a device, which knows sectors, much is decided for
//! every block: whether it is stored at all, how small, where, how often, and how it will be known
//! again. A mistake in any of these loses data silently, so each is made in one place, and the same way
//! for all blocks.
//!
//! # Mechanism
//! A *read* ([`read`]) tries copies until one verifies, and expands it. A *write* ([`mod@write`]) takes a
//! batch through shaping, placing and writing, and gives back pointers. A *free* ([`free`]) gives
//! space back, at once or in the next txg. Beside them: blocks in pieces ([`gang`]), blocks in their
//! pointer ([`embed`]), blocks of intent logs ([`log_block`]) and those that logs lead to ([`early`]), bad copies written anew ([`repair`]), blocks of encrypted datasets, whose keys nobody has here
//! ([`sealed`]), what a block takes at worst ([`worst`]), and what kind of block is written how
//! ([`policy`]).
//!
//! # Invariants
//! - A pointer is given out only after its block is written; it is lost only with its txg.
//! - What is read verified, in every byte.
//! - Sizes, places and algorithms from a pointer are checked before they are used.
//!
//! # Knows nothing about
//! Objects, transactions, who may read what. Which slot a pointer is in, and whether a snapshot needs the
//! block that was there before, is for the layers above.

pub mod data;
mod early;
mod embed;
pub mod error;
mod free;
mod gang;
pub mod io;
mod log_block;
pub mod policy;
mod probes;
mod ranks;
mod read;
pub mod ref_table;
mod repair;
mod sealed;
mod stored;
mod worst;
mod write;

pub use data::Block;
pub use early::PlacedBlocks;
pub use error::{
    BlockAddress, BlockFreeError, CopyFailure, CopyFailureReason, HealError, ReadError, WriteError,
};
pub use io::{BlockIo, BlockIoOptions, ForceGanging, HoleBirth, Repair, WritePhase};
pub use log_block::{LogBlockWrite, LogPlace};
pub use policy::{BlockRole, DatasetPolicy, Embedding, RedundantMetadata, WritePolicy};
pub use read::Form;
pub use ref_table::{RefTable, Release};
pub use sealed::seal_of_pointers;
pub use write::{GivenForm, PASS_DEFER_FREES, PASS_DONT_COMPRESS, PASS_REWRITE, WriteRequest};
