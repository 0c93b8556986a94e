//! One declaration per stored structure, and the readers and writers that follow it.
//!
//! # Mechanism
//! [`on_disk!`](crate::on_disk) takes a structure with the offset of each field, and makes the
//! value type and its [`Stored`] implementation. Offsets and size are checked while compiling: a
//! field that is not where its declaration says does not build. Every byte belongs to a field;
//! bytes without a meaning are [`Reserved`].
//!
//! # Invariants
//! - A [`Reader`] never reads outside its bytes, whatever it is asked.
//! - `T::SIZE` bytes are consumed by `T::decode` and produced by `T::encode`, always.

use std::fmt;

/// The order in which a machine stores the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum ByteOrder {
    /// Least significant byte first: x86, ARM, and everything we write.
    #[default]
    Little,
    /// Most significant byte first: SPARC, some POWER and MIPS.
    Big,
}

impl ByteOrder {
    /// The other order.
    pub const fn swapped(self) -> ByteOrder {
        match self {
            ByteOrder::Little => ByteOrder::Big,
            ByteOrder::Big => ByteOrder::Little,
        }
    }

    /// The order in which the eight bytes at the start of `bytes` spell `magic`, if any.
    pub fn of_magic(bytes: &[u8], magic: u64) -> Option<ByteOrder> {
        let word: [u8; 8] = bytes.get(..8)?.try_into().ok()?;
        if u64::from_le_bytes(word) == magic {
            Some(ByteOrder::Little)
        } else if u64::from_be_bytes(word) == magic {
            Some(ByteOrder::Big)
        } else {
            None
        }
    }
}

/// Why bytes are not what they were taken for. Offsets count from the start of the structure
/// named by `what`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// The bytes end before the structure does.
    #[error("{what}: needs {needed} bytes at offset {offset}, of which {present} are there")]
    Truncated {
        /// The structure that was decoded.
        what: &'static str,
        /// Where the missing bytes begin.
        offset: u64,
        /// How many bytes were wanted there.
        needed: u64,
        /// How many bytes were there.
        present: u64,
    },
    /// A magic number is not what marks this structure, in either byte order.
    #[error("{what}: magic number at offset {offset} is {found:#x}, not {expected:#x}")]
    Magic {
        /// The structure that was decoded.
        what: &'static str,
        /// Where the magic number is.
        offset: u64,
        /// What is stored there.
        found: u64,
        /// What the format wants there.
        expected: u64,
    },
    /// A field holds a value that the format does not allow.
    #[error("{what}: {field} at offset {offset} cannot be {found}")]
    Value {
        /// The structure that was decoded.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Where the field is.
        offset: u64,
        /// What is stored there.
        found: u64,
    },
    /// Two parts of the structure contradict each other, or a part points outside.
    #[error("{what}: at offset {offset}, {why}")]
    Inconsistent {
        /// The structure that was decoded.
        what: &'static str,
        /// Where the contradiction was seen.
        offset: u64,
        /// The rule that is broken, as a clause.
        why: &'static str,
    },
    /// The bytes may be right, and are of a kind that this program cannot take apart.
    #[error("{what}: at offset {offset}, {which} is not supported")]
    Unsupported {
        /// The structure that was decoded.
        what: &'static str,
        /// Where it was seen.
        offset: u64,
        /// What is not supported.
        which: &'static str,
    },
}

/// A value with a fixed place on disk.
pub trait Stored: Sized {
    /// How many bytes it takes there.
    const SIZE: usize;
    /// Its name in errors.
    const NAME: &'static str;

    /// Takes the value from the next `SIZE` bytes.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt>;

    /// Puts the value into the next `SIZE` bytes.
    ///
    /// # Panics
    /// When the writer has fewer bytes left: a buffer too small is our mistake, not the disk's.
    fn encode(&self, writer: &mut Writer<'_>);

    /// Decodes the start of `bytes`; what follows is ignored.
    fn from_bytes(bytes: &[u8], order: ByteOrder) -> Result<Self, Corrupt> {
        Self::decode(&mut Reader::new(Self::NAME, bytes, order))
    }

    /// Decodes bytes of an older, shorter version of the structure: the missing end reads as zeros.
    fn from_short_bytes(bytes: &[u8], order: ByteOrder) -> Result<Self, Corrupt> {
        if bytes.len() >= Self::SIZE {
            return Self::from_bytes(bytes, order);
        }
        let mut extended = vec![0; Self::SIZE];
        extended[..bytes.len()].copy_from_slice(bytes);
        Self::from_bytes(&extended, order)
    }

    /// Encodes into the start of `bytes`; what follows is left alone.
    ///
    /// # Panics
    /// When `bytes` is shorter than `SIZE`.
    fn write_to(&self, bytes: &mut [u8]) {
        self.encode(&mut Writer::new(bytes));
    }

    /// Encodes into bytes of its own.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        self.write_to(&mut bytes);
        bytes
    }
}

