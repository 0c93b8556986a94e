//! What a change of the pool in the sync thread works with: [`SyncScope`].

use crate::features::SyncingFeatures;
use crate::mos_writer::MosWriter;
use crate::pool::Pool;
use tarn_dataset::task::TaskContext;

/// What a job of the pool works with.
pub(crate) struct SyncScope<'a> {
    /// The pool.
    pub(crate) pool: &'a Pool,
    /// The MOS, to change.
    pub(crate) writer: MosWriter<'a>,
    /// Counts of features.
    pub(crate) features: &'a SyncingFeatures<'a>,
    /// The same for tasks of datasets.
    pub(crate) context: &'a TaskContext<'a>,
}
