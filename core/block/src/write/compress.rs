//! The first stage of writing: holes, embedded blocks and compression.
//!
//! # Mechanism
//! Zeros become a hole. The others are compressed, and those that get small enough go into their
//! pointer; the rest is padded to whole allocations.
//!
//! Compression must pay: at least an eighth must be saved, counted in whole allocations. From the
//! eighth pass on what is rewritten is no longer compressed, so that sizes stay and storing ends.
//! A block that shrank since an earlier pass is padded to the size it had, for the same reason.
//!
//! A block that a stream brought in its stored form is stored as it is.

use super::request::{PASS_DONT_COMPRESS, WriteRequest};
use crate::embed;
use crate::io::{BlockIo, HoleBirth, WritePhase};
use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, SECTOR_BYTES};
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::embedded::PAYLOAD_BYTES_MAX;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{LogicalSize, PhysicalSize, Txg};
use tarn_transform::{CompressionAlgorithm, compress};

/// The contents after this stage.
pub(super) enum Compressed {
    /// Nothing is stored but the pointer: a hole or an embedded block.
    InPointer(BlockPointer),
    /// These bytes are stored: whole sectors.
    Stored {
        bytes: Arc<Buffer>,
        compression: CompressionAlgorithm,
        order: ByteOrder,
    },
}

impl BlockIo {
    /// Decides what of a block is stored.
    pub(super) fn compress(
        &self,
        request: &WriteRequest,
        phase: WritePhase,
        allocation_min: u64,
    ) -> Compressed {
        if request.given.is_some() {
            return as_given(request);
        }
        let WriteRequest { data, policy, .. } = request;
        assert_eq!(
            LogicalSize::of(data),
            request.logical_size,
            "a block is as long as it says"
        );
        assert!(
            request.logical_size.is_multiple_of(SECTOR_BYTES) && !data.is_empty(),
            "a block is whole sectors"
        );
        let rewritten_size = request.rewritable_size(phase);
        let compression = if request.is_written_again(phase) && phase.pass >= PASS_DONT_COMPRESS {
            CompressionAlgorithm::Off
        } else {
            policy.compression
        };
        // Dnodes of encrypted datasets are not compressed, but free dnodes are not stored either.
        let is_sealed_dnodes = policy.object_type == ObjectType::Dnode && request.sealing.is_some();
        let may_be_hole = compression != CompressionAlgorithm::Off || is_sealed_dnodes;
        if may_be_hole && compress::is_zero(data) {
            return Compressed::InPointer(self.hole(request, phase.txg));
        }
        let limit = compressed_size_max(compression, data.len(), allocation_min);
        let compressed = compress::compress(compression, data, limit);
        if let Some(bytes) = &compressed
            && embed::is_embeddable(policy, bytes.len())
        {
            let pointer = embed::pointer(bytes, request.logical_size, policy, phase);
            return Compressed::InPointer(pointer);
        }
        let stored = compressed.and_then(|bytes| {
            let size = stored_size(bytes.len(), data.len(), allocation_min, rewritten_size)?;
            let mut buffer = Buffer::from_slice(&bytes);
            buffer.resize(size);
            Some(Arc::new(buffer))
        });
        let (bytes, compression) = match stored {
            Some(bytes) => (bytes, compression),
            None => (data.shared().clone(), CompressionAlgorithm::Off),
        };
        assert!(bytes.len() <= data.len(), "compression never adds");
        Compressed::Stored {
            bytes,
            compression,
            order: ByteOrder::Little,
        }
    }

    /// The pointer to a block of zeros.
    fn hole(&self, request: &WriteRequest, txg: Txg) -> BlockPointer {
        let was_never_filled = request.previous.birth().is_zero();
        if was_never_filled || self.options.holes == HoleBirth::Unrecorded {
            return BlockPointer::HOLE;
        }
        let policy = &request.policy;
        BlockPointer::punched(request.logical_size, policy.object_type, policy.level, txg)
    }
}

/// A block in its stored form, padded to whole sectors.
fn as_given(request: &WriteRequest) -> Compressed {
    let given = request.given.expect("it was asked before");
    let data = &request.data;
    assert!(!data.is_empty(), "a stored block has bytes");
    let whole = LogicalSize::of(data).round_up(SECTOR_BYTES).to_usize();
    let mut bytes = data.shared().clone();
    if bytes.len() != whole {
        Arc::make_mut(&mut bytes).resize(whole);
    }
    Compressed::Stored {
        bytes,
        compression: given.compression,
        order: given.order,
    }
}

/// How small a block must get for its compression to count: an eighth less, in whole allocations.
/// What is smaller than one allocation can only be embedded.
#[doc(alias = "zio_get_compression_max_size")]
fn compressed_size_max(
    compression: CompressionAlgorithm,
    size: usize,
    allocation_min: u64,
) -> usize {
    let limit = size - size / 8;
    if compression == CompressionAlgorithm::Zle {
        return limit;
    }
    let step = PhysicalSize::new(allocation_min).to_usize();
    match limit - limit % step {
        0 => PAYLOAD_BYTES_MAX,
        whole => whole,
    }
}

/// How large a compressed block is stored; `None` if it is better stored plain.
fn stored_size(
    compressed: usize,
    logical: usize,
    allocation_min: u64,
    rewritten_size: Option<PhysicalSize>,
) -> Option<usize> {
    let step = PhysicalSize::new(allocation_min).to_usize();
    let whole = compressed.next_multiple_of(step);
    match rewritten_size.map(PhysicalSize::to_usize) {
        // It shrank since the last pass: padding keeps it where it is.
        Some(before) if whole <= before && before < logical => Some(before),
        Some(before) if before == logical => None,
        _ if whole < logical => Some(whole),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_must_save_an_eighth_in_whole_allocations() {
        let max = |size, min| compressed_size_max(CompressionAlgorithm::Lz4, size, min);
        assert_eq!(max(131072, 512), 114688);
        assert_eq!(max(131072, 4096), 114688);
        assert_eq!(max(16384, 4096), 12288);
        assert_eq!(max(4096, 4096), 112);
        assert_eq!(max(512, 512), 112);
        assert_eq!(
            compressed_size_max(CompressionAlgorithm::Zle, 16384, 4096),
            14336
        );
    }

    #[test]
    fn a_block_keeps_the_size_of_its_earlier_pass_if_it_can() {
        let size = |bytes| Some(PhysicalSize::new(bytes));
        assert_eq!(stored_size(100, 16384, 512, None), Some(512));
        assert_eq!(stored_size(100, 16384, 512, size(4096)), Some(4096));
        assert_eq!(stored_size(5000, 16384, 512, size(4096)), Some(5120));
        assert_eq!(stored_size(100, 16384, 512, size(16384)), None);
        assert_eq!(stored_size(100, 4096, 4096, None), None);
    }
}
