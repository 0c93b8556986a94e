//! How fast parity, checksums and compression are on this processor.
//!
//! Prints one line of tab-separated fields for each measurement, after a line that names them:
//!
//! ```text
//! group  implementation  operation  columns  bytes  megabytes_per_s
//! ```
//!
//! `group` is `parity`, `checksum`, `compress` or `decompress`; `bytes` is the size of the block; a
//! megabyte is 2^20 bytes. For parity the figures are those that `raidz_test -B` calls `disk_bw`,
//! over the same operations, shapes and sizes, so that a line here can be divided by a line there:
//! the block divided by eight data columns, per second.
//!
//! Arguments: `--quick` measures fewer sizes, for less long; `--all` every implementation the
//! processor has, not only the fastest.

use std::hint::black_box;
use std::time::{Duration, Instant};
use tarn_transform::checksum::fletcher;
use tarn_transform::compress::{compress, decompress};
use tarn_transform::{
    ByteOrder, ChecksumAlgorithm, CompressionAlgorithm, GzipLevel, Salt, ZstdLevel, checksum,
    parity,
};

const MEGABYTE: f64 = 1_048_576.0;
const DATA_COLUMNS: usize = 8;
const SECTOR_BYTES: usize = 4096;

struct Settings {
    block_sizes: Vec<usize>,
    at_least: Duration,
    all: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let settings = if has("--quick") {
        Settings {
            block_sizes: vec![1 << 12, 1 << 15, 1 << 17, 1 << 20],
            at_least: Duration::from_millis(30),
            all: has("--all"),
        }
    } else {
        Settings {
            block_sizes: (12..=24).map(|shift| 1 << shift).collect(),
            at_least: Duration::from_millis(100),
            all: has("--all"),
        }
    };
    println!("group\timplementation\toperation\tcolumns\tbytes\tmegabytes_per_s");
    let mut implementations = parity::Implementation::available();
    if !settings.all {
        implementations.truncate(1);
    }
    for implementation in &implementations {
        measure_generation(implementation, &settings);
        measure_reconstruction(implementation, &settings);
    }
    measure_checksums(&settings);
    measure_compression(&settings);
}

/// A column that begins on a page, as those do that devices read into and write from.
struct Column {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Column {
    fn of_noise(seed: usize, bytes: usize) -> Self {
        let memory = noise(seed, bytes + SECTOR_BYTES);
        let start = memory.as_ptr().align_offset(SECTOR_BYTES);
        Self {
            memory,
            start,
            bytes,
        }
    }

    fn slice(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }

