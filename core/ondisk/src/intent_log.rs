//! The intent log: what was promised to be durable before its txg is stored.
//!
//! # Mechanism
//! The log of a file system or volume is a chain of blocks that begins in its
//! [`IntentLogHead`](crate::objset::IntentLogHead). Each block has a [`LogChain`], which points at
//! the next block before that is written, and carries the block's own checksum:
//!
//! ```text
//!   zilog    | record | record | …                      | chain |
//!   zilog2   | chain | record | record | …                      |
//! ```
//!
//! Which of the two forms a block has is in the checksum kind of the pointer to it. The log ends
//! at the first block whose checksum or sequence number is not the expected one: writing ahead of
//! a crash leaves just that.
//!
//! A record is a header of 32 bytes (type, length, txg, sequence number), the fields of its type,
//! and what follows them without a fixed place: names, data, pointers. Lengths are multiples of
//! eight, filled up with zeros.
//!
//! # Invariants
//! - Records are decoded in the byte order of their block; all numbers in a [`LogRecord`] are
//!   already turned.
//! - A record that OpenZFS wrote encodes to the same bytes again.
//!
//! # Knows nothing about
//! Checksums and the order of replay.

use crate::block_pointer::BlockPointer;
use crate::checksum::{ChecksumKind, EmbeddedChecksum};
use crate::declare::{ByteOrder, Corrupt, Reader, Stored, narrow, widen};
use crate::fuid::Fuid;
use crate::nvlist::Text;
use crate::on_disk;
use crate::units::{ObjectId, Txg};

/// The smallest log block.
#[doc(alias = "ZIL_MIN_BLKSZ")]
pub const BLOCK_BYTES_MIN: usize = 4096;

/// Which word of the checksum in a pointer to a log block counts the blocks. The first two are the
/// log's own random number, the third is its object set.
#[doc(alias = "ZIL_ZC_SEQ")]
pub const SEQUENCE_WORD: usize = 3;
/// Which word of the checksum in a pointer to a log block is the object set.
#[doc(alias = "ZIL_ZC_OBJSET")]
pub const OBJECT_SET_WORD: usize = 2;

const WHAT: &str = "intent log record";

/// The size of the header of each record.
const RECORD_HEADER_SIZE: usize = 32;
/// In the type of a record: names were looked up without regard to case.
#[doc(alias = "TX_CI")]
const CASE_INSENSITIVE: u64 = 1 << 63;
/// Which bits of an object's number are the number; the first eight are the size of its dnode.
const OBJECT_BITS: u32 = 48;

on_disk! {
    /// What joins a log block to the next.
    #[doc(alias = "zil_chain_t")]
    pub struct LogChain [184 bytes] {
        0 => pad: u64,
        /// The next block, which is perhaps not yet written.
        8 => next: BlockPointer,
        /// How many bytes of the block are used: in `zilog` those of the records, in `zilog2`
        /// those of the chain and the records.
        136 => used_bytes: u64,
        144 => tail: EmbeddedChecksum,
    }
}

/// A log block, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBlock<'a> {
    /// The chain.
    pub chain: LogChain,
    /// The bytes of the records.
    pub records: &'a [u8],
    /// The byte order of both.
    pub order: ByteOrder,
}

/// The two forms of a log block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogForm {
    /// The chain at the end: pools before version 26.
    Zilog,
    /// The chain at the start, so that a block need not be read whole.
    Zilog2,
}

impl LogForm {
    /// The form of blocks with this kind of checksum.
    pub fn of_checksum(kind: ChecksumKind) -> Option<LogForm> {
        match kind {
            ChecksumKind::IntentLog => Some(LogForm::Zilog),
            ChecksumKind::IntentLog2 => Some(LogForm::Zilog2),
            _ => None,
        }
    }
}

impl<'a> LogBlock<'a> {
    /// Takes a block apart, whose checksum was verified. Its byte order is that of the magic
    /// number beside the checksum.
    #[doc(alias = "zil_read_log_block")]
    pub fn decode(block: &'a [u8], form: LogForm) -> Result<LogBlock<'a>, Corrupt> {
        let chain_at = match form {
            LogForm::Zilog => block.len().saturating_sub(LogChain::SIZE),
            LogForm::Zilog2 => 0,
        };
        let mut reader = Reader::new("intent log chain", block, ByteOrder::Little);
        reader.seek(chain_at)?;
        let bytes = reader.take(LogChain::SIZE)?;
        let magic = &bytes[LogChain::SIZE - EmbeddedChecksum::SIZE..];
        let Some(order) = ByteOrder::of_magic(magic, EmbeddedChecksum::MAGIC) else {
            return Err(reader.inconsistent("the chain has no magic number"));
        };
        let chain = LogChain::from_bytes(bytes, order)?;
        let used = narrow(chain.used_bytes);
        let records = match form {
            LogForm::Zilog => block[..chain_at].get(..used),
            LogForm::Zilog2 => block.get(LogChain::SIZE..used),
        };
        let bad_size = || reader.bad_value("used bytes", 48, chain.used_bytes);
        let records = records.ok_or_else(bad_size)?;
        Ok(LogBlock {
            records,
            order,
            chain,
        })
    }

    /// The records, one by one; after one that is refused there are no more.
    pub fn records(&self) -> Records<'a> {
        Records {
            rest: self.records,
            order: self.order,
        }
    }

