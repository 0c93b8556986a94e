//! Changing permissions, owners, times, sizes and flags: `chmod`, `chown`, `utimensat`, `truncate`,
//! `chattr`.
//!
//! # Mechanism
//! All changes of one request are checked first and then made in one transaction. Only a truncated
//! file may have more blocks than one transaction can free: then its end is freed first, in pieces.
//!
//! A POSIX list follows the mode; an NFSv4 list follows it as `aclmode` says.

use std::sync::Arc;

use tarn_ondisk::acl::{ENTRY_COUNT_MAX, permission};
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::intent_log::mask;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::acl::ACCESS_NAME;
use crate::error::PosixError;
use crate::facts::{Facts, Form};
use crate::filesystem::FileSystem;
use crate::holders::{Change, TO_END};
use crate::intent::{AttributesSet, Pending, attributes_set};
use crate::nfs4_acl::chmod::after_chmod;
use crate::nfs4_acl::set_acl;
use crate::node::{Node, lock_existing};
use crate::ops::access::{AccessModel, WRITE};
use crate::ops::write::SIZE_MAX;
use crate::permissions::{SET_GID, without_set_ids};
use crate::properties::{AclMode, AclType};
use crate::types::{Attributes, Credentials, FileKind, SetAttributes, SetTime, Timestamp};

/// About how much a change of attributes writes.
pub(crate) const ATTRIBUTE_BYTES: u64 = 16 << 10;

/// The flags that a caller can set. The others say how the file is stored.
const SETTABLE: ZnodeFlags = ZnodeFlags::READ_ONLY
    .and(ZnodeFlags::HIDDEN)
    .and(ZnodeFlags::SYSTEM)
    .and(ZnodeFlags::ARCHIVE)
    .and(ZnodeFlags::IMMUTABLE)
    .and(ZnodeFlags::NO_UNLINK)
    .and(ZnodeFlags::APPEND_ONLY)
    .and(ZnodeFlags::NO_DUMP)
    .and(ZnodeFlags::OPAQUE)
    .and(ZnodeFlags::REPARSE)
    .and(ZnodeFlags::OFFLINE)
    .and(ZnodeFlags::SPARSE)
    .and(ZnodeFlags::INHERIT_PROJECT);
/// Of those, the ones that only privileged users may change.
const PRIVILEGED: ZnodeFlags = ZnodeFlags::IMMUTABLE
    .and(ZnodeFlags::APPEND_ONLY)
    .and(ZnodeFlags::NO_UNLINK);

impl FileSystem {
    /// Changes attributes of a file, and gives all of them. The time of the last change
    /// (`st_ctime`) moves even where nothing is set, as with `chown(-1, -1)`.
    ///
    /// # Errors
    /// `NotPermitted` for users other than the owner or for an immutable file, `PermissionDenied`,
    /// `FileTooLarge`, `QuotaExceeded`, `NoSpace`, `ReadOnly`; nothing has changed then.
    #[doc(alias = "zfs_setattr")]
    pub fn set_attributes(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        changes: &SetAttributes,
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        if self.control_entry(id).is_some() {
            return Err(PosixError::NotPermitted);
        }
        let node = self.node(id, operation)?;
        self.check_writable()?;
        let _told = self.telling(self.changed_by(&node, changes, operation), operation);
        let _changing = self.changing(id, operation)?;
        let change = lock_existing(&[&node])?;
        self.check_changes(credentials, &node, changes, operation)?;
        let facts = node.facts();
        if let Some(size) = changes.size.filter(|size| *size < facts.size) {
            self.free_contents(&node, size, operation)?;
        }
        let grows = changes.size.is_some_and(|size| size > facts.size);
        let prepared = changes.size;
        let prepared = prepared.map(|size| self.prepare_size(&node, size, operation));
        let _prepared = prepared.transpose()?;
        let tx = if grows {
            self.begin(ATTRIBUTE_BYTES, operation)?
        } else {
            self.begin_freeing(
                facts
                    .size
                    .saturating_sub(changes.size.unwrap_or(facts.size)),
                operation,
            )?
        };
        let content = changes.size.map(|_| node.content.write());
        let mut new = self.facts_to_change(&node, &tx, operation)?;
        if let Some(size) = changes.size {
            self.set_size(&node, &mut new, size, &tx, operation)?;
        }
        let now = self.now();
        self.change_facts(credentials, &node, &mut new, changes, now);
        if let Some(project) = changes.project {
            new.set_project(project, &self.tables, &tx, operation)?;
        }
        let (mut pending, mut lists) = (Pending::default(), Pending::default());
        self.follow_nfs4(&node, &facts, &mut new, changes, &mut lists, &tx, operation)?;
        pending.own(attributes_set(id, &facts, &new, set_by(changes)));
        // A replay of the mode's record would change the list; the list's own record behind it sets
        // the right one.
        pending.append(lists);
        if new.permissions() != facts.permissions() {
            self.follow_permissions(&node, &facts, &mut new, &mut pending, &tx, operation)?;
        }
        self.store(&node, new, &tx, operation)?;
        self.log_pending(&tx, &node, pending);
        let mut txg = tx.txg();
        drop((content, tx));
        if changes.uid.is_some() || changes.gid.is_some() || changes.project.is_some() {
            txg = txg.max(self.hand_over_xattrs(&node.facts(), operation)?);
        }
        drop(change);
        self.after_change(txg, operation)?;
        Ok(self.node_attributes(&node))
    }

