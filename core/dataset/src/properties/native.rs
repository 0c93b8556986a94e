//! The values of native properties of a dataset, exact and with their source.
//!
//! Most properties are looked up ([`inherit`]) and fall back to the table's default. The others are
//! computed from stored structures: space, guids, dates, and a few facts in the dataset's own
//! object set. Properties that a dataset does not have (`origin` of a dataset that is no clone) are
//! left out.
//!
//! Properties of mounts (`mounted`, temporary values, the path of `mountpoint` under an alternate
//! root) are added by the layer that mounts.

use super::inherit::{self, Found, Lineage, Place};
use super::table::PROPERTIES;
use super::value::{Change, Default, Form, Kinds, Property};
use crate::contents::{self, Contents, DEFAULT_QUOTAS};
use crate::creation::ORIGIN;
use crate::crypto_key;
use crate::dataset::{Dataset, NamedBookmark};
use crate::error::DatasetError;
use crate::space_used;
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset_dir::DatasetDirectory;

/// An exact value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// A number.
    Number(u64),
    /// Text, or the word a number stands for.
    Text(String),
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownSource {
    /// Computed.
    None,
    /// It is the default.
    Default,
    /// Set here, inherited, or received.
    Set(Place),
}

/// A property with its value.
#[derive(Debug, Clone)]
pub struct NativeValue {
    /// Its row.
    pub property: &'static Property,
    /// Its value.
    pub value: Shown,
    /// Where it comes from.
    pub source: ShownSource,
}

/// The kind of a dataset, as its object set tells.
pub fn kind(contents: &Contents, dataset: &Dataset<'_>) -> Kinds {
    match (dataset.is_snapshot(), contents) {
        (true, _) => Kinds::SNAPSHOT,
        (false, Contents::Volume(_)) => Kinds::VOLUME,
        (false, _) => Kinds::FILESYSTEM,
    }
}

/// For so many properties the property ZAPs are read as a whole. A guess: a look for one reads up
/// to four entries in each ancestor.
const MANY: usize = 8;

/// The native properties of a dataset, in the table's order; only those that `wanted_row` accepts.
pub fn of_dataset(
    dataset: &Dataset<'_>,
    wanted_row: impl Fn(&Property) -> bool,
) -> Result<Vec<NativeValue>, DatasetError> {
    let mut rows = PROPERTIES.iter();
    let is_inside = |name| OF_CONTENTS.contains(&name) || DEFAULT_QUOTAS.contains(&name);
    let asks_inside = rows.any(|row| is_inside(row.name) && wanted_row(row));
    let contents = match (asks_inside, dataset.is_snapshot()) {
        (true, _) => contents::read(dataset)?,
        // Of a snapshot its kind is known without a look at its head, which may not have been read
        // since it was taken.
        (false, true) => Contents::Other,
        (false, false) => contents::outline(dataset)?,
    };
    of_contents(dataset, contents, wanted_row)
}

/// The same, of a dataset that has these contents. They may be an outline where no property is
/// asked for of which they have the value.
pub fn of_contents(
    dataset: &Dataset<'_>,
    contents: Contents,
    wanted_row: impl Fn(&Property) -> bool,
) -> Result<Vec<NativeValue>, DatasetError> {
    let kinds = kind(&contents, dataset);
    let wanted = PROPERTIES.iter();
    let wanted: Vec<&Property> = wanted
        .filter(|row| row.kinds.meets(kinds) && wanted_row(row))
        .collect();
    let lineage = match wanted.len() >= MANY {
        true => Some(Lineage::read(dataset)?),
        false => None,
    };
    let facts = Facts {
        dataset,
        stored: dataset.stored()?,
        directory: dataset.directory().stored()?,
        contents,
        lineage,
    };
    let mut values = Vec::new();
    for property in wanted {
        if let Some((value, source)) = facts.value(property)? {
            values.push(NativeValue {
                property,
                value,
                source,
            });
        }
    }
    Ok(values)
}

