//! FUSE: file systems as mounts.
//!
//! # Problem
//! Every dataset is a mount with a device of its own, and a server has thousands. A slow disk must
//! not delay a request that the cache can answer, and no mount may starve another.
//!
//! # Mechanism
//! Each mount is a source of requests for the serving threads of `tarn-serving`, which all front
//! ends share ([`server`]). Contents of large writes are read into the buffers that become blocks
//! ([`inbox`]). [`protocol`] decodes requests and encodes replies; `operations` maps each request
//! to one call of the file system, one file for each group of them; [`session`] has the state of
//! one mount: entered snapshots below `.zfs`, and open files.
//!
//! The kernel checks permissions (`default_permissions`, with POSIX ACLs handed to it), as it knows
//! the caller's groups; requests have only user and group. With `acltype=nfsv4` the file system
//! checks them (`permission_checks`).
//!
//! # When the daemon dies
//! The kernel closes the device, and every call on the mount fails with `ENOTCONN`. The next start
//! unmounts the remains and mounts again.

mod clients;
pub mod device;
mod handles;
pub mod inbox;
mod kept;
pub mod mount;
mod mount_table;
pub mod mounter;
mod nodes;
mod operations;
mod permission_checks;
pub mod protocol;
pub mod server;
pub mod session;

pub use mounter::FuseMounter;
pub use permission_checks::PermissionChecks;
