//! Embedded blocks: contents in their block pointer.
//!
//! # Mechanism
//! A block of data that compresses to 112 bytes or less is stored in words of its pointer that lead
//! nowhere then. Reading it costs no I/O once the pointer is read. Only level 0 is embedded, and no
//! block whose fill counts more than itself: an embedded pointer has no room for a fill.

use crate::data::Block;
use crate::error::ReadError;
use crate::expand::decompress;
use crate::io::{WritePhase, address};
use crate::policy::{Embedding, WritePolicy};
use crate::stored::compression_of;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::embedded::PAYLOAD_BYTES_MAX;
use tarn_ondisk::units::LogicalSize;

/// The contents of an embedded block.
///
/// # Errors
/// The pointer is damaged, or its payload cannot be decompressed.
pub(crate) fn read(pointer: &BlockPointer) -> Result<Block, ReadError> {
    let block = address(pointer);
    let corrupt = |what| ReadError::Corrupt { block, what };
    pointer.check().map_err(corrupt)?;
    let payload = pointer.payload().map_err(corrupt)?;
    let compression = compression_of(pointer)?;
    let expanded = decompress(compression, payload.bytes(), pointer.logical_size());
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

/// The pointer that holds `compressed`, which is [embeddable](is_embeddable).
pub(crate) fn pointer(
    compressed: &[u8],
    logical_size: LogicalSize,
    policy: &WritePolicy,
    phase: WritePhase,
) -> BlockPointer {
    assert!(
        is_embeddable(policy, compressed.len()),
        "it was asked before"
    );
    let pointer = BlockPointer::embedded(
        compressed,
        logical_size,
        Compression::from_code(policy.compression.code()),
        policy.object_type,
        policy.level,
        phase.txg,
    );
    debug_assert!(
        pointer
            .payload()
            .is_ok_and(|payload| payload.bytes() == compressed)
    );
    pointer
}
