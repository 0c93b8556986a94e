//! File handles as clients have them.
//!
//! ```text
//!   0    a handle of `tarn_engine::files`: guid of the dataset or snapshot, object, generation
//!   32   only of a file in a snapshot: guid of the dataset that has the snapshot
//!   40   only of a file in a snapshot: number of the snapshot's dataset in the MOS
//! ```
//! Numbers are little-endian. The guid of a snapshot does not lead to it, so handles of its files
//! carry where it is found; the guid proves that it is still the same one.

use tarn_engine::files::{FileHandle, ObjectId};

/// Bytes of a handle of a file in a snapshot. NFS version 3 takes 64.
pub const HANDLE_BYTES_MAX: usize = FileHandle::BYTES + 16;

/// A file as a client names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    /// The file.
    pub file: FileHandle,
    /// The snapshot that it is in, if it is in one.
    pub snapshot: Option<InSnapshot>,
}

/// Where a snapshot is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InSnapshot {
    /// The guid of the dataset that has it.
    pub head: u64,
    /// The number of the snapshot's dataset.
    pub dataset: ObjectId,
}

/// Bytes that are no handle of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no file handle of this server")]
pub struct BadHandle;

impl Handle {
    /// The guid of the dataset whose share it belongs to.
    pub fn share(&self) -> u64 {
        self.snapshot
            .map_or(self.file.dataset, |within| within.head)
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.file.encode().to_vec();
        if let Some(within) = &self.snapshot {
            bytes.extend(within.head.to_le_bytes());
            bytes.extend(within.dataset.get().to_le_bytes());
        }
        bytes
    }

    /// From bytes that a client has sent.
    ///
    /// # Errors
    /// They are no handle.
    pub fn decode(bytes: &[u8]) -> Result<Handle, BadHandle> {
        let (file, rest) = bytes.split_at_checked(FileHandle::BYTES).ok_or(BadHandle)?;
        let file = FileHandle::decode(file).map_err(|_| BadHandle)?;
        let snapshot = match rest.as_chunks() {
            ([], []) => None,
            ([head, dataset], []) => Some(InSnapshot {
                head: u64::from_le_bytes(*head),
                dataset: ObjectId::from(u64::from_le_bytes(*dataset)),
            }),
            _ => return Err(BadHandle),
        };
        Ok(Handle { file, snapshot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_read_back_and_other_bytes_are_refused() {
        let file = FileHandle {
            dataset: 7,
            object: ObjectId::from(34),
            generation: 5,
        };
        let within = InSnapshot {
            head: 9,
            dataset: ObjectId::from(387),
        };
        for (snapshot, share) in [(None, 7), (Some(within), 9)] {
            let handle = Handle { file, snapshot };
            let bytes = handle.encode();
            assert_eq!(Handle::decode(&bytes), Ok(handle));
            assert_eq!(handle.share(), share);
            assert_eq!(Handle::decode(&bytes[1..]), Err(BadHandle));
            assert_eq!(Handle::decode(&[&bytes[..], &[0]].concat()), Err(BadHandle));
        }
        assert_eq!(Handle::decode(&[]), Err(BadHandle));
        assert_eq!(Handle::decode(&[0xff; HANDLE_BYTES_MAX]), Err(BadHandle));
    }
}
