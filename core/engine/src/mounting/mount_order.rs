//! The order in which file systems are mounted and unmounted, and which of them at the same time.
//!
//! # Problem
//! A mount point may be a folder in another file system, which is mounted before it and unmounted
//! after it. Most of the time of a mount is waiting: for the kernel, which ends RCU grace periods
//! for each unmount, and for the server of the file system above. Ten thousand mounts in a row take
//! minutes.
//!
//! # Mechanism
//! Mount points form a forest: the parent of each is the nearest other mount point on its path. A
//! level holds the mount points with equally many ancestors. Levels follow each other; within one,
//! a bounded number of threads mounts or unmounts.

use std::path::{Path, PathBuf};

/// Threads that mount or unmount file systems of one level. A guess: with more, they wait for the
/// kernel's lock over all mounts.
pub(super) const THREADS: usize = 8;

/// Up to this many are unmounted one after the other, in the order of their paths: then the first
/// refusal leaves all later ones mounted.
pub(super) const FEW: usize = 16;

/// Divides mount points into levels. The input is sorted by path, and each level keeps that order.
/// Of two with one path, the second is mounted on the first.
pub(super) fn levels<T>(sorted: Vec<T>, path_of: impl Fn(&T) -> &Path) -> Vec<Vec<T>> {
    let mut above: Vec<PathBuf> = Vec::new();
    let mut levels: Vec<Vec<T>> = Vec::new();
    for one in sorted {
        let path = path_of(&one);
        while above.last().is_some_and(|last| !path.starts_with(last)) {
            above.pop();
        }
        let depth = above.len();
        above.push(path.to_path_buf());
        if levels.len() == depth {
            levels.push(Vec::new());
        }
        levels[depth].push(one);
    }
    levels
}

/// Separates mount points, sorted by path, into those without a symbolic link in their path and
/// those for which `leads_through_link` is true. It is called for the root of each tree of the
/// forest, and its answer holds for the whole tree.
pub(super) fn apart_from_linked<T>(
    sorted: Vec<T>,
    path_of: impl Fn(&T) -> &Path,
    leads_through_link: impl Fn(&Path) -> bool,
) -> (Vec<T>, Vec<T>) {
    let (mut plain, mut linked) = (Vec::new(), Vec::new());
    let mut top: Option<(PathBuf, bool)> = None;
    for one in sorted {
        let path = path_of(&one);
        let is_linked = match &top {
            Some((above, is_linked)) if path.starts_with(above) => *is_linked,
            _ => {
                let is_linked = leads_through_link(path);
                top = Some((path.to_path_buf(), is_linked));
                is_linked
            }
        };
        match is_linked {
            true => linked.push(one),
            false => plain.push(one),
        }
    }
    (plain, linked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(paths: &[&'static str]) -> Vec<&'static str> {
        let mut paths = paths.to_vec();
        paths.sort_by(|one, other| Path::new(one).cmp(Path::new(other)));
        paths
    }

    #[test]
    fn a_level_has_mount_points_with_equally_many_ancestors() {
        let paths = sorted(&["/p", "/p/a", "/p/a/x/b", "/p-a", "/p/c", "/q/r", "/p/c"]);
        let levels = levels(paths, |path| Path::new(*path));
        assert_eq!(
            levels,
            [
                vec!["/p", "/p-a", "/q/r"],
                vec!["/p/a", "/p/c"],
                vec!["/p/a/x/b", "/p/c"]
            ]
        );
    }

    #[test]
    fn paths_below_a_linked_path_are_linked() {
        let paths = sorted(&["/l/a", "/l/a/b", "/p", "/p/l", "/l/c"]);
        let is_link = |path: &Path| path.starts_with("/l");
        let (plain, linked) = apart_from_linked(paths, |path| Path::new(*path), is_link);
        assert_eq!(plain, ["/p", "/p/l"]);
        assert_eq!(linked, ["/l/a", "/l/a/b", "/l/c"]);
    }
}
