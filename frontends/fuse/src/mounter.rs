//! The engine's way to mounts: one session for each, all served by the same threads.

use crate::awake::AwakeProcessors;
use crate::mount::{self, MountError};
use crate::server::Server;
use crate::session::Session;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tarn_engine::mounts::{MountKey, MountOptions, MountRefusal, MountRequest, Mounter};

/// Makes FUSE mounts.
pub struct FuseMounter {
    server: Arc<Server>,
    /// Under which number the kernel knows each mount.
    numbers: Mutex<BTreeMap<u64, u32>>,
}

/// How long requests are waited for that are being served when their mount is abandoned: those that were let go need a moment to reply.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long requests are waited for that are being served when their mount is undone. A guess: longer than a pool that works needs for the
/// largest request.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(10);

impl FuseMounter {
    /// A mounter without mounts. It keeps processors from sleeping in bursts of requests only if it may (see [`AwakeProcessors`]).
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new(may_keep_processors_awake: bool) -> Result<FuseMounter, Errno> {
        Ok(FuseMounter {
            server: Server::new(AwakeProcessors::new(may_keep_processors_awake))?,
            numbers: Mutex::new(BTreeMap::new()),
        })
    }
}

impl Mounter for FuseMounter {
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal> {
        let device = mount::mount(request.source, request.path, request.options);
        let device = device.map_err(|error| match error {
            MountError::Mount {
                cause: Errno::BUSY, ..
            } => MountRefusal::Busy,
            other => MountRefusal::Failed(other.to_string()),
        })?;
        let session = Session::new(request.tree, request.ended);
        let added = self.server.add(device, session);
        let key = added.map_err(|errno| {
            let _ = mount::unmount(request.path, true);
            MountRefusal::Failed(errno.to_string())
        })?;
        if let Some(number) = mount::connection_number(request.path) {
            let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            numbers.insert(key, number);
        }
        Ok(MountKey(key))
    }

    fn unmount(&self, key: MountKey, path: &Path, force: bool) -> Result<(), MountRefusal> {
        match mount::unmount(path, force) {
            Ok(()) => {}
            Err(Errno::BUSY) => return Err(MountRefusal::Busy),
            // Somebody was faster.
            Err(Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(MountRefusal::Failed(errno.to_string())),
        }
        // With `force`, and in another mount namespace, the mount may live on for those who use it. Without its server their calls fail: the caller
        // may open the files once more, or change them below.
        let removed = self.server.remove(key.0, UNMOUNT_PATIENCE);
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = numbers.remove(&key.0);
        removed.map_err(|still| {
            // Those who wait for other requests do not wait for this one.
            number
                .filter(|_| still.is_connected)
                .iter()
                .for_each(|number| mount::abort(*number));
            MountRefusal::Busy
        })
    }

    fn abandon(&self, mounts: &[(MountKey, &Path)]) {
        for (_, path) in mounts {
            // One that is below a mount that fails cannot be reached; it goes with what it is on.
            let _ = mount::unmount(path, true);
        }
        let keys: Vec<u64> = mounts.iter().map(|(key, _)| key.0).collect();
        let known = self.server.abandon(&keys, PATIENCE);
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            // The number of one that has gone may be another's by now.
            if let Some(number) = numbers.remove(&key)
                && known.contains(&key)
            {
                mount::abort(number);
            }
        }
    }

    fn change_options(
        &self,
        _key: MountKey,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal> {
        mount::change_options(path, options).map_err(|errno| match errno {
            Errno::BUSY => MountRefusal::Busy,
            Errno::PERM => MountRefusal::Failed(
                "only root can change options of a mount; unmount and mount it".to_string(),
            ),
            errno => MountRefusal::Failed(errno.to_string()),
        })
    }

    fn clear_remains(&self, path: &Path) {
        // A mount whose server died answers this, which is asked of the server each time. Attributes may still be cached.
        while rustix::fs::statfs(path).is_err_and(|errno| errno == Errno::NOTCONN) {
            if mount::unmount(path, true).is_err() {
                return;
            }
        }
    }
}
