//! The log of one file system or volume: [`IntentLog`].

use std::sync::{Arc, Weak};

use tarn_host::lock::{Mutex, Rank};
use tarn_object::{ObjectSet, Tx};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::error::CommitError;
use crate::record::{IntentRecord, LogSource};

/// Who knows contents; taken for a moment.
const SOURCE: Rank = Rank::new(tarn_host::ranks::ZIL, "intent log source");

/// The intent log of one file system or volume. Shared by all who change it.
pub struct IntentLog {
    set: Arc<ObjectSet>,
    source: Mutex<Option<Weak<dyn LogSource>>>,
}

impl IntentLog {
    /// For an object set that is open for writing.
    pub fn new(set: Arc<ObjectSet>) -> Arc<IntentLog> {
        Arc::new(IntentLog {
            set,
            source: Mutex::new(SOURCE, None),
        })
    }

    /// Says who knows the contents of files.
    pub fn set_source(&self, source: Weak<dyn LogSource>) {
        *self.source.lock() = Some(source);
    }

    /// The object set it belongs to.
    pub fn set(&self) -> &Arc<ObjectSet> {
        &self.set
    }

    /// Whether records are to be made at all.
    pub fn is_wanted(&self) -> bool {
        false
    }

    /// Takes a change into the log's memory. Called with the transaction of the change and the locks of its files held, so that
    /// records are in the order of changes.
    ///
    /// While the log is replayed nothing is kept.
    #[doc(alias = "zil_itx_assign")]
    pub fn record(&self, _tx: &Tx, _record: IntentRecord) {}

    /// A file is finally gone: records that only it needs are not stored any more.
    #[doc(alias = "zil_remove_async")]
    pub fn forget(&self, _object: ObjectId) {}

    /// From now on every commit stores what so far only this file needs, in order: another change builds on it, as a rename does
    /// on what was written into the file.
    #[doc(alias = "zil_async_to_sync")]
    pub fn share(&self, _object: ObjectId) {}

    /// Returns when all changes of this file that were recorded before are durable, and what they build on; without a file
    /// all changes.
    ///
    /// # Errors
    /// When the pool is suspended or being closed, or devices are lost.
    #[doc(alias = "zil_commit")]
    pub fn commit(
        &self,
        _object: Option<ObjectId>,
        operation: &Operation,
    ) -> Result<(), CommitError> {
        let txgs = &self.set.env().txgs;
        Ok(txgs.wait_stored(txgs.open_txg(), operation)?)
    }
}

impl std::fmt::Debug for IntentLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IntentLog({:?})", self.set)
    }
}
