//! `zfs list` and `zfs get`: datasets, and the datasets below them.

use super::owners::Viewer;
use super::properties::{self, Wanted};
use super::{bad_name, cannot_open, kind_of, missing_path};
use crate::administrator::Administrator;
use crate::messages::dataset::{DatasetDescription, DatasetKind, Describe, Described};
use crate::messages::{Caller, Refusal, RefusalKind};
use std::path::Path;
use std::sync::Arc;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::look_through::Look;
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_engine::engine::OpenPool;
use tarn_engine::mounts;
use tarn_engine::turns::stuck;
use tarn_probe::Operation;

/// Which parts of the tree to describe.
struct Scope<'a> {
    open: &'a OpenPool,
    kinds: &'a [DatasetKind],
    wanted: &'a Wanted,
    operation: &'a Operation,
}

/// A request on one pool, for a thread of its own.
#[derive(Clone)]
struct Wish {
    kinds: Vec<DatasetKind>,
    properties: Vec<String>,
    depth: Option<u64>,
    viewer: Viewer,
    /// The whole pool when none.
    name: Option<DatasetName>,
}

impl Wish {
    fn of(open: &OpenPool, wish: &Wish, operation: &Operation) -> Found {
        let wanted = Wanted::new(&wish.properties, &wish.viewer);
        let scope = Scope {
            open,
            kinds: &wish.kinds,
            wanted: &wanted,
            operation,
        };
        match &wish.name {
            None => scope.whole_pool(wish.depth),
            Some(name) => scope.named(name, wish.depth),
        }
    }
}

type Found = Result<Vec<DatasetDescription>, DatasetError>;

impl Administrator {
    pub(crate) fn describe_datasets(
        &self,
        caller: &Caller,
        request: &Describe,
    ) -> Result<Described, Refusal> {
        let viewer = Viewer::new(self, caller);
        let mut described = Described::default();
        if request.names.is_empty() {
            for open in self.engine.pools() {
                match self.describe_in(&open, request, &viewer, None) {
                    Ok(found) => described.datasets.extend(found),
                    Err(refusal) => described.refused.push(refusal),
                }
            }
            return Ok(described);
        }
        for name in &request.names {
            match self.describe_named(name, request, &viewer) {
                Ok(found) => described.datasets.extend(found),
                Err(refusal) => described.refused.push(refusal),
            }
        }
        Ok(described)
    }

    fn describe_named(
        &self,
        name: &str,
        request: &Describe,
        viewer: &Viewer,
    ) -> Result<Vec<DatasetDescription>, Refusal> {
        let name = self.dataset_named(name)?;
        let parsed = DatasetName::parse(&name).map_err(|bad| bad_name(&name, bad))?;
        let open = self.engine.require_pool_of(&name)?;
        self.describe_in(&open, request, viewer, Some(parsed))
    }

    /// Describes the requested datasets of one pool.
    fn describe_in(
        &self,
        open: &Arc<OpenPool>,
        request: &Describe,
        viewer: &Viewer,
        name: Option<DatasetName>,
    ) -> Result<Vec<DatasetDescription>, Refusal> {
        let shown = match &name {
            None => open.pool.name().to_string(),
            Some(name) => name.to_string(),
        };
        let wish = Wish {
            kinds: request.kinds.clone(),
            properties: request.properties.clone(),
            depth: request.depth,
            viewer: viewer.clone(),
            name,
        };
        let found = self.engine.look(open, move |open, operation| {
            Wish::of(open, &wish, operation)
        });
        let found = found.ok_or_else(|| stuck(&shown))?;
        found.map_err(|error| cannot_open(&shown, &error))
    }

    /// The dataset named by its name, or by a path in its mount.
    #[doc(alias = "zfs_path_to_zhandle")]
    pub(super) fn dataset_named(&self, name: &str) -> Result<String, Refusal> {
        match name.starts_with('/') || name.starts_with("./") {
            true => self.dataset_at(Path::new(name)),
            false => Ok(name.to_string()),
        }
    }

