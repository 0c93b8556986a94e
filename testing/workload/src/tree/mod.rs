//! Trees of files: filled, changed, and listed.
//!
//! # Problem
//! The files of a test must have the shapes that go wrong: sizes at and beside every block size,
//! holes, long names, foreign alphabets, directories that outgrow one block, every kind of node,
//! attributes of every length, owners beyond 31 bits. And two listings of the same tree must be the
//! same bytes, made by any program.
//!
//! # Mechanism
//! [`fill()`] and [`churn()`] draw everything from one seed, so a tree can be made again anywhere.
//! [`manifest()`] walks a directory without leaving its file system and gives one JSON line a file,
//! sorted by path: mode, owner, links, size, time, inode, the SHA-256 of the contents and of each
//! attribute. The lines are byte for byte those that the real OpenZFS's files were listed with in
//! our fixtures.

mod churn;
mod content;
mod fill;
pub mod json;
pub mod manifest;

pub use churn::churn;
pub use fill::{TreeSize, fill};
pub use manifest::{Sums, manifest, manifest_with};

use std::io;
use std::path::{Path, PathBuf};

/// A system call that a tree needed was refused.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}: {source}", path.display())]
pub struct TreeError {
    /// What was asked, as a verb: `create`, `truncate`.
    pub doing: &'static str,
    /// Of which file.
    pub path: PathBuf,
    /// What the file system answered.
    pub source: io::Error,
}

/// Says which call on which file failed, for use with `map_err`.
pub(crate) fn refused(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> TreeError + use<> {
    let path = path.to_path_buf();
    move |source| TreeError {
        doing,
        path,
        source,
    }
}

/// The same for the error type of direct system calls.
pub(crate) fn refused_call(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(rustix::io::Errno) -> TreeError + use<> {
    let refused = refused(doing, path);
    move |errno| refused(errno.into())
}
