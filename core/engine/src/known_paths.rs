//! Paths of files that were shown: what a file was called remains known when it is gone.

use std::collections::{BTreeMap, VecDeque};
use tarn_probe::DatasetId;

/// A file as operation records name it: dataset and object.
pub type FileKey = (DatasetId, u64);

/// Bytes of paths that are kept. The oldest are forgotten beyond it.
const BYTES_MAX: usize = 16 << 20;
/// What an entry takes beside its path, roughly.
const ENTRY_BYTES: usize = 96;

/// Paths by file.
#[derive(Debug, Default)]
pub(crate) struct KnownPaths {
    paths: BTreeMap<FileKey, String>,
    /// In the order in which they came first.
    order: VecDeque<FileKey>,
    bytes: usize,
}

impl KnownPaths {
    /// A file has this path now.
    pub(crate) fn keep(&mut self, file: FileKey, path: &str) {
        self.bytes += path.len() + ENTRY_BYTES;
        match self.paths.insert(file, path.to_owned()) {
            Some(before) => self.bytes -= before.len() + ENTRY_BYTES,
            None => self.order.push_back(file),
        }
        while self.bytes > BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(path) = self.paths.remove(&oldest)
        {
            self.bytes -= path.len() + ENTRY_BYTES;
        }
    }

    /// The path that a file had last.
    pub(crate) fn find(&self, file: FileKey) -> Option<&str> {
        self.paths.get(&file).map(String::as_str)
    }

    /// All files that had this path, or whose path begins so.
    pub(crate) fn files<'a>(
        &'a self,
        is_meant: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = (FileKey, &'a str)> {
        let all = self.paths.iter().map(|(file, path)| (*file, path.as_str()));
        all.filter(move |(_, path)| is_meant(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_path_of_a_file_is_known_and_memory_is_bounded() {
        let mut known = KnownPaths::default();
        let file = |object| (DatasetId(1), object);
        known.keep(file(1), "/tank/old");
        known.keep(file(1), "/tank/new");
        known.keep(file(2), "/tank/new");
        assert_eq!(known.find(file(1)), Some("/tank/new"));
        assert_eq!(known.files(|path| path == "/tank/new").count(), 2);
        let long = "x".repeat(1 << 16);
        for object in 0..1000 {
            known.keep(file(object), &long);
        }
        assert!(known.bytes <= BYTES_MAX);
        assert_eq!(known.order.len(), known.paths.len());
        assert_eq!(
            (known.find(file(1)), known.find(file(999))),
            (None, Some(&*long))
        );
    }
}
