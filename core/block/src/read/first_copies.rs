//! The first stage of reading, for a batch: all first copies as one batch of the devices.
//!
//! # Mechanism
//! A block that is not had this way (a gang, a block on a vdev that is not there, a first copy
//! that does not verify) is read alone afterwards, by [`BlockIo::fetch`], which goes on behind the
//! first copy.

use crate::error::{CopyFailure, CopyFailureReason};
use crate::io::BlockIo;
use crate::read::request::ReadRequest;
use crate::stored::StoredPointer;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{Dva, PointerKind};
use tarn_probe::Operation;
use tarn_vdev::Place;

/// A pointer that was checked, and the bytes of the first copy if they verify, perhaps with padding
/// behind them.
type Fetched<'a> = (StoredPointer<'a>, Result<Buffer, CopyFailure>);

impl BlockIo {
    /// What first copies gave, in the order of the batch: `None` for blocks whose first copies are
    /// not read like this.
    pub(super) fn fetch_first_copies<'a>(
        &self,
        wanted: &'a [ReadRequest],
        operation: &Operation,
    ) -> Vec<Option<Fetched<'a>>> {
        let shapes = self.shapes();
        let planned: Vec<Option<(StoredPointer<'a>, Dva, Place)>> = wanted
            .iter()
            .map(|ReadRequest { pointer, .. }| {
                if pointer.kind() != PointerKind::Stored || pointer.is_gang() {
                    return None;
                }
                let stored = StoredPointer::parse(pointer).ok()?;
                let first = self.copies_by_health(pointer).into_iter().next()?;
                let (size, birth) = (pointer.physical_size(), pointer.physical_birth());
                let place = shapes.place(first, size, birth)?;
                Some((stored, first, place))
            })
            .collect();
        let salt = self.salt();
        let verifies: Vec<_> = planned
            .iter()
            .flatten()
            .map(|(stored, ..)| move |bytes: &[u8]| stored.verifies(bytes, salt))
            .collect();
        let settled: Vec<_> = planned
            .iter()
            .flatten()
            .map(|(stored, ..)| move || self.is_settled(stored.pointer, operation))
            .collect();
        let requests: Vec<tarn_vdev::ReadRequest<'_>> = planned
            .iter()
            .flatten()
            .zip(&verifies)
            .zip(&settled)
            .map(
                |(((_, _, place), verify), is_settled)| tarn_vdev::ReadRequest {
                    place: *place,
                    verify,
                    is_settled,
                    noted: None,
                },
            )
            .collect();
        if requests.is_empty() {
            return wanted.iter().map(|_| None).collect();
        }
        let answers = self.vdevs.read_many(&requests, operation);
        assert_eq!(answers.len(), requests.len(), "each request has its answer");
        let mut answers = answers.into_iter();
        drop((verifies, settled));
        planned
            .into_iter()
            .zip(wanted)
            .map(|(plan, request)| {
                let (stored, place, _) = plan?;
                let answer = answers.next().expect("each request has its answer");
                if answer.is_ok() {
                    self.probes.reads.increment();
                    self.count_read(request.scope);
                }
                let why = |error| CopyFailure {
                    place,
                    why: CopyFailureReason::Vdev(error),
                };
                Some((stored, answer.map_err(why)))
            })
            .collect()
    }
}
