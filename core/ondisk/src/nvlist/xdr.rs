//! The XDR form: big-endian, every item rounded up to four bytes.
//!
//! # Mechanism
//! A pair is its size here, its size in memory, its name (length, bytes, padding), its type, its
//! element count and its value. The pairs end with eight zero bytes. Numbers shorter than four
//! bytes take four; arrays of numbers state their count again; strings state their length; byte
//! arrays state nothing.
//!
//! An empty array states neither its count nor anything else, although its pair's size counts the
//! four bytes of that count. OpenZFS reserves room by those sizes, so a list with empty arrays
//! ends in as many zero bytes as were counted in vain.

use super::{
    NvDouble, NvList, NvType, NvValue, Text, VERSION, check_size, size_in_memory, stored_size,
};
use crate::declare::{Corrupt, Reader, narrow};

/// Both sizes, the length of the name, the type and the element count.
const PAIR_HEADER_SIZE: usize = 20;
/// The version and flags of a list, and the zeros at its end.
const LIST_FRAME_SIZE: usize = 16;

/// Decodes a list from behind the encoding header.
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<NvList, Corrupt> {
    decode_list(reader, 0)
}

/// Appends a list, from behind the encoding header.
pub(super) fn encode(list: &NvList, bytes: &mut Vec<u8>) {
    let end = bytes.len() + list_size(list);
    encode_list(list, bytes);
    bytes.resize(end, 0);
}

fn decode_list(reader: &mut Reader<'_>, depth: usize) -> Result<NvList, Corrupt> {
    let version = reader.u32()?;
    if version != VERSION {
        return Err(reader.bad_value("version", 4, u64::from(version)));
    }
    let flags = reader.u32()?;
    let mut pairs = Vec::new();
    loop {
        let _size_here = reader.u32()?;
        let size_in_memory = reader.u32()?;
        if size_in_memory == 0 {
            break;
        }
        let pair = decode_pair(reader, depth)?;
        check_size(reader, &pair, size_in_memory)?;
        pairs.push(pair);
    }
    NvList::from_decoded(flags, pairs, reader)
}

fn decode_pair(reader: &mut Reader<'_>, depth: usize) -> Result<(Text, NvValue), Corrupt> {
    let name = text(reader)?;
    let kind = NvType::decode(reader)?;
    let count = narrow(u64::from(reader.u32()?));
    kind.check_count(count, reader)?;
    let value = match NvValue::empty_array(kind) {
        Some(empty) if count == 0 => empty,
        _ => decode_value(kind, count, reader, depth)?,
    };
    Ok((name, value))
}

fn decode_value(
    kind: NvType,
    count: usize,
    reader: &mut Reader<'_>,
    depth: usize,
) -> Result<NvValue, Corrupt> {
    Ok(match kind {
        NvType::Boolean => NvValue::Boolean,
        NvType::Byte => NvValue::Byte(narrow_u8(reader)?),
        NvType::Int8 => NvValue::Int8(narrow_u8(reader)?.cast_signed()),
        NvType::Uint8 => NvValue::Uint8(narrow_u8(reader)?),
        NvType::Int16 => NvValue::Int16(narrow_u16(reader)?.cast_signed()),
        NvType::Uint16 => NvValue::Uint16(narrow_u16(reader)?),
        NvType::Int32 => NvValue::Int32(reader.u32()?.cast_signed()),
        NvType::Uint32 => NvValue::Uint32(reader.u32()?),
        NvType::BooleanValue => NvValue::BooleanValue(truth(reader)?),
        NvType::Int64 => NvValue::Int64(reader.i64()?),
        NvType::Uint64 => NvValue::Uint64(reader.u64()?),
        NvType::Hrtime => NvValue::Hrtime(reader.i64()?),
        NvType::Double => NvValue::Double(NvDouble::from_bits(reader.u64()?)),
        NvType::String => NvValue::String(text(reader)?),
        NvType::ByteArray => NvValue::ByteArray(padded_bytes(reader, count)?.to_vec()),
        NvType::Uint8Array => NvValue::Uint8Array(counted(reader, count, narrow_u8)?),
        NvType::Int8Array => {
            NvValue::Int8Array(counted(reader, count, |r| Ok(narrow_u8(r)?.cast_signed()))?)
        }
        NvType::Int16Array => {
            NvValue::Int16Array(counted(
                reader,
                count,
                |r| Ok(narrow_u16(r)?.cast_signed()),
            )?)
        }
        NvType::Uint16Array => NvValue::Uint16Array(counted(reader, count, narrow_u16)?),
        NvType::Int32Array => {
            NvValue::Int32Array(counted(reader, count, |r| Ok(r.u32()?.cast_signed()))?)
        }
        NvType::Uint32Array => NvValue::Uint32Array(counted(reader, count, Reader::u32)?),
        NvType::BooleanArray => NvValue::BooleanArray(counted(reader, count, truth)?),
        NvType::Int64Array => NvValue::Int64Array(counted(reader, count, Reader::i64)?),
        NvType::Uint64Array => NvValue::Uint64Array(counted(reader, count, Reader::u64)?),
        NvType::StringArray => NvValue::StringArray(items(reader, count, text)?),
        NvType::List => NvValue::List(inner_list(reader, depth)?),
        NvType::Lists => NvValue::Lists(items(reader, count, |r| inner_list(r, depth))?),
    })
}

