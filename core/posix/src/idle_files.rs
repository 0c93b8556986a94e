//! How many files are kept in memory though nobody uses them: one bound for all file systems of a pool.
//!
//! # Problem
//! What was read of a file is kept for the next time. Each file system bounds what it keeps, but there can be thousands of them, and
//! somebody who walks through all would fill the machine's memory.
//!
//! # Mechanism
//! The tables of files count here what they have. Who adds a file above the bound sees to it that others go: the file systems take
//! turns, and each lets go what nobody uses or has looked at since its last turn, until an eighth is free again.
//!
//! # Invariants
//! - Files that are in use do not go; only they can be more than the bound.
//! - No lock of this module is held while a file system lets files go.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tarn_host::lock::Mutex;
use tarn_object::ObjectSet;

use crate::filesystem::FileSystem;
use crate::ranks;

/// How many files the tables of a pool have together. With its object, a file takes some 3 KiB: 96 MiB.
const FILES_MAX: usize = 32_768;

/// The file systems of a pool that have files in memory.
pub(crate) struct IdleFiles {
    count: AtomicUsize,
    /// Who has his turn next is first.
    turns: Mutex<VecDeque<Weak<FileSystem>>>,
    is_making_room: AtomicBool,
}

impl IdleFiles {
    fn new() -> IdleFiles {
        IdleFiles {
            count: AtomicUsize::new(0),
            turns: Mutex::new(ranks::TURNS, VecDeque::new()),
            is_making_room: AtomicBool::new(false),
        }
    }

    /// That of the pool that an object set is in.
    pub fn of(set: &ObjectSet) -> Arc<IdleFiles> {
        set.env().companion(IdleFiles::new)
    }

    /// A file system takes part.
    pub fn enter(&self, file_system: Weak<FileSystem>) {
        let mut turns = self.turns.lock();
        turns.retain(|other| other.strong_count() > 0);
        turns.push_back(file_system);
    }

    /// A table that had so many files now has so many.
    pub fn changed(&self, before: usize, now: usize) {
        if now >= before {
            self.count.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.count.fetch_sub(before - now, Ordering::Relaxed);
        }
    }

    /// How many files the tables have.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Lets files go if there are too many. One thread at a time does so, the others go on.
    pub fn make_room(&self) {
        self.make_room_for(FILES_MAX);
    }

    fn make_room_for(&self, files_max: usize) {
        if self.count() <= files_max || self.is_making_room.swap(true, Ordering::Acquire) {
            return;
        }
        // A first turn may only find out what is not looked at until the second.
        let mut turns_left = 2 * self.turns.lock().len();
        while self.count() > files_max - files_max / 8 && turns_left > 0 {
            turns_left -= 1;
            if let Some(file_system) = self.next_turn() {
                file_system.let_idle_go();
            }
        }
        self.is_making_room.store(false, Ordering::Release);
    }

    fn next_turn(&self) -> Option<Arc<FileSystem>> {
        let mut turns = self.turns.lock();
        let next = turns.pop_front()?;
        let file_system = next.upgrade()?;
        turns.push_back(next);
        Some(file_system)
    }
}
