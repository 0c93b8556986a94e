//! Checksums that are kept in the block they guard.
//!
//! # Problem
//! A label, a gang header and an intent log block cannot keep their checksum in a parent: the first
//! has none, the second *is* what the parent points to, and the third is written before anything
//! that points to it. And a checksum beside its own bytes does not tell that the block is the one
//! meant: an old block in the right form, or one written to the wrong place, verifies as well.
//!
//! # Mechanism
//! Such a block has a trailer of 40 bytes: a magic number, and the checksum. The checksum is
//! computed while a *verifier* stands in its place, which the reader must know from elsewhere:
//! where the label is, which gang block was meant, which block of which log. So a block in the
//! wrong place fails.
//!
//! ```text
//!   label, gang header, zilog:  | contents ...                           | magic | sum |
//!   zilog2:                     | pad | next pointer | used bytes | magic | sum | records |
//! ```
//!
//! The newer log block has it in front, so that only the bytes in use need be read and summed: the
//! used bytes it names, rounded up to 4 KiB.
//!
//! The magic number also tells the writer's byte order, for there is no pointer that could.

use super::{ByteOrder, Checksum, ChecksumAlgorithm, checksum_slices};
use crate::error::ChecksumError;

/// What every trailer begins with, in the writer's byte order.
#[doc(alias = "ZEC_MAGIC")]
pub const MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// Size of a trailer.
#[doc(alias = "zio_eck_t")]
pub const TRAILER_BYTES: usize = 40;

/// Where the head of a newer log block says how many bytes are in use.
#[doc(alias = "zc_nused")]
const LOG_USED_OFFSET: usize = 136;
/// Where its trailer is.
const LOG_TRAILER_OFFSET: usize = 144;
/// The used part is rounded up to this.
#[doc(alias = "ZIL_MIN_BLKSZ")]
const LOG_STEP_BYTES: u64 = 4096;

/// The verifier of a label part: its offset on the device.
pub const fn label_verifier(offset_bytes: u64) -> Checksum {
    Checksum([offset_bytes, 0, 0, 0])
}

/// The verifier of a gang header: its first address, and the txg in which it was written.
pub const fn gang_verifier(vdev: u64, offset_bytes: u64, physical_birth_txg: u64) -> Checksum {
    Checksum([vdev, offset_bytes, physical_birth_txg, 0])
}

/// Puts magic number and checksum into a block that is otherwise ready to be written, in `order`.
///
/// # Panics
/// When `algorithm` is not one of the embedded kinds, or the block is too short for its trailer, or
/// for the bytes it says are in use: we made that block.
pub fn seal(
    algorithm: ChecksumAlgorithm,
    block: &mut [u8],
    verifier: &Checksum,
    order: ByteOrder,
) -> Checksum {
    let trailer = trailer_offset(algorithm, block.len()).expect("the block has room for a trailer");
    block[trailer..trailer + 8].copy_from_slice(&order.write_u64(MAGIC));
    let checksum = compute(algorithm, block, trailer, verifier, order)
        .expect("the block has the bytes it says are in use");
    block[trailer + 8..trailer + TRAILER_BYTES].copy_from_slice(&checksum.to_bytes(order));
    checksum
}

/// Whether a block carries its right checksum for `verifier`, and the byte order of its writer.
pub fn verify(
    algorithm: ChecksumAlgorithm,
    block: &[u8],
    verifier: &Checksum,
) -> Result<ByteOrder, ChecksumError> {
    let trailer = trailer_offset(algorithm, block.len())?;
    let order = match read_word(block, trailer, ByteOrder::Little) {
        MAGIC => ByteOrder::Little,
        magic if magic.swap_bytes() == MAGIC => ByteOrder::Big,
        magic => return Err(ChecksumError::NoTrailer { algorithm, magic }),
    };
    let expected = stored(block, trailer, order);
    let actual = compute(algorithm, block, trailer, verifier, order)?;
    if actual == expected {
        Ok(order)
    } else {
        Err(ChecksumError::Mismatch {
            algorithm,
            expected,
            actual,
        })
    }
}

/// Where the trailer of a block is, if it can have one.
fn trailer_offset(algorithm: ChecksumAlgorithm, size: usize) -> Result<usize, ChecksumError> {
    let too_short = |needed: usize| ChecksumError::TooShort {
        algorithm,
        size,
        needed: u64::try_from(needed).expect("a small constant"),
    };
    match algorithm {
        ChecksumAlgorithm::Label | ChecksumAlgorithm::GangHeader | ChecksumAlgorithm::Zilog => size
            .checked_sub(TRAILER_BYTES)
            .ok_or_else(|| too_short(TRAILER_BYTES)),
        ChecksumAlgorithm::Zilog2 if size >= LOG_TRAILER_OFFSET + TRAILER_BYTES => {
            Ok(LOG_TRAILER_OFFSET)
        }
        ChecksumAlgorithm::Zilog2 => Err(too_short(LOG_TRAILER_OFFSET + TRAILER_BYTES)),
        _ => Err(ChecksumError::Misplaced { algorithm }),
    }
}

