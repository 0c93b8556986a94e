//! The tree: all vdevs of a pool, opened.
//!
//! # Mechanism
//! A configuration may nest (a mirror in which a device is being replaced, a RAID-Z in which a hot spare
//! stands in), but there are only two ways in which bytes can be on devices: as *copies*, any of which
//! will do, or in the *columns* of a RAID-Z, each of which again is one or more copies. So the tree is
//! flattened when it is opened: every top-level vdev has one layout over its list of leaves.
//!
//! Opening looks at every device's labels. A device of another pool, or another vdev, is not used,
//! whatever its path says. One that missed writes is found by its uberblocks: when its newest is older
//! than the second newest of a sibling, it has missed at least one txg that was stored. From then on the configuration says so.
//!
//! # Invariants
//! - A top-level vdev's index never changes; new ones are added behind the last.
//! - A leaf is taken out of use only while the rest covers what it has.

use crate::config::{VdevConfig, VdevKind};
use crate::error::{LabelError, OpenError};
use crate::health::{ErrorCounters, Reason, Standing, VdevHealth, VdevState, vdev_name};
use crate::labels;
use crate::leaf::Leaf;
use crate::raidz_map::RaidzShape;
use crate::ranks;
use crate::sizes;
use crate::suspension::{Journal, Suspension};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tarn_host::Host;
use tarn_host::device::OpenMode;
use tarn_host::lock::{Mutex, RwLock};
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, PhysicalSize, Txg, VdevId};
use tarn_probe::{IoTotals, VdevStatisticsSnapshot};

/// How to open a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether devices may be written.
    pub mode: OpenMode,
    /// What must be there.
    pub need: Need,
    /// What labels must say.
    pub labels: ExpectedLabels,
}

impl OpenOptions {
    /// To use a pool that exists.
    pub const fn of_pool(mode: OpenMode, pool: Guid) -> OpenOptions {
        OpenOptions {
            mode,
            need: Need::All,
            labels: ExpectedLabels::OfPool(pool),
        }
    }

    /// To make a pool of devices whose labels do not matter.
    pub const fn new_pool() -> OpenOptions {
        OpenOptions {
            mode: OpenMode::ReadWriteExclusive,
            need: Need::All,
            labels: ExpectedLabels::Any,
        }
    }
}

/// Which top-level vdevs must be usable, for opening to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// All of them.
    All,
    /// All but those that hold the intent log.
    AllButLogs,
    /// None: to see what is there.
    Nothing,
}

/// What the labels of devices must say, for a device to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedLabels {
    /// That it is this vdev of this pool.
    OfPool(Guid),
    /// Nothing: the labels are about to be written.
    Any,
}

/// How bytes are on the leaves of a top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    /// All leaves have the same bytes.
    Copies,
    /// A RAID-Z. For each column, the leaves that have it.
    Raidz {
        shape: RaidzShape,
        columns: Vec<Vec<usize>>,
    },
    /// There is nothing on it.
    Nothing,
    /// There may be something, but we cannot read it.
    Unsupported(&'static str),
}

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
    pub layout: Layout,
    pub leaves: Vec<Arc<Leaf>>,
    pub errors: ErrorCounters,
}

/// Where new blocks of a kind go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "vdev_alloc_bias_t")]
pub enum AllocationBias {
    /// To any vdev.
    #[default]
    None,
    /// The intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

/// What is known of a top-level vdev, for those who place blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopLevel {
    /// Its index, as in a block's address.
    pub id: VdevId,
    /// Its name for good.
    pub guid: Guid,
    /// What it is.
    pub kind: VdevKind,
    /// As `zpool status` names it.
    pub name: String,
    /// A sector is `2^ashift` bytes.
    pub ashift: u32,
    /// Its room, parity included.
    pub asize: AllocatedSize,
    /// The object that lists its space maps.
    pub metaslab_array: ObjectId,
    /// A metaslab is `2^metaslab_shift` bytes.
    pub metaslab_shift: u32,
    /// It holds the intent log.
    pub is_log: bool,
    /// Nothing new is placed on it.
    pub is_non_allocating: bool,
    /// What is placed on it.
    pub allocation_bias: AllocationBias,
    /// How much of allocated space is data, in 512ths.
    pub deflate_ratio: u64,
    /// The txg in which it joined the pool.
    pub create_txg: Txg,
    /// How it is, and why.
    pub standing: Standing,
}

