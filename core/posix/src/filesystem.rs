//! A mounted dataset or snapshot, and what all of its operations share.
//!
//! # Mechanism
//! The master node, object 1, leads to everything: the root directory, the unlinked set, the
//! attribute tables, and what the dataset was created with. It is read once. After that a
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
use crate::tables::{AttributeTables, Style};
use crate::types::Timestamp;
use tarn_dataset::space_door::{SpaceDoor, SpaceLeave, SpaceUse};
use tarn_zil::SyncPolicy;

/// The newest version of file systems.
#[doc(alias = "ZPL_VERSION")]
pub const VERSION_NEWEST: u64 = 5;
/// Files have attributes from this version on.
#[doc(alias = "ZPL_VERSION_SA")]
pub(crate) const VERSION_ATTRIBUTES: u64 = 5;
/// Owners are FUIDs, and access control lists have entries of several sizes, from this version on.
#[doc(alias = "ZPL_VERSION_FUID")]
pub(crate) const VERSION_FUID: u64 = 3;
/// Entries of directories say what they lead to from this version on.
#[doc(alias = "ZPL_VERSION_DIRENT")]
pub(crate) const VERSION_ENTRY_TYPES: u64 = 2;

/// About what a transaction writes that frees: entries of directories, and pointers at the edges of
/// what is freed.
const FREEING_BYTES: u64 = 64 << 10;

/// What a file system is made of.
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
    /// Its snapshots, for `.zfs`; none where there is no `.zfs`.
    pub snapshots: Option<Arc<dyn SnapshotDoor>>,
    /// What was left in its unlinked set.
    pub unlinked: Unlinked,
}

/// What becomes of files that were left without a name when a file system is mounted.
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
    /// One rename of a directory to another parent at a time: so its ancestors stay while they are
    /// looked at.
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
    /// Ends the file system of a snapshot that is to be destroyed, so that front ends let nobody in
    /// any more; or lets it go on.
    pub fn set_ending(&self, is_ending: bool) {
        self.is_ending.store(is_ending, Ordering::SeqCst);
    }

    /// Whether somebody has a file or directory open.
    pub fn is_in_use(&self) -> bool {
        self.nodes.any_is_open()
    }

    /// Whether it ends, and front ends are to let nobody in.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Mounts a file system. One that can be changed frees what was left in its unlinked set by a
    /// crash, unless that is to be kept, and replays its intent log, which then is to be forgotten.
    /// A mount that is read-only replays it, too, in a pool that is not.
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
            // The numbers of what was just freed are wanted again.
            file_system.wait_stored(log.set().env().txgs.open_txg(), operation)?;
            tarn_zil::replay(log, &*file_system, operation)?;
        }
        // What was read to open it is not read again soon.
        file_system.set.drop_idle();
        Ok(file_system)
    }

    /// Whether a crash has left something in its log that is not replayed yet.
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

    /// How many files have lost their last name since it was mounted, or before and were still
    /// there, and how many of them were freed.
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

    /// Its properties have changed.
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

    /// Lets files go that nobody uses or has looked at since the last time, and objects that nobody
    /// uses.
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

    /// A transaction for which room is promised already.
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

    /// A transaction that gives back more than it takes: full pools and used-up quotas do not keep
    /// it.
    pub(crate) fn begin_freeing(
        &self,
        free_bytes: u64,
        operation: &Operation,
    ) -> Result<OpenTx, PosixError> {
        let worst = self.set.worst_of_metadata(FREEING_BYTES);
        let leave = (self.space.may_write)(worst, SpaceUse::Freeing)?;
        self.begin_with(leave, TxEstimate::freeing(free_bytes), operation)
    }

    /// After a change was made, its transaction dropped and the locks of its files released: waits
    /// until it is durable, where the dataset says so.
    pub(crate) fn after_change(&self, txg: Txg, operation: &Operation) -> Result<(), PosixError> {
        if self.log.as_ref().is_some_and(|log| log.is_replaying()) {
            return Ok(());
        }
        // The lock is let go before the wait.
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

/// What the master node says.
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
