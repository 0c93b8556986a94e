//! Name-value lists: the self-describing values of labels, configurations and histories.
//!
//! # Mechanism
//! A list has two stored forms. Both begin with four bytes: the encoding, the byte order of the
//! machine that wrote them, and two zeros.
//!
//! | form | numbers | used in |
//! |---|---|---|
//! | [`xdr`] | big-endian, items of 4 n bytes | labels, pool configuration, extended attributes |
//! | [`native`] | as the memory of the writer | history records, streams |
//!
//! Each pair also states the size it has in memory (the native form's size on a 64-bit machine).
//! OpenZFS refuses a pair whose value does not fill that size exactly, so we compute it when
//! writing, and compare it when reading.
//!
//! # Invariants
//! - Lists nest at most [`DEPTH_MAX`] deep.
//! - A list that says its names are unique has unique names.
//! - A list that OpenZFS wrote encodes to the same bytes again.

pub mod native;
mod printed;
pub mod value;
pub mod xdr;

pub use value::{NvDouble, NvError, NvList, NvType, NvValue, Text};

use crate::declare::{ByteOrder, Corrupt, Reader, widen};

/// How deep lists nest, at most. The format has no bound; this is what a kernel accepts.
#[doc(alias = "nvpair_max_recursion")]
pub const DEPTH_MAX: usize = 20;

/// The version of the list header, the only one there has been.
#[doc(alias = "NV_VERSION")]
const VERSION: u32 = 0;

/// How many bytes precede the list proper.
#[doc(alias = "nvs_header_t")]
const HEADER_SIZE: usize = 4;

/// The name of the structure in errors.
const WHAT: &str = "name-value list";

/// The two stored forms of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// As the writer had it in memory.
    #[doc(alias = "NV_ENCODE_NATIVE")]
    Native,
    /// As RFC 4506 has it.
    #[doc(alias = "NV_ENCODE_XDR")]
    Xdr,
}

impl Encoding {
    /// The encoding that the first byte of a stored list names.
    pub fn from_number(number: u8) -> Option<Encoding> {
        match number {
            0 => Some(Encoding::Native),
            1 => Some(Encoding::Xdr),
            _ => None,
        }
    }

    /// The first byte of a list stored so.
    pub const fn number(self) -> u8 {
        match self {
            Encoding::Native => 0,
            Encoding::Xdr => 1,
        }
    }
}

impl NvList {
    /// Decodes a stored list of either form. What follows it in `bytes` is ignored, for lists are
    /// stored at the start of larger areas.
    pub fn decode(bytes: &[u8]) -> Result<NvList, Corrupt> {
        NvList::decode_prefix(bytes).map(|(list, _)| list)
    }

    /// Decodes a stored list of either form, and says how many bytes it took.
    pub fn decode_prefix(bytes: &[u8]) -> Result<(NvList, usize), Corrupt> {
        let mut reader = Reader::new(WHAT, bytes, ByteOrder::Big);
        let header: [u8; HEADER_SIZE] = reader.array()?;
        let Some(encoding) = Encoding::from_number(header[0]) else {
            return Err(Corrupt::Value {
                what: WHAT,
                field: "encoding",
                offset: 0,
                found: u64::from(header[0]),
            });
        };
        match encoding {
            Encoding::Xdr => {
                let list = xdr::decode(&mut reader)?;
                Ok((list, reader.position()))
            }
            Encoding::Native => {
                let order = match header[1] {
                    0 => ByteOrder::Big,
                    _ => ByteOrder::Little,
                };
                let mut reader = Reader::new(WHAT, bytes, order);
                reader.skip(HEADER_SIZE)?;
                let list = native::decode(&mut reader)?;
                Ok((list, reader.position()))
            }
        }
    }

    /// Encodes the list as OpenZFS on a little-endian 64-bit machine does, header included.
    ///
    /// # Panics
    /// When the list nests deeper than [`DEPTH_MAX`], or is longer than 31 bits count: no program
    /// could read it back.
    pub fn encode(&self, encoding: Encoding) -> Vec<u8> {
        assert!(
            self.depth() <= DEPTH_MAX,
            "a stored list nests at most {DEPTH_MAX} deep"
        );
        let mut bytes = vec![encoding.number(), 1, 0, 0];
        match encoding {
            Encoding::Native => native::encode(self, &mut bytes),
            Encoding::Xdr => xdr::encode(self, &mut bytes),
        }
        assert!(
            i32::try_from(bytes.len()).is_ok(),
            "a stored list fits in 31 bits"
        );
        bytes
    }
}

