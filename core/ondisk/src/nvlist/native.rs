//! The native form: a list as it lies in the memory of a 64-bit machine, pointers made zero.
//!
//! # Mechanism
//! A pair is a header of 16 bytes, its name with a final zero, padding to eight bytes, its value,
//! and padding again. The pairs end with four zero bytes where the next pair's size would be.
//!
//! Lists inside a list have their 24-byte header in the pair, and their pairs behind it: the
//! reader meets the inner pairs, with their own end, before the next outer pair.

use super::{
    DEPTH_MAX, NvDouble, NvList, NvType, NvValue, Text, VERSION, align8, check_size,
    size_in_memory, stored_size, value_size_in_memory,
};
use crate::declare::{Corrupt, Reader, narrow};

/// Size, name size, reserve, element count and type.
#[doc(alias = "nvpair_t")]
pub(super) const PAIR_HEADER_SIZE: usize = 16;
/// Version, flags, a pointer, more flags, padding.
#[doc(alias = "nvlist_t")]
pub(super) const LIST_HEADER_SIZE: usize = 24;
/// A pointer, which is stored as zero.
pub(super) const POINTER_SIZE: usize = 8;

/// Decodes a list from behind the encoding header; `reader` has the byte order found there.
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<NvList, Corrupt> {
    let flags = list_flags(reader)?;
    decode_pairs(reader, flags, 0)
}

/// Appends a list, from behind the encoding header.
pub(super) fn encode(list: &NvList, bytes: &mut Vec<u8>) {
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(list.flags().to_le_bytes());
    encode_pairs(list, bytes);
}

fn list_flags(reader: &mut Reader<'_>) -> Result<u32, Corrupt> {
    let version = reader.u32()?;
    if version != VERSION {
        return Err(reader.bad_value("version", 4, u64::from(version)));
    }
    reader.u32()
}

fn decode_pairs(reader: &mut Reader<'_>, flags: u32, depth: usize) -> Result<NvList, Corrupt> {
    let mut pairs = Vec::new();
    loop {
        let size = reader.clone().u32()?;
        if size == 0 {
            reader.skip(4)?;
            break;
        }
        let mut pair = reader.part(super::WHAT, narrow(u64::from(size)))?;
        let decoded = decode_pair(&mut pair, reader, depth)?;
        check_size(reader, &decoded, size)?;
        pairs.push(decoded);
    }
    NvList::from_decoded(flags, pairs, reader)
}

/// Decodes one pair from `pair`, and the pairs of the lists in it from `rest`.
fn decode_pair(
    pair: &mut Reader<'_>,
    rest: &mut Reader<'_>,
    depth: usize,
) -> Result<(Text, NvValue), Corrupt> {
    pair.skip(4)?;
    let name_size = usize::from(pair.u16()?);
    pair.skip(2)?;
    let count = narrow(u64::from(pair.u32()?));
    let kind = NvType::decode(pair)?;
    kind.check_count(count, pair)?;
    let name = match pair.take(name_size)? {
        [name @ .., 0] if !name.contains(&0) => Text::from(name),
        _ => return Err(pair.inconsistent("a name does not end where it says")),
    };
    pair.seek(align8(PAIR_HEADER_SIZE + name_size))?;
    let value = decode_value(kind, count, pair, rest, depth)?;
    Ok((name, value))
}