/// The checksum over the covered part of the block, with the verifier standing in for it.
fn compute(
    algorithm: ChecksumAlgorithm,
    block: &[u8],
    trailer: usize,
    verifier: &Checksum,
    order: ByteOrder,
) -> Result<Checksum, ChecksumError> {
    let covered = covered_part(algorithm, block, order)?;
    let (head, _) = covered.split_at(trailer + 8);
    let (_, tail) = covered.split_at(trailer + TRAILER_BYTES);
    let verifier = verifier.to_bytes(order);
    Ok(checksum_slices(
        algorithm,
        &[head, &verifier, tail],
        order,
        None,
    ))
}

fn covered_part(
    algorithm: ChecksumAlgorithm,
    block: &[u8],
    order: ByteOrder,
) -> Result<&[u8], ChecksumError> {
    if algorithm != ChecksumAlgorithm::Zilog2 {
        return Ok(block);
    }
    let used = read_word(block, LOG_USED_OFFSET, order);
    let size = block.len();
    let too_short = ChecksumError::TooShort {
        algorithm,
        size,
        needed: used,
    };
    let covered = used
        .checked_next_multiple_of(LOG_STEP_BYTES)
        .ok_or(too_short)?;
    let covered = usize::try_from(covered).map_err(|_| too_short)?;
    // The head itself is always in use.
    if covered < LOG_TRAILER_OFFSET + TRAILER_BYTES {
        return Err(too_short);
    }
    block.get(..covered).ok_or(too_short)
}

fn stored(block: &[u8], trailer: usize, order: ByteOrder) -> Checksum {
    Checksum([8, 16, 24, 32].map(|offset| read_word(block, trailer + offset, order)))
}

fn read_word(block: &[u8], offset: usize, order: ByteOrder) -> u64 {
    let bytes = block[offset..]
        .first_chunk()
        .expect("the block is long enough for its trailer");
    order.read_u64(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [ChecksumAlgorithm; 4] = [
        ChecksumAlgorithm::Label,
        ChecksumAlgorithm::GangHeader,
        ChecksumAlgorithm::Zilog,
        ChecksumAlgorithm::Zilog2,
    ];

    fn block(used: u64, order: ByteOrder) -> Vec<u8> {
        let mut block: Vec<u8> = (0..=255).cycle().take(8192).collect();
        block[LOG_USED_OFFSET..LOG_USED_OFFSET + 8].copy_from_slice(&order.write_u64(used));
        block
    }

    #[test]
    fn a_sealed_block_verifies_in_its_byte_order_and_nowhere_else() {
        let verifier = Checksum([1, 2, 3, 4]);
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for kind in KINDS {
                let mut block = block(5000, order);
                seal(kind, &mut block, &verifier, order);
                assert_eq!(verify(kind, &block, &verifier), Ok(order));
                let elsewhere = Checksum([1, 2, 3, 5]);
                assert!(matches!(
                    verify(kind, &block, &elsewhere),
                    Err(ChecksumError::Mismatch { .. })
                ));
                block[100] ^= 1;
                assert!(matches!(
                    verify(kind, &block, &verifier),
                    Err(ChecksumError::Mismatch { .. })
                ));
            }
        }
    }

    #[test]
    fn a_log_block_is_covered_as_far_as_it_is_used() {
        let mut block = block(200, ByteOrder::Little);
        seal(
            ChecksumAlgorithm::Zilog2,
            &mut block,
            &Checksum::ZERO,
            ByteOrder::Little,
        );
        block[4096] ^= 1;
        assert!(verify(ChecksumAlgorithm::Zilog2, &block, &Checksum::ZERO).is_ok());
        block[4095] ^= 1;
        assert!(verify(ChecksumAlgorithm::Zilog2, &block, &Checksum::ZERO).is_err());
    }

    #[test]
    fn a_log_block_that_claims_more_than_it_has_is_refused() {
        for used in [0, 8193, u64::MAX, u64::MAX - 4096] {
            let mut block = block(used, ByteOrder::Little);
            block[LOG_TRAILER_OFFSET..LOG_TRAILER_OFFSET + 8].copy_from_slice(&MAGIC.to_le_bytes());
            assert!(matches!(
                verify(ChecksumAlgorithm::Zilog2, &block, &Checksum::ZERO),
                Err(ChecksumError::TooShort { .. })
            ));
        }
    }

    #[test]
    fn what_is_too_short_or_has_no_magic_is_refused() {
        for kind in KINDS {
            assert!(matches!(
                verify(kind, &[0; 39], &Checksum::ZERO),
                Err(ChecksumError::TooShort { .. })
            ));
            assert!(matches!(
                verify(kind, &[0; 512], &Checksum::ZERO),
                Err(ChecksumError::NoTrailer { magic: 0, .. })
            ));
        }
        assert!(matches!(
            verify(ChecksumAlgorithm::Sha256, &[0; 512], &Checksum::ZERO),
            Err(ChecksumError::Misplaced { .. })
        ));
    }
}
