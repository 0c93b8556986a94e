//! Whether top-level vdevs are equally redundant.
//!
//! A pool is lost with any of its top-level vdevs, so the weakest decides. A difference is refused
//! unless `-f` is given. Log vdevs do not count. Where a pool is uneven already, new vdevs are not
//! compared with it.

use tarn_host::{FileKind, Host, OpenMode};
use tarn_pool::NewVdev;
use tarn_vdev::{VdevConfig, VdevKind, open_window};

/// Sizes of devices in one vdev may differ by this much.
#[doc(alias = "ZPOOL_FUZZ")]
const SIZE_DIFFERENCE_MAX: u64 = 16 << 20;

/// How redundant a top-level vdev is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Level {
    kind: &'static str,
    children: usize,
    parity: u8,
}

/// The objections to new vdevs beside those of a pool; none for a new pool.
pub(crate) fn objections(
    host: &Host,
    current: Option<&VdevConfig>,
    new: &[NewVdev],
) -> Vec<String> {
    let new: Vec<&VdevConfig> = new
        .iter()
        .filter(|vdev| !vdev.is_log)
        .map(|vdev| &vdev.config)
        .collect();
    let current = current.map(|root| {
        let is_log = |top: &VdevConfig| top.top_level.as_ref().is_some_and(|facts| facts.is_log);
        let tops = root.children.iter().filter(|top| !is_log(top));
        last_level(host, &tops.collect::<Vec<_>>())
    });
    if new.is_empty() || current.as_ref().is_some_and(|found| !found.1.is_empty()) {
        return Vec::new();
    }
    let (level, mut objections) = last_level(host, &new);
    objections.extend(new.iter().filter_map(|top| mixture(host, top)));
    let current = current.and_then(|(level, _)| level);
    if let (true, Some(current), Some(level)) = (objections.is_empty(), current, level) {
        objections.extend(difference_to_pool(current, level));
    }
    objections
}

/// The level of the last of these vdevs, and the differences among them.
fn last_level(host: &Host, tops: &[&VdevConfig]) -> (Option<Level>, Vec<String>) {
    let mut objections = Vec::new();
    let mut last: Option<Level> = None;
    for top in tops {
        let Some(level) = level_of(host, top) else {
            continue;
        };
        objections.extend(sizes(host, top));
        objections.extend(last.and_then(|last| difference(last, level)));
        last = Some(level);
    }
    (last, objections)
}

/// How redundant a vdev is; none for vdevs that hold no data any more.
fn level_of(host: &Host, top: &VdevConfig) -> Option<Level> {
    let parity = match top.kind {
        VdevKind::Hole | VdevKind::Indirect => return None,
        VdevKind::Raidz { parity } | VdevKind::Draid { parity } => parity,
        _ => 0,
    };
    Some(Level {
        kind: match top.children.is_empty() {
            true => leaf_kind(host, top),
            false => top.kind.name(),
        },
        children: top.children.len().max(1),
        parity,
    })
}

fn leaf_kind(host: &Host, leaf: &VdevConfig) -> &'static str {
    match path_of(leaf).map(|path| host.file_kind(path)) {
        Some(FileKind::File) => "file",
        _ => "disk",
    }
}

fn path_of(leaf: &VdevConfig) -> Option<&std::path::Path> {
    leaf.path
        .as_ref()
        .and_then(|path| path.as_str())
        .map(std::path::Path::new)
}

/// The leaf that stands for a child: the old one while it is being replaced.
fn first_leaf(child: &VdevConfig) -> &VdevConfig {
    child.children.first().map_or(child, first_leaf)
}

/// The objection to a vdev of both files and devices.
fn mixture(host: &Host, top: &VdevConfig) -> Option<String> {
    let mut kinds = top
        .children
        .iter()
        .map(|child| leaf_kind(host, first_leaf(child)));
    let first = kinds.next()?;
    let is_mixed = kinds.any(|kind| kind != first);
    is_mixed.then(|| {
        format!(
            "mismatched replication level: {} contains both files and devices",
            top.kind.name()
        )
    })
}

/// The objection to a vdev whose devices differ in size.
fn sizes(host: &Host, top: &VdevConfig) -> Option<String> {
    let size = |child: &VdevConfig| {
        let path = path_of(first_leaf(child))?;
        let window = open_window(host, path, OpenMode::ReadOnly).ok()?;
        Some(window.size_bytes()).filter(|size| *size > 0)
    };
    let sizes: Vec<u64> = top.children.iter().filter_map(size).collect();
    let mut neighbours = sizes.windows(2);
    let differ = |pair: &[u64]| pair[0].abs_diff(pair[1]) > SIZE_DIFFERENCE_MAX;
    neighbours
        .any(differ)
        .then(|| format!("{} contains devices of different sizes", top.kind.name()))
}

