//! The two sides of a comparison: ext4 of loop devices, and file systems of a pool, mounted at the
//! same places one after the other.
//!
//! # Mechanism
//! Places are below one folder: `root`, where a program works, `other`, a second file system, and
//! for programs that ask for them `full`, which soon has no room, and `quota`, which is limited: by
//! a quota on our side, by its size on ext4's. `work` beside them is the machine's own file system.
//!
//! # Invariants
//! - After [`Side::end`], and after drop, nothing of it is mounted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tarn_oracle::instance::{Instance, mounts_below};

use crate::workspace::{Outcome, output, programs, run};

/// The pools of our side: the one that programs work on, and one that is soon full.
const POOL: &str = "compared";
const SMALL_POOL: &str = "cramped";
/// Room for all that a program makes. Files without contents: only what is written takes space on
/// the machine.
const IMAGE_BYTES: u64 = 4 << 30;
const SMALL_POOL_BYTES: u64 = 96 << 20;
const SMALL_EXT4_BYTES: u64 = 48 << 20;
const QUOTA: &str = "32M";
/// How long killed programs may hold what they had open.
const EXPORT_LIMIT: Duration = Duration::from_secs(10);
/// `tarn stop` stores what is dirty.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Which file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Tarn,
}

/// One side, mounted.
pub struct Side {
    kind: Kind,
    folder: PathBuf,
    has_small_rooms: bool,
    instance: Option<Instance>,
}

impl Side {
    /// Makes the file systems below `folder` and mounts them.
    pub fn make(kind: Kind, folder: &Path, has_small_rooms: bool) -> Outcome<Side> {
        let images = folder.join("images");
        fs::create_dir_all(&images)?;
        let mut side = Side {
            kind,
            folder: folder.to_path_buf(),
            has_small_rooms,
            instance: None,
        };
        let _ = fs::remove_dir_all(side.work());
        for path in [side.work(), side.work().join("home")] {
            fs::create_dir_all(path)?;
        }
        match kind {
            Kind::Ext4 => side.make_ext4()?,
            Kind::Tarn => side.make_pools()?,
        }
        Ok(side)
    }

    fn make_ext4(&self) -> Outcome {
        for (name, bytes) in self.ext4_file_systems() {
            let image = self.image(name);
            fs::File::create(&image)?.set_len(bytes)?;
            // Attributes of 64 KiB, as ZFS has them, need inodes of their own; nothing is kept back
            // for root.
            let mut mkfs = Command::new("mkfs.ext4");
            run(mkfs
                .args(["-q", "-F", "-m", "0", "-O", "ea_inode"])
                .arg(image))?;
            self.mount_ext4(name, &[])?;
            fs::remove_dir(self.place(name).join("lost+found"))?;
        }
        Ok(())
    }

    fn ext4_file_systems(&self) -> Vec<(&'static str, u64)> {
        let mut list = vec![("root", IMAGE_BYTES), ("other", IMAGE_BYTES)];
        if self.has_small_rooms {
            list.extend([("full", SMALL_EXT4_BYTES), ("quota", SMALL_EXT4_BYTES)]);
        }
        list
    }

    fn mount_ext4(&self, name: &str, options: &[&str]) -> Outcome {
        let place = self.place(name);
        fs::create_dir_all(&place)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop"]).args(options);
        run(mount.arg(self.image(name)).arg(place))
    }

    fn make_pools(&mut self) -> Outcome {
        let instance = Instance::new(&programs(), &self.folder.join("tarn"))?;
        let create = |pool: &str, place: &Path, bytes: u64| -> Outcome {
            let image = self.image(pool);
            fs::File::create(&image)?.set_len(bytes)?;
            let (place, image) = (place.display().to_string(), image.display().to_string());
            let options = ["-O", "xattr=sa", "-O", "acltype=posix"];
            let words = [&["create", "-m", &place][..], &options, &[pool, &image]].concat();
            instance.must("zpool", &words)?;
            Ok(())
        };
        let dataset = |name: &str, options: &str| -> Outcome {
            let place = format!("mountpoint={}", self.place(name).display());
            instance.must(
                "zfs",
                &[
                    &["create", "-o", &place][..],
                    &options.split_whitespace().collect::<Vec<_>>(),
                    &[&format!("{POOL}/{name}")],
                ]
                .concat(),
            )?;
            Ok(())
        };
        create(POOL, &self.place("root"), IMAGE_BYTES)?;
        dataset("other", "")?;
        if self.has_small_rooms {
            create(SMALL_POOL, &self.place("full"), SMALL_POOL_BYTES)?;
            dataset("quota", &format!("-o quota={QUOTA}"))?;
        }
        self.instance = Some(instance);
        Ok(())
    }

