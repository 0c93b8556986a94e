//! The suite laid out for a run: its files, its programs, our commands, and one folder that holds
//! every program a test may call.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tarn_oracle::instance::PROGRAMS;
use tarn_oracle::program;
use tarn_oracle::tools::{Unpacked, is_in_path};

use super::LIMIT_OF_COMMANDS;
use crate::debian_packages;
use crate::workspace::{Outcome, programs, remove_folder};

/// Programs that tests call, and the Debian package each is in.
const NEEDED: [(&str, &str); 18] = [
    ("ksh", "ksh"),
    ("bc", "bc"),
    ("setfacl", "acl"),
    ("setfattr", "attr"),
    ("fio", "fio"),
    ("jq", "jq"),
    ("sudo", "sudo"),
    ("lsof", "lsof"),
    ("gawk", "gawk"),
    ("xxhsum", "xxhash"),
    ("setcap", "libcap2-bin"),
    ("parted", "parted"),
    ("sfdisk", "fdisk"),
    ("killall", "psmisc"),
    ("rsync", "rsync"),
    ("pax", "pax"),
    ("file", "file"),
    ("mkfs.xfs", "xfsprogs"),
];

/// Tunables that tests read before they set them, with OpenZFS's defaults.
const TUNABLES: [(&str, u64); 15] = [
    ("zfs_txg_timeout", 5),
    ("zfs_admin_snapshot", 1),
    ("zfs_max_dataset_nesting", 50),
    ("zfs_bclone_enabled", 1),
    ("zfs_dio_enabled", 1),
    ("zfs_dmu_offset_next_sync", 1),
    ("zfs_compressed_arc_enabled", 1),
    ("zfs_prefetch_disable", 0),
    ("zfs_xattr_compat", 0),
    ("zfs_zil_saxattr", 1),
    ("zfs_arc_min", 0),
    ("zfs_arc_max", 0),
    ("spa_asize_inflation", 24),
    ("zfs_bclone_wait_dirty", 1),
    ("zfs_vdev_min_ms_count", 16),
];

/// The user that tests without privilege run as.
pub const USER: &str = "ztsuser";

/// The port at which the daemon of the run serves NFS: 2049 may be another server's.
pub const NFS_PORT: &str = "20649";

/// What mount(8) calls for `mount -t zfs`, as long as the suite is laid out.
const MOUNT_HELPER: &str = "/sbin/mount.zfs";

/// Where things are.
pub struct Suite {
    /// Everything but what tests write.
    pub work: PathBuf,
    /// Files that tests write: `FILEDIR` and `TMPDIR`.
    pub files: PathBuf,
    /// `TARN_DIR`.
    pub state: PathBuf,
    /// `STF_PATH`: every program that a test may call.
    pub path: PathBuf,
}

impl Suite {
    /// The copy of the suite's `zfs-tests`.
    pub fn tests(&self) -> PathBuf {
        self.work.join("src/tests/zfs-tests")
    }

