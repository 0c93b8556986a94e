//! Ledgers: account for the blocks born and killed while an object set is stored.
//!
//! # Mechanism
//! While a txg is stored, each dataset's ledger gets every block born and killed. A killed block
//! born after the newest snapshot has no owner any more and is freed. An older one is still in that
//! snapshot, and goes to the deadlist. The sums are gathered here, and charged once when the set is
//! stored: to the dataset's `referenced` and `unique`, and to its directory and all above it.
//!
//! The MOS has no snapshots, and cannot be changed while it is stored. Its sums are charged to the
//! directory `$MOS` in the next pass, until they are zero.
//!
//! # Invariants
//! - `referenced` is the sum of the blocks that the head's tree leads to; `unique` of those born
//!   after its newest snapshot.

use crate::counting_bookmarks::{CountingBookmark, counting_bookmarks, store_bookmarks};
use crate::deadlist;
use crate::error::DatasetError;
use crate::feature_use;
use crate::livelist;
use crate::namespace::Namespace;
use crate::properties::inherit::number_in;
use crate::space_charge::{Part, SpaceChange, charge, charge_moving, move_between};
use crate::task::TaskContext;
use std::collections::BTreeSet;
use tarn_block::{BlockFreeError, BlockIo, WritePhase};
use tarn_object::{BlockLedger, ObjectSet, SyncTx};
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::{AllocatedSize, LogicalSize, ObjectId, PhysicalSize, Txg};
use tarn_probe::Operation;

/// The directory that the MOS is charged to.
const MOS_DIRECTORY: &str = "$MOS";

/// How many dead blocks are gathered before they go to the deadlist: a file of any size can die at
/// once.
const BURIED_TOGETHER: usize = 16_384;

/// The ledger of a head while one group is stored.
pub(crate) struct HeadLedger<'a> {
    context: &'a TaskContext<'a>,
    phase: WritePhase,
    id: ObjectId,
    /// The head as it was before.
    before: ondisk::dataset::Dataset,
    /// What the set has more than before.
    referenced: SpaceChange,
    /// What is in no snapshot, more than before.
    unique: SpaceChange,
    burials: Burials,
    livelist: livelist::Recorder,
    /// Bookmarks that count what was freed since they were made.
    bookmarks: Vec<CountingBookmark>,
    /// Features that blocks use.
    features: BTreeSet<Feature>,
    failure: Option<DatasetError>,
}

impl<'a> HeadLedger<'a> {
    /// For a head, in this pass.
    pub(crate) fn open(context: &'a TaskContext<'a>, id: ObjectId) -> Result<Self, DatasetError> {
        let before: ondisk::dataset::Dataset = context.writing().reading().bonus_of(id)?;
        Ok(HeadLedger {
            context,
            phase: WritePhase {
                txg: context.tx.txg(),
                pass: context.tx.pass(),
            },
            id,
            before,
            referenced: SpaceChange::default(),
            unique: SpaceChange::default(),
            burials: Burials::default(),
            livelist: livelist::Recorder::open(context, before.directory)?,
            bookmarks: counting_bookmarks(context, id, before.previous_snapshot_txg)?,
            features: BTreeSet::new(),
            failure: None,
        })
    }

    /// The set is stored: charges everything.
    pub(crate) fn close(
        mut self,
        set: &ObjectSet,
        root: &BlockPointer,
    ) -> Result<(), DatasetError> {
        self.bury();
        self.failure.take().map_or(Ok(()), Err)?;
        assert!(
            self.burials.dead.is_empty(),
            "all blocks that died are on the deadlist"
        );
        let (context, writing, before) = (self.context, self.context.writing(), &self.before);
        let after = self.after(root)?;
        writing.change(self.id, |stored: &mut ondisk::dataset::Dataset| {
            *stored = after
        })?;
        let reserved = reservation_of(context, before.directory)?;
        let change = SpaceChange {
            used: felt_by_directory(
                before.unique.get(),
                after.unique.get(),
                reserved,
                self.unique,
            ),
            ..self.unique
        };
        charge_moving(
            writing,
            before.directory,
            change,
            self.unique.used,
            Part::RefReservation,
            Part::Head,
        )?;
        self.burials.charge(context, before)?;
        store_bookmarks(context, self.id, &self.bookmarks)?;
        if set.has_large_dnodes() {
            self.features.insert(Feature::LargeDnode);
        }
        if set.has_long_names() && context.features.is_enabled(Feature::Longname) {
            self.features.insert(Feature::Longname);
        }
        for feature in std::mem::take(&mut self.features) {
            feature_use::activate(context, self.id, feature)?;
        }
        self.livelist.close(context, after.referenced)
    }

