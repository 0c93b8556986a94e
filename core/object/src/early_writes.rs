//! What indirect log writes have written of the open txg counts for when it is closed.
//!
//! # Mechanism
//! A group is closed when so much of it is dirty that is not written yet. What the intent log
//! writes early ([`indirect_writes`](crate::indirect_writes)) does not count. What is changed after
//! that counts again, and its place is in use until the group is stored: a commit behind which much
//! is in use for that asks for the group to be stored, since then there is little else to write.

use std::sync::atomic::Ordering;

use crate::txg::Txgs;

impl Txgs {
    /// Indirect log writes have written so many bytes of the open group: storing it takes so much
    /// less.
    pub(crate) fn note_written_early(&self, bytes: u64) {
        let less = |sum: u64| Some(sum.saturating_sub(bytes));
        let _ = (self.group_bytes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// So many bytes of the open group that were written early have changed: they are to be written
    /// again, and their place is in use until the group is stored.
    pub(crate) fn note_superseded(&self, bytes: u64) {
        self.group_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.superseded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A commit of so many bytes has come, which the log writes early where their group is open:
    /// the next groups stay open for twice as much, so that such commits need not wait for groups.
    pub fn expect_early_writes(&self, bytes: u64) {
        let more = bytes.saturating_mul(2).min(self.sync_part());
        self.early_bytes.fetch_max(more, Ordering::Relaxed);
    }

    /// Asks for the open group to be stored soon, where much space is in use for what was written
    /// early and has changed since. Best after a commit: then there is little else to write.
    pub fn store_much_superseded(&self) {
        if self.superseded_bytes.load(Ordering::Relaxed) >= self.sync_part() {
            self.kick();
        }
    }
}