    /// Puts a block together of records that are encoded. What the chain says of its size is set;
    /// its checksum is to be computed over the result.
    ///
    /// # Panics
    /// When the block has no room for them.
    pub fn encode(block: &mut [u8], form: LogForm, next: BlockPointer, records: &[u8]) {
        assert!(
            LogChain::SIZE + records.len() <= block.len(),
            "the records fit in the block"
        );
        let (chain_at, records_at, used) = match form {
            LogForm::Zilog => (block.len() - LogChain::SIZE, 0, records.len()),
            LogForm::Zilog2 => (0, LogChain::SIZE, LogChain::SIZE + records.len()),
        };
        let chain = LogChain {
            pad: 0,
            next,
            used_bytes: widen(used),
            tail: EmbeddedChecksum::new(crate::checksum::Checksum::ZERO),
        };
        block.fill(0);
        block[records_at..records_at + records.len()].copy_from_slice(records);
        chain.write_to(&mut block[chain_at..]);
    }
}

/// The records of a block.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl Iterator for Records<'_> {
    type Item = Result<LogRecord, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match LogRecord::decode(self.rest, self.order) {
            Ok((record, length)) => {
                self.rest = &self.rest[length..];
                Some(Ok(record))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

/// One promise.
#[doc(alias = "lr_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// The txg in which it is stored for good.
    pub txg: Txg,
    /// Its place among all records of the log.
    pub sequence: u64,
    /// Names were looked up without regard to case.
    pub case_insensitive: bool,
    /// What was promised.
    pub change: LoggedChange,
}

/// What was promised.
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

/// What kind of thing was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateKind {
    /// A file, or anything else with a mode: pipe, socket, device.
    File,
    /// A directory.
    Directory,
    /// The directory of a file's extended attributes.
    XattrDirectory,
    /// A symbolic link with this target.
    Link(Text),
}

/// The making of something.
#[doc(alias("lr_create_t", "lr_acl_create_t"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCreate {
    /// What kind of thing.
    pub kind: CreateKind,
    /// The directory it is in.
    pub directory: ObjectId,
    /// Its number.
    pub object: ObjectId,
    /// How many slots of 512 bytes its dnode takes: 1 to 256.
    pub dnode_slots: u16,
    /// Type and permissions.
    pub mode: u64,
    /// Its owner.
    pub owner: Fuid,
    /// Its group.
    pub group: Fuid,
    /// The txg in which it was made.
    pub generation: u64,
    /// Seconds and nanoseconds.
    pub creation_time: [u64; 2],
    /// The number of a device.
    pub device: u64,
    /// Attributes beyond POSIX.
    pub extended: Option<LoggedExtended>,
    /// Its access control list; `None` when it has what its directory gives.
    pub acl: Option<LoggedAcl>,
    /// The domains of owner and group, where there is no list to have them.
    pub domains: Vec<Text>,
    /// Its name.
    pub name: Text,
}

/// An access control list.
#[doc(alias = "lr_acl_t")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoggedAcl {
    /// How many entries the list has.
    pub entry_count: u64,
    /// Flags of the list.
    pub flags: u64,
    /// The entries, as [`AclVersion::Initial`](crate::acl::AclVersion) has them; those with object
    /// types have these behind them.
    pub entries: Vec<u8>,
    /// FUIDs that stand for the users in the entries; their domains are indexes into `domains`,
    /// from 1.
    pub fuids: Vec<Fuid>,
    /// Domains.
    pub domains: Vec<Text>,
}

/// Attributes beyond POSIX.
#[doc(alias("lr_attr_t", "lr_attr_end_t"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedExtended {
    /// Which are given, a bit for each.
    pub given: Vec<u32>,
    /// Those that are one bit each.
    pub bits: u64,
    /// Seconds and nanoseconds.
    pub creation_time: [u64; 2],
    /// A virus scanner's stamp, or in its first eight bytes a project.
    pub scan_stamp: [u8; 32],
}

