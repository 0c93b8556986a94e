//! How extended attributes are stored: among the file's system attributes (`xattr=sa`), or in a
//! hidden directory (`xattr=dir`).
//!
//! # Mechanism
//! With `xattr=sa` they are a name-value list in one system attribute of the file, which is fast
//! and limited in size. With `xattr=dir`, and when the list would be too large, each is a file in a
//! directory that has no name, to which an attribute of the file leads. Files in the form of before
//! version 5 have only that directory. Readers look into the list first and then into the
//! directory, whatever the property says now, since it may have changed.
//!
//! Names are stored with their namespace. Some systems leave the namespace of users out
//! (`xattr_compat=all`), so a name without one is the users' too.
//!
//! # Invariants
//! - A name is in one of the two places: a change that adds it to one removes it from the other, in
//!   the same transaction.

use std::sync::Arc;

use tarn_object::{Caching, Object, Tx};
use tarn_ondisk::attributes::FileAttribute;
use tarn_ondisk::declare::widen;
use tarn_ondisk::intent_log::CreateKind;
use tarn_ondisk::nvlist::{Encoding, NvList, NvValue};
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::directory::Directory;
use crate::error::{PosixError, table_error};
use crate::facts::{Facts, Form, NewFacts};
use crate::filesystem::FileSystem;
use crate::intent::{AttributesSet, Pending, attributes_set, created, removed, written, xattr_set};
use crate::node::Node;
use crate::ops::create::Birth;
use crate::ops::text_of;
use crate::properties::XattrStore;
use crate::store::store_facts;
use crate::types::{Credentials, FileKind};

/// The largest value that goes into the list.
#[doc(alias = "DXATTR_MAX_ENTRY_SIZE")]
const LISTED_VALUE_BYTES_MAX: usize = 32 << 10;
/// The largest list that the 16-bit size of a system attribute can express. (OpenZFS allows one
/// word more, which it cannot.)
#[doc(alias = "DXATTR_MAX_SA_SIZE")]
const LIST_BYTES_MAX: usize = (64 << 10) - 8;
/// The largest value, as Linux has it.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;
/// The largest value that is read. Systems other than Linux store larger ones.
const STORED_BYTES_MAX: usize = 1 << 20;
/// The longest name, as Linux has it.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// The namespace of an attribute, by the prefix of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// `user`: for all users with access to the file.
    User,
    /// Privileged users.
    Trusted,
    /// Security modules.
    Security,
    /// The system: access control lists.
    System,
}