/// The native properties of a bookmark, in the table's order.
pub fn of_bookmark(bookmark: &NamedBookmark) -> Vec<NativeValue> {
    let stored = &bookmark.stored;
    let value_of = |name: &str| match name {
        "type" => Some(Shown::Text("bookmark".to_string())),
        "creation" => Some(Shown::Number(stored.creation_time_s)),
        "createtxg" => Some(Shown::Number(stored.creation_txg.get())),
        "guid" => Some(Shown::Number(stored.guid.get())),
        "referenced" if stored.version() != ondisk::bookmark::BookmarkVersion::V1 => {
            Some(Shown::Number(stored.referenced.get()))
        }
        "logicalreferenced" if stored.version() != ondisk::bookmark::BookmarkVersion::V1 => {
            Some(Shown::Number(stored.uncompressed.get()))
        }
        _ => None,
    };
    PROPERTIES
        .iter()
        .filter_map(|property| {
            let value = value_of(property.name)?;
            Some(NativeValue {
                property,
                value,
                source: ShownSource::None,
            })
        })
        .collect()
}

/// A value and where it comes from; `None` where the dataset has no such thing.
type Answer = Option<(Shown, ShownSource)>;

/// Properties that are facts of the object set itself.
const OF_CONTENTS: [&str; 6] = [
    "version",
    "utf8only",
    "normalization",
    "casesensitivity",
    "volsize",
    "volblocksize",
];

/// Properties of which the key of an encrypted dataset has the value.
const OF_KEY: [&str; 8] = [
    "encryption",
    "keyformat",
    "keystatus",
    "pbkdf2salt",
    "pbkdf2iters",
    "keyguid",
    "encryptionroot",
    "ivsetguid",
];

/// The stored number of the word for a key that was not loaded: of the property `keystatus`.
const KEY_UNAVAILABLE: u64 = 1;

/// What values are computed from.
struct Facts<'a> {
    dataset: &'a Dataset<'a>,
    /// What is stored of it.
    stored: ondisk::dataset::Dataset,
    /// What is stored of its directory.
    directory: DatasetDirectory,
    contents: Contents,
    /// Where properties are looked up, if there are many.
    lineage: Option<Lineage<'a>>,
}