    fn image(&self, name: &str) -> PathBuf {
        self.folder.join("images").join(name)
    }

    /// Where one of the file systems is mounted.
    pub fn place(&self, name: &str) -> PathBuf {
        self.folder.join("at").join(name)
    }

    /// A folder of the machine.
    pub fn work(&self) -> PathBuf {
        self.folder.join("at/work")
    }

    /// Where `root` is as it was when [`Side::snapshot`] was called.
    pub fn snapshot_place(&self) -> PathBuf {
        match self.kind {
            Kind::Ext4 => self.place("snapshot"),
            Kind::Tarn => self.place("root").join(".zfs/snapshot/kept"),
        }
    }

    /// The instance of our side.
    pub fn instance(&self) -> Option<&Instance> {
        self.instance.as_ref()
    }

    /// The file systems whose trees are compared.
    pub fn compared_places(&self) -> [PathBuf; 2] {
        [self.place("root"), self.place("other")]
    }

    /// Keeps `root` as it is: a snapshot, or on ext4 a copy that is mounted read-only.
    pub fn snapshot(&self) -> Outcome {
        if let Some(instance) = &self.instance {
            instance.zfs(&format!("snapshot {POOL}@kept"))?;
            return Ok(());
        }
        let image = self.image("snapshot");
        fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
        let mut mkfs = Command::new("mkfs.ext4");
        run(mkfs.args(["-q", "-F", "-O", "ea_inode"]).arg(image))?;
        self.mount_ext4("snapshot", &[])?;
        let place = self.place("snapshot");
        fs::remove_dir(place.join("lost+found"))?;
        let mut copy = Command::new("cp");
        run(copy
            .args(["-aT", "--sparse=always"])
            .arg(self.place("root"))
            .arg(&place))?;
        run(Command::new("mount").args(["-o", "remount,ro"]).arg(&place))
    }

    /// Ends whatever serves the file systems, and mounts them again: the daemon, or on ext4 the
    /// mounts.
    pub fn restart(&self) -> Outcome {
        match &self.instance {
            Some(instance) => {
                instance.stop_daemon(STOP_LIMIT)?;
                instance.zpool("list")?;
            }
            None => {
                for (name, _) in self.ext4_file_systems() {
                    run(Command::new("umount").arg(self.place(name)))?;
                    self.mount_ext4(name, &[])?;
                }
            }
        }
        Ok(())
    }

    /// Ends whatever serves our side, has `meanwhile` done, and starts it again. ext4 is served by
    /// the kernel, and stays.
    pub fn be_away(&self, meanwhile: impl FnOnce() -> Outcome) -> Outcome {
        match &self.instance {
            Some(instance) => {
                instance.stop_daemon(STOP_LIMIT)?;
                let done = meanwhile();
                instance.zpool("list")?;
                done
            }
            None => meanwhile(),
        }
    }

    /// Exports the pools, so that what was left open is found; ext4 is unmounted when the side is
    /// dropped.
    pub fn end(mut self) -> Outcome {
        let Some(instance) = self.instance.take() else {
            return Ok(());
        };
        let small = self.has_small_rooms.then_some(SMALL_POOL);
        for pool in [POOL].into_iter().chain(small) {
            export(&instance, pool)?;
        }
        Ok(())
    }
}

/// Exports a pool. What killed programs held is let go a moment after their end; what is held
/// longer is told as any other failure.
fn export(instance: &Instance, pool: &str) -> Outcome {
    let deadline = Instant::now() + EXPORT_LIMIT;
    loop {
        let exported = instance.run("zpool", &["export", pool])?;
        if exported.succeeded() || Instant::now() > deadline {
            exported.expect_success()?;
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Our instance unmounts what is its own.
        drop(self.instance.take());
        for mount in mounts_below(&self.folder) {
            // A mount that is left over is busy for as long as a killed program ends; it goes by
            // itself then.
            let plain = output(Command::new("umount").arg(&mount));
            if plain.is_err() {
                let _ = output(Command::new("umount").arg("-l").arg(&mount));
            }
        }
    }
}
