//! Receive: the head that a stream is received into, and the snapshot at its end.
//!
//! # Mechanism
//! A full stream goes into a new file system; an increment for an existing one goes into a clone of
//! its snapshot, a directory `%recv` below it. Both are marked inconsistent: no mount opens them,
//! and an import destroys them unless the receive may be resumed ([`resumable`]). At the end, in
//! one txg, the clone's contents become those of the file system, with their space charges, the
//! clone is removed, and the stream's snapshot is taken: with its guid, so that the next increment
//! finds it.
//!
//! # Invariants
//! - A partly received dataset is only discarded or resumed: nothing is created below it, and it is
//!   neither promoted nor received into by another stream.
//! - The clone's contents follow its base snapshot. So they become the target's only if that
//!   snapshot is still the target's own.
//! - Until that last txg, readers of the file system see nothing of the stream.
//! - The caller of [`FinishReceive`] has ended all writing into the clone, and all mounts of the
//!   file system.

mod abandon;
mod begin;
mod exchange;
mod finish;
pub(super) mod half_received;
mod make_room;
mod newer;
mod receiver;
mod resume;
mod settings;
mod stream_facts;

pub use abandon::AbandonReceive;
pub use begin::BeginReceive;
pub use finish::{FinishReceive, target_of};
pub use make_room::Begun;
pub use receiver::{Receiver, is_clone, receive_name};
pub use resume::{resumable, resume_list};
pub use settings::{NotSet, ReceiveSettings};
pub use stream_facts::StreamFacts;
