//! One file, changed at random beside a model of it.
//!
//! # Problem
//! Reads, writes, mappings, truncations, holes and copies of one file meet in the page cache, in
//! the file system's buffers and on disk, at offsets that no test was written for. The order in
//! which they go wrong is found by trying very many.
//!
//! # Mechanism
//! A file and a vector of bytes start empty. Each operation is drawn from the seed, done to both,
//! and every byte that is read from the file is compared with the vector. From time to time the
//! file is closed and opened again, made durable, or compared as a whole. The first difference ends
//! the run with the operations that led to it; the same seed does the same again.
//!
//! # Invariants
//! - What lies beyond the end of the model is never seen: extending reads as zeros.
//! - Whatever `SEEK_DATA` passes over reads as zeros.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use crate::mapped::Mapping;
use crate::twister::Twister;

/// What a run does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where chance starts.
    pub seed: u64,
    /// How many operations to do.
    pub operation_count: u64,
    /// The file never grows beyond this.
    pub size_bytes_max: usize,
    /// Which operations to leave out, for file systems that do not have them.
    pub without: Vec<Kind>,
}

impl Plan {
    /// The usual run: a file of up to 256 KiB, everything allowed.
    #[must_use]
    pub fn new(seed: u64, operation_count: u64) -> Self {
        Self {
            seed,
            operation_count,
            size_bytes_max: 256 << 10,
            without: Vec::new(),
        }
    }
}

/// The kinds of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `pread`, compared.
    Read,
    /// `pwrite`.
    Write,
    /// A read through a mapping, compared.
    MappedRead,
    /// A write through a mapping.
    MappedWrite,
    /// `ftruncate` to another length.
    Truncate,
    /// `fallocate` that makes a hole.
    PunchHole,
    /// `fallocate` that writes zeros.
    ZeroRange,
    /// `fallocate` that may extend the file.
    Allocate,
    /// `copy_file_range` within the file.
    Copy,
    /// `fsync`, `fdatasync` or `msync`.
    Sync,
    /// Closed and opened again.
    Reopen,
    /// `SEEK_DATA` and `SEEK_HOLE` over the whole file, and every byte compared.
    Walk,
}

/// How often each kind is drawn, out of their sum. A guess at what finds most; sweeping reads are
/// few.
const WEIGHTS: [(Kind, u32); 12] = [
    (Kind::Read, 20),
    (Kind::Write, 20),
    (Kind::MappedRead, 12),
    (Kind::MappedWrite, 12),
    (Kind::Truncate, 8),
    (Kind::PunchHole, 8),
    (Kind::ZeroRange, 4),
    (Kind::Allocate, 4),
    (Kind::Copy, 5),
    (Kind::Sync, 2),
    (Kind::Reopen, 3),
    (Kind::Walk, 2),
];

/// How many operations before the failing one are told.
const TOLD_OPERATIONS: usize = 24;

/// Why a run ended early.
#[derive(Debug)]
pub struct Failure {
    /// The plan; the same plan fails again.
    pub plan: Plan,
    /// The number of the operation, from 0.
    pub operation: u64,
    /// The operations that led here, the failing one last.
    pub history: Vec<String>,
    /// What went wrong.
    pub fault: Fault,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A byte of the file is not what was written.
    #[error(
        "byte {offset:#x} is {found:#04x}, written was {expected:#04x}; {differing} bytes of {compared} differ"
    )]
    Differs {
        /// The first differing byte's place in the file.
        offset: usize,
        /// What the model has there.
        expected: u8,
        /// What the file has there.
        found: u8,
        /// How many bytes of this read differ.
        differing: usize,
        /// How many bytes were compared.
        compared: usize,
    },
    /// The file's length is not the model's.
    #[error("the file is {found} bytes long and should be {expected}")]
    Length {
        /// The model's length.
        expected: usize,
        /// The file's.
        found: u64,
    },
    /// A system call was refused.
    #[error("{0}")]
    Refused(#[from] io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "fsx, seed {}, operation {}: {}",
            self.plan.seed, self.operation, self.fault
        )?;
        writeln!(out, "the operations before it, oldest first:")?;
        self.history
            .iter()
            .try_for_each(|operation| writeln!(out, "  {operation}"))
    }
}

