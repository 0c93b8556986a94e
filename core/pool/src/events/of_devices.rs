//! Events of devices: their reports become events in a thread of the pool.
//!
//! # Mechanism
//! A failed request is `ereport.fs.zfs.io`, wrong bytes `.checksum`, a slow request `.delay`, one
//! that is not answered `.deadman`; a change of state is `resource.fs.zfs.statechange`, and
//! `.vdev.open_failed` and its like where the device cannot be opened any more. A block that no
//! device could give is `.data`. An error that is the same as one of the last fifteen minutes is
//! left out, and so are more than twenty errors of a kind and device in a second, as OpenZFS leaves
//! them out: a device that fails makes the same error for each reader.
//!
//! A read that failed is followed by a [probe](tarn_vdev::Probe) of its device, in a thread of its
//! own, since the device may hang. A probe that fails is `.probe_failure`, and takes the device out
//! of use at once.
//!
//! The thread ends when the tree closes its queue of reports.

use super::{NO_OPERATION, VdevFacts, state_number};
use crate::pool::Pool;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use tarn_ondisk::nvlist::{NvList, NvValue, Text};
use tarn_ondisk::units::Guid;
use tarn_probe::{IoKind, IoPriority};
use tarn_vdev::health::{Reason, Standing, VdevState};
use tarn_vdev::reports::{
    CHECKSUM_ERROR, Report, ReportKind, ReportedIo, Reports, UnreadableBlock,
};

/// So many errors are remembered to leave out their repetitions.
#[doc(alias = "zfs_zevent_retain_max")]
const REMEMBERED_MAX: usize = 2000;

/// An error is forgotten so long after it happened last.
#[doc(alias = "zfs_zevent_retain_expire_secs")]
const REMEMBERED_NS: u64 = 900 * SECOND_NS;

/// Most errors of a kind and a device in a second.
#[doc(alias("zfs_checksum_events_per_second", "zfs_slow_io_events_per_second"))]
const PER_SECOND_MAX: u32 = 20;

/// Most events of requests that a device does not answer in a second.
#[doc(alias = "zfs_deadman_events_per_second")]
const HUNG_PER_SECOND_MAX: u32 = 1;

const SECOND_NS: u64 = 1_000_000_000;

/// Starts the thread.
pub(super) fn start(pool: &Arc<Pool>) {
    let (reports, weak) = (pool.vdevs().reports().clone(), Arc::downgrade(pool));
    let name = format!("tarn-events-{}", pool.name());
    let run = move || post_all(&reports, &weak);
    // It ends with the queue of reports.
    drop(pool.host().spawn(&name, run));
}

fn post_all(reports: &Reports, pool: &Weak<Pool>) {
    let mut filter = Filter::default();
    while let Some(taken) = reports.take() {
        let Some(pool) = pool.upgrade() else { return };
        let now_ns = pool.host().monotonic_ns();
        for report in &taken.reports {
            if report.what == ReportKind::Cleared {
                filter.forget(report.vdev);
            } else if filter.admits(report, now_ns) {
                pool.post_report(report);
            }
        }
    }
}

impl Pool {
    fn post_report(self: &Arc<Self>, report: &Report) {
        if let ReportKind::Unreadable(block) = &report.what {
            return self.post_data(block);
        }
        let vdev = self.vdev_facts(report.vdev);
        match &report.what {
            ReportKind::Io { request, errno } => {
                self.post_io("io", &vdev, request, *errno, 0);
                // After a failed write, the writing thread has probed the device.
                if request.kind == IoKind::Read {
                    self.probe_device(report.vdev);
                }
            }
            ReportKind::Checksum { request } => {
                self.post_io("checksum", &vdev, request, CHECKSUM_ERROR, 0);
            }
            ReportKind::Slow { request, device_ns } => {
                self.post_io("delay", &vdev, request, 0, *device_ns);
            }
            // A suspended pool waits for devices, and says so.
            ReportKind::Hung { .. } if self.failure().is_some() => {}
            ReportKind::Hung { request, waited_ns } => {
                self.post_io("deadman", &vdev, request, 0, *waited_ns);
            }
            ReportKind::ProbeFailure { before } => {
                self.post_fault("probe_failure", &vdev, *before);
            }
            ReportKind::State { before, now } => {
                self.post_state(&vdev, *before, *now);
                if now.state.is_usable() {
                    self.resume_works();
                    self.resume_rebuilds();
                }
            }
            ReportKind::Unreadable(_) | ReportKind::Cleared => {}
        }
    }

    /// A block that could not be read from any device.
    fn post_data(&self, block: &UnreadableBlock) {
        let mut list = self.error_list("data", Guid::ZERO, block.begun_ns);
        add_request(&mut list, IoKind::Read, block.priority);
        list.set("zio_err", NvValue::Int32(block.errno));
        list.set("zio_objset", block.mark.objset.get());
        list.set("zio_object", block.mark.object.get());
        list.set("zio_level", NvValue::Int64(block.mark.level));
        list.set("zio_blkid", block.mark.block);
        self.post_list(list);
    }

