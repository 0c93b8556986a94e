//! Rewinding: the newest earlier group that can be opened, where the newest cannot.
//!
//! # Problem
//! What an uberblock leads to can be damaged: a device that lied about its flushes, or a bug of the
//! writer. Earlier uberblocks are in the rings of labels, and lead to what the pool was some
//! seconds before, as long as nothing of that was overwritten.
//!
//! # Mechanism
//! Places that a group frees are not used for two more. So the two groups before the newest are
//! whole by construction, and only what was born since then has to be looked at. Older ones (`-X`)
//! may have lost anything: all of their metadata is read. A group will do when it can be opened,
//! and no block of metadata is unreadable; files that are damaged only count.
//!
//! Nothing is written here. An import of an earlier txg goes on behind the newest that was ever
//! stored, so that what is given up cannot be mistaken for what comes. Intent logs build on the
//! groups that are given up, and are emptied ([`claim_logs`](crate::claim_logs)).

use crate::error::ImportError;
use crate::import::ImportRequest;
use crate::pool::{Mode, Pool};
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_block::{BlockScope, ReadError};
use tarn_cache::Cache;
use tarn_host::{Host, OpenMode};
use tarn_object::{MOS_ID, ObjectError, Step, Visit, Visitor, WalkOptions, walk_objset};

use tarn_ondisk::block_pointer::PointerKind;
use tarn_ondisk::dataset::Dataset;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;
use tarn_vdev::{ExpectedLabels, Need, OpenOptions, VdevTree};

/// So many groups before the newest nothing is used again of what was freed.
#[doc(alias = "TXG_DEFER_SIZE")]
const GROUPS_WHOLE: u64 = 2;

/// What was born in so many groups is looked at, where the group is whole by construction.
const GROUPS_CHECKED: u64 = GROUPS_WHOLE + 1;

/// How far back to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// As far as groups are whole by construction: `-F`.
    Safe,
    /// As far as there are uberblocks: `-X`.
    Extreme,
}

/// A group that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewind {
    /// The group.
    pub txg: Txg,
    /// When it was stored, in seconds since 1970.
    pub timestamp_s: u64,
    /// What is given up, in seconds; zero for the newest group.
    pub loss_s: u64,
    /// It is the newest: nothing is given up.
    pub is_newest: bool,
    /// Blocks of files that cannot be read. Only those that had to be looked at.
    pub data_errors: u64,
}

