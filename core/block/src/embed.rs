//! Blocks that live in their pointer.
//!
//! # Mechanism
//! A block of data that compresses to 112 bytes or less is put into the words of its pointer that it does
//! not need then. Reading it costs nothing once the pointer is there. Only the lowest level is
//! embedded, and nothing whose fill counts more than itself, for an embedded pointer has no room for
//! a fill.

use crate::data::Block;
use crate::error::ReadError;
use crate::io::{WritePhase, address};
use crate::policy::{Embedding, WritePolicy};
use crate::stored::{compression_of, expand};
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::embedded::PAYLOAD_BYTES_MAX;
use tarn_ondisk::units::LogicalSize;

/// The contents of an embedded block.
pub(crate) fn read(pointer: &BlockPointer) -> Result<Block, ReadError> {
    let block = address(pointer);
    let corrupt = |what| ReadError::Corrupt { block, what };
    pointer.check().map_err(corrupt)?;
    let payload = pointer.payload().map_err(corrupt)?;
    let compression = compression_of(pointer)?;
    let expanded = expand(compression, payload.bytes(), pointer.logical_size());
    expanded
        .map(Block::new)
        .map_err(|why| ReadError::Undecodable { block, why })
}

/// True if a block of this policy may be embedded when it compresses to `size` bytes.
pub(crate) fn is_embeddable(policy: &WritePolicy, size: usize) -> bool {
    policy.embedding == Embedding::Allowed
        && policy.level.is_data()
        && !policy.object_type.counts_its_fill()
        && (1..=PAYLOAD_BYTES_MAX).contains(&size)
}

/// The pointer that holds `compressed`.
pub(crate) fn pointer(
    compressed: &[u8],
    logical_size: LogicalSize,
    policy: &WritePolicy,
    phase: WritePhase,
) -> ondisk::block_pointer::BlockPointer {
    BlockPointer::embedded(
        compressed,
        logical_size,
        Compression::from_code(policy.compression.code()),
        policy.object_type,
        policy.level,
        phase.txg,
    )
}
