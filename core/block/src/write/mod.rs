//! Writing blocks, in batches.
//!
//! # Mechanism
//! A batch passes five stages:
//!
//! 1. *compress* ([`mod@compress`]): zeros become a hole, what gets small enough goes into its
//!    pointer, the rest is padded to whole sectors.
//! 2. *seal* ([`seal`]): the bytes that will be stored get their checksum. Blocks of encrypted
//!    datasets arrive encrypted; encrypting here is planned.
//! 3. *claim* ([`claim`]): a block whose bytes are stored already is not written again.
//! 4. *place* ([`mod@place`]): the others get their places, and then their pointers.
//! 5. *write* ([`devices`]): everything that was placed is one batch of the devices.
//!
//! Compressing and sealing run on all processors, block by block; claiming and placing go in order,
//! so that neighbours in the batch become neighbours on disk. The pointers come back in the order
//! of the requests.
//!
//! A batch that is too large to be held twice goes through in chunks; while the devices write one
//! chunk, the next is compressed, sealed and placed.
//!
//! What the slot held before is not freed here: the owner of the slot knows whether a snapshot
//! needs it. A block rewritten in place has the births and places it had
//! ([`BlockPointer::is_same_block`]).
//!
//! # Invariants
//! - Nothing is rewritten in place but what was born in this txg, from the second pass on.
//! - A pointer verifies the bytes that are written in its places.
//! - If anything fails, no pointer is given out, and all space taken for the batch is given back.
//!
//! # After a crash
//! What was written is in space that the newest uberblock calls free.

mod claim;
mod compress;
pub(crate) mod devices;
mod gang;
pub(crate) mod place;
pub(crate) mod request;
pub(crate) mod seal;

use crate::error::WriteError;
use crate::io::{BlockIo, WritePhase};
use devices::{Batch, Underway};
use request::{Slot, WriteRequest};
use seal::Sealed;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_probe::{Operation, Stage};
use tarn_space::{Allocation, NoSpace};

/// How many bytes are compressed and held at once. A guess: large enough to keep devices and
/// processors busy, small beside the data of a txg.
const CHUNK_BYTES: usize = 32 << 20;

impl BlockIo {
    /// Writes blocks, and gives back their pointers in the same order.
    ///
    /// # Panics
    /// When a request's data is not as long as it says, or not whole sectors.
    ///
    /// # Errors
    /// No room, or a device failed beyond redundancy. No pointer leads to what was written before.
    pub fn write(
        &self,
        requests: Vec<WriteRequest>,
        phase: WritePhase,
        operation: &Operation,
    ) -> Result<Vec<BlockPointer>, WriteError> {
        let count = requests.len();
        let mut pointers = Vec::with_capacity(count);
        let mut taken = Vec::new();
        let outcome = self.write_chunks(requests, phase, &mut pointers, &mut taken, operation);
        if let Err(error) = outcome {
            self.space.undo(&taken, phase.txg);
            return Err(error);
        }
        assert_eq!(pointers.len(), count, "each request has its pointer");
        Ok(pointers)
    }

    /// Prepares one chunk while the devices write the one before. All space that is allocated is
    /// in `taken`, also when this fails.
    fn write_chunks(
        &self,
        requests: Vec<WriteRequest>,
        phase: WritePhase,
        pointers: &mut Vec<BlockPointer>,
        taken: &mut Vec<Allocation>,
        operation: &Operation,
    ) -> Result<(), WriteError> {
        let mut chunks = chunks(requests).into_iter().peekable();
        let mut earlier = Underway::default();
        while let Some(chunk) = chunks.next() {
            let mut batch = Batch::new(phase.txg);
            let placed = self.prepare(chunk, phase, &mut batch, pointers, operation);
            taken.append(&mut batch.taken);
            earlier.finish(operation)?;
            placed?;
            if batch.writes.is_empty() {
                continue;
            }
            if chunks.peek().is_none() {
                self.vdevs.write(batch.writes, operation)?;
            } else {
                earlier = self.begin_write(batch.writes, operation);
            }
        }
        earlier.finish(operation)
    }

    /// The stages before the devices, for one chunk: compress, seal, claim, place. What is to be
    /// written is in `batch`, and so is the space that was allocated, also when this fails.
    ///
    /// # Errors
    /// No room.
    pub(crate) fn prepare(
        &self,
        requests: Vec<WriteRequest>,
        phase: WritePhase,
        batch: &mut Batch,
        pointers: &mut Vec<BlockPointer>,
        operation: &Operation,
    ) -> Result<(), NoSpace> {
        let shapes = self.shapes();
        let sealed = {
            let _timer = operation.stage(Stage::Transform);
            self.host.compute().map(requests, |request| {
                let compressed = self.compress(&request, phase, shapes.allocation_min);
                let sealed = self.seal(&request, compressed);
                (Slot::of(request, phase), sealed)
            })
        };
        for (slot, sealed) in sealed {
            self.probes.writes.increment();
            self.probes.logical_bytes.add(slot.logical_size.get());
            let contents = match sealed {
                Sealed::InPointer(pointer) => {
                    self.probes.in_pointer.increment();
                    pointers.push(pointer);
                    continue;
                }
                Sealed::Stored(contents) => contents,
            };
            let pointer = match self.claim(&slot, &contents, phase) {
                Some(claimed) => claimed,
                None => self.place(&slot, contents, phase, &shapes, batch, operation)?,
            };
            debug_assert!(
                self.deflated_size(&pointer).get()
                    <= self.worst_size(&slot.policy, slot.logical_size.get()),
                "room is promised by the worst case"
            );
            pointers.push(pointer);
        }
        Ok(())
    }
}

/// Cuts a batch to what is worked on at once.
fn chunks(requests: Vec<WriteRequest>) -> Vec<Vec<WriteRequest>> {
    let mut all = Vec::new();
    let mut chunk = Vec::new();
    let mut bytes = 0;
    for request in requests {
        bytes += request.data.len();
        chunk.push(request);
        if bytes >= CHUNK_BYTES {
            all.push(std::mem::take(&mut chunk));
            bytes = 0;
        }
    }
    if !chunk.is_empty() {
        all.push(chunk);
    }
    all
}
