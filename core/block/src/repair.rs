//! Writing a copy anew that was found bad, while a good one is at hand.
//!
//! # Mechanism
//! The vdev repairs what is bad within a copy: a side of a mirror, a column of a row. Here a whole
//! copy is bad, and is written from another. Nothing waits for the outcome: if it fails, the next
//! reader finds the copy bad again.
//!
//! # Invariants
//! - Only bytes that verified are written, only where the pointer says they belong, and only in pools
//!   opened for writing.

use crate::error::CopyFailure;
use crate::io::{BlockIo, Repair};
use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_ondisk::units::PhysicalSize;
use tarn_probe::Operation;
use tarn_vdev::PhysicalWrite;

impl BlockIo {
    /// Writes `good` to the places that failed. It may end in padding.
    pub(crate) fn repair(
        &self,
        failures: &[CopyFailure],
        size: PhysicalSize,
        good: &Buffer,
        operation: &Operation,
    ) {
        if self.options.repair == Repair::Leave {
            return;
        }
        let shapes = self.shapes();
        let bytes = good.get(..size.to_usize()).unwrap_or(good);
        for failure in failures {
            // A pointer may lie: where no block can be, none was.
            let place = shapes.place(failure.place, size);
            let Some(place) = place.filter(|place| self.vdevs.is_place_possible(*place)) else {
                continue;
            };
            let mut data = Buffer::from_slice(bytes);
            data.resize(PhysicalSize::new(place.size).to_usize());
            let write = PhysicalWrite {
                place,
                data: Arc::new(data),
            };
            // Who cannot be written is counted by the vdev; the reader has its bytes anyway.
            let _ = self.vdevs.write(vec![write], operation);
        }
    }
}
