//! The second stage of writing: the bytes that will be stored get their checksum.
//!
//! # Mechanism
//! Blocks of encrypted datasets arrive encrypted, from a raw stream, with the codes that the owner
//! of the key checks ([`Sealing`]); half of their checksum gives way to such a code. Encrypting
//! here, when keys are loaded, is planned.
//!
//! Blocks of pointers are not encrypted: their code is a digest of what they say of the blocks
//! below, which needs no key ([`seal_of_pointers`]).

use super::compress::Compressed;
use super::request::WriteRequest;
use crate::io::BlockIo;
use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, SECTOR_BYTES};
use tarn_ondisk::checksum::Checksum;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::sealing::{self, Sealing, digested};
use tarn_ondisk::units::PhysicalSize;
use tarn_transform::checksum::sha2::sha512;
use tarn_transform::{CompressionAlgorithm, checksum};

/// The stored bytes of a block, with their checksum.
pub(super) struct StoredContents {
    pub(super) bytes: Arc<Buffer>,
    pub(super) compression: CompressionAlgorithm,
    pub(super) order: ByteOrder,
    pub(super) checksum: Checksum,
}

impl StoredContents {
    pub(super) fn size(&self) -> PhysicalSize {
        PhysicalSize::of(&self.bytes)
    }
}

/// A block that has passed the stage.
pub(super) enum Sealed {
    /// Nothing is stored but the pointer.
    InPointer(BlockPointer),
    /// These bytes are.
    Stored(StoredContents),
}

impl BlockIo {
    /// Sums what is stored of a block.
    pub(super) fn seal(&self, request: &WriteRequest, compressed: Compressed) -> Sealed {
        let (bytes, compression, order) = match compressed {
            Compressed::InPointer(pointer) => return Sealed::InPointer(pointer),
            Compressed::Stored {
                bytes,
                compression,
                order,
            } => (bytes, compression, order),
        };
        assert!(
            PhysicalSize::of(&bytes).is_multiple_of(SECTOR_BYTES) && !bytes.is_empty(),
            "what is stored is whole sectors"
        );
        let algorithm = request.policy.checksum;
        let sum_order = match order {
            ByteOrder::Little => checksum::ByteOrder::Little,
            ByteOrder::Big => checksum::ByteOrder::Big,
        };
        let mut checksum = checksum::checksum(algorithm, &bytes, sum_order, self.salt());
        let is_truncated =
            request.sealing.is_some() && request.policy.object_type != ObjectType::Objset;
        if is_truncated {
            let [a, b] = sealing::truncated(checksum.0, algorithm.identifies_blocks());
            checksum.0 = [a, b, 0, 0];
        }
        Sealed::Stored(StoredContents {
            bytes,
            compression,
            order,
            checksum: Checksum(checksum.0),
        })
    }
}

/// How a block of pointers of an encrypted dataset is sealed: by a digest of what they say of the
/// blocks below.
///
/// # Panics
/// When the bytes are not whole pointers.
#[doc(alias = "zio_crypt_do_indirect_mac_checksum")]
pub fn seal_of_pointers(pointers: &[u8]) -> Sealing {
    assert!(
        pointers.len().is_multiple_of(BlockPointer::SIZE),
        "these are whole pointers"
    );
    let mut said = Vec::with_capacity(pointers.len() / 4);
    for entry in pointers.chunks_exact(BlockPointer::SIZE) {
        let pointer = BlockPointer::from_bytes(entry, ByteOrder::Little);
        said.extend_from_slice(&digested(&pointer.expect("any bytes are a pointer")));
    }
    let digest = sha512(&[&said]);
    Sealing::of_code(*digest.first_chunk().expect("64 bytes begin with 16"))
}
