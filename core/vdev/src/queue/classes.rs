//! I/O classes: what a request is for, and how many of each class a device may have. All limits of
//! a device's queue are here, but for how large neighbours may become that are joined, which the
//! device says ([`DeviceInfo::merged_bytes_max`]).
//!
//! # Mechanism
//! Each class has the least that it may always have and the most that it may have at once, and the
//! device has a depth, which is [found](super::depth) from what the device does. A class below its
//! least is given room whatever the others have; none gets more than its most. Classes for which an
//! application or txg waits share the depth. The others, such as scrub, may have all of it while no
//! application has asked the device for a while, and an eighth of it otherwise; scrubs look for
//! [gaps](super::gaps) besides.
//!
//! Devices that are opened directly have these limits. A file in the page cache has no queue of its
//! own: most requests only copy, and `host` carries them out in the calling thread or by a bounded
//! number of threads. There only the classes are limited for which no application or txg waits.

use super::depth::DEPTH_MAX;
use tarn_host::device::DeviceInfo;
use tarn_probe::{IoPriority, Operation, OperationKind};

/// The least and the most requests of a class that a device has at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassLimits {
    /// The least: so many requests the class may have whatever others have.
    pub least: u32,
    /// The most that the class has at once.
    pub most: u32,
}

/// The limits of one device's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// The largest gap, in bytes, that an aggregate reads and throws away.
#[doc(alias = "zfs_vdev_read_gap_limit")]
const READ_GAP_BYTES_MAX: u64 = 32 << 10;

/// How many limits there are: one for each depth, from zero.
const DEPTHS: usize = DEPTH_MAX as usize + 1;

/// Of direct devices by their depth, while no application asks them.
static IDLE: [Limits; DEPTHS] = by_depth(false);

/// Of direct devices by their depth, while applications ask them.
static ASKED: [Limits; DEPTHS] = by_depth(true);

static PAGE_CACHE: Limits = Limits {
    classes: in_page_cache(),
    depth: DEPTH_MAX,
    read_gap_bytes_max: 0,
};

impl Limits {
    /// The limits of this device, whose depth is this, and which applications have asked lately, or
    /// not.
    pub(crate) fn of(info: &DeviceInfo, depth: u32, is_asked: bool) -> &'static Limits {
        let depth = depth as usize;
        match (info.is_direct, is_asked) {
            (true, true) => &ASKED[depth],
            (true, false) => &IDLE[depth],
            (false, _) => &PAGE_CACHE,
        }
    }
}

const fn by_depth(is_asked: bool) -> [Limits; DEPTHS] {
    let mut all = [PAGE_CACHE_TEMPLATE; DEPTHS];
    let mut depth = 0;
    while depth < DEPTHS {
        let mut classes = [None; IoPriority::COUNT];
        let mut index = 0;
        while index < IoPriority::COUNT {
            classes[index] = Some(of_class(IoPriority::ALL[index], depth as u32, is_asked));
            index += 1;
        }
        all[depth] = Limits {
            classes,
            depth: depth as u32,
            read_gap_bytes_max: READ_GAP_BYTES_MAX,
        };
        depth += 1;
    }
    all
}

const PAGE_CACHE_TEMPLATE: Limits = Limits {
    classes: [None; IoPriority::COUNT],
    depth: 0,
    read_gap_bytes_max: 0,
};

/// The limits of a class at a direct device.
const fn of_class(class: IoPriority, depth: u32, is_asked: bool) -> ClassLimits {
    let (share, most) = match class {
        IoPriority::SyncRead | IoPriority::SyncWrite => (depth / 3, depth),
        IoPriority::AsyncWrite => (depth / 5, depth),
        IoPriority::AsyncRead => (1, depth),
        // Two, so that the device knows the next one before it gets there.
        IoPriority::Scrub | IoPriority::Rebuild if is_asked && depth < 16 => (1, 2),
        IoPriority::Scrub
        | IoPriority::Removal
        | IoPriority::Initializing
        | IoPriority::Trim
        | IoPriority::Rebuild => match is_asked {
            true => (1, depth / 8),
            false => (1, depth),
        },
    };
    let most = if most == 0 { 1 } else { most };
    let least = if share == 0 { 1 } else { share };
    ClassLimits { least, most }
}

/// OpenZFS's defaults for the classes for which nothing waits, as `zfs_vdev_*_min_active` and
/// `zfs_vdev_*_max_active`.
const fn in_page_cache() -> [Option<ClassLimits>; IoPriority::COUNT] {
    let mut classes = [None; IoPriority::COUNT];
    let mut index = 0;
    while index < IoPriority::COUNT {
        let class = IoPriority::ALL[index];
        let most = match class {
            IoPriority::Scrub | IoPriority::Rebuild => 3,
            IoPriority::Removal | IoPriority::Trim => 2,
            _ => 1,
        };
        if !is_waited_for(class) {
            classes[index] = Some(ClassLimits { least: 1, most });
        }
        index += 1;
    }
    classes
}

/// Whether an application or a transaction group waits for requests of a class.
pub(crate) const fn is_waited_for(class: IoPriority) -> bool {
    matches!(
        class,
        IoPriority::SyncRead
            | IoPriority::SyncWrite
            | IoPriority::AsyncRead
            | IoPriority::AsyncWrite
    )
}

/// Whether requests of a class are those of scans, in the order of the surface.
pub(crate) const fn is_of_scan(class: IoPriority) -> bool {
    matches!(class, IoPriority::Scrub | IoPriority::Rebuild)
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
    fn each_class_has_its_least_and_none_more_than_the_depth() {
        let all = IDLE.iter().chain(&ASKED).chain([&PAGE_CACHE]);
        for limits in all.filter(|limits| limits.depth >= super::super::depth::DEPTH_MIN) {
            let classes = || limits.classes.iter().flatten();
            assert!(classes().all(|class| 1 <= class.least && class.least <= class.most));
            assert!(classes().all(|class| class.most <= limits.depth));
        }
        let scrub = |limits: &[Limits]| limits[40].classes[IoPriority::Scrub.index()].unwrap();
        assert_eq!((scrub(&IDLE).most, scrub(&ASKED).most), (40, 5));
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
        assert_eq!(limited(&IDLE[10]).len(), IoPriority::COUNT);
    }
}
