//! What the pointers of encrypted datasets have beside places and checksums.
//!
//! # Mechanism
//! Every block of an encrypted dataset has a *message authentication code*, which proves to the
//! owner of the key that the block is genuine. It takes the second half of the pointer's checksum:
//!
//! ```text
//!   word   0..4      4              5                  6          11 (high half)            14, 15
//!         +-------+--------------+------------------+------------+-----------------------+------+
//!         | places | salt         | first 8 bytes of | properties | last 4 bytes of the   | code |
//!         |        |              | the vector       |            | vector                |      |
//!         +-------+--------------+------------------+------------+-----------------------+------+
//! ```
//!
//! - Blocks of an encrypted type
//!   ([`ObjectType::is_encrypted`](crate::object_type::ObjectType::is_encrypted)) have a salt and
//!   an initialization vector as well, where others have their third place.
//! - Blocks of pointers are plain. Their code is no secret: it is a digest of what the pointers in
//!   them say ([`digested`]).
//! - The head of an object set has its two codes inside.
//!
//! Words are in the byte order of the block, so that salt, vector and code are the same bytes on
//! every machine.

use crate::block_pointer::{BlockPointer, PointerKind};
use crate::declare::{ByteOrder, Reserved, bits, with_bits};
use crate::object_type::ObjectType;
use crate::on_disk;

on_disk! {
    /// What the owner of a key must know of a block to open it, and to see that it is his.
    #[derive(Copy, Default)]
    pub struct Sealing [36 bytes] {
        0  => salt: Reserved<8>,
        8  => initialization_vector: Reserved<12>,
        20 => message_authentication_code: Reserved<16>,
    }
}

impl Sealing {
    /// Only a code.
    pub fn of_code(code: [u8; 16]) -> Sealing {
        let mut sealing = Sealing::default();
        sealing.message_authentication_code.0 = code;
        sealing
    }

    /// What the pointer of an encrypted block says.
    #[doc(alias = "zio_crypt_decode_params_bp")]
    #[doc(alias = "zio_crypt_decode_mac_bp")]
    pub fn of_pointer(pointer: &BlockPointer) -> Sealing {
        let word = |word: u64| match pointer.byte_order() {
            ByteOrder::Little => word.to_le_bytes(),
            ByteOrder::Big => word.to_be_bytes(),
        };
        let [salt, vector] = pointer.dva_words[2].words();
        let rest = u32::try_from(bits(pointer.fill_word, 32, 32)).expect("32 bits");
        let mut sealing = Sealing::default();
        sealing.salt.0 = word(salt);
        let vector_bytes = &mut sealing.initialization_vector.0;
        vector_bytes[..8].copy_from_slice(&word(vector));
        vector_bytes[8..].copy_from_slice(&match pointer.byte_order() {
            ByteOrder::Little => rest.to_le_bytes(),
            ByteOrder::Big => rest.to_be_bytes(),
        });
        let code = &mut sealing.message_authentication_code.0;
        code[..8].copy_from_slice(&word(pointer.checksum_words.0[2]));
        code[8..].copy_from_slice(&word(pointer.checksum_words.0[3]));
        sealing
    }

    /// Has a pointer say that its block is sealed like this. The pointer is complete otherwise, of
    /// two places at most if its block is encrypted, and with the [half](truncated) of a checksum.
    #[doc(alias = "zio_crypt_encode_params_bp")]
    #[doc(alias = "zio_crypt_encode_mac_bp")]
    pub fn put_into(&self, pointer: &mut BlockPointer) {
        let order = pointer.byte_order();
        let word = |bytes: &[u8]| {
            let bytes = *bytes.first_chunk::<8>().expect("eight bytes");
            match order {
                ByteOrder::Little => u64::from_le_bytes(bytes),
                ByteOrder::Big => u64::from_be_bytes(bytes),
            }
        };
        pointer.set_uses_encryption();
        if pointer.object_type() == ObjectType::Objset {
            return;
        }
        let code = &self.message_authentication_code.0;
        pointer.checksum_words.0[2] = word(&code[..8]);
        pointer.checksum_words.0[3] = word(&code[8..]);
        if !pointer.is_encrypted() {
            return;
        }
        let vector = &self.initialization_vector.0;
        let words = [word(&self.salt.0), word(&vector[..8])];
        pointer.dva_words[2] = crate::block_pointer::Dva::from_words(words);
        let rest = *vector[8..].first_chunk::<4>().expect("four bytes");
        let rest = match order {
            ByteOrder::Little => u32::from_le_bytes(rest),
            ByteOrder::Big => u32::from_be_bytes(rest),
        };
        pointer.fill_word = with_bits(pointer.fill_word, 32, 32, u64::from(rest));
    }
}

