//! The tree: all vdevs of a pool, opened.
//!
//! # Mechanism
//! The tree keeps the configuration beside the top-level vdevs that were opened from it
//! ([`TopVdev`](crate::top)). Block pointers name a top-level vdev by its index; the layout and the
//! leaves below it are the top-level vdev's own.
//!
//! # Invariants
//! - A top-level vdev's index never changes; new ones are added behind the last.
//! - The tree and its configuration have the same leaves.

use crate::auxiliary::{AuxiliaryDevices, AuxiliaryKind};
use crate::cache_leaf::CacheDevice;
use crate::config::{VdevConfig, VdevKind};
use crate::error::OpenError;
use crate::health::{ErrorCounts, Reason, Standing, VdevHealth, VdevState};
use crate::layout::NoBlocks;
use crate::leaf::Leaf;
use crate::ranks;
use crate::reports::{Report, ReportKind, Reports};
use crate::suspension::{Suspension, UnflushedWrites};
use crate::top::TopVdev;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tarn_host::device::OpenMode;
use tarn_host::lock::{Mutex, RwLock};
use tarn_host::{Host, WriteLease};
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, PhysicalSize, Txg, VdevId};
use tarn_probe::{IoTotals, VdevStatisticsSnapshot};

/// How to open a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether devices may be written.
    pub mode: OpenMode,
    /// Which top-level vdevs must be usable.
    pub need: Need,
    /// What the labels of devices must say.
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
    /// None: to show what was found.
    Nothing,
}

/// What the labels of devices must say, for a device to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedLabels {
    /// That it is this vdev of this pool.
    OfPool(Guid),
    /// Anything: the labels are about to be written.
    Any,
}

/// The allocation bias of a top-level vdev: which new blocks it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "vdev_alloc_bias_t")]
pub enum AllocationBias {
    /// No bias: the normal class.
    #[default]
    None,
    /// The intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

/// The facts of a top-level vdev by which `space` places blocks.
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
    /// Its size (asize), parity included.
    pub asize: AllocatedSize,
    /// The object that lists its space maps.
    pub metaslab_array: ObjectId,
    /// A metaslab is `2^metaslab_shift` bytes.
    pub metaslab_shift: u32,
    /// It holds the intent log.
    pub is_log: bool,
    /// Nothing new is placed on it.
    pub is_non_allocating: bool,
    /// Which blocks are placed on it.
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
    /// Opens devices that are written only while the lease is valid.
    pub(crate) host: Host,
    lease: Arc<WriteLease>,
    pub(crate) mode: OpenMode,
    pub(crate) state: RwLock<TreeState>,
    /// Counts changes of the configuration that labels should have.
    changes: AtomicU64,
    /// The newest txg that is stored.
    pub(crate) stored_txg: AtomicU64,
    /// Whether reads may self-heal.
    permits_self_heal: AtomicBool,
    /// What devices did wrong, for the layer above.
    reports: Arc<Reports>,
    /// Calls that wait for devices that are gone.
    pub(crate) suspension: Suspension,
    /// Writes that are not flushed yet, kept for devices that come back.
    pub(crate) unflushed: Mutex<UnflushedWrites>,
    /// Held while all devices are flushed.
    pub(crate) flushing: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct TreeState {
    pub(crate) root: VdevConfig,
    pub(crate) tops: Vec<Arc<TopVdev>>,
    pub(crate) biases: Vec<AllocationBias>,
    pub(crate) auxiliary: AuxiliaryDevices,
    pub(crate) cache_devices: Vec<Arc<CacheDevice>>,
}

impl VdevTree {
    /// Opens all devices of a pool. `root` is its whole tree.
    ///
    /// # Errors
    /// A vdev is of a kind that is not supported, or vdevs are unavailable that `options` need.
    pub fn open(
        host: &Host,
        root: &VdevConfig,
        options: &OpenOptions,
    ) -> Result<Arc<VdevTree>, OpenError> {
        let lease = WriteLease::new();
        let host = &host.with_lease(lease.clone());
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
            lease,
            mode: options.mode,
            state: RwLock::new(
                ranks::TREE,
                TreeState {
                    root: root.clone(),
                    tops,
                    biases,
                    auxiliary: AuxiliaryDevices::default(),
                    cache_devices: Vec::new(),
                },
            ),
            changes: AtomicU64::new(0),
            stored_txg: AtomicU64::new(0),
            permits_self_heal: AtomicBool::new(true),
            reports: Reports::new(),
            suspension: Suspension::new(),
            unflushed: Mutex::new(ranks::UNFLUSHED_WRITES, UnflushedWrites::default()),
            flushing: Mutex::new(ranks::FLUSHING, ()),
        };
        tree.require(options.need)?;
        tree.tops().iter().for_each(|top| tree.adopt(top));
        Ok(Arc::new(tree))
    }