    /// Lays it out below `work`, anew.
    pub fn lay_out(unpacked: &Unpacked, work: &Path) -> Outcome<Suite> {
        debian_packages::install_missing(&NEEDED)?;
        remove_folder(work)?;
        let suite = Suite {
            work: work.to_path_buf(),
            files: work.join("files"),
            state: work.join("state"),
            path: work.join("path"),
        };
        let from = unpacked.root().join("usr/share/zfs");
        let to = work.join("src/tests");
        for folder in [&to, &suite.path, &work.join("tunables"), &suite.files] {
            fs::create_dir_all(folder)?;
        }
        for folder in ["zfs-tests", "runfiles", "test-runner"] {
            copy(&from.join(folder), &to)?;
        }
        for library in ["libtest.shlib", "kstat.shlib"] {
            let library = suite.tests().join("include").join(library);
            let read = format!(
                "{}. {}\n",
                fs::read_to_string(&library)?,
                suite.overrides().display()
            );
            fs::write(&library, read)?;
        }
        fs::write(suite.overrides(), include_str!("overrides.ksh"))?;
        for (name, value) in TUNABLES {
            fs::write(work.join("tunables").join(name), format!("{value}\n"))?;
        }
        for folder in [&suite.files, &work.join("tunables")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o1777))?;
        }
        // Before the programs of the machine are collected, of which tests call it one.
        suite.lay_out_mount_helper()?;
        suite.collect_programs(unpacked)?;
        // Where OpenZFS's package has the files that `compatibility=` names.
        fs::create_dir_all("/usr/share/zfs")?;
        copy(&from.join("compatibility.d"), Path::new("/usr/share/zfs"))?;
        if !program::run(Command::new("id").arg(USER), LIMIT_OF_COMMANDS)?.succeeded() {
            let mut add = Command::new("useradd");
            add.args(["-M", "-d"]).arg(&suite.files).arg(USER);
            program::run(&mut add, LIMIT_OF_COMMANDS)?.expect_success()?;
        }
        Ok(suite)
    }

    /// The helper of mount(8), which may clear the environment.
    fn lay_out_mount_helper(&self) -> Outcome {
        let helper = format!(
            "#!/bin/bash\nTARN_DIR={}; export TARN_DIR\nexec -a mount.zfs {} \"$@\"\n",
            self.state.display(),
            programs().join("zfs").display()
        );
        fs::write(MOUNT_HELPER, helper)?;
        fs::set_permissions(MOUNT_HELPER, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    fn overrides(&self) -> PathBuf {
        self.work.join("overrides.ksh")
    }

    /// Our commands first, then the suite's own programs, then the machine's.
    fn collect_programs(&self, unpacked: &Unpacked) -> Outcome {
        for name in PROGRAMS {
            // Of the run's instance for every user: others would have one of their own.
            let ours = format!(
                "#!/bin/sh\nTARN_DIR={}; export TARN_DIR\nexec {} \"$@\"\n",
                self.state.display(),
                programs().join(name).display()
            );
            self.script(name, &ours)?;
        }
        // Device nodes are there when the call that made them returns; shares are those of tarnd;
        // faults cannot be injected, so there is nothing to clear.
        self.script("udevadm", "#!/bin/sh\nexit 0\n")?;
        self.script("exportfs", include_str!("exportfs.py"))?;
        let inject =
            "#!/bin/sh\n[ \"$1\" = -c ] && exit 0\necho 'zinject: not in Tarn' >&2\nexit 1\n";
        self.script("zinject", inject)?;
        for (name, of) in [
            ("newfs", "mkfs.ext4"),
            ("fsck", "fsck.ext4"),
            ("compress", "gzip"),
            ("uncompress", "gunzip"),
        ] {
            self.script(name, &format!("#!/bin/sh\nexec {of} \"$@\"\n"))?;
        }
        // The suite's programs need OpenZFS's libraries, which are not installed.
        let library = |folder: &str| unpacked.root().join(folder).display().to_string();
        let libraries = format!(
            "{}:{}",
            library("lib/x86_64-linux-gnu"),
            library("usr/lib/x86_64-linux-gnu")
        );
        let with_libraries = |program: &Path| {
            let program = program.display();
            format!("#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {program} \"$@\"\n")
        };
        for entry in fs::read_dir(self.tests().join("bin"))? {
            let entry = entry?;
            let name = entry.file_name();
            self.script(&name.to_string_lossy(), &with_libraries(&entry.path()))?;
        }
        // It changes exported pools, as OpenZFS would: unknown features, labels.
        let zhack = unpacked.root().join("sbin/zhack");
        self.script("zhack", &with_libraries(&zhack))?;
        for folder in ["/usr/bin", "/usr/sbin", "/bin", "/sbin"] {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let link = self.path.join(entry.file_name());
                if link.symlink_metadata().is_err() {
                    symlink(entry.path(), link)?;
                }
            }
        }
        match is_in_path("ksh") {
            true => Ok(()),
            false => Err("the suite is written for ksh, and there is none".into()),
        }
    }

    fn script(&self, name: &str, text: &str) -> Outcome {
        let path = self.path.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }
}

impl Drop for Suite {
    fn drop(&mut self) {
        // The next run writes it anew.
        let _ = fs::remove_file(MOUNT_HELPER);
    }
}

fn copy(from: &Path, into: &Path) -> Outcome {
    let mut command = Command::new("cp");
    command.arg("-r").arg(from).arg(into);
    program::run(&mut command, LIMIT_OF_COMMANDS)?.expect_success()?;
    Ok(())
}
