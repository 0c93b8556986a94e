//! Engines in tests whose file systems are mounted nowhere.
//!
//! # Mechanism
//! [`NoMounts`] stands where `frontends/fuse` stands in a daemon: it says that it has mounted a
//! file system, and keeps the [`Tree`] by which a test reaches it. Tests of front ends and of
//! `administration` run so without root and without FUSE.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tarn_engine::files::Tree;
use tarn_engine::mounts::{
    Ending, Found, Left, MountKey, MountOptions, MountRefusal, MountRequest, Mounter, Standing,
};

/// The trees of mounts, by the names of their file systems.
type Trees = BTreeMap<String, (MountKey, Arc<dyn Tree>)>;

/// Mounts nothing, and says that it has, or refuses.
#[derive(Default)]
pub struct NoMounts {
    refuses: bool,
    last_key: AtomicU64,
    trees: Mutex<Trees>,
}

impl NoMounts {
    /// One that refuses to mount anything.
    pub fn refusing() -> NoMounts {
        NoMounts {
            refuses: true,
            ..NoMounts::default()
        }
    }

    /// The tree of the file system of this name that was mounted last; none when that was
    /// unmounted.
    pub fn tree(&self, source: &str) -> Option<Arc<dyn Tree>> {
        self.trees().get(source).map(|(_, tree)| tree.clone())
    }

    fn trees(&self) -> MutexGuard<'_, Trees> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mounter for NoMounts {
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal> {
        if self.refuses {
            return Err(MountRefusal::Busy);
        }
        let key = MountKey(self.last_key.fetch_add(1, Ordering::SeqCst) + 1);
        let source = request.source.to_string();
        self.trees().insert(source, (key, request.tree));
        Ok(key)
    }

    fn attach(&self, _: MountKey, _: &str, _: &Path, _: MountOptions) -> Result<(), MountRefusal> {
        Err(MountRefusal::Busy)
    }

    fn standing(&self, _: MountKey, _: &Path) -> Standing {
        Standing::Mounted
    }

    fn places(&self) -> Vec<(MountKey, PathBuf)> {
        Vec::new()
    }

    fn mount_number(&self, _: &Path) -> Option<u64> {
        None
    }

    fn find(&self, _: &Path) -> Found {
        Found::Foreign
    }

    fn unmount(&self, key: MountKey, _: &Path, _: Ending) -> Result<Left, MountRefusal> {
        let is_it = |_: &String, (of_tree, _): &mut (MountKey, Arc<dyn Tree>)| *of_tree == key;
        let gone: Vec<_> = self.trees().extract_if(.., is_it).collect();
        // Without the lock: a file system may end with its last tree.
        drop(gone);
        Ok(Left::Nothing)
    }

    fn abandon(&self, mounts: &[(MountKey, &Path)]) {
        for (key, path) in mounts {
            let _ = self.unmount(*key, path, Ending::Everywhere);
        }
    }

    fn change_options(&self, _: MountKey, _: &Path, _: MountOptions) -> Result<(), MountRefusal> {
        Ok(())
    }

    fn clear_remains(&self, _: &Path) -> bool {
        false
    }
}
