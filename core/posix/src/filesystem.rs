//! A mounted dataset or snapshot, and what all of its operations share.
//!
//! # Mechanism
//! The master node, object 1, has the root directory, the unlinked set, the attribute tables, and
//! the properties of names that the file system was created with. It is read once. After that a
//! [`FileSystem`] is a table of files in memory (`node`) over an object set; each operation on them
//! is a file in `ops/`, a method of this type.
//!
//! # Invariants
//! - A transaction is asked for after the locks of the files that it changes were taken, and by a
//!   thread that has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tarn_host::Host;
use tarn_host::lock::{Mutex, RwLock};
use tarn_object::{ObjectSet, OpenTx, TxEstimate, Txgs};
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_ondisk::znode::{MASTER_NODE, master};
use tarn_probe::{Operation, UnlinkedCounts};
use tarn_zil::IntentLog;

use crate::control_directory::{ControlEntry, SnapshotDoor};
use crate::directory::{Directory, open_zap};
use crate::error::{MountError, PosixError, table_error};
use crate::holders::{Change, Holders};
use crate::idle_files::IdleFiles;
use crate::locks::Locks;
use crate::names::{CaseSensitivity, Naming};
use crate::node::{Node, Nodes};
pub use crate::ops::{NewContents, ReadData, WriteAt};
use crate::properties::MountProperties;
use crate::quotas::Quotas;
use crate::ranks;
use crate::removed_directories::RemovedDirectories;
use crate::shares::Shares;
use crate::tables::{AttributeTables, Style, VERSION_ATTRIBUTES};
use crate::types::Timestamp;
use tarn_dataset::space_door::{SpaceDoor, SpaceLeave, SpaceUse};
use tarn_zil::SyncPolicy;

/// The newest version of file systems.
#[doc(alias = "ZPL_VERSION")]
pub const VERSION_NEWEST: u64 = 5;
/// Entries of directories say what they lead to from this version on.
#[doc(alias = "ZPL_VERSION_DIRENT")]
pub(crate) const VERSION_ENTRY_TYPES: u64 = 2;

/// About how much a transaction that frees writes: entries of directories, and block pointers at
/// the edges of the freed range.
const FREEING_BYTES: u64 = 64 << 10;

/// The parts that a file system is opened with.
pub struct FileSystemParts {
    /// Its objects.
    pub set: Arc<ObjectSet>,
    /// The pool's transaction groups; none where nothing can change, as in a snapshot.
    pub txgs: Option<Arc<Txgs>>,
    /// Its intent log; none where nothing can change, or where durability waits for the txg.
    pub log: Option<Arc<IntentLog>>,
    /// Its properties.
    pub properties: MountProperties,
    /// The machine.
    pub host: Host,
    /// How much room it has.
    pub space: SpaceDoor,
    /// Its snapshots, for `.zfs`; none where it has no `.zfs`.
    pub snapshots: Option<Arc<dyn SnapshotDoor>>,
    /// What to do with files that are in its unlinked set.
    pub unlinked: Unlinked,
}

/// What a mount does with files in the unlinked set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unlinked {
    /// They are freed.
    #[default]
    Freed,
    /// They stay for the next mount: mounting changes nothing.
    Kept,
}

/// A mounted file system.
pub struct FileSystem {
    pub(crate) set: Arc<ObjectSet>,
    pub(crate) txgs: Option<Arc<Txgs>>,
    pub(crate) log: Option<Arc<IntentLog>>,
    pub(crate) host: Host,
    pub(crate) space: SpaceDoor,
    pub(crate) snapshots: Option<Arc<dyn SnapshotDoor>>,
    pub(crate) tables: AttributeTables,
    pub(crate) nodes: Nodes,
    idle: Arc<IdleFiles>,
    pub(crate) holders: Holders,
    pub(crate) locks: Locks,
    pub(crate) shares: Shares,
    pub(crate) naming: Naming,
    /// Held while a directory is renamed to another parent, so that its ancestors stay while they
    /// are checked.
    pub(crate) renaming: Mutex<()>,
    pub(crate) unlinked: Option<ObjectId>,
    pub(crate) unlinked_counts: Arc<UnlinkedCounts>,
    pub(crate) removed: RemovedDirectories,
    pub(crate) quotas: Quotas,
    properties: RwLock<Arc<MountProperties>>,
    root: ObjectId,
    version: u64,
    /// Its dataset is being destroyed.
    is_ending: AtomicBool,
}

