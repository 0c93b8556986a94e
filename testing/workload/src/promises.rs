//! Many threads that are promised things one by one, and what of it must be there after a crash.
//!
//! # Mechanism
//! Each thread fills files of its own page by page, and has each page made durable before it writes
//! the next, as databases do. A full file gets its final name, and that is made durable as well.
//! What was promised is counted outside. After a crash each page that was promised must be in its
//! file, under a name that the file has had since.
//!
//! The order between threads says nothing here; that is for [`ledger`](crate::ledger), which has
//! one thread.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of one page.
const PAGE_BYTES: usize = 4096;
/// Of one file.
const PAGES: u64 = 48;
/// So many full files are kept by each thread.
const FILES_KEPT: u64 = 3;

/// What so many threads were promised.
#[derive(Debug)]
pub struct Promises {
    /// How many pages each thread was promised, all its files together.
    pages: Vec<AtomicU64>,
}

/// A promise that was not kept.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The file is not there, or cannot be read.
    #[error("{}, of which {promised} pages were promised: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// How many pages it must have.
        promised: u64,
        /// Why not.
        source: io::Error,
    },
    /// It does not have what was written.
    #[error("{}: page {page} of {promised} that were promised is not what was written", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Which page.
        page: u64,
        /// How many pages it must have.
        promised: u64,
    },
}

impl Promises {
    /// Nothing was promised to so many threads.
    #[must_use]
    pub fn new(threads: usize) -> Promises {
        Promises {
            pages: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pages.len()
    }

    /// How many pages were promised.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.pages
            .iter()
            .map(|pages| pages.load(Ordering::SeqCst))
            .sum()
    }

    /// One thread's work, until told to stop or until a call is refused.
    ///
    /// # Errors
    /// The refusal.
    pub fn run(&self, thread: usize, folder: &Path, stop: &AtomicBool) -> io::Result<()> {
        for number in 0.. {
            let new = folder.join(new_name(thread));
            let file = File::create_new(&new)?;
            for page in 0..PAGES {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                file.write_all_at(&contents(thread, number, page), page * PAGE_BYTES as u64)?;
                match page % 4 {
                    0 => file.sync_all()?,
                    _ => file.sync_data()?,
                }
                self.pages[thread].store(number * PAGES + page + 1, Ordering::SeqCst);
            }
            fs::rename(&new, folder.join(full_name(thread, number)))?;
            file.sync_all()?;
            if let Some(old) = number.checked_sub(FILES_KEPT) {
                fs::remove_file(folder.join(full_name(thread, old)))?;
            }
        }
        Ok(())
    }

    /// Compares `folder` with what was promised, removes what is there, and begins anew. Gives back
    /// how many pages were promised.
    ///
    /// # Errors
    /// The first promise that was not kept.
    pub fn check(&self, folder: &Path) -> Result<u64, Broken> {
        let count = self.count();
        for thread in 0..self.threads() {
            let pages = self.pages[thread].swap(0, Ordering::SeqCst);
            let newest = pages.div_ceil(PAGES);
            // The oldest ones may have been removed already.
            for number in (newest + 1).saturating_sub(FILES_KEPT)..newest {
                check_file(folder, thread, number, (pages - number * PAGES).min(PAGES))?;
            }
        }
        let unreadable = |path: &Path| {
            let path = path.to_path_buf();
            move |source| Broken::Unreadable {
                path,
                promised: 0,
                source,
            }
        };
        for entry in fs::read_dir(folder).map_err(unreadable(folder))? {
            let path = entry.map_err(unreadable(folder))?.path();
            fs::remove_file(&path).map_err(unreadable(&path))?;
        }
        Ok(count)
    }
}

fn check_file(folder: &Path, thread: usize, number: u64, promised: u64) -> Result<(), Broken> {
    let full = folder.join(full_name(thread, number));
    let path = match full.exists() {
        true => full,
        false => folder.join(new_name(thread)),
    };
    let bytes = fs::read(&path).map_err(|source| Broken::Unreadable {
        path: path.clone(),
        promised,
        source,
    })?;
    let mut pages = bytes.chunks(PAGE_BYTES);
    for page in 0..promised {
        if pages.next() != Some(&contents(thread, number, page)) {
            return Err(Broken::Wrong {
                path,
                page,
                promised,
            });
        }
    }
    Ok(())
}

fn new_name(thread: usize) -> String {
    format!("{thread}-new")
}

fn full_name(thread: usize, number: u64) -> String {
    format!("{thread}-{number}")
}

/// A page that no other is like.
fn contents(thread: usize, number: u64, page: u64) -> Vec<u8> {
    let words = [thread as u64, number, page];
    let whole = words.into_iter().flat_map(u64::to_le_bytes);
    whole.cycle().take(PAGE_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_promised_is_found_and_what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let promises = Promises::new(2);
        let stop = AtomicBool::new(false);
        let run = || {
            stop.store(false, Ordering::Relaxed);
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let (promises, folder, stop) = (&promises, folder.path(), &stop);
                    scope.spawn(move || promises.run(thread, folder, stop).unwrap());
                }
                while promises.count() < 400 {
                    std::thread::yield_now();
                }
                stop.store(true, Ordering::Relaxed);
            });
        };
        run();
        assert!(promises.check(folder.path()).unwrap() >= 400);
        run();
        let victim = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<PathBuf> = victim.map(|entry| entry.unwrap().path()).collect();
        names.retain(|path| !path.to_string_lossy().ends_with("new"));
        let newest = names.iter().max_by_key(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.split('-').nth(1).unwrap().parse::<u64>().unwrap()
        });
        let file = File::options().write(true).open(newest.unwrap()).unwrap();
        file.write_all_at(b"x", 7 * PAGE_BYTES as u64 + 5).unwrap();
        let error = promises.check(folder.path()).unwrap_err().to_string();
        assert!(error.contains("page 7 of 48"), "{error}");
    }
}
