//! The archive: seconds are appended, blocks sealed, and coarser tiers made of them.
//!
//! # Mechanism
//! A second is appended to the tail and kept in memory. When all seconds of a block are there, and
//! some more for operations that come late, the block is written, its tail removed, and its
//! seconds become minutes in memory; 60 of them become a block of minutes and an hour, 24 hours a
//! block of hours. A question reads blocks, and from memory what is in none.
//!
//! # Invariants
//! - Each time is in a block of its tier or in memory, in one of them: what memory has of minutes
//!   is of blocks of seconds that no block of minutes has, and so for hours.
//! - The files together never count more than the cap: room is made before anything is written.
//!
//! # After a crash
//! A block is there whole or not at all. Seconds are in the tail, except what was not appended yet.
//! What memory had of minutes and hours is made again of the blocks that came after the last block
//! of the coarser tier, at most [`UNMADE_BLOCKS_MAX`]. Opening reads none of them, but names
//! and sizes of files and the tail: a question reads its own series of them, and all of them are
//! read when the block of the coarser tier is due.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tarn_host::{FileLock, Host, Mutex};

use crate::archive_contents::Shown;
use crate::block_format::{self, SERIES_MAX};
use crate::block_reader::BlockReader;
use crate::cell::{Cell, Column, SeriesId, SeriesKey};
use crate::error::{ArchiveError, Skipped, WhySkipped};
use crate::ranks;
use crate::shelf::on_disk;
use crate::tail::{self, Tail};
use crate::tier::{FileOfArchive, LATEST_S, Tier};

/// What an archive takes at most, unless told otherwise: bar B13 of the specification.
pub const DEFAULT_CAP_BYTES: u64 = 4 << 30;
/// The least cap: an hour of a busy server, and some of each tier.
pub const LEAST_CAP_BYTES: u64 = 16 << 20;
/// The file that the process has locked which writes the archive. It is empty.
const LOCK_NAME: &str = "lock";
/// So long after its end a block takes seconds once more, for operations that came late.
const LATE_S: u64 = 3;
/// Blocks of a finer tier of which columns are made after the archive was opened: an hour of
/// seconds, or a day of minutes, twice.
const UNMADE_BLOCKS_MAX: usize = 48;

/// Statistics of a long time, in the files of one directory.
#[derive(Debug)]
pub struct Archive {
    host: Host,
    pub(crate) reader: BlockReader,
    cap_bytes: u64,
    /// `None` if it was opened to be read.
    writer: Option<Mutex<Writer>>,
    shown: Mutex<Shown>,
}

/// What the thread that archives needs.
#[derive(Debug)]
struct Writer {
    /// Other processes that open the archive to be written are refused.
    _lock: FileLock,
    tails: BTreeMap<u64, Tail>,
    /// Tails of which the file has more or less than it should: an append failed.
    torn: BTreeSet<u64>,
}

/// How an archive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveState {
    /// What its files take.
    pub bytes: u64,
    /// What they may take.
    pub cap_bytes: u64,
    /// Blocks of all tiers.
    pub blocks: usize,
    /// Series of the newest second.
    pub series: usize,
    /// The first second of each tier, the finest first; `None` where it has nothing.
    pub oldest_s: [Option<u64>; 3],
    /// The newest second that is in no block; `None` if there is none.
    pub newest_s: Option<u64>,
    /// Seconds and blocks that could not be written since it was opened.
    pub refused: u64,
}

impl Writer {
    fn of(lock: FileLock) -> Writer {
        Writer {
            _lock: lock,
            tails: BTreeMap::new(),
            torn: BTreeSet::new(),
        }
    }
}

/// Keeps other processes from writing the archive of a directory.
fn lock(host: &Host, directory: &Path) -> Result<FileLock, ArchiveError> {
    let path = directory.join(LOCK_NAME);
    host.lock_file(&path)
        .map_err(|error| match error.is_locked() {
            true => ArchiveError::InUse {
                directory: directory.to_owned(),
                holder: host.lock_holder(&path),
            },
            false => ArchiveError::File(error),
        })
}