    /// Fails if a top-level vdev is unavailable that is needed.
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

    /// The configuration to be stored now, with the conditions and dirty time logs of devices as
    /// they are.
    pub fn config(&self) -> VdevConfig {
        let state = self.state.read();
        let (mut root, tops) = (state.root.clone(), state.tops.clone());
        drop(state);
        let leaves: Vec<_> = tops.iter().flat_map(|top| top.leaves.clone()).collect();
        root.change_each(&mut |vdev| {
            if let Some(leaf) = leaves.iter().find(|leaf| leaf.guid == vdev.guid) {
                // `zpool offline -t` is not stored.
                let standing = match leaf.is_lasting() {
                    true => leaf.standing(),
                    false => Standing::ONLINE,
                };
                vdev.condition.faulted = standing.state == VdevState::Faulted;
                vdev.condition.degraded = standing.state == VdevState::Degraded;
                vdev.condition.removed |= standing.state == VdevState::Removed;
                vdev.condition.reason = standing.reason.and_then(Reason::stored);
                vdev.set_unsaved_dtl(leaf.unsaved_dtl());
            }
        });
        root
    }

    /// Changes values in the configuration, such as an object of a vdev or a path. The shape of the
    /// tree stays.
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

    /// The hot spares and cache devices, with the paths at which they were found.
    pub fn auxiliary(&self) -> AuxiliaryDevices {
        self.state.read().auxiliary.clone()
    }

    /// Sets the hot spares and cache devices of the pool.
    pub fn set_auxiliary(&self, devices: AuxiliaryDevices) {
        self.state.write().auxiliary = devices;
    }

    /// Removes a hot spare or cache device, and closes it.
    pub fn remove_auxiliary(&self, kind: AuxiliaryKind, guid: Guid) {
        if kind == AuxiliaryKind::Cache {
            self.close_cache_device(guid);
        }
        let mut state = self.state.write();
        state
            .auxiliary
            .of_mut(kind)
            .retain(|device| device.guid != guid);
    }

    /// Sets the allocation bias of a vdev, which the MOS has.
    pub fn set_allocation_bias(&self, vdev: VdevId, bias: AllocationBias) {
        if let Some(place) = self.state.write().biases.get_mut(vdev.index()) {
            *place = bias;
        }
    }

    /// The facts of all top-level vdevs, in the order of their indices, holes included.
    pub fn top_levels(&self) -> Vec<TopLevel> {
        let state = self.state.read();
        let configs = state.root.children.iter().zip(&state.biases);
        configs
            .zip(&state.tops)
            .map(|((config, bias), top)| top.facts(config, *bias))
            .collect()
    }

    /// The standing of a top-level vdev. Unavailable if there is none.
    pub fn top_standing(&self, vdev: VdevId) -> Standing {
        let missing = Standing {
            state: VdevState::Unavailable,
            reason: None,
        };
        self.top(vdev).map_or(missing, |top| top.standing())
    }

    /// The allocated size of a block of this size on a vdev.
    ///
    /// # Panics
    /// When there is no such vdev, or it holds no blocks: `space` placed the block by its facts.
    #[doc(alias = "vdev_psize_to_asize")]
    pub fn allocated_size(&self, vdev: VdevId, physical: PhysicalSize) -> AllocatedSize {
        self.find_allocated_size(vdev, physical)
            .expect("a place is on a vdev that there is, and holds blocks")
    }

