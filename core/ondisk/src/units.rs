//! Units: numbers that cannot be taken for one another.
//!
//! On disk they are all 64-bit words, and ZFS itself has lost time to a size in sectors that was
//! taken for bytes. Here each is a type; conversions are written out, and rounding has a name.
//! Sizes and offsets are **bytes**, always: where the format stores 512-byte sectors, the decoder
//! multiplies.
//!
//! Operators (`+`, `-`) are for values that were checked: they panic rather than wrap. For values
//! as the disk gave them there are `checked_add`, `checked_sub`, `saturating_sub`.

use crate::declare::{Corrupt, Reader, Stored, Writer};
use std::fmt;

/// Declares a 64-bit unit.
macro_rules! unit {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u64);

        impl $name {
            /// Zero.
            pub const ZERO: $name = $name(0);
            /// The largest value a stored word can hold.
            pub const MAX: $name = $name(u64::MAX);

            /// From the number itself.
            pub const fn new(number: u64) -> Self {
                $name(number)
            }

            /// The number itself.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// True for zero.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
        }

        impl From<u64> for $name {
            fn from(number: u64) -> Self {
                $name(number)
            }
        }

        impl From<$name> for u64 {
            fn from(unit: $name) -> u64 {
                unit.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }

        impl Stored for $name {
            const SIZE: usize = 8;
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
                reader.u64().map($name)
            }

            fn encode(&self, writer: &mut Writer<'_>) {
                writer.u64(self.0);
            }
        }
    };
}

