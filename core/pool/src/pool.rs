//! An open pool: what all its users share.

use crate::directory::Directory;
use crate::features::PoolFeatures;
use crate::size;
use std::sync::Arc;
use tarn_block::BlockIo;
use tarn_cache::PoolCache;
use tarn_dataset::namespace::Namespace;
use tarn_host::Host;
use tarn_host::lock::{Mutex, Rank};
use tarn_object::{ObjectEnv, ObjectSet, Txgs};
use tarn_ondisk::uberblock::Uberblock;
use tarn_probe::Operation;
use tarn_space::Space;
use tarn_vdev::{PoolFacts, VdevTree};

/// What the pool is as of the newest stored txg.
const STORED: Rank = Rank::new(tarn_host::ranks::POOL + 10, "pool state");

/// How a pool is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is written, to no device.
    ReadOnly,
    /// As usual.
    ReadWrite,
}

/// What changes with each txg.
#[derive(Debug, Clone)]
pub(crate) struct StoredState {
    pub(crate) uberblock: Uberblock,
    pub(crate) features: PoolFeatures,
    pub(crate) facts: PoolFacts,
}

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
}

/// The parts of a pool, when it was put together.
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
}

impl Pool {
    pub(crate) fn assemble(parts: Parts) -> Arc<Pool> {
        let Parts {
            host,
            name,
            mode,
            vdevs,
            space,
            io,
            cache,
            env,
            mos,
            namespace,
            state,
        } = parts;
        let stored = Mutex::new(STORED, state);
        let pool = Pool {
            host,
            name,
            mode,
            vdevs,
            space,
            io,
            cache,
            env,
            mos,
            namespace,
            stored,
        };
        pool.publish_size();
        Arc::new(pool)
    }

    /// The machine it is open on.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Its name here; an import can have given it another than the labels have.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is open.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Its devices.
    pub fn vdevs(&self) -> &Arc<VdevTree> {
        &self.vdevs
    }

    /// What is free on them. Empty for a pool that is open read-only: nobody needs to know.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// Reading and writing its blocks.
    pub fn io(&self) -> &Arc<BlockIo> {
        &self.io
    }

    /// Reading its blocks through the cache.
    pub fn cache(&self) -> &PoolCache {
        &self.cache
    }

    /// What its object sets share.
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

    /// Its directory, to read.
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

    /// What labels say about it.
    pub fn facts(&self) -> PoolFacts {
        self.stored.lock().facts.clone()
    }

    /// Tells the tree of datasets what there is for all of them.
    pub(crate) fn publish_size(&self) {
        let embedded = self
            .space
            .class_totals(tarn_space::Class::EmbeddedLog)
            .size
            .get();
        let adjusted = size::adjusted_size(&self.vdevs.top_levels(), embedded);
        self.namespace.set_adjusted_bytes(adjusted);
    }
}
