//! The datasets that `zfs list` and `zfs get` are about.

use crate::order::{SortKey, arrange};
use tarn_administration::messages::dataset::{
    DatasetDescription, DatasetKind, Describe, Described,
};
use tarn_api::client::Client;
use tarn_terminal::failure::{Failure, complain};

/// The three kinds that are datasets; bookmarks are shown on request only.
pub const DATASETS: [DatasetKind; 3] = [
    DatasetKind::Filesystem,
    DatasetKind::Volume,
    DatasetKind::Snapshot,
];

/// Which datasets.
#[derive(Debug, Clone, Default)]
pub struct Walk {
    /// Names or paths; everything when empty.
    pub names: Vec<String>,
    /// `-r` or `-d`.
    pub is_recursive: bool,
    /// `-d`: levels below the named ones.
    pub depth_max: Option<u64>,
    /// Kinds that are shown.
    pub kinds: Vec<DatasetKind>,
    /// Snapshots are shown by the pool's `listsnapshots`, or when they are named.
    pub are_snapshots_by_pool: bool,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// In order.
    pub datasets: Vec<DatasetDescription>,
    /// True when a name could not be opened; that was said.
    pub has_failed: bool,
}

impl Walk {
    /// The snapshots or bookmarks of a dataset are one level below it, so that asking for nothing
    /// else of a named dataset means those.
    pub fn descend_to_snapshots(&mut self) {
        let is_one_kind = matches!(
            self.kinds[..],
            [DatasetKind::Snapshot | DatasetKind::Bookmark]
        );
        if is_one_kind && !self.names.is_empty() && !self.is_recursive {
            self.is_recursive = true;
            self.depth_max = Some(1);
        }
    }

    /// Asks for the datasets, says what could not be opened, and sorts the others.
    ///
    /// # Errors
    /// Why nothing could be asked.
    pub fn run(
        &self,
        client: &Client,
        properties: Vec<String>,
        keys: &[SortKey],
    ) -> Result<Found, Failure> {
        let mut names = Vec::new();
        let mut has_failed = false;
        for name in &self.names {
            match self.name(name) {
                Ok(name) => names.push(name),
                Err(reason) => {
                    complain(reason);
                    has_failed = true;
                }
            }
        }
        if names.is_empty() && has_failed {
            return Ok(Found {
                datasets: Vec::new(),
                has_failed,
            });
        }
        let reply = client.dataset_describe(self.request(names.clone(), properties))?;
        let (datasets, complaints) = self.choose(&names, reply);
        has_failed |= !complaints.is_empty();
        complaints.iter().for_each(complain);
        Ok(Found {
            datasets: arrange(datasets, keys),
            has_failed,
        })
    }

    fn request(&self, names: Vec<String>, properties: Vec<String>) -> Describe {
        let is_recursive = self.is_recursive || names.is_empty();
        let by_pool =
            |kind: &DatasetKind| self.are_snapshots_by_pool && *kind == DatasetKind::Snapshot;
        Describe {
            depth: if is_recursive {
                self.depth_max
            } else {
                Some(0)
            },
            kinds: self
                .kinds
                .iter()
                .filter(|kind| !by_pool(kind))
                .copied()
                .collect(),
            listed_snapshots: self.are_snapshots_by_pool
                && self.kinds.contains(&DatasetKind::Snapshot),
            names,
            properties,
        }
    }

    /// A name as the engine takes it: a path is made whole, since the daemon stands elsewhere.
    fn name(&self, name: &str) -> Result<String, String> {
        if name.starts_with('/') || name.starts_with("./") {
            return match std::fs::canonicalize(name) {
                Ok(path) => Ok(path.to_string_lossy().into_owned()),
                Err(error) => Err(format!("cannot open '{name}': {}", reason(&error))),
            };
        }
        for (kind, delimiter, word) in [
            (DatasetKind::Snapshot, '@', "snapshot"),
            (DatasetKind::Bookmark, '#', "bookmark"),
        ] {
            if name.contains(delimiter) && !self.kinds.contains(&kind) {
                return Err(format!(
                    "cannot open '{name}': {word} delimiter '{delimiter}' is not expected here"
                ));
            }
        }
        Ok(name.to_string())
    }

    /// What is shown of a reply, and what is to be said of the rest.
    fn choose(&self, names: &[String], reply: Described) -> (Vec<DatasetDescription>, Vec<String>) {
        let mut complaints: Vec<String> = reply.refused.iter().map(ToString::to_string).collect();
        let mut shown = Vec::new();
        for dataset in reply.datasets {
            if self.kinds.contains(&dataset.kind) {
                shown.push(dataset);
            } else if names.contains(&dataset.name) && !self.may_start_at(dataset.kind) {
                complaints.push(format!(
                    "cannot open '{}': operation not applicable to datasets of this type",
                    dataset.name
                ));
            }
        }
        (shown, complaints)
    }

