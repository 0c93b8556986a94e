//! Random operations on volumes of all block sizes, against a model of what each sector may have,
//! with power cuts and with volumes that are closed and opened again.
//!
//! The model of a sector is a list: its contents when a flush, or a change that is durable at once,
//! last returned, and what was written to it since. While the power is on it has the last of them;
//! after a power cut it has one of them.

mod support;

use std::sync::{Arc, Mutex, PoisonError};
use support::{close, create, import, machine, open};
use tarn_host::Host;
use tarn_host::buffer::Buffer;
use tarn_host::sim::{Random, SimHost};
use tarn_object::NewContents;
use tarn_pool::{Leaving, Pool};
use tarn_probe::Operation;
use tarn_zil::{LogBias, SyncPolicy};
use tarn_zvol::{Durable, Volume, VolumeError, VolumeProperties};

const SECTOR: usize = 512;
const BLOCK_SIZES: [u64; 9] = [
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
];

/// What each sector may have: numbers of writes, 0 for zeros.
struct Model {
    sectors: Vec<Vec<u64>>,
    last: u64,
}

impl Model {
    fn of(size_bytes: u64) -> Model {
        let sectors = usize::try_from(size_bytes).unwrap() / SECTOR;
        Model {
            sectors: vec![vec![0]; sectors],
            last: 0,
        }
    }

    fn note(&mut self, first: usize, count: usize, number: u64) {
        for sector in &mut self.sectors[first..first + count] {
            sector.push(number);
        }
    }

    /// All that was written is durable.
    fn settle(&mut self) {
        for sector in &mut self.sectors {
            sector.drain(..sector.len() - 1);
        }
    }
}

fn sector_of(number: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let at = u64::try_from(at).unwrap();
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ at);
        word.copy_from_slice(&if at == 0 { number } else { mixed }.to_le_bytes());
    }
    bytes
}

/// The number of the write that a sector has; it must be whole.
fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(
        bytes == sector_of(number),
        "a sector has parts of several writes"
    );
    number
}

struct Run<'a> {
    random: Random,
    model: &'a Mutex<Model>,
    operation: Operation,
}

impl Run<'_> {
    fn model<T>(&self, with: impl FnOnce(&mut Model) -> T) -> T {
        with(&mut self.model.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A range of sectors: often some blocks, now and then many.
    fn range(&mut self) -> (usize, usize) {
        let sectors = self.model(|model| model.sectors.len());
        let first = self.random.index(sectors);
        let count = match self.random.below(4) {
            0 => 1,
            1 => 1 + self.random.index(8),
            2 => 1 + self.random.index(64),
            _ => 1 + self.random.index(512),
        };
        (first, count.min(sectors - first))
    }

    fn step(&mut self, volume: &Volume) {
        let durable = match self.random.below(6) {
            0 => Durable::Now,
            _ => Durable::Later,
        };
        let (first, count) = self.range();
        let offset = u64::try_from(first * SECTOR).unwrap();
        let length = count * SECTOR;
        let bytes = u64::try_from(length).unwrap();
        match self.random.below(12) {
            0..=4 => {
                let number = self.model(|model| {
                    model.last += 1;
                    let number = model.last;
                    model.note(first, count, number);
                    number
                });
                let contents = sector_of(number).repeat(count);
                let contents = match self.random.one_in(2) {
                    true => NewContents::Bytes(&contents),
                    false => in_buffers(&contents, volume.block_size()),
                };
                volume
                    .write(offset, contents, durable, &self.operation)
                    .unwrap();
            }
            5 | 6 => {
                self.model(|model| model.note(first, count, 0));
                volume
                    .discard(offset, bytes, durable, &self.operation)
                    .unwrap();
            }
            7 => {
                self.model(|model| model.note(first, count, 0));
                let may_free = self.random.one_in(2);
                volume
                    .write_zeros(offset, bytes, may_free, durable, &self.operation)
                    .unwrap();
            }
            8 | 9 => self.copy(volume, first, count, durable),
            10 => {
                volume.flush(&self.operation).unwrap();
                self.model(Model::settle);
                return;
            }
            _ => return self.look(volume, first, count),
        }
        let is_always = volume.properties().sync == SyncPolicy::Always;
        if durable == Durable::Now || is_always {
            self.model(Model::settle);
        }
    }

    /// Copies sectors to another place of the volume, which may overlap; often whole blocks, which
    /// are cloned where they are stored.
    fn copy(&mut self, volume: &Volume, first: usize, count: usize, durable: Durable) {
        let sectors = self.model(|model| model.sectors.len());
        let mut to = self.random.index(sectors - count + 1);
        let block = usize::try_from(volume.block_size()).unwrap() / SECTOR;
        if self.random.one_in(2) {
            to = (to - to % block + first % block).min(sectors - count);
        }
        self.model(|model| {
            let these = model.sectors[first..first + count].iter();
            let numbers: Vec<u64> = these.map(|sector| *sector.last().unwrap()).collect();
            for (sector, number) in model.sectors[to..].iter_mut().zip(numbers) {
                sector.push(number);
            }
        });
        let bytes = |sectors: usize| u64::try_from(sectors * SECTOR).unwrap();
        let (from, to, length) = (bytes(first), bytes(to), bytes(count));
        let copied = volume.copy_from((volume, from), to, length, durable, &self.operation);
        let copied = copied.unwrap();
        assert_eq!(copied.cloned_bytes + copied.written_bytes, length);
    }

    /// What is read is what was written last, and what is not allocated is zeros.
    fn look(&self, volume: &Volume, first: usize, count: usize) {
        let offset = u64::try_from(first * SECTOR).unwrap();
        let length = count * SECTOR;
        let read = volume.read(offset, length, &self.operation).unwrap();
        let read = read.to_vec();
        let numbers: Vec<u64> = read.chunks_exact(SECTOR).map(number_of).collect();
        let newest = self.model(|model| {
            let sectors = model.sectors[first..first + count].iter();
            sectors
                .map(|sector| *sector.last().unwrap())
                .collect::<Vec<_>>()
        });
        assert_eq!(numbers, newest, "sectors from {first} on");
        let length = u64::try_from(length).unwrap();
        let extents = volume.allocated(offset, length, &self.operation).unwrap();
        let covered: u64 = extents.iter().map(|(length, _)| length).sum();
        assert_eq!(covered, length);
        let mut at = 0;
        for (length, is_data) in extents {
            let length = usize::try_from(length).unwrap();
            let bytes = &read[at..at + length];
            assert!(is_data || bytes.iter().all(|byte| *byte == 0));
            at += length;
        }
    }

    /// After a power cut each sector has something that it may have.
    fn recover(&self, volume: &Volume) {
        let size = usize::try_from(volume.size_bytes()).unwrap();
        let read = volume.read(0, size, &self.operation).unwrap().to_vec();
        self.model(|model| {
            for (at, bytes) in read.chunks_exact(SECTOR).enumerate() {
                let number = number_of(bytes);
                let allowed = &mut model.sectors[at];
                assert!(
                    allowed.contains(&number),
                    "sector {at} has {number}, and may have {allowed:?}"
                );
                *allowed = vec![number];
            }
        });
    }
}

fn in_buffers(bytes: &[u8], block_size: u64) -> NewContents<'static> {
    let size = usize::try_from(block_size).unwrap();
    let buffers = bytes.chunks(size).map(|part| {
        let mut buffer = Buffer::zeroed(size);
        buffer[..part.len()].copy_from_slice(part);
        buffer
    });
    NewContents::Buffers {
        buffers: buffers.collect(),
        length: bytes.len(),
    }
}

