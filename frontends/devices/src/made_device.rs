//! The device of one volume: made, followed through what happens to the volume, removed.

use crate::block_devices::Shared;
use crate::volume_tree::VolumeTree;
use rustix::fs::{AtFlags, StatxFlags};
use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::Duration;
use tarn_engine::loop_device::{LoopDevice, LoopOptions, Released, make_block_node};
use tarn_engine::volumes::{DeviceIsOpen, HeldVolume, VolumeDevice, VolumeWatcher};
use tarn_engine::words_of;

/// OpenZFS's volumes have sectors of this size, whatever their blocks are.
const SECTOR_BYTES: u32 = 512;

/// How often a device that is open is asked for again before it counts as busy, and at what
/// interval. Programs that look at each device, as those of udev, have it open for a moment.
const TRIES: u32 = 20;
const TRY_INTERVAL: Duration = Duration::from_millis(25);

/// How long the end of a volume waits for its device: requests under way fail at once, unless a
/// disk hangs.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The device of a volume.
pub(crate) struct MadeDevice {
    shared: Arc<Shared>,
    tree: Arc<VolumeTree>,
    node: u64,
    device: LoopDevice,
    has_partitions: bool,
    /// Its file is open for writing: only `readonly` makes it read-only then.
    may_write: bool,
    /// Linux was told to refuse writes, and would go on with the next file of the loop device.
    is_read_only: AtomicBool,
    /// The volume's name, by which it is linked.
    volume: Mutex<String>,
    is_removed: AtomicBool,
}

impl MadeDevice {
    /// Makes the device of a held volume, and links it.
    ///
    /// # Errors
    /// What is missing, as text.
    pub(crate) fn make(
        shared: &Arc<Shared>,
        tree: Arc<VolumeTree>,
        held: &Arc<HeldVolume>,
        has_partitions: bool,
    ) -> Result<Arc<MadeDevice>, String> {
        let (node, path) = tree.add(held);
        let bound = bind(&path, held, has_partitions);
        let device = match bound {
            Ok(device) => device,
            Err(error) => {
                shared.forget_file(&tree, held.pool_name(), node);
                return Err(format!("no loop device: {}", words_of(&error)));
            }
        };
        let made = Arc::new(MadeDevice {
            shared: shared.clone(),
            tree,
            node,
            device,
            has_partitions,
            may_write: held.is_changeable(),
            is_read_only: AtomicBool::new(false),
            volume: Mutex::new(held.name()),
            is_removed: AtomicBool::new(false),
        });
        // Another user of the loop device may have left it read-only.
        made.set_read_only(made.may_write && held.is_read_only());
        let watch = Watch(Arc::downgrade(&made), held.pool_name().to_string());
        held.watch(Arc::new(watch));
        made.link();
        made.link_partitions();
        Ok(made)
    }

    /// The volume's name.
    pub(crate) fn volume(&self) -> String {
        self.name().clone()
    }

    /// Its node.
    pub(crate) fn path(&self) -> &Path {
        self.device.path()
    }

    /// The number of its loop device.
    pub(crate) fn number(&self) -> u32 {
        self.device.number()
    }

