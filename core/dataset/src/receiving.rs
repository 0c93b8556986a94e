//! Receives under way: claims heads, and stores the position of each stream.
//!
//! # Mechanism
//! A receive notes its stream's position with each transaction. When the txg of the transaction is
//! stored, the newest note of the txg goes into the head's own ZAP. So a head's stored contents and
//! its stored position agree, and a cut stream is resumed exactly there.

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
