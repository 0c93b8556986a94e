//! File handles: bytes that name a file for a client that remembers nothing else.
//!
//! ```text
//!   0   version, 1           8   guid of the dataset, or of the snapshot
//!   1   zeros                16  object
//!                            24  generation of the object
//! ```
//! Numbers are little-endian. A handle stays good over restarts, renames of the file and of the
//! dataset, and import on another machine. It is stale when the file was freed: an object that is
//! used again has another generation, which is the txg in which the file was made.

use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::types::Attributes;

/// The only version.
const VERSION: u8 = 1;

/// The name of a file that a client keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle {
    /// The guid of the dataset or snapshot that it is in.
    pub dataset: u64,
    /// Its object.
    pub object: ObjectId,
    /// Tells it from earlier files of this object.
    pub generation: u64,
}

/// Why bytes are no handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// A handle has [`FileHandle::BYTES`] bytes.
    #[error("a file handle of {bytes} bytes, not {}", FileHandle::BYTES)]
    Length {
        /// How many these are.
        bytes: usize,
    },
    /// It is of another version, or of another program.
    #[error("a file handle of version {version}, not {}", VERSION)]
    Version {
        /// The version found.
        version: u8,
    },
    /// Bytes that must be zeros are not.
    #[error("a file handle with bytes set that mean nothing")]
    Unknown,
}

impl FileHandle {
    /// How many bytes a handle has. NFS allows 64 (version 3) and 128 (version 4).
    pub const BYTES: usize = 32;

    /// The handle of a file. `dataset` is the guid of its dataset or snapshot.
    pub fn of(dataset: u64, file: &Attributes) -> FileHandle {
        FileHandle {
            dataset,
            object: file.id,
            generation: file.generation,
        }
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; FileHandle::BYTES] {
        let mut bytes = [0; FileHandle::BYTES];
        bytes[0] = VERSION;
        bytes[8..16].copy_from_slice(&self.dataset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.object.get().to_le_bytes());
        bytes[24..].copy_from_slice(&self.generation.to_le_bytes());
        debug_assert_eq!(
            FileHandle::decode(&bytes),
            Ok(*self),
            "a handle leads to its file"
        );
        bytes
    }

    /// From bytes that a client has sent.
    ///
    /// # Errors
    /// The bytes are no valid handle.
    pub fn decode(bytes: &[u8]) -> Result<FileHandle, HandleError> {
        let bytes: &[u8; FileHandle::BYTES] = bytes
            .try_into()
            .map_err(|_| HandleError::Length { bytes: bytes.len() })?;
        if bytes[0] != VERSION {
            return Err(HandleError::Version { version: bytes[0] });
        }
        if bytes[1..8].iter().any(|byte| *byte != 0) {
            return Err(HandleError::Unknown);
        }
        let word = |at: usize| {
            let word = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(word)
        };
        Ok(FileHandle {
            dataset: word(8),
            object: ObjectId::from(word(16)),
            generation: word(24),
        })
    }
}

impl FileSystem {
    /// The file that a handle names, which is of the dataset with this guid.
    ///
    /// # Errors
    /// `Stale` when that file does not exist any more, or is in another dataset; or what could not
    /// be read.
    #[doc(alias = "zfs_vget")]
    pub fn find_by_handle(
        &self,
        dataset: u64,
        handle: &FileHandle,
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        if handle.dataset != dataset {
            return Err(PosixError::Stale);
        }
        let found = match self.attributes(handle.object, operation) {
            Err(PosixError::NotFound) => return Err(PosixError::Stale),
            found => found?,
        };
        // Extended attributes and their directories are files that no name leads to.
        let is_hidden = ZnodeFlags::from_word(found.flags).has(ZnodeFlags::XATTR);
        match found.generation == handle.generation && !is_hidden {
            true => Ok(found),
            false => Err(PosixError::Stale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_handle_is_read_back_from_its_bytes(dataset: u64, object: u64, generation: u64) {
            let object = ObjectId::from(object);
            let handle = FileHandle { dataset, object, generation };
            prop_assert_eq!(FileHandle::decode(&handle.encode()), Ok(handle));
        }

        #[test]
        fn other_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
            if let Ok(handle) = FileHandle::decode(&bytes) {
                prop_assert_eq!(&handle.encode()[..], &bytes[..]);
            }
        }
    }
}
