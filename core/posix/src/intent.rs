//! The records that operations leave for the intent log, in OpenZFS's form.
//!
//! # Mechanism
//! Each operation that changes a file or a name hands over a record under its transaction and its
//! locks, so records are in the order of changes. Records of names are *shared*: every commit
//! stores them, in order. Records of one file's contents and attributes are stored only by commits
//! of that file. Written bytes are not copied into the record: the log asks for them when it stores
//! the record ([`LogSource`]).
//!
//! Files without a name leave no records: after a crash they are gone.
//!
//! # Invariants
//! - A file shows no links only after the record that removes its last name was made: a commit that
//!   stores written bytes finds either the file, or that record among those that are stored or
//!   wait.
//! - Changes of one transaction that belong together are one record, or records that are stored
//!   together ([`IntentLog::record_together`]), or records of which each prefix is a valid state.
//!
//! # Knows nothing about
//! when and where records are stored.

use tarn_object::{ObjectError, Tx};
use tarn_ondisk::acl::AclEntry;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::intent_log::{
    CreateKind, LoggedAttributes, LoggedChange, LoggedCreate, LoggedExtended, LoggedRename,
    LoggedWrite, RenameKind, mask,
};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;
use tarn_zil::{Contents, Fetched, IntentLog, IntentRecord, LogSource, PlacedWrites, WholeBlocks};

use crate::error::PosixError;
use crate::facts::{Facts, words};
use crate::filesystem::FileSystem;
use crate::nfs4_acl::logged_acl;
use crate::node::Node;
use crate::types::FileKind;

/// Bits of attributes beyond POSIX in a record of `setattr` (`xvattr`): one mask says which are
/// given, another their values.
pub(crate) mod attribute {
    use tarn_ondisk::znode::ZnodeFlags;

    /// The time of creation. Its value has a field of its own.
    #[doc(alias = "XAT_CREATETIME")]
    pub const CREATION_TIME: u32 = 0x1;
    /// A virus scanner's stamp, in a field of its own.
    #[doc(alias = "XAT_AV_SCANSTAMP")]
    pub const SCAN_STAMP: u32 = 0x1000;
    /// The project, in the stamp's place.
    #[doc(alias = "XAT_PROJID")]
    pub const PROJECT: u32 = 0x4_0000;
    /// The number of words in the mask of given attributes.
    #[doc(alias = "XVA_MAPSIZE")]
    pub const MAP_WORDS: usize = 3;

    /// Attributes that are flags of a file.
    #[doc(alias("XAT_READONLY", "XAT_IMMUTABLE"))]
    pub const FLAGS: [(u32, ZnodeFlags); 15] = [
        (0x2, ZnodeFlags::ARCHIVE),
        (0x4, ZnodeFlags::SYSTEM),
        (0x8, ZnodeFlags::READ_ONLY),
        (0x10, ZnodeFlags::HIDDEN),
        (0x20, ZnodeFlags::NO_UNLINK),
        (0x40, ZnodeFlags::IMMUTABLE),
        (0x80, ZnodeFlags::APPEND_ONLY),
        (0x100, ZnodeFlags::NO_DUMP),
        (0x200, ZnodeFlags::OPAQUE),
        (0x400, ZnodeFlags::QUARANTINED),
        (0x800, ZnodeFlags::NOT_SCANNED),
        (0x2000, ZnodeFlags::REPARSE),
        (0x8000, ZnodeFlags::OFFLINE),
        (0x1_0000, ZnodeFlags::SPARSE),
        (0x2_0000, ZnodeFlags::INHERIT_PROJECT),
    ];
}

/// Records of one transaction, until it has succeeded.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    changes: Vec<(LoggedChange, bool)>,
    has_unlogged: bool,
}

impl Pending {
    /// Notes a change that no record can express.
    pub fn unlogged(&mut self) {
        self.has_unlogged = true;
    }

