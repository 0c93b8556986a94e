//! Ledgers: what becomes of the blocks that storing an object set makes and gives up.
//!
//! # Mechanism
//! While a group is stored, each dataset's ledger hears of every block born and killed. A killed block born after the
//! newest snapshot belongs to nobody any more and is freed. An older one is still in that snapshot, and goes to the
//! deadlist. The sums are gathered here, and charged once when the set is stored: to the dataset's `referenced` and
//! `unique`, and to its directory and all above it.
//!
//! The MOS has no snapshots, and cannot be changed while it is stored. Its sums are charged to the directory `$MOS` in
//! the next pass, until they are nothing.
//!
//! # Invariants
//! - `referenced` is the sum of the blocks that the head's tree leads to; `unique` of those born after its newest snapshot.

use crate::deadlist;
use crate::error::DatasetError;
use crate::feature_use;
use crate::namespace::Namespace;
use crate::space_charge::{Part, SpaceChange, charge, charge_moving, move_between};
use crate::task::TaskContext;
use std::collections::BTreeSet;
use std::sync::Arc;
use tarn_block::{BlockFreeError, BlockIo, WritePhase};
use tarn_object::{BlockLedger, SyncTx};
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::{AllocatedSize, LogicalSize, ObjectId, PhysicalSize, Txg};
use tarn_probe::Operation;

/// The directory that the MOS is charged to.
const MOS_DIRECTORY: &str = "$MOS";

/// What a block takes.
fn space_of(io: &BlockIo, pointer: &BlockPointer) -> SpaceChange {
    SpaceChange {
        used: i128::from(io.deflated_size(pointer).get()),
        compressed: i128::from(pointer.physical_size().get()),
        uncompressed: i128::from(pointer.uncompressed_size()),
    }
}

fn add(sum: &mut SpaceChange, change: SpaceChange) {
    sum.used += change.used;
    sum.compressed += change.compressed;
    sum.uncompressed += change.uncompressed;
}

/// The ledger of a head while one group is stored.
pub(crate) struct HeadLedger<'a> {
    io: &'a Arc<BlockIo>,
    phase: WritePhase,
    operation: &'a Operation,
    id: ObjectId,
    /// Blocks born after it are in no snapshot of this head.
    snapshot_txg: Txg,
    /// What the set has more than before.
    referenced: SpaceChange,
    /// What is in no snapshot, more than before.
    unique: SpaceChange,
    /// Blocks that only snapshots have now.
    dead: Vec<BlockPointer>,
    /// Features that blocks use.
    features: BTreeSet<Feature>,
    failure: Option<BlockFreeError>,
}

impl<'a> HeadLedger<'a> {
    /// For a head, in this pass.
    pub(crate) fn open(context: &TaskContext<'a>, id: ObjectId) -> Result<Self, DatasetError> {
        let stored: ondisk::dataset::Dataset = context.writing().reading().bonus_of(id)?;
        Ok(HeadLedger {
            io: context.io,
            phase: WritePhase {
                txg: context.tx.txg(),
                pass: context.tx.pass(),
            },
            operation: context.operation,
            id,
            snapshot_txg: stored.previous_snapshot_txg,
            referenced: SpaceChange::default(),
            unique: SpaceChange::default(),
            dead: Vec::new(),
            features: BTreeSet::new(),
            failure: None,
        })
    }

    /// The set is stored under this root: charges everything.
    pub(crate) fn close(
        self,
        context: &TaskContext<'_>,
        root: &BlockPointer,
    ) -> Result<(), DatasetError> {
        if let Some(cause) = self.failure {
            return Err(DatasetError::Free { cause });
        }
        let writing = context.writing();
        let before: ondisk::dataset::Dataset = writing.reading().bonus_of(self.id)?;
        let (referenced, unique) = (self.referenced, self.unique);
        writing.change(self.id, |stored: &mut ondisk::dataset::Dataset| {
            stored.root = *root;
            stored.referenced = AllocatedSize::from(sum(stored.referenced.get(), referenced.used));
            stored.compressed =
                PhysicalSize::from(sum(stored.compressed.get(), referenced.compressed));
            stored.uncompressed =
                LogicalSize::from(sum(stored.uncompressed.get(), referenced.uncompressed));
            stored.unique = AllocatedSize::from(sum(stored.unique.get(), unique.used));
        })?;
        let reserved = reservation_of(context, before.directory)?;
        let felt = felt_by_directory(before.unique.get(), reserved, unique.used);
        let change = SpaceChange {
            used: felt,
            ..unique
        };
        charge_moving(
            writing,
            before.directory,
            change,
            unique.used,
            Part::RefReservation,
            Part::Head,
        )?;
        bury(context, self.id, &before, &self.dead)?;
        for feature in self.features {
            feature_use::activate(context, self.id, feature)?;
        }
        Ok(())
    }
}

impl BlockLedger for HeadLedger<'_> {
    fn born(&mut self, pointer: &BlockPointer) {
        let space = space_of(self.io, pointer);
        add(&mut self.referenced, space);
        add(&mut self.unique, space);
        if pointer.logical_size().get() > feature_use::OLD_BLOCK_BYTES_MAX {
            self.features.insert(Feature::LargeBlocks);
        }
        let checksum = u64::from(pointer.checksum_kind().code());
        self.features.extend(feature_use::of_checksum(checksum));
        let compression = u64::from(pointer.compression().code());
        self.features
            .extend(feature_use::of_compression(compression));
    }

    fn killed(&mut self, pointer: &BlockPointer) {
        let space = space_of(self.io, pointer).negated();
        add(&mut self.referenced, space);
        if pointer.birth() <= self.snapshot_txg {
            self.dead.push(*pointer);
            return;
        }
        add(&mut self.unique, space);
        if let Err(cause) = self.io.free(pointer, self.phase, self.operation) {
            self.failure.get_or_insert(cause);
        }
    }
}

