//! What is free: where on the vdevs new blocks go, and when the place of an old one may be used
//! again.
//!
//! # Problem
//! A pool has billions of sectors. Finding a free one must cost microseconds; neighbouring writes
//! should land beside each other; the copies of a block should not share a failure; and a sector
//! must never be handed out while any uberblock that could still be imported needs it. All of this
//! is itself stored in the pool it describes.
//!
//! # Mechanism
//! *Metaslabs.* A top-level vdev is cut into metaslabs of equal size ([`metaslab`]). For each, the
//! disk has a log of allocations and frees (its space map), which `pool` keeps. What is free in a
//! metaslab is held as a [`RangeTree`] while we allocate from it; the others are known by their
//! free bytes and a histogram of their free ranges. A metaslab that is wanted and not in memory is
//! loaded through the door [`LoadSpaceMap`], without our lock; those not used for long are dropped
//! again when the trees grow beyond a bound.
//!
//! *Choosing.* A request names a [`Class`] and a number of copies. Each class has the vdevs that
//! serve it ([`class`]); a rotor goes round them and stays at each for an amount of bytes in
//! proportion to its share of the free space, so that all fill up at the same rate. On a vdev, each
//! copy has an active metaslab, used until its largest free range has shrunk to a quarter; then the
//! one with the largest free ranges is taken. Inside a metaslab ([`pick`]) we allocate behind a
//! cursor, so that a batch of blocks becomes one run on the device; where that fails we take the
//! tightest range that fits.
//!
//! *Copies* go to different vdevs; where there are not enough, to metaslabs at least an eighth of
//! the vdev apart; then to different metaslabs; then anywhere. Standards are lowered one copy at a
//! time, and [`NoSpace`] means that no standard is left to lower.
//!
//! *A range in its life* is free, then allocating (handed out in an open txg, not yet in the space
//! map), allocated, freeing (given back in a txg, not yet in the space map), deferred (in the space
//! map as free, but not to be used), and free again. `pool` moves ranges on by
//! [`Space::take_changes`] in each pass of a sync, and [`Space::txg_stored`] after its uberblock.
//!
//! *The checkpoint.* While a pool has a checkpoint, freed blocks that were born up to its txg stay
//! allocated; they are handed over apart ([`MetaslabChanges::kept`]), so that `pool` can free them
//! when the checkpoint is discarded.
//!
//! *Holds* ([`hold`]) take metaslabs out of use while their free ranges are written or discarded.
//!
//! # Invariants
//! - A sector is in exactly one of these states, so no block is handed out twice. A tree refuses to
//!   take in what it has and to give away what it has not; every change of state goes through two
//!   such refusals.
//! - What is freed in txg N is not handed out before txg N + 2 is stored, so a pool rewound to an
//!   older uberblock still finds its blocks. This holds also for blocks born in N: their
//!   allocation and their free are both in the changes of N.
//! - The changes of a txg are taken before it is stored; [`Space::txg_stored`] insists.
//! - A metaslab with allocations that are not stored yet is not dropped from memory.
//! - Given the same calls, the same places are given: nothing here is random.
//!
//! # After a crash
//! Nothing to repair: the space maps are objects, and roll back with their txg. What was deferred
//! is free after an import, as it is in OpenZFS.
//!
//! # Knows nothing about
//! Block pointers, checksums, objects, redundancy. How many bytes a block takes on a vdev comes
//! from the caller; `pool` stores what [`Space::take_changes`] hands over.

pub mod changes;
pub mod class;
pub mod error;
mod group;
mod hold;
pub mod load;
pub mod metaslab;
pub mod pick;
mod probes;
pub mod range_tree;
mod ranks;
pub mod slop;
mod space;
mod state;
pub mod totals;

pub use changes::MetaslabChanges;
pub use class::Class;
pub use error::{FreeError, LoadError, NoSpace};
pub use hold::MetaslabHold;
pub use load::LoadSpaceMap;
pub use metaslab::{MetaslabSummary, StoredMap};
pub use range_tree::{Range, RangeTree};
pub use slop::slop_size;
pub use space::{Allocation, Space, SpaceOptions};
pub use state::{Admission, Geometry};
pub use totals::{GroupTotals, Totals, fragmentation_of};

/// How many txgs must be stored after the one that freed a range before the range is used again.
/// From the format's habits: OpenZFS keeps two, and promises a rewind that far.
#[doc(alias = "TXG_DEFER_SIZE")]
pub const TXG_DEFER: u64 = 2;

/// The most copies a block may have: the number of places in a block pointer.
pub const COPIES_MAX: usize = 3;

/// A number from a stored structure as an index into memory.
fn as_index(number: u64) -> usize {
    usize::try_from(number).expect("what is counted in memory is indexed in memory")
}

/// An index into memory as the number that is stored.
fn as_number(index: usize) -> u64 {
    u64::try_from(index).expect("an index fits 64 bits")
}
