//! What the pipelines share: [`BlockIo`].

use crate::error::BlockAddress;
use crate::probes::Probes;
use crate::ranks;
use crate::ref_table::RefTable;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tarn_host::Host;
use tarn_host::lock::{Mutex, RwLock};
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::units::{AllocatedSize, PhysicalSize, Txg, VdevId};
use tarn_probe::Operation;
use tarn_space::Space;
use tarn_transform::Salt;
use tarn_vdev::{Place, VdevTree};

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
    /// Bytes that logs may still take before it is looked how much room there is.
    pub(crate) log_allowance: AtomicU64,
    /// The newest group that is stored: blocks of later ones may be written again where they are.
    stored: AtomicU64,
    /// When that was, in nanoseconds of the host's clock, and when the group before it was stored. Zero if that was not said.
    stored_ns: AtomicU64,
    stored_before_ns: AtomicU64,
    /// Blocks that a test wants split.
    force_ganging: OnceLock<ForceGanging>,
    /// State of the dice for that.
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

/// What the pipelines need to know of the top-level vdevs at every block.
#[derive(Debug, Default)]
pub(crate) struct VdevShapes {
    sector_bytes: BTreeMap<VdevId, u64>,
    /// What a sector allocated there counts, in bytes.
    deflate_ratios: BTreeMap<VdevId, u64>,
    /// How much room each has.
    room_bytes: BTreeMap<VdevId, u64>,
    /// The smallest sector of those that hold ordinary blocks. What is stored is a multiple of it.
    pub(crate) allocation_min: u64,
    /// What so much takes at worst, as its owner is charged: see [`worst`](crate::worst).
    pub(crate) piece_worst: u64,
}

impl VdevShapes {
    fn of(vdevs: &VdevTree) -> VdevShapes {
        let top_levels = vdevs.top_levels();
        let sector_bytes: BTreeMap<VdevId, u64> = top_levels
            .iter()
            .map(|vdev| (vdev.id, 1_u64 << vdev.ashift))
            .collect();
        // A hole has no sectors.
        let ordinary = top_levels
            .iter()
            .filter(|vdev| !vdev.is_log && vdev.ashift != 0);
        let ordinary: Vec<VdevId> = ordinary.map(|vdev| vdev.id).collect();
        let sectors = ordinary.iter().map(|vdev| sector_bytes[vdev]);
        let mut shapes = VdevShapes {
            allocation_min: sectors
                .min()
                .unwrap_or(tarn_ondisk::block_pointer::SECTOR_BYTES),
            sector_bytes,
            room_bytes: top_levels
                .iter()
                .map(|vdev| (vdev.id, vdev.asize.get()))
                .collect(),
            deflate_ratios: top_levels
                .iter()
                .map(|vdev| (vdev.id, vdev.deflate_ratio))
                .collect(),
            piece_worst: 0,
        };
        let piece_on = |vdev, size| vdevs.find_allocated_size(vdev, size).unwrap_or_default();
        shapes.piece_worst = shapes.find_piece_worst(&ordinary, piece_on);
        shapes
    }

    /// What an allocation counts for its owner: without the parity that every block there has.
    fn deflated(&self, dva: Dva) -> AllocatedSize {
        self.deflated_on(dva.vdev(), dva.allocated_size())
    }

    /// What so much of a vdev counts.
    pub(crate) fn deflated_on(&self, vdev: VdevId, size: AllocatedSize) -> AllocatedSize {
        let ratio = self.deflate_ratios.get(&vdev).copied().unwrap_or(0);
        AllocatedSize::new(size.sectors().saturating_mul(ratio))
    }

    /// The place of `size` bytes that were placed in the txg `birth`, made whole sectors of that
    /// vdev. `None` if there is no such vdev.
    pub(crate) fn place(&self, dva: Dva, size: PhysicalSize, birth: Txg) -> Option<Place> {
        let sector = *self.sector_bytes.get(&dva.vdev())?;
        Some(Place {
            vdev: dva.vdev(),
            offset: dva.offset(),
            size: size.get().checked_next_multiple_of(sector)?,
            birth,
        })
    }
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

    /// For tests of pools that are open: from now on blocks are split though there is room. Once: later calls change nothing.
    pub fn force_ganging(&self, force: ForceGanging) {
        if self.force_ganging.set(force).is_ok() {
            self.dice.store(force.seed | 1, Ordering::Relaxed);
        }
    }

    /// Says what salted checksums are mixed with. Once: later calls change nothing.
    pub fn set_salt(&self, salt: Salt) {
        let _ = self.salt.set(salt);
    }

    /// Says which group is the newest that is stored. Until it is said for the first time all are. To be said by one thread, and before space that the
    /// group makes free is given out.
    pub fn note_stored(&self, txg: Txg) {
        let now_ns = self.host.monotonic_ns();
        let before = self.stored_ns.swap(now_ns, Ordering::AcqRel);
        self.stored_before_ns.store(before, Ordering::Release);
        self.stored.store(txg.get(), Ordering::Release);
    }

    /// Whether a block is where its pointer says, and stays there as it is. If not, other bytes in its places are no fault of a device, and must not be
    /// replaced by those of the block:
    ///
    /// - A block of a group that is being stored may be written again where it is, while somebody reads it who was led to it before.
    /// - A block that somebody looked up long ago may have been freed, and its places been given to another one. That takes three groups at
    ///   least: the one that frees it, and two until what it frees is given out (`TXG_DEFER_SIZE`). Here no more than one is allowed, for
    ///   a repair takes time as well.
    pub(crate) fn is_settled(&self, pointer: &BlockPointer, operation: &Operation) -> bool {
        let is_stored = pointer.physical_birth().get() <= self.stored.load(Ordering::Acquire);
        let stored_before_ns = self.stored_before_ns.load(Ordering::Acquire);
        is_stored && (stored_before_ns == 0 || operation.looked_up_ns() > stored_before_ns)
    }

    /// A top-level vdev came or went, or changed its sector size.
    pub fn vdevs_changed(&self) {
        let shapes = Arc::new(VdevShapes::of(&self.vdevs));
        *self.shapes.write() = shapes;
    }

    /// What a block counts for whoever has it, in all its places: what it takes, less the parity that every block
    /// on such a vdev takes. Nothing for a hole or an embedded block.
    #[doc(alias = "bp_get_dsize")]
    pub fn deflated_size(&self, pointer: &BlockPointer) -> AllocatedSize {
        let shapes = self.shapes();
        let sizes = pointer.dvas().map(|dva| shapes.deflated(dva));
        sizes.fold(AllocatedSize::ZERO, AllocatedSize::saturating_add)
    }

    /// What was freed in the normal class, and may not be used again before more groups are stored.
    #[doc(alias = "metaslab_class_get_deferred")]
    pub fn deferred_size(&self) -> AllocatedSize {
        self.space.class_totals(tarn_space::Class::Normal).deferred
    }

    /// Whether blocks can be given further references.
    pub fn shares_blocks(&self) -> bool {
        let table = self.ref_table.as_ref();
        table.is_some_and(|table| table.is_enabled())
    }

    /// Gives a block one more reference, as part of a group that is not being stored yet: as often it has to be
    /// [freed](BlockIo::free). It waits for nothing.
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
