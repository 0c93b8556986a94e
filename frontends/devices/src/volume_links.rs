//! Links below `/dev/zvol`, by which programs find the devices of volumes.
//!
//! # Mechanism
//! `/dev/zvol/POOL/VOLUME` leads to the device, `VOLUME-partN` to its partitions, as OpenZFS's udev
//! rules name them; a space in a name is a plus sign. The daemon makes and removes them itself.
//! udev, where it runs, does not know them: it removes only links that its own rules made.
//!
//! # Invariants
//! - Only links are replaced and removed, and only those that lead to devices of this instance or
//!   to none. A link to the device of another instance stays.

use std::io;
use std::path::{Path, PathBuf};

/// Where OpenZFS has them.
const FOLDER: &str = "/dev/zvol";

/// The links of an instance.
#[derive(Debug, Clone)]
pub struct VolumeLinks {
    folder: PathBuf,
}

impl VolumeLinks {
    /// Those that programs look for.
    pub fn of_machine() -> VolumeLinks {
        VolumeLinks::in_folder(Path::new(FOLDER))
    }

    /// Links below another folder.
    pub fn in_folder(folder: &Path) -> VolumeLinks {
        VolumeLinks {
            folder: folder.to_path_buf(),
        }
    }

    /// The path of a volume's link.
    pub fn path_of(&self, volume: &str) -> PathBuf {
        self.folder.join(volume.replace(' ', "+"))
    }

    /// The path of the link of a partition.
    fn path_of_partition(&self, volume: &str, partition: u32) -> PathBuf {
        self.path_of(&format!("{volume}-part{partition}"))
    }

    /// Links a volume to its device, at a path below `/dev`.
    ///
    /// # Errors
    /// The system's; `EEXIST` where there is something else, or the link of another instance.
    pub fn link(&self, volume: &str, device: &Path) -> io::Result<()> {
        self.put(&self.path_of(volume), device)
    }

    /// Removes the link of a volume, and the folders above it that are empty then.
    pub fn unlink(&self, volume: &str) {
        self.remove(&self.path_of(volume));
    }

    /// Links the partitions of a volume, by their numbers, and removes links of others.
    pub fn link_partitions(&self, volume: &str, device: &Path, partitions: &[u32]) {
        for (number, path) in self.partition_links(volume) {
            if !partitions.contains(&number) {
                self.remove(&path);
            }
        }
        for number in partitions {
            let device = PathBuf::from(format!("{}p{number}", device.display()));
            // A volume may have this name; its link stays.
            let _ = self.put(&self.path_of_partition(volume, *number), &device);
        }
    }

    /// Removes all links that lead to devices of which this is true, or to nothing.
    pub fn remove_leading_to(&self, is_left: impl Fn(&Path) -> bool) {
        let mut links = Vec::new();
        find_links(&self.folder, &mut links);
        for path in links {
            let Ok(target) = std::fs::read_link(&path) else {
                continue;
            };
            let is_dangling = !path.exists();
            let name = target.file_name().unwrap_or_default();
            if is_dangling || is_left(&Path::new("/dev").join(name)) {
                self.remove(&path);
            }
        }
    }

