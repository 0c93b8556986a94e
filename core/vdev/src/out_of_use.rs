//! Devices out of use, by an error, `zpool offline` or `zpool offline -f`, and how they come back.
//!
//! # Mechanism
//! A leaf is taken out of use only while the other leaves of its vdev have all its blocks, or on a
//! log vdev, whose blocks are in memory as well. Its [dirty time log](crate::Dtl) grows from then
//! on. When it comes back it keeps that log, unless its vdev was emptied meanwhile.
//!
//! `zpool offline -t` is not stored.

use crate::config::{StoredCondition, VdevKind};
use crate::dtl::Dtl;
use crate::health::{Reason, Standing, VdevState};
use crate::leaf::Leaf;
use crate::top::TopVdev;
use crate::tree::{ExpectedLabels, VdevTree};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tarn_ondisk::units::{Guid, Txg, VdevId};

/// How an administrator takes a device out of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutOfUse {
    /// `zpool offline`: until `zpool online`.
    Offline,
    /// `zpool offline -t`: until the pool is opened again.
    OfflineForNow,
    /// `zpool offline -f`: as a device that failed.
    Faulted,
    /// `zpool offline -f -t`: until the pool is opened again.
    FaultedForNow,
}

impl VdevTree {
    /// Takes a device out of use as `zpool offline` does. False, and nothing happens, if the other
    /// devices of its vdev do not have all its blocks.
    pub fn take_offline(&self, guid: Guid) -> bool {
        self.take_out_of_use(guid, OutOfUse::Offline)
    }

    /// Takes a device out of use. False, and nothing happens, if the other devices of its vdev do
    /// not have all its blocks.
    pub fn take_out_of_use(&self, guid: Guid, how: OutOfUse) -> bool {
        let tops = self.tops();
        let with_leaf = tops.iter().find_map(|top| {
            let leaf = top.leaves.iter().find(|leaf| leaf.guid == guid)?;
            Some((top, leaf))
        });
        let standing = match how {
            OutOfUse::Offline | OutOfUse::OfflineForNow => Standing {
                state: VdevState::Offline,
                reason: None,
            },
            OutOfUse::Faulted | OutOfUse::FaultedForNow => {
                Standing::because(VdevState::Faulted, Reason::External)
            }
        };
        let Some((top, leaf)) = with_leaf else {
            return false;
        };
        let is_fault = standing.state == VdevState::Faulted;
        if is_fault && leaf.is_usable() && !self.may_fault(top, leaf) {
            return false;
        }
        if !self.retire(top, leaf, standing) {
            return false;
        }
        // A device that failed before gets the standing that the administrator asked for.
        leaf.set_standing(standing);
        leaf.set_lasting(matches!(how, OutOfUse::Offline | OutOfUse::Faulted));
        // A device that is faulted while it is offline is offline again when that is cleared.
        if matches!(how, OutOfUse::Offline | OutOfUse::OfflineForNow) {
            self.set_offline_in_config(guid, how == OutOfUse::Offline);
        }
        true
    }

    /// Takes a device out of use that lost its labels, because it is about to join anew at the same
    /// path. False, and nothing happens, if the other devices of its vdev do not have all its
    /// blocks.
    pub fn give_way(&self, guid: Guid) -> bool {
        let top = self.top_of(guid).and_then(|top| self.top(top));
        let (Some(top), Some(leaf)) = (top, self.leaf(guid)) else {
            return false;
        };
        let gone = Standing::because(VdevState::Unavailable, Reason::OpenFailed);
        self.retire(&top, &leaf, gone)
    }

    /// Whether a device that failed goes offline when the failure is cleared. Then it is offline.
    #[doc(alias = "vdev_clear")]
    pub fn return_to_offline(&self, guid: Guid) -> bool {
        let root = self.config();
        let was_offline = root.find(guid).is_some_and(|vdev| vdev.condition.offline);
        if let Some(leaf) = self.leaf(guid).filter(|_| was_offline) {
            let state = VdevState::Offline;
            leaf.set_standing(Standing {
                state,
                reason: None,
            });
            self.note_change();
        }
        was_offline
    }

