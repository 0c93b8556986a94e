//! The NBD server: volumes as network block devices, by the names of their datasets.
//!
//! # Mechanism
//! The server listens on a Unix socket and on TCP addresses ([`NbdServer`]). Each connection is a
//! source of requests of the serving threads (`client_connection`): a thread takes a message,
//! carries it out from beginning to end and replies; replies come in any order. A connection begins
//! with the handshake (fixed newstyle), in which the client chooses an export (`negotiation`); then
//! it sends commands (`transmission`). The bytes of messages are taken apart in [`nbd_messages`].
//!
//! Reads go from blocks of the cache to the socket without a copy. Bytes to write are received into
//! buffers of the volume's block size, which become its blocks.
//!
//! # Invariants
//! - What a client sends is bounded before memory is taken for it: a message of the handshake by
//!   [`nbd_messages::OPTION_BYTES_MAX`], a command by [`nbd_messages::TRANSFER_BYTES_MAX`], and all
//!   commands of a connection that are being carried out by the same.
//! - A client that does not read its replies holds one thread for a minute at most; then its
//!   connection is closed.
//!
//! # Source of the format
//! `doc/proto.md` of <https://github.com/NetworkBlockDevice/nbd>.
//!
//! # TLS
//! A client may begin TLS during the handshake, and must where the server is told so (`secured`).

mod client_connection;
mod message_receiver;
pub mod nbd_messages;
mod nbd_server;
mod negotiation;
mod secured;
mod sending;
mod transmission;

pub use nbd_server::{Listening, NbdServer};
pub use secured::TlsUse;
