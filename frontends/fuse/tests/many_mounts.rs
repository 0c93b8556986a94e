//! Many mounts at once: commands read the mount table once, not for each mount.
//!
//! Root only, and where there is FUSE. Elsewhere these tests print that they checked nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{Create, Mount, Unmount};
use tarn_administration::messages::pool::{self, Search, VdevKind, VdevRole, VdevSpec};
use tarn_administration::messages::statistics::Kstat;
use tarn_engine::instance::Instance;
use tarn_engine::{Engine, EngineOptions, Host, RealOptions};
use tarn_fuse::FuseMounter;
use tarn_serving::{AwakeProcessors, ServingThreads};
use tempfile::TempDir;

/// Most readings of the mount table by one command, for any number of mounts: one at its beginning,
/// and one more after a change was found.
const READINGS_MAX: u64 = 2;

/// How many steps each test takes.
const STEPS: usize = 5;

/// The most blocks that a step asks of the cache for each file system.
const BLOCKS_MAX: u64 = 50;

/// The cache's statistics are those of the process, so these tests follow each other.
static ALONE: Mutex<()> = Mutex::new(());

/// A pool with this many file systems, in two levels.
struct Bench {
    engine: Arc<Engine>,
    administrator: Arc<Administrator>,
    mounter: Arc<FuseMounter>,
    folder: TempDir,
    count: usize,
}

impl Bench {
    /// None where mounting is not possible.
    fn new(count: usize) -> Option<Bench> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("not seen: mounts need root and /dev/fuse");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        File::create(&disk).unwrap().set_len(128 << 20).unwrap();
        let threads = ServingThreads::new(AwakeProcessors::new(false)).unwrap();
        let mounter = Arc::new(FuseMounter::new(threads));
        let options = EngineOptions {
            cache_bytes: Some(64 << 20),
            ..EngineOptions::default()
        };
        let host = Host::real(RealOptions::default());
        let instance = Instance::at(folder.path());
        let engine = Engine::new(host, instance, mounter.clone(), options);
        let administrator = Administrator::new(engine.clone());
        let create = pool::Create {
            name: "tank".to_string(),
            altroot: Some(folder.path().join("mnt").display().to_string()),
            vdevs: vec![VdevSpec {
                kind: VdevKind::Leaf,
                path: Some(disk.display().to_string()),
                children: Vec::new(),
                role: VdevRole::Data,
            }],
            ..pool::Create::default()
        };
        administrator.pool_create(&call(), create).unwrap();
        let bench = Bench {
            engine,
            administrator,
            mounter,
            folder,
            count,
        };
        for name in bench.names() {
            let create = Create {
                name: name.clone(),
                ..Create::default()
            };
            bench.administrator.dataset_create(&call(), create).unwrap();
            fs::write(bench.path(&name).join("name"), &name).unwrap();
        }
        Some(bench)
    }

    /// The names of all but the root: a quarter, and three below each of these.
    fn names(&self) -> Vec<String> {
        let above = (0..self.count / 4).map(|number| format!("tank/{number}"));
        let with_below = above.flat_map(|above| {
            let below = (0..3).map(|number| format!("{above}/{number}"));
            let below: Vec<String> = below.collect();
            std::iter::once(above).chain(below)
        });
        with_below.collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("mnt").join(name)
    }

    /// Checks that each is mounted, with its own file; or that none is.
    fn assert_mounted(&self, are_mounted: bool) {
        for name in self.names() {
            let found = fs::read_to_string(self.path(&name).join("name")).ok();
            assert_eq!(found, are_mounted.then_some(name));
        }
    }

    /// Counts the readings of the mount table during `step`.
    fn readings_of(&self, step: impl FnOnce()) -> u64 {
        let before = self.mounter.table_readings();
        step();
        self.mounter.table_readings() - before
    }

    /// How many blocks were asked of the cache since the process began.
    fn blocks_asked(&self) -> u64 {
        let request = Kstat {
            pattern: "zfs:0:arcstats".to_string(),
        };
        let found = self.administrator.statistics_kstat(&call(), request);
        let found = found.unwrap();
        let data = &found.groups[0].data;
        let asked = ["hits", "misses", "iohits"].map(|name| data[name].as_u64().unwrap());
        asked.iter().sum()
    }

    fn mount_all(&self) {
        let mounted = self.administrator.dataset_mount(&call(), Mount::default());
        assert_eq!(mounted.unwrap().refused, []);
    }

    fn unmount_all(&self) {
        let unmounted = self
            .administrator
            .dataset_unmount(&call(), Unmount::default());
        assert_eq!(unmounted.unwrap().refused, []);
    }

    fn export(&self) {
        let export = pool::Export {
            name: "tank".to_string(),
            force: false,
        };
        self.administrator.pool_export(&call(), export).unwrap();
    }

    fn import(&self) {
        let import = pool::Import {
            search: Search {
                places: vec![self.folder.path().display().to_string()],
                ..Search::default()
            },
            pool: Some("tank".to_string()),
            altroot: Some(self.folder.path().join("mnt").display().to_string()),
            ..pool::Import::default()
        };
        let imported = self.administrator.pool_import(&call(), import).unwrap();
        assert_eq!(imported.warnings, Vec::<String>::new());
    }

    /// Mounts and unmounts everything in each way, and gives what `count` counts of each step.
    fn count_steps(&self, count: impl Fn(&dyn Fn()) -> u64) -> [(&'static str, u64); STEPS] {
        let steps: [(&str, bool, &dyn Fn()); STEPS] = [
            ("zfs unmount -a", false, &|| self.unmount_all()),
            ("zfs mount -a", true, &|| self.mount_all()),
            ("zfs mount -a of what is mounted", true, &|| {
                self.mount_all()
            }),
            ("zpool export", false, &|| self.export()),
            ("zpool import", true, &|| self.import()),
        ];
        self.assert_mounted(true);
        steps.map(|(step, are_mounted, run)| {
            let counted = count(run);
            self.assert_mounted(are_mounted);
            (step, counted)
        })
    }
}

fn call() -> Call {
    Call::default()
}

#[test]
fn the_mount_table_is_read_as_often_for_many_as_for_few() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for count in [20, 80] {
        let Some(bench) = Bench::new(count) else {
            return;
        };
        for (step, readings) in bench.count_steps(|run| bench.readings_of(run)) {
            assert!(
                readings <= READINGS_MAX,
                "{step} of {count}: the table was read {readings} times"
            );
        }
        let stopped = bench.readings_of(|| assert_eq!(bench.engine.stop(), []));
        assert!(stopped <= 2 * READINGS_MAX, "stopping: {stopped}");
        bench.assert_mounted(false);
    }
}

#[test]
fn blocks_are_asked_for_in_proportion_to_the_number_of_mounts() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = [20, 80].map(|count| {
        let bench = Bench::new(count)?;
        let asked_by = |run: &dyn Fn()| {
            let before = bench.blocks_asked();
            run();
            bench.blocks_asked() - before
        };
        let steps = bench.count_steps(asked_by);
        assert_eq!(bench.engine.stop(), []);
        Some(steps)
    });
    let [Some(few), Some(many)] = asked else {
        return;
    };
    for ((step, few), (_, many)) in few.into_iter().zip(many) {
        let each = many.saturating_sub(few) / 60;
        println!("{step}: {few} blocks for 20, {many} for 80: {each} for each more");
        assert!(each <= BLOCKS_MAX, "{step}: {each} blocks for each");
    }
}
