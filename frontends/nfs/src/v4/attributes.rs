//! Attributes (`fattr4`): those of files, and those of folders above shares.

use super::bitmap::Bitmap;
use super::owner_names::OwnerNames;
use super::pseudo::PseudoFolder;
use super::status::Status;
use crate::file_call::{FileCall, Realm};
use crate::rpc::record::DATA_BYTES_MAX;
use crate::xdr::{Reader, Writer};
use tarn_engine::AccountKind;
use tarn_engine::files::{
    AclType, Attributes, CaseSensitivity, ControlEntry, FileKind, ObjectId, PosixError,
    SetAttributes, SetTime, SpaceFacts, Timestamp, XattrMode, XattrStore,
};

pub(crate) const TYPE: u32 = 1;
pub(crate) const CHANGE: u32 = 3;
pub(crate) const SIZE: u32 = 4;
pub(crate) const FSID: u32 = 8;
pub(crate) const RDATTR_ERROR: u32 = 11;
pub(crate) const FILEHANDLE: u32 = 19;
pub(crate) const FILEID: u32 = 20;
pub(crate) const ACL: u32 = 12;
const ACL_SUPPORT: u32 = 13;
const MODE: u32 = 33;
const OWNER: u32 = 36;
const OWNER_GROUP: u32 = 37;
const TIME_ACCESS_SET: u32 = 48;
const TIME_MODIFY_SET: u32 = 54;
const MOUNTED_ON_FILEID: u32 = 55;

/// All that are served.
const SUPPORTED: Bitmap = Bitmap::of(&[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 17, 18, 19, 20, 21, 22, 23, 26, 27, 28, 29, 30,
    31, 33, 34, 35, 36, 37, 41, 42, 43, 44, 45, 47, 48, 50, 51, 52, 53, 54, 55, 75,
]);
/// Those of them that version 4.0 has.
const SUPPORTED_0: Bitmap = Bitmap::of(&[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 17, 18, 19, 20, 21, 22, 23, 26, 27, 28, 29, 30,
    31, 33, 34, 35, 36, 37, 41, 42, 43, 44, 45, 47, 48, 50, 51, 52, 53, 54, 55,
]);
/// The attribute that says whether there are extended attributes, of version 4.2.
const XATTR_SUPPORT: u32 = 82;
/// `ACL4_SUPPORT_ALLOW_ACL` and `ACL4_SUPPORT_DENY_ACL`.
const ALLOW_AND_DENY: u32 = 3;
/// The extended attribute by which `posix` gives and takes lists, in the form that the protocol
/// has.
const ACL_NAME: &[u8] = b"system.nfs4_acl";
/// Those that can be set, beside lists.
pub(crate) const SETTABLE: Bitmap = Bitmap::of(&[
    SIZE,
    MODE,
    OWNER,
    OWNER_GROUP,
    TIME_ACCESS_SET,
    TIME_MODIFY_SET,
]);
/// The list alone.
pub(crate) const ONLY_ACL: Bitmap = Bitmap::of(&[ACL]);
/// Those that are only set.
const WRITE_ONLY: Bitmap = Bitmap::of(&[TIME_ACCESS_SET, TIME_MODIFY_SET]);
/// Those that an exclusive creation sets; the times are where the verifier is.
pub(crate) const EXCLUSIVE: Bitmap = Bitmap::of(&[MODE, OWNER, OWNER_GROUP]);

/// What attributes say of the server.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) names: &'a OwnerNames,
    pub(crate) minor: u32,
    pub(crate) lease_s: u32,
    /// Whether the files have NFSv4 lists.
    pub(crate) has_acls: bool,
}

impl Facts<'_> {
    /// The attributes that this version has.
    pub(crate) fn supported(self) -> Bitmap {
        let mut supported = match self.minor {
            0 => SUPPORTED_0,
            _ => SUPPORTED,
        };
        if self.minor > 1 {
            supported.add(XATTR_SUPPORT);
        }
        if self.has_acls {
            supported.add(ACL);
            supported.add(ACL_SUPPORT);
        }
        supported
    }
}

