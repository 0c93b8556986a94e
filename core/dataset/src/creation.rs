//! Creates directories and datasets: the steps that creating a pool and creating a file system
//! share.

use crate::deadlist;
use crate::error::DatasetError;
use crate::feature_use;
use crate::filesystem_counts::{self, Counted};
use crate::task::TaskContext;
use crate::writing::in_object;
use std::sync::Arc;
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{NewObject, NewObjectSet, NewSealedSet, ObjectSet, Tx};
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::declare::Stored;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::{Guid, ObjectId, Txg};
use tarn_probe::Operation;

/// The directory of what is being freed.
#[doc(alias = "FREE_DIR_NAME")]
pub(crate) const FREE_DIRECTORY: &str = "$FREE";

/// The directory whose only snapshot all datasets come from.
pub(crate) const ORIGIN: &str = "$ORIGIN";

/// Snapshot names are found in any case; see [`crate::stored`].
#[doc(alias = "U8_TEXTPREP_TOUPPER")]
const TO_UPPER: u64 = 2;

/// The rules of names in a file system, fixed at its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFilesystem {
    /// ZPL version, 1 to 5.
    pub version: u64,
    /// The stored number of the property `normalization`.
    pub normalization: u64,
    /// Names must be UTF-8.
    pub utf8_only: bool,
    /// The stored number of the property `casesensitivity`.
    pub case: u64,
    /// The owner of the root directory.
    pub user: u32,
    /// The group of the root directory.
    pub group: u32,
}

impl Default for NewFilesystem {
    fn default() -> Self {
        NewFilesystem {
            version: 5,
            normalization: 0,
            utf8_only: false,
            case: 0,
            user: 0,
            group: 0,
        }
    }
}

/// Why a new file system could not be filled.
pub type FillError = Box<dyn std::error::Error + Send + Sync>;

/// A door upward: puts the objects that every file system has into an empty object set. Implemented
/// where files are known.
pub trait FillFilesystem: Send + Sync {
    /// Fills it.
    ///
    /// # Errors
    /// When objects cannot be made.
    fn fill(
        &self,
        tx: &Tx,
        set: &Arc<ObjectSet>,
        facts: &NewFilesystem,
        operation: &Operation,
    ) -> Result<(), FillError>;
}

/// Makes a directory below another, or the root.
#[doc(alias = "dsl_dir_create_sync")]
pub(crate) fn create_directory(
    context: &TaskContext<'_>,
    parent: Option<ObjectId>,
    component: &str,
) -> Result<ObjectId, DatasetError> {
    let writing = context.writing();
    let new = NewObject::plain(ObjectType::DslDirectory, 0)
        .with_bonus(ObjectType::DslDirectory, DatasetDirectory::SIZE);
    let made = context.mos().allocate(context.tx, new, context.operation);
    let id = made.map_err(in_object(ObjectId::ZERO))?.id();
    assert_ne!(Some(id), parent, "a new directory is an object of its own");
    if let Some(parent) = parent {
        let above: DatasetDirectory = writing.reading().bonus_of(parent)?;
        writing.put(above.children, component, &ZapValue::word(id.get()))?;
        if filesystem_counts::is_counted(component) {
            filesystem_counts::adjust(context, parent, Counted::Filesystems, 1)?;
        }
    }
    let properties = writing.create_zap(ObjectType::DslProperties)?;
    let children = writing.create_zap(ObjectType::DslDirectoryChildMap)?;
    writing.change(id, |stored: &mut DatasetDirectory| {
        stored.creation_time_s = context.now_s;
        stored.parent = parent.unwrap_or(ObjectId::ZERO);
        stored.properties = properties;
        stored.children = children;
        stored.flags = DatasetDirectory::HAS_USED_BREAKDOWN;
    })?;
    Ok(id)
}