/// Why a rename differs from a plain one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameKind {
    /// It does not.
    #[doc(alias = "TX_RENAME")]
    Plain,
    /// Both names change places.
    #[doc(alias = "TX_RENAME_EXCHANGE")]
    Exchange,
    /// The old name stays, of a file that overlays take for a missing one.
    #[doc(alias = "TX_RENAME_WHITEOUT")]
    Whiteout(LoggedWhiteout),
}

/// The file that a rename leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedWhiteout {
    /// Its number, and above it the slots of its dnode.
    pub object_word: u64,
    /// Type and permissions.
    pub mode: u64,
    /// Its owner.
    pub owner: Fuid,
    /// Its group.
    pub group: Fuid,
    /// The txg in which it was made.
    pub generation: u64,
    /// Seconds and nanoseconds.
    pub creation_time: [u64; 2],
    /// Always device 0.
    pub device: u64,
}

/// A rename.
#[doc(alias("lr_rename_t", "lr_rename_whiteout_t"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRename {
    /// Whether more happened.
    pub kind: RenameKind,
    /// The old directory.
    pub from_directory: ObjectId,
    /// The new directory.
    pub to_directory: ObjectId,
    /// The old name.
    pub from: Text,
    /// The new name.
    pub to: Text,
}

/// A write.
#[doc(alias = "lr_write_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedWrite {
    /// True when the data was stored by its txg before the log got to it: only its size may have
    /// to be set.
    pub is_stored_already: bool,
    /// The file or volume.
    pub object: ObjectId,
    /// Where in it.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Unused.
    pub block_offset: u64,
    /// The block that has the data, where the record has none.
    pub pointer: BlockPointer,
    /// The data, where the record has it. Then this has as many bytes as were written.
    pub data: Option<Vec<u8>>,
}

/// Attributes that were set.
#[doc(alias = "lr_setattr_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedAttributes {
    /// The file.
    pub object: ObjectId,
    /// Which were set: [`mask`]s.
    pub mask: u64,
    /// Type and permissions.
    pub mode: u64,
    /// Its owner.
    pub owner: Fuid,
    /// Its group.
    pub group: Fuid,
    /// How many bytes it has.
    pub size: u64,
    /// Seconds and nanoseconds.
    pub access_time: [u64; 2],
    /// Seconds and nanoseconds.
    pub modification_time: [u64; 2],
    /// Attributes beyond POSIX.
    pub extended: Option<LoggedExtended>,
    /// The domains of owner and group.
    pub domains: Vec<Text>,
}

/// Which attributes were set, as Linux numbers them.
pub mod mask {
    /// The mode.
    pub const MODE: u64 = 0x1;
    /// The owner.
    pub const OWNER: u64 = 0x2;
    /// The group.
    pub const GROUP: u64 = 0x4;
    /// The size.
    pub const SIZE: u64 = 0x8;
    /// The access time.
    pub const ACCESS_TIME: u64 = 0x10;
    /// The modification time.
    pub const MODIFICATION_TIME: u64 = 0x20;
    /// The change time.
    pub const CHANGE_TIME: u64 = 0x40;
    /// Attributes beyond POSIX.
    #[doc(alias = "ATTR_XVATTR")]
    pub const EXTENDED: u64 = 1 << 31;
}

/// The stored numbers of record types.
mod number {
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

impl LogRecord {
    /// Decodes the record at the start of `bytes`, and gives its length.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<(LogRecord, usize), Corrupt> {
        let mut header = Reader::new(WHAT, bytes, order);
        let type_word = header.u64()?;
        let length_word = header.u64()?;
        let txg = Txg::from(header.u64()?);
        let sequence = header.u64()?;
        let length = narrow(length_word);
        let whole = bytes
            .get(..length)
            .filter(|whole| whole.len() >= RECORD_HEADER_SIZE);
        let Some(whole) = whole.filter(|whole| whole.len().is_multiple_of(8)) else {
            return Err(Corrupt::Value {
                what: WHAT,
                field: "length",
                offset: 8,
                found: length_word,
            });
        };
        let mut reader = Reader::new(WHAT, whole, order);
        reader.skip(RECORD_HEADER_SIZE)?;
        let change = LoggedChange::decode(type_word & !CASE_INSENSITIVE, &mut reader)?;
        let case_insensitive = type_word & CASE_INSENSITIVE != 0;
        Ok((
            LogRecord {
                txg,
                sequence,
                case_insensitive,
                change,
            },
            length,
        ))
    }

