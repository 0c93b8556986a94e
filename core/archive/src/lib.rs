//! The `archive` layer: statistics that are kept for years, in files of their own.
//!
//! # Problem
//! The flight recorder holds some half an hour. An administrator asks what was slow last Friday,
//! and whether it is worse than in spring.
//!
//! # Mechanism
//! Each second has a cell for each series: counts, sums, histograms with buckets 6.25 % wide, least
//! and most (`cell.rs`). Seconds are appended to a file, the tail (`tail.rs`), and become immutable
//! blocks of five minutes (`block_format.rs`), these become minutes and hours (`tier.rs`,
//! `archive_store.rs`). All files together stay within a cap: `shelf.rs` says which blocks go. A
//! statement is answered from what is kept (`kept_statements.rs`, `answer.rs`). A thread archives
//! each second what instrumentations of `analytics` counted and what was sampled (`gather.rs`,
//! `sampler.rs`).
//!
//! ```text
//! seconds -> tail + memory -> blocks of seconds -> minutes -> blocks of minutes -> hours -> blocks
//! ```
//!
//! # Invariants
//! - The cell of a minute is the merge of its 60 seconds, bit by bit; and so for hours.
//! - What was not collected is told as such, never as zero.
//! - The files never take more than the cap, pages of 4 KiB counted.
//! - Files are any bytes: those that are damaged, cut off or foreign are skipped, and reported by
//!   name.
//!
//! # After a crash
//! `archive_store.rs` says what is lost: the second that was being appended, at most.
//!
//! # Knows nothing about
//! names of clients and datasets, which are handed down when their seconds are archived. Times are
//! Unix time; `gather.rs` alone knows the clock of operations.

mod answer;
mod archive_contents;
mod archive_store;
mod block_format;
mod block_reader;
mod byte_reading;
mod cell;
mod error;
mod gather;
mod kept_statements;
mod ranks;
mod sampled;
mod sampler;
mod series_coding;
mod shelf;
mod tail;
mod tier;

pub use answer::{ArchiveAnswer, ArchiveQuery, ArchivedColumn, ArchivedGroup};
pub use archive_store::{Archive, ArchiveState, DEFAULT_CAP_BYTES, LEAST_CAP_BYTES};
pub use cell::{Cell, Column, ColumnHead, SeriesId, SeriesKey};
pub use error::{ArchiveError, ArchiveQueryError, Skipped, WhySkipped};
pub use gather::{Gatherer, NamesOfKeys};
pub use kept_statements::{ArchivedMeasure, Asked, AskedError, KEPT_STATEMENTS};
pub use sampled::{Averaged, SAMPLED_STATISTICS, Sampled, SampledStatistic};
pub use tier::Tier;
