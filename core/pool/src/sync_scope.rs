//! [`SyncScope`]: what a job of the sync thread can change.

use crate::features::SyncingFeatures;
use crate::mos_writer::MosWriter;
use crate::pool::Pool;
use tarn_dataset::task::TaskContext;

/// The pool during a job of the sync thread.
pub(crate) struct SyncScope<'a> {
    /// The pool.
    pub(crate) pool: &'a Pool,
    /// A writer of the MOS.
    pub(crate) writer: MosWriter<'a>,
    /// The feature counts.
    pub(crate) features: &'a SyncingFeatures<'a>,
    /// The same for tasks of datasets.
    pub(crate) context: &'a TaskContext<'a>,
}
