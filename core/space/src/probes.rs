//! What is counted of space: `space:<pool>:metaslabs` in the tree of statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tarn_probe::{Counter, Instance, Registry};

/// Counters of one pool.
pub(crate) struct Probes {
    /// Blocks that were given places.
    pub(crate) allocations: Arc<Counter>,
    /// Blocks for which there was no place in one piece.
    pub(crate) refusals: Arc<Counter>,
    /// Metaslabs read into memory: an allocation waited for each.
    pub(crate) loads: Arc<Counter>,
    /// Metaslabs that could not be read.
    pub(crate) failed_loads: Arc<Counter>,
    /// Metaslabs dropped from memory.
    pub(crate) unloads: Arc<Counter>,
    _instance: Arc<Instance>,
}

impl Probes {
    pub(crate) fn new(registry: &Registry) -> Probes {
        /// Pools are numbered as they are opened.
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let pool = POOLS.fetch_add(1, Ordering::Relaxed);
        let instance = registry.instance("space", pool, "metaslabs");
        Probes {
            allocations: instance.counter("allocations"),
            refusals: instance.counter("refusals"),
            loads: instance.counter("loads"),
            failed_loads: instance.counter("failed_loads"),
            unloads: instance.counter("unloads"),
            _instance: instance,
        }
    }
}
