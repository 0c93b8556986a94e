//! Attributes in results, and the procedures that are only about them: `GETATTR`, `SETATTR`,
//! `ACCESS`, `FSSTAT`, `FSINFO`, `PATHCONF`.

use super::arguments::Arguments;
use super::changes::Changed;
use super::status::{Status, of_handle};
use super::{Done, Shape, done};
use crate::file_call::{Asker, FileCall, Realm};
use crate::rpc::record::DATA_BYTES_MAX;
use crate::xdr::Writer;
use tarn_engine::files::{
    Attributes, AttributesBefore, CaseSensitivity, FileKind, OperationKind, Timestamp,
};

/// The largest size of a file.
const SIZE_MAX: u64 = i64::MAX.cast_unsigned();
/// Files can have this many links: the count has 32 bits in the protocol.
const LINKS_MAX: u32 = u32::MAX;

impl Asker<'_> {
    pub(super) fn get_attributes(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let handle = arguments.handle()?;
        let file = self.call(handle, OperationKind::GetAttributes, (0, 0));
        let file = file.map_err(|why| Shape::Bare.fail(why, None))?;
        let found = file
            .files()
            .attributes_for(&file.credentials, file.id, file.operation());
        match found {
            Ok(found) => put(out, &file.realm, &found),
            Err(error) => return Err(Shape::Bare.fail(of_handle(error), None)),
        }
        done()
    }

    pub(super) fn set_attributes(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let handle = arguments.handle()?;
        let mut changes = arguments.attributes()?;
        let guard = arguments.optional(Arguments::time)?;
        let file = self.call(handle, OperationKind::SetAttributes, (0, 0));
        let file = file.map_err(|why| Shape::Wcc.fail(why, None))?;
        if file.realm.access.is_read_only {
            return Err(Shape::Wcc.fail(Status::ROFS, Some(file)));
        }
        let before = match file.attributes() {
            Ok(before) => before,
            Err(error) => return Err(Shape::Wcc.fail(of_handle(error), Some(file))),
        };
        if guard.is_some_and(|guard| seconds(guard) != seconds(before.changed)) {
            return Err(Shape::Wcc.fail(Status::NOT_SYNC, Some(file)));
        }
        changes.is_open = before.uid == file.credentials.uid;
        let (changed, seen) = file.files().witnessed(|| {
            let operation = file.operation();
            file.files()
                .set_attributes(&file.credentials, file.id, &changes, operation)
        });
        if let Err(error) = changed {
            return Err(Shape::Wcc.fail(of_handle(error), Some(file)));
        }
        put_wcc(out, &file, &seen);
        let id = file.id;
        file.changed(id, Shape::Wcc)
    }

    pub(super) fn access(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let (handle, asked) = (arguments.handle()?, arguments.u32()?);
        let file = self.call(handle, OperationKind::Access, (0, 0));
        let file = file.map_err(|why| Shape::Post.fail(why, None))?;
        let found = match file.attributes() {
            Ok(found) => found,
            Err(error) => return Err(Shape::Post.fail(of_handle(error), Some(file))),
        };
        let granted = granted(&file, found.kind, asked);
        put(out.bool(true), &file.realm, &found);
        out.u32(granted);
        done()
    }

    pub(super) fn space(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let handle = arguments.handle()?;
        let file = self.call(handle, OperationKind::FileSystemStatus, (0, 0));
        let file = file.map_err(|why| Shape::Post.fail(why, None))?;
        let space = match file.files().space_at(file.id, file.operation()) {
            Ok(space) => space,
            Err(error) => return Err(Shape::Post.fail(of_handle(error), Some(file))),
        };
        put_present(out, Some(&file));
        out.u64(space.total_bytes);
        out.u64(space.available_bytes).u64(space.available_bytes);
        out.u64(space.total_objects);
        out.u64(space.available_objects)
            .u64(space.available_objects);
        // How long these stay true: not at all.
        out.u32(0);
        done()
    }

    pub(super) fn limits(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        /// Hard links, symbolic links, the same limits for all files, times can be set.
        const PROPERTIES: u32 = 0x1 | 0x2 | 0x8 | 0x10;
        /// Sizes of reads and writes are best multiples of this.
        const MULTIPLE: u32 = 4096;
        let handle = arguments.handle()?;
        let file = self.call(handle, OperationKind::FileSystemStatus, (0, 0));
        let file = file.map_err(|why| Shape::Post.fail(why, None))?;
        put_present(out, Some(&file));
        let data = u32::try_from(DATA_BYTES_MAX).expect("a request has some MiB");
        for _read_or_write in 0..2 {
            out.u32(data).u32(data).u32(MULTIPLE);
        }
        // Preferred size of a list of entries.
        out.u32(data);
        out.u64(SIZE_MAX);
        // Times are exact to the nanosecond.
        out.u32(0).u32(1);
        out.u32(PROPERTIES);
        done()
    }

    pub(super) fn names(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let handle = arguments.handle()?;
        let file = self.call(handle, OperationKind::FileSystemStatus, (0, 0));
        let file = file.map_err(|why| Shape::Post.fail(why, None))?;
        let name_max = file.files().properties().name_bytes_max();
        let is_insensitive = file.files().naming().case != CaseSensitivity::Sensitive;
        put_present(out, Some(&file));
        out.u32(LINKS_MAX);
        out.u32(u32::try_from(name_max).unwrap_or(u32::MAX));
        // Longer names are refused, only root gives files away, case is kept.
        out.bool(true).bool(true).bool(is_insensitive).bool(true);
        done()
    }
}

