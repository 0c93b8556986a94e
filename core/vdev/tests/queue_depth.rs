//! The depth of a device's queue is found from what the device does.
//!
//! Random reads of 4 KiB by many threads, on a disk with one arm and on one that is really ten,
//! with each of some fixed depths and with the depth that is found: the sweep is printed.

mod common;

use common::Disks;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_host::sim::{DiskModel, Random};
use tarn_host::{SimHost, SimOptions};
use tarn_ondisk::units::{Txg, VdevId, VdevOffset};
use tarn_probe::Operation;
use tarn_vdev::{Place, ReadRequest, VdevKind};

const THREADS: u64 = 16;
const BATCH: usize = 16;
const READ_BYTES: u64 = 4096;

/// Requests in a second, with this depth, or the one that is found; and the depth at the end.
fn rate(arms: u32, depth: Option<u32>, requests: u64) -> (u64, u32) {
    let options = SimOptions {
        is_direct: true,
        switch_one_in: 0,
        ..SimOptions::seed(7)
    };
    let machine = SimHost::new(options);
    let disks = Disks::of(machine.clone(), &[(VdevKind::File, 1)], 12);
    // The disk is so small that sorted reads would often lie a little ahead.
    disks.disk(0).set_model(DiskModel {
        arms,
        passes_over: false,
        ..DiskModel::ROTATING
    });
    let run = machine.run(|host| {
        let tree = disks.open();
        tree.leaves()[0].set_queue_depth(depth);
        let blocks = tree.top_levels()[0].asize.get() / READ_BYTES;
        // The first half lets the depth settle.
        let read = |count: u64| {
            let began_ns = host.monotonic_ns();
            let left = Arc::new(AtomicU64::new(count));
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (tree, left) = (tree.clone(), left.clone());
                    host.spawn("reads", move || {
                        let mut random = Random::new(thread);
                        let operation = Operation::unmeasured();
                        while left.load(Ordering::Relaxed) > 0 {
                            let requests = (0..BATCH).map(|_| ReadRequest {
                                place: Place {
                                    vdev: VdevId::from(0),
                                    offset: VdevOffset::from(random.below(blocks) * READ_BYTES),
                                    size: READ_BYTES,
                                    birth: Txg::INITIAL,
                                },
                                verify: &|_| true,
                                is_settled: &|| true,
                                noted: None,
                            });
                            let requests: Vec<_> = requests.collect();
                            drop(tree.read_many(&requests, &operation));
                            let done = u64::try_from(BATCH).unwrap();
                            let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                                Some(n.saturating_sub(done))
                            });
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            let took_ns = host.monotonic_ns() - began_ns;
            count * 1_000_000_000 / took_ns.max(1)
        };
        read(requests / 2);
        let rate = read(requests / 2);
        let depth = tree.leaves()[0].queue_depth().0;
        tree.close();
        (rate, depth)
    });
    run.unwrap()
}

#[test]
fn the_depth_that_is_found_is_as_good_as_the_best() {
    for arms in [1, 10] {
        let depths = [2, 4, 8, 16, 32, 64, 127];
        let mut best = 0;
        for depth in depths {
            let (rate, _) = rate(arms, Some(depth), 8_000);
            println!("{arms} arms, depth {depth}: {rate} reads a second");
            best = best.max(rate);
        }
        let (found, depth) = rate(arms, None, 60_000);
        println!("{arms} arms: {found} reads a second with a depth of {depth} that was found");
        assert!(found * 100 >= best * 80, "{found} of {best}");
        if arms == 1 {
            assert!(depth <= 6, "one arm needs no depth: {depth}");
        }
    }
}
