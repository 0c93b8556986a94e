//! ONC RPC version 2 (RFC 5531): calls, replies, and records in a byte stream.

pub(crate) mod asking;
pub mod authentication;
pub(crate) mod back_channel;
pub mod call;
pub mod gss;
pub mod record;
pub mod reply;
