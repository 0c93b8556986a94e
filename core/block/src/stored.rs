//! A pointer to a stored block, checked and taken apart once: how to verify and decompress its
//! bytes.

use crate::error::{BlockAddress, ReadError};
use crate::io::address;
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::sealing;
use tarn_transform::checksum::embedded;
use tarn_transform::{Checksum, ChecksumAlgorithm, CompressionAlgorithm, Salt, checksum};

/// A pointer that was checked: sizes are within bounds, and algorithms are known.
pub(crate) struct StoredPointer<'a> {
    pub(crate) pointer: &'a BlockPointer,
    checksum: ChecksumAlgorithm,
    pub(crate) compression: CompressionAlgorithm,
}

impl<'a> StoredPointer<'a> {
    /// Takes a pointer to a stored block apart.
    ///
    /// # Errors
    /// It cannot be read: sizes are out of bounds, or an algorithm is not known.
    pub(crate) fn parse(pointer: &'a BlockPointer) -> Result<StoredPointer<'a>, ReadError> {
        assert_eq!(pointer.kind(), PointerKind::Stored, "others have no bytes");
        let block = address(pointer);
        let code = pointer.checksum_kind().code();
        let checksum = ChecksumAlgorithm::from_code(code)
            .map_err(|_| ReadError::UnknownChecksum { block, code })?;
        let compression = compression_of(pointer)?;
        pointer
            .check()
            .map_err(|what| ReadError::Corrupt { block, what })?;
        Ok(StoredPointer {
            pointer,
            checksum,
            compression,
        })
    }

    pub(crate) fn address(&self) -> BlockAddress {
        address(self.pointer)
    }

    /// How many bytes are stored.
    pub(crate) fn physical_bytes(&self) -> usize {
        self.pointer.physical_size().to_usize()
    }

    /// Whether these are the bytes that were written. What follows them to the end of a sector
    /// does not count.
    pub(crate) fn verifies(&self, bytes: &[u8], salt: Option<&Salt>) -> bool {
        let Some(bytes) = bytes.get(..self.physical_bytes()) else {
            return false;
        };
        let expected = Checksum(self.pointer.checksum().0);
        let order = match self.pointer.byte_order() {
            ByteOrder::Little => checksum::ByteOrder::Little,
            ByteOrder::Big => checksum::ByteOrder::Big,
        };
        if self.checksum.is_embedded() {
            // A log block carries its checksum; what the pointer has is the verifier, which tells
            // the block from others.
            return embedded::verify(self.checksum, bytes, &expected).is_ok();
        }
        if self.has_truncated_checksum() {
            return self.verifies_truncated(bytes, order, salt, &expected);
        }
        checksum::verify(self.checksum, bytes, order, salt, &expected).is_ok()
    }

    /// In an encrypted dataset, half of the checksum gives way to a code that only the key's owner
    /// can check.
    #[doc(alias = "zio_checksum_handle_crypt")]
    fn has_truncated_checksum(&self) -> bool {
        let is_objset = self.pointer.object_type() == ObjectType::Objset;
        self.pointer.uses_encryption() && !is_objset && !self.checksum.is_embedded()
    }

    fn verifies_truncated(
        &self,
        bytes: &[u8],
        order: checksum::ByteOrder,
        salt: Option<&Salt>,
        expected: &Checksum,
    ) -> bool {
        if !self.is_checked() {
            return true;
        }
        if self.checksum.needs_salt() && salt.is_none() {
            return false;
        }
        let Checksum(words) = checksum::checksum(self.checksum, bytes, order, salt);
        sealing::truncated(words, self.checksum.identifies_blocks()) == expected.0[..2]
    }

    /// Whether other bytes would be found out.
    pub(crate) fn is_checked(&self) -> bool {
        !matches!(
            self.checksum,
            ChecksumAlgorithm::Off | ChecksumAlgorithm::NoParity
        )
    }
}

impl StoredPointer<'_> {
    /// Whether the pointer has the checksum of the bytes, not the bytes themselves.
    pub(crate) fn is_checked_by_pointer(&self) -> bool {
        self.is_checked() && !self.checksum.is_embedded()
    }
}

/// How the block of a pointer is compressed.
///
/// # Errors
/// The pointer names an algorithm that is not known.
pub(crate) fn compression_of(pointer: &BlockPointer) -> Result<CompressionAlgorithm, ReadError> {
    let code = pointer.compression().code();
    CompressionAlgorithm::from_code(code).map_err(|_| ReadError::UnknownCompression {
        block: address(pointer),
        code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::block_pointer::{Dva, StoredBlock};
    use tarn_ondisk::checksum::ChecksumKind;
    use tarn_ondisk::compression::Compression;
    use tarn_ondisk::intent_log::{LogBlock, LogForm};
    use tarn_ondisk::units::{
        AllocatedSize, Level, LogicalSize, PhysicalSize, Txg, VdevId, VdevOffset,
    };

    /// A block of an intent log, and the pointer that the block before it has.
    fn log_block(form: LogForm, kind: ChecksumKind) -> (Vec<u8>, BlockPointer) {
        let verifier = [0x4ed9, 0x1b08, 76, 426];
        let mut block = vec![0; 4096];
        LogBlock::encode(&mut block, form, BlockPointer::HOLE, &[]);
        let algorithm = ChecksumAlgorithm::from_code(kind.code()).unwrap();
        let order = checksum::ByteOrder::Little;
        embedded::seal(algorithm, &mut block, &Checksum(verifier), order);
        let place = Dva::new(
            VdevId::from(0),
            VdevOffset::from(0x1000),
            AllocatedSize::from(4096),
        );
        let pointer = BlockPointer::stored(&StoredBlock {
            dvas: &[place],
            logical_size: LogicalSize::from(4096),
            physical_size: PhysicalSize::from(4096),
            compression: Compression::Off,
            checksum_kind: kind,
            checksum: tarn_ondisk::checksum::Checksum(verifier),
            object_type: ObjectType::IntentLog,
            level: Level::ZERO,
            birth: Txg::from(9),
            fill: 0,
        });
        (block, pointer)
    }

    #[test]
    fn a_block_of_an_intent_log_verifies_by_the_checksum_it_carries() {
        for (form, kind) in [
            (LogForm::Zilog, ChecksumKind::IntentLog),
            (LogForm::Zilog2, ChecksumKind::IntentLog2),
        ] {
            let (mut block, mut pointer) = log_block(form, kind);
            assert!(
                StoredPointer::parse(&pointer)
                    .unwrap()
                    .verifies(&block, None)
            );
            block[20] ^= 1;
            assert!(
                !StoredPointer::parse(&pointer)
                    .unwrap()
                    .verifies(&block, None)
            );
            block[20] ^= 1;
            // The block of another log, or an older one of this, is not the one meant.
            pointer.checksum_words.0[3] += 1;
            assert!(
                !StoredPointer::parse(&pointer)
                    .unwrap()
                    .verifies(&block, None)
            );
        }
    }
}
