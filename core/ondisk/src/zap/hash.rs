//! The hash of names in a ZAP, and the cursors made of it.
//!
//! # Mechanism
//! The hash is CRC-64 with the ECMA polynomial (reflected), begun with the ZAP's own salt instead
//! of all ones and not inverted at the end. The salt keeps a ZAP that is filled from another in
//! the other's order from filling the leaves one by one. Only the first 28 bits are kept (48 in
//! very large ZAPs), so that a cursor has room for the differentiator beside them.

use super::{Name, ZapFlags};

/// ECMA-182, reflected.
#[doc(alias = "ZFS_CRC64_POLY")]
const POLYNOMIAL: u64 = 0xc96c_5795_d787_0f42;

/// The remainder of each byte.
#[doc(alias = "zfs_crc64_table")]
pub const CRC64_TABLE: [u64; 256] = crc64_table();

const fn crc64_table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut index = 0u64;
    let mut place = 0;
    while place < 256 {
        let mut remainder = index;
        let mut bit = 0;
        while bit < 8 {
            let odd = remainder & 1 == 1;
            remainder >>= 1;
            if odd {
                remainder ^= POLYNOMIAL;
            }
            bit += 1;
        }
        table[place] = remainder;
        index += 1;
        place += 1;
    }
    table
}

/// A name's hash. Its first bits choose the leaf, the next ones the chain within.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ZapHash(u64);

impl ZapHash {
    /// The smallest, with which a walk begins.
    pub const ZERO: ZapHash = ZapHash(0);

    /// As it is stored.
    pub const fn from_word(word: u64) -> ZapHash {
        ZapHash(word)
    }

    /// As it is stored.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The hash of `name`, normalised where the ZAP normalises, in a ZAP with this salt.
    ///
    /// A name of no words in a ZAP whose names are hashes has the hash 0.
    #[doc(alias = "zap_hash")]
    pub fn of(name: Name<'_>, salt: u64, flags: ZapFlags) -> ZapHash {
        let full = match name {
            Name::Words(words) if flags.has(ZapFlags::NAMES_ARE_HASHED) => {
                words.first().copied().unwrap_or(0)
            }
            Name::Words(words) => words
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .fold(salt, add_byte),
            Name::Text(text) => text.iter().copied().fold(salt, add_byte),
        };
        ZapHash(full & !(u64::MAX >> flags.hash_bits()))
    }

    /// The first `length` bits, as a number.
    #[doc(alias = "ZAP_HASH_IDX")]
    pub const fn prefix(self, length: u32) -> u64 {
        if length == 0 {
            0
        } else {
            self.0 >> (64 - length)
        }
    }

    /// The smallest hash with these first bits.
    ///
    /// `None` past 64 bits, or when `prefix` has more than `length` bits.
    #[doc(alias = "ZAP_PREFIX_HASH")]
    pub const fn of_prefix(prefix: u64, length: u32) -> Option<ZapHash> {
        match length {
            0 if prefix == 0 => Some(ZapHash(0)),
            1..=63 if prefix >> length == 0 => Some(ZapHash(prefix << (64 - length))),
            64 => Some(ZapHash(prefix)),
            _ => None,
        }
    }
}

fn add_byte(remainder: u64, byte: u8) -> u64 {
    let [low, ..] = remainder.to_le_bytes();
    (remainder >> 8) ^ CRC64_TABLE[usize::from(low ^ byte)]
}

/// Differentiators are below this: as many as a cookie has room for beside the longest hash. A leaf
/// has no room for as many entries.
#[doc(alias = "zap_maxcd")]
pub const DIFFERENTIATOR_END: u32 = (1 << 16) - 1;

/// A place between the entries of a ZAP, in the order of hashes and differentiators. It stays good
/// while entries come and go, leaves split, and a micro ZAP becomes fat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cursor {
    /// The hash of the entry before which it stands.
    pub hash: ZapHash,
    /// The differentiator of that entry.
    pub differentiator: u32,
}

impl Cursor {
    /// Before the first entry.
    pub const START: Cursor = Cursor {
        hash: ZapHash(0),
        differentiator: 0,
    };

    /// The place right behind an entry, whose differentiator is below [`DIFFERENTIATOR_END`].
    pub const fn after(hash: ZapHash, differentiator: u32) -> Cursor {
        Cursor {
            hash,
            differentiator: differentiator + 1,
        }
    }

    /// As one word, small where it can be: the differentiator in front of the hash's bits.
    #[doc(alias = "zap_cursor_serialize")]
    pub fn to_cookie(self, flags: ZapFlags) -> u64 {
        let bits = flags.hash_bits();
        (u64::from(self.differentiator) << bits) | (self.hash.0 >> (64 - bits))
    }

    /// From the word that [`to_cookie`](Cursor::to_cookie) made, or from any other.
    #[doc(alias = "zap_cursor_init_serialized")]
    pub fn from_cookie(cookie: u64, flags: ZapFlags) -> Cursor {
        let bits = flags.hash_bits();
        Cursor {
            hash: ZapHash(cookie << (64 - bits)),
            differentiator: u32::try_from(cookie >> bits).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_polynomial_where_the_format_checks_it() {
        assert_eq!(CRC64_TABLE[128], POLYNOMIAL);
    }

    #[test]
    fn only_the_first_bits_of_a_hash_are_kept() {
        let name = Name::Text(b"name");
        let short = ZapHash::of(name, 1, ZapFlags::default());
        let long = ZapHash::of(name, 1, ZapFlags::HASH_48_BITS);
        assert_eq!(short.word() << 28, 0);
        assert_eq!(long.word() << 48, 0);
        assert_eq!(short.prefix(28), long.prefix(28));
    }

    #[test]
    fn a_cursor_survives_as_a_word() {
        for flags in [ZapFlags::default(), ZapFlags::HASH_48_BITS] {
            let hash = ZapHash::of(Name::Text(b"name"), 77, flags);
            let cursor = Cursor::after(hash, 4);
            assert_eq!(Cursor::from_cookie(cursor.to_cookie(flags), flags), cursor);
        }
    }

    #[test]
    fn a_prefix_and_its_smallest_hash_belong_together() {
        assert_eq!(ZapHash::of_prefix(0, 0), Some(ZapHash::ZERO));
        assert_eq!(ZapHash::of_prefix(2, 1), None);
        assert_eq!(ZapHash::of_prefix(5, 3).map(|hash| hash.prefix(3)), Some(5));
        assert_eq!(ZapHash::of_prefix(0, 65), None);
    }
}
