//! Scrubs of blocks that were born between two times.

mod support;

use std::time::Duration;
use support::files::{head, vdev, wait_for_scan, write_files};
use support::{create_of, import, machine, path};
use tarn_host::Host;
use tarn_ondisk::label::DATA_START_BYTES;
use tarn_ondisk::pool_directory::TXG_TIMES;
use tarn_ondisk::txg_times::TimeRing;
use tarn_ondisk::units::{BlockId, Txg};
use tarn_pool::find_block::{FoundBlock, find_block};
use tarn_pool::{Leaving, Mode, Pool, ScanChange};
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::VdevKind;

fn now_s(host: &Host) -> u64 {
    u64::try_from(host.unix_time().seconds).unwrap()
}

fn stored_txg(pool: &Pool) -> Txg {
    pool.uberblock().txg
}

/// Scrubs what was born between these times. Gives the bounds, and the errors.
fn scrub(host: &Host, pool: &Pool, (start_s, end_s): (u64, u64)) -> (Txg, Txg, u64) {
    let operation = Operation::unmeasured();
    let change = ScanChange::ScrubBetween { start_s, end_s };
    pool.change_scan(change, &operation).unwrap().unwrap();
    wait_for_scan(host, pool);
    let scan = pool.scan_status().unwrap().scan;
    (scan.txg_min, scan.txg_max, scan.error_count)
}

/// Three files are written at three hours, and a block of the second is damaged.
#[test]
fn a_scrub_between_two_dates_visits_what_was_born_then() {
    let machine = machine(&["a"]);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Read);
        let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
        let (mut files, mut hours) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            host.sleep(Duration::from_secs(3600));
            hours.push(now_s(host));
            files.extend(write_files(&pool, 1, &operation));
        }
        host.sleep(Duration::from_secs(3600));
        let set = head(&pool, &operation);
        let found = find_block(&set, files[1], (0, BlockId::from(0)), &operation);
        let FoundBlock::At(pointer) = found else {
            panic!("{found:?}");
        };
        let offset = pointer.dvas().next().unwrap().offset().get();
        let disk = world.disk(path("a")).unwrap();
        disk.poke(DATA_START_BYTES + offset, &[1; 512]);
        let birth = pointer.logical_birth;

        // An import knows the times.
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        let minute_s = 60;
        let before = (0, hours[1] - 30 * minute_s);
        let (min, max, errors) = scrub(host, &pool, before);
        assert!(min.is_zero() && max <= birth, "{max} {birth}");
        assert_eq!(errors, 0, "the damaged block is younger");
        let after = (hours[2] + minute_s, 0);
        let (min, _, errors) = scrub(host, &pool, after);
        assert!(min > birth, "{min} {birth}");
        assert_eq!(errors, 0, "the damaged block is older");
        let between = (hours[1] - minute_s, hours[1] + minute_s);
        let (min, max, errors) = scrub(host, &pool, between);
        assert!(min < birth && birth < max, "{min} {birth} {max}");
        assert_eq!(errors, 1);
        // Where no time is known, all is visited.
        let (min, _, errors) = scrub(host, &pool, (1, now_s(host) + 3600));
        assert!(min.is_zero());
        assert_eq!(errors, 1);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

/// In the form of OpenZFS 2.4: an array each in the pool directory.
#[test]
fn times_are_noted_every_ten_minutes_of_txgs() {
    let machine = machine(&["a"]);
    let run = machine.run(move |host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
        let begin_s = now_s(host);
        for _ in 0..30 {
            host.sleep(Duration::from_secs(100));
            write_files(&pool, 1, &operation);
        }
        let last = stored_txg(&pool);
        let stored = TXG_TIMES.map(|name| pool.directory(&operation).value(name).unwrap());
        let words = stored.map(|value| value.unwrap().to_words());
        assert_eq!(words.each_ref().map(|words| words[2]), [4, 1, 1]);
        let [_, _, months] = words.each_ref().map(|words| TimeRing::from_words(words));
        assert!(months.is_some());
        assert!(words[2][3].abs_diff(begin_s) < 10, "the first txg");
        let (minutes, txgs): (Vec<u64>, Vec<u64>) = words[0][3..]
            .as_chunks::<2>()
            .0
            .iter()
            .take(4)
            .map(|[time_s, txg]| (*time_s, *txg))
            .unzip();
        assert!(minutes.windows(2).all(|pair| pair[1] - pair[0] >= 600));
        assert!(txgs.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(txgs[3] <= last.get());
        // An idle pool notes nothing.
        host.sleep(Duration::from_secs(7200));
        let now = pool.directory(&operation).value(TXG_TIMES[0]).unwrap();
        assert_eq!(now.unwrap().to_words(), words[0]);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}
