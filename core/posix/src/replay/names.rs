//! Replay of records of names: create, remove, link, rename.

use std::sync::Arc;

use tarn_ondisk::acl::AclEntry;
use tarn_ondisk::dnode::OBJECT_BITS;
use tarn_ondisk::intent_log::{CreateKind, LoggedCreate, LoggedRename, LoggedWhiteout, RenameKind};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use super::attributes::{apply_extended, entries_of, set_acl_with_flags};
use super::{RecordError, failed};
use crate::error::PosixError;
use crate::facts::timestamp;
use crate::filesystem::FileSystem;
use crate::node::{Node, lock_all};
use crate::ops::create::{Birth, ENTRY_BYTES, Inherited};
use crate::ops::rename::Whiteout;
use crate::tables::Style;
use crate::types::{DeviceNumber, FileKind, NewFile, RenameMode};

/// How many slots a dnode can have.
const SLOTS_MAX: u16 = 32;

impl FileSystem {
    #[doc(alias("zfs_replay_create", "zfs_replay_create_acl"))]
    pub(super) fn replay_create(
        &self,
        create: &LoggedCreate,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        if create.owner.domain() != 0 || create.group.domain() != 0 {
            return Err(RecordError::NotSupported("users of Windows domains"));
        }
        let (kind, permissions) = kind_of(create)?;
        let birth = birth_of(create)?;
        let directory = self.node_of_record(create.directory, operation)?;
        let change = lock_all(&[&directory]);
        if create.kind == CreateKind::XattrDirectory {
            return self.replay_xattr_directory(&directory, create, birth, operation);
        }
        let entries = entries_of(create)?;
        if entries.is_some() && self.tables.current().style != Style::Attributes {
            return Err(RecordError::NotSupported(
                "access control lists in file systems before version 5",
            ));
        }
        let (target, name) = match &create.kind {
            CreateKind::Link(target) if target.as_bytes().is_empty() => {
                return Err(RecordError::Nonsense("a link leads nowhere"));
            }
            CreateKind::Link(target) => (Some(target.as_bytes()), create.name.as_bytes()),
            _ => (None, create.name.as_bytes()),
        };
        let made = (|| {
            self.check_free_name(&directory, name, operation)?;
            let parent = directory.facts();
            let (mut project, mut flags) = self.inherited_project(&parent, kind);
            if parent.flags.has(ZnodeFlags::XATTR) {
                // An extended attribute that is a file (`xattr=dir`).
                flags = flags.and(ZnodeFlags::XATTR);
                project = project.map(|_| parent.project);
            }
            // A file whose record has no list inherited one from its directory.
            let nfs4_acl = match &entries {
                Some(_) => None,
                None => {
                    let mode = kind.mode_bits() | permissions;
                    self.inherited_nfs4_acl(&directory, kind, mode, operation)?
                }
            };
            let new = NewFile {
                kind,
                permissions,
                umask: 0,
                device: DeviceNumber::default(),
                target,
            };
            let inherited = Inherited {
                permissions,
                owner: create.owner,
                group: create.group,
                project,
                flags,
                access_acl: None,
                default_acl: None,
                nfs4_acl,
                times: None,
            };
            let tx = self.begin_replay(ENTRY_BYTES, operation)?;
            let node = self.make_in(&directory, name, &new, inherited, birth, &tx, operation)?;
            if entries.is_some() || create.extended.is_some() {
                self.finish_created(&node, create, entries.as_deref(), &tx, operation)?;
            }
            Ok(())
        })();
        drop(change);
        made.map_err(failed(create.object))
    }

