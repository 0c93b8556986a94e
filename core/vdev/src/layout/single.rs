//! A top-level vdev that is one device: it has one copy of each block, at the offset in the DVA.

use super::{Layout, Row};
use crate::health::Standing;
use crate::place::Place;
use tarn_ondisk::units::AllocatedSize;

/// The layout of one device.
#[derive(Debug)]
pub(super) struct Single {
    ashift: u32,
    children: [Vec<usize>; 1],
}

impl Single {
    pub(super) fn new(ashift: u32, leaf: usize) -> Single {
        Single {
            ashift,
            children: [vec![leaf]],
        }
    }
}

impl Layout for Single {
    fn rows(&self, place: &Place) -> Vec<Row> {
        vec![Row::of_copies(place)]
    }

    fn allocated_size(&self, physical_bytes: u64) -> AllocatedSize {
        AllocatedSize::from(physical_bytes).round_up(1 << self.ashift)
    }

    fn children(&self) -> &[Vec<usize>] {
        &self.children
    }

    fn parity(&self) -> usize {
        0
    }

    fn standing(&self, leaves: &[Standing]) -> Standing {
        leaves[self.children[0][0]]
    }

    fn has_prefixes(&self) -> bool {
        true
    }
}
