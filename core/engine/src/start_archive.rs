//! Starts the archive of statistics.

use crate::engine::Engine;
use crate::operation_analytics::StartedArchive;
use std::path::Path;
use std::sync::Arc;
use tarn_analytics::ValueNames;
use tarn_archive::{Archive, ArchiveError};
use tarn_host::RepeatingThread;
use tarn_probe::{ClientId, named_clients, named_datasets};

impl Engine {
    /// Archives each second from now on in a directory, in at most so many bytes. Analytics was
    /// started before.
    ///
    /// # Errors
    /// A directory that cannot be used, a cap that is too small.
    ///
    /// # Panics
    /// Without analytics, and when it was started already.
    pub fn start_archive(&self, directory: &Path, cap_bytes: u64) -> Result<(), ArchiveError> {
        let analytics = self.analytics().expect("analytics was started");
        let archive = Arc::new(Archive::open(&self.host, directory, cap_bytes)?);
        let thread = archive.start(&self.host, analytics, Box::new(names_of_keys));
        self.set_archive(archive, Some(thread));
        Ok(())
    }

    /// Has questions answered from an archive that another one fills.
    ///
    /// # Panics
    /// When it was started already.
    pub fn answer_from_archive(&self, archive: Arc<Archive>) {
        self.set_archive(archive, None);
    }

    fn set_archive(&self, archive: Arc<Archive>, thread: Option<RepeatingThread>) {
        let started = StartedArchive {
            archive,
            _thread: thread,
        };
        let is_first = self.archive.set(started).is_ok();
        assert!(is_first, "an engine starts its archive once");
    }

    /// The statistics that are archived; none where the archive is off.
    pub fn archive(&self) -> Option<&Arc<Archive>> {
        self.archive.get().map(|started| &started.archive)
    }
}

/// The names that clients and datasets have now: what is archived keeps them. Users are archived by
/// number.
fn names_of_keys() -> ValueNames {
    let mut names = ValueNames::new();
    for dataset in named_datasets() {
        names.add_dataset(dataset.id, &dataset.name);
    }
    names.add_client(ClientId::INTERNAL, "internal");
    names.add_client(ClientId::ADMINISTRATION, "administration");
    for client in named_clients() {
        names.add_client(client.id, &client.name);
        if let [alias, ..] = client.aliases.as_slice() {
            names.add_client(client.id, &format!("{alias} ({})", client.name));
        }
    }
    names
}
