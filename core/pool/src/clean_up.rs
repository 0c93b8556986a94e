//! Cleans up at an import for writing: destroys partly received datasets, and those that an older
//! program destroyed halfway, and releases temporary user holds.
//!
//! They take space, and no command would use them. A dataset that cannot be destroyed stays,
//! without failing the import; the next import tries again.

use crate::error::TaskError;
use crate::pool::Pool;
use tarn_dataset::error::DatasetError;
use tarn_dataset::ops::destroy::{Destroy, inconsistent};
use tarn_dataset::ops::temporary_snapshot::ReleaseTemporaryHolds;
use tarn_dataset::task::TaskRefusal;
use tarn_probe::Operation;

impl Pool {
    /// Destroys inconsistent datasets, the deepest first, and releases temporary holds.
    ///
    /// # Errors
    /// The tree of datasets cannot be read.
    pub(crate) fn clean_up(&self, operation: &Operation) -> Result<(), DatasetError> {
        let names = inconsistent(self.namespace().view(operation))?;
        for name in names.into_iter().rev() {
            match self.run(Destroy { name }, operation) {
                Ok(()) | Err(TaskError::Refused(_)) => {}
                Err(TaskError::ReadOnly | TaskError::Stopped | TaskError::Suspended { .. }) => {
                    return Ok(());
                }
            }
        }
        if ReleaseTemporaryHolds::is_needed(self.namespace().view(operation))? {
            // If it cannot be written now, the next import tries again.
            if let Err(TaskError::Refused(TaskRefusal::Dataset(error))) =
                self.run(ReleaseTemporaryHolds, operation)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}
