//! `zpool split`: one device of each mirror becomes another pool with the same contents.
//!
//! # Mechanism
//! One txg of the old pool removes the devices, as `zpool detach` does. They have everything up to
//! the txg before. Their labels then get the guid and name of the new pool, with a tree in which
//! each device is a top-level vdev, and the uberblock of that earlier txg with the new sum of
//! guids. The new pool is opened there. Its first txg stores its tree in its own MOS, and frees the
//! objects of vdevs that it does not have.
//!
//! Log vdevs are emptied before, and are holes in the new pool.
//!
//! # After a crash
//! The old pool is found with its devices, or without them. In the second case the new pool is
//! found when all its labels were written, and else its devices belong to no pool; the old pool
//! has all blocks on its other devices.

use crate::close::Leaving;
use crate::create::new_guid;
use crate::error::{ImportError, PoolError, VdevChangeError};
use crate::import::ImportRequest;
use crate::log_holds::LogHold;
use crate::pool::{Mode, Pool, PoolOwner};
use crate::sync_scope::SyncScope;
use crate::vdev_objects;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use tarn_cache::Cache;
use tarn_dataset::task::InternalEvent;
use tarn_host::Host;
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::{Guid, Txg};
use tarn_probe::Operation;
use tarn_vdev::import_search::{DevicePaths, pools, search};
use tarn_vdev::{
    Change, Departed, LabelUpdate, Need, Needed, OpenOptions, PoolFacts, PoolState, VdevConfig,
    VdevKind, VdevTree,
};

/// Why a vdev cannot be split.
const NOT_SPLITTABLE: VdevChangeError = VdevChangeError::WrongKind {
    why: "Source pool must be composed only of mirrors\n",
};

/// A pool that was split off, and is not open.
#[derive(Debug)]
pub struct SplitOff {
    facts: PoolFacts,
    root: VdevConfig,
    uberblock: Uberblock,
}

impl Pool {
    /// The device of each mirror that leaves by default or as chosen, in the order of the vdevs;
    /// none for log vdevs and holes.
    ///
    /// # Errors
    /// A data vdev is no mirror of devices, or a chosen device is not found, or two are of the same
    /// mirror.
    #[doc(alias = "zpool_vdev_split")]
    pub fn plan_split(&self, chosen: &[Guid]) -> Result<Vec<Option<Guid>>, VdevChangeError> {
        let root = self.vdevs().config();
        let mut found = 0;
        let plan = root.children.iter().map(|top| {
            let is_log = top.top_level.as_ref().is_some_and(|top| top.is_log);
            if is_log || matches!(top.kind, VdevKind::Hole | VdevKind::Indirect) {
                return Ok(None);
            }
            if top.kind != VdevKind::Mirror {
                return Err(NOT_SPLITTABLE);
            }
            let is_chosen = |child: &&VdevConfig| chosen.contains(&child.guid);
            let by_choice = top.children.iter().find(is_chosen);
            found += usize::from(by_choice.is_some());
            let child = by_choice.or(top.children.last());
            Ok(child.map(|child| child.guid))
        });
        let plan = plan.collect::<Result<Vec<_>, _>>()?;
        match found == chosen.len() {
            true => Ok(plan),
            false => Err(VdevChangeError::WrongKind {
                why: "Device list must include at most one disk from each mirror",
            }),
        }
    }

    /// Splits the devices of a plan off, and labels them as another pool.
    ///
    /// # Errors
    /// A device is not whole, or needed, or the pool stores nothing: nothing has changed. The
    /// devices could not be labelled: they belong to no pool.
    #[doc(alias = "spa_vdev_split_mirror")]
    pub fn split(
        &self,
        name: &str,
        plan: &[Option<Guid>],
        operation: &Operation,
    ) -> Result<SplitOff, VdevChangeError> {
        self.require_writable()?;
        self.refuse_for_checkpoint()?;
        let guid = new_guid(self.host());
        let root = self.vdevs().config();
        split_tree(&root, plan, guid).ok_or(NOT_SPLITTABLE)?;
        for leaf in plan.iter().flatten() {
            let is_whole = self.vdevs().leaf(*leaf).is_some_and(|leaf| leaf.is_whole());
            if !is_whole || self.vdevs().is_required(*leaf) {
                return Err(VdevChangeError::NoReplicas);
            }
        }
        let tops = self.vdevs().top_levels();
        let logs = tops.iter().filter(|top| top.is_log);
        let holds: Vec<LogHold> = logs
            .map(|top| self.empty_log(top.id, operation))
            .collect::<Result<_, _>>()?;
        // What is written to free space must not reach a device that the new pool has.
        let devices: Vec<Guid> = plan.iter().flatten().copied().collect();
        self.rest_works_of(&devices, operation)?;
        let (leaving, name) = (plan.to_vec(), name.to_string());
        let split = self.run_in_sync(operation, move |scope| {
            // They end when this is stored.
            let _holds = holds;
            Ok(Ok(take_away(scope, &leaving, guid, &name)?))
        });
        let pool = self.this.get().and_then(Weak::upgrade);
        if let (Ok(None) | Err(_), Some(pool)) = (&split, pool) {
            pool.resume_works();
        }
        let split: Option<(Vec<Departed>, SplitOff)> = split?;
        let (departed, split) = split.ok_or(VdevChangeError::NoReplicas)?;
        departed.into_iter().for_each(Departed::release);
        split.label(self.host(), operation)?;
        Ok(split)
    }
}

