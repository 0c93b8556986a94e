//! Creating a pool: from devices to the first uberblock.
//!
//! # Mechanism
//! Labels of txg 0 are written first, which name the future pool: after an interruption here a
//! device belongs to no pool. Then the MOS is made in memory, with all objects of a new pool, and
//! stored as txg 4 by the same passes as any other txg. Its uberblock makes the pool.
//!
//! # Knows nothing about
//! Whether devices may be used, which the caller has checked ([`tarn_vdev::in_use`]); and which
//! properties are valid.

use crate::cloned_blocks::ClonedBlockTables;
use crate::config;
use crate::deferred;
use crate::error::{ImportError, PoolError};
use crate::events::class;
use crate::features::{PoolFeatures, SyncingFeatures};
use crate::history_write;
use crate::import::mos_policy;
use crate::mos_writer::MosWriter;
use crate::pool::{Mode, Parts, Pool, PoolOwner, StoredState};
use crate::properties;
use crate::size;
use crate::space_maps::{Arrays, geometry_of};
use crate::written_configuration::Written;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_block::{BlockIo, BlockIoOptions, Repair};
use tarn_cache::{Cache, PoolCache};
use tarn_dataset::initialize::{FillFilesystem, Initialize, initialize};
use tarn_dataset::task::InternalEvent;
use tarn_host::Host;
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{
    MOS_ID, NewObject, NewObjectSet, ObjectEnv, ObjectSet, Ownership, SyncTx, TxgLimits, Txgs,
};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::pool_directory::{
    CACHE_DEVICES, CHECKSUM_SALT, CREATION_VERSION, DEFLATE, POOL_DIRECTORY, SPARES,
};
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg};
use tarn_probe::{Operation, OperationKind};
use tarn_space::{Space, SpaceOptions};
use tarn_transform::Salt;
use tarn_vdev::label_config::{cache_label, spare_label};
use tarn_vdev::labels::create_labels;
use tarn_vdev::sizes::{self, SectorShifts, choose_ashift};
use tarn_vdev::{
    AuxiliaryDevices, Leaf, OpenOptions, PoolFacts, PoolState, TopLevelConfig, VdevConfig,
    VdevKind, VdevTree,
};

/// The first txg of a pool. Frees of the three before it could be reused, if there were any.
const TXG_INITIAL: u64 = 4;

/// The version of pools with features.
const VERSION_FEATURES: u64 = 5000;

/// The pool to create.
pub struct CreateRequest<'a> {
    /// Its name.
    pub name: &'a str,
    /// The top-level vdevs: kinds, paths and roles. Guids, sizes and the rest are filled in.
    pub vdevs: Vec<NewVdev>,
    /// Hot spares.
    pub spares: Vec<VdevConfig>,
    /// Cache devices.
    pub caches: Vec<VdevConfig>,
    /// `ashift`; none to take the devices' sector sizes.
    pub ashift: Option<u32>,
    /// Features to enable.
    pub features: Vec<Feature>,
    /// Properties of the pool in the MOS, in their stored form.
    pub properties: Vec<(String, ZapValue)>,
    /// `comment`, which is in the labels.
    pub comment: Option<String>,
    /// `compatibility`, which is in the labels.
    pub compatibility: Option<String>,
    /// Properties of the root dataset, in their stored form.
    pub root_properties: Vec<(String, ZapValue)>,
    /// Properties in the root file system's master node.
    pub root_facts: tarn_dataset::initialize::NewFilesystem,
    /// Fills the root file system.
    pub fill: Arc<dyn FillFilesystem>,
    /// Names the owners of files, for accounting.
    pub ownership: Arc<dyn Ownership>,
    /// The host that uses it.
    pub owner: PoolOwner,
    /// The version text for the history's first record.
    pub version_text: String,
}

/// A new top-level vdev.
#[derive(Debug, Clone)]
pub struct NewVdev {
    /// Its kind, with its children and their paths.
    pub config: VdevConfig,
    /// Whether it holds the intent log.
    pub is_log: bool,
}

