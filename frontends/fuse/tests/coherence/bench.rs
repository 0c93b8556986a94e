//! An engine with one mounted dataset, whose file system the test holds as well.

use crate::client::Client;
use crate::nfs_clients::NfsClient;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::Create;
use tarn_administration::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_engine::files::Tree;
use tarn_engine::instance::Instance;
use tarn_engine::mounts::{
    Ending, Found, Left, MountKey, MountOptions, MountRefusal, MountRequest, Mounter, Standing,
};
use tarn_engine::{Engine, EngineOptions, Host, RealOptions};
use tarn_fuse::FuseMounter;
use tarn_nfs::NfsServer;
use tarn_serving::{AwakeProcessors, ServingThreads};
use tempfile::TempDir;

/// Makes FUSE mounts, and remembers the tree of the last one.
struct Listening {
    inner: FuseMounter,
    tree: Mutex<Option<Arc<dyn Tree>>>,
}

impl Mounter for Listening {
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal> {
        *self.tree.lock().unwrap() = Some(request.tree.clone());
        self.inner.mount(request)
    }

    fn attach(
        &self,
        key: MountKey,
        source: &str,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal> {
        self.inner.attach(key, source, path, options)
    }

    fn unmount(&self, key: MountKey, path: &Path, ending: Ending) -> Result<Left, MountRefusal> {
        self.inner.unmount(key, path, ending)
    }

    fn standing(&self, key: MountKey, path: &Path) -> Standing {
        self.inner.standing(key, path)
    }

    fn places(&self) -> Vec<(MountKey, PathBuf)> {
        self.inner.places()
    }

    fn mount_number(&self, path: &Path) -> Option<u64> {
        self.inner.mount_number(path)
    }

    fn find(&self, path: &Path) -> Found {
        self.inner.find(path)
    }

    fn abandon(&self, mounts: &[(MountKey, &Path)]) {
        self.inner.abandon(mounts);
    }

    fn change_options(
        &self,
        key: MountKey,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal> {
        self.inner.change_options(key, path, options)
    }

    fn clear_remains(&self, path: &Path) -> bool {
        self.inner.clear_remains(path)
    }
}

/// The engine, and its mount.
pub struct Bench {
    engine: Arc<Engine>,
    /// The tree of the mount.
    pub tree: Arc<dyn Tree>,
    /// The folder of the mount.
    pub path: PathBuf,
    server: Arc<NfsServer>,
    _folder: TempDir,
}

impl Bench {
    /// None where mounting is not possible.
    pub fn new() -> Option<Bench> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("not seen: mounts need root and /dev/fuse");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        File::create(&disk).unwrap().set_len(512 << 20).unwrap();
        let threads = ServingThreads::new(AwakeProcessors::new(false)).unwrap();
        let mounter = Arc::new(Listening {
            inner: FuseMounter::new(threads.clone()),
            tree: Mutex::default(),
        });
        let engine = Engine::new(
            Host::real(RealOptions::default()),
            Instance::at(folder.path()),
            mounter.clone(),
            EngineOptions {
                cache_bytes: Some(64 << 20),
                ..EngineOptions::default()
            },
        );
        let server = NfsServer::new(threads, 0, None, tarn_nfs::LEASE);
        engine.set_sharer(server.clone());
        let administrator = Administrator::new(engine.clone());
        let altroot = folder.path().join("mnt");
        let create = pool::Create {
            name: "tank".to_string(),
            altroot: Some(altroot.display().to_string()),
            vdevs: vec![VdevSpec {
                kind: VdevKind::Leaf,
                path: Some(disk.display().to_string()),
                children: Vec::new(),
                role: VdevRole::Data,
            }],
            ..pool::Create::default()
        };
        administrator.pool_create(&Call::default(), create).unwrap();
        let create = Create {
            name: "tank/shared".to_string(),
            properties: [
                ("acltype", "posix"),
                ("xattr", "sa"),
                ("recordsize", "16K"),
                ("sharenfs", "rw,no_root_squash,insecure"),
            ]
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .into(),
            ..Create::default()
        };
        administrator
            .dataset_create(&Call::default(), create)
            .unwrap();
        let tree = mounter.tree.lock().unwrap().take().unwrap();
        Some(Bench {
            engine,
            tree,
            path: altroot.join("tank/shared"),
            server,
            _folder: folder,
        })
    }

    /// A client of NFS that has mounted the same file system.
    pub fn client(&self) -> NfsClient {
        let port = self.server.port().expect("it is shared");
        let mut client = Client::connect(port);
        let root = client.mount(&self.path.display().to_string());
        let root = root.expect("the client may mount it");
        NfsClient { client, root }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.engine.stop();
    }
}
