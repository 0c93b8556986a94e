//! Extended attributes (RFC 8276): `GETXATTR`, `SETXATTR`, `LISTXATTRS`, `REMOVEXATTR`.
//!
//! Names of the protocol are those of the namespace `user.`, without that beginning. Those of other
//! namespaces are not reached.

use super::compound::{Compound, Current, Done};
use super::names::{put_change, sync};
use super::status::{Status, of_handle};
use crate::file_call::FileCall;
use crate::xdr::{Reader, Writer};
use tarn_engine::files::{OperationKind, PosixError, XattrMode};

/// The namespace.
const PREFIX: &[u8] = b"user.";
/// Longer names are refused as too long, not as malformed.
const NAME_BYTES_MAX: usize = 4096;
/// Most bytes of a name with its namespace, as Linux has it.
const WHOLE_NAME_BYTES_MAX: usize = 255;
/// A value that is longer than any that is stored is refused as too large, not as malformed.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// A name as the file system has it.
fn whole(name: &[u8]) -> Result<Vec<u8>, Status> {
    match name.len() {
        0 => Err(Status::INVAL),
        length if length + PREFIX.len() > WHOLE_NAME_BYTES_MAX => Err(Status::NAMETOOLONG),
        _ if name.contains(&0) => Err(Status::BADCHAR),
        _ => Ok([PREFIX, name].concat()),
    }
}

/// The status of an error about an attribute.
fn of_attribute(error: PosixError) -> Status {
    match error {
        // A user that may not read or write the file learns nothing of the attribute.
        PosixError::NotPermitted => Status::ACCESS,
        error => of_handle(error),
    }
}

impl Compound<'_> {
    pub(super) fn get_user_attribute(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let name = whole(reader.opaque(NAME_BYTES_MAX)?)?;
        if let Some(Current::Folder(_)) = &self.current {
            return Err(Status::NOXATTR);
        }
        let file = self.file(OperationKind::GetExtendedAttribute, (0, 0))?;
        let (files, operation) = (file.files(), file.operation());
        let value = files.get_xattr(&file.credentials, file.id, &name, operation);
        out.opaque(&value.map_err(of_attribute)?);
        Ok(())
    }

    pub(super) fn set_user_attribute(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let mode = match reader.u32()? {
            0 => XattrMode::Any,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(Status::BADXDR),
        };
        let name = reader.opaque(NAME_BYTES_MAX)?;
        let value = reader.opaque(VALUE_BYTES_MAX)?;
        let name = whole(name)?;
        self.change_attribute(out, |file| {
            let (files, operation) = (file.files(), file.operation());
            files.set_xattr(&file.credentials, file.id, &name, value, mode, operation)
        })
    }

    pub(super) fn remove_user_attribute(
        &mut self,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Done {
        let name = whole(reader.opaque(NAME_BYTES_MAX)?)?;
        self.change_attribute(out, |file| {
            let (files, operation) = (file.files(), file.operation());
            files.remove_xattr(&file.credentials, file.id, &name, operation)
        })
    }

    /// Changes an attribute of the current file, and says how that changed the file.
    fn change_attribute(
        &mut self,
        out: &mut Writer,
        change: impl FnOnce(&FileCall) -> Result<(), PosixError>,
    ) -> Done {
        let file = self.writable(OperationKind::SetExtendedAttribute)?;
        let before = file.attributes().map_err(of_handle)?.change();
        let (changed, seen) = file.files().witnessed(|| change(&file));
        changed.map_err(of_attribute)?;
        put_change(out, file.id, &seen, before);
        sync(&file, file.id)
    }

    pub(super) fn list_user_attributes(
        &mut self,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Done {
        /// Bytes of the result around the names.
        const AROUND_BYTES: usize = 16;
        let (cookie, most) = (reader.u64()?, reader.u32()?);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut names = Vec::new();
        if !matches!(&self.current, Some(Current::Folder(_))) {
            let file = self.file(OperationKind::GetExtendedAttribute, (0, 0))?;
            let (files, operation) = (file.files(), file.operation());
            let listed = files.list_xattr(&file.credentials, file.id, operation);
            let listed = listed.map_err(of_attribute)?.into_iter();
            names = listed
                .filter_map(|name| name.strip_prefix(PREFIX).map(<[u8]>::to_vec))
                .collect();
        }
        // A cookie is how many names came before: the file system gives them in one order.
        names.sort_unstable();
        let skipped = usize::try_from(cookie).unwrap_or(usize::MAX);
        if skipped > names.len() {
            return Err(Status::BAD_COOKIE);
        }
        let (mut listed, mut count) = (Writer::new(), 0_u32);
        for name in &names[skipped..] {
            let before = listed.len();
            listed.opaque(name);
            if listed.len() + AROUND_BYTES > most {
                listed.truncate(before);
                break;
            }
            count += 1;
        }
        let next = cookie + u64::from(count);
        let is_end = usize::try_from(next) == Ok(names.len());
        if count == 0 && !is_end {
            return Err(Status::TOOSMALL);
        }
        out.u64(next).u32(count).fixed(listed.as_slice());
        out.bool(is_end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_user_namespace() {
        assert_eq!(whole(b"a"), Ok(b"user.a".to_vec()));
        // A name that begins like another namespace is none of it.
        assert_eq!(whole(b"trusted.a"), Ok(b"user.trusted.a".to_vec()));
        assert_eq!(whole(b""), Err(Status::INVAL));
        assert_eq!(whole(b"a\0b"), Err(Status::BADCHAR));
        assert_eq!(whole(&[b'a'; 251]), Err(Status::NAMETOOLONG));
        assert!(whole(&[b'a'; 250]).is_ok());
    }
}