/// All vdevs of a pool.
#[derive(Debug)]
pub struct VdevTree {
    pub(crate) host: Host,
    pub(crate) mode: OpenMode,
    pub(crate) state: RwLock<TreeState>,
    /// Counts changes of what labels should say.
    changes: AtomicU64,
    /// Whether readers may write the right bytes where they read wrong ones.
    permits_repairs: AtomicBool,
    /// Errors that no top-level vdev could make good.
    pub(crate) errors: ErrorCounters,
    /// Who waits for devices that are gone.
    pub(crate) suspension: Suspension,
    /// What is written and not flushed.
    pub(crate) journal: Mutex<Journal>,
    /// Whose turn it is to flush all devices.
    pub(crate) flushing: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct TreeState {
    pub(crate) root: VdevConfig,
    pub(crate) tops: Vec<Arc<TopVdev>>,
    pub(crate) biases: Vec<AllocationBias>,
}

impl VdevTree {
    /// Opens all devices of a pool. `root` is its whole tree.
    ///
    /// # Errors
    /// It has a kind of vdev that we cannot read, or devices are missing that `options` need.
    pub fn open(
        host: &Host,
        root: &VdevConfig,
        options: &OpenOptions,
    ) -> Result<Arc<VdevTree>, OpenError> {
        let tops = root.children.iter().map(|top| {
            let top = TopVdev::new(top, &[]);
            refuse_unsupported(&top, options.need)?;
            Ok(Arc::new(top))
        });
        let tops = tops.collect::<Result<Vec<_>, OpenError>>()?;
        for (top, config) in tops.iter().zip(&root.children) {
            top.open(host, config, options);
        }
        refuse_duplicates(&tops);
        let biases = root
            .children
            .iter()
            .map(AllocationBias::of_config)
            .collect();
        let tree = VdevTree {
            host: host.clone(),
            mode: options.mode,
            state: RwLock::new(
                ranks::TREE,
                TreeState {
                    root: root.clone(),
                    tops,
                    biases,
                },
            ),
            changes: AtomicU64::new(0),
            permits_repairs: AtomicBool::new(true),
            errors: ErrorCounters::default(),
            suspension: Suspension::new(),
            journal: Mutex::new(ranks::JOURNAL, Journal::default()),
            flushing: Mutex::new(ranks::FLUSHING, ()),
        };
        tree.require(options.need)?;
        Ok(Arc::new(tree))
    }

    /// Refuses if what is needed is not there.
    pub fn require(&self, need: Need) -> Result<(), OpenError> {
        let is_needed = |top: &TopVdev| match need {
            Need::All => true,
            Need::AllButLogs => !top.is_log,
            Need::Nothing => false,
        };
        let (root, tops) = {
            let state = self.state.read();
            (state.root.clone(), state.tops.clone())
        };
        let vdevs: Vec<_> = tops
            .iter()
            .zip(&root.children)
            .filter(|(top, config)| is_needed(top) && top.is_missed(config))
            .map(|(top, _)| (top.name.clone(), top.standing()))
            .collect();
        if vdevs.is_empty() {
            Ok(())
        } else {
            Err(OpenError::Unavailable { vdevs })
        }
    }

    /// The configuration as it should be stored now, with what happened to devices since.
    pub fn config(&self) -> VdevConfig {
        let state = self.state.read();
        let (mut root, tops) = (state.root.clone(), state.tops.clone());
        drop(state);
        let leaves: Vec<_> = tops.iter().flat_map(|top| top.leaves.clone()).collect();
        root.change_each(&mut |vdev| {
            if let Some(leaf) = leaves.iter().find(|leaf| leaf.guid == vdev.guid) {
                // What is only for now is not stored.
                let standing = match leaf.is_lasting() {
                    true => leaf.standing(),
                    false => Standing::ONLINE,
                };
                vdev.condition.faulted = standing.state == VdevState::Faulted;
                vdev.condition.degraded = standing.state == VdevState::Degraded;
                vdev.condition.removed |= standing.state == VdevState::Removed;
                vdev.condition.reason = standing.reason.and_then(Reason::stored);
                vdev.set_missed_writes(leaf.is_out_of_date());
            }
        });
        root
    }

