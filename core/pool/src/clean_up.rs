//! What an import for writing tidies up first: datasets that were half received, or half destroyed
//! by an older program, and user holds of processes that are gone.
//!
//! They take space, and no command would use them. One that cannot be destroyed stays as it is: the
//! import does not fail for it, and the next one tries again.

use crate::error::TaskError;
use crate::pool::Pool;
use tarn_dataset::error::DatasetError;
use tarn_dataset::ops::destroy::{Destroy, inconsistent};
use tarn_dataset::ops::temporary_snapshot::ReleaseTemporaryHolds;
use tarn_dataset::task::TaskRefusal;
use tarn_probe::Operation;

impl Pool {
    /// Destroys what is marked inconsistent, the deepest first, and takes temporary holds off.
    ///
    /// # Errors
    /// When the tree cannot be read.
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
            // What cannot be written now is tried again by the next import.
            if let Err(TaskError::Refused(TaskRefusal::Dataset(error))) =
                self.run(ReleaseTemporaryHolds, operation)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}
