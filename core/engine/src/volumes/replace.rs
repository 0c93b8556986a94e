//! Replacing the contents of a volume while it is served: rollback, and receiving into it.
//!
//! # Mechanism
//! Linux's cache of the volume's block device is written back and dropped. Operations that begin
//! from then on wait, and those under way are waited for; then the volume is closed, as by its last
//! holder, and its dataset is not in use for as long as the command needs. The volume is opened
//! anew, holders go on with it, and Linux's cache is dropped once more. Programs and clients that
//! use the volume see no error, and other contents.
//!
//! # Invariants
//! - Holders have a volume again whatever becomes of the command. Where it cannot be stored before,
//!   or not be opened after, it ends, and they hear of it.

use super::hold::open_again;
use super::served::ServedVolume;
use crate::engine::{Engine, OpenPool};
use crate::refusals::{Refusal, RefusalKind};
use std::sync::Arc;
use std::time::Duration;
use tarn_probe::Operation;
use tarn_zvol::Volume;

/// How long operations under way are waited for, and at what interval they are looked for. A guess:
/// longer than a working pool needs for the largest.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// How often a dataset is taken into use again: a task has it until the end of its turn.
const TRIES: u32 = 1000;

impl Engine {
    /// Runs a change that replaces the contents of a head. Where that is a volume that is served,
    /// its holders keep it. The caller has the pool's turn.
    ///
    /// # Errors
    /// Those of the change; busy where an operation on the volume does not end.
    pub fn replacing_volume<T>(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
        change: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut all = open.served_volumes.all().into_iter();
        let Some(served) = all.find(|served| served.name() == name) else {
            return change();
        };
        let device = open.devices.find(served.id());
        let drop_cache = || {
            if let Some(entry) = &device {
                entry.device.drop_cache();
            }
        };
        drop_cache();
        let before = self.take_away(&served, name)?;
        let (size_bytes, is_changeable) = (before.size_bytes(), before.is_changeable());
        if let Err(refusal) = self.close_volume(open, &served, is_changeable) {
            // Its intent log is closed, and what it holds back may be lost: it is no disk any more.
            open.pool.namespace().end_use(served.id());
            open.served_volumes.end_one(&served, before);
            return Err(refusal);
        }
        open.pool.namespace().end_use(served.id());
        let outcome = change();
        let is_same = outcome.is_err();
        let reopened = self.open_replaced(open, &served, operation);
        match reopened {
            Ok(volume) => {
                let after = volume.size_bytes();
                served.end_replacing(volume);
                if after != size_bytes {
                    served.tell(|watcher| watcher.size_changed(after));
                }
                drop_cache();
                outcome
            }
            Err(refusal) => {
                open.served_volumes.end_one(&served, before);
                match is_same {
                    true => outcome,
                    false => Err(refusal),
                }
            }
        }
    }

    /// Takes the volume away from its holders, and waits for what they have under way.
    fn take_away(&self, served: &ServedVolume, name: &str) -> Result<Arc<Volume>, Refusal> {
        let volume = served.begin_replacing();
        let mut waited = Duration::ZERO;
        while Arc::strong_count(&volume) > 1 {
            if waited >= PATIENCE {
                served.end_replacing(volume);
                let action = format!("cannot replace the contents of '{name}'");
                let reason = "requests of clients are still being served";
                return Err(Refusal::new(RefusalKind::Busy, action, reason));
            }
            self.host.sleep(LOOK_INTERVAL);
            waited += LOOK_INTERVAL;
        }
        Ok(volume)
    }

    /// Takes the dataset into use again, and opens it. It is not in use when that fails.
    fn open_replaced(
        &self,
        open: &Arc<OpenPool>,
        served: &ServedVolume,
        operation: &Operation,
    ) -> Result<Arc<Volume>, Refusal> {
        let (namespace, name) = (open.pool.namespace(), served.name());
        let mut tries = 0;
        while !namespace.begin_use(served.id()) {
            tries += 1;
            if tries == TRIES {
                let action = format!("cannot open '{name}'");
                return Err(Refusal::new(RefusalKind::Busy, action, "dataset is busy"));
            }
            self.host.sleep(LOOK_INTERVAL);
        }
        let opened = open_again(open, &name, served.id(), operation);
        if opened.is_err() {
            namespace.end_use(served.id());
        }
        opened
    }
}