    /// Changes the configuration: an object that belongs to a vdev, a path. The shape stays.
    ///
    /// # Panics
    /// When `change` adds or removes a vdev.
    pub fn change_config(&self, change: impl FnOnce(&mut VdevConfig)) {
        let mut state = self.state.write();
        let before = state.root.walk().len();
        change(&mut state.root);
        assert_eq!(
            state.root.walk().len(),
            before,
            "a change keeps the shape of the tree"
        );
        drop(state);
        self.note_change();
    }

    /// Says what is placed on a vdev; the MOS knows it.
    pub fn set_allocation_bias(&self, vdev: VdevId, bias: AllocationBias) {
        if let Some(place) = self.state.write().biases.get_mut(vdev.index()) {
            *place = bias;
        }
    }

    /// What is known of each top-level vdev, in the order of their indices, holes included.
    pub fn top_levels(&self) -> Vec<TopLevel> {
        let state = self.state.read();
        let configs = state.root.children.iter().zip(&state.biases);
        configs
            .zip(&state.tops)
            .map(|((config, bias), top)| top.facts(config, *bias))
            .collect()
    }

    /// How a top-level vdev is. Unavailable if there is none.
    pub fn top_standing(&self, vdev: VdevId) -> Standing {
        let missing = Standing {
            state: VdevState::Unavailable,
            reason: None,
        };
        self.top(vdev).map_or(missing, |top| top.standing())
    }

    /// How much room a block of this size takes on a vdev.
    ///
    /// # Panics
    /// When there is no such vdev, or nothing can be placed on it: places were chosen by its facts.
    #[doc(alias = "vdev_psize_to_asize")]
    pub fn allocated_size(&self, vdev: VdevId, physical: PhysicalSize) -> AllocatedSize {
        self.find_allocated_size(vdev, physical)
            .expect("a place is on a vdev that there is, and holds blocks")
    }

    /// The same; `None` when there is no such vdev, or nothing can be placed on it.
    pub fn find_allocated_size(
        &self,
        vdev: VdevId,
        physical: PhysicalSize,
    ) -> Option<AllocatedSize> {
        let state = self.state.read();
        let top = state.tops.get(vdev.index())?;
        top.find_allocated_size(physical.get())
    }

    /// Whether devices may be written.
    pub fn is_writable(&self) -> bool {
        self.mode.may_write()
    }

    /// Whether readers may write the right bytes where they read wrong ones, or none. Not while it is being found out whose a pool is, and
    /// which group of it is opened: what is read then may be in places that hold something else by now.
    pub fn set_repairs(&self, are_permitted: bool) {
        self.permits_repairs.store(are_permitted, Ordering::Release);
    }

    /// Whether readers may repair.
    pub fn may_repair(&self) -> bool {
        self.is_writable() && self.permits_repairs.load(Ordering::Acquire)
    }

    /// The machine whose devices these are.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// How often what labels should say has changed. Whoever stores a txg compares it with what it
    /// was when the labels were written last.
    pub fn change_count(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn tops(&self) -> Vec<Arc<TopVdev>> {
        self.state.read().tops.clone()
    }

    pub(crate) fn top(&self, vdev: VdevId) -> Option<Arc<TopVdev>> {
        self.state.read().tops.get(vdev.index()).cloned()
    }

    /// All devices.
    pub fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.state
            .read()
            .tops
            .iter()
            .flat_map(|top| top.leaves.clone())
            .collect()
    }

    /// The device of this guid.
    pub fn leaf(&self, guid: Guid) -> Option<Arc<Leaf>> {
        self.leaves().into_iter().find(|leaf| leaf.guid == guid)
    }

    /// Reads and writes of all leaves since they were opened.
    pub fn io_totals(&self) -> IoTotals {
        let mut sum = IoTotals::default();
        for leaf in self.leaves() {
            sum.merge(&leaf.probes.statistics.totals());
        }
        sum
    }

    /// The whole tree as `zpool status` shows it.
    pub fn health(&self) -> VdevHealth {
        let state = self.state.read();
        let (root, tops) = (state.root.clone(), state.tops.clone());
        drop(state);
        let pairs = root.children.iter().zip(&tops);
        let children: Vec<_> = pairs.map(|(config, top)| top.health(config)).collect();
        // A pool can do without its log devices.
        let standing = |top: &VdevHealth| match top.is_log && !top.standing.state.is_usable() {
            true => Standing {
                state: VdevState::Degraded,
                reason: None,
            },
            false => top.standing,
        };
        let standings: Vec<_> = children.iter().map(standing).collect();
        VdevHealth {
            standing: Standing::of_parent(root.kind, &standings),
            ..parent_health(&root, children, &self.errors)
        }
    }

