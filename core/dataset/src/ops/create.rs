//! Creates a file system or a volume.
//!
//! # Mechanism
//! A directory below the parent's, a head that descends from the pool's empty snapshot, and an
//! object set that the txg stores. [`FillFilesystem`] writes the first objects of a file system;
//! the two objects of a volume are written here.
//!
//! Some properties are stored only in the object set: the treatment of names, the size of a volume
//! and of its blocks. Rules of names that are not given come from the parent file system.
//!
//! # Knows nothing about
//! Mounting, and creating missing parents.

use super::receive::half_received::check_whole;
use super::set::{AUTO, apply_one, check_settings, find};
use crate::contents::{self, Contents, VOLUME_DATA, VOLUME_ZAP};
use crate::creation;
use crate::dataset::Dataset;
use crate::deadlist;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::feature_use;
use crate::filesystem_counts;
use crate::initialize::{FillFilesystem, NewFilesystem};
use crate::names::{BadName, DatasetName};
use crate::namespace::View;
use crate::ops::set::Source;
use crate::properties::parse::{Checked, Setting};
use crate::properties::table;
use crate::properties::value::{Change, Kinds};
use crate::space_used::directory_available;
use crate::task::{FeatureCounts, InternalEvent, Room, SyncTask, TaskContext, TaskRefusal};
use crate::volume_reservation::volume_reservation;
use crate::writing::in_object;
use std::sync::Arc;
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{NewObject, ObjectSet};
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::dataset_dir::CRYPTO_KEY;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::ObjectId;

/// Sizes that blocks of a volume can have.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=16 << 20;

/// The stored number of the `casesensitivity` that has no name differ from another in case only.
/// Where that is `mixed`, they do: for us, and for snapshots and bookmarks.
#[doc(alias = "ZFS_CASE_INSENSITIVE")]
const INSENSITIVE: u64 = 1;

/// Properties that can change later and are in the object set all the same.
const FACTS: [&str; 2] = ["volsize", "version"];

/// The given rules of names; the parent's are taken for the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NameRules {
    /// ZPL version.
    pub version: Option<u64>,
    /// The stored number of the property `normalization`.
    pub normalization: Option<u64>,
    /// Names must be UTF-8.
    pub utf8_only: Option<bool>,
    /// The stored number of the property `casesensitivity`.
    pub case: Option<u64>,
}

impl NameRules {
    /// Takes these rules out of the settings; the others are left for
    /// [`CreateFilesystem::settings`].
    pub fn take_from(settings: &mut Vec<Checked>) -> NameRules {
        let mut rules = NameRules::default();
        settings.retain(|checked| {
            let Setting::Number(number) = checked.setting else {
                return true;
            };
            match checked.name.as_str() {
                "version" => rules.version = Some(number),
                "normalization" => rules.normalization = Some(number),
                "utf8only" => rules.utf8_only = Some(number != 0),
                "casesensitivity" => rules.case = Some(number),
                _ => return true,
            }
            false
        });
        rules
    }

    /// Refuses numbers that stand for nothing. What fills the file system later could not refuse
    /// any more.
    fn check(&self) -> Result<(), TaskRefusal> {
        let words = [
            ("version", self.version),
            ("normalization", self.normalization),
            ("casesensitivity", self.case),
        ];
        for (name, number) in words {
            let property = table::find(name).expect("the property is in the table");
            if number.is_some_and(|number| property.word_of(number).is_none()) {
                return Err(TaskRefusal::BadValue {
                    property: name.to_string(),
                    why: "invalid property value(s) specified".to_string(),
                });
            }
        }
        Ok(())
    }
}

/// Makes a file system.
#[derive(Clone)]
pub struct CreateFilesystem {
    /// The full name. The parent is there.
    pub name: String,
    /// Properties, parsed for file systems.
    pub settings: Vec<Checked>,
    /// How names are treated.
    pub rules: NameRules,
    /// The owner of the root directory.
    pub user: u32,
    /// The group of the root directory.
    pub group: u32,
    /// Puts in what every file system has.
    pub fill: Arc<dyn FillFilesystem>,
}

