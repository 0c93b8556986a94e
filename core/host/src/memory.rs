//! Available memory, for the cache's budget.
//!
//! # Mechanism
//! The machine has as much as `/proc/meminfo` says. We may be confined to a control group, and it
//! to others above it: each has a limit, and what its processes use counts against all of them.
//! Both versions of control groups are asked. What a group holds of files that were not used lately
//! is reclaimed before an allocation fails, so it is available, as it is in the machine's own
//! figure.

use std::path::{Path, PathBuf};

/// Total memory in bytes: of the machine, or of the group of processes we are confined to.
pub(crate) fn total_bytes() -> u64 {
    let machine = meminfo("MemTotal:").unwrap_or(0);
    let limits = groups().into_iter().filter_map(|group| group.limit());
    limits.fold(machine, u64::min)
}

/// What could be allocated without making others swap.
pub(crate) fn available_bytes() -> u64 {
    let machine = meminfo("MemAvailable:").unwrap_or(0);
    let left = groups().into_iter().filter_map(|group| group.available());
    left.fold(machine, u64::min)
}

fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim_end().parse().ok()?;
    Some(kilobytes * 1024)
}

fn groups() -> Vec<Group> {
    let ours = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups_of(&ours, Path::new("/sys/fs/cgroup"))
}

/// Our control group and those above it, as `/proc/self/cgroup` names it.
fn groups_of(ours: &str, root: &Path) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in ours.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (top, files) = match controllers {
            "" => (root.to_path_buf(), &VERSION_2),
            listed if listed.split(',').any(|name| name == "memory") => {
                (root.join("memory"), &VERSION_1)
            }
            _ => continue,
        };
        let lowest = top.join(path.trim_start_matches('/'));
        let up_to_top = lowest.ancestors().take_while(|at| at.starts_with(&top));
        groups.extend(up_to_top.map(|folder| Group {
            folder: folder.to_path_buf(),
            files,
        }));
    }
    groups
}

/// A control group, which may have no limit.
struct Group {
    folder: PathBuf,
    files: &'static Files,
}

/// What a version of control groups calls its files.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: files that were not used lately, of this group and those below it.
    idle: &'static str,
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    idle: "total_inactive_file",
};

const VERSION_2: Files = Files {
    limit: "memory.max",
    used: "memory.current",
    idle: "inactive_file",
};

impl Group {
    /// None where there is no limit (`max`); version 1 then has a number that no machine reaches.
    fn limit(&self) -> Option<u64> {
        self.value(self.files.limit)
    }

    fn available(&self) -> Option<u64> {
        let limit = self.limit()?;
        let used = self.value(self.files.used)?;
        Some(limit.saturating_sub(used.saturating_sub(self.idle())))
    }

    fn idle(&self) -> u64 {
        let text = std::fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let number = |line: &str| {
            let (name, number) = line.split_once(' ')?;
            (name == self.files.idle).then(|| number.parse().ok())?
        };
        text.lines().find_map(number).unwrap_or(0)
    }

    fn value(&self, file: &str) -> Option<u64> {
        let text = std::fs::read_to_string(self.folder.join(file)).ok()?;
        text.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn group(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_tightest_of_nested_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let slice = root.path().join("system.slice");
        group(
            &slice,
            &[
                ("memory.max", "1000000\n"),
                ("memory.current", "900000\n"),
                ("memory.stat", "anon 1\ninactive_file 300000\nfile 5\n"),
            ],
        );
        group(
            &slice.join("tarnd.service"),
            &[("memory.max", "max\n"), ("memory.current", "500000\n")],
        );
        let groups = groups_of("0::/system.slice/tarnd.service\n", root.path());
        assert_eq!(groups.len(), 3, "and the top");
        let limits: Vec<_> = groups.iter().filter_map(Group::limit).collect();
        assert_eq!(limits, [1_000_000]);
        let available: Vec<_> = groups.iter().filter_map(Group::available).collect();
        assert_eq!(available, [400_000]);
    }

    #[test]
    fn groups_of_the_first_version_have_other_names() {
        let root = tempfile::tempdir().unwrap();
        group(
            &root.path().join("memory/box"),
            &[
                ("memory.limit_in_bytes", "2000"),
                ("memory.usage_in_bytes", "1500"),
                ("memory.stat", "inactive_file 7\ntotal_inactive_file 100\n"),
            ],
        );
        let ours = "9:name=systemd:/\n5:cpu,memory:/box\n4:pids:/box\n";
        let groups = groups_of(ours, root.path());
        let available: Vec<_> = groups.iter().filter_map(Group::available).collect();
        assert_eq!(available, [600]);
        assert!(groups_of("", root.path()).is_empty());
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available_bytes() > 0);
        assert!(available_bytes() <= total_bytes());
    }
}
