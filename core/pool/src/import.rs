//! Import: from devices to an open pool.
//!
//! # Mechanism
//! A label knows only its own top-level vdev, and is as old as its device's last use. So a pool is
//! opened twice. First the tree that labels suggest, as far as it goes: enough to find the best
//! uberblock and to read, through it, the configuration in the MOS, which is complete and as old as
//! the uberblock itself. Then the tree of that configuration, at the paths where devices were
//! found; missing devices are now known by name. From there everything is read: features first,
//! because an unknown one may change the meaning of everything else.
//!
//! # After a crash
//! The verified uberblock of the highest txg leads to a complete pool: all its blocks were flushed
//! before it was written. If they are damaged all the same, [`rewind`](crate::rewind) finds an
//! earlier one.
//!
//! # Knows nothing about
//! Whether another host used the pool last, which the caller decides before. Only a pool with the
//! property `multihost` is watched and claimed here ([`multihost`](crate::multihost)).

use crate::checkpoint;
use crate::cloned_blocks::ClonedBlockTables;
use crate::close::Leaving;
use crate::config;
use crate::directory::Directory;
use crate::error::{ImportError, PoolError};
use crate::events::class;
use crate::features::PoolFeatures;
use crate::log_space_maps;
use crate::multihost::take_over;
use crate::pool::{Mode, Parts, Pool, PoolOwner, StoredState};
use crate::space_maps::{self, Arrays};
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_block::{BlockIo, BlockIoOptions, DatasetPolicy, Embedding, Repair};
use tarn_cache::{Cache, PoolCache};
use tarn_dataset::namespace::Namespace;
use tarn_host::{Host, OpenMode};
use tarn_object::{MOS_ID, ObjectEnv, ObjectSet, SetPolicy, TxgLimits, Txgs};
use tarn_ondisk::features::{Access, access_of_guid};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::Txg;
use tarn_probe::Operation;
use tarn_space::{Space, SpaceOptions};
use tarn_transform::{CompressionAlgorithm, Salt};
use tarn_vdev::import_search::{CandidatePool, DevicePaths};
use tarn_vdev::tree::refuse_unbuilt;
use tarn_vdev::{ExpectedLabels, Need, OpenOptions, PoolFacts, PoolState, VdevConfig, VdevTree};

/// The newest version before feature flags.
const VERSION_LEGACY_MAX: u64 = 28;

/// The version of pools with feature flags.
const VERSION_FEATURES: u64 = 5000;

/// No pool has stored more txgs: at one in a millisecond that takes 34 years.
const TXG_MAX: Txg = Txg::new(1 << 40);

/// The pool to import.
pub struct ImportRequest<'a> {
    /// The pool that was found.
    pub candidate: &'a CandidatePool,
    /// The paths where devices were found.
    pub paths: &'a DevicePaths,
    /// A new name; none keeps its own.
    pub name: Option<&'a str>,
    /// How to open it.
    pub mode: Mode,
    /// Whether log devices may be missing (`-m`).
    pub need: Need,
    /// The newest txg that may be opened: [`Txg::MAX`], unless the pool is rewound.
    pub until: Txg,
    /// Whether the pool is rewound to its checkpoint (`--rewind-to-checkpoint`).
    pub rewinds_to_checkpoint: bool,
    /// Whether intent logs that cannot be claimed are discarded; otherwise the pool is not opened
    /// for writing.
    pub discards_logs: bool,
    /// Whether the caller still wants it: to find out that no other host uses it may take long.
    pub goes_on: &'a (dyn Fn() -> bool + Sync),
    /// The host that uses it from now on.
    pub owner: PoolOwner,
    /// The tree of a pool that was just split off another, whose MOS has the tree of that.
    pub split: Option<&'a VdevConfig>,
}

/// The tree of an uberblock, before the decision to use it.
struct Opened {
    vdevs: Arc<VdevTree>,
    space: Arc<Space>,
    io: Arc<BlockIo>,
    cache: PoolCache,
    env: Arc<ObjectEnv>,
    mos: Arc<ObjectSet>,
    uberblock: Uberblock,
    clones: Arc<ClonedBlockTables>,
}

