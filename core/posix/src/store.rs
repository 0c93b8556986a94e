//! Storing a file's attributes in its dnode.
//!
//! # Mechanism
//! Attributes are encoded by a layout, into the bonus and, where that is too small, a spill block;
//! new layouts are stored in the same transaction. Files of a file system before version 5 keep
//! their fixed structure. An old file in a file system that was upgraded gets attributes when it is
//! first changed, and its access control list moves into them; symbolic links keep the old form, by
//! which OpenZFS finds their targets.
//!
//! # Invariants
//! - The object of a long access control list is freed after its file was stored without naming it,
//!   in the same transaction: an object that a file names exists.

use std::sync::Arc;

use tarn_object::{Object, ObjectError, Tx};
use tarn_ondisk::acl::{AclEntry, AclVersion, ENTRY_COUNT_MAX, decode_entries};
use tarn_ondisk::attributes::Encoded;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::dnode::{Spill, bonus_room};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::acl::trivial_entries;
use crate::error::PosixError;
use crate::facts::{Facts, Form};
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::tables::{AttributeTables, Style, Tables, VERSION_FUID};
use crate::types::FileKind;

impl FileSystem {
    /// The attributes of a file, to be changed and then stored in this transaction. A file in the
    /// old form, in a file system that was upgraded, is converted, so that any attribute can be
    /// set. The caller holds `change`.
    pub(crate) fn facts_to_change(
        &self,
        node: &Node,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<Facts, PosixError> {
        let mut facts = (*node.facts()).clone();
        self.modernize(node.id, &mut facts, tx, operation)?;
        Ok(facts)
    }

    /// Stores the attributes of a file, and makes them visible. Frees the object of an access
    /// control list that the file does not name any more. The caller holds `change`.
    pub(crate) fn store(
        &self,
        node: &Node,
        mut facts: Facts,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.modernize(node.id, &mut facts, tx, operation)?;
        if self.version() < VERSION_FUID {
            // The upper flags exist since that version.
            facts.flags = ZnodeFlags::from_word(facts.flags.word() & 0xffff_ffff);
        }
        if let Some(accessed) = node.accessed.lock().take() {
            facts.accessed = facts.accessed.max(accessed);
        }
        store_facts(&self.tables, &node.object, &mut facts, tx, operation)?;
        let old = node.facts();
        let old_list = old.acl_object();
        let left = old_list.filter(|list| facts.acl_object() != Some(*list));
        node.note_change(tx.txg());
        node.set_facts(facts);
        self.witness(node, &old);
        if let Some(list) = left {
            self.free_acl_object(list, tx, operation);
        }
        Ok(())
    }

    /// Converts a file in the old form, in a file system that was upgraded, to attributes; its
    /// access control list moves into them. A symbolic link keeps its form, and so does a file
    /// whose list cannot be read: nothing is lost then, and a new mode makes a new list.
    #[doc(alias = "zfs_sa_upgrade")]
    fn modernize(
        &self,
        id: ObjectId,
        facts: &mut Facts,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let is_old = facts.form != Form::Attributes;
        if !is_old
            || self.tables.current().style != Style::Attributes
            || facts.kind() == FileKind::SymbolicLink
        {
            return Ok(());
        }
        match self.old_entries(id, facts, operation) {
            Ok(entries) => facts.modernize(&entries, &self.tables, tx, operation),
            Err(error) if error.is_failure() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The entries of an old file's access control list.
    pub(crate) fn old_entries(
        &self,
        id: ObjectId,
        facts: &Facts,
        operation: &Operation,
    ) -> Result<Vec<AclEntry>, PosixError> {
        let corrupt = |what| PosixError::Attributes { object: id, what };
        let Some(acl) = facts.old_acl() else {
            return Ok(trivial_entries(facts.mode));
        };
        let acl = acl.map_err(corrupt)?;
        match acl.embedded().map_err(corrupt)? {
            Some(embedded) if !embedded.is_empty() => Ok(embedded),
            Some(_) => Ok(trivial_entries(facts.mode)),
            None => {
                let size = usize::try_from(acl.size().map_err(corrupt)?).unwrap_or(usize::MAX);
                let version = acl.version().map_err(corrupt)?;
                self.external_entries(acl.external, size, version, operation)
            }
        }
    }

    /// The entries of an access control list in an object of its own.
    fn external_entries(
        &self,
        id: ObjectId,
        size: usize,
        version: AclVersion,
        operation: &Operation,
    ) -> Result<Vec<AclEntry>, PosixError> {
        const BYTES_MAX: usize = ENTRY_COUNT_MAX * 48;
        if size > BYTES_MAX {
            return Err(PosixError::Damaged {
                object: id,
                why: "an access control list is too long",
            });
        }
        let Some(object) = self.find_acl_object(id, operation)? else {
            return Err(PosixError::Damaged {
                object: id,
                why: "it should be an access control list, and is none",
            });
        };
        let mut bytes = vec![0; size];
        object.read(0, &mut bytes, operation)?;
        decode_entries(&bytes, ByteOrder::Little, version)
            .map_err(|what| PosixError::Attributes { object: id, what })
    }

    /// Frees the object of an access control list that no file names any more. An object of another
    /// kind under that number is not freed. One that cannot be read cannot be freed: it stays, and
    /// does no harm.
    pub(crate) fn free_acl_object(&self, id: ObjectId, tx: &Tx, operation: &Operation) {
        if let Ok(Some(_)) = self.find_acl_object(id, operation) {
            // It is in memory, so this does not fail.
            let _ = self.set.free_object(tx, id, operation);
        }
    }

    /// The object of an access control list; none if it is of another kind, or does not exist.
    fn find_acl_object(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Option<Arc<Object>>, PosixError> {
        let object = match self.set.object(id, operation) {
            Err(ObjectError::NoSuchObject { .. }) => return Ok(None),
            object => object?,
        };
        let is_list = matches!(
            object.info().object_type,
            ObjectType::OldAcl | ObjectType::Acl
        );
        Ok(is_list.then_some(object))
    }
}

/// Encodes facts into the dnode of a file, in the form that they have.
pub(crate) fn store_facts(
    tables: &AttributeTables,
    object: &Arc<Object>,
    facts: &mut Facts,
    tx: &Tx,
    operation: &Operation,
) -> Result<(), PosixError> {
    let values = facts.to_values(&tables.current());
    if let Form::OldFile { .. } = facts.form {
        let bonus = facts.to_old_bonus(&tables.current());
        let bonus = bonus.ok_or(PosixError::Damaged {
            object: object.id(),
            why: "an old file lacks an attribute that old files have",
        })?;
        object.set_typed_bonus(tx, ObjectType::Znode, &bonus)?;
    } else {
        let room = bonus_room(object.info().slots, 1, Spill::Absent);
        let encoded = tables.encode(tx, object.id(), &values, room, operation)?;
        store_encoded(object, &encoded, tx, operation)?;
    }
    debug_assert!(
        are_in(facts, object, &tables.current(), operation),
        "the object has the attributes that were stored"
    );
    facts.values = values;
    Ok(())
}

/// Whether an object has these attributes. True where its spill block cannot be read.
fn are_in(facts: &Facts, object: &Object, tables: &Tables, operation: &Operation) -> bool {
    let Ok(spill) = object.spill(operation) else {
        return true;
    };
    let (bonus_type, bonus) = object.typed_bonus();
    let read = Facts::decode(bonus_type, &bonus, spill.as_deref(), tables);
    let words = |facts: &Facts| {
        let (mode, owner, group) = (u64::from(facts.mode), facts.owner, facts.group);
        let owners = [owner.word(), group.word()];
        (
            mode,
            facts.size,
            facts.links,
            facts.parent,
            facts.generation,
            owners,
        )
    };
    read.is_ok_and(|read| words(&read) == words(facts))
}

/// Writes encoded attributes into bonus and spill block. An unchanged spill block is not written.
/// One that cannot be read any more is written anew: `encoded` has all attributes of the file, and
/// a failure could not be undone, since names may have changed in this transaction.
fn store_encoded(
    object: &Arc<Object>,
    encoded: &Encoded,
    tx: &Tx,
    operation: &Operation,
) -> Result<(), PosixError> {
    let there = match object.spill(operation) {
        Err(ObjectError::Read { .. }) => Some(None),
        there => there?.map(Some),
    };
    let Some(spill) = &encoded.spill else {
        if there.is_some() {
            object.set_spill(tx, None)?;
        }
        object.set_typed_bonus(tx, ObjectType::SystemAttributes, &encoded.bonus)?;
        return Ok(());
    };
    object.set_typed_bonus(tx, ObjectType::SystemAttributes, &encoded.bonus)?;
    let is_same = there.flatten().is_some_and(|block| {
        let (same, padding) = block.split_at(spill.len().min(block.len()));
        same == spill.as_slice() && padding.len() < 512 && padding.iter().all(|byte| *byte == 0)
    });
    if !is_same {
        object.set_spill(tx, Some(spill))?;
    }
    Ok(())
}