    /// Adds the record of an extended attribute (`xattr=sa`). An empty value has none, since a
    /// record without a value removes the attribute.
    pub fn xattr_set(&mut self, object: ObjectId, name: &[u8], value: &[u8]) {
        match value.is_empty() {
            true => self.unlogged(),
            false => self.own(xattr_set(object, name, value)),
        }
    }

    /// Adds the record of a new NFSv4 list.
    pub fn acl_set(&mut self, object: ObjectId, entries: &[AclEntry]) {
        match logged_acl(entries) {
            Some(acl) => self.own(LoggedChange::SetAcl { object, acl }),
            None => self.unlogged(),
        }
    }

    /// Appends the records of another transaction part.
    pub fn append(&mut self, other: Pending) {
        self.changes.extend(other.changes);
        self.has_unlogged |= other.has_unlogged;
    }

    /// Adds a shared record, of a name, which every commit stores.
    pub fn shared(&mut self, change: LoggedChange) {
        self.changes.push((change, true));
    }

    /// Adds a record that only commits of the file store.
    pub fn own(&mut self, change: LoggedChange) {
        self.changes.push((change, false));
    }

    /// Whether a record is shared: then all of them are. A new name needs its contents, and bytes
    /// that are removed in one place may be added in another.
    fn is_shared(&self) -> bool {
        self.changes.iter().any(|(_, is_shared)| *is_shared)
    }
}

/// A shared record, which every commit stores.
fn shared(change: LoggedChange) -> IntentRecord {
    IntentRecord {
        change,
        object: None,
        contents: Contents::InRecord,
    }
}

/// The record of a new file.
#[doc(alias = "zfs_log_create")]
pub(crate) fn created(
    kind: CreateKind,
    directory: ObjectId,
    object: ObjectId,
    slots: usize,
    facts: &Facts,
    name: &[u8],
) -> LoggedChange {
    LoggedChange::Create(Box::new(LoggedCreate {
        kind,
        directory,
        object,
        dnode_slots: u16::try_from(slots.max(1)).unwrap_or(1),
        mode: u64::from(facts.mode),
        owner: facts.owner,
        group: facts.group,
        generation: facts.generation,
        creation_time: words(facts.created),
        device: facts.device,
        extended: None,
        acl: None,
        domains: Vec::new(),
        name: Text::from(name),
    }))
}

/// The record of a name that was removed.
#[doc(alias = "zfs_log_remove")]
pub(crate) fn removed(directory: ObjectId, name: &[u8], kind: FileKind) -> LoggedChange {
    let name = Text::from(name);
    match kind {
        FileKind::Directory => LoggedChange::RemoveDirectory { directory, name },
        _ => LoggedChange::Remove { directory, name },
    }
}

/// The record of an extended attribute among a file's own attributes; no value for one that was
/// taken away.
#[doc(alias = "zfs_log_setsaxattr")]
pub(crate) fn xattr_set(object: ObjectId, name: &[u8], value: &[u8]) -> LoggedChange {
    LoggedChange::SetXattr {
        object,
        name: Text::from(name),
        value: value.to_vec(),
    }
}

/// The record of bytes that were written, with the bytes.
pub(crate) fn written(object: ObjectId, offset: u64, bytes: &[u8]) -> LoggedChange {
    let length = tarn_ondisk::declare::widen(bytes.len());
    LoggedChange::Write(Box::new(LoggedWrite {
        data: Some(bytes.to_vec()),
        ..unfetched(object, offset, length)
    }))
}

fn unfetched(object: ObjectId, offset: u64, length: u64) -> LoggedWrite {
    LoggedWrite {
        is_stored_already: false,
        object,
        offset,
        length,
        block_offset: 0,
        pointer: BlockPointer::HOLE,
        data: None,
    }
}

/// The attributes that an operation sets, beside those that differ.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AttributesSet {
    /// [`mask`]s, beside those for what has changed by comparison.
    pub mask: u64,
    /// The project was set.
    pub project: bool,
}

