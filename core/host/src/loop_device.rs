//! Loop devices: block devices of this machine over a file.
//!
//! # Mechanism
//! `/dev/loop-control` names a free number; `LOOP_CONFIGURE` binds a file to the device of that
//! number, with block size and flags, in one step. Linux reads and writes the file itself, from
//! threads of the kernel.
//!
//! [`LoopDevice::release`] has Linux unbind the file with the last close of the device. So a device
//! that is in use stays as it is, and [`LoopDevice::keep`] takes the order back; one that is not in
//! use is gone when `release` returns.

use crate::layers::DeviceNumber;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Requests of linux/loop.h and linux/fs.h; libc does not name them.
mod request {
    pub(super) const CLEAR: libc::c_ulong = 0x4c01;
    pub(super) const SET_STATUS: libc::c_ulong = 0x4c04;
    pub(super) const SET_CAPACITY: libc::c_ulong = 0x4c07;
    pub(super) const SET_DIRECT_IO: libc::c_ulong = 0x4c08;
    pub(super) const CONFIGURE: libc::c_ulong = 0x4c0a;
    pub(super) const GET_FREE: libc::c_ulong = 0x4c82;
    pub(super) const SET_READ_ONLY: libc::c_ulong = 0x125d;
    pub(super) const FLUSH_BUFFERS: libc::c_ulong = 0x1261;
}

/// Flags of a loop device.
mod flag {
    pub(super) const READ_ONLY: u32 = 1;
    pub(super) const PARTITIONS: u32 = 8;
    pub(super) const DIRECT_IO: u32 = 16;
}

/// How often a free number is asked for: another process may be faster each time.
const TRIES: usize = 64;

/// Linux's number for loop devices.
const MAJOR: u32 = 7;

/// What Linux knows of a loop device: `loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Information {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    file_name: [u8; 64],
    encryption_name: [u8; 64],
    key: [u8; 32],
    initial: [u64; 2],
}

const _: () = assert!(size_of::<Information>() == 232);

impl Information {
    const NONE: Information = Information {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encryption: [0; 2],
        flags: 0,
        file_name: [0; 64],
        encryption_name: [0; 64],
        key: [0; 32],
        initial: [0; 2],
    };
}

/// `loop_config`.
#[repr(C)]
struct Configuration {
    file: u32,
    block_bytes: u32,
    information: Information,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Configuration>() == 304);

/// How a file becomes a device.
#[derive(Debug, Clone, Copy)]
pub struct LoopOptions {
    /// Bytes of a logical block: 512, or another power of two up to a page.
    pub block_bytes: u32,
    /// Linux refuses writes.
    pub is_read_only: bool,
    /// Linux looks for partitions.
    pub has_partitions: bool,
}

/// Whether a device that was released is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It has no file any more.
    Gone,
    /// It is open somewhere, and goes with its last close unless it is [kept](LoopDevice::keep).
    InUse,
}

/// A loop device that has a file.
#[derive(Debug, Clone)]
pub struct LoopDevice {
    number: u32,
    path: PathBuf,
    /// Where Linux says its file is, which tells it from a later device of the same number. Asking
    /// for the status of the device instead would have Linux ask the file's file system.
    file: PathBuf,
    has_partitions: bool,
}

impl LoopDevice {
    /// Why this process cannot make loop devices; none where it can, as far as that is known before
    /// it tries.
    pub fn obstacle() -> Option<io::Error> {
        open(Path::new("/dev/loop-control"), true).err()
    }

