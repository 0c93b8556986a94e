//! Pools with a volume, on a simulated machine.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::PathBuf;
use std::sync::Arc;
use tarn_cache::{Cache, CacheOptions};
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::initialize::{FillError, FillFilesystem, NewFilesystem};
use tarn_dataset::intent_log::ForgetLog;
use tarn_dataset::ops::create::CreateVolume;
use tarn_dataset::space_door::SpaceDoor;
use tarn_host::Host;
use tarn_host::sim::{SimHost, SimOptions};
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{NewObject, ObjectSet, Owner, Ownership, Tx};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{Guid, ObjectId, Txg};
use tarn_pool::{CreateRequest, ImportRequest, Mode, NewVdev, Pool, PoolOwner};
use tarn_probe::{Operation, registry};
use tarn_vdev::import_search::{DevicePaths, pools, search};
use tarn_vdev::{Need, VdevConfig, VdevKind};
use tarn_zil::Durability;
use tarn_zvol::{Volume, VolumeParts, VolumeProperties};

const DISK: &str = "/disks/a";
const DISK_BYTES: u64 = 128 << 20;
/// The volume.
pub const NAME: &str = "tank/volume";

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

/// A machine with a disk.
pub fn machine(seed: u64) -> SimHost {
    let machine = SimHost::new(SimOptions::seed(seed));
    machine.add_disk(DISK, DISK_BYTES);
    machine
}

/// Creates the pool, with a volume of this size and block size.
pub fn create(host: &Host, size_bytes: u64, block_bytes: u64, operation: &Operation) -> Arc<Pool> {
    let mut config = VdevConfig::new(VdevKind::File, Guid::ZERO);
    config.path = Some(DISK.into());
    let vdev = NewVdev {
        config,
        is_log: false,
    };
    let features = Feature::ALL.iter().copied();
    let request = CreateRequest {
        name: "tank",
        vdevs: vec![vdev],
        spares: Vec::new(),
        caches: Vec::new(),
        ashift: Some(9),
        features: features.filter(|one| one.is_enabled_by_default()).collect(),
        properties: Vec::new(),
        comment: None,
        compatibility: None,
        root_properties: Vec::new(),
        root_facts: NewFilesystem::default(),
        fill: Arc::new(Empty),
        ownership: Arc::new(NoOwners),
        owner: PoolOwner::default(),
        version_text: "pool version 5000".to_string(),
    };
    let cache = Cache::new(host, CacheOptions::default(), registry());
    let pool = Pool::create(host, &cache, request, operation).unwrap();
    let task = CreateVolume {
        name: NAME.to_string(),
        size_bytes,
        block_bytes,
        sparse: true,
        settings: Vec::new(),
    };
    pool.run(task, operation).unwrap();
    pool
}

/// Imports the pool.
pub fn import(host: &Host, operation: &Operation) -> Arc<Pool> {
    let found = search(host, &[PathBuf::from("/disks")]);
    let (candidates, _) = pools(&found);
    let request = ImportRequest {
        candidate: &candidates[0],
        paths: &DevicePaths::of(&found),
        name: None,
        mode: Mode::ReadWrite,
        need: Need::All,
        until: Txg::MAX,
        rewinds_to_checkpoint: false,
        discards_logs: false,
        goes_on: &|| true,
        owner: PoolOwner::default(),
        split: None,
    };
    let cache = Cache::new(host, CacheOptions::default(), registry());
    Pool::import(host, &cache, &request, operation).unwrap()
}

/// The head of the volume.
pub fn head(pool: &Pool, operation: &Operation) -> ObjectId {
    let view = pool.namespace().view(operation);
    let head = view.directory(NAME).unwrap().head().unwrap();
    head.unwrap().id()
}

/// Opens the volume, and replays its log.
pub fn open(pool: &Pool, properties: VolumeProperties, operation: &Operation) -> Arc<Volume> {
    let namespace = pool.namespace();
    let head = head(pool, operation);
    let dataset = namespace.view(operation).dataset_without_name(head);
    let Contents::Volume(facts) = contents::read(&dataset.unwrap()).unwrap() else {
        panic!("it is a volume");
    };
    let set = namespace.head_set(head, operation).unwrap();
    let log = namespace.open_log(&set, Durability::ByLog);
    let is_claimed = !set.phys().intent_log.claim_txg.is_zero();
    let parts = VolumeParts {
        set,
        txgs: Some(pool.txgs().clone()),
        log: Some(log.clone()),
        size_bytes: facts.size_bytes,
        properties,
        space: SpaceDoor::unlimited(),
    };
    let volume = Volume::open(parts, operation).unwrap();
    if is_claimed {
        tarn_zil::replay(&log, &*volume, operation).unwrap();
        pool.run(ForgetLog { head }, operation).unwrap();
    }
    volume
}

/// Closes the volume in order.
pub fn close(pool: &Pool, volume: Arc<Volume>, operation: &Operation) {
    drop(volume);
    let head = head(pool, operation);
    pool.namespace().close_log(head, operation).unwrap();
    pool.sync_all(operation).unwrap();
    pool.namespace().forget_log(head);
}
