//! Empty pools on a simulated machine.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses its own part of this module"
)]

pub mod files;

use std::path::PathBuf;
use std::sync::Arc;
use tarn_cache::{Cache, CacheOptions};
use tarn_dataset::initialize::{FillError, FillFilesystem, NewFilesystem};
use tarn_host::Host;
use tarn_host::sim::{SimHost, SimOptions};
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{NewObject, ObjectSet, Owner, Ownership, Tx, TxEstimate};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::POOL_DIRECTORY;
use tarn_ondisk::units::{Guid, Txg};
use tarn_pool::error::ImportError;
use tarn_pool::multihost;
use tarn_pool::{CreateRequest, ImportRequest, Mode, NewVdev, Pool, PoolOwner};
use tarn_probe::{Operation, registry};
use tarn_vdev::import_search::{CandidatePool, DevicePaths, SearchResult, pools, search};
use tarn_vdev::{Need, VdevConfig, VdevKind};

/// A file system without contents.
struct Empty;

impl FillFilesystem for Empty {
    fn fill(
        &self,
        tx: &Tx,
        set: &Arc<ObjectSet>,
        facts: &NewFilesystem,
        operation: &Operation,
    ) -> Result<(), FillError> {
        let new = NewObject::plain(ObjectType::MasterNode, 0);
        let master = ObjectZap::allocate(set, tx, new, NewZap::micro(set), operation)?;
        master.insert(tx, "VERSION", &ZapValue::word(facts.version))?;
        Ok(())
    }
}

/// An ownership without owners.
struct NoOwners;

impl Ownership for NoOwners {
    fn owner(&self, _: ObjectType, _: &[u8]) -> Option<Owner> {
        None
    }
}

/// A machine with these disks.
pub fn machine(disks: &[&str]) -> SimHost {
    let machine = SimHost::new(SimOptions::seed(5));
    for disk in disks {
        machine.add_disk(path(disk), 128 << 20);
    }
    machine
}

/// The path of a disk.
pub fn path(disk: &str) -> String {
    format!("/disks/{disk}")
}

/// A new vdev of this disk.
pub fn new_vdev(disk: &str) -> NewVdev {
    let mut config = VdevConfig::new(VdevKind::File, Guid::ZERO);
    config.path = Some(path(disk).as_str().into());
    NewVdev {
        config,
        is_log: false,
    }
}

/// Creates a pool of these disks, with all features.
pub fn create(host: &Host, disks: &[&str], operation: &Operation) -> Arc<Pool> {
    create_without(host, disks, &[], operation)
}

/// Creates a pool with `multihost`, which this host shows in use in this interval.
pub fn create_multihost(
    host: &Host,
    disks: &[&str],
    interval_ms: u64,
    owner: &PoolOwner,
    operation: &Operation,
) -> Arc<Pool> {
    let interval = ZapValue::text(&interval_ms.to_string());
    let properties = vec![
        (multihost::PROPERTY.to_string(), ZapValue::word(1)),
        (multihost::INTERVAL.to_string(), interval),
    ];
    let vdevs = disks.iter().map(|disk| new_vdev(disk)).collect();
    create_with(host, vdevs, &[], (properties, owner), operation)
}

/// The same, with all features but these.
pub fn create_without(
    host: &Host,
    disks: &[&str],
    absent: &[Feature],
    operation: &Operation,
) -> Arc<Pool> {
    let vdevs = disks.iter().map(|disk| new_vdev(disk)).collect();
    let owner = PoolOwner::default();
    create_with(host, vdevs, absent, (Vec::new(), &owner), operation)
}

/// Creates a pool of these vdevs, with all features.
pub fn create_of(host: &Host, vdevs: Vec<NewVdev>, operation: &Operation) -> Arc<Pool> {
    let owner = PoolOwner::default();
    create_with(host, vdevs, &[], (Vec::new(), &owner), operation)
}

/// Creates a pool of these vdevs, with all features, whose files have so many copies.
pub fn create_with_copies(
    host: &Host,
    vdevs: Vec<NewVdev>,
    copies: u64,
    operation: &Operation,
) -> Arc<Pool> {
    let root = vec![("copies".to_string(), ZapValue::word(copies))];
    let owner = PoolOwner::default();
    create_by(host, vdevs, &[], (Vec::new(), root), &owner, operation)
}

fn create_with(
    host: &Host,
    vdevs: Vec<NewVdev>,
    absent: &[Feature],
    (properties, owner): (Vec<(String, ZapValue)>, &PoolOwner),
    operation: &Operation,
) -> Arc<Pool> {
    let properties = (properties, Vec::new());
    create_by(host, vdevs, absent, properties, owner, operation)
}

