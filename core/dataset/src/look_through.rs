//! Lists many datasets, one after the other.
//!
//! # Problem
//! There can be tens of thousands. To see all of them at one instant, everything would have to be
//! read again after each creation or destruction, and a busy pool could never be listed.
//!
//! # Mechanism
//! Each dataset is seen in one state, with the names of the datasets below it; the tree as a whole
//! may change in between. A dataset that was destroyed before its turn is left out. The objset
//! blocks, which most callers read, are read ahead, some datasets at a time.

use crate::directory::Directory;
use crate::error::DatasetError;
use crate::namespace::Namespace;
use tarn_probe::Operation;

/// How many heads are read ahead. A guess: as many as devices read at once, and their objects stay
/// in memory until it is their turn.
const AHEAD: usize = 64;

/// The result for one directory.
#[derive(Debug)]
pub struct Look<T> {
    /// What is of interest.
    pub found: Vec<T>,
    /// Whether to look at what is below it.
    pub goes_on: bool,
}

impl Namespace {
    /// What `look` makes of a directory and of those below it, each before those below it, and
    /// these by their names. A depth of 0 is the directory alone. What a look gives is thrown away
    /// if the tree has changed in between: it is called again then.
    ///
    /// # Errors
    /// Those of `look`; `NotFound` when the first is not there.
    pub fn look_through<T>(
        &self,
        first: &str,
        depth: Option<u64>,
        operation: &Operation,
        look: impl Fn(&Directory<'_>) -> Result<Look<T>, DatasetError>,
    ) -> Result<Vec<T>, DatasetError> {
        let mut found = Vec::new();
        self.look_at(first, depth, operation, &look, &mut found)?;
        Ok(found)
    }

    /// The names of a directory and of those below it, each before those below it, and these by
    /// their names. No head is read.
    ///
    /// # Errors
    /// `NotFound` when the first is not there; what could not be read.
    pub fn names_below(
        &self,
        first: &str,
        operation: &Operation,
    ) -> Result<Vec<String>, DatasetError> {
        let before = self.version();
        let names = self.names_at_once(first, operation);
        if before.is_multiple_of(2) && self.version() == before {
            return names;
        }
        // Each directory is found by its name then: its object may be another's by now.
        let mut names = Vec::new();
        let mut pending = vec![first.to_string()];
        while let Some(name) = pending.pop() {
            let children =
                self.consistently(|| self.view(operation).directory(&name)?.child_names());
            match children {
                // It was destroyed, or has another name.
                Err(DatasetError::NotFound { .. }) if !names.is_empty() => {}
                children => {
                    let below = children?.into_iter().rev();
                    pending.extend(below.map(|child| format!("{name}/{child}")));
                    names.push(name);
                }
            }
        }
        Ok(names)
    }

    /// The same, all by one walk. What it gives is right if the tree has not changed meanwhile.
    fn names_at_once(
        &self,
        first: &str,
        operation: &Operation,
    ) -> Result<Vec<String>, DatasetError> {
        let mut names = Vec::new();
        let mut pending = vec![self.view(operation).directory(first)?];
        while let Some(directory) = pending.pop() {
            pending.extend(directory.children()?.into_iter().rev());
            names.push(directory.name().to_string());
        }
        Ok(names)
    }

    /// Looks at one directory and what is below it. Names bound the depth.
    fn look_at<T>(
        &self,
        name: &str,
        depth: Option<u64>,
        operation: &Operation,
        look: &dyn Fn(&Directory<'_>) -> Result<Look<T>, DatasetError>,
        found: &mut Vec<T>,
    ) -> Result<(), DatasetError> {
        let (here, children) = self.consistently(|| {
            let directory = self.view(operation).directory(name)?;
            let here = look(&directory)?;
            let children = match here.goes_on && depth != Some(0) {
                true => directory.child_names()?,
                false => Vec::new(),
            };
            Ok((here.found, children))
        })?;
        found.extend(here);
        let depth = depth.map(|depth| depth.saturating_sub(1));
        for part in children.chunks(AHEAD) {
            let names: Vec<String> = part.iter().map(|child| format!("{name}/{child}")).collect();
            self.expect_heads(&names, operation);
            for child in names {
                match self.look_at(&child, depth, operation, look, found) {
                    // It was destroyed, or has another name.
                    Err(DatasetError::NotFound { .. }) => {}
                    outcome => outcome?,
                }
            }
        }
        Ok(())
    }

    /// Has the heads of these datasets' object sets read. One that cannot be found is passed over:
    /// the command that reads it says why.
    fn expect_heads(&self, names: &[String], operation: &Operation) {
        if names.len() < 2 {
            return;
        }
        let root = |name: &String| {
            let head = self.view(operation).directory(name).ok()?.head().ok()??;
            Some((head.id(), head.stored().ok()?.root))
        };
        let roots: Vec<_> = names.iter().filter_map(root).collect();
        self.mos().env().expect_heads(&roots, operation);
    }
}
