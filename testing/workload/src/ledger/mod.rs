//! Changes made one after the other, of which a crash may take the last ones and no others.
//!
//! # Problem
//! A file system that loses its server in the middle of work must come back as it was at some
//! moment: with everything that was promised to be durable, and with nothing out of order. Looking
//! at the files that were made durable finds only what is missing. What came back too early, half
//! or twice is found only by a comparison with all states that there were.
//!
//! # Mechanism
//! One thread changes a directory, one system call after the other, and writes each down before it
//! makes it. After the crash the directory is compared with all that it may be. That is told by
//! three rules:
//!
//! - All calls up to some moment are there, at least those that the caller knows to be stored
//!   ([`Ledger::count`], [`Ledger::promise`]).
//! - Of later calls, those are there that an `fsync` which succeeded has promised: all changes of
//!   names before it, those of its file before it, and those of a file before such a change of its
//!   name. No other change of names is there.
//! - Of a file that is not promised, more calls may be there, from the first on, as far as the last
//!   `fsync`: an intent log may have stored them with what it was asked for. It stores bytes as
//!   they are by then. So where a change of its name promised a file, each byte may be one of those
//!   it had since.
//! - An `fsync` that did not return may have kept its promise in part.
//! - The kernel may hand over one write in two pieces, cut where a page ends. So at the moment
//!   itself a write may be half there.
//!
//! The moment is not known; so all are tried, each a step from the one before.
//!
//! # Invariants
//! - A call changes one file or one or two names, and is small enough to reach the file system as
//!   one request, but for what was said of writes: so none other may be found half done.
//!
//! # Map
//! `call` has the system calls and what they do to a model of the directory, `draw` chooses the
//! next one, `on_disk` makes calls and reads the directory, `history` says what each `fsync`
//! promised, and `guess` compares the directory with what it may be (`file_states` one file,
//! `differences` the report).

mod call;
mod differences;
mod draw;
mod file_states;
mod guess;
mod history;
mod on_disk;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use self::call::{Call, State, apply};
use self::guess::{Guess, Limits};
use self::history::History;
use self::on_disk::{make, read_tree};
use crate::twister::Twister;

/// The calls made in one directory.
#[derive(Debug)]
pub struct Ledger {
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    /// The directory before the first of `calls`.
    base: State,
    /// The directory after all of them.
    now: State,
    /// Calls made since, the last perhaps only begun.
    calls: Vec<Call>,
    /// How many of them are stored, whatever was asked for.
    stored: usize,
    /// How many have returned.
    done: usize,
    chance: Twister,
}

/// A directory that is as it was at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survived {
    /// How many calls had to be there, all of them.
    pub durable: usize,
    /// How many are there, all of them.
    pub found: usize,
    /// How many calls of `fsync` after these kept their promise.
    pub synced: usize,
    /// How many had been begun.
    pub begun: usize,
}

/// A directory that is as it never was, or no more.
#[derive(Debug)]
pub struct Lost {
    survived: Survived,
    differences: Vec<String>,
}

impl fmt::Display for Lost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Survived {
            durable,
            found,
            synced,
            begun,
        } = self.survived;
        write!(
            out,
            "the directory is not as it can be after any of the calls {durable} (stored) to {begun} (begun) and what {synced} calls of \
             fsync have promised; closest is call {found}, but for:"
        )?;
        self.differences
            .iter()
            .try_for_each(|line| write!(out, "\n  {line}"))
    }
}

impl std::error::Error for Lost {}

/// Why a directory could not be compared, or does not compare.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It is not what it should be.
    #[error("{0}")]
    Lost(#[from] Box<Lost>),
    /// It could not be read.
    #[error("reading {}: {source}", path.display())]
    Unreadable {
        /// What.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
}

impl Ledger {
    /// A ledger of an empty directory.
    #[must_use]
    pub fn new(seed: u64) -> Ledger {
        Ledger {
            pages: Mutex::new(Pages {
                base: State::new(),
                now: State::new(),
                calls: Vec::new(),
                stored: 0,
                done: 0,
                chance: Twister::new(seed),
            }),
        }
    }

    /// How many calls have returned.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pages().done
    }

    /// So many calls are stored now.
    pub fn promise(&self, count: usize) {
        let mut pages = self.pages();
        pages.stored = pages.stored.max(count.min(pages.done));
    }

    /// Makes calls in `root` until told to stop, or until one is refused.
    ///
    /// # Errors
    /// The refusal. That call may have been done, or not.
    pub fn run(&self, root: &Path, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let call = {
                let mut pages = self.pages();
                let call = pages.draw();
                apply(&mut pages.now, &call);
                pages.calls.push(call.clone());
                call
            };
            make(root, &call)?;
            let mut pages = self.pages();
            pages.done = pages.calls.len();
        }
        Ok(())
    }

    /// Compares `root` with what it may be, after a crash. What is found is what later calls start
    /// from.
    ///
    /// # Errors
    /// If it is not what it may be.
    pub fn check(&self, root: &Path) -> Result<Survived, CheckError> {
        let mut found = State::new();
        read_tree(root, "", &mut found)?;
        let mut pages = self.pages();
        let survived = pages.find(&found)?;
        pages.base = found.clone();
        pages.now = found;
        pages.calls.clear();
        (pages.stored, pages.done) = (0, 0);
        Ok(survived)
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().expect("no thread panics with the pages")
    }
}

impl Pages {
    /// Which calls are there.
    fn find(&self, found: &State) -> Result<Survived, Box<Lost>> {
        let history = History::of(&self.base, &self.calls);
        let synced = (self.stored..self.done)
            .filter(|index| matches!(self.calls[*index], Call::Sync { .. }))
            .count();
        let asked = history.asked(&self.calls, self.done);
        let begun = self.calls.len();
        // What is asked for once more, and was not answered.
        let unanswered = (self.done < begun && matches!(self.calls[begun - 1], Call::Sync { .. }))
            .then(|| history.asked(&self.calls, begun));
        let is_renamed = |index: &usize| matches!(self.calls[*index], Call::Rename { .. });
        let partly = (0..begun)
            .filter(|index| is_renamed(index) || (unanswered.is_some() && *index + 1 == begun))
            .filter_map(|index| history.file[index])
            .collect();
        let limits = Limits {
            promised: asked.files.clone(),
            partly,
            names: unanswered.as_ref().map_or(asked.names, |_| begun),
        };
        let mut guess = Guess::new(&self.base, found, &self.calls, &history, limits);
        let names_of = |from: usize, until: usize| {
            let mut indexes: Vec<usize> = (from..until).collect();
            indexes.retain(|index| history.names[*index]);
            indexes
        };
        guess.moment = self.stored;
        for index in names_of(0, self.stored.max(asked.names)) {
            guess.apply_name(index);
        }
        guess.compare_all();
        let mut closest = (usize::MAX, 0, Vec::new());
        for moment in self.stored..=begun {
            if moment > self.stored {
                guess.step_to(moment, asked.names);
            }
            let mut differing = guess.differing.len();
            if differing > 0 && unanswered.is_some() {
                let more = names_of(moment.max(asked.names), begun);
                if differing <= 2 * more.len() && guess.is_with_some(&more) {
                    differing = 0;
                }
            }
            if differing < closest.0 {
                closest = (differing, moment, guess.differences());
            }
            if closest.0 == 0 {
                break;
            }
        }
        let (differing, moment, differences) = closest;
        let survived = Survived {
            durable: self.stored,
            found: moment,
            synced,
            begun,
        };
        match differing {
            0 => Ok(survived),
            _ => Err(Box::new(Lost {
                survived,
                differences,
            })),
        }
    }
}
