//! `zpool initialize` and `zpool trim`: the free space of a device is written once, or given back
//! to the device.
//!
//! # Problem
//! Free space is on every metaslab of a device of any size, changes all the time, and the work may
//! take days: through exports, crashes, devices that go and come back, and imports by OpenZFS.
//!
//! # Mechanism
//! A thread for each device goes over the metaslabs of its top-level vdev. It
//! [holds](tarn_space::MetaslabHold) one at a time, so nothing is allocated there, and fills or
//! discards the parts of the free ranges that are on its device ([`thread`]). The ZAP of the leaf
//! has state, time and next offset under OpenZFS's names ([`stored`]), written in a txg when the
//! state changes, every few seconds, and when the pool is closed or split; so either program goes
//! on where the other stopped.
//!
//! With the property `autotrim` a thread of the pool discards what was freed lately
//! ([`autotrim`]). It stores nothing.
//!
//! # Invariants
//! - Only ranges of a hold are written or discarded, so nothing that is allocated is overwritten,
//!   and nothing that a rewind of two txgs finds.
//! - A stored next offset is that of requests that were done before the txg was flushed.
//! - What is *active* in the MOS of an open pool has a thread, or a device that is not in use: when
//!   that comes back, a thread goes on.
//!
//! # After a crash
//! The work goes on from the last stored offset: some of it is done twice.

pub(crate) mod autotrim;
pub(crate) mod kicks;
mod stored;
mod thread;
pub(crate) mod works;

pub use stored::{FreeSpaceWork, WorkState};
pub use works::WorkStatus;

use crate::config::create_vdev_objects;
use crate::directory::LEAF_ZAP;
use crate::error::{PoolError, TaskError};
use crate::events::class;
use crate::pool::{Mode, Pool};
use crate::sync_scope::SyncScope;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stored::Stored;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::{Guid, ObjectId, VdevId};
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::health::VdevState;
use tarn_vdev::{Leaf, VdevConfig};
use works::{Key, Progress, Running, Work};

/// What an administrator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkCommand {
    /// Begin, or go on.
    Start {
        /// Of TRIM, the most bytes in a second; zero for no limit.
        rate: u64,
        /// Of TRIM, the contents must not be recoverable.
        is_secure: bool,
    },
    /// End, without the rest.
    Cancel,
    /// End, to be started again later.
    Suspend,
    /// Forget that it was ever done.
    Forget,
}

/// Why a command was refused for a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkRefusal {
    /// It is not in the pool.
    #[error("no such device in pool")]
    NoDevice,
    /// It is no device, or cannot be written.
    #[error("invalid device")]
    Invalid,
    /// It goes on already.
    #[error("it is in progress")]
    Busy,
    /// There is nothing to be ended.
    #[error("it is not in progress")]
    NotActive,
    /// The device cannot do that.
    #[error("the device does not support that")]
    Unsupported,
    /// The pool could not be changed.
    #[error(transparent)]
    Pool(#[from] TaskError),
}

impl Pool {
    /// Loads what the MOS has, when the pool is opened.
    ///
    /// # Errors
    /// The ZAP of a leaf cannot be read.
    #[doc(alias("vdev_initialize_restart", "vdev_trim_restart"))]
    pub(crate) fn load_works(&self, operation: &Operation) -> Result<(), PoolError> {
        let root = self.vdevs().config();
        let directory = self.directory(operation);
        let mut works = BTreeMap::new();
        for zap in root.leaves().into_iter().filter_map(zap_of) {
            for kind in FreeSpaceWork::ALL {
                let stored = Stored::read(directory, zap, kind)?;
                if stored.state != WorkState::None {
                    works.insert((zap, kind), Work::of(stored));
                }
            }
        }
        *self.works.0.lock() = works;
        Ok(())
    }

    /// Starts the threads of what is active in the MOS and has none, where the device can be
    /// written. Called when the pool is open, and when devices are in use again.
    pub fn resume_works(self: &Arc<Self>) {
        if self.mode() != Mode::ReadWrite || self.is_closing() {
            return;
        }
        let idle: Vec<(Key, Stored, Arc<Progress>)> = {
            let works = self.works.0.lock();
            let idle = works.iter().filter(|(_, work)| !work.is_running());
            idle.map(|(key, work)| (*key, work.stored, work.progress.clone()))
                .collect()
        };
        let root = self.vdevs().config();
        for (key, stored, progress) in idle {
            let is_usable = self.leaf_of(key.0).is_some_and(|leaf| leaf.is_usable());
            match stored.state {
                // No device is known to make contents unrecoverable: OpenZFS goes on with that.
                WorkState::Active if is_usable && stored.secure == 0 => self.start_thread(key),
                WorkState::Active | WorkState::Suspended => {
                    if let Some(vdev) = top_of(&root, key.0) {
                        thread::estimate(self, key, vdev, &progress);
                    }
                }
                WorkState::None | WorkState::Canceled | WorkState::Complete => {}
            }
        }
    }

