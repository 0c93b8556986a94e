//! `zpool add`: a vdev is stored with all its objects, or not at all.

mod support;

use support::{create, import, machine, new_vdev, path};
use tarn_host::sim::Fault;
use tarn_host::{Action, Errno};
use tarn_ondisk::units::ObjectId;
use tarn_pool::error::ImportError;
use tarn_pool::{Leaving, Mode, Pool};
use tarn_probe::Operation;
use tarn_space::Class;

/// The pool's devices.
fn devices(pool: &Pool) -> Vec<String> {
    let root = pool.vdevs().config();
    let paths = root.leaves().into_iter().map(|leaf| leaf.path.clone());
    paths.flatten().map(|path| path.to_string()).collect()
}

/// Checks that every vdev has its space maps and its ZAPs.
fn assert_whole(pool: &Pool) {
    for top in pool.vdevs().top_levels() {
        assert!(!top.metaslab_array.is_zero(), "{top:?}");
    }
    let root = pool.vdevs().config();
    for leaf in root.leaves() {
        let zap = leaf.other_object("com.delphix:vdev_zap_leaf");
        assert!(zap.is_some_and(|zap| !zap.is_zero()), "{leaf:?}");
    }
}

#[test]
fn added_vdevs_take_blocks_and_are_imported() {
    let machine = machine(&["a", "b", "c"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let size = pool.space().class_totals(Class::Normal).size;
        let new = [new_vdev("b"), new_vdev("c")];
        pool.add(&new, Some(12), &operation).unwrap();
        assert_whole(&pool);
        let grown = pool.space().class_totals(Class::Normal).size;
        assert!(grown.get() > 2 * size.get(), "{size} became {grown}");
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        assert_eq!(devices(&pool), ["a", "b", "c"].map(path));
        assert_whole(&pool);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn vdevs_added_together_join_all_or_none() {
    for broken in ["cannot be written", "does not exist"] {
        let machine = machine(&["a", "b", "c"]);
        let run = machine.run(|host| {
            let operation = Operation::unmeasured();
            let pool = create(host, &["a"], &operation);
            let before = pool.vdevs().config();
            let second = match broken {
                "cannot be written" => {
                    let disk = machine.disk(path("c")).unwrap();
                    disk.inject(Fault::FailRange {
                        action: Action::Write,
                        range: 0..u64::MAX,
                        errno: Errno::IO,
                    });
                    "c"
                }
                _ => "nosuch",
            };
            let new = [new_vdev("b"), new_vdev(second)];
            assert!(pool.add(&new, Some(12), &operation).is_err(), "{broken}");
            assert_eq!(pool.vdevs().config(), before, "{broken}");
            pool.sync_all(&operation).unwrap();
            // Nothing holds the device, and it can be used.
            pool.add(&new[..1], Some(12), &operation).unwrap();
            assert_whole(&pool);
            pool.close(Leaving::Exported, &operation).unwrap();
            let pool = import(host, Mode::ReadWrite, &operation).unwrap();
            assert_eq!(devices(&pool), ["a", "b"].map(path));
            assert_whole(&pool);
            pool.close(Leaving::Exported, &operation).unwrap();
        });
        run.unwrap();
    }
}

/// The state after a power cut during `zpool add` of an early version.
#[test]
fn a_pool_whose_vdev_has_no_space_maps_is_opened_read_only_or_not_at_all() {
    let machine = machine(&["a", "b"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a", "b"], &operation);
        pool.vdevs().change_config(|root| {
            let facts = root.children[1].top_level.as_mut().unwrap();
            facts.metaslab_array = ObjectId::ZERO;
        });
        pool.close(Leaving::Exported, &operation).unwrap();
        let Err(refused) = import(host, Mode::ReadWrite, &operation) else {
            panic!("it was opened for writing");
        };
        let why = refused.to_string();
        assert!(matches!(refused, ImportError::NoSpaceMaps { .. }), "{why}");
        assert!(why.contains("b has no array of space maps"), "{why}");
        let pool = import(host, Mode::ReadOnly, &operation).unwrap();
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}
