//! Setting and removing extended attributes. POSIX access control lists are stored as extended
//! attributes; an NFSv4 list is only shown as one (`nfs4_acl_xattr`).

use std::sync::Arc;

use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::acl::{ACCESS_NAME, DEFAULT_NAME, PosixAcl};
use crate::error::PosixError;
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::holders::Change;
use crate::intent::{AttributesSet, Pending, attributes_set};
use crate::nfs4_acl::wire;
use crate::node::{Node, lock_existing};
use crate::ops::access::WRITE;
use crate::permissions::{SET_GID, STICKY};
use crate::types::{Credentials, FileKind, SetGroupId, XattrMode};
use crate::xattrs::{Namespace, VALUE_BYTES_MAX};

/// About how much setting an attribute writes beside its value.
const XATTR_BYTES: u64 = 64 << 10;

impl FileSystem {
    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `Exists` or `NoAttribute` as `mode` says, `AttributeTooLarge`, `NotSupported`,
    /// `PermissionDenied`, `NotPermitted`, `NoSpace`, `ReadOnly`.
    #[doc(alias = "zpl_xattr_set")]
    pub fn set_xattr(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let set_gid = SetGroupId::AsTheyMay;
        self.set_xattr_and_mode(credentials, id, name, value, mode, set_gid, operation)
    }

