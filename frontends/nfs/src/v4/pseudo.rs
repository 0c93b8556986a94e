//! The folders above shares: a client of version 4 begins at the root of the server and finds
//! shares by their paths.
//!
//! A folder is known by a hash of its path, so its handle stays good as long as a share is below
//! it.

use crate::share::Share;
use crate::share_table::Shares;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first byte of a handle: those of files begin with a one.
const MARK: u8 = 0xf4;
/// Bytes of a handle.
const BYTES: usize = 16;

/// A folder above shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PseudoFolder {
    pub(crate) path: PathBuf,
    /// Another number when shares have come or gone.
    pub(crate) change: u64,
}

/// What a name in such a folder leads to.
pub(crate) enum Below {
    Folder(PseudoFolder),
    Share(Arc<Share>),
}

impl PseudoFolder {
    pub(crate) fn root(shares: &Shares) -> PseudoFolder {
        PseudoFolder::at(Path::new("/"), shares)
    }

    fn at(path: &Path, shares: &Shares) -> PseudoFolder {
        let mut change = 1_u64;
        for share in shares.all() {
            change = change.rotate_left(7) ^ hash(share.path.as_os_str().as_bytes());
        }
        PseudoFolder {
            path: path.to_path_buf(),
            change,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        hash(self.path.as_os_str().as_bytes()) | 1 << 63
    }

    pub(crate) fn handle(&self) -> Vec<u8> {
        let mut bytes = vec![MARK, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(self.id().to_le_bytes());
        bytes
    }

    /// Whether these bytes are the handle of such a folder.
    pub(crate) fn is_handle(bytes: &[u8]) -> bool {
        bytes.len() == BYTES && bytes[0] == MARK
    }

    /// The folder of a handle, if shares are below it still.
    pub(crate) fn find(bytes: &[u8], shares: &Shares) -> Option<PseudoFolder> {
        let mut paths: BTreeSet<&Path> = BTreeSet::from([Path::new("/")]);
        for share in shares.all() {
            paths.extend(share.path.ancestors().skip(1));
        }
        let folders = paths.into_iter().map(|path| PseudoFolder::at(path, shares));
        folders.into_iter().find(|folder| folder.handle() == bytes)
    }

    /// The folder above.
    pub(crate) fn parent(&self, shares: &Shares) -> Option<PseudoFolder> {
        Some(PseudoFolder::at(self.path.parent()?, shares))
    }

    /// The folder in which a share is.
    pub(crate) fn of_share(share: &Share, shares: &Shares) -> PseudoFolder {
        PseudoFolder::at(share.path.parent().unwrap_or(Path::new("/")), shares)
    }

    /// What a name leads to.
    pub(crate) fn below(&self, name: &[u8], shares: &Shares) -> Option<Below> {
        let path = self.path.join(OsStr::from_bytes(name));
        if let Some(share) = shares.all().find(|share| share.path == path) {
            return Some(Below::Share(share.clone()));
        }
        let leads_on = |share: &&Arc<Share>| share.path.starts_with(&path);
        let found = shares.all().find(leads_on);
        found.map(|_| Below::Folder(PseudoFolder::at(&path, shares)))
    }

    /// The names in it, in their order.
    pub(crate) fn names(&self, shares: &Shares) -> Vec<Vec<u8>> {
        let name = |share: &Arc<Share>| {
            let rest = share.path.strip_prefix(&self.path).ok()?;
            Some(rest.components().next()?.as_os_str().as_bytes().to_vec())
        };
        let names: BTreeSet<Vec<u8>> = shares.all().filter_map(name).collect();
        names.into_iter().collect()
    }
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
