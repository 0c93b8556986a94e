//! Scrub and resilver of blocks: each copy is read, compared and repaired by itself.
//!
//! # Problem
//! A read is content with the first copy that verifies. A scrub has to read all of them, in the
//! order of their places on the devices, and while the pool is written: a block may be freed
//! between the walk that found it and the read, and its place may get another block.
//!
//! # Mechanism
//! The walk puts each copy of a block into the [`ScanQueue`], which sorts by place. Threads take
//! runs of neighbours out and hand them to [`BlockIo::scan`]: all copies of a run are one batch of
//! the devices. A copy of which no bytes verify is written anew from another copy; if none
//! verifies, the block is damaged.
//!
//! The headers and pieces of a gang are parts of one block: they are read together, and each of
//! their places is then compared with what it should have.
//!
//! # Invariants
//! - What is scanned is held in the queue: its place is not allocated anew before the scan of it
//!   has ended ([`ScanQueue::wait_for_older`]). So a repair never overwrites a newer block.

pub mod queue;

use crate::error::{CopyFailure, CopyFailureReason, ReadError};
use crate::gang;
use crate::io::{BlockIo, address};
use crate::stored::StoredPointer;
use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind};
use tarn_ondisk::units::{Guid, PhysicalSize, Txg};
use tarn_probe::Operation;
use tarn_vdev::{PhysicalWrite, Place, ScanPurpose, ScanRequest};

pub use queue::{ScanItem, ScanQueue};

/// The result of scanning one copy.
#[derive(Debug, Default)]
pub struct ScanOutcome {
    /// Why the block cannot be read from any copy, if so.
    pub error: Option<ReadError>,
    /// Bytes that were written to devices.
    pub repaired_bytes: u64,
    /// Devices that could not be written, each with the birth that it lacks.
    pub lacking: Vec<(Guid, Txg)>,
}

/// A copy of a block that is not a gang.
struct Single<'a> {
    stored: StoredPointer<'a>,
    dva: Dva,
    place: Place,
}

impl BlockIo {
    /// Scans copies of blocks, as one batch of the devices. One outcome each, in their order. The
    /// caller holds their places, by having taken them from the queue.
    pub fn scan(
        &self,
        items: &[ScanItem],
        purpose: ScanPurpose,
        operation: &Operation,
    ) -> Vec<ScanOutcome> {
        let singles: Vec<Option<Single<'_>>> = items.iter().map(|item| self.single(item)).collect();
        let salt = self.salt();
        let verifies: Vec<_> = singles
            .iter()
            .flatten()
            .map(|single| move |bytes: &[u8]| single.stored.verifies(bytes, salt))
            .collect();
        let settled: Vec<_> = singles
            .iter()
            .flatten()
            .map(|single| move || self.is_stored(single.stored.pointer))
            .collect();
        let requests: Vec<ScanRequest<'_>> = singles
            .iter()
            .flatten()
            .zip(&verifies)
            .zip(&settled)
            .map(|((single, verify), is_settled)| ScanRequest {
                place: single.place,
                verify,
                is_settled,
            })
            .collect();
        let scanned = self.vdevs.scan_many(&requests, purpose, operation);
        assert_eq!(scanned.len(), requests.len(), "each copy is scanned once");
        self.probes
            .reads
            .add(u64::try_from(requests.len()).unwrap_or(u64::MAX));
        let mut scanned = scanned.into_iter();
        let scanned: Vec<Option<tarn_vdev::Scanned>> = singles
            .iter()
            .map(|single| single.as_ref().and_then(|_| scanned.next()))
            .collect();
        items
            .iter()
            .zip(&singles)
            .zip(scanned)
            .map(|((item, single), scanned)| match (single, scanned) {
                (Some(single), Some(scanned)) => self.outcome(single, scanned, operation),
                _ => self.scan_alone(item, purpose, operation),
            })
            .collect()
    }

