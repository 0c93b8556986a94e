//! The mount table of this process's namespace (`/proc/self/mountinfo`).
//!
//! # Problem
//! A mount does not always stay on its folder: a folder above is renamed, the mount is moved or
//! bound to a second folder, another mount covers it, umount(8) ends it. So the mount table decides
//! what is mounted, not the record of what was mounted.
//!
//! # Mechanism
//! A file system is identified by its device number, which `/proc/self/mountinfo` shows for each
//! mount with the mount's own number and its present path. poll(2) tells whether mounts came or
//! went since the table was last read, so the question whether something is mounted mostly costs
//! one call. Paths change without notice: for present paths the table is read again. A command over
//! many mounts reads it once, and compares each row with the mount before it is used
//! ([`Age::Last`]).

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The table; see proc_pid_mountinfo(5).
const TABLE: &str = "/proc/self/mountinfo";

/// One mount of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The mount's own number.
    pub id: u64,
    /// Whether the mount's root is the root of the file system; else it is a bind mount of a folder
    /// or file.
    pub is_whole: bool,
    /// Its present path.
    pub place: PathBuf,
}

/// Mounts by the minor number of their device; the major number of those is 0.
type Rows = BTreeMap<u32, Vec<Row>>;

/// The table, read on demand.
#[derive(Debug, Default)]
pub struct MountTable {
    read: Mutex<Option<(File, Rows)>>,
    /// How often it was read.
    readings: AtomicU64,
}

/// How old an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// The last reading, of any age: for one of many mounts, whose row is compared with the mount
    /// itself. The table is read only if it never was.
    Last,
    /// New and ended mounts are included; paths may be old.
    Mounts,
    /// Paths are the present ones.
    Paths,
}

impl MountTable {
    /// The mounts of the file system with this device number, in the table's order. None when the
    /// table cannot be read.
    pub fn rows_of(&self, number: u32, age: Age) -> Option<Vec<Row>> {
        self.with(age, |rows| rows.get(&number).cloned().unwrap_or_default())
    }

    /// Calls `look` with the table.
    pub fn with<T>(&self, age: Age, look: impl FnOnce(&Rows) -> T) -> Option<T> {
        let mut read = self.lock();
        let is_fresh = match &*read {
            // poll(2) marks changes as seen, so it comes before reading.
            Some(_) if age == Age::Last => true,
            Some((file, _)) => !has_changed(file) && age == Age::Mounts,
            None => false,
        };
        if !is_fresh {
            *read = read_again(read.take().map(|(file, _)| file)).ok();
            self.readings.fetch_add(1, Ordering::Relaxed);
        }
        read.as_ref().map(|(_, rows)| look(rows))
    }

    /// How often the table was read. Reading takes time for each mount of the machine, so a command
    /// over many mounts must not read it for each.
    pub fn readings(&self) -> u64 {
        self.readings.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(File, Rows)>> {
        // A thread that panicked under the lock left no table, or a whole one.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether mounts came or went since the last call.
fn has_changed(file: &File) -> bool {
    let mut polled = [PollFd::new(file, PollFlags::PRI)];
    let none = rustix::time::Timespec::default();
    match rustix::event::poll(&mut polled, Some(&none)) {
        Ok(0) => false,
        Ok(_) | Err(Errno::INTR) => true,
        Err(_) => true,
    }
}

fn read_again(file: Option<File>) -> std::io::Result<(File, Rows)> {
    let mut file = match file {
        Some(file) => file,
        None => File::open(TABLE)?,
    };
    file.seek(SeekFrom::Start(0))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok((file, parse(&text)))
}

/// Parses the table. Malformed lines, and mounts of block devices, are skipped.
fn parse(text: &[u8]) -> Rows {
    let mut rows = Rows::new();
    for line in text.split(|byte| *byte == b'\n') {
        if let Some((number, row)) = parse_line(line) {
            rows.entry(number).or_default().push(row);
        }
    }
    rows
}

fn parse_line(line: &[u8]) -> Option<(u32, Row)> {
    let mut words = line.split(|byte| *byte == b' ');
    let mut word = || words.next();
    let id = number_in(word()?)?;
    let _parent = word()?;
    let number = number_in(word()?.strip_prefix(b"0:")?)?;
    let is_whole = word()? == b"/";
    let place = PathBuf::from(OsString::from_vec(unescaped(word()?)));
    let number = u32::try_from(number).ok()?;
    let row = Row {
        id,
        is_whole,
        place,
    };
    Some((number, row))
}

fn number_in(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A path of the table without escapes: blanks, line ends and backslashes are written as `\040`.
pub(crate) fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let value = digits.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match value {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    path
}

/// The file system's own mount: the one with this number, else the first that has the root.
pub fn own(rows: &[Row], id: Option<u64>) -> Option<&Row> {
    let whole = || rows.iter().filter(|row| row.is_whole);
    whole()
        .find(|row| Some(row.id) == id)
        .or_else(|| whole().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
24 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
63 24 0:39 / /tmp/fra rw,relatime - fuse p/a rw,user_id=0\n\
64 24 0:39 /sub /tmp/with\\040blank\\134 rw - fuse p/a rw\n\
65 24 0:40 / /tmp/frb rw master:1 - fuse p/b rw\n\
66 24 0:39 / /tmp/frc rw - fuse p/a rw\n\
nonsense\n";

    #[test]
    fn mounts_are_found_by_their_device() {
        let rows = parse(TEXT);
        assert_eq!(rows.len(), 2);
        let found = &rows[&39];
        let places: Vec<_> = found
            .iter()
            .map(|row| row.place.to_str().unwrap())
            .collect();
        assert_eq!(places, ["/tmp/fra", "/tmp/with blank\\", "/tmp/frc"]);
        assert!(!found[1].is_whole);
        assert_eq!(own(found, Some(66)).unwrap().id, 66);
        // A bind mount of a folder is not the file system's own.
        assert_eq!(own(found, Some(64)).unwrap().id, 63);
        assert_eq!(own(&found[1..2], Some(64)), None);
    }

    #[test]
    fn the_table_of_this_process_is_read() {
        let table = MountTable::default();
        for age in [Age::Mounts, Age::Mounts, Age::Paths] {
            assert!(table.with(age, |_| ()).is_some());
        }
    }
}