/// The record of set attributes: those of the mask, and those in which `old` and `new` differ.
#[doc(alias = "zfs_log_setattr")]
pub(crate) fn attributes_set(
    object: ObjectId,
    old: &Facts,
    new: &Facts,
    set: AttributesSet,
) -> LoggedChange {
    let mut given = set.mask | mask::CHANGE_TIME;
    for (differs, bit) in [
        (old.mode != new.mode, mask::MODE),
        (old.owner != new.owner, mask::OWNER),
        (old.group != new.group, mask::GROUP),
        (old.size != new.size, mask::SIZE),
    ] {
        given |= if differs { bit } else { 0 };
    }
    let extended = extended_set(old, new, set.project);
    if extended.is_some() {
        given |= mask::EXTENDED;
    }
    let word = |bit: u64, word: u64| if given & bit != 0 { word } else { 0 };
    let time = |bit: u64, time| match given & bit {
        0 => [0, 0],
        _ => words(time),
    };
    LoggedChange::SetAttributes(Box::new(LoggedAttributes {
        object,
        mask: given,
        mode: word(mask::MODE, u64::from(new.mode)),
        owner: Fuid::from_word(word(mask::OWNER, new.owner.word())),
        group: Fuid::from_word(word(mask::GROUP, new.group.word())),
        size: word(mask::SIZE, new.size),
        access_time: time(mask::ACCESS_TIME, new.accessed),
        modification_time: time(mask::MODIFICATION_TIME, new.modified),
        extended,
        domains: Vec::new(),
    }))
}

/// The record of set-id bits that a file loses by a change of its contents; none if it loses none.
pub(crate) fn privileges_lost(node: &Node, new: &Facts) -> Option<LoggedChange> {
    let old = node.facts();
    if old.mode == new.mode {
        return None;
    }
    let new = Facts {
        size: old.size,
        ..new.clone()
    };
    Some(attributes_set(
        node.id,
        &old,
        &new,
        AttributesSet::default(),
    ))
}

/// The flags in which `old` and `new` differ. Flags that every change sets are recorded only
/// together with others.
#[doc(alias = "zfs_log_xvattr")]
fn extended_set(old: &Facts, new: &Facts, project: bool) -> Option<LoggedExtended> {
    let automatic = ZnodeFlags::ARCHIVE.and(ZnodeFlags::NOT_SCANNED);
    let changed = ZnodeFlags::from_word(old.flags.word() ^ new.flags.word());
    let (mut given, mut bits) = (0_u32, 0_u64);
    let mut says_something = project;
    for (bit, flag) in attribute::FLAGS {
        let is_lost_archive = flag == ZnodeFlags::ARCHIVE && !new.flags.has(flag);
        if changed.has(flag) && (!automatic.has(flag) || is_lost_archive) {
            says_something = true;
            given |= bit;
            bits |= if new.flags.has(flag) {
                u64::from(bit)
            } else {
                0
            };
        }
    }
    if !says_something {
        return None;
    }
    let mut scan_stamp = [0; 32];
    if project {
        given |= attribute::PROJECT;
        scan_stamp[..8].copy_from_slice(&new.project.to_le_bytes());
    }
    let mut map = vec![0; attribute::MAP_WORDS];
    map[0] = given;
    Some(LoggedExtended {
        given: map,
        bits,
        creation_time: [0, 0],
        scan_stamp,
    })
}

impl FileSystem {
    /// Hands over the shared record of a change of names.
    pub(crate) fn log_shared(&self, tx: &Tx, change: impl FnOnce() -> LoggedChange) {
        let Some(log) = self.log.as_ref().filter(|log| log.is_wanted()) else {
            return;
        };
        let change = change();
        if matches!(change, LoggedChange::SetXattr { .. }) && !log.takes_xattrs() {
            return log.note_unlogged(tx);
        }
        log.record(tx, shared(change));
    }

