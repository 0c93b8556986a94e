//! A mounted dataset or snapshot, and what all of its operations share.
//!
//! # Mechanism
//! The master node, object 1, leads to everything: the root directory, the unlinked set, the attribute tables, and what the
//! dataset was created with. It is read once. After that a [`FileSystem`] is a table of files in memory (`node`)
//! over an object set; each operation on them is a file in `ops/`, a method of this type.
//!
//! # Invariants
//! - A transaction is asked for after the locks of the files that it changes were taken, and by a thread that has none.

use std::sync::Arc;

use tarn_host::Host;
use tarn_host::lock::{Mutex, RwLock};
use tarn_object::{ObjectSet, OpenTx, Tx, TxEstimate, Txgs};
use tarn_ondisk::attributes::Encoded;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::{MASTER_NODE, master};
use tarn_probe::Operation;

use crate::control_directory::{ControlEntry, SnapshotList};
use crate::directory::{Directory, open_zap};
use crate::error::{MountError, PosixError, table_error};
use crate::facts::Facts;
use crate::names::{CaseSensitivity, Naming};
use crate::node::{Node, Nodes};
pub use crate::ops::ReadData;
use crate::properties::{MountProperties, SyncPolicy};
use crate::ranks;
use crate::space::SpaceDoor;
use crate::tables::AttributeTables;
use crate::types::Timestamp;

/// The newest version of file systems.
#[doc(alias = "ZPL_VERSION")]
pub const VERSION_NEWEST: u64 = 5;
/// Files have attributes from this version on.
#[doc(alias = "ZPL_VERSION_SA")]
const VERSION_ATTRIBUTES: u64 = 5;

/// What a file system is made of.
pub struct FileSystemParts {
    /// Its objects.
    pub set: Arc<ObjectSet>,
    /// The pool's transaction groups; none where nothing can change, as in a snapshot.
    pub txgs: Option<Arc<Txgs>>,
    /// Its properties.
    pub properties: MountProperties,
    /// The machine.
    pub host: Host,
    /// How much room it has.
    pub space: SpaceDoor,
    /// Its snapshots, for `.zfs`; none where there is no `.zfs`.
    pub snapshots: Option<SnapshotList>,
}

/// A mounted file system.
pub struct FileSystem {
    pub(crate) set: Arc<ObjectSet>,
    pub(crate) txgs: Option<Arc<Txgs>>,
    pub(crate) host: Host,
    pub(crate) space: SpaceDoor,
    pub(crate) snapshots: Option<SnapshotList>,
    pub(crate) tables: AttributeTables,
    pub(crate) nodes: Nodes,
    pub(crate) naming: Naming,
    /// One rename of a directory to another parent at a time: so its ancestors stay while they are looked at.
    pub(crate) renaming: Mutex<()>,
    pub(crate) unlinked: Option<ObjectId>,
    properties: RwLock<Arc<MountProperties>>,
    root: ObjectId,
    version: u64,
}

impl FileSystem {
    /// Mounts a file system. One that can be changed frees what was left in its unlinked set by a crash.
    pub fn open(
        parts: FileSystemParts,
        operation: &Operation,
    ) -> Result<Arc<FileSystem>, MountError> {
        let FileSystemParts {
            set,
            txgs,
            properties,
            host,
            space,
            snapshots,
        } = parts;
        if set.objset_type() != ObjsetType::Zfs {
            return Err(MountError::NotFileSystem);
        }
        let facts = MasterFacts::read(&set, operation)?;
        let is_read_only = properties.is_read_only || txgs.is_none();
        if facts.version > VERSION_NEWEST {
            return Err(MountError::Version {
                version: facts.version,
            });
        }
        if facts.version < VERSION_ATTRIBUTES && !is_read_only {
            return Err(MountError::OldVersion {
                version: facts.version,
            });
        }
        let tables = AttributeTables::load(&set, facts.attributes, operation)?;
        let properties = MountProperties {
            is_read_only,
            ..properties
        };
        let file_system = Arc::new(FileSystem {
            tables,
            nodes: Nodes::new(),
            naming: facts.naming,
            renaming: Mutex::new(ranks::RENAME, ()),
            unlinked: facts.unlinked,
            properties: RwLock::new(ranks::PROPERTIES, Arc::new(properties)),
            root: facts.root,
            version: facts.version,
            set,
            txgs,
            host,
            space,
            snapshots,
        });
        file_system.node(facts.root, operation)?;
        if !is_read_only {
            file_system.drain_unlinked(operation)?;
        }
        Ok(file_system)
    }

    /// The root directory.
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// The version of the file system.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The object set it is in.
    pub fn object_set(&self) -> &Arc<ObjectSet> {
        &self.set
    }