/// Takes values from bytes of known order, and refuses to run past their end.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    position: usize,
    order: ByteOrder,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which hold a `what`.
    pub fn new(what: &'static str, bytes: &'a [u8], order: ByteOrder) -> Self {
        Reader {
            what,
            bytes,
            position: 0,
            order,
        }
    }

    /// The structure being read, for errors.
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// The byte order of the numbers.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// How many bytes were taken.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// True when nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.remaining() == 0
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Corrupt> {
        match self.bytes[self.position..].get(..count) {
            Some(taken) => {
                self.position += count;
                Ok(taken)
            }
            None => Err(Corrupt::Truncated {
                what: self.what,
                offset: widen(self.position),
                needed: widen(count),
                present: widen(self.remaining()),
            }),
        }
    }

    /// The next `N` bytes, as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let mut taken = [0; N];
        taken.copy_from_slice(self.take(N)?);
        Ok(taken)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.position..];
        self.position = self.bytes.len();
        rest
    }

    /// Passes over `count` bytes.
    pub fn skip(&mut self, count: usize) -> Result<(), Corrupt> {
        self.take(count).map(|_| ())
    }

    /// Continues at `position`, counted from the start of the bytes.
    pub fn seek(&mut self, position: usize) -> Result<(), Corrupt> {
        if position > self.bytes.len() {
            return Err(self.truncated_at(position));
        }
        self.position = position;
        Ok(())
    }

    /// A reader of the next `count` bytes only, which are passed over here.
    pub fn part(&mut self, what: &'static str, count: usize) -> Result<Reader<'a>, Corrupt> {
        Ok(Reader::new(what, self.take(count)?, self.order))
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, Corrupt> {
        Ok(self.array::<1>()?[0])
    }

    /// The next two bytes, as a number.
    pub fn u16(&mut self) -> Result<u16, Corrupt> {
        let bytes = self.array()?;
        Ok(match self.order {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        })
    }

    /// The next four bytes, as a number.
    pub fn u32(&mut self) -> Result<u32, Corrupt> {
        let bytes = self.array()?;
        Ok(match self.order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        })
    }

    /// The next eight bytes, as a number.
    pub fn u64(&mut self) -> Result<u64, Corrupt> {
        let bytes = self.array()?;
        Ok(match self.order {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        })
    }

    /// The next eight bytes, as a number that may be negative.
    pub fn i64(&mut self) -> Result<i64, Corrupt> {
        Ok(self.u64()?.cast_signed())
    }

    /// The next value, of any stored type.
    pub fn value<T: Stored>(&mut self) -> Result<T, Corrupt> {
        T::decode(self)
    }

    /// An error for the field that was just read, `size` bytes back.
    pub fn bad_value(&self, field: &'static str, size: usize, found: u64) -> Corrupt {
        let offset = widen(self.position.saturating_sub(size));
        Corrupt::Value {
            what: self.what,
            field,
            offset,
            found,
        }
    }

    /// An error for a rule that is broken where the reader stands.
    pub fn inconsistent(&self, why: &'static str) -> Corrupt {
        Corrupt::Inconsistent {
            what: self.what,
            offset: widen(self.position),
            why,
        }
    }

    fn truncated_at(&self, position: usize) -> Corrupt {
        Corrupt::Truncated {
            what: self.what,
            offset: widen(self.bytes.len()),
            needed: widen(position - self.bytes.len()),
            present: 0,
        }
    }
}

/// Puts values into bytes, little-endian.
///
/// It writes where it is told; bytes that are skipped keep what they were. Running past the end
/// is a mistake of ours and panics.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    position: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the start of `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Writer { bytes, position: 0 }
    }

    /// How many bytes were written or skipped.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let end = self.position + bytes.len();
        self.bytes[self.position..end].copy_from_slice(bytes);
        self.position = end;
    }

    /// Writes `count` zeros.
    pub fn zeros(&mut self, count: usize) {
        let end = self.position + count;
        self.bytes[self.position..end].fill(0);
        self.position = end;
    }

    /// Passes over `count` bytes, which keep what they hold.
    pub fn skip(&mut self, count: usize) {
        assert!(count <= self.remaining(), "a writer skips inside its bytes");
        self.position += count;
    }

    /// Writes one byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Writes a number of two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes a number of four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes a number of eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes a number of eight bytes that may be negative.
    pub fn i64(&mut self, value: i64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes a value of any stored type.
    pub fn value<T: Stored>(&mut self, value: &T) {
        value.encode(self);
    }
}