impl Archive {
    /// Opens an archive to be written and read, or makes one. One process at a time does.
    ///
    /// # Errors
    /// A directory that cannot be made or listed, or that another process archives in; a cap below
    /// [`LEAST_CAP_BYTES`]. Files that are damaged are no error: [`Archive::skipped`].
    pub fn open(host: &Host, directory: &Path, cap_bytes: u64) -> Result<Archive, ArchiveError> {
        if cap_bytes < LEAST_CAP_BYTES {
            return Err(ArchiveError::CapTooSmall {
                cap_bytes,
                least_bytes: LEAST_CAP_BYTES,
            });
        }
        host.create_directories(directory)?;
        let writer = Mutex::new(ranks::WRITER, Writer::of(lock(host, directory)?));
        let archive = Archive::empty(host, directory, cap_bytes, Some(writer));
        archive.load()?;
        Ok(archive)
    }

    /// Opens an archive as it is now, only to be read; another process may be writing it.
    ///
    /// # Errors
    /// A directory that cannot be listed.
    pub fn open_to_read(host: &Host, directory: &Path) -> Result<Archive, ArchiveError> {
        let archive = Archive::empty(host, directory, u64::MAX, None);
        archive.load()?;
        Ok(archive)
    }

    fn empty(
        host: &Host,
        directory: &Path,
        cap_bytes: u64,
        writer: Option<Mutex<Writer>>,
    ) -> Archive {
        Archive {
            host: host.clone(),
            reader: BlockReader::new(host, directory),
            cap_bytes,
            writer,
            shown: Mutex::new(ranks::SHOWN, Shown::default()),
        }
    }

    /// The files that are not used, and why.
    pub fn skipped(&self) -> Vec<Skipped> {
        self.reader.skipped()
    }

    /// How it is now.
    pub fn state(&self) -> ArchiveState {
        let shown = self.shown.lock();
        let oldest = |tier: Tier| shown.oldest(tier);
        let seconds = shown.open.get(&Tier::Second);
        let newest = seconds.and_then(|seconds| seconds.last_key_value());
        ArchiveState {
            bytes: shown.bytes(),
            cap_bytes: self.cap_bytes,
            blocks: shown.shelf.len(),
            series: newest.map_or(0, |(_, column)| column.cells.len()),
            oldest_s: Tier::ALL.map(oldest),
            newest_s: newest.map(|(start_s, _)| *start_s),
            refused: shown.refused,
        }
    }

    /// Appends a second, or puts it in the place of what was appended for it before. Cells of the
    /// same series are merged.
    ///
    /// # Errors
    /// A second that is in a block already, or that there is no room for: it counts as not
    /// collected.
    pub fn append(&self, mut second: Column) -> Result<(), ArchiveError> {
        let Some(writer) = &self.writer else {
            let directory = self.reader.directory().to_owned();
            return Err(ArchiveError::ReadOnly { directory });
        };
        let series = second.cells.len();
        if series > SERIES_MAX {
            let series_max = SERIES_MAX;
            return Err(ArchiveError::TooManySeries { series, series_max });
        }
        let mut writer = writer.lock();
        let block_s = Tier::Second.block_of(second.start_s);
        let is_sealed = self.shown.lock().shelf.has(Tier::Second, block_s);
        if is_sealed || second.start_s >= LATEST_S {
            let second = second.start_s;
            return Err(ArchiveError::Late { second });
        }
        let tail = writer.tails.entry(block_s).or_default();
        second.cells = fold_new(second.cells, tail);
        let second = Arc::new(second);
        let appended = self.append_to_tail(&mut writer, block_s, &second);
        let mut shown = self.shown.lock();
        match &appended {
            Ok(()) => {
                let seconds = shown.open.entry(Tier::Second).or_default();
                seconds.insert(second.start_s, second.clone());
            }
            Err(_) => shown.refused += 1,
        }
        shown.now_s = second.start_s;
        drop(shown);
        self.seal_due(&mut writer);
        appended
    }