    fn post_io(
        &self,
        name: &str,
        vdev: &VdevFacts,
        request: &ReportedIo,
        errno: i32,
        device_ns: u64,
    ) {
        let mut list = self.error_list(name, vdev.guid, request.begun_ns);
        self.add_vdev(&mut list, vdev);
        self.add_thresholds(&mut list, vdev.guid, name);
        add_request(&mut list, request.kind, request.priority);
        list.set("zio_err", NvValue::Int32(errno));
        list.set("zio_delay", device_ns);
        list.set("zio_timestamp", tarn_host::monotonic_ns());
        list.set("zio_delta", device_ns);
        list.set("zio_offset", request.offset);
        list.set("zio_size", request.bytes);
        self.post_list(list);
    }

    fn post_state(&self, vdev: &VdevFacts, before: VdevState, now: Standing) {
        if now.state == VdevState::Unavailable {
            self.post_fault(open_failure(now.reason), vdev, before);
        }
        // The state may have changed again since.
        let then = VdevFacts {
            guid: vdev.guid,
            kind: vdev.kind,
            path: vdev.path.clone(),
            standing: now,
            parent: vdev.parent,
            ..*vdev
        };
        let more = NvList::new().with("vdev_laststate", state_number(before));
        self.post_of_class("resource.fs.zfs.statechange", Some(&then), more);
    }

    /// An error of a device that is not one of a request.
    fn post_fault(&self, name: &str, vdev: &VdevFacts, before: VdevState) {
        let mut list = self.error_list(name, vdev.guid, NO_OPERATION);
        self.add_vdev(&mut list, vdev);
        list.set("prev_state", state_number(before));
        self.post_list(list);
    }

    /// The values of all errors of a vdev.
    fn add_vdev(&self, list: &mut NvList, vdev: &VdevFacts) {
        list.set("vdev_guid", vdev.guid.get());
        list.set("vdev_type", vdev.kind.name());
        if let Some(path) = &vdev.path {
            list.set("vdev_path", path.as_str());
        }
        let root = self.vdevs().config();
        let top = (root.children.iter()).find(|top| top.find(vdev.guid).is_some());
        if let Some(facts) = top.and_then(|top| top.top_level.as_ref()) {
            list.set("vdev_ashift", u64::from(facts.ashift));
        }
        list.set("vdev_read_errors", vdev.read_errors);
        list.set("vdev_write_errors", vdev.write_errors);
        list.set("vdev_cksum_errors", vdev.checksum_errors);
        list.set("vdev_delays", vdev.slow);
        list.set("dio_verify_errors", 0u64);
        if let Some((guid, kind)) = vdev.parent {
            list.set("parent_guid", guid.get());
            list.set("parent_type", kind.name());
        }
        let spares = self.vdevs().auxiliary().spares;
        let paths = spares.iter().map(|spare| spare.path.clone());
        let paths: Vec<Text> = paths.map(Option::unwrap_or_default).collect();
        let guids = spares.iter().map(|spare| spare.guid.get()).collect();
        list.set("vdev_spare_paths", NvValue::StringArray(paths));
        list.set("vdev_spare_guids", NvValue::Uint64Array(guids));
    }
}

/// The name of the error of a device that cannot be opened.
fn open_failure(reason: Option<Reason>) -> &'static str {
    match reason {
        Some(Reason::OpenFailed) => "vdev.open_failed",
        Some(Reason::CorruptData) => "vdev.corrupt_data",
        Some(Reason::NoReplicas) => "vdev.no_replicas",
        Some(Reason::BadGuidSum) => "vdev.bad_guid_sum",
        Some(Reason::TooSmall) => "vdev.too_small",
        Some(Reason::BadLabel) => "vdev.bad_label",
        Some(Reason::BadAshift) => "vdev.bad_ashift",
        _ => "vdev.unknown",
    }
}

/// The number of an I/O class in events.
#[doc(alias = "zio_priority_t")]
const fn priority_number(priority: IoPriority) -> u32 {
    match priority {
        IoPriority::SyncRead => 0,
        IoPriority::SyncWrite => 1,
        IoPriority::AsyncRead => 2,
        IoPriority::AsyncWrite => 3,
        IoPriority::Scrub => 4,
        IoPriority::Removal => 5,
        IoPriority::Initializing => 6,
        IoPriority::Trim => 7,
        IoPriority::Rebuild => 8,
    }
}

/// The kind and class of a request.
fn add_request(list: &mut NvList, kind: IoKind, priority: IoPriority) {
    list.set("zio_type", NvValue::Uint32(type_number(kind)));
    let priority = NvValue::Uint32(priority_number(priority));
    list.set("zio_priority", priority);
}

/// The number of the kind of a request in events.
#[doc(alias = "zio_type_t")]
const fn type_number(kind: IoKind) -> u32 {
    match kind {
        IoKind::Read => 1,
        IoKind::Write => 2,
        IoKind::Flush => 5,
        IoKind::Trim => 6,
    }
}

/// By what two errors are the same.
type Same = (u8, Guid, i32, u32, u64, u64);

