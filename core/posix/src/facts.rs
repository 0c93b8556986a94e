//! The attributes of a file in memory: decoded, changed, and encoded again.
//!
//! # Mechanism
//! [`Facts`] has the attributes that every file has as fields, and all attributes, known or not, in
//! their stored order beside them. Encoding puts the fields back in their places, so unknown
//! attributes are carried through. A file from before ZPL version 5 is read from its fixed
//! structure. In a file system that is still of such a version it is written back in that form; in
//! one that was upgraded it gets attributes when it is first changed. Symbolic links keep the form
//! for good, as in OpenZFS: a link's target is behind the structure or in its contents, where
//! readers look while the link has the old form.
//!
//! # Invariants
//! - A file in the old form has no attributes but those of the structure: setting another converts
//!   the file first.
//! - New files have their attributes in the order in which OpenZFS lays them out, so that layouts
//!   are shared.

use tarn_object::Tx;
use tarn_ondisk as ondisk;
use tarn_ondisk::acl::{
    AclEntry, AclPhys, AclVersion, EMBEDDED_SIZE, encode_entries, encode_initial_entries,
};
use tarn_ondisk::attributes::{Attributes, FileAttribute};
use tarn_ondisk::declare::{ByteOrder, Corrupt};
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::{ZNODE_SIZE, ZnodeFlags};
use tarn_probe::Operation;

use crate::acl::trivial_entries;
use crate::error::PosixError;
use crate::tables::{AttributeTables, Style, Tables};
use crate::types::{DeviceNumber, FileKind, Timestamp};

/// The uid and gid shown for users and groups of Windows domains, for which Linux has no numbers.
const NOBODY: u32 = 65_534;

/// How a file's attributes are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// By a layout.
    Attributes,
    /// In the znode structure of ZPL versions before 5, and the bytes behind it in the bonus.
    OldFile {
        /// A link's target, or a virus scanner's stamp.
        tail: Vec<u8>,
    },
}

/// The attributes of a file.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub form: Form,
    /// Type and permissions.
    pub mode: u32,
    pub size: u64,
    pub generation: u64,
    pub parent: ObjectId,
    pub links: u64,
    /// The directory of extended attributes, or 0.
    pub xattr_directory: ObjectId,
    /// Zero for what is no device.
    pub device: u64,
    pub flags: ZnodeFlags,
    pub owner: Fuid,
    pub group: Fuid,
    pub project: u64,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub created: Timestamp,
    /// All attributes in their stored order. Those that are fields above may be outdated here.
    pub values: Attributes,
}

impl Facts {
    /// From a bonus and, where there is one, a spill block.
    pub fn decode(
        bonus_type: ObjectType,
        bonus: &[u8],
        spill: Option<&[u8]>,
        tables: &Tables,
    ) -> Result<Facts, Corrupt> {
        let mut form = Form::Attributes;
        let values = match bonus_type {
            ObjectType::SystemAttributes => {
                let mut values = Attributes::new();
                values.add_buffer(bonus, &tables.registry, &tables.layouts)?;
                if let Some(spill) = spill {
                    values.add_buffer(spill, &tables.registry, &tables.layouts)?;
                }
                values
            }
            ObjectType::Znode => {
                let tail = bonus.get(ZNODE_SIZE..).unwrap_or_default().to_vec();
                form = Form::OldFile { tail };
                Attributes::of_old_file(bonus, ByteOrder::Little)?
            }
            _ => {
                return Err(Corrupt::Inconsistent {
                    what: "file",
                    offset: 0,
                    why: "the object has no attributes of a file",
                });
            }
        };
        Facts::from_values(form, values, tables)
    }

