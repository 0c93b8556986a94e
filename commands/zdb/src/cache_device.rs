//! `zdb -l` of a cache device: the header behind its front labels, and the log blocks that it leads
//! to. `-ll` prints each log block, too.

use crate::options::Options;
use crate::out::Out;
use std::path::Path;
use tarn_cache::follow_stored_log;
use tarn_engine::inspect::label::DeviceLabels;
use tarn_host::device::Request;
use tarn_host::{Host, OpenMode};
use tarn_ondisk::cache_device::LOG_BLOCK_BYTES;
use tarn_ondisk::cache_device::{CacheHeader, CacheLogBlock, CacheLogHead, CacheLogPointer};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::label::DATA_START_BYTES;
use tarn_vdev::Window;

/// The `state` in labels of cache devices.
#[doc(alias = "POOL_STATE_L2CACHE")]
const STATE_OF_CACHE_DEVICES: u64 = 4;

/// Sectors of devices may be that large: a header has one, or is the beginning of one.
const SECTOR_BYTES_MAX: u64 = 4096;

/// A line around a title.
const RULE: &str = "------------------------------------";

/// Whether a label says that its device is one of the cache.
pub fn is_one(labels: &DeviceLabels) -> bool {
    let mut lists = labels.labels.iter().flatten();
    lists.any(|label| {
        let list = label.configuration.as_ref();
        let state = list.and_then(|list| list.optional_u64("state").ok().flatten());
        state == Some(STATE_OF_CACHE_DEVICES)
    })
}

/// Prints the header of a device and its log blocks.
pub fn show(out: &mut Out, options: &Options, host: &Host, path: &Path) {
    let Ok(device) = host.open_device(path, OpenMode::ReadOnly) else {
        return;
    };
    let window = Window::whole(device);
    let sector = read(&window, DATA_START_BYTES, SECTOR_BYTES_MAX);
    let header = sector.and_then(|sector| CacheHeader::from_sector(&sector).ok());
    let Some((header, _)) = header else {
        writeln!(out, "L2ARC device header not found\n");
        return;
    };
    if options.has('q') {
        return;
    }
    show_header(out, &header);
    writeln!(out, "{RULE}\nL2ARC device log blocks\n{RULE}");
    if header.newest == CacheLogPointer::NONE {
        writeln!(out, "No log blocks to read\n");
        return;
    }
    show_log(out, options, &header, |offset, length| {
        read(&window, offset, length)
    });
}

fn show_header(out: &mut Out, header: &CacheHeader) {
    writeln!(out, "{RULE}\nL2ARC device header\n{RULE}");
    for (name, value) in [
        ("magic", header.magic),
        ("version", header.version),
        ("pool_guid", header.pool.get()),
        ("flags", header.flags),
        ("start_lbps[0]", header.newest.offset),
        ("start_lbps[1]", header.second.offset),
        ("log_blk_ent", header.entries_in_block),
        ("start", header.start),
        ("end", header.end),
        ("evict", header.evicted),
        ("lb_asize_refcount", header.log_bytes),
        ("lb_count_refcount", header.log_count),
        ("trim_action_time", header.trim_time_s),
        ("trim_state", header.trim_state),
    ] {
        writeln!(out, "    {name}: {value}");
    }
    writeln!(out);
}

fn show_log(
    out: &mut Out,
    options: &Options,
    header: &CacheHeader,
    read: impl FnMut(u64, u64) -> Option<Vec<u8>>,
) {
    let (mut intact, mut damaged, mut bytes) = (0u64, 0u64, 0u64);
    let see = |pointer: &CacheLogPointer, block: Option<&CacheLogBlock>| {
        if block.is_none() {
            damaged += 1;
            writeln!(out, "Invalid cksum");
            show_pointer(out, pointer);
            return;
        }
        intact += 1;
        bytes += pointer.stored_bytes();
        if options.level('l') >= 2 {
            let magic = CacheLogHead::MAGIC;
            writeln!(out, "lb[{intact:4}]\tmagic: {magic}");
            show_pointer(out, pointer);
        }
    };
    follow_stored_log(header, read, see);
    writeln!(out, "log_blk_count:\t {intact} with valid cksum");
    writeln!(out, "\t\t {damaged} with invalid cksum");
    writeln!(out, "log_blk_asize:\t {bytes}\n");
}

fn show_pointer(out: &mut Out, pointer: &CacheLogPointer) {
    for (name, value) in [
        ("daddr", pointer.offset),
        ("payload_asize", pointer.payload_bytes),
        ("payload_start", pointer.payload_start),
        ("lsize", widen(LOG_BLOCK_BYTES)),
        ("asize", pointer.stored_bytes()),
        ("compralgo", pointer.compression_code()),
        ("cksumalgo", pointer.checksum_code()),
    ] {
        writeln!(out, "|\t\t{name}: {value}");
    }
    writeln!(out, "|\n");
}

/// Bytes of a device.
fn read(window: &Window, offset: u64, length: u64) -> Option<Vec<u8>> {
    let end = offset.checked_add(length)?;
    if end > window.size_bytes() {
        return None;
    }
    let request = Request::read(window.device_offset(offset), narrow(length));
    let completion = window.device().submit(vec![request]).wait().pop()?;
    let bytes = completion.result.ok()??;
    Some(bytes.to_vec())
}