impl Facts<'_> {
    /// The value of one property.
    fn value(&self, property: &Property) -> Result<Answer, DatasetError> {
        if let Some(number) = self.space(property.name)? {
            return Ok(Some((Shown::Number(number), ShownSource::None)));
        }
        if let Some(answer) = self.identity(property.name)? {
            return Ok(answer);
        }
        if let Some(answer) = self.of_key(property)? {
            return Ok(answer);
        }
        if let Some(answer) = self.of_contents(property) {
            return Ok(answer);
        }
        match property.name {
            "quota" => self.limit(|stored| stored.quota.get()),
            "reservation" => self.limit(|stored| stored.reservation.get()),
            "filesystem_count" => self.count(ondisk::dataset_dir::FILESYSTEM_COUNT),
            "snapshot_count" => self.count(ondisk::dataset_dir::SNAPSHOT_COUNT),
            _ => self.looked_up(property),
        }
    }

    /// Space columns and ratios; `None` for other properties.
    fn space(&self, name: &str) -> Result<Option<u64>, DatasetError> {
        let (dataset, directory) = (&self.stored, &self.directory);
        let is_snapshot = self.dataset.is_snapshot();
        let used_by = directory.used_by;
        Ok(Some(match name {
            "used" if is_snapshot => dataset.unique.get(),
            "used" => directory.used.get(),
            "available" => space_used::head_space(self.dataset)?.available,
            "referenced" => dataset.referenced.get(),
            "logicalreferenced" => dataset.uncompressed.get(),
            "logicalused" => directory.uncompressed.get(),
            "compressratio" if !is_snapshot => {
                space_used::ratio(directory.uncompressed.get(), directory.compressed.get())
            }
            "compressratio" | "refcompressratio" => {
                space_used::ratio(dataset.uncompressed.get(), dataset.compressed.get())
            }
            "usedbysnapshots" => used_by.snapshots.get(),
            "usedbydataset" => used_by.head.get(),
            "usedbychildren" => used_by
                .children
                .get()
                .saturating_add(used_by.child_reservations.get()),
            "usedbyrefreservation" => used_by.ref_reservation.get(),
            "written" => space_used::written(self.dataset)?,
            _ => return Ok(None),
        }))
    }

    /// Names, numbers and dates; the outer `None` for other properties.
    fn identity(&self, name: &str) -> Result<Option<Answer>, DatasetError> {
        let stored = &self.stored;
        let computed = |shown| Some((shown, ShownSource::None));
        Ok(Some(match name {
            "type" => computed(Shown::Text(self.kind_word().to_string())),
            "creation" => computed(Shown::Number(stored.creation_time_s)),
            "createtxg" => computed(Shown::Number(stored.creation_txg.get())),
            "guid" => computed(Shown::Number(stored.guid.get())),
            "objsetid" => computed(Shown::Number(self.dataset.id().get())),
            "origin" => self.origin()?.and_then(|name| computed(Shown::Text(name))),
            "clones" => self
                .clones()?
                .and_then(|names| computed(Shown::Text(names))),
            "userrefs" => computed(Shown::Number(self.dataset.hold_count()?)),
            "defer_destroy" => {
                let deferred = stored
                    .flags
                    .contains(ondisk::dataset::DatasetFlags::DEFER_DESTROY);
                computed(Shown::Text(if deferred { "on" } else { "off" }.to_string()))
            }
            "snapshots_changed" => self
                .dataset
                .directory()
                .extension(ondisk::dataset_dir::SNAPSHOTS_CHANGED)?
                .and_then(|time| computed(Shown::Number(time))),
            // Known to the layers that mount and receive, or to one that is not there: redaction.
            "mounted" | "receive_resume_token" | "redact_snaps" => None,
            _ => return Ok(None),
        }))
    }

    /// What is known of the key of something encrypted. The outer `None` for other properties, and
    /// for those that have a default where nothing is encrypted.
    #[doc(alias = "dsl_dataset_crypt_stats")]
    fn of_key(&self, property: &Property) -> Result<Option<Answer>, DatasetError> {
        if !OF_KEY.contains(&property.name) {
            return Ok(None);
        }
        let computed = |shown| Ok(Some(Some((shown, ShownSource::None))));
        if property.name == "ivsetguid" {
            let guid = self.dataset.extension(ondisk::dataset::IVSET_GUID)?;
            return guid.map_or(Ok(Some(None)), |guid| computed(Shown::Number(guid)));
        }
        let Some(key) = crypto_key::properties(self.dataset.directory())? else {
            let has_no_default = matches!(property.default, Default::None);
            return Ok(has_no_default.then_some(None));
        };
        let word = |number: u64| {
            let word = property.word_of(number).map(str::to_string);
            computed(Shown::Text(word.unwrap_or_else(|| number.to_string())))
        };
        match property.name {
            "encryption" => word(key.suite),
            "keyformat" => word(key.format),
            "keystatus" => word(KEY_UNAVAILABLE),
            "pbkdf2salt" => computed(Shown::Number(key.salt)),
            "pbkdf2iters" => computed(Shown::Number(key.iterations)),
            "keyguid" => computed(Shown::Number(key.guid)),
            _ => key
                .root
                .map_or(Ok(Some(None)), |root| computed(Shown::Text(root))),
        }
    }

    fn kind_word(&self) -> &'static str {
        match kind(&self.contents, self.dataset) {
            Kinds::SNAPSHOT => "snapshot",
            Kinds::VOLUME => "volume",
            _ => "filesystem",
        }
    }

    /// Facts that the object set itself has; the outer `None` for other properties.
    fn of_contents(&self, property: &Property) -> Option<Answer> {
        let computed = |shown| Some((shown, ShownSource::None));
        let word = |number: u64| {
            property
                .word_of(number)
                .map_or_else(|| number.to_string(), str::to_string)
        };
        if let Some(index) = DEFAULT_QUOTAS
            .iter()
            .position(|name| *name == property.name)
        {
            return Some(match &self.contents {
                Contents::Filesystem(facts) => computed(Shown::Number(facts.default_quotas[index])),
                _ => None,
            });
        }
        match (property.name, &self.contents) {
            ("version", Contents::Filesystem(facts)) => {
                Some(computed(Shown::Text(facts.version.to_string())))
            }
            ("utf8only", Contents::Filesystem(facts)) => {
                Some(computed(Shown::Text(word(u64::from(facts.utf8_only)))))
            }
            ("normalization", Contents::Filesystem(facts)) => {
                Some(computed(Shown::Text(word(facts.normalization))))
            }
            ("casesensitivity", Contents::Filesystem(facts)) => {
                Some(computed(Shown::Text(word(facts.case))))
            }
            ("version" | "utf8only" | "normalization" | "casesensitivity", _) => Some(None),
            ("volsize", Contents::Volume(facts)) => {
                let source = if self.dataset.is_snapshot() {
                    ShownSource::None
                } else {
                    ShownSource::Set(Place::Local)
                };
                Some(Some((Shown::Number(facts.size_bytes), source)))
            }
            ("volblocksize", Contents::Volume(facts)) => {
                Some(computed(Shown::Number(facts.block_bytes)))
            }
            ("volsize" | "volblocksize", _) => Some(None),
            _ => None,
        }
    }

    /// A limit that the directory itself stores; zero is no limit.
    fn limit(&self, of: impl Fn(&DatasetDirectory) -> u64) -> Result<Answer, DatasetError> {
        let number = of(&self.directory);
        let source = if number == 0 {
            ShownSource::Default
        } else {
            ShownSource::Set(Place::Local)
        };
        Ok(Some((Shown::Number(number), source)))
    }

    /// A count in the directory's own ZAP; absent until a limit was first set.
    fn count(&self, name: &str) -> Result<Answer, DatasetError> {
        Ok(Some(match self.dataset.directory().extension(name)? {
            Some(count) => (Shown::Number(count), ShownSource::None),
            None => (Shown::Number(u64::MAX), ShownSource::Default),
        }))
    }

    /// The snapshot a clone was made of.
    fn origin(&self) -> Result<Option<String>, DatasetError> {
        let origin = self.directory.origin;
        if origin.is_zero() {
            return Ok(None);
        }
        // Every dataset without an origin of its own is a clone of the pool's empty one; to find
        // that one's name would take as long as the pool has datasets.
        let view = self.dataset.directory().view();
        let snapshot = view.dataset_without_name(origin)?;
        let empty = view.root()?.child(ORIGIN)?;
        if empty.is_some_and(|empty| empty.id() == snapshot.directory().id()) {
            return Ok(None);
        }
        view.dataset_by_id(origin).map(|origin| Some(origin.name()))
    }

    /// The clones of a snapshot, sorted by name.
    fn clones(&self) -> Result<Option<String>, DatasetError> {
        let mut names = Vec::new();
        for id in self.dataset.clone_ids()? {
            names.push(self.dataset.directory().view().dataset_by_id(id)?.name());
        }
        names.sort();
        Ok((!names.is_empty()).then(|| names.join(",")))
    }

    /// A property that may have been set.
    fn looked_up(&self, property: &Property) -> Result<Answer, DatasetError> {
        let may_be_set = property.change != Change::ReadOnly;
        let found = if may_be_set {
            match &self.lineage {
                Some(lineage) => lineage.find(property)?,
                None => inherit::find(self.dataset, property)?,
            }
        } else {
            None
        };
        if let Some((found, place)) = found {
            let shown = match (found, property.form) {
                (Found::Number(number), Form::Word(_)) => Shown::Text(
                    property
                        .word_of(number)
                        .map_or_else(|| number.to_string(), str::to_string),
                ),
                (Found::Number(number), _) => Shown::Number(number),
                (Found::Text(text), _) => Shown::Text(text),
            };
            return Ok(Some((shown, ShownSource::Set(place))));
        }
        let shown = match property.default {
            Default::Number(number) => match property.word_of(number) {
                Some(word) => Shown::Text(word.to_string()),
                None => Shown::Number(number),
            },
            Default::Text(text) => Shown::Text(text.to_string()),
            Default::None => return Ok(None),
        };
        Ok(Some((shown, ShownSource::Default)))
    }
}