    fn from_values(form: Form, values: Attributes, tables: &Tables) -> Result<Facts, Corrupt> {
        let word = |attribute| tables.id(attribute).and_then(|id| values.word(id));
        let needed = |attribute: FileAttribute| {
            word(attribute).ok_or(Corrupt::Inconsistent {
                what: "file",
                offset: 0,
                why: "an attribute that every file has is missing",
            })
        };
        let time = |attribute| {
            let words = tables.id(attribute).and_then(|id| values.two_words(id));
            words.map(timestamp).unwrap_or_default()
        };
        let mode = u32::try_from(needed(FileAttribute::Mode)? & 0xffff).unwrap_or_default();
        if FileKind::from_mode(mode).is_none() {
            let found = u64::from(mode);
            return Err(Corrupt::Value {
                what: "file",
                field: "mode",
                offset: 0,
                found,
            });
        }
        Ok(Facts {
            mode,
            size: needed(FileAttribute::Size)?,
            generation: needed(FileAttribute::Generation)?,
            parent: ObjectId::from(needed(FileAttribute::Parent)?),
            links: needed(FileAttribute::Links)?,
            xattr_directory: ObjectId::from(word(FileAttribute::XattrDirectory).unwrap_or(0)),
            device: word(FileAttribute::Device).unwrap_or(0),
            flags: ZnodeFlags::from_word(needed(FileAttribute::Flags)?),
            owner: Fuid::from_word(needed(FileAttribute::Owner)?),
            group: Fuid::from_word(needed(FileAttribute::Group)?),
            project: word(FileAttribute::Project).unwrap_or(0),
            accessed: time(FileAttribute::AccessTime),
            modified: time(FileAttribute::ModificationTime),
            changed: time(FileAttribute::ChangeTime),
            created: time(FileAttribute::CreationTime),
            form,
            values,
        })
    }

    /// Its kind.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).expect("a mode that is none was refused")
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// Permission bits, set-id and sticky bits included.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// The owner as Linux knows users.
    pub fn uid(&self) -> u32 {
        self.owner.as_posix().unwrap_or(NOBODY)
    }

    /// The group as Linux knows groups.
    pub fn gid(&self) -> u32 {
        self.group.as_posix().unwrap_or(NOBODY)
    }

    /// The device's number. Linux stores 12 bits of major and 20 of minor, others 32 and 32.
    pub fn device_number(&self) -> DeviceNumber {
        let low = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap_or_default();
        match self.device >> 32 {
            0 => DeviceNumber {
                major: low(self.device >> 20),
                minor: low(self.device & 0xf_ffff),
            },
            major => DeviceNumber {
                major: low(major),
                minor: low(self.device),
            },
        }
    }

    /// The bytes of an attribute that is no field.
    pub fn value(&self, attribute: FileAttribute, tables: &Tables) -> Option<&[u8]> {
        self.values.get(tables.id(attribute)?)
    }

    /// Notes a change of contents at this time.
    pub fn contents_changed(&mut self, now: Timestamp) {
        self.modified = now;
        self.attributes_changed(now);
        self.flags = self.flags.and(ZnodeFlags::NOT_SCANNED);
    }

    /// Moves the time of the last change on. It never repeats: it is at least a nanosecond later
    /// than the one before, whatever the clock says, since the change attribute
    /// ([`Attributes::change`](crate::types::Attributes::change)) is made of it.
    pub fn attributes_changed(&mut self, now: Timestamp) {
        self.changed = now.max(self.changed.next());
        self.flags = self.flags.and(ZnodeFlags::ARCHIVE);
    }

    /// Sets an attribute that is no field. It is registered if it has no number yet.
    ///
    /// # Panics
    /// When the file is in the old form, which has no place for it.
    pub fn set_value(
        &mut self,
        attribute: FileAttribute,
        value: Vec<u8>,
        tables: &AttributeTables,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        assert_eq!(self.form, Form::Attributes, "{attribute:?} has a place");
        let id = tables.id_or_register(tx, attribute, operation)?;
        self.values.set(id, value);
        Ok(())
    }

