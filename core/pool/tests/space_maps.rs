//! Space maps as other programs have left them.

mod support;

use support::{change_mos, create, create_without, import, machine, new_zap, put};
use tarn_object::zap::ZapValue;
use tarn_object::{NewObject, ObjectSet, Tx};
use tarn_ondisk::declare::Stored;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::space_map::SpaceMapHead;
use tarn_ondisk::units::ObjectId;
use tarn_pool::{Leaving, Mode};
use tarn_probe::Operation;

/// Creates a space map with this header, in a pool with or without the feature
/// `spacemap_histogram`.
fn new_log(tx: &Tx, mos: &ObjectSet, head: &[u8], operation: &Operation) -> ObjectId {
    let new = NewObject::plain(ObjectType::SpaceMap, 4096)
        .with_bonus(ObjectType::SpaceMapHeader, head.len());
    let log = mos.allocate(tx, new, operation).unwrap();
    log.set_bonus(tx, head).unwrap();
    log.id()
}

/// A map from before the feature was enabled, or where it never was, does not count as its use.
#[test]
fn log_space_maps_without_histograms_are_flushed_to_metaslabs() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create_without(host, &["a"], &[Feature::SpacemapHistogram], &operation);
        // Writers get an error when a txg cannot be stored.
        pool.set_fails_writers(true);
        change_mos(&pool, &operation, |tx, mos| {
            let head = SpaceMapHead::new(0).to_bytes();
            let log = new_log(tx, mos, &head[..SpaceMapHead::SIZE_V0], &operation);
            let logs = new_zap(tx, mos, ObjectType::ZapMetadata, &operation);
            let log = ZapValue::word(log.get());
            logs.insert(tx, "4", &log).unwrap();
            let logs = ZapValue::word(logs.object().id().get());
            put(tx, mos, name::LOG_SPACE_MAPS, &logs, &operation);
        });
        let directory = pool.directory(&operation);
        assert_eq!(directory.find(name::LOG_SPACE_MAPS).unwrap(), None);
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

/// An append at a wrong length would write anywhere, or nowhere.
#[test]
fn a_space_map_of_impossible_length_is_refused_before_any_write() {
    for length in [7, 1 << 40] {
        let machine = machine(&["a"]);
        let run = machine.run(|host| {
            let operation = Operation::unmeasured();
            let pool = create(host, &["a"], &operation);
            let top = pool.vdevs().top_levels().remove(0);
            let count = top.asize.get() >> top.metaslab_shift;
            change_mos(&pool, &operation, |tx, mos| {
                let head = SpaceMapHead {
                    length,
                    ..SpaceMapHead::new(0)
                };
                let log = new_log(tx, mos, &head.to_bytes(), &operation);
                let array = mos.object(top.metaslab_array, &operation).unwrap();
                let word = log.get().to_le_bytes();
                let place = (count - 1) * 8;
                array.write(tx, place, &word, &operation).unwrap();
            });
            pool.close(Leaving::Exported, &operation).unwrap();
            let Err(refused) = import(host, Mode::ReadWrite, &operation) else {
                panic!("it was opened for writing");
            };
            let why = refused.to_string();
            assert!(why.contains("longer than its object"), "{why}");
            let pool = import(host, Mode::ReadOnly, &operation).unwrap();
            pool.close(Leaving::Kept, &operation).unwrap();
        });
        run.unwrap();
    }
}
