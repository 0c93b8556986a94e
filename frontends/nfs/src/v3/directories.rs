//! Lists of entries: `READDIR` and `READDIRPLUS`.
//!
//! A cookie is that of the file system: it stays good while entries come and go. So the verifier of
//! cookies is always zero, and none is refused for what has changed.

use super::arguments::Arguments;
use super::attributes::{ATTRIBUTE_BYTES, put, put_present};
use super::status::of_handle;
use super::{Done, Shape, done};
use crate::file_call::{Asker, FileCall};
use crate::handle::HANDLE_BYTES_MAX;
use crate::rpc::record::DATA_BYTES_MAX;
use crate::v3::status::Status;
use crate::xdr::{Writer, padding_of};
use tarn_engine::files::{DirectoryEntry, OperationKind, PosixError};

/// Bytes of a result around its entries: status, attributes of the directory, verifier, end of the
/// list, and the mark of the end.
const AROUND_BYTES: usize = 4 + 4 + ATTRIBUTE_BYTES + 8 + 4 + 4;
/// Bytes of an entry beside its name: mark, file id, length, cookie.
const ENTRY_BYTES: usize = 4 + 8 + 4 + 8;
/// Bytes that `READDIRPLUS` adds: attributes and handle, each with its mark, and a length.
const PLUS_BYTES: usize = 4 + ATTRIBUTE_BYTES + 4 + 4 + HANDLE_BYTES_MAX;

/// The arguments of both.
struct List<'a> {
    directory: &'a [u8],
    cookie: u64,
    /// Most bytes of the result.
    bytes_max: usize,
    /// Most bytes of names and cookies.
    names_max: usize,
    is_plus: bool,
}

impl Asker<'_> {
    pub(super) fn read_directory(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let (directory, cookie) = (arguments.handle()?, arguments.u64()?);
        let _verifier = arguments.verifier()?;
        let bytes_max = size(arguments.u32()?);
        let list = List {
            directory,
            cookie,
            bytes_max,
            names_max: bytes_max,
            is_plus: false,
        };
        self.list(&list, out)
    }

    pub(super) fn read_directory_plus(
        &self,
        mut arguments: Arguments<'_>,
        out: &mut Writer,
    ) -> Done {
        let (directory, cookie) = (arguments.handle()?, arguments.u64()?);
        let _verifier = arguments.verifier()?;
        let list = List {
            directory,
            cookie,
            names_max: size(arguments.u32()?),
            bytes_max: size(arguments.u32()?),
            is_plus: true,
        };
        self.list(&list, out)
    }

    fn list(&self, list: &List<'_>, out: &mut Writer) -> Done {
        let directory = self.call(
            list.directory,
            OperationKind::ReadDirectory,
            (list.cookie, 0),
        );
        let directory = directory.map_err(|why| Shape::Post.fail(why, None))?;
        let (entries, is_end) = match entries(&directory, list) {
            Ok(found) => found,
            Err(error) => return Err(Shape::Post.fail(of_handle(error), Some(directory))),
        };
        if entries.is_empty() && !is_end {
            return Err(Shape::Post.fail(Status::TOOSMALL, Some(directory)));
        }
        put_present(out, Some(&directory));
        out.u64(0);
        for entry in &entries {
            out.bool(true).u64(entry.id.get()).opaque(&entry.name);
            out.u64(entry.cookie);
            if list.is_plus {
                self.put_file(&directory, entry, out);
            }
        }
        out.bool(false).bool(is_end);
        done()
    }

    /// Attributes and handle of an entry. Of one that leads into another file system there are
    /// none: the client looks it up.
    fn put_file(&self, directory: &FileCall, entry: &DirectoryEntry, out: &mut Writer) {
        let realm = &directory.realm;
        let is_above = entry.name == b".." && directory.id == realm.files().root();
        let found = match is_above || realm.is_boundary(entry.id) {
            true => None,
            false => directory.attributes_of(entry.id).ok(),
        };
        match found {
            Some(found) => {
                put(out.bool(true), realm, &found);
                out.bool(true).opaque(&realm.handle(&found).encode());
            }
            None => drop(out.bool(false).bool(false)),
        }
    }
}

/// The entries that fit, and whether they are the last.
fn entries(
    directory: &FileCall,
    list: &List<'_>,
) -> Result<(Vec<DirectoryEntry>, bool), PosixError> {
    let (files, operation) = (directory.files(), directory.operation());
    files.check_list(&directory.credentials, directory.id, operation)?;
    let (mut entries, mut bytes, mut names) = (Vec::new(), AROUND_BYTES, 0);
    let mut is_end = true;
    let mut take = |entry: DirectoryEntry| {
        let name = entry.name.len() + padding_of(entry.name.len());
        let plus = if list.is_plus { PLUS_BYTES } else { 0 };
        bytes += ENTRY_BYTES + name + plus;
        names += ENTRY_BYTES + name;
        // A list of at least one entry goes on, whatever `dircount` says.
        let is_full = bytes > list.bytes_max || (names > list.names_max && !entries.is_empty());
        is_end = !is_full;
        if !is_full {
            entries.push(entry);
        }
        !is_full
    };
    files.read_directory(
        &directory.credentials,
        directory.id,
        list.cookie,
        &mut take,
        operation,
    )?;
    Ok((entries, is_end))
}

/// A number of bytes that a client asks for, as far as replies reach.
fn size(count: u32) -> usize {
    usize::try_from(count).map_or(DATA_BYTES_MAX, |count| count.min(DATA_BYTES_MAX))
}