    /// The head as it is now.
    fn after(&self, root: &BlockPointer) -> Result<ondisk::dataset::Dataset, DatasetError> {
        let (before, referenced) = (&self.before, self.referenced);
        let unique = i128::from(before.unique.get()) + self.unique.used;
        let is_accurate = before
            .flags
            .contains(ondisk::dataset::DatasetFlags::UNIQUE_ACCURATE);
        let unique = match u64::try_from(unique) {
            Ok(unique) => unique,
            // Old pools did not always know it.
            Err(_) if !is_accurate => 0,
            Err(_) => return Err(below_zero(self.id)),
        };
        let sum = |size: u64, change: i128| {
            u64::try_from(i128::from(size) + change).map_err(|_| below_zero(self.id))
        };
        Ok(ondisk::dataset::Dataset {
            root: *root,
            referenced: AllocatedSize::from(sum(before.referenced.get(), referenced.used)?),
            compressed: PhysicalSize::from(sum(before.compressed.get(), referenced.compressed)?),
            uncompressed: LogicalSize::from(sum(
                before.uncompressed.get(),
                referenced.uncompressed,
            )?),
            unique: AllocatedSize::from(unique),
            ..*before
        })
    }

    /// A block of the head's own goes to its livelist, if it has one.
    fn note(&mut self, pointer: &BlockPointer, is_freed: bool) {
        let noted = self.livelist.note(self.context, pointer, is_freed);
        if let Err(cause) = noted {
            self.failure.get_or_insert(cause);
        }
    }

    /// What has died so far goes to the deadlist.
    fn bury(&mut self) {
        let buried = self.burials.bury(self.context, self.id, &self.before);
        if let Err(cause) = buried {
            self.failure.get_or_insert(cause);
        }
    }
}

impl BlockLedger for HeadLedger<'_> {
    fn born(&mut self, pointer: &BlockPointer) {
        debug_assert!(
            pointer.birth() <= self.phase.txg,
            "no block is born after the group that is stored"
        );
        let space = SpaceChange::of_block(self.context.io, pointer);
        self.referenced.add(space);
        self.unique.add(space);
        if pointer.logical_size().get() > feature_use::OLD_BLOCK_BYTES_MAX {
            self.features.insert(Feature::LargeBlocks);
        }
        let checksum = u64::from(pointer.checksum_kind().code());
        self.features.extend(feature_use::of_checksum(checksum));
        let compression = u64::from(pointer.compression().code());
        self.features
            .extend(feature_use::of_compression(compression));
        self.note(pointer, false);
    }

    fn killed(&mut self, pointer: &BlockPointer) {
        let context = self.context;
        let space = SpaceChange::of_block(context.io, pointer);
        for bookmark in &mut self.bookmarks {
            bookmark.count(pointer, space);
        }
        self.referenced.add(space.negated());
        if pointer.birth() <= self.before.previous_snapshot_txg {
            self.burials.dead.push(*pointer);
            if self.burials.dead.len() >= BURIED_TOGETHER {
                self.bury();
            }
            assert!(
                self.burials.dead.len() < BURIED_TOGETHER || self.failure.is_some(),
                "dead blocks are stored as soon as there are enough"
            );
            return;
        }
        self.unique.add(space.negated());
        self.note(pointer, true);
        if let Err(cause) = context.io.free(pointer, self.phase, context.operation) {
            self.failure.get_or_insert(DatasetError::Free { cause });
        }
    }
}

/// By how much a directory's `used` changes with its head's unique bytes: as far as a
/// refreservation has not paid.
fn felt_by_directory(before: u64, after: u64, reserved: u64, change: SpaceChange) -> i128 {
    if reserved == 0 {
        return change.used;
    }
    let felt = i128::from(after.max(reserved)) - i128::from(before.max(reserved));
    assert!(
        felt.unsigned_abs() <= u128::from(after.abs_diff(before)),
        "a reservation takes from a change"
    );
    felt
}

/// The refreservation of a directory's head.
fn reservation_of(context: &TaskContext<'_>, directory: ObjectId) -> Result<u64, DatasetError> {
    let reading = context.writing().reading();
    let stored: ondisk::dataset_dir::DatasetDirectory = reading.bonus_of(directory)?;
    Ok(number_in(reading, stored.properties, "refreservation")?.unwrap_or(0))
}