    /// Sets the permission bits, and the trivial list of the new mode. A file in the old form whose
    /// list was an object of its own does not name it any more:
    /// [`FileSystem::store`](crate::FileSystem) frees that object.
    pub fn set_permissions(&mut self, permissions: u32, tables: &Tables) {
        self.mode = (self.mode & !0o7777) | (permissions & 0o7777);
        let entries = trivial_entries(self.mode);
        if let Form::OldFile { .. } = &self.form {
            let set = self.set_old_acl(&entries, tables);
            set.expect("six short entries fit");
        }
        if self.form == Form::Attributes
            && let (Some(count), Some(list)) = (
                tables.id(FileAttribute::AclCount),
                tables.id(FileAttribute::AclEntries),
            )
        {
            let length = u64::try_from(entries.len()).unwrap_or_default();
            self.values.set_word(count, length);
            self.values.set(list, encode_entries(&entries));
        }
        let wide = ZnodeFlags::INHERITED_ENTRIES.and(ZnodeFlags::ACL_OBJECT_ENTRIES);
        self.flags = self.flags.without(wide).and(ZnodeFlags::ACL_TRIVIAL);
        assert_eq!(
            self.permissions(),
            permissions & 0o7777,
            "the mode has the permissions that were set"
        );
        self.flags = match self.mode & 0o111 {
            0o111 => self.flags.and(ZnodeFlags::NO_EXECUTE_DENIED),
            _ => self.flags.without(ZnodeFlags::NO_EXECUTE_DENIED),
        };
    }

    /// Sets the access control list of a file in the old form, in the structure itself.
    ///
    /// # Errors
    /// `NotSupported` for a list that does not fit.
    pub fn set_old_acl(&mut self, entries: &[AclEntry], tables: &Tables) -> Result<(), PosixError> {
        let version = match tables.style {
            Style::Structure(version) => version,
            Style::Attributes => AclVersion::Fuid,
        };
        let acl = old_acl_bytes(entries, version).ok_or(PosixError::NotSupported(
            "access control lists of more than six entries in file systems before version 5",
        ))?;
        if let Some(id) = FileAttribute::ZnodeAcl.fixed_id() {
            self.values.set(id, acl);
        }
        Ok(())
    }

    /// Moves a file to a project. Its attribute has a fixed place behind those that every file has,
    /// so that space accounting finds it; a file that had none gets its attributes in the order of
    /// new files.
    #[doc(alias = "sa_add_projid")]
    pub fn set_project(
        &mut self,
        project: u64,
        tables: &AttributeTables,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let id = tables.id_or_register(tx, FileAttribute::Project, operation)?;
        self.project = project;
        self.flags = self.flags.and(ZnodeFlags::HAS_PROJECT);
        if self.values.get(id).is_some() {
            return Ok(());
        }
        let current = tables.current();
        let mut ordered = Attributes::new();
        for attribute in new_file_order(self.kind(), true) {
            let known = current.id(attribute);
            if let Some((id, value)) = known.and_then(|id| Some((id, self.values.get(id)?))) {
                ordered.set(id, value);
            } else if attribute == FileAttribute::Project {
                ordered.set_word(id, project);
            }
        }
        for (id, value) in self.values.iter() {
            if ordered.get(id).is_none() {
                ordered.set(id, value);
            }
        }
        debug_assert!(
            (self.values.iter()).all(|(id, _)| ordered.get(id).is_some()),
            "a project takes no attribute away"
        );
        self.values = ordered;
        Ok(())
    }

    /// Converts a file in the old form, which is no symbolic link, to attributes. `entries` are
    /// those of its access control list.
    pub fn modernize(
        &mut self,
        entries: &[AclEntry],
        tables: &AttributeTables,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let Form::OldFile { tail } = std::mem::replace(&mut self.form, Form::Attributes) else {
            return Ok(());
        };
        self.values = Attributes::new();
        let order = new_file_order(self.kind(), self.flags.has(ZnodeFlags::HAS_PROJECT));
        for attribute in order {
            let id = tables.id_or_register(tx, attribute, operation)?;
            let size = usize::from(attribute.size());
            self.values.set(id, vec![0; size]);
        }
        let current = tables.current();
        let id = |attribute| current.id(attribute).expect("it was registered above");
        self.values.set_word(
            id(FileAttribute::AclCount),
            u64::try_from(entries.len()).unwrap_or_default(),
        );
        self.values
            .set(id(FileAttribute::AclEntries), encode_entries(entries));
        if !self.xattr_directory.is_zero() {
            let id = tables.id_or_register(tx, FileAttribute::XattrDirectory, operation)?;
            self.values.set_word(id, 0);
        }
        if self.flags.has(ZnodeFlags::BONUS_SCAN_STAMP) && tail.len() >= 32 {
            self.set_value(
                FileAttribute::ScanStamp,
                tail[..32].to_vec(),
                tables,
                tx,
                operation,
            )?;
            self.flags = self.flags.without(ZnodeFlags::BONUS_SCAN_STAMP);
        }
        Ok(())
    }