    fn slice_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

/// A row in which a block of a given size lies.
struct Row {
    parity_count: usize,
    columns: Vec<Column>,
}

impl Row {
    fn of_block(bytes: usize, parity_count: usize) -> Self {
        let sectors = bytes / SECTOR_BYTES;
        let column = |index: usize| {
            let sectors = (sectors + DATA_COLUMNS - 1 - index) / DATA_COLUMNS;
            Column::of_noise(index, sectors * SECTOR_BYTES)
        };
        let longest = sectors.div_ceil(DATA_COLUMNS) * SECTOR_BYTES;
        let parity = (0..parity_count).map(|index| Column::of_noise(100 + index, longest));
        let data = (0..DATA_COLUMNS.min(sectors)).map(column);
        let columns = parity.chain(data).collect();
        Self {
            parity_count,
            columns,
        }
    }
}

fn measure_generation(implementation: &parity::Implementation, settings: &Settings) {
    for (parity_count, name) in [(1, "gen_p"), (2, "gen_pq"), (3, "gen_pqr")] {
        for &bytes in &settings.block_sizes {
            let mut row = Row::of_block(bytes, parity_count);
            let (parity, data) = row.columns.split_at_mut(parity_count);
            let data: Vec<&[u8]> = data.iter().map(Column::slice).collect();
            let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Column::slice_mut).collect();
            let rate = per_second(settings.at_least, || {
                parity::generate_with(implementation, black_box(&data), black_box(&mut parity));
            });
            report_parity(implementation, name, bytes, rate);
        }
    }
}

fn measure_reconstruction(implementation: &parity::Implementation, settings: &Settings) {
    // Columns 0 to 2 are parity, 3 and on are data; all named here are in doubt and are rebuilt.
    let operations: [(&str, [usize; 3]); 7] = [
        ("rec_p", [1, 2, 3]),
        ("rec_q", [0, 2, 3]),
        ("rec_r", [0, 1, 3]),
        ("rec_pq", [2, 3, 4]),
        ("rec_pr", [1, 3, 4]),
        ("rec_qr", [0, 3, 4]),
        ("rec_pqr", [3, 4, 5]),
    ];
    for (name, missing) in operations {
        for &bytes in settings
            .block_sizes
            .iter()
            .filter(|bytes| **bytes >= 8 * SECTOR_BYTES)
        {
            let row = Row::of_block(bytes, 3);
            let columns: Vec<&[u8]> = row.columns.iter().map(Column::slice).collect();
            let mut outputs = missing.map(|column| Column::of_noise(200, columns[column].len()));
            let rate = per_second(settings.at_least, || {
                // As in `raidz_test`, parity that is missing beside data stays missing: its output
                // has no length.
                let mut places: Vec<&mut [u8]> = missing
                    .iter()
                    .zip(&mut outputs)
                    .map(|(column, output)| match output.slice_mut() {
                        output if *column >= row.parity_count => output,
                        _ => &mut [],
                    })
                    .collect();
                parity::reconstruct_with(
                    implementation,
                    row.parity_count,
                    black_box(&columns),
                    &missing,
                    &mut places,
                )
                .expect("three columns of a row with three parities");
                black_box(&mut places);
            });
            report_parity(implementation, name, bytes, rate);
        }
    }
}

fn report_parity(implementation: &parity::Implementation, name: &str, bytes: usize, rate: f64) {
    let column_bytes = megabytes(bytes / DATA_COLUMNS);
    println!(
        "parity\t{}\t{name}\t{DATA_COLUMNS}\t{bytes}\t{:.1}",
        implementation.name(),
        column_bytes * rate
    );
}

fn measure_checksums(settings: &Settings) {
    let salt = Salt::new([42; 32]);
    for &bytes in &settings.block_sizes {
        let block = noise(1, bytes);
        for implementation in fletcher::Implementation::available() {
            for (order, name) in [
                (ByteOrder::Little, "fletcher4"),
                (ByteOrder::Big, "fletcher4-swapped"),
            ] {
                let rate = per_second(settings.at_least, || {
                    black_box(implementation.checksum(black_box(&block), order));
                });
                report("checksum", implementation.name(), name, bytes, rate);
            }
        }
        for algorithm in ChecksumAlgorithm::ALL {
            let is_hash = algorithm.allows_skipped_write();
            if is_hash || algorithm == ChecksumAlgorithm::Fletcher2 {
                let rate = per_second(settings.at_least, || {
                    let block = black_box(&block);
                    black_box(checksum::checksum(
                        algorithm,
                        block,
                        ByteOrder::Little,
                        Some(&salt),
                    ));
                });
                report("checksum", "only", algorithm.name(), bytes, rate);
            }
        }
    }
}

fn measure_compression(settings: &Settings) {
    let level = |number| ZstdLevel::new(number).expect("a level of zstd");
    let algorithms = [
        CompressionAlgorithm::Lzjb,
        CompressionAlgorithm::Zle,
        CompressionAlgorithm::Lz4,
        CompressionAlgorithm::Gzip(GzipLevel::DEFAULT),
        CompressionAlgorithm::Zstd(level(1)),
        CompressionAlgorithm::Zstd(level(3)),
    ];
    let bytes = 128 << 10;
    let block = prose(bytes);
    for algorithm in algorithms {
        let name = algorithm.to_string();
        let Some(stored) = compress(algorithm, &block, bytes) else {
            continue;
        };
        let rate = per_second(settings.at_least, || {
            black_box(compress(algorithm, black_box(&block), bytes));
        });
        report("compress", "only", &name, bytes, rate);
        let mut back = vec![0; bytes];
        let rate = per_second(settings.at_least, || {
            decompress(algorithm, black_box(&stored), black_box(&mut back))
                .expect("it was just made");
        });
        report("decompress", "only", &name, bytes, rate);
    }
}

fn report(group: &str, implementation: &str, operation: &str, bytes: usize, rate: f64) {
    println!(
        "{group}\t{implementation}\t{operation}\t1\t{bytes}\t{:.1}",
        megabytes(bytes) * rate
    );
}

fn megabytes(bytes: usize) -> f64 {
    f64::from(u32::try_from(bytes).expect("blocks are small")) / MEGABYTE
}

/// How often a second this can be done: the best of five tries of at least a fifth of the time
/// each, for what others do on the machine only makes it slower.
fn per_second(at_least: Duration, mut work: impl FnMut()) -> f64 {
    let mut count = 1_u32;
    let mut best = 0.0_f64;
    let mut tries = 0;
    while tries < 5 {
        let start = Instant::now();
        for _ in 0..count {
            work();
        }
        let elapsed = start.elapsed();
        if elapsed * 5 < at_least {
            count = count.saturating_mul(2);
            continue;
        }
        best = best.max(f64::from(count) / elapsed.as_secs_f64());
        tries += 1;
    }
    best
}

fn noise(seed: usize, size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::try_from(seed).expect("a small number");
    let words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(size).collect()
}

/// Words of a small vocabulary, with a number now and then.
fn prose(size: usize) -> Vec<u8> {
    let mut text = String::new();
    let choices = noise(3, size);
    for pair in choices.chunks(2) {
        match pair {
            [a, b] if *a > 200 => text.push_str(&format!("{} ", u16::from(*a) * u16::from(*b))),
            [a, b] => text.push_str(&format!("word{} ", (a & 15) ^ (b & 3))),
            _ => {}
        }
    }
    let mut bytes = text.into_bytes();
    bytes.truncate(size);
    bytes
}
