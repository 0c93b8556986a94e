//! `READ_PLUS`: contents without what is not there. Holes are told by their places, and their zeros
//! are not sent.

use super::compound::{Compound, Done};
use super::contents::regular;
use super::status::{Status, of_handle};
use crate::file_call::FileCall;
use crate::rights::check_read;
use crate::rpc::record::DATA_BYTES_MAX;
use crate::xdr::{Reader, Writer, padding_of};
use tarn_engine::files::{OperationKind, PosixError, Seek};

/// `NFS4_CONTENT_DATA` and `NFS4_CONTENT_HOLE`.
const DATA: u32 = 0;
const HOLE: u32 = 1;

/// Most parts of a result; the client asks for what follows.
const PARTS_MAX: u32 = 16;

impl Compound<'_> {
    pub(super) fn read_plus(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let state = self.decode_state(reader)?;
        let (offset, count) = (reader.u64()?, reader.u32()?);
        let file = self.file(OperationKind::Read, (offset, u64::from(count)))?;
        let size = regular(&file)?;
        if !self.check_state(state, 1)? {
            check_read(&file).map_err(of_handle)?;
        }
        let most = u64::try_from(DATA_BYTES_MAX).unwrap_or(u64::MAX);
        let end = offset.saturating_add(u64::from(count).min(most)).min(size);
        let begun = out.len();
        out.bool(false).u32(0);
        let (mut at, mut parts) = (offset, 0);
        while at < end && parts < PARTS_MAX {
            let data_at = data_from(&file, at, size)?.min(end);
            at = match data_at > at {
                true => {
                    out.u32(HOLE).u64(at).u64(data_at - at);
                    data_at
                }
                false => self.put_data(&file, at, end, out)?,
            };
            parts += 1;
        }
        let is_end = at >= size;
        out.put_u32(begun, u32::from(is_end));
        out.put_u32(begun + 4, parts);
        Ok(())
    }

    /// Appends data from a place where there is some, up to the next hole; gives where they end.
    fn put_data(
        &mut self,
        file: &FileCall,
        at: u64,
        end: u64,
        out: &mut Writer,
    ) -> Result<u64, Status> {
        let (files, operation) = (file.files(), file.operation());
        let hole = files.seek(file.id, at, Seek::Hole, operation);
        let until = hole.map_err(of_handle)?.clamp(at.saturating_add(1), end);
        let count = usize::try_from(until - at).unwrap_or(usize::MAX);
        let data = files.read(&file.credentials, file.id, at, count, operation);
        let data = data.map_err(of_handle)?;
        let length = u32::try_from(data.len()).expect("it is no more than was asked for");
        if length == 0 {
            // The file became shorter meanwhile.
            return Err(Status::DELAY);
        }
        out.u32(DATA).u64(at).u32(length);
        let padding = padding_of(data.len());
        self.data.push((out.len(), data));
        out.pad(padding);
        Ok(at + u64::from(length))
    }
}

/// Where data begin, from a place on; the end of the file where there are none.
fn data_from(file: &FileCall, at: u64, size: u64) -> Result<u64, Status> {
    match file.files().seek(file.id, at, Seek::Data, file.operation()) {
        Ok(found) => Ok(found),
        Err(PosixError::BeyondEnd) => Ok(size),
        Err(error) => Err(of_handle(error)),
    }
}
