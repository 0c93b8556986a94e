//! Events: what happens to a pool, for `zpool events` and programs that act on it.
//!
//! # Mechanism
//! An event is a list of named values under OpenZFS's names, with a class: `sysevent.fs.zfs.` for
//! what was done, `resource.fs.zfs.` for changes of states, `ereport.fs.zfs.` for errors. All pools
//! of an instance post to one [ring](EventRing), which belongs to the engine. An open pool keeps
//! its events until it has [joined](Pool::join_events) the ring: those of its import are among
//! them, and pools that are opened only to be looked at never join.
//!
//! The devices' [reports](tarn_vdev::reports) become events in a thread of the pool
//! ([`of_devices`]), so that requests with errors do not wait for that.
//!
//! # Invariants
//! - Posting never waits for a device, nor for a reader of events.

pub mod class;
pub(crate) mod destination;
mod of_devices;
mod probe_devices;
mod ring;

pub use ring::{Event, EventRing, EventsAfter};

use crate::pool::Pool;
use std::sync::Arc;
use tarn_ondisk::history::name as history;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_ondisk::units::Guid;
use tarn_vdev::VdevKind;
use tarn_vdev::health::{Standing, VdevHealth, VdevState};

impl Pool {
    /// Has the pool post its events to a ring, those included that it has kept since it was opened.
    pub fn join_events(self: &Arc<Self>, ring: &Arc<EventRing>) {
        self.events.join(ring);
        of_devices::start(self);
    }

    /// Posts an event of the class `sysevent.fs.zfs.NAME`, about the pool or one of its vdevs.
    /// `more` are the values that only this event has.
    #[doc(alias = "spa_event_notify")]
    pub fn post_event(&self, name: &str, vdev: Option<Guid>, more: NvList) {
        let facts = vdev.map(|vdev| self.vdev_facts(vdev));
        self.post_of_class(&format!("sysevent.fs.zfs.{name}"), facts.as_ref(), more);
    }

    /// Posts an error of the whole pool, of the class `ereport.fs.zfs.NAME`.
    #[doc(alias = "zfs_ereport_post")]
    pub fn post_pool_error(&self, name: &str) {
        self.post_list(self.error_list(name, Guid::ZERO, NO_OPERATION));
    }

    /// Posts a record of the history that tells of an internal event.
    #[doc(alias = "spa_history_log_notify")]
    pub(crate) fn post_history(&self, record: &NvList) {
        let mut more = NvList::new();
        for (from, to) in HISTORY_NAMES {
            if let Some(value) = record.get(from) {
                more.set(to, value.clone());
            }
        }
        self.post_event(class::HISTORY_EVENT, None, more);
    }

    /// Posts a list that lacks only its time and number.
    fn post_list(&self, list: NvList) {
        self.events.post(list, self.host().unix_time());
    }

    #[doc(alias = "zfs_event_create")]
    fn post_of_class(&self, class: &str, vdev: Option<&VdevFacts>, more: NvList) {
        let mut list = NvList::new()
            .with("version", NvValue::Uint8(0))
            .with("class", class)
            .with("pool", self.name())
            .with("pool_guid", self.facts().guid.get())
            .with("pool_state", self.facts().state.number())
            .with("pool_context", NvValue::Int32(0));
        if let Some(vdev) = vdev {
            list.set("vdev_guid", vdev.guid.get());
            list.set("vdev_state", state_number(vdev.standing.state));
            if let Some(path) = &vdev.path {
                list.set("vdev_path", path.clone());
            }
        }
        for (name, value) in more.iter() {
            list.set(name.clone(), value.clone());
        }
        self.post_list(list);
    }

