//! Pools with a scan, dedup tables or error logs of OpenZFS that were left behind.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use support::{change_mos, create, create_without, import, machine, new_zap, put};
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_host::Host;
use tarn_object::zap::ZapValue;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::scan::{FINISHED, NO_DATASET, RESILVER, SCANNING, SCRUB, Scan};
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_pool::error::ImportError;
use tarn_pool::{Leaving, Mode, Pool, PoolPropertyChange};
use tarn_probe::Operation;

/// The head of the root dataset, which is in the queue of every scan.
fn head_of_root(pool: &Pool, operation: &Operation) -> ObjectId {
    let root = pool.namespace().view(operation).root().unwrap();
    root.head().unwrap().unwrap().id()
}

/// A pool with this scan in its MOS; returns the scan's queue.
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

/// The objects of this type in the MOS.
fn objects_for(pool: &Pool, wanted: ObjectType, operation: &Operation) -> Vec<ObjectId> {
    let mut found = Vec::new();
    let mut last = ObjectId::ZERO;
    while let Some(id) = pool.mos().next_object(last, operation).unwrap() {
        let object = pool.mos().object(id, operation).unwrap();
        if object.object_type() == wanted {
            found.push(id);
        }
        last = id;
    }
    found
}

/// A queue with a dataset that is there, and one with a number that belongs to none.
#[test]
fn a_scan_that_was_left_running_goes_on_when_the_pool_is_written() {
    for (function, flags) in [(SCRUB, 0), (SCRUB, Scan::VISIT_AGAIN), (RESILVER, 0)] {
        let machine = machine(&["a"]);
        let run = machine.run(|host| {
            let operation = Operation::unmeasured();
            let mut left = Scan {
                function,
                state: SCANNING,
                start_time_s: 1_000,
                examined_bytes: 512,
                txg_max: Txg::new(100),
                flags,
                ..Scan::default()
            };
            left.mark.objset = NO_DATASET;
            let queue = pool_with_scan(host, left, &operation);
            let pool = import(host, Mode::ReadOnly, &operation).unwrap();
            assert_eq!(scan_of(&pool, &operation), Scan { queue, ..left });
            pool.close(Leaving::Kept, &operation).unwrap();
            let pool = import(host, Mode::ReadWrite, &operation).unwrap();
            while pool.scan_status().unwrap().is_running() {
                host.sleep(std::time::Duration::from_millis(10));
            }
            pool.sync_all(&operation).unwrap();
            let scan = scan_of(&pool, &operation);
            assert_eq!((scan.state, scan.error_count), (FINISHED, 0));
            assert!(scan.end_time_s > left.start_time_s);
            let queues = objects_for(&pool, ObjectType::ScanQueue, &operation);
            assert_eq!(queues, [], "a queue leaked");
            pool.close(Leaving::Exported, &operation).unwrap();
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
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn an_object_that_is_no_scan_queue_is_not_freed() {
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
        while pool.scan_status().unwrap().is_running() {
            host.sleep(std::time::Duration::from_millis(10));
        }
        pool.sync_all(&operation).unwrap();
        let scan = scan_of(&pool, &operation);
        assert_eq!((scan.state, scan.queue), (FINISHED, ObjectId::ZERO));
        assert!(pool.mos().object(name::POOL_DIRECTORY, &operation).is_ok());
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

/// The reference counts of deduplicated blocks are in tables that only OpenZFS writes: frees
/// without them make OpenZFS panic.
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
        // When the last table is gone, only statistics are left.
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

/// With the feature `head_errlog` error logs have another form: enabling it converts the existing
/// ones.
#[test]
fn errors_stay_known_when_logs_begin_to_list_them_by_head() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create_without(host, &["a"], &[Feature::HeadErrlog], &operation);
        let head = head_of_root(&pool, &operation);
        let snapshots = TakeSnapshots {
            names: vec!["tank@one".to_string()],
            settings: Vec::new(),
        };
        pool.run(snapshots, &operation).unwrap();
        let view = pool.namespace().view(&operation);
        let snapshot = view
            .dataset(&DatasetName::parse("tank@one").unwrap())
            .unwrap()
            .id();
        let [last, scrub] = [
            vec![
                format!("{head:x}:2:0:1f"),
                format!("{snapshot:x}:5:1:0"),
                "0:3e:0:0".to_string(),
                "no place".to_string(),
            ],
            vec![format!("{snapshot:x}:7:0:0"), "ffff:1:0:0".to_string()],
        ];
        change_mos(&pool, &operation, |tx, mos| {
            for (called, errors) in [
                (name::ERROR_LOG_LAST, &last),
                (name::ERROR_LOG_SCRUB, &scrub),
            ] {
                let log = new_zap(tx, mos, ObjectType::ErrorLog, &operation);
                for error in errors {
                    log.insert(tx, &**error, &ZapValue::text("")).unwrap();
                }
                let log = ZapValue::word(log.object().id().get());
                put(tx, mos, called, &log, &operation);
            }
        });
        let enable = vec![PoolPropertyChange::Enable(Feature::HeadErrlog)];
        pool.change_properties(enable, &operation).unwrap();
        pool.close(Leaving::Exported, &operation).unwrap();

        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        let directory = pool.directory(&operation);
        let listed = |called: &'static str| {
            let mut listed = BTreeMap::new();
            for (head, errors) in directory
                .entries(directory.require(called).unwrap())
                .unwrap()
            {
                let errors = ObjectId::new(errors.as_word().unwrap());
                let errors = directory.entries(errors).unwrap().into_iter();
                let mut errors: Vec<_> = errors.map(|(error, _)| error).collect();
                errors.sort();
                listed.insert(head, errors);
            }
            listed
        };
        let expect = |errors: &[(&str, &[&str])]| -> BTreeMap<String, Vec<String>> {
            let each = errors.iter().map(|(head, errors)| {
                let errors = errors.iter().map(ToString::to_string).collect();
                (head.to_string(), errors)
            });
            each.collect()
        };
        let head = format!("{head:x}");
        let last = expect(&[(&head, &["2:0:1f:0", "5:1:0:0"]), ("0", &["3e:0:0:0"])]);
        assert_eq!(listed(name::ERROR_LOG_LAST), last);
        let scrub = expect(&[(&head, &["7:0:0:0"]), ("ffff", &["1:0:0:0"])]);
        assert_eq!(listed(name::ERROR_LOG_SCRUB), scrub);
        let logs = objects_for(&pool, ObjectType::ErrorLog, &operation);
        assert_eq!(logs.len(), 2 + 4, "a log leaked");
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}
