//! iSCSI (RFC 7143): PDUs, text keys, login, command windows. No sockets and no threads: what goes
//! in and out are bytes and PDUs.

pub mod chap;
pub mod input;
pub mod login;
pub mod parameters;
pub mod pdu;
pub mod reply;
pub mod tasks;
pub mod text;
