//! Changing the size of a volume.
//!
//! The size is in an object of the volume itself, so this is no task: it happens in the open txg,
//! like a write. Blocks beyond a smaller size are freed after the new size is stored, so that no
//! crash leaves a volume with a hole below its stored size.

use super::set::find;
use crate::contents::{self, Contents, VOLUME_DATA, VOLUME_ZAP};
use crate::namespace::View;
use crate::properties::inherit::local_number;
use crate::properties::{set, table};
use crate::task::TaskRefusal;
use crate::volume_reservation::volume_reservation;
use std::sync::Arc;
use tarn_object::zap::{ObjectZap, ZapValue};
use tarn_object::{AssignError, ObjectError, ObjectSet, TxEstimate};

/// How much is freed in one group; a guess: some thousands of blocks of pointers at most.
const FREE_BYTES_MAX: u64 = 64 << 30;

/// Why a volume's size could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeSizeError {
    /// It may not be.
    #[error(transparent)]
    Refused(#[from] TaskRefusal),
    /// The pool does not store anything now.
    #[error(transparent)]
    Stopped(#[from] AssignError),
    /// An object of the volume could not be read or changed.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Sets the size of a volume and waits until that is stored. `volume` is its object set, as all
/// users share it.
///
/// # Errors
/// When it is no volume, is read-only, or cannot have that size.
#[doc(alias = "zvol_set_volsize")]
pub fn set_volume_size(
    view: View<'_>,
    name: &str,
    volume: &Arc<ObjectSet>,
    bytes: u64,
) -> Result<(), VolumeSizeError> {
    check(view, name, bytes)?;
    let operation = view.operation();
    let txgs = &volume.env().txgs;
    let facts = volume.object(VOLUME_ZAP, operation)?;
    let tx = txgs.assign(&TxEstimate::freeing(0), operation)?;
    let updated = ObjectZap::of(&facts, operation).update(&tx, "size", &ZapValue::word(bytes));
    updated.map_err(|why| ObjectError::Zap {
        set: volume.id(),
        object: VOLUME_ZAP,
        why,
    })?;
    let txg = tx.txg();
    drop(tx);
    txgs.wait_stored(txg, operation)?;
    let data = volume.object(VOLUME_DATA, operation)?;
    let mut end = data.info().end_offset();
    while end > bytes {
        let start = end.saturating_sub(FREE_BYTES_MAX).max(bytes);
        assert!(
            bytes <= start && start < end,
            "each step frees a part beyond the new size"
        );
        let tx = txgs.assign(&TxEstimate::freeing(end - start), operation)?;
        data.free_range(&tx, start, tarn_object::TO_END, operation)?;
        end = start;
    }
    Ok(())
}

/// Checks whether a volume may have this size.
///
/// # Errors
/// Why not, in OpenZFS's words.
pub fn check(view: View<'_>, name: &str, bytes: u64) -> Result<(), TaskRefusal> {
    let dataset = find(view, name)?;
    let bad = |why: String| TaskRefusal::BadValue {
        property: "volsize".to_string(),
        why,
    };
    let Contents::Volume(facts) = contents::read(&dataset)? else {
        let why = "'volsize' does not apply to datasets of this type";
        return Err(bad(why.to_string()));
    };
    if dataset.is_snapshot() {
        let why = "this property can not be modified for snapshots";
        return Err(bad(why.to_string()));
    }
    if let Some(readonly) = table::find("readonly")
        && set::effective_number(&dataset, readonly)? == Some(1)
    {
        return Err(bad("dataset is read-only".to_string()));
    }
    if bytes == 0 {
        return Err(bad("'volsize' cannot be zero".to_string()));
    }
    if !bytes.is_multiple_of(facts.block_bytes.max(1)) {
        let block = nice(facts.block_bytes);
        return Err(bad(format!(
            "'volsize' must be a multiple of volume block size ({block})"
        )));
    }
    Ok(())
}

/// The refreservation for a new size of a volume, if the present one is the default for the present
/// size. Another value, or none, is kept.
#[doc(alias = "zfs_add_synthetic_resv")]
pub fn matching_reservation(
    view: View<'_>,
    name: &str,
    bytes: u64,
) -> Result<Option<u64>, TaskRefusal> {
    let dataset = find(view, name)?;
    let Contents::Volume(facts) = contents::read(&dataset)? else {
        return Ok(None);
    };
    let io = view.namespace().mos().env().cache.io();
    // As OpenZFS, which does not count copies here.
    let needed = |size| volume_reservation(io, size, facts.block_bytes, 1);
    let now = local_number(dataset.directory(), "refreservation")?.unwrap_or(0);
    Ok((now == needed(facts.size_bytes)).then(|| needed(bytes)))
}

/// The size of a block, which is a power of two, as people read it.
fn nice(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..0x10_0000 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    }
}