/// Blocks that only snapshots have: they go to the deadlist.
#[derive(Default)]
struct Burials {
    /// Those that are not there yet.
    dead: Vec<BlockPointer>,
    graves: Option<Graves>,
    /// What only the newest snapshot has now.
    only_in_newest: i128,
    /// What was charged to the directory, and so is still.
    charged: i128,
}

/// Which blocks count for which dataset.
#[derive(Clone, Copy)]
struct Graves {
    /// What was born after this is in the newest snapshot only; none if that has clones beside this
    /// head, or is not of this head at all.
    newest_since: Option<Txg>,
    /// What was born before is the origin's.
    origin: Txg,
}

impl Burials {
    #[doc(alias = "dsl_dataset_block_kill")]
    fn bury(
        &mut self,
        context: &TaskContext<'_>,
        id: ObjectId,
        head: &ondisk::dataset::Dataset,
    ) -> Result<(), DatasetError> {
        if self.dead.is_empty() {
            return Ok(());
        }
        let graves = match self.graves {
            Some(graves) => graves,
            None => *self.graves.insert(Graves::of(context, id, head)?),
        };
        let dead = std::mem::take(&mut self.dead);
        deadlist::insert(context, head.deadlist, &dead)?;
        for pointer in &dead {
            let bytes = i128::from(context.io.deflated_size(pointer).get());
            if graves
                .newest_since
                .is_some_and(|since| pointer.birth() > since)
            {
                self.only_in_newest += bytes;
            }
            if pointer.birth() > graves.origin {
                self.charged += bytes;
            }
        }
        Ok(())
    }

    /// Space moves from the head to its snapshots.
    fn charge(
        &self,
        context: &TaskContext<'_>,
        head: &ondisk::dataset::Dataset,
    ) -> Result<(), DatasetError> {
        let writing = context.writing();
        assert!(
            self.only_in_newest >= 0 && self.charged >= 0,
            "dead blocks have space"
        );
        assert!(
            self.dead.is_empty(),
            "only what is on the deadlist is charged to snapshots"
        );
        if self.only_in_newest > 0 {
            let newest = head.previous_snapshot;
            let only_there = u64::try_from(self.only_in_newest).map_err(|_| below_zero(newest))?;
            writing.change(newest, |snapshot: &mut ondisk::dataset::Dataset| {
                let more = AllocatedSize::from(only_there);
                snapshot.unique = snapshot.unique.saturating_add(more);
            })?;
        }
        move_between(
            writing,
            head.directory,
            self.charged,
            Part::Head,
            Part::Snapshots,
        )
    }
}

impl Graves {
    fn of(
        context: &TaskContext<'_>,
        id: ObjectId,
        head: &ondisk::dataset::Dataset,
    ) -> Result<Graves, DatasetError> {
        let reading = context.writing().reading();
        let newest: ondisk::dataset::Dataset = reading.bonus_of(head.previous_snapshot)?;
        let directory: ondisk::dataset_dir::DatasetDirectory = reading.bonus_of(head.directory)?;
        let origin = match directory.origin {
            ObjectId::ZERO => Txg::ZERO,
            origin => {
                let origin: ondisk::dataset::Dataset = reading.bonus_of(origin)?;
                origin.creation_txg
            }
        };
        Ok(Graves {
            newest_since: (newest.next_snapshot == id).then_some(newest.previous_snapshot_txg),
            origin,
        })
    }
}

fn below_zero(object: ObjectId) -> DatasetError {
    DatasetError::Inconsistent {
        object,
        why: "it counts less space than it has",
    }
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
        assert_eq!(tx.txg(), self.phase.txg, "a ledger is of one group");
        assert!(
            tx.pass() >= self.phase.pass,
            "the passes of a group follow each other"
        );
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
        self.change.add(SpaceChange::of_block(self.io, pointer));
    }

    fn killed(&mut self, pointer: &BlockPointer) {
        self.change
            .add(SpaceChange::of_block(self.io, pointer).negated());
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
        let felt = |before, after, reserved| {
            let change = SpaceChange::of_used(i128::from(after) - i128::from(before));
            felt_by_directory(before, after, reserved, change)
        };
        assert_eq!(felt(0, 60, 100), 0);
        assert_eq!(felt(60, 120, 100), 20);
        assert_eq!(felt(120, 60, 100), -20);
        assert_eq!(felt(10, 15, 0), 5);
    }
}
