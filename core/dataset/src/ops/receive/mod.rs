//! Receiving a snapshot: where the contents of a stream go while they come, and what makes a
//! snapshot of them.
//!
//! # Mechanism
//! A stream for a file system that is not there goes into a new one; a stream for one that is there
//! goes into a clone of its snapshot, a directory `%recv` below it. Both are marked inconsistent:
//! no mount opens them, and an import destroys them unless the stream may go on ([`resumable`]). At
//! the end, in one group, the clone's contents become those of the file system, with all that is
//! charged for them, the clone is removed, and the snapshot is taken that the stream was of: with
//! its guid, so that the next increment finds it.
//!
//! # Invariants
//! - What is half received is given up as it was made: nothing comes below it, and it is neither
//!   promoted nor received into a second time.
//! - The clone's contents are what follows its snapshot. So they become the target's only if that
//!   snapshot is still the target's own.
//! - Until that last group, readers of the file system see nothing of the stream.
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
