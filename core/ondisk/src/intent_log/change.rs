//! The types of log records: what each logs, and the number it is stored under.

use super::create::CreateForm;
use super::encoding::{Bytes, text};
use super::logged_acl::decode_initial_acl;
use super::{LoggedAcl, LoggedAttributes, LoggedCreate, LoggedRename, LoggedWrite, RenameKind};
use crate::block_pointer::BlockPointer;
use crate::declare::{Corrupt, Reader, Stored, narrow, widen};
use crate::nvlist::Text;
use crate::units::ObjectId;

/// The name of a record in errors.
pub(super) const WHAT: &str = "intent log record";

/// The changes that are logged, by record type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedChange {
    /// Something was made.
    Create(Box<LoggedCreate>),
    /// A file's name was removed.
    #[doc(alias = "TX_REMOVE")]
    Remove {
        /// The directory.
        directory: ObjectId,
        /// The name.
        name: Text,
    },
    /// A directory was removed.
    #[doc(alias = "TX_RMDIR")]
    RemoveDirectory {
        /// The directory it was in.
        directory: ObjectId,
        /// Its name.
        name: Text,
    },
    /// A file got another name.
    #[doc(alias = "TX_LINK")]
    Link {
        /// The directory.
        directory: ObjectId,
        /// The file.
        object: ObjectId,
        /// The name.
        name: Text,
    },
    /// Something got a new name in place of its old one.
    Rename(Box<LoggedRename>),
    /// Data was written.
    Write(Box<LoggedWrite>),
    /// A range was freed.
    #[doc(alias = "TX_TRUNCATE")]
    Truncate {
        /// The file.
        object: ObjectId,
        /// Where the range begins.
        offset: u64,
        /// How long it is; 0 for up to the end.
        length: u64,
    },
    /// Attributes were set.
    SetAttributes(Box<LoggedAttributes>),
    /// An access control list of version 0 was set.
    #[doc(alias = "TX_ACL_V0")]
    SetInitialAcl {
        /// The file.
        object: ObjectId,
        /// How many entries the list has.
        entry_count: u64,
        /// The entries, as [`AclVersion::Initial`](crate::acl::AclVersion) has them.
        entries: Vec<u8>,
    },
    /// An access control list was set.
    #[doc(alias = "TX_ACL")]
    SetAcl {
        /// The file.
        object: ObjectId,
        /// The list.
        acl: LoggedAcl,
    },
    /// An extended attribute was set.
    #[doc(alias = "TX_SETSAXATTR")]
    SetXattr {
        /// The file.
        object: ObjectId,
        /// The attribute.
        name: Text,
        /// Its value; empty where it was removed.
        value: Vec<u8>,
    },
    /// Blocks of another file were made blocks of this one.
    #[doc(alias = "TX_CLONE_RANGE")]
    CloneRange {
        /// The file.
        object: ObjectId,
        /// Where in the file.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// The size of the file's blocks.
        block_size: u64,
        /// The blocks.
        pointers: Vec<BlockPointer>,
    },
}

/// The stored numbers of record types.
pub(super) mod number {
    pub const CREATE: u64 = 1;
    pub const MKDIR: u64 = 2;
    pub const MKXATTR: u64 = 3;
    pub const SYMLINK: u64 = 4;
    pub const REMOVE: u64 = 5;
    pub const RMDIR: u64 = 6;
    pub const LINK: u64 = 7;
    pub const RENAME: u64 = 8;
    pub const WRITE: u64 = 9;
    pub const TRUNCATE: u64 = 10;
    pub const SETATTR: u64 = 11;
    pub const ACL_V0: u64 = 12;
    pub const ACL: u64 = 13;
    pub const CREATE_ACL: u64 = 14;
    pub const CREATE_ATTR: u64 = 15;
    pub const CREATE_ACL_ATTR: u64 = 16;
    pub const MKDIR_ACL: u64 = 17;
    pub const MKDIR_ATTR: u64 = 18;
    pub const MKDIR_ACL_ATTR: u64 = 19;
    pub const WRITE2: u64 = 20;
    pub const SETSAXATTR: u64 = 21;
    pub const RENAME_EXCHANGE: u64 = 22;
    pub const RENAME_WHITEOUT: u64 = 23;
    pub const CLONE_RANGE: u64 = 24;
}

