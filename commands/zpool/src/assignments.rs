//! `property=value` of pools and of their root datasets on a command line.

use tarn_engine::names::is_user_property;
use tarn_engine::properties::parse::meant;
use tarn_engine::properties::pool_table;
use tarn_engine::properties::table;
use tarn_engine::properties::value::Kinds;
use tarn_terminal::failure::{Failure, complain};

/// Whose properties they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Pool,
    Dataset,
}

/// Properties and values in the order given, each property once.
#[derive(Debug, Clone)]
pub struct Assignments {
    owner: Owner,
    pairs: Vec<(String, String)>,
}

impl Assignments {
    /// Properties of a pool, features among them.
    pub fn of_pool() -> Self {
        Assignments {
            owner: Owner::Pool,
            pairs: Vec::new(),
        }
    }

    /// Properties of a file system.
    pub fn of_dataset() -> Self {
        Assignments {
            owner: Owner::Dataset,
            pairs: Vec::new(),
        }
    }

    /// Adds one. What is wrong is said.
    ///
    /// # Errors
    /// A name that no property has, one that was given before, or one that does not go with the
    /// others.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.try_add(name, value).map_err(|text| {
            complain(text);
            Failure::Silent(1)
        })
    }

    /// Adds `ashift=N`, the only property of new vdevs (`-o` of `add`, `attach` and `replace`).
    ///
    /// # Errors
    /// Another property.
    pub fn add_ashift(&mut self, assignment: &str) -> Result<(), Failure> {
        match assignment.split_once('=') {
            None => Err(Failure::usage("missing '=' for -o option")),
            Some(("ashift", number)) => {
                let added = self.add("ashift", number);
                added.map_err(|_| Failure::usage(""))
            }
            Some(_) => Err(Failure::usage("")),
        }
    }

    fn try_add(&mut self, name: &str, value: &str) -> Result<(), String> {
        let known = match self.owner {
            Owner::Pool => self.pool_property(name, value)?,
            Owner::Dataset => dataset_property(name)?,
        };
        if self.find(known).is_some() && known != "cachefile" {
            return Err(format!("property '{name}' specified multiple times"));
        }
        let known = known.to_string();
        self.pairs.retain(|(other, _)| *other != known);
        self.pairs.push((known, value.to_string()));
        Ok(())
    }

    /// The name in full of a property of a pool.
    fn pool_property<'a>(&self, name: &'a str, value: &str) -> Result<&'a str, String> {
        let is_feature = name.starts_with("feature@");
        let known = match pool_table::find(name) {
            Some(row) => row.name,
            None if is_feature => name,
            None => {
                return Err(format!(
                    "property '{name}' is not a valid pool or vdev property"
                ));
            }
        };
        let has_features = || {
            self.pairs
                .iter()
                .any(|(other, _)| other.starts_with("feature@"))
        };
        let has_version = self.find("version").is_some();
        if (is_feature && has_version) || (known == "version" && has_features()) {
            return Err("'feature@' and 'version' properties cannot be specified together".into());
        }
        let is_modern = |set: &str| set != "legacy";
        let is_modern_set = known == "compatibility" && is_modern(value) && has_version;
        let has_modern_set = self.find("compatibility").is_some_and(is_modern);
        if is_modern_set || (known == "version" && has_modern_set) {
            return Err(
                "when 'version' is specified, the 'compatibility' feature may only be set to 'legacy'"
                    .into(),
            );
        }
        Ok(known)
    }

    /// Adds one that was not given.
    pub fn add_default(&mut self, name: &str, value: &str) {
        if self.find(name).is_none() {
            self.pairs.push((name.to_string(), value.to_string()));
        }
    }

    /// The value given to a property.
    pub fn find(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(known, _)| known == name);
        pair.map(|(_, value)| value.as_str())
    }

    /// Takes a property away.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let index = self.pairs.iter().position(|(known, _)| known == name)?;
        Some(self.pairs.remove(index).1)
    }

    /// All pairs.
    pub fn into_pairs(self) -> Vec<(String, String)> {
        self.pairs
    }
}

/// The name in full of a property of a file system.
fn dataset_property(name: &str) -> Result<&str, String> {
    let name = meant(name);
    let is_quota = name.contains("quota@");
    match table::find(name) {
        Some(row) if row.kinds.meets(Kinds::FILESYSTEM) => Ok(row.name),
        _ if is_user_property(name) || is_quota => Ok(name),
        _ => Err(format!(
            "property '{name}' is not a valid filesystem property"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_is_given_once_and_by_any_of_its_names() {
        let mut pool = Assignments::of_pool();
        pool.try_add("ashift", "12").unwrap();
        assert_eq!(
            pool.try_add("ashift", "9"),
            Err("property 'ashift' specified multiple times".into())
        );
        assert_eq!(
            pool.try_add("atime", "on"),
            Err("property 'atime' is not a valid pool or vdev property".into())
        );
        pool.add_default("ashift", "9");
        assert_eq!(pool.take("ashift").as_deref(), Some("12"));
        let mut dataset = Assignments::of_dataset();
        dataset.try_add("compress", "lz4").unwrap();
        assert_eq!(dataset.find("compression"), Some("lz4"));
        assert_eq!(
            dataset.try_add("volsize", "1G"),
            Err("property 'volsize' is not a valid filesystem property".into())
        );
    }

    #[test]
    fn a_version_excludes_features() {
        let mut pool = Assignments::of_pool();
        pool.try_add("version", "28").unwrap();
        let text = "'feature@' and 'version' properties cannot be specified together";
        assert_eq!(
            pool.try_add("feature@lz4_compress", "enabled"),
            Err(text.into())
        );
        let text =
            "when 'version' is specified, the 'compatibility' feature may only be set to 'legacy'";
        assert_eq!(pool.try_add("compatibility", "grub2"), Err(text.into()));
        assert_eq!(pool.try_add("compatibility", "legacy"), Ok(()));
    }
}
