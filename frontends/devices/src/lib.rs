//! Block devices of this machine for volumes: `/dev/zvol/POOL/VOLUME`.
//!
//! # Problem
//! Programs of this machine (`mkfs`, `mount`, LVM, swap, virtual machines) use a volume as a block
//! device, and Linux has those only of drivers in the kernel.
//!
//! # Mechanism
//! Every Linux has a driver that makes a block device of a file: loop. So the volumes of a pool are
//! files of a FUSE file system that the daemon mounts for this in a folder of its own
//! ([`volume_tree`]), and each file becomes a loop device with direct I/O: what programs read and
//! write goes through no other cache than that of the device itself. `fsync` of the file is a flush
//! of the volume, `fallocate` a discard.
//!
//! [`VolumeLinks`] makes the links below `/dev/zvol`, those of partitions with them; no udev is
//! needed. [`BlockDevices`] is the front end: the engine tells it which volumes get devices and
//! when they go.
//!
//! # When the daemon dies
//! Reads and writes of the devices fail from then on. The next start unbinds the devices that it
//! finds left ([`remains`]), at once or, where they are open, with their last close, and makes new
//! ones.

mod block_devices;
mod made_device;
mod partition_watch;
pub mod remains;
mod tree_requests;
mod volume_links;
pub mod volume_tree;

pub use block_devices::BlockDevices;
pub use volume_links::VolumeLinks;
