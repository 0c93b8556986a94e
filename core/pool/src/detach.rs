//! `zpool detach`: removes a device from a `mirror`, `replacing` or `spare` vdev.
//!
//! # Mechanism
//! In a data vdev the other devices must have all its blocks, by their dirty time logs. A log vdev
//! is emptied first, and then any other working device suffices. The new device of a `replacing`
//! vdev can leave, which cancels the replacement, and so can the old one. A hot spare that leaves
//! is an idle spare again; it belongs to the vdev for good when the device that it stood in for
//! leaves.
//!
//! # After a crash
//! The pool is found with the device or without it; in the second case the device may still have
//! its labels. When the txg is stored it gets those of txg 0, as OpenZFS writes them: they name the
//! pool, and no import takes the device for a member.

use crate::auxiliary_devices;
use crate::error::{PoolError, VdevChangeError};
use crate::events::class;
use crate::expand_vdevs::expand_automatically;
use crate::leaver::Leaver;
use crate::log_holds::LogHold;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use crate::vdev_objects;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::{Guid, Txg, VdevId};
use tarn_probe::Operation;
use tarn_vdev::label_config::spare_label;
use tarn_vdev::{AuxiliaryKind, Change, Departed, Needed, PoolFacts, VdevConfig};

/// The refusal for a device without copies.
const NOT_A_MIRROR: VdevChangeError = VdevChangeError::WrongKind {
    why: "only applicable to mirror and replacing vdevs",
};

impl Pool {
    /// Removes a device from its mirror, and waits until that is stored. Gives the guid of the hot
    /// spare that replaced the device for good, as lists of spares have it.
    ///
    /// # Errors
    /// The device has no copies, the other devices do not have all its blocks, or the pool stores
    /// nothing: the device stays.
    #[doc(alias = "spa_vdev_detach")]
    pub fn detach(
        &self,
        guid: Guid,
        operation: &Operation,
    ) -> Result<Option<Guid>, VdevChangeError> {
        self.require_writable()?;
        self.refuse_for_checkpoint()?;
        let id = self.vdevs().top_of(guid).ok_or(NOT_A_MIRROR)?;
        let root = self.vdevs().config();
        let top = &root.children[id.index()];
        let is_log = top.top_level.as_ref().is_some_and(|top| top.is_log);
        top.without(guid).ok_or(NOT_A_MIRROR)?;
        let others = top.leaves().into_iter().filter(|leaf| leaf.guid != guid);
        let mut others = others.filter_map(|leaf| self.vdevs().leaf(leaf.guid));
        let is_needed = match is_log {
            true => !others.any(|leaf| leaf.is_usable()),
            false => self.vdevs().is_required(guid),
        };
        if is_needed {
            return Err(VdevChangeError::NoReplicas);
        }
        let (hold, needed) = match is_log {
            true => (Some(self.empty_log(id, operation)?), Needed::UsableDevice),
            false => (None, Needed::AllBlocks),
        };
        let detached = self.run_in_sync(operation, move |scope| {
            let kept_spare = take_out(scope, guid, needed)?;
            if kept_spare.is_some() {
                expand_automatically(scope)?;
            }
            Ok(Ok(kept_spare.map(|kept_spare| (kept_spare, hold))))
        });
        let detached: Option<(Option<Guid>, Option<LogHold>)> = detached?;
        let Some((kept_spare, _hold)) = detached else {
            // A replacement may have ended meanwhile: then the device has no copies any more.
            let root = self.vdevs().config();
            let top = &root.children[id.index()];
            let has_copies = top.without(guid).is_some();
            return Err(match has_copies {
                true => VdevChangeError::NoReplicas,
                false => NOT_A_MIRROR,
            });
        };
        Ok(kept_spare)
    }

    /// Clears the labels of a device when the syncing txg is stored, or gives it this one.
    pub(crate) fn depart(&self, device: Departed, label: Option<NvList>) {
        self.departed.lock().push(Leaver { device, label });
    }

    /// Called when the txg is stored in which devices left the pool.
    pub(crate) fn clear_departed(&self) {
        let departed = std::mem::take(&mut *self.departed.lock());
        debug_assert!(
            departed.iter().all(|leaver| !leaver.device.is_empty()),
            "what left has a device"
        );
        for Leaver { device, label } in departed {
            device.clear(label.as_ref());
        }
    }
}

/// The label of a device that left this tree: of txg 0, so that it belongs to no pool.
#[doc(alias = "VDEV_LABEL_REMOVE")]
pub(crate) fn label_of_none(
    facts: &PoolFacts,
    root: &VdevConfig,
    top: VdevId,
    leaf: Guid,
) -> NvList {
    let leaf = root.find(leaf).expect("a device that left was in the tree");
    facts.first_label_of(root, top.index(), leaf, Txg::ZERO)
}

/// Removes a device from its vdev in the syncing txg, if what is needed stays. Gives the hot spare
/// that belongs to the vdev for good from then on; none and no change where the device cannot
/// leave.
pub(crate) fn take_out(
    scope: &SyncScope<'_>,
    guid: Guid,
    needed: Needed,
) -> Result<Option<Option<Guid>>, PoolError> {
    let pool = scope.pool;
    if pool.refuse_for_checkpoint().is_err() {
        return Ok(None);
    }
    let root = pool.vdevs().config();
    let Some(id) = pool.vdevs().top_of(guid) else {
        return Ok(None);
    };
    let Some(change) = root.children[id.index()].without(guid) else {
        return Ok(None);
    };
    let reshaped = Change {
        config: change.config,
        joining: None,
        heir: change.heir,
    };
    let Some(departed) = pool.vdevs().reshape_if(reshaped, needed) else {
        return Ok(None);
    };
    let leaf = &change.leaf;
    assert_eq!(leaf.guid, guid, "the device leaves that was asked for");
    assert!(
        pool.vdevs().leaf(guid).is_none(),
        "a device that left is in the tree no more"
    );
    let facts = pool.facts();
    let label = match leaf.is_spare {
        true => spare_label(facts.version, leaf),
        false => label_of_none(&facts, &root, id, guid),
    };
    pool.depart(departed, Some(label));
    pool.saved_dtls.lock().remove(&guid);
    vdev_objects::free(scope, leaf)?;
    if let Some(kept) = change.kept_spare {
        auxiliary_devices::unlist(scope, AuxiliaryKind::Spare, kept)?;
    }
    let path = leaf.path.as_ref().map(ToString::to_string);
    let mut more = NvList::new();
    if let Some(path) = &path {
        more.set("vdev_path", path.clone());
    }
    pool.post_event(class::VDEV_REMOVE, Some(guid), more);
    scope.context.record(InternalEvent {
        name: "detach",
        dataset: None,
        text: format!("vdev={}", path.as_deref().unwrap_or("none")),
    });
    Ok(Some(change.kept_spare))
}
