//! Writing and discarding free space of a device, for `zpool initialize` and `zpool trim`.
//!
//! # Mechanism
//! A free range of a top-level vdev takes one run of bytes on each of its leaves: the same on each
//! copy of a mirror, some sectors of each row on a RAID-Z. The caller knows which ranges are free,
//! and holds them.
//!
//! # Invariants
//! - A device that has left the pool is not written to: its [`clear`](crate::Departed::clear) waits
//!   for the request under way, and later ones are refused.
//! - Labels are not touched: free ranges lie behind the front labels.

use crate::error::LeafFailure;
use crate::leaf::Leaf;
use crate::queue::{self, LeafIo};
use crate::tree::VdevTree;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tarn_host::Buffer;
use tarn_host::device::{Request, WriteData};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::label::device_offset;
use tarn_ondisk::units::{AllocatedSize, Guid, VdevId, VdevOffset};
use tarn_probe::{IoPriority, Operation};

/// The bytes of one write.
#[doc(alias = "zfs_initialize_chunk_size")]
pub const FILL_BYTES: u64 = 1 << 20;

/// What free space is filled with: OpenZFS's value, in the order of little-endian machines.
#[doc(alias = "zfs_initialize_value")]
pub const FILL_PATTERN: u64 = 0xdead_beef_dead_beee;

/// A megabyte of the pattern, to be written many times.
#[derive(Debug, Clone)]
pub struct Filler(Arc<Buffer>);

impl Default for Filler {
    fn default() -> Filler {
        let mut buffer = Buffer::zeroed(narrow(FILL_BYTES));
        let words = buffer.as_chunks_mut::<8>().0;
        words.fill(FILL_PATTERN.to_le_bytes());
        Filler(Arc::new(buffer))
    }
}

impl VdevTree {
    /// The bytes of a leaf, from the start of its window, that a range of its top-level vdev takes.
    /// Empty where it takes none. None when the vdev has no such leaf.
    #[doc(alias = "vdev_xlate")]
    pub fn range_on_leaf(
        &self,
        vdev: VdevId,
        leaf: Guid,
        start: VdevOffset,
        size: AllocatedSize,
    ) -> Option<Range<u64>> {
        let top = self.top(vdev)?;
        let layout = top.layout.as_ref().ok()?;
        let index = top.leaves.iter().position(|other| other.guid == leaf)?;
        let mut children = layout.children().iter();
        let child = children.position(|leaves| leaves.contains(&index))?;
        let end = start.get().checked_add(size.get())?;
        let range = layout.range_on_child(child, start.get()..end);
        let on_device = |offset| device_offset(VdevOffset::new(offset));
        Some(on_device(range.start)?..on_device(range.end)?)
    }

    /// How many leaves share the space of a top-level vdev: of a RAID-Z, its children; otherwise 1.
    #[doc(alias = "vdev_get_ndisks")]
    pub fn shares(&self, vdev: VdevId) -> u64 {
        let top = self.top(vdev);
        let layout = top.as_ref().and_then(|top| top.layout.as_ref().ok());
        layout.map_or(1, |layout| widen(layout.children().len()).max(1))
    }
}

impl Leaf {
    /// Whether it can be told that ranges are free, or could when it was last open: a device that
    /// is taken out of use keeps the answer.
    #[doc(alias = "vdev_has_trim")]
    pub fn can_discard(&self) -> bool {
        self.can_discard.load(Ordering::Relaxed)
    }

    /// Fills a free range with the pattern.
    ///
    /// # Errors
    /// The device is not in use, has left the pool, or reported an error.
    #[doc(alias = "vdev_initialize_write")]
    pub fn fill(
        self: &Arc<Self>,
        range: Range<u64>,
        filler: &Filler,
        operation: &Operation,
    ) -> Result<(), LeafFailure> {
        let starts = (range.start..range.end).step_by(narrow(FILL_BYTES));
        let ios = starts.map(|start| {
            let length = narrow(FILL_BYTES.min(range.end - start));
            let data = WriteData::part(filler.0.clone(), 0..length);
            LeafIo::write(self, start, data, None)
        });
        self.in_free_space(ios.collect(), IoPriority::Initializing, operation)
    }

    /// Tells the device that a range is free. Its contents are undefined afterwards.
    ///
    /// # Errors
    /// The device is not in use, has left the pool, or reported an error.
    #[doc(alias = "zio_trim")]
    pub fn discard(
        self: &Arc<Self>,
        range: Range<u64>,
        operation: &Operation,
    ) -> Result<(), LeafFailure> {
        let io = LeafIo {
            leaf: self.clone(),
            request: Request::Discard {
                offset: range.start,
                length: range.end - range.start,
            },
            birth: None,
        };
        self.in_free_space(vec![io], IoPriority::Trim, operation)
    }

    fn in_free_space(
        self: &Arc<Self>,
        ios: Vec<LeafIo>,
        class: IoPriority,
        operation: &Operation,
    ) -> Result<(), LeafFailure> {
        let has_left = self.free_space_access.lock();
        if *has_left {
            return Err(self.not_usable());
        }
        let outcomes = queue::run(ios, class, operation);
        drop(has_left);
        outcomes
            .into_iter()
            .try_for_each(|outcome| outcome.map(drop))
    }

    /// Waits for the request to its free space under way, and refuses later ones: it has left the
    /// pool.
    pub(crate) fn end_free_space_access(&self) {
        *self.free_space_access.lock() = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_that_of_openzfs() {
        let filler = Filler::default();
        let bytes = [0xee, 0xbe, 0xad, 0xde, 0xef, 0xbe, 0xad, 0xde];
        assert_eq!(filler.0[..8], bytes);
        assert_eq!(filler.0[filler.0.len() - 8..], bytes);
        assert_eq!(widen(filler.0.len()), FILL_BYTES);
    }
}