    fn append_to_tail(
        &self,
        writer: &mut Writer,
        block_s: u64,
        second: &Column,
    ) -> Result<(), ArchiveError> {
        if writer.torn.contains(&block_s) {
            self.write_tail_anew(writer, block_s)?;
        }
        let tail = writer.tails.entry(block_s).or_default();
        let frame = tail.frame(second);
        let (before, after) = (tail.bytes, tail.bytes + bytes_of(frame.len()));
        let appended = match self.make_room(on_disk(after) - on_disk(before)) {
            true => {
                let path = self.reader.path(FileOfArchive::Tail(block_s));
                let appended = self.host.append_to_file(&path, &frame);
                appended.map_err(ArchiveError::File)
            }
            false => Err(ArchiveError::NoRoom { bytes: after }),
        };
        match appended {
            Ok(()) => {
                tail.bytes = after;
                self.shown.lock().tail_bytes += on_disk(after) - on_disk(before);
            }
            // The frame may be there in part, and the names in it are not known to be there.
            Err(_) => _ = writer.torn.insert(block_s),
        }
        appended
    }

    /// Replaces a tail by one of the seconds that are in memory.
    fn write_tail_anew(&self, writer: &mut Writer, block_s: u64) -> Result<(), ArchiveError> {
        let block = block_s..block_s + Tier::Second.block_s();
        let columns: Vec<Arc<Column>> = {
            let shown = self.shown.lock();
            let seconds = shown.open.get(&Tier::Second);
            let seconds = seconds
                .into_iter()
                .flat_map(|seconds| seconds.range(block.clone()));
            seconds.map(|(_, column)| column.clone()).collect()
        };
        let mut anew = Tail::default();
        let frames: Vec<Vec<u8>> = columns.iter().map(|column| anew.frame(column)).collect();
        let contents = frames.concat();
        anew.bytes = bytes_of(contents.len());
        // Old and new stand side by side for a moment.
        if !self.make_room(on_disk(anew.bytes)) {
            return Err(ArchiveError::NoRoom { bytes: anew.bytes });
        }
        let path = self.reader.path(FileOfArchive::Tail(block_s));
        self.host.write_file_atomically(&path, &contents)?;
        writer.torn.remove(&block_s);
        let bytes = on_disk(anew.bytes);
        let before = writer.tails.insert(block_s, anew);
        let mut shown = self.shown.lock();
        shown.tail_bytes += bytes;
        shown.tail_bytes -= before.map_or(0, |before| on_disk(before.bytes));
        Ok(())
    }

    /// Makes blocks of all that is due, from the finest tier to the coarsest.
    fn seal_due(&self, writer: &mut Writer) {
        for tier in Tier::ALL {
            for block_s in self.due(tier) {
                self.seal(tier, block_s);
                if tier == Tier::Second {
                    self.remove_tail(writer, block_s);
                }
            }
        }
    }

    /// The blocks of a tier of which no more columns come.
    fn due(&self, tier: Tier) -> Vec<u64> {
        let shown = self.shown.lock();
        let end_s = |block_s: &u64| block_s + tier.block_s();
        let mut due = shown.open_blocks(tier);
        match tier {
            Tier::Second => due.retain(|block_s| end_s(block_s) + LATE_S <= shown.now_s),
            // What is in memory of finer tiers is later than what this tier has.
            Tier::Minute | Tier::Hour => {
                let finer = Tier::ALL.into_iter().filter(|finer| *finer < tier);
                let finer = finer.filter_map(|finer| shown.open_blocks(finer).into_iter().next());
                let from_s = finer.min().unwrap_or(shown.sealed_to());
                due.retain(|block_s| end_s(block_s) <= from_s);
            }
        }
        due
    }