/// Makes a volume.
#[derive(Debug, Clone)]
pub struct CreateVolume {
    /// The full name. The parent is there.
    pub name: String,
    /// Its size, a multiple of the block size.
    pub size_bytes: u64,
    /// The size of its blocks.
    pub block_bytes: u64,
    /// Whether nothing is set aside for it.
    pub sparse: bool,
    /// Properties, parsed for volumes.
    pub settings: Vec<Checked>,
}

impl SyncTask for CreateFilesystem {
    type Output = ObjectId;

    fn room(&self) -> Room {
        Room::normal(6)
    }

    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let parent = check_name(view, &self.name)?;
        self.rules.check()?;
        check_new(&parent, &self.settings, Kinds::FILESYSTEM, features)
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<ObjectId, DatasetError> {
        context.namespace.change(|| {
            let facts = self.facts(context)?;
            let made = Made::new(context, &self.name)?;
            apply_settings(context, &self.name, &self.settings)?;
            if facts.case == INSENSITIVE {
                context
                    .writing()
                    .change(made.head, |stored: &mut ondisk::dataset::Dataset| {
                        stored.flags = stored.flags.with(DatasetFlags::CASE_INSENSITIVE);
                    })?;
            }
            let set = creation::create_set(context, made.head, ObjsetType::Zfs)?;
            self.fill
                .fill(context.tx, &set, &facts, context.operation)
                .map_err(|cause| DatasetError::Fill { cause })?;
            Ok(made.head)
        })
    }
}

impl CreateFilesystem {
    /// The facts of the new file system: what was asked for, or as the parent has it.
    #[doc(alias = "zfs_fill_zplprops")]
    fn facts(&self, context: &TaskContext<'_>) -> Result<NewFilesystem, DatasetError> {
        let parent_name = self.name.rsplit_once('/').map_or("", |(parent, _)| parent);
        let parent = context.view().directory(parent_name)?;
        let like = match parent.head()? {
            Some(head) => contents::read(&head)?,
            None => Contents::Other,
        };
        let defaults = NewFilesystem::default();
        let (normalization, utf8_only, case) = match like {
            Contents::Filesystem(facts) => (facts.normalization, facts.utf8_only, facts.case),
            _ => (defaults.normalization, defaults.utf8_only, defaults.case),
        };
        Ok(NewFilesystem {
            version: self.rules.version.unwrap_or(defaults.version),
            normalization: self.rules.normalization.unwrap_or(normalization),
            utf8_only: self.rules.utf8_only.unwrap_or(utf8_only),
            case: self.rules.case.unwrap_or(case),
            user: self.user,
            group: self.group,
        })
    }
}

impl SyncTask for CreateVolume {
    type Output = ObjectId;

    fn room(&self) -> Room {
        Room::normal(6)
    }

    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let parent = check_name(view, &self.name)?;
        check_new(&parent, &self.settings, Kinds::VOLUME, features)?;
        feature_use::check_enabled("volblocksize", self.block_bytes, features)?;
        let bad = |why: String| TaskRefusal::BadValue {
            property: "volsize".to_string(),
            why,
        };
        if !BLOCK_BYTES.contains(&self.block_bytes) || !self.block_bytes.is_power_of_two() {
            return Err(TaskRefusal::BadValue {
                property: "volblocksize".to_string(),
                why: "'volblocksize' must be power of 2 from 512B to 16M".to_string(),
            });
        }
        if self.size_bytes == 0 {
            return Err(bad("volume size cannot be zero".to_string()));
        }
        if !self.size_bytes.is_multiple_of(self.block_bytes) {
            let why = "volume size must be a multiple of volume block size";
            return Err(bad(why.to_string()));
        }
        if self.reservation(view).is_some_and(|wanted| {
            directory_available(&parent).is_ok_and(|available| wanted > available)
        }) {
            return Err(TaskRefusal::NoSpace {
                why: "out of space".to_string(),
            });
        }
        Ok(())
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<ObjectId, DatasetError> {
        context.namespace.change(|| {
            let made = Made::new(context, &self.name)?;
            apply_settings(context, &self.name, &self.settings)?;
            let set = creation::create_set(context, made.head, ObjsetType::Zvol)?;
            self.fill(context, &set)?;
            if let Some(wanted) = self.reservation(context.view()) {
                let head = made.dataset(context)?;
                let setting = Setting::Number(wanted);
                apply_one(context, &head, "refreservation", &setting, Source::Local)?;
            }
            Ok(made.head)
        })
    }
}

