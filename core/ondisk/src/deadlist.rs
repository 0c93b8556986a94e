//! Deadlists: the blocks that a dataset no longer has, and its previous snapshot still does.
//!
//! # Mechanism
//! The object's data are a ZAP from birth txgs (a hexadecimal name) to lists of block pointers
//! ([`bpobj`](crate::bpobj)): under txg T are the dead blocks born after T, up to the next name.
//! There is one such txg per snapshot, so that when a snapshot goes, whole lists move or are freed
//! unread. The bonus has the totals.
//!
//! Before pool version 26 the object is a plain list of block pointers; its type tells. A clone's
//! *livelist* has the same form, with allocated and freed blocks in its lists.

use crate::declare::Reserved;
use crate::object_type::ObjectType;
use crate::on_disk;
use crate::units::{AllocatedSize, LogicalSize, PhysicalSize, Txg};

on_disk! {
    /// What all the blocks of a deadlist add up to.
    #[doc(alias = "dsl_deadlist_phys_t")]
    #[derive(Copy, Default)]
    pub struct DeadlistHead [320 bytes] {
        0  => used: AllocatedSize,
        8  => compressed: PhysicalSize,
        16 => uncompressed: LogicalSize,
        24 => reserved: Reserved<296>,
    }
}

/// In which of its two forms a deadlist is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlistForm {
    /// A ZAP of lists.
    Map,
    /// A single list, from before pool version 26.
    List,
}

impl DeadlistForm {
    /// The form that an object's type tells; none for an object that is no deadlist.
    pub fn of(object_type: ObjectType) -> Option<DeadlistForm> {
        match object_type {
            ObjectType::DeadlistMap => Some(DeadlistForm::Map),
            ObjectType::BlockPointerList => Some(DeadlistForm::List),
            _ => None,
        }
    }
}

/// The name in the ZAP for blocks born after `txg`.
pub fn entry_name(txg: Txg) -> String {
    format!("{txg:x}")
}

/// The txg that a name in the ZAP stands for; none for anything else.
pub fn entry_txg(name: &str) -> Option<Txg> {
    u64::from_str_radix(name, 16).ok().map(Txg::from)
}