    /// Encodes the record, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Bytes(vec![0; RECORD_HEADER_SIZE]);
        self.change.encode(&mut bytes);
        bytes.pad();
        let Bytes(mut bytes) = bytes;
        let ci = if self.case_insensitive {
            CASE_INSENSITIVE
        } else {
            0
        };
        let header = [
            self.change.number() | ci,
            widen(bytes.len()),
            self.txg.get(),
            self.sequence,
        ];
        header.write_to(&mut bytes);
        bytes
    }
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

    fn decode(number: u64, reader: &mut Reader<'_>) -> Result<LoggedChange, Corrupt> {
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

    fn encode(&self, bytes: &mut Bytes) {
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

/// Which of the ten types of records that make something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CreateForm {
    kind: PlainKind,
    has_acl: bool,
    has_extended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlainKind {
    File,
    Directory,
    XattrDirectory,
    Link,
}

impl CreateForm {
    const ALL: [(u64, CreateForm); 10] = {
        const fn form(kind: PlainKind, has_acl: bool, has_extended: bool) -> CreateForm {
            CreateForm {
                kind,
                has_acl,
                has_extended,
            }
        }
        [
            (number::CREATE, form(PlainKind::File, false, false)),
            (number::CREATE_ACL, form(PlainKind::File, true, false)),
            (number::CREATE_ATTR, form(PlainKind::File, false, true)),
            (number::CREATE_ACL_ATTR, form(PlainKind::File, true, true)),
            (number::MKDIR, form(PlainKind::Directory, false, false)),
            (number::MKDIR_ACL, form(PlainKind::Directory, true, false)),
            (number::MKDIR_ATTR, form(PlainKind::Directory, false, true)),
            (
                number::MKDIR_ACL_ATTR,
                form(PlainKind::Directory, true, true),
            ),
            (
                number::MKXATTR,
                form(PlainKind::XattrDirectory, false, false),
            ),
            (number::SYMLINK, form(PlainKind::Link, false, false)),
        ]
    };

    fn of_number(number: u64) -> Option<CreateForm> {
        CreateForm::ALL
            .iter()
            .find(|(other, _)| *other == number)
            .map(|(_, form)| *form)
    }
}

impl LoggedCreate {
    /// The stored number of the type.
    ///
    /// # Panics
    /// When it is a link or a directory of extended attributes, and has a list or attributes
    /// beyond POSIX: there are no such records.
    fn number(&self) -> u64 {
        let kind = match self.kind {
            CreateKind::File => PlainKind::File,
            CreateKind::Directory => PlainKind::Directory,
            CreateKind::XattrDirectory => PlainKind::XattrDirectory,
            CreateKind::Link(_) => PlainKind::Link,
        };
        let (has_acl, has_extended) = (self.acl.is_some(), self.extended.is_some());
        let form = CreateForm {
            kind,
            has_acl,
            has_extended,
        };
        let found = CreateForm::ALL.iter().find(|(_, other)| *other == form);
        found
            .expect("only files and directories are logged with more")
            .0
    }

    fn decode(form: CreateForm, reader: &mut Reader<'_>) -> Result<LoggedCreate, Corrupt> {
        let directory = reader.value()?;
        let object_word = reader.u64()?;
        let [.., slots] = object_word.to_le_bytes();
        let mut create = LoggedCreate {
            kind: CreateKind::File,
            directory,
            object: ObjectId::new(object_word & ((1 << OBJECT_BITS) - 1)),
            dnode_slots: u16::from(slots) + 1,
            mode: reader.u64()?,
            owner: Fuid::from_word(reader.u64()?),
            group: Fuid::from_word(reader.u64()?),
            generation: reader.u64()?,
            creation_time: reader.value()?,
            device: reader.u64()?,
            extended: None,
            acl: None,
            domains: Vec::new(),
            name: Text::default(),
        };
        let acl = if form.has_acl {
            Some(LoggedAcl::decode_fields(reader)?)
        } else {
            None
        };
        if form.has_extended {
            create.extended = Some(LoggedExtended::decode(reader)?);
        }
        match acl {
            Some((mut acl, sizes)) => {
                acl.decode_rest(sizes, reader)?;
                create.acl = Some(acl);
            }
            None if form.kind == PlainKind::Link => {}
            None => {
                create.domains = texts(domain_count(create.owner, create.group), reader)?;
            }
        }
        create.name = text(reader)?;
        create.kind = match form.kind {
            PlainKind::File => CreateKind::File,
            PlainKind::Directory => CreateKind::Directory,
            PlainKind::XattrDirectory => CreateKind::XattrDirectory,
            PlainKind::Link => CreateKind::Link(text(reader)?),
        };
        Ok(create)
    }

    fn encode(&self, bytes: &mut Bytes) {
        assert!(
            self.object.get() >> OBJECT_BITS == 0,
            "objects have numbers of 48 bits"
        );
        let slots = u8::try_from(self.dnode_slots.saturating_sub(1))
            .expect("a dnode has at most 256 slots");
        bytes.u64(self.directory.get());
        bytes.u64((u64::from(slots) << 56) | self.object.get());
        bytes.u64(self.mode);
        bytes.u64(self.owner.word());
        bytes.u64(self.group.word());
        bytes.u64(self.generation);
        bytes.two(self.creation_time);
        bytes.u64(self.device);
        if let Some(acl) = &self.acl {
            acl.encode_fields(bytes);
        }
        if let Some(extended) = &self.extended {
            extended.encode(bytes);
        }
        if let Some(acl) = &self.acl {
            acl.encode_rest(bytes);
        }
        self.domains.iter().for_each(|domain| bytes.text(domain));
        bytes.text(&self.name);
        if let CreateKind::Link(target) = &self.kind {
            bytes.text(target);
        }
    }
}

/// What a list's fields say of what follows them.
#[derive(Debug, Clone, Copy)]
struct AclSizes {
    entry_bytes: usize,
    fuid_count: usize,
    domain_count: usize,
}

impl LoggedAcl {
    fn decode_fields(reader: &mut Reader<'_>) -> Result<(LoggedAcl, AclSizes), Corrupt> {
        let entry_count = reader.u64()?;
        let domain_count = narrow(reader.u64()?);
        let fuid_count = narrow(reader.u64()?);
        let entry_bytes = narrow(reader.u64()?);
        let flags = reader.u64()?;
        let acl = LoggedAcl {
            entry_count,
            flags,
            ..LoggedAcl::default()
        };
        Ok((
            acl,
            AclSizes {
                entry_bytes,
                fuid_count,
                domain_count,
            },
        ))
    }

    fn decode_rest(&mut self, sizes: AclSizes, reader: &mut Reader<'_>) -> Result<(), Corrupt> {
        self.entries = reader.take(sizes.entry_bytes)?.to_vec();
        if reader.order() == ByteOrder::Big {
            turn_entries(&mut self.entries);
        }
        reader.skip(sizes.entry_bytes.next_multiple_of(8) - sizes.entry_bytes)?;
        for _ in 0..sizes.fuid_count {
            self.fuids.push(Fuid::from_word(reader.u64()?));
        }
        self.domains = texts(sizes.domain_count, reader)?;
        Ok(())
    }

    fn encode_fields(&self, bytes: &mut Bytes) {
        bytes.u64(self.entry_count);
        bytes.u64(widen(self.domains.len()));
        bytes.u64(widen(self.fuids.len()));
        bytes.u64(widen(self.entries.len()));
        bytes.u64(self.flags);
    }

    fn encode_rest(&self, bytes: &mut Bytes) {
        bytes.0.extend(&self.entries);
        bytes.0.extend(vec![
            0;
            self.entries.len().next_multiple_of(8)
                - self.entries.len()
        ]);
        self.fuids.iter().for_each(|fuid| bytes.u64(fuid.word()));
        self.domains.iter().for_each(|domain| bytes.text(domain));
    }
}

impl LoggedExtended {
    fn decode(reader: &mut Reader<'_>) -> Result<LoggedExtended, Corrupt> {
        let count = narrow(u64::from(reader.u32()?));
        let mut given = Vec::new();
        for _ in 0..count {
            given.push(reader.u32()?);
        }
        Ok(LoggedExtended {
            given,
            bits: reader.u64()?,
            creation_time: reader.value()?,
            scan_stamp: reader.array()?,
        })
    }

    fn encode(&self, bytes: &mut Bytes) {
        let count = u32::try_from(self.given.len()).expect("there are a few attributes");
        bytes.0.extend(count.to_le_bytes());
        bytes
            .0
            .extend(self.given.iter().flat_map(|given| given.to_le_bytes()));
        bytes.u64(self.bits);
        bytes.two(self.creation_time);
        bytes.0.extend(self.scan_stamp);
    }
}

impl LoggedRename {
    fn decode(number: u64, reader: &mut Reader<'_>) -> Result<LoggedRename, Corrupt> {
        let from_directory = reader.value()?;
        let to_directory = reader.value()?;
        let kind = match number {
            number::RENAME => RenameKind::Plain,
            number::RENAME_EXCHANGE => RenameKind::Exchange,
            _ => RenameKind::Whiteout(LoggedWhiteout {
                object_word: reader.u64()?,
                mode: reader.u64()?,
                owner: Fuid::from_word(reader.u64()?),
                group: Fuid::from_word(reader.u64()?),
                generation: reader.u64()?,
                creation_time: reader.value()?,
                device: reader.u64()?,
            }),
        };
        Ok(LoggedRename {
            kind,
            from_directory,
            to_directory,
            from: text(reader)?,
            to: text(reader)?,
        })
    }

    fn encode(&self, bytes: &mut Bytes) {
        bytes.u64(self.from_directory.get());
        bytes.u64(self.to_directory.get());
        if let RenameKind::Whiteout(whiteout) = self.kind {
            bytes.u64(whiteout.object_word);
            bytes.u64(whiteout.mode);
            bytes.u64(whiteout.owner.word());
            bytes.u64(whiteout.group.word());
            bytes.u64(whiteout.generation);
            bytes.two(whiteout.creation_time);
            bytes.u64(whiteout.device);
        }
        bytes.text(&self.from);
        bytes.text(&self.to);
    }
}

impl LoggedWrite {
    fn decode(number: u64, reader: &mut Reader<'_>) -> Result<LoggedWrite, Corrupt> {
        let mut write = LoggedWrite {
            is_stored_already: number == number::WRITE2,
            object: reader.value()?,
            offset: reader.u64()?,
            length: reader.u64()?,
            block_offset: reader.u64()?,
            pointer: reader.value()?,
            data: None,
        };
        if !reader.is_at_end() {
            if write.length == 0 {
                // Nobody promises to write nothing; and without bytes it would be one whose data is in a block.
                return Err(reader.bad_value("length of a write", 144, write.length));
            }
            write.data = Some(reader.take(narrow(write.length))?.to_vec());
        }
        Ok(write)
    }

    fn encode(&self, bytes: &mut Bytes) {
        bytes.u64(self.object.get());
        bytes.u64(self.offset);
        bytes.u64(self.length);
        bytes.u64(self.block_offset);
        bytes.0.extend(self.pointer.to_bytes());
        if let Some(data) = &self.data {
            assert_eq!(
                widen(data.len()),
                self.length,
                "a write has all its data or none"
            );
            bytes.0.extend(data);
        }
    }
}

impl LoggedAttributes {
    fn decode(reader: &mut Reader<'_>) -> Result<LoggedAttributes, Corrupt> {
        let mut attributes = LoggedAttributes {
            object: reader.value()?,
            mask: reader.u64()?,
            mode: reader.u64()?,
            owner: Fuid::from_word(reader.u64()?),
            group: Fuid::from_word(reader.u64()?),
            size: reader.u64()?,
            access_time: reader.value()?,
            modification_time: reader.value()?,
            extended: None,
            domains: Vec::new(),
        };
        if attributes.mask & mask::EXTENDED != 0 {
            attributes.extended = Some(LoggedExtended::decode(reader)?);
        }
        let count = domain_count(attributes.owner, attributes.group);
        attributes.domains = texts(count, reader)?;
        Ok(attributes)
    }

    fn encode(&self, bytes: &mut Bytes) {
        bytes.u64(self.object.get());
        bytes.u64(self.mask);
        bytes.u64(self.mode);
        bytes.u64(self.owner.word());
        bytes.u64(self.group.word());
        bytes.u64(self.size);
        bytes.two(self.access_time);
        bytes.two(self.modification_time);
        if let Some(extended) = &self.extended {
            extended.encode(bytes);
        }
        self.domains.iter().for_each(|domain| bytes.text(domain));
    }
}

fn decode_initial_acl(reader: &mut Reader<'_>) -> Result<LoggedChange, Corrupt> {
    let object = reader.value()?;
    let entry_count = reader.u64()?;
    let size = narrow(entry_count).saturating_mul(12);
    let mut entries = reader.take(size)?.to_vec();
    if reader.order() == ByteOrder::Big {
        turn_entries(&mut entries);
    }
    Ok(LoggedChange::SetInitialAcl {
        object,
        entry_count,
        entries,
    })
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

/// How many domains follow a record for the sake of owner and group.
#[doc(alias = "zfs_replay_domain_cnt")]
fn domain_count(owner: Fuid, group: Fuid) -> usize {
    let owner_has = owner.domain() != 0;
    let group_has = group.domain() != 0 && group.domain() != owner.domain();
    usize::from(owner_has) + usize::from(group_has)
}

/// Up to the next zero, which is passed over.
fn text(reader: &mut Reader<'_>) -> Result<Text, Corrupt> {
    let rest = reader.clone().rest();
    let Some(length) = rest.iter().position(|&byte| byte == 0) else {
        return Err(reader.inconsistent("a name does not end"));
    };
    reader.skip(length + 1)?;
    Ok(Text::from(&rest[..length]))
}

/// `count` strings, one by one: the reader ends before memory does.
fn texts(count: usize, reader: &mut Reader<'_>) -> Result<Vec<Text>, Corrupt> {
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(text(reader)?);
    }
    Ok(texts)
}

/// Turns big-endian entries, as the system calls have them, into little-endian ones.
fn turn_entries(bytes: &mut [u8]) {
    let mut rest = bytes;
    while rest.len() >= 12 {
        for (start, end) in [(0, 4), (4, 8), (8, 10), (10, 12)] {
            rest[start..end].reverse();
        }
        let kind = u16::from_le_bytes([rest[10], rest[11]]);
        let size = if crate::acl::kind::has_object_types(kind) {
            44
        } else {
            12
        };
        let size = size.min(rest.len());
        rest = &mut rest[size..];
    }
}

/// A record while it is encoded.
struct Bytes(Vec<u8>);

impl Bytes {
    fn u64(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    fn two(&mut self, words: [u64; 2]) {
        words.into_iter().for_each(|word| self.u64(word));
    }

    fn text(&mut self, text: &Text) {
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(change: LoggedChange) -> LogRecord {
        LogRecord {
            txg: Txg::from(7),
            sequence: 3,
            case_insensitive: false,
            change,
        }
    }

    fn pointer() -> BlockPointer {
        BlockPointer::from_bytes(&[0; 128], ByteOrder::Little).expect("a hole is a pointer")
    }

    fn create() -> LoggedCreate {
        LoggedCreate {
            kind: CreateKind::File,
            directory: ObjectId::new(34),
            object: ObjectId::new(128),
            dnode_slots: 2,
            mode: 0o100_644,
            owner: Fuid::posix(1),
            group: Fuid::posix(2),
            generation: 7,
            creation_time: [8, 9],
            device: 0,
            extended: None,
            acl: None,
            domains: Vec::new(),
            name: Text::from("name"),
        }
    }

    fn everything() -> Vec<LoggedChange> {
        let object = ObjectId::new(5);
        let name = Text::from("name");
        let extended = LoggedExtended {
            given: vec![1, 2, 3],
            bits: 4,
            creation_time: [5, 6],
            scan_stamp: [7; 32],
        };
        let acl = LoggedAcl {
            entry_count: 1,
            flags: 2,
            entries: vec![3; 12],
            fuids: vec![Fuid::new(1, 500)],
            domains: vec![Text::from("S-1-5-21")],
        };
        let foreign = LoggedCreate {
            owner: Fuid::new(1, 500),
            domains: vec![Text::from("S-1-5-21")],
            ..create()
        };
        let whiteout = LoggedWhiteout {
            object_word: 9,
            mode: 0o20_000,
            owner: Fuid::posix(0),
            group: Fuid::posix(0),
            generation: 7,
            creation_time: [1, 2],
            device: 0,
        };
        let attributes = LoggedAttributes {
            object,
            mask: mask::SIZE,
            mode: 0,
            owner: Fuid::posix(0),
            group: Fuid::posix(0),
            size: 10,
            access_time: [1, 2],
            modification_time: [3, 4],
            extended: None,
            domains: Vec::new(),
        };
        let write = |is_stored_already, data: Option<Vec<u8>>| {
            LoggedChange::Write(Box::new(LoggedWrite {
                is_stored_already,
                object,
                offset: 1,
                length: 5,
                block_offset: 0,
                pointer: pointer(),
                data,
            }))
        };
        let mut all = vec![
            LoggedChange::Remove {
                directory: object,
                name: name.clone(),
            },
            LoggedChange::RemoveDirectory {
                directory: object,
                name: name.clone(),
            },
            LoggedChange::Link {
                directory: object,
                object,
                name: name.clone(),
            },
            write(false, None),
            write(false, Some(b"hello".to_vec())),
            write(true, None),
            LoggedChange::Truncate {
                object,
                offset: 1,
                length: 2,
            },
            LoggedChange::SetAttributes(Box::new(LoggedAttributes {
                mask: mask::EXTENDED,
                extended: Some(extended.clone()),
                ..attributes.clone()
            })),
            LoggedChange::SetAttributes(Box::new(attributes)),
            LoggedChange::SetInitialAcl {
                object,
                entry_count: 2,
                entries: vec![1; 24],
            },
            LoggedChange::SetAcl {
                object,
                acl: acl.clone(),
            },
            LoggedChange::SetXattr {
                object,
                name: name.clone(),
                value: b"value".to_vec(),
            },
            LoggedChange::SetXattr {
                object,
                name: name.clone(),
                value: Vec::new(),
            },
            LoggedChange::CloneRange {
                object,
                offset: 0,
                length: 256,
                block_size: 128,
                pointers: vec![pointer(), pointer()],
            },
        ];
        for kind in [
            RenameKind::Plain,
            RenameKind::Exchange,
            RenameKind::Whiteout(whiteout),
        ] {
            all.push(LoggedChange::Rename(Box::new(LoggedRename {
                kind,
                from_directory: object,
                to_directory: object,
                from: name.clone(),
                to: Text::from("another name"),
            })));
        }
        let created = [
            CreateKind::File,
            CreateKind::Directory,
            CreateKind::XattrDirectory,
            CreateKind::Link(Text::from("target")),
        ];
        for kind in created {
            let more = matches!(kind, CreateKind::File | CreateKind::Directory);
            for (with_acl, with_extended) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                if more || with_acl + with_extended == 0 {
                    all.push(LoggedChange::Create(Box::new(LoggedCreate {
                        kind: kind.clone(),
                        acl: (with_acl == 1).then(|| acl.clone()),
                        extended: (with_extended == 1).then(|| extended.clone()),
                        ..create()
                    })));
                }
            }
        }
        all.push(LoggedChange::Create(Box::new(foreign)));
        all
    }

    #[test]
    fn every_type_survives_being_stored() {
        let mut numbers = std::collections::BTreeSet::new();
        for change in everything() {
            numbers.insert(change.number());
            let record = record(change);
            let bytes = record.encode();
            assert_eq!(bytes.len() % 8, 0);
            assert_eq!(
                LogRecord::decode(&bytes, ByteOrder::Little),
                Ok((record, bytes.len()))
            );
        }
        assert_eq!(
            numbers.into_iter().collect::<Vec<_>>(),
            (1..=24).collect::<Vec<_>>()
        );
    }

    #[test]
    fn records_are_taken_from_a_block_of_either_form() {
        let records: Vec<LogRecord> = everything().into_iter().map(record).collect();
        let bytes: Vec<u8> = records.iter().flat_map(LogRecord::encode).collect();
        for form in [LogForm::Zilog, LogForm::Zilog2] {
            let mut block = vec![1; 8192];
            LogBlock::encode(&mut block, form, pointer(), &bytes);
            let decoded = LogBlock::decode(&block, form).expect("we wrote it");
            let read: Result<Vec<_>, _> = decoded.records().collect();
            assert_eq!(read.as_ref(), Ok(&records));
        }
    }

    #[test]
    fn a_chain_that_claims_too_much_is_refused() {
        for form in [LogForm::Zilog, LogForm::Zilog2] {
            for used in [4096 - 183, 4097, u64::MAX] {
                let mut block = vec![0; 4096];
                LogBlock::encode(&mut block, form, pointer(), &[]);
                let at = if form == LogForm::Zilog {
                    4096 - 184
                } else {
                    0
                } + 136;
                block[at..at + 8].copy_from_slice(&used.to_le_bytes());
                let is_inside = form == LogForm::Zilog2 && used == 4096 - 183;
                assert_eq!(LogBlock::decode(&block, form).is_ok(), is_inside);
            }
        }
        assert!(LogBlock::decode(&[0; 100], LogForm::Zilog).is_err());
    }

    #[test]
    fn a_record_of_the_other_byte_order_decodes() {
        let change = LoggedChange::Remove {
            directory: ObjectId::new(34),
            name: Text::from("n"),
        };
        let mut bytes = record(change.clone()).encode();
        for word in bytes[..40].as_chunks_mut::<8>().0 {
            word.reverse();
        }
        let (read, _) = LogRecord::decode(&bytes, ByteOrder::Big).expect("both are read");
        assert_eq!(read.change, change);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_refused(
            number in 0u64..26,
            length in prop_oneof![Just(32u64), Just(112), Just(192), 0u64..300],
            rest in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..300),
        ) {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let mut bytes = Vec::new();
                for word in [number, length, 7, 3] {
                    match order {
                        ByteOrder::Little => bytes.extend(word.to_le_bytes()),
                        ByteOrder::Big => bytes.extend(word.to_be_bytes()),
                    }
                }
                bytes.extend(&rest);
                let _ = LogRecord::decode(&bytes, order);
                let _ = LogBlock::decode(&bytes, LogForm::Zilog);
            }
        }
    }
}