/// Makes the head of a directory: empty, or as the origin snapshot is.
#[doc(alias = "dsl_dataset_create_sync_dd")]
pub(crate) fn create_head(
    context: &TaskContext<'_>,
    directory: ObjectId,
    origin: Option<ObjectId>,
) -> Result<ObjectId, DatasetError> {
    let writing = context.writing();
    let id = allocate_dataset(context)?;
    let snapshot_names = create_names(context, ObjectType::DslSnapshotMap)?;
    let mut head = ondisk::dataset::Dataset {
        directory,
        snapshot_names,
        creation_time_s: context.now_s,
        creation_txg: creation_txg(context),
        fsid: Guid::new(random(context) >> 8),
        guid: Guid::new(random(context)),
        flags: DatasetFlags::UNIQUE_ACCURATE,
        ..ondisk::dataset::Dataset::default()
    };
    match origin {
        None => head.deadlist = deadlist::create(context)?,
        Some(origin) => descend(context, id, &mut head, origin)?,
    }
    writing.change(id, |stored: &mut ondisk::dataset::Dataset| *stored = head)?;
    writing.change(directory, |stored: &mut DatasetDirectory| {
        stored.head_dataset = id;
        stored.origin = origin.unwrap_or(ObjectId::ZERO);
    })?;
    Ok(id)
}

/// Makes a head the child of a snapshot.
fn descend(
    context: &TaskContext<'_>,
    id: ObjectId,
    head: &mut ondisk::dataset::Dataset,
    origin: ObjectId,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let snapshot: ondisk::dataset::Dataset = writing.reading().bonus_of(origin)?;
    head.previous_snapshot = origin;
    head.previous_snapshot_txg = snapshot.creation_txg;
    head.referenced = snapshot.referenced;
    head.compressed = snapshot.compressed;
    head.uncompressed = snapshot.uncompressed;
    head.root = snapshot.root;
    let origin_directory: DatasetDirectory = writing.reading().bonus_of(snapshot.directory)?;
    let origin_head: ondisk::dataset::Dataset =
        writing.reading().bonus_of(origin_directory.head_dataset)?;
    let like = origin_head.deadlist;
    head.deadlist = deadlist::create_like(context, like, head.previous_snapshot_txg, origin)?;
    let next_clones = match snapshot.next_clones {
        ObjectId::ZERO => writing.create_zap(ObjectType::DslNextClones)?,
        there => there,
    };
    writing.add_number(next_clones, id)?;
    writing.change(origin, |stored: &mut ondisk::dataset::Dataset| {
        stored.child_count += 1;
        stored.next_clones = next_clones;
    })?;
    let clones = match origin_directory.clones {
        ObjectId::ZERO => writing.create_zap(ObjectType::DslClones)?,
        there => there,
    };
    writing.add_number(clones, id)?;
    writing.change(snapshot.directory, |stored: &mut DatasetDirectory| {
        stored.clones = clones;
    })?;
    Ok(())
}

/// Makes the snapshot of a pool's origin, which nothing was ever stored in.
#[doc(alias = "dsl_pool_create_origin")]
pub(crate) fn create_origin_snapshot(
    context: &TaskContext<'_>,
    head: ObjectId,
) -> Result<ObjectId, DatasetError> {
    let writing = context.writing();
    let stored: ondisk::dataset::Dataset = writing.reading().bonus_of(head)?;
    let id = allocate_dataset(context)?;
    assert_ne!(id, head, "a snapshot is an object of its own");
    let born = Txg::from(1);
    let snapshot = ondisk::dataset::Dataset {
        directory: stored.directory,
        next_snapshot: head,
        child_count: 1,
        creation_time_s: context.now_s,
        creation_txg: born,
        deadlist: stored.deadlist,
        fsid: Guid::new(random(context) >> 8),
        guid: Guid::new(random(context)),
        flags: stored.flags,
        ..ondisk::dataset::Dataset::default()
    };
    writing.change(id, |stored: &mut ondisk::dataset::Dataset| {
        *stored = snapshot;
    })?;
    let like = stored.deadlist;
    let deadlist = deadlist::create_like(context, like, Txg::MAX, stored.previous_snapshot)?;
    deadlist::add_key(context, deadlist, stored.previous_snapshot_txg)?;
    writing.change(head, |stored: &mut ondisk::dataset::Dataset| {
        stored.deadlist = deadlist;
        stored.previous_snapshot = id;
        stored.previous_snapshot_txg = born;
    })?;
    writing.put(stored.snapshot_names, ORIGIN, &ZapValue::word(id.get()))?;
    Ok(id)
}