/// Bytes the format keeps for later: zero in what we make, carried unchanged in what we read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reserved<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Reserved<N> {
    fn default() -> Self {
        Reserved([0; N])
    }
}

impl<const N: usize> fmt::Debug for Reserved<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(|&byte| byte == 0) {
            write!(f, "Reserved<{N}>")
        } else {
            write!(f, "Reserved({:02x?})", self.0)
        }
    }
}

impl<const N: usize> Stored for Reserved<N> {
    const SIZE: usize = N;
    const NAME: &'static str = "reserved bytes";

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Reserved(reader.array()?))
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.bytes(&self.0);
    }
}

/// `Stored` for the machine's integers.
macro_rules! stored_integer {
    ($($integer:ident $size:literal),*) => {$(
        impl Stored for $integer {
            const SIZE: usize = $size;
            const NAME: &'static str = stringify!($integer);

            fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
                let bytes = reader.array()?;
                Ok(match reader.order {
                    ByteOrder::Little => $integer::from_le_bytes(bytes),
                    ByteOrder::Big => $integer::from_be_bytes(bytes),
                })
            }

            fn encode(&self, writer: &mut Writer<'_>) {
                writer.bytes(&self.to_le_bytes());
            }
        }
    )*};
}

stored_integer!(u8 1, u16 2, u32 4, u64 8, i8 1, i16 2, i32 4, i64 8);

impl<T: Stored + Copy + Default, const N: usize> Stored for [T; N] {
    const SIZE: usize = T::SIZE * N;
    const NAME: &'static str = T::NAME;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::decode(reader)?;
        }
        Ok(values)
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        for value in self {
            value.encode(writer);
        }
    }
}

/// A size or offset in memory as the 64 bits it has in errors and on disk. Cannot fail on any
/// machine we build for.
pub fn widen(count: usize) -> u64 {
    u64::try_from(count).expect("usize is at most 64 bits")
}