impl CreateVolume {
    /// The default refreservation. As in OpenZFS it counts the `copies` that are set at creation,
    /// and not inherited ones.
    pub fn reservation(&self, view: View<'_>) -> Option<u64> {
        let said = |name: &str| {
            let found = self.settings.iter().find(|checked| checked.name == name);
            found.map(|checked| &checked.setting)
        };
        let is_wanted = match said("refreservation") {
            Some(setting) => *setting == Setting::Number(AUTO),
            None => !self.sparse,
        };
        if !is_wanted {
            return None;
        }
        let copies = match said("copies") {
            Some(Setting::Number(copies)) => *copies,
            _ => 1,
        };
        let io = view.namespace().mos().env().cache.io();
        Some(volume_reservation(
            io,
            self.size_bytes,
            self.block_bytes,
            copies,
        ))
    }

    /// Makes the objects of a volume.
    #[doc(alias = "zvol_create_cb")]
    fn fill(&self, context: &TaskContext<'_>, set: &Arc<ObjectSet>) -> Result<(), DatasetError> {
        let in_set = in_object(set.id());
        let data = NewObject::plain(ObjectType::Zvol, self.block_bytes);
        set.claim(context.tx, VOLUME_DATA, data, context.operation)
            .map_err(&in_set)?;
        let facts = NewObject::plain(ObjectType::ZvolProperties, 0);
        let facts = set
            .claim(context.tx, VOLUME_ZAP, facts, context.operation)
            .map_err(&in_set)?;
        let zap = ObjectZap::make(&facts, context.tx, NewZap::micro(set), context.operation)
            .map_err(&in_set)?;
        zap.insert(context.tx, "size", &ZapValue::word(self.size_bytes))
            .map_err(|cause| DatasetError::Zap {
                object: VOLUME_ZAP,
                cause,
            })
    }
}

/// A directory and its head that were just made.
pub(super) struct Made {
    head: ObjectId,
    name: String,
}

impl Made {
    /// Makes them, with nothing in them.
    fn new(context: &TaskContext<'_>, name: &str) -> Result<Made, DatasetError> {
        let made = Made::from(context, name, creation::origin_snapshot(context)?)?;
        made.record(context, "create", " ".to_string());
        Ok(made)
    }

    /// Makes them, with what is in a snapshot.
    pub(super) fn from(
        context: &TaskContext<'_>,
        name: &str,
        origin: Option<ObjectId>,
    ) -> Result<Made, DatasetError> {
        let (parent, component) = name
            .rsplit_once('/')
            .ok_or_else(|| DatasetError::NotFound {
                name: name.to_string(),
            })?;
        let parent = context.view().directory(parent)?;
        let directory = creation::create_directory(context, Some(parent.id()), component)?;
        let head = creation::create_head(context, directory, origin)?;
        if context.features.is_active(Feature::FilesystemLimits) {
            filesystem_counts::count(context, &context.view().directory(name)?)?;
        }
        Ok(Made {
            head,
            name: name.to_string(),
        })
    }

