//! iSCSI: volumes as disks of other machines.
//!
//! # Problem
//! An initiator sends SCSI commands over TCP, many at a time, and relies on what a disk promises:
//! what is acknowledged with the write cache off, or flushed, is durable; reservations keep others
//! away, also after a restart; names stay.
//!
//! # Mechanism
//! A portal listens while a volume is shared ([`shared_volumes`], [`portal`]); each
//! [`initiator_connection`] is a source of requests for the serving threads of `tarn-serving`.
//! [`protocol`] has the PDUs, login and command windows of RFC 7143, without sockets; [`scsi`] has
//! the commands of a disk, without a transport; [`storage`] is what they ask of a volume.
//! [`settings`] has who may log in.
//!
//! Reads go from blocks of the cache to the socket without a copy of ours. Commands whose status
//! waits for the intent log share one flush (`tarn_serving` delays their replies).
//!
//! # Limits
//! A session has one connection, and error recovery level 0: a lost connection ends the session,
//! and the initiator logs in again. A target has one unit, number 0. The logical block has 512
//! bytes.
//!
//! # After a crash
//! Sessions are gone and initiators log in again; persistent reservations with APTPL are in a
//! property of the volume.

pub mod initiator_connection;
pub mod memory_volume;
mod output;
pub mod portal;
pub mod protocol;
pub mod scsi;
pub mod served_volume;
pub mod session;
pub mod settings;
pub mod shared_volumes;
pub mod storage;
pub mod target;
pub mod target_names;
mod work;

pub use shared_volumes::Shares;
