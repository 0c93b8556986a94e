//! Coherence of holders of one file system: a mount, through the kernel, one that calls `posix`
//! directly, and the NFS server with two clients of version 3.
//!
//! # Problem
//! The kernel caches names, attributes and pages of a mount. When another holder changes the file
//! system, the kernel's older caches are stale.
//!
//! # Mechanism
//! Operations are drawn from a seed and done by one of the two holders, and to a model. Before and
//! after each, its files and names are checked through both: through open files, mappings and paths
//! of the mount, so that the kernel has them in its caches, and directly. Both must show the model,
//! and the same times to the nanosecond.
//!
//! A canary does one kind of operation directly in the name of the mount, which then gets no
//! notice: the checks must find that.
//!
//! Root only, and where there is FUSE. Elsewhere these tests print that they checked nothing.
//! `TARN_COHERENCE_SEEDS` and `TARN_COHERENCE_OPERATIONS` (of each seed) make them longer.

#[path = "coherence/attributes.rs"]
mod attributes;
#[path = "coherence/bench.rs"]
mod bench;
#[path = "coherence/checks.rs"]
mod checks;
#[path = "../../nfs/tests/support/client.rs"]
#[allow(dead_code, reason = "the tests of NFS use more of it")]
mod client;
#[path = "coherence/contents.rs"]
mod contents;
#[path = "coherence/locks.rs"]
mod locks;
#[path = "coherence/model.rs"]
mod model;
#[path = "coherence/nfs_clients.rs"]
mod nfs_clients;
#[path = "coherence/world.rs"]
mod world;

use bench::Bench;
use std::time::Instant;
use world::{Deed, World};

fn from_environment(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn a_mount_and_a_direct_holder_show_the_same_after_every_operation() {
    let seeds = from_environment("TARN_COHERENCE_SEEDS", 2);
    let operations = from_environment("TARN_COHERENCE_OPERATIONS", 1500);
    for seed in 1..=seeds {
        let Some(bench) = Bench::new() else { return };
        let began = Instant::now();
        let mut world = World::new(&bench, seed, None);
        if let Err(fault) = world.run(operations) {
            panic!("seed {seed}: {fault}");
        }
        eprintln!(
            "seed {seed}: {operations} operations, {} by the mount, in {:?}",
            world.by_mount(),
            began.elapsed()
        );
    }
}

#[test]
fn a_mount_and_two_nfs_clients_show_the_same_after_every_operation() {
    let seeds = from_environment("TARN_COHERENCE_SEEDS", 2);
    let operations = from_environment("TARN_COHERENCE_OPERATIONS", 1500) / 2;
    for seed in 1..=seeds {
        let Some(bench) = Bench::new() else { return };
        let mut world = World::new(&bench, 100 + seed, None);
        world.clients = vec![bench.client(), bench.client()];
        if let Err(fault) = world.run(operations) {
            panic!("seed {seed}: {fault}");
        }
    }
}

#[test]
fn a_change_without_a_notice_is_found() {
    for deed in Deed::TOLD {
        let Some(bench) = Bench::new() else { return };
        let mut world = World::new(&bench, 7, Some(deed));
        let outcome = world.run(5000);
        let fault = outcome.expect_err(&format!("{deed:?} was not told, and nothing was stale"));
        eprintln!(
            "{deed:?}: {}",
            fault.to_string().lines().next().unwrap_or("")
        );
    }
}
