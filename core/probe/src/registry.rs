//! The tree of everything counted: `module:instance:name:statistic`, as kstat has it.
//!
//! A layer asks for an [`Instance`] and hangs counters, gauges and histograms into it; it keeps the
//! handle, and when it drops it the instance disappears from the tree. Counting touches only the
//! layer's own counter. A reader takes a [`Snapshot`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::histogram::{Histogram, HistogramSnapshot};
use crate::pattern::Pattern;

/// Cache lines a counter is spread over, so that threads do not fight. A guess; more would cost
/// memory.
const COUNTER_SHARDS: usize = 4;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter {
    shards: [PaddedCount; COUNTER_SHARDS],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct PaddedCount(AtomicU64);

impl Counter {
    /// Starts at 0.
    pub fn new() -> Counter {
        Counter::default()
    }

    /// Counts one more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts several more.
    pub fn add(&self, count: u64) {
        self.shards[thread_shard()]
            .0
            .fetch_add(count, Ordering::Relaxed);
    }

    /// How many were counted.
    pub fn value(&self) -> u64 {
        let loaded = self
            .shards
            .iter()
            .map(|shard| shard.0.load(Ordering::Relaxed));
        loaded.fold(0, u64::wrapping_add)
    }
}

/// The shard the calling thread counts in.
fn thread_shard() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static SHARD: usize = usize::try_from(NEXT.fetch_add(1, Ordering::Relaxed) & 3).unwrap_or(0);
    }
    SHARD.try_with(|shard| *shard).unwrap_or(0)
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Starts at 0.
    pub fn new() -> Gauge {
        Gauge::default()
    }

    /// Sets it.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets it to a size or a count; what does not fit is shown as the largest number.
    pub fn set_unsigned(&self, value: u64) {
        self.set(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Adds to it, or subtracts.
    pub fn add(&self, difference: i64) {
        self.0.fetch_add(difference, Ordering::Relaxed);
    }

    /// What it is.
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A statistic at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number that only grows.
    Counter(u64),
    /// A number that goes up and down.
    Gauge(i64),
    /// A name or a state.
    Text(String),
    /// How often each magnitude was seen.
    Histogram(HistogramSnapshot),
    /// A line of a table: columns in their order.
    Row(Vec<(&'static str, Value)>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Counter(value) => write!(f, "{value}"),
            Value::Gauge(value) => write!(f, "{value}"),
            Value::Text(text) => write!(f, "{text}"),
            Value::Histogram(h) => write!(
                f,
                "count={} sum={} p50={} p99={}",
                h.count(),
                h.sum(),
                h.percentile(50),
                h.percentile(99)
            ),
            Value::Row(columns) => {
                for (index, (name, value)) in columns.iter().enumerate() {
                    let gap = if index > 0 { " " } else { "" };
                    write!(f, "{gap}{name}={value}")?;
                }
                Ok(())
            }
        }
    }
}

enum Source {
    Counter(Arc<Counter>),
    Gauge(Arc<Gauge>),
    Histogram(Arc<Histogram>),
    Text(String),
    Computed(Box<dyn Fn() -> Value + Send + Sync>),
}

impl Source {
    fn value(&self) -> Value {
        match self {
            Source::Counter(counter) => Value::Counter(counter.value()),
            Source::Gauge(gauge) => Value::Gauge(gauge.value()),
            Source::Histogram(histogram) => Value::Histogram(histogram.snapshot()),
            Source::Text(text) => Value::Text(text.clone()),
            Source::Computed(compute) => compute(),
        }
    }
}

type Provider = Box<dyn Fn() -> Vec<(String, Value)> + Send + Sync>;

/// The statistics of one thing: a cache, a pool, a device, a dataset.
pub struct Instance {
    key: Key,
    sources: Mutex<BTreeMap<String, Source>>,
    providers: Mutex<Vec<Provider>>,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key {
            module,
            instance,
            name,
        } = &self.key;
        write!(f, "Instance({module}:{instance}:{name})")
    }
}

impl Instance {
    /// The counter of that name, made if there is none.
    pub fn counter(&self, statistic: &str) -> Arc<Counter> {
        let mut sources = lock(&self.sources);
        if let Some(Source::Counter(counter)) = sources.get(statistic) {
            return counter.clone();
        }
        let counter = Arc::new(Counter::new());
        sources.insert(statistic.to_owned(), Source::Counter(counter.clone()));
        counter
    }

    /// The gauge of that name, made if there is none.
    pub fn gauge(&self, statistic: &str) -> Arc<Gauge> {
        let mut sources = lock(&self.sources);
        if let Some(Source::Gauge(gauge)) = sources.get(statistic) {
            return gauge.clone();
        }
        let gauge = Arc::new(Gauge::new());
        sources.insert(statistic.to_owned(), Source::Gauge(gauge.clone()));
        gauge
    }

    /// The histogram of that name, made if there is none.
    pub fn histogram(&self, statistic: &str) -> Arc<Histogram> {
        let mut sources = lock(&self.sources);
        if let Some(Source::Histogram(histogram)) = sources.get(statistic) {
            return histogram.clone();
        }
        let histogram = Arc::new(Histogram::new());
        sources.insert(statistic.to_owned(), Source::Histogram(histogram.clone()));
        histogram
    }