    /// Forgets errors that were counted, of one vdev or of all: `zpool clear`.
    pub fn clear_errors(&self, only: Option<Guid>) {
        let is_meant = |guid: Guid| only.is_none_or(|only| only == guid);
        if only.is_none() {
            self.errors.clear();
        }
        for top in self.tops() {
            if is_meant(top.guid) {
                top.errors.clear();
            }
            for leaf in top.leaves.iter().filter(|leaf| is_meant(leaf.guid)) {
                leaf.errors.clear();
            }
        }
    }

    /// Lets all devices go. What is under way is finished; afterwards every leaf is unavailable.
    pub fn close(&self) {
        self.leaves().iter().for_each(|leaf| leaf.close());
        *self.journal.lock() = Journal::default();
    }
}

/// Refuses a tree in which a vdev is of a kind that cannot be read, whatever is there of it.
///
/// # Errors
/// [`OpenError::Unsupported`] with the first one.
pub fn refuse_unbuilt(root: &VdevConfig) -> Result<(), OpenError> {
    let mut tops = root.children.iter().map(|top| TopVdev::new(top, &[]));
    tops.try_for_each(|top| refuse_unsupported(&top, Need::All))
}

pub(crate) fn refuse_unsupported(top: &TopVdev, need: Need) -> Result<(), OpenError> {
    match top.layout {
        Layout::Unsupported(what) if need != Need::Nothing => Err(OpenError::Unsupported {
            name: top.name.clone(),
            what,
        }),
        _ => Ok(()),
    }
}

/// Of two paths to one device, the second is not used.
fn refuse_duplicates(tops: &[Arc<TopVdev>]) {
    let mut seen = BTreeSet::new();
    for leaf in tops.iter().flat_map(|top| &top.leaves) {
        if let Some(window) = leaf.window()
            && !seen.insert((window.info().identity, window.device_offset(0)))
        {
            leaf.set_standing(Standing::because(
                VdevState::Unavailable,
                Reason::OpenFailed,
            ));
        }
    }
}

impl TopVdev {
    /// Of this configuration. Leaves that are known already are the same as before.
    pub(crate) fn new(config: &VdevConfig, known: &[Arc<Leaf>]) -> TopVdev {
        let facts = config.top_level.as_ref();
        let ashift = facts.map_or(0, |facts| facts.ashift);
        let mut leaves = Leaves {
            known,
            sector_bytes: facts.map_or(u64::MAX, |facts| 1 << facts.ashift),
            all: Vec::new(),
        };
        let layout = layout_of(config, ashift, &mut leaves);
        TopVdev {
            id: VdevId::from(config.id),
            guid: config.guid,
            kind: config.kind,
            name: vdev_name(config.kind, config.id, config.guid, config.path.as_ref()),
            ashift,
            asize: facts.map_or(AllocatedSize::ZERO, |facts| facts.asize),
            is_log: facts.is_some_and(|facts| facts.is_log),
            layout,
            leaves: leaves.all,
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
            self.find_out_of_date();
            for leaf in &self.leaves {
                if find(leaf).is_some_and(|config| config.has_missed_writes()) {
                    leaf.set_out_of_date(true);
                }
            }
        }
    }

    /// Does not use devices whose labels say that they are something else.
    #[doc(alias = "vdev_validate")]
    pub(crate) fn check_labels(&self, pool: Guid) {
        for leaf in &self.leaves {
            let Some(window) = leaf.window() else {
                continue;
            };
            let found = labels::read_labels(&window);
            let reason = match labels::best_label(&found) {
                None if found.iter().all(is_device_error) => Some(Reason::OpenFailed),
                None => Some(Reason::BadLabel),
                Some(label) => {
                    // Power may have failed while it got another guid, as the last of a mirror does: then two labels are older.
                    let mut all = found.iter().flatten();
                    let is_it = all.any(|label| label.guid() == Some(leaf.guid))
                        // A mirror of which one device is left takes over the guid of the mirror.
                        || (self.leaves.len() == 1 && label.top_guid() == Some(self.guid));
                    let is_ours = label.pool_guid() == Some(pool) && is_it;
                    (!is_ours).then_some(Reason::CorruptData)
                }
            };
            if let Some(reason) = reason {
                leaf.set_standing(Standing::because(VdevState::Unavailable, reason));
            }
        }
    }

