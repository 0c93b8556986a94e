//! Attributes from before and after an operation, for NFS (weak cache consistency).
//!
//! # Problem
//! A client of NFS that has cached a directory or a file learns from the answer to its own change
//! whether another client has changed it meanwhile: the answer has the attributes from right
//! before the change and from right after (weak cache consistency, `change_info4`). Asking for
//! them around the operation would show other changes as its own.
//!
//! # Mechanism
//! An operation that runs within [`FileSystem::witnessed`] leaves the facts that it replaced and
//! those that it stored, of each file that it has changed. Both are taken under the file's
//! `change` lock, so nothing came between. A long write or copy is several transactions under one
//! lock: the first ones from before count, and the last ones from after.
//!
//! Operations run in the thread of their caller, so the notes are that thread's. Outside of
//! `witnessed` this costs a look at a variable of the thread.

use std::cell::RefCell;

use tarn_ondisk::units::ObjectId;

use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::types::{Attributes, Timestamp};

/// The attributes of a file before a change that NFS asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributesBefore {
    /// Size in bytes.
    pub size: u64,
    /// Last change of contents.
    pub modified: Timestamp,
    /// Last change of attributes.
    pub changed: Timestamp,
    /// The change attribute ([`Attributes::change`]).
    pub change: u64,
}

/// A file from before and after an operation that changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeforeAndAfter {
    /// The file.
    pub file: ObjectId,
    /// Right before.
    pub before: AttributesBefore,
    /// Right after.
    pub after: Attributes,
}

/// The files that an operation has changed, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Witnessed {
    files: Vec<BeforeAndAfter>,
}

impl Witnessed {
    /// The attributes of a file before and after. None if it was not changed, or was freed.
    pub fn of(&self, file: ObjectId) -> Option<&BeforeAndAfter> {
        self.files.iter().find(|seen| seen.file == file)
    }
}

thread_local! {
    static WITNESSED: RefCell<Option<Witnessed>> = const { RefCell::new(None) };
}

/// Clears the notes of the thread, also when an operation panics.
struct Notes {
    outer: Option<Witnessed>,
}

impl Notes {
    fn begin() -> Notes {
        Notes {
            outer: WITNESSED.replace(Some(Witnessed::default())),
        }
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        WITNESSED.set(self.outer.take());
    }
}

impl FileSystem {
    /// Runs an operation of this file system, and gives its outcome with the files that it changed.
    pub fn witnessed<T>(&self, operation: impl FnOnce() -> T) -> (T, Witnessed) {
        let notes = Notes::begin();
        let outcome = operation();
        let seen = WITNESSED.take().unwrap_or_default();
        drop(notes);
        (outcome, seen)
    }

    /// Notes a change of a file's facts. The caller holds `change`.
    pub(crate) fn witness(&self, node: &Node, old: &Facts) {
        let is_wanted = WITNESSED.with_borrow(Option::is_some);
        if !is_wanted {
            return;
        }
        let after = self.node_attributes(node);
        WITNESSED.with_borrow_mut(|witnessed| {
            let files = &mut witnessed.as_mut().expect("it was there").files;
            match files.iter_mut().find(|seen| seen.file == node.id) {
                Some(seen) => seen.after = after,
                None => files.push(BeforeAndAfter {
                    file: node.id,
                    before: AttributesBefore {
                        size: old.size,
                        modified: old.modified,
                        changed: old.changed,
                        change: old.changed.change(),
                    },
                    after,
                }),
            }
        });
    }
}
