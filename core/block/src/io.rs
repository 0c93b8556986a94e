//! The state that the read, write and free pipelines share: [`BlockIo`].

use crate::error::BlockAddress;
use crate::probes::Probes;
use crate::ranks;
use crate::ref_table::RefTable;
use crate::scan_copies::ScanQueue;
use crate::shapes::VdevShapes;
use crate::unreadable::Unreadable;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tarn_host::Host;
use tarn_host::lock::{Mutex, RwLock};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::units::{AllocatedSize, PhysicalSize, Txg, VdevId};
use tarn_probe::Operation;
use tarn_space::Space;
use tarn_transform::Salt;
use tarn_vdev::VdevTree;

/// Reads, writes and frees the blocks of one pool. Shared.
pub struct BlockIo {
    pub(crate) host: Host,
    pub(crate) vdevs: Arc<VdevTree>,
    pub(crate) space: Arc<Space>,
    pub(crate) ref_table: Option<Arc<dyn RefTable>>,
    pub(crate) options: BlockIoOptions,
    pub(crate) probes: Probes,
    salt: OnceLock<Salt>,
    shapes: RwLock<Arc<VdevShapes>>,
    pub(crate) deferred_frees: Mutex<Vec<BlockPointer>>,
    pub(crate) scan_queue: ScanQueue,
    pub(crate) unreadable: Unreadable,
    /// Bytes that logs may still take before the room that is left is counted again.
    pub(crate) log_allowance: AtomicU64,
    /// The newest txg that is stored: blocks of later ones may be rewritten in place.
    stored: AtomicU64,
    /// When it was stored, in nanoseconds of the host's clock, and when the txg before it was. Zero
    /// if unknown.
    stored_ns: AtomicU64,
    stored_before_ns: AtomicU64,
    /// Blocks that a test wants split.
    force_ganging: OnceLock<ForceGanging>,
    /// State of the pseudo-random numbers for that.
    dice: AtomicU64,
}

/// The txg being stored, and how often its changes have gone round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePhase {
    /// The txg.
    pub txg: Txg,
    /// The pass, from 1.
    pub pass: u32,
}

/// Choices for a pool.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockIoOptions {
    /// What to do with copies found bad.
    pub repair: Repair,
    /// What a hole says of itself.
    pub holes: HoleBirth,
    /// For tests: blocks to be split though there is room.
    pub force_ganging: Option<ForceGanging>,
}

/// What to do with copies found bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repair {
    /// Leave them: the pool is read-only.
    #[default]
    Leave,
    /// Write them anew from a good one.
    Rewrite,
}

/// Whether holes remember when they were punched (feature `hole_birth`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HoleBirth {
    /// They do.
    #[default]
    Recorded,
    /// They are all zeros.
    Unrecorded,
}

/// Which blocks to split for a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForceGanging {
    /// Blocks of at least this size.
    pub from: PhysicalSize,
    /// So many of a hundred of them.
    pub percent: u64,
    /// Where the dice begin.
    pub seed: u64,
}

impl BlockIo {
    /// For a pool with these vdevs and this space.
    pub fn new(
        host: Host,
        vdevs: Arc<VdevTree>,
        space: Arc<Space>,
        ref_table: Option<Arc<dyn RefTable>>,
        options: BlockIoOptions,
    ) -> BlockIo {
        let shapes = Arc::new(VdevShapes::of(&vdevs));
        let io = BlockIo {
            host,
            vdevs,
            space,
            ref_table,
            options,
            probes: Probes::new(tarn_probe::registry()),
            salt: OnceLock::new(),
            shapes: RwLock::new(ranks::SHAPES, shapes),
            deferred_frees: Mutex::new(ranks::DEFERRED_FREES, Vec::new()),
            scan_queue: ScanQueue::new(),
            unreadable: Unreadable::new(),
            log_allowance: AtomicU64::new(0),
            stored: AtomicU64::new(u64::MAX),
            stored_ns: AtomicU64::new(0),
            stored_before_ns: AtomicU64::new(0),
            force_ganging: OnceLock::new(),
            dice: AtomicU64::new(1),
        };
        if let Some(force) = options.force_ganging {
            io.force_ganging(force);
        }
        io
    }

    /// For tests of pools that are open: from now on blocks are split though there is room. Later
    /// calls change nothing.
    pub fn force_ganging(&self, force: ForceGanging) {
        if self.force_ganging.set(force).is_ok() {
            self.dice.store(force.seed | 1, Ordering::Relaxed);
        }
    }

    /// Sets the salt of salted checksums. Later calls change nothing.
    pub fn set_salt(&self, salt: Salt) {
        let _ = self.salt.set(salt);
    }

    /// Notes that a txg is stored. Until the first call, all txgs count as stored. The sync thread
    /// calls it, before space that the txg frees is allocated again.
    pub fn note_stored(&self, txg: Txg) {
        let newest = self.stored.load(Ordering::Acquire);
        assert!(
            newest == u64::MAX || newest <= txg.get(),
            "txgs are stored in their order"
        );
        let now_ns = self.host.monotonic_ns();
        let before = self.stored_ns.swap(now_ns, Ordering::AcqRel);
        self.stored_before_ns.store(before, Ordering::Release);
        self.stored.store(txg.get(), Ordering::Release);
    }

