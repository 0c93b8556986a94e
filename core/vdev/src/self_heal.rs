//! Self-healing at import: a log block or uberblock that only some devices have is written to the
//! others.
//!
//! # Problem
//! When the power fails during a write, some devices have the block and others do not. A read finds
//! it on those that have it. But a device may be taken out of use as soon as redundancy covers it,
//! and for this block redundancy is not there, while no dirty time log says so. Blocks that a txg
//! stored are on all devices, for all are flushed before the uberblock. The last blocks of an
//! intent log and the newest uberblock may be on some devices only.
//!
//! # Mechanism
//! The importer passes verified log blocks that only some devices may have. Self-healing compares
//! them with the bytes on each device in use, and writes them where these differ. It writes the
//! uberblock to the devices whose newest is older.
//!
//! # Invariants
//! - When self-healing has succeeded, and a flush after it, each device in use has its part of the
//!   block: each of them may be taken out of use that redundancy covers.
//! - A device that has its part already is not written to.

use crate::error::VdevWriteError;
use crate::labels::{LabelUpdate, add_uberblock, in_turn};
use crate::leaf::Leaf;
use crate::place::PhysicalWrite;
use crate::queue::{self, LeafIo, Outcome};
use crate::tree::VdevTree;
use crate::write::PreparedWrites;
use std::sync::Arc;
use tarn_host::device::Request;
use tarn_ondisk::uberblock::Uberblock;
use tarn_probe::Operation;

impl VdevTree {
    /// Writes these blocks to each leaf in use that does not have its part of them. Gives how many
    /// parts were written. Durable after the next [`flush`](VdevTree::flush).
    ///
    /// # Panics
    /// When a place is not on its vdev, or has another size than its data.
    ///
    /// # Errors
    /// More leaves failed than redundancy covers. The call does not wait for them: the pool is
    /// being opened.
    pub fn self_heal_lacking(
        &self,
        writes: Vec<PhysicalWrite>,
        operation: &Operation,
    ) -> Result<usize, VdevWriteError> {
        let PreparedWrites { tops, ios } = self.prepare(writes, operation)?;
        if let [_] = ios.as_slice() {
            // The bytes were read from there and verified.
            return Ok(0);
        }
        let reads = ios.iter().map(read_of).collect();
        let found = queue::run(reads, queue::read_class(operation), operation);
        assert_eq!(found.len(), ios.len(), "each part is read once");
        let lacking: Vec<LeafIo> = ios
            .into_iter()
            .zip(found)
            .filter(|(io, found)| !is_there(&io.request, found))
            .map(|(io, _)| io)
            .collect();
        let count = lacking.len();
        let lacking = PreparedWrites { tops, ios: lacking };
        self.carry_out(lacking, operation)?;
        Ok(count)
    }

    /// Writes the uberblock that the import chose to the whole devices that have only an older one.
    /// Durable when the call returns. The importer calls this before it writes anything that an
    /// older uberblock may lead to.
    ///
    /// # Errors
    /// More leaves failed than redundancy covers.
    pub fn self_heal_uberblock(
        &self,
        uberblock: &Uberblock,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        let tops: Vec<_> = self
            .tops()
            .into_iter()
            .filter(|top| top.holds_data())
            .collect();
        let tops = in_turn(&tops, uberblock.txg);
        let update = LabelUpdate {
            uberblock,
            is_multihost: uberblock.multihost_delay_ns != 0,
            configuration: None,
        };
        let (mut lacking, mut ios) = (Vec::new(), Vec::new());
        for top in &tops {
            let leaves = top.leaves.iter();
            // The uberblocks of a device that missed writes stay old: by them the next import knows
            // it.
            let lacks = |leaf: &&Arc<Leaf>| leaf.is_whole() && leaf.has_only_before(uberblock.txg);
            for leaf in leaves.filter(lacks) {
                add_uberblock(leaf, top.ashift, &update, &mut ios);
                lacking.push(leaf);
            }
        }
        if lacking.is_empty() {
            return Ok(());
        }
        self.store(&tops, ios, operation)?;
        for leaf in lacking {
            leaf.note_written_uberblock();
        }
        Ok(())
    }
}

/// The request that reads what another writes.
fn read_of(write: &LeafIo) -> LeafIo {
    match &write.request {
        Request::Write { offset, data } => LeafIo::read(&write.leaf, *offset, data.len()),
        _ => panic!("what is prepared to be written is written"),
    }
}

/// Whether a leaf already has the bytes of this write.
fn is_there(write: &Request, found: &Outcome) -> bool {
    match (write, found) {
        (Request::Write { data, .. }, Ok(Some(found))) => found[..] == data[..],
        _ => false,
    }
}
