//! A top-level vdev: its layout, its leaves, and its health, which follows from theirs.
//!
//! # Mechanism
//! Opening reads the labels of every device. A device whose labels are of another pool, or of
//! another vdev, is not used. Uberblocks show which devices missed writes: when the newest of a
//! device is older than the second newest of a sibling, its dirty time log gets all txgs since.
//!
//! # Invariants
//! - A leaf is taken out of use only while the other leaves have all its blocks.

use crate::config::{VdevConfig, VdevKind};
use crate::dtl::Dtl;
use crate::error::LabelError;
use crate::health::{ErrorCounters, Reason, Standing, VdevHealth, VdevState, vdev_name};
use crate::labels;
use crate::layout::{self, Layout, NoBlocks};
use crate::leaf::Leaf;
use crate::sizes;
use crate::tree::{AllocationBias, ExpectedLabels, OpenOptions, TopLevel, parent_health};
use std::collections::BTreeSet;
use std::sync::Arc;
use tarn_host::Host;
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg, VdevId};

/// A top-level vdev.
#[derive(Debug)]
pub(crate) struct TopVdev {
    pub id: VdevId,
    pub guid: Guid,
    pub kind: VdevKind,
    pub name: String,
    pub ashift: u32,
    pub asize: AllocatedSize,
    pub is_log: bool,
    /// How blocks lie on the leaves, or why none do.
    pub layout: Result<Box<dyn Layout>, NoBlocks>,
    pub leaves: Vec<Arc<Leaf>>,
    pub errors: ErrorCounters,
}

impl TopVdev {
    /// A top-level vdev of this configuration. Leaves among `known`, by guid, stay as they are.
    pub(crate) fn new(config: &VdevConfig, known: &[Arc<Leaf>]) -> TopVdev {
        let facts = config.top_level.as_ref();
        let ashift = facts.map_or(0, |facts| facts.ashift);
        let sector_bytes = facts.map_or(u64::MAX, |facts| 1 << facts.ashift);
        let mut leaves: Vec<Arc<Leaf>> = Vec::new();
        let mut add_leaf = |config: &VdevConfig| {
            let known = known.iter().find(|leaf| leaf.guid == config.guid).cloned();
            leaves.push(known.unwrap_or_else(|| Arc::new(Leaf::new(config, sector_bytes))));
            leaves.len() - 1
        };
        let layout = layout::of_config(config, ashift, &mut add_leaf);
        if let Ok(layout) = &layout {
            assert_eq!(
                layout.children().iter().map(Vec::len).sum::<usize>(),
                leaves.len(),
                "each leaf is a copy of one child of the layout"
            );
        }
        TopVdev {
            id: VdevId::from(config.id),
            guid: config.guid,
            kind: config.kind,
            name: vdev_name(config.kind, config.id, config.guid, config.path.as_ref()),
            ashift,
            asize: facts.map_or(AllocatedSize::ZERO, |facts| facts.asize),
            is_log: facts.is_some_and(|facts| facts.is_log),
            layout,
            leaves,
            errors: ErrorCounters::default(),
        }
    }

    pub(crate) fn open(&self, host: &Host, config: &VdevConfig, options: &OpenOptions) {
        let configs = config.leaves();
        let find = |leaf: &Leaf| configs.iter().find(|config| config.guid == leaf.guid);
        for leaf in &self.leaves {
            if let Some(config) = find(leaf) {
                leaf.open(host, config, options.mode);
            }
        }
        if let ExpectedLabels::OfPool(pool) = options.labels {
            self.check_labels(pool);
            self.check_sizes();
            self.find_missed_uberblocks();
            for leaf in &self.leaves {
                let unsaved = find(leaf).and_then(|config| config.unsaved_dtl());
                if let Some(first) = unsaved {
                    leaf.add_to_dtl(first..=Txg::MAX);
                }
            }
        }
    }

    /// Makes devices unavailable whose labels are of another pool or another vdev.
    pub(crate) fn check_labels(&self, pool: Guid) {
        for leaf in &self.leaves {
            self.check_label(leaf, pool);
        }
    }

