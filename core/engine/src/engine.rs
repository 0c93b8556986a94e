//! The engine: its table of open pools, and the mounter that serves their file systems.
//!
//! # Mechanism
//! Pools are in a table by name. A command that changes a pool, or its mounts, holds the pool's
//! turn from beginning to end ([`turns`](crate::turns)). A command that searches for pools or
//! creates one holds `changes`, so that two of them never see each other half-way. Commands that
//! only read look into the tables and go on with a copy.
//!
//! # Locks
//! `changes`, then the turn of one pool, then the table of pools, then the mounts of one pool. Only
//! the first two are held while a device is waited for.

use crate::instance::Instance;
use crate::known_paths::KnownPaths;
use crate::mount_index::MountIndex;
use crate::mounts::{Mounted, Mounter, Standing};
use crate::operation_analytics::{StartedAnalytics, StartedArchive};
use crate::presence::Presence;
use crate::refusals::{Refusal, RefusalKind};
use crate::served::{Held, ServedFiles};
use crate::sharing::Sharer;
use crate::streams::Streams;
use crate::turns::Turns;
use crate::volumes::VolumeDevices;
use crate::volumes::device_table::DeviceTable;
use crate::volumes::served::ServedVolumes;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tarn_cache::pressure::MemoryWatch;
use tarn_cache::{Cache, CacheOptions};
use tarn_host::Host;
use tarn_host::lock::{Mutex, Rank, RwLock};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::{Guid, ObjectId};
use tarn_pool::events::EventRing;
use tarn_pool::{Pool, PoolOwner};
use tarn_probe::{DatasetId, Operation, OperationKind, What, Who, registry};

/// One search for pools, or one creation, at a time.
const CHANGES: Rank = Rank::new(tarn_host::ranks::ENGINE, "administration").across_waits();
/// Cache files are written by one command at a time.
const REMEMBERING: Rank = Rank::new(tarn_host::ranks::ENGINE + 5, "cache files").across_waits();
/// The table of pools.
const POOLS: Rank = Rank::new(tarn_host::ranks::ENGINE + 10, "pools");
/// Names that operations were shown with. Taken with nothing else.
const KNOWN_NAMES: Rank = Rank::new(tarn_host::ranks::ENGINE + 12, "known names");
/// The mounts of one pool.
const MOUNTS: Rank = Rank::new(tarn_host::ranks::ENGINE + 20, "mounts");
/// The holds of shared file systems of one pool.
const SHARED: Rank = Rank::new(tarn_host::ranks::ENGINE + 25, "shared file systems");

/// A pool that is open, with its mounts and streams.
pub struct OpenPool {
    /// The pool.
    pub pool: Arc<Pool>,
    /// `-R`.
    pub altroot: Option<String>,
    /// Which cache file lists the pool: the property `cachefile`.
    pub remembered: Mutex<Remembered>,
    /// Differs between two imports of the same pool.
    pub load_guid: u64,
    /// When the pool was opened, for counters that start at zero then.
    pub opened_ns: u64,
    /// Mounts by dataset, those included that are unmounted here and still in use elsewhere. The
    /// mounter knows where they are.
    pub mounts: Mutex<MountIndex>,
    mounter: Arc<dyn Mounter>,
    /// Served file systems, mounted or not.
    pub served_files: Arc<ServedFiles>,
    /// Served volumes.
    pub served_volumes: Arc<ServedVolumes>,
    /// The block devices of volumes.
    pub(crate) devices: DeviceTable,
    /// The holds of shared file systems, by the object of the dataset.
    pub(crate) shared: Mutex<BTreeMap<ObjectId, Arc<Held>>>,
    /// Serialises commands that change the pool.
    pub turns: Turns,
    /// Sends and receives under way.
    pub streams: Streams,
}

/// Which cache file lists the pool: the property `cachefile`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remembered {
    /// The instance's own cache file.
    ByInstance,
    /// None: `cachefile=none`.
    Nowhere,
    /// The file at this path.
    In(String),
}

impl OpenPool {
    /// A pool that was just opened.
    pub fn new(
        pool: Arc<Pool>,
        altroot: Option<String>,
        remembered: Remembered,
        mounter: Arc<dyn Mounter>,
    ) -> Arc<OpenPool> {
        let host = pool.host();
        let (load_guid, opened_ns) = (host.random_u64(), host.monotonic_ns());
        let served_files = ServedFiles::nothing();
        pool.namespace().set_snapshots_served(served_files.clone());
        Arc::new(OpenPool {
            pool,
            altroot,
            remembered: Mutex::new(MOUNTS, remembered),
            load_guid,
            opened_ns,
            mounts: Mutex::new(MOUNTS, MountIndex::default()),
            mounter,
            served_files,
            served_volumes: ServedVolumes::nothing(),
            devices: DeviceTable::new(),
            shared: Mutex::new(SHARED, BTreeMap::new()),
            turns: Turns::new(),
            streams: Streams::new(),
        })
    }

