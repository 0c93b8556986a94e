//! Records of ioctls for `zpool history -i`: the command with its input list, as OpenZFS notes it.
//!
//! Only those that OpenZFS notes: snapshots, holds, bookmarks, rollback, create and clone. OpenZFS
//! also notes the call of `zfs receive`, with the beginning of the stream; the internal events say
//! as much, so it is left out.

use tarn_dataset::properties::parse::{Checked, Setting};
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_pool::CallRecord;

/// A list with a flag for each name.
fn flags<'n>(names: impl IntoIterator<Item = &'n String>) -> NvList {
    let mut list = NvList::new();
    for name in names {
        list.set(name.as_str(), NvValue::Boolean);
    }
    list
}

/// Properties as they are stored.
fn properties(settings: &[Checked]) -> NvList {
    let mut list = NvList::new();
    for one in settings {
        match &one.setting {
            Setting::Number(number) => list.set(one.name.as_str(), *number),
            Setting::Text(text) => list.set(one.name.as_str(), text.as_str()),
        }
    }
    list
}

#[doc(alias = "lzc_snapshot")]
pub(crate) fn snapshot(names: &[String], settings: &[Checked]) -> CallRecord {
    let mut input = NvList::new().with("snaps", flags(names));
    if !settings.is_empty() {
        input.set("props", properties(settings));
    }
    CallRecord::new("snapshot", input)
}

#[doc(alias = "lzc_destroy_snaps")]
pub(crate) fn destroy_snapshots(names: &[String], defer: bool) -> CallRecord {
    let mut input = NvList::new().with("snaps", flags(names));
    if defer {
        input.set("defer", NvValue::Boolean);
    }
    CallRecord::new("destroy_snaps", input)
}

#[doc(alias = "lzc_hold")]
pub(crate) fn hold(names: &[String], tag: &str) -> CallRecord {
    let mut holds = NvList::new();
    for name in names {
        holds.set(name.as_str(), tag);
    }
    CallRecord::new("hold", NvList::new().with("holds", holds))
}

#[doc(alias = "lzc_release")]
pub(crate) fn release(names: &[String], tag: &str) -> CallRecord {
    let mut input = NvList::new();
    for name in names {
        input.set(name.as_str(), NvList::new().with(tag, NvValue::Boolean));
    }
    CallRecord::new("release", input)
}

#[doc(alias = "lzc_rollback_to")]
pub(crate) fn rollback(snapshot: &str) -> CallRecord {
    CallRecord::new("rollback", NvList::new().with("target", snapshot))
}

/// Bookmarks, each with its snapshot or bookmark.
#[doc(alias = "lzc_bookmark")]
pub(crate) fn bookmark(bookmarks: &[(String, String)]) -> CallRecord {
    let mut input = NvList::new();
    for (name, origin) in bookmarks {
        input.set(name.as_str(), origin.as_str());
    }
    CallRecord::new("bookmark", input)
}

#[doc(alias = "lzc_destroy_bookmarks")]
pub(crate) fn destroy_bookmarks(names: &[String]) -> CallRecord {
    CallRecord::new("destroy_bookmarks", flags(names))
}

#[doc(alias = "lzc_clone")]
pub(crate) fn clone(origin: &str, settings: &[Checked]) -> CallRecord {
    let input = NvList::new()
        .with("origin", origin)
        .with("props", properties(settings));
    CallRecord::new("clone", input)
}

#[doc(alias = "lzc_create")]
pub(crate) fn create_filesystem(settings: &[Checked]) -> CallRecord {
    /// `DMU_OST_ZFS`.
    const FILESYSTEM: i32 = 2;
    let input = NvList::new().with("type", NvValue::Int32(FILESYSTEM));
    CallRecord::new("create", input.with("props", properties(settings)))
}

/// Sizes in bytes.
#[doc(alias = "lzc_create")]
pub(crate) fn create_volume(size: u64, block_size: u64, settings: &[Checked]) -> CallRecord {
    /// `DMU_OST_ZVOL`.
    const VOLUME: i32 = 3;
    let mut given = properties(settings);
    given.set("volblocksize", block_size);
    given.set("volsize", size);
    let input = NvList::new().with("type", NvValue::Int32(VOLUME));
    CallRecord::new("create", input.with("props", given))
}