    /// As [`set_xattr`](Self::set_xattr), with the caller's choice for the set-group-id bit where
    /// the attribute is a POSIX list.
    ///
    /// # Errors
    /// As [`set_xattr`](Self::set_xattr).
    #[expect(
        clippy::too_many_arguments,
        reason = "a name, a value, and two choices"
    )]
    pub fn set_xattr_and_mode(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        set_gid: SetGroupId,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(PosixError::AttributeTooLarge);
        }
        let namespace = self.check_xattr_change(credentials, id, name)?;
        if name == wire::NAME {
            return match mode {
                XattrMode::Create => Err(PosixError::Exists),
                _ => self.set_nfs4_acl(credentials, id, value, operation),
            };
        }
        let node = self.node(id, operation)?;
        let _told = self.telling(Change::Attributes { file: id }, operation);
        let _changing = self.changing(id, operation)?;
        let change = lock_existing(&[&node])?;
        self.check_may_set(credentials, &node, namespace, operation)?;
        let old = node.facts();
        let existing = self.stored_name(&node, &old, name, operation)?;
        match (mode, &existing) {
            (XattrMode::Create, Some(_)) => return Err(PosixError::Exists),
            (XattrMode::Replace, None) => return Err(PosixError::NoAttribute),
            _ => {}
        }
        let list = self.parse_list(&node, name, value)?;
        let tx = self.begin(
            XATTR_BYTES + tarn_ondisk::declare::widen(value.len()),
            operation,
        )?;
        let mut facts = self.facts_to_change(&node, &tx, operation)?;
        let mut pending = Pending::default();
        let mut is_stored = true;
        if let Some(list) = list {
            let loses_set_gid = set_gid == SetGroupId::Goes
                || (!credentials.passes_posix_rules() && !credentials.is_member(facts.gid()));
            is_stored = self.apply_list(loses_set_gid, &mut facts, name, list.as_ref());
        }
        if let Some(other) = existing
            .as_deref()
            .filter(|stored| !is_stored || *stored != name)
        {
            let object = &node.object;
            self.take_xattr(object, &mut facts, other, &mut pending, &tx, operation)?;
        }
        if is_stored {
            self.put_xattr(
                &node.object,
                &mut facts,
                name,
                value,
                &mut pending,
                &tx,
                operation,
            )?;
        }
        if facts.mode != old.mode {
            pending.own(attributes_set(id, &old, &facts, AttributesSet::default()));
        }
        facts.attributes_changed(self.now());
        self.store(&node, facts, &tx, operation)?;
        self.log_pending(&tx, &node, pending);
        let txg = tx.txg();
        drop((tx, change));
        self.after_change(txg, operation)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported`, `PermissionDenied`, `NotPermitted`, `ReadOnly`.
    pub fn remove_xattr(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        name: &[u8],
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let namespace = self.check_xattr_change(credentials, id, name)?;
        if name == wire::NAME {
            return self.remove_nfs4_acl(credentials, id, operation);
        }
        let node = self.node(id, operation)?;
        let _told = self.telling(Change::Attributes { file: id }, operation);
        let _changing = self.changing(id, operation)?;
        let change = lock_existing(&[&node])?;
        self.check_may_set(credentials, &node, namespace, operation)?;
        let existing = self.stored_name(&node, &node.facts(), name, operation)?;
        let existing = existing.ok_or(PosixError::NoAttribute)?;
        let tx = self.begin_freeing(0, operation)?;
        let mut facts = self.facts_to_change(&node, &tx, operation)?;
        let (object, mut pending) = (&node.object, Pending::default());
        self.take_xattr(object, &mut facts, &existing, &mut pending, &tx, operation)?;
        facts.attributes_changed(self.now());
        self.store(&node, facts, &tx, operation)?;
        self.log_pending(&tx, &node, pending);
        let txg = tx.txg();
        drop((tx, change));
        self.after_change(txg, operation)
    }

    /// The checks that need no attributes of the file.
    fn check_xattr_change(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        name: &[u8],
    ) -> Result<Namespace, PosixError> {
        if self.control_entry(id).is_some() {
            return Err(PosixError::NotSupported("extended attributes in .zfs"));
        }
        let namespace = match self.check_xattr_name(credentials, name) {
            // An attribute that is hidden from reads refuses a change.
            Err(PosixError::NoAttribute) => return Err(PosixError::NotPermitted),
            other => other?,
        };
        self.check_writable()?;
        Ok(namespace)
    }

    /// Refuses users without permission to change attributes of this namespace.
    fn check_may_set(
        &self,
        credentials: &Credentials,
        node: &Node,
        namespace: Namespace,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let facts = node.facts();
        let pinned = ZnodeFlags::IMMUTABLE.and(ZnodeFlags::APPEND_ONLY);
        if facts.flags.has_any(pinned) {
            return Err(PosixError::NotPermitted);
        }
        match namespace {
            Namespace::User => {
                let is_sticky = facts.is_directory() && facts.mode & STICKY != 0;
                let can_have = matches!(facts.kind(), FileKind::Regular | FileKind::Directory);
                if !can_have || (is_sticky && !self.is_owner(credentials, &facts)) {
                    return Err(PosixError::NotPermitted);
                }
                self.check_access(credentials, node, WRITE, operation)
            }
            Namespace::System if self.is_owner(credentials, &facts) => Ok(()),
            Namespace::Trusted | Namespace::Security if credentials.passes_posix_rules() => Ok(()),
            _ => Err(PosixError::NotPermitted),
        }
    }

    /// The name under which an attribute is stored, if it exists.
    fn stored_name(
        &self,
        node: &Arc<Node>,
        facts: &Facts,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Option<Vec<u8>>, PosixError> {
        let bare = Namespace::bare_user_name(name);
        for name in [Some(name), bare].into_iter().flatten() {
            if self.stored_xattr(node, facts, name, operation)?.is_some() {
                return Ok(Some(name.to_vec()));
            }
        }
        Ok(None)
    }

    /// Parses a POSIX list that is to be set: none for other attributes, and within none for an
    /// empty list.
    fn parse_list(
        &self,
        node: &Node,
        name: &[u8],
        value: &[u8],
    ) -> Result<Option<Option<PosixAcl>>, PosixError> {
        if name != ACCESS_NAME && name != DEFAULT_NAME {
            return Ok(None);
        }
        let facts = node.facts();
        if facts.kind() == FileKind::SymbolicLink {
            return Err(PosixError::NotSupported(
                "access control lists of symbolic links",
            ));
        }
        let list = PosixAcl::decode_or_empty(value)?;
        if name == DEFAULT_NAME && !facts.is_directory() && list.is_some() {
            return Err(PosixError::PermissionDenied);
        }
        Ok(Some(list))
    }

    /// Makes the permission bits follow a new list. False when those bits express the whole list,
    /// which then need not be stored.
    fn apply_list(
        &self,
        loses_set_gid: bool,
        facts: &mut Facts,
        name: &[u8],
        list: Option<&PosixAcl>,
    ) -> bool {
        let Some(list) = list else { return false };
        if name == DEFAULT_NAME {
            return true;
        }
        let (bits, says_more) = list.mode_bits();
        let mut permissions = (facts.permissions() & 0o7000) | bits;
        if loses_set_gid {
            permissions &= !SET_GID;
        }
        self.change_permissions(facts, permissions);
        says_more
    }
}