    /// Adds the dirty time log of a device that the MOS has.
    #[doc(alias = "vdev_dtl_load")]
    pub fn load_dtl(&self, guid: Guid, stored: &Dtl) {
        if self.leaf(guid).is_some_and(|leaf| leaf.load_dtl(stored)) {
            self.note_change();
        }
    }

    /// Ends the dirty time logs that are open at their end, when the pool is about to be written:
    /// those of devices in use at the newest txg, since they get all later writes; those of others
    /// at the next txg.
    pub fn end_dtls(&self, newest: Txg) {
        for leaf in self.leaves() {
            match leaf.is_usable() {
                true => leaf.end_dtl(newest),
                false if leaf.misses(Txg::MAX) => leaf.end_dtl(newest.next()),
                false => {}
            }
        }
    }

    /// Notes the newest txg that is stored. A device that fails from now on may lack blocks of
    /// later births, and unflushed ones.
    pub fn note_stored_txg(&self, txg: Txg) {
        self.stored_txg.fetch_max(txg.get(), Ordering::AcqRel);
    }

    /// The txg after the newest stored one.
    pub(crate) fn next_txg(&self) -> Txg {
        Txg::new(self.stored_txg.load(Ordering::Acquire)).next()
    }

    /// Adds the next txg to the dirty time logs of devices that are absent when a pool is opened
    /// for writing: they miss its labels and uberblock at the least.
    pub fn note_absent(&self) {
        let births = [self.next_txg()];
        let tops = self.tops();
        let births = || births.to_vec();
        tops.iter().for_each(|top| self.note_skipped(top, births));
    }

    /// Adds births of blocks that are written to a vdev to the dirty time logs of its devices that
    /// are not in use. Not on a log vdev: there only durable writes count
    /// ([`write_durably`](VdevTree::write_durably)).
    pub(crate) fn note_skipped(&self, top: &TopVdev, births: impl Fn() -> Vec<Txg>) {
        let are_all_in_use = top.leaves.iter().all(|leaf| leaf.is_usable());
        if are_all_in_use || top.is_log || !top.standing().state.is_usable() {
            return;
        }
        let births = births();
        for leaf in &top.leaves {
            if leaf.note_skipped(&births) {
                self.note_change();
            }
        }
    }

    /// Clears the dirty time logs of the usable devices of a vdev that holds no blocks.
    pub fn note_empty(&self, vdev: VdevId) {
        let top = self.top(vdev);
        let leaves = top.iter().flat_map(|top| &top.leaves);
        leaves
            .filter(|leaf| leaf.is_usable())
            .filter(|leaf| leaf.clear_dtl())
            .for_each(|_| self.note_change());
    }

    /// Opens a device again whose vdev holds no blocks, and clears its dirty time log. Gives its
    /// standing.
    pub fn bring_back_empty(&self, guid: Guid) -> Standing {
        let tops = self.tops();
        let with_leaf = tops.iter().find_map(|top| {
            let leaf = top.leaves.iter().find(|leaf| leaf.guid == guid)?;
            Some((top, leaf))
        });
        let Some((top, leaf)) = with_leaf else {
            return Standing::because(VdevState::Unavailable, Reason::OpenFailed);
        };
        self.change_config(|root| {
            root.change_each(&mut |vdev| {
                if vdev.guid == guid {
                    vdev.condition = StoredCondition::default();
                }
            });
        });
        if !leaf.is_usable() {
            let config = self.state.read().root.find(guid).cloned();
            let config = config.expect("the tree and its configuration have the same leaves");
            leaf.set_lasting(true);
            leaf.open(&self.host, &config, self.mode);
            top.check_labels(self.config().guid);
            top.check_sizes();
        }
        if leaf.is_usable() {
            leaf.note_back_empty();
        }
        self.note_change();
        leaf.standing()
    }

