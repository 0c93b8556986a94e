//! Mounting and unmounting.
//!
//! Root opens the device and mounts it itself. Others ask `fusermount3`, which is set-uid, mounts,
//! and hands the device back over a socket. The mount shows with file system type `fuse` and the
//! dataset's name as its source.

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
use thiserror::Error;

/// Why a mount failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// The FUSE device cannot be opened: the kernel has no FUSE, or this user may not use it.
    #[error("cannot open /dev/fuse: {}", tarn_engine::words_of(&(*.0).into()))]
    Device(Errno),
    /// `mount(2)` refused.
    #[error("cannot mount on {}: {}", .path.display(), tarn_engine::words_of(&(*.cause).into()))]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        cause: Errno,
    },
    /// The folder is not where it was looked for.
    #[error("cannot mount on {path}: it leads to {found} now", path = .path.display(), found = .found.display())]
    Moved {
        /// The mount point.
        path: PathBuf,
        /// Where it leads.
        found: PathBuf,
    },
    /// `fusermount3` could not be run.
    #[error(
        "cannot run fusermount3 (package fuse3), which mounts for users that are not root: {}",
        tarn_engine::words_of(.0)
    )]
    NoHelper(std::io::Error),
    /// `fusermount3` refused.
    #[error("fusermount3: {0}")]
    Helper(String),
}

/// The options as the system's flags.
fn flags_of(options: MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, !options.devices);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NOSUID, !options.setuid);
    flags.set(MountFlags::NOATIME, !options.atime);
    flags
}

/// The options as `fusermount3 -o` takes them.
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

/// Opens a folder only to name it: nothing is asked of it. A link in the last place is none.
fn place_at(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// A path to what is open, which cannot be led elsewhere.
fn path_of(place: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// Mounts a device on a folder, and gives the device. The path must have no links: nothing is
/// mounted where it leads through one.
///
/// # Errors
/// When there is no FUSE, or the mount is refused.
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

/// Unmounts a folder. With `force`, also one that is in use: it goes from the tree at once, and
/// from memory when the last user is done.
///
/// # Errors
/// What the system says: `EBUSY` when it is in use.
pub fn unmount(path: &Path, force: bool) -> Result<(), Errno> {
    if rustix::process::geteuid().is_root() {
        let flags = if force {
            UnmountFlags::DETACH
        } else {
            UnmountFlags::empty()
        };
        return rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW);
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

/// Where the kernel lists connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// What is mounted at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The number under which the kernel knows the connection, where a FUSE mount is there.
    pub number: u32,
    /// The mount's own number.
    pub id: u64,
}

/// What is mounted at a path, if it is a device of the kernel's own. Asks the kernel's memory only,
/// not the mount.
pub fn seen_at(path: &Path) -> Option<Seen> {
    seen(path, AtFlags::SYMLINK_NOFOLLOW).ok().flatten()
}

/// The mount that a path leads into.
///
/// # Errors
/// What the system says of the path.
pub fn seen_through(path: &Path) -> Result<Option<Seen>, Errno> {
    seen(path, AtFlags::empty())
}

/// The number of the mount that a path is in.
pub fn seen_id(path: &Path) -> Option<u64> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let status = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::MNT_ID);
    status.ok().map(|status| status.stx_mnt_id)
}

/// Whether something is mounted on a path. That asks no file system, not even one whose server
/// died; where the system does not tell, it may be.
pub fn may_be_mount_point(path: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let root = StatxAttributes::MOUNT_ROOT;
    match rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::empty()) {
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

/// Aborts a connection: calls that wait for an answer fail, and so do all from now on. Nothing,
/// where the system does not let us.
pub fn abort(number: u32) {
    let path = format!("{CONNECTIONS}/{number}/abort");
    if std::fs::write(&path, "1").is_ok() {
        return;
    }
    // Where the kernel's list of connections is not mounted, root can mount it.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = rustix::mount::mount("fusectl", CONNECTIONS, "fusectl", flags, None);
    let _ = std::fs::write(path, "1");
}

/// Gives a mount other options, while it is used. Only root can. `number` is under which the kernel
/// knows its connection: another mount is left alone, and so is every mount where that is not
/// known.
///
/// # Errors
/// What the system says: `EBUSY` when it is to be read-only and files are open for writing, or
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

/// Mounts on a folder what this device serves. A device that serves a file system already has that
/// mounted on one more folder, as Linux does since 5.15: there is one file system, with one set of
/// pages, however many mounts show it.
///
/// # Errors
/// When the mount is refused: `ENOTCONN` when the last mount of the file system has ended
/// meanwhile.
pub fn attach(
    source: &str,
    path: &Path,
    options: MountOptions,
    device: BorrowedFd<'_>,
    checks: PermissionChecks,
) -> Result<(), MountError> {
    let number = device.as_raw_fd();
    // Reads are as large as our writes.
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

/// The option that has the kernel check permissions, where it does.
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
        // The helper inherits its end, so it is not closed on exec.
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
        // It says its name itself.
        let said = said.trim();
        let said = said.strip_prefix("fusermount3: ").unwrap_or(said);
        return Err(MountError::Helper(said.to_string()));
    }
    receive_device(&ours)
        .ok_or_else(|| MountError::Helper("it mounted and gave no device back".to_string()))
}

/// The device that the helper sends.
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
