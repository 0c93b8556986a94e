//! Fields of commands, parameters and PDUs: big-endian numbers in byte slices.
//!
//! Readers give zero for what lies beyond the end of the slice, so that no input makes them panic;
//! a caller for which the difference matters looks at the length first.

/// The byte at a place.
pub fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// The 16 bits at a place.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([u8_at(bytes, at), u8_at(bytes, at + 1)])
}

/// The 24 bits at a place.
pub fn u24_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([
        0,
        u8_at(bytes, at),
        u8_at(bytes, at + 1),
        u8_at(bytes, at + 2),
    ])
}

/// The 32 bits at a place.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    (u32::from(u16_at(bytes, at)) << 16) | u32::from(u16_at(bytes, at + 2))
}

/// The 64 bits at a place.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    (u64::from(u32_at(bytes, at)) << 32) | u64::from(u32_at(bytes, at + 4))
}

/// Writes bytes at a place, which is in the slice.
pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// The lowest three bytes of a number that fits in them.
pub fn three_bytes(value: usize) -> [u8; 3] {
    let [.., a, b, c] = low_u32(value).to_be_bytes();
    [a, b, c]
}

/// A length as 32 bits. All lengths here are bounded far below.
pub fn low_u32(value: usize) -> u32 {
    u32::try_from(value).expect("a length of a PDU or of parameters fits in 32 bits")
}

/// A length as 16 bits.
pub fn low_u16(value: usize) -> u16 {
    u16::try_from(value).expect("a length of parameters fits in 16 bits")
}

/// A length that a command has, as a size in memory.
pub fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