/// Leaves out errors that repeat, and floods of them.
#[derive(Debug, Default)]
struct Filter {
    /// When each error happened last.
    last_ns: BTreeMap<Same, u64>,
    /// In the order in which they were met first.
    order: VecDeque<Same>,
    /// The second that was begun, and how many there are in it.
    rates: BTreeMap<(u8, Guid), (u64, u32)>,
}

impl Filter {
    fn admits(&mut self, report: &Report, now_ns: u64) -> bool {
        let of_request = |kind, request: &ReportedIo, errno| {
            let priority = priority_number(request.priority);
            let (bytes, offset) = (request.bytes, request.offset);
            (kind, report.vdev, errno, priority, bytes, offset)
        };
        let same = match &report.what {
            ReportKind::Io { request, errno } => of_request(0, request, *errno),
            ReportKind::Checksum { request } => of_request(1, request, CHECKSUM_ERROR),
            ReportKind::ProbeFailure { .. } => (4, report.vdev, 0, 0, 0, 0),
            // Each of these counts, but not more than so many in a second.
            ReportKind::Slow { .. } => {
                return self.is_within_rate(2, report.vdev, now_ns, PER_SECOND_MAX);
            }
            ReportKind::Hung { .. } => {
                return self.is_within_rate(3, report.vdev, now_ns, HUNG_PER_SECOND_MAX);
            }
            ReportKind::State { before, now } => {
                if now.state.is_usable() && !before.is_usable() {
                    self.forget(report.vdev);
                }
                return true;
            }
            ReportKind::Unreadable(_) | ReportKind::Cleared => return true,
        };
        let kind = same.0;
        let before = self.last_ns.insert(same, now_ns);
        if before.is_none() {
            self.order.push_back(same);
            self.shrink();
        }
        let is_repeated = before.is_some_and(|before| now_ns - before <= REMEMBERED_NS);
        let is_limited = kind == 1;
        !is_repeated
            && (!is_limited || self.is_within_rate(kind, report.vdev, now_ns, PER_SECOND_MAX))
    }

    /// Counts one more error of a kind and device.
    #[doc(alias = "zfs_ratelimit")]
    fn is_within_rate(&mut self, kind: u8, vdev: Guid, now_ns: u64, most: u32) -> bool {
        let (begun_ns, count) = self.rates.entry((kind, vdev)).or_insert((now_ns, 0));
        if now_ns - *begun_ns >= SECOND_NS {
            (*begun_ns, *count) = (now_ns, 0);
        }
        *count += 1;
        *count <= most
    }

    fn shrink(&mut self) {
        while self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.last_ns.remove(&oldest);
        }
        assert_eq!(
            self.order.len(),
            self.last_ns.len(),
            "each remembered error has its place in the order"
        );
    }

    /// The errors of a vdev were cleared: the same ones are new. All of them for no vdev.
    #[doc(alias = "zfs_ereport_clear")]
    fn forget(&mut self, vdev: Guid) {
        let is_meant = |same: &Same| vdev == Guid::ZERO || same.1 == vdev;
        self.order.retain(|same| !is_meant(same));
        self.last_ns.retain(|same, _| !is_meant(same));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(vdev: u64, offset: u64) -> Report {
        Report {
            vdev: Guid::from(vdev),
            what: ReportKind::Checksum {
                request: ReportedIo {
                    kind: IoKind::Read,
                    priority: IoPriority::SyncRead,
                    offset,
                    bytes: 4096,
                    begun_ns: 0,
                },
            },
        }
    }

    #[test]
    fn an_error_that_repeats_is_left_out_until_it_is_cleared_or_old() {
        let mut filter = Filter::default();
        assert!(filter.admits(&checksum(1, 0), 0));
        assert!(!filter.admits(&checksum(1, 0), SECOND_NS));
        assert!(filter.admits(&checksum(1, 4096), 2 * SECOND_NS));
        assert!(filter.admits(&checksum(2, 0), 2 * SECOND_NS));
        filter.forget(Guid::from(1));
        assert!(filter.admits(&checksum(1, 0), 3 * SECOND_NS));
        assert!(!filter.admits(&checksum(2, 0), 3 * SECOND_NS));
        let late = 4 * SECOND_NS + REMEMBERED_NS;
        assert!(filter.admits(&checksum(2, 0), late));
    }

    #[test]
    fn a_flood_is_cut_to_so_many_a_second() {
        let mut filter = Filter::default();
        let admitted = (0..100).filter(|at| filter.admits(&checksum(1, at * 4096), 5));
        assert_eq!(admitted.count(), 20);
        assert!(filter.admits(&checksum(1, 1 << 30), 5 + SECOND_NS));
        let many = (0..5000).filter(|at| {
            let now_ns = 10 * SECOND_NS + at * SECOND_NS;
            filter.admits(&checksum(3, at * 4096), now_ns)
        });
        assert_eq!(many.count(), 5000);
        assert_eq!(filter.last_ns.len(), REMEMBERED_MAX);
    }
}
