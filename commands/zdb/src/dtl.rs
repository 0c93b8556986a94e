//! Dirty time logs: the txgs that each vdev misses.
//!
//! A leaf's log is stored; those of the vdevs above follow from their redundancy.

use crate::look::Look;
use crate::metaslab::for_each_entry;
use crate::out::Out;
use std::collections::BTreeMap;
use tarn_ondisk::space_map::{Action, Region, SpaceMapDecoder};
use tarn_ondisk::units::{AllocatedSize, Guid, VdevOffset};
use tarn_space::{Range, RangeTree};
use tarn_vdev::{VdevConfig, VdevKind};

/// The dirty time logs of a vdev.
#[derive(Default, Clone)]
struct Missed {
    /// Txgs that cannot be read from it.
    missing: RangeTree,
    /// Txgs that some of its children miss.
    partial: RangeTree,
    /// Txgs that cannot be read from it now.
    outage: RangeTree,
}

/// All txgs.
fn always() -> RangeTree {
    let all = Range::new(VdevOffset::ZERO, AllocatedSize::MAX);
    [all].into_iter().collect()
}

/// Prints the dirty time logs of each vdev.
pub fn show(out: &mut Out, look: &Look<'_>) {
    writeln!(out, "\nDirty time logs:\n");
    writeln!(out, "\t{} [DTL-required]", look.pool().name());
    let root = look.pool().vdevs().config();
    let tops = root.children.iter();
    for top in tops.filter(|top| !matches!(top.kind, VdevKind::Hole | VdevKind::Missing)) {
        let states = Tree {
            look,
            without: None,
        };
        let mut all = BTreeMap::new();
        states.assess(top, &mut all);
        vdev(out, look, top, top, &all, 4);
    }
}

fn vdev(
    out: &mut Out,
    look: &Look<'_>,
    top: &VdevConfig,
    config: &VdevConfig,
    all: &BTreeMap<Guid, Missed>,
    indent: usize,
) {
    let name = match &config.path {
        Some(path) => path.to_string(),
        None => config.kind.name().to_string(),
    };
    let is_required = config.guid == top.guid || {
        let without = Tree {
            look,
            without: Some(config.guid),
        };
        let mut states = BTreeMap::new();
        !without.assess(top, &mut states).outage.is_empty()
    };
    let need = if is_required {
        "required"
    } else {
        "expendable"
    };
    writeln!(out, "\t{:indent$}{name} [DTL-{need}]", "");
    if let Some(missed) = all.get(&config.guid) {
        for (title, ranges) in [
            ("missing", &missed.missing),
            ("partial", &missed.partial),
            ("outage", &missed.outage),
        ] {
            for range in ranges.iter() {
                let (start, size) = (range.start.get(), range.size.get());
                let end = start.wrapping_add(size);
                let width = indent + 2;
                writeln!(out, "\t{:width$}{title} [{start},{end}) length {size}", "");
            }
        }
    }
    for child in &config.children {
        vdev(out, look, top, child, all, indent + 4);
    }
}

/// Assesses a tree, with one vdev taken for lost.
struct Tree<'a, 'b> {
    look: &'a Look<'b>,
    without: Option<Guid>,
}

impl Tree<'_, '_> {
    #[doc(alias = "vdev_dtl_reassess")]
    fn assess(&self, config: &VdevConfig, all: &mut BTreeMap<Guid, Missed>) -> Missed {
        let mut missed = match config.kind.is_leaf() {
            true => self.leaf(config),
            false => {
                let children: Vec<Missed> = config
                    .children
                    .iter()
                    .map(|child| self.assess(child, all))
                    .collect();
                let needed = match config.kind {
                    VdevKind::Raidz { parity } | VdevKind::Draid { parity } => {
                        usize::from(parity) + 1
                    }
                    _ => children.len(),
                };
                Missed {
                    missing: in_at_least(needed, children.iter().map(|child| &child.outage)),
                    partial: in_at_least(1, children.iter().map(|child| &child.partial)),
                    outage: in_at_least(needed, children.iter().map(|child| &child.outage)),
                }
            }
        };
        if self.without == Some(config.guid) {
            missed.outage = always();
        }
        all.insert(config.guid, missed.clone());
        missed
    }

    fn leaf(&self, config: &VdevConfig) -> Missed {
        let mut missing = RangeTree::new();
        if let Some(map) = config.dtl.filter(|map| !map.is_zero()) {
            let region = Region {
                start: VdevOffset::ZERO,
                size: AllocatedSize::MAX,
                shift: 0,
            };
            let read = for_each_entry(self.look, map, SpaceMapDecoder::new(region), &mut |entry| {
                let range = Range::new(entry.start, entry.size);
                match entry.action {
                    Action::Allocate => missing.add_missing(range),
                    Action::Free => missing.remove_present(range),
                }
            });
            if read.is_err() {
                self.look.is_corrupt.set(true);
            }
        }
        let leaf = self.look.pool().vdevs().leaf(config.guid);
        let is_readable = leaf.is_some_and(|leaf| leaf.is_usable());
        Missed {
            partial: missing.clone(),
            outage: if is_readable {
                missing.clone()
            } else {
                always()
            },
            missing,
        }
    }
}

/// Txgs in at least this many of the sets.
#[doc(alias = "space_reftree_generate_map")]
fn in_at_least<'a>(count: usize, sets: impl Iterator<Item = &'a RangeTree>) -> RangeTree {
    let mut changes: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for range in sets.flat_map(RangeTree::iter) {
        let start = range.start.get();
        changes.entry(start).or_default().0 += 1;
        let end = start.saturating_add(range.size.get());
        changes.entry(end).or_default().1 += 1;
    }
    let mut result = RangeTree::new();
    let (mut depth, mut since) = (0usize, None);
    for (at, (begins, ends)) in changes {
        depth = depth + begins - ends.min(depth + begins);
        match since {
            None if depth >= count.max(1) => since = Some(at),
            Some(start) if depth < count.max(1) => {
                result.add_missing(Range::new(
                    VdevOffset::from(start),
                    AllocatedSize::from(at - start),
                ));
                since = None;
            }
            _ => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u64, u64)]) -> RangeTree {
        ranges
            .iter()
            .map(|(start, end)| {
                Range::new(VdevOffset::from(*start), AllocatedSize::from(end - start))
            })
            .collect()
    }

    #[test]
    fn redundancy_decides_what_a_vdev_misses() {
        let sets = [set(&[(10, 20), (30, 40)]), set(&[(15, 35)]), set(&[])];
        let expected = [
            (1, vec![(10, 40)]),
            (2, vec![(15, 20), (30, 35)]),
            (3, vec![]),
        ];
        for (count, ranges) in expected {
            assert_eq!(in_at_least(count, sets.iter()), set(&ranges), "{count}");
        }
    }
}