fn inner_list(reader: &mut Reader<'_>, depth: usize) -> Result<NvList, Corrupt> {
    super::value::check_depth(depth, reader)?;
    decode_list(reader, depth + 1)
}

/// `count` values, one by one: the reader ends before memory does.
fn items<'a, T>(
    reader: &mut Reader<'a>,
    count: usize,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, Corrupt>,
) -> Result<Vec<T>, Corrupt> {
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(reader)?);
    }
    Ok(items)
}

/// `count` values that state their count again.
fn counted<'a, T>(
    reader: &mut Reader<'a>,
    count: usize,
    item: impl FnMut(&mut Reader<'a>) -> Result<T, Corrupt>,
) -> Result<Vec<T>, Corrupt> {
    if narrow(u64::from(reader.u32()?)) != count {
        return Err(reader.inconsistent("an array has two counts"));
    }
    items(reader, count, item)
}

fn padded_bytes<'a>(reader: &mut Reader<'a>, count: usize) -> Result<&'a [u8], Corrupt> {
    let bytes = reader.take(count)?;
    reader.skip(count.next_multiple_of(4) - count)?;
    Ok(bytes)
}

fn text(reader: &mut Reader<'_>) -> Result<Text, Corrupt> {
    let length = narrow(u64::from(reader.u32()?));
    let bytes = padded_bytes(reader, length)?;
    if bytes.contains(&0) {
        return Err(reader.inconsistent("a string ends before its end"));
    }
    Ok(Text::from(bytes))
}

fn truth(reader: &mut Reader<'_>) -> Result<bool, Corrupt> {
    match reader.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.bad_value("boolean", 4, u64::from(other))),
    }
}

/// A byte in four. Kernels fill the others with zeros, and libraries with the sign.
fn narrow_u8(reader: &mut Reader<'_>) -> Result<u8, Corrupt> {
    let number = reader.u32()?;
    let signed = || i8::try_from(number.cast_signed()).map(i8::cast_unsigned);
    u8::try_from(number)
        .or_else(|_| signed())
        .map_err(|_| reader.bad_value("byte", 4, u64::from(number)))
}

/// Two bytes in four, filled as a byte is.
fn narrow_u16(reader: &mut Reader<'_>) -> Result<u16, Corrupt> {
    let number = reader.u32()?;
    let signed = || i16::try_from(number.cast_signed()).map(i16::cast_unsigned);
    u16::try_from(number)
        .or_else(|_| signed())
        .map_err(|_| reader.bad_value("number of 16 bits", 4, u64::from(number)))
}

/// How many bytes OpenZFS counts for a list.
fn list_size(list: &NvList) -> usize {
    LIST_FRAME_SIZE
        + list
            .iter()
            .map(|(name, value)| pair_size(name, value))
            .sum::<usize>()
}

/// How many bytes OpenZFS counts for a pair.
#[doc(alias = "nvs_xdr_nvp_size")]
fn pair_size(name: &Text, value: &NvValue) -> usize {
    PAIR_HEADER_SIZE + name.len().next_multiple_of(4) + value_size(value)
}

fn value_size(value: &NvValue) -> usize {
    match value {
        NvValue::Boolean => 0,
        NvValue::Byte(_)
        | NvValue::Int8(_)
        | NvValue::Uint8(_)
        | NvValue::Int16(_)
        | NvValue::Uint16(_)
        | NvValue::Int32(_)
        | NvValue::Uint32(_)
        | NvValue::BooleanValue(_) => 4,
        NvValue::Int64(_) | NvValue::Uint64(_) | NvValue::Hrtime(_) | NvValue::Double(_) => 8,
        NvValue::String(text) => text_size(text),
        NvValue::ByteArray(items) => items.len().next_multiple_of(4),
        NvValue::Int8Array(_)
        | NvValue::Uint8Array(_)
        | NvValue::Int16Array(_)
        | NvValue::Uint16Array(_)
        | NvValue::Int32Array(_)
        | NvValue::Uint32Array(_)
        | NvValue::BooleanArray(_) => 4 + 4 * value.count(),
        NvValue::Int64Array(_) | NvValue::Uint64Array(_) => 4 + 8 * value.count(),
        NvValue::StringArray(items) => items.iter().map(text_size).sum(),
        NvValue::List(list) => list_size(list),
        NvValue::Lists(lists) => lists.iter().map(list_size).sum(),
    }
}