fn work(host: &Host, run: &mut Run<'_>, pool: Arc<Pool>, steps: usize) {
    let properties = VolumeProperties {
        log_bias: match run.random.one_in(3) {
            true => LogBias::Throughput,
            false => LogBias::Latency,
        },
        sync: match run.random.one_in(5) {
            true => SyncPolicy::Always,
            false => SyncPolicy::Standard,
        },
        is_read_only: false,
    };
    let mut volume = open(&pool, properties, &run.operation);
    run.recover(&volume);
    for _ in 0..steps {
        match run.random.below(40) {
            0 => {
                close(&pool, volume, &run.operation);
                run.model(Model::settle);
                volume = open(&pool, properties, &run.operation);
            }
            1 => {
                pool.sync_all(&run.operation).unwrap();
                run.model(Model::settle);
            }
            2 => host.sleep(std::time::Duration::from_millis(run.random.below(6000))),
            _ => run.step(&volume),
        }
    }
    let sectors = run.model(|model| model.sectors.len());
    run.look(&volume, 0, sectors);
    close(&pool, volume, &run.operation);
    run.model(Model::settle);
    pool.close(Leaving::Exported, &run.operation).unwrap();
}

/// One world: a volume that goes through some power cuts.
fn world(seed: u64, block_size: u64) {
    let size_bytes = (block_size * 24).max(256 << 10);
    let model = Mutex::new(Model::of(size_bytes));
    let mut random = Random::new(seed);
    let mut machine: SimHost = machine(seed);
    for life in 0..5 {
        let mut run = Run {
            random: random.fork(),
            model: &model,
            operation: Operation::unmeasured(),
        };
        if life > 0 && life < 4 {
            let writes = machine.device_writes() + 20 + random.below(400);
            machine.cut_power_after_writes(writes);
        }
        let ended = machine.run(|host| {
            let pool = match life {
                0 => create(host, size_bytes, block_size, &run.operation),
                _ => import(host, &run.operation),
            };
            work(host, &mut run, pool, 60);
        });
        if ended.is_err() {
            machine = machine.reboot();
        }
    }
}

