//! Self-healing: a copy that was found bad is written anew from one that verified.
//!
//! # Mechanism
//! The vdev heals what is bad within a copy: a side of a mirror, a column of a row. Here a whole
//! copy is bad, and is written from another. A failure is ignored: the next read finds the copy bad
//! again, and this read has its bytes.
//!
//! The importer of a pool passes verified blocks of intent logs that only some devices may have
//! ([`BlockIo::self_heal`]): all their places are read, and parts that are lacking are written.
//! That has to succeed.
//!
//! # Invariants
//! - Only bytes that verified are written, only where the pointer says they belong, and only in
//!   pools opened for writing.

use crate::error::{CopyFailure, SelfHealError};
use crate::gang;
use crate::io::{BlockIo, Repair};
use crate::stored::StoredPointer;
use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind};
use tarn_ondisk::units::{PhysicalSize, Txg};
use tarn_probe::Operation;
use tarn_vdev::PhysicalWrite;

impl BlockIo {
    /// Writes `good`, of this size and birth, to the places that failed. It may end in padding.
    pub(crate) fn self_heal_copies(
        &self,
        failures: &[CopyFailure],
        (size, birth): (PhysicalSize, Txg),
        good: &Buffer,
        operation: &Operation,
    ) {
        assert!(good.len() >= size.to_usize(), "a good copy is whole");
        if self.options.repair == Repair::Leave || !self.vdevs.may_self_heal() {
            return;
        }
        for failure in failures {
            if let Some(write) = self.write_of(failure.place, (size, birth), good) {
                self.vdevs.self_heal(write, operation);
            }
        }
    }

    /// Writes a block to every device in use that lacks its part of it, in all its places; gives
    /// how many parts were lacking and are written now. Durable after the next flush. A block
    /// without a checksum is left as it is: which of its copies is right is not known.
    ///
    /// # Errors
    /// The block cannot be read, or devices fail beyond what redundancy covers.
    pub fn self_heal(
        &self,
        pointer: &BlockPointer,
        operation: &Operation,
    ) -> Result<usize, SelfHealError> {
        if pointer.kind() != PointerKind::Stored || !StoredPointer::parse(pointer)?.is_checked() {
            return Ok(0);
        }
        let mut writes = Vec::new();
        for part in gang::parts(self, pointer, operation)? {
            let places = part.pointer.dvas();
            let form = (part.size, part.pointer.physical_birth());
            writes.extend(places.filter_map(|dva| self.write_of(dva, form, &part.bytes)));
        }
        Ok(self.vdevs.self_heal_lacking(writes, operation)?)
    }

    /// What stores bytes that may end in padding. None where no block can be: a pointer may lie.
    fn write_of(
        &self,
        dva: Dva,
        (size, birth): (PhysicalSize, Txg),
        bytes: &Buffer,
    ) -> Option<PhysicalWrite> {
        let place = self.shapes().place(dva, size, birth);
        let place = place.filter(|place| self.vdevs.is_place_possible(*place))?;
        let bytes = bytes.get(..size.to_usize()).unwrap_or(bytes);
        let mut data = Buffer::from_slice(bytes);
        data.resize(PhysicalSize::new(place.size).to_usize());
        Some(PhysicalWrite {
            place,
            data: Arc::new(data),
        })
    }
}
