//! One large file: written, read from beginning to end, read at random places.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::noise::Noise;
use super::{Deadline, Done, Size};
use crate::twister::Twister;

/// The file's name.
pub(super) const FILE: &str = "large";

const MIB: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

pub(super) fn write(folder: &Path, size: &Size, mut deadline: Deadline) -> io::Result<Done> {
    let mut noise = Noise::new();
    deadline.restart();
    let file = File::create(folder.join(FILE))?;
    let mut written = 0;
    while written < size.file_mib && !deadline.is_over() {
        let place = u64::from(written) << 20;
        file.write_all_at(noise.mib(written), place)?;
        written += 1;
    }
    file.sync_all()?;
    Ok(deadline.done(written))
}

pub(super) fn read(folder: &Path, passes: u32, mut deadline: Deadline) -> io::Result<Done> {
    let mut file = File::open(folder.join(FILE))?;
    let mut bytes = vec![0; MIB];
    let mut count = 0;
    deadline.restart();
    for _ in 0..passes {
        file.rewind()?;
        while !deadline.is_over() && fill(&mut file, &mut bytes)? == MIB {
            black_box(&bytes);
            count += 1;
        }
    }
    Ok(deadline.done(count))
}

pub(super) fn read_at_random(
    folder: &Path,
    size: &Size,
    mut deadline: Deadline,
) -> io::Result<Done> {
    let mut chance = Twister::new(4096);
    let file = File::open(folder.join(FILE))?;
    let pages = file.metadata()?.len() / PAGE_BYTES as u64;
    let places: Vec<u64> = (0..size.random_reads)
        .map(|_| chance.below_wide(pages) * PAGE_BYTES as u64)
        .collect();
    let mut bytes = [0; PAGE_BYTES];
    let mut count = 0;
    deadline.restart();
    for place in places {
        // The clock costs as much as a tenth of a cached read, so it is looked at now and then.
        if count % 256 == 0 && deadline.is_over() {
            break;
        }
        file.read_exact_at(&mut bytes, place)?;
        black_box(&bytes);
        count += 1;
    }
    Ok(deadline.done(count))
}

pub(super) fn verify(folder: &Path) -> io::Result<()> {
    let mut noise = Noise::new();
    let mut file = File::open(folder.join(FILE))?;
    let mut bytes = vec![0; MIB];
    let mut number = 0;
    while fill(&mut file, &mut bytes)? == MIB {
        if bytes != noise.mib(number) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("MiB {number} of {FILE} is not what was written"),
            ));
        }
        number += 1;
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read(&mut bytes[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}