    /// Makes a device of an open file.
    ///
    /// # Errors
    /// The system's: no `/dev/loop-control`, no leave to use it, no free device.
    pub fn make(file: BorrowedFd<'_>, options: LoopOptions) -> io::Result<LoopDevice> {
        let control = open(Path::new("/dev/loop-control"), true)?;
        for _ in 0..TRIES {
            let number = call(control.as_raw_fd(), request::GET_FREE, 0)?;
            let number = u32::try_from(number).map_err(|_| io::ErrorKind::InvalidData)?;
            let path = node_of(number)?;
            let device = open(&path, !options.is_read_only)?;
            match configure(&device, number, file, options) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    return Ok(LoopDevice {
                        number,
                        path,
                        file: file_of(number)?,
                        has_partitions: options.has_partitions,
                    });
                }
            }
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// The devices whose files are below this folder: those that a dead daemon has left.
    ///
    /// # Errors
    /// Linux's list of block devices cannot be read.
    pub fn below(folder: &Path) -> io::Result<Vec<LoopDevice>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(BLOCK_DEVICES)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            let Some(number) = name.strip_prefix("loop") else {
                continue;
            };
            let Ok(number) = number.parse() else { continue };
            let Ok(file) = file_of(number) else { continue };
            if file.starts_with(folder) {
                found.push(LoopDevice {
                    number,
                    path: PathBuf::from(format!("/dev/{name}")),
                    file,
                    has_partitions: true,
                });
            }
        }
        Ok(found)
    }

    /// The numbers of its partitions, with the numbers of their devices.
    ///
    /// # Errors
    /// The system's.
    pub fn partitions(&self) -> io::Result<Vec<(u32, DeviceNumber)>> {
        let folder = PathBuf::from(format!("{BLOCK_DEVICES}/loop{}", self.number));
        let prefix = format!("loop{}p", self.number);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let number = name
                .strip_prefix(&prefix)
                .and_then(|rest| rest.parse().ok());
            let Some(number) = number else { continue };
            // It may go at any time.
            let Ok(text) = std::fs::read_to_string(entry.path().join("dev")) else {
                continue;
            };
            let numbers = text.trim().split_once(':');
            let parsed = numbers.map(|(major, minor)| (major.parse(), minor.parse()));
            if let Some((Ok(major), Ok(minor))) = parsed {
                found.push((number, DeviceNumber { major, minor }));
            }
        }
        found.sort_by_key(|(number, _)| *number);
        Ok(found)
    }

    /// Its node: `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Has Linux unbind the file, at once or with the last close.
    ///
    /// # Errors
    /// The system's.
    pub fn release(&self) -> io::Result<Released> {
        let Some(device) = self.open_mine(false)? else {
            return Ok(Released::Gone);
        };
        match call(device.as_raw_fd(), request::CLEAR, 0) {
            Err(error) if error.raw_os_error() != Some(libc::ENXIO) => return Err(error),
            _ => {}
        }
        // The last close unbinds.
        drop(device);
        Ok(match self.open_mine(false)? {
            Some(_) => Released::InUse,
            None => Released::Gone,
        })
    }

    /// Takes back that it is released, where it is not gone yet.
    ///
    /// # Errors
    /// The system's.
    pub fn keep(&self) -> io::Result<Released> {
        let Some(device) = self.open_mine(false)? else {
            return Ok(Released::Gone);
        };
        // Without the flag that unbinds at the last close (`LO_FLAGS_AUTOCLEAR`). Linux leaves
        // flags that it does not take here as they are.
        let information = Information {
            flags: match self.has_partitions {
                true => flag::PARTITIONS,
                false => 0,
            },
            ..Information::NONE
        };
        match set_information(&device, &information) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(Released::Gone),
            set => set?,
        }
        Ok(Released::InUse)
    }

    /// Has Linux look at the size of the file again.
    ///
    /// # Errors
    /// The system's.
    pub fn size_changed(&self) -> io::Result<()> {
        self.with_mine(false, |device| {
            call(device.as_raw_fd(), request::SET_CAPACITY, 0).map(drop)
        })
    }

    /// Has Linux refuse writes, or not any more.
    ///
    /// # Errors
    /// The system's.
    #[allow(unsafe_code)]
    pub fn set_read_only(&self, is_read_only: bool) -> io::Result<()> {
        let value = libc::c_int::from(is_read_only);
        self.with_mine(false, |device| {
            // SAFETY: the call reads one integer from the address and touches nothing else of ours.
            let result = unsafe {
                libc::ioctl(
                    device.as_raw_fd(),
                    request::SET_READ_ONLY as _,
                    &raw const value,
                )
            };
            outcome(result).map(drop)
        })
    }

    /// Writes back what Linux caches of the device, and drops its cache.
    ///
    /// # Errors
    /// The system's: among them what could not be written.
    pub fn flush_buffers(&self) -> io::Result<()> {
        self.with_mine(false, |device| {
            device.sync_all()?;
            call(device.as_raw_fd(), request::FLUSH_BUFFERS, 0).map(drop)
        })
    }

    /// Writes back what Linux caches of the device.
    ///
    /// # Errors
    /// What could not be written.
    pub fn write_back(&self) -> io::Result<()> {
        self.with_mine(false, |device| device.sync_all())
    }

    fn with_mine<T>(
        &self,
        may_write: bool,
        run: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        let device = self.open_mine(may_write)?;
        run(&device.ok_or_else(|| io::Error::from_raw_os_error(libc::ENXIO))?)
    }

    /// Opens the device, if it still has its file. None where it has none, or another one.
    fn open_mine(&self, may_write: bool) -> io::Result<Option<File>> {
        let device = match open(&self.path, may_write) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENOENT)) => {
                return Ok(None);
            }
            opened => opened?,
        };
        // It cannot get another file while it is open here.
        let is_mine = file_of(self.number).is_ok_and(|file| file == self.file);
        Ok(is_mine.then_some(device))
    }
}

