//! Holds on volumes, for front ends that serve them.

use super::open::{ServingProperties, open_dataset};
use super::served::{HeldVolume, ServedVolume, VolumeAccess};
use crate::engine::{Engine, OpenPool};
use crate::mounting::{bad_name, cannot_open};
use crate::refusals::{Refusal, RefusalKind, of_task};
use std::sync::Arc;
use tarn_dataset::contents::{self, Contents, VolumeFacts};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::dataset_dir::CRYPTO_KEY;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;
use tarn_zil::LogClosing;
use tarn_zvol::Volume;

/// A volume to serve.
struct Candidate {
    facts: VolumeFacts,
    properties: ServingProperties,
    is_received_half: bool,
    is_encrypted: bool,
}

impl Engine {
    /// Holds a volume, or a snapshot of one, for a front end that serves it.
    ///
    /// # Errors
    /// There is no such dataset, or it is no volume; it has `volmode=none`; its key is not loaded;
    /// it is being destroyed, received or sent; it or its intent log cannot be read.
    pub fn hold_volume(
        &self,
        name: &str,
        access: VolumeAccess,
        operation: &Operation,
    ) -> Result<Arc<HeldVolume>, Refusal> {
        let open = self.require_pool_of(name)?;
        let _turn = self.turn(&open)?;
        self.hold_in_turn(&open, name, access, operation)
    }

    /// As [`hold_volume`](Engine::hold_volume); the caller has the pool's turn.
    pub(super) fn hold_in_turn(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        access: VolumeAccess,
        operation: &Operation,
    ) -> Result<Arc<HeldVolume>, Refusal> {
        let parsed = DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
        let (namespace, unreadable) = (open.pool.namespace(), |e: DatasetError| {
            cannot_open(name, &e)
        });
        let view = namespace.view(operation);
        let id = view.dataset(&parsed).map_err(unreadable)?.id();
        // A use begins before the dataset is looked at: it stays from here on. Users destroy
        // snapshots below `.zfs/snapshot` without the pool's turn.
        if !namespace.begin_use(id) {
            return Err(refuse(name, RefusalKind::Busy, "dataset is busy"));
        }
        let found = view.dataset(&parsed).map_err(unreadable);
        let held = found.and_then(|dataset| match dataset.id() == id {
            true => hold_used(open, name, &dataset, access, operation),
            false => Err(refuse(name, RefusalKind::Busy, "dataset is busy")),
        });
        match held {
            Ok((held, Hold::First)) => Ok(held),
            // The first hold has begun a use for all.
            Ok((held, Hold::Joined)) => {
                namespace.end_use(id);
                Ok(held)
            }
            Err(refusal) => {
                namespace.end_use(id);
                Err(refusal)
            }
        }
    }

    /// Ends a hold of [`hold_volume`](Engine::hold_volume) in order: the last one stores dirty data
    /// and closes the intent log. A hold that is dropped does neither.
    ///
    /// # Errors
    /// Data that could not be stored. The hold has ended all the same.
    pub fn release_volume(&self, held: &HeldVolume) -> Result<(), Refusal> {
        let pool = held.pool();
        let open = self.find_pool(pool.name());
        let open = open.filter(|open| Arc::ptr_eq(&open.pool, pool));
        let turn = open.as_ref().map(|open| self.turn(open)).transpose();
        let in_turn = open.as_ref().filter(|_| turn.is_ok());
        let closed = self.release_in_turn(in_turn, held);
        turn?;
        closed
    }

    /// As [`release_volume`](Engine::release_volume); the caller has the turn of the pool, where it
    /// is given. Otherwise the intent log is left open.
    pub(super) fn release_in_turn(
        &self,
        open: Option<&Arc<OpenPool>>,
        held: &HeldVolume,
    ) -> Result<(), Refusal> {
        let Some(last) = held.begin_leaving() else {
            return Ok(());
        };
        let closed = match open {
            Some(open) if !last.is_snapshot() => {
                self.close_volume(open, &last, last.volume().is_changeable())
            }
            _ => Ok(()),
        };
        held.pool().namespace().end_use(last.id());
        closed
    }

    /// Stores the last changes of a volume, and closes its intent log.
    pub(super) fn close_volume(
        &self,
        open: &OpenPool,
        last: &ServedVolume,
        is_changeable: bool,
    ) -> Result<(), Refusal> {
        if open.pool.failure().is_some() || !is_changeable {
            open.pool.namespace().forget_log(last.id());
            return Ok(());
        }
        let operation = self.operation(0);
        let action = format!("cannot close '{}'", last.name());
        let failed = |why: String| Refusal::new(RefusalKind::Device, action.clone(), why);
        let closed = open.pool.namespace().close_log(last.id(), &operation);
        let stored = closed
            .map_err(|error| failed(error.to_string()))
            .and_then(|_| {
                let stored = open.pool.sync_all(&operation);
                stored.map_err(|error| of_task(action.clone(), &error))
            });
        open.pool.namespace().forget_log(last.id());
        stored
    }