    /// The attributes with the fields put into their places.
    pub fn to_values(&self, tables: &Tables) -> Attributes {
        let mut values = self.values.clone();
        let mut set = |attribute, word| {
            // A field that is zero and has no place yet needs none.
            if let Some(id) = tables.id(attribute)
                && (word != 0 || values.get(id).is_some())
            {
                values.set_word(id, word);
            }
        };
        set(FileAttribute::Mode, u64::from(self.mode));
        set(FileAttribute::Size, self.size);
        set(FileAttribute::Generation, self.generation);
        set(FileAttribute::Parent, self.parent.get());
        set(FileAttribute::Links, self.links);
        set(FileAttribute::XattrDirectory, self.xattr_directory.get());
        set(FileAttribute::Device, self.device);
        set(FileAttribute::Flags, self.flags.word());
        set(FileAttribute::Owner, self.owner.word());
        set(FileAttribute::Group, self.group.word());
        set(FileAttribute::Project, self.project);
        for (attribute, time) in [
            (FileAttribute::AccessTime, self.accessed),
            (FileAttribute::ModificationTime, self.modified),
            (FileAttribute::ChangeTime, self.changed),
            (FileAttribute::CreationTime, self.created),
        ] {
            if let Some(id) = tables.id(attribute) {
                values.set_two_words(id, words(time));
            }
        }
        values
    }

    /// The access control list in the old structure, or the reference to the object that has it;
    /// none when the file has attributes.
    pub fn old_acl(&self) -> Option<Result<AclPhys, Corrupt>> {
        let id = FileAttribute::ZnodeAcl.fixed_id()?;
        if self.form == Form::Attributes {
            return None;
        }
        let bytes = self.values.get(id)?;
        let mut reader =
            ondisk::declare::Reader::new("access control list", bytes, ByteOrder::Little);
        Some(ondisk::declare::Stored::decode(&mut reader))
    }

    /// The object with the access control list of a file in the old form, if the list is a long
    /// one.
    #[doc(alias = "zfs_external_acl")]
    pub fn acl_object(&self) -> Option<ObjectId> {
        let acl = self.old_acl()?.ok()?;
        (!acl.external.is_zero()).then_some(acl.external)
    }
}

impl Facts {
    /// The bonus of a file in the old form; none for one with attributes.
    pub fn to_old_bonus(&self, tables: &Tables) -> Option<Vec<u8>> {
        let Form::OldFile { tail } = &self.form else {
            return None;
        };
        let mut bonus = self.to_values(tables).to_old_file()?;
        bonus.extend(tail);
        Some(bonus)
    }
}

/// The size of the largest attribute of a fixed size: the old access control list.
const ATTRIBUTE_SIZE_MAX: usize = 88;

/// The attributes of a new file in the order of its layout.
#[doc(alias = "zfs_mknode")]
pub(crate) fn new_file_order(kind: FileKind, has_project: bool) -> Vec<FileAttribute> {
    use FileAttribute::*;
    let mut order = vec![
        Mode,
        Size,
        Generation,
        Owner,
        Group,
        Parent,
        Flags,
        AccessTime,
        ModificationTime,
        ChangeTime,
        CreationTime,
        Links,
    ];
    if has_project {
        order.push(Project);
    }
    if matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
        order.push(Device);
    }
    order.extend([AclCount, AclEntries]);
    order
}