impl Namespace {
    const ALL: [(Namespace, &'static [u8]); 4] = [
        (Namespace::User, b"user."),
        (Namespace::Trusted, b"trusted."),
        (Namespace::Security, b"security."),
        (Namespace::System, b"system."),
    ];

    /// The namespace of a name.
    pub fn of(name: &[u8]) -> Option<Namespace> {
        let found = Namespace::ALL
            .iter()
            .find(|(_, prefix)| name.starts_with(prefix));
        found.map(|(namespace, _)| *namespace)
    }

    /// Whether a name is only the prefix, which no attribute is named.
    pub fn is_all_of(self, name: &[u8]) -> bool {
        Namespace::ALL.contains(&(self, name))
    }

    /// The name without `user.`, as some systems store it; none where that would be the name of
    /// another namespace.
    pub fn bare_user_name(name: &[u8]) -> Option<&[u8]> {
        let bare = name.strip_prefix(b"user.")?;
        (!bare.is_empty() && Namespace::of(bare).is_none()).then_some(bare)
    }

    /// Whether a user may see that there is an attribute of this namespace.
    pub fn is_visible_to(self, credentials: &Credentials) -> bool {
        self != Namespace::Trusted || credentials.passes_posix_rules()
    }
}

impl FileSystem {
    /// The value of an attribute of this exact name.
    pub(crate) fn stored_xattr(
        &self,
        node: &Node,
        facts: &Facts,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Option<Vec<u8>>, PosixError> {
        if let Some(NvValue::ByteArray(value)) = self.xattr_list(node.id, facts)?.get(name) {
            return Ok(Some(value.clone()));
        }
        let Some(directory) = self.xattr_directory(facts, operation)? else {
            return Ok(None);
        };
        let Some(entry) = self.directory(&directory, operation)?.find(name)? else {
            return Ok(None);
        };
        let file = self.node(entry.id, operation)?;
        let facts = file.facts();
        if facts.kind() != FileKind::Regular || facts.size > widen(STORED_BYTES_MAX) {
            return Err(PosixError::Damaged {
                object: entry.id,
                why: "no extended attribute",
            });
        }
        Ok(Some(
            self.read_node(&file, 0, STORED_BYTES_MAX, Caching::Ours, operation)?
                .to_vec(),
        ))
    }

    /// The names of all attributes, as they are stored.
    pub(crate) fn stored_xattr_names(
        &self,
        node: &Node,
        facts: &Facts,
        operation: &Operation,
    ) -> Result<Vec<Vec<u8>>, PosixError> {
        let list = self.xattr_list(node.id, facts)?;
        let mut names: Vec<Vec<u8>> = list
            .iter()
            .map(|(name, _)| name.as_bytes().to_vec())
            .collect();
        if let Some(directory) = self.xattr_directory(facts, operation)? {
            let table = self.directory(&directory, operation)?;
            let entries = table.zap.entries().map_err(table_error(directory.id))?;
            names.extend(entries.into_iter().filter_map(|entry| text_of(entry.name)));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Sets an attribute of a file. Changes the facts, which the caller stores. The caller holds
    /// `change`.
    #[doc(alias("zpl_xattr_set_sa", "zpl_xattr_set_dir"))]
    #[expect(
        clippy::too_many_arguments,
        reason = "a name, a value, and where both go"
    )]
    pub(crate) fn put_xattr(
        &self,
        object: &Arc<Object>,
        facts: &mut Facts,
        name: &[u8],
        value: &[u8],
        pending: &mut Pending,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let prefers_list =
            self.properties().xattrs == XattrStore::Attributes && facts.form == Form::Attributes;
        let mut list = self.xattr_list(object.id(), facts)?;
        if prefers_list && value.len() <= LISTED_VALUE_BYTES_MAX {
            list.set(name, NvValue::ByteArray(value.to_vec()));
            let bytes = list.encode(Encoding::Xdr);
            if bytes.len() <= LIST_BYTES_MAX {
                facts.set_value(FileAttribute::Xattrs, bytes, &self.tables, tx, operation)?;
                pending.xattr_set(object.id(), name, value);
                self.take_from_directory(facts, name, pending, tx, operation)?;
                return Ok(());
            }
        }
        self.put_into_directory(object, facts, name, value, pending, tx, operation)?;
        if self.take_from_list(object.id(), facts, name)? {
            pending.own(xattr_set(object.id(), name, &[]));
        }
        Ok(())
    }

    /// Removes an attribute of a file that has it. Changes the facts, which the caller stores. The
    /// caller holds `change`.
    pub(crate) fn take_xattr(
        &self,
        object: &Arc<Object>,
        facts: &mut Facts,
        name: &[u8],
        pending: &mut Pending,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let was_listed = self.take_from_list(object.id(), facts, name)?;
        if was_listed {
            pending.own(xattr_set(object.id(), name, &[]));
        }
        let was_in_directory = self.take_from_directory(facts, name, pending, tx, operation)?;
        match was_listed || was_in_directory {
            true => Ok(()),
            false => Err(PosixError::NoAttribute),
        }
    }

    /// True when it existed.
    fn take_from_list(
        &self,
        object: ObjectId,
        facts: &mut Facts,
        name: &[u8],
    ) -> Result<bool, PosixError> {
        let mut list = self.xattr_list(object, facts)?;
        if !list.remove(name) {
            return Ok(false);
        }
        let tables = self.tables.current();
        let id = tables
            .id(FileAttribute::Xattrs)
            .expect("a list was stored by this attribute");
        if list.is_empty() {
            facts.values.remove(id);
        } else {
            facts.values.set(id, list.encode(Encoding::Xdr));
        }
        Ok(true)
    }

    /// True when it existed.
    fn take_from_directory(
        &self,
        facts: &Facts,
        name: &[u8],
        pending: &mut Pending,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<bool, PosixError> {
        let Some(directory) = self.xattr_directory(facts, operation)? else {
            return Ok(false);
        };
        let table = self.directory(&directory, operation)?;
        let Some(entry) = table.find(name)? else {
            return Ok(false);
        };
        let file = self.node(entry.id, operation)?;
        table.remove(tx, &entry.name)?;
        self.count_entries(&directory, -1, 0, self.now(), tx, operation)?;
        let facts = (*file.facts()).clone();
        self.lose_last_name(&file, facts, tx, operation)?;
        pending.shared(removed(directory.id, &entry.name, FileKind::Regular));
        Ok(true)
    }

    /// Writes the file of an attribute, and makes it if it does not exist.
    #[expect(
        clippy::too_many_arguments,
        reason = "a name, a value, and where both go"
    )]
    fn put_into_directory(
        &self,
        object: &Arc<Object>,
        facts: &mut Facts,
        name: &[u8],
        value: &[u8],
        pending: &mut Pending,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let directory = match self.xattr_directory(facts, operation)? {
            Some(directory) => directory,
            None => self.make_xattr_directory(object.id(), facts, pending, tx, operation)?,
        };
        let table = self.directory(&directory, operation)?;
        let file = match table.find(name)? {
            Some(entry) => self.node(entry.id, operation)?,
            None => {
                let mode = FileKind::Regular.mode_bits() | 0o644;
                let birth = Birth::Now;
                let file = self.make_hidden(directory.id, facts, mode, birth, tx, operation)?;
                if let Err(error) = table.insert(tx, name, file.id, FileKind::Regular) {
                    // It is small and in memory, so it can be freed.
                    let facts = (*file.facts()).clone();
                    let _ = self.lose_last_name(&file, facts, tx, operation);
                    return Err(error);
                }
                self.count_entries(&directory, 1, 0, self.now(), tx, operation)?;
                let (id, made) = (file.id, file.facts());
                let slots = file.object.info().slots;
                pending.shared(created(
                    CreateKind::File,
                    directory.id,
                    id,
                    slots,
                    &made,
                    name,
                ));
                file
            }
        };
        let _content = file.content.write();
        let mut facts = (*file.facts()).clone();
        self.set_size(&file, &mut facts, 0, tx, operation)?;
        self.grow_block(&file, &facts, widen(value.len()), tx, operation)?;
        file.object.write(tx, 0, value, operation)?;
        facts.size = widen(value.len());
        let old = file.facts();
        if old.size > facts.size {
            let cut = attributes_set(file.id, &old, &facts, AttributesSet::default());
            pending.own(cut);
        }
        if !value.is_empty() {
            pending.own(written(file.id, 0, value));
        }
        self.store(&file, facts, tx, operation)
    }