    /// Writes a block of what memory has, and merges its columns into those of the coarser tier.
    fn seal(&self, tier: Tier, block_s: u64) {
        let end_s = block_s + tier.block_s();
        let unmade = self.shown.lock().unmade_of(tier, block_s);
        unmade.into_iter().for_each(|block| self.make(block));
        let mut columns: BTreeMap<u64, Arc<Column>> = {
            let shown = self.shown.lock();
            let of_tier = shown.open.get(&tier).into_iter();
            let of_block = of_tier.flat_map(|columns| columns.range(block_s..end_s));
            of_block
                .map(|(start_s, column)| (*start_s, column.clone()))
                .collect()
        };
        let is_there = self.shown.lock().shelf.has(tier, block_s);
        if is_there {
            // The clock was set back into an hour that has a block.
            let known = self.reader.columns(tier, block_s).unwrap_or_default();
            columns.extend(known.into_iter().map(|column| (column.start_s, column)));
        }
        let columns: Vec<Arc<Column>> = columns.into_values().collect();
        let is_of_block = |column: &Arc<Column>| (block_s..end_s).contains(&column.start_s);
        assert!(columns.iter().all(is_of_block));
        let block = fold_and_encode(tier, block_s, &columns);
        let bytes = bytes_of(block.len());
        let path = self.reader.path(FileOfArchive::Block(tier, block_s));
        let is_written = self.make_room(on_disk(bytes))
            && self.host.write_file_atomically(&path, &block).is_ok();
        let merged = merged_columns(tier, &columns);
        let mut shown = self.shown.lock();
        match is_written {
            true => shown.shelf.add(tier, block_s, bytes),
            false => shown.refused += 1,
        }
        let open = shown.open.entry(tier).or_default();
        open.retain(|start_s, _| !(block_s..end_s).contains(start_s));
        if let Some(coarser) = tier.coarser() {
            shown.open.entry(coarser).or_default().extend(merged);
        }
    }

    fn remove_tail(&self, writer: &mut Writer, block_s: u64) {
        let path = self.reader.path(FileOfArchive::Tail(block_s));
        // A tail that stays is removed when the archive is opened next: its block is there.
        let is_gone = self.host.remove_file(&path).is_ok();
        writer.torn.remove(&block_s);
        if let Some(tail) = writer.tails.remove(&block_s)
            && is_gone
        {
            self.shown.lock().tail_bytes -= on_disk(tail.bytes);
        }
    }

    /// Drops blocks until so many bytes more are within the cap. Says whether they are.
    fn make_room(&self, bytes: u64) -> bool {
        loop {
            let (dropped, is_enough) = {
                let shown = self.shown.lock();
                let room = self
                    .cap_bytes
                    .checked_sub(shown.tail_bytes.saturating_add(bytes));
                let room_bytes = room.unwrap_or(0);
                let dropped = shown.shelf.to_drop(room_bytes, shown.now_s);
                (dropped, room.is_some() && shown.shelf.bytes() <= room_bytes)
            };
            let Some((tier, start_s)) = dropped else {
                return is_enough;
            };
            self.make((tier, start_s));
            let path = self.reader.path(FileOfArchive::Block(tier, start_s));
            if self.host.remove_file(&path).is_err() {
                return is_enough;
            }
            self.shown.lock().shelf.remove(tier, start_s);
            self.reader.forget(&path);
        }
    }

    /// Makes the columns of the coarser tier of an unmade block.
    fn make(&self, block: (Tier, u64)) {
        let ((tier, start_s), Some(coarser)) = (block, block.0.coarser()) else {
            return;
        };
        if !self.shown(|shown| shown.unmade.contains(&block)) {
            return;
        }
        let columns = self.reader.columns(tier, start_s).unwrap_or_default();
        let merged = merged_columns(tier, &columns);
        let mut shown = self.shown.lock();
        shown.open.entry(coarser).or_default().extend(merged);
        shown.unmade.remove(&block);
    }

    pub(crate) fn shown<T>(&self, read: impl FnOnce(&Shown) -> T) -> T {
        read(&self.shown.lock())
    }
}

/// Opening.
impl Archive {
    fn load(&self) -> Result<(), ArchiveError> {
        let mut starts = Vec::new();
        for entry in self.host.list_directory(self.reader.directory())? {
            let name = entry.path.file_name().and_then(|name| name.to_str());
            match name.and_then(FileOfArchive::of_name) {
                Some(FileOfArchive::Tail(start_s)) => starts.push(start_s),
                Some(FileOfArchive::Block(tier, start_s)) => {
                    self.load_block(&entry.path, tier, start_s);
                }
                None if name == Some(LOCK_NAME) => {}
                None if self.is_leftover(name) => _ = self.host.remove_file(&entry.path),
                None => self.reader.skip(&entry.path, WhySkipped::Foreign),
            }
        }
        let (mut tails, mut torn) = (BTreeMap::new(), BTreeSet::new());
        for start_s in starts {
            self.load_tail(start_s, &mut tails, &mut torn);
        }
        self.find_unmade(Tier::Second, Tier::Minute);
        self.find_unmade(Tier::Minute, Tier::Hour);
        if let Some(mutex) = &self.writer {
            let mut writer = mutex.lock();
            (writer.tails, writer.torn) = (tails, torn);
            self.make_room(0);
        }
        Ok(())
    }

