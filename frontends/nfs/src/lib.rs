//! NFS: file systems shared with other machines, straight from the pool.
//!
//! # Problem
//! Clients of a network file system outlive the server: they keep handles of files, repeat calls
//! whose replies were lost, and rely on what was acknowledged. Many of them ask at the same time,
//! and each sends many requests without waiting for replies.
//!
//! # Mechanism
//! One server serves all shares of a daemon at one TCP port: NFS version 3 ([`v3`]) and its MOUNT
//! protocol ([`mount_protocol`]), locks of version 3 ([`lock_manager`], [`status_monitor`]), and
//! NFS versions 4.0, 4.1 and 4.2 ([`v4`]). It listens while something is shared ([`NfsServer`]).
//! Connections are sources of requests for the serving threads of `tarn-serving`, which all front
//! ends share (`connection`); a call is served from beginning to end in the thread that took it
//! (`calls`). A client may begin TLS on its connection (RFC 9289), and a share may ask for that.
//! Clients name their users (`AUTH_SYS`), or prove the names by Kerberos (`gss_calls`).
//!
//! A share is a file system of the engine with the options of its property `sharenfs`
//! ([`share_options`]). The engine shares it when it is mounted, and ends the share before it is
//! unmounted. A handle has the guid of the dataset (`handle`), so it stays good over restarts,
//! renames and import on another machine.
//!
//! # Not built
//! RPC over UDP; of version 4, what [`v4`] names, and of locks of version 3,
//! what [`lock_manager`] names.

mod calls;
pub mod client_lists;
mod client_names;
mod client_numbers;
mod connection;
mod crossing;
mod ended_operations;
mod file_call;
mod gss_calls;
mod gss_contexts;
pub mod handle;
mod listener;
pub mod lock_manager;
pub mod mount_protocol;
mod nfs_server;
mod port_mapper;
mod recall_queue;
mod repeated_calls;
mod rights;
pub mod rpc;
pub mod security_flavors;
mod share;
pub mod share_options;
mod share_table;
mod state_file;
pub mod status_monitor;
mod transports;
pub mod unshared;
pub mod v3;
pub mod v4;
pub mod xdr;

pub use nfs_server::{LEASE, NFS_PORT, NfsServer};
pub use v4::is_domain;
