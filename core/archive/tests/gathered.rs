//! Operations and samples become seconds of the archive, in simulated time.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{answer, archive_on};
use tarn_analytics::{Analytics, Collected, ValueNames};
use tarn_archive::{DEFAULT_CAP_BYTES, Gatherer};
use tarn_host::{Host, SimHost, SimOptions};
use tarn_probe::{
    ClientId, DatasetId, HolderId, OperationKind, OperationRecord, Outcome, Protocol, What, Who,
};

/// A read by NFS that ends now.
fn read_now(host: &Host, latency_ns: u64, outcome: Outcome) -> OperationRecord {
    let who = Who {
        client: ClientId(17),
        protocol: Protocol::Nfs4,
        user: 1000,
        holder: HolderId::NONE,
    };
    let what = What {
        kind: OperationKind::Read,
        dataset: DatasetId(1),
        object: 7,
        offset: 0,
        size: 4096,
    };
    let started_ns = host.monotonic_ns() - latency_ns;
    OperationRecord::new(started_ns, latency_ns, &who, &what, outcome.bit(), &[0; 9])
}

/// A collector that passes over all time since its last pass, and these operations.
fn collect(analytics: &Analytics, host: &Host, covered_ns: &mut u64, records: &[OperationRecord]) {
    analytics.take(records);
    let now_ns = host.monotonic_ns();
    analytics.note_collected(*covered_ns..now_ns, 0);
    *covered_ns = now_ns;
}

fn unix_s(host: &Host) -> u64 {
    host.unix_time().seconds.try_into().unwrap()
}

#[test]
fn operations_are_archived_in_the_second_of_unix_time_in_which_they_ended() {
    let machine = SimHost::new(SimOptions::seed(1));
    let run = machine.run(|host| {
        let archive = Arc::new(archive_on(host, DEFAULT_CAP_BYTES));
        let analytics = Arc::new(Analytics::new(0));
        let mut names = ValueNames::new();
        names.add_client(ClientId(17), "kiowa");
        let mut gatherer = Gatherer::new(host, archive.clone(), analytics.clone());
        let mut covered_ns = host.monotonic_ns();
        host.sleep(Duration::from_millis(1150));
        collect(&analytics, host, &mut covered_ns, &[]);
        let begin_s = unix_s(host);
        let mut late = Vec::new();
        for number in 0..20_u64 {
            let outcome = if number % 2 == 0 {
                Outcome::Disk
            } else {
                Outcome::CacheHit
            };
            let reads: Vec<OperationRecord> = (0..=number)
                .map(|_| read_now(host, 1_000_000, outcome))
                .collect();
            host.sleep(Duration::from_secs(1));
            // The last read of each second reaches the collector a second late.
            collect(&analytics, host, &mut covered_ns, &late);
            late = reads[..1].to_vec();
            collect(&analytics, host, &mut covered_ns, &reads[1..]);
            gatherer.gather(host, &names);
        }
        collect(&analytics, host, &mut covered_ns, &late);
        host.sleep(Duration::from_secs(1));
        gatherer.gather(host, &names);
        let sums = |text: &str| -> Vec<u64> {
            let answer = answer(&archive, text, begin_s, begin_s + 20, 1);
            let is_whole =
                |column: &tarn_archive::ArchivedColumn| column.collected == Collected::Whole;
            assert!(
                answer.columns.iter().all(is_whole),
                "{text}: {:?}",
                answer.columns
            );
            answer.total.iter().map(|cell| cell.sum).collect()
        };
        let expected: Vec<u64> = (1..=20).collect();
        assert_eq!(sums("nfs.ops"), expected);
        assert_eq!(sums("nfs.ops[op=read]"), expected);
        assert_eq!(sums("nfs.ops[client=kiowa]"), expected);
        assert_eq!(sums("fuse.ops"), [0; 20]);
        let disk = |number: u64| if number % 2 == 1 { number } else { 0 };
        assert_eq!(
            sums("nfs.ops[cause=disk]"),
            expected.iter().map(|n| disk(*n)).collect::<Vec<_>>()
        );
        let bytes: Vec<u64> = expected.iter().map(|number| number * 4096).collect();
        assert_eq!(sums("nfs.bytes"), bytes);
        assert!(
            analytics.instrumentations().is_empty(),
            "people see none of the archive's"
        );
    });
    run.unwrap();
}

/// A simulated machine has no counters: sampled statistics are not collected, and not zero.
#[test]
fn what_was_not_sampled_is_not_collected() {
    let machine = SimHost::new(SimOptions::seed(2));
    let run = machine.run(|host| {
        let archive = Arc::new(archive_on(host, DEFAULT_CAP_BYTES));
        let analytics = Arc::new(Analytics::new(0));
        let thread = archive.start(host, &analytics, Box::new(ValueNames::new));
        let begin_s = unix_s(host);
        host.sleep(Duration::from_secs(10));
        thread.stop();
        assert_eq!(archive.state().newest_s, Some(begin_s + 8));
        let answer = answer(&archive, "mem.bytes[use]", begin_s, begin_s + 10, 1);
        let is_not =
            |column: &tarn_archive::ArchivedColumn| column.collected == Collected::NotCollected;
        assert!(answer.columns.iter().all(is_not));
        // The collector made no pass, so nothing is known of operations either.
        let answer = support::answer(&archive, "nfs.ops", begin_s, begin_s + 10, 1);
        assert!(answer.columns.iter().all(is_not));
    });
    run.unwrap();
}
