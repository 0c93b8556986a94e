//! What OpenZFS 2.3.2 saw in a fixture: the files below `truth/`.
//!
//! Each was written by the command named beside its type here, after `zpool import -o readonly=on`;
//! the same command under test must give the same rows.

use std::fs;
use std::path::{Path, PathBuf};

/// The columns of `zfs-list.tsv`, as given to `zfs list -o`.
pub const LIST_COLUMNS: [&str; 9] = [
    "name",
    "type",
    "used",
    "available",
    "referenced",
    "mountpoint",
    "guid",
    "createtxg",
    "origin",
];

/// Why a truth cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TruthError {
    /// A file is missing or unreadable.
    #[error("read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A row has the wrong number of columns.
    #[error("{} line {line}: {found} columns where {expected} belong", path.display())]
    Columns {
        /// Of which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
}

/// One property of one dataset or pool: a row of `zfs get -Hp` or `zpool get -Hp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyRow {
    /// The dataset, snapshot, bookmark or pool.
    pub name: String,
    /// The property.
    pub property: String,
    /// Its value, exact (`-p`).
    pub value: String,
    /// Where it comes from: `local`, `default`, `inherited from X`, `-`.
    pub source: String,
}

/// One dataset, snapshot or bookmark: a row of `zfs list -Hp -t all`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRow {
    /// The values, in the order of [`LIST_COLUMNS`].
    pub values: Vec<String>,
}

impl ListRow {
    /// The value in a column of [`LIST_COLUMNS`].
    ///
    /// # Panics
    /// If there is no such column.
    #[must_use]
    pub fn value(&self, column: &str) -> &str {
        let index = LIST_COLUMNS.iter().position(|name| *name == column);
        &self.values[index.expect("the column is one of LIST_COLUMNS")]
    }
}

/// The files of one dataset or snapshot.
#[derive(Debug, Clone)]
pub struct Files {
    /// The file system.
    pub dataset: String,
    /// Its mount point, without any alternate root.
    pub mountpoint: PathBuf,
    /// The snapshot, or nothing for the file system itself.
    pub snapshot: Option<String>,
    /// The manifest, a line a file.
    pub lines: Vec<String>,
}

impl Files {
    /// The name to show: `pool/dataset` or `pool/dataset@snapshot`.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.snapshot {
            Some(snapshot) => format!("{}@{snapshot}", self.dataset),
            None => self.dataset.clone(),
        }
    }

    /// Where the files are found when the pool is mounted below `root`.
    #[must_use]
    pub fn place(&self, root: &Path) -> PathBuf {
        let below = self
            .mountpoint
            .strip_prefix("/")
            .unwrap_or(&self.mountpoint);
        let mounted = root.join(below);
        match &self.snapshot {
            Some(snapshot) => mounted.join(".zfs/snapshot").join(snapshot),
            None => mounted,
        }
    }
}

/// A volume whose contents are known.
#[derive(Debug, Clone)]
pub struct VolumeSum {
    /// The volume.
    pub dataset: String,
    /// The SHA-256 of all its bytes, in hexadecimal.
    pub sha256: String,
}

/// Everything recorded about one fixture.
#[derive(Debug, Clone)]
pub struct Truth {
    /// `zfs list -Hp -t all -r -o ... POOL`
    pub list: Vec<ListRow>,
    /// `zfs get -Hp -t all -r all POOL`, after `zfs mount -a`
    pub zfs_get: Vec<PropertyRow>,
    /// `zpool get -Hp all POOL`
    pub zpool_get: Vec<PropertyRow>,
    /// `zpool status -v POOL`
    pub status: String,
    /// `zpool history -il POOL`
    pub history: String,
    /// Manifests of every mounted file system and snapshot.
    pub files: Vec<Files>,
    /// Volumes.
    pub volumes: Vec<VolumeSum>,
}

impl Truth {
    /// Reads the folder `truth` of a fixture.
    ///
    /// # Errors
    /// If a file is missing or a row has the wrong number of columns.
    pub fn read(folder: &Path) -> Result<Self, TruthError> {
        let list = read_list(&folder.join("zfs-list.tsv"))?;
        Ok(Self {
            zfs_get: read_properties(&folder.join("zfs-get.tsv"))?,
            zpool_get: read_properties(&folder.join("zpool-get.tsv"))?,
            status: read(&folder.join("zpool-status.txt"))?,
            history: read(&folder.join("zpool-history.txt"))?,
            files: read_files(folder, &list)?,
            volumes: read_volumes(folder, &list)?,
            list,
        })
    }
}