/// A raidz and a mirror among two levels, in this order.
fn raidz_and_mirror(one: Level, other: Level) -> Option<(Level, Level)> {
    let is_raidz = |level: Level| matches!(level.kind, "raidz" | "draid");
    match (one.kind, other.kind) {
        (_, "mirror") if is_raidz(one) => Some((one, other)),
        ("mirror", _) if is_raidz(other) => Some((other, one)),
        _ => None,
    }
}

fn are_raidz(one: Level, other: Level) -> bool {
    let is_raidz = |level: Level| matches!(level.kind, "raidz" | "draid");
    is_raidz(one) && is_raidz(other)
}

/// The difference between two new vdevs, or two of a pool.
fn difference(last: Level, level: Level) -> Option<String> {
    let text = if let Some((raidz, mirror)) = raidz_and_mirror(last, level) {
        let lost = mirror.children.saturating_sub(1);
        if usize::from(raidz.parity) == lost {
            return None;
        }
        format!(
            "{} and {} vdevs with different redundancy, {} vs. {lost} ({}-way) are present",
            raidz.kind, mirror.kind, raidz.parity, mirror.children
        )
    } else if are_raidz(last, level) && last.parity != level.parity {
        format!(
            "{} and {} vdevs with different redundancy, {} vs. {} are present",
            last.kind, level.kind, last.parity, level.parity
        )
    } else if are_raidz(last, level) {
        return None;
    } else if last.kind != level.kind {
        format!("both {} and {} vdevs are present", last.kind, level.kind)
    } else if last.children != level.children {
        format!(
            "both {}-way and {}-way {} vdevs are present",
            last.children, level.children, level.kind
        )
    } else {
        return None;
    };
    Some(format!("mismatched replication level: {text}"))
}

/// The difference between a pool and new vdevs.
fn difference_to_pool(pool: Level, new: Level) -> Option<String> {
    let text = if let Some((raidz, mirror)) = raidz_and_mirror(pool, new) {
        let lost = mirror.children.saturating_sub(1);
        if usize::from(raidz.parity) == lost {
            return None;
        }
        format!(
            "pool and new vdev with different redundancy, {} and {} vdevs, {} vs. {lost} ({}-way)",
            raidz.kind, mirror.kind, raidz.parity, mirror.children
        )
    } else if are_raidz(pool, new) && pool.parity != new.parity {
        format!(
            "pool and new vdev with different redundancy, {} and {} vdevs, {} vs. {}",
            pool.kind, new.kind, pool.parity, new.parity
        )
    } else if are_raidz(pool, new) {
        return None;
    } else if pool.kind != new.kind {
        format!("pool uses {} and new vdev is {}", pool.kind, new.kind)
    } else if pool.children != new.children {
        format!(
            "pool uses {}-way {} and new vdev uses {}-way {}",
            pool.children, pool.kind, new.children, new.kind
        )
    } else {
        return None;
    };
    Some(format!("mismatched replication level: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn level(kind: &'static str, children: usize, parity: u8) -> Level {
        Level {
            kind,
            children,
            parity,
        }
    }

    #[test]
    fn uneven_vdevs_are_refused() {
        for (one, other, text) in [
            (level("mirror", 2, 0), level("mirror", 2, 0), None),
            (level("raidz", 3, 1), level("mirror", 2, 0), None),
            (level("raidz", 3, 1), level("raidz", 5, 1), None),
            (
                level("mirror", 3, 0),
                level("raidz", 3, 1),
                Some(
                    "raidz and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present",
                ),
            ),
            (
                level("raidz", 3, 1),
                level("raidz", 4, 2),
                Some("raidz and raidz vdevs with different redundancy, 1 vs. 2 are present"),
            ),
            (
                level("mirror", 2, 0),
                level("file", 1, 0),
                Some("both mirror and file vdevs are present"),
            ),
            (
                level("mirror", 2, 0),
                level("mirror", 3, 0),
                Some("both 2-way and 3-way mirror vdevs are present"),
            ),
        ] {
            let whole = text.map(|text| format!("mismatched replication level: {text}"));
            assert_eq!(difference(one, other), whole);
        }
    }

    #[test]
    fn added_vdevs_are_as_redundant_as_the_pool() {
        for (pool, new, text) in [
            (level("mirror", 2, 0), level("mirror", 2, 0), None),
            (
                level("mirror", 2, 0),
                level("file", 1, 0),
                Some("pool uses mirror and new vdev is file"),
            ),
            (
                level("mirror", 2, 0),
                level("mirror", 3, 0),
                Some("pool uses 2-way mirror and new vdev uses 3-way mirror"),
            ),
            (
                level("raidz", 6, 2),
                level("mirror", 2, 0),
                Some(
                    "pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)",
                ),
            ),
            (
                level("raidz", 3, 1),
                level("raidz", 4, 2),
                Some("pool and new vdev with different redundancy, raidz and raidz vdevs, 1 vs. 2"),
            ),
        ] {
            let whole = text.map(|text| format!("mismatched replication level: {text}"));
            assert_eq!(difference_to_pool(pool, new), whole);
        }
    }
}
