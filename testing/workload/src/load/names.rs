//! Empty files: made in one folder, and removed in another order than they were made in.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Deadline, Done, Size};

const FOLDER: &str = "empty";

pub(super) fn create(folder: &Path, size: &Size, mut deadline: Deadline) -> io::Result<Done> {
    let folder = folder.join(FOLDER);
    fs::create_dir(&folder)?;
    let paths: Vec<PathBuf> = (0..size.empty_files)
        .map(|number| folder.join(format!("file-{number:06}")))
        .collect();
    let mut count = 0;
    deadline.restart();
    for path in &paths {
        if deadline.is_over() {
            break;
        }
        File::create_new(path)?;
        count += 1;
    }
    Ok(deadline.done(count))
}

pub(super) fn unlink(folder: &Path, mut deadline: Deadline) -> io::Result<Done> {
    let folder = folder.join(FOLDER);
    let entries = fs::read_dir(&folder)?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    // By their last digits first: neither as they were made nor as the folder lists them.
    paths.sort_by_cached_key(|path| -> Vec<u8> {
        let name = path.as_os_str().as_encoded_bytes();
        name.iter().rev().copied().collect()
    });
    let mut count = 0;
    deadline.restart();
    for path in &paths {
        if deadline.is_over() {
            break;
        }
        fs::remove_file(path)?;
        count += 1;
    }
    Ok(deadline.done(count))
}
