//! Administration: requests, replies and implementations of the commands of `zpool` and `zfs`.
//!
//! # Mechanism
//! [`Administration`](administration::Administration) has one method for each command, from one
//! list. A request and its reply are plain serialisable values
//! ([`messages`]): the control interface carries them as JSON, and the
//! commands print the replies. [`Administrator`]
//! implements it upon an [`Engine`](tarn_engine::Engine): it asks for permissions, makes the
//! change, and notes the command in the history of the pool.
//!
//! Everything that changes state is called with an [`administration::Call`], which names the caller
//! and the command line for permissions and history.
//!
//! Imported pools, open object sets and mounts belong to the engine, which does not know this
//! crate: front ends that serve data build without it.

pub mod administration;
mod administrator;
mod alerts;
mod analytics;
mod bounded_text;
mod call_record;
mod command_permissions;
mod create;
mod datasets;
pub mod event_values;
mod inert;
mod kstat;
pub mod messages;
mod metrics;
mod pools;
mod service;

pub use administrator::Administrator;
pub use alerts::AlertWatch;
