//! The properties of a new file system, checked, and its first objects.
//!
//! Four properties are fixed at creation: version, normalisation, UTF-8 only, case sensitivity.
//! They are in the master node and not among the dataset's properties.

use std::sync::Arc;
use tarn_dataset::initialize::{FillError, FillFilesystem, NewFilesystem};
use tarn_dataset::properties::parse::{Checked, Moment, Setting, check};
use tarn_dataset::properties::value::Kinds;
use tarn_object::zap::ZapValue;
use tarn_object::{ObjectSet, Tx};
use tarn_posix::{CaseSensitivity, NewFileSystem, create_filesystem};
use tarn_probe::Operation;

/// The properties of a new file system, by where they are stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct FilesystemSettings {
    /// Those in the master node.
    pub(crate) facts: NewFilesystem,
    /// Those that are stored as properties of the dataset.
    pub(crate) stored: Vec<Checked>,
}

impl FilesystemSettings {
    /// Checks the given properties.
    ///
    /// # Errors
    /// The reason against the first bad one, in OpenZFS's words.
    #[doc(alias = "zfs_fill_zplprops")]
    pub(crate) fn parse(given: &[(String, String)]) -> Result<FilesystemSettings, String> {
        let mut settings = FilesystemSettings::default();
        for (name, value) in given {
            let checked = check(name, value, Kinds::FILESYSTEM, Moment::Creation)?;
            settings.add(checked);
        }
        // Only UTF-8 names can be normalised.
        settings.facts.utf8_only |= settings.facts.normalization != 0;
        Ok(settings)
    }

    fn add(&mut self, checked: Checked) {
        match (checked.name.as_str(), &checked.setting) {
            ("version", Setting::Number(version)) => self.facts.version = *version,
            ("normalization", Setting::Number(form)) => self.facts.normalization = *form,
            ("utf8only", Setting::Number(on)) => self.facts.utf8_only = *on != 0,
            ("casesensitivity", Setting::Number(case)) => self.facts.case = *case,
            _ => {
                self.stored.retain(|other| other.name != checked.name);
                self.stored.push(checked);
            }
        }
    }

    /// Takes the properties of these names out.
    pub(crate) fn take(&mut self, names: &[&str]) -> Vec<Checked> {
        let stored = std::mem::take(&mut self.stored);
        let is_named = |checked: &Checked| names.contains(&checked.name.as_str());
        let (taken, left) = stored.into_iter().partition(is_named);
        self.stored = left;
        taken
    }

    /// The values as they are stored.
    pub(crate) fn zap_values(&self) -> Vec<(String, ZapValue)> {
        let stored = self.stored.iter().map(|checked| {
            let value = match &checked.setting {
                Setting::Number(number) => ZapValue::word(*number),
                Setting::Text(text) => ZapValue::text(text),
            };
            (checked.name.clone(), value)
        });
        stored.collect()
    }

    /// The text value of a stored property.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.stored.iter().find(|checked| checked.name == name)?;
        match &found.setting {
            Setting::Text(text) => Some(text),
            Setting::Number(_) => None,
        }
    }
}

/// Writes the first objects of a new file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill;

impl FillFilesystem for Fill {
    fn fill(
        &self,
        tx: &Tx,
        set: &Arc<ObjectSet>,
        facts: &NewFilesystem,
        operation: &Operation,
    ) -> Result<(), FillError> {
        let new = NewFileSystem {
            version: facts.version,
            normalization: facts.normalization,
            is_utf8_only: facts.utf8_only,
            case: CaseSensitivity::from_number(facts.case)
                .ok_or("casesensitivity has no such value")?,
            uid: facts.user,
            gid: facts.group,
        };
        Ok(create_filesystem(tx, set, &new, operation)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(given: &[(&str, &str)]) -> Result<FilesystemSettings, String> {
        let given: Vec<_> = given
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        FilesystemSettings::parse(&given)
    }

    #[test]
    fn properties_fixed_at_creation_are_in_the_master_node() {
        let settings = parsed(&[
            ("normalization", "formC"),
            ("casesensitivity", "mixed"),
            ("compression", "off"),
            ("a:b", "c"),
        ]);
        let settings = settings.unwrap();
        assert!(settings.facts.utf8_only);
        assert_eq!(settings.facts.case, 2);
        let names: Vec<_> = settings.stored.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["compression", "a:b"]);
        assert_eq!(settings.text("a:b"), Some("c"));
    }

    #[test]
    fn unknown_properties_of_a_file_system_are_refused() {
        let refused = parsed(&[("volsize", "1G")]).unwrap_err();
        assert_eq!(refused, "'volsize' does not apply to datasets of this type");
    }
}
