//! Receives under way: claiming heads, and storing how far each stream has come.
//!
//! # Mechanism
//! A receive notes, with each transaction, up to where its stream has gone in. When the group of
//! the transaction is stored, the newest note of the group goes into the head's own ZAP. So what is
//! stored of a head and what is said of it belong together, and a stream that was cut goes on
//! exactly there.

use crate::error::DatasetError;
use crate::namespace::Namespace;
pub use crate::open::{ReceiveClaim, ResumePoint};
use crate::task::TaskContext;
use tarn_object::zap::ZapValue;
use tarn_ondisk::dataset::{RESUME_BYTES, RESUME_OBJECT, RESUME_OFFSET};
use tarn_ondisk::units::ObjectId;

impl Namespace {
    /// Claims a head for a receive; none where another receive has.
    pub fn claim_receive(&self, head: ObjectId) -> Option<ReceiveClaim> {
        self.open().receives.claim(head)
    }

    /// Whether a head is being received into.
    pub fn is_receiving(&self, head: ObjectId) -> bool {
        self.open().receives.has(head)
    }

    /// Stores what was noted of a head in the group that is being stored.
    #[doc(alias = "dsl_dataset_sync")]
    pub(crate) fn store_resume_point(
        &self,
        head: ObjectId,
        context: &TaskContext<'_>,
    ) -> Result<(), DatasetError> {
        let noted = self.open().receives.take_point(head, context.tx.txg());
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
