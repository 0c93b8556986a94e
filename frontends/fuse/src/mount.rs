//! Mounting and unmounting through mount(2), umount2(2) and `fusermount3`.
//!
//! Root opens the device and mounts it itself. Other users run `fusermount3`, which is set-uid,
//! mounts, and hands the device back over a socket. The mount shows with file system type `fuse`
//! and the dataset's name as its source.
//!
//! A mount point may lie in a mount that this process serves, so threads without descriptors make
//! the calls that look a path up: see [`call_apart`].

use crate::permission_checks::PermissionChecks;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{AddressFamily, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use std::ffi::CString;
use std::io::IoSliceMut;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tarn_engine::mounts::MountOptions;
use tarn_engine::{call_apart, open_apart};
use thiserror::Error;

/// Why a mount failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// The FUSE device cannot be opened: the kernel has no FUSE, or this user may not use it.
    #[error("cannot open /dev/fuse: {}", tarn_engine::words_of(&(*.0).into()))]
    Device(Errno),
    /// mount(2) failed.
    #[error("cannot mount on {}: {}", .path.display(), tarn_engine::words_of(&(*.cause).into()))]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// The system's error.
        cause: Errno,
    },
    /// The folder is no longer where its path says.
    #[error("cannot mount on {path}: it leads to {found} now", path = .path.display(), found = .found.display())]
    Moved {
        /// The mount point.
        path: PathBuf,
        /// The path of the folder that was opened.
        found: PathBuf,
    },
    /// `fusermount3` could not be started.
    #[error(
        "cannot run fusermount3 (package fuse3), which mounts for users that are not root: {}",
        tarn_engine::words_of(.0)
    )]
    NoHelper(std::io::Error),
    /// `fusermount3` failed, with this text.
    #[error("fusermount3: {0}")]
    Helper(String),
}

/// The options as flags of mount(2).
fn flags_of(options: MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, !options.devices);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NOSUID, !options.setuid);
    flags.set(MountFlags::NOATIME, !options.atime);
    flags
}

/// The options for `fusermount3 -o`.
fn words_of(options: MountOptions) -> Vec<&'static str> {
    let mut words = vec![
        if options.read_only { "ro" } else { "rw" },
        "nodev",
        "nosuid",
    ];
    if !options.exec {
        words.push("noexec");
    }
    if !options.atime {
        words.push("noatime");
    }
    words
}

/// Opens a folder with `O_PATH`, without following a link in the last place.
fn place_at(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    open_apart(path, flags)
}

/// A path to an open folder, which renames do not change.
fn path_of(place: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// Mounts a device on a folder, and returns the device. The path must have no symbolic links:
/// mounting fails if it resolves to another folder.
///
/// # Errors
/// There is no FUSE, or the mount is refused.
pub fn mount(
    source: &str,
    path: &Path,
    options: MountOptions,
    checks: PermissionChecks,
) -> Result<OwnedFd, MountError> {
    if rustix::process::geteuid().is_root() {
        mount_as_root(source, path, options, checks)
    } else {
        mount_with_helper(source, path, options, checks)
    }
}

/// Unmounts a folder. With `force`, also one in use: it is detached at once, and ends with its last
/// user.
///
/// # Errors
/// The system's error: `EBUSY` when it is in use.
pub fn unmount(path: &Path, force: bool) -> Result<(), Errno> {
    if rustix::process::geteuid().is_root() {
        return match force {
            true => call_apart(path, |path| unmount_as_root(path, UnmountFlags::DETACH)),
            false => call_apart(path, |path| unmount_as_root(path, UnmountFlags::empty())),
        };
    }
    let mut helper = Command::new("fusermount3");
    helper
        .arg("-u")
        .args(force.then_some("-z"))
        .arg("--")
        .arg(path);
    match helper.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => Err(Errno::BUSY),
        Err(_) => Err(Errno::NOENT),
    }
}

fn unmount_as_root(path: &Path, flags: UnmountFlags) -> Result<(), Errno> {
    rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW)
}

/// The kernel's list of FUSE connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The mount at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The number of the FUSE connection.
    pub number: u32,
    /// The mount's own number.
    pub id: u64,
}

/// The mount at a path, if it has no block device. Reads the kernel's attributes without asking the
/// file system.
pub fn seen_at(path: &Path) -> Option<Seen> {
    call_apart(path, |path| seen(path, AtFlags::SYMLINK_NOFOLLOW))
        .ok()
        .flatten()
}

/// The mount that a path resolves into.
///
/// # Errors
/// The system's error for the path.
pub fn seen_through(path: &Path) -> Result<Option<Seen>, Errno> {
    call_apart(path, |path| seen(path, AtFlags::empty()))
}

/// The number of the mount that a path is in.
pub fn seen_id(path: &Path) -> Option<u64> {
    let status = call_apart(path, |path| {
        let flags = AtFlags::STATX_DONT_SYNC;
        rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::MNT_ID)
    });
    status.ok().map(|status| status.stx_mnt_id)
}

