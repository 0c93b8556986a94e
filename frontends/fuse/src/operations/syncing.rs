//! Making changes durable.
//!
//! `FSYNC`, `FSYNCDIR`, `SYNCFS`, and the end of every write to a file that was opened with
//! `O_SYNC` or `O_DSYNC`.

use super::{Call, Reply, done, refused};
use crate::protocol::Answer;
use crate::session::Place;
use rustix::io::Errno;

impl Call<'_> {
    /// `fsync` and `fdatasync`: attributes are stored together with contents, so both do the same.
    pub(super) fn sync(&self, file: &Place) -> Result<Reply, Errno> {
        self.when_durable(file, Answer::new())
    }

    /// The reply that is sent when the file is durable.
    pub(super) fn when_durable(&self, file: &Place, answer: Answer) -> Result<Reply, Errno> {
        let unsynced = file.files.sync_later(file.id, self.operation);
        Ok(match unsynced.map_err(refused)? {
            Some(unsynced) => Reply::WhenDurable(answer, unsynced),
            None => Reply::Parts(answer),
        })
    }

    /// `syncfs` and `sync`. Linux sends them to servers of virtiofs and of block devices only,
    /// since any other could make `sync` wait without end (commits 2d82ab251ef0, d3906d8f3cee): on
    /// a mount like these they return without a request.
    pub(super) fn sync_all(&self, file: &Place) -> Result<Reply, Errno> {
        done(file.files.sync_all(self.operation))
    }
}