    /// Does not use devices that have shrunk.
    pub(crate) fn check_sizes(&self) {
        let width = match &self.layout {
            Layout::Raidz { columns, .. } => columns.len(),
            _ => 1,
        };
        let needed = sizes::child_size_min(self.kind, self.asize, widen(width));
        for leaf in &self.leaves {
            if leaf.data_size().is_some_and(|size| size < needed) {
                leaf.set_standing(Standing::because(VdevState::Unavailable, Reason::BadLabel));
            }
        }
    }

    /// Marks devices that missed a txg which a sibling has stored.
    fn find_out_of_date(&self) {
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
                leaf.set_out_of_date(true);
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

    fn find_allocated_size(&self, physical_bytes: u64) -> Option<AllocatedSize> {
        match &self.layout {
            Layout::Raidz { shape, .. } => Some(shape.allocated_size(physical_bytes)),
            Layout::Copies => {
                Some(AllocatedSize::from(physical_bytes).round_up(self.sector_bytes()))
            }
            Layout::Nothing | Layout::Unsupported(_) => None,
        }
    }

    /// Whether the pool cannot be opened as it is for want of this vdev. A log device that was out of use when the pool was closed is not
    /// missed: whoever took it out has emptied it, or was told what it held.
    #[doc(alias = "spa_check_for_missing_logs")]
    fn is_missed(&self, config: &VdevConfig) -> bool {
        let mut leaves = config.leaves().into_iter();
        let was_out = leaves.all(|leaf| leaf.condition.offline || leaf.condition.faulted);
        let is_excused = self.is_log && was_out;
        !is_excused && !self.standing().state.is_usable()
    }

    /// True if the vdev has everything even without this leaf. What is on a log vdev is in memory, too, until its group is stored: it may
    /// be lost, and who wrote to it is told so.
    pub(crate) fn can_do_without(&self, leaf: &Leaf) -> bool {
        if self.is_log {
            return true;
        }
        let stays = |index: &usize| {
            self.leaves[*index].guid != leaf.guid && self.leaves[*index].is_trusted()
        };
        match &self.layout {
            Layout::Copies => (0..self.leaves.len()).any(|index| stays(&index)),
            Layout::Raidz { shape, columns } => {
                let lost = columns
                    .iter()
                    .filter(|copies| !copies.iter().any(stays))
                    .count();
                widen(lost) <= shape.parity
            }
            Layout::Nothing | Layout::Unsupported(_) => false,
        }
    }

    /// How it is, from how its leaves are.
    pub(crate) fn standing(&self) -> Standing {
        let of = |index: &usize| self.leaves[*index].standing();
        match &self.layout {
            Layout::Copies if self.kind.is_leaf() => of(&0),
            Layout::Copies => {
                let standings: Vec<_> = self.leaves.iter().map(|leaf| leaf.standing()).collect();
                Standing::of_parent(self.kind, &standings)
            }
            Layout::Raidz { columns, .. } => {
                let column = |copies: &Vec<usize>| match copies.as_slice() {
                    [one] => of(one),
                    copies => {
                        let standings: Vec<_> = copies.iter().map(of).collect();
                        Standing::of_parent(VdevKind::Replacing, &standings)
                    }
                };
                let standings: Vec<_> = columns.iter().map(column).collect();
                Standing::of_parent(self.kind, &standings)
            }
            Layout::Nothing if self.kind == VdevKind::Missing => {
                Standing::because(VdevState::Unavailable, Reason::OpenFailed)
            }
            Layout::Nothing => Standing::ONLINE,
            Layout::Unsupported(_) => {
                Standing::because(VdevState::Unavailable, Reason::Unsupported)
            }
        }
    }

    fn facts(&self, config: &VdevConfig, bias: AllocationBias) -> TopLevel {
        let stored = config.top_level.as_ref();
        let holds_data = matches!(self.layout, Layout::Copies | Layout::Raidz { .. });
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
            deflate_ratio: if holds_data {
                sizes::deflate_ratio(size)
            } else {
                0
            },
            create_txg: config.create_txg,
            standing: self.standing(),
        }
    }

