//! The package is installed, used, upgraded and removed under a real systemd, in a virtual machine.
//!
//! # Mechanism
//! `debootstrap` makes a Debian with a kernel, once, below `target/package`; `mke2fs` makes a disk
//! of it that has the packages and a script, which a unit runs at each boot. qemu emulates the
//! machine, so nothing of this one is needed but these programs. What the script prints comes over
//! the second serial line (the first is the console, which getty hangs up); its last line is the
//! verdict.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::debian_packages::install_missing;
use crate::workspace::{Outcome, remove_folder, run, target};

/// Programs that this needs, and the Debian package each is in.
const NEEDED: [(&str, &str); 4] = [
    ("debootstrap", "debootstrap"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mke2fs", "e2fsprogs"),
    ("timeout", "coreutils"),
];

/// What the guest has beside a minimal Debian.
const INCLUDED: &str = "systemd-sysv,udev,dbus,fuse3,init-system-helpers,linux-image-amd64,\
    initramfs-tools,kmod,man-db,bash-completion,zsh,fish";

/// The release that the guest is.
const RELEASE: &str = "bookworm";

/// Where the guest has the packages and the script.
const JUDGE: &str = "judge";

/// Runs the script at each boot. It is no part of a transaction that the script would wait for.
const UNIT: &str = "[Unit]\nDescription=Judgement of the package\n\n\
    [Service]\nType=simple\nExecStart=/judge/run\n\n[Install]\nWantedBy=multi-user.target\n";

/// The size of the guest's disk, and of the two that are for a pool; all sparse.
const DISK_BYTES: u64 = 6 << 30;
const VDEV_BYTES: u64 = 1 << 30;

/// The longest that two boots and the judgement may take, in seconds. Software emulation is some
/// twenty times slower than the machine.
const SECONDS_MAX: &str = "1800";

/// The last line of the script.
const PASSED: &str = "judge: verdict: passed";

/// The packages that are judged: one, a later version of it, and one for another prefix.
pub struct Packages {
    /// Installed first.
    pub first: PathBuf,
    /// The upgrade.
    pub second: PathBuf,
    /// Below another prefix.
    pub beside: PathBuf,
}

/// Judges the packages, and prints what the guest said.
pub fn judge(packages: &Packages) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err("judging a package needs root: debootstrap makes device files".into());
    }
    install_missing(&NEEDED)?;
    let folder = target().join("package");
    let guest = folder.join("guest");
    if !guest.join("boot-made").exists() {
        remove_folder(&guest)?;
        run(Command::new("debootstrap")
            .args(["--variant=minbase", "--include", INCLUDED, RELEASE])
            .arg(&guest))?;
        fs::write(guest.join("boot-made"), "")?;
    }
    prepare(&guest, packages)?;
    let disk = folder.join("guest.img");
    let vdevs = [folder.join("vdev-0.img"), folder.join("vdev-1.img")];
    let _ = fs::remove_file(&disk);
    sparse(&disk, DISK_BYTES)?;
    for vdev in &vdevs {
        let _ = fs::remove_file(vdev);
        sparse(vdev, VDEV_BYTES)?;
    }
    run(Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-d"])
        .args([&guest, &disk]))?;
    let lines = [folder.join("console"), folder.join("said")];
    boot(&guest, &disk, &vdevs, &lines)?;
    let said = String::from_utf8_lossy(&fs::read(&lines[1])?).into_owned();
    for line in said.lines().filter(|line| line.starts_with("judge: ")) {
        println!("{line}");
    }
    match said.lines().any(|line| line.trim_end() == PASSED) {
        true => Ok(()),
        false => Err(format!(
            "the package did not pass; all that the guest said is in {} and {}",
            lines[1].display(),
            lines[0].display()
        )
        .into()),
    }
}

fn sparse(path: &Path, bytes: u64) -> Outcome {
    fs::File::create(path)?.set_len(bytes)?;
    Ok(())
}

/// Puts the packages, the script and its unit into the guest.
fn prepare(guest: &Path, packages: &Packages) -> Outcome {
    let judge = guest.join(JUDGE);
    remove_folder(&judge)?;
    fs::create_dir_all(&judge)?;
    let script = judge.join("run");
    fs::write(&script, include_str!("judge.sh"))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    fs::write(judge.join("phase"), "1\n")?;
    fs::copy(&packages.first, judge.join("first.deb"))?;
    fs::copy(&packages.second, judge.join("second.deb"))?;
    fs::copy(&packages.beside, judge.join("beside.deb"))?;
    let units = guest.join("etc/systemd/system");
    fs::write(units.join("judge.service"), UNIT)?;
    let wanted = units.join("multi-user.target.wants");
    fs::create_dir_all(&wanted)?;
    let link = wanted.join("judge.service");
    if fs::symlink_metadata(&link).is_err() {
        symlink("../judge.service", link)?;
    }
    Ok(())
}

/// The newest file below `/boot` whose name begins so.
fn boot_file(guest: &Path, prefix: &str) -> Outcome<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(guest.join("boot"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with(prefix)
        })
        .collect();
    found.sort();
    found
        .pop()
        .ok_or_else(|| format!("the guest has no /boot/{prefix}*").into())
}

/// Boots the guest and waits until it has turned itself off. Its serial lines go to files.
fn boot(guest: &Path, disk: &Path, vdevs: &[PathBuf], lines: &[PathBuf]) -> Outcome {
    let drive = |path: &Path| {
        format!(
            "file={},format=raw,if=virtio,cache=unsafe,discard=unmap",
            path.display()
        )
    };
    let mut qemu = Command::new("timeout");
    qemu.args([SECONDS_MAX, "qemu-system-x86_64"])
        .args(["-accel", "tcg,thread=multi", "-cpu", "max"])
        .args(["-m", "1536", "-smp", "2", "-nographic", "-nodefaults"])
        .arg("-kernel")
        .arg(boot_file(guest, "vmlinuz-")?)
        .arg("-initrd")
        .arg(boot_file(guest, "initrd.img-")?)
        .args([
            "-append",
            "root=/dev/vda rw console=ttyS0 panic=-1 quiet mitigations=off",
        ])
        .args(["-drive", &drive(disk)]);
    for vdev in vdevs {
        qemu.args(["-drive", &drive(vdev)]);
    }
    for line in lines {
        qemu.args(["-serial", &format!("file:{}", line.display())]);
    }
    run(qemu.stdin(Stdio::null()))
}
