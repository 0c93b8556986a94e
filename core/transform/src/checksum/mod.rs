//! Checksums: how a block is known to be the one that was written.
//!
//! # Mechanism
//! A checksum is 256 bits, kept as four 64-bit words in the block pointer, that is, in the *parent*
//! of the block it guards. A few blocks have no parent that could hold it (labels, gang headers,
//! intent log blocks); these carry it in themselves, see [`embedded`].
//!
//! A pool may have been written by a machine of either byte order, and a block pointer says which.
//! A checksum made of arithmetic on words (fletcher) must read the words as the writer did. A
//! checksum made of bytes (a hash) gives the same bytes everywhere, but the writer stored them as
//! *words of its own order*, so these bytes are read as words in the writer's order. SHA-256 alone
//! is read big-endian always: it is older than the second byte order.
//!
//! Skein, Edon-R and BLAKE3 are mixed with a secret salt of the pool. Deduplication trusts them,
//! and an attacker without the salt cannot prepare two blocks that collide.
//!
//! # Invariants
//! - [`checksum`] and [`verify`] take whole blocks: a size that is no multiple of 16 is never
//!   stored.

pub mod blake3;
pub mod edonr;
pub mod embedded;
pub mod fletcher;
mod fletcher_simd;
pub mod sha2;
pub mod skein;
mod threefish;

use crate::error::{ChecksumError, UnknownAlgorithm};
use std::fmt;

/// The byte order of the machine that wrote a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first: x86, ARM, and what we write.
    Little,
    /// Most significant byte first: SPARC, POWER, s390.
    Big,
}

impl ByteOrder {
    /// Reads a 64-bit word as the writer stored it.
    pub const fn read_u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// Stores a 64-bit word as this order has it.
    pub const fn write_u64(self, word: u64) -> [u8; 8] {
        match self {
            Self::Little => word.to_le_bytes(),
            Self::Big => word.to_be_bytes(),
        }
    }
}

/// What guards a block: 256 bits, in four words as a block pointer has them.
#[doc(alias = "zio_cksum_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Checksum(pub [u64; 4]);

impl Checksum {
    /// All words zero: what a block without a checksum has.
    pub const ZERO: Self = Self([0; 4]);

    /// Reads a stored checksum, or takes the bytes of a hash for words of `order`.
    pub fn from_bytes(bytes: &[u8; 32], order: ByteOrder) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        Self(std::array::from_fn(|index| order.read_u64(words[index])))
    }

    /// The bytes in which a writer of `order` stores this checksum.
    pub fn to_bytes(self, order: ByteOrder) -> [u8; 32] {
        let mut bytes = [0; 32];
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (stored, word) in words.iter_mut().zip(self.0) {
            *stored = order.write_u64(word);
        }
        bytes
    }
}

/// As `zdb` prints it: four words of sixteen hexadecimal digits, with colons.
impl fmt::Display for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(formatter, "{a:016x}:{b:016x}:{c:016x}:{d:016x}")
    }
}

/// How a block is checksummed. The numbers are those of a block pointer's checksum field; the
/// property values `inherit` (0) and `on` (1) never reach one.
#[doc(alias = "zio_checksum")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChecksumAlgorithm {
    /// No checksum: all words are zero and anything is right.
    Off,
    /// SHA-256 at the end of each part of a vdev label, over it and its place.
    Label,
    /// SHA-256 at the end of a gang header, over it and its identity.
    GangHeader,
    /// fletcher2 at the end of an intent log block, over it and its sequence.
    Zilog,
    /// Two sums of 64-bit words, and sums of these. The default before 2008.
    Fletcher2,
    /// A sum of 32-bit words, and three times the sums of that. The default.
    Fletcher4,
    /// SHA-256.
    Sha256,
    /// fletcher4 in the head of an intent log block, over the used part of it and its sequence.
    Zilog2,
    /// As off. Written by nothing.
    NoParity,
    /// SHA-512/256.
    Sha512,
    /// Skein-512 with 256 bits of output, keyed with the salt.
    Skein,
    /// Edon-R 512 cut to 256 bits, after a block made of the salt.
    EdonR,
    /// BLAKE3 keyed with the salt.
    Blake3,
}

impl ChecksumAlgorithm {
    /// Every algorithm, by number.
    pub const ALL: [Self; 13] = [
        Self::Off,
        Self::Label,
        Self::GangHeader,
        Self::Zilog,
        Self::Fletcher2,
        Self::Fletcher4,
        Self::Sha256,
        Self::Zilog2,
        Self::NoParity,
        Self::Sha512,
        Self::Skein,
        Self::EdonR,
        Self::Blake3,
    ];

