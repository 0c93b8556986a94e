//! Datasets: heads and snapshots, as they are stored.

use crate::directory::Directory;
use crate::error::DatasetError;
use crate::names::{DatasetName, NameKind};
use crate::namespace::View;
pub use crate::stored::NamedBookmark;
use crate::stored::{self, Reading};
use std::sync::Arc;
use tarn_object::Object;
use tarn_ondisk as ondisk;
use tarn_ondisk::units::ObjectId;

/// Longest chain of snapshots that is followed: a guard against a chain that bites its tail.
const SNAPSHOTS_MAX: usize = 16 << 20;

/// A head or a snapshot. A handle: what it tells is read from the MOS each time.
#[derive(Clone)]
pub struct Dataset<'a> {
    object: Arc<Object>,
    directory: Directory<'a>,
    /// The snapshot's short name; none for heads.
    snapshot_name: Option<String>,
}

impl<'a> Dataset<'a> {
    /// The dataset in this object of the MOS.
    pub(crate) fn open(
        id: ObjectId,
        directory: Directory<'a>,
        snapshot_name: Option<String>,
    ) -> Result<Self, DatasetError> {
        Ok(Dataset {
            object: directory.view().mos().object(id)?,
            directory,
            snapshot_name,
        })
    }

    /// The head in this object, without its name: finding the name takes longer than all the rest.
    pub(crate) fn open_unnamed(view: View<'a>, id: ObjectId) -> Result<Self, DatasetError> {
        let object = view.mos().object(id)?;
        let dataset: ondisk::dataset::Dataset = stored::read_bonus(&object)?;
        Ok(Dataset {
            object,
            directory: Directory::open(view, dataset.directory, String::new())?,
            snapshot_name: None,
        })
    }

    /// The dataset in this object, whose names are found from the objects that have them.
    pub(crate) fn open_by_id(view: View<'a>, id: ObjectId) -> Result<Self, DatasetError> {
        let mos = view.mos();
        let object = mos.object(id)?;
        let dataset: ondisk::dataset::Dataset = stored::read_bonus(&object)?;
        let name = view.directory_name(dataset.directory)?;
        let directory = Directory::open(view, dataset.directory, name)?;
        if !dataset.is_snapshot() {
            return Ok(Dataset {
                object,
                directory,
                snapshot_name: None,
            });
        }
        let head = directory.stored()?.head_dataset;
        let head: ondisk::dataset::Dataset = mos.bonus_of(head)?;
        let names = mos.names_and_objects(head.snapshot_names)?;
        let found = names.into_iter().find(|(_, snapshot)| *snapshot == id);
        let (snapshot_name, _) = found.ok_or(DatasetError::Inconsistent {
            object: id,
            why: "its head does not have it among its snapshots",
        })?;
        Ok(Dataset {
            object,
            directory,
            snapshot_name: Some(snapshot_name),
        })
    }

    /// Its object number in the MOS: the `objsetid` property.
    pub fn id(&self) -> ObjectId {
        self.object.id()
    }

    /// Its full name.
    pub fn name(&self) -> String {
        match &self.snapshot_name {
            None => self.directory.name().to_string(),
            Some(snapshot) => format!("{}@{snapshot}", self.directory.name()),
        }
    }

    /// The short name of a snapshot.
    pub fn snapshot_name(&self) -> Option<&str> {
        self.snapshot_name.as_deref()
    }

