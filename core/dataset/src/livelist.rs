//! Livelists: what a clone has written since it was made (feature `livelist`).
//!
//! # Mechanism
//! OpenZFS keeps a list of a clone's own blocks, born and freed, so that destroying the clone need not walk its tree. The
//! list is worth nothing unless it is complete. We do not write livelists: a clone that we change or destroy gives its list
//! up first, as OpenZFS has it do when the clone has little in common with its origin any more. From then on it is
//! destroyed like any other dataset.

use crate::deadlist;
use crate::error::DatasetError;
use crate::stored::is_zap;
use crate::task::TaskContext;
use tarn_ondisk::dataset_dir::LIVELIST;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::ObjectId;

/// Gives up the livelist of a directory's head, if it has one.
#[doc(alias = "dsl_dir_remove_livelist")]
pub(crate) fn remove(context: &TaskContext<'_>, directory: ObjectId) -> Result<(), DatasetError> {
    let writing = context.writing();
    let reading = writing.reading();
    if !is_zap(&*reading.object(directory)?) {
        return Ok(());
    }
    let Some(list) = reading.number(directory, LIVELIST)? else {
        return Ok(());
    };
    writing.remove(directory, LIVELIST)?;
    deadlist::free(context, ObjectId::new(list))?;
    context.features.decrement(Feature::Livelist)
}