/// Whether a path may be a mount point. The question reaches no file system, so it does not hang on
/// one whose server died; where the kernel does not answer, the result is true.
pub fn may_be_mount_point(path: &Path) -> bool {
    let root = StatxAttributes::MOUNT_ROOT;
    let status = call_apart(path, |path| {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
        rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::empty())
    });
    match status {
        Ok(status) => {
            !status.stx_attributes_mask.contains(root) || status.stx_attributes.contains(root)
        }
        Err(errno) => errno != Errno::NOENT,
    }
}

fn seen(path: &Path, flags: AtFlags) -> Result<Option<Seen>, Errno> {
    let flags = flags | AtFlags::STATX_DONT_SYNC;
    let status = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::MNT_ID)?;
    let seen = Seen {
        number: status.stx_dev_minor,
        id: status.stx_mnt_id,
    };
    Ok((status.stx_dev_major == 0).then_some(seen))
}

/// Aborts a connection: pending and later calls fail. Does nothing without permission.
pub fn abort(number: u32) {
    let path = format!("{CONNECTIONS}/{number}/abort");
    if std::fs::write(&path, "1").is_ok() {
        return;
    }
    // If the kernel's list of connections is not mounted, root can mount it.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = rustix::mount::mount("fusectl", CONNECTIONS, "fusectl", flags, None);
    let _ = std::fs::write(path, "1");
}

/// Changes the options of a mount while it is used. Only root can. `number` is that of its
/// connection: another mount on the folder is left alone, and so is every mount if the number is
/// not known.
///
/// # Errors
/// The system's error: `EBUSY` when it is to be read-only and files are open for writing, or
/// another mount is on this folder.
pub fn change_options(
    path: &Path,
    number: Option<u32>,
    options: MountOptions,
) -> Result<(), Errno> {
    let place = place_at(path)?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(&place, c"", flags, StatxFlags::empty())?;
    if number != Some(found.stx_dev_minor) {
        return Err(Errno::BUSY);
    }
    rustix::mount::mount_remount(path_of(&place), flags_of(options), c"")
}

fn mount_as_root(
    source: &str,
    path: &Path,
    options: MountOptions,
    checks: PermissionChecks,
) -> Result<OwnedFd, MountError> {
    let open = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::open("/dev/fuse", open, Mode::empty()).map_err(MountError::Device)?;
    attach(source, path, options, device.as_fd(), checks)?;
    Ok(device)
}

/// Mounts the file system of this device on a folder. If the device serves a file system already,
/// that one is mounted on one more folder, as Linux does since 5.15: one file system, with one page
/// cache, has several mounts.
///
/// # Errors
/// The mount is refused: `ENOTCONN` when the last mount of the file system has ended meanwhile.
pub fn attach(
    source: &str,
    path: &Path,
    options: MountOptions,
    device: BorrowedFd<'_>,
    checks: PermissionChecks,
) -> Result<(), MountError> {
    let number = device.as_raw_fd();
    // Reads are as large as writes.
    let data = format!(
        "fd={number},rootmode=40000,user_id=0,group_id=0,allow_other,{}max_read={}",
        word_of(checks),
        crate::protocol::WRITE_BYTES_MAX
    );
    let refused = |cause| MountError::Mount {
        path: path.to_path_buf(),
        cause,
    };
    let data = CString::new(data).map_err(|_| refused(Errno::INVAL))?;
    let place = place_at(path).map_err(refused)?;
    let found = std::fs::read_link(path_of(&place)).unwrap_or_default();
    if found != path {
        let path = path.to_path_buf();
        return Err(MountError::Moved { path, found });
    }
    rustix::mount::mount(
        source,
        path_of(&place),
        "fuse",
        flags_of(options),
        Some(data.as_c_str()),
    )
    .map_err(refused)
}

/// The mount option by which the kernel checks permissions, where it does.
fn word_of(checks: PermissionChecks) -> &'static str {
    match checks {
        PermissionChecks::Kernel => "default_permissions,",
        PermissionChecks::FileSystem => "",
    }
}

fn mount_with_helper(
    source: &str,
    path: &Path,
    options: MountOptions,
    checks: PermissionChecks,
) -> Result<OwnedFd, MountError> {
    let pair = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        // `fusermount3` inherits its end, so that end is not closed on exec.
        SocketFlags::empty(),
        None,
    );
    let (ours, theirs) = pair.map_err(MountError::Device)?;
    // User names in sources may hold commas, which would end the option.
    let name = source.replace('\\', "\\\\").replace(',', "\\,");
    let words = words_of(options).join(",");
    let text = format!("{words},{}fsname={name}", word_of(checks));
    let output = Command::new("fusermount3")
        .args(["-o", &text, "--"])
        .arg(path)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(MountError::NoHelper)?;
    drop(theirs);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        // Its text begins with its name.
        let said = said.trim();
        let said = said.strip_prefix("fusermount3: ").unwrap_or(said);
        return Err(MountError::Helper(said.to_string()));
    }
    receive_device(&ours)
        .ok_or_else(|| MountError::Helper("it mounted and gave no device back".to_string()))
}

/// Receives the device from `fusermount3`.
fn receive_device(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0; 1];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = rustix::net::RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )
    .ok()?;
    let device = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })?;
    let flags = rustix::fs::fcntl_getfl(device.as_fd()).ok()?;
    rustix::fs::fcntl_setfl(device.as_fd(), flags | OFlags::NONBLOCK).ok()?;
    Some(device)
}
