//! The first stage of reading: bytes of a block that verify, from whichever copy has them.
//!
//! # Mechanism
//! The copies are tried one after the other, those on healthy vdevs first; within a copy, the vdev
//! tries every device and every reconstruction. Each attempt ends with the pointer's checksum, so
//! a device is never believed. A copy that failed while another is good is self-healed: written
//! anew from the good one. When all copies failed, all are tried once more: a device counts two
//! errors for a block that cannot be read, as in OpenZFS.
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
use tarn_probe::{Operation, OperationKind, Outcome};
use tarn_vdev::{ReadRequest, VdevState};

/// What is read of a pointer's places, and what becomes of places that have it wrong.
struct Attempt<'a> {
    pointer: &'a BlockPointer,
    size: PhysicalSize,
    is_settled: &'a (dyn Fn() -> bool + Sync),
    noted: Option<&'a AtomicBool>,
    verify: Verify<'a>,
}

impl BlockIo {
    /// The bytes of a stored block that verify, perhaps with padding behind them. `tried` is a copy
    /// that was read in vain just now.
    ///
    /// # Errors
    /// No copy verifies.
    pub(crate) fn fetch(
        &self,
        stored: &StoredPointer<'_>,
        tried: Option<CopyFailure>,
        operation: &Operation,
    ) -> Result<Buffer, ReadError> {
        self.probes.reads.increment();
        let bytes = if stored.pointer.is_gang() {
            gang::read(self, stored, operation)?
        } else {
            let size = stored.pointer.physical_size();
            let verify = |bytes: &[u8]| stored.verifies(bytes, self.salt());
            let first = tried.into_iter().collect();
            self.read_copies_after(
                stored.pointer,
                size,
                first,
                operation,
                Faults::Heal,
                &verify,
            )?
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
        self.read_copies_after(pointer, size, Vec::new(), operation, faults, verify)
    }

    /// The same, after some copies failed.
    #[doc(alias = "ZIO_FLAG_IO_RETRY")]
    fn read_copies_after(
        &self,
        pointer: &BlockPointer,
        size: PhysicalSize,
        tried: Vec<CopyFailure>,
        operation: &Operation,
        faults: Faults<'_>,
        verify: Verify<'_>,
    ) -> Result<Buffer, ReadError> {
        let unnoted = AtomicBool::new(false);
        let (blames, noted) = match faults {
            Faults::Heal => (true, None),
            Faults::Note(noted) => (false, Some(noted)),
            Faults::Blame => (true, Some(&unnoted)),
        };
        let attempt = Attempt {
            pointer,
            size,
            is_settled: &|| blames && self.is_settled(pointer, operation),
            noted,
            verify,
        };
        let mut found = self.try_copies(&attempt, tried, operation);
        // The end of an intent log is a block that was never written.
        let is_search = operation.what().kind == OperationKind::LogSearch;
        if found.is_err() && !is_search && (attempt.is_settled)() {
            found = self.try_copies(&attempt, Vec::new(), operation);
        }
        found.map_err(|copies| {
            self.probes.unreadable.increment();
            ReadError::Unreadable {
                block: address(pointer),
                copies,
            }
        })
    }

    /// Tries the copies that are not among the failed ones.
    fn try_copies(
        &self,
        attempt: &Attempt<'_>,
        mut failures: Vec<CopyFailure>,
        operation: &Operation,
    ) -> Result<Buffer, Vec<CopyFailure>> {
        let Attempt { pointer, size, .. } = *attempt;
        let shapes = self.shapes();
        for dva in self.copies_by_health(pointer) {
            if failures.iter().any(|failed| failed.place == dva) {
                continue;
            }
            let request = |place| ReadRequest {
                place,
                verify: attempt.verify,
                is_settled: attempt.is_settled,
                noted: attempt.noted,
            };
            let read = match shapes.place(dva, size, pointer.physical_birth()) {
                Some(place) => self
                    .vdevs
                    .read_many(&[request(place)], operation)
                    .pop()
                    .expect("one request has one result")
                    .map_err(CopyFailureReason::Vdev),
                None => Err(CopyFailureReason::NoSuchPlace),
            };
            match read {
                Ok(bytes) => {
                    if !failures.is_empty()
                        && let Some(noted) = attempt.noted
                    {
                        noted.store(true, Ordering::Relaxed);
                    } else if !failures.is_empty() && (attempt.is_settled)() {
                        let count = u64::try_from(failures.len()).expect("three at most");
                        self.probes.bad_copies.add(count);
                        operation.mark(Outcome::Repaired);
                        debug_assert!((attempt.verify)(&bytes), "only right bytes heal others");
                        let form = (size, pointer.physical_birth());
                        self.self_heal_copies(&failures, form, &bytes, operation);
                    }
                    return Ok(bytes);
                }
                Err(why) => failures.push(CopyFailure { place: dva, why }),
            }
        }
        Err(failures)
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
