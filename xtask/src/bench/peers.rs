//! The file systems that are compared: how each is made, made to forget, and removed.
//!
//! # Invariants
//! - Every peer's image is [`IMAGE_BYTES`] large, in memory, and removed with the peer, so that
//!   only one takes memory at a time.
//! - After [`Peer::forget`] nothing of the file system is in the kernel's cache or in a daemon's.
//!   The image still is: it is the disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tarn_oracle::instance::Instance;
use tarn_oracle::tools::{Source, Unpacked, is_in_path, unpack_debian};

use crate::debian_packages::install;
use crate::workspace::{Outcome, output, programs, scratch, target};

/// The size of every disk.
pub const IMAGE_BYTES: u64 = 4 << 30;

const IMAGE: &str = "disk.img";

/// What ours and zfs-fuse may use for cached blocks. The kernel's file systems use what memory
/// there is.
pub const CACHE_MIB: u32 = 2048;

/// The peer that the bars are about.
pub const ZFS_FUSE: &str = "zfs-fuse";

/// How we are called in the table.
pub const OURS: &str = "tarn";

/// How another build of ours is called, which `--before` names.
pub const BEFORE: &str = "before";

/// The pool of ours and of zfs-fuse.
pub const POOL: &str = "bench";

/// How long a daemon may take to start.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A file system that does loads.
pub trait Peer {
    /// What it is called in the table.
    fn name(&self) -> &'static str;

    /// Makes it anew on an empty image, and gives the folder it is mounted at.
    fn make(&mut self) -> Outcome<PathBuf>;

    /// Makes it forget what it has in memory. It is mounted where it was.
    fn forget(&mut self) -> Outcome;

    /// Removes what [`Peer::make`] made, or as much of it as there is.
    fn remove(&mut self) -> Outcome;

    /// Its `zfs`, where it is a ZFS.
    fn zfs(&self) -> Outcome<Command> {
        Err(format!("{} has no zfs", self.name()).into())
    }
}

/// The peer of this name, ready to be made.
pub fn named(name: &str, memory: &Path, is_root: bool) -> Outcome<Box<dyn Peer>> {
    if !is_root {
        return Err("needs root: it is mounted without FUSE's helper, or on a loop device".into());
    }
    if name == ZFS_FUSE {
        return Ok(Box::new(ZfsFuse::start(memory)?));
    }
    match KERNEL.iter().find(|kind| kind.name == name) {
        Some(kind) => Ok(Box::new(Kernel::find(kind, memory)?)),
        None => Err("there is no such peer".into()),
    }
}

/// How a pool of ours lies on its disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PoolLayout {
    /// One disk.
    Single,
    /// Two disks with the same contents.
    Mirror,
    /// Four disks, one of parity.
    Raidz1,
    /// Five disks, two of parity.
    Raidz2,
    /// Six disks, three of parity.
    Raidz3,
}

impl PoolLayout {
    /// The word of `zpool create`, and the number of disks.
    fn vdev(self) -> (&'static str, usize) {
        match self {
            PoolLayout::Single => ("", 1),
            PoolLayout::Mirror => ("mirror", 2),
            PoolLayout::Raidz1 => ("raidz1", 4),
            PoolLayout::Raidz2 => ("raidz2", 5),
            PoolLayout::Raidz3 => ("raidz3", 6),
        }
    }
}

/// Makes the empty disk of a peer, and the folder to mount it at.
fn make_disk(folder: &Path) -> Outcome<(PathBuf, PathBuf)> {
    let (image, mount) = (folder.join(IMAGE), folder.join("mount"));
    fs::create_dir_all(&mount)?;
    File::create(&image)?.set_len(IMAGE_BYTES)?;
    Ok((image, mount))
}

/// Our own.
pub struct Tarn {
    name: &'static str,
    layout: PoolLayout,
    instance: Instance,
    folder: PathBuf,
}

impl Tarn {
    /// Starts the daemon under test.
    pub fn start(memory: &Path) -> Outcome<Self> {
        Self::start_build(OURS, &programs(), memory)
    }

    /// Starts the daemon of another build, whose programs are in a folder.
    pub fn start_before(programs: &Path, memory: &Path) -> Outcome<Self> {
        Self::start_build(BEFORE, programs, memory)
    }