    /// Tells in the internal history what happened.
    pub(super) fn record(&self, context: &TaskContext<'_>, event: &'static str, text: String) {
        context.record(InternalEvent {
            name: event,
            dataset: Some((self.name.clone(), self.head)),
            text,
        });
    }

    /// The head.
    pub(super) fn head(&self) -> ObjectId {
        self.head
    }

    fn dataset<'a>(&self, context: &TaskContext<'a>) -> Result<Dataset<'a>, DatasetError> {
        let head = context.view().directory(&self.name)?.head()?;
        head.ok_or_else(|| DatasetError::NotFound {
            name: self.name.clone(),
        })
    }
}

/// Says whether there can be something new of this name, that is not encrypted. Gives its parent.
pub(super) fn check_name<'a>(view: View<'a>, name: &str) -> Result<Directory<'a>, TaskRefusal> {
    let parent = check_place(view, name)?;
    // What is made below an encrypted file system is encrypted like it.
    match parent.extension(CRYPTO_KEY)? {
        Some(_) => Err(TaskRefusal::NotSupported {
            what: "creating a dataset below an encrypted one".to_string(),
        }),
        None => Ok(parent),
    }
}

/// Says whether there can be something new of this name, encrypted or not. Gives its parent.
pub(super) fn check_place<'a>(view: View<'a>, name: &str) -> Result<Directory<'a>, TaskRefusal> {
    let parsed = DatasetName::parse_new_head(name).map_err(|bad| match bad {
        BadName::TooLong | BadName::TooDeep => TaskRefusal::NameTooLong {
            why: bad.to_string(),
        },
        bad => TaskRefusal::BadValue {
            property: "name".to_string(),
            why: bad.to_string(),
        },
    })?;
    let exists = || TaskRefusal::Exists {
        name: name.to_string(),
    };
    let (parent_name, component) = parsed.parent().ok_or_else(exists)?;
    let parent = find(view, parent_name).map_err(|refusal| match refusal {
        TaskRefusal::NotFound { name } => TaskRefusal::NoParent { name },
        refusal => refusal,
    })?;
    if !matches!(contents::read(&parent)?, Contents::Filesystem(_)) {
        return Err(TaskRefusal::ParentNotFilesystem {
            name: parent_name.to_string(),
        });
    }
    if parent.directory().child(component)?.is_some() {
        return Err(exists());
    }
    deadlist::check_pool(view)?;
    check_whole(&parent)?;
    Ok(parent.directory().clone())
}

/// Says whether something new may have these settings.
pub(super) fn check_new(
    parent: &Directory<'_>,
    settings: &[Checked],
    kinds: Kinds,
    features: &dyn FeatureCounts,
) -> Result<(), TaskRefusal> {
    if directory_available(parent)? == 0 {
        return Err(TaskRefusal::NoSpace {
            why: "out of space".to_string(),
        });
    }
    check_settings(None, settings, kinds, features)?;
    super::set::check_limits_below(parent, settings)
}

/// Stores the settings of something new, but those that its object set has.
pub(super) fn apply_settings(
    context: &TaskContext<'_>,
    name: &str,
    settings: &[Checked],
) -> Result<(), DatasetError> {
    let head = context.view().directory(name)?.head()?;
    let head = head.ok_or_else(|| DatasetError::NotFound {
        name: name.to_string(),
    })?;
    apply_settings_to(context, &head, settings, Source::Local)
}

/// The same for a head that is at hand, from whatever source.
pub(super) fn apply_settings_to(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    settings: &[Checked],
    source: Source,
) -> Result<(), DatasetError> {
    for checked in settings {
        let is_fact = checked
            .property
            .is_some_and(|row| row.change == Change::Once || FACTS.contains(&row.name));
        let is_auto = checked.name == "refreservation" && checked.setting == Setting::Number(AUTO);
        if !is_fact && !is_auto {
            apply_one(context, head, &checked.name, &checked.setting, source)?;
        }
    }
    Ok(())
}