    /// True for snapshots.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot_name.is_some()
    }

    /// Its directory.
    pub fn directory(&self) -> &Directory<'a> {
        &self.directory
    }

    /// The MOS, to read.
    fn mos(&self) -> Reading<'a> {
        self.directory.view().mos()
    }

    /// What is stored of it.
    pub fn stored(&self) -> Result<ondisk::dataset::Dataset, DatasetError> {
        stored::read_bonus(&self.object)
    }

    /// The snapshot of this head with this short name.
    pub fn snapshot(&self, name: &str) -> Result<Option<Dataset<'a>>, DatasetError> {
        let stored = self.stored()?;
        let any_case = stored
            .flags
            .contains(ondisk::dataset::DatasetFlags::CASE_INSENSITIVE);
        let found = self
            .mos()
            .named_object(stored.snapshot_names, name, any_case)?;
        let Some((name, id)) = found else {
            return Ok(None);
        };
        Dataset::open(id, self.directory.clone(), Some(name)).map(Some)
    }

    /// The snapshots of this head, oldest first.
    pub fn snapshots(&self) -> Result<Vec<Dataset<'a>>, DatasetError> {
        let mos = self.mos();
        let names = mos.names_and_objects(self.stored()?.snapshot_names)?;
        if names.len() > SNAPSHOTS_MAX {
            return Err(DatasetError::Inconsistent {
                object: self.id(),
                why: "it has more snapshots than can be",
            });
        }
        let mut snapshots = Vec::with_capacity(names.len());
        for (name, id) in names {
            let snapshot = Dataset::open(id, self.directory.clone(), Some(name))?;
            snapshots.push((snapshot.stored()?.creation_txg, snapshot));
        }
        snapshots.sort_by_key(|(created, snapshot)| (*created, snapshot.id()));
        Ok(snapshots
            .into_iter()
            .map(|(_, snapshot)| snapshot)
            .collect())
    }

    /// Names and objects of up to so many snapshots of this head, in the order in which they are
    /// stored, from a cookie on (0 is the start). Each comes with the cookie of what follows it,
    /// which stays good while others come and go.
    pub fn snapshot_names_from(
        &self,
        cookie: u64,
        count_max: usize,
    ) -> Result<Vec<(String, ObjectId, u64)>, DatasetError> {
        self.mos()
            .named_objects_from(self.stored()?.snapshot_names, cookie, count_max)
    }

    /// How many snapshots this head has.
    pub fn snapshot_count(&self) -> Result<u64, DatasetError> {
        self.mos().count(self.stored()?.snapshot_names)
    }

    /// How many bytes the longest name of a snapshot of this head has.
    pub(crate) fn longest_snapshot_name(&self) -> Result<Option<usize>, DatasetError> {
        let names = self
            .mos()
            .names_and_objects(self.stored()?.snapshot_names)?;
        Ok(names.iter().map(|(name, _)| name.len()).max())
    }

    /// The bookmark of this head with this short name. As of snapshots, a name in another case will
    /// do where the dataset does not tell cases apart.
    #[doc(alias = "dsl_bookmark_lookup_impl")]
    pub fn bookmark(&self, name: &str) -> Result<Option<NamedBookmark>, DatasetError> {
        let flags = self.stored()?.flags;
        let any_case = flags.contains(ondisk::dataset::DatasetFlags::CASE_INSENSITIVE);
        let bookmarks = self.bookmarks()?;
        let exact = bookmarks.iter().find(|one| one.name == name);
        let equal = || {
            let mut all = bookmarks.iter().filter(|_| any_case);
            all.find(|one| one.name.eq_ignore_ascii_case(name))
        };
        Ok(exact.or_else(equal).cloned())
    }

    /// The bookmarks of this head, sorted by name.
    pub fn bookmarks(&self) -> Result<Vec<NamedBookmark>, DatasetError> {
        let mos = self.mos();
        let Some(names) = self.extension(ondisk::dataset::BOOKMARK_NAMES)? else {
            return Ok(Vec::new());
        };
        mos.bookmarks(ObjectId::new(names))
    }

    /// A number under a name in the dataset's own ZAP (feature `extensible_dataset`).
    pub fn extension(&self, name: &str) -> Result<Option<u64>, DatasetError> {
        if !stored::is_zap(&self.object) {
            return Ok(None);
        }
        self.mos().number(self.id(), name)
    }

    /// Features that this dataset uses, by guid: the names of its own ZAP that are features.
    pub fn uses_feature(&self, guid: &str) -> Result<bool, DatasetError> {
        Ok(self.extension(guid)?.is_some())
    }

    /// The snapshot before this one, or the newest snapshot of a head; for a clone without one, its
    /// origin.
    pub fn previous(&self) -> Result<Option<ondisk::dataset::Dataset>, DatasetError> {
        let previous = self.stored()?.previous_snapshot;
        if previous.is_zero() {
            return Ok(None);
        }
        self.mos().bonus_of(previous).map(Some)
    }

    /// The deadlist's totals.
    pub fn deadlist_used(&self) -> Result<u64, DatasetError> {
        self.mos().deadlist_used(self.stored()?.deadlist)
    }

    /// Tags of user holds, sorted, and when each was made, in seconds since 1970.
    pub fn holds(&self) -> Result<Vec<(String, u64)>, DatasetError> {
        let entries = self.mos().entries(self.stored()?.user_holds)?;
        let mut holds: Vec<(String, u64)> = entries
            .into_iter()
            .map(|(tag, time)| (tag, time.as_word().unwrap_or(0)))
            .collect();
        holds.sort();
        Ok(holds)
    }

    /// The same in the order in which they are stored.
    pub fn stored_holds(&self) -> Result<Vec<(String, u64)>, DatasetError> {
        let entries = self.mos().entries(self.stored()?.user_holds)?;
        let hold =
            |(tag, time): (String, tarn_object::zap::ZapValue)| (tag, time.as_word().unwrap_or(0));
        Ok(entries.into_iter().map(hold).collect())
    }

    /// Count of user holds.
    pub fn hold_count(&self) -> Result<u64, DatasetError> {
        self.mos().count(self.stored()?.user_holds)
    }

    /// Objects of the heads that are clones of this snapshot.
    pub fn clone_ids(&self) -> Result<Vec<ObjectId>, DatasetError> {
        self.mos().number_names(self.stored()?.next_clones)
    }
}

impl<'a> Directory<'a> {
    /// The dataset that is mounted and written; none for the pool's own directories.
    pub fn head(&self) -> Result<Option<Dataset<'a>>, DatasetError> {
        let id = self.stored()?.head_dataset;
        if id.is_zero() {
            return Ok(None);
        }
        Dataset::open(id, self.clone(), None).map(Some)
    }
}

impl<'a> View<'a> {
    /// The dataset of this name: a head, or a snapshot.
    ///
    /// # Errors
    /// `NotFound`; bookmarks are no datasets, and are not found here.
    pub fn dataset(self, name: &DatasetName) -> Result<Dataset<'a>, DatasetError> {
        let not_found = || DatasetError::NotFound {
            name: name.to_string(),
        };
        let head = self.directory(name.head())?.head()?.ok_or_else(not_found)?;
        match (name.kind(), name.tail()) {
            (NameKind::Head, _) => Ok(head),
            (NameKind::Snapshot, Some(tail)) => head.snapshot(tail)?.ok_or_else(not_found),
            _ => Err(not_found()),
        }
    }

    /// The dataset of this object number, with its full name found through its parents.
    ///
    /// # Errors
    /// There is no such dataset, or what could not be read.
    pub fn dataset_by_id(self, id: ObjectId) -> Result<Dataset<'a>, DatasetError> {
        Dataset::open_by_id(self, id)
    }

    /// The dataset of this object number, without its name: finding the name takes longer than all
    /// the rest.
    ///
    /// # Errors
    /// There is no such dataset, or what could not be read.
    pub fn dataset_without_name(self, id: ObjectId) -> Result<Dataset<'a>, DatasetError> {
        Dataset::open_unnamed(self, id)
    }
}