    fn start_build(name: &'static str, programs: &Path, memory: &Path) -> Outcome<Self> {
        let scratch = match name {
            OURS => scratch("bench"),
            other => scratch(&format!("bench-{other}")),
        };
        let instance = Instance::new(programs, &scratch)?;
        instance.start_daemon(&["--cache-size", &format!("{CACHE_MIB}M")], START_LIMIT)?;
        let folder = memory.join(name);
        Ok(Self {
            name,
            layout: PoolLayout::Single,
            instance,
            folder,
        })
    }

    /// The same with pools of another layout.
    pub fn with_layout(self, layout: PoolLayout) -> Self {
        Self { layout, ..self }
    }

    /// A table of its pool's statistics.
    pub fn statistics(&self, name: &str) -> Outcome<serde_json::Value> {
        let pattern = format!("zfs/{POOL}:0:{name}");
        let said = self.instance.must("tarn", &["kstat", "-j", &pattern])?;
        let mut answer: serde_json::Value = serde_json::from_str(&said.stdout)?;
        Ok(answer[0]["data"].take())
    }

    /// Has the machine give the disk all of its memory, so that no write waits for it.
    pub fn claim_disk(&self) -> Outcome {
        let image = File::options().write(true).open(self.folder.join(IMAGE))?;
        let flags = rustix::fs::FallocateFlags::empty();
        Ok(rustix::fs::fallocate(&image, flags, 0, IMAGE_BYTES)?)
    }

    /// Below the instance's folder, so that it is unmounted with the instance whatever happens.
    fn mount(&self) -> PathBuf {
        self.instance.root().join(POOL)
    }
}

impl Peer for Tarn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn make(&mut self) -> Outcome<PathBuf> {
        let (image, _) = make_disk(&self.folder)?;
        let (kind, count) = self.layout.vdev();
        let mut vdev = format!("{kind} {}", image.display());
        for disk in 1..count {
            let image = self.folder.join(format!("disk-{disk}.img"));
            File::create(&image)?.set_len(IMAGE_BYTES)?;
            vdev = format!("{vdev} {}", image.display());
        }
        let mount = self.mount();
        self.instance.zpool(&format!(
            "create -f -o ashift=12 -O compression=off -O atime=off -m {} {POOL} {vdev}",
            mount.display(),
        ))?;
        Ok(mount)
    }

    fn forget(&mut self) -> Outcome {
        self.instance.zpool(&format!("export {POOL}"))?;
        let folder = self.folder.display();
        self.instance.zpool(&format!("import -d {folder} {POOL}"))?;
        Ok(())
    }

    fn remove(&mut self) -> Outcome {
        if self.folder.exists() {
            self.instance.zpool(&format!("destroy -f {POOL}"))?;
            fs::remove_dir_all(&self.folder)?;
        }
        Ok(())
    }

    fn zfs(&self) -> Outcome<Command> {
        Ok(self.instance.command("zfs"))
    }
}

/// ZFS as it was in 2010, in user space: pool version 23, the other one that is served by FUSE.
struct ZfsFuse {
    programs: Unpacked,
    daemon: Child,
    folder: PathBuf,
}

/// The packages of the Debian release that still had it.
const ZFS_FUSE_PACKAGES: [&str; 5] = ["zfs-fuse", "libfuse2", "libaio1", "libtirpc3", "libssl3"];

/// Where it keeps what it knows. These places cannot be changed, so empty ones are mounted over
/// them.
const ZFS_FUSE_STATE: [&str; 2] = ["/var/lib/zfs", "/var/run/zfs"];

