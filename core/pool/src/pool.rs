//! An open pool: the state that all its users share.

use crate::checkpoint::state::Checkpoint;
use crate::cloned_blocks::{CloneSums, ClonedBlockTables};
use crate::directory::Directory;
use crate::error::TaskError;
use crate::events::destination::PoolEvents;
use crate::failure::Failure;
use crate::features::PoolFeatures;
use crate::found_errors::FoundErrors;
use crate::initialize_trim::kicks::Autotrim;
use crate::initialize_trim::works::Works;
use crate::job_queue::Jobs;
use crate::leaver::Leaver;
use crate::log_holds::LogHolds;
use crate::multihost::heartbeat::Heartbeats;
use crate::probed_devices::Probed;
use crate::probes::Probes;
use crate::rebuild::state::Rebuilds;
use crate::scan::state::Scans;
use crate::size;
use crate::space_maps::{self, Arrays, Changes, Loader, MetaslabId, Unflushed};
use crate::thresholds::Thresholds;
use crate::times_noted::TimesNoted;
use crate::written_configuration::Written;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use tarn_block::BlockIo;
use tarn_cache::PoolCache;
use tarn_dataset::namespace::Namespace;
use tarn_host::lock::{Mutex, Rank};
use tarn_host::{Host, JoinHandle};
use tarn_object::{FailMode, ObjectEnv, ObjectSet, Txgs};
use tarn_ondisk::features::Feature;
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::{Guid, VdevId};
use tarn_probe::Operation;
use tarn_space::Space;
use tarn_vdev::{Dtl, PoolFacts, VdevTree};

/// The facts in the labels, and those to write.
const CONFIGURATION: Rank = Rank::new(tarn_host::ranks::POOL + 11, "pool configuration");
/// The handles of the sync threads.
const THREADS: Rank = Rank::new(tarn_host::ranks::POOL + 12, "sync threads");
/// Why the pool is suspended.
const FAILURE: Rank = Rank::new(tarn_host::ranks::POOL + 13, "pool failure");

/// The state of the pool as of the newest stored txg.
const STORED: Rank = Rank::new(tarn_host::ranks::POOL + 10, "pool state");

/// How a pool is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is written to any device.
    ReadOnly,
    /// Read and written.
    ReadWrite,
}

/// The state that each txg replaces.
#[derive(Debug, Clone)]
pub(crate) struct StoredState {
    pub(crate) uberblock: Uberblock,
    pub(crate) features: PoolFeatures,
    pub(crate) facts: PoolFacts,
}

/// The host that uses a pool, as its labels say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolOwner {
    /// The host's number; zero for none.
    pub host_id: u64,
    /// The host's name.
    pub host_name: String,
}

/// A change of the facts in the labels, to be made in the next txg.
pub(crate) type FactsChange = Box<dyn FnOnce(&mut PoolFacts) + Send>;

/// An open pool.
pub struct Pool {
    pub(crate) host: Host,
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) vdevs: Arc<VdevTree>,
    pub(crate) space: Arc<Space>,
    pub(crate) io: Arc<BlockIo>,
    pub(crate) cache: PoolCache,
    pub(crate) env: Arc<ObjectEnv>,
    pub(crate) mos: Arc<ObjectSet>,
    pub(crate) namespace: Namespace,
    pub(crate) stored: Mutex<StoredState>,
    pub(crate) owner: PoolOwner,
    pub(crate) arrays: Arc<Arrays>,
    pub(crate) unflushed: Arc<Unflushed>,
    pub(crate) clones: Arc<ClonedBlockTables>,
    pub(crate) log_holds: Arc<LogHolds>,
    pub(crate) given_up_logs: Mutex<Vec<String>>,
    /// Datasets whose logs had been claimed, or were, when the pool was imported.
    pub(crate) claimed_logs: Mutex<Vec<String>>,
    /// Vdevs that join the pool in the syncing txg.
    pub(crate) joined: Mutex<Vec<VdevId>>,
    /// Vdevs that grow in the syncing txg.
    pub(crate) grown: Mutex<Vec<VdevId>>,
    /// Devices that leave the pool in the syncing txg.
    pub(crate) departed: Mutex<Vec<Leaver>>,
    pub(crate) jobs: Jobs,
    pub(crate) configuration: Mutex<Written>,
    /// The dirty time log of each leaf in the MOS.
    pub(crate) saved_dtls: Mutex<BTreeMap<Guid, Dtl>>,
    pub(crate) changed_facts: Mutex<Option<FactsChange>>,
    pub(crate) sync_threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) heartbeats: Heartbeats,
    /// For threads that are started where only a reference to the pool is at hand.
    pub(crate) this: OnceLock<Weak<Pool>>,
    pub(crate) scans: Scans,
    pub(crate) rebuilds: Rebuilds,
    pub(crate) found_errors: FoundErrors,
    pub(crate) failure: Mutex<Option<Failure>>,
    pub(crate) fails_writers: AtomicBool,
    pub(crate) probes: Probes,
    pub(crate) events: PoolEvents,
    pub(crate) probed: Probed,
    pub(crate) txg_times: TimesNoted,
    pub(crate) works: Works,
    /// Set by properties of vdevs.
    pub(crate) thresholds: Thresholds,
    pub(crate) autotrim: Autotrim,
    pub(crate) checkpoint: Checkpoint,
    /// No thread is started any more.
    closing: AtomicBool,
}

