//! A pool with an NFS server and without mounts, and a small client of its own.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod client;
pub mod client4;
pub mod client40;
pub mod tls_client;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    Create, Rollback, Set, Share, Snapshot, Unmount, Unshare,
};
use tarn_administration::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_engine::instance::Instance;
use tarn_engine::{Engine, EngineOptions, Host, RealOptions};
use tarn_nfs::NfsServer;
use tarn_serving::{AwakeProcessors, ServingThreads};
use tarn_unmounted::NoMounts;
use tempfile::TempDir;

/// An engine with the pool `tank`, and its NFS server at a free port.
pub struct Bench {
    pub engine: Arc<Engine>,
    pub administrator: Arc<Administrator>,
    pub server: Arc<NfsServer>,
    threads: Arc<ServingThreads>,
    folder: Folder,
}

/// Where the state and the disk are.
#[derive(Clone)]
pub enum Folder {
    /// It goes away with the last bench.
    Own(Arc<TempDir>),
    /// Another process made it.
    Others(PathBuf),
}

impl Folder {
    fn path(&self) -> &Path {
        match self {
            Folder::Own(folder) => folder.path(),
            Folder::Others(path) => path,
        }
    }
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with_new_pool(Folder::Own(Arc::new(tempfile::tempdir().unwrap())))
    }

    pub fn with_new_pool(folder: Folder) -> Bench {
        Bench::without_pool(folder).making_pool()
    }

    /// With a pool, and leases as long as this.
    pub fn with_short_leases(lease: Duration) -> Bench {
        let folder = Folder::Own(Arc::new(tempfile::tempdir().unwrap()));
        Bench::with_lease(folder, lease).making_pool()
    }

    fn making_pool(self) -> Bench {
        let bench = self;
        let disk = bench.folder.path().join("disk");
        let file = std::fs::File::create(&disk).unwrap();
        file.set_len(192 << 20).unwrap();
        let create = pool::Create {
            name: "tank".to_string(),
            altroot: Some(bench.altroot()),
            vdevs: vec![VdevSpec {
                kind: VdevKind::Leaf,
                path: Some(disk.display().to_string()),
                children: Vec::new(),
                role: VdevRole::Data,
            }],
            ..pool::Create::default()
        };
        bench
            .administrator
            .pool_create(&Call::default(), create)
            .unwrap();
        bench
    }

    fn without_pool(folder: Folder) -> Bench {
        Bench::with_lease(folder, tarn_nfs::LEASE)
    }

    fn with_lease(folder: Folder, lease: Duration) -> Bench {
        let threads = ServingThreads::new(AwakeProcessors::new(false)).unwrap();
        let engine = Engine::new(
            Host::real(RealOptions::default()),
            Instance::at(folder.path()),
            Arc::new(NoMounts::default()),
            EngineOptions {
                cache_bytes: Some(64 << 20),
                ..EngineOptions::default()
            },
        );
        let server = NfsServer::new(
            threads.clone(),
            0,
            Some(folder.path().join("nfs-clients")),
            lease,
        );
        engine.set_sharer(server.clone());
        Bench {
            administrator: Administrator::new(engine.clone()),
            engine,
            server,
            threads,
            folder,
        }
    }

    fn altroot(&self) -> String {
        self.folder.path().join("mnt").display().to_string()
    }

    /// The folder by which a dataset is shared.
    pub fn path(&self, dataset: &str) -> String {
        format!("{}/{dataset}", self.altroot())
    }

    /// The pool in another engine, as after a restart of the daemon.
    pub fn restarted(self) -> Bench {
        let folder = self.folder.clone();
        drop(self);
        Bench::with_old_pool(folder)
    }

    /// An engine that imports the pool.
    pub fn with_old_pool(folder: Folder) -> Bench {
        let bench = Bench::without_pool(folder);
        let import = pool::Import {
            pool: Some("tank".to_string()),
            altroot: Some(bench.altroot()),
            search: pool::Search {
                places: vec![bench.folder.path().display().to_string()],
                ..pool::Search::default()
            },
            ..pool::Import::default()
        };
        bench
            .administrator
            .pool_import(&Call::default(), import)
            .unwrap();
        bench
    }

    pub fn create(&self, name: &str, properties: &[(&str, &str)]) -> Vec<String> {
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let create = Create {
            name: name.to_string(),
            properties: properties.iter().map(own).collect(),
            ..Create::default()
        };
        let created = self.administrator.dataset_create(&Call::default(), create);
        created.unwrap().warnings
    }

    /// Sets a property, and gives the warnings.
    pub fn set(&self, name: &str, property: &str, value: &str) -> Vec<String> {
        let set = Set {
            name: name.to_string(),
            properties: vec![(property.to_string(), value.to_string())],
            ..Set::default()
        };
        let changed = self.administrator.dataset_set(&Call::default(), set);
        changed.unwrap().warnings
    }

    pub fn snapshot(&self, name: &str) {
        let take = Snapshot {
            names: vec![name.to_string()],
            ..Snapshot::default()
        };
        self.administrator
            .dataset_snapshot(&Call::default(), take)
            .unwrap();
    }

    pub fn roll_back(&self, name: &str) {
        let request = Rollback {
            name: name.to_string(),
            ..Rollback::default()
        };
        self.administrator
            .dataset_rollback(&Call::default(), request)
            .unwrap();
    }

    pub fn share(&self, name: Option<&str>) -> Result<(), String> {
        let name = name.map(str::to_string);
        let shared = self
            .administrator
            .dataset_share(&Call::default(), Share { name });
        shared.map(drop).map_err(|refusal| refusal.to_string())
    }

    pub fn unshare(&self, name: Option<&str>) -> Result<(), String> {
        let name = name.map(str::to_string);
        let ended = self
            .administrator
            .dataset_unshare(&Call::default(), Unshare { name });
        ended.map(drop).map_err(|refusal| refusal.to_string())
    }

    pub fn unmount(&self, name: &str) {
        let unmount = Unmount {
            name: Some(name.to_string()),
            force: false,
        };
        self.administrator
            .dataset_unmount(&Call::default(), unmount)
            .unwrap();
    }

    /// A connection to the server.
    pub fn client(&self) -> client::Client {
        client::Client::connect(self.server.port().expect("something is shared"))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.engine.stop();
        self.threads.stop();
    }
}
