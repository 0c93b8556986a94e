//! Vdevs that are added to a pool: all that belongs to them is stored with them, or nothing of them is.

use std::path::PathBuf;
use std::sync::Arc;
use tarn_cache::{Cache, CacheOptions};
use tarn_dataset::initialize::{FillError, FillFilesystem, NewFilesystem};
use tarn_host::sim::{Fault, SimHost, SimOptions};
use tarn_host::{Action, Errno, Host};
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{NewObject, ObjectSet, Owner, Ownership, Tx};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{Guid, ObjectId, Txg};
use tarn_pool::error::ImportError;
use tarn_pool::{CreateRequest, ImportRequest, Leaving, Mode, NewVdev, Pool, PoolOwner};
use tarn_probe::{Operation, registry};
use tarn_space::Class;
use tarn_vdev::import_search::{DevicePaths, pools, search};
use tarn_vdev::{Need, VdevConfig, VdevKind};

/// A file system with nothing in it.
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

/// Nobody owns anything.
struct NoOwners;

impl Ownership for NoOwners {
    fn owner(&self, _: ObjectType, _: &[u8]) -> Option<Owner> {
        None
    }
}

fn machine(disks: &[&str]) -> SimHost {
    let machine = SimHost::new(SimOptions::seed(5));
    for disk in disks {
        machine.add_disk(path(disk), 128 << 20);
    }
    machine
}

fn path(disk: &str) -> String {
    format!("/disks/{disk}")
}

fn new_vdev(disk: &str) -> NewVdev {
    let mut config = VdevConfig::new(VdevKind::File, Guid::ZERO);
    config.path = Some(path(disk).as_str().into());
    NewVdev {
        config,
        is_log: false,
    }
}

fn create(host: &Host, disks: &[&str], operation: &Operation) -> Arc<Pool> {
    let features = Feature::ALL.iter().copied();
    let request = CreateRequest {
        name: "tank",
        vdevs: disks.iter().map(|disk| new_vdev(disk)).collect(),
        spares: Vec::new(),
        ashift: Some(12),
        features: features
            .filter(|feature| feature.is_enabled_by_default())
            .collect(),
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
    Pool::create(host, &cache, request, operation).unwrap()
}

fn import(host: &Host, mode: Mode, operation: &Operation) -> Result<Arc<Pool>, ImportError> {
    let found = search(host, &[PathBuf::from("/disks")]);
    let (candidates, _) = pools(&found);
    let request = ImportRequest {
        candidate: &candidates[0],
        paths: &DevicePaths::of(&found),
        name: None,
        mode,
        need: Need::All,
        until: Txg::MAX,
        discards_logs: false,
        ends_multihost: false,
        owner: PoolOwner::default(),
    };
    let cache = Cache::new(host, CacheOptions::default(), registry());
    Pool::import(host, &cache, &request, operation)
}

/// The devices that the pool consists of.
fn devices(pool: &Pool) -> Vec<String> {
    let root = pool.vdevs().config();
    let paths = root.leaves().into_iter().map(|leaf| leaf.path.clone());
    paths.flatten().map(|path| path.to_string()).collect()
}

/// Every vdev of the pool has its space maps and its ZAPs.
fn assert_whole(pool: &Pool) {
    for top in pool.vdevs().top_levels() {
        assert!(!top.metaslab_array.is_zero(), "{top:?}");
    }
    let root = pool.vdevs().config();
    for leaf in root.leaves() {
        let zap = leaf.other_object("com.delphix:vdev_zap_leaf");
        assert!(zap.is_some_and(|zap| !zap.is_zero()), "{leaf:?}");
    }
}

#[test]
fn vdevs_that_are_added_take_blocks_and_are_there_at_the_next_import() {
    let machine = machine(&["a", "b", "c"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let size = pool.space().class_totals(Class::Normal).size;
        let new = [new_vdev("b"), new_vdev("c")];
        pool.add(&new, Some(12), &operation).unwrap();
        assert_whole(&pool);
        let grown = pool.space().class_totals(Class::Normal).size;
        assert!(grown.get() > 2 * size.get(), "{size} became {grown}");
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        assert_eq!(devices(&pool), ["a", "b", "c"].map(path));
        assert_whole(&pool);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn of_vdevs_that_are_added_together_all_join_the_pool_or_none() {
    for broken in ["cannot be written", "does not exist"] {
        let machine = machine(&["a", "b", "c"]);
        let run = machine.run(|host| {
            let operation = Operation::unmeasured();
            let pool = create(host, &["a"], &operation);
            let before = pool.vdevs().config();
            let second = match broken {
                "cannot be written" => {
                    let disk = machine.disk(path("c")).unwrap();
                    disk.inject(Fault::FailRange {
                        action: Action::Write,
                        range: 0..u64::MAX,
                        errno: Errno::IO,
                    });
                    "c"
                }
                _ => "nosuch",
            };
            let new = [new_vdev("b"), new_vdev(second)];
            assert!(pool.add(&new, Some(12), &operation).is_err(), "{broken}");
            assert_eq!(pool.vdevs().config(), before, "{broken}");
            pool.sync_all(&operation).unwrap();
            // Nothing holds the device, and it may be used.
            pool.add(&new[..1], Some(12), &operation).unwrap();
            assert_whole(&pool);
            pool.close(Leaving::Exported, &operation).unwrap();
            let pool = import(host, Mode::ReadWrite, &operation).unwrap();
            assert_eq!(devices(&pool), ["a", "b"].map(path));
            assert_whole(&pool);
            pool.close(Leaving::Exported, &operation).unwrap();
        });
        run.unwrap();
    }
}

/// What an early version left when the power failed in the midst of `zpool add`.
#[test]
fn a_pool_whose_vdev_has_no_space_maps_is_opened_read_only_or_not_at_all() {
    let machine = machine(&["a", "b"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a", "b"], &operation);
        pool.vdevs().change_config(|root| {
            let facts = root.children[1].top_level.as_mut().unwrap();
            facts.metaslab_array = ObjectId::ZERO;
        });
        pool.close(Leaving::Exported, &operation).unwrap();
        let Err(refused) = import(host, Mode::ReadWrite, &operation) else {
            panic!("it was opened for writing");
        };
        let why = refused.to_string();
        assert!(matches!(refused, ImportError::NoSpaceMaps { .. }), "{why}");
        assert!(why.contains("b has no array of space maps"), "{why}");
        let pool = import(host, Mode::ReadOnly, &operation).unwrap();
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}