    /// A copy that is scanned in a batch: not one of a gang, nor of a pointer that makes no sense.
    fn single<'a>(&self, item: &'a ScanItem) -> Option<Single<'a>> {
        let pointer = &item.pointer;
        if pointer.kind() != PointerKind::Stored || pointer.is_gang() {
            return None;
        }
        let stored = StoredPointer::parse(pointer).ok()?;
        let dva = pointer.dvas().nth(item.copy)?;
        let (size, birth) = (pointer.physical_size(), pointer.physical_birth());
        let place = self.shapes().place(dva, size, birth)?;
        Some(Single { stored, dva, place })
    }

    /// Whether a block is stored and so not written again. Its place is held by the scan.
    fn is_stored(&self, pointer: &BlockPointer) -> bool {
        pointer.physical_birth() <= self.newest_stored()
    }

    fn outcome(
        &self,
        single: &Single<'_>,
        scanned: tarn_vdev::Scanned,
        operation: &Operation,
    ) -> ScanOutcome {
        let birth = single.place.birth;
        let lacking = scanned.lacking.into_iter().map(|guid| (guid, birth));
        let outcome = ScanOutcome {
            error: None,
            repaired_bytes: scanned.repaired_bytes,
            lacking: lacking.collect(),
        };
        match scanned.error {
            None => outcome,
            Some(why) => self.repair_from_others(single, why, outcome, operation),
        }
    }

    /// Writes a copy of which no bytes verify from another that does.
    fn repair_from_others(
        &self,
        single: &Single<'_>,
        why: tarn_vdev::VdevReadError,
        outcome: ScanOutcome,
        operation: &Operation,
    ) -> ScanOutcome {
        let pointer = single.stored.pointer;
        let mut copies = vec![CopyFailure {
            place: single.dva,
            why: CopyFailureReason::Vdev(why),
        }];
        let verify = |bytes: &[u8]| single.stored.verifies(bytes, self.salt());
        let (size, birth) = (pointer.physical_size(), pointer.physical_birth());
        for dva in pointer.dvas().filter(|dva| *dva != single.dva) {
            let read = match self.shapes().place(dva, size, birth) {
                Some(place) => self
                    .vdevs
                    .read(place, &verify, operation)
                    .map_err(CopyFailureReason::Vdev),
                None => Err(CopyFailureReason::NoSuchPlace),
            };
            match read {
                Ok(bytes) => {
                    self.probes.bad_copies.add(1);
                    return self.write_copy(single.place, bytes, outcome, operation);
                }
                Err(why) => copies.push(CopyFailure { place: dva, why }),
            }
        }
        self.probes.unreadable.increment();
        ScanOutcome {
            error: Some(ReadError::Unreadable {
                block: address(pointer),
                copies,
            }),
            ..outcome
        }
    }

    fn write_copy(
        &self,
        place: Place,
        mut bytes: Buffer,
        mut outcome: ScanOutcome,
        operation: &Operation,
    ) -> ScanOutcome {
        bytes.resize(PhysicalSize::new(place.size).to_usize());
        assert!(!bytes.is_empty(), "a copy that is written has bytes");
        let data = Arc::new(bytes);
        self.vdevs
            .self_heal(PhysicalWrite { place, data }, operation);
        outcome.repaired_bytes += place.size;
        outcome
    }

    /// Scans a gang, or a copy at no possible place.
    fn scan_alone(
        &self,
        item: &ScanItem,
        purpose: ScanPurpose,
        operation: &Operation,
    ) -> ScanOutcome {
        let pointer = &item.pointer;
        let failed = |error| ScanOutcome {
            error: Some(error),
            ..ScanOutcome::default()
        };
        if pointer.kind() != PointerKind::Stored {
            return ScanOutcome::default();
        }
        let parts = match gang::parts(self, pointer, operation) {
            Ok(parts) => parts,
            Err(error) => return failed(error),
        };
        let mut outcome = ScanOutcome::default();
        for part in &parts {
            let size = part.size.to_usize();
            let right = part.bytes.get(..size);
            let verify = |bytes: &[u8]| bytes.get(..size) == right;
            let is_settled = || self.is_stored(pointer);
            let birth = part.pointer.physical_birth();
            let shapes = self.shapes();
            let places = part.pointer.dvas();
            let places: Vec<Place> = places
                .filter_map(|dva| shapes.place(dva, part.size, birth))
                .collect();
            let requests: Vec<ScanRequest<'_>> = places
                .iter()
                .map(|place| ScanRequest {
                    place: *place,
                    verify: &verify,
                    is_settled: &is_settled,
                })
                .collect();
            let scanned = self.vdevs.scan_many(&requests, purpose, operation);
            for (place, scanned) in places.into_iter().zip(scanned) {
                outcome.repaired_bytes += scanned.repaired_bytes;
                let lacking = scanned.lacking.into_iter().map(|guid| (guid, birth));
                outcome.lacking.extend(lacking);
                if scanned.error.is_some() {
                    // The part was read from another of its places.
                    let bytes = Buffer::from_slice(&part.bytes);
                    outcome = self.write_copy(place, bytes, outcome, operation);
                }
            }
        }
        outcome
    }
}