/// The tree of the new pool: each device as a top-level vdev with the space maps of its mirror.
fn split_tree(root: &VdevConfig, plan: &[Option<Guid>], guid: Guid) -> Option<VdevConfig> {
    let mut split = VdevConfig::new(VdevKind::Root, guid);
    split.other.clone_from(&root.other);
    for (top, leaf) in root.children.iter().zip(plan) {
        split.children.push(match leaf {
            None => tarn_vdev::reshape::hole(top.id.into()),
            Some(leaf) => top.split_off(*leaf)?,
        });
    }
    Some(split)
}

/// Removes the devices in the syncing txg. None and no change if one of them is needed.
fn take_away(
    scope: &SyncScope<'_>,
    plan: &[Option<Guid>],
    guid: Guid,
    name: &str,
) -> Result<Option<(Vec<Departed>, SplitOff)>, PoolError> {
    let pool = scope.pool;
    let root = pool.vdevs().config();
    let Some(tree) = split_tree(&root, plan, guid) else {
        return Ok(None);
    };
    let whole = |leaf: &Guid| pool.vdevs().leaf(*leaf).is_some_and(|leaf| leaf.is_whole());
    let may_leave = |leaf: &Guid| whole(leaf) && !pool.vdevs().is_required(*leaf);
    if !plan.iter().flatten().all(may_leave) {
        return Ok(None);
    }
    assert_eq!(
        tree.children.len(),
        root.children.len(),
        "blocks keep the indices of their vdevs"
    );
    let mut departed = Vec::new();
    for (top, leaf) in root.children.iter().zip(plan) {
        let Some(change) = leaf.and_then(|leaf| top.without(leaf)) else {
            continue;
        };
        let reshaped = Change {
            config: change.config,
            joining: None,
            heir: change.heir,
        };
        let Some(device) = pool.vdevs().reshape_if(reshaped, Needed::AllBlocks) else {
            // A sibling failed since the check. The devices before it are just detached.
            departed
                .into_iter()
                .for_each(|device| pool.depart(device, None));
            return Ok(None);
        };
        departed.push(device);
        vdev_objects::free(scope, &change.leaf)?;
        let path = change.leaf.path.as_ref().map(ToString::to_string);
        scope.context.record(InternalEvent {
            name: "detach",
            dataset: None,
            text: format!("vdev={}", path.as_deref().unwrap_or("none")),
        });
    }
    scope.context.record(InternalEvent {
        name: "split",
        dataset: None,
        text: format!("new pool {name} from pool {}", pool.name()),
    });
    let facts = PoolFacts {
        name: name.into(),
        state: PoolState::Active,
        guid,
        ..pool.facts()
    };
    let split = SplitOff {
        facts,
        root: tree,
        uberblock: pool.uberblock(),
    };
    Ok(Some((departed, split)))
}

impl SplitOff {
    /// The guid of the new pool.
    pub fn guid(&self) -> Guid {
        self.facts.guid
    }

    /// Writes the labels of the new pool, with the uberblock that its devices have.
    fn label(&self, host: &Host, operation: &Operation) -> Result<(), VdevChangeError> {
        let options = OpenOptions::new_pool();
        let vdevs = VdevTree::open(host, &self.root, &options).map_err(ImportError::from)?;
        assert_eq!(self.root.guid, self.facts.guid, "the root is the pool");
        let uberblock = Uberblock {
            guid_sum: self.root.guid_sum(),
            ..self.uberblock
        };
        let facts = PoolFacts {
            txg: uberblock.txg,
            ..self.facts.clone()
        };
        let compose =
            |root: &VdevConfig, top: usize, leaf: &VdevConfig| facts.label_of(root, top, leaf);
        let update = LabelUpdate {
            uberblock: &uberblock,
            is_multihost: false,
            configuration: Some(&compose),
        };
        let labelled = vdevs.write_labels(update, operation);
        vdevs.close();
        Ok(labelled.map_err(PoolError::from)?)
    }

    /// Opens the new pool, stores its own tree, and closes it as exported.
    ///
    /// # Errors
    /// It cannot be opened or written. Its labels stay.
    pub fn store(
        self,
        host: &Host,
        cache: &Arc<Cache>,
        from: &str,
        owner: PoolOwner,
        operation: &Operation,
    ) -> Result<(), VdevChangeError> {
        let leaves = self.root.leaves().into_iter();
        let paths = leaves.filter_map(|leaf| Some(PathBuf::from(leaf.path.as_ref()?.as_str()?)));
        let found = search(host, &paths.collect::<Vec<_>>());
        let (candidates, _) = pools(&found);
        let candidate = candidates
            .iter()
            .find(|candidate| candidate.facts.guid == self.facts.guid);
        let request = ImportRequest {
            candidate: candidate.ok_or(ImportError::NoUberblock)?,
            paths: &DevicePaths::of(&found),
            name: None,
            mode: Mode::ReadWrite,
            need: Need::All,
            until: Txg::MAX,
            rewinds_to_checkpoint: false,
            discards_logs: false,
            goes_on: &|| true,
            owner,
            split: Some(&self.root),
        };
        let pool = Pool::import(host, cache, &request, operation)?;
        let from = from.to_string();
        let recorded = pool.run_in_sync(operation, move |scope| {
            scope.context.record(InternalEvent {
                name: "split",
                dataset: None,
                text: format!("from pool {from}"),
            });
            Ok(Ok(()))
        });
        let closed = pool.close(Leaving::Exported, operation);
        Ok(recorded.and(closed)?)
    }
}
