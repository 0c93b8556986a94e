//! The engine's way to mounts: one session for each, all served by the same threads.

use crate::awake::AwakeProcessors;
use crate::mount::{self, MountError};
use crate::server::Server;
use crate::server::write_back::NotWritten;
use crate::session::Session;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tarn_engine::mounts::{MountKey, MountOptions, MountRefusal, MountRequest, Mounter};

/// Makes FUSE mounts.
pub struct FuseMounter {
    server: Arc<Server>,
    known: Mutex<BTreeMap<u64, Known>>,
}

/// What is known of a mount beside what serves it.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Under which number the kernel knows it, if it said so.
    number: Option<u32>,
    /// It is in no folder any more; it is still being served.
    is_undone: bool,
}

impl Known {
    /// It was undone, and its number may be another's by now.
    const UNDONE: Known = Known {
        number: None,
        is_undone: true,
    };
}

/// Where a mount is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whereabouts {
    /// Whoever comes to the folder comes to it.
    OnTop,
    /// Another mount is over it, or it was moved.
    Elsewhere,
    /// Somebody else has undone it.
    Gone,
}

/// How long requests are waited for that are being served when their mount is abandoned: those that were let go need a moment to reply.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long the kernel may write nothing back while that is waited for. A guess, as the next one.
const WRITE_BACK_PATIENCE: Duration = Duration::from_secs(10);

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
            known: Mutex::new(BTreeMap::new()),
        })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<u64, Known>> {
        // A thread that panicked while it held it was inserting or removing one entry.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A mount is in no folder any more.
    fn undone(&self, key: MountKey) {
        if let Some(known) = self.known().get_mut(&key.0) {
            known.is_undone = true;
        }
    }

    /// Where a mount is that was made on a folder. The system goes by the path, and would take another mount for it that lies over it.
    fn whereabouts(&self, key: MountKey, path: &Path) -> Whereabouts {
        let known = self.known().get(&key.0).copied();
        match known {
            Some(Known {
                is_undone: true, ..
            }) => Whereabouts::Gone,
            Some(Known {
                number: Some(number),
                ..
            }) if mount::connection_number(path) != Some(number) => {
                match mount::is_mounted(number) {
                    true => Whereabouts::Elsewhere,
                    false => Whereabouts::Gone,
                }
            }
            _ => Whereabouts::OnTop,
        }
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
        let pool = request.source.split('/').next().unwrap_or_default();
        let added = self.server.add(device, pool, session);
        let key = added.map_err(|errno| {
            let _ = mount::unmount(request.path, true);
            MountRefusal::Failed(errno.to_string())
        })?;
        let known = Known {
            number: mount::connection_number(request.path),
            is_undone: false,
        };
        self.known().insert(key, known);
        Ok(MountKey(key))
    }

    fn unmount(&self, key: MountKey, path: &Path, force: bool) -> Result<(), MountRefusal> {
        if force {
            // Programs go on with files that they have mapped; what they have stored up to here is
            // kept.
            self.write_back(key)?;
        }
        match self.whereabouts(key, path) {
            Whereabouts::OnTop => match mount::unmount(path, force) {
                Ok(()) => {}
                Err(Errno::BUSY) => return Err(MountRefusal::Busy),
                // Somebody was faster.
                Err(Errno::INVAL | Errno::NOENT) => {}
                Err(errno) => return Err(MountRefusal::Failed(errno.to_string())),
            },
            Whereabouts::Elsewhere => return Err(MountRefusal::Busy),
            Whereabouts::Gone => {}
        }
        if !force && let Err(refusal) = self.write_back(key) {
            // It may live on where we do not see it. Asked again, it goes.
            self.undone(key);
            return Err(refusal);
        }
        // With `force`, and in another mount namespace, the mount may live on for those who use it. Without its server their calls fail: the caller
        // may open the files once more, or change them below.
        let removed = self.server.remove(key.0, UNMOUNT_PATIENCE);
        let mut known = self.known();
        let Some(number) = known.remove(&key.0).map(|known| known.number) else {
            return removed.map_err(|_| MountRefusal::Busy);
        };
        removed.map_err(|still| {
            // Those who wait for other requests do not wait for this one.
            if let Some(number) = number.filter(|_| still.is_connected) {
                mount::abort(number);
            }
            known.insert(key.0, Known::UNDONE);
            MountRefusal::Busy
        })
    }

    fn write_back(&self, key: MountKey) -> Result<(), MountRefusal> {
        let written = self.server.write_back(key.0, WRITE_BACK_PATIENCE);
        written.map_err(|why| match why {
            NotWritten::Late => MountRefusal::Busy,
            NotWritten::Refused(errno) => MountRefusal::Failed(format!(
                "what programs have stored in mapped files cannot be written: {errno}"
            )),
        })
    }

    fn properties_changed(&self, key: MountKey) {
        self.server.properties_changed(key.0);
    }

    fn abandon(&self, mounts: &[(MountKey, &Path)]) {
        for (key, path) in mounts {
            if self.whereabouts(*key, path) == Whereabouts::OnTop {
                // One that is below a mount that fails cannot be reached; it goes with what it is on.
                let _ = mount::unmount(path, true);
            }
        }
        let keys: Vec<u64> = mounts.iter().map(|(key, _)| key.0).collect();
        let alive = self.server.abandon(&keys, PATIENCE);
        for key in keys {
            let number = self.known().remove(&key).and_then(|known| known.number);
            // The number of one that has gone may be another's by now.
            if let Some(number) = number.filter(|_| alive.contains(&key)) {
                mount::abort(number);
            }
        }
    }

    fn change_options(
        &self,
        key: MountKey,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal> {
        let known = self.known().get(&key.0).copied();
        let number = match known {
            Some(Known {
                is_undone: false,
                number,
            }) => number,
            _ => return Err(MountRefusal::Busy),
        };
        mount::change_options(path, number, options).map_err(|errno| match errno {
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