/// Properties by name, as they are stored.
type Properties = Vec<(String, ZapValue)>;

fn create_by(
    host: &Host,
    vdevs: Vec<NewVdev>,
    absent: &[Feature],
    (properties, root_properties): (Properties, Properties),
    owner: &PoolOwner,
    operation: &Operation,
) -> Arc<Pool> {
    let features = Feature::ALL.iter().copied();
    let request = CreateRequest {
        name: "tank",
        vdevs,
        spares: Vec::new(),
        caches: Vec::new(),
        ashift: Some(12),
        features: features
            .filter(|feature| feature.is_enabled_by_default() && !absent.contains(feature))
            .collect(),
        properties,
        comment: None,
        compatibility: None,
        root_properties,
        root_facts: NewFilesystem::default(),
        fill: Arc::new(Empty),
        ownership: Arc::new(NoOwners),
        owner: owner.clone(),
        version_text: "pool version 5000".to_string(),
    };
    let cache = Cache::new(host, CacheOptions::default(), registry());
    Pool::create(host, &cache, request, operation).unwrap()
}

/// Imports the pool on the disks.
pub fn import(host: &Host, mode: Mode, operation: &Operation) -> Result<Arc<Pool>, ImportError> {
    import_with(host, mode, &PoolOwner::default(), false, operation)
}

/// Imports the pool on the disks, rewound to its checkpoint.
pub fn import_rewound(
    host: &Host,
    mode: Mode,
    operation: &Operation,
) -> Result<Arc<Pool>, ImportError> {
    import_with(host, mode, &PoolOwner::default(), true, operation)
}

/// Imports the pool on the disks for writing, for a host with this name and id.
pub fn import_as(
    host: &Host,
    owner: &PoolOwner,
    operation: &Operation,
) -> Result<Arc<Pool>, ImportError> {
    import_with(host, Mode::ReadWrite, owner, false, operation)
}

fn import_with(
    host: &Host,
    mode: Mode,
    owner: &PoolOwner,
    rewinds_to_checkpoint: bool,
    operation: &Operation,
) -> Result<Arc<Pool>, ImportError> {
    let found = search(host, &[PathBuf::from("/disks")]);
    let (candidates, _) = pools(&found);
    let found = (&found, &candidates[0]);
    import_state(host, found, (mode, rewinds_to_checkpoint), owner, operation)
}

/// Imports this candidate of a search.
pub fn import_found(
    host: &Host,
    (found, candidate): (&SearchResult, &CandidatePool),
    mode: Mode,
    owner: &PoolOwner,
    operation: &Operation,
) -> Result<Arc<Pool>, ImportError> {
    import_state(host, (found, candidate), (mode, false), owner, operation)
}

fn import_state(
    host: &Host,
    (found, candidate): (&SearchResult, &CandidatePool),
    (mode, rewinds_to_checkpoint): (Mode, bool),
    owner: &PoolOwner,
    operation: &Operation,
) -> Result<Arc<Pool>, ImportError> {
    let request = ImportRequest {
        candidate,
        paths: &DevicePaths::of(found),
        name: None,
        mode,
        need: Need::All,
        until: Txg::MAX,
        rewinds_to_checkpoint,
        discards_logs: false,
        goes_on: &|| true,
        owner: owner.clone(),
        split: None,
    };
    let cache = Cache::new(host, CacheOptions::default(), registry());
    Pool::import(host, &cache, &request, operation)
}

/// Changes the MOS directly, and stores that.
pub fn change_mos(pool: &Pool, operation: &Operation, change: impl FnOnce(&Tx, &Arc<ObjectSet>)) {
    let estimate = TxEstimate::default();
    let tx = pool.txgs().assign(&estimate, operation).unwrap();
    change(&tx, pool.mos());
    drop(tx);
    pool.sync_all(operation).unwrap();
}

/// Sets an entry of the pool directory.
pub fn put(tx: &Tx, mos: &Arc<ObjectSet>, name: &str, value: &ZapValue, operation: &Operation) {
    let directory = mos.object(POOL_DIRECTORY, operation).unwrap();
    let directory = ObjectZap::of(&directory, operation);
    directory.update(tx, name, value).unwrap();
}

/// Creates a ZAP in the MOS.
pub fn new_zap<'a>(
    tx: &Tx,
    mos: &Arc<ObjectSet>,
    object_type: ObjectType,
    operation: &'a Operation,
) -> ObjectZap<'a> {
    let new = NewObject::plain(object_type, 0);
    ObjectZap::allocate(mos, tx, new, NewZap::micro(mos), operation).unwrap()
}
