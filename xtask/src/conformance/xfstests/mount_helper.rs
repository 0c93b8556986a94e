//! What `mount -t fuse.tarn DATASET FOLDER` calls while the suite runs: a mount helper that knows
//! the run's instance.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::workspace::{Outcome, programs};

/// Where mount(8) looks for helpers of the type `fuse.tarn`.
const HELPER: &str = "/sbin/mount.fuse.tarn";

/// The helper, laid out until it is dropped.
pub struct MountHelper;

impl MountHelper {
    /// A folder of programs that come first in the tests' path.
    pub fn programs(folder: &Path) -> PathBuf {
        folder.join("programs")
    }

    /// Writes the helper for the instance with this state, and programs below `folder`.
    pub fn lay_out(state: &Path, folder: &Path) -> Outcome<MountHelper> {
        let first = Self::programs(folder);
        fs::create_dir_all(&first)?;
        // mount(8) may clear the environment, so the helper carries what it needs.
        let helper = include_str!("mount.fuse.tarn")
            .replace("@STATE@", &state.display().to_string())
            .replace("@PROGRAMS@", &programs().display().to_string());
        script(Path::new(HELPER), &helper)?;
        // A remount is for the kernel alone.
        let mount = "#!/bin/bash\nfor word; do case $word in *remount*) exec /bin/mount -i \"$@\" ;; esac; done\nexec /bin/mount \"$@\"\n";
        script(&first.join("mount"), mount)?;
        for name in ["tarn", "zpool", "zfs", "zdb"] {
            let ours = format!(
                "#!/bin/sh\nTARN_DIR='{}'; export TARN_DIR\nexec '{}' \"$@\"\n",
                state.display(),
                programs().join(name).display()
            );
            script(&first.join(name), &ours)?;
        }
        Ok(MountHelper)
    }
}

impl Drop for MountHelper {
    fn drop(&mut self) {
        // The next run writes it anew.
        let _ = fs::remove_file(HELPER);
    }
}

fn script(path: &Path, text: &str) -> Outcome {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
