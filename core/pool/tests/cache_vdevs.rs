//! Cache devices of a pool: added, filled under power cuts, found again, lost, discarded, removed.

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use support::files::{check_files, write_files};
use support::{create, import, machine, new_vdev, path};
use tarn_host::Host;
use tarn_host::sim::SimHost;
use tarn_ondisk::units::{Guid, ObjectId};
use tarn_pool::{CacheContents, Leaving, Mode, Pool};
use tarn_probe::Operation;
use tarn_vdev::import_search::{DevicePaths, search};
use tarn_vdev::{AuxiliaryKind, CacheDevice, OutOfUse, VdevState};

/// Enough for some log blocks of 64 entries.
const FILES: u64 = 8;
const CACHE_BYTES: u64 = (1 << 30) + (16 << 20);

fn with_cache() -> SimHost {
    let machine = machine(&["a"]);
    machine.add_disk(path("cache"), CACHE_BYTES);
    machine
}

fn reopen(host: &Host, contents: CacheContents, operation: &Operation) -> Arc<Pool> {
    let pool = import(host, Mode::ReadWrite, operation).unwrap();
    let paths = DevicePaths::of(&search(host, &[PathBuf::from("/disks")]));
    pool.load_auxiliary(&paths, operation).unwrap();
    pool.start_caches(contents, operation);
    pool.cache().rebuild(operation);
    // From here on the test feeds.
    pool.cache().stop_feeding();
    pool
}

fn add_cache(pool: &Pool, operation: &Operation) -> Arc<CacheDevice> {
    let config = new_vdev("cache").config;
    pool.add_caches(&[config], None, operation).unwrap();
    pool.cache().stop_feeding();
    pool.vdevs().cache_devices()[0].clone()
}

/// Writes files and has all their blocks on the cache device.
fn fill(pool: &Pool, operation: &Operation) -> Vec<ObjectId> {
    let files = write_files(pool, FILES, operation);
    pool.sync_all(operation).unwrap();
    pool.sync_all(operation).unwrap();
    check_files(pool, &files, operation);
    while pool.cache().feed(operation) > 0 {}
    files
}

fn errors(pool: &Pool) -> u64 {
    let caches = pool.vdevs().auxiliary().caches;
    let devices = caches.iter().filter_map(|config| {
        let device = pool.vdevs().cache_device(config.guid)?;
        Some(device.health(config).errors)
    });
    devices
        .map(|errors| errors.read + errors.write + errors.checksum)
        .sum()
}