    /// Sets a text.
    pub fn set_text(&self, statistic: &str, text: &str) {
        lock(&self.sources).insert(statistic.to_owned(), Source::Text(text.to_owned()));
    }

    /// A statistic that is computed when it is read.
    pub fn computed(&self, statistic: &str, compute: impl Fn() -> Value + Send + Sync + 'static) {
        lock(&self.sources).insert(statistic.to_owned(), Source::Computed(Box::new(compute)));
    }

    /// Several statistics that are computed when they are read.
    pub fn provide(&self, provider: impl Fn() -> Vec<(String, Value)> + Send + Sync + 'static) {
        lock(&self.providers).push(Box::new(provider));
    }

    fn values(&self) -> BTreeMap<String, Value> {
        let sources = lock(&self.sources);
        let mut values: BTreeMap<String, Value> = sources
            .iter()
            .map(|(name, source)| (name.clone(), source.value()))
            .collect();
        drop(sources);
        for provider in lock(&self.providers).iter() {
            values.extend(provider());
        }
        values
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    module: String,
    instance: u32,
    name: String,
}

/// All instances.
#[derive(Debug, Default)]
pub struct Registry {
    instances: Mutex<BTreeMap<Key, Weak<Instance>>>,
}

/// The registry of this process.
pub fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::new)
}

impl Registry {
    /// An empty one, for tests.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// The instance of that name. It is in the tree as long as a handle of it lives.
    pub fn instance(&self, module: &str, instance: u32, name: &str) -> Arc<Instance> {
        let key = Key {
            module: module.to_owned(),
            instance,
            name: name.to_owned(),
        };
        let mut instances = lock(&self.instances);
        if let Some(found) = instances.get(&key).and_then(Weak::upgrade) {
            return found;
        }
        let made = Arc::new(Instance {
            key: key.clone(),
            sources: Mutex::default(),
            providers: Mutex::default(),
        });
        instances.insert(key, Arc::downgrade(&made));
        made
    }

    /// All statistics that `wanted` names: `module[:instance[:name[:statistic]]]`, each part a glob
    /// (`*`, `?`, `[a-z]`), where an empty part means any.
    pub fn snapshot(&self, wanted: &str) -> Snapshot {
        let wanted = Pattern::parse(wanted);
        let mut tree = BTreeMap::new();
        for (key, instance) in self.living() {
            if !wanted.wants(&key.module, key.instance, &key.name) {
                continue;
            }
            let mut values = instance.values();
            values.retain(|statistic, _| wanted.wants_statistic(statistic));
            if !values.is_empty() {
                tree.insert(key, values);
            }
        }
        Snapshot { tree }
    }

    /// The instances with a living handle; the others are removed.
    fn living(&self) -> Vec<(Key, Arc<Instance>)> {
        let mut instances = lock(&self.instances);
        instances.retain(|_, instance| instance.strong_count() > 0);
        let held = |(key, instance): (&Key, &Weak<Instance>)| {
            instance.upgrade().map(|instance| (key.clone(), instance))
        };
        instances.iter().filter_map(held).collect()
    }
}

/// Statistics at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    tree: BTreeMap<Key, BTreeMap<String, Value>>,
}

impl Snapshot {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// One statistic.
    pub fn value(&self, module: &str, instance: u32, name: &str, stat: &str) -> Option<&Value> {
        let key = Key {
            module: module.to_owned(),
            instance,
            name: name.to_owned(),
        };
        self.tree.get(&key)?.get(stat)
    }

    /// Module, instance, name and statistics, in that order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32, &str, &BTreeMap<String, Value>)> {
        self.tree
            .iter()
            .map(|(k, values)| (k.module.as_str(), k.instance, k.name.as_str(), values))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_added_to_by_many_threads_are_exact() {
        let counter = Counter::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|_| counter.increment()));
            }
        });
        assert_eq!(counter.value(), 8000);
    }

    #[test]
    fn a_reader_finds_by_module_instance_name_and_statistic() {
        let registry = Registry::new();
        let cache = registry.instance("zfs", 0, "arcstats");
        let other = registry.instance("vdev", 1, "disk");
        cache.counter("hits").add(3);
        cache.gauge("size").set(-5);
        other.set_text("state", "ONLINE");
        assert_eq!(registry.snapshot("").iter().count(), 2);
        assert_eq!(registry.snapshot("vdev:0").iter().count(), 0);
        assert_eq!(registry.snapshot("vdev:1").iter().count(), 1);
        let hits = registry.snapshot(":::hits");
        assert_eq!(
            hits.value("zfs", 0, "arcstats", "hits"),
            Some(&Value::Counter(3))
        );
        assert_eq!(hits.value("zfs", 0, "arcstats", "size"), None);
    }

    #[test]
    fn asking_twice_gives_the_same_counter() {
        let registry = Registry::new();
        let first = registry.instance("a", 0, "b");
        first.counter("c").increment();
        registry.instance("a", 0, "b").counter("c").increment();
        assert_eq!(first.counter("c").value(), 2);
    }

    #[test]
    fn an_instance_without_a_handle_is_gone() {
        let registry = Registry::new();
        registry.instance("a", 0, "b").counter("c").increment();
        assert!(registry.snapshot("").is_empty());
    }
}
