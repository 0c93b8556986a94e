//! `zdb -l`: the labels of a device.
//!
//! A configuration is printed once for all labels that have it, and from `-lll` on for each;
//! likewise uberblocks with `-u`.

use crate::cache_device;
use crate::options::Options;
use crate::out::Out;
use crate::uberblock;
use std::path::{Path, PathBuf};
use tarn_engine::inspect::label::{CONFIGURATION_ROOM, DeviceLabel, DeviceLabels};
use tarn_host::{FileKind, Host};
use tarn_ondisk::nvlist::{Encoding, NvList, NvValue};
use tarn_ondisk::uberblock::Uberblock;

/// The folders of devices that are given by their last name.
const DEVICE_FOLDERS: &[&str] = &[
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
    "/dev/disk/by-uuid",
    "/dev",
];

/// A line around the head of a label.
const RULE: &str = "------------------------------------";

/// Slots at the end of a ring that are for multihost.
const MULTIHOST_SLOTS: usize = 1;

/// Prints the labels of a device. Returns the exit code: 2 when no label can be decoded, 1 when
/// some cannot.
pub fn show(out: &mut Out, options: &Options, host: &Host, device: &str) -> u8 {
    let Some(path) = resolve(host, device) else {
        writeln!(
            out,
            "failed to find device {device}, try specifying absolute path instead"
        );
        return 1;
    };
    let labels = match DeviceLabels::read(host, &path) {
        Ok(labels) => labels,
        Err(error) => {
            writeln!(out, "{error}");
            return 1;
        }
    };
    let mut shower = Shower {
        out,
        options,
        labels: &labels,
    };
    let is_quiet = options.has('q');
    if !is_quiet {
        for (index, _) in labels
            .labels
            .iter()
            .enumerate()
            .filter(|(_, label)| label.is_none())
        {
            writeln!(shower.out, "failed to read label {index}");
        }
    }
    for (index, label) in labels.labels.iter().enumerate() {
        if let Some(label) = label {
            shower.label(index, label);
        }
    }
    if cache_device::is_one(&labels) {
        cache_device::show(out, options, host, &path);
    }
    let understood = labels.labels.iter().flatten();
    match understood
        .filter(|label| label.configuration.is_some())
        .count()
    {
        0 => 2,
        count if count < labels.labels.len() => 1,
        _ => 0,
    }
}

/// The path of a device; a bare name is searched in the device folders.
fn resolve(host: &Host, device: &str) -> Option<PathBuf> {
    let is_there = |path: &Path| host.file_kind(path) != FileKind::Other;
    let path = PathBuf::from(device);
    if device.starts_with('/') || is_there(&path) {
        return Some(path);
    }
    let mut candidates = DEVICE_FOLDERS
        .iter()
        .map(|folder| Path::new(folder).join(device));
    candidates.find(|path| is_there(path))
}

struct Shower<'a> {
    out: &'a mut Out,
    options: &'a Options,
    labels: &'a DeviceLabels,
}