impl std::error::Error for Failure {}

/// Runs a plan on the new file `path`, and gives how many bytes all walks together have passed over
/// as holes.
///
/// # Errors
/// The first difference between file and model, or the first refused call, with what led to it.
pub fn run(path: &Path, plan: &Plan) -> Result<u64, Box<Failure>> {
    let mut history = VecDeque::new();
    let mut number = 0;
    let outcome = Run::begin(path, plan).and_then(|mut run| {
        while number < plan.operation_count {
            let kind = run.draw_kind();
            run.step(kind, &mut |told| {
                history.push_back(format!("{number}: {told}"));
                if history.len() > TOLD_OPERATIONS {
                    history.pop_front();
                }
            })?;
            number += 1;
        }
        run.compare_all()?;
        Ok(run.passed_over_bytes)
    });
    outcome.map_err(|fault| {
        Box::new(Failure {
            plan: plan.clone(),
            operation: number,
            history: history.into_iter().collect(),
            fault,
        })
    })
}

struct Run<'plan> {
    path: PathBuf,
    file: File,
    model: Vec<u8>,
    passed_over_bytes: u64,
    chance: Twister,
    plan: &'plan Plan,
    kinds: Vec<(Kind, u32)>,
}

type Tell<'a> = &'a mut dyn FnMut(String);

impl<'plan> Run<'plan> {
    fn begin(path: &Path, plan: &'plan Plan) -> Result<Self, Fault> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        let kinds = WEIGHTS
            .into_iter()
            .filter(|(kind, _)| !plan.without.contains(kind))
            .collect();
        let chance = Twister::new(plan.seed);
        Ok(Self {
            path: path.to_path_buf(),
            file,
            model: Vec::new(),
            passed_over_bytes: 0,
            chance,
            plan,
            kinds,
        })
    }

    fn draw_kind(&mut self) -> Kind {
        let sum = self.kinds.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.chance.below(sum);
        for &(kind, weight) in &self.kinds {
            if drawn < weight {
                return kind;
            }
            drawn -= weight;
        }
        unreachable!("the weights add up to their sum")
    }

    fn step(&mut self, kind: Kind, tell: Tell<'_>) -> Result<(), Fault> {
        match kind {
            Kind::Read => self.read(tell),
            Kind::Write => self.write(tell),
            Kind::MappedRead => self.mapped_read(tell),
            Kind::MappedWrite => self.mapped_write(tell),
            Kind::Truncate => self.truncate(tell),
            Kind::PunchHole => self.clear(FallocateFlags::PUNCH_HOLE, "punch hole", tell),
            Kind::ZeroRange => self.clear(FallocateFlags::ZERO_RANGE, "zero range", tell),
            Kind::Allocate => self.allocate(tell),
            Kind::Copy => self.copy(tell),
            Kind::Sync => self.sync(tell),
            Kind::Reopen => self.reopen(tell),
            Kind::Walk => self.walk(tell),
        }
    }

    /// A range that may begin and end anywhere below the largest size.
    fn any_range(&mut self) -> (usize, usize) {
        let offset = self.chance.index(self.plan.size_bytes_max);
        let room = self.plan.size_bytes_max - offset;
        // Short and long ones alike: most errors are at the edges of blocks.
        let longest = if self.chance.below(2) == 0 {
            room.min(5000)
        } else {
            room.min(70_000)
        };
        (offset, 1 + self.chance.index(longest))
    }

    /// A range inside the file, or nothing while the file is empty.
    fn inner_range(&mut self) -> Option<(usize, usize)> {
        if self.model.is_empty() {
            return None;
        }
        let offset = self.chance.index(self.model.len());
        let room = self.model.len() - offset;
        Some((offset, 1 + self.chance.index(room.min(70_000))))
    }

