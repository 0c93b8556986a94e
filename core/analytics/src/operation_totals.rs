//! Totals of operations since the collector began, by protocol, kind and dataset.
//!
//! # Problem
//! Programs that keep histories of their own (Prometheus, InfluxDB) read counters now and then.
//! What they get must never go back, and each operation must be in it once, however seldom they
//! come.
//!
//! # Mechanism
//! The collector adds each record that it drains. Requests to devices are left out: they are parts
//! of operations, and vdevs count them.
//!
//! # Invariants
//! - Each number only grows.
//! - The counts of all totals are the operations that were drained, less requests to devices.
//! - At most [`KEYS_MAX`] keys are told apart, and some hundred more without their datasets.

use tarn_probe::{DatasetId, OperationKind, OperationRecord, Protocol};

use crate::field::Cause;
use crate::key_table::KeyTable;
use crate::tally::Tally;

/// Keys that are told apart: with their histograms some 8 MiB.
const KEYS_MAX: usize = 4096;
/// A key of operations whose dataset is not told apart.
const IS_OTHER: u64 = 1 << 48;

/// What was counted of one protocol, kind and dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationTotal {
    /// By which way they came.
    pub protocol: Protocol,
    /// What was asked for.
    pub kind: OperationKind,
    /// Of which dataset; none where there are too many to tell them apart.
    pub dataset: Option<DatasetId>,
    /// How many there were, their latencies in nanoseconds, and the sum of those.
    pub latency: Tally,
    /// The sum of their sizes.
    pub bytes: u64,
    /// How many failed.
    pub errors: u64,
    /// How many had each cause, at its place in [`Cause::ALL`].
    pub causes: [u64; Cause::ALL.len()],
}

/// All totals.
#[derive(Debug, Default)]
pub(crate) struct OperationTotals {
    keys: KeyTable<1>,
    totals: Vec<OperationTotal>,
}

impl OperationTotals {
    /// Counts records.
    pub(crate) fn count(&mut self, records: &[OperationRecord]) {
        let mut last: Option<(u64, usize)> = None;
        for record in records {
            let kind = record.kind().unwrap_or(OperationKind::Other);
            let protocol = record.protocol().unwrap_or(Protocol::Internal);
            if protocol == Protocol::Device {
                continue;
            }
            let key = key_of(protocol, kind, record.dataset);
            let place = match last {
                Some((known, place)) if known == key => place,
                _ => self.place_of(key, protocol, kind, record.dataset),
            };
            last = Some((key, place));
            self.totals[place].add(record);
        }
    }

    /// What was counted so far.
    pub(crate) fn all(&self) -> Vec<OperationTotal> {
        self.totals.clone()
    }

    fn place_of(
        &mut self,
        key: u64,
        protocol: Protocol,
        kind: OperationKind,
        dataset: DatasetId,
    ) -> usize {
        let found = self.keys.find_or_add(&[key], KEYS_MAX);
        let told = found.map(|_| dataset);
        let place = found.unwrap_or_else(|| {
            let other = key_of(protocol, kind, DatasetId::NONE) | IS_OTHER;
            let place = self.keys.find_or_add(&[other], usize::MAX);
            place.expect("a table without a bound takes each key")
        });
        if place == self.totals.len() {
            self.totals.push(OperationTotal {
                protocol,
                kind,
                dataset: told,
                latency: Tally::default(),
                bytes: 0,
                errors: 0,
                causes: [0; Cause::ALL.len()],
            });
        }
        place
    }
}

fn key_of(protocol: Protocol, kind: OperationKind, dataset: DatasetId) -> u64 {
    u64::from(dataset.0) << 16 | u64::from(kind.number()) << 8 | u64::from(protocol.number())
}

impl OperationTotal {
    fn add(&mut self, record: &OperationRecord) {
        let latency_ns = record.latency_ns();
        self.latency.add(latency_ns, Some(latency_ns));
        self.bytes = self.bytes.wrapping_add(record.size.into());
        let cause = Cause::of(record.outcome_bits().into());
        self.errors += u64::from(record.is_marked(tarn_probe::Outcome::Error));
        let place = usize::try_from(cause.number()).expect("causes are few");
        self.causes[place] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_probe::{Outcome, Stage, What, Who};

    fn record(protocol: Protocol, kind: OperationKind, dataset: u32, ns: u64) -> OperationRecord {
        let who = Who {
            protocol,
            ..Who::INTERNAL
        };
        let what = What {
            size: 4096,
            ..What::plain(kind, DatasetId(dataset), 7)
        };
        let outcome = if ns > 1_000_000 {
            Outcome::Disk
        } else {
            Outcome::CacheHit
        };
        OperationRecord::new(5, ns, &who, &what, outcome.bit(), &[0; Stage::COUNT])
    }

    #[test]
    fn each_operation_is_in_one_total() {
        let mut totals = OperationTotals::default();
        let read = |ns| record(Protocol::Nfs3, OperationKind::Read, 3, ns);
        let device = record(Protocol::Device, OperationKind::Read, 3, 50);
        totals.count(&[read(900), read(2_000_000), device]);
        totals.count(&[read(900), record(Protocol::Fuse, OperationKind::Read, 3, 5)]);
        let all = totals.all();
        assert_eq!(all.len(), 2);
        let nfs = &all[0];
        assert_eq!(
            (nfs.protocol, nfs.dataset),
            (Protocol::Nfs3, Some(DatasetId(3)))
        );
        assert_eq!((nfs.latency.count, nfs.latency.sum), (3, 2_001_800));
        assert_eq!((nfs.bytes, nfs.errors), (3 * 4096, 0));
        assert_eq!(nfs.causes.iter().sum::<u64>(), 3);
        assert_eq!(nfs.latency.cells().map(|(_, count)| count).sum::<u64>(), 3);
    }

    #[test]
    fn datasets_beyond_the_bound_are_counted_together() {
        let mut totals = OperationTotals::default();
        let count = u32::try_from(KEYS_MAX).unwrap() + 100;
        for dataset in 1..=count {
            totals.count(&[record(Protocol::Nfs4, OperationKind::Write, dataset, 100)]);
        }
        // Datasets that are known go on being told apart.
        totals.count(&[record(Protocol::Nfs4, OperationKind::Write, 1, 100)]);
        let all = totals.all();
        assert_eq!(all.len(), KEYS_MAX + 1);
        assert_eq!(
            (all[0].latency.count, all[0].dataset),
            (2, Some(DatasetId(1)))
        );
        let last = all.last().unwrap();
        assert_eq!((last.dataset, last.latency.count), (None, 100));
    }
}