/// Fills in what a new vdev lacks: guids, sector size, sizes.
///
/// # Errors
/// A device cannot be opened, or is too small.
pub(crate) fn complete_vdev(
    host: &Host,
    new: &NewVdev,
    ashift: Option<u32>,
    create_txg: Txg,
) -> Result<VdevConfig, ImportError> {
    let mut config = new.config.clone();
    let mut sectors = Vec::new();
    let mut rooms = Vec::new();
    let mut failure = None;
    config.change_each(&mut |vdev| {
        vdev.guid = new_guid(host);
        if !vdev.kind.is_leaf() || failure.is_some() {
            return;
        }
        vdev.create_txg = create_txg;
        let path = vdev
            .path
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let opened = tarn_vdev::open_window(
            host,
            std::path::Path::new(&path),
            tarn_host::OpenMode::ReadOnly,
        );
        match opened {
            Ok(window) => {
                let info = window.info();
                vdev.kind = match info.is_block_device {
                    true => VdevKind::Disk,
                    false => VdevKind::File,
                };
                sectors.push(match info.is_block_device {
                    true => SectorShifts::from_bytes(
                        u64::from(info.logical_sector_bytes),
                        u64::from(info.physical_sector_bytes),
                    ),
                    false => SectorShifts::FILE,
                });
                rooms.push(tarn_ondisk::label::data_size(window.size_bytes()));
            }
            Err(error) => failure = Some(error),
        }
    });
    if let Some(error) = failure {
        return Err(error.into());
    }
    let rooms: Vec<AllocatedSize> = rooms
        .into_iter()
        .map(|room| room.unwrap_or(AllocatedSize::ZERO))
        .collect();
    // As in OpenZFS, an `ashift` below a device's sector size is ignored.
    let is_possible = |shift: &u32| sectors.iter().all(|sectors| sectors.logical <= *shift);
    let chosen = ashift
        .filter(is_possible)
        .or_else(|| sizes::choose_ashift(&sectors));
    let ashift = chosen.ok_or(ImportError::SectorsTooLarge)?;
    let unit = 1_u64 << ashift;
    assert!(
        sectors.iter().all(|sectors| sectors.logical <= ashift),
        "each device can write a sector of its vdev"
    );
    let asize = sizes::top_level_size(config.kind, &rooms).round_down(unit);
    config.create_txg = create_txg;
    config.top_level = Some(TopLevelConfig {
        metaslab_array: ObjectId::ZERO,
        metaslab_shift: sizes::metaslab_shift(asize),
        ashift,
        asize,
        is_log: new.is_log,
        non_allocating: false,
        removing: false,
    });
    config.number_children();
    Ok(config)
}

/// A random guid other than zero.
pub(crate) fn new_guid(host: &Host) -> Guid {
    Guid::new(host.random_u64().max(1))
}

impl Pool {
    /// Creates a pool, and opens it for writing.
    ///
    /// # Errors
    /// Devices cannot be opened or written. Their earlier contents may be lost then.
    pub fn create(
        host: &Host,
        cache: &Arc<Cache>,
        request: CreateRequest<'_>,
        operation: &Operation,
    ) -> Result<Arc<Pool>, ImportError> {
        let txg = Txg::from(TXG_INITIAL);
        let guid = new_guid(host);
        let mut root = VdevConfig::new(VdevKind::Root, guid);
        for new in &request.vdevs {
            root.children
                .push(complete_vdev(host, new, request.ashift, txg)?);
        }
        root.number_children();
        let vdevs = VdevTree::open(host, &root, &OpenOptions::new_pool())?;
        let facts = first_facts(&request, guid);
        write_first_labels(&vdevs, &facts, txg)?;
        let auxiliary = AuxiliaryDevices {
            spares: label_spares(host, VERSION_FEATURES, &request.spares)?,
            caches: label_caches(host, VERSION_FEATURES, &request.caches, request.ashift)?,
        };
        let pool = assemble(host, cache, &request, &auxiliary, vdevs, facts, operation)?;
        pool.follow_multihost(operation)?;
        pool.start_sync();
        let records = crate::history::read(pool.directory(operation), operation);
        for record in records.unwrap_or_default() {
            pool.post_history(&record);
        }
        pool.post_event(class::POOL_CREATE, None, NvList::new());
        Ok(pool)
    }
}

