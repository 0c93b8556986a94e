//! The block devices that a file or block device is stored on.
//!
//! # Mechanism
//! A file is on the device of its file system. The kernel lists what a block device is made of: a
//! loop device of a file, a partition of a disk, device-mapper and md of other devices. The search
//! follows these layers down, through links and bind mounts, to devices that are made of no others.
//! A file system that has no device of its own, such as FUSE, has a number all the same.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where the kernel lists block devices by their numbers.
const BLOCK_DEVICES: &str = "/sys/dev/block";

/// The most devices that one search follows: more than any real stack of layers has.
const DEVICES_MAX: usize = 256;

/// The number of a device, or of a file system that has none (major 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// The kind.
    pub major: u32,
    /// Which one.
    pub minor: u32,
}

impl DeviceNumber {
    fn of(raw: u64) -> DeviceNumber {
        DeviceNumber {
            major: rustix::fs::major(raw),
            minor: rustix::fs::minor(raw),
        }
    }

    /// As sysfs writes it: `8:1`.
    fn parse(text: &str) -> Option<DeviceNumber> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(DeviceNumber {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

/// All devices on which what a path leads to is stored, itself included if it is one.
pub(crate) fn devices_below(path: &Path) -> Vec<DeviceNumber> {
    all_below(Path::new(BLOCK_DEVICES), device_of(path))
}

fn all_below(block_devices: &Path, start: Option<DeviceNumber>) -> Vec<DeviceNumber> {
    let mut found = BTreeSet::new();
    let mut left: Vec<DeviceNumber> = start.into_iter().collect();
    while let Some(device) = left.pop() {
        if found.len() < DEVICES_MAX && found.insert(device) && device.major != 0 {
            left.extend(made_of(block_devices, device));
        }
    }
    found.into_iter().collect()
}

/// The device that a path leads to, or the one on which it lies.
fn device_of(path: &Path) -> Option<DeviceNumber> {
    let metadata = std::fs::metadata(path).ok()?;
    let is_device = metadata.file_type().is_block_device();
    let raw = if is_device {
        metadata.rdev()
    } else {
        metadata.dev()
    };
    Some(DeviceNumber::of(raw))
}

/// What a block device is made of, one layer down.
fn made_of(block_devices: &Path, device: DeviceNumber) -> Vec<DeviceNumber> {
    let folder = block_devices.join(format!("{}:{}", device.major, device.minor));
    let number_in = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join("dev")).ok()?;
        DeviceNumber::parse(&text)
    };
    let slaves = std::fs::read_dir(folder.join("slaves"));
    let slaves = slaves.into_iter().flatten().flatten();
    let mut below: Vec<DeviceNumber> = slaves
        .filter_map(|slave| number_in(&slave.path()))
        .collect();
    if folder.join("partition").exists() {
        // The link leads below the disk's own folder.
        let disk = std::fs::canonicalize(&folder).ok();
        below.extend(disk.and_then(|disk| number_in(disk.parent()?)));
    }
    if let Ok(file) = std::fs::read_to_string(folder.join("loop/backing_file")) {
        below.extend(device_of(&PathBuf::from(file.trim_end_matches('\n'))));
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// `dm-0` (253:0) is made of a partition (8:1) of a disk (8:0) and of a loop device (7:3) of a
    /// file.
    #[test]
    fn layers_are_followed_down_to_the_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let add = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        add("devices/sda/dev", "8:0\n");
        add("devices/sda/sda1/dev", "8:1\n");
        add("devices/sda/sda1/partition", "1\n");
        add("devices/loop3/dev", "7:3\n");
        add(
            "devices/loop3/loop/backing_file",
            &format!("{}\n", file.display()),
        );
        add("devices/dm-0/slaves/sda1/dev", "8:1\n");
        add("devices/dm-0/slaves/loop3/dev", "7:3\n");
        // One that is made of itself does not end in a circle.
        add("devices/dm-0/slaves/dm-0/dev", "253:0\n");
        let block = folder.path().join("block");
        fs::create_dir(&block).unwrap();
        for (number, device) in [
            ("8:0", "sda"),
            ("8:1", "sda/sda1"),
            ("7:3", "loop3"),
            ("253:0", "dm-0"),
        ] {
            let target = folder.path().join("devices").join(device);
            std::os::unix::fs::symlink(target, block.join(number)).unwrap();
        }
        let start = DeviceNumber {
            major: 253,
            minor: 0,
        };
        let found = all_below(&block, Some(start));
        for (major, minor) in [(8, 0), (8, 1), (7, 3)] {
            assert!(found.contains(&DeviceNumber { major, minor }));
        }
        assert!(found.contains(&device_of(&file).unwrap()));
    }

    #[test]
    fn what_is_not_there_lies_nowhere() {
        assert!(devices_below(Path::new("/no/such/file")).is_empty());
    }
}
