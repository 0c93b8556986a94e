//! What goes wrong with disks beside losing power: rot, lost and misdirected writes, errors,
//! slowness, disks that vanish and come back old.
//!
//! # Invariants
//! - In each top-level vdev only as many disks are ever hurt as it can do without, and always the
//!   same ones: nothing repairs them between.
//! - Slowness may come to any disk.

use std::collections::BTreeSet;

use tarn_host::sim::{DiskCopy, Fault, Random, SimDisk, SimHost};
use tarn_host::{Action, Errno};
use tarn_hostile::house::DISKS;

use crate::layout::{DISK_BYTES, Layout};

/// Ranges that rot, at most.
const ROTTEN_MAX: u64 = 40;
/// So much of a disk is in use, about: the labels, and what was written first.
const USED_BYTES: u64 = 24 << 20;

/// One in so many writes is late, where some are.
const LATE_ONE_IN: u64 = 12;
/// By how much at most: longer than a group takes.
const LATE_NS_MAX: u64 = 1_000_000_000;

/// The disks that may be hurt, and what was on them once.
pub struct Victims {
    disks: Vec<(String, Option<DiskCopy>)>,
    all: Vec<String>,
    is_slow: bool,
    is_late: bool,
    /// They are hurt by what is done to devices, not at the beginning of a life.
    is_quiet: bool,
    /// This one makes others wait most of the time.
    latest: Option<String>,
}

impl Victims {
    /// Chooses the disks that may be hurt in this world; mostly none. With `has_latest` one disk
    /// makes others wait most of the time.
    pub fn choose(layout: &Layout, has_latest: bool, random: &mut Random) -> Victims {
        let mut disks = Vec::new();
        if random.chance(1, 3) {
            for (mut names, parity) in layout.redundant() {
                random.shuffle(&mut names);
                let count = 1 + random.index(parity);
                disks.extend(names.into_iter().take(count).map(|name| (name, None)));
            }
        }
        Victims {
            disks,
            all: layout.disks().into_iter().map(|(name, _)| name).collect(),
            is_slow: random.chance(1, 3),
            is_late: random.chance(1, 3),
            is_quiet: false,
            latest: has_latest
                .then(|| layout.disks().pop())
                .flatten()
                .map(|(name, _)| name),
        }
    }

    /// Chooses the disks that may be hurt in a world where devices are changed: there are always
    /// some, spare disks among them.
    pub fn choose_for_changes(
        layout: &Layout,
        has_latest: bool,
        spares: &[&str],
        random: &mut Random,
    ) -> Victims {
        let mut victims = Victims::choose(layout, has_latest, random);
        victims.disks.clear();
        for (mut names, parity) in layout.redundant() {
            random.shuffle(&mut names);
            let count = 1 + random.index(parity);
            victims
                .disks
                .extend(names.into_iter().take(count).map(|name| (name, None)));
        }
        // The first one stays sound, to replace others that are.
        for spare in &spares[1..] {
            if random.chance(1, 2) {
                victims.disks.push((spare.to_string(), None));
            }
        }
        victims.all.extend(spares.iter().map(ToString::to_string));
        victims.is_quiet = random.chance(2, 3);
        victims
    }

