//! Receives under way: the heads that are received into, and the position of each stream.

use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_host::lock::{Mutex, Rank};
use tarn_object::Tx;
use tarn_ondisk::units::{ObjectId, Txg};

/// The table; taken for a moment.
const RECEIVES: Rank = Rank::new(tarn_host::ranks::DATASET + 14, "receives under way");

/// The position of a receive in its stream.
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
pub(crate) struct Receives {
    heads: Mutex<BTreeMap<ObjectId, Notes>>,
}

/// What was noted of a head.
#[derive(Debug, Default)]
struct Notes {
    by_group: BTreeMap<Txg, ResumePoint>,
}

impl Receives {
    /// None.
    pub(crate) fn new() -> Receives {
        Receives {
            heads: Mutex::new(RECEIVES, BTreeMap::new()),
        }
    }

    /// Claims a head; none where another receive has.
    pub(crate) fn claim(self: &Arc<Self>, head: ObjectId) -> Option<ReceiveClaim> {
        let mut heads = self.heads.lock();
        if heads.contains_key(&head) {
            return None;
        }
        heads.insert(head, Notes::default());
        drop(heads);
        Some(ReceiveClaim {
            table: self.clone(),
            head,
        })
    }

    /// Whether a head is claimed.
    pub(crate) fn has(&self, head: ObjectId) -> bool {
        self.heads.lock().contains_key(&head)
    }

    /// Takes what was noted of a head in this group.
    pub(crate) fn take_point(&self, head: ObjectId, txg: Txg) -> Option<ResumePoint> {
        self.heads.lock().get_mut(&head)?.by_group.remove(&txg)
    }
}

/// Marks a head as the target of a receive until this is dropped.
#[derive(Debug)]
pub struct ReceiveClaim {
    table: Arc<Receives>,
    head: ObjectId,
}

impl ReceiveClaim {
    /// The head.
    pub fn head(&self) -> ObjectId {
        self.head
    }

    /// Notes the stream's position, which is stored with the txg of the transaction.
    pub fn note(&self, tx: &Tx, point: ResumePoint) {
        let mut heads = self.table.heads.lock();
        debug_assert!(
            heads.contains_key(&self.head),
            "a head is claimed until its claim is dropped"
        );
        if let Some(notes) = heads.get_mut(&self.head) {
            notes.by_group.insert(tx.txg(), point);
        }
    }
}

impl Drop for ReceiveClaim {
    fn drop(&mut self) {
        let mut heads = self.table.heads.lock();
        let claimed = heads.remove(&self.head);
        assert!(
            claimed.is_some(),
            "a head is claimed until its claim is dropped"
        );
    }
}
