//! The thread that archives: once a second what instrumentations counted and what was sampled.
//!
//! # Mechanism
//! Instrumentations of `analytics` count by seconds of Unix time
//! ([`Analytics::instrument_seconds`]). A moment after each second its counts become a column with
//! the samples of that moment. Until a second is [`AGAIN_S`] old it is looked at again: where
//! operations came late, or the collector was, it is appended once more in its new form.
//!
//! # Invariants
//! - A second is appended with what is known of its collection; a second that this thread missed
//!   altogether is not there, which is told as not collected.
//! - When the time of day was set, instrumentations begin anew: no operation is counted in two
//!   seconds.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tarn_analytics::{Analytics, Field, InstrumentationId, Key, Statement, Tally, ValueNames};
use tarn_host::{Host, RepeatingThread, ThreadPlace, UnixTime};

use crate::archive_store::Archive;
use crate::cell::{Cell, Column, ColumnHead, NAME_BYTES_MAX, SeriesId};
use crate::kept_statements::KEPT_STATEMENTS;
use crate::sampler::Sampler;

const SECOND_NS: i128 = 1_000_000_000;
/// So long after its end a second is archived: three passes of the collector.
const AFTER: Duration = Duration::from_millis(150);
/// Seconds that are looked at again.
const AGAIN_S: u64 = 3;
/// Seconds that are archived at once after the thread stood still. Older ones are not collected.
const MISSED_MAX_S: u64 = 10;
/// Keys of a statement that are told apart in a second.
const KEYS_MAX: usize = 20;
/// The time of day may differ by so much from what instrumentations count by.
const STEP_NS: i128 = 200_000_000;

/// The names of clients, users and datasets of keys, as they are now.
pub type NamesOfKeys = dyn Fn() -> ValueNames + Send;

impl Archive {
    /// Starts the thread that archives what `analytics` counts and what is sampled.
    pub fn start(
        self: &Arc<Self>,
        host: &Host,
        analytics: &Arc<Analytics>,
        names: Box<NamesOfKeys>,
    ) -> RepeatingThread {
        let host_of_thread = host.clone();
        let (archive, analytics) = (self.clone(), analytics.clone());
        let name = "tarn-archive";
        RepeatingThread::start(host, name, ThreadPlace::Background, move |end| {
            let host = host_of_thread;
            let mut gatherer = Gatherer::new(&host, archive, analytics);
            while !end.comes_within(until_next_second(host.unix_time())) {
                gatherer.gather(&host, &names());
            }
            gatherer.end();
        })
    }
}

/// How long it is to the moment after the end of this second.
fn until_next_second(now: UnixTime) -> Duration {
    let into = Duration::from_nanos(now.nanoseconds.into());
    match into < AFTER {
        true => AFTER - into,
        false => Duration::from_secs(1) + AFTER - into,
    }
}

/// What gathers seconds.
#[derive(Debug)]
pub struct Gatherer {
    archive: Arc<Archive>,
    analytics: Arc<Analytics>,
    sampler: Sampler,
    /// Unix time less the clock of operations, in nanoseconds.
    ahead_ns: i128,
    instrumentations: Vec<Instrumented>,
    /// Seconds that were appended lately.
    recent: BTreeMap<u64, Column>,
    /// Samples of seconds, which are taken once.
    samples: BTreeMap<u64, Vec<(SeriesId, Cell)>>,
    /// The first second that the instrumentations counted whole.
    first_s: u64,
}

#[derive(Debug)]
struct Instrumented {
    text: &'static str,
    by: Vec<Field>,
    id: InstrumentationId,
}

impl Gatherer {
    /// Begins to count. What came before is not archived.
    pub fn new(host: &Host, archive: Arc<Archive>, analytics: Arc<Analytics>) -> Gatherer {
        let mut gatherer = Gatherer {
            archive,
            analytics,
            sampler: Sampler::default(),
            ahead_ns: 0,
            instrumentations: Vec::new(),
            recent: BTreeMap::new(),
            samples: BTreeMap::new(),
            first_s: 0,
        };
        gatherer.begin(host);
        gatherer
    }

    /// Makes the instrumentations, by the time of day that it is now.
    fn begin(&mut self, host: &Host) {
        self.end();
        let now_ns = host.monotonic_ns();
        self.ahead_ns = ahead_ns(host);
        let names = ValueNames::new();
        for text in KEPT_STATEMENTS {
            let statement = Statement::parse(text).expect("a constant of this crate");
            let predicate = (statement.predicate.compile(&names)).expect("names that are fixed");
            let breakdown = statement.breakdown();
            let by = breakdown.by().to_vec();
            let shift_ns = u64::try_from(self.ahead_ns).unwrap_or(0);
            let analytics = &self.analytics;
            let id = analytics.instrument_seconds(predicate, breakdown, KEYS_MAX, now_ns, shift_ns);
            let id = id.expect("the archive has fewer than it may have");
            self.instrumentations.push(Instrumented { text, by, id });
        }
        self.recent.clear();
        self.samples.clear();
        self.first_s = self.second_of(now_ns) + 1;
    }

