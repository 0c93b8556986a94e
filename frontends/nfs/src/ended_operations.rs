//! Operations of a compound of version 4 that have ended, and whose status is not known yet.
//!
//! # Mechanism
//! An operation of a compound ends with the [`FileCall`](crate::file_call::FileCall) that it is
//! for, and the status of the operation of NFS comes out behind that. Within [`with_status`] the
//! operations that end in this thread wait for it, and have it in their records.

use crate::file_call::Realm;
use std::cell::{Cell, RefCell};
use tarn_engine::files::{ErrorCode, Operation};

thread_local! {
    static DO_WAIT: Cell<bool> = const { Cell::new(false) };
    static WAITING: RefCell<Vec<(Realm, Operation)>> = const { RefCell::new(Vec::new()) };
}

/// Ends an operation, or has it wait for its status.
pub(crate) fn end(realm: &Realm, operation: Operation) {
    match DO_WAIT.get() {
        true => WAITING.with_borrow_mut(|waiting| waiting.push((realm.clone(), operation))),
        false => realm.tree.finish(operation),
    }
}

/// Runs an operation of a compound; the operations that end meanwhile have the error that
/// `error_of` finds in what comes out.
pub(crate) fn with_status<T>(run: impl FnOnce() -> T, error_of: impl Fn(&T) -> ErrorCode) -> T {
    let scope = Scope::enter();
    let done = run();
    scope.finish(error_of(&done));
    done
}

/// Operations wait as long as it is there. When it is dropped without a status, they end without.
struct Scope;

impl Scope {
    fn enter() -> Scope {
        assert!(!DO_WAIT.replace(true), "a compound is in no other one");
        Scope
    }

    fn finish(&self, error: ErrorCode) {
        DO_WAIT.set(false);
        // What ends an operation may end others.
        let mut waiting = WAITING.take();
        for (realm, operation) in waiting.drain(..) {
            if error != ErrorCode::NONE {
                operation.fail(error);
            }
            realm.tree.finish(operation);
        }
        WAITING.set(waiting);
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.finish(ErrorCode::NONE);
    }
}