    fn name(&self) -> MutexGuard<'_, String> {
        // A thread that panicked with it has set it or not.
        self.volume.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self) {
        let volume = self.volume();
        if let Err(error) = self.shared.links.link(&volume, self.device.path()) {
            let path = self.shared.links.path_of(&volume);
            let why = match error.kind() {
                std::io::ErrorKind::AlreadyExists => "something else is there".to_string(),
                _ => words_of(&error),
            };
            (self.shared.log)(&format!(
                "cannot link {} to {}: {why}",
                path.display(),
                self.device.path().display()
            ));
        }
    }

    /// Links the partitions that there are now.
    pub(crate) fn link_partitions(&self) {
        if !self.has_partitions || self.is_removed.load(Ordering::SeqCst) {
            return;
        }
        let partitions = self.device.partitions().unwrap_or_default();
        for (number, device) in &partitions {
            let path = format!("{}p{number}", self.device.path().display());
            // Where `/dev` is a devtmpfs, it has the node.
            let _ = make_block_node(Path::new(&path), device.major, device.minor);
        }
        let numbers: Vec<u32> = partitions.iter().map(|(number, _)| *number).collect();
        let (volume, links) = (self.volume(), &self.shared.links);
        links.link_partitions(&volume, self.device.path(), &numbers);
    }

    fn unlink(&self) {
        let (volume, links) = (self.volume(), &self.shared.links);
        links.link_partitions(&volume, self.device.path(), &[]);
        links.unlink(&volume);
    }

    fn set_read_only(&self, is_read_only: bool) {
        self.is_read_only.store(is_read_only, Ordering::SeqCst);
        self.tell_read_only(is_read_only);
    }

    /// Has Linux refuse writes, or not any more.
    fn tell_read_only(&self, is_read_only: bool) {
        if let Err(error) = self.device.set_read_only(is_read_only) {
            self.tell("make read-only or writable", &error);
        }
    }

    fn tell(&self, what: &str, error: &std::io::Error) {
        let (path, why) = (self.device.path().display(), words_of(error));
        (self.shared.log)(&format!(
            "cannot {what} {path} of '{}': {why}",
            self.volume()
        ));
    }

    /// Forgets a device that has no file any more.
    fn forget(&self, pool: &str) {
        if self.is_removed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.unlink();
        self.shared.forget_device(self);
        self.shared.forget_file(&self.tree, pool, self.node);
    }

    /// Lets go of the device, which may be open.
    fn end(self: Arc<Self>, pool: String) {
        let (tell, told) = mpsc::channel();
        let run = move || {
            if self.is_read_only.load(Ordering::SeqCst) {
                self.tell_read_only(false);
            }
            // Where it is open, its last close unbinds it. Until then it fails.
            if let Err(error) = self.device.release() {
                self.tell("unbind", &error);
            }
            self.forget(&pool);
            let _ = tell.send(());
        };
        // Without a thread it stays bound, and the next daemon finds it.
        if std::thread::Builder::new().spawn(run).is_ok() {
            let _ = told.recv_timeout(END_PATIENCE);
        }
    }
}

/// Binds a file of a volume to a loop device.
fn bind(path: &Path, held: &HeldVolume, has_partitions: bool) -> std::io::Result<LoopDevice> {
    let may_write = held.is_changeable();
    let mut options = OpenOptions::new();
    let options = options.read(true).write(may_write);
    let file = options.custom_flags(libc::O_CLOEXEC).open(path)?;
    let options = LoopOptions {
        block_bytes: SECTOR_BYTES,
        is_read_only: !may_write,
        has_partitions,
    };
    LoopDevice::make(file.as_fd(), options)
}

impl VolumeDevice for MadeDevice {
    fn remove(&self) -> Result<(), DeviceIsOpen> {
        let is_read_only = self.is_read_only.load(Ordering::SeqCst);
        if is_read_only {
            self.tell_read_only(false);
        }
        for attempt in 1.. {
            match self.device.release() {
                Ok(Released::Gone) => break,
                Ok(Released::InUse) => {}
                Err(error) => self.tell("unbind", &error),
            }
            match self.device.keep() {
                Ok(Released::Gone) => break,
                Ok(Released::InUse) => {}
                Err(error) => self.tell("keep", &error),
            }
            if attempt == TRIES {
                if is_read_only {
                    self.tell_read_only(true);
                }
                return Err(DeviceIsOpen);
            }
            std::thread::sleep(TRY_INTERVAL);
        }
        let volume = self.volume();
        let pool = volume.split(['/', '@']).next().unwrap_or_default();
        self.forget(pool);
        Ok(())
    }

    fn drop_cache(&self) {
        if let Err(error) = self.device.flush_buffers() {
            self.tell("write back", &error);
        }
    }
}

/// Hears what happens to the volume.
struct Watch(Weak<MadeDevice>, String);

impl Watch {
    fn device(&self) -> Option<Arc<MadeDevice>> {
        let device = self.0.upgrade();
        device.filter(|device| !device.is_removed.load(Ordering::SeqCst))
    }
}

impl VolumeWatcher for Watch {
    fn size_changed(&self, _size_bytes: u64) {
        let Some(device) = self.device() else { return };
        // Linux takes the size that it knows of the file: it has to ask for it first.
        if let Some(path) = device.tree.path_of(device.node) {
            let flags = AtFlags::STATX_FORCE_SYNC;
            let _ = rustix::fs::statx(rustix::fs::CWD, &path, flags, StatxFlags::SIZE);
        }
        if let Err(error) = device.device.size_changed() {
            device.tell("change the size of", &error);
        }
    }

    fn read_only_changed(&self, is_read_only: bool) {
        if let Some(device) = self.device() {
            device.set_read_only(is_read_only);
        }
    }

    fn renamed(&self, name: &str) {
        let Some(device) = self.device() else { return };
        device.unlink();
        *device.name() = name.to_string();
        device.tree.rename(device.node, name);
        device.link();
        device.link_partitions();
    }

    fn ended(&self) {
        if let Some(device) = self.device() {
            device.end(self.1.clone());
        }
    }
}
