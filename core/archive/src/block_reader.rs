//! Reading of blocks: an index, and of the pieces those that are asked for.
//!
//! # Invariants
//! - A block that lies is found when it is read, noted by name, and counts as not collected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_host::{FileError, Host, Mutex};

use crate::block_format::{self, BlockIndex, FIRST_READ_BYTES, PieceEntry};
use crate::cell::{Cell, Column, ColumnHead};
use crate::error::{Skipped, WhySkipped};
use crate::ranks;
use crate::series_coding::Placing;
use crate::tier::{FileOfArchive, Tier};

/// Files that are reported; the others are skipped all the same.
const SKIPPED_MAX: usize = 256;

/// Reads the blocks of a directory.
#[derive(Debug)]
pub(crate) struct BlockReader {
    pub(crate) host: Host,
    directory: PathBuf,
    skipped: Mutex<BTreeMap<PathBuf, WhySkipped>>,
}

/// A file is damaged, or gone: then there is no reason to tell.
type Unread = Option<WhySkipped>;

impl BlockReader {
    pub(crate) fn new(host: &Host, directory: &Path) -> BlockReader {
        BlockReader {
            host: host.clone(),
            directory: directory.to_owned(),
            skipped: Mutex::new(ranks::SKIPPED, BTreeMap::new()),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn path(&self, file: FileOfArchive) -> PathBuf {
        self.directory.join(file.name())
    }

    /// The files that are not used, and why.
    pub(crate) fn skipped(&self) -> Vec<Skipped> {
        let skipped = self.skipped.lock();
        let report = |(path, why): (&PathBuf, &WhySkipped)| Skipped {
            path: path.clone(),
            why: *why,
        };
        skipped.iter().map(report).collect()
    }

    /// Notes that a file is not used.
    pub(crate) fn skip(&self, path: &Path, why: WhySkipped) {
        let mut skipped = self.skipped.lock();
        if skipped.len() < SKIPPED_MAX {
            skipped.insert(path.to_owned(), why);
        }
    }

    /// A file that was not used is gone.
    pub(crate) fn forget(&self, path: &Path) {
        self.skipped.lock().remove(path);
    }

    /// What a block has of the statistics that are wanted; `None` if it is damaged, which is noted,
    /// or gone.
    pub(crate) fn index(
        &self,
        tier: Tier,
        start_s: u64,
        wants: &dyn Fn(&str) -> bool,
    ) -> Option<BlockIndex> {
        let file = FileOfArchive::Block(tier, start_s);
        let path = self.path(file);
        let read = |length: usize| {
            let bytes = self.host.read_file_part(&path, 0, length);
            bytes.map_err(|error| why_unread(&error))
        };
        let index = || {
            let mut first = read(FIRST_READ_BYTES)?;
            let end = block_format::index_end(&first, file).map_err(Some)?;
            if end > first.len() {
                first = read(end)?;
            }
            let bytes = first.get(..end).ok_or(Some(WhySkipped::Truncated))?;
            block_format::read_index(bytes, tier, wants).map_err(Some)
        };
        self.noted(&path, index())
    }

    /// The cells of series in a block, in the order of their entries; `None` for one that is
    /// damaged, which is noted, or gone. The pieces are read together, from the first to the last.
    pub(crate) fn cells(
        &self,
        tier: Tier,
        start_s: u64,
        entries: &[&PieceEntry],
        placing: &Placing,
    ) -> Vec<Option<Vec<Option<Cell>>>> {
        let ([first, ..], [.., last]) = (entries, entries) else {
            return Vec::new();
        };
        let path = self.path(FileOfArchive::Block(tier, start_s));
        let from = first.stored.start;
        assert!(from <= last.stored.end, "pieces follow one another");
        let length = usize::try_from(last.stored.end - from).expect("pieces are bounded");
        let stored = self.host.read_file_part(&path, from, length);
        let stored = stored.map_err(|error| why_unread(&error));
        let cells = |entry: &&PieceEntry| {
            let piece = stored.as_ref().map_err(|why| *why).and_then(|stored| {
                let place = |at: u64| usize::try_from(at - from).expect("within the length");
                let piece = stored.get(place(entry.stored.start)..place(entry.stored.end));
                let piece = piece.ok_or(Some(WhySkipped::Truncated))?;
                block_format::read_piece(piece, entry, placing).map_err(Some)
            });
            self.noted(&path, piece)
        };
        entries.iter().map(cells).collect()
    }

    /// All columns of a block, except series that are damaged.
    pub(crate) fn columns(&self, tier: Tier, start_s: u64) -> Option<Vec<Arc<Column>>> {
        let index = self.index(tier, start_s, &|_| true)?;
        let columns = (0..).map(|number| start_s + number * tier.column_s());
        let mut columns: Vec<Column> = (columns.zip(&index.heads))
            .map(|(start_s, head)| Column {
                head: *head,
                ..Column::new(start_s)
            })
            .collect();
        let placing = Placing::of_all(tier.block_columns());
        for entry in &index.pieces {
            let series = Arc::new(entry.series.clone());
            let cells = self
                .cells(tier, start_s, &[entry], &placing)
                .pop()
                .flatten();
            for (column, cell) in columns.iter_mut().zip(cells.unwrap_or_default()) {
                column.cells.extend(cell.map(|cell| (series.clone(), cell)));
            }
        }
        let is_known =
            |column: &Column| column.head != ColumnHead::default() || !column.cells.is_empty();
        Some(columns.into_iter().filter(is_known).map(Arc::new).collect())
    }

    fn noted<T>(&self, path: &Path, result: Result<T, Unread>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(why) => {
                why.into_iter().for_each(|why| self.skip(path, why));
                None
            }
        }
    }
}

fn why_unread(error: &FileError) -> Unread {
    (!error.is_not_found()).then_some(WhySkipped::Unreadable)
}