    /// The beginning of an `ereport`: the values that all of them have.
    #[doc(alias = "zfs_ereport_start")]
    fn error_list(&self, name: &str, vdev: Guid, begun_ns: u64) -> NvList {
        let guid = self.facts().guid.get();
        let mut detector = NvList::new()
            .with("version", NvValue::Uint8(0))
            .with("scheme", "zfs")
            .with("pool", guid);
        if vdev != Guid::ZERO {
            detector.set("vdev", vdev.get());
        }
        let fail_mode = match self.fails_writers() {
            true => "continue",
            false => "wait",
        };
        NvList::new()
            .with("class", format!("ereport.fs.zfs.{name}").as_str())
            .with("ena", correlation_id(begun_ns))
            .with("detector", detector)
            .with("pool", self.name())
            .with("pool_guid", guid)
            .with("pool_state", self.facts().state.number())
            .with("pool_context", NvValue::Int32(0))
            .with("pool_failmode", fail_mode)
    }

    /// What events tell of a vdev.
    fn vdev_facts(&self, guid: Guid) -> VdevFacts {
        let health = self.vdevs().health();
        if let Some((vdev, parent)) = find(&health, None, guid) {
            return VdevFacts {
                guid,
                kind: vdev.kind,
                path: vdev.path.as_ref().map(ToString::to_string),
                standing: vdev.standing,
                read_errors: vdev.errors.read,
                write_errors: vdev.errors.write,
                checksum_errors: vdev.errors.checksum,
                slow: vdev.errors.slow,
                parent: parent.map(|parent| (parent.guid, parent.kind)),
            };
        }
        // A device that has left the tree, a hot spare or a cache device.
        let auxiliary = self.vdevs().auxiliary();
        let mut devices = auxiliary.spares.iter().chain(&auxiliary.caches);
        let device = devices.find(|device| device.guid == guid);
        let path = device.and_then(|device| device.path.as_ref());
        VdevFacts {
            guid,
            kind: device.map_or(VdevKind::Disk, |device| device.kind),
            path: path.map(ToString::to_string),
            standing: Standing::ONLINE,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            slow: 0,
            parent: None,
        }
    }
}

/// What events tell of a vdev.
struct VdevFacts {
    guid: Guid,
    kind: VdevKind,
    path: Option<String>,
    standing: Standing,
    read_errors: u64,
    write_errors: u64,
    checksum_errors: u64,
    slow: u64,
    parent: Option<(Guid, VdevKind)>,
}

/// A vdev and its parent.
fn find<'a>(
    vdev: &'a VdevHealth,
    parent: Option<&'a VdevHealth>,
    guid: Guid,
) -> Option<(&'a VdevHealth, Option<&'a VdevHealth>)> {
    if vdev.guid == guid {
        return Some((vdev, parent));
    }
    let mut children = vdev.children.iter();
    children.find_map(|child| find(child, Some(vdev), guid))
}

/// The number of a state in events.
#[doc(alias = "vdev_state_t")]
pub const fn state_number(state: VdevState) -> u64 {
    match state {
        VdevState::Offline => 2,
        VdevState::Removed => 3,
        VdevState::Unavailable => 4,
        VdevState::Faulted => 5,
        VdevState::Degraded => 6,
        VdevState::Online => 7,
    }
}

/// The beginning of an operation, for errors of none.
const NO_OPERATION: u64 = 0;

/// A number that correlates the errors of one cause: those of one operation, which began at this
/// time; an error of no operation is a cause of its own. Format 1, the time above bit 20.
#[doc(alias = "fm_ena_generate")]
fn correlation_id(begun_ns: u64) -> u64 {
    let time_ns = match begun_ns {
        NO_OPERATION => tarn_host::monotonic_ns(),
        begun_ns => begun_ns,
    };
    (time_ns << 20) | 1
}

/// Names in the history, and in events.
const HISTORY_NAMES: [(&str, &str); 10] = [
    (history::COMMAND, "history_command"),
    (history::ZONE, "history_zone"),
    (history::HOST, "history_hostname"),
    (history::DATASET, "history_dsname"),
    (history::EVENT_TEXT, "history_internal_str"),
    (history::EVENT_NAME, "history_internal_name"),
    (history::DATASET_OBJECT, "history_dsid"),
    (history::TXG, "history_txg"),
    (history::TIME, "history_time"),
    (history::WHO, "history_who"),
];