    /// The algorithm a block pointer names.
    pub fn from_code(code: u8) -> Result<Self, UnknownAlgorithm> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.code() == code)
            .ok_or(UnknownAlgorithm::Checksum { code })
    }

    /// The number a block pointer has for it.
    pub const fn code(self) -> u8 {
        match self {
            Self::Off => 2,
            Self::Label => 3,
            Self::GangHeader => 4,
            Self::Zilog => 5,
            Self::Fletcher2 => 6,
            Self::Fletcher4 => 7,
            Self::Sha256 => 8,
            Self::Zilog2 => 9,
            Self::NoParity => 10,
            Self::Sha512 => 11,
            Self::Skein => 12,
            Self::EdonR => 13,
            Self::Blake3 => 14,
        }
    }

    /// The name users and tools know it by. Stored in the names of dedup tables, so it never
    /// changes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Label => "label",
            Self::GangHeader => "gang_header",
            Self::Zilog => "zilog",
            Self::Fletcher2 => "fletcher2",
            Self::Fletcher4 => "fletcher4",
            Self::Sha256 => "sha256",
            Self::Zilog2 => "zilog2",
            Self::NoParity => "noparity",
            Self::Sha512 => "sha512",
            Self::Skein => "skein",
            Self::EdonR => "edonr",
            Self::Blake3 => "blake3",
        }
    }

    /// Whether it mixes in the pool's salt.
    pub const fn needs_salt(self) -> bool {
        matches!(self, Self::Skein | Self::EdonR | Self::Blake3)
    }

    /// Whether the checksum is kept in the block it guards. See [`embedded`].
    pub const fn is_embedded(self) -> bool {
        matches!(
            self,
            Self::Label | Self::GangHeader | Self::Zilog | Self::Zilog2
        )
    }

    /// Whether it is strong enough for the pool's own metadata.
    pub const fn guards_metadata(self) -> bool {
        !matches!(
            self,
            Self::Off | Self::Zilog | Self::Fletcher2 | Self::Zilog2 | Self::NoParity
        )
    }

    /// Whether two blocks with the same checksum may be taken for equal without comparing them.
    pub const fn identifies_blocks(self) -> bool {
        matches!(
            self,
            Self::Sha256 | Self::Sha512 | Self::Skein | Self::Blake3
        )
    }

    /// Whether a block need not be written again when it has the checksum it had before. Edon-R is
    /// trusted with this, and not with deduplication.
    pub const fn allows_skipped_write(self) -> bool {
        self.identifies_blocks() || matches!(self, Self::EdonR)
    }
}

impl fmt::Display for ChecksumAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The secret of a pool that salted checksums are mixed with, and what each of them makes of it.
/// Made once when the pool is opened, so that small blocks do not pay for it each time.
#[doc(alias = "zio_cksum_salt_t")]
#[derive(Clone)]
pub struct Salt {
    bytes: [u8; 32],
    skein: skein::Skein512,
    edonr: edonr::EdonR512,
}

impl Salt {
    /// Prepares the 32 bytes that the pool keeps as `org.illumos:checksum_salt`.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self {
            skein: skein::salted(&bytes),
            edonr: edonr::salted(&bytes),
            bytes,
        }
    }

    /// The bytes as the pool keeps them.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }
}

/// Shows nothing of the secret.
impl fmt::Debug for Salt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Salt(..)")
    }
}

/// The checksum of a block that a machine of `order` wrote, or would.
///
/// The kinds that are embedded in blocks give what [`embedded`] would for bytes that already have
/// their verifier in place.
///
/// # Panics
/// When `algorithm` [needs a salt](ChecksumAlgorithm::needs_salt) and there is none: a writer knows
/// its pool. [`verify`] refuses instead.
pub fn checksum(
    algorithm: ChecksumAlgorithm,
    block: &[u8],
    order: ByteOrder,
    salt: Option<&Salt>,
) -> Checksum {
    checksum_slices(algorithm, &[block], order, salt)
}

/// The checksum of a block that lies in pieces. All but the last must be multiples of what the sums
/// take at once: 16 bytes for fletcher2, 4 for fletcher4, and 1 for everything else.
///
/// # Panics
/// As [`checksum`].
pub fn checksum_slices(
    algorithm: ChecksumAlgorithm,
    pieces: &[&[u8]],
    order: ByteOrder,
    salt: Option<&Salt>,
) -> Checksum {
    try_checksum(algorithm, pieces, order, salt).expect("a writer of salted checksums has the salt")
}

/// Whether a block is the one its pointer means.
pub fn verify(
    algorithm: ChecksumAlgorithm,
    block: &[u8],
    order: ByteOrder,
    salt: Option<&Salt>,
    expected: &Checksum,
) -> Result<(), ChecksumError> {
    if algorithm.is_embedded() {
        return Err(ChecksumError::Misplaced { algorithm });
    }
    if matches!(
        algorithm,
        ChecksumAlgorithm::Off | ChecksumAlgorithm::NoParity
    ) {
        return Ok(());
    }
    let actual = try_checksum(algorithm, &[block], order, salt)?;
    if actual == *expected {
        Ok(())
    } else {
        Err(ChecksumError::Mismatch {
            algorithm,
            expected: *expected,
            actual,
        })
    }
}