    /// True for kinds that are not shown, but have below them what is.
    fn may_start_at(&self, kind: DatasetKind) -> bool {
        let has_small = self.kinds.contains(&DatasetKind::Snapshot)
            || self.kinds.contains(&DatasetKind::Bookmark);
        self.is_recursive
            && (kind == DatasetKind::Filesystem || (has_small && kind == DatasetKind::Volume))
    }
}

/// The kinds that `-t` names.
///
/// # Errors
/// A word that names none.
pub fn parse_kinds(text: &str) -> Result<Vec<DatasetKind>, Failure> {
    let mut kinds = Vec::new();
    for word in text.split(',') {
        match word {
            "filesystem" | "fs" => kinds.push(DatasetKind::Filesystem),
            "volume" | "vol" => kinds.push(DatasetKind::Volume),
            "snapshot" | "snap" => kinds.push(DatasetKind::Snapshot),
            "bookmark" => kinds.push(DatasetKind::Bookmark),
            "all" => {
                kinds.extend(DATASETS);
                kinds.push(DatasetKind::Bookmark);
            }
            other => return Err(Failure::usage(format!("invalid type '{other}'"))),
        }
    }
    kinds.sort();
    kinds.dedup();
    Ok(kinds)
}

/// The number that `-d` takes.
///
/// # Errors
/// What is no number, or below zero.
pub fn parse_depth(text: &str) -> Result<u64, Failure> {
    let number: i64 = text
        .parse()
        .map_err(|_| Failure::usage(format!("{text} is not an integer")))?;
    u64::try_from(number).map_err(|_| Failure::usage("Depth can not be negative."))
}

/// What the system says of an error, without the number that Rust adds.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{dataset, snapshot};

    fn walk(names: &[&str], kinds: &str) -> Walk {
        Walk {
            names: names.iter().map(|name| name.to_string()).collect(),
            kinds: parse_kinds(kinds).unwrap(),
            ..Walk::default()
        }
    }

    #[test]
    fn asking_only_for_snapshots_of_a_dataset_goes_one_level_down() {
        let mut walk = walk(&["tank"], "snap");
        walk.descend_to_snapshots();
        let request = walk.request(walk.names.clone(), Vec::new());
        assert_eq!(request.depth, Some(1));
        assert_eq!(request.kinds, [DatasetKind::Snapshot]);
    }

    #[test]
    fn without_names_everything_is_asked_for() {
        let walk = Walk {
            are_snapshots_by_pool: true,
            ..walk(&[], "fs,vol,snap")
        };
        let request = walk.request(Vec::new(), Vec::new());
        assert_eq!(request.depth, None);
        assert!(request.listed_snapshots);
        assert_eq!(
            request.kinds,
            [DatasetKind::Filesystem, DatasetKind::Volume]
        );
    }

    #[test]
    fn a_named_dataset_of_another_kind_is_refused_unless_it_is_a_start() {
        let reply = Described {
            datasets: vec![dataset("tank", &[]), snapshot("tank@a", 2, 0)],
            refused: Vec::new(),
        };
        let names = vec!["tank".to_string()];
        let (shown, complaints) = walk(&["tank"], "snapshot").choose(&names, reply.clone());
        assert_eq!(shown.len(), 1);
        assert_eq!(
            complaints,
            ["cannot open 'tank': operation not applicable to datasets of this type"]
        );
        let recursive = Walk {
            is_recursive: true,
            ..walk(&["tank"], "snapshot")
        };
        assert!(recursive.choose(&names, reply).1.is_empty());
    }

    #[test]
    fn a_snapshot_is_refused_by_name_where_none_is_asked_for() {
        assert_eq!(
            walk(&[], "filesystem").name("tank@a").unwrap_err(),
            "cannot open 'tank@a': snapshot delimiter '@' is not expected here"
        );
        assert!(walk(&[], "all").name("tank#b").is_ok());
    }

    #[test]
    fn a_path_that_is_not_there_is_named() {
        assert_eq!(
            walk(&[], "all").name("/no/such/path").unwrap_err(),
            "cannot open '/no/such/path': No such file or directory"
        );
    }

    #[test]
    fn words_that_make_no_sense_are_named() {
        assert_eq!(
            parse_kinds("fs,pool"),
            Err(Failure::usage("invalid type 'pool'"))
        );
        assert_eq!(
            parse_depth("two"),
            Err(Failure::usage("two is not an integer"))
        );
        assert_eq!(
            parse_depth("-1"),
            Err(Failure::usage("Depth can not be negative."))
        );
    }
}
