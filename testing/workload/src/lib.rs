//! Workloads: what a mounted file system is made to do, so that others can judge the result.
//!
//! # Problem
//! A file system is judged by comparing what was done to it with what it holds afterwards. Both
//! halves must be the same on every machine and for every file system, or a difference means
//! nothing. So nothing here knows Tarn: a workload gets a directory, and uses system calls.
//!
//! # Map
//! - [`tree`] fills a directory with files of every awkward shape, changes them, and writes the
//!   manifest of what a directory holds, one line per file.
//! - [`fsx`] changes one file at random beside a model of it in memory, and stops at the first
//!   byte that differs.
//! - [`lineage`] is what snapshots, clones and streams must come to; it alone knows that there are
//!   such things.
//! - [`load`] does one kind of work as fast as it can, and says how fast that was.
//! - [`ledger`] changes a directory one call after the other, and says after a crash whether it is
//!   as it was at a moment that kept everything durable.
//! - [`logged`] makes one change of each kind that an intent log has a record for.
//! - [`twister`] is the source of chance, the same numbers for the same seed for ever.
//!
//! # Knows nothing about
//! pools, datasets, daemons, or how the directory came to be mounted.

mod errno;
pub mod fsx;
pub mod ledger;
pub mod lineage;
pub mod load;
pub mod logged;
pub mod mapped;
pub mod promises;
pub mod tree;
pub mod twister;
