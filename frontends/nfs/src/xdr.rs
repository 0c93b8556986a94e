//! XDR (RFC 4506): numbers of four and eight bytes, the highest byte first, and bytes padded to a
//! multiple of four.
//!
//! A [`Reader`] cannot run past its end, and takes lengths only up to a bound that the caller
//! names. A [`Writer`] appends to one vector.

/// What a client has sent is no value of the type that is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the arguments cannot be decoded")]
pub struct Malformed;

/// Bytes that are decoded from the front.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// An unsigned number of 32 bits.
    ///
    /// # Errors
    /// There are fewer than four bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*head))
    }

    /// An unsigned number of 64 bits.
    ///
    /// # Errors
    /// There are fewer than eight bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*head))
    }

    /// A truth value: 0 or 1.
    ///
    /// # Errors
    /// Another number, or none.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// Bytes of a fixed number.
    ///
    /// # Errors
    /// There are fewer.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.padded(N)?;
        bytes.try_into().map_err(|_| Malformed)
    }

    /// Bytes with their length before them, at most `length_max`.
    ///
    /// # Errors
    /// There are fewer than the length says, or it says more than `length_max`.
    pub fn opaque(&mut self, length_max: usize) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        match length <= length_max {
            true => self.padded(length),
            false => Err(Malformed),
        }
    }

    /// Bytes, and what pads them to a multiple of four. The padding of the last value may be
    /// missing, as some clients leave it out.
    fn padded(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        let padding = padding_of(length).min(rest.len());
        self.rest = &rest[padding..];
        Ok(bytes)
    }
}

/// How many zeros follow so many bytes.
pub const fn padding_of(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// Values as bytes.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Without bytes.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Appends a number of 32 bits.
    pub fn u32(&mut self, value: u32) -> &mut Writer {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Appends a number of 64 bits.
    pub fn u64(&mut self, value: u64) -> &mut Writer {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Appends a truth value.
    pub fn bool(&mut self, value: bool) -> &mut Writer {
        self.u32(u32::from(value))
    }

    /// Appends bytes of a fixed number.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        let padding = padding_of(bytes.len());
        self.bytes.resize(self.bytes.len() + padding, 0);
        self
    }

    /// Appends bytes with their length before them.
    ///
    /// # Panics
    /// When there are more than 4 GiB.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Writer {
        self.u32(u32::try_from(bytes.len()).expect("a value has less than 4 GiB"));
        self.fixed(bytes)
    }

    /// Appends so many zeros.
    pub fn pad(&mut self, count: usize) -> &mut Writer {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Drops all but the first so many bytes.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Puts a number at a place where one was appended before.
    ///
    /// # Panics
    /// When there are no four bytes at that place.
    pub fn put_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, as a vector.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back_and_padded() {
        let mut writer = Writer::new();
        writer
            .u32(7)
            .u64(1 << 40)
            .bool(true)
            .opaque(b"abcde")
            .fixed(&[1, 2]);
        assert_eq!(writer.len(), 4 + 8 + 4 + 4 + 8 + 4);
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u32(), Ok(7));
        assert_eq!(reader.u64(), Ok(1 << 40));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.opaque(5), Ok(&b"abcde"[..]));
        assert_eq!(reader.fixed(), Ok([1, 2]));
        assert!(reader.rest().is_empty());
    }

    #[test]
    fn lengths_beyond_the_end_or_the_bound_are_refused() {
        for bytes in [&[0, 0, 0, 9, 1, 2][..], &[0xff; 4], &[0, 0]] {
            assert_eq!(Reader::new(bytes).opaque(1 << 20), Err(Malformed));
        }
        let bytes = [0, 0, 0, 2, 1, 2, 0, 0];
        assert_eq!(Reader::new(&bytes).opaque(1), Err(Malformed));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Malformed));
    }
}
