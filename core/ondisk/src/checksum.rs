//! Checksums as they are stored: which function, which value, and the tail that carries one inside
//! the block it guards.
//!
//! # Mechanism
//! Most blocks have their checksum in the pointer to them. A few have no pointer that could hold
//! it (labels, gang headers, log blocks): they end in an [`EmbeddedChecksum`]. To compute it, the
//! tail's value is first set to a *verifier*, something that only the right block in the right
//! place knows; then the whole block, tail included, is hashed, and the result takes the
//! verifier's place. [`label_verifier`] and [`gang_verifier`] make the verifiers; hashing is done
//! above.

use crate::declare::{ByteOrder, Corrupt, Reader, Stored, Writer, stored_codes};
use crate::on_disk;
use crate::units::{Txg, VdevId, VdevOffset};
use std::fmt;

stored_codes! {
    /// Which function made a checksum.
    #[doc(alias = "zio_checksum")]
    pub enum ChecksumKind, unknown "UNKNOWN" {
        /// A property value: as the parent dataset has it. Never in a block pointer.
        0 => Inherit "inherit",
        /// A property value: the default function. Never in a block pointer.
        1 => On "on",
        /// None.
        2 => Off "off",
        /// SHA-256 in the block's own tail, with the place on the device as verifier.
        3 => Label "label",
        /// SHA-256 in the block's own tail, with place and txg as verifier.
        4 => GangHeader "gang_header",
        /// Fletcher2 in the log block itself, before pool version 26.
        5 => IntentLog "zilog",
        /// Fletcher2.
        6 => Fletcher2 "fletcher2",
        /// Fletcher4, the default.
        7 => Fletcher4 "fletcher4",
        /// SHA-256.
        8 => Sha256 "sha256",
        /// Fletcher4 in the log block itself.
        9 => IntentLog2 "zilog2",
        /// None, and RAID-Z leaves parity unverified too.
        10 => NoParity "noparity",
        /// SHA-512/256.
        11 => Sha512 "sha512",
        /// Skein-512-256, salted.
        12 => Skein "skein",
        /// Edon-R 512, salted.
        13 => EdonR "edonr",
        /// BLAKE3, salted.
        14 => Blake3 "blake3",
    }
}

impl ChecksumKind {
    /// True for functions whose value lies inside the block it guards.
    pub const fn is_embedded(self) -> bool {
        use ChecksumKind::*;
        matches!(self, Label | GangHeader | IntentLog | IntentLog2)
    }

    /// True for functions that mix in the pool's secret salt.
    pub const fn is_salted(self) -> bool {
        use ChecksumKind::*;
        matches!(self, Skein | EdonR | Blake3)
    }

    /// True for functions strong enough to take equal values for equal blocks.
    pub const fn may_deduplicate(self) -> bool {
        use ChecksumKind::*;
        matches!(self, Sha256 | Sha512 | Skein | Blake3)
    }

    /// True for functions strong enough for metadata.
    pub const fn may_guard_metadata(self) -> bool {
        use ChecksumKind::*;
        matches!(
            self,
            Label | GangHeader | Fletcher4 | Sha256 | Sha512 | Skein | EdonR | Blake3
        )
    }
}

/// The value of a checksum: 256 bits, in four words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[doc(alias = "zio_cksum_t")]
pub struct Checksum(pub [u64; 4]);

impl Checksum {
    /// All zero, as in a hole.
    pub const ZERO: Checksum = Checksum([0; 4]);
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:016x}:{b:016x}:{c:016x}:{d:016x}")
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checksum({self})")
    }
}

impl Stored for Checksum {
    const SIZE: usize = 32;
    const NAME: &'static str = "Checksum";

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        reader.value().map(Checksum)
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.0.encode(writer);
    }
}

on_disk! {
    /// The last bytes of a block that carries its own checksum.
    #[doc(alias = "zio_eck_t")]
    #[derive(Copy)]
    pub struct EmbeddedChecksum [40 bytes] {
        /// `MAGIC`, in the byte order of the machine that wrote the block.
        0 => magic: u64,
        8 => checksum: Checksum,
    }
}

impl EmbeddedChecksum {
    /// Marks a block that carries its own checksum.
    #[doc(alias = "ZEC_MAGIC")]
    pub const MAGIC: u64 = 0x0210_da7a_b10c_7a11;

    /// A tail that holds `checksum`.
    pub const fn new(checksum: Checksum) -> Self {
        EmbeddedChecksum {
            magic: Self::MAGIC,
            checksum,
        }
    }

    /// Takes the tail of `block`, and finds by its magic number the byte order of the block.
    pub fn of_block(
        what: &'static str,
        block: &[u8],
    ) -> Result<(EmbeddedChecksum, ByteOrder), Corrupt> {
        let mut reader = Reader::new(what, block, ByteOrder::Little);
        let start = block.len().saturating_sub(Self::SIZE);
        reader.seek(start)?;
        let tail = reader.take(Self::SIZE)?;
        let order = ByteOrder::of_magic(tail, Self::MAGIC).ok_or(Corrupt::Magic {
            what,
            offset: crate::declare::widen(start),
            found: u64::from_bytes(tail, ByteOrder::Little)?,
            expected: Self::MAGIC,
        })?;
        Ok((EmbeddedChecksum::from_bytes(tail, order)?, order))
    }

    /// Puts the tail at the end of `block`.
    ///
    /// # Panics
    /// When the block is smaller than the tail.
    pub fn write_to_end_of(&self, block: &mut [u8]) {
        let start = block.len() - Self::SIZE;
        self.write_to(&mut block[start..]);
    }
}

/// What the tail of a block in a vdev label holds while it is hashed: the block's own offset on
/// the device, in bytes.
pub const fn label_verifier(device_offset: u64) -> Checksum {
    Checksum([device_offset, 0, 0, 0])
}

/// What the tail of a gang header holds while it is hashed: a place and time that no other block
/// of the pool ever has. `place` is the first DVA of the pointer to it, `birth` its physical birth.
pub const fn gang_verifier(vdev: VdevId, offset: VdevOffset, birth: Txg) -> Checksum {
    Checksum([vdev.get(), offset.get(), birth.get(), 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_says_the_byte_order_of_its_block() {
        let mut block = [7; 64];
        EmbeddedChecksum::new(Checksum([1, 2, 3, 4])).write_to_end_of(&mut block);
        let (tail, order) = EmbeddedChecksum::of_block("block", &block).unwrap();
        assert_eq!(
            (tail.checksum, order),
            (Checksum([1, 2, 3, 4]), ByteOrder::Little)
        );

        for word in block[24..].chunks_exact_mut(8) {
            word.reverse();
        }
        let (tail, order) = EmbeddedChecksum::of_block("block", &block).unwrap();
        assert_eq!(
            (tail.checksum, order),
            (Checksum([1, 2, 3, 4]), ByteOrder::Big)
        );
    }

    #[test]
    fn a_tail_without_its_magic_number_is_refused() {
        assert!(matches!(
            EmbeddedChecksum::of_block("block", &[0; 64]),
            Err(Corrupt::Magic {
                offset: 24,
                found: 0,
                ..
            })
        ));
        assert!(EmbeddedChecksum::of_block("block", &[0; 10]).is_err());
    }
}
