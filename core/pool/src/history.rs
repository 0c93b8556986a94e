//! The pool's history, read from its ring.

use crate::directory::Directory;
use crate::error::PoolError;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::history::HistoryHead;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::pool_directory as name;
use tarn_probe::Operation;

/// Largest ring that is read at once.
const RING_BYTES_MAX: u64 = tarn_ondisk::history::SIZE_MAX;

/// All records, the oldest first. A record that makes no sense ends the list: what follows it cannot be found.
pub fn read(directory: Directory<'_>, operation: &Operation) -> Result<Vec<NvList>, PoolError> {
    let Some(id) = directory.find(name::HISTORY)? else {
        return Ok(Vec::new());
    };
    let head: HistoryHead = directory.bonus(id)?;
    let object = directory.object(id)?;
    let corrupt = |cause| PoolError::Corrupt { object: id, cause };
    head.check().map_err(corrupt)?;
    let mut bytes = Vec::new();
    for piece in head.pieces() {
        if piece.length > RING_BYTES_MAX {
            break;
        }
        let start = bytes.len();
        bytes.resize(start + narrow(piece.length), 0);
        object
            .read(piece.offset, &mut bytes[start..], operation)
            .map_err(|cause| PoolError::Object { object: id, cause })?;
    }
    Ok(tarn_ondisk::history::records(&bytes)
        .map_while(Result::ok)
        .collect())
}
