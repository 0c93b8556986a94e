//! Seconds of servers, and what an archive must answer about them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tarn_analytics::{Collected, Tally};
use tarn_archive::{
    Archive, ArchiveAnswer, ArchiveQuery, Asked, Cell, Column, ColumnHead, SeriesId,
};
use tarn_host::sim::Random;
use tarn_host::{Host, RealOptions, SimOptions};

/// A day, an hour and a block of hours begin then.
pub const BEGIN_S: u64 = 1_700_006_400;

pub fn real_host() -> Host {
    Host::real(RealOptions::default())
}

/// A host whose files are in memory.
pub fn files_in_memory() -> Host {
    Host::simulated(SimOptions::seed(1))
}

/// Where its archive is.
pub fn directory() -> &'static Path {
    Path::new("/tarn/analytics")
}

/// An archive on such a host.
pub fn archive_on(host: &Host, cap_bytes: u64) -> Archive {
    Archive::open(host, directory(), cap_bytes).unwrap()
}

/// A second in which all was collected.
pub fn second(start_s: u64, cells: Vec<(SeriesId, Cell)>) -> Column {
    let cells = cells
        .into_iter()
        .map(|(series, cell)| (Arc::new(series), cell));
    Column {
        start_s,
        head: ColumnHead::of_second(Collected::Whole, 0),
        cells: cells.collect(),
    }
}

/// Operations with latencies of a cache and of a disk, each around its own middle.
pub fn latencies(random: &mut Random, operations: u64) -> Cell {
    let mut tally = Tally::default();
    for _ in 0..operations {
        let (middle_ns, spread) = match random.below(10) {
            0 => (4_000_000.0, 0.5),
            _ => (12_000.0, 0.35),
        };
        // The sum of twelve numbers is all but normal.
        let sum: u64 = (0..12).map(|_| random.below(1 << 20)).sum();
        let normal = sum as f64 / (1 << 20) as f64 - 6.0;
        let latency_ns = (middle_ns * (normal * spread).exp()) as u64;
        tally.add(1, Some(latency_ns));
    }
    Cell::of_tally(&tally)
}

/// Some operations of some causes, and a sample that goes up and down.
pub fn any_second(random: &mut Random, start_s: u64) -> Column {
    let mut cells = Vec::new();
    for cause in ["disk", "log", "cache_hit"] {
        if !random.one_in(3) {
            let operations = random.below(8);
            let series = SeriesId::new("nfs.ops[cause]:latency", &[cause]);
            cells.push((series, latencies(random, operations)));
        }
    }
    cells.push((
        SeriesId::other("nfs.ops[client]"),
        Cell {
            count: 1,
            sum: 1,
            ..Cell::default()
        },
    ));
    cells.push((
        SeriesId::new("arc.size", &[]),
        Cell::of_sample(random.below(1 << 30)),
    ));
    second(start_s, cells)
}

pub fn query(text: &str, from_s: u64, until_s: u64, column_s: u64) -> ArchiveQuery {
    ArchiveQuery {
        asked: Asked::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")),
        range_s: from_s..until_s,
        column_s,
        keys_max: 10,
    }
}

pub fn answer(
    archive: &Archive,
    text: &str,
    from_s: u64,
    until_s: u64,
    column_s: u64,
) -> ArchiveAnswer {
    let query = query(text, from_s, until_s, column_s);
    archive
        .answer(&query)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// What the files of a directory take, whole pages counted.
pub fn bytes_in(host: &Host, directory: &Path) -> u64 {
    let files = host.list_directory(directory).unwrap().into_iter();
    let bytes = files.map(|file| host.file_size_bytes(&file.path).unwrap());
    bytes.map(|bytes| bytes.next_multiple_of(4096)).sum()
}

/// The latencies that were appended, by column of that length.
#[derive(Default)]
pub struct Model {
    seconds: BTreeMap<u64, Cell>,
}

impl Model {
    pub fn add(&mut self, column: &Column) {
        let mut sum = Cell::default();
        let latency = |series: &SeriesId| series.statistic == "nfs.ops[cause]:latency";
        for (_, cell) in column.cells.iter().filter(|(series, _)| latency(series)) {
            sum.merge(cell);
        }
        self.seconds.insert(column.start_s, sum);
    }

    pub fn forget(&mut self, from_s: u64) {
        self.seconds.split_off(&from_s);
    }

    pub fn newest_s(&self) -> u64 {
        self.seconds
            .last_key_value()
            .map_or(0, |(second, _)| *second)
    }

    /// What the archive must say of a range, in columns of that length.
    pub fn columns(&self, from_s: u64, until_s: u64, column_s: u64) -> Vec<Cell> {
        let count = usize::try_from((until_s - from_s).div_ceil(column_s)).unwrap();
        let mut columns = vec![Cell::default(); count];
        for (second, cell) in self.seconds.range(from_s..until_s) {
            columns[usize::try_from((second - from_s) / column_s).unwrap()].merge(cell);
        }
        columns
    }
}
