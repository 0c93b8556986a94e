//! Reading a block by its pointer.
//!
//! # Mechanism
//! A pointer names up to three copies. They are tried one after the other, those on healthy vdevs
//! first; within a copy, the vdev tries every device and every reconstruction. Each attempt ends with the
//! pointer's checksum, so a device is never believed. A copy that failed while another is good is
//! written anew aside.
//!
//! # Invariants
//! - Nothing is given out that did not verify, except where the pointer says that there is no
//!   checksum.
//! - Nothing is allocated by a size that the disk gave before the size was checked.
//! - A block of a group that is not stored yet is never repaired, for it may be in the midst of being written again. Nor is one that was looked up long ago:
//!   its places may belong to another block by now.

use crate::data::Block;
use crate::embed;
use crate::error::{CopyFailure, CopyFailureReason, ReadError};
use crate::gang;
use crate::io::{BlockIo, address};
use crate::stored::StoredPointer;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind};
use tarn_ondisk::units::PhysicalSize;
use tarn_probe::{Operation, Outcome, Stage};
use tarn_space::Allocation;
use tarn_vdev::{Place, ReadRequest, VdevState};

/// How the contents of a block are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As they were before they were stored.
    Plain,
    /// As they are stored: compressed, perhaps encrypted.
    Stored,
}

/// What becomes of bytes that were not the right ones, while others were.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Faults<'a> {
    /// Whoever had them is blamed, and gets the right ones.
    Mend,
    /// They are left, and it is noted that they are there: perhaps they are right, and what they were compared with is wrong.
    Note(&'a AtomicBool),
    /// Whoever had them is blamed.
    Blame,
}

impl Faults<'_> {
    /// Something was wrong.
    pub(crate) fn note(self) {
        if let Faults::Note(noted) = self {
            noted.store(true, Ordering::Relaxed);
        }
    }
}

/// Says whether bytes are those that were wanted.
pub(crate) type Verify<'a> = &'a (dyn Fn(&[u8]) -> bool + Sync);

impl BlockIo {
    /// The contents of a block: its logical size in bytes. A hole gives zeros, of the size its
    /// pointer has; one that was never filled has none, and the caller knows better.
    ///
    /// # Errors
    /// No copy verified, with one failure for each; or the block is of a kind that cannot be read here.
    pub fn read(&self, pointer: &BlockPointer, operation: &Operation) -> Result<Block, ReadError> {
        match pointer.kind() {
            PointerKind::Hole => Ok(Block::zeroed(pointer.logical_size().to_usize())),
            PointerKind::Embedded => embed::read(pointer),
            PointerKind::Redacted => Err(ReadError::Redacted {
                block: address(pointer),
            }),
            PointerKind::Stored => {
                let stored = StoredPointer::parse(pointer)?;
                let bytes = self.read_stored(&stored, operation)?;
                let _timer = operation.stage(Stage::Transform);
                stored.expand(bytes).map(Block::new)
            }
        }
    }

