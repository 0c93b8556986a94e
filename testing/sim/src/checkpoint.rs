//! What the checkpoint of the pool has kept, and what a rewind to it promises.
//!
//! # Mechanism
//! A checkpoint is a stored txg: all calls that had returned before `zpool checkpoint` was called
//! are in it, none that began after it had returned is, and logs have nothing. So a rewound pool is
//! judged as one whose power was cut at that moment, by a copy of the history in which no request
//! to a log counts.
//!
//! # Invariants
//! - A checkpoint is there after each power cut, until `checkpoint -d` or a rewind was called.
//! - There is none that was not created.

use crate::administered::{Datasets, Log};
use crate::history::History;

/// The state that the checkpoint has kept.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// All calls that may be in it.
    pub history: History,
    /// The administrator's file systems while it was created, one state after the other.
    admin: Vec<Log>,
}

impl Kept {
    fn new(history: &History, begin: u64, admin: Vec<Log>) -> Kept {
        let mut history = history.clone();
        history.commits.clear();
        // What has been stored since may be newer than the checkpoint.
        history.stored = begin;
        Kept { history, admin }
    }

    /// Whether the administrator's file systems may be these after a rewind.
    ///
    /// # Errors
    /// How they differ from the first state that it may have kept.
    pub fn judge_admin(&self, found: &Datasets) -> Result<(), String> {
        let mut why = Ok(());
        for log in &self.admin {
            let judged = log.judge(found);
            if judged.is_ok() {
                return judged;
            }
            why = why.and(judged);
        }
        why.map_err(|why| format!("of {} states that may be kept: {why}", self.admin.len()))
    }
}

/// Whether the pool has a checkpoint, as far as commands have returned.
#[derive(Debug, Clone, Default)]
pub enum Checkpoint {
    /// It has none.
    #[default]
    Absent,
    /// `zpool checkpoint` was called at this moment, and has not returned.
    Creating(u64, Vec<Log>),
    /// It has one.
    Exists(Kept),
    /// `zpool checkpoint -d` was called, and has not returned.
    Discarding(Kept),
    /// `zpool import --rewind-to-checkpoint` was called, and has not returned.
    Rewinding(Kept),
}

impl Checkpoint {
    /// Whether there is one for certain.
    pub fn exists(&self) -> bool {
        matches!(self, Checkpoint::Exists(_))
    }

    /// Whether there is none for certain.
    pub fn is_absent(&self) -> bool {
        matches!(self, Checkpoint::Absent)
    }

    /// The administrator's file systems are as the log says.
    pub fn see_admin(&mut self, log: &Log) {
        if let Checkpoint::Creating(_, states) = self {
            states.push(log.clone());
        }
    }

    /// `zpool checkpoint` has returned, well or not.
    pub fn end_creating(&mut self, is_created: bool, history: &History) {
        if let Checkpoint::Creating(begin, admin) = self {
            let admin = std::mem::take(admin);
            *self = match is_created {
                true => Checkpoint::Exists(Kept::new(history, *begin, admin)),
                false => Checkpoint::Absent,
            };
        }
    }

    /// A command that gives the checkpoint up is called.
    pub fn begin_ending(&mut self, ending: fn(Kept) -> Checkpoint) {
        if let Checkpoint::Exists(kept) = self {
            *self = ending(std::mem::take(kept));
        }
    }

    /// `zpool checkpoint -d` has returned, well or not.
    pub fn end_discarding(&mut self, is_discarded: bool) {
        if let Checkpoint::Discarding(kept) = self {
            *self = match is_discarded {
                true => Checkpoint::Absent,
                false => Checkpoint::Exists(std::mem::take(kept)),
            };
        }
    }

    /// After an import: compares whether the pool has a checkpoint with what it may have. Gives
    /// what was kept, where the pool was rewound to it.
    ///
    /// # Errors
    /// It has one and must not, or has none and must.
    pub fn settle(&mut self, is_there: bool, history: &History) -> Result<Option<Kept>, String> {
        let (now, rewound) = match (std::mem::take(self), is_there) {
            (Checkpoint::Absent, true) => return Err("it has a checkpoint".to_string()),
            (Checkpoint::Exists(_), false) => return Err("its checkpoint is gone".to_string()),
            (Checkpoint::Creating(begin, admin), true) => {
                (Checkpoint::Exists(Kept::new(history, begin, admin)), None)
            }
            (
                Checkpoint::Exists(kept)
                | Checkpoint::Discarding(kept)
                | Checkpoint::Rewinding(kept),
                true,
            ) => (Checkpoint::Exists(kept), None),
            (Checkpoint::Rewinding(kept), false) => (Checkpoint::Absent, Some(kept)),
            (Checkpoint::Absent | Checkpoint::Creating(..) | Checkpoint::Discarding(_), false) => {
                (Checkpoint::Absent, None)
            }
        };
        *self = now;
        Ok(rewound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn existing() -> Checkpoint {
        Checkpoint::Exists(Kept::default())
    }

    #[test]
    fn a_checkpoint_stays_until_it_is_given_up() {
        let history = History::default();
        assert!(Checkpoint::Absent.settle(true, &history).is_err());
        assert!(existing().settle(false, &history).is_err());
        assert!(existing().settle(true, &history).unwrap().is_none());
        for is_there in [false, true] {
            let mut creating = Checkpoint::Creating(1, Vec::new());
            assert!(creating.settle(is_there, &history).unwrap().is_none());
            assert_eq!(creating.exists(), is_there);
            let mut discarding = existing();
            discarding.begin_ending(Checkpoint::Discarding);
            assert!(discarding.settle(is_there, &history).unwrap().is_none());
            assert_eq!(discarding.exists(), is_there);
            let mut rewinding = existing();
            rewinding.begin_ending(Checkpoint::Rewinding);
            let rewound = rewinding.settle(is_there, &history).unwrap();
            assert_eq!(
                (rewound.is_some(), rewinding.exists()),
                (!is_there, is_there)
            );
        }
    }

    #[test]
    fn what_a_log_has_or_was_stored_later_is_not_kept() {
        let mut history = History::default();
        history.tick();
        history.commits.push(crate::history::Commit {
            dataset: 0,
            asked: crate::history::Asked::All(None),
            begin: 1,
            end: Some(1),
        });
        let begin = history.tick();
        let mut checkpoint = Checkpoint::Creating(begin, Vec::new());
        history.stored = history.tick();
        checkpoint.end_creating(true, &history);
        let Checkpoint::Exists(kept) = checkpoint else {
            panic!("it exists");
        };
        assert!(kept.history.commits.is_empty());
        assert_eq!(kept.history.stored, begin);
    }
}
