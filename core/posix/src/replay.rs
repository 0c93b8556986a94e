//! Doing again what the intent log has: the answer to the door [`Replay`].
//!
//! # Mechanism
//! Each record says what an operation changed, and is applied by what the operation itself is made
//! of, without its checks: it was allowed when it was made. Files get the numbers, generations and
//! times that they had. Times of change that a record does not have are those of the replay.
//!
//! A record may have been written by any OpenZFS, and the disk may lie: what does not fit the tree,
//! or cannot be, is refused, and nothing has changed then.
//!
//! # Invariants
//! - A record is applied wholly in one transaction, or in several of which all but the last leave a
//!   state from which it can be applied again.
//! - The last transaction notes the record's sequence.

mod attributes;
mod contents;
mod names;

use std::sync::Arc;

use tarn_object::{OpenTx, Tx, TxEstimate};
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::intent_log::{LogRecord, LoggedChange};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;
use tarn_zil::{Refusal, Replay, WrittenData};

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::names::CaseSensitivity;
use crate::node::Node;

/// Why a record cannot be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// What it asks for fails.
    #[error("object {object}: {why}")]
    Failed {
        /// The object that it is about.
        object: ObjectId,
        /// Why.
        why: PosixError,
    },
    /// It asks for what cannot be.
    #[error("it makes no sense: {0}")]
    Nonsense(&'static str),
    /// It asks for what this version does not do. OpenZFS may be able to.
    #[error("it needs {0}, which is not supported")]
    NotSupported(&'static str),
    /// The access control list in it is none.
    #[error("its access control list is damaged: {0}")]
    Acl(#[from] Corrupt),
}

impl Replay for FileSystem {
    #[doc(alias = "zfs_replay_vector")]
    fn replay(
        &self,
        record: &LogRecord,
        data: Option<&WrittenData>,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        self.check_case(record)?;
        match &record.change {
            LoggedChange::Create(create) => self.replay_create(create, operation)?,
            LoggedChange::Remove { directory, name }
            | LoggedChange::RemoveDirectory { directory, name } => {
                let is_directory = matches!(record.change, LoggedChange::RemoveDirectory { .. });
                self.replay_remove(*directory, name.as_bytes(), is_directory, operation)?;
            }
            LoggedChange::Link {
                directory,
                object,
                name,
            } => self.replay_link(*directory, *object, name.as_bytes(), operation)?,
            LoggedChange::Rename(rename) => self.replay_rename(rename, operation)?,
            LoggedChange::Write(write) => self.replay_write(write, data, operation)?,
            LoggedChange::Truncate {
                object,
                offset,
                length,
            } => self.replay_truncate(*object, *offset, *length, operation)?,
            LoggedChange::SetAttributes(attributes) => {
                self.replay_attributes(attributes, operation)?;
            }
            LoggedChange::SetInitialAcl {
                object, entries, ..
            } => self.replay_acl(*object, entries, operation)?,
            LoggedChange::SetAcl { object, acl } => {
                if !acl.fuids.is_empty() || !acl.domains.is_empty() {
                    return Err(RecordError::NotSupported("users of Windows domains").into());
                }
                self.replay_acl(*object, &acl.entries, operation)?;
            }
            LoggedChange::SetXattr {
                object,
                name,
                value,
            } => self.replay_xattr(*object, name.as_bytes(), value, operation)?,
            LoggedChange::CloneRange {
                object,
                offset,
                length,
                block_size,
                pointers,
            } => {
                let range = (*offset, *length, *block_size);
                self.replay_clone(*object, range, pointers, operation)?;
            }
        }
        Ok(())
    }
}

impl FileSystem {
    /// A record whose names were looked up without regard to case means something else where case
    /// matters.
    fn check_case(&self, record: &LogRecord) -> Result<(), RecordError> {
        match record.case_insensitive && self.naming.case != CaseSensitivity::Insensitive {
            true => Err(RecordError::NotSupported(
                "names looked up without regard to case",
            )),
            false => Ok(()),
        }
    }

    /// A transaction for a record: it was promised, so no quota keeps it.
    pub(crate) fn begin_replay(
        &self,
        write_bytes: u64,
        operation: &Operation,
    ) -> Result<OpenTx, PosixError> {
        let txgs = self.txgs.as_ref().ok_or(PosixError::ReadOnly)?;
        Ok(txgs.assign(&TxEstimate::writing(write_bytes), operation)?)
    }

    /// The record is applied with this transaction.
    fn note_replayed(&self, tx: &Tx) {
        if let Some(log) = &self.log {
            log.note_replayed(tx);
        }
    }

    /// A file that a record is about.
    fn node_of_record(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<Node>, RecordError> {
        self.node(id, operation).map_err(failed(id))
    }
}

/// The record fails for this object.
fn failed(object: ObjectId) -> impl Fn(PosixError) -> RecordError {
    move |why| RecordError::Failed { object, why }
}
