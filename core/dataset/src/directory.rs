//! Directories: nodes of the tree of datasets, with their space, limits, properties and children.

use crate::error::DatasetError;
use crate::namespace::View;
use crate::stored;
use crate::stored_tree::DEPTH_MAX;
use std::sync::Arc;
use tarn_object::Object;
use tarn_ondisk as ondisk;
use tarn_ondisk::units::ObjectId;

/// A directory of the tree. A handle: what it tells is read from the MOS each time.
#[derive(Clone)]
pub struct Directory<'a> {
    view: View<'a>,
    object: Arc<Object>,
    name: String,
}

impl<'a> Directory<'a> {
    /// The directory in this object, under a full name that the caller knows.
    pub(crate) fn open(view: View<'a>, id: ObjectId, name: String) -> Result<Self, DatasetError> {
        Ok(Directory {
            view,
            object: view.mos().object(id)?,
            name,
        })
    }

    /// Its object number.
    pub fn id(&self) -> ObjectId {
        self.object.id()
    }

    /// Its full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tree it is in.
    pub fn view(&self) -> View<'a> {
        self.view
    }

    /// What is stored of it.
    pub fn stored(&self) -> Result<ondisk::dataset_dir::DatasetDirectory, DatasetError> {
        stored::read_bonus(&self.object)
    }

    /// The parent; none for the root.
    pub fn parent(&self) -> Result<Option<Directory<'a>>, DatasetError> {
        let parent = self.stored()?.parent;
        if parent.is_zero() {
            return Ok(None);
        }
        let name = self.name.rsplit_once('/').map_or("", |(parent, _)| parent);
        Directory::open(self.view, parent, name.to_string()).map(Some)
    }

    /// The child of this name.
    pub fn child(&self, component: &str) -> Result<Option<Directory<'a>>, DatasetError> {
        let children = self.stored()?.children;
        let Some(id) = self.view.mos().number(children, component)? else {
            return Ok(None);
        };
        let name = format!("{}/{component}", self.name);
        Directory::open(self.view, ObjectId::new(id), name).map(Some)
    }

    /// Names and objects of all children, sorted by name; the pool's own (`$MOS`, `$FREE`,
    /// `$ORIGIN`) among them.
    pub(crate) fn child_ids(&self) -> Result<Vec<(String, ObjectId)>, DatasetError> {
        self.view.mos().names_and_objects(self.stored()?.children)
    }

    /// Components of the names of children that users see, sorted.
    pub fn child_names(&self) -> Result<Vec<String>, DatasetError> {
        let ids = self.child_ids()?;
        let seen = ids.into_iter().filter(is_shown);
        Ok(seen.map(|(component, _)| component).collect())
    }

    /// Components of the names of children that users see, in the order in which they are stored.
    pub fn stored_child_names(&self) -> Result<Vec<String>, DatasetError> {
        let mos = self.view.mos();
        let entries = mos.entries(self.stored()?.children)?.into_iter();
        let ids = entries.filter_map(|(name, value)| Some((name, ObjectId::new(value.as_word()?))));
        Ok(ids.filter(is_shown).map(|(name, _)| name).collect())
    }

    /// Children that users see, sorted by name.
    pub fn children(&self) -> Result<Vec<Directory<'a>>, DatasetError> {
        let ids = self.child_ids()?;
        ids.into_iter()
            .filter(is_shown)
            .map(|(component, id)| {
                Directory::open(self.view, id, format!("{}/{component}", self.name))
            })
            .collect()
    }

    /// A number under a name in the directory's own ZAP (feature `extensible_dataset`).
    pub fn extension(&self, name: &str) -> Result<Option<u64>, DatasetError> {
        if !stored::is_zap(&self.object) {
            return Ok(None);
        }
        self.view.mos().number(self.id(), name)
    }

    /// The directories from this one up to the root, this one first.
    pub fn lineage(&self) -> Result<Vec<Directory<'a>>, DatasetError> {
        let mut lineage = vec![self.clone()];
        while let Some(parent) = lineage.last().and_then(|last| last.parent().transpose()) {
            lineage.push(parent?);
            if lineage.len() > DEPTH_MAX {
                return Err(DatasetError::Inconsistent {
                    object: self.id(),
                    why: "its chain of parents does not end",
                });
            }
        }
        debug_assert!(
            lineage.len() <= DEPTH_MAX && lineage[0].id() == self.id(),
            "a lineage begins with the directory itself"
        );
        Ok(lineage)
    }
}

impl<'a> View<'a> {
    /// The root directory.
    ///
    /// # Errors
    /// What could not be read.
    pub fn root(self) -> Result<Directory<'a>, DatasetError> {
        Directory::open(
            self,
            self.namespace().stored().root_directory(),
            self.namespace().pool_name().to_string(),
        )
    }

    /// The directory of a file system or volume, by full name without `@` or `#`.
    ///
    /// # Errors
    /// `NotFound` when a component is missing.
    pub fn directory(self, name: &str) -> Result<Directory<'a>, DatasetError> {
        let not_found = || DatasetError::NotFound {
            name: name.to_string(),
        };
        let mut components = name.split('/');
        if components.next() != Some(self.namespace().pool_name()) {
            return Err(not_found());
        }
        let mut directory = self.root()?;
        for component in components {
            directory = directory.child(component)?.ok_or_else(not_found)?;
        }
        Ok(directory)
    }

    /// The full name of a directory, found through its parents.
    ///
    /// # Errors
    /// What could not be read, or parents that lead in a circle.
    pub fn directory_name(self, id: ObjectId) -> Result<String, DatasetError> {
        let mut components = Vec::new();
        let mut current = id;
        while current != self.namespace().stored().root_directory() {
            if components.len() > DEPTH_MAX {
                return Err(DatasetError::Inconsistent {
                    object: id,
                    why: "its chain of parents does not end",
                });
            }
            let directory = Directory::open(self, current, String::new())?;
            let parent = directory.stored()?.parent;
            let parent_directory = Directory::open(self, parent, String::new())?;
            let children = parent_directory.child_ids()?;
            let found = children.into_iter().find(|(_, child)| *child == current);
            let (component, _) = found.ok_or(DatasetError::Inconsistent {
                object: current,
                why: "its parent does not have it as a child",
            })?;
            components.push(component);
            current = parent;
        }
        debug_assert!(components.len() <= DEPTH_MAX + 1, "a chain of parents ends");
        components.push(self.namespace().pool_name().to_string());
        components.reverse();
        Ok(components.join("/"))
    }
}

/// Whether users see a child: not the pool's own, nor what a receive makes on the side.
fn is_shown((component, _): &(String, ObjectId)) -> bool {
    !component.starts_with('$') && !component.contains('%')
}