    /// Starts or ends what is done with the free space of a device. It is stored when the next
    /// [`sync_all`](Pool::sync_all) returns.
    ///
    /// # Errors
    /// Why it cannot be.
    #[doc(alias("spa_vdev_initialize_impl", "spa_vdev_trim_impl"))]
    pub fn command_work(
        self: &Arc<Self>,
        device: Guid,
        kind: FreeSpaceWork,
        command: WorkCommand,
        operation: &Operation,
    ) -> Result<(), WorkRefusal> {
        let zap = self.work_target(device, kind, command, operation)?;
        let key = (zap, kind);
        let (state, is_running) = {
            let works = self.works.0.lock();
            let work = works.get(&key);
            let is_running = work.is_some_and(|work| work.is_running());
            (
                work.map_or(WorkState::None, |work| work.stored.state),
                is_running,
            )
        };
        let is_begun = matches!(state, WorkState::Active | WorkState::Suspended);
        match command {
            WorkCommand::Start { .. } | WorkCommand::Forget if is_running => {
                return Err(WorkRefusal::Busy);
            }
            WorkCommand::Cancel if !is_begun => return Err(WorkRefusal::NotActive),
            WorkCommand::Suspend if state != WorkState::Active => {
                return Err(WorkRefusal::NotActive);
            }
            WorkCommand::Start { rate, is_secure } => {
                self.prepare_start(key, rate, is_secure);
                self.set_work_state(key, WorkState::Active)?;
                self.start_thread(key);
            }
            WorkCommand::Cancel => {
                let _ = self.end_thread(key);
                self.set_work_state(key, WorkState::Canceled)?;
            }
            WorkCommand::Suspend => {
                let _ = self.end_thread(key);
                self.set_work_state(key, WorkState::Suspended)?;
            }
            WorkCommand::Forget => self.set_work_state(key, WorkState::None)?,
        }
        Ok(())
    }

    /// How far it is with a device; none if it was never begun.
    pub fn work_status(&self, device: Guid, kind: FreeSpaceWork) -> Option<WorkStatus> {
        let zap = zap_of(self.vdevs().config().find(device)?)?;
        let works = self.works.0.lock();
        let work = works.get(&(zap, kind))?;
        Some(work.status())
    }

    /// The sum of what is left where it goes on, at these devices or, where there are none, at all;
    /// none where it goes on at no device.
    pub fn work_left(&self, kind: FreeSpaceWork, devices: &[u64]) -> Option<u64> {
        let root = self.vdevs().config();
        let is_meant =
            |leaf: &&VdevConfig| devices.is_empty() || devices.contains(&leaf.guid.get());
        let leaves = root.leaves().into_iter().filter(is_meant);
        let zaps: Vec<ObjectId> = leaves.filter_map(zap_of).collect();
        let works = self.works.0.lock();
        let active = works.iter().filter(|((zap, other), work)| {
            *other == kind && work.stored.state == WorkState::Active && zaps.contains(zap)
        });
        let left = active.map(|(_, work)| {
            let status = work.status();
            status.estimated_bytes.saturating_sub(status.done_bytes)
        });
        left.reduce(u64::saturating_add)
    }

    /// Ends all threads; what is active goes on when the pool is opened again.
    pub(crate) fn end_works(&self) {
        self.end_autotrim();
        let keys: Vec<Key> = self.works.0.lock().keys().copied().collect();
        keys.into_iter().for_each(|key| self.rest_thread(key));
    }

    /// Ends the threads of devices, before these leave the pool, and waits until it is stored how
    /// far they came.
    ///
    /// # Errors
    /// The pool stores nothing.
    pub(crate) fn rest_works_of(
        &self,
        devices: &[Guid],
        operation: &Operation,
    ) -> Result<(), TaskError> {
        let root = self.vdevs().config();
        let leaves = devices.iter().filter_map(|device| root.find(*device));
        let zaps: Vec<ObjectId> = leaves.filter_map(zap_of).collect();
        let running: Vec<Key> = {
            let works = self.works.0.lock();
            let running = works.iter().filter(|(_, work)| work.is_running());
            running.map(|(key, _)| *key).collect()
        };
        let of_devices: Vec<Key> = running
            .into_iter()
            .filter(|(zap, _)| zaps.contains(zap))
            .collect();
        if of_devices.is_empty() {
            return Ok(());
        }
        of_devices.into_iter().for_each(|key| self.rest_thread(key));
        self.sync_all(operation)
    }