    /// The links of a volume's partitions that are there, with their numbers.
    fn partition_links(&self, volume: &str) -> Vec<(u32, PathBuf)> {
        let path = self.path_of(volume);
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Vec::new();
        };
        let prefix = format!("{}-part", name.to_string_lossy());
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_string_lossy().strip_prefix(&prefix)?.parse();
            let leads_to = std::fs::read_link(entry.path()).ok()?;
            // A volume may have this name: its device is no partition.
            let device = leads_to.file_name()?.to_string_lossy().into_owned();
            let is_partition = device.trim_start_matches("loop").contains('p');
            Some((number.ok()?, entry.path())).filter(|_| is_partition)
        });
        found.collect()
    }

    fn put(&self, path: &Path, device: &Path) -> io::Result<()> {
        let target = self.relative(path, device);
        match std::fs::read_link(path) {
            Ok(found) if found == target => return Ok(()),
            Ok(_) if path.exists() => return Err(io::ErrorKind::AlreadyExists.into()),
            Ok(_) => std::fs::remove_file(path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::os::unix::fs::symlink(target, path)
    }

    /// The device as a link at this path names it: relative, as those of udev.
    fn relative(&self, path: &Path, device: &Path) -> PathBuf {
        let depth = path
            .strip_prefix("/dev")
            .map(|rest| rest.components().count());
        let below = device.strip_prefix("/dev");
        match (depth, below) {
            (Ok(depth), Ok(below)) if depth > 0 => {
                let mut target = PathBuf::new();
                (1..depth).for_each(|_| target.push(".."));
                target.join(below)
            }
            _ => device.to_path_buf(),
        }
    }

    fn remove(&self, path: &Path) {
        let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if !is_link || std::fs::remove_file(path).is_err() {
            return;
        }
        for folder in path.ancestors().skip(1) {
            let is_below = folder.starts_with(&self.folder);
            if !is_below || std::fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }
}

/// Adds the links at and below a folder. Folders nest no deeper than names of datasets.
fn find_links(folder: &Path, links: &mut Vec<PathBuf>) {
    let mut pending = vec![folder.to_path_buf()];
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => links.push(entry.path()),
                Ok(kind) if kind.is_dir() => pending.push(entry.path()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> (tempfile::TempDir, VolumeLinks) {
        let folder = tempfile::tempdir().unwrap();
        let links = VolumeLinks::in_folder(&folder.path().join("zvol"));
        (folder, links)
    }

    #[test]
    fn links_of_the_machine_are_relative_as_those_of_udev() {
        let links = VolumeLinks::of_machine();
        let path = links.path_of("tank/a b@s");
        assert_eq!(path, Path::new("/dev/zvol/tank/a+b@s"));
        let target = links.relative(&path, Path::new("/dev/loop3"));
        assert_eq!(target, Path::new("../../loop3"));
    }

    #[test]
    fn a_link_goes_with_the_folders_that_are_empty_then() {
        let (folder, links) = links();
        let device = folder.path().join("loop7");
        std::fs::write(&device, "").unwrap();
        links.link("tank/a/b", &device).unwrap();
        links.link("tank/c", &device).unwrap();
        assert_eq!(
            std::fs::read_link(links.path_of("tank/a/b")).unwrap(),
            device
        );
        links.unlink("tank/a/b");
        assert!(!links.path_of("tank/a").exists());
        assert!(links.path_of("tank/c").exists());
        links.unlink("tank/c");
        assert!(!folder.path().join("zvol").exists());
    }

    #[test]
    fn what_leads_to_a_device_of_others_stays() {
        let (folder, links) = links();
        let (ours, theirs) = (folder.path().join("loop7"), folder.path().join("loop8"));
        std::fs::write(&theirs, "").unwrap();
        links.link("tank/v", &theirs).unwrap();
        let refused = links.link("tank/v", &ours).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        // Where it leads to nothing, it is left over.
        std::fs::remove_file(&theirs).unwrap();
        links.link("tank/v", &ours).unwrap();
        assert_eq!(std::fs::read_link(links.path_of("tank/v")).unwrap(), ours);
        links.remove_leading_to(|_| false);
        assert!(std::fs::symlink_metadata(links.path_of("tank/v")).is_err());
    }

    #[test]
    fn links_of_partitions_come_and_go_with_the_partitions() {
        let (folder, links) = links();
        let device = folder.path().join("loop7");
        for name in ["loop7", "loop7p1", "loop7p2", "loop9"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        links.link("tank/v", &device).unwrap();
        // A volume with the name of a partition's link.
        let other = folder.path().join("loop9");
        links.link("tank/v-part2", &other).unwrap();
        links.link_partitions("tank/v", &device, &[1, 2]);
        let leads_to = |name: &str| std::fs::read_link(links.path_of(name)).ok();
        assert_eq!(
            leads_to("tank/v-part1"),
            Some(folder.path().join("loop7p1"))
        );
        assert_eq!(leads_to("tank/v-part2"), Some(other.clone()));
        links.link_partitions("tank/v", &device, &[]);
        assert_eq!(leads_to("tank/v-part1"), None);
        assert_eq!(leads_to("tank/v-part2"), Some(other));
    }
}
