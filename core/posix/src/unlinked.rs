//! The unlinked set: files without a name, which are freed with their last close, or after a crash
//! at the next mount.
//!
//! # Mechanism
//! When the last name of a file goes, the file is put into the *unlinked set*, a ZAP of the file
//! system, in the same transaction. Then, or when it is closed for the last time, its contents are
//! freed in bounded pieces, each in a transaction of its own, and with the last piece the object
//! and its place in the set. Small files that are not open do not come into the set: they are freed
//! in the transaction that removes their name.
//!
//! A file's hidden directory of extended attributes is freed before the file that leads to it.
//! OpenZFS frees the file first and puts the directory into the set, to be emptied later; so there
//! may be directories in it that are not empty, if they are hidden ones.
//!
//! A file that is made without a name (`O_TMPFILE`) begins in the set, open, and leaves it in the
//! transaction that gives it its first name.
//!
//! # After a crash
//! A mount frees all files in the set: they have no name and are not open.

use std::sync::Arc;

use tarn_object::{Object, Tx, zap::ZapValue};
use tarn_ondisk::dnode::POINTER_SHIFT;
use tarn_ondisk::units::{BlockId, ObjectId};
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::directory::open_zap;
use crate::error::{PosixError, table_error};
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::ops::text_of;

/// How many blocks are freed in one transaction: as many as 64 blocks of pointers lead to, so that
/// a group that frees much still reads little. As OpenZFS, roughly.
pub(crate) const BLOCKS_PER_TX: u64 = 64 * 1024;

