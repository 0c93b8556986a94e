//! The facts about top-level vdevs that the pipelines need for every block: [`VdevShapes`].
//!
//! # Mechanism
//! The facts are gathered once, when vdevs come, go or change, and shared by all blocks until then.
//! Asking the device tree for each block would take its locks.

use std::collections::BTreeMap;
use tarn_ondisk::block_pointer::Dva;
use tarn_ondisk::units::{AllocatedSize, PhysicalSize, Txg, VdevId};
use tarn_space::Allocation;
use tarn_vdev::{Place, VdevTree};

/// The facts about top-level vdevs that the pipelines need for every block.
#[derive(Debug, Default)]
pub(crate) struct VdevShapes {
    /// The sector of each, in bytes.
    sector_bytes: BTreeMap<VdevId, u64>,
    /// What a sector allocated there counts, in bytes.
    deflate_ratios: BTreeMap<VdevId, u64>,
    /// How much room each has.
    pub(crate) room_bytes: BTreeMap<VdevId, u64>,
    /// The smallest sector of those that hold ordinary blocks. What is stored is a multiple of it.
    pub(crate) allocation_min: u64,
    /// What so much takes at worst, as its owner is charged: see [`worst`](crate::worst).
    pub(crate) piece_worst: u64,
}

impl VdevShapes {
    pub(crate) fn of(vdevs: &VdevTree) -> VdevShapes {
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
        assert!(
            shapes.allocation_min.is_power_of_two(),
            "sectors are powers of two"
        );
        assert!(
            shapes.piece_worst >= shapes.allocation_min,
            "a piece takes at least its size"
        );
        shapes
    }

    /// What an allocation counts for its owner: without the parity that every block there has.
    pub(crate) fn deflated(&self, dva: Dva) -> AllocatedSize {
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

/// A place as a pointer names it.
pub(crate) fn dva_of(place: &Allocation) -> Dva {
    Dva::new(place.vdev, place.offset, place.size)
}