/// Adds sums and rounding to a unit that counts bytes.
macro_rules! size_unit {
    ($(#[$attribute:meta])* $name:ident) => {
        unit! { $(#[$attribute])* $name }

        impl $name {
            /// From a length in memory.
            pub fn of(bytes: &[u8]) -> Self {
                $name(crate::declare::widen(bytes.len()))
            }

            /// As a length in memory. The largest possible where it does not fit, which no
            /// buffer satisfies.
            pub fn to_usize(self) -> usize {
                crate::declare::narrow(self.0)
            }

            /// From a count of 512-byte sectors. `None` past the end of 64 bits.
            pub const fn from_sectors(sectors: u64) -> Option<Self> {
                match sectors.checked_mul(512) {
                    Some(bytes) => Some($name(bytes)),
                    None => None,
                }
            }

            /// In whole 512-byte sectors, rounded down.
            pub const fn sectors(self) -> u64 {
                self.0 / 512
            }

            /// Rounded up to a multiple of `step` bytes.
            ///
            /// # Panics
            /// When `step` is zero or the result passes the end of 64 bits.
            pub const fn round_up(self, step: u64) -> Self {
                $name(self.0.next_multiple_of(step))
            }

            /// Rounded down to a multiple of `step` bytes.
            pub const fn round_down(self, step: u64) -> Self {
                $name(self.0 - self.0 % step)
            }

            /// True for a multiple of `step` bytes.
            pub const fn is_multiple_of(self, step: u64) -> bool {
                self.0 % step == 0
            }

            /// How many pieces of `step` bytes cover it.
            pub const fn div_ceil(self, step: u64) -> u64 {
                self.0.div_ceil(step)
            }

            /// The sum, if 64 bits hold it.
            pub const fn checked_add(self, other: Self) -> Option<Self> {
                match self.0.checked_add(other.0) {
                    Some(sum) => Some($name(sum)),
                    None => None,
                }
            }

            /// The difference, if it is not negative.
            pub const fn checked_sub(self, other: Self) -> Option<Self> {
                match self.0.checked_sub(other.0) {
                    Some(difference) => Some($name(difference)),
                    None => None,
                }
            }

            /// The sum, at most `MAX`.
            pub const fn saturating_add(self, other: Self) -> Self {
                $name(self.0.saturating_add(other.0))
            }

            /// The difference, at least zero.
            pub const fn saturating_sub(self, other: Self) -> Self {
                $name(self.0.saturating_sub(other.0))
            }
        }

        impl std::ops::Add for $name {
            type Output = $name;
            fn add(self, other: $name) -> $name {
                $name(self.0.checked_add(other.0).expect("checked sizes do not overflow"))
            }
        }

        impl std::ops::Sub for $name {
            type Output = $name;
            fn sub(self, other: $name) -> $name {
                $name(self.0.checked_sub(other.0).expect("a checked difference is not negative"))
            }
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                *self = *self + other;
            }
        }

        impl std::ops::SubAssign for $name {
            fn sub_assign(&mut self, other: $name) {
                *self = *self - other;
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = $name>>(sizes: I) -> $name {
                sizes.fold($name::ZERO, |sum, size| sum + size)
            }
        }
    };
}

unit! {
    /// A transaction group: the pool's clock. Everything stored is stored as part of one.
    #[doc(alias = "txg")]
    Txg
}

impl Txg {
    /// The first txg of a new pool; blocks made while creating it are born in it.
    #[doc(alias = "TXG_INITIAL")]
    pub const INITIAL: Txg = Txg(4);

    /// The next one.
    pub const fn next(self) -> Txg {
        Txg(self.0 + 1)
    }

    /// `count` later, at most `MAX`.
    pub const fn plus(self, count: u64) -> Txg {
        Txg(self.0.saturating_add(count))
    }

    /// `count` earlier, at least zero.
    pub const fn minus(self, count: u64) -> Txg {
        Txg(self.0.saturating_sub(count))
    }
}

unit! {
    /// The name of a pool, a vdev or a snapshot, unique for all practical purposes.
    Guid
}

impl Guid {
    /// The sum as labels and uberblocks have it, which wraps.
    pub const fn wrapping_add(self, other: Guid) -> Guid {
        Guid(self.0.wrapping_add(other.0))
    }
}

unit! {
    /// The number of an object within its object set: its index in the meta dnode.
    ObjectId
}

unit! {
    /// The index of a top-level vdev in its pool.
    VdevId
}

impl VdevId {
    /// As an index into a list in memory.
    pub fn index(self) -> usize {
        crate::declare::narrow(self.0)
    }
}

unit! {
    /// A place on a top-level vdev, in bytes, counted as block pointers count: from behind the two
    /// front labels and the boot area.
    VdevOffset
}

impl VdevOffset {
    /// `size` further, if 64 bits hold it.
    pub const fn checked_add(self, size: AllocatedSize) -> Option<VdevOffset> {
        match self.0.checked_add(size.0) {
            Some(offset) => Some(VdevOffset(offset)),
            None => None,
        }
    }

    /// The distance from `earlier`, if it is not behind.
    pub const fn distance_from(self, earlier: VdevOffset) -> Option<AllocatedSize> {
        match self.0.checked_sub(earlier.0) {
            Some(distance) => Some(AllocatedSize(distance)),
            None => None,
        }
    }

    /// Rounded up to a multiple of `step` bytes.
    pub const fn round_up(self, step: u64) -> VdevOffset {
        VdevOffset(self.0.next_multiple_of(step))
    }

    /// Rounded down to a multiple of `step` bytes.
    pub const fn round_down(self, step: u64) -> VdevOffset {
        VdevOffset(self.0 - self.0 % step)
    }

    /// True for a multiple of `step` bytes.
    pub const fn is_multiple_of(self, step: u64) -> bool {
        self.0.is_multiple_of(step)
    }
}

impl std::ops::Add<AllocatedSize> for VdevOffset {
    type Output = VdevOffset;
    fn add(self, size: AllocatedSize) -> VdevOffset {
        VdevOffset(
            self.0
                .checked_add(size.0)
                .expect("checked offsets do not overflow"),
        )
    }
}

unit! {
    /// The index of a block within its level of its object.
    BlockId
}

impl BlockId {
    /// The next one.
    pub const fn next(self) -> BlockId {
        BlockId(self.0 + 1)
    }

    /// The block that holds this one's pointer, where a block holds `2^shift` of them.
    pub const fn parent(self, shift: u32) -> BlockId {
        BlockId(self.0 >> shift)
    }
}

size_unit! {
    /// The size of a block as its object sees it: before compression.
    LogicalSize
}

size_unit! {
    /// The size of a block as it is stored: after compression, before redundancy.
    PhysicalSize
}

size_unit! {
    /// The space a block takes on its vdevs: after redundancy, padding and copies.
    AllocatedSize
}

/// The height of a block in its object's tree: 0 for data, above that blocks of pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Level(u8);

impl Level {
    /// Data.
    pub const ZERO: Level = Level(0);

    /// From the number itself.
    pub const fn new(number: u8) -> Level {
        Level(number)
    }

    /// The number itself.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// True for data, false for blocks of pointers.
    pub const fn is_data(self) -> bool {
        self.0 == 0
    }

    /// The level that points at this one.
    pub const fn above(self) -> Level {
        Level(self.0.saturating_add(1))
    }

    /// The level this one points at; none below data.
    pub const fn below(self) -> Option<Level> {
        match self.0.checked_sub(1) {
            Some(level) => Some(Level(level)),
            None => None,
        }
    }
}

impl From<u8> for Level {
    fn from(number: u8) -> Level {
        Level(number)
    }
}

impl From<Level> for u8 {
    fn from(level: Level) -> u8 {
        level.0
    }
}

impl From<Level> for u64 {
    fn from(level: Level) -> u64 {
        u64::from(level.0)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_by_name() {
        let size = PhysicalSize::from(5000);
        assert_eq!(size.round_up(4096).get(), 8192);
        assert_eq!(size.round_down(4096).get(), 4096);
        assert_eq!(size.div_ceil(512), 10);
        assert_eq!(size.sectors(), 9);
    }

    #[test]
    fn sizes_from_disk_add_without_wrapping() {
        assert_eq!(AllocatedSize::MAX.checked_add(AllocatedSize::from(1)), None);
        assert_eq!(AllocatedSize::from_sectors(u64::MAX), None);
        assert_eq!(VdevOffset::MAX.checked_add(AllocatedSize::from(1)), None);
    }
}