#[test]
fn a_cache_device_is_found_again_with_what_it_has() {
    let machine = with_cache();
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let device = add_cache(&pool, &operation);
        let files = fill(&pool, &operation);
        let filled = device.allocated_bytes();
        assert!(filled > 1 << 20, "{filled} bytes");
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = reopen(host, CacheContents::Keep, &operation);
        let device = pool.vdevs().cache_devices()[0].clone();
        assert!(device.is_usable(), "{:?}", device.standing());
        let found = device.allocated_bytes();
        assert!(found > 1 << 20 && found <= filled, "{found} of {filled}");
        check_files(&pool, &files, &operation);
        assert_eq!(errors(&pool), 0);
        pool.close(Leaving::Exported, &operation).unwrap();
        // A pool that has gone back does not use what it finds there.
        let pool = reopen(host, CacheContents::Discard, &operation);
        assert_eq!(pool.vdevs().cache_devices()[0].allocated_bytes(), 0);
        check_files(&pool, &files, &operation);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_power_cut_at_any_write_of_feeding_costs_contents_only() {
    let mut found_bytes = Vec::new();
    for cut_after in (0..).map(|step: u64| 1 + step * step) {
        let machine = with_cache();
        let made = machine.run(|host| {
            let operation = Operation::unmeasured();
            let pool = create(host, &["a"], &operation);
            add_cache(&pool, &operation);
            let files = write_files(&pool, FILES, &operation);
            pool.close(Leaving::Exported, &operation).unwrap();
            files
        });
        let files = made.unwrap();
        let run = machine.run(|host| {
            let operation = Operation::unmeasured();
            let pool = reopen(host, CacheContents::Keep, &operation);
            check_files(&pool, &files, &operation);
            machine.cut_power_after_writes(machine.device_writes() + cut_after);
            while pool.cache().feed(&operation) > 0 {}
            machine.cut_power_after_writes(u64::MAX);
            pool.close(Leaving::Exported, &operation).unwrap();
        });
        let is_whole = run.is_ok();
        let machine = match is_whole {
            true => machine,
            false => machine.reboot(),
        };
        let after = machine.run(|host| {
            let operation = Operation::unmeasured();
            let pool = reopen(host, CacheContents::Keep, &operation);
            let bytes = pool.vdevs().cache_devices()[0].allocated_bytes();
            check_files(&pool, &files, &operation);
            let device = pool.vdevs().cache_devices()[0].clone();
            assert_eq!(device.standing().state, VdevState::Online, "{cut_after}");
            pool.close(Leaving::Exported, &operation).unwrap();
            bytes
        });
        found_bytes.push(after.unwrap());
        if is_whole {
            break;
        }
    }
    assert!(found_bytes.len() > 3, "{found_bytes:?}");
    assert_eq!(found_bytes[0], 0, "no log block was written");
    assert!(found_bytes.last().is_some_and(|bytes| *bytes > 1 << 20));
}

#[test]
fn a_cache_device_that_is_lost_or_another_is_shown_and_the_pool_does_without() {
    for is_lost in [true, false] {
        let machine = with_cache();
        let run = machine.run(|host| {
            let operation = Operation::unmeasured();
            let pool = create(host, &["a"], &operation);
            add_cache(&pool, &operation);
            let files = fill(&pool, &operation);
            pool.close(Leaving::Exported, &operation).unwrap();
            let size = match is_lost {
                // Too small to be a device.
                true => 1 << 20,
                false => CACHE_BYTES,
            };
            machine.add_disk(path("cache"), size);
            let pool = reopen(host, CacheContents::Keep, &operation);
            let device = pool.vdevs().cache_devices()[0].clone();
            assert_eq!(device.standing().state, VdevState::Unavailable);
            assert_eq!(pool.vdevs().health().standing.state, VdevState::Online);
            check_files(&pool, &files, &operation);
            pool.remove_auxiliary(AuxiliaryKind::Cache, device.guid(), &operation)
                .unwrap();
            assert!(pool.vdevs().auxiliary().caches.is_empty());
            let config = new_vdev("cache").config;
            let added = pool.add_caches(&[config], None, &operation);
            assert_eq!(added.is_ok(), !is_lost);
            check_files(&pool, &files, &operation);
            pool.close(Leaving::Exported, &operation).unwrap();
        });
        run.unwrap();
    }
}

#[test]
fn an_offline_cache_device_stays_so_and_comes_back_with_its_contents() {
    let machine = with_cache();
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let guid: Guid = add_cache(&pool, &operation).guid();
        let files = fill(&pool, &operation);
        pool.take_out_of_use(guid, OutOfUse::Offline, &operation)
            .unwrap();
        check_files(&pool, &files, &operation);
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = reopen(host, CacheContents::Keep, &operation);
        let state = || {
            let device = pool.vdevs().cache_device(guid).unwrap();
            device.standing().state
        };
        assert_eq!(state(), VdevState::Offline);
        pool.bring_online(guid, &operation).unwrap();
        pool.cache().rebuild(&operation);
        assert_eq!(state(), VdevState::Online);
        let device = pool.vdevs().cache_device(guid).unwrap();
        assert!(device.allocated_bytes() > 1 << 20);
        check_files(&pool, &files, &operation);
        assert_eq!(errors(&pool), 0);
        pool.remove_auxiliary(AuxiliaryKind::Cache, guid, &operation)
            .unwrap();
        assert_eq!(device.standing().state, VdevState::Unavailable);
        check_files(&pool, &files, &operation);
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = reopen(host, CacheContents::Keep, &operation);
        assert!(pool.vdevs().cache_devices().is_empty());
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}