    /// Applies the parts of a create record that few files have: an access control list, attributes
    /// beyond POSIX.
    fn finish_created(
        &self,
        node: &Arc<Node>,
        create: &LoggedCreate,
        entries: Option<&[AclEntry]>,
        tx: &tarn_object::Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let mut facts = (*node.facts()).clone();
        if let (Some(entries), Some(acl)) = (entries, &create.acl) {
            set_acl_with_flags(&mut facts, entries, acl.flags, &self.tables, tx, operation)?;
        }
        if let Some(extended) = &create.extended {
            apply_extended(&mut facts, extended, &self.tables, tx, operation)?;
        }
        self.store(node, facts, tx, operation)
    }

    /// Refuses a name that is taken, or that no entry can have.
    fn check_free_name(
        &self,
        directory: &Node,
        name: &[u8],
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
            return Err(PosixError::Invalid("no file can have this name"));
        }
        match self.directory(directory, operation)?.find(name)? {
            Some(_) => Err(PosixError::Exists),
            None => Ok(()),
        }
    }

    /// The hidden directory of a file that has none.
    fn replay_xattr_directory(
        &self,
        owner: &Arc<Node>,
        create: &LoggedCreate,
        birth: Birth,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let mode = u32::try_from(create.mode).unwrap_or(0) & 0o177_777;
        let made = (|| {
            if !owner.facts().xattr_directory.is_zero() {
                return Err(PosixError::Exists);
            }
            let tx = self.begin_replay(ENTRY_BYTES, operation)?;
            let mut facts = self.facts_to_change(owner, &tx, operation)?;
            let mut of_owner = facts.clone();
            (of_owner.owner, of_owner.group) = (create.owner, create.group);
            let node = self.make_hidden(owner.id, &of_owner, mode, birth, &tx, operation)?;
            self.lead_to_xattr_directory(&mut facts, node.id, &tx, operation)?;
            self.store(owner, facts, &tx, operation)?;
            self.note_replayed(&tx);
            Ok(())
        })();
        made.map_err(failed(create.object))
    }

    #[doc(alias = "zfs_replay_remove")]
    pub(super) fn replay_remove(
        &self,
        directory: ObjectId,
        name: &[u8],
        is_directory: bool,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let parent = self.node_of_record(directory, operation)?;
        let removed = match is_directory {
            true => self.remove_entry(
                &parent,
                name,
                |child, entry| self.drop_directory(&parent, child, entry, operation),
                operation,
            ),
            false => self.remove_entry(
                &parent,
                name,
                |file, entry| self.drop_name(&parent, file, entry, operation),
                operation,
            ),
        };
        removed.map_err(failed(directory))
    }

    #[doc(alias = "zfs_replay_link")]
    pub(super) fn replay_link(
        &self,
        directory: ObjectId,
        object: ObjectId,
        name: &[u8],
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let parent = self.node_of_record(directory, operation)?;
        let node = self.node_of_record(object, operation)?;
        if node.id == parent.id || node.facts().is_directory() {
            return Err(RecordError::Nonsense("a directory gets a second name"));
        }
        if node.facts().links == 0 {
            return Err(RecordError::Nonsense(
                "a file that has no name gets another",
            ));
        }
        let change = lock_all(&[&parent, &node]);
        let linked = self
            .check_free_name(&parent, name, operation)
            .and_then(|()| {
                let tx = self.begin_replay(ENTRY_BYTES, operation)?;
                self.add_link(&node, &parent, name, &tx, operation)
            });
        drop(change);
        linked.map_err(failed(object))
    }

    #[doc(alias("zfs_replay_rename", "zfs_replay_rename_whiteout"))]
    pub(super) fn replay_rename(
        &self,
        rename: &LoggedRename,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let from = self.node_of_record(rename.from_directory, operation)?;
        let to = self.node_of_record(rename.to_directory, operation)?;
        let (mode, whiteout) = match rename.kind {
            RenameKind::Plain => (RenameMode::Replace, None),
            RenameKind::Exchange => (RenameMode::Exchange, None),
            RenameKind::Whiteout(record) => (RenameMode::Replace, Some(whiteout_of(&record)?)),
        };
        if let Some(whiteout) = &whiteout {
            self.check_free_number(whiteout, operation)?;
        }
        let name_of = |name: &Text| name.as_bytes().to_vec();
        let (old, new) = (name_of(&rename.from), name_of(&rename.to));
        if [&old, &new]
            .iter()
            .any(|name| name.is_empty() || **name == *b"." || **name == *b"..")
        {
            return Err(RecordError::Nonsense("no file can have this name"));
        }
        self.rename_between(None, (&from, &old), (&to, &new), mode, whiteout, operation)
            .map_err(failed(rename.from_directory))
    }
}