/// The attributes that a new file begins with.
pub(crate) struct NewFacts {
    pub mode: u32,
    pub size: u64,
    pub generation: u64,
    pub parent: ObjectId,
    pub links: u64,
    pub device: u64,
    pub flags: ZnodeFlags,
    pub owner: Fuid,
    pub group: Fuid,
    /// None in a file system that does not count projects, and for files that cannot have one.
    pub project: Option<u64>,
    pub now: Timestamp,
}

impl NewFacts {
    /// The facts of a new file. All attributes it needs are registered.
    pub fn build(
        self,
        tables: &AttributeTables,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<Facts, PosixError> {
        let kind = FileKind::from_mode(self.mode).ok_or(PosixError::Invalid("no kind of file"))?;
        let current = tables.current();
        let style = current.style;
        let mut form = Form::Attributes;
        let mut values = Attributes::new();
        if style != Style::Attributes {
            form = Form::OldFile { tail: Vec::new() };
            values = Attributes::of_old_file(&[0; ZNODE_SIZE], ByteOrder::Little)
                .expect("the structure has this size");
        }
        if style == Style::Attributes {
            for attribute in new_file_order(kind, self.project.is_some()) {
                let id = match current.id(attribute) {
                    Some(id) => id,
                    None => tables.id_or_register(tx, attribute, operation)?,
                };
                values.set(
                    id,
                    &[0; ATTRIBUTE_SIZE_MAX][..usize::from(attribute.size())],
                );
            }
        }
        let mut flags = self
            .flags
            .and(ZnodeFlags::ARCHIVE)
            .and(ZnodeFlags::NOT_SCANNED);
        if self.project.is_some() {
            flags = flags.and(ZnodeFlags::HAS_PROJECT);
        }
        if kind == FileKind::Directory {
            flags = flags.and(ZnodeFlags::ACL_AUTO_INHERIT);
        }
        let mut facts = Facts {
            form,
            mode: self.mode,
            size: self.size,
            generation: self.generation,
            parent: self.parent,
            links: self.links,
            xattr_directory: ObjectId::ZERO,
            device: self.device,
            flags,
            owner: self.owner,
            group: self.group,
            project: self.project.unwrap_or(0),
            accessed: self.now,
            modified: self.now,
            changed: self.now,
            created: self.now,
            values,
        };
        facts.set_permissions(self.mode & 0o7777, &tables.current());
        Ok(facts)
    }
}

/// An access control list in the form of the old structure; none where it does not fit.
fn old_acl_bytes(entries: &[AclEntry], version: AclVersion) -> Option<Vec<u8>> {
    let count = u16::try_from(entries.len()).ok()?;
    let (bytes, size, pad_or_count) = match version {
        AclVersion::Initial => {
            let bytes = encode_initial_entries(entries)?;
            (bytes, u32::from(count), 0)
        }
        AclVersion::Fuid => {
            let bytes = encode_entries(entries);
            let size = u32::try_from(bytes.len()).unwrap_or_default();
            (bytes, size, count)
        }
    };
    if bytes.len() > EMBEDDED_SIZE {
        return None;
    }
    let mut acl = vec![0; 8];
    acl.extend(size.to_le_bytes());
    acl.extend(u16::from(version == AclVersion::Fuid).to_le_bytes());
    acl.extend(pad_or_count.to_le_bytes());
    acl.extend(bytes);
    acl.resize(16 + EMBEDDED_SIZE, 0);
    Some(acl)
}

/// Linux' number of a device.
pub(crate) fn device_word(device: DeviceNumber) -> u64 {
    (u64::from(device.major) << 20) | u64::from(device.minor & 0xf_ffff)
}

pub(crate) fn timestamp([seconds, nanoseconds]: [u64; 2]) -> Timestamp {
    Timestamp {
        seconds: seconds.cast_signed(),
        nanoseconds: u32::try_from(nanoseconds).unwrap_or(0).min(999_999_999),
    }
}

pub(crate) fn words(time: Timestamp) -> [u64; 2] {
    [time.seconds.cast_unsigned(), u64::from(time.nanoseconds)]
}
