//! Scrub and resilver: visits every block of the pool and verifies or repairs its copies.
//!
//! # Problem
//! Disks rot, and a disk that was away lacks what was written meanwhile. All blocks are found only
//! by walking all trees, in an order that has nothing to do with their places on the disks, and
//! while the pool is written, datasets are destroyed, and the power may fail.
//!
//! # Mechanism
//! The *walk* ([`slice`](mod@slice)) runs in the sync thread, a slice of bounded time in each txg,
//! so that no block is freed and no dataset changes while it walks: first the MOS, then dataset
//! after dataset from a queue ([`datasets`]), oldest snapshots first, each from the txg of the
//! snapshot before it on. It reads indirect blocks and blocks of dnodes only, and puts every copy
//! that it finds into the [`ScanQueue`](tarn_block::ScanQueue), which sorts them by their places.
//!
//! When the walk is at its end, or the queue has its share of memory, or progress is to be stored,
//! the *workers* ([`workers`]) take runs of neighbours out and read them with all their copies.
//! When the queue is empty again, the walk goes on.
//!
//! The state of a scan ([`Scan`](tarn_ondisk::scan::Scan)) is OpenZFS's, in the MOS: the scan that
//! one program has begun is continued by the other. In memory there are two: as the walk is, and as
//! it is stored. The latter follows only when the queue is empty ([`progress`]): everything before
//! the stored position has been verified. Both follow the datasets that are destroyed, snapshotted
//! and exchanged ([`datasets`]).
//!
//! A scrub reads all copies of all blocks. A resilver visits the blocks born in txgs that dirty
//! time logs of usable devices have, and writes to those devices. When a scan ends, the births
//! leave the logs ([`end`]).
//!
//! # Invariants
//! - A block's place is not allocated anew while a worker has it: the sync thread waits for it
//!   before it releases space ([`ScanQueue`](tarn_block::ScanQueue)).
//! - Births leave a dirty time log in the txg in which a scan ends, after all its blocks were
//!   written; they are flushed with that txg.
//! - A resilver comes to each block that a device misses. A clone could take it to where the walk
//!   has been, and the pointer that the walk would come to could be freed: so a block that a device
//!   in use misses is copied, not cloned ([`BlockIo::is_missed`](tarn_block::BlockIo::is_missed)),
//!   and the walk begins after the txgs in which clones were made by what was known before.
//!
//! # After a crash
//! The next import goes on from the stored position, and verifies some blocks again.

mod control;
mod datasets;
mod end;
mod error_scrub;
mod progress;
pub mod schedule;
mod slice;
pub(crate) mod state;
mod status;
mod stored_scan;
mod workers;

pub use control::{ScanChange, ScanRefusal};
pub use progress::Pass as ScanPass;
pub use status::{LeafScan, ScanStatus};