    fn compare(&self, offset: usize, found: &[u8]) -> Result<(), Fault> {
        let expected = &self.model[offset..offset + found.len()];
        if expected == found {
            return Ok(());
        }
        let differs = |index: &usize| expected[*index] != found[*index];
        let first = (0..found.len())
            .find(differs)
            .expect("the slices are not equal");
        Err(Fault::Differs {
            offset: offset + first,
            expected: expected[first],
            found: found[first],
            differing: (0..found.len()).filter(differs).count(),
            compared: found.len(),
        })
    }

    fn read(&mut self, tell: Tell<'_>) -> Result<(), Fault> {
        let Some((offset, size)) = self.inner_range() else {
            return Ok(());
        };
        tell(format!("read {offset:#x} {size:#x}"));
        let mut found = vec![0; size];
        self.file.read_exact_at(&mut found, offset as u64)?;
        self.compare(offset, &found)
    }

    fn write(&mut self, tell: Tell<'_>) -> Result<(), Fault> {
        let (offset, size) = self.any_range();
        tell(format!(
            "write {offset:#x} {size:#x} (file is {:#x})",
            self.model.len()
        ));
        let bytes = self.chance.bytes(size);
        self.file.write_all_at(&bytes, offset as u64)?;
        self.put(offset, &bytes);
        Ok(())
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset..end].copy_from_slice(bytes);
    }

    fn mapped_read(&mut self, tell: Tell<'_>) -> Result<(), Fault> {
        let Some((offset, size)) = self.inner_range() else {
            return Ok(());
        };
        tell(format!("mapped read {offset:#x} {size:#x}"));
        let mut found = vec![0; size];
        Mapping::new(&self.file, self.model.len())?.copy_out(offset, &mut found);
        self.compare(offset, &found)
    }

    /// Writes through a mapping, after making the file long enough, as programs must.
    fn mapped_write(&mut self, tell: Tell<'_>) -> Result<(), Fault> {
        let (offset, size) = self.any_range();
        tell(format!(
            "mapped write {offset:#x} {size:#x} (file is {:#x})",
            self.model.len()
        ));
        let bytes = self.chance.bytes(size);
        if offset + size > self.model.len() {
            self.file.set_len((offset + size) as u64)?;
        }
        self.put(offset, &bytes);
        let mut mapping = Mapping::new(&self.file, self.model.len())?;
        mapping.copy_in(offset, &bytes);
        if self.chance.below(4) == 0 {
            mapping.flush()?;
        }
        Ok(())
    }

    fn truncate(&mut self, tell: Tell<'_>) -> Result<(), Fault> {
        let size = self.chance.index(self.plan.size_bytes_max + 1);
        tell(format!(
            "truncate to {size:#x} (file is {:#x})",
            self.model.len()
        ));
        self.file.set_len(size as u64)?;
        self.model.resize(size, 0);
        self.expect_length()
    }

    /// Makes a range zero without changing the length.
    fn clear(&mut self, how: FallocateFlags, name: &str, tell: Tell<'_>) -> Result<(), Fault> {
        let (offset, size) = self.any_range();
        tell(format!(
            "{name} {offset:#x} {size:#x} (file is {:#x})",
            self.model.len()
        ));
        let flags = how | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, offset as u64, size as u64).map_err(io::Error::from)?;
        let end = (offset + size).min(self.model.len());
        if offset < end {
            self.model[offset..end].fill(0);
        }
        self.expect_length()
    }

    fn allocate(&mut self, tell: Tell<'_>) -> Result<(), Fault> {
        let (offset, size) = self.any_range();
        tell(format!(
            "allocate {offset:#x} {size:#x} (file is {:#x})",
            self.model.len()
        ));
        fallocate(
            &self.file,
            FallocateFlags::empty(),
            offset as u64,
            size as u64,
        )
        .map_err(io::Error::from)?;
        let end = (offset + size).max(self.model.len());
        self.model.resize(end, 0);
        self.expect_length()
    }

    /// Copies a range to a place that does not overlap it.
    fn copy(&mut self, tell: Tell<'_>) -> Result<(), Fault> {
        let Some((from, size)) = self.inner_range() else {
            return Ok(());
        };
        let to = self.chance.index(self.plan.size_bytes_max);
        let size = size.min(self.plan.size_bytes_max - to);
        if from < to + size && to < from + size {
            return Ok(());
        }
        tell(format!(
            "copy {from:#x} {size:#x} to {to:#x} (file is {:#x})",
            self.model.len()
        ));
        let (mut from_offset, mut to_offset) = (from as u64, to as u64);
        let mut left = size;
        while left > 0 {
            let (source, target) = (Some(&mut from_offset), Some(&mut to_offset));
            match rustix::fs::copy_file_range(&self.file, source, &self.file, target, left) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(copied) => left -= copied,
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        let bytes = self.model[from..from + size].to_vec();
        self.put(to, &bytes);
        Ok(())
    }

    fn sync(&mut self, tell: Tell<'_>) -> Result<(), Fault> {
        tell("sync".to_string());
        if self.chance.below(2) == 0 {
            self.file.sync_all()?
        } else {
            self.file.sync_data()?
        }
        Ok(())
    }

    fn reopen(&mut self, tell: Tell<'_>) -> Result<(), Fault> {
        tell("reopen".to_string());
        self.open_for_writing()?;
        self.expect_length()
    }

    fn open_for_writing(&mut self) -> io::Result<()> {
        self.file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        Ok(())
    }

    /// Walks data and holes as a backup program does, and compares every byte. The file is open for
    /// reading alone meanwhile: while a program may map it for writing, a server that sees none of
    /// what is stored into mappings can call nothing a hole.
    fn walk(&mut self, tell: Tell<'_>) -> Result<(), Fault> {
        tell("walk data and holes".to_string());
        self.file = File::open(&self.path)?;
        let end = self.model.len() as u64;
        let mut seen = vec![0; self.model.len()];
        let mut at = 0;
        while at < end {
            let data = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(rustix::io::Errno::NXIO) => {
                    self.passed_over_bytes += end - at;
                    break;
                }
                Err(error) => return Err(io::Error::from(error).into()),
            };
            let hole = seek(&self.file, SeekFrom::Hole(data))
                .map_err(io::Error::from)?
                .min(end);
            if data < at || hole <= data {
                let text = format!("SEEK_DATA gave {data:#x}, SEEK_HOLE {hole:#x}, from {at:#x}");
                return Err(io::Error::other(text).into());
            }
            let range = usize_of(data)..usize_of(hole);
            self.file.read_exact_at(&mut seen[range], data)?;
            self.passed_over_bytes += data - at;
            at = hole;
        }
        self.compare(0, &seen)?;
        self.open_for_writing()?;
        self.compare_all()
    }

    fn compare_all(&self) -> Result<(), Fault> {
        self.expect_length()?;
        let mut found = vec![0; self.model.len()];
        self.file.read_exact_at(&mut found, 0)?;
        self.compare(0, &found)
    }

    fn expect_length(&self) -> Result<(), Fault> {
        let found = self.file.metadata()?.len();
        match found == self.model.len() as u64 {
            true => Ok(()),
            false => Err(Fault::Length {
                expected: self.model.len(),
                found,
            }),
        }
    }
}

fn usize_of(offset: u64) -> usize {
    usize::try_from(offset).expect("the file is smaller than memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_keeps_what_it_is_given_passes() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = Plan::new(5, 1500);
        // Not every file system that holds temporary folders can do this one.
        plan.without = vec![Kind::ZeroRange];
        run(&folder.path().join("file"), &plan).unwrap();
    }

    /// The canary: one byte changed behind the model's back is found.
    #[test]
    fn one_changed_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan::new(5, 0);
        let path = folder.path().join("file");
        let mut run = Run::begin(&path, &plan).unwrap();
        run.step(Kind::Write, &mut |_| {}).unwrap();
        let last = run.model.len() - 1;
        run.file
            .write_all_at(&[run.model[last] ^ 1], last as u64)
            .unwrap();
        match run.compare_all() {
            Err(Fault::Differs {
                offset,
                differing: 1,
                ..
            }) => assert_eq!(offset, last),
            other => panic!("the change was not found: {other:?}"),
        }
    }
}
