//! Making an empty file system: the objects that every file system has.
//!
//! # Mechanism
//! Object 1 is the master node, a ZAP. It has the version, how names are treated, and the numbers
//! of the attribute tables, the unlinked set and the root directory. All are made in the
//! transaction that makes the dataset.

use std::sync::Arc;

use tarn_dataset::initialize::{FillError, FillFilesystem, NewFilesystem};
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{NewObject, ObjectSet, Tx};
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::{MASTER_NODE, ZNODE_SIZE, ZnodeFlags, master};
use tarn_probe::Operation;

use crate::directory::{Directory, create_zap, open_zap};
use crate::error::{PosixError, table_error};
use crate::facts::NewFacts;
use crate::filesystem::VERSION_NEWEST;
use crate::names::{CaseSensitivity, Naming};
use crate::store::store_facts;
use crate::tables::VERSION_ATTRIBUTES;
use crate::tables::{AttributeTables, Style, Tables};
use crate::types::{FileKind, Timestamp};

/// The properties of a new file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFileSystem {
    /// The version, 1 to 5.
    pub version: u64,
    /// How names are normalised: the number of the property `normalization`.
    pub normalization: u64,
    /// Whether names must be UTF-8.
    pub is_utf8_only: bool,
    /// Whether case matters.
    pub case: CaseSensitivity,
    /// The owner of the root directory.
    pub uid: u32,
    /// The group of the root directory.
    pub gid: u32,
}

impl Default for NewFileSystem {
    fn default() -> Self {
        NewFileSystem {
            version: VERSION_NEWEST,
            normalization: 0,
            is_utf8_only: false,
            case: CaseSensitivity::Sensitive,
            uid: 0,
            gid: 0,
        }
    }
}

/// Makes the objects of new file systems, for `dataset`, which creates datasets and knows nothing
/// of files.
#[derive(Debug, Clone, Copy, Default)]
pub struct EmptyFilesystem;

impl FillFilesystem for EmptyFilesystem {
    fn fill(
        &self,
        tx: &Tx,
        set: &Arc<ObjectSet>,
        facts: &NewFilesystem,
        operation: &Operation,
    ) -> Result<(), FillError> {
        let case = CaseSensitivity::from_number(facts.case)
            .ok_or(PosixError::Invalid("no way in which case matters"))?;
        let new = NewFileSystem {
            version: facts.version,
            normalization: facts.normalization,
            is_utf8_only: facts.utf8_only,
            case,
            uid: facts.user,
            gid: facts.group,
        };
        Ok(create_filesystem(tx, set, &new, operation)?)
    }
}

/// Makes the objects of an empty file system in an object set that has none.
#[doc(alias = "zfs_create_fs")]
pub fn create_filesystem(
    tx: &Tx,
    set: &Arc<ObjectSet>,
    new: &NewFileSystem,
    operation: &Operation,
) -> Result<(), PosixError> {
    if new.version == 0 || new.version > VERSION_NEWEST {
        return Err(PosixError::NotSupported("this version of file systems"));
    }
    let object = set.claim(
        tx,
        MASTER_NODE,
        NewObject::plain(ObjectType::MasterNode, 0),
        operation,
    )?;
    let zap = ObjectZap::make(&object, tx, NewZap::micro(set), operation)?;
    let put = |name: &str, word: u64| {
        zap.insert(tx, name, &ZapValue::word(word))
            .map_err(table_error(MASTER_NODE))
    };
    put(master::VERSION, new.version)?;
    put(master::UTF8_ONLY, u64::from(new.is_utf8_only))?;
    put(master::NORMALIZATION, new.normalization)?;
    put(master::CASE_SENSITIVITY, new.case.number())?;
    let style = Style::of(new.version);
    let mut attributes = None;
    if style == Style::Attributes {
        let id = create_zap(set, tx, ObjectType::SaMasterNode, operation)?.id();
        put(master::ATTRIBUTES, id.get())?;
        attributes = Some(id);
    }
    let unlinked = create_zap(set, tx, ObjectType::DeleteQueue, operation)?.id();
    put(master::UNLINKED, unlinked.get())?;
    let tables = AttributeTables::of(set, attributes, Tables::new(style));
    if style == Style::Attributes {
        tables.store_registry(tx, operation)?;
    }
    let root = create_root(tx, set, new, &tables, operation)?;
    put(master::ROOT, root.get())
}

fn create_root(
    tx: &Tx,
    set: &Arc<ObjectSet>,
    new: &NewFileSystem,
    tables: &AttributeTables,
    operation: &Operation,
) -> Result<ObjectId, PosixError> {
    let directory = object_of_file(ObjectType::Directory, tables.current().style);
    let object = set.allocate(tx, directory, operation)?;
    let naming = Naming::new(new.normalization, new.is_utf8_only, new.case);
    Directory::create(&object, &naming, tx, operation)?;
    let time = set.env().host.unix_time();
    let has_project = new.version >= VERSION_ATTRIBUTES && set.policy().counts_projects;
    let facts = NewFacts {
        mode: FileKind::Directory.mode_bits() | 0o755,
        size: 2,
        generation: tx.txg().get(),
        parent: object.id(),
        links: 2,
        device: 0,
        flags: ZnodeFlags::NONE,
        owner: Fuid::posix(new.uid),
        group: Fuid::posix(new.gid),
        project: has_project.then_some(0),
        now: Timestamp {
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
        },
    };
    let mut facts = facts.build(tables, tx, operation)?;
    store_facts(tables, &object, &mut facts, tx, operation)?;
    debug_assert_eq!(
        open_zap(&object, operation).count().ok(),
        Some(0),
        "the root is empty"
    );
    Ok(object.id())
}

/// The object to allocate for a file of this type. The bonus of an old structure has its full size
/// from the start.
pub(crate) fn object_of_file(object_type: ObjectType, style: Style) -> NewObject {
    let new = NewObject::plain(object_type, 0);
    match style {
        Style::Attributes => new.with_bonus(ObjectType::SystemAttributes, 0),
        Style::Structure(_) => new.with_bonus(ObjectType::Znode, ZNODE_SIZE),
    }
}
