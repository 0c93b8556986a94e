//! Making files, directories, symbolic links and nodes.
//!
//! # Mechanism
//! The new object, its attributes and its entry are one transaction. A new file belongs to the user
//! that makes it; its group is that of the directory if the directory has the set-group-id bit. A
//! directory's default access control list, where there is one, takes the place of the umask;
//! entries of an NFSv4 list that a directory hands down make the list of the new file, and its
//! mode.

use std::sync::Arc;

use tarn_dataset::ops::snapshot_of_head::SnapshotChange;
use tarn_object::{Object, Tx};
use tarn_ondisk::acl::ENTRY_COUNT_MAX;
use tarn_ondisk::attributes::FileAttribute;
use tarn_ondisk::declare::widen;
use tarn_ondisk::dnode::OLD_BONUS_BYTES_MAX;
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::intent_log::{CreateKind, LoggedAcl, LoggedChange, mask};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{LogicalSize, ObjectId};
use tarn_ondisk::znode::{ZNODE_SIZE, ZnodeFlags};
use tarn_probe::Operation;

use crate::acl::{ACCESS_NAME, DEFAULT_NAME, PosixAcl};
use crate::control_directory::{self, ControlEntry};
use crate::create_filesystem::object_of_file;
use crate::directory::Directory;
use crate::error::PosixError;
use crate::facts::{Facts, Form, NewFacts, device_word};
use crate::filesystem::FileSystem;
use crate::holders::Change;
use crate::intent::{AttributesSet, Pending, attributes_set, created};
use crate::nfs4_acl::inherit::{InheritedAcl, inherited};
use crate::nfs4_acl::{LIST_FOLLOWS, logged_acl, permission_bits, set_acl};
use crate::node::{Node, lock_existing};
use crate::ops::access::EXECUTE;
use crate::permissions::SET_GID;
use crate::properties::AclType;
use crate::store::store_facts;
use crate::tables::Style;
use crate::types::{Attributes, Credentials, FileKind, NewFile, Timestamp};

/// About how much making a file writes: blocks of its dnode and of its directory, and indirect
/// blocks above them.
pub(crate) const ENTRY_BYTES: u64 = 64 << 10;
/// The longest target of a symbolic link, as Linux has it.
const TARGET_BYTES_MAX: usize = 4095;

impl FileSystem {
    /// Makes a file and gives it a name.
    ///
    /// # Errors
    /// `Exists`, `PermissionDenied`, `NameTooLong`, `NotUtf8`, `NoSpace`, `QuotaExceeded`,
    /// `ReadOnly`, `NotDirectory`; nothing has changed then.
    #[doc(alias("zfs_create", "zfs_mkdir", "zfs_symlink", "zfs_mknode"))]
    pub fn create(
        &self,
        credentials: &Credentials,
        parent: ObjectId,
        name: &[u8],
        new: &NewFile<'_>,
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        if let Some(entry) = self.control_entry(parent) {
            return self.create_in_control(credentials, entry, name, new, operation);
        }
        self.create_in(credentials, parent, name, new, None, operation)
    }

    /// Makes a file in a directory outside of `.zfs`. `times` are those of access and modification,
    /// where they are not the present.
    pub(super) fn create_in(
        &self,
        credentials: &Credentials,
        parent: ObjectId,
        name: &[u8],
        new: &NewFile<'_>,
        times: Option<[Timestamp; 2]>,
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        check_new_file(credentials, new)?;
        let directory = self.node(parent, operation)?;
        let came = Change::Entry {
            directory: parent,
            name,
        };
        let _told = self.telling(came, operation);
        let _change = lock_existing(&[&directory])?;
        self.check_new_entry(credentials, &directory, name, new.kind, operation)?;
        let mut inherited = self.inherit(credentials, &directory, new, operation)?;
        inherited.times = times;
        let (owner, group) = (inherited.owner, inherited.group);
        self.check_new_file_quota(owner, group, inherited.project.unwrap_or(0), operation)?;
        let tx = self.begin(ENTRY_BYTES, operation)?;
        let birth = Birth::Now;
        let node = self.make_in(&directory, name, new, inherited, birth, &tx, operation)?;
        let txg = tx.txg();
        drop(tx);
        drop(_change);
        self.after_change(txg, operation)?;
        Ok(self.node_attributes(&node))
    }

