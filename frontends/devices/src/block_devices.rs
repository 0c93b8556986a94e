//! The front end: block devices of all volumes of an instance.

use crate::made_device::MadeDevice;
use crate::volume_links::VolumeLinks;
use crate::volume_tree::VolumeTree;
use crate::{partition_watch, remains};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tarn_engine::loop_device::LoopDevice;
use tarn_engine::statistics::{Instance, Value, registry};
use tarn_engine::volumes::{HeldVolume, VolumeDevice, VolumeDevices};
use tarn_engine::words_of;
use tarn_serving::ServingThreads;

/// Makes block devices of volumes.
pub struct BlockDevices {
    shared: Arc<Shared>,
    _statistics: Arc<Instance>,
}

/// What all devices of an instance share.
pub(crate) struct Shared {
    pub(crate) links: VolumeLinks,
    pub(crate) log: fn(&str),
    threads: Arc<ServingThreads>,
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By pool.
    trees: BTreeMap<String, Arc<VolumeTree>>,
    /// By the number of the loop device.
    devices: BTreeMap<u32, Weak<MadeDevice>>,
    /// Why the last volume that should have got a device has none.
    complaint: Option<String>,
}

impl BlockDevices {
    /// Clears what a dead daemon has left, and makes no device yet. `folder` is where the files of
    /// volumes will be.
    pub fn start(
        folder: &Path,
        links: VolumeLinks,
        threads: Arc<ServingThreads>,
        log: fn(&str),
    ) -> Arc<BlockDevices> {
        // Linux names files by paths without symbolic links.
        let folder = match std::fs::create_dir_all(folder).and_then(|()| folder.canonicalize()) {
            Ok(folder) => folder,
            Err(_) => folder.to_path_buf(),
        };
        if is_root() {
            remains::clear(&folder, &links);
        }
        let shared = Arc::new(Shared {
            links,
            log,
            threads,
            folder,
            state: Mutex::default(),
        });
        let statistics = registry().instance("zvol", 0, "devices");
        let told = Arc::downgrade(&shared);
        statistics.provide(move || told.upgrade().map_or_else(Vec::new, |one| one.statistics()));
        let watching = Arc::downgrade(&shared);
        if is_root()
            && let Err(error) =
                partition_watch::start(move |number| Shared::look(&watching, number))
        {
            let why = words_of(&error);
            log(&format!("partitions of volumes are not followed: {why}"));
        }
        Arc::new(BlockDevices {
            shared,
            _statistics: statistics,
        })
    }

    fn obstacle(&self) -> Option<String> {
        if !is_root() {
            return Some(
                "only root can make block devices; it is served by NBD and iSCSI".to_string(),
            );
        }
        let error = LoopDevice::obstacle()?;
        let why = words_of(&error);
        Some(format!(
            "no loop devices here: cannot open /dev/loop-control: {why}"
        ))
    }
}

impl VolumeDevices for BlockDevices {
    fn check(&self) -> Result<(), String> {
        match self.obstacle() {
            Some(why) => {
                self.shared.complain(&why);
                Err(format!("volumes have no block devices: {why}"))
            }
            None => Ok(()),
        }
    }

    fn make(
        &self,
        held: &Arc<HeldVolume>,
        has_partitions: bool,
    ) -> Result<Arc<dyn VolumeDevice>, String> {
        let tree = self.shared.tree_of(held.pool_name());
        let made = tree.and_then(|tree| MadeDevice::make(&self.shared, tree, held, has_partitions));
        match made {
            Ok(made) => {
                let mut state = self.shared.state();
                state.devices.insert(made.number(), Arc::downgrade(&made));
                drop(state);
                // Partitions may have come before it was known.
                made.link_partitions();
                Ok(made)
            }
            Err(why) => {
                self.shared.complain(&format!("'{}': {why}", held.name()));
                Err(why)
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked under the lock was inserting or removing one entry.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tree of a pool, mounted where it is not.
    fn tree_of(&self, pool: &str) -> Result<Arc<VolumeTree>, String> {
        if let Some(tree) = self.state().trees.get(pool) {
            return Ok(tree.clone());
        }
        // Commands on one pool come one after the other.
        let tree = Arc::new(VolumeTree::mount(&self.folder, pool, &self.threads)?);
        self.state().trees.insert(pool.to_string(), tree.clone());
        Ok(tree)
    }

    /// Removes the file of a device that is gone, and with the last one the mount.
    pub(crate) fn forget_file(&self, tree: &Arc<VolumeTree>, pool: &str, node: u64) {
        if tree.remove(node) {
            return;
        }
        let mut state = self.state();
        let is_it = state
            .trees
            .get(pool)
            .is_some_and(|one| Arc::ptr_eq(one, tree));
        if is_it {
            state.trees.remove(pool);
        }
        drop(state);
        tree.unmount();
    }

    /// A device has no loop device any more. Another one may have its number by now.
    pub(crate) fn forget_device(&self, device: &MadeDevice) {
        let mut state = self.state();
        state
            .devices
            .retain(|_, one| !std::ptr::eq(one.as_ptr(), device));
    }

    /// Logs why there is no device, once.
    fn complain(&self, why: &str) {
        let before = self.state().complaint.replace(why.to_string());
        if before.as_deref() != Some(why) {
            (self.log)(&format!("no block device: {why}"));
        }
    }

    /// Links the partitions of a device anew. False when the front end has gone.
    fn look(shared: &Weak<Shared>, number: Option<u32>) -> bool {
        let Some(shared) = shared.upgrade() else {
            return false;
        };
        let device = number.and_then(|number| shared.state().devices.get(&number)?.upgrade());
        if let Some(device) = device {
            device.link_partitions();
        }
        true
    }

    /// A row for each device.
    fn statistics(&self) -> Vec<(String, Value)> {
        let text = |text: &str| Value::Text(text.to_string());
        let state = self.state();
        let devices: Vec<_> = state.devices.values().filter_map(Weak::upgrade).collect();
        let complaint = state.complaint.clone();
        drop(state);
        let mut rows = Vec::new();
        if let Some(complaint) = complaint {
            rows.push(("error".to_string(), text(&complaint)));
        }
        for device in devices {
            let path = device.path().display().to_string();
            let row = vec![("volume", text(&device.volume())), ("device", text(&path))];
            rows.push((format!("loop_{:05}", device.number()), Value::Row(row)));
        }
        rows
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
