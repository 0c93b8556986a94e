//! Properties as they are asked for: `-o` of `zfs list`, the first argument of `zfs get`, `-s` and
//! `-S`.
//!
//! # Widths
//! A column is at least as wide as its heading and as the longest word its property may have.
//! Numbers that people read have at most five characters, so their columns do not look at the
//! values; every other column grows with them. Widths are bytes, as C's `printf` counts them.

use crate::answers;
use tarn_administration::messages::dataset::DatasetDescription;
use tarn_engine::names::is_user_property;
use tarn_engine::properties::parse::meant;
use tarn_engine::properties::table::{PROPERTIES, find};
use tarn_engine::properties::value::{Form, Property};
use tarn_terminal::failure::Failure;
use tarn_terminal::show::Exactness;

/// Beginnings of properties that are asked of a user, a group or a project, or that count since a
/// snapshot or bookmark.
const OF: [&str; 14] = [
    "userused@",
    "userquota@",
    "groupused@",
    "groupquota@",
    "userobjused@",
    "userobjquota@",
    "groupobjused@",
    "groupobjquota@",
    "projectused@",
    "projectquota@",
    "projectobjused@",
    "projectobjquota@",
    "written@",
    "written#",
];

/// What `space` stands for.
const SPACE: [&str; 7] = [
    "name",
    "available",
    "used",
    "usedbysnapshots",
    "usedbydataset",
    "usedbyrefreservation",
    "usedbychildren",
];

/// Numbers whose columns grow with their values, since people see all their digits.
const FLEXIBLE_NUMBERS: [&str; 6] = [
    "guid",
    "createtxg",
    "pbkdf2iters",
    "objsetid",
    "creation",
    "snapshots_changed",
];

/// The longest number that people read: `20.4M`.
const NICE_NUMBER_WIDTH: usize = 5;

/// One property.
#[derive(Debug, Clone)]
pub enum Asked {
    /// A native one.
    Native(&'static Property),
    /// A user property.
    User(String),
    /// What was written since a snapshot or bookmark, or is asked of a user, a group or a project.
    Of(String),
}

impl Asked {
    /// The property of this name, if there can be one.
    pub fn find(name: &str) -> Option<Asked> {
        let name = meant(name);
        match find(name) {
            Some(property) => Some(Asked::Native(property)),
            None if OF.iter().any(|beginning| name.starts_with(beginning)) => {
                Some(Asked::Of(name.to_string()))
            }
            None if is_user_property(name) => Some(Asked::User(name.to_string())),
            None => None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Asked::Native(property) => property.name,
            Asked::User(name) | Asked::Of(name) => name,
        }
    }

    /// The heading of its column.
    pub fn heading(&self) -> String {
        match self {
            Asked::Native(property) => property.column.to_string(),
            Asked::User(name) | Asked::Of(name) => name.to_ascii_uppercase(),
        }
    }

    /// True for columns whose values are aligned to the right.
    pub fn aligns_right(&self) -> bool {
        match self {
            Asked::Native(property) => property.aligns_right(),
            Asked::User(_) => false,
            Asked::Of(_) => true,
        }
    }

    /// True for columns whose heading is aligned to the right.
    pub fn heading_aligns_right(&self) -> bool {
        matches!(self, Asked::Native(property) if property.aligns_right())
    }

    /// The width of its column before any value was seen.
    pub fn least_width(&self) -> usize {
        match self {
            Asked::User(name) | Asked::Of(name) => name.len(),
            Asked::Native(property) => match property.form {
                Form::Number => property.column.len().max(NICE_NUMBER_WIDTH),
                Form::Word(words) => words
                    .iter()
                    .map(|(word, _)| word.len())
                    .fold(property.column.len(), usize::max),
                Form::Text => property.column.len(),
            },
        }
    }

    /// True when its column does not grow with what people read in it.
    pub fn is_fixed(&self) -> bool {
        match self {
            Asked::Native(property) => {
                matches!(property.form, Form::Number) && !FLEXIBLE_NUMBERS.contains(&property.name)
            }
            Asked::User(_) => false,
            // OpenZFS looks at user properties only.
            Asked::Of(_) => true,
        }
    }