    fn health(&self, config: &VdevConfig) -> VdevHealth {
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
                ..parent_health(config, Vec::new(), &ErrorCounters::default())
            },
            None => {
                let children = config.children.iter().map(|child| self.health_below(child));
                parent_health(config, children.collect(), &ErrorCounters::default())
            }
        }
    }
}

fn parent_health(
    config: &VdevConfig,
    children: Vec<VdevHealth>,
    errors: &ErrorCounters,
) -> VdevHealth {
    let standings: Vec<_> = children.iter().map(|child| child.standing).collect();
    let mut statistics = VdevStatisticsSnapshot::default();
    children
        .iter()
        .for_each(|child| statistics.merge(&child.statistics));
    VdevHealth {
        guid: config.guid,
        id: config.id,
        kind: config.kind,
        path: config.path.clone(),
        whole_disk: config.whole_disk.unwrap_or(false),
        not_present: config.not_present,
        is_log: false,
        standing: Standing::of_parent(config.kind, &standings),
        errors: errors.values(),
        statistics,
        asize: AllocatedSize::ZERO,
        children,
    }
}

fn is_device_error(found: &Result<labels::Label, LabelError>) -> bool {
    matches!(found, Err(LabelError::Device(_)))
}

impl AllocationBias {
    pub(crate) fn of_config(config: &VdevConfig) -> AllocationBias {
        match config.top_level.as_ref().is_some_and(|facts| facts.is_log) {
            true => AllocationBias::Log,
            false => AllocationBias::None,
        }
    }
}

/// Leaves of a top-level vdev that is being put together.
struct Leaves<'a> {
    /// Those that there are already.
    known: &'a [Arc<Leaf>],
    /// Blocks begin at multiples of so many bytes.
    sector_bytes: u64,
    all: Vec<Arc<Leaf>>,
}

impl Leaves<'_> {
    /// Gives the place of the leaf with this configuration.
    fn place(&mut self, config: &VdevConfig) -> usize {
        let known = self.known.iter().find(|leaf| leaf.guid == config.guid);
        let leaf = known.cloned();
        self.all
            .push(leaf.unwrap_or_else(|| Arc::new(Leaf::new(config, self.sector_bytes))));
        self.all.len() - 1
    }
}

/// Flattens a top-level vdev. Its leaves are put into `leaves`.
fn layout_of(config: &VdevConfig, ashift: u32, leaves: &mut Leaves<'_>) -> Layout {
    match config.kind {
        VdevKind::Hole | VdevKind::Missing => Layout::Nothing,
        VdevKind::Indirect => Layout::Unsupported("a removed vdev"),
        VdevKind::Draid { .. } | VdevKind::DistributedSpare => Layout::Unsupported("dRAID"),
        VdevKind::Root => Layout::Unsupported("a root below the root"),
        _ if ashift == 0 => Layout::Unsupported("a vdev without a sector size"),
        VdevKind::Raidz { parity } => {
            let expansion = ["raidz_expanding", "raidz_expand_txgs"];
            let is_expanded = |(name, _): &(_, _)| expansion.iter().any(|known| name == known);
            if config.other.iter().any(is_expanded) {
                return Layout::Unsupported("an expanded RAID-Z");
            }
            let columns: Option<Vec<_>> = config
                .children
                .iter()
                .map(|child| copies_of(child, leaves))
                .collect();
            let Some(columns) = columns else {
                return CANNOT_NEST;
            };
            let (width, parity) = (widen(columns.len()), u64::from(parity));
            Layout::Raidz {
                shape: RaidzShape {
                    width,
                    parity,
                    ashift,
                },
                columns,
            }
        }
        _ => match copies_of(config, leaves) {
            Some(_) => Layout::Copies,
            None => CANNOT_NEST,
        },
    }
}

const CANNOT_NEST: Layout = Layout::Unsupported("this nesting of vdevs");

/// The leaves at or below a vdev, all of which have the same bytes. None for anything else.
fn copies_of(config: &VdevConfig, leaves: &mut Leaves<'_>) -> Option<Vec<usize>> {
    match config.kind {
        VdevKind::File | VdevKind::Disk => Some(vec![leaves.place(config)]),
        kind if kind.is_mirrored() => {
            let children = config.children.iter().map(|child| copies_of(child, leaves));
            Some(children.collect::<Option<Vec<_>>>()?.concat())
        }
        _ => None,
    }
}
