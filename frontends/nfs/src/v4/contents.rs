//! Contents and attributes of the current file: `READ`, `WRITE`, `COMMIT`, `GETATTR`, `SETATTR`,
//! `ACCESS`, `VERIFY`, `SEEK`, `ALLOCATE`, `DEALLOCATE`, `CLONE`, `COPY`.

use super::attributes::{self, Subject, are_about_space};
use super::bitmap::Bitmap;
use super::compound::{Compound, Current, Done};
use super::names::sync;
use super::status::{Status, of_handle};
use crate::file_call::FileCall;
use crate::rights::{check_read, check_write};
use crate::rpc::record::DATA_BYTES_MAX;
use crate::xdr::{Reader, Writer, padding_of};
use tarn_engine::files::{Allocate, FileKind, OperationKind, PosixError, Seek, WriteAt};

const FILE_SYNC: u32 = 2;

impl Compound<'_> {
    pub(super) fn get_attributes(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let wanted = Bitmap::decode(reader)?;
        attributes::check_shown(&wanted)?;
        self.put_attributes(&wanted, out)
    }

    fn put_attributes(&self, wanted: &Bitmap, out: &mut Writer) -> Done {
        if let Some(Current::Folder(folder)) = &self.current {
            attributes::put(out, wanted, &Subject::Folder(folder), self.facts());
            return Ok(());
        }
        let file = self.file(OperationKind::GetAttributes, (0, 0))?;
        let (files, operation) = (file.files(), file.operation());
        let found = files.attributes_for(&file.credentials, file.id, operation);
        let found = found.map_err(of_handle)?;
        let space = match are_about_space(wanted) {
            true => Some(files.space_at(file.id, operation).map_err(of_handle)?),
            false => None,
        };
        let acl = attributes::acl_of(&file, file.id, wanted).map_err(of_handle)?;
        let subject = Subject::File {
            realm: &file.realm,
            file: &found,
            space,
            acl,
        };
        attributes::put(out, wanted, &subject, self.facts());
        Ok(())
    }

    /// `VERIFY`, or `NVERIFY` where they are to differ.
    pub(super) fn verify(&mut self, reader: &mut Reader<'_>, differ: bool) -> Done {
        let (set, values) = attributes::decode_raw(reader)?;
        if !set.is_within(&self.facts().supported()) {
            return Err(Status::ATTRNOTSUPP);
        }
        attributes::check_shown(&set)?;
        if set.has(attributes::RDATTR_ERROR) {
            return Err(Status::INVAL);
        }
        let mut present = Writer::new();
        self.put_attributes(&set, &mut present)?;
        let mut expected = Writer::new();
        set.put(&mut expected);
        expected.opaque(values);
        let is_same = present.as_slice() == expected.as_slice();
        match (is_same, differ) {
            (true, false) | (false, true) => Ok(()),
            (true, true) => Err(Status::SAME),
            (false, false) => Err(Status::NOT_SAME),
        }
    }

    pub(super) fn set_attributes(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let state = self.decode_state(reader)?;
        let wanted = attributes::decode(reader, self.facts())?;
        let (acl, set, mut wanted) = (wanted.acl, wanted.set, wanted.attributes);
        let file = self.writable(OperationKind::SetAttributes)?;
        let present = file.attributes().map_err(of_handle)?;
        if wanted.size.is_some() {
            match present.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(Status::ISDIR),
                _ => return Err(Status::INVAL),
            }
            let is_open = self.check_state(state, 2)?;
            wanted.is_open = is_open || present.uid == file.credentials.uid;
        }
        let _acting = self.act_with_state(&file.realm, state);
        if !set.is_within(&attributes::ONLY_ACL) {
            let (files, operation) = (file.files(), file.operation());
            let changed = files.set_attributes(&file.credentials, file.id, &wanted, operation);
            changed.map_err(of_handle)?;
        }
        if let Some(list) = acl {
            // After the mode, which a list changes.
            attributes::set_acl(&file, file.id, list).map_err(of_handle)?;
        }
        if !set.is_empty() {
            sync(&file, file.id)?;
        }
        set.put(out);
        Ok(())
    }

    pub(super) fn access(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        const READ: u32 = 0x1;
        const LOOKUP: u32 = 0x2;
        const MODIFY: u32 = 0x4;
        const KNOWN: u32 = 0x3f;
        /// All but to execute; all but to look up and to delete names.
        const OF_DIRECTORIES: u32 = 0x1f;
        const OF_FILES: u32 = 0x2d;
        /// To read, list and change extended attributes (RFC 8276).
        const READS_THEM: u32 = 0x40 | 0x100;
        const CHANGES_THEM: u32 = 0x80;
        let known = if self.minor < 2 {
            KNOWN
        } else {
            KNOWN | READS_THEM | CHANGES_THEM
        };
        let asked = reader.u32()? & known;
        if let Some(Current::Folder(_)) = &self.current {
            out.u32(asked).u32(asked & (READ | LOOKUP));
            return Ok(());
        }
        let file = self.file(OperationKind::Access, (0, 0))?;
        let kind = file.attributes().map_err(of_handle)?.kind;
        let meaningful = match kind {
            FileKind::Directory => OF_DIRECTORIES,
            _ => OF_FILES,
        };
        let asked = asked & (meaningful | READS_THEM | CHANGES_THEM);
        let mut granted = crate::v3::granted(&file, kind, asked & KNOWN);
        for (theirs, needed) in [(READS_THEM, READ), (CHANGES_THEM, MODIFY)] {
            if asked & theirs != 0 && crate::v3::granted(&file, kind, needed) != 0 {
                granted |= asked & theirs;
            }
        }
        out.u32(asked).u32(granted);
        Ok(())
    }

    pub(super) fn read(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let state = self.decode_state(reader)?;
        let (offset, count) = (reader.u64()?, reader.u32()?);
        let file = self.file(OperationKind::Read, (offset, u64::from(count)))?;
        let found = regular(&file)?;
        if !self.check_state(state, 1)? {
            check_read(&file).map_err(of_handle)?;
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let count = count.min(DATA_BYTES_MAX);
        let (files, operation) = (file.files(), file.operation());
        let data = files.read(&file.credentials, file.id, offset, count, operation);
        let data = data.map_err(of_handle)?;
        let length = u32::try_from(data.len()).expect("it is no more than was asked for");
        let end = offset.saturating_add(u64::from(length));
        out.bool(end >= found).u32(length);
        let padding = padding_of(data.len());
        self.data.push((out.len(), data));
        out.fixed(&[0; 3][..0]);
        out.pad(padding);
        Ok(())
    }

    pub(super) fn write(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let state = self.decode_state(reader)?;
        let (offset, stable) = (reader.u64()?, reader.u32()?);
        let data = reader.opaque(DATA_BYTES_MAX)?;
        if stable > FILE_SYNC {
            return Err(Status::BADXDR);
        }
        let length = u64::try_from(data.len()).unwrap_or_default();
        let file = self.file(OperationKind::Write, (offset, length))?;
        if file.realm.access.is_read_only {
            return Err(Status::ROFS);
        }
        regular(&file)?;
        if !self.check_state(state, 2)? {
            check_write(&file).map_err(of_handle)?;
        }
        let _acting = self.act_with_state(&file.realm, state);
        let (files, operation) = (file.files(), file.operation());
        let at = WriteAt::Offset(offset);
        let written = files.write(&file.credentials, file.id, at, data, operation);
        let written = written.map_err(of_handle)?;
        if stable > 0 {
            sync(&file, file.id)?;
        }
        out.u32(u32::try_from(written).expect("it is no more than was sent"));
        out.u32(if stable > 0 { FILE_SYNC } else { 0 });
        out.fixed(&file.realm.share.shared.verifier);
        Ok(())
    }

    pub(super) fn commit(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let (offset, count) = (reader.u64()?, reader.u32()?);
        let file = self.file(OperationKind::Sync, (offset, u64::from(count)))?;
        regular(&file)?;
        sync(&file, file.id)?;
        out.fixed(&file.realm.share.shared.verifier);
        Ok(())
    }

    pub(super) fn seek(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let state = self.decode_state(reader)?;
        let offset = reader.u64()?;
        let what = match reader.u32()? {
            0 => Seek::Data,
            1 => Seek::Hole,
            _ => return Err(Status::UNION_NOTSUPP),
        };
        let file = self.file(OperationKind::Seek, (offset, 0))?;
        let size = regular(&file)?;
        self.check_state(state, 1)?;
        if offset >= size {
            return Err(Status::NXIO);
        }
        match file.files().seek(file.id, offset, what, file.operation()) {
            Ok(found) => drop(out.bool(found >= size).u64(found)),
            // There is no data from there on.
            Err(PosixError::BeyondEnd) => drop(out.bool(true).u64(size)),
            Err(error) => return Err(of_handle(error)),
        }
        Ok(())
    }

    pub(super) fn allocate(&mut self, reader: &mut Reader<'_>, what: Allocate) -> Done {
        let state = self.decode_state(reader)?;
        let (offset, length) = (reader.u64()?, reader.u64()?);
        let file = self.writable(OperationKind::Allocate)?;
        regular(&file)?;
        if !self.check_state(state, 2)? {
            check_write(&file).map_err(of_handle)?;
        }
        let (files, operation) = (file.files(), file.operation());
        let done = files.allocate(&file.credentials, file.id, what, offset, length, operation);
        done.map_err(of_handle)?;
        sync(&file, file.id)
    }

    /// `CLONE`: shares the blocks of a range.
    pub(super) fn clone_range(&mut self, reader: &mut Reader<'_>) -> Done {
        let (source, target) = (StateIds::decode(self, reader)?, ());
        let () = target;
        let (from, to, count) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (file, into) = self.two_files(source)?;
        let size = regular(&file)?;
        let count = match count {
            0 => size.saturating_sub(from),
            count if from.saturating_add(count) > size => return Err(Status::INVAL),
            count => count,
        };
        let mut done = 0;
        while done < count {
            let (files, operation) = (into.files(), into.operation());
            let (a, b) = ((file.id, from + done), (into.id, to.saturating_add(done)));
            let copied = files.copy_range(&into.credentials, a, b, count - done, operation)?;
            if copied == 0 {
                return Err(Status::IO);
            }
            done += copied;
        }
        sync(&into, into.id)
    }

    pub(super) fn copy(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        /// Most bytes of one copy: the client goes on where it ended.
        const COPIED_MAX: u64 = 64 << 20;
        let states = StateIds::decode(self, reader)?;
        let (from, to, count) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (_consecutive, _synchronous) = (reader.bool()?, reader.bool()?);
        if reader.u32()? > 0 {
            // From another server.
            return Err(Status::NOTSUPP);
        }
        let (file, into) = self.two_files(states)?;
        let size = regular(&file)?;
        if count > 0 && from.saturating_add(count) > size {
            return Err(Status::INVAL);
        }
        let count = match count {
            0 => size.saturating_sub(from),
            count => count,
        };
        let (files, operation) = (into.files(), into.operation());
        let ranges = ((file.id, from), (into.id, to));
        let count = count.min(COPIED_MAX);
        let copied = files.copy_range(&into.credentials, ranges.0, ranges.1, count, operation)?;
        sync(&into, into.id)?;
        // It is done, and durable.
        out.u32(0).u64(copied).u32(FILE_SYNC);
        out.fixed(&into.realm.share.shared.verifier);
        out.bool(true).bool(true);
        Ok(())
    }

    /// The saved file, which is read, and the current one, which is written.
    fn two_files(&mut self, states: StateIds) -> Result<(FileCall, FileCall), Status> {
        let into = self.writable(OperationKind::Copy)?;
        regular(&into)?;
        if !self.check_state(states.target, 2)? {
            check_write(&into).map_err(of_handle)?;
        }
        let file = self.saved_file(OperationKind::Copy)?;
        regular(&file)?;
        check_read(&file).map_err(of_handle)?;
        match file.realm.is_same(&into.realm) {
            true => Ok((file, into)),
            false => Err(Status::XDEV),
        }
    }
}

/// The states of both files of a copy.
struct StateIds {
    target: super::compound::StateId,
}

impl StateIds {
    fn decode(compound: &Compound<'_>, reader: &mut Reader<'_>) -> Result<StateIds, Status> {
        let _source = super::compound::StateId::decode(reader)?;
        Ok(StateIds {
            target: compound.decode_state(reader)?,
        })
    }
}

/// The size of the current file, which must be regular.
pub(super) fn regular(file: &FileCall) -> Result<u64, Status> {
    let found = file.attributes().map_err(of_handle)?;
    match found.kind {
        FileKind::Regular => Ok(found.size),
        FileKind::Directory => Err(Status::ISDIR),
        FileKind::SymbolicLink => Err(Status::SYMLINK),
        _ => Err(Status::INVAL),
    }
}