/// Finds the newest group, not after `until`, that can be imported. None when there is none within
/// reach, and the error of the newest.
///
/// # Errors
/// What keeps every group from being imported: devices, features.
#[doc(alias("spa_load_best", "spa_load_verify"))]
pub fn find_rewind(
    host: &Host,
    cache: &Arc<Cache>,
    request: &ImportRequest<'_>,
    reach: Reach,
    operation: &Operation,
) -> Result<Option<Rewind>, ImportError> {
    let all = uberblocks(host, request)?;
    let Some(newest) = all.last_key_value().map(|(_, uberblock)| *uberblock) else {
        return Err(ImportError::NoUberblock);
    };
    let first_safe = Txg::from(newest.txg.get().saturating_sub(GROUPS_WHOLE));
    assert!(first_safe <= newest.txg, "the newest group is safe");
    let within =
        |txg: &Txg| *txg <= request.until && (reach == Reach::Extreme || *txg >= first_safe);
    for (txg, uberblock) in all.iter().rev().filter(|(txg, _)| within(txg)) {
        let is_whole = *txg >= first_safe;
        match try_group(host, cache, request, *txg, is_whole, operation) {
            Ok(Some(data_errors)) => {
                return Ok(Some(Rewind {
                    txg: *txg,
                    timestamp_s: uberblock.timestamp_s,
                    loss_s: newest.timestamp_s.saturating_sub(uberblock.timestamp_s),
                    is_newest: *txg == newest.txg,
                    data_errors,
                }));
            }
            Ok(None) => {}
            Err(error) if may_be_better_before(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether an earlier group may be free of what is wrong.
pub fn may_be_better_before(error: &ImportError) -> bool {
    matches!(
        error,
        ImportError::Pool(_) | ImportError::Configuration(_) | ImportError::Labels(_)
    )
}

/// All uberblocks of all devices, by group; of one group, the one that is believed.
fn uberblocks(
    host: &Host,
    request: &ImportRequest<'_>,
) -> Result<BTreeMap<Txg, Uberblock>, ImportError> {
    let options = OpenOptions {
        mode: OpenMode::ReadOnly,
        need: Need::Nothing,
        labels: ExpectedLabels::OfPool(request.candidate.facts.guid),
    };
    let tree = VdevTree::open(host, &request.candidate.root, &options)?;
    let mut all: BTreeMap<Txg, Uberblock> = BTreeMap::new();
    for found in tree.uberblocks() {
        let place = all.entry(found.txg).or_insert(found);
        if found.compare(place).is_gt() {
            *place = found;
        }
    }
    tree.close();
    Ok(all)
}

/// Opens a group and looks at it. Gives how many blocks of files are damaged; none when metadata
/// is.
fn try_group(
    host: &Host,
    cache: &Arc<Cache>,
    request: &ImportRequest<'_>,
    txg: Txg,
    is_whole: bool,
    operation: &Operation,
) -> Result<Option<u64>, ImportError> {
    let trial = ImportRequest {
        mode: Mode::ReadOnly,
        until: txg,
        owner: request.owner.clone(),
        ..*request
    };
    let pool = Pool::import(host, cache, &trial, operation)?;
    let born_after = match is_whole {
        true => Txg::from(txg.get().saturating_sub(GROUPS_CHECKED)),
        false => Txg::ZERO,
    };
    let checked = check(&pool, born_after, is_whole, operation);
    pool.cache().forget_all();
    pool.vdevs().close();
    let damage = checked?;
    Ok((damage.metadata == 0).then_some(damage.data))
}

/// Reads the metadata that was born after a group, and files if they are to be counted.
fn check<'a>(
    pool: &'a Pool,
    born_after: Txg,
    reads_data: bool,
    operation: &'a Operation,
) -> Result<Damage<'a>, ImportError> {
    let mut damage = Damage {
        pool,
        operation,
        reads_data,
        metadata: 0,
        data: 0,
    };
    let walk = |set: ObjectId, root: &_, born_after: Txg, damage: &mut Damage<'_>| {
        let options = WalkOptions {
            born_after,
            ..WalkOptions::default()
        };
        walk_objset(pool.cache(), set, root, options, damage, operation);
    };
    walk(MOS_ID, &pool.uberblock().root, born_after, &mut damage);
    let (mos, directory) = (pool.mos(), pool.directory(operation));
    let mut last = ObjectId::ZERO;
    loop {
        let Ok(next) = mos.next_object(last, operation) else {
            damage.metadata += 1;
            return Ok(damage);
        };
        let Some(id) = next else { return Ok(damage) };
        last = id;
        let Ok(object) = mos.object(id, operation) else {
            damage.metadata += 1;
            continue;
        };
        if object.info().bonus_type == ObjectType::DslDataset {
            let dataset: Dataset = directory.bonus(id)?;
            let born_after = born_after.max(dataset.previous_snapshot_txg);
            walk(id, &dataset.root, born_after, &mut damage);
        }
    }
}

/// What was found to be unreadable.
struct Damage<'a> {
    pool: &'a Pool,
    operation: &'a Operation,
    reads_data: bool,
    metadata: u64,
    data: u64,
}

impl Visitor for Damage<'_> {
    fn enter(&mut self, visit: &Visit<'_>) -> Step {
        let pointer = visit.pointer;
        // What leads further is read by the walk itself.
        if visit.mark.level != 0 || pointer.kind() != PointerKind::Stored {
            return Step::Continue;
        }
        let is_metadata = pointer.is_metadata();
        if (is_metadata || self.reads_data) && {
            let scope = BlockScope::of_visit(visit.mark, pointer);
            let io = self.pool.io();
            io.read_raw(pointer, scope, self.operation).is_err()
        } {
            match is_metadata {
                true => self.metadata += 1,
                false => self.data += 1,
            }
        }
        Step::Continue
    }

    fn unreadable(&mut self, _: &Visit<'_>, why: &ObjectError) -> Step {
        // What we cannot decrypt is not damaged for that.
        let is_encrypted = matches!(
            why,
            ObjectError::Read { why, .. } if matches!(**why, ReadError::Encrypted { .. })
        );
        self.metadata += u64::from(!is_encrypted);
        Step::Continue
    }
}