    /// What was being written when the process ended.
    fn is_leftover(&self, name: Option<&str>) -> bool {
        let replaced = name.and_then(|name| name.strip_suffix(".new"));
        self.writer.is_some() && replaced.and_then(FileOfArchive::of_name).is_some()
    }

    fn load_block(&self, path: &Path, tier: Tier, start_s: u64) {
        match self.host.file_size_bytes(path) {
            Ok(bytes) => self.shown.lock().shelf.add(tier, start_s, bytes),
            Err(_) => self.reader.skip(path, WhySkipped::Unreadable),
        }
    }

    fn load_tail(&self, start_s: u64, tails: &mut BTreeMap<u64, Tail>, torn: &mut BTreeSet<u64>) {
        let path = self.reader.path(FileOfArchive::Tail(start_s));
        let is_in_block = self.shown.lock().shelf.has(Tier::Second, start_s);
        if is_in_block {
            if self.writer.is_some() {
                let _ = self.host.remove_file(&path);
            }
            return;
        }
        let Ok(bytes) = self.host.read_file(&path) else {
            return self.reader.skip(&path, WhySkipped::Unreadable);
        };
        let contents = tail::read(&bytes, start_s);
        if contents.good_bytes < bytes.len() {
            self.reader.skip(&path, WhySkipped::DamagedEnd);
            torn.insert(start_s);
        }
        let mut shown = self.shown.lock();
        shown.tail_bytes += on_disk(bytes_of(bytes.len()));
        let columns = contents.columns.into_iter();
        let columns = columns.map(|(start_s, column)| (start_s, Arc::new(column)));
        shown.open.entry(Tier::Second).or_default().extend(columns);
        drop(shown);
        let mut tail = contents.tail;
        // Until it is written anew its file is as long as it was.
        tail.bytes = bytes_of(bytes.len());
        tails.insert(start_s, tail);
    }

    /// Notes of the newest blocks of the finer tier those that no block of the coarser one has.
    fn find_unmade(&self, finer: Tier, coarser: Tier) {
        let mut shown = self.shown.lock();
        let newest_first = shown.shelf.of_tier(finer).rev().take(UNMADE_BLOCKS_MAX);
        let is_in_none = |start_s: &u64| !shown.shelf.has(coarser, coarser.block_of(*start_s));
        let unmade: Vec<u64> = newest_first.filter(is_in_none).collect();
        let unmade = unmade.into_iter().map(|start_s| (finer, start_s));
        shown.unmade.extend(unmade);
    }
}

/// The columns of the coarser tier.
fn merged_columns(tier: Tier, columns: &[Arc<Column>]) -> Vec<(u64, Arc<Column>)> {
    let Some(coarser) = tier.coarser() else {
        return Vec::new();
    };
    let of_one = |one: &Arc<Column>, other: &Arc<Column>| {
        coarser.column_of(one.start_s) == coarser.column_of(other.start_s)
    };
    let merged = columns.chunk_by(of_one).map(|parts| {
        let start_s = coarser.column_of(parts[0].start_s);
        let parts = parts.iter().map(Arc::as_ref);
        (start_s, Arc::new(Column::merged(start_s, parts)))
    });
    merged.collect()
}

/// Statistics that a column has at most; each has one series of the keys that were too many.
const STATISTICS_MAX: usize = 256;

