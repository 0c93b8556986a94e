//! Replay of the intent log's records: implements the door [`Replay`].
//!
//! # Mechanism
//! Each record has the changes of one operation, and is applied by the functions of that operation,
//! without its checks of permissions: it was permitted when it was made. Files get the numbers,
//! generations and times that they had. Times of change that a record does not have are those of
//! the replay.
//!
//! A record may be of any version of OpenZFS, and may be damaged: one that is invalid or does not
//! fit the file system is refused, and has changed nothing then.
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
    /// The operation failed.
    #[error("object {object}: {why}")]
    Failed {
        /// The object that it is about.
        object: ObjectId,
        /// Why.
        why: PosixError,
    },
    /// The record is invalid.
    #[error("it makes no sense: {0}")]
    Nonsense(&'static str),
    /// The record needs something that is not supported. OpenZFS may support it.
    #[error("it needs {0}, which is not supported")]
    NotSupported(&'static str),
    /// Its access control list is damaged.
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
    /// Refuses a record whose names were looked up without regard to case, in a file system where
    /// case matters.
    fn check_case(&self, record: &LogRecord) -> Result<(), RecordError> {
        match record.case_insensitive && self.naming.case != CaseSensitivity::Insensitive {
            true => Err(RecordError::NotSupported(
                "names looked up without regard to case",
            )),
            false => Ok(()),
        }
    }

    /// A transaction for a record, which no quota refuses.
    pub(crate) fn begin_replay(
        &self,
        write_bytes: u64,
        operation: &Operation,
    ) -> Result<OpenTx, PosixError> {
        let txgs = self.txgs.as_ref().ok_or(PosixError::ReadOnly)?;
        Ok(txgs.assign(&TxEstimate::writing(write_bytes), operation)?)
    }

    /// Notes that this transaction applies the record.
    fn note_replayed(&self, tx: &Tx) {
        if let Some(log) = &self.log {
            log.note_replayed(tx);
        }
    }

    /// The file of a record.
    fn node_of_record(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<Node>, RecordError> {
        self.node(id, operation).map_err(failed(id))
    }
}

/// The error of a record for this object.
fn failed(object: ObjectId) -> impl Fn(PosixError) -> RecordError {
    move |why| RecordError::Failed { object, why }
}