    /// Makes a regular file without a name in a directory, and opens it for the caller
    /// (`O_TMPFILE`). It is in the unlinked set until it gets a name ([`FileSystem::link`]); a file
    /// that never gets one is freed with its last close, or at the next mount after a crash. The
    /// intent log has no records of it.
    ///
    /// # Errors
    /// As [`FileSystem::create`]; `NotSupported` below `.zfs`, and for anything but a regular file.
    #[doc(alias = "zfs_tmpfile")]
    pub fn create_unnamed(
        &self,
        credentials: &Credentials,
        parent: ObjectId,
        new: &NewFile<'_>,
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        if self.control_entry(parent).is_some() {
            return Err(PosixError::NotSupported("files without a name below .zfs"));
        }
        if new.kind != FileKind::Regular {
            return Err(PosixError::NotSupported(
                "anything but a file without a name",
            ));
        }
        let directory = self.node(parent, operation)?;
        let _change = lock_existing(&[&directory])?;
        self.check_may_add(credentials, &directory, new.kind, operation)?;
        let inherited = self.inherit(credentials, &directory, new, operation)?;
        let (owner, group) = (inherited.owner, inherited.group);
        self.check_new_file_quota(owner, group, inherited.project.unwrap_or(0), operation)?;
        let tx = self.begin(ENTRY_BYTES, operation)?;
        let birth = Birth::Now;
        let begun = self.begin_file(directory.id, new, inherited, birth, 0, &tx, operation)?;
        let node = Node::new(begun.object, begun.facts);
        if let Err(error) = self.add_unlinked(&node, &tx, operation) {
            let _ = self.set.free_object(&tx, node.id, operation);
            return Err(error);
        }
        self.unlinked_counts.lost_names(1);
        node.note_change(tx.txg());
        let node = self.add_new(node);
        node.set_awaits_name(true);
        match node.open() {
            true => Ok(self.node_attributes(&node)),
            // It was opened by its number, and closed and freed again, before this open.
            false => Err(PosixError::NotFound),
        }
    }

    /// Makes a directory in `.zfs/snapshot`, which is a snapshot. Nothing else can be made below
    /// `.zfs`.
    #[doc(alias = "zfsctl_snapdir_mkdir")]
    fn create_in_control(
        &self,
        credentials: &Credentials,
        parent: ControlEntry,
        name: &[u8],
        new: &NewFile<'_>,
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        match (parent, new.kind) {
            (ControlEntry::Snapshots, FileKind::Directory) => {
                let change = SnapshotChange::Take(control_directory::snapshot_name(name)?);
                self.change_snapshot(credentials, change)?;
                self.lookup(credentials, parent.id(), name, operation)
            }
            (_, FileKind::Regular) => Err(PosixError::PermissionDenied),
            _ => Err(PosixError::NotPermitted),
        }
    }

    /// Refuses a name that is taken or not allowed, and a user without permission to add it.
    /// `Exists` comes before other errors, as on Linux.
    pub(crate) fn check_new_entry(
        &self,
        credentials: &Credentials,
        directory: &Node,
        name: &[u8],
        kind: FileKind,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if !directory.facts().is_directory() {
            return Err(PosixError::NotDirectory);
        }
        self.check_access(credentials, directory, EXECUTE, operation)?;
        let is_control =
            name == control_directory::NAME && self.shows_control_directory(directory.id);
        if is_control || name == b"." || name == b".." {
            return Err(PosixError::Exists);
        }
        if self.find_entry(directory, name, operation)?.is_some() {
            return Err(PosixError::Exists);
        }
        self.naming
            .check_new(name, self.properties().name_bytes_max())?;
        self.check_may_add(credentials, directory, kind, operation)
    }

    /// The owner, group, permissions and project of a new file, from its maker and its directory.
    #[doc(alias = "zfs_acl_ids_create")]
    fn inherit(
        &self,
        credentials: &Credentials,
        directory: &Node,
        new: &NewFile<'_>,
        operation: &Operation,
    ) -> Result<Inherited, PosixError> {
        let parent = directory.facts();
        let is_directory = new.kind == FileKind::Directory;
        let default_acl = match new.kind {
            FileKind::SymbolicLink => None,
            _ => self.posix_acl(directory, &parent, DEFAULT_NAME, operation)?,
        };
        let mut access_acl = None;
        let mut permissions = new.permissions & 0o7777;
        match &default_acl {
            None if new.kind != FileKind::SymbolicLink => permissions &= !(new.umask & 0o777),
            None => {}
            Some(acl) => {
                let acl = acl.inherited(permissions);
                let (bits, says_more) = acl.mode_bits();
                permissions = (permissions & 0o7000) | bits;
                access_acl = says_more.then_some(acl);
            }
        }
        let mut group = Fuid::posix(credentials.gid);
        if parent.mode & SET_GID != 0 {
            group = parent.group;
            if is_directory {
                permissions |= SET_GID;
            }
        }
        let is_member = group
            .as_posix()
            .is_some_and(|gid| credentials.is_member(gid));
        if !is_directory && !credentials.passes_posix_rules() && !is_member {
            permissions &= !SET_GID;
        }
        let owner = Fuid::posix(credentials.uid);
        let mode = new.kind.mode_bits() | permissions;
        let nfs4_acl = self.inherited_nfs4_acl(directory, new.kind, mode, operation)?;
        if let Some(acl) = &nfs4_acl {
            let (bits, _) = permission_bits(&acl.entries, (owner, group));
            permissions = (permissions & 0o7000) | bits;
        }
        let (project, flags) = self.inherited_project(&parent, new.kind);
        Ok(Inherited {
            permissions,
            owner,
            group,
            project,
            flags,
            access_acl,
            default_acl: default_acl.filter(|_| is_directory),
            nfs4_acl,
            times: None,
        })
    }