    #[doc(alias = "zfs_make_xattrdir")]
    fn make_xattr_directory(
        &self,
        owner: ObjectId,
        facts: &mut Facts,
        pending: &mut Pending,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<Arc<Node>, PosixError> {
        let mode = FileKind::Directory.mode_bits() | 0o1777;
        let node = self.make_hidden(owner, facts, mode, Birth::Now, tx, operation)?;
        let (kind, slots) = (CreateKind::XattrDirectory, node.object.info().slots);
        pending.shared(created(kind, owner, node.id, slots, &node.facts(), b""));
        self.lead_to_xattr_directory(facts, node.id, tx, operation)?;
        Ok(node)
    }

    /// Sets the hidden directory of a file.
    pub(crate) fn lead_to_xattr_directory(
        &self,
        facts: &mut Facts,
        directory: ObjectId,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if facts.form == Form::Attributes {
            let attribute = FileAttribute::XattrDirectory;
            let id = self.tables.id_or_register(tx, attribute, operation)?;
            facts.values.set_word(id, directory.get());
        }
        facts.xattr_directory = directory;
        Ok(())
    }

    /// Gives the hidden directory and its files the owner, group and project that the file has now,
    /// each in a transaction of its own, since there may be many. Gives the last txg of them. The
    /// caller holds the file's `change`.
    #[doc(alias = "zfs_setattr_dir")]
    pub(crate) fn hand_over_xattrs(
        &self,
        facts: &Facts,
        operation: &Operation,
    ) -> Result<Txg, PosixError> {
        let Some(directory) = self.xattr_directory(facts, operation)? else {
            return Ok(Txg::ZERO);
        };
        let mut last = self.hand_over(&directory, facts, operation)?;
        let table = self.directory(&directory, operation)?;
        for entry in table.zap.entries().map_err(table_error(directory.id))? {
            let hidden = table.entry(entry.name, &entry.value)?.id;
            let hidden = self.node(hidden, operation)?;
            last = last.max(self.hand_over(&hidden, facts, operation)?);
        }
        Ok(last)
    }

    fn hand_over(
        &self,
        hidden: &Node,
        facts: &Facts,
        operation: &Operation,
    ) -> Result<Txg, PosixError> {
        let mut new = (*hidden.facts()).clone();
        let has_project = self.counts_projects() && new.form == Form::Attributes;
        let keeps_project = !has_project || new.project == facts.project;
        if (new.owner, new.group) == (facts.owner, facts.group) && keeps_project {
            return Ok(Txg::ZERO);
        }
        let tx = self.begin_freeing(0, operation)?;
        (new.owner, new.group) = (facts.owner, facts.group);
        if !keeps_project {
            new.set_project(facts.project, &self.tables, &tx, operation)?;
        }
        new.attributes_changed(self.now());
        self.store(hidden, new, &tx, operation)?;
        Ok(tx.txg())
    }

    /// Makes a hidden file or directory with the owner of another file.
    pub(crate) fn make_hidden(
        &self,
        parent: ObjectId,
        owner: &Facts,
        mode: u32,
        birth: Birth,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<Arc<Node>, PosixError> {
        let kind = FileKind::from_mode(mode).expect("a mode of ours has a kind");
        let is_directory = kind == FileKind::Directory;
        let (generation, now) = match birth {
            Birth::Now => (tx.txg().get(), self.now()),
            Birth::Recorded {
                generation, time, ..
            } => (generation, time),
        };
        let facts = NewFacts {
            mode,
            size: if is_directory { 2 } else { 0 },
            generation,
            parent,
            links: if is_directory { 2 } else { 1 },
            device: 0,
            flags: ZnodeFlags::XATTR,
            owner: owner.owner,
            group: owner.group,
            project: self.counts_projects().then_some(owner.project),
            now,
        };
        let object = self.allocate_file(kind, birth, tx, operation)?;
        let mut facts = facts.build(&self.tables, tx, operation)?;
        if is_directory {
            Directory::create(&object, &self.naming, tx, operation)?;
        }
        store_facts(&self.tables, &object, &mut facts, tx, operation)?;
        let node = Node::new(object, facts);
        node.note_change(tx.txg());
        Ok(self.add_new(node))
    }

    /// The list among the file's own attributes; an empty one if there is none.
    pub(crate) fn xattr_list(&self, object: ObjectId, facts: &Facts) -> Result<NvList, PosixError> {
        let tables = self.tables.current();
        match facts.value(FileAttribute::Xattrs, &tables) {
            Some(bytes) if !bytes.is_empty() => {
                NvList::decode(bytes).map_err(|what| PosixError::Attributes { object, what })
            }
            _ => Ok(NvList::new()),
        }
    }

    /// The hidden directory, if the file has one.
    pub(crate) fn xattr_directory(
        &self,
        facts: &Facts,
        operation: &Operation,
    ) -> Result<Option<Arc<Node>>, PosixError> {
        if facts.xattr_directory.is_zero() {
            return Ok(None);
        }
        let node = self.node(facts.xattr_directory, operation)?;
        match node.facts().is_directory() {
            true => Ok(Some(node)),
            false => Err(PosixError::Damaged {
                object: node.id,
                why: "the directory of extended attributes is none",
            }),
        }
    }
}
