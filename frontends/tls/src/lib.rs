//! TLS for servers whose serving threads read and write sockets that do not block.
//!
//! # Problem
//! NFS (RFC 9289) and NBD begin in plain and change to TLS on the same connection when the client
//! asks for it. Bytes are read and written by serving threads, which wait at sockets by epoll: what
//! is decrypted and not taken yet is announced by no socket. A client may stop in the middle of a
//! handshake, or send anything.
//!
//! # Mechanism
//! A front end reads and writes by a [`Channel`], which is plain until [`Channel::begin_tls`]. The
//! thread that reads goes on with the handshake; when that is done, reads give plain bytes, and
//! each write is encrypted by the thread that writes. [`Channel::has_more`] tells of bytes that
//! epoll does not announce.
//!
//! A [`TlsServer`] has the certificate, its key, and the authorities of clients, and looks at each
//! handshake whether their files have changed. New files that cannot be used are told, and those
//! before stay in use.
//!
//! # Invariants
//! - A byte that was received in plain is never taken for one that was encrypted: `begin_tls` is
//!   called where nothing is read ahead.
//! - Nothing is written by a caller before the handshake is done: the connection ends instead.
//! - A handshake that takes longer than [`HANDSHAKE_PATIENCE`] ends with its connection. A
//!   connection takes 64 KiB for bytes while they are received, 64 KiB for those to be sent, and
//!   what rustls has of one message, which it bounds by 64 KiB.
//!
//! # Knows nothing about
//! NFS and NBD: when TLS begins, and which clients may do without it.

mod certificates;
mod handshakes;
mod tls_channel;

pub use certificates::{CertificateFiles, ClientCertificates, Rules, TlsError, TlsServer};
pub use handshakes::HANDSHAKE_PATIENCE;
pub use tls_channel::{Channel, Peer};
