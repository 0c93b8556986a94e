//! Following the sender: what became of file systems and snapshots there, since the increment's first snapshot.
//!
//! # Mechanism
//! The description of a tree lists every snapshot that each file system has. One that is here, and not there any more, was destroyed at the sender; with `-F` it is destroyed here,
//! too. One that has another name there gets that name. A file system of which no snapshot is there any more goes with `-F`, if it has the increment's first
//! snapshot: without that it never came from there.

use super::Run;
use super::destination::destination;
use super::one::head_of;
use super::package::Package;
use super::properties::KEY_LOCATION;
use crate::administration::Call;
use crate::engine::OpenPool;
use crate::messages::Refusal;
use crate::messages::dataset::Destroy;
use std::sync::Arc;
use tarn_dataset::crypto_key;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::ops::inherit_key::InheritKey;
use tarn_dataset::ops::rename_snapshot::RenameSnapshots;
use tarn_dataset::ops::set::{SetProperties, Source};
use tarn_dataset::properties::parse::{Checked, Setting};
use tarn_dataset::properties::table;

/// What is to be done here, so that it is as at the sender.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    /// Full names of file systems and snapshots to destroy, the deepest first.
    gone: Vec<String>,
    /// Full names of snapshots, and their new short names.
    renamed: Vec<(String, String)>,
}

impl Run<'_> {
    /// Does what was done at the sender. What cannot be done is told, and does not keep the streams from being received.
    #[doc(alias = "recv_incremental_replication")]
    pub(super) fn follow_sender(&mut self, package: &Package) -> Result<(), Refusal> {
        let Some(from) = package.from.as_deref().filter(|_| package.is_tree) else {
            return Ok(());
        };
        if self.request.dry_run {
            return Ok(());
        }
        // The snapshot's name does not matter.
        let sent = format!("{}@{from}", package.base());
        let top = destination(self.request, &sent, package.base(), true)?;
        let Some(open) = self.engine.find_pool(top.pool()) else {
            return Ok(());
        };
        let view = open.pool.namespace().view(self.operation);
        let Ok(directory) = view.directory(top.head()) else {
            return Ok(());
        };
        let mut changes = Changes::default();
        if let Err(error) = find_changes(&directory, package, from, &mut changes) {
            let warning = format!("cannot look through '{}': {error}", top.head());
            self.done.warnings.push(warning);
            return Ok(());
        }
        for (snapshot, name) in &changes.renamed {
            self.rename(&open, snapshot, name);
        }
        for name in changes.gone.iter().filter(|_| self.request.force) {
            let request = Destroy {
                name: name.clone(),
                recursive: !name.contains('@'),
                force: true,
                ..Destroy::default()
            };
            // History has the receive, which is what somebody asked for.
            let call = Call {
                command: String::new(),
                ..self.call.clone()
            };
            let destroyed = self.engine.destroy_dataset(&call, &request, self.operation);
            if let Err(refusal) = destroyed {
                self.done.warnings.push(refusal.to_string());
            }
        }
        Ok(())
    }

    fn rename(&mut self, open: &Arc<OpenPool>, snapshot: &str, name: &str) {
        let (head, short) = snapshot.split_once('@').unwrap_or_default();
        let task = RenameSnapshots {
            head: head.to_string(),
            from: short.to_string(),
            to: name.to_string(),
            recursive: false,
        };
        if let Err(error) = open.pool.run(task, self.operation) {
            let warning = format!("cannot rename '{snapshot}': {error}");
            self.done.warnings.push(warning);
        }
    }
}

/// Looks through a tree, the deepest first.
fn find_changes(
    directory: &Directory<'_>,
    package: &Package,
    from: &str,
    changes: &mut Changes,
) -> Result<(), DatasetError> {
    for child in directory.children()? {
        find_changes(&child, package, from, changes)?;
    }
    let Some(head) = head_of(directory.view(), directory.name())? else {
        return Ok(());
    };
    let snapshots = head.snapshots()?;
    let guid = |snapshot: &Dataset<'_>| snapshot.stored().map(|stored| stored.guid.get());
    let mut sent = None;
    for snapshot in &snapshots {
        sent = sent.or(package.find(guid(snapshot)?));
    }
    let Some(sent) = sent else {
        let came = snapshots
            .iter()
            .any(|snapshot| snapshot.snapshot_name() == Some(from));
        if came {
            changes.gone.push(directory.name().to_string());
        }
        return Ok(());
    };
    for snapshot in &snapshots {
        match sent.snapshot(guid(snapshot)?) {
            None => changes.gone.push(snapshot.name()),
            Some(name) if Some(name) != snapshot.snapshot_name() => {
                changes.renamed.push((snapshot.name(), name.to_string()));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

impl Run<'_> {
    /// What came with the key of something above it is opened with that again.
    #[doc(alias = "recv_fix_encryption_hierarchy")]
    pub(super) fn follow_keys(&mut self, package: &Package) {
        let Some(top) = self
            .top
            .clone()
            .filter(|_| package.is_raw && !self.request.dry_run)
        else {
            return;
        };
        let Some(open) = self.engine.find_pool(top.split('/').next().unwrap_or(&top)) else {
            return;
        };
        let view = open.pool.namespace().view(self.operation);
        let (mut roots, mut locations) = (Vec::new(), Vec::new());
        let found = view
            .directory(&top)
            .and_then(|directory| find_roots(&directory, package, &mut roots, &mut locations));
        if let Err(error) = found {
            let warning = format!("cannot look through '{top}': {error}");
            self.done.warnings.push(warning);
        }
        for name in roots.into_iter().filter(|name| *name != top) {
            let task = InheritKey { name: name.clone() };
            if let Err(error) = open.pool.run(task, self.operation) {
                let warning = format!("cannot have '{name}' inherit its key: {error}");
                self.done.warnings.push(warning);
            }
        }
        for (name, location) in locations {
            let task = SetProperties {
                name: name.clone(),
                settings: vec![Checked {
                    name: KEY_LOCATION.to_string(),
                    property: table::find(KEY_LOCATION),
                    setting: Setting::Text(location),
                }],
                source: Source::Local,
            };
            if let Err(error) = open.pool.run(task, self.operation) {
                let warning = format!("cannot say where the key of '{name}' is: {error}");
                self.done.warnings.push(warning);
            }
        }
    }
}

/// Encryption roots here that are none at the sender, those above others first; and those that are, with where their key is.
fn find_roots(
    directory: &Directory<'_>,
    package: &Package,
    roots: &mut Vec<String>,
    locations: &mut Vec<(String, String)>,
) -> Result<(), DatasetError> {
    if let Some(head) = head_of(directory.view(), directory.name())?
        && crypto_key::is_root(directory)?
    {
        let mut sent = None;
        for snapshot in head.snapshots()? {
            sent = sent.or(package.find(snapshot.stored()?.guid.get()));
        }
        match sent {
            Some(sent) if sent.is_key_root => {
                let location = sent.key_location();
                locations.extend(location.map(|location| (head.name(), location)));
            }
            Some(_) => roots.push(head.name()),
            None => {}
        }
    }
    for child in directory.children()? {
        find_roots(&child, package, roots, locations)?;
    }
    Ok(())
}