/// What has attributes.
pub(crate) enum Subject<'a> {
    File {
        realm: &'a Realm,
        file: &'a Attributes,
        /// Where they are asked for.
        space: Option<SpaceFacts>,
        /// The list as the protocol has it, where it is asked for and there is one.
        acl: Option<Vec<u8>>,
    },
    Folder(&'a PseudoFolder),
}

/// Whether the files of a file system have NFSv4 lists (`acltype=nfsv4`).
pub(crate) fn has_acls(realm: &Realm) -> bool {
    realm.files().properties().acl_type == AclType::Nfs4
}

/// The list of a file, where it is asked for and there is one.
pub(crate) fn acl_of(
    file: &FileCall,
    id: ObjectId,
    wanted: &Bitmap,
) -> Result<Option<Vec<u8>>, PosixError> {
    if !wanted.has(ACL) || !has_acls(&file.realm) || ControlEntry::of(id).is_some() {
        return Ok(None);
    }
    let (files, operation) = (file.files(), file.operation());
    let list = files.get_xattr(&file.credentials, id, ACL_NAME, operation)?;
    Ok(Some(list))
}

/// Gives a file a list.
pub(crate) fn set_acl(file: &FileCall, id: ObjectId, list: &[u8]) -> Result<(), PosixError> {
    let (files, operation) = (file.files(), file.operation());
    let any = XattrMode::Any;
    files.set_xattr(&file.credentials, id, ACL_NAME, list, any, operation)
}

/// Whether any of these attributes is about space.
pub(crate) fn are_about_space(wanted: &Bitmap) -> bool {
    [21, 22, 23, 42, 43, 44]
        .iter()
        .any(|number| wanted.has(*number))
}

/// Refuses to show what is only set.
pub(crate) fn check_shown(wanted: &Bitmap) -> Result<(), Status> {
    match wanted.and(&WRITE_ONLY).is_empty() {
        true => Ok(()),
        false => Err(Status::INVAL),
    }
}

/// Appends those of the wanted attributes that there are.
pub(crate) fn put(out: &mut Writer, wanted: &Bitmap, subject: &Subject<'_>, facts: Facts<'_>) {
    let (has_acls, has_list) = match subject {
        Subject::File { realm, acl, .. } => (has_acls(realm), acl.is_some()),
        Subject::Folder(_) => (false, false),
    };
    let facts = Facts { has_acls, ..facts };
    let shown = wanted.and(&facts.supported());
    let mut set = Bitmap::default();
    for number in shown.numbers() {
        if !WRITE_ONLY.has(number) && (number != ACL || has_list) {
            set.add(number);
        }
    }
    set.put(out);
    let mut values = Writer::new();
    for number in set.numbers() {
        match number {
            0 => facts.supported().put(&mut values),
            // Handles stay good.
            2 => drop(values.u32(0)),
            5 | 6 | 9 | 15 | 17 | 18 | 26 | 34 => drop(values.bool(true)),
            7 => drop(values.bool(false)),
            10 => drop(values.u32(facts.lease_s)),
            RDATTR_ERROR => drop(values.u32(0)),
            27 => drop(values.u64(i64::MAX.cast_unsigned())),
            28 => drop(values.u32(u32::MAX)),
            30 | 31 => drop(values.u64(DATA_BYTES_MAX as u64)),
            51 => drop(values.u64(0).u32(1)),
            ACL_SUPPORT => drop(values.u32(ALLOW_AND_DENY)),
            75 => EXCLUSIVE.put(&mut values),
            number => match subject {
                _ if number == OWNER || number == OWNER_GROUP => {
                    put_owner(&mut values, number, subject, facts.names);
                }
                Subject::File { acl, .. } if number == ACL => {
                    values.fixed(acl.as_deref().unwrap_or_default());
                }
                Subject::File {
                    realm, file, space, ..
                } => {
                    put_of_file(&mut values, number, realm, file, space.as_ref());
                }
                Subject::Folder(folder) => put_of_folder(&mut values, number, folder),
            },
        }
    }
    out.opaque(values.as_slice());
}

