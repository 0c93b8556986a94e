//! Exclusive create by verifier (NFS): a repeated request makes the file once.
//!
//! # Problem
//! A client whose answer was lost repeats its request. An exclusive create then fails, since the
//! file exists: the client cannot tell whether it or another client has made it.
//!
//! # Mechanism
//! The client sends a number of its choice, the verifier, which is stored with the file, in the
//! same transaction and the same group of log records: the first half as its access time in
//! seconds, the second as its modification time, as other servers do. A repeated request finds
//! its verifier there, also after a restart. The client sets both times when it has its answer.

use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::types::{Attributes, Credentials, FileKind, NewFile, Timestamp};

/// The number by which a client recognizes its request.
pub type Verifier = [u8; 8];

/// The times of access and modification that store a verifier.
fn times_of(verifier: Verifier) -> [Timestamp; 2] {
    let (first, second) = verifier.split_at(4);
    [first, second].map(|half| {
        let half = half.try_into().expect("half of eight bytes");
        Timestamp {
            seconds: i64::from(u32::from_be_bytes(half)),
            nanoseconds: 0,
        }
    })
}

impl FileSystem {
    /// Makes a regular file, or finds the one that the same request has made before (NFS
    /// `EXCLUSIVE`).
    ///
    /// # Errors
    /// `Exists` when the name leads to another file, and as [`FileSystem::create`].
    pub fn create_exclusive(
        &self,
        credentials: &Credentials,
        parent: ObjectId,
        name: &[u8],
        new: &NewFile<'_>,
        verifier: Verifier,
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        if new.kind != FileKind::Regular {
            return Err(PosixError::Invalid(
                "only regular files are made exclusively",
            ));
        }
        if self.control_entry(parent).is_some() {
            return Err(PosixError::PermissionDenied);
        }
        let times = times_of(verifier);
        match self.create_in(credentials, parent, name, new, Some(times), operation) {
            Err(PosixError::Exists) => {
                let found = self.lookup(credentials, parent, name, operation)?;
                let is_it = found.kind == FileKind::Regular
                    && found.size == 0
                    && [found.accessed, found.modified] == times;
                is_it.then_some(found).ok_or(PosixError::Exists)
            }
            made => made,
        }
    }
}
