//! Idle files in memory: one bound for all file systems of a pool.
//!
//! # Problem
//! The attributes and objects of files that were read stay in memory. Each file system bounds how
//! many it keeps, but there can be thousands of them, and a walk through all would fill the
//! machine's memory.
//!
//! # Mechanism
//! The tables of files count their files here. A thread that adds a file above the bound makes
//! room: the file systems take turns, and each drops the files that are not in use and were not
//! used since its last turn, until an eighth of the bound is free. If too many are in use for that,
//! the next attempt comes when there is an eighth more.
//!
//! # Invariants
//! - Files in use are not dropped; only they can exceed the bound.
//! - No lock of this module is held while a file system drops files.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tarn_host::lock::Mutex;
use tarn_object::ObjectSet;

use crate::filesystem::FileSystem;
use crate::ranks;

/// How many files the tables of a pool have together. With its object, a file takes some 3 KiB: 96
/// MiB.
const FILES_MAX: usize = 32_768;

/// How much room is made at once.
const PART: usize = FILES_MAX / 8;

/// The file systems of a pool that have files in memory.
pub(crate) struct IdleFiles {
    count: AtomicUsize,
    /// How many there may be before room is made: the bound, or more while more are in use.
    limit: AtomicUsize,
    turns: Mutex<Turns>,
    is_making_room: AtomicBool,
}

/// The file systems, the next to drop files first.
#[derive(Default)]
struct Turns {
    line: VecDeque<Weak<FileSystem>>,
    /// At so many, closed ones are removed: that takes time for all.
    count_next_look: usize,
}

impl IdleFiles {
    fn new() -> IdleFiles {
        IdleFiles {
            count: AtomicUsize::new(0),
            limit: AtomicUsize::new(FILES_MAX),
            turns: Mutex::new(ranks::TURNS, Turns::default()),
            is_making_room: AtomicBool::new(false),
        }
    }

    /// The table of the pool of an object set.
    pub fn of(set: &ObjectSet) -> Arc<IdleFiles> {
        set.env().companion(IdleFiles::new)
    }

    /// Adds a file system.
    pub fn enter(&self, file_system: Weak<FileSystem>) {
        let mut turns = self.turns.lock();
        if turns.line.len() >= turns.count_next_look {
            turns.line.retain(|other| other.strong_count() > 0);
            turns.count_next_look = 2 * turns.line.len() + 16;
        }
        turns.line.push_back(file_system);
    }

    /// Counts a change of a table from `before` files to `now`.
    pub fn changed(&self, before: usize, now: usize) {
        if now >= before {
            self.count.fetch_add(now - before, Ordering::Relaxed);
        } else {
            let counted = self.count.fetch_sub(before - now, Ordering::Relaxed);
            assert!(
                counted >= before - now,
                "files that leave a table were counted"
            );
        }
    }

    /// How many files the tables have.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Drops files if there are too many. One thread at a time does so; others return at once.
    pub fn make_room(&self) {
        let is_room = self.count() <= self.limit.load(Ordering::Relaxed);
        if is_room || self.is_making_room.swap(true, Ordering::Acquire) {
            return;
        }
        // A first turn may only mark files, which the second drops if they were not used meanwhile.
        let mut turns_left = 2 * self.turns.lock().line.len();
        while self.count() > FILES_MAX - PART && turns_left > 0 {
            turns_left -= 1;
            if let Some(file_system) = self.next_turn() {
                file_system.let_idle_go();
            }
        }
        let limit = FILES_MAX.max(self.count() + PART);
        self.limit.store(limit, Ordering::Relaxed);
        self.is_making_room.store(false, Ordering::Release);
    }

    fn next_turn(&self) -> Option<Arc<FileSystem>> {
        let mut turns = self.turns.lock();
        let next = turns.line.pop_front()?;
        let file_system = next.upgrade()?;
        turns.line.push_back(next);
        Some(file_system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_use_are_not_looked_at_for_every_one_that_comes() {
        let idle = IdleFiles::new();
        let limit = |idle: &IdleFiles| idle.limit.load(Ordering::Relaxed);
        idle.changed(0, FILES_MAX + 1);
        // No file system is there to let files go.
        idle.make_room();
        assert_eq!(limit(&idle), FILES_MAX + 1 + PART);
        idle.changed(0, PART);
        idle.make_room();
        assert_eq!(limit(&idle), FILES_MAX + 1 + PART, "there is room");
        idle.changed(0, 1);
        idle.make_room();
        assert_eq!(limit(&idle), FILES_MAX + 2 + 2 * PART);
        idle.changed(idle.count(), 7);
        assert_eq!(idle.count(), 7);
    }
}
