//! Rewind: finds the newest earlier txg that can be opened, where the newest cannot.
//!
//! # Problem
//! The blocks below an uberblock can be damaged: a device lied about its flushes, or the writer had
//! a bug. Earlier uberblocks in the rings of labels lead to the pool's state some seconds before,
//! as long as its blocks were not overwritten.
//!
//! # Mechanism
//! Space that a txg frees is not reused for two more txgs. So the two txgs before the newest are
//! complete by construction, and only blocks born since then have to be read. Older ones (`-X`) may
//! have lost any block: all of their metadata is read. A txg will do when it can be opened and all
//! its metadata can be read; damaged blocks of files are only counted.
//!
//! Nothing is written here. An import of an earlier txg goes on after the newest that was ever
//! stored, so that new txgs differ from the discarded ones. Intent logs build on the discarded
//! txgs, and are emptied ([`claim_logs`](crate::claim_logs)).

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

/// Number of txgs before the newest whose blocks are not reused.
#[doc(alias = "TXG_DEFER_SIZE")]
const GROUPS_WHOLE: u64 = 2;

/// For a txg that is complete by construction, only births in this many txgs are read.
const GROUPS_CHECKED: u64 = GROUPS_WHOLE + 1;

/// How far back to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// `-F`: to txgs that are complete by construction.
    Safe,
    /// `-X`: as far as there are uberblocks.
    Extreme,
}

/// A txg that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewind {
    /// The txg.
    pub txg: Txg,
    /// When it was stored, in seconds since 1970.
    pub timestamp_s: u64,
    /// Seconds of changes that are discarded; zero for the newest txg.
    pub loss_s: u64,
    /// It is the newest: nothing is discarded.
    pub is_newest: bool,
    /// Unreadable blocks of files, among those that had to be read.
    pub data_errors: u64,
}

/// Finds the newest txg, not after `until`, that can be imported. None when there is none within
/// reach; then with the error of the newest.
///
/// # Errors
/// An error that keeps every txg from being imported: devices, features.
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

/// Whether an earlier txg may be without this error.
pub fn may_be_better_before(error: &ImportError) -> bool {
    matches!(
        error,
        ImportError::Pool(_) | ImportError::Configuration(_) | ImportError::Labels(_)
    )
}

/// All uberblocks of all devices, by txg; of several of one txg, the one that an import would take.
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

/// Opens a txg and checks it. Returns the number of damaged blocks of files; none when metadata is
/// damaged.
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
        rewinds_to_checkpoint: false,
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

/// Reads the metadata born after a txg, and files if they are to be counted.
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

/// The unreadable blocks.
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
        // The walk itself reads indirect blocks.
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
        // An encrypted block that cannot be decrypted is not damaged.
        let is_encrypted = matches!(
            why,
            ObjectError::Read { why, .. } if matches!(**why, ReadError::Encrypted { .. })
        );
        self.metadata += u64::from(!is_encrypted);
        Step::Continue
    }
}