    /// The contents of a block as they are stored: verified, but compressed and perhaps
    /// encrypted. For a hole or an embedded block, the plain contents.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_raw(
        &self,
        pointer: &BlockPointer,
        operation: &Operation,
    ) -> Result<Block, ReadError> {
        if pointer.kind() != PointerKind::Stored {
            return self.read(pointer, operation);
        }
        let stored = StoredPointer::parse(pointer)?;
        let mut bytes = self.read_stored(&stored, operation)?;
        bytes.truncate(stored.physical_bytes());
        Ok(Block::new(bytes))
    }

    /// Every place that a block takes: one for each copy; for a gang, those of its headers and pieces, which is why headers are
    /// read. None for what is not stored.
    pub fn places(
        &self,
        pointer: &BlockPointer,
        operation: &Operation,
    ) -> Result<Vec<Allocation>, ReadError> {
        if pointer.kind() != PointerKind::Stored {
            return Ok(Vec::new());
        }
        let places = gang::places(self, pointer, operation)?;
        Ok(places.into_iter().map(|(place, _)| place).collect())
    }

    /// Many blocks at once, each in the form in which it is wanted: plain, or as [`read_raw`](Self::read_raw) gives it.
    pub fn read_many_as(
        &self,
        wanted: &[(BlockPointer, Form)],
        operation: &Operation,
    ) -> Vec<Result<Block, ReadError>> {
        let pointers: Vec<BlockPointer> = wanted.iter().map(|(pointer, _)| *pointer).collect();
        let mut first_copies = self.read_first_copies(&pointers, operation);
        let work: Vec<_> = wanted.iter().zip(first_copies.drain(..)).collect();
        self.host
            .compute()
            .map(work, |((pointer, form), first_copy)| {
                match (first_copy, form) {
                    (Some((stored, bytes)), Form::Plain) => stored.expand(bytes).map(Block::new),
                    (Some((stored, mut bytes)), Form::Stored) => {
                        bytes.truncate(stored.physical_bytes());
                        Ok(Block::new(bytes))
                    }
                    (None, Form::Plain) => self.read(pointer, operation),
                    (None, Form::Stored) => self.read_raw(pointer, operation),
                }
            })
    }

    /// Many blocks at once, as one batch of the devices. Each has its own outcome.
    pub fn read_many(
        &self,
        pointers: &[BlockPointer],
        operation: &Operation,
    ) -> Vec<Result<Block, ReadError>> {
        let mut first_copies = self.read_first_copies(pointers, operation);
        let work: Vec<_> = pointers.iter().zip(first_copies.drain(..)).collect();
        self.host
            .compute()
            .map(work, |(pointer, first_copy)| match first_copy {
                Some((stored, bytes)) => stored.expand(bytes).map(Block::new),
                None => self.read(pointer, operation),
            })
    }

    /// What of a batch can be had from its first copies: `None` for all others.
    fn read_first_copies<'a>(
        &self,
        pointers: &'a [BlockPointer],
        operation: &Operation,
    ) -> Vec<Option<(StoredPointer<'a>, Buffer)>> {
        let shapes = self.shapes();
        let planned: Vec<Option<(StoredPointer<'a>, Place)>> = pointers
            .iter()
            .map(|pointer| {
                if pointer.kind() != PointerKind::Stored || pointer.is_gang() {
                    return None;
                }
                let stored = StoredPointer::parse(pointer).ok()?;
                let first = self.copies_by_health(pointer).into_iter().next()?;
                let place =
                    shapes.place(first, pointer.physical_size(), pointer.physical_birth())?;
                Some((stored, place))
            })
            .collect();
        let salt = self.salt();
        let verifies: Vec<_> = planned
            .iter()
            .flatten()
            .map(|(stored, _)| move |bytes: &[u8]| stored.verifies(bytes, salt))
            .collect();
        let settled: Vec<_> = planned
            .iter()
            .flatten()
            .map(|(stored, _)| move || self.is_settled(stored.pointer, operation))
            .collect();
        let requests: Vec<ReadRequest<'_>> = planned
            .iter()
            .flatten()
            .zip(&verifies)
            .zip(&settled)
            .map(|(((_, place), verify), is_settled)| ReadRequest {
                place: *place,
                verify,
                is_settled,
                noted: None,
            })
            .collect();
        if requests.is_empty() {
            return pointers.iter().map(|_| None).collect();
        }
        operation.mark(Outcome::Disk);
        let mut answers = self.vdevs.read_many(&requests, operation).into_iter();
        drop((verifies, settled));
        planned
            .into_iter()
            .map(|plan| {
                let (stored, _) = plan?;
                let answer = answers.next().expect("each request has its answer");
                let bytes = answer.ok()?;
                self.probes.reads.increment();
                Some((stored, bytes))
            })
            .collect()
    }

    /// The bytes of a stored block that verify, perhaps with padding behind them.
    pub(crate) fn read_stored(
        &self,
        stored: &StoredPointer<'_>,
        operation: &Operation,
    ) -> Result<Buffer, ReadError> {
        operation.mark(Outcome::Disk);
        self.probes.reads.increment();
        if stored.pointer.is_gang() {
            return gang::read(self, stored, operation);
        }
        let size = stored.pointer.physical_size();
        let verify = |bytes: &[u8]| stored.verifies(bytes, self.salt());
        self.read_copies(stored.pointer, size, operation, Faults::Mend, &verify)
    }

    /// `size` bytes from the first place of a pointer that has them right. What becomes of places that did not, `faults` says.
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
            Faults::Mend => (true, None),
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
                        self.self_heal_copies(
                            &failures,
                            (size, pointer.physical_birth()),
                            &bytes,
                            operation,
                        );
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
    fn copies_by_health(&self, pointer: &BlockPointer) -> Vec<Dva> {
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