    /// The NFSv4 list that a new file with this mode inherits from its directory; none where the
    /// list is trivial.
    pub(crate) fn inherited_nfs4_acl(
        &self,
        directory: &Node,
        kind: FileKind,
        mode: u32,
        operation: &Operation,
    ) -> Result<Option<InheritedAcl>, PosixError> {
        let (parent, properties) = (directory.facts(), self.properties());
        let hands_down =
            parent.flags.has(ZnodeFlags::INHERITED_ENTRIES) && !parent.flags.has(ZnodeFlags::XATTR);
        if properties.acl_type != AclType::Nfs4 || !hands_down {
            return Ok(None);
        }
        let entries = self.nfs4_acl(directory, &parent, operation)?;
        let (acl_inherit, acl_mode) = (properties.acl_inherit, properties.acl_mode);
        let acl = inherited(&entries, kind, mode, acl_inherit, acl_mode);
        match acl.entries.len() > ENTRY_COUNT_MAX {
            true => Err(PosixError::NoSpace),
            false => Ok(Some(acl)),
        }
    }

    /// The project of a new file in a directory, and the flags that go with it. All kinds of files
    /// have a project, so that they can be moved and linked within it; only regular files and
    /// directories pass theirs on.
    #[doc(alias = "zfs_inherit_projid")]
    pub(crate) fn inherited_project(
        &self,
        parent: &Facts,
        kind: FileKind,
    ) -> (Option<u64>, ZnodeFlags) {
        if !self.counts_projects() {
            return (None, ZnodeFlags::NONE);
        }
        if !parent.flags.has(ZnodeFlags::INHERIT_PROJECT) {
            return (Some(0), ZnodeFlags::NONE);
        }
        let flags = match kind {
            FileKind::Regular | FileKind::Directory => ZnodeFlags::INHERIT_PROJECT,
            _ => ZnodeFlags::NONE,
        };
        (Some(parent.project), flags)
    }

    /// Whether files have the attribute of a project.
    pub(crate) fn counts_projects(&self) -> bool {
        self.tables.current().style == Style::Attributes && self.set.policy().counts_projects
    }

