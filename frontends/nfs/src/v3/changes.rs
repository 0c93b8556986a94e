//! What follows a change: the reply waits until it is durable.

use super::status::Status;
use super::{Done, Outcome, Shape, done};
use crate::file_call::FileCall;
use tarn_engine::files::ObjectId;

/// A file that was changed.
pub(super) struct Changed {
    pub(super) file: FileCall,
    /// The object whose changes are made durable. A change of names is among those of its
    /// directory.
    pub(super) id: ObjectId,
}

impl Changed {
    pub(super) fn replied_when_durable(self, shape: Shape) -> Done {
        if self.file.realm.share.options.is_async {
            return done();
        }
        let unsynced = self.file.files().sync_later(self.id, self.file.operation());
        match unsynced {
            Ok(Some(unsynced)) => Ok(Outcome::WhenDurable(Box::new(self.file), unsynced)),
            Ok(None) => done(),
            Err(error) => Err(shape.fail(Status::from(error), Some(self.file))),
        }
    }
}
