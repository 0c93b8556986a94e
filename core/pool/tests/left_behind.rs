//! What OpenZFS left in a pool that only OpenZFS can go on with.

mod support;

use std::sync::Arc;
use support::{change_mos, create, import, machine, new_zap, put};
use tarn_host::Host;
use tarn_object::zap::ZapValue;
use tarn_ondisk::history::name::EVENT_NAME;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::scan::{CANCELED, FINISHED, RESILVER, SCANNING, SCRUB, Scan};
use tarn_ondisk::units::ObjectId;
use tarn_pool::error::ImportError;
use tarn_pool::{Leaving, Mode, Pool};
use tarn_probe::Operation;

/// The head of the pool's root, which is in the queue of every scan.
fn head_of_root(pool: &Pool, operation: &Operation) -> ObjectId {
    let root = pool.namespace().view(operation).root().unwrap();
    root.head().unwrap().unwrap().id()
}

/// A pool in whose MOS such a scan is, and its queue.
fn pool_with_scan(host: &Host, scan: Scan, operation: &Operation) -> ObjectId {
    let pool = create(host, &["a"], operation);
    let head = head_of_root(&pool, operation);
    let mut queue = scan.queue;
    change_mos(&pool, operation, |tx, mos| {
        if queue.is_zero() {
            let zap = new_zap(tx, mos, ObjectType::ScanQueue, operation);
            let dataset = format!("{:x}", head.get());
            zap.insert(tx, &*dataset, &ZapValue::word(1)).unwrap();
            queue = zap.object().id();
        }
        let words = Scan { queue, ..scan }.to_words();
        put(tx, mos, name::SCAN, &ZapValue::Words(words), operation);
    });
    pool.close(Leaving::Exported, operation).unwrap();
    queue
}

fn scan_of(pool: &Arc<Pool>, operation: &Operation) -> Scan {
    let stored = pool.directory(operation).value(name::SCAN).unwrap();
    Scan::from_words(&stored.unwrap().to_words()).unwrap()
}

/// The queues in the MOS.
fn queues(pool: &Arc<Pool>, operation: &Operation) -> Vec<ObjectId> {
    let mut queues = Vec::new();
    let mut last = ObjectId::ZERO;
    while let Some(id) = pool.mos().next_object(last, operation).unwrap() {
        let object = pool.mos().object(id, operation).unwrap();
        if object.object_type() == ObjectType::ScanQueue {
            queues.push(id);
        }
        last = id;
    }
    queues
}

/// How often the history tells of a scan that was canceled.
fn cancellations(pool: &Arc<Pool>, operation: &Operation) -> usize {
    let records = tarn_pool::history::read(pool.directory(operation), operation).unwrap();
    let names = records
        .iter()
        .filter_map(|record| record.text(EVENT_NAME).ok());
    names.filter(|name| *name == "scan cancelled").count()
}

#[test]
fn a_scan_that_was_left_running_is_canceled_when_the_pool_is_written() {
    for (function, flags) in [(SCRUB, 0), (SCRUB, Scan::PAUSED), (RESILVER, 0)] {
        let machine = machine(&["a"]);
        let run = machine.run(|host| {
            let operation = Operation::unmeasured();
            let left = Scan {
                function,
                state: SCANNING,
                start_time_s: 1_000,
                examined_bytes: 512,
                flags,
                ..Scan::default()
            };
            let queue = pool_with_scan(host, left, &operation);
            let pool = import(host, Mode::ReadOnly, &operation).unwrap();
            assert_eq!(scan_of(&pool, &operation), Scan { queue, ..left });
            assert_eq!(queues(&pool, &operation), [queue]);
            pool.close(Leaving::Kept, &operation).unwrap();
            for _ in 0..2 {
                let pool = import(host, Mode::ReadWrite, &operation).unwrap();
                let scan = scan_of(&pool, &operation);
                assert!(scan.end_time_s > left.start_time_s);
                let expected = Scan {
                    state: CANCELED,
                    end_time_s: scan.end_time_s,
                    flags: 0,
                    ..left
                };
                assert_eq!(scan, expected);
                assert_eq!(queues(&pool, &operation), [], "a queue leaked");
                assert_eq!(cancellations(&pool, &operation), 1);
                pool.close(Leaving::Exported, &operation).unwrap();
            }
        });
        run.unwrap();
    }
}

#[test]
fn a_scan_that_has_ended_stays_as_it_is() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let ended = Scan {
            function: SCRUB,
            state: FINISHED,
            end_time_s: 1_000,
            ..Scan::default()
        };
        let queue = pool_with_scan(host, ended, &operation);
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        assert_eq!(scan_of(&pool, &operation), Scan { queue, ..ended });
        assert_eq!(cancellations(&pool, &operation), 0);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn what_a_scan_says_is_its_queue_and_is_not_is_not_freed() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let left = Scan {
            function: SCRUB,
            state: SCANNING,
            queue: name::POOL_DIRECTORY,
            ..Scan::default()
        };
        pool_with_scan(host, left, &operation);
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        let scan = scan_of(&pool, &operation);
        assert_eq!((scan.state, scan.queue), (CANCELED, ObjectId::ZERO));
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

/// How often deduplicated blocks are referenced is in tables that only OpenZFS writes: whoever frees one without them stops for good.
#[test]
fn a_pool_with_a_dedup_table_is_opened_read_only_or_not_at_all() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let add = |pool: &Pool, called: &str, object_type| {
            change_mos(pool, &operation, |tx, mos| {
                let table = new_zap(tx, mos, object_type, &operation);
                let table = ZapValue::word(table.object().id().get());
                put(tx, mos, called, &table, &operation);
            });
            pool.close(Leaving::Exported, &operation).unwrap();
        };
        add(&pool, name::DEDUP_STATISTICS, ObjectType::DedupStatistics);
        // Statistics alone are left when the last table is gone.
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        add(&pool, "DDT-sha256-zap-unique", ObjectType::DedupZap);
        let Err(refused) = import(host, Mode::ReadWrite, &operation) else {
            panic!("it was opened for writing");
        };
        let why = refused.to_string();
        assert!(matches!(refused, ImportError::Deduplicated { .. }), "{why}");
        assert!(why.contains("DDT-sha256-zap-unique"), "{why}");
        assert!(why.contains("readonly=on"), "{why}");
        let pool = import(host, Mode::ReadOnly, &operation).unwrap();
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}
