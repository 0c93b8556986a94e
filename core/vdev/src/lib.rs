//! The `vdev` layer: the device tree, redundancy, labels and health.
//!
//! # Problem
//! Devices fail, disappear, return wrong bytes, and lose power in the midst of a write. The layers
//! above read and write a block by its address and know none of this.
//!
//! # Mechanism
//! A pool's space is divided among *top-level vdevs*; a block pointer names one of them and an
//! offset. The vdev's [`layout`] says in which columns over its *leaves*, the devices, a block is.
//! [`read`] tries all of them until the caller's checksum accepts, and self-heals what was wrong.
//! [`write`](mod@write) stores on all devices that can be written, and fails when redundancy does
//! not cover the others. [`labels`] lead from devices to the pool, and make a txg the pool;
//! [`import_search`] finds pools among devices.
//!
//! A call hands over many requests, which become one batch per device (`queue`). This layer buffers
//! nothing: when a call returns, its requests are done.
//!
//! # Invariants
//! - Bytes handed out were accepted by the caller's checksum.
//! - A write that succeeded is on enough devices in use to survive as many failures as the vdev's
//!   redundancy has left. A device that missed the write is not in use, and its [dirty time
//!   log](dtl) has the birth of the block.
//! - After a failed flush a device is not used again before it is opened anew.
//! - While devices are gone that redundancy does not cover, writes of transaction groups wait
//!   ([`suspension`]), and unflushed writes stay in memory.
//!
//! # Knows nothing about
//! block pointers, space maps, transactions. Callers say which bytes are right, and when to flush.

pub mod auxiliary;
mod cache_devices;
mod cache_leaf;
pub mod config;
pub mod copy_ranges;
pub mod dtl;
pub mod error;
mod fault_devices;
pub mod free_space;
pub mod gpt;
mod grow_vdev;
pub mod health;
mod heartbeat;
pub mod import_search;
pub mod in_use;
pub mod label_config;
pub mod labels;
pub mod layout;
pub mod leaf;
pub mod membership;
mod new_top;
mod out_of_use;
pub mod place;
mod probe_device;
pub mod probes;
mod queue;
mod ranks;
pub mod read;
mod reconstruct;
mod report_blocks;
pub mod reports;
pub mod reshape;
pub mod scan_places;
mod self_heal;
pub mod sizes;
pub mod suspension;
mod top;
pub mod tree;
pub mod write;

pub use auxiliary::{AuxiliaryDevices, AuxiliaryKind};
pub use cache_leaf::CacheDevice;
pub use config::{TopLevelConfig, VdevConfig, VdevKind};
pub use dtl::Dtl;
pub use error::{ConfigError, LabelError, LeafFailure, OpenError, VdevReadError, VdevWriteError};
pub use health::{ErrorCounts, Reason, Standing, VdevHealth, VdevState};
pub use label_config::{PoolFacts, PoolState};
pub use labels::LabelUpdate;
pub use leaf::{Leaf, Window, open_window};
pub use new_top::NewTop;
pub use out_of_use::OutOfUse;
pub use place::{PhysicalWrite, Place};
pub use probe_device::Probe;
pub use read::{ReadRequest, Verify};
pub use reshape::{Change, Departed, Needed, NewLeaf};
pub use scan_places::{HurriedScrubs, ScanPurpose, ScanRequest, Scanned};
pub use suspension::{ResumeError, SuspensionDoor};
pub use tree::{AllocationBias, ExpectedLabels, Need, OpenOptions, TopLevel, VdevTree};
