//! What is counted of all intent logs: `zfs:0:zil` in the tree of statistics, under OpenZFS's
//! names.

use std::sync::{Arc, OnceLock};

use tarn_probe::{Counter, Instance};

/// Counters of all logs.
pub(crate) struct Probes {
    /// Commits asked for.
    pub(crate) commits: Arc<Counter>,
    /// Batches that were written for them.
    pub(crate) batches: Arc<Counter>,
    /// Commits that waited for a group instead.
    pub(crate) waited: Arc<Counter>,
    /// Of these, because a block could not be written or had no room.
    pub(crate) errors: Arc<Counter>,
    /// Records made.
    pub(crate) records: Arc<Counter>,
    /// Records written that had all they need.
    pub(crate) whole_records: Arc<Counter>,
    /// Records written whose bytes were fetched.
    pub(crate) fetched_records: Arc<Counter>,
    /// These bytes.
    pub(crate) fetched_bytes: Arc<Counter>,
    /// Records written that lead to the blocks that have their bytes.
    pub(crate) indirect_records: Arc<Counter>,
    /// These bytes.
    pub(crate) indirect_bytes: Arc<Counter>,
    /// Blocks written.
    pub(crate) blocks: Arc<Counter>,
    /// Bytes of records in them.
    pub(crate) record_bytes: Arc<Counter>,
    /// Bytes allocated for them.
    pub(crate) allocated_bytes: Arc<Counter>,
    _instance: Arc<Instance>,
}

/// The counters.
pub(crate) fn probes() -> &'static Probes {
    static PROBES: OnceLock<Probes> = OnceLock::new();
    PROBES.get_or_init(|| {
        let instance = tarn_probe::registry().instance("zfs", 0, "zil");
        Probes {
            commits: instance.counter("zil_commit_count"),
            batches: instance.counter("zil_commit_writer_count"),
            waited: instance.counter("zil_commit_stall_count"),
            errors: instance.counter("zil_commit_error_count"),
            records: instance.counter("zil_itx_count"),
            whole_records: instance.counter("zil_itx_copied_count"),
            fetched_records: instance.counter("zil_itx_needcopy_count"),
            fetched_bytes: instance.counter("zil_itx_needcopy_bytes"),
            indirect_records: instance.counter("zil_itx_indirect_count"),
            indirect_bytes: instance.counter("zil_itx_indirect_bytes"),
            blocks: instance.counter("zil_itx_metaslab_normal_count"),
            record_bytes: instance.counter("zil_itx_metaslab_normal_bytes"),
            allocated_bytes: instance.counter("zil_itx_metaslab_normal_alloc"),
            _instance: instance,
        }
    })
}