    /// Closes the intent logs that dropped holds have left open: a command is about to destroy or
    /// replace datasets. The caller has the pool's turn.
    pub(crate) fn close_left_volumes(&self, open: &OpenPool) -> Result<(), Refusal> {
        let left = open.served_volumes.take_left();
        if left.is_empty() || open.pool.failure().is_some() {
            return Ok(());
        }
        let (operation, namespace) = (self.operation(0), open.pool.namespace());
        let action = || {
            format!(
                "cannot close the intent logs of volumes of '{}'",
                open.pool.name()
            )
        };
        let mut is_with_group = false;
        for head in &left {
            let closing = namespace
                .close_log(*head, &operation)
                .map_err(|error| Refusal::new(RefusalKind::Device, action(), error.to_string()))?;
            is_with_group |= closing == LogClosing::WithGroup;
        }
        if is_with_group {
            let stored = open.pool.sync_all(&operation);
            stored.map_err(|error| of_task(action(), &error))?;
        }
        left.iter().for_each(|head| namespace.forget_log(*head));
        Ok(())
    }

    /// Sets the properties of the served volumes at and below a dataset anew.
    pub(crate) fn refresh_volumes(
        &self,
        open: &OpenPool,
        name: &str,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let below = format!("{name}/");
        for served in open.served_volumes.all() {
            let dataset = served.name();
            let is_concerned = dataset == name || dataset.starts_with(&below);
            if !is_concerned || served.is_snapshot() {
                continue;
            }
            let view = open.pool.namespace().view(operation);
            let head = view.dataset_without_name(served.id());
            let properties = head.and_then(|head| ServingProperties::read(&head));
            let properties = properties.map_err(|error| cannot_open(&dataset, &error))?;
            served.set_properties(properties.open);
        }
        Ok(())
    }
}

/// Whether a hold opened the volume.
enum Hold {
    First,
    Joined,
}

/// Holds a dataset that is in use for this.
fn hold_used(
    open: &Arc<OpenPool>,
    name: &str,
    dataset: &Dataset<'_>,
    access: VolumeAccess,
    operation: &Operation,
) -> Result<(Arc<HeldVolume>, Hold), Refusal> {
    let candidate = candidate(dataset).map_err(|error| cannot_open(name, &error))?;
    let candidate = candidate.ok_or_else(|| {
        let reason = "operation not applicable to datasets of this type";
        refuse(name, RefusalKind::Invalid, reason)
    })?;
    if candidate.properties.is_hidden {
        let refusal = refuse(name, RefusalKind::Invalid, "volmode=none");
        return Err(refusal.with_hint("use 'zfs set volmode=default' to have it served"));
    }
    if let Some(held) = open.served_volumes.join(dataset.id(), access) {
        return Ok((held, Hold::Joined));
    }
    if candidate.is_encrypted {
        return Err(refuse(
            name,
            RefusalKind::Invalid,
            "encryption key not loaded",
        ));
    }
    if candidate.is_received_half {
        return Err(refuse(name, RefusalKind::Busy, "dataset is busy"));
    }
    let volume = open_candidate(open, name, dataset, &candidate, operation)?;
    let stored = dataset
        .stored()
        .map_err(|error| cannot_open(name, &error))?;
    let known = (dataset.id(), stored.guid, name);
    let served = ServedVolume::new(&open.pool, known, volume);
    Ok((open.served_volumes.serve(served, access), Hold::First))
}

/// Opens a head whose contents were replaced while it was served.
pub(super) fn open_again(
    open: &Arc<OpenPool>,
    name: &str,
    head: ObjectId,
    operation: &Operation,
) -> Result<Arc<Volume>, Refusal> {
    let view = open.pool.namespace().view(operation);
    let unreadable = |error: DatasetError| cannot_open(name, &error);
    let dataset = view.dataset_without_name(head).map_err(unreadable)?;
    let candidate = candidate(&dataset).map_err(unreadable)?;
    let candidate = candidate.ok_or_else(|| {
        let reason = "operation not applicable to datasets of this type";
        refuse(name, RefusalKind::Invalid, reason)
    })?;
    open_candidate(open, name, &dataset, &candidate, operation)
}

fn open_candidate(
    open: &Arc<OpenPool>,
    name: &str,
    dataset: &Dataset<'_>,
    candidate: &Candidate,
    operation: &Operation,
) -> Result<Arc<Volume>, Refusal> {
    let properties = candidate.properties.open;
    let volume = open_dataset(&open.pool, dataset, candidate.facts, properties, operation);
    volume.map_err(|error| {
        let refusal = refuse(name, RefusalKind::Corrupt, error.why);
        match error.is_log {
            true => refusal.with_hint("its intent log cannot be replayed to its end"),
            false => refusal,
        }
    })
}

/// The facts needed to serve a dataset; none when it is no volume.
fn candidate(dataset: &Dataset<'_>) -> Result<Option<Candidate>, DatasetError> {
    let is_received_half = dataset.stored()?.flags.contains(DatasetFlags::INCONSISTENT);
    let Contents::Volume(facts) = contents::read(dataset)? else {
        return Ok(None);
    };
    // A snapshot is served as its volume is.
    let head = match dataset.is_snapshot() {
        true => dataset.directory().head()?,
        false => None,
    };
    Ok(Some(Candidate {
        facts,
        properties: ServingProperties::read(head.as_ref().unwrap_or(dataset))?,
        is_received_half,
        is_encrypted: dataset.directory().extension(CRYPTO_KEY)?.is_some(),
    }))
}

fn refuse(name: &str, kind: RefusalKind, reason: impl Into<String>) -> Refusal {
    Refusal::new(kind, format!("cannot open '{name}'"), reason)
}
