//! The first stage of reading: bytes of a block that verify, from whichever copy has them.
//!
//! # Mechanism
//! The copies are tried one after the other, those on healthy vdevs first; within a copy, the vdev
//! tries every device and every reconstruction. Each attempt ends with the pointer's checksum, so
//! a device is never believed. A copy that failed while another is good is self-healed: written
//! anew from the good one.
//!
//! # Invariants
//! - A block of a txg that is not stored yet is never self-healed, for it may be in the midst of
//!   being written again. Nor is one that was looked up long ago: its places may belong to another
//!   block by now.

use crate::error::{CopyFailure, CopyFailureReason, ReadError};
use crate::faults::{Faults, Verify};
use crate::gang;
use crate::io::{BlockIo, address};
use crate::stored::StoredPointer;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::units::PhysicalSize;
use tarn_probe::{Operation, Outcome};
use tarn_vdev::{ReadRequest, VdevState};

impl BlockIo {
    /// The bytes of a stored block that verify, perhaps with padding behind them.
    ///
    /// # Errors
    /// No copy verifies.
    pub(crate) fn fetch(
        &self,
        stored: &StoredPointer<'_>,
        operation: &Operation,
    ) -> Result<Buffer, ReadError> {
        operation.mark(Outcome::Disk);
        self.probes.reads.increment();
        let bytes = if stored.pointer.is_gang() {
            gang::read(self, stored, operation)?
        } else {
            let size = stored.pointer.physical_size();
            let verify = |bytes: &[u8]| stored.verifies(bytes, self.salt());
            self.read_copies(stored.pointer, size, operation, Faults::Heal, &verify)?
        };
        debug_assert!(
            stored.verifies(&bytes, self.salt()),
            "only such bytes leave"
        );
        Ok(bytes)
    }

    /// `size` bytes from the first place of a pointer that has them right. `faults` decides what
    /// becomes of places that did not.
    ///
    /// # Errors
    /// No place has them, with one failure for each.
    pub(crate) fn read_copies(
        &self,
        pointer: &BlockPointer,
        size: PhysicalSize,
        operation: &Operation,
        faults: Faults<'_>,
        verify: Verify<'_>,
    ) -> Result<Buffer, ReadError> {
        let shapes = self.shapes();
        let unnoted = AtomicBool::new(false);
        let (blames, noted) = match faults {
            Faults::Heal => (true, None),
            Faults::Note(noted) => (false, Some(noted)),
            Faults::Blame => (true, Some(&unnoted)),
        };
        let is_settled = || blames && self.is_settled(pointer, operation);
        let mut failures = Vec::new();
        for dva in self.copies_by_health(pointer) {
            let request = |place| ReadRequest {
                place,
                verify,
                is_settled: &is_settled,
                noted,
            };
            let attempt = match shapes.place(dva, size, pointer.physical_birth()) {
                Some(place) => self
                    .vdevs
                    .read_many(&[request(place)], operation)
                    .pop()
                    .expect("one request has one result")
                    .map_err(CopyFailureReason::Vdev),
                None => Err(CopyFailureReason::NoSuchPlace),
            };
            match attempt {
                Ok(bytes) => {
                    if !failures.is_empty()
                        && let Some(noted) = noted
                    {
                        noted.store(true, Ordering::Relaxed);
                    } else if !failures.is_empty() && is_settled() {
                        let count = u64::try_from(failures.len()).expect("three at most");
                        self.probes.bad_copies.add(count);
                        operation.mark(Outcome::Repaired);
                        debug_assert!(verify(&bytes), "only right bytes heal others");
                        let form = (size, pointer.physical_birth());
                        self.self_heal_copies(&failures, form, &bytes, operation);
                    }
                    return Ok(bytes);
                }
                Err(why) => failures.push(CopyFailure { place: dva, why }),
            }
        }
        self.probes.unreadable.increment();
        Err(ReadError::Unreadable {
            block: address(pointer),
            copies: failures,
        })
    }

    /// The places of a block, those on healthy vdevs first.
    pub(crate) fn copies_by_health(&self, pointer: &BlockPointer) -> Vec<Dva> {
        let mut copies: Vec<Dva> = pointer.dvas().collect();
        if copies.len() > 1 {
            copies.sort_by_key(|dva| match self.vdevs.top_standing(dva.vdev()).state {
                VdevState::Online => 0,
                state if state.is_usable() => 1,
                _ => 2,
            });
        }
        copies
    }
}
