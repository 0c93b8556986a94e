//! Statistics of a pool, below `zfs/POOL:0`: `txgs` (the last txgs), `dmu_tx` (the write throttle,
//! and dirty data), `io` (device I/O), `passes` (sync passes per txg), `state`.

use crate::txg_history::{TxgHistory, Work};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_object::Txgs;
use tarn_ondisk::units::Txg;
use tarn_probe::{Instance, Value, registry};
use tarn_vdev::VdevTree;

/// The measuring points of one pool. They leave the tree with the pool.
#[derive(Debug)]
pub(crate) struct Probes {
    history: Arc<TxgHistory>,
    txgs: Arc<Txgs>,
    vdevs: Arc<VdevTree>,
    passes: Arc<Passes>,
    _instances: [Arc<Instance>; 5],
}

/// Numbers of passes of the stored txgs.
#[derive(Debug, Default)]
struct Passes {
    groups: AtomicU64,
    sum: AtomicU64,
    most: AtomicU64,
}

impl Probes {
    /// Registers them in the tree. They hold no reference that keeps the pool open.
    pub(crate) fn new(
        name: &str,
        txgs: Arc<Txgs>,
        vdevs: Arc<VdevTree>,
        is_writable: bool,
    ) -> Probes {
        let module = format!("zfs/{name}");
        let of = |name| registry().instance(&module, 0, name);
        let history = Arc::new(TxgHistory::new());
        let passes = Arc::new(Passes::default());
        let names = ["txgs", "dmu_tx", "io", "state", "passes"];
        let instances = names.map(of);
        let [groups, throttle, io, state, convergence] = &instances;

        let watched = Arc::downgrade(&history);
        groups.provide(move || watched.upgrade().map_or(Vec::new(), |all| all.values()));
        let watched = Arc::downgrade(&txgs);
        throttle.provide(move || {
            watched
                .upgrade()
                .map_or(Vec::new(), |txgs| throttle_values(&txgs))
        });
        let watched = Arc::downgrade(&vdevs);
        io.provide(move || {
            watched
                .upgrade()
                .map_or(Vec::new(), |vdevs| io_values(&vdevs))
        });
        let watched = Arc::downgrade(&passes);
        convergence.provide(move || {
            watched
                .upgrade()
                .map_or(Vec::new(), |passes| pass_values(&passes))
        });
        let watched = (Arc::downgrade(&vdevs), Arc::downgrade(&txgs));
        state.provide(move || match (watched.0.upgrade(), watched.1.upgrade()) {
            (Some(vdevs), Some(txgs)) => state_values(&vdevs, &txgs, is_writable),
            _ => Vec::new(),
        });
        Probes {
            history,
            txgs,
            vdevs,
            passes,
            _instances: instances,
        }
    }

    /// The changes of a txg are stored after this many passes.
    pub(crate) fn converged(&self, passes: u32) {
        assert!(passes > 0, "a group is stored in one pass at least");
        let passes = u64::from(passes);
        self.passes.groups.fetch_add(1, Ordering::Relaxed);
        self.passes.sum.fetch_add(passes, Ordering::Relaxed);
        self.passes.most.fetch_max(passes, Ordering::Relaxed);
    }

    /// The most passes of a txg.
    pub(crate) fn passes_max(&self) -> u64 {
        self.passes.most.load(Ordering::Relaxed)
    }

    /// The txg is open.
    pub(crate) fn opened(&self, txg: Txg) {
        self.history.opened(txg, tarn_host::monotonic_ns());
    }

    /// The txg takes no new transactions.
    pub(crate) fn closing(&self, txg: Txg) {
        self.history.closing(txg, tarn_host::monotonic_ns());
    }

    /// The txg is quiesced, and the next one is open.
    pub(crate) fn closed(&self, txg: Txg) {
        let now_ns = tarn_host::monotonic_ns();
        self.history.closed(txg, now_ns);
        self.history.opened(txg.next(), now_ns);
    }

    /// The txg begins to sync.
    pub(crate) fn syncing(&self, txg: Txg) {
        let work = self.work();
        self.history.syncing(txg, tarn_host::monotonic_ns(), work);
    }

    /// The txg is stored.
    pub(crate) fn stored(&self, txg: Txg) {
        let work = self.work();
        self.history.stored(txg, tarn_host::monotonic_ns(), work);
    }

    fn work(&self) -> Work {
        Work {
            cleaned_bytes: self.txgs.throttle_statistics().cleaned_bytes,
            io: self.vdevs.io_totals(),
        }
    }
}

fn counter(name: &str, count: u64) -> (String, Value) {
    (name.to_owned(), Value::Counter(count))
}

fn gauge(name: &str, now: u64) -> (String, Value) {
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    (name.to_owned(), Value::Gauge(now))
}

fn throttle_values(txgs: &Txgs) -> Vec<(String, Value)> {
    let counts = txgs.throttle_statistics();
    vec![
        counter("dmu_tx_assigned", counts.assigned),
        counter("dmu_tx_dirty_delay", counts.delayed),
        counter("dmu_tx_dirty_delay_ns", counts.delay_ns),
        counter("dmu_tx_dirty_over_max", counts.full),
        gauge("dirty_bytes", txgs.dirty_bytes()),
        gauge("dirty_bytes_max", txgs.limits().dirty_bytes_max),
        gauge("open_txg", txgs.open_txg().get()),
        gauge("stored_txg", txgs.stored_txg().get()),
    ]
}

fn pass_values(passes: &Passes) -> Vec<(String, Value)> {
    vec![
        counter("groups", passes.groups.load(Ordering::Relaxed)),
        counter("passes", passes.sum.load(Ordering::Relaxed)),
        gauge("passes_max", passes.most.load(Ordering::Relaxed)),
    ]
}

fn io_values(vdevs: &VdevTree) -> Vec<(String, Value)> {
    let totals = vdevs.io_totals();
    vec![
        counter("nread", totals.read_bytes),
        counter("nwritten", totals.written_bytes),
        counter("reads", totals.reads),
        counter("writes", totals.writes),
    ]
}

/// One word, as in OpenZFS's kstat of that name.
fn state_values(vdevs: &VdevTree, txgs: &Txgs, is_writable: bool) -> Vec<(String, Value)> {
    let word = match is_writable && txgs.is_suspended() {
        true => "SUSPENDED",
        false => vdevs.health().standing.state.name(),
    };
    vec![("state".to_owned(), Value::Text(word.to_owned()))]
}
