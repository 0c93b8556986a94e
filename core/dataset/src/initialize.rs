//! The tree of datasets of a new pool: the root, the directories that the pool's own space is
//! charged to, and `$ORIGIN`, from which all datasets descend.

use crate::creation;
pub use crate::creation::{FillError, FillFilesystem, NewFilesystem};
use crate::error::DatasetError;
use crate::namespace::Namespace;
use crate::task::{FeatureCounts, InternalEvent, TaskContext};
use std::cell::RefCell;
use std::sync::Arc;
use tarn_block::BlockIo;
use tarn_object::zap::ZapValue;
use tarn_object::{LIST_BLOCK_BYTES, ObjectSet, Ownership, PointerList, SyncTx};
use tarn_ondisk::bpobj::PointerListVersion;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::pool_directory::{FREE_POINTER_LIST, POOL_DIRECTORY, ROOT_DATASET};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// What the tree is made from.
pub struct Initialize<'a> {
    /// The MOS, with an empty pool directory.
    pub mos: Arc<ObjectSet>,
    /// Leave to change it.
    pub tx: &'a SyncTx,
    /// The pool's blocks.
    pub io: &'a Arc<BlockIo>,
    /// Features, which are enabled already.
    pub features: &'a dyn FeatureCounts,
    /// Now, in seconds since 1970.
    pub now_s: u64,
    /// On whose behalf.
    pub operation: &'a Operation,
    /// Records for the internal history.
    pub events: &'a RefCell<Vec<InternalEvent>>,
    /// The name of the root.
    pub pool_name: &'a str,
    /// Properties of the root, as they are stored.
    pub root_properties: &'a [(String, ZapValue)],
    /// Facts of the root file system.
    pub facts: &'a NewFilesystem,
    /// Fills it.
    pub fill: &'a Arc<dyn FillFilesystem>,
    /// Tells owners of its files apart.
    pub ownership: Arc<dyn Ownership>,
}

/// Makes the tree. The root file system is stored with the group.
///
/// # Errors
/// When objects cannot be made.
#[doc(alias = "dsl_pool_create")]
pub fn initialize(parts: Initialize<'_>) -> Result<Namespace, DatasetError> {
    // The root's number is known only once it is made; until then nothing is looked up by name.
    let unrooted = Namespace::new(parts.mos.clone(), parts.pool_name, ObjectId::ZERO);
    let root = {
        let context = parts.context(&unrooted);
        let root = creation::create_directory(&context, None, "")?;
        let value = ZapValue::word(root.get());
        let writing = context.writing();
        writing.put(POOL_DIRECTORY, ROOT_DATASET, &value)?;
        root
    };
    let namespace = Namespace::new(parts.mos.clone(), parts.pool_name, root);
    namespace.set_ownership(parts.ownership.clone());
    {
        let context = parts.context(&namespace);
        make_special_directories(&context, root)?;
        make_root(&context, root, &parts)?;
    }
    Ok(namespace)
}

impl Initialize<'_> {
    fn context<'c>(&'c self, namespace: &'c Namespace) -> TaskContext<'c> {
        TaskContext {
            namespace,
            tx: self.tx,
            io: self.io,
            features: self.features,
            now_s: self.now_s,
            operation: self.operation,
            events: self.events,
        }
    }
}

fn make_special_directories(context: &TaskContext<'_>, root: ObjectId) -> Result<(), DatasetError> {
    creation::create_directory(context, Some(root), "$MOS")?;
    creation::create_directory(context, Some(root), "$FREE")?;
    let version = PointerListVersion::Nested;
    let list = PointerList::create(
        context.mos(),
        context.tx,
        version,
        LIST_BLOCK_BYTES,
        context.operation,
    );
    let list = list.map_err(crate::writing::in_object(ObjectId::ZERO))?;
    let value = ZapValue::word(list.id().get());
    let writing = context.writing();
    writing.put(POOL_DIRECTORY, FREE_POINTER_LIST, &value)?;
    let origin = creation::create_directory(context, Some(root), creation::ORIGIN)?;
    let head = creation::create_head(context, origin, None)?;
    creation::create_origin_snapshot(context, head)?;
    Ok(())
}

fn make_root(
    context: &TaskContext<'_>,
    root: ObjectId,
    parts: &Initialize<'_>,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let stored: DatasetDirectory = writing.reading().bonus_of(root)?;
    for (name, value) in parts.root_properties {
        writing.put(stored.properties, name, value)?;
    }
    let origin = creation::origin_snapshot(context)?;
    let head = creation::create_head(context, root, origin)?;
    let set = creation::create_set(context, head, ObjsetType::Zfs)?;
    parts
        .fill
        .fill(context.tx, &set, parts.facts, context.operation)
        .map_err(|cause| DatasetError::Fill { cause })
}