pub(crate) fn allocate_dataset(context: &TaskContext<'_>) -> Result<ObjectId, DatasetError> {
    let new = NewObject::plain(ObjectType::DslDataset, 0)
        .with_bonus(ObjectType::DslDataset, ondisk::dataset::Dataset::SIZE);
    let made = context.mos().allocate(context.tx, new, context.operation);
    Ok(made.map_err(in_object(ObjectId::ZERO))?.id())
}

/// Makes an empty ZAP in which names are found in any case.
pub(crate) fn create_names(
    context: &TaskContext<'_>,
    object_type: ObjectType,
) -> Result<ObjectId, DatasetError> {
    let new = NewObject::plain(object_type, 0);
    let zap = NewZap::Micro {
        salt: random(context) | 1,
        normalization: TO_UPPER,
    };
    let made = ObjectZap::allocate(context.mos(), context.tx, new, zap, context.operation);
    Ok(made.map_err(in_object(ObjectId::ZERO))?.object().id())
}

/// The txg that datasets say they were made in. Those made with the pool are older than everything.
fn creation_txg(context: &TaskContext<'_>) -> Txg {
    match context.mos().root_pointer().is_hole() {
        true => Txg::from(1),
        false => context.tx.txg(),
    }
}

pub(crate) fn random(context: &TaskContext<'_>) -> u64 {
    context.mos().env().host.random_u64()
}

/// Makes the object set of a new head. It is stored with the group.
#[doc(alias = "dmu_objset_create_impl")]
pub(crate) fn create_set(
    context: &TaskContext<'_>,
    id: ObjectId,
    objset_type: ObjsetType,
) -> Result<Arc<ObjectSet>, DatasetError> {
    let namespace = context.namespace;
    let dataset = crate::dataset::Dataset::open_unnamed(context.view(), id)?;
    let mut policy = crate::heads::policy_of(&dataset, None)?;
    let owner = match objset_type {
        ObjsetType::Zfs => namespace.open().heads.ownership(),
        _ => None,
    };
    if owner.is_some() {
        policy.counts_objects = context.features.is_enabled(Feature::UserobjAccounting);
        policy.counts_projects = context.features.is_enabled(Feature::ProjectQuota);
        if policy.counts_objects {
            feature_use::activate(context, id, Feature::UserobjAccounting)?;
        }
        if policy.counts_projects {
            feature_use::activate(context, id, Feature::ProjectQuota)?;
        }
    }
    let new = NewObjectSet {
        objset_type,
        has_accounting: true,
        levels: 0,
    };
    let env = namespace.mos().env().clone();
    let set = ObjectSet::create(env, id, new, policy, owner, context.tx);
    namespace.add_head(&set);
    Ok(set)
}

/// Makes the object set of a new head for what is encrypted elsewhere. It is stored with the group.
pub(crate) fn create_sealed_set(
    context: &TaskContext<'_>,
    id: ObjectId,
    objset_type: ObjsetType,
    new: NewSealedSet,
) -> Result<(), DatasetError> {
    let namespace = context.namespace;
    let dataset = crate::dataset::Dataset::open_unnamed(context.view(), id)?;
    let policy = crate::heads::policy_of(&dataset, None)?;
    let env = namespace.mos().env().clone();
    let set = ObjectSet::create_sealed(env, id, objset_type, new, policy, context.tx);
    namespace.add_head(&set.map_err(in_object(id))?);
    Ok(())
}

/// The origin snapshot of the pool; none in pools too old to have one.
pub(crate) fn origin_snapshot(context: &TaskContext<'_>) -> Result<Option<ObjectId>, DatasetError> {
    let Some(directory) = context.view().root()?.child(ORIGIN)? else {
        return Ok(None);
    };
    let head = directory.stored()?.head_dataset;
    let stored: ondisk::dataset::Dataset = context.writing().reading().bonus_of(head)?;
    Ok((!stored.previous_snapshot.is_zero()).then_some(stored.previous_snapshot))
}