    /// Cancels what goes on at a device that is faulted. It is stored with the next txg.
    pub(crate) fn cancel_works_of(&self, device: Guid) {
        let root = self.vdevs().config();
        let Some(zap) = root.find(device).and_then(zap_of) else {
            return;
        };
        for key in FreeSpaceWork::ALL.map(|kind| (zap, kind)) {
            self.end_thread(key);
            let state = self.works.0.lock().get(&key).map(|work| work.stored.state);
            if state == Some(WorkState::Active) {
                // A pool that is suspended or being closed stores nothing.
                drop(self.set_work_state(key, WorkState::Canceled));
            }
        }
    }

    /// Ends a thread, and leaves it to the sync to store how far it came.
    fn rest_thread(&self, key: Key) {
        if self.end_thread(key) {
            // A pool that stores nothing now goes on from what it has stored.
            drop(self.leave_for_sync(move |scope| store(scope, key)));
        }
    }

    /// The ZAP of a device for which a command makes sense.
    fn work_target(
        &self,
        device: Guid,
        kind: FreeSpaceWork,
        command: WorkCommand,
        operation: &Operation,
    ) -> Result<ObjectId, WorkRefusal> {
        let root = self.vdevs().config();
        let config = root.find(device).ok_or(WorkRefusal::NoDevice)?;
        let leaf = self.vdevs().leaf(device).ok_or(WorkRefusal::Invalid)?;
        if self.mode() == Mode::ReadOnly || !leaf.is_usable() {
            return Err(WorkRefusal::Invalid);
        }
        if kind == FreeSpaceWork::Trim {
            let is_secure = matches!(command, WorkCommand::Start { is_secure, .. } if is_secure);
            if !leaf.can_discard() || is_secure {
                return Err(WorkRefusal::Unsupported);
            }
        }
        if let Some(zap) = zap_of(config) {
            return Ok(zap);
        }
        // Pools of old versions have no ZAPs of vdevs.
        self.run_in_sync(operation, |scope| {
            let has_root_zap = scope.features.now().is_active(Feature::VdevZapsV2.guid());
            create_vdev_objects(scope.writer, scope.pool.vdevs(), has_root_zap)?;
            Ok(Ok(()))
        })?;
        let root = self.vdevs().config();
        root.find(device)
            .and_then(zap_of)
            .ok_or(WorkRefusal::NoDevice)
    }

    /// Sets where and how a thread begins.
    fn prepare_start(&self, key: Key, rate: u64, is_secure: bool) {
        let mut works = self.works.0.lock();
        let work = works.entry(key).or_default();
        let is_anew = matches!(
            work.stored.state,
            WorkState::Canceled | WorkState::Complete | WorkState::None
        );
        if key.1 == FreeSpaceWork::Trim && is_anew {
            work.stored = Stored {
                state: work.stored.state,
                action_time_s: work.stored.action_time_s,
                ..Stored::default()
            };
            work.progress = Arc::default();
        }
        // The ZAP has no rate of an initialization.
        if rate != 0 && key.1 == FreeSpaceWork::Trim {
            work.stored.rate = rate;
        }
        if is_secure {
            work.stored.secure = 1;
        }
    }

    /// Changes the state, and leaves it to the sync to store it.
    #[doc(alias("vdev_initialize_change_state", "vdev_trim_change_state"))]
    fn set_work_state(&self, key: Key, state: WorkState) -> Result<(), TaskError> {
        let before = {
            let mut works = self.works.0.lock();
            let work = works.entry(key).or_default();
            let before = work.stored.state;
            if before == state {
                return Ok(());
            }
            // What was suspended keeps the time when it was begun.
            if before != WorkState::Suspended {
                let now_s = self.host().unix_time().seconds;
                work.stored.action_time_s = u64::try_from(now_s).unwrap_or(0);
            }
            work.stored.state = state;
            before
        };
        let path = self.leaf_of(key.0).map(|leaf| leaf.path.to_string());
        let text = history_text(key.1, before, state, &path.unwrap_or_default());
        self.leave_for_sync(move |scope| {
            store(scope, key)?;
            if let Some((name, text)) = text {
                let dataset = None;
                scope.context.record(InternalEvent {
                    name,
                    dataset,
                    text,
                });
            }
            Ok(())
        })?;
        self.txgs().kick();
        if let Some(event) = event_of(key.1, before, state) {
            let device = self.leaf_of(key.0).map(|leaf| leaf.guid);
            self.post_event(event, device, NvList::new());
        }
        Ok(())
    }

    /// The device of a ZAP, while it is in the pool.
    fn leaf_of(&self, zap: ObjectId) -> Option<Arc<Leaf>> {
        let root = self.vdevs().config();
        let leaves = root.leaves();
        let config = leaves.iter().find(|leaf| zap_of(leaf) == Some(zap))?;
        self.vdevs().leaf(config.guid)
    }