/// Folders above shares are root's.
fn put_owner(out: &mut Writer, number: u32, subject: &Subject<'_>, names: &OwnerNames) {
    let (uid, gid) = match subject {
        Subject::File { file, .. } => (file.uid, file.gid),
        Subject::Folder(_) => (0, 0),
    };
    let text = match number {
        OWNER => names.text_of(AccountKind::User, uid),
        _ => names.text_of(AccountKind::Group, gid),
    };
    out.opaque(text.as_bytes());
}

fn put_of_file(
    out: &mut Writer,
    number: u32,
    realm: &Realm,
    file: &Attributes,
    space: Option<&SpaceFacts>,
) {
    let space = space.copied().unwrap_or_default();
    match number {
        TYPE => drop(out.u32(kind_of(file.kind))),
        CHANGE => drop(out.u64(file.change())),
        SIZE => drop(out.u64(file.size)),
        FSID => drop(out.u64(realm.tree.guid()).u64(0)),
        16 => {
            let case = realm.files().naming().case;
            out.bool(case != CaseSensitivity::Sensitive);
        }
        FILEHANDLE => drop(out.opaque(&realm.handle(file).encode())),
        FILEID | MOUNTED_ON_FILEID => drop(out.u64(file.id.get())),
        21 | 22 => drop(out.u64(space.available_objects)),
        23 => drop(out.u64(space.total_objects)),
        29 => {
            let longest = realm.files().properties().name_bytes_max();
            out.u32(u32::try_from(longest).unwrap_or(u32::MAX));
        }
        MODE => drop(out.u32(file.permissions)),
        35 => drop(out.u32(u32::try_from(file.links).unwrap_or(u32::MAX))),
        41 => drop(out.u32(file.device.major).u32(file.device.minor)),
        42 | 43 => drop(out.u64(space.available_bytes)),
        44 => drop(out.u64(space.total_bytes)),
        45 => drop(out.u64(file.blocks_512.saturating_mul(512))),
        47 => put_time(out, file.accessed),
        50 => put_time(out, file.created),
        52 => put_time(out, file.changed),
        53 => put_time(out, file.modified),
        XATTR_SUPPORT => drop(out.bool(realm.files().properties().xattrs != XattrStore::Off)),
        other => unreachable!("attribute {other} is served"),
    }
}

fn put_of_folder(out: &mut Writer, number: u32, folder: &PseudoFolder) {
    const DIRECTORY: u32 = 2;
    match number {
        TYPE => drop(out.u32(DIRECTORY)),
        CHANGE => drop(out.u64(folder.change)),
        SIZE => drop(out.u64(2)),
        FSID => drop(out.u64(0).u64(1)),
        16 | XATTR_SUPPORT => drop(out.bool(false)),
        FILEHANDLE => drop(out.opaque(&folder.handle())),
        FILEID | MOUNTED_ON_FILEID => drop(out.u64(folder.id())),
        21 | 22 | 23 | 42 | 43 | 44 | 45 => drop(out.u64(0)),
        29 => drop(out.u32(255)),
        MODE => drop(out.u32(0o555)),
        35 => drop(out.u32(2)),
        41 => drop(out.u32(0).u32(0)),
        47 | 50 | 52 | 53 => put_time(out, Timestamp::default()),
        other => unreachable!("attribute {other} is served"),
    }
}

/// `nfs_ftype4`.
pub(crate) fn kind_of(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharacterDevice => 4,
        FileKind::SymbolicLink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

fn put_time(out: &mut Writer, time: Timestamp) {
    out.u64(time.seconds.cast_unsigned()).u32(time.nanoseconds);
}

/// Attributes that a client wants to set.
#[derive(Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) attributes: SetAttributes,
    /// The list as the protocol has it.
    pub(crate) acl: Option<&'a [u8]>,
    /// Which they are.
    pub(crate) set: Bitmap,
}