impl ZfsFuse {
    /// Unpacks it and starts its daemon as Debian's configuration does, but for a cache as large as
    /// ours.
    fn start(memory: &Path) -> Outcome<Self> {
        let folder = target().join("oracle").join(ZFS_FUSE);
        let programs = unpack_debian(&folder, &ZFS_FUSE_PACKAGES, Source::Release)?;
        for state in ZFS_FUSE_STATE {
            fs::create_dir_all(state)?;
            output(Command::new("mount").args(["-t", "tmpfs", ZFS_FUSE, state]))?;
        }
        let log = File::create(scratch("bench").join("zfs-fuse.log"))?;
        let mut command = programs.command(ZFS_FUSE)?;
        command
            .args(["--no-daemon", "--no-kstat-mount", "--max-arc-size"])
            .arg(CACHE_MIB.to_string())
            .args([
                "--fuse-attr-timeout",
                "3600",
                "--fuse-entry-timeout",
                "3600",
            ])
            .args(["--fuse-mount-options", "default_permissions"])
            .stdout(Stdio::null())
            .stderr(log);
        let daemon = command.spawn()?;
        let folder = memory.join(ZFS_FUSE);
        let peer = Self {
            programs,
            daemon,
            folder,
        };
        let began = Instant::now();
        while peer.zpool(&["list"]).is_err() {
            if began.elapsed() > START_LIMIT {
                return Err("its daemon does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(peer)
    }

    fn zpool(&self, arguments: &[&str]) -> Outcome<String> {
        output(self.programs.command("zpool")?.args(arguments))
    }

    /// The pool is busy until the kernel's last requests are answered, which no program waits for.
    fn zpool_when_idle(&self, arguments: &[&str]) -> Outcome<String> {
        let began = Instant::now();
        loop {
            match self.zpool(arguments) {
                Err(_) if began.elapsed() < START_LIMIT => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                outcome => return outcome,
            }
        }
    }
}

impl Drop for ZfsFuse {
    fn drop(&mut self) {
        // It has no pool any more, so there is nothing it could lose.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Peer for ZfsFuse {
    fn name(&self) -> &'static str {
        ZFS_FUSE
    }

    fn make(&mut self) -> Outcome<PathBuf> {
        let (image, mount) = make_disk(&self.folder)?;
        let (at, disk) = (mount.display().to_string(), image.display().to_string());
        let properties = [
            "create",
            "-f",
            "-o",
            "cachefile=none",
            "-O",
            "compression=off",
            "-O",
            "atime=off",
            "-m",
            &at,
        ];
        self.zpool(&[&properties[..], &[POOL, &disk]].concat())?;
        Ok(mount)
    }

    fn forget(&mut self) -> Outcome {
        self.zpool_when_idle(&["export", POOL])?;
        let folder = self.folder.display().to_string();
        self.zpool(&["import", "-o", "cachefile=none", "-d", &folder, POOL])?;
        Ok(())
    }

    fn remove(&mut self) -> Outcome {
        if self.folder.exists() {
            self.zpool_when_idle(&["destroy", "-f", POOL])?;
            fs::remove_dir_all(&self.folder)?;
        }
        Ok(())
    }

    fn zfs(&self) -> Outcome<Command> {
        Ok(self.programs.command("zfs")?)
    }
}

/// How a file system of the kernel is made.
struct KernelKind {
    name: &'static str,
    package: &'static str,
    make: &'static [&'static str],
}

/// Each with its own defaults; ext4 does at once what it would do later in the background.
const KERNEL: [KernelKind; 3] = [
    KernelKind {
        name: "btrfs",
        package: "btrfs-progs",
        make: &["mkfs.btrfs", "-q", "-f"],
    },
    KernelKind {
        name: "xfs",
        package: "xfsprogs",
        make: &["mkfs.xfs", "-q", "-f"],
    },
    KernelKind {
        name: "ext4",
        package: "e2fsprogs",
        make: &[
            "mkfs.ext4",
            "-q",
            "-F",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
        ],
    },
];

/// A file system of the kernel on a loop device, which is gone when it is unmounted.
struct Kernel {
    kind: &'static KernelKind,
    folder: PathBuf,
}

impl Kernel {
    fn find(kind: &'static KernelKind, memory: &Path) -> Outcome<Self> {
        if !is_in_path(kind.make[0]) {
            install(&[kind.package])?;
        }
        // Where it is a module, this loads it; where it is not, mounting says so.
        let _ = Command::new("modprobe").args(["-q", kind.name]).status();
        let folder = memory.join(kind.name);
        Ok(Self { kind, folder })
    }

    fn mount(&self) -> Outcome {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", self.kind.name, "-o", "loop,noatime"])
            .arg(self.folder.join("disk.img"));
        output(mount.arg(self.folder.join("mount")))?;
        Ok(())
    }

    fn unmount(&self) -> Outcome {
        output(Command::new("umount").arg(self.folder.join("mount")))?;
        Ok(())
    }
}

impl Peer for Kernel {
    fn name(&self) -> &'static str {
        self.kind.name
    }

    fn make(&mut self) -> Outcome<PathBuf> {
        let (image, mount) = make_disk(&self.folder)?;
        output(
            Command::new(self.kind.make[0])
                .args(&self.kind.make[1..])
                .arg(&image),
        )?;
        self.mount()?;
        Ok(mount)
    }

    fn forget(&mut self) -> Outcome {
        self.unmount()?;
        self.mount()
    }

    fn remove(&mut self) -> Outcome {
        if self.folder.exists() {
            self.unmount()?;
            fs::remove_dir_all(&self.folder)?;
        }
        Ok(())
    }
}