    /// The newest txg that is stored; all txgs until the first is [noted](Self::note_stored).
    pub(crate) fn newest_stored(&self) -> Txg {
        Txg::new(self.stored.load(Ordering::Acquire))
    }

    /// What a scan has found and not verified yet.
    pub fn scan_queue(&self) -> &ScanQueue {
        &self.scan_queue
    }

    /// Whether a block is where its pointer says, and stays there as it is. If not, other bytes in
    /// its places are no fault of a device, and self-healing must not replace them:
    ///
    /// - A block of the syncing txg may be rewritten in place while a reader with its older pointer
    ///   reads it.
    /// - A block whose pointer was looked up long ago may have been freed, and its places allocated
    ///   again. That takes three txgs at least: the one that frees it, and two until its space is
    ///   allocated again (`TXG_DEFER_SIZE`). Here only one may pass, for healing takes time as
    ///   well.
    pub(crate) fn is_settled(&self, pointer: &BlockPointer, operation: &Operation) -> bool {
        let is_stored = pointer.physical_birth().get() <= self.stored.load(Ordering::Acquire);
        let stored_before_ns = self.stored_before_ns.load(Ordering::Acquire);
        is_stored && (stored_before_ns == 0 || operation.looked_up_ns() > stored_before_ns)
    }

    /// Notes that a top-level vdev was added, removed or changed.
    pub fn vdevs_changed(&self) {
        let shapes = Arc::new(VdevShapes::of(&self.vdevs));
        *self.shapes.write() = shapes;
    }

    /// The space that a block is charged to its dataset, over all its places: its allocated size,
    /// less the parity that every block on such a vdev takes. Zero for a hole or an embedded block.
    #[doc(alias = "bp_get_dsize")]
    pub fn deflated_size(&self, pointer: &BlockPointer) -> AllocatedSize {
        let shapes = self.shapes();
        let sizes = pointer.dvas().map(|dva| shapes.deflated(dva));
        sizes.fold(AllocatedSize::ZERO, AllocatedSize::saturating_add)
    }

    /// Space that was freed in the normal class, and is not allocated again before two more txgs
    /// are stored.
    #[doc(alias = "metaslab_class_get_deferred")]
    pub fn deferred_size(&self) -> AllocatedSize {
        self.space.class_totals(tarn_space::Class::Normal).deferred
    }

    /// Whether blocks can be given further references.
    pub fn shares_blocks(&self) -> bool {
        let table = self.ref_table.as_ref();
        table.is_some_and(|table| table.is_enabled())
    }

    /// Gives a block one more reference, in a txg that is not syncing yet: it must be
    /// [freed](BlockIo::free) once more. Never waits.
    ///
    /// # Panics
    /// When blocks cannot be [shared](BlockIo::shares_blocks).
    #[doc(alias = "brt_pending_add")]
    pub fn share(&self, pointer: &BlockPointer, txg: Txg) {
        let table = self.ref_table.as_ref();
        let table = table.expect("blocks are shared where references are counted");
        table.add(pointer, self.deflated_size(pointer), txg);
    }

    /// Whether all places of a block are on vdevs of the pool.
    pub fn has_places(&self, pointer: &BlockPointer) -> bool {
        let shapes = self.shapes();
        pointer.dvas().all(|dva| {
            let room = shapes.room_bytes.get(&dva.vdev());
            let end = dva.offset().get().checked_add(dva.allocated_size().get());
            room.is_some_and(|room| end.is_some_and(|end| end <= *room))
        })
    }

    /// Whether a device in use misses a block, which a resilver is to bring there. Such a block is
    /// found by the pointers that the resilver has not passed: it may have passed the place that
    /// another pointer is put to, and never come to the one that is there now, if that is freed.
    pub fn is_missed(&self, pointer: &BlockPointer) -> bool {
        let birth = pointer.physical_birth();
        let mut dvas = pointer.dvas();
        dvas.any(|dva| self.vdevs.needs_resilver(dva.vdev(), birth))
    }

    /// The vdevs below.
    pub fn vdevs(&self) -> &Arc<VdevTree> {
        &self.vdevs
    }

    /// What is free on them.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    pub(crate) fn salt(&self) -> Option<&Salt> {
        self.salt.get()
    }

    pub(crate) fn shapes(&self) -> Arc<VdevShapes> {
        self.shapes.read().clone()
    }

    /// How much room a block takes on a vdev.
    pub(crate) fn size_on(&self, vdev: VdevId, size: PhysicalSize) -> AllocatedSize {
        self.vdevs.allocated_size(vdev, size)
    }

    /// True if a test wants this block split.
    pub(crate) fn is_forced_to_gang(&self, size: PhysicalSize) -> bool {
        self.force_ganging.get().is_some_and(|force| {
            size >= force.from && {
                let step = |state: u64| state.wrapping_mul(6364136223846793005).wrapping_add(1);
                let thrown =
                    self.dice
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                            Some(step(state))
                        });
                let thrown = thrown.unwrap_or_else(|state| state);
                (thrown >> 33) % 100 < force.percent
            }
        })
    }
}

impl std::fmt::Debug for BlockIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockIo({:?})", self.options)
    }
}

/// For errors about a block.
pub(crate) fn address(pointer: &BlockPointer) -> BlockAddress {
    BlockAddress::of(pointer)
}