/// A stored size or offset as one in memory; the largest possible where it does not fit, which
/// no buffer satisfies.
pub fn narrow(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Declares a set of stored codes of one byte: an enum with a name per code, in which codes that no
/// program here knows are preserved.
macro_rules! stored_codes {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident, unknown $unknown:literal {
            $($(#[$variant_attribute:meta])* $code:literal => $variant:ident $text:literal),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_attribute])* #[doc = concat!("\n\nStored as ", stringify!($code), ".")] $variant,)*
            /// A code this program does not know.
            Unknown(u8),
        }

        impl $name {
            /// From the stored code.
            pub const fn from_code(code: u8) -> Self {
                match code {
                    $($code => $name::$variant,)*
                    other => $name::Unknown(other),
                }
            }

            /// The stored code.
            pub const fn code(self) -> u8 {
                match self {
                    $($name::$variant => $code,)*
                    $name::Unknown(code) => code,
                }
            }

            /// The name that administrators know.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                    $name::Unknown(_) => $unknown,
                }
            }

            /// True for a code that has a name here.
            pub const fn is_known(self) -> bool {
                !matches!(self, $name::Unknown(_))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $crate::declare::Stored for $name {
            const SIZE: usize = 1;
            const NAME: &'static str = stringify!($name);

            fn decode(
                reader: &mut $crate::declare::Reader<'_>,
            ) -> Result<Self, $crate::declare::Corrupt> {
                reader.u8().map($name::from_code)
            }

            fn encode(&self, writer: &mut $crate::declare::Writer<'_>) {
                writer.u8(self.code());
            }
        }
    };
}

pub(crate) use stored_codes;

/// The `count` bits of `word` from bit `low` up, as a number.
pub const fn bits(word: u64, low: u32, count: u32) -> u64 {
    (word >> low) & (u64::MAX >> (64 - count))
}

/// `word` with its `count` bits from bit `low` up replaced by `value`.
///
/// # Panics
/// When `value` has more bits than that.
pub const fn with_bits(word: u64, low: u32, count: u32, value: u64) -> u64 {
    let mask = u64::MAX >> (64 - count);
    assert!(value <= mask, "a value fits its bit field");
    (word & !(mask << low)) | (value << low)
}

/// One bit of a word.
pub const fn bit(word: u64, index: u32) -> bool {
    (word >> index) & 1 == 1
}

/// Declares a stored structure: a value type with public fields, and its [`Stored`].
///
/// ```
/// use tarn_ondisk::declare::{ByteOrder, Stored};
/// use tarn_ondisk::on_disk;
/// use tarn_ondisk::units::Txg;
///
/// on_disk! {
///     /// When something was born.
///     pub struct Birth [16 bytes] {
///         0 => txg: Txg,
///         /// Seconds since 1970, UTC.
///         8 => time_s: u64,
///     }
/// }
///
/// let birth = Birth { txg: Txg::from(7), time_s: 1 };
/// assert_eq!(Birth::from_bytes(&birth.to_bytes(), ByteOrder::Little), Ok(birth));
/// ```
///
/// A field in the wrong place does not build:
///
/// ```compile_fail
/// tarn_ondisk::on_disk! {
///     /// Wrong.
///     pub struct Wrong [16 bytes] {
///         0 => first: u64,
///         9 => second: u64,
///     }
/// }
/// ```
#[macro_export]
macro_rules! on_disk {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident [$size:literal bytes] {
            $(
                $(#[$field_attribute:meta])*
                $offset:literal => $field:ident : $type:ty
            ),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        $visibility struct $name {
            $(
                $(#[$field_attribute])*
                #[doc = concat!("\n\nAt offset ", stringify!($offset), ".")]
                pub $field: $type,
            )*
        }

        const _: () = {
            let mut place = 0usize;
            $(
                assert!(
                    place == $offset,
                    concat!(stringify!($name), ".", stringify!($field), " is not at its offset"),
                );
                place += <$type as $crate::declare::Stored>::SIZE;
            )*
            assert!(place == $size, concat!(stringify!($name), " has another size"));
        };

        impl $crate::declare::Stored for $name {
            const SIZE: usize = $size;
            const NAME: &'static str = stringify!($name);

            fn decode(
                reader: &mut $crate::declare::Reader<'_>,
            ) -> Result<Self, $crate::declare::Corrupt> {
                Ok($name {
                    $($field: <$type as $crate::declare::Stored>::decode(reader)?,)*
                })
            }

            fn encode(&self, writer: &mut $crate::declare::Writer<'_>) {
                $($crate::declare::Stored::encode(&self.$field, writer);)*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Txg;

    on_disk! {
        /// A bit of everything.
        #[derive(Default)]
        struct Sample [32 bytes] {
            0 => txg: Txg,
            8 => small: u8,
            9 => reserved: Reserved<3>,
            12 => half: u32,
            16 => words: [u64; 2],
        }
    }

    fn sample() -> Sample {
        Sample {
            txg: Txg::from(0x0102_0304_0506_0708),
            small: 9,
            reserved: Reserved([1, 0, 2]),
            half: 0x0a0b_0c0d,
            words: [1, u64::MAX],
        }
    }

    #[test]
    fn what_is_written_is_little_endian_and_reads_back() {
        let bytes = sample().to_bytes();
        assert_eq!(bytes[..9], [8, 7, 6, 5, 4, 3, 2, 1, 9]);
        assert_eq!(Sample::from_bytes(&bytes, ByteOrder::Little), Ok(sample()));
    }

    #[test]
    fn the_other_byte_order_swaps_numbers_and_leaves_bytes() {
        let mut bytes = sample().to_bytes();
        bytes[..8].reverse();
        bytes[12..16].reverse();
        bytes[16..24].reverse();
        bytes[24..32].reverse();
        assert_eq!(Sample::from_bytes(&bytes, ByteOrder::Big), Ok(sample()));
    }

    #[test]
    fn bytes_that_end_early_are_refused_with_their_place() {
        let bytes = sample().to_bytes();
        let refused = Sample::from_bytes(&bytes[..14], ByteOrder::Little);
        assert_eq!(
            refused,
            Err(Corrupt::Truncated {
                what: "Sample",
                offset: 12,
                needed: 4,
                present: 2
            })
        );
    }

    #[test]
    fn a_shorter_older_version_reads_as_if_followed_by_zeros() {
        let bytes = sample().to_bytes();
        let short = Sample::from_short_bytes(&bytes[..16], ByteOrder::Little);
        assert_eq!(
            short,
            Ok(Sample {
                words: [0, 0],
                ..sample()
            })
        );
    }
}
