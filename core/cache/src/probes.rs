//! What the cache counts: `zfs:0:arcstats` in the tree of statistics, under OpenZFS's names where
//! it has one.

use crate::adaptive::Memory;
use crate::cache::Hint;
use crate::pressure::MachineMemory;
use crate::second_probes::SecondProbes;
use std::sync::Arc;
use tarn_block::BlockKind;
use tarn_probe::{Counter, Gauge, Instance, Registry, Value};

/// Counters of one kind of block and one way of asking.
#[derive(Clone)]
struct Asked {
    hits: Arc<Counter>,
    misses: Arc<Counter>,
    /// Blocks that another was already reading: neither hits nor misses.
    joined: Arc<Counter>,
    ghost_recent_hits: Arc<Counter>,
    ghost_frequent_hits: Arc<Counter>,
}

/// One of the counters.
type CounterOf = fn(&Asked) -> &Counter;

/// Sums over kinds of block and ways of asking, computed when they are read: what they are called,
/// and of what.
const SUMS: [(&str, CounterOf); 5] = [
    ("hits", |asked| &asked.hits),
    ("misses", |asked| &asked.misses),
    ("iohits", |asked| &asked.joined),
    ("mru_ghost_hits", |asked| &asked.ghost_recent_hits),
    ("mfu_ghost_hits", |asked| &asked.ghost_frequent_hits),
];

/// Everything that is counted.
pub(crate) struct Probes {
    /// Data and metadata, each by demand and by prefetch.
    asked: [[Asked; 2]; 2],
    /// Blocks brought in by prefetch that a demand read found later.
    prefetch_used: Arc<Counter>,
    /// Blocks that prefetch did not ask for because its queue was full.
    pub(crate) prefetch_dropped: Arc<Counter>,
    /// Blocks dropped to make room, and what they took.
    evicted: Arc<Gauge>,
    evicted_bytes: Arc<Gauge>,
    size: Arc<Gauge>,
    target: Arc<Gauge>,
    size_max: Arc<Gauge>,
    overhead: Arc<Gauge>,
    elements: Arc<Gauge>,
    recent_size: Arc<Gauge>,
    frequent_size: Arc<Gauge>,
    ghost_recent_size: Arc<Gauge>,
    ghost_frequent_size: Arc<Gauge>,
    recent_target: Arc<Gauge>,
    /// All memory, what of it others could have before the reserve is touched (below zero: what is
    /// missing), and the reserve.
    memory_all: Arc<Gauge>,
    memory_available: Arc<Gauge>,
    memory_reserve: Arc<Gauge>,
    /// What of the reserve is missing, and whether the cache does without some of its budget.
    memory_missing: Arc<Gauge>,
    no_grow: Arc<Gauge>,
    /// The second level.
    pub(crate) second: SecondProbes,
    _instance: Arc<Instance>,
}

/// How large the lists are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) all: u64,
    pub(crate) recent: u64,
    pub(crate) frequent: u64,
    pub(crate) ghost_recent: u64,
    pub(crate) ghost_frequent: u64,
    pub(crate) recent_target: u64,
    /// Keys, those of ghosts included.
    pub(crate) elements: u64,
    /// Blocks dropped to make room, since the beginning.
    pub(crate) evicted: u64,
    /// What those took.
    pub(crate) evicted_bytes: u64,
}