    /// How it treats names.
    pub fn naming(&self) -> &Naming {
        &self.naming
    }

    /// Its properties, as they are now.
    pub fn properties(&self) -> Arc<MountProperties> {
        self.properties.read().clone()
    }

    /// Its properties have changed.
    pub fn set_properties(&self, properties: MountProperties) {
        let is_read_only = properties.is_read_only || self.txgs.is_none();
        let properties = Arc::new(MountProperties {
            is_read_only,
            ..properties
        });
        let old = std::mem::replace(&mut *self.properties.write(), properties);
        drop(old);
    }

    /// A file, as long as it exists.
    pub(crate) fn node(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<Node>, PosixError> {
        if let Some(node) = self.nodes.find(id) {
            return if node.is_gone() {
                Err(PosixError::NotFound)
            } else {
                Ok(node)
            };
        }
        let loaded = Node::load(&self.set, id, &self.tables.current(), operation)?;
        Ok(self.add_node(loaded))
    }

    /// Puts a file into the table, and gives back the one that is there.
    pub(crate) fn add_node(&self, node: Arc<Node>) -> Arc<Node> {
        let (node, dropped) = self.nodes.add(node);
        drop(dropped);
        node
    }

    /// The table of a directory.
    pub(crate) fn directory<'a>(
        &'a self,
        node: &Node,
        operation: &'a Operation,
    ) -> Result<Directory<'a>, PosixError> {
        if !node.facts().is_directory() {
            return Err(PosixError::NotDirectory);
        }
        Ok(Directory::open(&node.object, &self.naming, operation))
    }

    /// What the number stands for in the control directory, if there is one.
    pub(crate) fn control_entry(&self, id: ObjectId) -> Option<ControlEntry> {
        self.snapshots.as_ref()?;
        ControlEntry::of(id)
    }

    /// The time of day.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.host.unix_time();
        Timestamp {
            seconds: now.seconds,
            nanoseconds: now.nanoseconds,
        }
    }

    /// Refuses changes where nothing can change.
    pub(crate) fn check_writable(&self) -> Result<(), PosixError> {
        match self.properties.read().is_read_only {
            true => Err(PosixError::ReadOnly),
            false => Ok(()),
        }
    }

    /// A transaction that writes about so much. The caller holds the locks of the files it will change, and no other
    /// transaction.
    pub(crate) fn begin(
        &self,
        write_bytes: u64,
        operation: &Operation,
    ) -> Result<OpenTx, PosixError> {
        let txgs = self.txgs.as_ref().ok_or(PosixError::ReadOnly)?;
        (self.space.may_write)(write_bytes)?;
        Ok(txgs.assign(&TxEstimate::writing(write_bytes), operation)?)
    }

    /// A transaction that gives back more than it takes: full pools and used-up quotas do not keep it.
    pub(crate) fn begin_freeing(
        &self,
        free_bytes: u64,
        operation: &Operation,
    ) -> Result<OpenTx, PosixError> {
        let txgs = self.txgs.as_ref().ok_or(PosixError::ReadOnly)?;
        Ok(txgs.assign(&TxEstimate::freeing(free_bytes), operation)?)
    }

    /// Stores what is known of a file, and shows it. The caller holds `change`.
    pub(crate) fn store(
        &self,
        node: &Node,
        mut facts: Facts,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if facts.form != crate::facts::Form::Attributes {
            self.modernize(node, &mut facts, tx, operation)?;
        }
        if let Some(accessed) = node.accessed.lock().take() {
            facts.accessed = facts.accessed.max(accessed);
        }
        let values = facts.to_values(&self.tables.current());
        let room = bonus_room(node);
        let encoded = self.tables.encode(tx, node.id, &values, room, operation)?;
        store_encoded(node, &encoded, tx, operation)?;
        facts.values = values;
        node.note_change(tx.txg());
        node.set_facts(facts);
        Ok(())
    }

    /// Gives an old file attributes. Its access control list moves into them.
    fn modernize(
        &self,
        node: &Node,
        facts: &mut Facts,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let corrupt = |what| PosixError::Attributes {
            object: node.id,
            what,
        };
        let mut entries = crate::acl::trivial_entries(facts.mode);
        if let Some(acl) = facts.old_acl() {
            let acl = acl.map_err(corrupt)?;
            match acl.embedded().map_err(corrupt)? {
                Some(embedded) if !embedded.is_empty() => entries = embedded,
                Some(_) => {}
                None => {
                    let size = usize::try_from(acl.size().map_err(corrupt)?).unwrap_or(usize::MAX);
                    entries = self.external_acl(
                        acl.external,
                        size,
                        acl.version().map_err(corrupt)?,
                        operation,
                    )?;
                    self.set.free_object(tx, acl.external, operation)?;
                }
            }
        }
        facts.modernize(&entries, &self.tables, tx, operation)?;
        Ok(())
    }

    /// An access control list in an object of its own.
    fn external_acl(
        &self,
        id: ObjectId,
        size: usize,
        version: tarn_ondisk::acl::AclVersion,
        operation: &Operation,
    ) -> Result<Vec<tarn_ondisk::acl::AclEntry>, PosixError> {
        const BYTES_MAX: usize = tarn_ondisk::acl::ENTRY_COUNT_MAX * 48;
        if size > BYTES_MAX {
            return Err(PosixError::Damaged {
                object: id,
                why: "an access control list is too long",
            });
        }
        let mut bytes = vec![0; size];
        self.set
            .object(id, operation)?
            .read(0, &mut bytes, operation)?;
        let order = tarn_ondisk::declare::ByteOrder::Little;
        tarn_ondisk::acl::decode_entries(&bytes, order, version)
            .map_err(|what| PosixError::Attributes { object: id, what })
    }

    /// After a change was made and its transaction dropped: waits until it is stored, where the dataset says so.
    pub(crate) fn after_change(
        &self,
        node: &Node,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        match self.properties().sync {
            SyncPolicy::Always => self.wait_stored(node.changed_in(), operation),
            SyncPolicy::Standard | SyncPolicy::Disabled => Ok(()),
        }
    }

    /// The names in the master node's unlinked set.
    pub(crate) fn master_word(
        &self,
        name: &str,
        operation: &Operation,
    ) -> Result<Option<u64>, PosixError> {
        let object = self.set.object(MASTER_NODE, operation)?;
        open_zap(&object, operation)
            .lookup_word(name)
            .map_err(table_error(MASTER_NODE))
    }
}

