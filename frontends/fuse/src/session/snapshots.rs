//! Snapshots that were entered below `.zfs`.

use super::{Place, Session};
use crate::operations;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use tarn_engine::files::{ControlEntry, FileSystem, ObjectId, Operation, Tree};

/// Snapshots that were entered, by number and by their entry below `.zfs`.
#[derive(Default)]
pub(super) struct Entered {
    pub(super) by_number: Vec<Option<Arc<dyn Tree>>>,
    pub(super) by_entry: BTreeMap<ObjectId, u16>,
}

impl Entered {
    /// The snapshot of this number. Of one that is destroyed nothing is left, and its number stays empty.
    pub(super) fn find(&mut self, which: u16) -> Option<&Arc<FileSystem>> {
        let place = self.by_number.get_mut(usize::from(which).checked_sub(1)?)?;
        if place.as_ref().is_some_and(|tree| tree.files().is_ending()) {
            *place = None;
        }
        place.as_ref().map(|tree| tree.files())
    }
}

impl Session {
    /// Enters a snapshot, at its root: the one with this entry below `.zfs`, which was found under this name.
    pub(crate) fn enter(
        &self,
        name: &[u8],
        entry: ObjectId,
        operation: &Operation,
    ) -> Result<Place, Errno> {
        let known = |entered: &mut Entered| {
            let which = *entered.by_entry.get(&entry)?;
            let files = entered.find(which)?.clone();
            Some(Place {
                id: files.root(),
                files,
                which,
            })
        };
        let lock = || self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known(&mut lock()) {
            return Ok(found);
        }
        // Opened without the lock, since it reads from devices; another thread may be faster.
        let tree = self.tree.snapshot(name, operation);
        let tree = tree.map_err(operations::refused)?;
        let files = tree.files().clone();
        // The name may be another's by now. The kernel looks it up again.
        if ControlEntry::Snapshot(files.object_set().id()).id() != entry {
            return Err(Errno::STALE);
        }
        let mut entered = lock();
        if let Some(found) = known(&mut entered) {
            return Ok(found);
        }
        let which = u16::try_from(entered.by_number.len() + 1);
        let which = which.map_err(|_| Errno::NOENT)?;
        entered.by_number.push(Some(tree));
        entered.by_entry.insert(entry, which);
        Ok(Place {
            id: files.root(),
            files,
            which,
        })
    }
}