impl Probes {
    pub(crate) fn new(registry: &Registry) -> Probes {
        let instance = registry.instance("zfs", 0, "arcstats");
        let asked = ["demand", "prefetch"].map(|how| {
            ["data", "metadata"].map(|kind| {
                let counter = |what| instance.counter(&format!("{how}_{kind}_{what}"));
                Asked {
                    hits: counter("hits"),
                    misses: counter("misses"),
                    joined: counter("iohits"),
                    ghost_recent_hits: counter("mru_ghost_hits"),
                    ghost_frequent_hits: counter("mfu_ghost_hits"),
                }
            })
        });
        for (name, of) in SUMS {
            let all = asked.clone();
            let sum = move || {
                let each = all.iter().flatten().map(|asked| of(asked).value());
                Value::Counter(each.fold(0, u64::wrapping_add))
            };
            instance.computed(name, sum);
        }
        Probes {
            asked,
            prefetch_used: instance.counter("demand_hit_prefetched"),
            prefetch_dropped: instance.counter("prefetch_dropped"),
            evicted: instance.gauge("deleted"),
            evicted_bytes: instance.gauge("deleted_bytes"),
            size: instance.gauge("size"),
            target: instance.gauge("c"),
            overhead: instance.gauge("overhead_size"),
            elements: instance.gauge("hash_elements"),
            size_max: instance.gauge("c_max"),
            recent_size: instance.gauge("mru_size"),
            frequent_size: instance.gauge("mfu_size"),
            ghost_recent_size: instance.gauge("mru_ghost_size"),
            ghost_frequent_size: instance.gauge("mfu_ghost_size"),
            recent_target: instance.gauge("mru_target"),
            memory_all: instance.gauge("memory_all_bytes"),
            memory_available: instance.gauge("memory_available_bytes"),
            memory_reserve: instance.gauge("arc_sys_free"),
            memory_missing: instance.gauge("arc_need_free"),
            no_grow: instance.gauge("arc_no_grow"),
            second: SecondProbes::new(&instance),
            _instance: instance,
        }
    }

    pub(crate) fn hit(&self, kind: BlockKind, hint: Hint, is_first_use: bool) {
        self.of(kind, hint).hits.increment();
        if is_first_use {
            self.prefetch_used.increment();
        }
    }

    pub(crate) fn joined(&self, kind: BlockKind, hint: Hint) {
        self.of(kind, hint).joined.increment();
    }

    pub(crate) fn miss(&self, kind: BlockKind, hint: Hint, memory: Memory) {
        let asked = self.of(kind, hint);
        asked.misses.increment();
        match memory {
            Memory::Nothing => {}
            Memory::WasRecent => asked.ghost_recent_hits.increment(),
            Memory::WasFrequent => asked.ghost_frequent_hits.increment(),
        }
    }

    pub(crate) fn set_sizes(&self, sizes: Sizes, target: u64, budget: u64) {
        self.size.set_unsigned(sizes.all);
        self.target.set_unsigned(target);
        self.size_max.set_unsigned(budget);
        let blocks = sizes.recent + sizes.frequent;
        self.overhead.set_unsigned(sizes.all.saturating_sub(blocks));
        self.elements.set_unsigned(sizes.elements);
        self.evicted.set_unsigned(sizes.evicted);
        self.evicted_bytes.set_unsigned(sizes.evicted_bytes);
        self.recent_size.set_unsigned(sizes.recent);
        self.frequent_size.set_unsigned(sizes.frequent);
        self.ghost_recent_size.set_unsigned(sizes.ghost_recent);
        self.ghost_frequent_size.set_unsigned(sizes.ghost_frequent);
        self.recent_target.set_unsigned(sizes.recent_target);
    }

    pub(crate) fn set_memory(
        &self,
        memory: MachineMemory,
        reserve: u64,
        missing: u64,
        no_grow: bool,
    ) {
        self.memory_all.set_unsigned(memory.total_bytes);
        let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        let left = signed(memory.available_bytes) - signed(reserve);
        self.memory_available.set(left);
        self.memory_reserve.set_unsigned(reserve);
        self.memory_missing.set_unsigned(missing);
        self.no_grow.set_unsigned(no_grow.into());
    }

    fn of(&self, kind: BlockKind, hint: Hint) -> &Asked {
        let how = usize::from(hint.is_prefetch());
        let kind = usize::from(kind != BlockKind::Data);
        &self.asked[how][kind]
    }
}