/// By how much a directory's `used` changes with its head's unique bytes: as far as a refreservation has not paid.
fn felt_by_directory(unique: u64, reserved: u64, change: i128) -> i128 {
    let (unique, reserved) = (i128::from(unique), i128::from(reserved));
    (unique + change).max(reserved) - unique.max(reserved)
}

/// The refreservation of a directory's head.
fn reservation_of(context: &TaskContext<'_>, directory: ObjectId) -> Result<u64, DatasetError> {
    let reading = context.writing().reading();
    let stored: ondisk::dataset_dir::DatasetDirectory = reading.bonus_of(directory)?;
    Ok(reading
        .number(stored.properties, "refreservation")?
        .unwrap_or(0))
}

/// Blocks that only snapshots have go to the deadlist; the newest snapshot may be the only one that has them.
fn bury(
    context: &TaskContext<'_>,
    id: ObjectId,
    stored: &ondisk::dataset::Dataset,
    dead: &[BlockPointer],
) -> Result<(), DatasetError> {
    if dead.is_empty() {
        return Ok(());
    }
    let writing = context.writing();
    deadlist::insert(context, stored.deadlist, dead)?;
    let previous: ondisk::dataset::Dataset =
        writing.reading().bonus_of(stored.previous_snapshot)?;
    let bytes = |pointer: &BlockPointer| i128::from(context.io.deflated_size(pointer).get());
    if previous.next_snapshot == id {
        let only_there: i128 = dead
            .iter()
            .filter(|pointer| pointer.birth() > previous.previous_snapshot_txg)
            .map(bytes)
            .sum();
        writing.change(
            stored.previous_snapshot,
            |snapshot: &mut ondisk::dataset::Dataset| {
                snapshot.unique = AllocatedSize::from(sum(snapshot.unique.get(), only_there));
            },
        )?;
    }
    let origin_txg = origin_txg_of(context, stored.directory)?;
    let own: i128 = dead
        .iter()
        .filter(|pointer| pointer.birth() > origin_txg)
        .map(bytes)
        .sum();
    move_between(writing, stored.directory, own, Part::Head, Part::Snapshots)
}

/// The txg of the snapshot that a directory's head is a clone of. Blocks born before are not charged to it.
fn origin_txg_of(context: &TaskContext<'_>, directory: ObjectId) -> Result<Txg, DatasetError> {
    let reading = context.writing().reading();
    let stored: ondisk::dataset_dir::DatasetDirectory = reading.bonus_of(directory)?;
    if stored.origin.is_zero() {
        return Ok(Txg::ZERO);
    }
    let origin: ondisk::dataset::Dataset = reading.bonus_of(stored.origin)?;
    Ok(origin.creation_txg)
}

fn sum(size: u64, change: i128) -> u64 {
    u64::try_from(i128::from(size) + change).expect("space is never counted below zero")
}

/// The ledger of the MOS while one group is stored.
pub struct MosLedger<'a> {
    io: &'a BlockIo,
    phase: WritePhase,
    operation: &'a Operation,
    change: SpaceChange,
    failure: Option<BlockFreeError>,
}

impl MosLedger<'_> {
    /// The next pass begins.
    pub fn begin_pass(&mut self, tx: &SyncTx) {
        self.phase = WritePhase {
            txg: tx.txg(),
            pass: tx.pass(),
        };
    }

    /// Whether all blocks that were given up could be freed.
    ///
    /// # Errors
    /// The first that could not.
    pub fn check(&mut self) -> Result<(), BlockFreeError> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl BlockLedger for MosLedger<'_> {
    fn born(&mut self, pointer: &BlockPointer) {
        add(&mut self.change, space_of(self.io, pointer));
    }

    fn killed(&mut self, pointer: &BlockPointer) {
        add(&mut self.change, space_of(self.io, pointer).negated());
        if let Err(cause) = self.io.free(pointer, self.phase, self.operation) {
            self.failure.get_or_insert(cause);
        }
    }
}

impl Namespace {
    /// The ledger of the MOS, for one group.
    pub fn mos_ledger<'a>(
        &self,
        io: &'a BlockIo,
        tx: &SyncTx,
        operation: &'a Operation,
    ) -> MosLedger<'a> {
        MosLedger {
            io,
            phase: WritePhase {
                txg: tx.txg(),
                pass: tx.pass(),
            },
            operation,
            change: SpaceChange::default(),
            failure: None,
        }
    }

    /// Charges what storing the MOS has changed so far to its directory.
    ///
    /// # Errors
    /// When the directory cannot be read.
    #[doc(alias = "dsl_pool_mos_diduse_space")]
    pub fn charge_mos(
        &self,
        context: &TaskContext<'_>,
        ledger: &mut MosLedger<'_>,
    ) -> Result<(), DatasetError> {
        let change = std::mem::take(&mut ledger.change);
        if change == SpaceChange::default() {
            return Ok(());
        }
        let root = context.view().root()?;
        let Some(directory) = root.child(MOS_DIRECTORY)? else {
            return Err(DatasetError::Inconsistent {
                object: root.id(),
                why: "it has no directory for the pool's own space",
            });
        };
        charge(context.writing(), directory.id(), Part::Head, change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refreservation_pays_first() {
        assert_eq!(felt_by_directory(0, 100, 60), 0);
        assert_eq!(felt_by_directory(60, 100, 60), 20);
        assert_eq!(felt_by_directory(120, 100, -60), -20);
        assert_eq!(felt_by_directory(10, 0, 5), 5);
    }
}
