//! `READDIR`.
//!
//! Cookies are those of the file system, and two more: 1 and 2 are reserved by the protocol, and
//! `.` and `..` are not listed.

use super::attributes::{self, FILEID, RDATTR_ERROR, Subject, are_about_space};
use super::bitmap::Bitmap;
use super::compound::{Compound, Current, Done};
use super::pseudo::{Below, PseudoFolder};
use super::status::{Status, of_handle};
use crate::file_call::FileCall;
use crate::rpc::record::DATA_BYTES_MAX;
use crate::xdr::{Reader, Writer};
use tarn_engine::files::{DirectoryEntry, FileKind, OperationKind};

/// Bytes of a result without entries: a verifier, no further entry, and whether it is the end.
const AROUND_BYTES: usize = 16;
/// Those of them behind the entries.
const BEHIND_BYTES: usize = 8;
/// Entries that are asked of the file system at a time: about as many fit into a result.
const BATCH: usize = 256;

impl Compound<'_> {
    pub(super) fn read_directory(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let cookie = reader.u64()?;
        let _verifier: [u8; 8] = reader.fixed()?;
        let (_names, most) = (reader.u32()?, reader.u32()?);
        let wanted = Bitmap::decode(reader)?;
        attributes::check_shown(&wanted)?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let most = most.min(DATA_BYTES_MAX);
        if most < AROUND_BYTES {
            return Err(Status::TOOSMALL);
        }
        if matches!(cookie, 1 | 2) {
            return Err(Status::BAD_COOKIE);
        }
        if let Some(Current::Folder(folder)) = self.current.clone() {
            return self.list_folder(&folder, cookie, most, &wanted, out);
        }
        let directory = self.file(OperationKind::ReadDirectory, (cookie, 0))?;
        let found = directory.attributes().map_err(of_handle)?;
        if found.kind != FileKind::Directory {
            return Err(Status::NOTDIR);
        }
        let (files, operation) = (directory.files(), directory.operation());
        let checked = files.check_list(&directory.credentials, directory.id, operation);
        checked.map_err(of_handle)?;
        let begun = out.len();
        out.u64(0);
        let (mut at, mut count, mut is_end) = (cookie, 0, false);
        'full: while !is_end {
            let batch = entries(&directory, at)?;
            is_end = batch.len() < BATCH;
            for entry in batch {
                let before = out.len();
                at = entry.cookie;
                if matches!(&entry.name[..], b"." | b"..") {
                    continue;
                }
                out.bool(true).u64(entry.cookie).opaque(&entry.name);
                self.put_entry(&directory, &entry, &wanted, out);
                if out.len() - begun + BEHIND_BYTES > most {
                    out.truncate(before);
                    is_end = false;
                    break 'full;
                }
                count += 1;
            }
        }
        if count == 0 && !is_end {
            return Err(Status::TOOSMALL);
        }
        out.bool(false).bool(is_end);
        Ok(())
    }

    /// The attributes of an entry: of the root of what it leads into, where that is another file
    /// system.
    fn put_entry(
        &self,
        directory: &FileCall,
        entry: &DirectoryEntry,
        wanted: &Bitmap,
        out: &mut Writer,
    ) {
        let found = match directory.realm.is_boundary(entry.id) {
            true => self.asker.lookup(directory, &entry.name).and_then(|found| {
                let (file, kind) = (found.attributes, OperationKind::GetAttributes);
                let call = self.asker.call_in(found.realm, file.id, kind, (0, 0));
                let acl = attributes::acl_of(&call, file.id, wanted)?;
                Ok((call.realm.clone(), file, acl))
            }),
            false => (|| {
                let file = directory.attributes_of(entry.id)?;
                let acl = attributes::acl_of(directory, file.id, wanted)?;
                Ok((directory.realm.clone(), file, acl))
            })(),
        };
        match found {
            Ok((realm, file, acl)) => {
                let space = are_about_space(wanted).then(|| realm.files().space());
                let subject = Subject::File {
                    realm: &realm,
                    file: &file,
                    space,
                    acl,
                };
                attributes::put(out, wanted, &subject, self.facts());
            }
            Err(why) => {
                let mut set = Bitmap::default();
                let mut values = Writer::new();
                if wanted.has(RDATTR_ERROR) {
                    set.add(RDATTR_ERROR);
                    values.u32(Status::from(why).0);
                }
                if wanted.has(FILEID) {
                    set.add(FILEID);
                    values.u64(entry.id.get());
                }
                set.put(out);
                out.opaque(values.as_slice());
            }
        }
    }

    fn list_folder(
        &self,
        folder: &PseudoFolder,
        cookie: u64,
        most: usize,
        wanted: &Bitmap,
        out: &mut Writer,
    ) -> Done {
        /// Cookies of entries begin behind the reserved ones.
        const FIRST: u64 = 3;
        let begun = out.len();
        out.u64(0);
        let names = folder.names(&self.shares);
        let from = usize::try_from(cookie.saturating_sub(FIRST - 1)).unwrap_or(usize::MAX);
        let (mut is_end, mut count) = (true, 0);
        for (number, name) in (FIRST..)
            .zip(&names)
            .skip(if cookie == 0 { 0 } else { from })
        {
            let before = out.len();
            out.bool(true).u64(number).opaque(name);
            match folder.below(name, &self.shares) {
                Some(Below::Folder(below)) => {
                    attributes::put(out, wanted, &Subject::Folder(&below), self.facts());
                }
                Some(Below::Share(share)) => match self.asker.enter(&self.shares, &share) {
                    Ok(realm) => {
                        let root = realm.files().root();
                        let call = (self.asker).call_in(realm, root, OperationKind::Lookup, (0, 0));
                        let file = call.attributes().map_err(of_handle)?;
                        let space = are_about_space(wanted).then(|| call.files().space());
                        let acl = attributes::acl_of(&call, root, wanted).map_err(of_handle)?;
                        let subject = Subject::File {
                            realm: &call.realm,
                            file: &file,
                            space,
                            acl,
                        };
                        attributes::put(out, wanted, &subject, self.facts());
                    }
                    // A share that this client may not use is not shown.
                    Err(_) => {
                        out.truncate(before);
                        continue;
                    }
                },
                None => {
                    out.truncate(before);
                    continue;
                }
            }
            if out.len() - begun + BEHIND_BYTES > most {
                out.truncate(before);
                is_end = false;
                break;
            }
            count += 1;
        }
        if count == 0 && !is_end {
            return Err(Status::TOOSMALL);
        }
        out.bool(false).bool(is_end);
        Ok(())
    }
}

/// Some entries behind a cookie.
fn entries(directory: &FileCall, cookie: u64) -> Result<Vec<DirectoryEntry>, Status> {
    let mut entries = Vec::new();
    let mut take = |entry| {
        entries.push(entry);
        entries.len() < BATCH
    };
    let read = directory.files().read_directory(
        &directory.credentials,
        directory.id,
        cookie,
        &mut take,
        directory.operation(),
    );
    read.map_err(of_handle)?;
    Ok(entries)
}
