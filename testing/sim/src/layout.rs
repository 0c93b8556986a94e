//! Of which devices a pool is made.

use tarn_administration::messages::pool::{VdevKind, VdevRole, VdevSpec};
use tarn_hostile::house::DISKS;

/// The size of each disk.
pub const DISK_BYTES: u64 = 64 << 20;
/// The size of a log device.
pub const LOG_BYTES: u64 = 64 << 20;

/// A kind of pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// What it is called.
    pub name: &'static str,
    kind: VdevKind,
    disks: usize,
    /// How many top-level vdevs of this kind.
    tops: usize,
    logs: usize,
    /// Log devices mirror each other.
    mirrors_logs: bool,
    /// How many disks of each top-level vdev may be lost.
    pub parity: usize,
    /// Most of it is taken from the beginning.
    pub is_full: bool,
}

const PLAIN: Layout = Layout {
    name: "single",
    kind: VdevKind::Leaf,
    disks: 1,
    tops: 1,
    logs: 0,
    mirrors_logs: false,
    parity: 0,
    is_full: false,
};

impl Layout {
    /// All of them. Those of one disk come more than once, for they are fastest.
    pub const ALL: [Layout; 14] = [
        PLAIN,
        Layout {
            name: "stripe",
            tops: 2,
            ..PLAIN
        },
        Layout {
            name: "mirror",
            kind: VdevKind::Mirror,
            disks: 2,
            parity: 1,
            ..PLAIN
        },
        Layout {
            name: "mirror3",
            kind: VdevKind::Mirror,
            disks: 3,
            parity: 2,
            ..PLAIN
        },
        Layout {
            name: "raidz1",
            kind: VdevKind::Raidz1,
            disks: 3,
            parity: 1,
            ..PLAIN
        },
        Layout {
            name: "raidz2",
            kind: VdevKind::Raidz2,
            disks: 4,
            parity: 2,
            ..PLAIN
        },
        Layout {
            name: "raidz3",
            kind: VdevKind::Raidz3,
            disks: 5,
            parity: 3,
            ..PLAIN
        },
        Layout {
            name: "single-log",
            logs: 1,
            ..PLAIN
        },
        Layout {
            name: "single-logs",
            logs: 2,
            ..PLAIN
        },
        Layout {
            name: "mirror-mirrorlog",
            kind: VdevKind::Mirror,
            disks: 2,
            parity: 1,
            logs: 2,
            mirrors_logs: true,
            ..PLAIN
        },
        Layout {
            name: "raidz1-log",
            kind: VdevKind::Raidz1,
            disks: 3,
            parity: 0,
            logs: 1,
            ..PLAIN
        },
        Layout {
            name: "full",
            is_full: true,
            ..PLAIN
        },
        Layout {
            name: "full-log",
            is_full: true,
            logs: 1,
            ..PLAIN
        },
        PLAIN,
    ];

    /// The layout of this name.
    pub fn named(name: &str) -> Option<Layout> {
        Layout::ALL.into_iter().find(|layout| layout.name == name)
    }

    /// The names and sizes of all its disks, those of data first.
    pub fn disks(&self) -> Vec<(String, u64)> {
        let data = (0..self.disks * self.tops).map(|number| (format!("d{number}"), DISK_BYTES));
        let logs = (0..self.logs).map(|number| (format!("log{number}"), LOG_BYTES));
        data.chain(logs).collect()
    }

    /// The disks of each top-level vdev that can do without some, and without how many.
    pub fn redundant(&self) -> Vec<(Vec<String>, usize)> {
        let mut groups = Vec::new();
        if self.parity > 0 {
            for top in 0..self.tops {
                let disks = (0..self.disks).map(|disk| format!("d{}", top * self.disks + disk));
                groups.push((disks.collect(), self.parity));
            }
        }
        if self.mirrors_logs && self.parity > 0 {
            let disks = (0..self.logs).map(|number| format!("log{number}"));
            groups.push((disks.collect(), self.logs - 1));
        }
        groups
    }

    /// What `zpool create` is told.
    pub fn vdevs(&self) -> Vec<VdevSpec> {
        let leaf = |name: String, role| VdevSpec {
            kind: VdevKind::Leaf,
            path: Some(format!("{DISKS}/{name}")),
            children: Vec::new(),
            role,
        };
        let group = |kind, children, role| VdevSpec {
            kind,
            path: None,
            children,
            role,
        };
        let mut vdevs = Vec::new();
        for top in 0..self.tops {
            let names = (0..self.disks).map(|disk| format!("d{}", top * self.disks + disk));
            let mut leaves: Vec<_> = names.map(|name| leaf(name, VdevRole::Data)).collect();
            match self.kind {
                VdevKind::Leaf => vdevs.append(&mut leaves),
                kind => vdevs.push(group(kind, leaves, VdevRole::Data)),
            }
        }
        let logs = (0..self.logs).map(|number| leaf(format!("log{number}"), VdevRole::Log));
        let logs: Vec<_> = logs.collect();
        match self.mirrors_logs {
            true => vdevs.push(group(VdevKind::Mirror, logs, VdevRole::Log)),
            false => vdevs.extend(logs),
        }
        vdevs
    }
}
