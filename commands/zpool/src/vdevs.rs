//! Vdevs as they are named and ordered on the terminal.

use tarn_administration::messages::pool::{VdevRole, VdevStatus};

/// Classes of top-level vdevs that are listed below the others, with their titles.
pub const CLASSES: [(VdevRole, &str); 3] = [
    (VdevRole::Dedup, "dedup"),
    (VdevRole::Special, "special"),
    (VdevRole::Log, "logs"),
];

/// How vdevs are named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Names {
    /// `-g`: by their guids.
    pub are_guids: bool,
    /// `-L`: by the paths that links lead to.
    pub are_real: bool,
    /// `-P`: by their whole paths.
    pub are_whole: bool,
}

impl Names {
    /// What the environment asks for, without any option.
    pub fn from_environment() -> Names {
        Names {
            are_guids: is_set("ZPOOL_VDEV_NAME_GUID"),
            are_real: is_set("ZPOOL_VDEV_NAME_FOLLOW_LINKS"),
            are_whole: is_set("ZPOOL_VDEV_NAME_PATH"),
        }
    }

    /// Takes one of the options `-g`, `-L`, `-P`; false for every other.
    pub fn take(&mut self, option: &str) -> bool {
        match option {
            "g" => self.are_guids = true,
            "L" => self.are_real = true,
            "P" => self.are_whole = true,
            _ => return false,
        }
        true
    }

    /// The name of a vdev.
    pub fn of(&self, vdev: &VdevStatus) -> String {
        self.name(
            &vdev.name,
            &vdev.kind,
            vdev.guid,
            vdev.path.as_deref(),
            vdev.whole_disk,
        )
    }

    /// The name of a vdev that is otherwise called `shown`.
    pub fn name(
        &self,
        shown: &str,
        kind: &str,
        guid: u64,
        path: Option<&str>,
        is_whole_disk: bool,
    ) -> String {
        let guid = guid.to_string();
        // A vdev that is not there goes by its guid in any case.
        if self.are_guids || shown == guid {
            return guid;
        }
        let Some(path) = path.filter(|_| self.are_real || self.are_whole) else {
            return shown.to_string();
        };
        let real = || std::fs::canonicalize(path).ok();
        let path = match self.are_real.then(real).flatten() {
            Some(real) => real.to_string_lossy().into_owned(),
            None => path.to_string(),
        };
        if self.are_whole || kind != "disk" {
            return path;
        }
        let last = path.rsplit('/').next().unwrap_or(&path);
        match is_whole_disk {
            true => without_partition(last).to_string(),
            false => last.to_string(),
        }
    }

    /// The width of the column of names: the longest, each indented by its depth.
    pub fn width(&self, pool: &str, layout: &[VdevStatus]) -> usize {
        layout
            .iter()
            .map(|top| self.width_below(top, 2))
            .fold(pool.len(), usize::max)
    }

    fn width_below(&self, vdev: &VdevStatus, depth: usize) -> usize {
        let own = depth + self.of(vdev).len();
        let children = vdev.children.iter();
        children
            .map(|child| self.width_below(child, depth + 2))
            .fold(own, usize::max)
    }
}

/// Top-level vdevs of one role.
pub fn with_role(layout: &[VdevStatus], role: VdevRole) -> impl Iterator<Item = &VdevStatus> {
    layout.iter().filter(move |vdev| vdev.role == role)
}

/// True for a variable that says yes.
fn is_set(variable: &str) -> bool {
    let value = std::env::var(variable).unwrap_or_default();
    let word = value.to_ascii_uppercase();
    word.starts_with("YES") || word.starts_with("ON") || value.parse::<u64>().is_ok_and(|n| n > 0)
}

/// The name of a disk, from that of its first partition.
fn without_partition(name: &str) -> &str {
    let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if disk.len() == name.len() {
        return name;
    }
    if let Some(disk) = disk.strip_suffix("-part") {
        return disk;
    }
    match disk.strip_suffix('p') {
        Some(disk) if disk.ends_with(|c: char| c.is_ascii_digit()) => disk,
        _ => disk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_vdev_has_several_names() {
        let disk = VdevStatus {
            name: "sda".to_string(),
            kind: "disk".to_string(),
            path: Some("/dev/sda1".to_string()),
            guid: 7,
            whole_disk: true,
            ..VdevStatus::default()
        };
        let mut names = Names::default();
        assert_eq!(names.of(&disk), "sda");
        assert!(names.take("P") && !names.take("x"));
        assert_eq!(names.of(&disk), "/dev/sda1");
        names.take("g");
        assert_eq!(names.of(&disk), "7");
    }

    #[test]
    fn a_whole_disk_is_shown_without_its_partition() {
        for (name, disk) in [
            ("sda1", "sda"),
            ("nvme0n1p1", "nvme0n1"),
            ("ata-WDC_1-part1", "ata-WDC_1"),
            ("vdb", "vdb"),
        ] {
            assert_eq!(without_partition(name), disk, "{name}");
        }
    }

    #[test]
    fn names_are_as_wide_as_the_longest_with_its_depth() {
        let pool = samples::mixed();
        let width = Names::default().width(&pool.name, &pool.layout);
        assert_eq!(width, "    /run/0.img".len());
    }
}