    /// The mount of a dataset, whether it is in the mount table or only in use elsewhere.
    pub fn served(&self, dataset: &str) -> Option<Mounted> {
        self.mounts.lock().get(dataset).cloned()
    }

    /// The mount of a dataset that is in the mount table.
    pub fn mount_of(&self, dataset: &str) -> Option<Mounted> {
        self.served(dataset)
            .filter(|served| self.is_mounted(served))
    }

    /// All mounts, in use elsewhere or mounted, by dataset.
    pub fn all_served(&self) -> Vec<(String, Mounted)> {
        let mounts = self.mounts.lock();
        let owned = |(name, served): (&String, &Mounted)| (name.clone(), served.clone());
        mounts.iter().map(owned).collect()
    }

    /// Whether a served file system is in the mount table.
    pub fn is_mounted(&self, served: &Mounted) -> bool {
        self.mounter.standing(served.key, &served.place) == Standing::Mounted
    }

    /// Updates the folders of the mounts: folders above them may have been renamed, and
    /// `mount --move` moves mounts.
    pub fn look_for_mounts(&self) {
        let places: BTreeMap<_, _> = self.mounter.places().into_iter().collect();
        let mut mounts = self.mounts.lock();
        let moved = mounts.iter().filter_map(|(dataset, served)| {
            let place = places.get(&served.key)?;
            (*place != served.place).then(|| (dataset.clone(), place.clone()))
        });
        let moved: Vec<(String, PathBuf)> = moved.collect();
        for (dataset, place) in moved {
            mounts.change(&dataset, |served| {
                (served.path, served.place) = (place.clone(), place);
                served.is_by_hand = true;
            });
        }
    }

    /// Where each served file system is mounted. Reads the mount table once.
    pub(crate) fn standings(&self) -> BTreeMap<String, Standing> {
        let served = self.all_served().into_iter();
        let standing = |(dataset, served): (String, Mounted)| {
            (dataset, self.mounter.standing(served.key, &served.place))
        };
        served.map(standing).collect()
    }
}

/// How to start.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineOptions {
    /// `--cache-size`; a quarter of memory when none.
    pub cache_bytes: Option<u64>,
    /// `--no-admin-snapshot`: mkdir, rmdir and rename in `.zfs/snapshot` are refused to all users.
    #[doc(alias = "zfs_admin_snapshot")]
    pub fixes_snapshot_names: bool,
}

/// The engine of one instance.
pub struct Engine {
    /// The machine.
    pub host: Host,
    /// Where the state of this instance is.
    pub instance: Instance,
    /// The cache of all pools.
    pub cache: Arc<Cache>,
    /// The front end that mounts.
    pub mounter: Arc<dyn Mounter>,
    /// The front end that shares with other machines, where there is one.
    sharer: OnceLock<Arc<dyn Sharer>>,
    /// The front end that makes block devices, where there is one.
    pub(crate) volume_devices: OnceLock<Arc<dyn VolumeDevices>>,
    /// The events of all pools.
    pub events: Arc<EventRing>,
    pub(crate) fixes_snapshot_names: bool,
    /// Ends when the daemon is about to stop.
    pub(crate) presence: Presence,
    /// Held by commands that search for pools or create them.
    pub changes: Mutex<()>,
    /// Held while cache files are written. The pools that the instance's cache file lists besides
    /// the open ones: name and configuration by guid.
    pub(crate) remembering: Mutex<BTreeMap<Guid, (String, NvList)>>,
    pools: RwLock<BTreeMap<String, Arc<OpenPool>>>,
    /// The operations that are kept.
    pub(crate) analytics: OnceLock<StartedAnalytics>,
    /// The statistics that are archived.
    pub(crate) archive: OnceLock<StartedArchive>,
    /// Paths of files of operations that were shown.
    pub(crate) known_paths: Mutex<KnownPaths>,
    /// Names of users of operations that were shown; none of a user without a name.
    pub(crate) known_users: Mutex<BTreeMap<u32, Option<String>>>,
    /// Resizes the cache as the machine's free memory changes.
    _memory: Option<MemoryWatch>,
}