impl Shower<'_> {
    fn label(&mut self, index: usize, label: &DeviceLabel) {
        let mut has_head = self.options.has('q');
        let is_quiet = has_head;
        match &label.configuration {
            Some(list) if !is_quiet => {
                let like = self.labels.labels_like(list);
                if self.options.level('l') >= 3 || like.first() == Some(&index) {
                    self.head(index, label, &mut has_head);
                    write!(self.out, "{}", list.indented(4));
                    self.numbers("    labels = ", &like);
                    if self.options.level('l') >= 2 {
                        self.statistics(list);
                    }
                }
            }
            None if !is_quiet => writeln!(self.out, "failed to unpack label {index}"),
            _ => {}
        }
        if self.options.has('u') {
            self.ring(index, label, &mut has_head);
        }
    }

    fn head(&mut self, index: usize, label: &DeviceLabel, has_head: &mut bool) {
        if std::mem::replace(has_head, true) {
            return;
        }
        let note = if label.is_intact {
            ""
        } else {
            "(Bad label cksum)"
        };
        writeln!(self.out, "{RULE}\nLABEL {index} {note}\n{RULE}");
    }

    fn numbers(&mut self, prefix: &str, labels: &[usize]) {
        write!(self.out, "{prefix}");
        for label in labels {
            write!(self.out, "{label} ");
        }
        writeln!(self.out);
    }

    fn ring(&mut self, index: usize, label: &DeviceLabel, has_head: &mut bool) {
        let level = self.options.level('u');
        let multihost = label.slots.len().saturating_sub(MULTIHOST_SLOTS);
        for (number, slot) in label.slots.iter().enumerate() {
            let Some(slot) = slot else {
                if level >= 2 {
                    self.head(index, label, has_head);
                    writeln!(self.out, "    Uberblock[{number}] invalid");
                }
                continue;
            };
            let with = self.labels.labels_with(slot);
            if level < 3 && with.first() != Some(&index) {
                continue;
            }
            if level < 4 && number >= multihost && is_multihost(&slot.uberblock) {
                continue;
            }
            self.head(index, label, has_head);
            writeln!(self.out, "    Uberblock[{number}]");
            uberblock::show(self.out, &slot.uberblock, level);
            self.numbers("        labels = ", &with);
        }
    }

    /// Prints the use of the configuration's area.
    fn statistics(&mut self, list: &NvList) {
        let total = list.encode(Encoding::Xdr).len();
        let mut found = Statistics::default();
        found.collect(list);
        let free = CONFIGURATION_ROOM.saturating_sub(total);
        let empty = NvList::with_duplicates().encode(Encoding::Xdr).len();
        let size = |list: &NvList| list.encode(Encoding::Xdr).len() - empty;
        let sizes = [&found.integers, &found.strings, &found.booleans].map(size);
        let rest = total.saturating_sub(sizes.iter().sum());
        let out = &mut *self.out;
        writeln!(out, "\n\nZFS Label NVList Config Stats:");
        let used = percent(total, CONFIGURATION_ROOM);
        writeln!(
            out,
            "  {total} bytes used, {free} bytes free (using {used:4.1}%)\n"
        );
        for kind in &found.others {
            writeln!(out, "skip type {kind}!");
        }
        let rows = [
            ("integers:", found.integers.len(), sizes[0]),
            ("strings:", found.strings.len(), sizes[1]),
            ("booleans:", found.booleans.len(), sizes[2]),
            ("nvlists:", found.list_count, rest),
        ];
        for (name, count, size) in rows {
            let share = percent(size, total);
            writeln!(out, "{name:>12} {count:4} {size:6} bytes ({share:5.2}%)");
        }
        writeln!(out);
        let leaves = &found.leaf_sizes;
        if let Some(largest) = leaves.iter().max() {
            let average = leaves.iter().sum::<usize>() / leaves.len();
            let name = "leaf vdevs:";
            writeln!(
                out,
                "{name:>12} {:4} {average:6} bytes average",
                leaves.len()
            );
            writeln!(out, "{largest:24} bytes largest");
            if self.options.level('l') >= 3 && average > 0 {
                writeln!(out, "  space for {} additional leaf vdevs", free / average);
            }
        }
        writeln!(out);
    }
}

fn is_multihost(uberblock: &Uberblock) -> bool {
    uberblock.multihost().is_some() && uberblock.multihost_delay_ns != 0
}

/// A share in percent. Sizes of labels are exact in a float.
fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

/// The parts of a configuration by type.
struct Statistics {
    integers: NvList,
    strings: NvList,
    booleans: NvList,
    list_count: usize,
    leaf_sizes: Vec<usize>,
    /// Types that are not counted.
    others: Vec<u32>,
}

impl Default for Statistics {
    fn default() -> Self {
        Statistics {
            integers: NvList::with_duplicates(),
            strings: NvList::with_duplicates(),
            booleans: NvList::with_duplicates(),
            list_count: 0,
            leaf_sizes: Vec::new(),
            others: Vec::new(),
        }
    }
}

impl Statistics {
    fn collect(&mut self, list: &NvList) {
        self.list_count += 1;
        for (name, value) in list.iter() {
            match value {
                NvValue::String(_) => self.strings.set(name, value.clone()),
                NvValue::Uint64(_) => self.integers.set(name, value.clone()),
                NvValue::Boolean => self.booleans.set_flag(name),
                NvValue::List(inner) => self.collect(inner),
                NvValue::Lists(lists) => {
                    for inner in lists {
                        self.collect(inner);
                        if *name == "children" {
                            self.leaf_sizes.push(inner.encode(Encoding::Xdr).len());
                        }
                    }
                }
                other => self.others.push(other.kind().number()),
            }
        }
    }
}
