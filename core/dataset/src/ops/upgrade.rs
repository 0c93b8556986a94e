//! `zfs upgrade`: raises the version of a file system.
//!
//! The version is in the file system's own master node, so this is no task: it happens in the open
//! txg. Version 5 brings system attributes, whose registry is created with it.

use crate::contents::{self, Contents};
use crate::names::DatasetName;
use crate::namespace::View;
use crate::task::TaskRefusal;
use std::sync::Arc;
use tarn_object::zap::{NewZap, ObjectZap, ZapError, ZapValue};
use tarn_object::{AssignError, NewObject, ObjectError, ObjectSet, TxEstimate};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;

/// The newest version of file systems.
#[doc(alias = "ZPL_VERSION")]
pub const VERSION: u64 = 5;

/// Where everything in a file system starts.
const MASTER_NODE: ObjectId = ObjectId::new(1);

/// In the master node: the version.
const VERSION_NAME: &str = "VERSION";

/// In the master node: where system attributes start.
#[doc(alias = "ZFS_SA_ATTRS")]
const ATTRIBUTES_NAME: &str = "SA_ATTRS";

/// Why a file system could not be upgraded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// It may not be.
    #[error(transparent)]
    Refused(#[from] TaskRefusal),
    /// The pool does not store anything now.
    #[error(transparent)]
    Stopped(#[from] AssignError),
    /// An object of the file system could not be read or changed.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Gives a file system this version and waits until that is stored; tells the version it had.
/// `filesystem` is its object set, as all users share it. Its mounts open it again afterwards.
///
/// # Errors
/// When it is no file system, or has a newer version.
#[doc(alias = "zfs_set_version")]
pub fn upgrade(
    view: View<'_>,
    name: &DatasetName,
    filesystem: &Arc<ObjectSet>,
    version: u64,
) -> Result<u64, UpgradeError> {
    let dataset = view.dataset(name).map_err(TaskRefusal::from)?;
    let bad = |why: String| TaskRefusal::BadValue {
        property: "version".to_string(),
        why,
    };
    let Contents::Filesystem(facts) = contents::read(&dataset).map_err(TaskRefusal::from)? else {
        let why = "'version' does not apply to datasets of this type";
        return Err(bad(why.to_string()).into());
    };
    if version < facts.version {
        let why = format!("Can not downgrade; already at version {}", facts.version);
        return Err(bad(why).into());
    }
    if version > VERSION {
        return Err(bad(format!("version {version} is not known")).into());
    }
    if version == facts.version {
        return Ok(version);
    }
    let operation = view.operation();
    let txgs = &filesystem.env().txgs;
    let master = filesystem.object(MASTER_NODE, operation)?;
    let zap = ObjectZap::of(&master, operation);
    let tx = txgs.assign(&TxEstimate::writing(0), operation)?;
    let failed = |why: ZapError| ObjectError::Zap {
        set: filesystem.id(),
        object: MASTER_NODE,
        why,
    };
    zap.update(&tx, VERSION_NAME, &ZapValue::word(version))
        .map_err(failed)?;
    let has_attributes = zap.lookup(ATTRIBUTES_NAME).map_err(failed)?.is_some();
    if version >= VERSION && !has_attributes {
        let new = NewObject::plain(ObjectType::SaMasterNode, 0);
        let new_zap = NewZap::micro(filesystem);
        let attributes = ObjectZap::allocate(filesystem, &tx, new, new_zap, operation)?;
        let id = attributes.object().id().get();
        zap.insert(&tx, ATTRIBUTES_NAME, &ZapValue::word(id))
            .map_err(failed)?;
    }
    let txg = tx.txg();
    drop(tx);
    txgs.wait_stored(txg, operation)?;
    Ok(facts.version)
}
