//! Rewinding to the checkpoint, at an import.
//!
//! # Mechanism
//! The uberblock in the pool directory gets a txg behind the newest, and the present time, and is
//! opened instead of the newest. What it leads to is complete. For writing it is then written to
//! the devices, as any uberblock that devices lack; from there on the pool is rewound. It keeps its
//! `checkpoint_txg`: by this an import knows that blocks of intent logs that were born later are
//! not the log's any more ([`claim_logs`](crate::claim_logs)). The first txg after it has no
//! `checkpoint_txg`.
//!
//! Vdevs that were added since the checkpoint are not in its configuration, and leave the pool with
//! the rewind.

use crate::directory::Directory;
use crate::error::{ImportError, PoolError};
use crate::sync_scope::SyncScope;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::declare::{ByteOrder, Corrupt, Stored};
use tarn_ondisk::pool_directory::{CHECKPOINT, POOL_DIRECTORY};
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::Txg;

/// The checkpoint's uberblock in the pool directory.
pub(crate) fn stored(directory: Directory<'_>) -> Result<Option<Uberblock>, PoolError> {
    let Some(value) = directory.value(CHECKPOINT)? else {
        return Ok(None);
    };
    let words = value.to_words();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let corrupt = |cause| PoolError::Corrupt {
        object: POOL_DIRECTORY,
        cause,
    };
    // Earlier versions of OpenZFS have one word less.
    let uberblock = Uberblock::from_short_bytes(&bytes, ByteOrder::Little).map_err(corrupt)?;
    let is_sound = uberblock.magic == Uberblock::MAGIC
        && uberblock.txg >= Txg::INITIAL
        && uberblock.checkpoint_txg == uberblock.txg
        && !uberblock.root.is_hole();
    match is_sound {
        true => Ok(Some(uberblock)),
        false => Err(corrupt(Corrupt::Inconsistent {
            what: "uberblock of the checkpoint",
            offset: 0,
            why: "it is not that of a stored txg",
        })),
    }
}

/// Records a rewind in the history.
pub(crate) fn record(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    let rewound_to = scope.pool.uberblock().checkpoint_txg;
    assert!(
        !rewound_to.is_zero(),
        "the uberblock before the first txg of a rewound pool is that of the checkpoint"
    );
    scope.context.record(InternalEvent {
        name: "checkpoint rewind",
        dataset: None,
        text: format!("rewound state to txg={rewound_to}"),
    });
    Ok(())
}

/// The uberblock that a pool is rewound to: that of the checkpoint, behind the newest of any
/// device.
///
/// # Errors
/// There is no checkpoint, or its uberblock makes no sense.
#[doc(alias = "spa_ld_checkpoint_rewind")]
pub(crate) fn target(
    directory: Directory<'_>,
    newest: &Uberblock,
    now_s: u64,
) -> Result<Uberblock, ImportError> {
    let kept = stored(directory)?.ok_or(ImportError::NoCheckpoint)?;
    if kept.txg >= newest.txg {
        return Err(ImportError::Txg { txg: kept.txg });
    }
    Ok(Uberblock {
        txg: newest.txg.next(),
        timestamp_s: now_s,
        ..kept
    })
}
