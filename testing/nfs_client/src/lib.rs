//! A client of NFS 3 (RFC 1813) and 4.1 (RFC 8881) that loads a server: many requests in flight on
//! one TCP connection, each reply checked.
//!
//! # Problem
//! A rate of ours by NFS means something only beside the rate of another server under the same
//! requests. Linux's client needs its kernel's modules and caches what it reads, and libnfs's has
//! no version 4.1.
//!
//! # Mechanism
//! A [`Client`] knows a few operations ([`Operation`]) in both versions. [`Client::send`] puts a
//! request on its way, [`Client::receive`] takes whichever reply comes next. It shares no code with
//! our server, so that a mistake in one's encoding shows in the other.

mod client;
mod record;
mod request;
mod session;

pub use client::{Client, Done, Folder, OpenFile, Operation, Stable, Version};
pub use record::{Failure, Machine};
