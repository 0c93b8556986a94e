//! An instance: one daemon, one set of state, one host.
//!
//! All state of an instance lies under `$TARN_DIR`. Without it, root's instance is split as the
//! system expects it: what lasts under `/var/lib/tarn`, what a reboot clears under `/run/tarn`.
//! Other users have theirs under `$XDG_STATE_HOME/tarn`. Two values of `TARN_DIR` on one machine
//! are two hosts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where root's own instance has what a reboot clears.
const SYSTEM_RUN: &str = "/run/tarn";

/// The folders of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Kept across reboots: cache file, host id, logs.
    state: PathBuf,
    /// Cleared by a reboot: socket, lock.
    run: PathBuf,
}

impl Instance {
    /// The instance that the environment names.
    ///
    /// # Errors
    /// When neither `TARN_DIR`, `XDG_STATE_HOME` nor `HOME` says where it could be.
    pub fn from_environment() -> Result<Self, NoPlace> {
        let is_root = tarn_host::effective_uid() == 0;
        let chosen = Instance::choose(is_root, |name| std::env::var_os(name))?;
        // A daemon does not stay in the folder where it was started.
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        Ok(Instance {
            state: absolute(chosen.state),
            run: absolute(chosen.run),
        })
    }

    /// Makes the folders that are missing. Other users may read them, whatever umask the caller
    /// has; only the owner may write.
    ///
    /// # Errors
    /// The system's error.
    pub fn make_folders(&self) -> std::io::Result<()> {
        for folder in [&self.state, &self.run] {
            tarn_host::caller::make_folder(folder)?;
        }
        Ok(())
    }

    /// The instance in one folder.
    pub fn at(folder: &Path) -> Self {
        Instance {
            state: folder.to_path_buf(),
            run: folder.to_path_buf(),
        }
    }

    fn choose(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, NoPlace> {
        let set = |name| {
            variable(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        if let Some(folder) = set("TARN_DIR") {
            return Ok(Instance::at(&folder));
        }
        if is_root {
            return Ok(Instance {
                state: "/var/lib/tarn".into(),
                run: SYSTEM_RUN.into(),
            });
        }
        let home = || set("HOME").map(|home| home.join(".local/state"));
        let folder = set("XDG_STATE_HOME").or_else(home).ok_or(NoPlace)?;
        Ok(Instance::at(&folder.join("tarn")))
    }

    /// True of root's own instance, which no `TARN_DIR` names: the one that a machine starts when
    /// it boots.
    pub fn is_of_the_system(&self) -> bool {
        self.run == Path::new(SYSTEM_RUN)
    }

    /// The folder for files that are kept across reboots.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The folder for files that a reboot clears.
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.run.join("tarnd.sock")
    }

    /// The socket where commands hand descriptors over.
    pub fn stream_socket(&self) -> PathBuf {
        self.run.join("tarnd.streams")
    }

    /// The directory of the archive of statistics.
    pub fn analytics(&self) -> PathBuf {
        self.state.join("analytics")
    }

    /// The socket of the NBD server.
    pub fn nbd_socket(&self) -> PathBuf {
        self.run.join("nbd.sock")
    }

    /// The folder where volumes are files, of which block devices are made.
    pub fn volumes(&self) -> PathBuf {
        self.run.join("volumes")
    }

    /// The file whose lock the running daemon holds.
    pub fn lock(&self) -> PathBuf {
        self.run.join("tarnd.lock")
    }

    /// The file that lists, a line each, what the last daemon could not store when it stopped. It
    /// is absent where all was stored.
    pub fn unstored(&self) -> PathBuf {
        self.run.join("tarnd.unstored")
    }

    /// The list of file systems that mount(8) has mounted.
    pub fn mounts(&self) -> PathBuf {
        self.run.join("tarnd.mounts")
    }

    /// The pools to import at start.
    pub fn cache_file(&self) -> PathBuf {
        self.state.join("zpool.cache")
    }

    /// The host id of this instance.
    pub fn host_id(&self) -> PathBuf {
        self.state.join("hostid")
    }

    /// The programs that run for events, as zedlets.
    pub fn event_programs(&self) -> PathBuf {
        self.state.join("zed.d")
    }

    /// The alerts.
    pub fn alerts(&self) -> PathBuf {
        self.state.join("alerts.json")
    }

    /// Portals and initiators of iSCSI.
    pub fn iscsi(&self) -> PathBuf {
        self.state.join("iscsi.json")
    }

    /// The list of clients of NFS version 4 that may have files open.
    pub fn nfs_clients(&self) -> PathBuf {
        self.state.join("nfs-clients")
    }

    /// The tokens by which browsers log in to the page.
    pub fn web_tokens(&self) -> PathBuf {
        self.state.join("web-tokens")
    }

    /// The address of the page, while it is served.
    pub fn web_address(&self) -> PathBuf {
        self.run.join("web-address")
    }

    /// Worksheets of Analytics that were saved on the page.
    pub fn worksheets(&self) -> PathBuf {
        self.state.join("worksheets.json")
    }

    /// The daemon's log.
    pub fn log(&self) -> PathBuf {
        self.state.join("tarnd.log")
    }
}

/// The environment does not say where the instance's state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("set TARN_DIR: neither XDG_STATE_HOME nor HOME says where to keep state")]
pub struct NoPlace;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(is_root: bool, variables: &[(&str, &str)]) -> Result<Instance, NoPlace> {
        Instance::choose(is_root, |name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn tarn_dir_holds_everything_when_it_is_set() {
        let instance = with(true, &[("TARN_DIR", "/x"), ("HOME", "/root")]).unwrap();
        assert_eq!(instance.socket(), Path::new("/x/tarnd.sock"));
        assert_eq!(instance.cache_file(), Path::new("/x/zpool.cache"));
    }

    #[test]
    fn root_and_others_have_different_places() {
        let root = with(true, &[("HOME", "/root")]).unwrap();
        assert_eq!(root.socket(), Path::new("/run/tarn/tarnd.sock"));
        assert_eq!(root.cache_file(), Path::new("/var/lib/tarn/zpool.cache"));
        let user = with(false, &[("HOME", "/home/ann")]).unwrap();
        assert_eq!(
            user.socket(),
            Path::new("/home/ann/.local/state/tarn/tarnd.sock")
        );
        assert_eq!(with(false, &[]), Err(NoPlace));
    }
}
