//! Numbers as bytes, and back: seven bits a byte, the lowest first, as LEB128 has them.
//!
//! # Invariants
//! - What is read is any bytes: a number that ends nowhere or is too large is an error.

/// The bytes end too early, or are none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Appends a number.
pub(crate) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low_bits(number));
}

fn low_bits(number: u64) -> u8 {
    u8::try_from(number & 0x7f).expect("seven bits")
}

/// Appends a length.
pub(crate) fn put_length(bytes: &mut Vec<u8>, length: usize) {
    put(bytes, u64::try_from(length).expect("a length in memory"));
}

/// Appends a difference: small ones of either sign take one byte.
pub(crate) fn put_difference(bytes: &mut Vec<u8>, now: u64, before: u64) {
    let difference = now.wrapping_sub(before).cast_signed();
    put(
        bytes,
        ((difference << 1) ^ (difference >> 63)).cast_unsigned(),
    );
}

/// Appends a text with its length.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_length(bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { rest: bytes }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (first, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn fixed_u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.bytes(4)?.try_into().expect("four bytes");
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn fixed_u64(&mut self) -> Result<u64, Malformed> {
        let bytes = self.bytes(8)?.try_into().expect("eight bytes");
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        // Most numbers have one byte.
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Malformed);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    /// A length that may be at most so large.
    pub(crate) fn length(&mut self, max: usize) -> Result<usize, Malformed> {
        let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        match length <= max {
            true => Ok(length),
            false => Err(Malformed),
        }
    }

    /// A number that was appended as its difference to the one before.
    pub(crate) fn after(&mut self, before: u64) -> Result<u64, Malformed> {
        let coded = self.number()?;
        let difference = (coded >> 1) ^ 0_u64.wrapping_sub(coded & 1);
        Ok(before.wrapping_add(difference))
    }

    pub(crate) fn text(&mut self, bytes_max: usize) -> Result<&'a str, Malformed> {
        let length = self.length(bytes_max)?;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::sim::Random;

    #[test]
    fn numbers_and_differences_come_back() {
        let mut random = Random::new(3);
        let numbers: Vec<u64> = (0..2000)
            .map(|_| random.magnitude(u64::MAX))
            .chain([0, 1, u64::MAX])
            .collect();
        let mut bytes = Vec::new();
        let mut before = 0;
        for number in &numbers {
            put(&mut bytes, *number);
            put_difference(&mut bytes, *number, before);
            before = *number;
        }
        let mut reader = ByteReader::new(&bytes);
        before = 0;
        for number in &numbers {
            assert_eq!(reader.number(), Ok(*number));
            before = reader.after(before).unwrap();
            assert_eq!(before, *number);
        }
        assert!(reader.is_at_end());
        assert_eq!(reader.number(), Err(Malformed));
        let too_large = [0xff; 10];
        assert_eq!(ByteReader::new(&too_large).number(), Err(Malformed));
        let no_text = [2, 0xff, 0xff];
        assert_eq!(ByteReader::new(&no_text).text(8), Err(Malformed));
    }
}
