//! Postmark: what a mail or news server does to many small, short-lived files.
//!
//! # Mechanism
//! After Katcher's benchmark (1997), with its defaults: files of 500 to 9,999 bytes, spread over
//! folders. Each transaction is two halves: read a whole file or lengthen one; and make a file or
//! remove one; each half by the toss of a coin. Only the transactions are timed: making the first
//! files and removing the last is not.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::noise::Noise;
use super::{Deadline, Done, Size};
use crate::twister::Twister;

const FOLDERS: u32 = 10;
const SMALLEST_BYTES: u32 = 500;
const LARGEST_BYTES: u32 = 10_000;

pub(super) fn run(folder: &Path, size: &Size, mut deadline: Deadline) -> io::Result<Done> {
    let folder = folder.join("postmark");
    for number in 0..FOLDERS {
        fs::create_dir_all(folder.join(number.to_string()))?;
    }
    let mut post = Post {
        chance: Twister::new(1997),
        noise: Noise::new(),
        folder,
        files: Vec::new(),
        made: 0,
        buffer: Vec::new(),
    };
    for _ in 0..size.postmark_files {
        post.create()?;
    }
    let mut count = 0;
    deadline.restart();
    while count < size.postmark_transactions && !deadline.is_over() {
        post.transaction()?;
        count += 1;
    }
    let done = deadline.done(count);
    fs::remove_dir_all(&post.folder)?;
    Ok(done)
}

/// The files there are.
struct Post {
    chance: Twister,
    noise: Noise,
    folder: PathBuf,
    files: Vec<PathBuf>,
    made: u32,
    buffer: Vec<u8>,
}

impl Post {
    fn transaction(&mut self) -> io::Result<()> {
        match self.toss() {
            true => self.read()?,
            false => self.append()?,
        }
        match self.toss() {
            true => self.create(),
            false => self.remove(),
        }
    }

    fn toss(&mut self) -> bool {
        self.chance.below(2) == 0
    }

    fn create(&mut self) -> io::Result<()> {
        let number = self.made;
        self.made += 1;
        let folder = self.folder.join((number % FOLDERS).to_string());
        let path = folder.join(number.to_string());
        let size = SMALLEST_BYTES + self.chance.below(LARGEST_BYTES - SMALLEST_BYTES);
        let place = self.chance.below(1 << 20);
        File::create_new(&path)?.write_all(self.noise.some(place, size as usize))?;
        self.files.push(path);
        Ok(())
    }

    fn remove(&mut self) -> io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let index = self.chance.index(self.files.len());
        fs::remove_file(self.files.swap_remove(index))
    }

    fn read(&mut self) -> io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let index = self.chance.index(self.files.len());
        self.buffer.clear();
        File::open(&self.files[index])?.read_to_end(&mut self.buffer)?;
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let index = self.chance.index(self.files.len());
        let mut file = OpenOptions::new().append(true).open(&self.files[index])?;
        let size = SMALLEST_BYTES + self.chance.below(LARGEST_BYTES - SMALLEST_BYTES);
        let place = self.chance.below(1 << 20);
        file.write_all(self.noise.some(place, size as usize))
    }
}
