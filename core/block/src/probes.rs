//! What is counted of the pipelines: `block:<pool>:pipelines` in the tree of statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tarn_probe::{Counter, Instance, Registry};

/// Counters of one pool.
pub(crate) struct Probes {
    /// Blocks read from devices.
    pub(crate) reads: Arc<Counter>,
    /// Requests to read a block, by what it is to its object.
    pub(crate) data_reads: Arc<Counter>,
    pub(crate) metadata_reads: Arc<Counter>,
    pub(crate) log_reads: Arc<Counter>,
    /// Copies found bad while another was good.
    pub(crate) bad_copies: Arc<Counter>,
    /// Blocks of which no copy was good.
    pub(crate) unreadable: Arc<Counter>,
    /// Blocks given to be written.
    pub(crate) writes: Arc<Counter>,
    /// Their bytes.
    pub(crate) logical_bytes: Arc<Counter>,
    /// The bytes that were stored for them, one copy each.
    pub(crate) physical_bytes: Arc<Counter>,
    /// Blocks that became holes, or went into their pointers.
    pub(crate) in_pointer: Arc<Counter>,
    /// Blocks rewritten where they were.
    pub(crate) rewrites: Arc<Counter>,
    /// Blocks left where they were, for they had the same contents.
    pub(crate) unchanged: Arc<Counter>,
    /// Blocks split for want of room.
    pub(crate) gangs: Arc<Counter>,
    /// Blocks freed, or kept to be freed in the next txg.
    pub(crate) frees: Arc<Counter>,
    /// Blocks of intent logs.
    pub(crate) log_writes: Arc<Counter>,
    /// The bytes written of them.
    pub(crate) log_bytes: Arc<Counter>,
    _instance: Arc<Instance>,
}

impl Probes {
    pub(crate) fn new(registry: &Registry) -> Probes {
        /// Pools are numbered as they are opened.
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let pool = POOLS.fetch_add(1, Ordering::Relaxed);
        let instance = registry.instance("block", pool, "pipelines");
        Probes {
            reads: instance.counter("reads"),
            data_reads: instance.counter("data_reads"),
            metadata_reads: instance.counter("metadata_reads"),
            log_reads: instance.counter("log_reads"),
            bad_copies: instance.counter("bad_copies"),
            unreadable: instance.counter("unreadable"),
            writes: instance.counter("writes"),
            logical_bytes: instance.counter("logical_bytes"),
            physical_bytes: instance.counter("physical_bytes"),
            in_pointer: instance.counter("in_pointer"),
            rewrites: instance.counter("rewrites"),
            unchanged: instance.counter("unchanged"),
            gangs: instance.counter("gangs"),
            frees: instance.counter("frees"),
            log_writes: instance.counter("log_writes"),
            log_bytes: instance.counter("log_bytes"),
            _instance: instance,
        }
    }
}