impl FileSystem {
    /// Sets whether the file system ends because its snapshot is being destroyed: then front ends
    /// serve no new requests of it.
    pub fn set_ending(&self, is_ending: bool) {
        self.is_ending.store(is_ending, Ordering::SeqCst);
    }

    /// Whether a file or directory is open.
    pub fn is_in_use(&self) -> bool {
        self.nodes.any_is_open()
    }

    /// Whether the file system ends, and front ends serve no new requests of it.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Mounts a file system. Where it can be changed, this frees the files in its unlinked set,
    /// unless they are to be kept, and replays its intent log, which the caller then drops. In a
    /// writable pool a read-only mount replays the log, too.
    ///
    /// # Errors
    /// It is no file system, of a version that is not known, or something could not be read.
    pub fn open(
        parts: FileSystemParts,
        operation: &Operation,
    ) -> Result<Arc<FileSystem>, MountError> {
        let FileSystemParts {
            set,
            txgs,
            log,
            properties,
            host,
            space,
            snapshots,
            unlinked: left,
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
        let style = Style::of(facts.version);
        let tables = AttributeTables::load(&set, facts.attributes, style, operation)?;
        let quotas = Quotas::load(&set, operation)?;
        let properties = MountProperties {
            is_read_only,
            ..properties
        };
        if let Some(log) = &log {
            log.set_bias(properties.log_bias);
        }
        let idle = IdleFiles::of(&set);
        let file_system = Arc::new(FileSystem {
            tables,
            nodes: Nodes::new(idle.clone()),
            idle,
            holders: Holders::new(),
            locks: Locks::new(),
            shares: Shares::new(),
            naming: facts.naming,
            renaming: Mutex::new(ranks::RENAME, ()),
            unlinked: facts.unlinked,
            unlinked_counts: Arc::default(),
            removed: RemovedDirectories::new(),
            quotas,
            properties: RwLock::new(ranks::PROPERTIES, Arc::new(properties)),
            root: facts.root,
            version: facts.version,
            is_ending: AtomicBool::new(false),
            set,
            txgs,
            log,
            host,
            space,
            snapshots,
        });
        file_system.idle.enter(Arc::downgrade(&file_system));
        if let Some(log) = &file_system.log {
            let source: std::sync::Weak<FileSystem> = Arc::downgrade(&file_system);
            log.set_source(source);
        }
        file_system.node(facts.root, operation)?;
        let needs_replay = file_system.needs_replay();
        if (!is_read_only && left == Unlinked::Freed) || needs_replay {
            file_system.drain_unlinked(operation)?;
        }
        if let (Some(log), true) = (&file_system.log, needs_replay) {
            // Records may make objects with numbers that were just freed.
            file_system.wait_stored(log.set().env().txgs.open_txg(), operation)?;
            tarn_zil::replay(log, &*file_system, operation)?;
        }
        // Blocks that were read to open it are not needed again soon.
        file_system.set.drop_idle();
        Ok(file_system)
    }

    /// Whether its log has records of before a crash that are not replayed yet.
    fn needs_replay(&self) -> bool {
        let head = self.set.phys().intent_log;
        self.log.is_some() && tarn_zil::is_needed(&head)
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

    /// Its intent log, where it has one.
    pub fn intent_log(&self) -> Option<&Arc<IntentLog>> {
        self.log.as_ref()
    }

    /// The counts of files that came into the unlinked set, those found at the mount included, and
    /// of those that were freed.
    pub fn unlinked_counts(&self) -> &Arc<UnlinkedCounts> {
        &self.unlinked_counts
    }

    /// How it treats names.
    pub fn naming(&self) -> &Naming {
        &self.naming
    }

    /// Its properties, as they are now.
    pub fn properties(&self) -> Arc<MountProperties> {
        self.properties.read().clone()
    }

    /// Changes its properties.
    pub fn set_properties(&self, properties: MountProperties) {
        let is_read_only = properties.is_read_only || self.txgs.is_none();
        if let Some(log) = &self.log {
            log.set_bias(properties.log_bias);
        }
        let properties = Arc::new(MountProperties {
            is_read_only,
            ..properties
        });
        let old = std::mem::replace(&mut *self.properties.write(), properties.clone());
        if old != properties {
            self.tell(Change::Everything, &Operation::unmeasured());
        }
    }

    /// A file, as long as it exists.
    pub(crate) fn node(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<Node>, PosixError> {
        let load = || Node::load(&self.set, id, &self.tables, operation);
        let node = self.nodes.find_or_load(id, load)?;
        self.idle.make_room();
        if node.is_gone() {
            Err(PosixError::NotFound)
        } else {
            Ok(node)
        }
    }

    /// Adds a file that was just made to those in memory.
    pub(crate) fn add_new(&self, node: Arc<Node>) -> Arc<Node> {
        let node = self.nodes.add_new(node);
        self.idle.make_room();
        node
    }

    /// How many files the mounted file systems of the pool have in memory.
    pub fn files_in_memory(&self) -> usize {
        self.idle.count()
    }

    /// Drops files from memory that are idle and were not used since the last call, and idle
    /// objects.
    pub fn let_idle_go(&self) {
        self.nodes.let_idle_go();
        self.set.drop_idle();
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
        let mut directory = Directory::open(&node.object, &self.naming, operation);
        directory.has_types = self.version >= VERSION_ENTRY_TYPES;
        Ok(directory)
    }

    /// The entry of the control directory with this inode number, if the file system has `.zfs`.
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

    /// Refuses changes on a read-only mount.
    pub(crate) fn check_writable(&self) -> Result<(), PosixError> {
        match self.properties.read().is_read_only {
            true => Err(PosixError::ReadOnly),
            false => Ok(()),
        }
    }

    /// A transaction that writes about so much metadata. The caller holds the locks of the files it
    /// will change, and no other transaction.
    pub(crate) fn begin(
        &self,
        write_bytes: u64,
        operation: &Operation,
    ) -> Result<OpenTx, PosixError> {
        let worst = self.set.worst_of_metadata(write_bytes);
        let leave = (self.space.may_write)(worst, SpaceUse::Whole)?;
        self.begin_with(leave, TxEstimate::writing(write_bytes), operation)
    }

    /// A transaction for which space is promised already.
    pub(crate) fn begin_with(
        &self,
        leave: SpaceLeave,
        estimate: TxEstimate,
        operation: &Operation,
    ) -> Result<OpenTx, PosixError> {
        let txgs = self.txgs.as_ref().ok_or(PosixError::ReadOnly)?;
        let mut tx = txgs.assign(&estimate, operation)?;
        if let Some(leave) = leave {
            tx.keep(leave);
        }
        Ok(tx)
    }

    /// A transaction that frees more space than it takes: full pools and used-up quotas do not
    /// refuse it.
    pub(crate) fn begin_freeing(
        &self,
        free_bytes: u64,
        operation: &Operation,
    ) -> Result<OpenTx, PosixError> {
        let worst = self.set.worst_of_metadata(FREEING_BYTES);
        let leave = (self.space.may_write)(worst, SpaceUse::Freeing)?;
        self.begin_with(leave, TxEstimate::freeing(free_bytes), operation)
    }

    /// Waits until a change is durable, where the dataset has `sync=always`. The caller has dropped
    /// its transaction and released the locks of its files.
    pub(crate) fn after_change(&self, txg: Txg, operation: &Operation) -> Result<(), PosixError> {
        if self.log.as_ref().is_some_and(|log| log.is_replaying()) {
            return Ok(());
        }
        // The lock is released before the wait.
        let sync = self.properties.read().sync;
        match sync {
            SyncPolicy::Always => match self.wanted_log() {
                Some(log) => Ok(log.commit(None, operation)?),
                None => self.wait_stored(txg, operation),
            },
            SyncPolicy::Standard | SyncPolicy::Disabled => Ok(()),
        }
    }
}

impl std::fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileSystem({:?})", self.set)
    }
}

/// The values in the master node.
pub(crate) struct MasterFacts {
    pub version: u64,
    root: ObjectId,
    pub unlinked: Option<ObjectId>,
    pub attributes: Option<ObjectId>,
    naming: Naming,
}

impl MasterFacts {
    pub(crate) fn read(
        set: &Arc<ObjectSet>,
        operation: &Operation,
    ) -> Result<MasterFacts, PosixError> {
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