    fn start_thread(self: &Arc<Self>, key: Key) {
        let stop = Arc::new(AtomicBool::new(false));
        let mut works = self.works.0.lock();
        let Some(work) = works.get_mut(&key) else {
            return;
        };
        if work.is_running() || self.is_closing() {
            return;
        }
        let (pool, progress, told) = (self.clone(), work.progress.clone(), stop.clone());
        let plan = thread::Plan {
            key,
            rate: work.stored.rate,
            skips_untouched: work.stored.partial != 0,
        };
        let run = move || pool.run_work(&plan, &progress, &told);
        let name = format!("tarn-{}-{}", key.1.name(), key.0.get());
        let thread = self.host().spawn_background(&name, run);
        work.running = Some(Running { stop, thread });
    }

    /// Runs in the thread, from beginning to end.
    fn run_work(self: &Arc<Self>, plan: &thread::Plan, progress: &Progress, stop: &AtomicBool) {
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Scan);
        let ended = thread::run(self, plan, progress, stop, &operation);
        operation.finish();
        let state = match ended {
            thread::Ended::Complete => Some(WorkState::Complete),
            thread::Ended::Gone => {
                let leaf = self.leaf_of(plan.key.0);
                let state = leaf.map(|leaf| leaf.standing().state);
                (state == Some(VdevState::Faulted)).then_some(WorkState::Canceled)
            }
            thread::Ended::Stopped => None,
        };
        if let Some(state) = state {
            // A pool that is suspended or being closed stores nothing: the work goes on later.
            drop(self.set_work_state(plan.key, state));
        }
    }

    /// Ends a thread, and waits for its end. False if there was none.
    fn end_thread(&self, key: Key) -> bool {
        let running = {
            let mut works = self.works.0.lock();
            works.get_mut(&key).and_then(|work| work.running.take())
        };
        let Some(Running { stop, thread }) = running else {
            return false;
        };
        stop.store(true, Ordering::Release);
        thread.join().unwrap_or_else(|panicked| panicked.resume());
        true
    }
}

fn zap_of(leaf: &VdevConfig) -> Option<ObjectId> {
    leaf.other_object(LEAF_ZAP).filter(|zap| !zap.is_zero())
}

/// The top-level vdev of the leaf with this ZAP.
fn top_of(root: &VdevConfig, zap: ObjectId) -> Option<VdevId> {
    let has_it = |top: &&VdevConfig| {
        top.leaves()
            .into_iter()
            .any(|leaf| zap_of(leaf) == Some(zap))
    };
    let top = root.children.iter().find(has_it)?;
    Some(VdevId::from(top.id))
}

/// Stores state and progress in the syncing txg, unless the device has left the pool.
#[doc(alias("vdev_initialize_zap_update_sync", "vdev_trim_zap_update_sync"))]
fn store(scope: &SyncScope<'_>, key: Key) -> Result<(), PoolError> {
    let (zap, kind) = key;
    let is_there = top_of(&scope.pool.vdevs().config(), zap).is_some();
    let stored = {
        let mut works = scope.pool.works.0.lock();
        let Some(work) = works.get_mut(&key) else {
            return Ok(());
        };
        // Requests before it are done: the devices are flushed before the uberblock is written.
        work.stored.next_offset = work.progress.next_offset.load(Ordering::Acquire);
        work.stored
    };
    if !is_there || stored.state == WorkState::None {
        scope.pool.works.0.lock().remove(&key);
    }
    match is_there {
        true => stored.write(scope.writer, zap, kind),
        false => Ok(()),
    }
}

/// What the history says of a change of state.
fn history_text(
    kind: FreeSpaceWork,
    before: WorkState,
    state: WorkState,
    path: &str,
) -> Option<(&'static str, String)> {
    let said = match state {
        WorkState::Active => "activated",
        WorkState::Suspended => "suspended",
        WorkState::Canceled => match before {
            WorkState::Active | WorkState::Suspended => "canceled",
            _ => return None,
        },
        WorkState::Complete => "complete",
        WorkState::None => return Some(("uninitialize", format!("vdev={path}"))),
    };
    Some((kind.name(), format!("vdev={path} {said}")))
}

/// The event of a change of state. Initializing has none.
fn event_of(kind: FreeSpaceWork, before: WorkState, state: WorkState) -> Option<&'static str> {
    match (kind, state) {
        (FreeSpaceWork::Initialize, _) | (_, WorkState::None) => None,
        (_, WorkState::Active) if before == WorkState::Suspended => Some(class::TRIM_RESUME),
        (_, WorkState::Active) => Some(class::TRIM_START),
        (_, WorkState::Suspended) => Some(class::TRIM_SUSPEND),
        (_, WorkState::Canceled) => Some(class::TRIM_CANCEL),
        (_, WorkState::Complete) => Some(class::TRIM_FINISH),
    }
}