/// The attributes that a client wants to set.
pub(crate) fn decode<'a>(reader: &mut Reader<'a>, facts: Facts<'_>) -> Result<Wanted<'a>, Status> {
    let (set, values) = decode_raw(reader)?;
    let mut settable = SETTABLE;
    if facts.has_acls {
        settable.add(ACL);
    }
    if !set.is_within(&facts.supported()) {
        return Err(Status::ATTRNOTSUPP);
    }
    if !set.is_within(&settable) {
        return Err(Status::INVAL);
    }
    let mut reader = Reader::new(values);
    let (mut wanted, mut acl) = (SetAttributes::default(), None);
    for number in set.numbers() {
        match number {
            SIZE => wanted.size = Some(reader.u64()?),
            ACL => acl = Some(list(&mut reader)?),
            MODE => wanted.permissions = Some(mode(reader.u32()?)?),
            OWNER => wanted.uid = Some(account(&mut reader, AccountKind::User, facts.names)?),
            OWNER_GROUP => {
                wanted.gid = Some(account(&mut reader, AccountKind::Group, facts.names)?)
            }
            TIME_ACCESS_SET => wanted.accessed = Some(set_time(&mut reader)?),
            _ => wanted.modified = Some(set_time(&mut reader)?),
        }
    }
    match reader.rest().is_empty() {
        true => Ok(Wanted {
            attributes: wanted,
            acl,
            set,
        }),
        false => Err(Status::BADXDR),
    }
}

/// The bytes of a list (`nfsace4<>`).
fn list<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Status> {
    /// More than the file system takes.
    const ENTRIES_MAX: u32 = 1024;
    const WHO_BYTES_MAX: usize = 1024;
    let begun = reader.rest();
    let count = reader.u32()?;
    if count > ENTRIES_MAX {
        return Err(Status::INVAL);
    }
    for _ in 0..count {
        let (_kind, _flags, _mask) = (reader.u32()?, reader.u32()?, reader.u32()?);
        reader.opaque(WHO_BYTES_MAX)?;
    }
    Ok(&begun[..begun.len() - reader.rest().len()])
}

/// The set and the bytes of attributes.
pub(crate) fn decode_raw<'a>(reader: &mut Reader<'a>) -> Result<(Bitmap, &'a [u8]), Status> {
    /// More than all attributes that can be set or compared have.
    const BYTES_MAX: usize = 128 << 10;
    let set = Bitmap::decode(reader)?;
    Ok((set, reader.opaque(BYTES_MAX)?))
}

fn mode(mode: u32) -> Result<u32, Status> {
    match mode & !0o7777 {
        0 => Ok(mode),
        _ => Err(Status::INVAL),
    }
}

/// A number, or `name@domain` with a name of this machine.
fn account(reader: &mut Reader<'_>, kind: AccountKind, names: &OwnerNames) -> Result<u32, Status> {
    const NAME_BYTES_MAX: usize = 512;
    let text = std::str::from_utf8(reader.opaque(NAME_BYTES_MAX)?);
    let text = text.ok().filter(|text| !text.is_empty());
    names.number_of(kind, text.ok_or(Status::INVAL)?)
}

fn set_time(reader: &mut Reader<'_>) -> Result<SetTime, Status> {
    match reader.u32()? {
        0 => Ok(SetTime::Now),
        1 => {
            let (seconds, nanoseconds) = (reader.u64()?, reader.u32()?);
            match nanoseconds < 1_000_000_000 {
                true => Ok(SetTime::To(Timestamp {
                    seconds: seconds.cast_signed(),
                    nanoseconds,
                })),
                false => Err(Status::INVAL),
            }
        }
        _ => Err(Status::BADXDR),
    }
}