    /// Makes the object and its entry, and hands over the record. A failure undoes both.
    #[expect(
        clippy::too_many_arguments,
        reason = "a name, and all that a file begins with"
    )]
    pub(crate) fn make_in(
        &self,
        directory: &Arc<Node>,
        name: &[u8],
        new: &NewFile<'_>,
        inherited: Inherited,
        birth: Birth,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<Arc<Node>, PosixError> {
        let nfs4_acl = inherited.nfs4_acl.clone();
        let (node, mut pending) =
            self.make_unlogged(directory, name, new, inherited, birth, tx, operation)?;
        if nfs4_acl
            .as_ref()
            .is_some_and(|acl| logged_acl(&acl.entries).is_none())
        {
            pending.unlogged();
        }
        let kind = match (new.kind, new.target) {
            (FileKind::Directory, _) => CreateKind::Directory,
            (FileKind::SymbolicLink, Some(target)) => CreateKind::Link(Text::from(target)),
            _ => CreateKind::File,
        };
        let (slots, facts) = (node.object.info().slots, node.facts());
        let mut record = created(kind, directory.id, node.id, slots, &facts, name);
        if let (LoggedChange::Create(create), Some(acl)) = (&mut record, &nfs4_acl) {
            let follows = facts.flags.has(ZnodeFlags::ACL_AUTO_INHERIT);
            create.acl = logged_acl(&acl.entries).map(|list| LoggedAcl {
                flags: if follows { LIST_FOLLOWS } else { 0 },
                ..list
            });
        }
        self.log_created(tx, record, pending);
        Ok(self.add_new(node))
    }

    /// Makes the object and its entry. The caller adds the node to the table of files and hands
    /// over the record. Gives the records of the file's first attributes. A failure undoes both.
    #[expect(
        clippy::too_many_arguments,
        reason = "a name, and all that a file begins with"
    )]
    pub(crate) fn make_unlogged(
        &self,
        directory: &Arc<Node>,
        name: &[u8],
        new: &NewFile<'_>,
        inherited: Inherited,
        birth: Birth,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(Arc<Node>, Pending), PosixError> {
        let is_directory = new.kind == FileKind::Directory;
        let links = if is_directory { 2 } else { 1 };
        let begun = self.begin_file(directory.id, new, inherited, birth, links, tx, operation)?;
        let (object, now) = (begun.object, begun.facts.created);
        let mut has_entry = false;
        let entered = (|| {
            self.directory(directory, operation)?
                .insert(tx, name, object.id(), new.kind)?;
            has_entry = true;
            self.count_entries(directory, 1, i64::from(is_directory), now, tx, operation)
        })();
        if let Err(error) = entered {
            // Neither can fail: the entry and the object are in memory.
            if has_entry {
                let _ = self.directory(directory, operation)?.remove(tx, name);
            }
            let _ = self.set.free_object(tx, object.id(), operation);
            return Err(error);
        }
        let node = Node::new(object, begun.facts);
        node.note_change(tx.txg());
        Ok((node, begun.pending))
    }

    /// Makes the object of a file that will have so many links, with all its attributes. A failure
    /// frees it again.
    #[expect(clippy::too_many_arguments, reason = "all that a file begins with")]
    fn begin_file(
        &self,
        directory: ObjectId,
        new: &NewFile<'_>,
        inherited: Inherited,
        birth: Birth,
        links: u64,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<Begun, PosixError> {
        let is_directory = new.kind == FileKind::Directory;
        let facts = NewFacts {
            mode: new.kind.mode_bits() | inherited.permissions,
            size: if is_directory { 2 } else { 0 },
            generation: match birth {
                Birth::Now => tx.txg().get(),
                Birth::Recorded { generation, .. } => generation,
            },
            parent: directory,
            links,
            device: match (new.kind, birth) {
                (FileKind::CharacterDevice | FileKind::BlockDevice, Birth::Now) => {
                    device_word(new.device)
                }
                (
                    FileKind::CharacterDevice | FileKind::BlockDevice,
                    Birth::Recorded { device, .. },
                ) => device,
                _ => 0,
            },
            flags: inherited.flags,
            owner: inherited.owner,
            group: inherited.group,
            project: inherited.project,
            now: match birth {
                Birth::Now => self.now(),
                Birth::Recorded { time, .. } => time,
            },
        };
        let object = self.allocate_file(new.kind, birth, tx, operation)?;
        let mut pending = Pending::default();
        let made = (|| {
            let mut facts = facts.build(&self.tables, tx, operation)?;
            if let Some(acl) = &inherited.nfs4_acl {
                set_acl(&mut facts, &acl.entries, &self.tables, tx, operation)?;
                if !acl.has_asked_mode {
                    facts.flags = facts.flags.without(ZnodeFlags::ACL_AUTO_INHERIT);
                }
            }
            if let Some(target) = new.target {
                self.put_target(&object, &mut facts, target, tx, operation)?;
            }
            for (name, acl) in [
                (ACCESS_NAME, &inherited.access_acl),
                (DEFAULT_NAME, &inherited.default_acl),
            ] {
                if let Some(acl) = acl {
                    self.put_xattr(
                        &object,
                        &mut facts,
                        name,
                        &acl.encode(),
                        &mut pending,
                        tx,
                        operation,
                    )?;
                }
            }
            if let Some([accessed, modified]) = inherited.times {
                let plain = facts.clone();
                (facts.accessed, facts.modified) = (accessed, modified);
                let set = AttributesSet {
                    mask: mask::ACCESS_TIME | mask::MODIFICATION_TIME,
                    project: false,
                };
                pending.shared(attributes_set(object.id(), &plain, &facts, set));
            }
            if is_directory {
                Directory::create(&object, &self.naming, tx, operation)?;
            }
            store_facts(&self.tables, &object, &mut facts, tx, operation)?;
            Ok(facts)
        })();
        match made {
            Ok(facts) => Ok(Begun {
                object,
                facts,
                pending,
            }),
            Err(error) => {
                // It cannot fail: the object is in memory.
                let _ = self.set.free_object(tx, object.id(), operation);
                Err(error)
            }
        }
    }

    /// A new object for a file.
    pub(crate) fn allocate_file(
        &self,
        kind: FileKind,
        birth: Birth,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<Arc<Object>, PosixError> {
        let style = self.tables.current().style;
        let object_type = match kind {
            FileKind::Directory => ObjectType::Directory,
            _ => ObjectType::PlainFile,
        };
        let mut new = object_of_file(object_type, style);
        if style == Style::Attributes {
            new.slots = match birth {
                Birth::Now => self.properties().dnode_slots,
                Birth::Recorded { slots, .. } => slots,
            };
        }
        Ok(match birth {
            Birth::Now => self.set.allocate(tx, new, operation)?,
            Birth::Recorded { object, .. } => self.set.claim(tx, object, new, operation)?,
        })
    }

    /// Stores the target of a symbolic link: in an attribute, or in the old form behind the
    /// structure, or as contents.
    fn put_target(
        &self,
        object: &Arc<Object>,
        facts: &mut Facts,
        target: &[u8],
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        facts.size = widen(target.len());
        let Form::OldFile { tail } = &mut facts.form else {
            let value = target.to_vec();
            return facts.set_value(
                FileAttribute::LinkTarget,
                value,
                &self.tables,
                tx,
                operation,
            );
        };
        if ZNODE_SIZE + target.len() <= OLD_BONUS_BYTES_MAX {
            *tail = target.to_vec();
            return Ok(());
        }
        object.set_block_size(tx, LogicalSize::from(facts.size), operation)?;
        Ok(object.write(tx, 0, target, operation)?)
    }

    /// Adds to the numbers of entries and subdirectories of a directory. The caller holds `change`.
    pub(crate) fn count_entries(
        &self,
        directory: &Node,
        entries: i64,
        subdirectories: i64,
        now: Timestamp,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let mut facts = (*directory.facts()).clone();
        facts.size = facts.size.saturating_add_signed(entries);
        facts.links = facts.links.saturating_add_signed(subdirectories);
        facts.contents_changed(now);
        self.store(directory, facts, tx, operation)
    }
}

/// A new file before it has an entry and a node in the table.
struct Begun {
    object: Arc<Object>,
    facts: Facts,
    pending: Pending,
}

/// The attributes of a new file that follow from its maker and its directory.
pub(crate) struct Inherited {
    pub permissions: u32,
    pub owner: Fuid,
    pub group: Fuid,
    pub project: Option<u64>,
    pub flags: ZnodeFlags,
    pub access_acl: Option<PosixAcl>,
    pub default_acl: Option<PosixAcl>,
    /// None where the mode makes the NFSv4 list.
    pub nfs4_acl: Option<InheritedAcl>,
    /// Times of access and modification, where they are not the present.
    pub times: Option<[Timestamp; 2]>,
}

/// The identity of a new file: its number, generation and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Birth {
    /// It is made now, with a free number.
    Now,
    /// It is made again by a replay.
    Recorded {
        /// Its number, which must be free.
        object: ObjectId,
        /// How many slots its dnode takes.
        slots: usize,
        /// The number of a device, as it is stored.
        device: u64,
        /// Its generation.
        generation: u64,
        /// When it was made.
        time: Timestamp,
    },
}

/// Refuses a kind of file that this user, or no user, can make.
fn check_new_file(credentials: &Credentials, new: &NewFile<'_>) -> Result<(), PosixError> {
    let is_device = matches!(new.kind, FileKind::CharacterDevice | FileKind::BlockDevice);
    if is_device && !credentials.passes_posix_rules() {
        return Err(PosixError::NotPermitted);
    }
    match (new.kind, new.target) {
        (FileKind::SymbolicLink, None) => Err(PosixError::Invalid("a link leads somewhere")),
        (FileKind::SymbolicLink, Some([])) => Err(PosixError::NotFound),
        (FileKind::SymbolicLink, Some(target)) if target.len() > TARGET_BYTES_MAX => {
            Err(PosixError::NameTooLong)
        }
        (FileKind::SymbolicLink, Some(target)) if target.contains(&0) => {
            Err(PosixError::Invalid("a zero in the target of a link"))
        }
        (FileKind::SymbolicLink, Some(_)) | (_, None) => Ok(()),
        (_, Some(_)) => Err(PosixError::Invalid("only links have a target")),
    }
}