    /// The dataset whose mount a path resolves to.
    pub(super) fn dataset_at(&self, path: &Path) -> Result<String, Refusal> {
        let shown = path.display();
        let key = match self.engine.mounter.find(path) {
            mounts::Found::Mount(key, _) => Some(key),
            mounts::Found::Foreign => None,
            mounts::Found::Missing(why) => return Err(missing_path(&shown.to_string(), why)),
        };
        let found = key.and_then(|key| self.engine.served_by(key));
        found.map(|(_, dataset)| dataset).ok_or_else(|| {
            let action = format!("'{shown}'");
            Refusal::new(RefusalKind::NotFound, action, "not a ZFS filesystem")
        })
    }
}

impl Scope<'_> {
    fn whole_pool(&self, depth: Option<u64>) -> Result<Vec<DatasetDescription>, DatasetError> {
        self.below(self.open.pool.name(), depth, false)
    }

    /// A named dataset of any kind, and the datasets below it.
    fn named(
        &self,
        name: &DatasetName,
        depth: Option<u64>,
    ) -> Result<Vec<DatasetDescription>, DatasetError> {
        let namespace = self.open.pool.namespace();
        match name.kind() {
            NameKind::Head => self.below(name.head(), depth, true),
            NameKind::Snapshot => namespace.consistently(|| {
                let snapshot = namespace.view(self.operation).dataset(name)?;
                let kind = DatasetKind::Snapshot;
                let described = properties::describe(self.open, &snapshot, kind, self.wanted)?;
                Ok(vec![described])
            }),
            NameKind::Bookmark => namespace.consistently(|| Ok(vec![self.bookmark(name)?])),
        }
    }

    /// A dataset and the datasets below it.
    fn below(
        &self,
        first: &str,
        depth: Option<u64>,
        is_named: bool,
    ) -> Result<Vec<DatasetDescription>, DatasetError> {
        let namespace = self.open.pool.namespace();
        namespace.look_through(first, depth, self.operation, |directory| {
            let is_named = is_named && directory.name() == first;
            // Snapshots count as a level below their dataset.
            let is_deep = depth != Some(level_below(first, directory.name()));
            Ok(Look {
                found: self.directory(directory, is_named, is_deep)?,
                goes_on: true,
            })
        })
    }

    fn bookmark(&self, name: &DatasetName) -> Result<DatasetDescription, DatasetError> {
        let not_found = || DatasetError::NotFound {
            name: name.to_string(),
        };
        let view = self.open.pool.namespace().view(self.operation);
        let head = view.directory(name.head())?.head()?;
        let head = head.ok_or_else(not_found)?;
        let bookmark = head.bookmark(name.tail().unwrap_or_default())?;
        let bookmark = bookmark.ok_or_else(not_found)?;
        Ok(properties::describe_bookmark(
            self.open,
            &head,
            &bookmark,
            self.wanted,
        ))
    }

    /// A directory's head, with its snapshots and bookmarks where these are wanted.
    fn directory(
        &self,
        directory: &Directory<'_>,
        is_named: bool,
        is_deep: bool,
    ) -> Result<Vec<DatasetDescription>, DatasetError> {
        let mut found = Vec::new();
        if let Some(head) = directory.head()? {
            let kind = kind_of(&head)?;
            if is_named || self.kinds.contains(&kind) {
                found.push(properties::describe(self.open, &head, kind, self.wanted)?);
            }
            if is_deep {
                self.snapshots_and_bookmarks(&head, &mut found)?;
            }
        }
        Ok(found)
    }

    fn snapshots_and_bookmarks(
        &self,
        head: &Dataset<'_>,
        found: &mut Vec<DatasetDescription>,
    ) -> Result<(), DatasetError> {
        if self.kinds.contains(&DatasetKind::Snapshot) {
            let kind = DatasetKind::Snapshot;
            for snapshot in head.snapshots()? {
                let described = properties::describe(self.open, &snapshot, kind, self.wanted)?;
                found.push(described);
            }
        }
        if self.kinds.contains(&DatasetKind::Bookmark) {
            let bookmarks = head.bookmarks()?;
            let described = bookmarks.iter().map(|bookmark| {
                properties::describe_bookmark(self.open, head, bookmark, self.wanted)
            });
            found.extend(described);
        }
        Ok(())
    }
}

/// How many levels a name is below another.
fn level_below(above: &str, name: &str) -> u64 {
    let components = |name: &str| u64::try_from(name.split('/').count()).unwrap_or(u64::MAX);
    components(name).saturating_sub(components(above))
}