impl FileSystem {
    /// Frees all files in the unlinked set. For a mount, before any file can be open.
    pub(crate) fn drain_unlinked(&self, operation: &Operation) -> Result<(), PosixError> {
        let Some(set) = self.unlinked else {
            return Ok(());
        };
        let object = self.set.object(set, operation)?;
        let entries = open_zap(&object, operation)
            .entries()
            .map_err(table_error(set))?;
        for entry in entries {
            let Some(id) = entry.value.as_word().map(ObjectId::from) else {
                continue;
            };
            self.unlinked_counts.lost_names(1);
            let node = match self.node(id, operation) {
                Ok(node) => node,
                Err(PosixError::NotFound) => {
                    // The file was freed already, by a program that removes the entry in a later
                    // transaction.
                    if let Some(name) = text_of(entry.name) {
                        let tx = self.begin_freeing(0, operation)?;
                        let zap = open_zap(&object, operation);
                        let removed = zap.remove(&tx, name.as_slice());
                        match removed.map_err(table_error(set)) {
                            // The entry was of another file, which was freed.
                            Err(PosixError::NotFound) => {}
                            other => other?,
                        }
                    }
                    self.unlinked_counts.freed();
                    continue;
                }
                // A file that cannot be read cannot be freed. It stays in the set and does no harm.
                Err(_) => continue,
            };
            // Nor does a damaged one.
            if let Err(error @ PosixError::Pool(_)) = self.free_if_unused(&node, operation) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether there are files without a name: open ones, or such that wait to be freed.
    ///
    /// # Errors
    /// The unlinked set cannot be read.
    pub fn has_unlinked(&self, operation: &Operation) -> Result<bool, PosixError> {
        let Some(set) = self.unlinked else {
            return Ok(false);
        };
        let object = self.set.object(set, operation)?;
        let count = open_zap(&object, operation).count();
        Ok(count.map_err(table_error(set))? > 0)
    }

    /// Whether a file is small enough to be freed with its name.
    pub(crate) fn is_small(&self, node: &Node) -> bool {
        node.facts().xattr_directory.is_zero() && node.object.max_block().get() < BLOCKS_PER_TX
    }

    /// Adds a file to the unlinked set.
    pub(crate) fn add_unlinked(
        &self,
        node: &Node,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let set = self
            .unlinked
            .ok_or(PosixError::NotSupported("removing without an unlinked set"))?;
        let object = self.set.object(set, operation)?;
        let word = ZapValue::word(node.id.get());
        let zap = open_zap(&object, operation);
        match zap
            .insert(tx, unlinked_name(node.id).as_str(), &word)
            .map_err(table_error(set))
        {
            // The entry is left from a program that frees in another order, before a crash.
            Err(PosixError::Exists) => Ok(()),
            other => other,
        }
    }

    /// Takes a file out of the unlinked set, if it is there.
    pub(crate) fn remove_unlinked(
        &self,
        node: &Node,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let Some(set) = self.unlinked else {
            return Ok(());
        };
        let object = self.set.object(set, operation)?;
        let zap = open_zap(&object, operation);
        let removed = zap.remove(tx, unlinked_name(node.id).as_str());
        match removed.map_err(table_error(set)) {
            Err(PosixError::NotFound) => Ok(()),
            other => other,
        }
    }

    /// Frees a file that has lost its last name in this transaction, or adds it to the unlinked
    /// set. The caller holds `change`, has handed over the record for the intent log, and calls
    /// [`FileSystem::free_if_unused`] after it has dropped the transaction and all locks.
    pub(crate) fn lose_last_name(
        &self,
        node: &Arc<Node>,
        mut facts: Facts,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        facts.links = 0;
        self.removed.enter(node);
        if self.is_small(node) && node.condemn() {
            self.free_condemned(node, tx, operation)?;
            node.set_facts(facts);
            self.unlinked_counts.lost_names(1);
            self.unlinked_counts.freed();
            return Ok(());
        }
        let lost = self
            .add_unlinked(node, tx, operation)
            .and_then(|()| self.store(node, facts, tx, operation));
        match lost {
            Ok(()) => self.unlinked_counts.lost_names(1),
            Err(_) if self.removed.leave(node.id) => {
                node.close();
            }
            Err(_) => {}
        }
        lost
    }

    /// Frees a file that has no name, is in the unlinked set, and is not open.
    pub(crate) fn free_if_unused(
        &self,
        node: &Arc<Node>,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let _change = node.change.lock();
        if node.is_gone() || node.facts().links != 0 || !node.condemn() {
            return Ok(());
        }
        let freed = self.free_in_parts(node, operation);
        if freed.is_err() {
            node.reprieve();
        }
        freed
    }

    /// Frees the contents, extended attributes and object of a condemned file, in as many
    /// transactions as it takes.
    fn free_in_parts(&self, node: &Arc<Node>, operation: &Operation) -> Result<(), PosixError> {
        let facts = node.facts();
        if facts.is_directory() && facts.flags.has(ZnodeFlags::XATTR) {
            self.free_xattrs(node, operation)?;
        }
        let hidden = self.xattr_directory(&facts, operation).ok().flatten();
        if let Some(directory) = hidden.filter(|hidden| is_hidden_in(hidden, node)) {
            self.free_xattr_directory(node, &directory, operation)?;
        }
        self.free_contents(node, 0, operation)?;
        let tx = self.begin_freeing(0, operation)?;
        self.remove_unlinked(node, &tx, operation)?;
        self.free_condemned(node, &tx, operation)?;
        self.unlinked_counts.freed();
        Ok(())
    }

    /// Frees the hidden directory of a file, with all that is in it.
    fn free_xattr_directory(
        &self,
        node: &Node,
        directory: &Arc<Node>,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.free_xattrs(directory, operation)?;
        let tx = self.begin_freeing(0, operation)?;
        if directory.condemn() {
            self.free_condemned(directory, &tx, operation)?;
        }
        let mut facts = (*node.facts()).clone();
        facts.xattr_directory = ObjectId::ZERO;
        self.store(node, facts, &tx, operation)
    }

    /// Frees the files in a hidden directory, each with its entry. A file that does not belong
    /// there keeps its other names, and one that cannot be read its entry.
    #[doc(alias = "zfs_purgedir")]
    fn free_xattrs(&self, directory: &Node, operation: &Operation) -> Result<(), PosixError> {
        let table = self.directory(directory, operation)?;
        let mut outcome = Ok(());
        for entry in table.zap.entries().map_err(table_error(directory.id))? {
            let entry = table.entry(entry.name, &entry.value)?;
            let child = match self.node(entry.id, operation) {
                Ok(child) => Some(child).filter(|child| is_hidden_in(child, directory)),
                Err(PosixError::NotFound) => None,
                Err(error) => {
                    outcome = Err(error);
                    continue;
                }
            };
            let tx = self.begin_freeing(0, operation)?;
            if let Some(child) = child.filter(|child| !child.facts().is_directory()) {
                self.free_xattr(&child, &tx, operation)?;
            }
            table.remove(&tx, &entry.name)?;
        }
        outcome
    }

    /// Removes a link of an extended attribute, and frees it with the last one.
    fn free_xattr(
        &self,
        file: &Arc<Node>,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let mut facts = (*file.facts()).clone();
        if facts.links > 1 {
            // Solaris links them from one file to another.
            facts.links -= 1;
            return self.store(file, facts, tx, operation);
        }
        match file.condemn() {
            true => self.free_condemned(file, tx, operation),
            false => Ok(()),
        }
    }

    /// Frees the contents from an offset on, from the end backwards and in bounded pieces. A last
    /// part that fits in one transaction is left to the caller. The caller holds `change` and no
    /// transaction.
    pub(crate) fn free_contents(
        &self,
        node: &Node,
        from: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let block_size = node.object.block_size().get();
        let first = from.div_ceil(block_size);
        let end = BlockId::from(node.object.max_block().get().saturating_add(1));
        let mut within = BlockId::from(first)..end;
        while let Some(last) = node.object.last_data(within, BLOCKS_PER_TX, operation)? {
            if last.end.get() - first <= BLOCKS_PER_TX {
                break;
            }
            let bytes = BLOCKS_PER_TX.saturating_mul(block_size);
            let offset = last.start.get().saturating_mul(block_size);
            // Blocks of pointers that cannot be read are freed whole.
            let _prepared = node
                .object
                .prepare_free(offset, tarn_object::TO_END, operation);
            let tx = self.begin_freeing(bytes, operation)?;
            let start = free_end(&node.object, first, last.start.get(), &tx, operation)?;
            assert!(
                first <= start && start <= last.start.get(),
                "each step frees the end of what is left"
            );
            within = BlockId::from(first)..BlockId::from(start);
        }
        Ok(())
    }

    /// Frees the object of a condemned file.
    fn free_condemned(
        &self,
        node: &Arc<Node>,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        assert!(node.is_gone(), "only a file that nothing opens is freed");
        if let Err(error) = self.set.free_object(tx, node.id, operation) {
            node.reprieve();
            return Err(error.into());
        }
        if let Some(list) = node.facts().acl_object() {
            self.free_acl_object(list, tx, operation);
        }
        node.note_change(tx.txg());
        self.nodes.remove(node.id);
        self.locks.forget(node.id);
        self.log_gone(node.id);
        Ok(())
    }
}

/// Frees an object's end from a block on, or from a block before it, but not before `first`, and
/// gives the block from which it was freed. Pieces begin where indirect blocks do: one that cannot
/// be read is given up whole. Where the pointer to it cannot be read either, all blocks below the
/// indirect block above are given up.
fn free_end(
    object: &Object,
    first: u64,
    from: u64,
    tx: &Tx,
    operation: &Operation,
) -> Result<u64, PosixError> {
    let info = object.info();
    let fanout_shift = u32::from(info.indirect_shift) - POINTER_SHIFT;
    let mut level = 1;
    loop {
        let shift = fanout_shift * u32::from(level);
        let whole = u64::MAX.checked_shl(shift).unwrap_or(0);
        let start = (from & whole).max(first);
        let offset = start.saturating_mul(info.block_size.get());
        match object.free_range(tx, offset, tarn_object::TO_END, operation) {
            Ok(()) => return Ok(start),
            Err(error) if start == first || level >= info.levels => return Err(error.into()),
            Err(_) => level += 1,
        }
    }
}

/// Whether a file belongs into a hidden directory, or a hidden directory to a file, by its own
/// attributes: a damaged entry may lead to an unrelated file.
fn is_hidden_in(hidden: &Node, owner: &Node) -> bool {
    let facts = hidden.facts();
    let is_hidden = facts.flags.has(ZnodeFlags::XATTR) && facts.parent == owner.id;
    is_hidden && hidden.id != owner.id
}

/// The name of a file's entry in the unlinked set.
#[doc(alias = "zap_add_int")]
pub(crate) fn unlinked_name(id: ObjectId) -> String {
    format!("{:x}", id.get())
}
