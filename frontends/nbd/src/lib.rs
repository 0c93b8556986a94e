//! The NBD server: volumes as network block devices, by the names of their datasets.
//!
//! # Mechanism
//! The server listens on a Unix socket and on TCP addresses ([`server`]). Each connection is a
//! source of requests of the serving threads ([`connection`]): a thread takes a message, carries it
//! out from beginning to end and replies; replies come in any order. A connection begins with the
//! handshake (fixed newstyle), in which the client chooses an export ([`negotiation`]); then it
//! sends commands ([`transmission`]). The bytes of messages are taken apart in [`protocol`].
//!
//! Reads go from blocks of the cache to the socket without a copy. Bytes to write are received into
//! buffers of the volume's block size, which become its blocks.
//!
//! # Invariants
//! - What a client sends is bounded before memory is taken for it: a message of the handshake by
//!   [`protocol::OPTION_BYTES_MAX`], a command by [`protocol::TRANSFER_BYTES_MAX`], and all
//!   commands of a connection that are being carried out by the same.
//! - A client that does not read its replies holds one thread for a minute at most; then its
//!   connection is closed.
//!
//! # Source of the format
//! The document of the protocol: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.
//!
//! # Knows nothing about
//! TLS: a client that asks for it is refused by name, and decides whether to go on without.

mod connection;
mod negotiation;
pub mod protocol;
mod receiving;
mod sending;
pub mod server;
mod transmission;

pub use server::{Listening, NbdServer};