#[test]
fn sectors_have_what_was_written_last_and_what_was_flushed_survives_power_cuts() {
    for (number, block_size) in BLOCK_SIZES.into_iter().enumerate() {
        for round in 0..2 {
            let seed = 1000 + u64::try_from(number).unwrap() * 10 + round;
            println!("seed {seed}, blocks of {block_size} bytes");
            world(seed, block_size);
        }
    }
}

#[test]
fn bytes_within_sectors_are_changed_alone() {
    let run = machine(5).run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, 1 << 20, 4096, &operation);
        let volume = open(&pool, VolumeProperties::default(), &operation);
        let later = Durable::Later;
        let write = |offset, bytes: &[u8]| {
            volume.write(offset, NewContents::Bytes(bytes), later, &operation)
        };
        write(0, &[7; 12288]).unwrap();
        write(4090, &[8; 20]).unwrap();
        volume.discard(4000, 4300, later, &operation).unwrap();
        let mut expected = [7; 12288];
        expected[4000..8300].fill(0);
        let read = volume.read(0, 12288, &operation).unwrap().to_vec();
        assert!(read == expected);
        let allocated = volume.allocated(0, 1 << 20, &operation).unwrap();
        let hole = (1 << 20) - 12288;
        assert_eq!(
            allocated,
            [(4096, true), (4096, false), (4096, true), (hole, false)]
        );
        drop(volume);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn whole_blocks_that_are_stored_are_cloned_and_stay_when_the_source_changes() {
    let run = machine(6).run(|host| {
        const BLOCK: u64 = 4096;
        let operation = Operation::unmeasured();
        let pool = create(host, 1 << 20, BLOCK, &operation);
        let volume = open(&pool, VolumeProperties::default(), &operation);
        let write = |offset, bytes: &[u8]| {
            let contents = NewContents::Bytes(bytes);
            let written = volume.write(offset, contents, Durable::Later, &operation);
            written.unwrap();
        };
        let copy = |from, to, length| {
            let source = (&*volume, from);
            let copied = volume.copy_from(source, to, length, Durable::Later, &operation);
            copied.map(|copied| (copied.cloned_bytes, copied.written_bytes))
        };
        let pattern: Vec<u8> = (0..16 * BLOCK)
            .map(|at| u8::try_from(at / 7 % 251).unwrap() + 1)
            .collect();
        write(0, &pattern);
        let (whole, part) = (16 * BLOCK, 8 * BLOCK + 512);
        let at = 1 << 18;
        assert_eq!(copy(0, at, whole).unwrap(), (0, whole), "not stored yet");
        pool.sync_all(&operation).unwrap();
        assert_eq!(copy(0, 2 * at, whole).unwrap(), (whole, 0));
        // The block before the first whole one, and the part of one behind the last.
        let cut = copy(1024, 3 * at + 1024, part).unwrap();
        assert_eq!(cut, (7 * BLOCK, part - 7 * BLOCK));
        assert_eq!(copy(512, at, BLOCK).unwrap(), (0, BLOCK), "other places");
        write(0, &vec![9; 16 * 4096]);
        let read = |offset, length: u64| {
            let length = usize::try_from(length).unwrap();
            volume.read(offset, length, &operation).unwrap().to_vec()
        };
        let look = || {
            assert!(read(2 * at, whole) == pattern);
            let length = usize::try_from(part).unwrap();
            assert!(read(3 * at + 1024, part) == pattern[1024..1024 + length]);
            assert!(read(at, BLOCK) == pattern[512..4608]);
        };
        look();
        pool.sync_all(&operation).unwrap();
        look();
        let behind = copy(0, (1 << 20) - 512, BLOCK).unwrap_err();
        assert!(matches!(behind, VolumeError::OutOfRange { .. }));
        drop(volume);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn what_reaches_beyond_the_end_is_refused_and_changes_nothing() {
    let run = machine(5).run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, 1 << 20, 8192, &operation);
        let volume = open(&pool, VolumeProperties::default(), &operation);
        let (end, later) = (1 << 20, Durable::Later);
        let is_refused = |outcome: Result<(), VolumeError>| {
            let error = outcome.unwrap_err();
            assert!(matches!(error, VolumeError::OutOfRange { .. }), "{error}");
        };
        let bytes = [1; 1024];
        for offset in [end - 512, end, u64::MAX - 100] {
            let contents = NewContents::Bytes(&bytes);
            is_refused(volume.write(offset, contents, later, &operation));
            is_refused(volume.discard(offset, 1024, later, &operation));
            is_refused(volume.write_zeros(offset, 1024, false, later, &operation));
            is_refused(volume.read(offset, 1024, &operation).map(drop));
            is_refused(volume.allocated(offset, 1024, &operation).map(drop));
        }
        let allocated = volume.allocated(0, end, &operation).unwrap();
        assert_eq!(allocated, [(end, false)]);
        volume.set_properties(VolumeProperties {
            is_read_only: true,
            ..VolumeProperties::default()
        });
        let refused = volume.write(0, NewContents::Bytes(&bytes), later, &operation);
        assert!(matches!(refused, Err(VolumeError::ReadOnly)));
        drop(volume);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}
