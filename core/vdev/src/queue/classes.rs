//! I/O classes: what a request is for, and how many of each class a device may have. All limits of
//! a device's queue are here, but for how large neighbours may become that are joined, which the
//! device says ([`DeviceInfo::merged_bytes_max`]).
//!
//! # Mechanism
//! Each class has the least that is reserved for it and the most that it may have at once, and the
//! device has a depth. A class below its least is given room even when the others want all of the
//! depth; none gets more than its most. So a scrub with thousands of requests ready has at most
//! three at a device, and reads for applications find room beside them.
//!
//! Devices that are opened directly have OpenZFS's limits. A file in the page cache has no queue of
//! its own: most requests only copy, and `host` carries them out in the calling thread or by a
//! bounded number of threads. There only the classes are limited for which no application or txg
//! waits.

use tarn_host::device::DeviceInfo;
use tarn_probe::{IoPriority, Operation, OperationKind};

/// The least and the most requests of a class that a device has at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassLimits {
    /// The least: so many requests are reserved for the class.
    pub least: u32,
    /// The most that the class has at once.
    pub most: u32,
}

/// The limits of one device's queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// By [`IoPriority::index`]. None for a class without limits.
    pub classes: [Option<ClassLimits>; IoPriority::COUNT],
    /// All limited classes together have no more, but for requests within their least.
    #[doc(alias = "zfs_vdev_max_active")]
    pub depth: u32,
    /// Reads with no more than so many bytes between them become one, which reads the gap as well.
    #[doc(alias = "zfs_vdev_read_gap_limit")]
    pub read_gap_bytes_max: u64,
}

/// OpenZFS's default for all requests of a device.
const DEPTH: u32 = 1000;

/// The largest gap, in bytes, that an aggregate reads and throws away.
#[doc(alias = "zfs_vdev_read_gap_limit")]
const READ_GAP_BYTES_MAX: u64 = 32 << 10;

static DIRECT: Limits = Limits {
    classes: classes(true),
    depth: DEPTH,
    read_gap_bytes_max: READ_GAP_BYTES_MAX,
};

static PAGE_CACHE: Limits = Limits {
    classes: classes(false),
    depth: DEPTH,
    read_gap_bytes_max: 0,
};

impl Limits {
    /// The limits of this device.
    pub(crate) fn of(info: &DeviceInfo) -> &'static Limits {
        match info.is_direct {
            true => &DIRECT,
            false => &PAGE_CACHE,
        }
    }
}

/// OpenZFS's defaults, as `zfs_vdev_*_min_active` and `zfs_vdev_*_max_active`.
const fn classes(is_direct: bool) -> [Option<ClassLimits>; IoPriority::COUNT] {
    let mut classes = [None; IoPriority::COUNT];
    let mut index = 0;
    while index < IoPriority::COUNT {
        let (least, most) = match IoPriority::ALL[index] {
            IoPriority::SyncRead | IoPriority::SyncWrite => (10, 10),
            IoPriority::AsyncRead => (1, 3),
            IoPriority::AsyncWrite => (2, 10),
            IoPriority::Scrub => (1, 3),
            IoPriority::Removal => (1, 2),
            IoPriority::Initializing => (1, 1),
            IoPriority::Trim => (1, 2),
            IoPriority::Rebuild => (1, 3),
        };
        assert!(
            0 < least && least <= most && most <= DEPTH,
            "a class has at least one request, and its least is within its most"
        );
        let is_limited = is_direct || !is_waited_for(IoPriority::ALL[index]);
        classes[index] = match is_limited {
            true => Some(ClassLimits { least, most }),
            false => None,
        };
        index += 1;
    }
    classes
}

/// Whether an application or a transaction group waits for requests of a class.
const fn is_waited_for(class: IoPriority) -> bool {
    matches!(
        class,
        IoPriority::SyncRead
            | IoPriority::SyncWrite
            | IoPriority::AsyncRead
            | IoPriority::AsyncWrite
    )
}

/// The I/O class of an operation's reads.
pub(crate) fn read_class(operation: &Operation) -> IoPriority {
    match operation.what().kind {
        OperationKind::Prefetch => IoPriority::AsyncRead,
        OperationKind::Scan => IoPriority::Scrub,
        _ => IoPriority::SyncRead,
    }
}

/// The I/O class of an operation's writes.
pub(crate) fn write_class(operation: &Operation) -> IoPriority {
    match operation.what().kind {
        OperationKind::TxgSync => IoPriority::AsyncWrite,
        OperationKind::Scan => IoPriority::Scrub,
        _ => IoPriority::SyncWrite,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_no_more_than_the_most_and_fits_into_the_depth() {
        for limits in [&DIRECT, &PAGE_CACHE] {
            let classes = || limits.classes.iter().flatten();
            assert!(classes().all(|class| 1 <= class.least && class.least <= class.most));
            assert!(classes().map(|class| class.least).sum::<u32>() <= limits.depth);
        }
    }

    #[test]
    fn the_page_cache_limits_only_what_nothing_waits_for() {
        let limited = |limits: &Limits| {
            let all = IoPriority::ALL.into_iter();
            all.filter(|class| limits.classes[class.index()].is_some())
                .map(IoPriority::name)
                .collect::<Vec<_>>()
        };
        let background = ["scrub", "trim", "rebuild", "removal", "initializing"];
        assert_eq!(limited(&PAGE_CACHE), background);
        assert_eq!(limited(&DIRECT).len(), IoPriority::COUNT);
    }
}