fn decode_value(
    kind: NvType,
    count: usize,
    pair: &mut Reader<'_>,
    rest: &mut Reader<'_>,
    depth: usize,
) -> Result<NvValue, Corrupt> {
    Ok(match kind {
        NvType::Boolean => NvValue::Boolean,
        NvType::Byte => NvValue::Byte(pair.u8()?),
        NvType::Int8 => NvValue::Int8(pair.u8()?.cast_signed()),
        NvType::Uint8 => NvValue::Uint8(pair.u8()?),
        NvType::Int16 => NvValue::Int16(pair.u16()?.cast_signed()),
        NvType::Uint16 => NvValue::Uint16(pair.u16()?),
        NvType::Int32 => NvValue::Int32(pair.u32()?.cast_signed()),
        NvType::Uint32 => NvValue::Uint32(pair.u32()?),
        NvType::BooleanValue => NvValue::BooleanValue(truth(pair)?),
        NvType::Int64 => NvValue::Int64(pair.i64()?),
        NvType::Uint64 => NvValue::Uint64(pair.u64()?),
        NvType::Hrtime => NvValue::Hrtime(pair.i64()?),
        NvType::Double => NvValue::Double(NvDouble::from_bits(pair.u64()?)),
        NvType::String => NvValue::String(text(pair)?),
        NvType::ByteArray => NvValue::ByteArray(pair.take(count)?.to_vec()),
        NvType::Uint8Array => NvValue::Uint8Array(pair.take(count)?.to_vec()),
        NvType::Int8Array => NvValue::Int8Array(
            pair.take(count)?
                .iter()
                .map(|byte| byte.cast_signed())
                .collect(),
        ),
        NvType::Int16Array => {
            NvValue::Int16Array(items(pair, count, |pair| Ok(pair.u16()?.cast_signed()))?)
        }
        NvType::Uint16Array => NvValue::Uint16Array(items(pair, count, Reader::u16)?),
        NvType::Int32Array => {
            NvValue::Int32Array(items(pair, count, |pair| Ok(pair.u32()?.cast_signed()))?)
        }
        NvType::Uint32Array => NvValue::Uint32Array(items(pair, count, Reader::u32)?),
        NvType::BooleanArray => NvValue::BooleanArray(items(pair, count, truth)?),
        NvType::Int64Array => NvValue::Int64Array(items(pair, count, Reader::i64)?),
        NvType::Uint64Array => NvValue::Uint64Array(items(pair, count, Reader::u64)?),
        NvType::StringArray => {
            pair.skip(count.saturating_mul(POINTER_SIZE))?;
            NvValue::StringArray(items(pair, count, text)?)
        }
        NvType::List => {
            let flags = inner_list_flags(pair, depth)?;
            NvValue::List(decode_pairs(rest, flags, depth + 1)?)
        }
        NvType::Lists => {
            pair.skip(count.saturating_mul(POINTER_SIZE))?;
            let flags = items(pair, count, |pair| inner_list_flags(pair, depth))?;
            let mut lists = Vec::new();
            for flags in flags {
                lists.push(decode_pairs(rest, flags, depth + 1)?);
            }
            NvValue::Lists(lists)
        }
    })
}

/// `count` values, one by one: the reader ends before memory does.
fn items<'a, T>(
    pair: &mut Reader<'a>,
    count: usize,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, Corrupt>,
) -> Result<Vec<T>, Corrupt> {
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(pair)?);
    }
    Ok(items)
}

fn truth(pair: &mut Reader<'_>) -> Result<bool, Corrupt> {
    match pair.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(pair.bad_value("boolean", 4, u64::from(other))),
    }
}

fn text(pair: &mut Reader<'_>) -> Result<Text, Corrupt> {
    let rest = pair.clone().rest();
    let Some(length) = rest.iter().position(|&byte| byte == 0) else {
        return Err(pair.inconsistent("a string does not end"));
    };
    pair.skip(length + 1)?;
    Ok(Text::from(&rest[..length]))
}

fn inner_list_flags(pair: &mut Reader<'_>, depth: usize) -> Result<u32, Corrupt> {
    super::value::check_depth(depth, pair)?;
    debug_assert!(depth < DEPTH_MAX);
    let flags = list_flags(pair)?;
    pair.skip(LIST_HEADER_SIZE - 8)?;
    Ok(flags)
}

fn encode_pairs(list: &NvList, bytes: &mut Vec<u8>) {
    for (name, value) in list.iter() {
        encode_pair(name, value, bytes);
        for inner in value.lists_within() {
            encode_pairs(inner, bytes);
        }
    }
    bytes.extend([0; 4]);
}

