//! Volumes, for front ends that serve them as block devices.
//!
//! A front end [holds](crate::engine::Engine::hold_volume) a volume or a snapshot of one, and calls
//! the operations of [`HeldVolume`] directly, in its own threads, with an [`Operation`] that it
//! began when the request came in. All holders of a volume share one state in memory, so what one
//! writes the others read. A held volume cannot be destroyed, and its pool is exported only by
//! force; then the volume ends, and its watchers hear of it. Where it is rolled back or received
//! into, its holders go on with other contents.
//!
//! [`Engine::list_volumes`](crate::engine::Engine::list_volumes) says which volumes there are to
//! serve, by `volmode` and `snapdev`.

pub(crate) mod device_table;
mod devices;
mod hold;
mod list;
mod open;
mod replace;
pub(crate) mod replay;
pub(crate) mod resize;
pub(crate) mod served;
mod user_properties;

pub use crate::files::{NewContents, Operation, OperationKind, Outcome, Protocol, ReadData, Who};
pub use device_table::{DeviceIsOpen, VolumeDevice, VolumeDevices};
pub use list::ListedVolume;
pub use served::{HeldVolume, ServedVolumes, VolumeAccess, VolumeWatcher};
pub use tarn_zvol::{Copied, Durable, VolumeError};
