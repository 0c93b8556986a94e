//! What is asked about operations: `tarn analytics`, `tarn slow`, `tarn top`, and the page.
//!
//! # Map
//! - `asked_statement`: a statement and a filter become numbers, with the names that are known
//! - `answering`: queries; `listing_operations`: operations one by one; `instrumenting`: counts as
//!   operations come
//! - `told_answer`: an answer with the names of what it shows; `archived_answer`: one from the
//!   archive
//! - `happened`: what happened to pools, for the time axis
//! - `recorder_state`, `catalogue`: what is kept, and what can be asked
//! - `wall_clock`: the time of day of operations
//!
//! # Permissions
//! Answers have names of clients, users and files, which are personal data: root and the daemon's
//! user get them, others are refused. What is kept and what can be asked, all may know.

mod answering;
mod archived_answer;
mod asked_statement;
pub(crate) mod catalogue;
mod happened;
pub(crate) mod instrumented;
mod instrumenting;
mod listing_operations;
mod recorder_state;
mod told_answer;
pub(crate) mod wall_clock;