    /// The disks that may be hurt.
    pub fn names(&self) -> BTreeSet<String> {
        self.disks.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Whether they are hurt only by what is done to devices.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// All disks.
    pub fn all(&self) -> &[String] {
        &self.all
    }

    /// Whether some disk may be hurt.
    pub fn exist(&self) -> bool {
        !self.disks.is_empty()
    }

    /// What goes wrong from the beginning of a life. Gives back what it was.
    pub fn hurt(&mut self, machine: &SimHost, random: &mut Random) -> Vec<String> {
        let mut told = Vec::new();
        for name in &self.all {
            if let Some(disk) = disk(machine, name) {
                disk.clear_faults();
            }
        }
        if self.is_slow && random.chance(1, 2) {
            let name = &self.all[random.index(self.all.len())];
            let factor = 2 + u32::try_from(random.below(300)).unwrap_or(0);
            if let Some(disk) = disk(machine, name) {
                disk.inject(Fault::Slow { factor });
                told.push(format!("{name} is {factor} times slower"));
            }
        }
        let late: Vec<&String> = match &self.latest {
            Some(latest) => vec![latest],
            None if self.is_late => self.all.iter().collect(),
            None => Vec::new(),
        };
        let one_in = if self.latest.is_some() {
            2
        } else {
            LATE_ONE_IN
        };
        for name in late {
            if let Some(disk) = disk(machine, name) {
                let by_ns_max = LATE_NS_MAX;
                disk.inject(Fault::Late { one_in, by_ns_max });
                told.push(format!("one in {one_in} writes to {name} is late"));
            }
        }
        if self.is_quiet {
            return told;
        }
        for (name, copy) in &mut self.disks {
            let Some(disk) = disk(machine, name) else {
                continue;
            };
            if let Some(what) = hurt_one(&disk, copy, random) {
                told.push(format!("{name} {what}"));
            }
        }
        told
    }
}

fn disk(machine: &SimHost, name: &str) -> Option<SimDisk> {
    machine.disk(format!("{DISKS}/{name}"))
}

/// A disk fails at this moment. Gives back how.
pub fn fail_now(machine: &SimHost, name: &str, random: &mut Random) -> String {
    let Some(disk) = disk(machine, name) else {
        return "is not there".to_string();
    };
    let start = random.below(USED_BYTES) / 512 * 512;
    match random.below(6) {
        0..3 => {
            disk.inject(Fault::Vanish);
            "vanishes".to_string()
        }
        3 => {
            disk.rot(start..(start + (1 << 20)).min(DISK_BYTES));
            format!("rots at {start}")
        }
        write_or_read => {
            let action = [Action::Read, Action::Write][usize::from(write_or_read == 4)];
            disk.inject(Fault::FailRange {
                action,
                range: start..start + (8 << 20),
                errno: Errno::IO,
            });
            format!("fails {action:?} from {start} on")
        }
    }
}

fn hurt_one(disk: &SimDisk, copy: &mut Option<DiskCopy>, random: &mut Random) -> Option<String> {
    let nth = random.below(200);
    let errno = Errno::IO;
    Some(match random.below(16) {
        0 | 1 => {
            let count = 1 + random.below(ROTTEN_MAX);
            for _ in 0..count {
                let start = random.below(USED_BYTES) / 512 * 512;
                let length = 512 * (1 + random.below(64));
                disk.rot(start..(start + length).min(DISK_BYTES));
            }
            format!("rots in {count} places")
        }
        2 => {
            disk.inject(Fault::LoseWrite { nth });
            format!("loses write {nth}")
        }
        3 => {
            let to = random.below(USED_BYTES) / 512 * 512;
            disk.inject(Fault::MisdirectWrite { nth, to });
            format!("writes {nth} at {to}")
        }
        4 => {
            let action = [Action::Read, Action::Write, Action::Flush][random.index(3)];
            disk.inject(Fault::FailNth { action, nth, errno });
            format!("fails {action:?} {nth}")
        }
        5 => {
            let start = random.below(USED_BYTES) / 512 * 512;
            let range = start..start + (1 << 20);
            let action = [Action::Read, Action::Write][random.index(2)];
            disk.inject(Fault::FailRange {
                action,
                range,
                errno,
            });
            format!("fails {action:?} at {start}")
        }
        6 => {
            disk.inject(Fault::Vanish);
            "vanishes".to_string()
        }
        7 => {
            disk.inject(Fault::IgnoreFlushes);
            "ignores flushes".to_string()
        }
        8 | 9 => {
            *copy = Some(disk.keep());
            return None;
        }
        10 | 11 => {
            disk.put_back(copy.as_ref()?);
            "comes back old".to_string()
        }
        _ => return None,
    })
}