/// The rights of `ACCESS` that the file grants, of those that are asked for.
pub(crate) fn granted(file: &FileCall, kind: FileKind, asked: u32) -> u32 {
    const READ: u32 = 0x1;
    const LOOKUP: u32 = 0x2;
    const MODIFY: u32 = 0x4;
    const EXTEND: u32 = 0x8;
    const DELETE: u32 = 0x10;
    const EXECUTE: u32 = 0x20;
    let is_directory = kind == FileKind::Directory;
    let changes = match is_directory {
        true => MODIFY | EXTEND | DELETE,
        false => MODIFY | EXTEND,
    };
    let executes = if is_directory { LOOKUP } else { EXECUTE };
    let rights = [(READ, 4), (changes, 2), (executes, 1)];
    let mut granted = 0;
    for (bits, mask) in rights {
        let may = |mask| {
            let operation = file.operation();
            let asked = file
                .files()
                .access(&file.credentials, file.id, mask, operation);
            asked.is_ok()
        };
        let is_refused = bits == changes && file.realm.access.is_read_only;
        if asked & bits != 0 && !is_refused && may(mask) {
            granted |= asked & bits;
        }
    }
    granted
}

/// `fattr3`.
pub(super) fn put(out: &mut Writer, realm: &Realm, file: &Attributes) {
    let kind = match file.kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharacterDevice => 4,
        FileKind::SymbolicLink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    };
    out.u32(kind).u32(file.permissions);
    out.u32(u32::try_from(file.links).unwrap_or(u32::MAX));
    out.u32(file.uid).u32(file.gid);
    out.u64(file.size).u64(file.blocks_512.saturating_mul(512));
    out.u32(file.device.major).u32(file.device.minor);
    out.u64(realm.tree.guid()).u64(file.id.get());
    for time in [file.accessed, file.modified, file.changed] {
        put_time(out, time);
    }
}

/// Bytes of `fattr3`.
pub(super) const ATTRIBUTE_BYTES: usize = 84;

fn put_time(out: &mut Writer, time: Timestamp) {
    let (seconds, nanoseconds) = seconds(time);
    out.u32(seconds).u32(nanoseconds);
}

/// `nfstime3`: seconds of 32 bits. Times before 1970 are shown as 1970.
fn seconds(time: Timestamp) -> (u32, u32) {
    match u32::try_from(time.seconds) {
        Ok(seconds) => (seconds, time.nanoseconds),
        Err(_) if time.seconds < 0 => (0, 0),
        Err(_) => (u32::MAX, time.nanoseconds),
    }
}

/// `post_op_attr` of a file that a handle has led to, as it is now.
pub(super) fn put_present(out: &mut Writer, file: Option<&FileCall>) {
    let found = file.and_then(|file| Some((file, file.attributes().ok()?)));
    match found {
        Some((file, found)) => put(out.bool(true), &file.realm, &found),
        None => drop(out.bool(false)),
    }
}

/// `wcc_data` of a file, from what an operation has changed. Where it has not changed the file, the
/// attributes are those of now, and there are none from before.
pub(super) fn put_wcc(out: &mut Writer, file: &FileCall, seen: &tarn_engine::files::Witnessed) {
    match seen.of(file.id) {
        Some(both) => {
            put_before(out.bool(true), &both.before);
            put(out.bool(true), &file.realm, &both.after);
        }
        None => put_present(out.bool(false), Some(file)),
    }
}

/// `wcc_attr`.
fn put_before(out: &mut Writer, before: &AttributesBefore) {
    out.u64(before.size);
    put_time(out, before.modified);
    put_time(out, before.changed);
}

impl FileCall {
    /// The end of a procedure that has changed this object, or names in it: it is replied to when
    /// that is durable.
    pub(super) fn changed(self, id: tarn_engine::files::ObjectId, shape: Shape) -> Done {
        Changed { file: self, id }.replied_when_durable(shape)
    }
}