/// Cells in their order, each series once. Series that are new when the tail has all it can have
/// are counted with the keys that were too many.
fn fold_new(cells: Vec<(Arc<SeriesId>, Cell)>, tail: &Tail) -> Vec<(Arc<SeriesId>, Cell)> {
    let mut room = (SERIES_MAX - STATISTICS_MAX).saturating_sub(tail.series());
    let mut folded = BTreeMap::<Arc<SeriesId>, Cell>::new();
    for (series, cell) in cells {
        let is_new = !tail.has(&series) && !folded.contains_key(&series);
        let series = match is_new && series.key != SeriesKey::Other {
            true if room == 0 => Arc::new(SeriesId::other(&series.statistic)),
            true => {
                room -= 1;
                series
            }
            false => series,
        };
        folded.entry(series).or_default().merge(&cell);
    }
    folded.into_iter().collect()
}

/// The block of columns. Where they have too many series together, those with the least sums are
/// counted with the keys that were too many.
fn fold_and_encode(tier: Tier, block_s: u64, columns: &[Arc<Column>]) -> Vec<u8> {
    let mut sums = BTreeMap::<&Arc<SeriesId>, u64>::new();
    for (series, cell) in columns.iter().flat_map(|column| &column.cells) {
        let sum = sums.entry(series).or_default();
        *sum = sum.saturating_add(cell.sum.max(1));
    }
    if sums.len() <= SERIES_MAX {
        let columns: Vec<&Column> = columns.iter().map(Arc::as_ref).collect();
        return block_format::encode(tier, block_s, &columns);
    }
    let mut ranked: Vec<&Arc<SeriesId>> = sums.keys().copied().collect();
    ranked.sort_by_key(|series| u64::MAX - sums[series]);
    let rest = ranked.split_off(SERIES_MAX - STATISTICS_MAX);
    let kept: BTreeSet<&Arc<SeriesId>> = ranked.into_iter().collect();
    // Blocks of this program have fewer statistics. What others have beyond that is left out.
    let statistics: BTreeSet<&str> = (rest.iter())
        .map(|series| series.statistic.as_str())
        .collect();
    let folded: BTreeSet<&str> = statistics.into_iter().take(STATISTICS_MAX).collect();
    let fold = |column: &Arc<Column>| {
        let mut cells = BTreeMap::<Arc<SeriesId>, Cell>::new();
        for (series, cell) in &column.cells {
            let series = match kept.contains(series) {
                true => series.clone(),
                false if !folded.contains(series.statistic.as_str()) => continue,
                false => Arc::new(SeriesId::other(&series.statistic)),
            };
            cells.entry(series).or_default().merge(cell);
        }
        Column {
            start_s: column.start_s,
            head: column.head,
            cells: cells.into_iter().collect(),
        }
    };
    let folded: Vec<Column> = columns.iter().map(fold).collect();
    block_format::encode(tier, block_s, &folded.iter().collect::<Vec<_>>())
}

fn bytes_of(length: usize) -> u64 {
    u64::try_from(length).expect("a length in memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series_coding::Placing;

    /// More series than a block has: the largest stay, the others are told together.
    #[test]
    fn series_that_are_too_many_are_told_with_other_keys() {
        let mut column = Column::new(0);
        for number in 0..5000_u64 {
            let series = SeriesId::new("nfs.ops[client]", &[&number.to_string()]);
            column
                .cells
                .push((Arc::new(series), Cell::of_sample(number)));
        }
        let block = fold_and_encode(Tier::Second, 0, &[Arc::new(column)]);
        let end = block_format::index_end(&block, FileOfArchive::Block(Tier::Second, 0)).unwrap();
        let index = block_format::read_index(&block[..end], Tier::Second, &|_| true).unwrap();
        let placing = Placing::of_all(Tier::Second.block_columns());
        assert_eq!(index.pieces.len(), SERIES_MAX - STATISTICS_MAX + 1);
        let mut sum = 0;
        for entry in &index.pieces {
            let place = |at: u64| usize::try_from(at).unwrap();
            let stored = &block[place(entry.stored.start)..place(entry.stored.end)];
            let cells = block_format::read_piece(stored, entry, &placing).unwrap();
            sum += cells[0].as_ref().unwrap().sum;
        }
        assert_eq!(sum, 4999 * 5000 / 2);
    }
}
