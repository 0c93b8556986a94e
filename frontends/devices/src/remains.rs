//! Devices, mounts and links that a dead daemon has left.

use crate::volume_links::VolumeLinks;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tarn_engine::loop_device::LoopDevice;
use tarn_fuse::mount;

/// Unbinds the loop devices whose files are below this folder, unmounts what is mounted there, and
/// removes links to those devices. Devices that are open fail until their last close, which unbinds
/// them.
pub fn clear(folder: &Path, links: &VolumeLinks) {
    let left = LoopDevice::below(folder).unwrap_or_default();
    let mut nodes = BTreeSet::new();
    for device in left {
        nodes.insert(device.path().to_path_buf());
        // What cannot be released stays bound, and fails.
        let _ = device.release();
    }
    links.remove_leading_to(|device| nodes.iter().any(|node| is_of(node, device)));
    for path in mounts_below(folder) {
        let _ = mount::unmount(&path, true);
        let _ = std::fs::remove_dir(&path);
    }
}

/// Whether a path is that of a device, or of a partition of it.
fn is_of(node: &Path, device: &Path) -> bool {
    let (node, device) = (node.as_os_str().as_bytes(), device.as_os_str().as_bytes());
    let rest = device.strip_prefix(node);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"p"))
}

/// The folders below this one on which something is mounted, the deepest first.
fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    let below = places.map(unescape);
    let mut found: Vec<PathBuf> = below
        .filter(|place| place.starts_with(folder) && place != folder)
        .collect();
    found.sort();
    found.reverse();
    found
}

/// A path of the table, in which spaces are written as `\040`.
fn unescape(path: &str) -> PathBuf {
    let path = path.replace("\\040", " ").replace("\\011", "\t");
    PathBuf::from(path.replace("\\012", "\n").replace("\\134", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_not_taken_for_another_with_a_longer_number() {
        let is_of = |device: &str| super::is_of(Path::new("/dev/loop1"), Path::new(device));
        assert!(is_of("/dev/loop1") && is_of("/dev/loop1p2"));
        assert!(!is_of("/dev/loop10") && !is_of("/dev/loop10p1"));
    }

    #[test]
    fn paths_of_the_mount_table_are_read_as_they_are_written() {
        assert_eq!(unescape("/a\\040b"), Path::new("/a b"));
        assert_eq!(unescape("/a\\134040b"), Path::new("/a\\040b"));
    }
}
