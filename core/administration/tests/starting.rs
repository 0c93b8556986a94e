//! The start of the daemon imports the pools of the last one. Pools are on files; nothing is
//! mounted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_engine::engine::{Engine, EngineOptions};
use tarn_engine::instance::Instance;
use tarn_engine::{Host, RealOptions};
use tarn_unmounted::NoMounts;

/// A running daemon, which stops when this is dropped.
struct Daemon {
    engine: Arc<Engine>,
    administrator: Arc<Administrator>,
}

impl Daemon {
    /// Starts a daemon, which then has these pools, and this number of warnings.
    fn start(folder: &Path, pools: &[&str], warnings: usize) -> Daemon {
        let options = EngineOptions {
            cache_bytes: Some(64 << 20),
            ..EngineOptions::default()
        };
        let host = Host::real(RealOptions::default());
        let engine = Engine::new(
            host,
            Instance::at(folder),
            Arc::new(NoMounts::refusing()),
            options,
        );
        let warned = engine.start();
        assert_eq!(warned.len(), warnings, "{warned:?}");
        let daemon = Daemon {
            administrator: Administrator::new(engine.clone()),
            engine,
        };
        assert_eq!(daemon.pools(), pools);
        daemon
    }

    fn pools(&self) -> Vec<String> {
        let described = self
            .administrator
            .pool_describe(&Call::default(), pool::Describe::default());
        let pools = described.unwrap().pools;
        pools.into_iter().map(|pool| pool.name).collect()
    }

    fn create(&self, folder: &Path, name: &str) {
        let disk = disk(folder, name);
        std::fs::File::create(&disk)
            .unwrap()
            .set_len(64 << 20)
            .unwrap();
        let create = pool::Create {
            name: name.to_string(),
            mountpoint: Some("none".to_string()),
            vdevs: vec![VdevSpec {
                kind: VdevKind::Leaf,
                path: Some(disk.display().to_string()),
                children: Vec::new(),
                role: VdevRole::Data,
            }],
            ..pool::Create::default()
        };
        self.administrator
            .pool_create(&Call::default(), create)
            .unwrap();
    }

    fn export(&self, name: &str) {
        let export = pool::Export {
            name: name.to_string(),
            force: false,
        };
        self.administrator
            .pool_export(&Call::default(), export)
            .unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

fn disk(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.disk"))
}

#[test]
fn a_pool_that_is_not_there_at_a_start_is_remembered_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let daemon = Daemon::start(folder, &[], 0);
    for name in ["one", "three", "two"] {
        daemon.create(folder, name);
    }
    drop(daemon);
    let away = |name: &str| {
        std::fs::rename(disk(folder, name), disk(folder, &format!("{name}.away"))).unwrap();
    };
    let back = |name: &str| {
        std::fs::rename(disk(folder, &format!("{name}.away")), disk(folder, name)).unwrap();
    };
    away("one");
    away("three");
    let daemon = Daemon::start(folder, &["two"], 2);
    // Also after other pools were added.
    daemon.create(folder, "four");
    drop(daemon);
    back("one");
    let daemon = Daemon::start(folder, &["four", "one", "two"], 1);
    // Exporting removes a pool from the cache file, whether it was imported or not.
    daemon.export("one");
    daemon.export("three");
    drop(daemon);
    back("three");
    drop(Daemon::start(folder, &["four", "two"], 0));
}

#[test]
fn a_pool_that_is_not_there_is_remembered_though_another_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let daemon = Daemon::start(folder, &[], 0);
    daemon.create(folder, "one");
    daemon.create(folder, "two");
    drop(daemon);
    let away = disk(folder, "two.away");
    std::fs::rename(disk(folder, "two"), &away).unwrap();
    // Another pool has its name by now.
    let daemon = Daemon::start(folder, &["one"], 1);
    daemon.create(folder, "two");
    daemon.export("two");
    drop(daemon);
    std::fs::rename(away, disk(folder, "two")).unwrap();
    drop(Daemon::start(folder, &["one", "two"], 0));
}

#[test]
fn a_pool_that_got_another_guid_just_before_a_crash_is_imported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let daemon = Daemon::start(folder, &[], 0);
    daemon.create(folder, "one");
    daemon.create(folder, "two");
    let cache_file = folder.join("zpool.cache");
    let before = std::fs::read(&cache_file).unwrap();
    let reguid = pool::Reguid {
        name: "one".to_string(),
        guid: Some(4711),
    };
    let administrator = &daemon.administrator;
    administrator.pool_reguid(&Call::default(), reguid).unwrap();
    drop(daemon);
    // The cache file was not written.
    std::fs::write(&cache_file, before).unwrap();
    drop(Daemon::start(folder, &["one", "two"], 0));
    // The old guid is forgotten.
    let daemon = Daemon::start(folder, &["one", "two"], 0);
    daemon.export("one");
    drop(daemon);
    drop(Daemon::start(folder, &["two"], 0));
}