    /// As [`allocated_size`](Self::allocated_size); none when there is no such vdev, or it holds no
    /// blocks.
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

    /// Permits or forbids self-healing. An import forbids it until it has claimed the pool and
    /// chosen the txg that it opens: until then, a newer block may be at a place that is read.
    pub fn permit_self_heal(&self, is_permitted: bool) {
        self.permits_self_heal
            .store(is_permitted, Ordering::Release);
    }

    /// Whether a read may write the right bytes to devices that gave wrong ones, or none.
    pub fn may_self_heal(&self) -> bool {
        self.is_writable() && self.permits_self_heal.load(Ordering::Acquire)
    }

    /// Until when this host may write the devices: for ever, unless the pool has `multihost`.
    pub fn lease(&self) -> &WriteLease {
        &self.lease
    }

    /// The reports of its devices.
    pub fn reports(&self) -> &Arc<Reports> {
        &self.reports
    }

    /// Has the devices of a top-level vdev that joins the tree, or is reshaped, report to it.
    pub(crate) fn adopt(&self, top: &TopVdev) {
        let leaves = top.leaves.iter();
        leaves.for_each(|leaf| leaf.report_to(&self.reports));
    }

    /// The machine whose devices these are.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Counts changes of the configuration. The sync writes all labels when the count differs from
    /// that of the last labels.
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
        debug_assert!(
            (tops.iter().flat_map(|top| &top.leaves)).all(|leaf| leaf.has_reports()),
            "each device of the tree reports to it"
        );
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
            ..parent_health(&root, children)
        }
    }

    /// Forgets errors that were counted, of one vdev or of all: `zpool clear`.
    pub fn clear_errors(&self, only: Option<Guid>) {
        let is_meant = |guid: Guid| only.is_none_or(|only| only == guid);
        self.reports.post(Report {
            vdev: only.unwrap_or(Guid::ZERO),
            what: ReportKind::Cleared,
        });
        for top in self.tops() {
            if is_meant(top.guid) {
                top.errors.clear();
            }
            for leaf in top.leaves.iter().filter(|leaf| is_meant(leaf.guid)) {
                leaf.errors.clear();
            }
        }
        self.clear_cache_errors(is_meant);
    }

    /// Closes all devices. Requests under way are finished; afterwards every leaf is unavailable.
    pub fn close(&self) {
        self.reports.close();
        self.leaves().iter().for_each(|leaf| leaf.close());
        self.close_cache_devices();
        *self.unflushed.lock() = UnflushedWrites::default();
    }
}

/// Refuses a tree with a vdev of a kind that is not supported, whether its devices are present or
/// not.
///
/// # Errors
/// [`OpenError::Unsupported`] with the first one.
pub fn refuse_unbuilt(root: &VdevConfig) -> Result<(), OpenError> {
    let mut tops = root.children.iter().map(|top| TopVdev::new(top, &[]));
    tops.try_for_each(|top| refuse_unsupported(&top, Need::All))
}

pub(crate) fn refuse_unsupported(top: &TopVdev, need: Need) -> Result<(), OpenError> {
    match top.layout {
        Err(NoBlocks::Unsupported(what)) if need != Need::Nothing => Err(OpenError::Unsupported {
            name: top.name.clone(),
            what,
        }),
        _ => Ok(()),
    }
}

/// Makes a leaf unavailable whose path leads to the device of another leaf.
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

pub(crate) fn parent_health(config: &VdevConfig, children: Vec<VdevHealth>) -> VdevHealth {
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
        errors: ErrorCounts::default(),
        statistics,
        asize: AllocatedSize::ZERO,
        device_bytes: 0,
        children,
    }
}

impl AllocationBias {
    pub(crate) fn of_config(config: &VdevConfig) -> AllocationBias {
        match config.top_level.as_ref().is_some_and(|facts| facts.is_log) {
            true => AllocationBias::Log,
            false => AllocationBias::None,
        }
    }
}