fn try_checksum(
    algorithm: ChecksumAlgorithm,
    pieces: &[&[u8]],
    order: ByteOrder,
    salt: Option<&Salt>,
) -> Result<Checksum, ChecksumError> {
    let salt = || salt.ok_or(ChecksumError::NoSalt { algorithm });
    Ok(match algorithm {
        ChecksumAlgorithm::Off | ChecksumAlgorithm::NoParity => Checksum::ZERO,
        ChecksumAlgorithm::Label | ChecksumAlgorithm::GangHeader | ChecksumAlgorithm::Sha256 => {
            Checksum::from_bytes(&sha2::sha256(pieces), ByteOrder::Big)
        }
        ChecksumAlgorithm::Zilog | ChecksumAlgorithm::Fletcher2 => {
            fletcher::fletcher2(pieces, order)
        }
        ChecksumAlgorithm::Zilog2 | ChecksumAlgorithm::Fletcher4 => {
            fletcher::fletcher4(pieces, order)
        }
        ChecksumAlgorithm::Sha512 => Checksum::from_bytes(&sha2::sha512_256(pieces), order),
        ChecksumAlgorithm::Skein => {
            Checksum::from_bytes(&skein::salted_digest(&salt()?.skein, pieces), order)
        }
        ChecksumAlgorithm::EdonR => {
            Checksum::from_bytes(&edonr::salted_digest(&salt()?.edonr, pieces), order)
        }
        ChecksumAlgorithm::Blake3 => {
            Checksum::from_bytes(&blake3::keyed_digest(salt()?.bytes(), pieces), order)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_names_its_algorithm_and_no_other_does() {
        for algorithm in ChecksumAlgorithm::ALL {
            assert_eq!(
                ChecksumAlgorithm::from_code(algorithm.code()),
                Ok(algorithm)
            );
        }
        for code in [0, 1, 15, 255] {
            assert_eq!(
                ChecksumAlgorithm::from_code(code),
                Err(UnknownAlgorithm::Checksum { code })
            );
        }
    }

    #[test]
    fn a_flipped_bit_is_found_by_every_algorithm() {
        let salt = Salt::new([7; 32]);
        let block: Vec<u8> = (0..=255).cycle().take(4096).collect();
        for algorithm in ChecksumAlgorithm::ALL {
            if algorithm.is_embedded()
                || matches!(
                    algorithm,
                    ChecksumAlgorithm::Off | ChecksumAlgorithm::NoParity
                )
            {
                continue;
            }
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let expected = checksum(algorithm, &block, order, Some(&salt));
                assert_eq!(
                    verify(algorithm, &block, order, Some(&salt), &expected),
                    Ok(())
                );
                let mut damaged = block.clone();
                damaged[1234] ^= 0x10;
                assert!(verify(algorithm, &damaged, order, Some(&salt), &expected).is_err());
            }
        }
    }

    #[test]
    fn pieces_give_the_checksum_of_the_whole() {
        let salt = Salt::new(*b"thirty-two bytes of some salting");
        let block: Vec<u8> = (0..=250).cycle().take(8192).collect();
        for algorithm in ChecksumAlgorithm::ALL {
            let whole = checksum(algorithm, &block, ByteOrder::Little, Some(&salt));
            for cut in [0, 16, 512, 1040, 8176, 8192] {
                let (head, tail) = block.split_at(cut);
                let pieces =
                    checksum_slices(algorithm, &[head, tail], ByteOrder::Little, Some(&salt));
                assert_eq!(pieces, whole, "{algorithm} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_salted_checksum_without_a_salt_is_refused() {
        let verdict = verify(
            ChecksumAlgorithm::Skein,
            &[0; 512],
            ByteOrder::Little,
            None,
            &Checksum::ZERO,
        );
        assert_eq!(
            verdict,
            Err(ChecksumError::NoSalt {
                algorithm: ChecksumAlgorithm::Skein
            })
        );
    }

    #[test]
    fn a_hash_is_read_as_words_of_the_writer_but_sha256_is_not() {
        let block = [3; 512];
        let little = checksum(ChecksumAlgorithm::Sha512, &block, ByteOrder::Little, None);
        let big = checksum(ChecksumAlgorithm::Sha512, &block, ByteOrder::Big, None);
        assert_eq!(little.0.map(u64::swap_bytes), big.0);
        let little = checksum(ChecksumAlgorithm::Sha256, &block, ByteOrder::Little, None);
        let big = checksum(ChecksumAlgorithm::Sha256, &block, ByteOrder::Big, None);
        assert_eq!(little, big);
    }
}