    /// Opens a device again that was offline or failed: `zpool online`, `zpool clear`. It keeps its
    /// dirty time log until it is resilvered. Gives its standing: unavailable if it cannot be
    /// opened, or its labels are not as expected.
    #[doc(alias("vdev_online", "vdev_reopen"))]
    pub fn bring_online(&self, guid: Guid, labels: ExpectedLabels) -> Option<Standing> {
        let top = self.top(self.top_of(guid)?)?;
        let leaf = self.leaf(guid)?;
        self.set_offline_in_config(guid, false);
        leaf.set_lasting(true);
        if leaf.is_usable() {
            return Some(leaf.standing());
        }
        let mut config = self.state.read().root.find(guid)?.clone();
        config.condition = StoredCondition::default();
        let next = self.next_txg();
        // Without an end since the import. A later birth of a write under way stays in the log.
        if leaf.misses(Txg::MAX) {
            leaf.end_dtl(next);
        }
        leaf.add_to_dtl(next..=next);
        // Nothing is read or written there before its labels are checked.
        let opened = Leaf::new(&config, top.sector_bytes());
        opened.open(&self.host, &config, self.mode);
        if let ExpectedLabels::OfPool(pool) = labels {
            top.check_label(&opened, pool);
        }
        top.check_size(&opened);
        leaf.adopt(&opened);
        self.change_config(|root| {
            root.change_each(&mut |vdev| {
                if vdev.guid == guid {
                    vdev.condition.removed = false;
                    vdev.not_present = false;
                }
            });
        });
        Some(leaf.standing())
    }

    /// Has the hot spares of a device leave when it is whole: it came back.
    #[doc(alias("vdev_unspare", "ZFS_ONLINE_UNSPARE"))]
    pub fn end_sparing(&self, guid: Guid) {
        self.change_config(|root| {
            root.change_each(&mut |vdev| {
                if let [first, _, ..] = vdev.children.as_mut_slice()
                    && vdev.kind == VdevKind::Spare
                    && first.guid == guid
                {
                    first.set_unspare(true);
                }
            });
        });
    }

    /// Looks whether each device in use still answers at its path, and opens those that were not
    /// there: `zpool reopen`. Gives the guids of the devices that came back.
    #[doc(alias = "vdev_reopen")]
    pub fn reopen_all(&self) -> Vec<Guid> {
        let absent = |leaf: &Arc<Leaf>| {
            let standing = leaf.standing();
            matches!(standing.state, VdevState::Unavailable | VdevState::Removed)
        };
        let labels = ExpectedLabels::OfPool(self.config().guid);
        let mut back = Vec::new();
        for leaf in self.leaves().into_iter().filter(absent) {
            let standing = self.bring_online(leaf.guid, labels);
            if standing.is_some_and(|standing| standing.state.is_usable()) {
                back.push(leaf.guid);
            }
        }
        for top in self.tops() {
            for leaf in top.leaves.iter().filter(|leaf| leaf.is_usable()) {
                if !leaf.is_at_path(&self.host) {
                    let gone = Standing::because(VdevState::Unavailable, Reason::OpenFailed);
                    self.retire(&top, leaf, gone);
                }
            }
        }
        back
    }

    fn set_offline_in_config(&self, guid: Guid, is_offline: bool) {
        self.change_config(|root| {
            root.change_each(&mut |vdev| {
                if vdev.guid == guid {
                    vdev.condition.offline = is_offline;
                }
            });
        });
    }

    /// Takes a failed leaf out of use, if the other leaves of its vdev have all its blocks. False
    /// if not.
    ///
    /// The vdev as it is in the tree now decides: a leaf that has left it meanwhile covers nothing.
    pub(crate) fn retire(&self, top: &TopVdev, leaf: &Leaf, standing: Standing) -> bool {
        let (kept_since, next) = (self.kept_since(), self.next_txg());
        // Under the lock of the tree: of two leaves that fail at the same moment, each would count
        // on the other.
        let state = self.state.write();
        if !leaf.is_usable() {
            leaf.note_failed_again(next);
            return true;
        }
        let now = &state.tops[top.id.index()];
        let now = if now.holds_data() { now } else { top };
        if !now.can_do_without(leaf) {
            return false;
        }
        leaf.retire(standing, kept_since, next);
        drop(state);
        self.note_change();
        true
    }
}