impl Engine {
    /// An engine without pools.
    pub fn new(
        host: Host,
        instance: Instance,
        mounter: Arc<dyn Mounter>,
        options: EngineOptions,
    ) -> Arc<Engine> {
        let defaults = CacheOptions::default();
        let budget_bytes = options.cache_bytes.unwrap_or(host.memory_total_bytes() / 4);
        let cache_options = CacheOptions {
            budget_bytes,
            ..defaults
        };
        let cache = Cache::new(&host, cache_options, registry());
        let memory = MemoryWatch::start(&cache, &host);
        Arc::new(Engine {
            host,
            instance,
            cache,
            mounter,
            sharer: OnceLock::new(),
            volume_devices: OnceLock::new(),
            events: EventRing::new(),
            fixes_snapshot_names: options.fixes_snapshot_names,
            presence: Presence::default(),
            changes: Mutex::new(CHANGES, ()),
            remembering: Mutex::new(REMEMBERING, BTreeMap::new()),
            pools: RwLock::new(POOLS, BTreeMap::new()),
            analytics: OnceLock::new(),
            archive: OnceLock::new(),
            known_paths: Mutex::new(KNOWN_NAMES, KnownPaths::default()),
            known_users: Mutex::new(KNOWN_NAMES, BTreeMap::new()),
            _memory: memory,
        })
    }

    /// From here on this front end shares file systems.
    ///
    /// # Panics
    /// When there is one already.
    pub fn set_sharer(&self, sharer: Arc<dyn Sharer>) {
        let is_first = self.sharer.set(sharer).is_ok();
        assert!(is_first, "an engine has one front end that shares");
    }

    /// The front end that shares file systems.
    pub(crate) fn sharer(&self) -> Option<&Arc<dyn Sharer>> {
        self.sharer.get()
    }

    /// All open pools, by name.
    pub fn pools(&self) -> Vec<Arc<OpenPool>> {
        self.pools.read().values().cloned().collect()
    }

    /// The open pools of these names, or all when there are none.
    pub fn named_pools(&self, names: &[String]) -> Result<Vec<Arc<OpenPool>>, Refusal> {
        match names {
            [] => Ok(self.pools()),
            names => names.iter().map(|name| self.require_pool(name)).collect(),
        }
    }

    /// An open pool.
    pub fn find_pool(&self, name: &str) -> Option<Arc<OpenPool>> {
        self.pools.read().get(name).cloned()
    }

    /// An open pool, or the refusal that says there is none: `cannot open 'tank': no such pool`.
    pub fn require_pool(&self, name: &str) -> Result<Arc<OpenPool>, Refusal> {
        self.find_pool(name).ok_or_else(|| {
            let action = format!("cannot open '{name}'");
            Refusal::new(RefusalKind::NotFound, action, "no such pool")
        })
    }

    /// The open pool that a dataset is in.
    pub fn require_pool_of(&self, dataset: &str) -> Result<Arc<OpenPool>, Refusal> {
        let pool = dataset.split(['/', '@', '#']).next().unwrap_or_default();
        self.find_pool(pool).ok_or_else(|| {
            let action = format!("cannot open '{dataset}'");
            Refusal::new(RefusalKind::NotFound, action, "dataset does not exist")
        })
    }

    /// Adds a pool to the table.
    pub fn add_pool(&self, open: Arc<OpenPool>) {
        open.pool.join_events(&self.events);
        let name = open.pool.name().to_string();
        open.touch_volumes(&name);
        self.pools.write().insert(name, open.clone());
        self.keep_no_longer(&open);
    }

    /// Takes a pool out of the table.
    pub fn remove_pool(&self, name: &str) {
        self.pools.write().remove(name);
    }

    /// The host that uses pools that are open here, as their labels say.
    pub fn owner(&self) -> PoolOwner {
        let identity = self.host.identity();
        PoolOwner {
            host_id: u64::from(identity.hostid),
            host_name: identity.hostname.clone(),
        }
    }

    /// The operation of a command.
    pub fn operation(&self, uid: u32) -> Operation {
        let who = Who {
            client: tarn_probe::ClientId::ADMINISTRATION,
            protocol: tarn_probe::Protocol::Control,
            user: uid,
            holder: tarn_probe::HolderId::NONE,
        };
        let what = What::plain(OperationKind::Administration, DatasetId::NONE, 0);
        Operation::begin(tarn_host::monotonic_ns, who, what)
    }
}