    /// Makes a device unavailable whose label is of another pool or another vdev.
    #[doc(alias = "vdev_validate")]
    pub(crate) fn check_label(&self, leaf: &Leaf, pool: Guid) {
        let Some(window) = leaf.window() else {
            return;
        };
        let found = labels::read_labels(&window);
        let reason = match labels::best_label(&found) {
            None if found.iter().all(is_device_error) => Some(Reason::OpenFailed),
            None => Some(Reason::BadLabel),
            Some(label) => {
                // Power may have failed while the last device of a mirror got the mirror's guid:
                // then two of its labels still have its old one.
                let mut all = found.iter().flatten();
                let is_it = all.any(|label| label.guid() == Some(leaf.guid))
                    // A mirror of which one device is left takes over the guid of the mirror.
                    || (self.leaves.len() == 1 && label.top_guid() == Some(self.guid));
                // Power may have failed while the pool got another guid: then some labels of the
                // device have the old one.
                let mut all = found.iter().flatten();
                let is_of_pool = all.any(|label| label.pool_guid() == Some(pool));
                let is_ours = is_of_pool && is_it;
                (!is_ours).then_some(Reason::CorruptData)
            }
        };
        if let Some(reason) = reason {
            leaf.set_standing(Standing::because(VdevState::Unavailable, reason));
        }
    }

    /// Makes devices unavailable that have shrunk below what the vdev needs.
    pub(crate) fn check_sizes(&self) {
        for leaf in &self.leaves {
            self.check_size(leaf);
        }
    }

    /// Makes a device unavailable that is smaller than the vdev needs.
    pub(crate) fn check_size(&self, leaf: &Leaf) {
        let Ok(layout) = &self.layout else {
            return;
        };
        let count = widen(layout.children().len());
        let needed = sizes::child_size_min(self.kind, self.asize, count);
        if leaf.data_size().is_some_and(|size| size < needed) {
            leaf.set_standing(Standing::because(VdevState::Unavailable, Reason::BadLabel));
        }
    }

    /// Adds to the dirty time log of a device without an uberblock that a sibling has all births
    /// after its own newest.
    fn find_missed_uberblocks(&self) {
        let newest_two = |leaf: &Arc<Leaf>| {
            let window = leaf.window()?;
            let found = labels::read_uberblocks(&window, self.ashift);
            let txgs: BTreeSet<Txg> = found.iter().map(|found| found.uberblock.txg).collect();
            let mut newest = txgs.into_iter().rev();
            Some((newest.next(), newest.next()))
        };
        let found: Vec<_> = self.leaves.iter().map(newest_two).collect();
        for (leaf, found) in self.leaves.iter().zip(&found) {
            if let Some((Some(newest), _)) = found {
                leaf.note_found_uberblock(*newest);
            }
        }
        let best = found.iter().flatten().max().copied();
        let Some((_, Some(second))) = best else {
            return;
        };
        for (leaf, found) in self.leaves.iter().zip(found) {
            if let Some((newest, _)) = found
                && newest.is_none_or(|newest| newest < second)
            {
                let newest = newest.unwrap_or(Txg::ZERO);
                leaf.add_to_dtl(newest.next()..=Txg::MAX);
            }
        }
    }

    pub(crate) fn sector_bytes(&self) -> u64 {
        1 << self.ashift
    }

    pub(crate) fn allocated_size(&self, physical_bytes: u64) -> AllocatedSize {
        self.find_allocated_size(physical_bytes)
            .expect("nothing is placed on a vdev that holds nothing")
    }

    pub(crate) fn find_allocated_size(&self, physical_bytes: u64) -> Option<AllocatedSize> {
        let layout = self.layout.as_ref().ok()?;
        Some(layout.allocated_size(physical_bytes))
    }