impl FileSystem {
    /// Refuses an object number that is in use, before the rename. Earlier records may have freed
    /// it, so they are stored first.
    fn check_free_number(
        &self,
        whiteout: &Whiteout,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let Birth::Recorded { object, .. } = whiteout.birth else {
            return Ok(());
        };
        if let Some(txgs) = &self.txgs {
            let stored = txgs.wait_stored(txgs.open_txg(), operation);
            stored.map_err(|why| failed(object)(PosixError::Pool(why)))?;
        }
        match self.set.object(object, operation) {
            Ok(_) => Err(failed(object)(PosixError::Exists)),
            Err(_) => Ok(()),
        }
    }
}

/// The kind and the permissions of the new file in a record.
fn kind_of(create: &LoggedCreate) -> Result<(FileKind, u32), RecordError> {
    let mode = u32::try_from(create.mode & 0o177_777).unwrap_or(0);
    let kind =
        FileKind::from_mode(mode).ok_or(RecordError::Nonsense("its mode is of no kind of file"))?;
    let fits = match &create.kind {
        CreateKind::File => !matches!(kind, FileKind::Directory | FileKind::SymbolicLink),
        CreateKind::Directory | CreateKind::XattrDirectory => kind == FileKind::Directory,
        CreateKind::Link(_) => kind == FileKind::SymbolicLink,
    };
    match fits {
        true => Ok((kind, mode & 0o7777)),
        false => Err(RecordError::Nonsense("its mode is of another kind of file")),
    }
}

fn birth_of(create: &LoggedCreate) -> Result<Birth, RecordError> {
    check_dnode(create.object, create.dnode_slots)?;
    Ok(Birth::Recorded {
        object: create.object,
        slots: usize::from(create.dnode_slots),
        device: create.device,
        generation: create.generation,
        time: timestamp(create.creation_time),
    })
}

fn check_dnode(object: ObjectId, slots: u16) -> Result<(), RecordError> {
    if object.is_zero() || object.get() >> OBJECT_BITS != 0 {
        return Err(RecordError::Nonsense("no file has this number"));
    }
    match slots {
        1..=SLOTS_MAX => Ok(()),
        _ => Err(RecordError::Nonsense("no dnode has this size")),
    }
}

fn whiteout_of(record: &LoggedWhiteout) -> Result<Whiteout, RecordError> {
    let mode = u32::try_from(record.mode & 0o177_777).unwrap_or(0);
    let kind =
        FileKind::from_mode(mode).ok_or(RecordError::Nonsense("its mode is of no kind of file"))?;
    if matches!(kind, FileKind::Directory | FileKind::SymbolicLink) {
        return Err(RecordError::Nonsense("a directory is left behind"));
    }
    if record.owner.domain() != 0 || record.group.domain() != 0 {
        return Err(RecordError::NotSupported("users of Windows domains"));
    }
    let object = ObjectId::new(record.object_word & ((1 << OBJECT_BITS) - 1));
    let [.., slots] = record.object_word.to_le_bytes();
    let slots = u16::from(slots) + 1;
    check_dnode(object, slots)?;
    Ok(Whiteout {
        kind,
        permissions: mode & 0o7777,
        owner: record.owner,
        group: record.group,
        birth: Birth::Recorded {
            object,
            slots: usize::from(slots),
            device: record.device,
            generation: record.generation,
            time: timestamp(record.creation_time),
        },
    })
}