/// Linux's list of block devices.
const BLOCK_DEVICES: &str = "/sys/block";

/// What Linux puts behind the path of a file whose name is gone, or is another file's by now.
const NAME_IS_GONE: &[u8] = b" (deleted)";

/// Where Linux says the file of a device is, or was when it got its device.
fn file_of(number: u32) -> io::Result<PathBuf> {
    let bytes = attribute(number, "backing_file")?;
    Ok(path_in(bytes))
}

fn path_in(mut bytes: Vec<u8>) -> PathBuf {
    if bytes.ends_with(NAME_IS_GONE) {
        bytes.truncate(bytes.len() - NAME_IS_GONE.len());
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// What Linux says of a device that has a file.
fn attribute(number: u32, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = std::fs::read(format!("{BLOCK_DEVICES}/loop{number}/loop/{name}"))?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(bytes)
}

fn open(path: &Path, may_write: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(may_write);
    options.custom_flags(libc::O_CLOEXEC).open(path)
}

/// The node of a loop device. Where `/dev` is no devtmpfs, as in containers, none appears by
/// itself.
fn node_of(number: u32) -> io::Result<PathBuf> {
    let path = PathBuf::from(format!("/dev/loop{number}"));
    make_block_node(&path, MAJOR, number)?;
    Ok(path)
}

/// Makes the node of a block device, where there is nothing at the path.
///
/// # Errors
/// The system's.
pub fn make_block_node(path: &Path, major: u32, minor: u32) -> io::Result<()> {
    if std::fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let kind = rustix::fs::FileType::BlockDevice;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let device = rustix::fs::makedev(major, minor);
    match rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, device) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn configure(
    device: &File,
    number: u32,
    file: BorrowedFd<'_>,
    options: LoopOptions,
) -> io::Result<()> {
    let mut flags = flag::DIRECT_IO;
    if options.is_read_only {
        flags |= flag::READ_ONLY;
    }
    if options.has_partitions {
        flags |= flag::PARTITIONS;
    }
    let configuration = |flags| Configuration {
        file: file.as_raw_fd().cast_unsigned(),
        block_bytes: options.block_bytes,
        information: Information {
            flags,
            ..Information::NONE
        },
        reserved: [0; 8],
    };
    set_configuration(device, &configuration(flags))?;
    // Linux leaves direct I/O out where it takes the file for unfit; then this says why.
    match attribute(number, "dio")?.as_slice() {
        b"1" => Ok(()),
        _ => call(device.as_raw_fd(), request::SET_DIRECT_IO, 1).map(drop),
    }
}

#[allow(unsafe_code)]
fn set_configuration(device: &File, configuration: &Configuration) -> io::Result<()> {
    let address = &raw const *configuration;
    // SAFETY: the call reads one structure of this size from the address and touches nothing else
    // of ours; Linux takes its own reference to the file.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), request::CONFIGURE as _, address) };
    outcome(result).map(drop)
}

#[allow(unsafe_code)]
fn set_information(device: &File, information: &Information) -> io::Result<()> {
    let address = &raw const *information;
    // SAFETY: the call reads one structure of this size from the address and touches nothing else
    // of ours.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), request::SET_STATUS as _, address) };
    outcome(result).map(drop)
}

/// A request whose argument is a number.
#[allow(unsafe_code)]
fn call(device: RawFd, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<libc::c_int> {
    // SAFETY: these requests take a number, and touch no memory of ours.
    outcome(unsafe { libc::ioctl(device, request as _, argument) })
}

fn outcome(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_path_when_its_name_is_gone() {
        let path = |text: &str| path_in(text.as_bytes().to_vec());
        assert_eq!(path("/volumes/tank/a"), Path::new("/volumes/tank/a"));
        assert_eq!(
            path("/volumes/tank/a (deleted)"),
            Path::new("/volumes/tank/a")
        );
    }
}
