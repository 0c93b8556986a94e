//! The `analytics` layer: which operations there were, after the fact and as they come.
//!
//! # Problem
//! An administrator sees that reads were slow at three, and asks: of which client, of which file,
//! and why? Counters answer only what was asked of them before; tracing answers only what comes
//! after it was switched on.
//!
//! # Mechanism
//! `probe` puts a record of each finished operation into a ring of its thread. The collector
//! (`collector.rs`) drains the rings, which costs requests nothing. The flight recorder
//! (`flight_recorder.rs`) keeps the records packed, within a fixed budget. A [`Query`] breaks down
//! what it holds by any [`Field`], filtered by any [`Predicate`], in columns of time and buckets of
//! value (`query.rs`); an instrumentation counts the same as operations come (`live.rs`). All of
//! them work on batches of columns (`column_batch.rs`). People write a [`Statement`], such as
//! `nfs.ops[op=read][client]:latency`.
//!
//! ```text
//! rings of probe -> collector -> flight recorder: open part -> segments -> queries
//!                            \-> live instrumentations -> results of seconds
//!                            \-> totals since the collector began (`operation_totals.rs`)
//! ```
//!
//! # Invariants
//! - The parts of a breakdown add up to its total exactly, in each column and bucket.
//! - What was dropped, overwritten or not collected is told as such, never as zero.
//! - Memory has a bound: the budget of the flight recorder, some 64 MiB for instrumentations, and
//!   for each query under way its answer.
//! - Statements and predicates are any bytes: they are refused with the place and the cure.
//!
//! # What records lack
//! These fields of the specification need more than an [`OperationRecord`] has:
//!
//! - `nfs.ops` by stability: data-sync and file-sync are one outcome, `synchronous`. By export and
//!   by session: their numbers, beside that of the client.
//! - `nfs.rpc`: a record of the connection (transport, flavour, requests in flight, answers from
//!   the reply cache), and its number in the record of the operation.
//! - `fuse.ops` by process and control group: the process id; a client of FUSE is a user.
//! - `iscsi.ops` by target and command: their numbers. The client is an initiator, the dataset a
//!   volume.
//! - Files: the generation, which tells apart the files that had an object number one after
//!   another.
//! - Queue depth at arrival: how many requests of the client were waiting.
//! - `arc.accesses`: a record of each access; an operation tells only which outcomes it had.
//! - `zil.commits`: a record of each commit, with its log records and its batch.
//! - `txg` by phase, dirty bytes and pass: a record of each phase; `txg_sync` is one operation.
//! - `zio.cpu`, `net.bytes`, `cpu`, `mem`: no operations, but samples of counters.
//!
//! # Knows nothing about
//! names of clients, datasets and files: they are handed in as [`ValueNames`]. Time zones and Unix
//! time: all times are of the clock of operations.
//!
//! [`OperationRecord`]: tarn_probe::OperationRecord

mod answer_size;
mod breakdown;
mod collector;
mod column_batch;
mod column_packing;
mod compiled;
mod coverage;
mod error;
mod field;
mod flight_recorder;
mod key_table;
mod live;
mod live_second;
mod live_sharing;
mod many_keys;
mod operation_totals;
mod predicate;
mod predicate_json;
mod predicate_text;
mod probes;
mod query;
mod ranks;
mod segment;
mod stage_times;
mod statement;
mod statement_text;
mod tally;
mod value_names;

pub use answer_size::{AnswerTooLarge, CELLS_MAX, columns_of_answer};
pub use breakdown::{Breakdown, DISCRETE_MAX, Measure};
pub use collector::{Analytics, PassTotals};
pub use column_batch::{BATCH_RECORDS, Batch, Column, ColumnSet, Mask, Numbers};
pub use compiled::CompiledPredicate;
pub use coverage::Collected;
pub use error::{LiveError, Place, PredicateError, QueryError, Wrong};
pub use field::{Cause, Field, Values};
pub use flight_recorder::{
    DEFAULT_BUDGET_BYTES, FlightRecorder, LEAST_BUDGET_BYTES, RecorderState,
};
pub use key_table::Key;
pub use live::{INSTRUMENTATIONS_MAX, InstrumentationId, LiveResults};
pub use live_second::LiveSecond;
pub use operation_totals::OperationTotal;
pub use predicate::{Comparison, Operator, Predicate};
pub use query::{Answer, ColumnState, Group, LISTED_MAX, Operations, Order, Query, Series};
pub use stage_times::StageTimes;
pub use statement::Statement;
pub use statement_text::{Statistic, statistics};
pub use tally::Tally;
pub use value_names::{ValueNames, fixed_values};
