//! The last stage of writing: what was placed goes to the devices, as one batch.
//!
//! # Invariants
//! - Writes that are under way are waited for before the space they go to is given back.

use crate::error::WriteError;
use crate::io::BlockIo;
use crate::shapes::VdevShapes;
use std::sync::Arc;
use tarn_host::JoinHandle;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::Dva;
use tarn_ondisk::units::{PhysicalSize, Txg};
use tarn_probe::{Operation, Stage};
use tarn_space::Allocation;
use tarn_vdev::{PhysicalWrite, VdevWriteError};

/// Where the time of a device write goes.
const DEVICE_STAGES: [Stage; 3] = [Stage::DeviceQueue, Stage::Device, Stage::Transform];

/// How a device write ended, and how long it took, by stage, in nanoseconds.
type TimedOutcome = (Result<(), VdevWriteError>, [u64; 3]);

/// Device writes that another thread waits for, if there are any.
#[derive(Default)]
pub(super) struct Underway(Option<JoinHandle<TimedOutcome>>);

impl Underway {
    /// Waits for the writes.
    ///
    /// # Errors
    /// Devices failed beyond what redundancy covers.
    pub(super) fn finish(&mut self, operation: &Operation) -> Result<(), WriteError> {
        let Some(handle) = self.0.take() else {
            return Ok(());
        };
        let (outcome, times) = handle.join().unwrap_or_else(|panicked| panicked.resume());
        for (stage, nanoseconds) in DEVICE_STAGES.into_iter().zip(times) {
            operation.add(stage, nanoseconds);
        }
        Ok(outcome?)
    }
}

/// Device writes being gathered, and the space taken for them.
pub(crate) struct Batch {
    /// The txg in which the blocks get their places.
    birth: Txg,
    pub(crate) writes: Vec<PhysicalWrite>,
    pub(crate) taken: Vec<Allocation>,
}

impl Batch {
    /// Nothing yet, for blocks that get their places in this txg.
    pub(crate) fn new(birth: Txg) -> Batch {
        Batch {
            birth,
            writes: Vec::new(),
            taken: Vec::new(),
        }
    }

    /// Adds one block, in all its places, padded to whole sectors of their vdevs.
    pub(crate) fn push(
        &mut self,
        shapes: &VdevShapes,
        dvas: &[Dva],
        size: PhysicalSize,
        data: Arc<Buffer>,
    ) {
        assert!(!dvas.is_empty(), "a stored block has a place");
        assert!(PhysicalSize::of(&data) <= size, "its bytes fit");
        for &dva in dvas {
            let place = shapes
                .place(dva, size, self.birth)
                .expect("space hands out places on vdevs that are there");
            let whole = PhysicalSize::new(place.size).to_usize();
            let data = if data.len() == whole {
                data.clone()
            } else {
                let mut padded = Buffer::from_slice(&data);
                padded.resize(whole);
                Arc::new(padded)
            };
            self.writes.push(PhysicalWrite { place, data });
        }
    }
}

impl BlockIo {
    /// Has the devices write while the caller goes on.
    pub(super) fn begin_write(
        &self,
        writes: Vec<PhysicalWrite>,
        operation: &Operation,
    ) -> Underway {
        let vdevs = self.vdevs.clone();
        let (clock, kind) = (operation.clock(), operation.what().kind);
        Underway(Some(self.host.spawn_background(
            "tarn-block-write",
            move || {
                let operation = Operation::internal(clock, kind);
                let outcome = vdevs.write(writes, &operation);
                let times = DEVICE_STAGES.map(|stage| operation.stage_ns(stage));
                (outcome, times)
            },
        )))
    }
}