    /// Hands over the record of a change of one file, for its own commits. None if the file has no
    /// name.
    pub(crate) fn log_own(&self, tx: &Tx, node: &Node, change: impl FnOnce() -> LoggedChange) {
        let Some(log) = self.log.as_ref().filter(|log| log.is_wanted()) else {
            return;
        };
        if node.facts().links == 0 {
            return;
        }
        let change = change();
        if matches!(change, LoggedChange::SetXattr { .. }) && !log.takes_xattrs() {
            return log.note_unlogged(tx);
        }
        log.record(
            tx,
            IntentRecord {
                change,
                object: Some(node.id),
                contents: Contents::InRecord,
            },
        );
    }

    /// Hands over the records of a transaction that has succeeded. Only commits of the file store
    /// them, unless one of them is shared.
    pub(crate) fn log_pending(&self, tx: &Tx, node: &Node, mut pending: Pending) {
        if node.facts().links == 0 {
            return;
        }
        if pending.has_unlogged {
            self.log_nothing(tx);
        }
        let Some(log) = self.log.as_ref().filter(|log| log.is_wanted()) else {
            return;
        };
        let is_shared = pending.is_shared();
        if is_shared {
            // The file's own records so far must not be stored after these. And a removal comes
            // after the record of what takes the name's place.
            log.share(node.id);
            let changes = &mut pending.changes;
            changes.sort_by_key(|(change, _)| matches!(change, LoggedChange::Remove { .. }));
        }
        let object = (!is_shared).then_some(node.id);
        let changes = pending.changes.into_iter().map(|(change, _)| change);
        Self::log_together(log, tx, object, changes);
    }

    /// Hands over the records of one operation, shared or of this file, to be stored together.
    fn log_together(
        log: &IntentLog,
        tx: &Tx,
        object: Option<ObjectId>,
        changes: impl Iterator<Item = LoggedChange>,
    ) {
        let mut records = Vec::new();
        for change in changes {
            if matches!(change, LoggedChange::SetXattr { .. }) && !log.takes_xattrs() {
                log.note_unlogged(tx);
                continue;
            }
            records.push(IntentRecord {
                change,
                object,
                contents: Contents::InRecord,
            });
        }
        log.record_together(tx, records);
    }

    /// Hands over the record of a new file and its first attributes, as shared ones.
    pub(crate) fn log_created(&self, tx: &Tx, created: LoggedChange, pending: Pending) {
        let Some(log) = self.log.as_ref().filter(|log| log.is_wanted()) else {
            return;
        };
        let is_foreign = match &created {
            LoggedChange::Create(create) => {
                create.owner.domain() != 0 || create.group.domain() != 0
            }
            _ => false,
        };
        if is_foreign {
            // A group of a Windows domain, from the directory: the record would have to name the
            // domain.
            self.log_nothing(tx);
            return;
        }
        if pending.has_unlogged {
            self.log_nothing(tx);
        }
        let belongings = pending.changes.into_iter().map(|(change, _)| change);
        Self::log_together(log, tx, None, std::iter::once(created).chain(belongings));
    }

    /// Hands over the record of written bytes, which the log fetches when it stores the record.
    #[doc(alias = "zfs_log_write")]
    pub(crate) fn log_write(&self, tx: &Tx, node: &Node, offset: u64, length: u64) {
        let Some(log) = self.log.as_ref().filter(|log| log.is_wanted()) else {
            return;
        };
        if node.facts().links == 0 {
            return;
        }
        log.record(
            tx,
            IntentRecord {
                change: LoggedChange::Write(Box::new(unfetched(node.id, offset, length))),
                object: Some(node.id),
                contents: Contents::Fetch {
                    generation: node.facts().generation,
                },
            },
        );
    }