    /// The width of its column over these datasets.
    pub fn width(&self, datasets: &[DatasetDescription], exactness: Exactness) -> usize {
        let never_grows = matches!(self, Asked::Of(_));
        if never_grows || (self.is_fixed() && exactness == Exactness::Nice) {
            return self.least_width();
        }
        datasets
            .iter()
            .filter_map(|dataset| answers::text(dataset, self, exactness))
            .map(|text| text.len())
            .fold(self.least_width(), usize::max)
    }
}

/// What was asked for.
#[derive(Debug, Clone)]
pub enum List {
    /// `all`: every native property that applies, and the user properties that are there.
    All,
    /// These.
    These(Vec<Asked>),
}

impl List {
    /// A list separated by commas.
    ///
    /// # Errors
    /// A name that no property can have, or one that this version cannot answer.
    pub fn parse(text: &str) -> Result<List, Failure> {
        match text {
            "all" => return Ok(List::All),
            "" => return Err(Failure::usage("bad property list: no properties specified")),
            _ => {}
        }
        let mut these = Vec::new();
        for name in text.split(',') {
            match name {
                "space" => these.extend(SPACE.iter().filter_map(|name| Asked::find(name))),
                name => these.push(one(name)?),
            }
        }
        Ok(List::These(these))
    }

    /// The names to ask the engine for; none for all.
    pub fn names(&self) -> Vec<String> {
        match self {
            List::All => Vec::new(),
            List::These(these) => these.iter().map(|asked| asked.name().to_string()).collect(),
        }
    }

    /// The properties in the order of printing; with `all`, those that these datasets show.
    pub fn expand(&self, datasets: &[DatasetDescription]) -> Vec<Asked> {
        let List::These(these) = self else {
            let native = PROPERTIES
                .iter()
                .filter(|row| row.visible && is_among_all(row, datasets))
                .map(Asked::Native);
            return native.chain(user_properties(datasets)).collect();
        };
        these.clone()
    }
}

/// Whether `all` has a column for a property: OpenZFS 2.3 has no default quotas, so they have one
/// where they are set.
fn is_among_all(property: &Property, datasets: &[DatasetDescription]) -> bool {
    let name = property.name;
    let is_later = name.starts_with("default") && name.ends_with("quota");
    let mut shown = datasets.iter().map(|dataset| &dataset.properties);
    !is_later || shown.any(|properties| properties.contains_key(name))
}

/// One name of a list.
fn one(name: &str) -> Result<Asked, Failure> {
    Asked::find(name)
        .ok_or_else(|| Failure::usage(format!("bad property list: invalid property '{name}'")))
}

/// The user properties of these datasets, each once.
fn user_properties(datasets: &[DatasetDescription]) -> Vec<Asked> {
    let mut names: Vec<&String> = Vec::new();
    for name in datasets
        .iter()
        .flat_map(|dataset| dataset.properties.keys())
    {
        if name.contains(':') && !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().cloned().map(Asked::User).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        List::parse(text).unwrap().names()
    }

    #[test]
    fn short_names_and_space_stand_for_properties() {
        assert_eq!(
            names("name,avail,ratio,shareiscsi"),
            ["name", "available", "compressratio", "tarn:shareiscsi"]
        );
        assert_eq!(names("space").len(), 7);
        assert_eq!(names("com.example:note"), ["com.example:note"]);
    }

    #[test]
    fn a_name_that_no_property_has_is_refused() {
        let refused = |text| List::parse(text).unwrap_err();
        assert_eq!(
            refused("name,nonsense"),
            Failure::usage("bad property list: invalid property 'nonsense'")
        );
        assert_eq!(
            refused(""),
            Failure::usage("bad property list: no properties specified")
        );
    }

    #[test]
    fn what_a_user_uses_is_asked_for_by_name() {
        assert_eq!(
            names("userused@ann,projectquota@7"),
            ["userused@ann", "projectquota@7"]
        );
        let asked = Asked::find("groupobjquota@staff").unwrap();
        assert_eq!(asked.heading(), "GROUPOBJQUOTA@STAFF");
        assert!(asked.aligns_right() && !asked.heading_aligns_right());
        assert!(List::parse("userspace@ann").is_err());
    }

    #[test]
    fn what_was_written_since_is_asked_for_by_name() {
        assert_eq!(names("written@a,written#b"), ["written@a", "written#b"]);
        let asked = Asked::find("written@tank/a@b").unwrap();
        assert_eq!(asked.heading(), "WRITTEN@TANK/A@B");
        assert!(asked.aligns_right() && !asked.heading_aligns_right());
    }

    #[test]
    fn columns_hold_their_heading_and_every_word() {
        let width = |name| Asked::find(name).unwrap().least_width();
        assert_eq!(width("used"), 5);
        assert_eq!(width("compression"), "zstd-fast-1000".len());
        assert_eq!(width("special_small_blocks"), "SPECIAL_SMALL_BLOCKS".len());
        assert_eq!(width("com.example:note"), 16);
    }
}