impl Pool {
    /// Imports a pool read-only or, where everything in it can be written, for writing.
    ///
    /// # Errors
    /// What is missing, damaged, or not supported.
    pub fn import(
        host: &Host,
        cache: &Arc<Cache>,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<Arc<Pool>, ImportError> {
        refuse_unreadable(&request.candidate.facts)?;
        let imported = Pool::import_readable(host, cache, request, operation);
        imported.map_err(|error| match &error {
            // If a vdev is unreadable, the other errors follow from that.
            ImportError::NoUberblock | ImportError::Pool(_) => {
                match refuse_unbuilt(&request.candidate.root) {
                    Err(unbuilt) => unbuilt.into(),
                    Ok(()) => error,
                }
            }
            _ => error,
        })
    }

    /// Imports a pool whose labels name no unreadable vdev.
    fn import_readable(
        host: &Host,
        cache: &Arc<Cache>,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<Arc<Pool>, ImportError> {
        let suggested = &request.candidate.root;
        let mut first = open(
            host,
            cache,
            request,
            (suggested, None),
            Need::Nothing,
            operation,
        )?;
        let watched = match request.mode {
            Mode::ReadOnly => None,
            Mode::ReadWrite => take_over::watch_for_others(host, request, &first.vdevs)?,
        };
        let mut target = None;
        if request.rewinds_to_checkpoint {
            let newest = first.vdevs.newest_uberblock();
            let newest = newest.ok_or(ImportError::NoUberblock)?;
            let now_s = u64::try_from(host.unix_time().seconds).unwrap_or(0);
            let directory = Directory::new(&first.mos, operation);
            target = Some(checkpoint::rewind::target(directory, &newest, now_s)?);
            close(first);
            first = open(
                host,
                cache,
                request,
                (suggested, target),
                Need::Nothing,
                operation,
            )?;
        }
        let configuration = Directory::new(&first.mos, operation).configuration();
        let configuration =
            configuration.map_err(|error| missing_before_unreadable(&first.vdevs, error))?;
        let mut trusted = match request.split {
            Some(tree) => tree.clone(),
            None => whole_tree(&configuration)?,
        };
        request.paths.fix(suggested.guid, &mut trusted);
        trusted.add_unsaved_dtls(suggested);
        let opened = if trusted == *suggested {
            first.vdevs.require(request.need)?;
            first
        } else {
            close(first);
            open(
                host,
                cache,
                request,
                (&trusted, target),
                request.need,
                operation,
            )?
        };
        let pool = finish(host, request, opened, &configuration, operation)?;
        if let Err(error) = pool.load_dtls(operation) {
            pool.abandon();
            return Err(error.into());
        }
        if let Err(error) = pool.load_checkpoint(operation)
            && request.mode == Mode::ReadWrite
        {
            pool.abandon();
            return Err(error.into());
        }
        let loaded = pool.load_works(operation);
        if let Err(error) = loaded.and_then(|()| pool.load_vdev_properties(operation))
            && request.mode == Mode::ReadWrite
        {
            pool.abandon();
            return Err(error.into());
        }
        if let Err(error) = pool.load_rebuilds(operation)
            && request.mode == Mode::ReadWrite
        {
            pool.abandon();
            return Err(error.into());
        }
        if request.mode == Mode::ReadWrite {
            // A rewind is made with the first write: whatever refuses it has to come before.
            let checked = match target {
                Some(_) => pool.check_logs(request, operation),
                None => Ok(()),
            };
            let entered = checked.and_then(|()| pool.enter_multihost(watched, operation));
            let ready = entered.and_then(|()| pool.prepare_for_writing(request, operation));
            if let Err(error) = ready {
                pool.abandon();
                return Err(error);
            }
            pool.note_empty_logs();
            if target.is_some() {
                let left = pool.leave_for_sync(checkpoint::rewind::record);
                left.expect("the queue of a pool is open before its threads start");
            }
            if request.split.is_some() {
                let left = pool.leave_for_sync(crate::left_behind::free_left_behind);
                left.expect("the queue of a pool is open before its threads start");
            }
            pool.start_sync();
            if let Err(error) = pool.take_over(operation) {
                // Closing stops its threads, which hold the devices. The error has what cannot be
                // stored.
                drop(pool.close(Leaving::Kept, operation));
                return Err(error);
            }
            pool.resume_rebuilds();
            pool.resume_scan(operation);
        }
        pool.resume_works();
        if !pool.given_up_logs().is_empty() {
            pool.post_pool_error(class::LOG_REPLAY);
        }
        pool.post_event(class::POOL_IMPORT, None, NvList::new());
        Ok(pool)
    }

    /// Self-heals uberblocks and claims logs: no stored block is overwritten before all devices in
    /// use have the uberblock, and no log block before it is claimed.
    fn prepare_for_writing(
        &self,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<(), ImportError> {
        self.vdevs().permit_self_heal(true);
        self.vdevs().note_stored_txg(self.uberblock().txg);
        self.vdevs().note_absent();
        let healed = self
            .vdevs()
            .self_heal_uberblock(&self.uberblock(), operation);
        healed.map_err(PoolError::from)?;
        let claimed = self.claim_logs(request, operation)?;
        // Later births are in logs, which all devices in use have.
        self.vdevs().end_dtls(self.uberblock().txg);
        claimed.store_in_first_group(self)?;
        Ok(self.load_scan(operation)?)
    }

    /// Writes this host into the labels.
    fn take_over(self: &Arc<Self>, operation: &Operation) -> Result<(), ImportError> {
        self.sync_imported(operation)?;
        self.end_multihost_if_off(operation)?;
        Ok(self.clean_up(operation).map_err(PoolError::from)?)
    }
}

/// The vdev tree of the configuration in the MOS.
fn whole_tree(configuration: &tarn_ondisk::nvlist::NvList) -> Result<VdevConfig, ImportError> {
    let tree = configuration
        .list("vdev_tree")
        .map_err(tarn_vdev::ConfigError::from)?;
    Ok(VdevConfig::parse(tree)?)
}

/// The error of a MOS that cannot be read: missing top-level vdevs, where there are any, are the
/// reason to name.
fn missing_before_unreadable(vdevs: &VdevTree, error: PoolError) -> ImportError {
    match vdevs.require(Need::AllButLogs) {
        Err(missing) => missing.into(),
        Ok(()) => error.into(),
    }
}

/// Opens a vdev tree, and the MOS of this uberblock or of its best one.
fn open(
    host: &Host,
    cache: &Arc<Cache>,
    request: &ImportRequest<'_>,
    (root, target): (&VdevConfig, Option<Uberblock>),
    need: Need,
    operation: &Operation,
) -> Result<Opened, ImportError> {
    let (mode, repair) = match request.mode {
        Mode::ReadOnly => (OpenMode::ReadOnly, Repair::Leave),
        Mode::ReadWrite => (OpenMode::ReadWriteExclusive, Repair::Rewrite),
    };
    let labels = ExpectedLabels::OfPool(request.candidate.facts.guid);
    let vdevs = VdevTree::open(host, root, &OpenOptions { mode, need, labels })?;
    vdevs.permit_self_heal(false);
    let uberblock = target.or_else(|| vdevs.uberblock_until(request.until));
    let uberblock = uberblock.ok_or(ImportError::NoUberblock)?;
    check_version(uberblock.version)?;
    check_txg(uberblock.txg)?;
    let space = Arc::new(Space::new(SpaceOptions::default()));
    let options = BlockIoOptions {
        repair,
        ..BlockIoOptions::default()
    };
    let clones = ClonedBlockTables::new(vdevs.clone());
    let io = BlockIo::new(
        host.clone(),
        vdevs.clone(),
        space.clone(),
        Some(clones.clone()),
        options,
    );
    let io = Arc::new(io);
    let cache = PoolCache::new(cache.clone(), io.clone());
    let limits = TxgLimits::for_memory(host.memory_total_bytes(), cache.cache().budget_bytes());
    assert!(
        target.is_some() || uberblock.txg <= request.until,
        "a pool is opened at a group that was asked for"
    );
    let txgs = Txgs::new(uberblock.txg, limits);
    let env = ObjectEnv::new(host.clone(), cache.clone(), txgs);
    let policy = mos_policy(uberblock.version);
    let mos = ObjectSet::open(
        env.clone(),
        MOS_ID,
        &uberblock.root,
        policy,
        None,
        operation,
    );
    let mos = mos.map_err(|cause| {
        let object = MOS_ID;
        missing_before_unreadable(&vdevs, PoolError::Object { object, cause })
    })?;
    Ok(Opened {
        vdevs,
        space,
        io,
        cache,
        env,
        mos,
        uberblock,
        clones,
    })
}

/// How the MOS is written: so that any reader of a pool of this version can read it.
pub(crate) fn mos_policy(version: u64) -> SetPolicy {
    let (compression, embedding) = match version {
        VERSION_FEATURES => (CompressionAlgorithm::Lz4, Embedding::Allowed),
        _ => (CompressionAlgorithm::Lzjb, Embedding::Forbidden),
    };
    SetPolicy::new(DatasetPolicy::of_mos(compression, embedding))
}

/// Closes devices that will be opened again.
fn close(opened: Opened) {
    opened.cache.forget_all();
    let vdevs = opened.vdevs.clone();
    drop(opened);
    vdevs.close();
}

/// Refuses a pool whose labels name unknown features that are needed to read its MOS.
fn refuse_unreadable(facts: &PoolFacts) -> Result<(), ImportError> {
    let named = facts
        .features_for_read
        .iter()
        .map(|(guid, _)| guid.to_string());
    let unreadable = named.filter(|guid| access_of_guid(guid, true) < Access::ReadOnly);
    match unreadable.collect::<Vec<_>>() {
        features if features.is_empty() => Ok(()),
        features => Err(ImportError::UnsupportedFeatures { features }),
    }
}

/// Refuses unknown versions.
fn check_version(version: u64) -> Result<(), ImportError> {
    match version {
        1..=VERSION_LEGACY_MAX | VERSION_FEATURES => Ok(()),
        version => Err(ImportError::Version { version }),
    }
}

/// Refuses implausible txgs: counting on from them would overflow.
fn check_txg(txg: Txg) -> Result<(), ImportError> {
    match (Txg::INITIAL..=TXG_MAX).contains(&txg) {
        true => Ok(()),
        false => Err(ImportError::Txg { txg }),
    }
}

/// Reads the MOS, and assembles the pool.
fn finish(
    host: &Host,
    request: &ImportRequest<'_>,
    opened: Opened,
    configuration: &tarn_ondisk::nvlist::NvList,
    operation: &Operation,
) -> Result<Arc<Pool>, ImportError> {
    let directory = directory_of(&opened.mos, operation);
    let features = PoolFeatures::read(directory)?;
    features.check(match request.mode {
        Mode::ReadOnly => Access::ReadOnly,
        Mode::ReadWrite => Access::ReadWrite,
    })?;
    if let Some(salt) = directory.value(name::CHECKSUM_SALT)? {
        let bytes = salt
            .to_words()
            .iter()
            .map(|byte| u8::try_from(*byte).unwrap_or(0))
            .collect();
        let bytes: Vec<u8> = bytes;
        if let Ok(bytes) = <[u8; 32]>::try_from(bytes) {
            opened.io.set_salt(Salt::new(bytes));
        }
    }
    let root = directory.require(name::ROOT_DATASET)?;
    let facts = PoolFacts::parse(configuration)?;
    let own_name = request.candidate.facts.name.to_string();
    let name = request.name.map_or(own_name, str::to_string);
    let namespace = Namespace::new(opened.mos.clone(), &name, root);
    let Opened {
        vdevs,
        space,
        io,
        cache,
        env,
        mos,
        uberblock,
        clones,
    } = opened;
    let arrays = Arrays::of(&vdevs.top_levels());
    let mut unflushed = BTreeMap::new();
    config::read_biases(directory_of(&mos, operation), &vdevs)?;
    let facts = match request.mode {
        Mode::ReadOnly => {
            // Nothing is freed in a read-only pool, so a malformed table does not matter.
            let _ = clones.load(directory_of(&mos, operation));
            facts
        }
        Mode::ReadWrite => {
            let directory = directory_of(&mos, operation);
            refuse_dedup_tables(directory)?;
            let (root, tops) = (vdevs.config(), vdevs.top_levels());
            tops.iter().try_for_each(space_maps::refuse_without_array)?;
            unflushed = log_space_maps::read(directory, &root, &tops, &arrays)?;
            let table = space_maps::unflushed(unflushed.clone());
            for vdev in &tops {
                space_maps::add_stored_vdev(&space, vdev, &arrays, &table, directory)?;
            }
            io.vdevs_changed();
            io.note_stored(uberblock.txg);
            clones.load(directory)?;
            PoolFacts {
                name: name.as_str().into(),
                // Labels may have the guid of a change that was not stored.
                guid: vdevs.config().guid,
                state: PoolState::Active,
                host_id: request.owner.host_id,
                host_name: request.owner.host_name.as_str().into(),
                ..facts
            }
        }
    };
    let state = StoredState {
        uberblock,
        features,
        facts,
    };
    let pool = Pool::assemble(Parts {
        host: host.clone(),
        name,
        mode: request.mode,
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
        unflushed,
        clones,
    });
    Ok(pool)
}

/// Refuses dedup tables, also of the kind that has no feature. OpenZFS removes an empty table.
fn refuse_dedup_tables(directory: Directory<'_>) -> Result<(), ImportError> {
    let entries = directory.entries(name::POOL_DIRECTORY)?;
    let mut names = entries.into_iter().map(|(name, _)| name);
    match names.find(|entry| name::is_dedup_table(entry)) {
        Some(table) => Err(ImportError::Deduplicated { table }),
        None => Ok(()),
    }
}

fn directory_of<'a>(mos: &'a Arc<ObjectSet>, operation: &'a Operation) -> Directory<'a> {
    Directory::new(mos, operation)
}