/// The facts of the new pool for its labels.
fn first_facts(request: &CreateRequest<'_>, guid: Guid) -> PoolFacts {
    PoolFacts {
        version: VERSION_FEATURES,
        name: request.name.into(),
        state: PoolState::Active,
        txg: Txg::ZERO,
        guid,
        errata: 0,
        comment: request.comment.as_deref().map(Into::into),
        compatibility: request.compatibility.as_deref().map(Into::into),
        host_id: request.owner.host_id,
        host_name: request.owner.host_name.as_str().into(),
        features_for_read: NvList::new(),
    }
}

/// Writes labels of txg 0 on all devices.
fn write_first_labels(
    vdevs: &VdevTree,
    facts: &PoolFacts,
    create_txg: Txg,
) -> Result<(), ImportError> {
    let (root, leaves) = (vdevs.config(), vdevs.leaves());
    for top in 0..root.children.len() {
        write_first_label(&leaves, facts, (&root, top), create_txg)?;
    }
    Ok(())
}

/// Writes labels of txg 0 on the devices of one top-level vdev of the tree `root`.
pub(crate) fn write_first_label(
    leaves: &[Arc<Leaf>],
    facts: &PoolFacts,
    (root, top): (&VdevConfig, usize),
    create_txg: Txg,
) -> Result<(), ImportError> {
    for config in root.children[top].leaves() {
        let leaf = leaves.iter().find(|leaf| leaf.guid == config.guid);
        let Some(window) = leaf.and_then(|leaf| leaf.window()) else {
            continue;
        };
        let label = facts.first_label_of(root, top, config, create_txg);
        create_labels(&window, &label)?;
    }
    Ok(())
}

/// Gives hot spares their guids and their labels. A device that is a hot spare already keeps both:
/// pools share it.
pub(crate) fn label_spares(
    host: &Host,
    version: u64,
    spares: &[VdevConfig],
) -> Result<Vec<VdevConfig>, ImportError> {
    let mut labelled = Vec::new();
    for spare in spares {
        let mut spare = spare.clone();
        spare.guid = new_guid(host);
        spare.is_spare = true;
        let path = spare.path.as_ref().map(ToString::to_string);
        let path = path.unwrap_or_default();
        let open = |mode| tarn_vdev::open_window(host, std::path::Path::new(&path), mode);
        let window = open(tarn_host::OpenMode::ReadOnly)?;
        if window.info().is_block_device {
            spare.kind = VdevKind::Disk;
            spare.whole_disk = Some(false);
        }
        match tarn_vdev::in_use::labelled_use(&window) {
            Some(found) if found.state == PoolState::Spare || found.is_spare => {
                spare.guid = found.guid;
            }
            _ => {
                drop(window);
                let window = open(tarn_host::OpenMode::ReadWriteExclusive)?;
                create_labels(&window, &spare_label(version, &spare))?;
            }
        }
        labelled.push(spare);
    }
    Ok(labelled)
}

/// Gives cache devices their guids, sector sizes and labels.
pub(crate) fn label_caches(
    host: &Host,
    version: u64,
    caches: &[VdevConfig],
    ashift: Option<u32>,
) -> Result<Vec<VdevConfig>, ImportError> {
    let label = |cache: &VdevConfig| {
        let mut cache = cache.clone();
        cache.guid = new_guid(host);
        let path = cache.path.as_ref().map(ToString::to_string);
        let path = path.unwrap_or_default();
        let mode = tarn_host::OpenMode::ReadWriteExclusive;
        let window = tarn_vdev::open_window(host, std::path::Path::new(&path), mode)?;
        let info = window.info();
        let sectors = match info.is_block_device {
            true => SectorShifts::from_bytes(
                u64::from(info.logical_sector_bytes),
                u64::from(info.physical_sector_bytes),
            ),
            false => SectorShifts::FILE,
        };
        if info.is_block_device {
            cache.kind = VdevKind::Disk;
            cache.whole_disk = Some(false);
        }
        // As in OpenZFS, an `ashift` below the device's sector size is ignored.
        let given = ashift.filter(|shift| *shift >= sectors.logical);
        let shift = given.or_else(|| choose_ashift(&[sectors]));
        cache.cache_ashift = Some(shift.ok_or(ImportError::SectorsTooLarge)?);
        create_labels(&window, &cache_label(version, &cache))?;
        Ok(cache)
    };
    caches.iter().map(label).collect()
}

