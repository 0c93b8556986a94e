//! Embedded blocks: contents so small that they live in their pointer.
//!
//! # Mechanism
//! All words of the pointer but the properties (6) and the logical birth (10) hold the contents: 14
//! words, 112 bytes. The properties are laid out as in any pointer, except for the sizes, which
//! are in bytes less one, and the checksum, which is the *embedded type*:
//!
//! ```text
//!   63  62  61  60   56 55  48 47      40 39 38       32 31      25 24     0
//!  +---+---+---+-------+------+----------+--+-----------+----------+--------+
//!  | B | 0 | 0 | level | type |  e-type  |1 | compress. | physical | logical|
//!  +---+---+---+-------+------+----------+--+-----------+----------+--------+
//! ```
//!
//! # Invariants
//! - The contents are bytes, the first in the low bits of the first word, whatever the order of
//!   the machine: once the words are decoded, little-endian words are the bytes.

use crate::block_pointer::{BlockPointer, low_byte};
use crate::compression::Compression;
use crate::declare::{ByteOrder, Corrupt, Stored, bits, narrow, stored_codes, widen, with_bits};
use crate::object_type::ObjectType;
use crate::units::{Level, LogicalSize, Txg};

/// How many bytes fit into a pointer.
#[doc(alias = "BPE_PAYLOAD_SIZE")]
pub const PAYLOAD_BYTES_MAX: usize = 112;

/// The runs of payload words within a pointer: start and end, in bytes.
const RUNS: [(usize, usize); 3] = [(0, 48), (56, 80), (88, 128)];

stored_codes! {
    /// What the payload of an embedded pointer means.
    #[doc(alias = "bp_embedded_type_t")]
    pub enum EmbeddedType, unknown "unknown" {
        /// The contents of the block.
        0 => Data "data",
        /// Never used by OpenZFS.
        1 => Reserved "reserved",
        /// Nothing: the block was left out of a redacted stream.
        2 => Redacted "redacted",
    }
}

/// The contents of an embedded block, as stored: compressed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    bytes: [u8; PAYLOAD_BYTES_MAX],
    size: usize,
}

impl Payload {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

impl BlockPointer {
    /// A pointer that holds `payload`, which is `logical_size` bytes after decompression.
    ///
    /// # Panics
    /// When the payload is empty or larger than [`PAYLOAD_BYTES_MAX`].
    pub fn embedded(
        payload: &[u8],
        logical_size: LogicalSize,
        compression: Compression,
        object_type: ObjectType,
        level: Level,
        birth: Txg,
    ) -> BlockPointer {
        assert!(!payload.is_empty(), "an embedded block has contents");
        assert!(
            payload.len() <= PAYLOAD_BYTES_MAX,
            "an embedded block fits its pointer"
        );
        let mut bytes = [0; 128];
        let mut rest = payload;
        for (start, end) in RUNS {
            let (now, later) = rest.split_at(rest.len().min(end - start));
            bytes[start..start + now.len()].copy_from_slice(now);
            rest = later;
        }
        let mut pointer = BlockPointer::from_bytes(&bytes, ByteOrder::Little)
            .expect("128 bytes are a block pointer");
        pointer.properties = with_bits(0, 39, 1, 1);
        pointer.properties = with_bits(pointer.properties, 0, 25, logical_size.get() - 1);
        pointer.properties = with_bits(pointer.properties, 25, 7, widen(payload.len()) - 1);
        pointer.set_compression(compression);
        pointer.set_object_type(object_type);
        pointer.set_level(level);
        pointer.set_little_endian();
        pointer.logical_birth = birth;
        pointer
    }

    /// What the payload means; none where the pointer is not embedded.
    pub fn embedded_type(&self) -> Option<EmbeddedType> {
        self.is_embedded()
            .then(|| EmbeddedType::from_code(low_byte(bits(self.properties, 40, 8))))
    }

    /// The contents of the block, as stored. Refuses a pointer that is not embedded data, or
    /// that claims more than a pointer holds.
    pub fn payload(&self) -> Result<Payload, Corrupt> {
        if self.embedded_type() != Some(EmbeddedType::Data) {
            return Err(Corrupt::Value {
                what: "embedded block pointer",
                field: "embedded type",
                offset: 48,
                found: bits(self.properties, 40, 8),
            });
        }
        self.check_embedded()?;
        let mut stored = [0; 128];
        self.write_to(&mut stored);
        let mut bytes = [0; PAYLOAD_BYTES_MAX];
        let mut filled = 0;
        for (start, end) in RUNS {
            bytes[filled..filled + end - start].copy_from_slice(&stored[start..end]);
            filled += end - start;
        }
        Ok(Payload {
            bytes,
            size: narrow(bits(self.properties, 25, 7) + 1),
        })
    }

    /// The part of [`check`](BlockPointer::check) that concerns embedded pointers.
    pub(crate) fn check_embedded(&self) -> Result<(), Corrupt> {
        let refuse = |field, found| {
            Err(Corrupt::Value {
                what: "embedded block pointer",
                field,
                offset: 48,
                found,
            })
        };
        let etype = bits(self.properties, 40, 8);
        if !EmbeddedType::from_code(low_byte(etype)).is_known() {
            return refuse("embedded type", etype);
        }
        let size = bits(self.properties, 25, 7) + 1;
        if size > widen(PAYLOAD_BYTES_MAX) {
            return refuse("physical size", size);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embed(payload: &[u8]) -> BlockPointer {
        BlockPointer::embedded(
            payload,
            LogicalSize::from(512),
            Compression::Lz4,
            ObjectType::PlainFile,
            Level::ZERO,
            Txg::from(5),
        )
    }

    #[test]
    fn a_payload_of_any_size_comes_back() {
        for size in 1..=PAYLOAD_BYTES_MAX {
            let payload: Vec<u8> = (1..=u8::MAX).take(size).collect();
            let pointer = embed(&payload);
            assert_eq!(pointer.payload().unwrap().bytes(), payload);
            assert_eq!(pointer.logical_size().get(), 512);
            assert_eq!(pointer.logical_birth, Txg::from(5));
            assert_eq!(pointer.check(), Ok(()));
        }
    }

    #[test]
    fn an_embedded_block_occupies_nothing() {
        let pointer = embed(&[0xff; 112]);
        assert_eq!(pointer.allocated_size().get(), 0);
        assert_eq!(pointer.physical_size().get(), 0);
        assert_eq!(pointer.dva_count(), 0);
        assert_eq!(pointer.fill(), 1);
        assert!(!pointer.is_hole() && !pointer.is_gang());
    }

    #[test]
    fn a_payload_larger_than_its_pointer_is_refused() {
        let mut pointer = embed(&[1; 112]);
        pointer.properties = with_bits(pointer.properties, 25, 7, 112);
        assert!(pointer.payload().is_err());
        assert!(pointer.check().is_err());
    }
}