/// The parts of an assembled pool.
pub(crate) struct Parts {
    pub(crate) host: Host,
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) vdevs: Arc<VdevTree>,
    pub(crate) space: Arc<Space>,
    pub(crate) io: Arc<BlockIo>,
    pub(crate) cache: PoolCache,
    pub(crate) env: Arc<ObjectEnv>,
    pub(crate) mos: Arc<ObjectSet>,
    pub(crate) namespace: Namespace,
    pub(crate) state: StoredState,
    pub(crate) owner: PoolOwner,
    pub(crate) arrays: Arrays,
    pub(crate) unflushed: BTreeMap<MetaslabId, Changes>,
    pub(crate) clones: Arc<ClonedBlockTables>,
}

impl Pool {
    pub(crate) fn assemble(parts: Parts) -> Arc<Pool> {
        let probes = Probes::new(
            &parts.name,
            parts.env.txgs.clone(),
            parts.vdevs.clone(),
            parts.mode == Mode::ReadWrite,
        );
        let log_holds = LogHolds::new(parts.space.clone(), parts.vdevs.clone());
        let pool = Pool {
            host: parts.host,
            name: parts.name,
            mode: parts.mode,
            vdevs: parts.vdevs,
            space: parts.space,
            io: parts.io,
            cache: parts.cache,
            env: parts.env,
            mos: parts.mos,
            namespace: parts.namespace,
            stored: Mutex::new(STORED, parts.state),
            owner: parts.owner,
            arrays: Arc::new(parts.arrays),
            unflushed: Arc::new(space_maps::unflushed(parts.unflushed)),
            clones: parts.clones,
            log_holds,
            given_up_logs: Mutex::new(CONFIGURATION, Vec::new()),
            claimed_logs: Mutex::new(CONFIGURATION, Vec::new()),
            joined: Mutex::new(CONFIGURATION, Vec::new()),
            grown: Mutex::new(CONFIGURATION, Vec::new()),
            departed: Mutex::new(CONFIGURATION, Vec::new()),
            jobs: Jobs::new(),
            configuration: Mutex::new(CONFIGURATION, Written::NEVER),
            saved_dtls: Mutex::new(CONFIGURATION, BTreeMap::new()),
            changed_facts: Mutex::new(CONFIGURATION, None),
            sync_threads: Mutex::new(THREADS, Vec::new()),
            heartbeats: Heartbeats::new(),
            this: OnceLock::new(),
            scans: Scans::new(),
            rebuilds: Rebuilds::new(),
            found_errors: FoundErrors::new(),
            failure: Mutex::new(FAILURE, None),
            fails_writers: AtomicBool::new(false),
            probes,
            events: PoolEvents::new(),
            probed: Probed::new(),
            txg_times: TimesNoted::new(),
            works: Works::new(),
            thresholds: Thresholds::new(),
            autotrim: Autotrim::new(),
            checkpoint: Checkpoint::none(),
            closing: AtomicBool::new(false),
        };
        pool.space.set_door(Arc::new(Loader {
            mos: Arc::downgrade(&pool.mos),
            arrays: pool.arrays.clone(),
            unflushed: pool.unflushed.clone(),
        }));
        pool.clones.set_mos(&pool.mos);
        pool.log_holds.admit();
        pool.publish_facts();
        Arc::new(pool)
    }

