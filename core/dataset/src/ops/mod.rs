//! Changes of the tree of datasets: one file each.

pub mod bookmark;
mod boot_filesystem;
pub mod clone;
pub mod count_owners;
pub mod create;
pub mod delegate;
pub mod destroy;
pub mod destroy_snapshot;
pub mod destroy_together;
mod going;
pub mod hold;
pub mod inherit;
pub mod inherit_key;
pub mod on_behalf;
pub mod promote;
pub mod receive;
pub mod rename;
pub mod rename_snapshot;
pub mod rollback;
pub mod set;
pub mod snapshot;
pub mod snapshot_of_head;
mod temporary_holds;
pub mod temporary_snapshot;
pub mod upgrade;
pub mod volume_size;