    /// Hands over the record of a rename. The files' own records become shared, so that they are
    /// stored before it.
    #[doc(alias = "zfs_log_rename")]
    pub(crate) fn log_rename(&self, tx: &Tx, moved: &[ObjectId], rename: LoggedRename) {
        let Some(log) = self.log.as_ref().filter(|log| log.is_wanted()) else {
            return;
        };
        moved.iter().for_each(|id| log.share(*id));
        log.record(tx, shared(LoggedChange::Rename(Box::new(rename))));
    }

    /// Notes a change that no record can express: commits wait for its txg.
    pub(crate) fn log_nothing(&self, tx: &Tx) {
        if let Some(log) = &self.log {
            log.note_unlogged(tx);
        }
    }

    /// Passes on the result of a transaction. When it failed half-way, its txg stores the first
    /// half and no record has it: commits wait for the txg.
    pub(crate) fn unlogged_if_it_fails<T>(
        &self,
        tx: &Tx,
        changed: Result<T, PosixError>,
    ) -> Result<T, PosixError> {
        changed.inspect_err(|_| self.log_nothing(tx))
    }

    /// Drops the records that only a freed file's commits would store.
    pub(crate) fn log_gone(&self, id: ObjectId) {
        if let Some(log) = &self.log {
            log.forget(id);
        }
    }
}

/// The record of a rename.
pub(crate) fn renamed(
    kind: RenameKind,
    from: (ObjectId, &[u8]),
    to: (ObjectId, &[u8]),
) -> LoggedRename {
    LoggedRename {
        kind,
        from_directory: from.0,
        to_directory: to.0,
        from: Text::from(from.1),
        to: Text::from(to.1),
    }
}

impl LogSource for FileSystem {
    #[doc(alias = "zfs_get_data")]
    fn contents(
        &self,
        write: &LoggedWrite,
        generation: u64,
        operation: &Operation,
    ) -> Result<Fetched, ObjectError> {
        let node = match self.node(write.object, operation) {
            Ok(node) => node,
            Err(PosixError::Object(error)) => return Err(error),
            // The file is gone or damaged: no commit needs its bytes.
            Err(_) => return Ok(Fetched::Gone),
        };
        let _content = node.content.read();
        let facts = node.facts();
        let is_file = facts.kind() == FileKind::Regular;
        if !is_file || facts.links == 0 || facts.generation != generation {
            return Ok(Fetched::Gone);
        }
        if write.offset >= facts.size {
            return Ok(Fetched::Shortened {
                bytes: Vec::new(),
                size_bytes: facts.size,
            });
        }
        let mut bytes = vec![0; narrow(write.length)];
        node.object.read(write.offset, &mut bytes, operation)?;
        // It may have been freed while it was read.
        if node.is_gone() {
            return Ok(Fetched::Gone);
        }
        Ok(match write.length > facts.size - write.offset {
            true => Fetched::Shortened {
                bytes,
                size_bytes: facts.size,
            },
            false => Fetched::Bytes(bytes),
        })
    }

    fn place(
        &self,
        write: &LoggedWrite,
        generation: u64,
        whole_blocks: WholeBlocks,
        tx: &Tx,
        operation: &Operation,
    ) -> Option<PlacedWrites> {
        let node = self.node(write.object, operation).ok()?;
        let _content = node.content.read();
        let facts = node.facts();
        let end = write.offset.checked_add(write.length)?;
        let is_file = facts.kind() == FileKind::Regular && facts.generation == generation;
        if !is_file || facts.links == 0 || end > facts.size {
            return None;
        }
        let block_size = node.object.block_size().get();
        // The last block of a file counts as whole up to the end of the file.
        let is_whole = write.offset.is_multiple_of(block_size)
            && (end.is_multiple_of(block_size) || end == facts.size);
        if whole_blocks == WholeBlocks::Needed && !is_whole {
            return None;
        }
        // No record leads to the last block of a file that ends inside it: bytes beyond the end
        // would show when the file grows, and OpenZFS would have the file end with the block.
        PlacedWrites::of(write, &node.object, tx, operation)
    }
}