/// The half of a checksum that is left beside a code. Weak sums do not have their bits spread
/// evenly: both halves are folded together.
#[doc(alias = "zio_checksum_handle_crypt")]
pub fn truncated(words: [u64; 4], is_strong: bool) -> [u64; 2] {
    let [a, b, c, d] = words;
    match is_strong {
        true => [a, b],
        false => [a ^ c, b ^ d],
    }
}

/// What of a pointer goes into the code of the block that it is in: what is the same wherever the
/// block is received.
#[doc(alias = "blkptr_auth_buf_t")]
#[doc(alias = "zio_crypt_bp_auth_init")]
pub fn digested(pointer: &BlockPointer) -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut properties = 0;
    if pointer.kind() != PointerKind::Hole {
        // Whether there are twins, and the kind of checksum.
        properties = with_bits(pointer.properties, 62, 1, 0);
        properties = with_bits(properties, 40, 8, 0);
        if !pointer.level().is_data() {
            // The byte order, the compression, and the size that this gave.
            properties = with_bits(properties, 63, 1, 0);
            properties = with_bits(properties, 32, 7, 0);
            properties = with_bits(properties, 16, 16, 0);
        }
    }
    bytes[..8].copy_from_slice(&properties.to_le_bytes());
    if pointer.object_type() != ObjectType::Objset {
        let code = Sealing::of_pointer(pointer).message_authentication_code.0;
        bytes[8..24].copy_from_slice(&code);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_pointer::{Dva, StoredBlock};
    use crate::checksum::{Checksum, ChecksumKind};
    use crate::compression::Compression;
    use crate::units::{AllocatedSize, Level, LogicalSize, PhysicalSize, Txg, VdevId, VdevOffset};

    fn pointer(object_type: ObjectType, level: u8) -> BlockPointer {
        let place = Dva::new(
            VdevId::from(0),
            VdevOffset::from(0x1000),
            AllocatedSize::from(4096),
        );
        BlockPointer::stored(&StoredBlock {
            dvas: &[place, place],
            logical_size: LogicalSize::from(4096),
            physical_size: PhysicalSize::from(1024),
            compression: Compression::Lz4,
            checksum_kind: ChecksumKind::Fletcher4,
            checksum: Checksum([1, 2, 0, 0]),
            object_type,
            level: Level::new(level),
            birth: Txg::from(9),
            fill: 3,
        })
    }

    fn sealing() -> Sealing {
        let mut sealing = Sealing::of_code(*b"fedcba9876543210");
        sealing.salt.0 = *b"saltsalt";
        sealing.initialization_vector.0 = *b"vectorvector";
        sealing
    }

    #[test]
    fn a_pointer_keeps_how_its_block_is_sealed() {
        for is_big in [false, true] {
            let mut sealed = pointer(ObjectType::PlainFile, 0);
            if is_big {
                sealed.set_big_endian();
            }
            sealing().put_into(&mut sealed);
            assert!(sealed.is_encrypted());
            assert_eq!(Sealing::of_pointer(&sealed), sealing());
            assert_eq!((sealed.fill(), sealed.dva_count()), (3, 2));
            assert_eq!(sealed.checksum_words.0[..2], [1, 2]);
            assert!(sealed.to_string().contains("encrypted"));
        }
    }

    #[test]
    fn what_is_not_encrypted_has_a_code_only() {
        for (object_type, level) in [(ObjectType::PlainFile, 1), (ObjectType::MasterNode, 0)] {
            let mut sealed = pointer(object_type, level);
            sealing().put_into(&mut sealed);
            assert!(sealed.uses_encryption() && !sealed.is_encrypted());
            let code = sealing().message_authentication_code;
            assert_eq!(Sealing::of_pointer(&sealed), Sealing::of_code(code.0));
        }
        let mut head = pointer(ObjectType::Objset, 0);
        sealing().put_into(&mut head);
        assert!(head.uses_encryption());
        assert_eq!(head.checksum_words.0, [1, 2, 0, 0]);
    }

    /// What a receiver decides does not change what the code above it covers.
    #[test]
    fn only_what_travels_is_digested() {
        let sealed = |level| {
            let mut sealed = pointer(ObjectType::PlainFile, level);
            sealing().put_into(&mut sealed);
            sealed
        };
        let mut other = sealed(1);
        other.set_compression(Compression::Off);
        other.set_physical_size(PhysicalSize::from(4096));
        other.set_checksum(ChecksumKind::Sha256, sealed(1).checksum_words);
        assert_eq!(digested(&other), digested(&sealed(1)));
        let mut other = sealed(0);
        other.set_compression(Compression::Off);
        assert_ne!(digested(&other), digested(&sealed(0)));
        assert_eq!(digested(&BlockPointer::HOLE), [0; 32]);
        let hole = BlockPointer::punched(
            LogicalSize::from(4096),
            ObjectType::PlainFile,
            Level::ZERO,
            Txg::from(9),
        );
        assert_eq!(digested(&hole), [0; 32]);
    }
}