/// The size of a pair in the memory of a 64-bit machine, which both forms store.
#[doc(alias = "NVP_SIZE_CALC")]
fn size_in_memory(name: &Text, value: &NvValue) -> usize {
    align8(native::PAIR_HEADER_SIZE + name.len() + 1) + align8(value_size_in_memory(value))
}

/// The size of a value in the memory of a 64-bit machine, not yet rounded up to eight bytes.
#[doc(alias = "i_get_value_size")]
fn value_size_in_memory(value: &NvValue) -> usize {
    match value {
        NvValue::Boolean => 0,
        NvValue::Byte(_) | NvValue::Int8(_) | NvValue::Uint8(_) => 1,
        NvValue::Int16(_) | NvValue::Uint16(_) => 2,
        NvValue::Int32(_) | NvValue::Uint32(_) | NvValue::BooleanValue(_) => 4,
        NvValue::Int64(_) | NvValue::Uint64(_) | NvValue::Hrtime(_) | NvValue::Double(_) => 8,
        NvValue::String(text) => text.len() + 1,
        NvValue::ByteArray(items) | NvValue::Uint8Array(items) => items.len(),
        NvValue::Int8Array(items) => items.len(),
        NvValue::Int16Array(items) => 2 * items.len(),
        NvValue::Uint16Array(items) => 2 * items.len(),
        NvValue::Int32Array(items) => 4 * items.len(),
        NvValue::Uint32Array(items) => 4 * items.len(),
        NvValue::BooleanArray(items) => 4 * items.len(),
        NvValue::Int64Array(items) => 8 * items.len(),
        NvValue::Uint64Array(items) => 8 * items.len(),
        NvValue::StringArray(items) => items
            .iter()
            .map(|text| native::POINTER_SIZE + text.len() + 1)
            .sum(),
        NvValue::List(_) => native::LIST_HEADER_SIZE,
        NvValue::Lists(items) => (native::POINTER_SIZE + native::LIST_HEADER_SIZE) * items.len(),
    }
}

/// A size in the 31 bits that the format has for it.
fn stored_size(size: usize) -> u32 {
    u32::try_from(size).expect("a part of a stored list fits in 31 bits")
}

/// Rounded up to a multiple of eight.
fn align8(size: usize) -> usize {
    size.next_multiple_of(8)
}

