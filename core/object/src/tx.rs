//! Transactions: the permission to change stored data.
//!
//! # Mechanism
//! Every change is part of a transaction group, and takes a [`Tx`] as proof. There are two kinds.
//! An [`OpenTx`] is a hold on the open group: a writer gets one from
//! [`Txgs::assign`](crate::Txgs::assign) (where the throttle is), changes objects of datasets, and
//! drops it; the group cannot be stored before. A [`SyncTx`] belongs to the syncing group; the
//! pool's sync thread has the only one, and only with it the MOS and the accounting objects are
//! changed.
//!
//! # Invariants
//! - A thread has at most one `OpenTx`. A thread that holds one takes no lock that another thread
//!   holds while it waits for one.
//! - Groups follow each other strictly: the first `OpenTx` of a group is created after the last one
//!   of the group before is dropped.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarn_ondisk::units::Txg;

use crate::txg::Txgs;

/// The permission to change stored data, as part of one transaction group.
#[derive(Debug)]
pub struct Tx {
    txg: Txg,
    is_syncing: bool,
    /// How often something was changed with it; only of a [`SyncTx`].
    changes: AtomicU64,
}

impl Tx {
    pub(crate) fn open(txg: Txg) -> Tx {
        Tx {
            txg,
            is_syncing: false,
            changes: AtomicU64::new(0),
        }
    }

    /// The group the changes become part of.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// True for changes made by the thread that stores the group.
    pub fn is_syncing(&self) -> bool {
        self.is_syncing
    }

    /// Notes that an object or an object set was changed.
    pub(crate) fn note_change(&self) {
        if self.is_syncing {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The permission to change datasets in the open group, until it is dropped.
#[derive(Debug)]
pub struct OpenTx {
    tx: Tx,
    txgs: Arc<Txgs>,
    /// The reserved space of the changes, until they are made.
    kept: Option<Box<dyn Any + Send>>,
}

impl OpenTx {
    pub(crate) fn new(txg: Txg, txgs: Arc<Txgs>) -> OpenTx {
        OpenTx {
            tx: Tx::open(txg),
            txgs,
            kept: None,
        }
    }

    /// Keeps the reservation of space until the transaction is over; by then its changes are
    /// counted as dirty.
    pub fn keep(&mut self, kept: Box<dyn Any + Send>) {
        self.kept = Some(kept);
    }
}

impl Deref for OpenTx {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.tx
    }
}

impl Drop for OpenTx {
    fn drop(&mut self) {
        self.txgs.release();
    }
}

/// The permission to change anything in the syncing group. Only the pool's sync thread has one, so
/// a function that takes `&mut SyncTx` needs no lock and no assertion.
#[derive(Debug)]
pub struct SyncTx {
    tx: Tx,
    pass: u32,
}

impl SyncTx {
    pub(crate) fn new(txg: Txg) -> SyncTx {
        SyncTx {
            tx: Tx {
                txg,
                is_syncing: true,
                changes: AtomicU64::new(0),
            },
            pass: 1,
        }
    }

    /// The pass, from 1.
    pub fn pass(&self) -> u32 {
        self.pass
    }

    /// How often an object or an object set was changed in this group by the sync thread. Where the
    /// number stays the same, what was done between has changed nothing that is stored.
    pub fn change_count(&self) -> u64 {
        self.tx.changes.load(Ordering::Relaxed)
    }

    /// Begins the next pass.
    pub fn next_pass(&mut self) {
        self.pass += 1;
    }
}

impl Deref for SyncTx {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.tx
    }
}

/// What a transaction will do, as far as the throttle is concerned.
#[derive(Debug, Clone, Copy, Default)]
pub struct TxEstimate {
    /// How many bytes it will write.
    pub write_bytes: u64,
    /// How many bytes it will free.
    pub free_bytes: u64,
    /// Whether it may go on when there is too much dirty data already.
    pub urgency: Urgency,
}

impl TxEstimate {
    /// A transaction that writes this much.
    pub fn writing(write_bytes: u64) -> TxEstimate {
        TxEstimate {
            write_bytes,
            ..TxEstimate::default()
        }
    }

    /// A transaction that frees this much, and makes little else dirty.
    pub fn freeing(free_bytes: u64) -> TxEstimate {
        TxEstimate {
            free_bytes,
            ..TxEstimate::default()
        }
    }
}

/// Whether a transaction is subject to the throttle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// It waits its turn.
    #[default]
    Throttled,
    /// It is not throttled, and fails where others wait for a suspended pool to resume: other
    /// threads wait for the caller, and the caller has another way.
    Now,
}