impl LoggedChange {
    /// The object whose records must keep their order with this one; `None` for records that must
    /// keep their order with all.
    #[doc(alias = "TX_OOO")]
    pub fn only_object(&self) -> Option<ObjectId> {
        match self {
            LoggedChange::Write(write) => Some(write.object),
            LoggedChange::SetAttributes(attributes) => Some(attributes.object),
            LoggedChange::Truncate { object, .. }
            | LoggedChange::SetInitialAcl { object, .. }
            | LoggedChange::SetAcl { object, .. }
            | LoggedChange::SetXattr { object, .. }
            | LoggedChange::CloneRange { object, .. } => Some(*object),
            _ => None,
        }
    }

    /// The name that `zdb` has for the type.
    pub fn type_name(&self) -> &'static str {
        const NAMES: [&str; 25] = [
            "TX_COMMIT",
            "TX_CREATE",
            "TX_MKDIR",
            "TX_MKXATTR",
            "TX_SYMLINK",
            "TX_REMOVE",
            "TX_RMDIR",
            "TX_LINK",
            "TX_RENAME",
            "TX_WRITE",
            "TX_TRUNCATE",
            "TX_SETATTR",
            "TX_ACL_V0",
            "TX_ACL_ACL",
            "TX_CREATE_ACL",
            "TX_CREATE_ATTR",
            "TX_CREATE_ACL_ATTR",
            "TX_MKDIR_ACL",
            "TX_MKDIR_ATTR",
            "TX_MKDIR_ACL_ATTR",
            "TX_WRITE2",
            "TX_SETSAXATTR",
            "TX_RENAME_EXCHANGE",
            "TX_RENAME_WHITEOUT",
            "TX_CLONE_RANGE",
        ];
        NAMES[narrow(self.number())]
    }

    /// The stored number of the type.
    pub fn number(&self) -> u64 {
        match self {
            LoggedChange::Create(create) => create.number(),
            LoggedChange::Remove { .. } => number::REMOVE,
            LoggedChange::RemoveDirectory { .. } => number::RMDIR,
            LoggedChange::Link { .. } => number::LINK,
            LoggedChange::Rename(rename) => match rename.kind {
                RenameKind::Plain => number::RENAME,
                RenameKind::Exchange => number::RENAME_EXCHANGE,
                RenameKind::Whiteout(_) => number::RENAME_WHITEOUT,
            },
            LoggedChange::Write(write) if write.is_stored_already => number::WRITE2,
            LoggedChange::Write(_) => number::WRITE,
            LoggedChange::Truncate { .. } => number::TRUNCATE,
            LoggedChange::SetAttributes(_) => number::SETATTR,
            LoggedChange::SetInitialAcl { .. } => number::ACL_V0,
            LoggedChange::SetAcl { .. } => number::ACL,
            LoggedChange::SetXattr { .. } => number::SETSAXATTR,
            LoggedChange::CloneRange { .. } => number::CLONE_RANGE,
        }
    }

    pub(super) fn decode(number: u64, reader: &mut Reader<'_>) -> Result<LoggedChange, Corrupt> {
        Ok(match number {
            number::REMOVE => LoggedChange::Remove {
                directory: reader.value()?,
                name: text(reader)?,
            },
            number::RMDIR => LoggedChange::RemoveDirectory {
                directory: reader.value()?,
                name: text(reader)?,
            },
            number::LINK => LoggedChange::Link {
                directory: reader.value()?,
                object: reader.value()?,
                name: text(reader)?,
            },
            number::RENAME | number::RENAME_EXCHANGE | number::RENAME_WHITEOUT => {
                LoggedChange::Rename(Box::new(LoggedRename::decode(number, reader)?))
            }
            number::WRITE | number::WRITE2 => {
                LoggedChange::Write(Box::new(LoggedWrite::decode(number, reader)?))
            }
            number::TRUNCATE => LoggedChange::Truncate {
                object: reader.value()?,
                offset: reader.u64()?,
                length: reader.u64()?,
            },
            number::SETATTR => {
                LoggedChange::SetAttributes(Box::new(LoggedAttributes::decode(reader)?))
            }
            number::ACL_V0 => decode_initial_acl(reader)?,
            number::ACL => {
                let object = reader.value()?;
                let (mut acl, sizes) = LoggedAcl::decode_fields(reader)?;
                acl.decode_rest(sizes, reader)?;
                LoggedChange::SetAcl { object, acl }
            }
            number::SETSAXATTR => {
                let object = reader.value()?;
                let size = narrow(reader.u64()?);
                let name = text(reader)?;
                LoggedChange::SetXattr {
                    object,
                    name,
                    value: reader.take(size)?.to_vec(),
                }
            }
            number::CLONE_RANGE => decode_clone(reader)?,
            _ => match CreateForm::of_number(number) {
                Some(form) => LoggedChange::Create(Box::new(LoggedCreate::decode(form, reader)?)),
                None => {
                    let offset = 0;
                    return Err(Corrupt::Value {
                        what: WHAT,
                        field: "type",
                        offset,
                        found: number,
                    });
                }
            },
        })
    }

    pub(super) fn encode(&self, bytes: &mut Bytes) {
        match self {
            LoggedChange::Create(create) => create.encode(bytes),
            LoggedChange::Remove { directory, name }
            | LoggedChange::RemoveDirectory { directory, name } => {
                bytes.u64(directory.get());
                bytes.text(name);
            }
            LoggedChange::Link {
                directory,
                object,
                name,
            } => {
                bytes.u64(directory.get());
                bytes.u64(object.get());
                bytes.text(name);
            }
            LoggedChange::Rename(rename) => rename.encode(bytes),
            LoggedChange::Write(write) => write.encode(bytes),
            LoggedChange::Truncate {
                object,
                offset,
                length,
            } => {
                [object.get(), *offset, *length]
                    .into_iter()
                    .for_each(|word| bytes.u64(word));
            }
            LoggedChange::SetAttributes(attributes) => attributes.encode(bytes),
            LoggedChange::SetInitialAcl {
                object,
                entry_count,
                entries,
            } => {
                bytes.u64(object.get());
                bytes.u64(*entry_count);
                bytes.0.extend(entries);
            }
            LoggedChange::SetAcl { object, acl } => {
                bytes.u64(object.get());
                acl.encode_fields(bytes);
                acl.encode_rest(bytes);
            }
            LoggedChange::SetXattr {
                object,
                name,
                value,
            } => {
                bytes.u64(object.get());
                bytes.u64(widen(value.len()));
                bytes.text(name);
                bytes.0.extend(value);
            }
            LoggedChange::CloneRange {
                object,
                offset,
                length,
                block_size,
                pointers,
            } => {
                let words = [
                    object.get(),
                    *offset,
                    *length,
                    *block_size,
                    widen(pointers.len()),
                ];
                words.into_iter().for_each(|word| bytes.u64(word));
                pointers
                    .iter()
                    .for_each(|pointer| bytes.0.extend(pointer.to_bytes()));
            }
        }
    }
}

fn decode_clone(reader: &mut Reader<'_>) -> Result<LoggedChange, Corrupt> {
    let object = reader.value()?;
    let offset = reader.u64()?;
    let length = reader.u64()?;
    let block_size = reader.u64()?;
    let count = reader.u64()?;
    let mut pointers = Vec::new();
    for _ in 0..count {
        pointers.push(reader.value()?);
    }
    Ok(LoggedChange::CloneRange {
        object,
        offset,
        length,
        block_size,
        pointers,
    })
}