fn text_size(text: &Text) -> usize {
    4 + text.len().next_multiple_of(4)
}

fn encode_list(list: &NvList, bytes: &mut Vec<u8>) {
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend(list.flags().to_be_bytes());
    for (name, value) in list.iter() {
        bytes.extend(stored_size(pair_size(name, value)).to_be_bytes());
        bytes.extend(stored_size(size_in_memory(name, value)).to_be_bytes());
        append_text(name, bytes);
        bytes.extend(value.kind().number().to_be_bytes());
        bytes.extend(stored_size(value.count()).to_be_bytes());
        if value.count() > 0 {
            encode_value(value, bytes);
        }
    }
    bytes.extend([0; 8]);
}

fn encode_value(value: &NvValue, bytes: &mut Vec<u8>) {
    match value {
        NvValue::Boolean => {}
        NvValue::Byte(number) | NvValue::Uint8(number) => append_u32(u32::from(*number), bytes),
        NvValue::Int8(number) => append_u32(u32::from(number.cast_unsigned()), bytes),
        NvValue::Int16(number) => append_u32(u32::from(number.cast_unsigned()), bytes),
        NvValue::Uint16(number) => append_u32(u32::from(*number), bytes),
        NvValue::Int32(number) => bytes.extend(number.to_be_bytes()),
        NvValue::Uint32(number) => bytes.extend(number.to_be_bytes()),
        NvValue::BooleanValue(truth) => append_u32(u32::from(*truth), bytes),
        NvValue::Int64(number) | NvValue::Hrtime(number) => bytes.extend(number.to_be_bytes()),
        NvValue::Uint64(number) => bytes.extend(number.to_be_bytes()),
        NvValue::Double(number) => bytes.extend(number.to_bits().to_be_bytes()),
        NvValue::String(text) => append_text(text, bytes),
        NvValue::ByteArray(items) => append_padded(items, bytes),
        NvValue::Uint8Array(items) => append_array(items, bytes, |&n| u32::from(n)),
        NvValue::Int8Array(items) => append_array(items, bytes, |n| u32::from(n.cast_unsigned())),
        NvValue::Int16Array(items) => append_array(items, bytes, |n| u32::from(n.cast_unsigned())),
        NvValue::Uint16Array(items) => append_array(items, bytes, |&n| u32::from(n)),
        NvValue::Int32Array(items) => append_array(items, bytes, |n| n.cast_unsigned()),
        NvValue::Uint32Array(items) => append_array(items, bytes, |&n| n),
        NvValue::BooleanArray(items) => append_array(items, bytes, |&truth| u32::from(truth)),
        NvValue::Int64Array(items) => {
            append_u32(stored_size(items.len()), bytes);
            bytes.extend(items.iter().flat_map(|number| number.to_be_bytes()));
        }
        NvValue::Uint64Array(items) => {
            append_u32(stored_size(items.len()), bytes);
            bytes.extend(items.iter().flat_map(|number| number.to_be_bytes()));
        }
        NvValue::StringArray(items) => items.iter().for_each(|text| append_text(text, bytes)),
        NvValue::List(list) => encode_list(list, bytes),
        NvValue::Lists(lists) => lists.iter().for_each(|list| encode_list(list, bytes)),
    }
}

fn append_array<T>(items: &[T], bytes: &mut Vec<u8>, number: impl Fn(&T) -> u32) {
    append_u32(stored_size(items.len()), bytes);
    for item in items {
        append_u32(number(item), bytes);
    }
}

fn append_u32(number: u32, bytes: &mut Vec<u8>) {
    bytes.extend(number.to_be_bytes());
}

fn append_text(text: &Text, bytes: &mut Vec<u8>) {
    append_u32(stored_size(text.len()), bytes);
    append_padded(text.as_bytes(), bytes);
}

fn append_padded(added: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend(added);
    bytes.resize(
        bytes.len() + added.len().next_multiple_of(4) - added.len(),
        0,
    );
}
