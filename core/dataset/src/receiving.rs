//! Receives under way: which heads are being received into, and how far each has come.
//!
//! # Mechanism
//! The receiver notes, with each transaction, up to where the stream has gone in. When the group of
//! the transaction is stored, the newest note of the group goes into the head's own ZAP. So what is
//! stored of a head and what is said of it belong together, and a stream that was cut can go on
//! exactly there.

use crate::error::DatasetError;
use crate::namespace::Namespace;
use crate::task::TaskContext;
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_host::lock::{Mutex, Rank};
use tarn_object::Tx;
use tarn_object::zap::ZapValue;
use tarn_ondisk::dataset::{RESUME_BYTES, RESUME_OBJECT, RESUME_OFFSET};
use tarn_ondisk::units::{ObjectId, Txg};

/// The table; taken for a moment.
const RECEIVING: Rank = Rank::new(tarn_host::ranks::DATASET + 14, "receives under way");

/// Up to where a stream has gone in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResumePoint {
    /// The object that the last record was about.
    pub object: u64,
    /// Where in it.
    pub offset: u64,
    /// How many bytes of the stream that was.
    pub bytes: u64,
}

/// The receives of a pool.
#[derive(Debug)]
pub(crate) struct Receiving {
    heads: Mutex<BTreeMap<ObjectId, Notes>>,
}

/// What was noted of a head.
#[derive(Debug, Default)]
struct Notes {
    by_group: BTreeMap<Txg, ResumePoint>,
}

impl Receiving {
    /// None.
    pub(crate) fn new() -> Receiving {
        Receiving {
            heads: Mutex::new(RECEIVING, BTreeMap::new()),
        }
    }
}

/// A head is being received into, as long as this is there.
#[derive(Debug)]
pub struct ReceiveClaim {
    table: Arc<Receiving>,
    head: ObjectId,
}

impl ReceiveClaim {
    /// The head.
    pub fn head(&self) -> ObjectId {
        self.head
    }

    /// Notes how far the stream has come; that is stored with the group of the transaction.
    pub fn note(&self, tx: &Tx, point: ResumePoint) {
        let mut heads = self.table.heads.lock();
        if let Some(notes) = heads.get_mut(&self.head) {
            notes.by_group.insert(tx.txg(), point);
        }
    }
}

impl Drop for ReceiveClaim {
    fn drop(&mut self) {
        let mut heads = self.table.heads.lock();
        heads.remove(&self.head);
    }
}

impl Namespace {
    /// Claims a head for a receive; none where another receive has.
    pub fn claim_receive(&self, head: ObjectId) -> Option<ReceiveClaim> {
        let mut heads = self.receiving().heads.lock();
        if heads.contains_key(&head) {
            return None;
        }
        heads.insert(head, Notes::default());
        drop(heads);
        Some(ReceiveClaim {
            table: self.receiving().clone(),
            head,
        })
    }

    /// Whether a head is being received into.
    pub fn is_receiving(&self, head: ObjectId) -> bool {
        self.receiving().heads.lock().contains_key(&head)
    }

    /// Stores what was noted of a head in the group that is being stored.
    #[doc(alias = "dsl_dataset_sync")]
    pub(crate) fn store_resume_point(
        &self,
        head: ObjectId,
        context: &TaskContext<'_>,
    ) -> Result<(), DatasetError> {
        let noted = {
            let mut heads = self.receiving().heads.lock();
            let notes = heads.get_mut(&head);
            notes.and_then(|notes| notes.by_group.remove(&context.tx.txg()))
        };
        let Some(point) = noted else {
            return Ok(());
        };
        let writing = context.writing();
        for (name, value) in [
            (RESUME_OBJECT, point.object),
            (RESUME_OFFSET, point.offset),
            (RESUME_BYTES, point.bytes),
        ] {
            writing.put(head, name, &ZapValue::word(value))?;
        }
        Ok(())
    }
}