    /// Ends the instrumentations.
    pub fn end(&mut self) {
        for instrumented in self.instrumentations.drain(..) {
            self.analytics.remove_instrumentation(instrumented.id);
        }
    }

    fn second_of(&self, clock_ns: u64) -> u64 {
        let unix_ns = i128::from(clock_ns) + self.ahead_ns;
        u64::try_from(unix_ns / SECOND_NS).unwrap_or(0)
    }

    /// Archives the seconds that have ended, and those before them once more where they changed.
    /// Seconds that cannot be appended count as not collected: [`Archive::state`].
    pub fn gather(&mut self, host: &Host, names: &ValueNames) {
        if (ahead_ns(host) - self.ahead_ns).abs() > STEP_NS {
            return self.begin(host);
        }
        let now_ns = host.monotonic_ns();
        let newest = self.second_of(now_ns).saturating_sub(1);
        let oldest = newest.saturating_sub(AGAIN_S).max(self.first_s);
        let last = self.recent.last_key_value().map(|(second, _)| *second);
        let missed = last
            .map_or(newest, |last| last + 1)
            .max(newest.saturating_sub(MISSED_MAX_S));
        let oldest = oldest.min(missed).max(self.first_s);
        if oldest > newest {
            return;
        }
        if last.is_none_or(|last| last < newest) {
            let samples = self.sampler.sample(host, now_ns);
            self.samples.insert(newest, samples);
        }
        for column in self.columns(oldest..=newest, now_ns, names) {
            if self.recent.get(&column.start_s) != Some(&column) {
                let _ = self.archive.append(column.clone());
                self.recent.insert(column.start_s, column);
            }
        }
        self.recent.retain(|second, _| *second + AGAIN_S >= newest);
        self.samples
            .retain(|second, _| *second + MISSED_MAX_S >= newest);
    }

    fn columns(
        &self,
        seconds: RangeInclusive<u64>,
        now_ns: u64,
        names: &ValueNames,
    ) -> Vec<Column> {
        let mut cells = BTreeMap::<u64, Vec<(Arc<SeriesId>, Cell)>>::new();
        for instrumented in &self.instrumentations {
            let results = self
                .analytics
                .live_results(instrumented.id, *seconds.start(), now_ns);
            for second in results.into_iter().flat_map(|results| results.seconds) {
                let cells = cells.entry(second.second).or_default();
                for (key, tally) in &second.groups {
                    let series = instrumented.series(key, names);
                    cells.push((Arc::new(series), Cell::of_tally(tally)));
                }
                if second.other != Tally::default() {
                    let other = Arc::new(SeriesId::other(instrumented.text));
                    cells.push((other, Cell::of_tally(&second.other)));
                }
            }
        }
        let column = |second: u64| {
            let samples = self.samples.get(&second).into_iter().flatten();
            let samples = samples.map(|(series, cell)| (Arc::new(series.clone()), cell.clone()));
            let mut cells = cells.remove(&second).unwrap_or_default();
            cells.extend(samples);
            Column {
                start_s: second,
                head: self.head(second),
                cells,
            }
        };
        seconds.map(column).collect()
    }

    fn head(&self, second: u64) -> ColumnHead {
        let clock_ns = |second: u64| {
            let clock_ns = i128::from(second) * SECOND_NS - self.ahead_ns;
            u64::try_from(clock_ns).unwrap_or(0)
        };
        let range_ns = clock_ns(second)..clock_ns(second + 1);
        let (collected, dropped) = self.analytics.flight_recorder().coverage(&range_ns);
        ColumnHead::of_second(collected, dropped)
    }
}

impl Instrumented {
    fn series(&self, key: &Key, names: &ValueNames) -> SeriesId {
        let values: Vec<String> = (self.by.iter().zip(key))
            .map(|(field, key)| {
                let mut name = names.name(*field, *key);
                let end = (0..=NAME_BYTES_MAX.min(name.len())).rev();
                let end = end.into_iter().find(|end| name.is_char_boundary(*end));
                name.truncate(end.unwrap_or(0));
                name
            })
            .collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        SeriesId::new(self.text, &values)
    }
}

fn ahead_ns(host: &Host) -> i128 {
    let unix = host.unix_time();
    let unix_ns = i128::from(unix.seconds) * SECOND_NS + i128::from(unix.nanoseconds);
    unix_ns - i128::from(host.monotonic_ns())
}