/// Assembles the pool and stores its first txg.
fn assemble(
    host: &Host,
    cache: &Arc<Cache>,
    request: &CreateRequest<'_>,
    auxiliary: &AuxiliaryDevices,
    vdevs: Arc<VdevTree>,
    facts: PoolFacts,
    operation: &Operation,
) -> Result<Arc<Pool>, ImportError> {
    let space = Arc::new(Space::new(SpaceOptions::default()));
    for vdev in &vdevs.top_levels() {
        space.add_vdev(vdev.id, geometry_of(vdev), Vec::new());
    }
    let options = BlockIoOptions {
        repair: Repair::Rewrite,
        ..BlockIoOptions::default()
    };
    let clones = ClonedBlockTables::new(vdevs.clone());
    let io = Arc::new(BlockIo::new(
        host.clone(),
        vdevs.clone(),
        space.clone(),
        Some(clones.clone()),
        options,
    ));
    let mut salt = [0; 32];
    host.fill_random(&mut salt);
    io.set_salt(Salt::new(salt));
    let cache = PoolCache::new(cache.clone(), io.clone());
    let limits = TxgLimits::for_memory(host.memory_total_bytes(), cache.cache().budget_bytes());
    let txgs = Txgs::new(Txg::from(TXG_INITIAL - 1), limits);
    let env = ObjectEnv::new(host.clone(), cache.clone(), txgs.clone());
    let txg = txgs.quiesce();
    assert_eq!(
        txg,
        Txg::from(TXG_INITIAL),
        "a pool begins with its first group"
    );
    let mut tx = txgs.begin_sync(txg);
    let new = NewObjectSet {
        objset_type: ObjsetType::Meta,
        has_accounting: false,
        levels: 1,
    };
    let policy = mos_policy(VERSION_FEATURES);
    let mos = ObjectSet::create(env.clone(), MOS_ID, new, policy, None, &tx);
    let writer = MosWriter {
        mos: &mos,
        tx: &tx,
        operation,
    };
    let parts = Making {
        host,
        request,
        vdevs: &vdevs,
        io: &io,
        salt,
        auxiliary,
    };
    let (namespace, features) = parts.fill_mos(writer)?;
    let uberblock = empty_uberblock(&vdevs);
    let state = StoredState {
        uberblock,
        features,
        facts,
    };
    let arrays = Arrays::of(&vdevs.top_levels());
    let pool = Pool::assemble(Parts {
        host: host.clone(),
        name: request.name.to_string(),
        mode: Mode::ReadWrite,
        vdevs,
        space,
        io,
        cache,
        env,
        mos,
        namespace,
        state,
        owner: request.owner.clone(),
        arrays,
        unflushed: BTreeMap::new(),
        clones,
    });
    *pool.configuration.lock() = Written::NEVER;
    store_first_group(&pool, &mut tx)?;
    txgs.finish_sync(tx);
    Ok(pool)
}

fn store_first_group(pool: &Pool, tx: &mut SyncTx) -> Result<(), PoolError> {
    let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::TxgSync);
    let mut jobs = pool.jobs.take(tx.txg());
    pool.sync_group(tx, &mut jobs, &operation)
}

/// The uberblock of a pool without txgs.
fn empty_uberblock(vdevs: &VdevTree) -> Uberblock {
    Uberblock {
        magic: Uberblock::MAGIC,
        version: VERSION_FEATURES,
        txg: Txg::from(TXG_INITIAL - 1),
        guid_sum: vdevs.config().guid_sum(),
        timestamp_s: 0,
        root: BlockPointer::HOLE,
        software_version: VERSION_FEATURES,
        multihost_magic: 0,
        multihost_delay_ns: 0,
        multihost_config: 0,
        checkpoint_txg: Txg::ZERO,
        raidz_reflow: 0,
    }
}

