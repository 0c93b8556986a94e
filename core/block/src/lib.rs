//! One block by its pointer: the read, write and free pipelines.
//!
//! # Problem
//! Between an object, which has contents, and a device, which has sectors, every block needs
//! decisions: whether it is stored at all, how it is compressed, where, in how many copies, and
//! with which checksum. A mistake in any of these loses data silently, so each is made in one
//! place, and the same way for all blocks.
//!
//! # Mechanism
//! A *read* ([`read`]) fetches a copy that verifies, opens it and expands it. A *write*
//! ([`mod@write`]) takes a batch through compressing, sealing, claiming, placing and writing, and
//! gives back pointers. Each stage is a function in a file of its own. A *free* ([`free`]) gives
//! space back, at once or in the next txg. A read carries its [`scope`]: object set, object, level
//! and number of the block.
//!
//! Beside them: blocks in pieces ([`gang`]), blocks in their pointer ([`embed`]), blocks of intent
//! logs ([`log_block`]) and the data that log records lead to ([`log_data`]), bad copies written
//! anew ([`self_heal_copies`]), scrub and resilver ([`scan_copies`]), what a block takes at worst
//! ([`worst`]), and what kind of block is written how ([`policy`]).
//!
//! # Invariants
//! - A pointer is given out only after its block is written; it is lost only with its txg.
//! - What is read verified, in every byte.
//! - Sizes, places and algorithms from a pointer are checked before they are used.
//!
//! # Knows nothing about
//! Objects, transactions, permissions. Which slot a pointer is in, and whether a snapshot needs the
//! block that was there before, is known by the layers above.

pub mod data;
mod embed;
pub mod error;
mod expand;
mod faults;
mod free;
mod gang;
pub mod io;
mod log_block;
mod log_data;
pub mod policy;
mod probes;
mod ranks;
mod read;
pub mod ref_table;
pub mod scan_copies;
mod scope;
mod self_heal_copies;
mod shapes;
mod stored;
mod stored_form;
mod unreadable;
mod worst;
mod write;

pub use data::Block;
pub use error::{
    BlockAddress, BlockFreeError, CopyFailure, CopyFailureReason, ReadError, SelfHealError,
    WriteError,
};
pub use io::{BlockIo, BlockIoOptions, ForceGanging, HoleBirth, Repair, WritePhase};
pub use log_block::{LogBlockWrite, LogPlace};
pub use log_data::PlacedBlocks;
pub use policy::{BlockRole, DatasetPolicy, Embedding, RedundantMetadata, WritePolicy};
pub use read::request::{Form, ReadRequest};
pub use ref_table::{RefTable, Release};
pub use scan_copies::{ScanItem, ScanOutcome, ScanQueue};
pub use scope::{BlockKind, BlockScope};
pub use write::request::{
    GivenForm, PASS_DEFER_FREES, PASS_DONT_COMPRESS, PASS_REWRITE, WriteRequest,
};
pub use write::seal::seal_of_pointers;
