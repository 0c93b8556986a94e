//! A device of the second-level cache: where its header and room are, read and written.
//!
//! # Mechanism
//! A cache device has the labels of its own kind (state `L2CACHE`, its guid, no pool) and behind
//! the front labels a header of one sector, then room in which `cache` writes round and round. It
//! is a [`Leaf`] that is in no top-level vdev.
//!
//! # Invariants
//! - A device whose labels do not name it as this cache device is neither read nor written.
//! - Nothing is written over labels.

use crate::config::{ASHIFT_MIN, VdevConfig};
use crate::error::LeafFailure;
use crate::health::Standing;
use crate::leaf::Leaf;
use crate::queue::{self, LeafIo, read_class};
use crate::reports::ReportedIo;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_host::Buffer;
use tarn_host::device::WriteData;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::label::{DATA_START_BYTES, data_size};
use tarn_ondisk::units::Guid;
use tarn_probe::{IoKind, IoPriority, Operation};

/// An open device of the second-level cache, or one that could not be opened.
#[derive(Debug)]
#[doc(alias = "l2arc_dev_t")]
pub struct CacheDevice {
    pub(crate) leaf: Arc<Leaf>,
    ashift: u32,
    /// What its contents take, as `cache` last said.
    allocated_bytes: AtomicU64,
}

impl CacheDevice {
    pub(crate) fn new(config: &VdevConfig) -> CacheDevice {
        let ashift = config.cache_ashift.unwrap_or(ASHIFT_MIN);
        CacheDevice {
            leaf: Arc::new(Leaf::new(config, 1 << ashift)),
            ashift,
            allocated_bytes: AtomicU64::new(0),
        }
    }

    /// Its name for good.
    pub fn guid(&self) -> Guid {
        self.leaf.guid
    }

    /// How it is, and why.
    pub fn standing(&self) -> Standing {
        self.leaf.standing()
    }

    /// True if it can be read and written.
    pub fn is_usable(&self) -> bool {
        self.leaf.is_usable()
    }

    /// Its sectors are so large, in bytes: every place is a multiple of it.
    pub fn sector_bytes(&self) -> u64 {
        1 << self.ashift
    }

    /// What `size` bytes take on it.
    #[doc(alias = "vdev_psize_to_asize")]
    pub fn allocated_size(&self, size: u64) -> u64 {
        size.next_multiple_of(self.sector_bytes())
    }

    /// Where its header is, in bytes from the start of its window.
    pub fn header_range(&self) -> Range<u64> {
        DATA_START_BYTES..DATA_START_BYTES + self.sector_bytes()
    }

    /// The room behind its header, in bytes from the start of its window. None while it is not
    /// open.
    #[doc(alias("l2ad_start", "l2ad_end"))]
    pub fn room(&self) -> Option<Range<u64>> {
        let size = data_size(self.leaf.window()?.size_bytes())?;
        let (start, end) = (self.header_range().end, DATA_START_BYTES + size.get());
        (start < end).then_some(start..end)
    }

    /// Notes what its contents take, in bytes.
    pub fn note_allocated(&self, bytes: u64) {
        self.allocated_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What its contents take, in bytes.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// Reads `size` bytes, whole sectors, at an offset of its window.
    ///
    /// # Errors
    /// The device is not in use, or reported an error, which is counted.
    pub fn read(
        &self,
        offset: u64,
        size: u64,
        operation: &Operation,
    ) -> Result<Buffer, LeafFailure> {
        let io = LeafIo::read(&self.leaf, offset, narrow(size));
        let outcome = queue::run(vec![io], read_class(operation), operation);
        let mut outcomes = outcome.into_iter();
        let read = outcomes.next().expect("one request has one outcome")?;
        Ok(read.expect("a read gives its buffer"))
    }

    /// Writes buffers of whole sectors at offsets of its window. One outcome each, in their order.
    ///
    /// # Panics
    /// A buffer is not within its header and room: that would be over its labels.
    pub fn write(
        &self,
        writes: Vec<(u64, Arc<Buffer>)>,
        operation: &Operation,
    ) -> Vec<Result<(), LeafFailure>> {
        let end = self.room().map_or(u64::MAX, |room| room.end);
        let ios = writes.into_iter().map(|(offset, buffer)| {
            assert!(
                offset >= DATA_START_BYTES,
                "front labels are not written over"
            );
            assert!(offset + widen(buffer.len()) <= end, "nor are those behind");
            let length = buffer.len();
            LeafIo::write(&self.leaf, offset, WriteData::part(buffer, 0..length), None)
        });
        let outcomes = queue::run(ios.collect(), IoPriority::AsyncWrite, operation);
        outcomes.into_iter().map(|done| done.map(drop)).collect()
    }

    /// Counts bytes that did not verify, and reports them.
    pub fn note_mismatch(&self, offset: u64, bytes: u64, operation: &Operation) {
        self.leaf.note_mismatch(ReportedIo {
            kind: IoKind::Read,
            priority: read_class(operation),
            offset,
            bytes,
            begun_ns: operation.started_ns(),
        });
    }
}