/// Appends a pair without the pairs of the lists in it.
fn encode_pair(name: &Text, value: &NvValue, bytes: &mut Vec<u8>) {
    let name_size = u16::try_from(name.len() + 1)
        .ok()
        .filter(|&size| size.cast_signed() > 0)
        .expect("a name in a stored list is shorter than 32 KiB");
    bytes.extend(stored_size(size_in_memory(name, value)).to_le_bytes());
    bytes.extend(name_size.to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(stored_size(value.count()).to_le_bytes());
    bytes.extend(value.kind().number().to_le_bytes());
    append_padded(bytes, PAIR_HEADER_SIZE, name.len() + 1, |bytes| {
        bytes.extend(name.as_bytes());
        bytes.push(0);
    });
    append_padded(bytes, 0, value_size_in_memory(value), |bytes| {
        encode_value(value, bytes)
    });
}

/// Appends `size` bytes that follow `before` others, and zeros up to a multiple of eight.
fn append_padded(
    bytes: &mut Vec<u8>,
    before: usize,
    size: usize,
    append: impl FnOnce(&mut Vec<u8>),
) {
    let start = bytes.len();
    append(bytes);
    debug_assert_eq!(bytes.len() - start, size);
    bytes.resize(start + align8(before + size) - before, 0);
}

fn encode_value(value: &NvValue, bytes: &mut Vec<u8>) {
    match value {
        NvValue::Boolean => {}
        NvValue::Byte(number) | NvValue::Uint8(number) => bytes.push(*number),
        NvValue::Int8(number) => bytes.push(number.cast_unsigned()),
        NvValue::Int16(number) => bytes.extend(number.to_le_bytes()),
        NvValue::Uint16(number) => bytes.extend(number.to_le_bytes()),
        NvValue::Int32(number) => bytes.extend(number.to_le_bytes()),
        NvValue::Uint32(number) => bytes.extend(number.to_le_bytes()),
        NvValue::BooleanValue(truth) => bytes.extend(u32::from(*truth).to_le_bytes()),
        NvValue::Int64(number) | NvValue::Hrtime(number) => bytes.extend(number.to_le_bytes()),
        NvValue::Uint64(number) => bytes.extend(number.to_le_bytes()),
        NvValue::Double(number) => bytes.extend(number.to_bits().to_le_bytes()),
        NvValue::String(text) => append_text(text, bytes),
        NvValue::ByteArray(items) | NvValue::Uint8Array(items) => bytes.extend(items),
        NvValue::Int8Array(items) => bytes.extend(items.iter().map(|item| item.cast_unsigned())),
        NvValue::Int16Array(items) => bytes.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        NvValue::Uint16Array(items) => bytes.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        NvValue::Int32Array(items) => bytes.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        NvValue::Uint32Array(items) => bytes.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        NvValue::BooleanArray(items) => {
            bytes.extend(
                items
                    .iter()
                    .flat_map(|&truth| u32::from(truth).to_le_bytes()),
            );
        }
        NvValue::Int64Array(items) => bytes.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        NvValue::Uint64Array(items) => bytes.extend(items.iter().flat_map(|n| n.to_le_bytes())),
        NvValue::StringArray(items) => {
            bytes.resize(bytes.len() + items.len() * POINTER_SIZE, 0);
            for text in items {
                append_text(text, bytes);
            }
        }
        NvValue::List(list) => append_list_header(list, bytes),
        NvValue::Lists(lists) => {
            bytes.resize(bytes.len() + lists.len() * POINTER_SIZE, 0);
            for list in lists {
                append_list_header(list, bytes);
            }
        }
    }
}

fn append_text(text: &Text, bytes: &mut Vec<u8>) {
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

fn append_list_header(list: &NvList, bytes: &mut Vec<u8>) {
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(list.flags().to_le_bytes());
    bytes.extend([0; LIST_HEADER_SIZE - 8]);
}
