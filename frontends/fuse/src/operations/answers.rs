//! Attributes, entries and space in the kernel's structures.

use crate::handles::Handle;
use crate::kept::{EntryCached, attributes_cached_s};
use crate::protocol::{Answer, OPEN_NO_FLUSH, statx_bits};
use tarn_engine::files::{Attributes, DeviceNumber, DirectoryEntry, SpaceFacts, Timestamp};

/// A device number in the kernel's encoding.
fn device_number(device: DeviceNumber) -> u32 {
    ((device.major & 0xfff) << 8) | (device.minor & 0xff) | ((device.minor & 0xf_ff00) << 12)
}

/// Adds attributes as `stat` shows them.
fn put_attributes(answer: &mut Answer, attributes: &Attributes) {
    let seconds = |time: Timestamp| u64::from_ne_bytes(time.seconds.to_ne_bytes());
    let times = [attributes.accessed, attributes.modified, attributes.changed];
    answer
        .u64(attributes.id.get())
        .u64(attributes.size)
        .u64(attributes.blocks_512);
    for time in times {
        answer.u64(seconds(time));
    }
    for time in times {
        answer.u32(time.nanoseconds);
    }
    answer
        .u32(attributes.kind.mode_bits() | attributes.permissions)
        .u32(u32::try_from(attributes.links).unwrap_or(u32::MAX))
        .u32(attributes.uid)
        .u32(attributes.gid)
        .u32(device_number(attributes.device))
        .u32(attributes.block_size)
        .u32(0);
}

/// Attributes as an answer of their own.
pub(super) fn attributes_answer(attributes: &Attributes, cached_s: u64) -> Answer {
    let mut answer = Answer::new();
    answer.u64(cached_s).u32(0).u32(0);
    put_attributes(&mut answer, attributes);
    answer
}

/// The same for `statx`, with the birth time. Attributes (`STATX_ATTR_…`) are left out, as the
/// kernel ignores them.
pub(super) fn statx_answer(attributes: &Attributes) -> Answer {
    let mut answer = Answer::new();
    answer
        .u64(attributes_cached_s(attributes))
        .u32(0)
        .u32(0)
        .zeros(16);
    let mode = attributes.kind.mode_bits() | attributes.permissions;
    answer
        .u32(statx_bits::BASIC | statx_bits::BIRTH)
        .u32(attributes.block_size)
        .u64(0)
        .u32(u32::try_from(attributes.links).unwrap_or(u32::MAX))
        .u32(attributes.uid)
        .u32(attributes.gid)
        .u16(u16::try_from(mode).expect("a mode has 16 bits"))
        .u16(0)
        .u64(attributes.id.get())
        .u64(attributes.size)
        .u64(attributes.blocks_512)
        .u64(0);
    let Attributes {
        accessed,
        created,
        changed,
        modified,
        device,
        ..
    } = attributes;
    for time in [accessed, created, changed, modified] {
        let seconds = u64::from_ne_bytes(time.seconds.to_ne_bytes());
        answer.u64(seconds).u32(time.nanoseconds).u32(0);
    }
    // The kernel fills in the file system's own device.
    answer.u32(device.major).u32(device.minor).zeros(8 + 14 * 8);
    answer
}

/// Adds the result of a lookup: a node, and for how many seconds the kernel may cache its name.
pub(super) fn put_entry(
    answer: &mut Answer,
    node: u64,
    cached: EntryCached,
    attributes: &Attributes,
) {
    answer
        .u64(node)
        .u64(attributes.generation)
        .u64(cached.name_s)
        .u64(cached.attributes_s)
        .u32(0)
        .u32(0);
    put_attributes(answer, attributes);
}

/// Adds the result of an open.
pub(super) fn put_open(answer: &mut Answer, handle: Handle, flags: u32) {
    let flush = match handle.is_unflushed() {
        true => OPEN_NO_FLUSH,
        false => 0,
    };
    answer.u64(handle.number()).u32(flags | flush).u32(0);
}

/// Bytes of a directory entry, padded to eight.
pub(super) fn entry_size(entry: &DirectoryEntry) -> usize {
    (24 + entry.name.len()).next_multiple_of(8)
}

/// Adds a directory entry if it fits.
pub(super) fn put_directory_entry(
    answer: &mut Answer,
    entry: &DirectoryEntry,
    room: usize,
) -> bool {
    let size = entry_size(entry);
    if answer.len() + size > room {
        return false;
    }
    let name_bytes = u32::try_from(entry.name.len()).expect("a name is short");
    let padding = size - 24 - entry.name.len();
    answer
        .u64(entry.id.get())
        .u64(entry.cookie)
        .u32(name_bytes)
        .u32(entry.kind.mode_bits() >> 12)
        .bytes(&entry.name)
        .zeros(padding);
    true
}

/// The values of `statvfs`, in blocks.
pub(super) fn space_answer(facts: &SpaceFacts) -> Answer {
    /// The unit of the counts, whatever the record size, so that sums are exact.
    const UNIT: u64 = 512;
    let block = u64::from(facts.block_size.max(512));
    let available = facts.available_bytes / UNIT;
    let mut answer = Answer::new();
    answer
        .u64(facts.total_bytes / UNIT)
        .u64(available)
        .u64(available)
        .u64(facts.total_objects)
        .u64(facts.available_objects)
        .u32(u32::try_from(block).unwrap_or(u32::MAX))
        .u32(facts.name_bytes_max)
        .u32(512)
        .u32(0)
        .zeros(24);
    answer
}
