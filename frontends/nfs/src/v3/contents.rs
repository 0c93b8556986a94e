//! Contents of files: `READ`, `WRITE`, `COMMIT`, `READLINK`.

use super::arguments::Arguments;
use super::attributes::{put, put_present, put_wcc};
use super::status::of_handle;
use super::{Done, Outcome, Shape, done};
use crate::file_call::Asker;
use crate::rights::{check_read, check_write};
use crate::rpc::record::DATA_BYTES_MAX;
use crate::xdr::Writer;
use tarn_engine::files::{OperationKind, WriteAt};

const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;

impl Asker<'_> {
    pub(super) fn read(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let read = arguments.read()?;
        let count = usize::try_from(read.count).unwrap_or(usize::MAX);
        let count = count.min(DATA_BYTES_MAX);
        let range = (read.offset, u64::from(read.count));
        let file = self.call(read.file, OperationKind::Read, range);
        let file = file.map_err(|why| Shape::Post.fail(why, None))?;
        let data = check_read(&file).and_then(|()| {
            let (files, operation) = (file.files(), file.operation());
            files.read(&file.credentials, file.id, read.offset, count, operation)
        });
        let found = data.and_then(|data| Ok((data, file.attributes()?)));
        let (data, found) = match found {
            Ok(found) => found,
            Err(error) => return Err(Shape::Post.fail(of_handle(error), Some(file))),
        };
        put(out.bool(true), &file.realm, &found);
        let length = u32::try_from(data.len()).expect("it is no more than was asked for");
        let end = read.offset.saturating_add(u64::from(length));
        out.u32(length).bool(end >= found.size).u32(length);
        Ok(Outcome::Done(data))
    }

    pub(super) fn write(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let write = arguments.write()?;
        let length = u64::try_from(write.data.len()).unwrap_or_default();
        let file = self.call(write.file, OperationKind::Write, (write.offset, length));
        let file = file.map_err(|why| Shape::Wcc.fail(why, None))?;
        if let Err(error) = check_write(&file) {
            return Err(Shape::Wcc.fail(of_handle(error), Some(file)));
        }
        let (written, seen) = file.files().witnessed(|| {
            let (at, operation) = (WriteAt::Offset(write.offset), file.operation());
            file.files()
                .write(&file.credentials, file.id, at, write.data, operation)
        });
        let written = match written {
            Ok(written) => written,
            Err(error) => return Err(Shape::Wcc.fail(of_handle(error), Some(file))),
        };
        put_wcc(out, &file, &seen);
        out.u32(u32::try_from(written).expect("it is no more than was sent"));
        out.u32(if write.is_stable { FILE_SYNC } else { UNSTABLE });
        out.fixed(&file.realm.share.shared.verifier);
        match write.is_stable {
            true => {
                let id = file.id;
                file.changed(id, Shape::Wcc)
            }
            false => done(),
        }
    }

    pub(super) fn commit(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        // The whole file is made durable, whatever range is named.
        let (handle, offset, count) = (arguments.handle()?, arguments.u64()?, arguments.u32()?);
        let file = self.call(handle, OperationKind::Sync, (offset, u64::from(count)));
        let file = file.map_err(|why| Shape::Wcc.fail(why, None))?;
        put_present(out.bool(false), Some(&file));
        out.fixed(&file.realm.share.shared.verifier);
        let id = file.id;
        file.changed(id, Shape::Wcc)
    }

    pub(super) fn read_link(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let handle = arguments.handle()?;
        let file = self.call(handle, OperationKind::ReadLink, (0, 0));
        let file = file.map_err(|why| Shape::Post.fail(why, None))?;
        let target = file
            .files()
            .read_link(&file.credentials, file.id, file.operation());
        match target {
            Ok(target) => {
                put_present(out, Some(&file));
                out.opaque(&target);
                done()
            }
            Err(error) => Err(Shape::Post.fail(of_handle(error), Some(file))),
        }
    }
}