impl std::fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileSystem({:?})", self.set)
    }
}

/// How many bytes of attributes a file's dnode has room for, if there is no spill block.
fn bonus_room(node: &Node) -> usize {
    use tarn_ondisk::dnode::{Spill, bonus_room};
    bonus_room(node.object.info().slots, 1, Spill::Absent)
}

/// Puts encoded attributes into bonus and spill block. Room is made before it is taken. A spill block that stays the
/// same is left alone.
fn store_encoded(
    node: &Node,
    encoded: &Encoded,
    tx: &Tx,
    operation: &Operation,
) -> Result<(), PosixError> {
    let object = &node.object;
    let there = object.spill(operation)?;
    let Some(spill) = &encoded.spill else {
        if there.is_some() {
            object.set_spill(tx, None)?;
        }
        return Ok(object.set_typed_bonus(tx, ObjectType::SystemAttributes, &encoded.bonus)?);
    };
    object.set_typed_bonus(tx, ObjectType::SystemAttributes, &encoded.bonus)?;
    let is_same = there.is_some_and(|block| {
        let (same, padding) = block.split_at(spill.len().min(block.len()));
        same == spill.as_slice() && padding.len() < 512 && padding.iter().all(|byte| *byte == 0)
    });
    if !is_same {
        object.set_spill(tx, Some(spill))?;
    }
    Ok(())
}

/// What the master node says.
struct MasterFacts {
    version: u64,
    root: ObjectId,
    unlinked: Option<ObjectId>,
    attributes: Option<ObjectId>,
    naming: Naming,
}

impl MasterFacts {
    fn read(set: &Arc<ObjectSet>, operation: &Operation) -> Result<MasterFacts, PosixError> {
        let object = set.object(MASTER_NODE, operation)?;
        let zap = open_zap(&object, operation);
        let word = |name: &str| zap.lookup_word(name).map_err(table_error(MASTER_NODE));
        let damaged = |why| PosixError::Damaged {
            object: MASTER_NODE,
            why,
        };
        let version = word(master::VERSION)?.unwrap_or(VERSION_NEWEST);
        let root = word(master::ROOT)?.ok_or(damaged("there is no root directory"))?;
        let attributes = match version {
            VERSION_ATTRIBUTES.. => word(master::ATTRIBUTES)?.map(ObjectId::from),
            _ => None,
        };
        let case = word(master::CASE_SENSITIVITY)?.unwrap_or(0);
        let case = CaseSensitivity::from_number(case)
            .ok_or(damaged("it is not known how case matters"))?;
        let normalization = word(master::NORMALIZATION)?.unwrap_or(0);
        let is_utf8_only = word(master::UTF8_ONLY)?.unwrap_or(0) != 0;
        Ok(MasterFacts {
            version,
            root: ObjectId::from(root),
            unlinked: word(master::UNLINKED)?.map(ObjectId::from),
            attributes,
            naming: Naming::new(normalization, is_utf8_only, case),
        })
    }
}