    /// The change to tell the other holders of. They write back dirty contents that a new size cuts
    /// off or uncovers.
    fn changed_by(
        &self,
        node: &Node,
        changes: &SetAttributes,
        operation: &Operation,
    ) -> Change<'static> {
        let file = node.id;
        let Some(size) = changes.size else {
            return Change::Attributes { file };
        };
        let offset = size.min(node.facts().size);
        self.have_written_back(file, offset, TO_END, operation);
        Change::Contents {
            file,
            offset,
            length: TO_END,
        }
    }

    /// Whether [`set_attributes`](Self::set_attributes) would let this user make these changes.
    /// Nothing is changed.
    ///
    /// # Errors
    /// As [`set_attributes`](Self::set_attributes).
    pub fn check_set_attributes(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        changes: &SetAttributes,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if self.control_entry(id).is_some() {
            return Err(PosixError::NotPermitted);
        }
        let node = self.node(id, operation)?;
        self.check_writable()?;
        self.check_changes(credentials, &node, changes, operation)
    }

    /// Refuses changes that this user, or any user, may not make.
    fn check_changes(
        &self,
        credentials: &Credentials,
        node: &Node,
        changes: &SetAttributes,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let facts = node.facts();
        let is_owner = self.is_owner(credentials, &facts);
        self.check_flags(credentials, &facts, changes)?;
        if changes.permissions.is_some() {
            self.check_chmod(credentials, node, operation)?;
        }
        if changes.project.is_some() && !is_owner {
            return Err(PosixError::NotPermitted);
        }
        self.check_project_change(&facts, changes)?;
        self.check_new_owner(credentials, node, changes, operation)?;
        let (user, group) = (changes.uid.map(Fuid::posix), changes.gid.map(Fuid::posix));
        self.check_new_owner_quota(
            user.filter(|user| *user != facts.owner),
            group.filter(|group| *group != facts.group),
            changes.project,
            operation,
        )?;
        match (changes.accessed, changes.modified) {
            (None, None) => {}
            _ if is_owner => {}
            _ if self.nfs4_allows(
                credentials,
                node,
                permission::WRITE_ATTRIBUTES,
                operation,
            )? => {}
            (Some(SetTime::Now), Some(SetTime::Now)) => {
                self.check_access(credentials, node, WRITE, operation)?;
            }
            // The kernel sets the modification time with a new size.
            (None, Some(SetTime::Now)) if changes.size.is_some() => {}
            _ => return Err(PosixError::NotPermitted),
        }
        let Some(size) = changes.size else {
            return Ok(());
        };
        match facts.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(PosixError::IsDirectory),
            _ => return Err(PosixError::Invalid("only regular files have a size to set")),
        }
        if size > SIZE_MAX {
            return Err(PosixError::FileTooLarge);
        }
        match changes.is_open {
            true => Ok(()),
            false => self.check_access(credentials, node, WRITE, operation),
        }
    }

    /// Refuses to change the mode: to users other than the owner, unless an NFSv4 list allows them
    /// to change it, and where `aclmode=restricted` keeps a list that says more than a mode.
    fn check_chmod(
        &self,
        credentials: &Credentials,
        node: &Node,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let (facts, properties) = (node.facts(), self.properties());
        let may_change = self.is_owner(credentials, &facts)
            || self.nfs4_allows(credentials, node, permission::WRITE_ACL, operation)?;
        let is_kept = properties.acl_type == AclType::Nfs4
            && properties.acl_mode == AclMode::Restricted
            && !facts.flags.has(ZnodeFlags::ACL_TRIVIAL);
        match may_change && !is_kept {
            true => Ok(()),
            false => Err(PosixError::NotPermitted),
        }
    }

    /// Whether NFSv4 lists decide, and the file's allows this.
    fn nfs4_allows(
        &self,
        credentials: &Credentials,
        node: &Node,
        wanted: u32,
        operation: &Operation,
    ) -> Result<bool, PosixError> {
        if self.access_model(credentials) != AccessModel::Nfs4 {
            return Ok(false);
        }
        match self.check_nfs4(credentials, node, wanted, operation) {
            Ok(()) => Ok(true),
            Err(PosixError::PermissionDenied) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Refuses to give a file away, or to a group that the owner is not in. A user that an NFSv4
    /// list allows to (`write_owner`) may take the file, and for a group that the user is in.
    fn check_new_owner(
        &self,
        credentials: &Credentials,
        node: &Node,
        changes: &SetAttributes,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let (facts, model) = (node.facts(), self.access_model(credentials));
        let changes_none = changes.uid.is_none() && changes.gid.is_none();
        if changes_none || credentials.privileged || model == AccessModel::Checked {
            return Ok(());
        }
        let is_owner = credentials.uid == facts.uid();
        let keeps_user = changes.uid.is_none_or(|uid| is_owner && uid == facts.uid());
        let may_group = |gid| is_owner && (gid == facts.gid() || credentials.is_member(gid));
        if keeps_user && changes.gid.is_none_or(may_group) {
            return Ok(());
        }
        let takes = changes.uid.is_none_or(|uid| uid == credentials.uid)
            && changes.gid.is_none_or(|gid| credentials.is_member(gid));
        match takes && self.nfs4_allows(credentials, node, permission::WRITE_OWNER, operation)? {
            true => Ok(()),
            false => Err(PosixError::NotPermitted),
        }
    }

    /// Refuses changes that the file's flags forbid, and changes of flags.
    fn check_flags(
        &self,
        credentials: &Credentials,
        facts: &Facts,
        changes: &SetAttributes,
    ) -> Result<(), PosixError> {
        if let Some(flags) = changes.flags {
            let changed = (flags ^ facts.flags.word()) & SETTABLE.word();
            let needs_privilege = ZnodeFlags::from_word(changed).has_any(PRIVILEGED);
            let is_owner = self.is_owner(credentials, facts);
            if !is_owner || (needs_privilege && !credentials.privileged) {
                return Err(PosixError::NotPermitted);
            }
        }
        let is_immutable = facts.flags.has(ZnodeFlags::IMMUTABLE);
        let is_append_only = facts.flags.has(ZnodeFlags::APPEND_ONLY);
        let sets_time = |time| matches!(time, Some(SetTime::To(_)));
        let changes_more = changes.permissions.is_some()
            || changes.uid.is_some()
            || changes.gid.is_some()
            || changes.project.is_some()
            || changes.size.is_some()
            || sets_time(changes.accessed)
            || sets_time(changes.modified);
        let touches = changes.accessed.is_some() || changes.modified.is_some();
        if (is_immutable && (changes_more || touches)) || (is_append_only && changes_more) {
            return Err(PosixError::NotPermitted);
        }
        Ok(())
    }

    /// Makes an NFSv4 list follow a new mode, as `aclmode` says, and the mode a list of a file with
    /// a new owner or group.
    #[doc(alias("zfs_acl_chmod_setattr", "zfs_acl_chown_setattr"))]
    #[expect(
        clippy::too_many_arguments,
        reason = "what was, what is to be, and where both go"
    )]
    fn follow_nfs4(
        &self,
        node: &Node,
        old: &Facts,
        new: &mut Facts,
        changes: &SetAttributes,
        pending: &mut Pending,
        tx: &tarn_object::Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let properties = self.properties();
        let is_trivial = old.flags.has(ZnodeFlags::ACL_TRIVIAL);
        let changes_any =
            changes.permissions.is_some() || changes.uid.is_some() || changes.gid.is_some();
        if properties.acl_type != AclType::Nfs4 || is_trivial || !changes_any {
            return Ok(());
        }
        let mut entries = self.nfs4_acl(node, old, operation)?;
        if changes.permissions.is_some() {
            let changed = after_chmod(&entries, is_trivial, new.mode, properties.acl_mode);
            entries = changed.ok_or(PosixError::NotPermitted)?;
        }
        if entries.len() > ENTRY_COUNT_MAX {
            return Err(PosixError::NoSpace);
        }
        set_acl(new, &entries, &self.tables, tx, operation)?;
        pending.acl_set(node.id, &entries);
        Ok(())
    }

    /// Refuses a project, and the flag that passes it on, where files cannot have one.
    fn check_project_change(
        &self,
        facts: &Facts,
        changes: &SetAttributes,
    ) -> Result<(), PosixError> {
        let hands_down = |flags: u64| {
            let inherits = ZnodeFlags::INHERIT_PROJECT;
            ZnodeFlags::from_word(flags).has(inherits) != facts.flags.has(inherits)
        };
        if changes.project.is_none() && !changes.flags.is_some_and(hands_down) {
            return Ok(());
        }
        self.check_project(changes.project.unwrap_or(facts.project))?;
        if facts.form != Form::Attributes {
            return Err(PosixError::NotSupported(
                "projects of files from before version 5",
            ));
        }
        match facts.kind() {
            FileKind::Regular | FileKind::Directory => Ok(()),
            _ => Err(PosixError::NotSupported("projects of what has no contents")),
        }
    }

    /// Makes the changes that were checked, but for size and project.
    fn change_facts(
        &self,
        credentials: &Credentials,
        node: &Node,
        facts: &mut Facts,
        changes: &SetAttributes,
        now: Timestamp,
    ) {
        let mut permissions = match changes.permissions {
            Some(permissions) => permissions & 0o7777,
            None => facts.permissions(),
        };
        let changes_owner = changes.uid.is_some() || changes.gid.is_some();
        let changes_size = changes.size.is_some() && !credentials.passes_posix_rules();
        if changes.permissions.is_none() && (changes_owner || changes_size) {
            permissions = without_set_ids(credentials, facts);
        }
        if let Some(uid) = changes.uid {
            facts.owner = Fuid::posix(uid);
        }
        if let Some(gid) = changes.gid {
            facts.group = Fuid::posix(gid);
        }
        if changes.permissions.is_some()
            && !credentials.passes_posix_rules()
            && !credentials.is_member(facts.gid())
        {
            permissions &= !SET_GID;
        }
        self.change_permissions(facts, permissions);
        if let Some(flags) = changes.flags {
            let set = ZnodeFlags::from_word(flags & SETTABLE.word());
            facts.flags = facts.flags.without(SETTABLE).and(set);
        }
        facts.attributes_changed(now);
        let time = |time| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        if let Some(modified) = changes.modified {
            facts.modified = time(modified);
        }
        if let Some(accessed) = changes.accessed {
            // An access time from reading that is not stored yet is dropped.
            *node.accessed.lock() = None;
            facts.accessed = time(accessed);
        }
        if let Some(flags) = changes.flags
            && !ZnodeFlags::from_word(flags).has(ZnodeFlags::ARCHIVE)
        {
            facts.flags = facts.flags.without(ZnodeFlags::ARCHIVE);
        }
    }

    /// Makes the file's POSIX list follow its new permission bits.
    pub(crate) fn follow_permissions(
        &self,
        node: &Arc<Node>,
        old: &Facts,
        new: &mut Facts,
        pending: &mut Pending,
        tx: &tarn_object::Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if let Some(acl) = self.access_acl(node, old, operation)? {
            let value = acl.with_mode(new.permissions()).encode();
            self.put_xattr(
                &node.object,
                new,
                ACCESS_NAME,
                &value,
                pending,
                tx,
                operation,
            )?;
        }
        Ok(())
    }
}

/// The attributes that a request sets, changed or not.
fn set_by(changes: &SetAttributes) -> AttributesSet {
    let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
    AttributesSet {
        mask: bit(changes.permissions.is_some(), mask::MODE)
            | bit(changes.uid.is_some(), mask::OWNER)
            | bit(changes.gid.is_some(), mask::GROUP)
            | bit(changes.size.is_some(), mask::SIZE | mask::MODIFICATION_TIME)
            | bit(changes.accessed.is_some(), mask::ACCESS_TIME)
            | bit(changes.modified.is_some(), mask::MODIFICATION_TIME),
        project: changes.project.is_some(),
    }
}
