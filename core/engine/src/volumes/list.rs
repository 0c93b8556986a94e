//! The volumes that there are to serve.

use super::open::ServingProperties;
use crate::engine::{Engine, OpenPool};
use crate::mounting::cannot_open;
use crate::refusals::Refusal;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::look_through::Look;
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::dataset_dir::CRYPTO_KEY;
use tarn_pool::Mode;
use tarn_probe::Operation;

/// A volume, or a snapshot of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVolume {
    /// Its full name.
    pub name: String,
    /// The guid of its dataset.
    pub guid: u64,
    /// `volsize`, in bytes.
    pub size_bytes: u64,
    /// `volblocksize`, in bytes.
    pub block_size: u64,
    /// Whether it cannot be written.
    pub is_read_only: bool,
    /// Whether a block device of it shows partitions: `volmode` is not `dev`.
    pub has_partitions: bool,
}

impl Engine {
    /// The volumes of all pools that may be served, and with `snapdev=visible` their snapshots, by
    /// name. Those with `volmode=none` are left out, and those that are being received or whose key
    /// is not loaded.
    ///
    /// # Errors
    /// The first pool that cannot be read.
    pub fn list_volumes(&self, operation: &Operation) -> Result<Vec<ListedVolume>, Refusal> {
        let mut listed = Vec::new();
        for open in self.pools() {
            let name = open.pool.name();
            let found = volumes_below(&open, name, operation);
            listed.extend(found.map_err(|error| cannot_open(name, &error))?);
        }
        Ok(listed)
    }
}

/// The volumes at and below a dataset; none where there is no such dataset.
pub(super) fn volumes_below(
    open: &OpenPool,
    name: &str,
    operation: &Operation,
) -> Result<Vec<ListedVolume>, DatasetError> {
    let is_pool_read_only = open.pool.mode() == Mode::ReadOnly;
    let found = open
        .pool
        .namespace()
        .look_through(name, None, operation, |directory| {
            Ok(Look {
                goes_on: true,
                found: volumes_at(directory, is_pool_read_only)?,
            })
        });
    match found {
        Err(DatasetError::NotFound { .. }) => Ok(Vec::new()),
        found => found,
    }
}

/// The volume of a directory and its visible snapshots; nothing where it is a file system.
pub(super) fn volumes_at(
    directory: &Directory<'_>,
    is_pool_read_only: bool,
) -> Result<Vec<ListedVolume>, DatasetError> {
    let Some(head) = directory.head()? else {
        return Ok(Vec::new());
    };
    let is_volume = matches!(contents::outline(&head)?, Contents::Volume(_));
    if !is_volume || directory.extension(CRYPTO_KEY)?.is_some() {
        return Ok(Vec::new());
    }
    let properties = ServingProperties::read(&head)?;
    let snapshots = match properties.shows_snapshots {
        true => head.snapshots()?,
        false => Vec::new(),
    };
    let mut listed = Vec::new();
    for dataset in std::iter::once(head).chain(snapshots) {
        let stored = dataset.stored()?;
        let is_half = stored.flags.contains(DatasetFlags::INCONSISTENT);
        let Contents::Volume(facts) = contents::read(&dataset)? else {
            continue;
        };
        if properties.is_hidden || is_half {
            continue;
        }
        listed.push(ListedVolume {
            name: dataset.name(),
            guid: stored.guid.get(),
            size_bytes: facts.size_bytes,
            block_size: facts.block_bytes,
            is_read_only: is_pool_read_only
                || dataset.is_snapshot()
                || properties.open.is_read_only,
            has_partitions: !properties.hides_partitions,
        });
    }
    Ok(listed)
}