/// Refuses a pair of which the size in memory is not what its value needs.
fn check_size(reader: &Reader<'_>, pair: &(Text, NvValue), size: u32) -> Result<(), Corrupt> {
    if widen(size_in_memory(&pair.0, &pair.1)) == u64::from(size) {
        return Ok(());
    }
    Err(reader.inconsistent("a pair's value does not fill the pair"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One pair of every type.
    fn everything() -> NvList {
        let inner = NvList::new().with("depth", 1u64).with("name", "inner");
        NvList::new()
            .with("boolean", NvValue::Boolean)
            .with("byte", NvValue::Byte(200))
            .with("int16", NvValue::Int16(-2))
            .with("uint16", NvValue::Uint16(65_000))
            .with("int32", NvValue::Int32(-3))
            .with("uint32", NvValue::Uint32(4_000_000_000))
            .with("int64", -4i64)
            .with("uint64", u64::MAX)
            .with("string", "text")
            .with("bytes", NvValue::ByteArray(vec![1, 2, 3]))
            .with("int16s", NvValue::Int16Array(vec![-1, 2]))
            .with("uint16s", NvValue::Uint16Array(vec![1, 60_000]))
            .with("int32s", NvValue::Int32Array(vec![-1, 2, 3]))
            .with("uint32s", NvValue::Uint32Array(vec![1]))
            .with("int64s", NvValue::Int64Array(vec![i64::MIN]))
            .with("uint64s", vec![1u64, 2])
            .with("strings", vec!["one", "", "three"])
            .with("hrtime", NvValue::Hrtime(9))
            .with("list", inner.clone())
            .with("lists", vec![inner.clone(), NvList::new(), inner])
            .with("boolean_value", true)
            .with("int8", NvValue::Int8(-1))
            .with("uint8", NvValue::Uint8(255))
            .with("booleans", NvValue::BooleanArray(vec![true, false]))
            .with("int8s", NvValue::Int8Array(vec![-1, 1]))
            .with("uint8s", NvValue::Uint8Array(vec![255, 0]))
            .with("double", NvValue::Double(1.5.into()))
            .with("empty", Vec::<u64>::new())
            .with("no lists", Vec::<NvList>::new())
    }

    #[test]
    fn every_type_survives_both_encodings() {
        for encoding in [Encoding::Native, Encoding::Xdr] {
            let bytes = everything().encode(encoding);
            let (list, _) = NvList::decode_prefix(&bytes).expect("what we wrote reads back");
            assert_eq!(list, everything());
            assert_eq!(list.encode(encoding), bytes);
        }
    }

    #[test]
    fn an_xdr_pair_lies_as_the_format_says() {
        let bytes = NvList::new().with("txg", 5u64).encode(Encoding::Xdr);
        let expected: [&[u8]; 10] = [
            &[1, 1, 0, 0],
            &[0, 0, 0, 0],
            &[0, 0, 0, 1],
            &[0, 0, 0, 32],
            &[0, 0, 0, 32],
            &[0, 0, 0, 3, b't', b'x', b'g', 0],
            &[0, 0, 0, 8],
            &[0, 0, 0, 1],
            &[0, 0, 0, 0, 0, 0, 0, 5],
            &[0; 8],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn a_native_pair_lies_as_the_format_says() {
        let bytes = NvList::new().with("txg", 5u64).encode(Encoding::Native);
        let expected: [&[u8]; 9] = [
            &[0, 1, 0, 0],
            &[0, 0, 0, 0],
            &[1, 0, 0, 0],
            &[32, 0, 0, 0],
            &[4, 0, 0, 0],
            &[1, 0, 0, 0],
            &[8, 0, 0, 0],
            &[b't', b'x', b'g', 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
            &[0; 4],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn a_list_from_a_big_endian_machine_decodes() {
        let bytes: [&[u8]; 9] = [
            &[0, 0, 0, 0],
            &[0, 0, 0, 0],
            &[0, 0, 0, 1],
            &[0, 0, 0, 32],
            &[0, 4, 0, 0],
            &[0, 0, 0, 1],
            &[0, 0, 0, 8],
            &[b't', b'x', b'g', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5],
            &[0; 4],
        ];
        let list = NvList::decode(&bytes.concat()).expect("both byte orders are read");
        assert_eq!(list, NvList::new().with("txg", 5u64));
    }

    #[test]
    fn a_name_that_occurs_twice_is_refused_where_names_are_unique() {
        for encoding in [Encoding::Native, Encoding::Xdr] {
            let twice = NvList::with_duplicates()
                .with("txg", 5u64)
                .with("txg", 6u64);
            let mut bytes = twice.encode(encoding);
            assert_eq!(NvList::decode(&bytes), Ok(twice));
            let flag = if encoding == Encoding::Xdr { 11 } else { 8 };
            bytes[flag] = 1;
            assert!(matches!(
                NvList::decode(&bytes),
                Err(Corrupt::Inconsistent { .. })
            ));
        }
    }

    #[test]
    fn lists_that_nest_without_end_are_refused() {
        let mut list = NvList::new();
        for _ in 0..DEPTH_MAX {
            list = NvList::new().with("deeper", list);
        }
        for encoding in [Encoding::Native, Encoding::Xdr] {
            let bytes = list.encode(encoding);
            assert_eq!(NvList::decode(&bytes), Ok(list.clone()));
        }
        let mut bytes = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        for _ in 0..1000 {
            bytes.extend([0, 0, 0, 44, 0, 0, 0, 48, 0, 0, 0, 1, b'a', 0, 0, 0]);
            bytes.extend([0, 0, 0, 19, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        }
        assert!(matches!(
            NvList::decode(&bytes),
            Err(Corrupt::Unsupported { .. })
        ));
    }

    #[test]
    fn a_pair_whose_sizes_contradict_is_refused() {
        let mut bytes = NvList::new().with("txg", 5u64).encode(Encoding::Xdr);
        bytes[19] = 40;
        assert!(NvList::decode(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = NvList::decode(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first &= 1;
            }
            let _ = NvList::decode(&bytes);
        }

        #[test]
        fn a_damaged_list_decodes_or_is_refused(place in any::<prop::sample::Index>(), byte: u8) {
            for encoding in [Encoding::Native, Encoding::Xdr] {
                let mut bytes = everything().encode(encoding);
                let place = place.index(bytes.len());
                bytes[place] = byte;
                let _ = NvList::decode(&bytes);
            }
        }
    }
}
