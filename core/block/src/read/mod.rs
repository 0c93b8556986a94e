//! Reading blocks by their pointers.
//!
//! # Mechanism
//! A hole or an embedded block is made from its pointer. A stored block passes three stages:
//!
//! 1. *fetch* ([`fetch`]): the pointer names up to three copies; they are tried one after the
//!    other until the bytes of one verify. A copy found bad is self-healed aside. A batch reads
//!    all first copies as one batch of the devices ([`first_copies`]).
//! 2. *open* ([`open`]): an encrypted block is refused, for no key is loaded here.
//! 3. *expand* ([`expand`](mod@crate::expand)): the bytes are decompressed.
//!
//! The stored form of a block ([`Form::Stored`]) leaves after the first stage.
//!
//! # Invariants
//! - Nothing is given out that did not verify, except where the pointer says that there is no
//!   checksum.
//! - Nothing is allocated by a size that the disk gave before the size was checked.
//! - A block is as long as its pointer says: in plain form its logical size, in stored form its
//!   physical size.

pub(crate) mod fetch;
mod first_copies;
mod open;
pub(crate) mod request;

use crate::data::Block;
use crate::embed;
use crate::error::{CopyFailure, ReadError};
use crate::expand::expand;
use crate::gang;
use crate::io::{BlockIo, address};
use crate::scope::{BlockKind, BlockScope};
use crate::stored::StoredPointer;
use request::{Form, ReadRequest};
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_probe::{Operation, Stage};
use tarn_space::Allocation;

impl BlockIo {
    /// The contents of a block: its logical size in bytes. A hole gives zeros, of the size its
    /// pointer has; a hole that was never filled has no size, and gives none.
    ///
    /// # Errors
    /// No copy verified, with one failure for each; or the block is of a kind that cannot be read
    /// here.
    pub fn read(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        operation: &Operation,
    ) -> Result<Block, ReadError> {
        match pointer.kind() {
            PointerKind::Hole => Ok(Block::zeroed(pointer.logical_size().to_usize())),
            PointerKind::Embedded => embed::read(pointer),
            PointerKind::Redacted => Err(ReadError::Redacted {
                block: address(pointer),
            }),
            PointerKind::Stored => {
                let stored = StoredPointer::parse(pointer)?;
                self.count_read(scope);
                let bytes = self.fetch_or_note(&stored, scope, None, operation)?;
                let _timer = operation.stage(Stage::Transform);
                plain(&stored, scope, bytes)
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
        scope: BlockScope,
        operation: &Operation,
    ) -> Result<Block, ReadError> {
        if pointer.kind() != PointerKind::Stored {
            return self.read(pointer, scope, operation);
        }
        let stored = StoredPointer::parse(pointer)?;
        self.count_read(scope);
        let bytes = self.fetch_or_note(&stored, scope, None, operation)?;
        Ok(as_stored(&stored, bytes))
    }

    /// Many blocks at once, as one batch of the devices. Each has its own outcome, in the order of
    /// the requests.
    pub fn read_many(
        &self,
        wanted: &[ReadRequest],
        operation: &Operation,
    ) -> Vec<Result<Block, ReadError>> {
        let first_copies = self.fetch_first_copies(wanted, operation);
        assert_eq!(first_copies.len(), wanted.len(), "each has its outcome");
        let work: Vec<_> = wanted.iter().zip(first_copies).collect();
        self.host.compute().map(work, |(request, first_copy)| {
            let ReadRequest {
                pointer,
                scope,
                form,
            } = request;
            match (first_copy, form) {
                (Some((stored, first)), form) => {
                    let bytes = first.or_else(|failure| {
                        self.count_read(*scope);
                        self.fetch_or_note(&stored, *scope, Some(failure), operation)
                    })?;
                    match form {
                        Form::Plain => plain(&stored, *scope, bytes),
                        Form::Stored => Ok(as_stored(&stored, bytes)),
                    }
                }
                (None, Form::Plain) => self.read(pointer, *scope, operation),
                (None, Form::Stored) => self.read_raw(pointer, *scope, operation),
            }
        })
    }

    /// Every place that a block takes: one for each copy; for a gang, those of its headers and
    /// pieces, which is why headers are read. None for what is not stored.
    ///
    /// # Errors
    /// A header cannot be read.
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

    /// The first stage; the pool's error log hears of a failure.
    fn fetch_or_note(
        &self,
        stored: &StoredPointer<'_>,
        scope: BlockScope,
        tried: Option<CopyFailure>,
        operation: &Operation,
    ) -> Result<Buffer, ReadError> {
        self.fetch(stored, tried, operation).inspect_err(|error| {
            self.note_unreadable(stored.pointer, scope, error, operation);
        })
    }

    fn count_read(&self, scope: BlockScope) {
        let probes = &self.probes;
        match scope.kind {
            BlockKind::Data => probes.data_reads.increment(),
            BlockKind::Metadata => probes.metadata_reads.increment(),
            BlockKind::IntentLog => probes.log_reads.increment(),
        }
    }
}

/// The stages behind *fetch*: from bytes that verified to plain contents.
pub(crate) fn plain(
    stored: &StoredPointer<'_>,
    scope: BlockScope,
    bytes: Buffer,
) -> Result<Block, ReadError> {
    let compressed = open::open(stored, scope, bytes)?;
    let plain = expand(stored, compressed)?;
    debug_assert_eq!(plain.len(), stored.pointer.logical_size().to_usize());
    Ok(Block::new(plain))
}

/// The stored form, without the padding of its last sector.
fn as_stored(stored: &StoredPointer<'_>, mut bytes: Buffer) -> Block {
    assert!(bytes.len() >= stored.physical_bytes(), "it verified");
    bytes.truncate(stored.physical_bytes());
    Block::new(bytes)
}
