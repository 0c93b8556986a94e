//! Finding data and holes (`lseek` with `SEEK_DATA`, `SEEK_HOLE`).

use tarn_ondisk::units::{BlockId, ObjectId};
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::holders::TO_END;
use crate::types::{FileKind, Seek};

impl FileSystem {
    /// The first offset from `offset` on where there is data, or a hole. The end of the file counts
    /// as a hole.
    ///
    /// # Errors
    /// `BeyondEnd` when there is none from there on, `Invalid` for a file without contents, or what
    /// could not be read.
    pub fn seek(
        &self,
        id: ObjectId,
        offset: u64,
        what: Seek,
        operation: &Operation,
    ) -> Result<u64, PosixError> {
        let node = self.node(id, operation)?;
        if node.facts().kind() != FileKind::Regular {
            return Err(PosixError::Invalid(
                "only regular files have data and holes",
            ));
        }
        self.have_written_back(id, offset, TO_END, operation);
        let _content = node.content.read();
        let size = node.facts().size;
        if offset >= size {
            return Err(PosixError::BeyondEnd);
        }
        let block_size = node.object.block_size().get();
        let from = BlockId::from(offset / block_size);
        let found = match what {
            Seek::Data => node.object.next_data(from, operation)?,
            Seek::Hole => Some(node.object.next_hole(from, operation)?),
        };
        let found = found.map(|block| block.get().saturating_mul(block_size).max(offset));
        match what {
            Seek::Data => found
                .filter(|data| *data < size)
                .ok_or(PosixError::BeyondEnd),
            Seek::Hole => Ok(found.unwrap_or(size).min(size)),
        }
    }
}
