//! Shared by the commands that change devices of a pool: finding a vdev by its name, and refusals.

use crate::messages::{Refusal, RefusalKind};
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::of_task;
use tarn_ondisk::units::{Guid, VdevId};
use tarn_pool::VdevChangeError;
use tarn_vdev::AuxiliaryKind;
use tarn_vdev::health::vdev_name;
use tarn_vdev::{VdevConfig, VdevKind};

/// The reason for a device that is not in the pool.
pub(super) const NO_SUCH_DEVICE: &str = "no such device in pool";

/// A vdev found by its name.
#[derive(Debug, Clone)]
pub(super) enum FoundVdev {
    /// A vdev of the tree.
    Tree(Box<TreeVdev>),
    /// A hot spare or cache device.
    Auxiliary(AuxiliaryKind, Box<VdevConfig>),
}

/// A vdev of the tree.
#[derive(Debug, Clone)]
pub(super) struct TreeVdev {
    /// The vdev.
    pub(super) config: VdevConfig,
    /// Its top-level vdev, or itself.
    pub(super) top: VdevConfig,
}

impl TreeVdev {
    /// Whether it is a log vdev.
    pub(super) fn is_log(&self) -> bool {
        self.top.top_level.as_ref().is_some_and(|top| top.is_log)
    }

    /// Whether it is a top-level vdev.
    pub(super) fn is_top(&self) -> bool {
        self.config.guid == self.top.guid
    }

    /// The index of its top-level vdev.
    pub(super) fn top_id(&self) -> VdevId {
        VdevId::from(self.top.id)
    }
}

/// The vdev with this path, last part of a path, guid, or kind and number (`mirror-1`).
#[doc(alias = "zpool_find_vdev")]
pub(super) fn find_vdev(open: &OpenPool, name: &str) -> Option<FoundVdev> {
    let root = open.pool.vdevs().config();
    for top in &root.children {
        if let Some(config) = top.walk().into_iter().find(|vdev| is_called(vdev, name)) {
            return Some(FoundVdev::Tree(Box::new(TreeVdev {
                config: config.clone(),
                top: top.clone(),
            })));
        }
    }
    let auxiliary = open.pool.vdevs().auxiliary();
    let kinds = [AuxiliaryKind::Spare, AuxiliaryKind::Cache];
    kinds.into_iter().find_map(|kind| {
        let mut devices = auxiliary.of(kind).iter();
        let device = devices.find(|vdev| is_called(vdev, name))?;
        Some(FoundVdev::Auxiliary(kind, Box::new(device.clone())))
    })
}

/// Whether a vdev has this name.
fn is_called(vdev: &VdevConfig, name: &str) -> bool {
    if vdev.guid != Guid::ZERO && vdev.guid.to_string() == name {
        return true;
    }
    let path = vdev.path.as_ref().and_then(|path| path.as_str());
    let Some(path) = path else {
        let plain = format!("{}-{}", vdev.kind.name(), vdev.id);
        let is_shown = !matches!(vdev.kind, VdevKind::Root | VdevKind::Hole);
        return is_shown
            && (vdev_name(vdev.kind, vdev.id, vdev.guid, None) == name || plain == name);
    };
    // A whole disk is named without its partition.
    let disk = vdev.whole_disk.unwrap_or(false).then(|| {
        let partition = path.strip_suffix("-part1");
        partition.or_else(|| path.strip_suffix('1')).unwrap_or(path)
    });
    let names = [Some(path), disk];
    names
        .into_iter()
        .flatten()
        .any(|path| path == name || (!name.contains('/') && path.rsplit('/').next() == Some(name)))
}

/// Why a device was not changed. `action` is `cannot remove /dev/sda`.
pub(super) fn of_change(action: impl Into<String>, error: &VdevChangeError) -> Refusal {
    let action = action.into();
    let kind = match error {
        VdevChangeError::Task(error) => return of_task(action, error),
        VdevChangeError::UnplayedLogs { datasets } => {
            let refusal = Refusal::new(RefusalKind::Busy, action, error.to_string());
            let cure = |refusal: Refusal, dataset: &String| {
                refusal.with_hint(format!("mount '{dataset}' to replay its log"))
            };
            return datasets.iter().fold(refusal, cure);
        }
        VdevChangeError::NoReplicas
        | VdevChangeError::Checkpoint(_)
        | VdevChangeError::Resilvering
        | VdevChangeError::Rebuilding => RefusalKind::Busy,
        VdevChangeError::NoDeviceRebuild => RefusalKind::Unsupported,
        VdevChangeError::Pool(_) => RefusalKind::Corrupt,
        VdevChangeError::WrongKind { .. } => RefusalKind::Invalid,
        _ => RefusalKind::Device,
    };
    Refusal::new(kind, action, error.to_string())
}

/// Refuses a pool that cannot be changed: read-only, or with a checkpoint, which needs its devices.
pub(super) fn refuse_unchangeable(
    open: &OpenPool,
    action: impl Fn() -> String,
) -> Result<(), Refusal> {
    if open.pool.mode() == tarn_pool::Mode::ReadOnly {
        let reason = "pool is read-only";
        return Err(Refusal::new(RefusalKind::ReadOnly, action(), reason));
    }
    let refused = open.pool.refuse_for_checkpoint();
    refused.map_err(|reason| Refusal::new(RefusalKind::Busy, action(), reason.to_string()))
}