fn read(path: &Path) -> Result<String, TruthError> {
    fs::read_to_string(path).map_err(|source| TruthError::Unreadable {
        path: path.to_path_buf(),
        source,
    })
}

/// The rows of tab-separated text, each with exactly `expected` columns.
fn rows(path: &Path, text: &str, expected: usize) -> Result<Vec<Vec<String>>, TruthError> {
    let split = |(index, line): (usize, &str)| {
        let row: Vec<String> = line.split('\t').map(str::to_string).collect();
        let (path, line, found) = (path.to_path_buf(), index + 1, row.len());
        match found == expected {
            true => Ok(row),
            false => Err(TruthError::Columns {
                path,
                line,
                found,
                expected,
            }),
        }
    };
    text.lines().enumerate().map(split).collect()
}

/// The rows of `zfs get -Hp` or `zpool get -Hp`, read from `path` only to be named in an error.
///
/// # Errors
/// If a row does not have four columns.
pub fn parse_properties(path: &Path, text: &str) -> Result<Vec<PropertyRow>, TruthError> {
    let parse = |row: Vec<String>| {
        let [name, property, value, source] = row.try_into().expect("rows checks the number");
        PropertyRow {
            name,
            property,
            value,
            source,
        }
    };
    Ok(rows(path, text, 4)?.into_iter().map(parse).collect())
}

/// The rows of `zfs list -Hp -o` with [`LIST_COLUMNS`].
///
/// # Errors
/// If a row has another number of columns.
pub fn parse_list(path: &Path, text: &str) -> Result<Vec<ListRow>, TruthError> {
    let rows = rows(path, text, LIST_COLUMNS.len())?;
    Ok(rows.into_iter().map(|values| ListRow { values }).collect())
}

fn read_properties(path: &Path) -> Result<Vec<PropertyRow>, TruthError> {
    parse_properties(path, &read(path)?)
}

fn read_list(path: &Path) -> Result<Vec<ListRow>, TruthError> {
    parse_list(path, &read(path)?)
}

/// The manifests: a dataset's name with `/` and `@` as `_` gives the file's.
fn read_files(folder: &Path, list: &[ListRow]) -> Result<Vec<Files>, TruthError> {
    let mut files = Vec::new();
    for row in list {
        let name = row.value("name");
        let path = folder.join(format!("files-{}.jsonl", name.replace(['/', '@'], "_")));
        let (dataset, snapshot) = match name.split_once('@') {
            Some((dataset, snapshot)) => (dataset, Some(snapshot.to_string())),
            None => (name, None),
        };
        if row.value("type") == "bookmark" || !path.is_file() {
            continue;
        }
        let owner = list
            .iter()
            .find(|row| row.value("name") == dataset)
            .unwrap_or(row);
        files.push(Files {
            dataset: dataset.to_string(),
            mountpoint: PathBuf::from(owner.value("mountpoint")),
            snapshot,
            lines: read(&path)?.lines().map(str::to_string).collect(),
        });
    }
    Ok(files)
}

fn read_volumes(folder: &Path, list: &[ListRow]) -> Result<Vec<VolumeSum>, TruthError> {
    let mut volumes = Vec::new();
    for row in list.iter().filter(|row| row.value("type") == "volume") {
        let dataset = row.value("name").to_string();
        let path = folder.join(format!("sha256-{}", dataset.replace('/', "_")));
        volumes.push(VolumeSum {
            dataset,
            sha256: read(&path)?.trim().to_string(),
        });
    }
    Ok(volumes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_a_missing_column_is_refused_with_its_line() {
        let error =
            parse_properties(Path::new("zfs-get.tsv"), "p\ta\t1\t-\np\tb\t2\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "zfs-get.tsv line 2: 3 columns where 4 belong"
        );
    }

    #[test]
    fn a_snapshot_is_found_below_the_mount_of_its_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "zfs-list.tsv",
            "p\tfilesystem\t1\t1\t1\t/p\t1\t1\t-\n\
             p/a\tfilesystem\t1\t1\t1\t/else/where\t2\t1\t-\n\
             p/a@s\tsnapshot\t1\t-\t1\t-\t3\t1\t-\n",
        );
        write("zfs-get.tsv", "");
        write("zpool-get.tsv", "");
        write("zpool-status.txt", "");
        write("zpool-history.txt", "");
        write("files-p_a_s.jsonl", "{}\n");
        let truth = Truth::read(folder.path()).unwrap();
        assert_eq!(truth.files.len(), 1);
        assert_eq!(truth.files[0].name(), "p/a@s");
        let place = truth.files[0].place(Path::new("/alt"));
        assert_eq!(place, Path::new("/alt/else/where/.zfs/snapshot/s"));
    }
}