    /// Whether it is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// No thread that works in the background is started any more.
    pub(crate) fn note_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// The host on which it is open.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Its name here; an import can have renamed it temporarily.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is open.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Its vdev tree.
    pub fn vdevs(&self) -> &Arc<VdevTree> {
        &self.vdevs
    }

    /// Its free space. Empty for a pool that is open read-only.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// Its block pipelines.
    pub fn io(&self) -> &Arc<BlockIo> {
        &self.io
    }

    /// Its cached reads.
    pub fn cache(&self) -> &PoolCache {
        &self.cache
    }

    /// The environment that its object sets share.
    pub fn env(&self) -> &Arc<ObjectEnv> {
        &self.env
    }

    /// Its transaction groups.
    pub fn txgs(&self) -> &Arc<Txgs> {
        &self.env.txgs
    }

    /// Its meta object set.
    pub fn mos(&self) -> &Arc<ObjectSet> {
        &self.mos
    }

    /// A reader of its directory.
    pub fn directory<'a>(&'a self, operation: &'a Operation) -> Directory<'a> {
        Directory::new(&self.mos, operation)
    }

    /// Its datasets.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The newest stored uberblock.
    pub fn uberblock(&self) -> Uberblock {
        self.stored.lock().uberblock
    }

    /// Its features.
    pub fn features(&self) -> PoolFeatures {
        self.stored.lock().features.clone()
    }

    /// The facts in its labels.
    pub fn facts(&self) -> PoolFacts {
        self.stored.lock().facts.clone()
    }

    /// The datasets whose intent logs were discarded at the import because they could not be read.
    pub fn given_up_logs(&self) -> Vec<String> {
        self.given_up_logs.lock().clone()
    }

    /// The datasets whose intent logs may have something to be replayed since the pool was imported
    /// for writing: no other log was claimed.
    pub fn claimed_logs(&self) -> Vec<String> {
        self.claimed_logs.lock().clone()
    }

    /// Refuses when the pool cannot be changed.
    pub(crate) fn require_writable(&self) -> Result<(), TaskError> {
        match self.mode {
            Mode::ReadOnly => Err(TaskError::ReadOnly),
            Mode::ReadWrite => Ok(()),
        }
    }

    /// The effect of a suspension on writers: the property `failmode`.
    pub(crate) fn fail_mode(&self) -> FailMode {
        match self.fails_writers.load(Ordering::Relaxed) {
            true => FailMode::Continue,
            false => FailMode::Wait,
        }
    }

    /// Whether writers get errors while the pool is suspended. Otherwise they wait.
    pub fn fails_writers(&self) -> bool {
        self.fails_writers.load(Ordering::Relaxed)
    }

    /// Sets whether writers get errors while the pool is suspended: the property `failmode` is
    /// `continue`.
    pub fn set_fails_writers(&self, fails: bool) {
        self.fails_writers.store(fails, Ordering::Relaxed);
        self.vdevs().set_readers_wait(!fails);
    }

    /// The host that uses it, as its labels say.
    pub fn owner(&self) -> &PoolOwner {
        &self.owner
    }

    /// Space of cloned blocks, and space that cloning has saved.
    pub fn clone_sums(&self) -> CloneSums {
        self.clones.sums()
    }

    /// Publishes the stored state to `block`, `dataset` and `space`: the features of blocks, and
    /// the room for all datasets. Space saved by cloning counts as room, since each dataset is
    /// charged for all that it refers to.
    pub(crate) fn publish_facts(&self) {
        let feature = Feature::BlockCloning.guid();
        let is_cloning = self.stored.lock().features.count(feature).is_some();
        self.clones.set_enabled(is_cloning);
        let embedded = self
            .space
            .class_totals(tarn_space::Class::EmbeddedLog)
            .size
            .get();
        let (adjusted, slop) = size::adjusted_size(&self.vdevs.top_levels(), embedded);
        let saved = self.clones.sums().saved.get();
        self.namespace.set_slop_bytes(slop);
        self.namespace
            .set_adjusted_bytes(adjusted.saturating_add(saved));
    }
}
