//! Create records: files, directories and symbolic links that were made.

use super::change::number;
use super::encoding::{Bytes, domain_count, text, texts};
use super::{LoggedAcl, LoggedExtended};
use crate::declare::{Corrupt, Reader};
use crate::fuid::Fuid;
use crate::nvlist::Text;
use crate::units::ObjectId;

/// Which bits of an object's number are the number; the first eight are the size of its dnode.
const OBJECT_BITS: u32 = 48;

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

/// Which of the ten types of records that make something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CreateForm {
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

    pub(super) fn of_number(number: u64) -> Option<CreateForm> {
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
    pub(super) fn number(&self) -> u64 {
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

    pub(super) fn decode(
        form: CreateForm,
        reader: &mut Reader<'_>,
    ) -> Result<LoggedCreate, Corrupt> {
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

    pub(super) fn encode(&self, bytes: &mut Bytes) {
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
