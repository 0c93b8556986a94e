//! An idle pool.

mod support;

use support::{create, machine};
use tarn_pool::Leaving;
use tarn_probe::Operation;

/// Idle txgs are not stored, up to a bound: a log may be created in the open txg, and an import
/// refuses a log that is far ahead of the newest stored txg.
#[test]
fn the_open_group_is_never_far_ahead_of_what_is_stored() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        pool.sync_all(&operation).unwrap();
        let begin = pool.uberblock().txg;
        let (mut stored, mut ahead) = (0, 0);
        let mut newest = begin;
        for _ in 0..150_000 {
            let open = pool.txgs().open_txg();
            pool.txgs().wait_stored(open, &operation).unwrap();
            let now = pool.uberblock().txg;
            stored += u32::from(now != newest);
            newest = now;
            ahead = ahead.max(open.get() - now.get());
        }
        assert_eq!(stored, 2, "an idle pool is left alone");
        assert!(ahead <= 1 << 16, "{ahead}");
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}
