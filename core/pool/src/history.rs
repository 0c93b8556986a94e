//! The pool's history, read from its ring.

use crate::directory::Directory;
use crate::error::PoolError;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::history::{HistoryHead, Piece};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::pool_directory as name;
use tarn_probe::Operation;

/// Bytes of the ring that are read: its newest records. A guess: some hundred thousand commands,
/// which take several times as much in an answer.
pub const READ_BYTES_MAX: u64 = 32 << 20;

/// All records, the oldest first; of a larger ring, the first records and the newest. A malformed
/// record ends the list, since the next one cannot be found.
pub fn read(directory: Directory<'_>, operation: &Operation) -> Result<Vec<NvList>, PoolError> {
    let Some(id) = directory.find(name::HISTORY)? else {
        return Ok(Vec::new());
    };
    let mut head: HistoryHead = directory.bonus(id)?;
    let object = directory.object(id)?;
    let corrupt = |cause| PoolError::Corrupt { object: id, cause };
    head.check().map_err(corrupt)?;
    let read = |pieces: Vec<Piece>| {
        let mut bytes = Vec::new();
        for piece in pieces {
            let start = bytes.len();
            bytes.resize(start + narrow(piece.length), 0);
            object
                .read(piece.offset, &mut bytes[start..], operation)
                .map_err(|cause| PoolError::Object { object: id, cause })?;
        }
        Ok::<_, PoolError>(bytes)
    };
    if head.creation_end > READ_BYTES_MAX {
        return Ok(Vec::new());
    }
    let left_out = head.leave_out_oldest(READ_BYTES_MAX, read)?;
    left_out.map_err(corrupt)?;
    let bytes = read(head.pieces())?;
    Ok(tarn_ondisk::history::records(&bytes)
        .map_while(Result::ok)
        .collect())
}