    /// Whether the pool cannot be opened because this vdev is unavailable. A log device that was
    /// offline or faulted when the pool was closed is not needed: its log was emptied first, or the
    /// administrator was told what it held.
    #[doc(alias = "spa_check_for_missing_logs")]
    pub(crate) fn is_missed(&self, config: &VdevConfig) -> bool {
        let mut leaves = config.leaves().into_iter();
        let was_out = leaves.all(|leaf| leaf.condition.offline || leaf.condition.faulted);
        let is_excused = self.is_log && was_out;
        !is_excused && !self.standing().state.is_usable()
    }

    /// True if the other leaves have all blocks of the vdev. A log vdev can do without any leaf:
    /// its blocks are in memory, too, until their txg is stored.
    #[doc(alias = "vdev_dtl_required")]
    pub(crate) fn can_do_without(&self, leaf: &Leaf) -> bool {
        self.is_log || !self.lacks_blocks(&|other| other.guid != leaf.guid)
    }

    /// Whether blocks of the vdev cannot be read from the usable ones among these leaves, by their
    /// dirty time logs.
    #[doc(alias = "DTL_OUTAGE")]
    pub(crate) fn lacks_blocks(&self, is_left: &dyn Fn(&Leaf) -> bool) -> bool {
        let Ok(layout) = &self.layout else {
            return true;
        };
        let missed = |copies: &Vec<usize>| {
            let copies = copies.iter().map(|index| &self.leaves[*index]);
            let left = copies.filter(|leaf| leaf.is_usable() && is_left(leaf));
            left.fold(Dtl::all(), |all, leaf| all.intersection(&leaf.dtl()))
        };
        let missed: Vec<Dtl> = layout.children().iter().map(missed).collect();
        Dtl::exceed(&missed, layout.parity())
    }

    /// The standing of the vdev, from the standings of its leaves.
    pub(crate) fn standing(&self) -> Standing {
        match &self.layout {
            Ok(layout) => {
                let leaves: Vec<Standing> =
                    self.leaves.iter().map(|leaf| leaf.standing()).collect();
                layout.standing(&leaves)
            }
            Err(no_blocks) => no_blocks.standing(),
        }
    }

    /// Whether blocks can be on it.
    pub(crate) fn holds_data(&self) -> bool {
        self.layout.is_ok()
    }

    pub(crate) fn facts(&self, config: &VdevConfig, bias: AllocationBias) -> TopLevel {
        let stored = config.top_level.as_ref();
        let size = |bytes| self.allocated_size(bytes);
        TopLevel {
            id: self.id,
            guid: self.guid,
            kind: self.kind,
            name: self.name.clone(),
            ashift: self.ashift,
            asize: self.asize,
            metaslab_array: stored.map_or(ObjectId::ZERO, |stored| stored.metaslab_array),
            metaslab_shift: stored.map_or(0, |stored| stored.metaslab_shift),
            is_log: self.is_log,
            is_non_allocating: stored
                .is_some_and(|stored| stored.non_allocating || stored.removing),
            allocation_bias: bias,
            deflate_ratio: if self.holds_data() {
                sizes::deflate_ratio(size)
            } else {
                0
            },
            create_txg: config.create_txg,
            standing: self.standing(),
        }
    }

    pub(crate) fn health(&self, config: &VdevConfig) -> VdevHealth {
        let mut health = self.health_below(config);
        health.is_log = self.is_log;
        health.asize = self.asize;
        health.standing = self.standing();
        if !self.kind.is_leaf() {
            health.errors = self.errors.values();
        }
        health
    }

    fn health_below(&self, config: &VdevConfig) -> VdevHealth {
        match self.leaves.iter().find(|leaf| leaf.guid == config.guid) {
            Some(leaf) => VdevHealth {
                errors: leaf.errors.values(),
                statistics: leaf.probes.statistics.snapshot(),
                standing: leaf.standing(),
                device_bytes: leaf.window().map_or(0, |window| window.size_bytes()),
                ..parent_health(config, Vec::new())
            },
            None => {
                let children = config.children.iter().map(|child| self.health_below(child));
                parent_health(config, children.collect())
            }
        }
    }
}

fn is_device_error(found: &Result<labels::Label, LabelError>) -> bool {
    matches!(found, Err(LabelError::Device(_)))
}
