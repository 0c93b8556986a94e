//! Sharing with other machines: a file system is shared while it is mounted and its `sharenfs` says
//! so. A front end serves it ([`Sharer`]).

use crate::files::Tree;
use std::path::Path;
use std::sync::Arc;

/// A file system to share.
pub struct ShareRequest<'a> {
    /// The dataset's name.
    pub dataset: &'a str,
    /// The folder on which it is mounted, by which clients mount it.
    pub path: &'a Path,
    /// The value of `sharenfs`; not `off`.
    pub options: &'a str,
    /// The files. The front end drops them when the share has ended.
    pub tree: Arc<dyn Tree>,
}

/// Why a file system is not shared, or stays so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShareRefusal {
    /// Requests of clients are still being served.
    #[error("requests of clients are still being served")]
    Busy,
    /// Another dataset with the same guid is shared: handles would not tell them apart.
    #[error("'{0}' has the same guid, and is shared")]
    SameGuid(String),
    /// Another reason, as text.
    #[error("{0}")]
    Failed(String),
}

/// A door: serves file systems to other machines. A front end is one.
pub trait Sharer: Send + Sync {
    /// Whether these options of `sharenfs` can be served.
    ///
    /// # Errors
    /// Which one cannot.
    fn check(&self, options: &str) -> Result<(), ShareRefusal>;

    /// Shares a file system, or changes the options or the folder of one that is shared.
    ///
    /// # Errors
    /// Why it is not shared, or as before.
    fn share(&self, request: ShareRequest<'_>) -> Result<(), ShareRefusal>;

    /// Ends the share of the dataset with this guid, if there is one, when the requests under way
    /// are done.
    ///
    /// # Errors
    /// `Busy` when that takes too long: it is still shared.
    fn unshare(&self, guid: u64) -> Result<(), ShareRefusal>;

    /// The share of the dataset with this guid is about to end for a moment, since the file system
    /// is unmounted for a change: clients are told to ask again, not that their handles are stale.
    fn interrupt(&self, guid: u64);

    /// Ends the share of a pool that was given up, and waits for no request.
    fn abandon(&self, guid: u64);

    /// Whether the dataset with this guid is shared.
    fn is_shared(&self, guid: u64) -> bool;
}
