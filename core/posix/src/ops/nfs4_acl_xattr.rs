//! Reading and setting the NFSv4 list of a file (`system.nfs4_acl`).

use std::sync::Arc;

use tarn_host::AccountKind;
use tarn_ondisk::acl::{AclEntry, permission};
use tarn_ondisk::fuid::{Fuid, FuidTable};
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::acl::trivial_entries;
use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::holders::Change;
use crate::intent::{AttributesSet, Pending, attributes_set};
use crate::nfs4_acl::set_acl;
use crate::nfs4_acl::wire::{self, PrincipalKind};
use crate::node::{Node, lock_existing};
use crate::ops::set_attributes::ATTRIBUTE_BYTES;
use crate::types::{Credentials, FileKind};

/// About how much the longest list writes.
const LIST_BYTES: u64 = 64 << 10;

impl FileSystem {
    /// The value of the attribute: the file's list, or the trivial list of its mode.
    #[doc(alias = "zfs_getacl")]
    pub(crate) fn get_nfs4_acl(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Vec<u8>, PosixError> {
        let node = self.node(id, operation)?;
        self.check_nfs4(credentials, &node, permission::READ_ACL, operation)?;
        let entries = self.nfs4_acl(&node, &node.facts(), operation)?;
        let is_foreign = |entry: &AclEntry| {
            let fuid = entry.who.fuid().map(Fuid::from_word);
            fuid.is_some_and(|fuid| fuid.as_posix().is_none())
        };
        let domains = match entries.iter().any(is_foreign) {
            true => self.quotas.domains(operation)?,
            false => FuidTable::default(),
        };
        Ok(wire::encode(&entries, &domains))
    }

    /// Sets the list, and the mode that follows from it.
    #[doc(alias = "zfs_setacl")]
    pub(crate) fn set_nfs4_acl(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        value: &[u8],
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let node = self.node(id, operation)?;
        self.check_may_set_nfs4(credentials, &node, operation)?;
        let domains = self.quotas.domains(operation)?;
        // Names of users are looked up without locks held, since that may take long.
        let find = |kind: PrincipalKind, name: &str| {
            let kind = match kind {
                PrincipalKind::User => AccountKind::User,
                PrincipalKind::Group => AccountKind::Group,
            };
            self.host.find_account(kind, name)
        };
        let entries = wire::decode(value, node.facts().is_directory(), &domains, &find)?;
        self.change_nfs4_acl(credentials, &node, &entries, operation)
    }

    /// Removes the list: the trivial list of the mode takes its place.
    pub(crate) fn remove_nfs4_acl(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let node = self.node(id, operation)?;
        self.check_may_set_nfs4(credentials, &node, operation)?;
        let facts = node.facts();
        match facts.flags.has(ZnodeFlags::ACL_TRIVIAL) {
            true => Err(PosixError::NoAttribute),
            false => {
                let entries = trivial_entries(facts.mode);
                self.change_nfs4_acl(credentials, &node, &entries, operation)
            }
        }
    }

    fn check_may_set_nfs4(
        &self,
        credentials: &Credentials,
        node: &Node,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let facts = node.facts();
        let pinned = ZnodeFlags::IMMUTABLE.and(ZnodeFlags::APPEND_ONLY);
        if facts.flags.has_any(pinned) {
            return Err(PosixError::NotPermitted);
        }
        if facts.kind() == FileKind::SymbolicLink {
            return Err(PosixError::NotSupported(
                "access control lists of symbolic links",
            ));
        }
        self.check_nfs4(credentials, node, permission::WRITE_ACL, operation)
    }

    fn change_nfs4_acl(
        &self,
        credentials: &Credentials,
        node: &Arc<Node>,
        entries: &[AclEntry],
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let _told = self.telling(Change::Attributes { file: node.id }, operation);
        let _changing = self.changing(node.id, operation)?;
        let change = lock_existing(&[node])?;
        self.check_may_set_nfs4(credentials, node, operation)?;
        let old = node.facts();
        let tx = self.begin(ATTRIBUTE_BYTES + LIST_BYTES, operation)?;
        let mut facts = self.facts_to_change(node, &tx, operation)?;
        set_acl(&mut facts, entries, &self.tables, &tx, operation)?;
        let mut pending = Pending::default();
        if facts.mode != old.mode {
            let set = AttributesSet::default();
            pending.own(attributes_set(node.id, &old, &facts, set));
        }
        pending.acl_set(node.id, entries);
        facts.attributes_changed(self.now());
        self.store(node, facts, &tx, operation)?;
        self.log_pending(&tx, node, pending);
        let txg = tx.txg();
        drop((tx, change));
        self.after_change(txg, operation)
    }
}