/// The inputs for the first contents of the MOS.
struct Making<'a> {
    host: &'a Host,
    request: &'a CreateRequest<'a>,
    vdevs: &'a Arc<VdevTree>,
    io: &'a Arc<BlockIo>,
    salt: [u8; 32],
    auxiliary: &'a AuxiliaryDevices,
}

impl Making<'_> {
    /// Creates the first objects of the MOS.
    fn fill_mos(
        &self,
        writer: MosWriter<'_>,
    ) -> Result<(tarn_dataset::namespace::Namespace, PoolFeatures), PoolError> {
        let request = self.request;
        let directory = NewObject::plain(ObjectType::ObjectDirectory, 0);
        let in_mos = |cause| PoolError::Object {
            object: POOL_DIRECTORY,
            cause,
        };
        let object = writer
            .mos
            .claim(writer.tx, POOL_DIRECTORY, directory, writer.operation)
            .map_err(in_mos)?;
        ObjectZap::make(
            &object,
            writer.tx,
            NewZap::micro(writer.mos),
            writer.operation,
        )
        .map_err(in_mos)?;
        let features = SyncingFeatures::new(writer, PoolFeatures::default());
        features.create_zaps()?;
        // First, so that it records in which txg each of the others was enabled.
        let is_wanted = |feature: Feature| request.features.contains(&feature);
        for feature in Feature::ALL.iter().copied().filter(|f| is_wanted(*f)) {
            features.enable(feature)?;
        }
        let now_s = u64::try_from(self.host.unix_time().seconds).unwrap_or(0);
        let events = RefCell::new(Vec::new());
        let namespace = initialize(Initialize {
            mos: writer.mos.clone(),
            tx: writer.tx,
            io: self.io,
            features: &features,
            now_s,
            operation: writer.operation,
            events: &events,
            pool_name: request.name,
            root_properties: &request.root_properties,
            facts: &request.root_facts,
            fill: &request.fill,
            ownership: request.ownership.clone(),
        })?;
        let has_root_zap = is_wanted(Feature::VdevZapsV2);
        config::create_vdev_objects(writer, self.vdevs, has_root_zap)?;
        if has_root_zap {
            // OpenZFS keeps the root's ZAP in the configuration only while the feature counts it.
            features.store(Feature::VdevZapsV2, 1)?;
        }
        self.fill_rest(writer, now_s, events.into_inner())?;
        Ok((namespace, features.finish().0))
    }

    fn fill_rest(
        &self,
        writer: MosWriter<'_>,
        now_s: u64,
        mut events: Vec<InternalEvent>,
    ) -> Result<(), PoolError> {
        let request = self.request;
        let pool_bytes = size::deflated_size(&self.vdevs.top_levels());
        history_write::create(writer, pool_bytes)?;
        events.insert(
            0,
            InternalEvent {
                name: "create",
                dataset: None,
                text: request.version_text.clone(),
            },
        );
        let records: Vec<NvList> = events
            .iter()
            .map(|event| {
                let host = &request.owner.host_name;
                history_write::of_event(event, writer.tx.txg(), now_s, host)
            })
            .collect();
        history_write::append(writer, &records, pool_bytes)?;
        let word = |number: u64| ZapValue::word(number);
        writer.put(POOL_DIRECTORY, CREATION_VERSION, &word(VERSION_FEATURES))?;
        writer.put(POOL_DIRECTORY, DEFLATE, &word(1))?;
        deferred::create(writer)?;
        let salt = ZapValue::Bytes(self.salt.to_vec());
        writer.put(POOL_DIRECTORY, CHECKSUM_SALT, &salt)?;
        if !request.properties.is_empty() {
            properties::store(writer, &request.properties)?;
        }
        let lists = [
            (SPARES, "spares", &self.auxiliary.spares),
            (CACHE_DEVICES, "l2cache", &self.auxiliary.caches),
        ];
        for (object, name, devices) in lists {
            if !devices.is_empty() {
                let devices = devices.iter().map(VdevConfig::to_mos_list).collect();
                let list = NvList::new().with(name, NvValue::Lists(devices));
                let id = writer.create_list()?;
                writer.write_list(id, &list)?;
                writer.link(object, id)?;
            }
        }
        Ok(())
    }
}
