//! The properties of an open pool.

use super::dedup;
use crate::messages::{Properties, PropertyValue, Source, Value};
use tarn_dataset::names::is_user_property;
use tarn_dataset::properties::pool_table::POOL_PROPERTIES;
use tarn_dataset::properties::value::{Default, Form, Property};
use tarn_engine::engine::{OpenPool, Remembered};
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::units::ObjectId;
use tarn_pool::directory::Directory;
use tarn_pool::{CloneSums, Mode, Pool, PoolError};
use tarn_probe::Operation;
use tarn_space::Class;

/// The version of pools with feature flags, which has no number for users.
const VERSION_FEATURES: u64 = 5000;

/// Space of a pool.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PoolSpace {
    pub(crate) size_bytes: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) fragmentation_percent: Option<u64>,
}

/// Space of a pool. Allocated bytes are known only of a pool that is open for writing.
pub(crate) fn space_of(pool: &Pool) -> PoolSpace {
    let tops = pool.vdevs().top_levels();
    let size_bytes = tarn_pool::size::listed_size(&tops);
    if pool.mode() == Mode::ReadOnly {
        return PoolSpace {
            size_bytes,
            allocated_bytes: 0,
            fragmentation_percent: Some(0),
        };
    }
    let groups = pool.space().group_totals();
    let counted = groups.iter().filter(|group| group.class != Class::Log);
    let allocated_bytes = counted.map(|group| group.totals.allocated.get()).sum();
    let normal: Vec<_> = groups
        .iter()
        .filter(|group| group.class == Class::Normal)
        .cloned()
        .collect();
    PoolSpace {
        size_bytes,
        allocated_bytes,
        fragmentation_percent: tarn_space::fragmentation_of(&normal),
    }
}

/// References per cloned block on average, times 100.
#[doc(alias = "brt_get_ratio")]
fn clone_ratio_hundredths(sums: CloneSums) -> u64 {
    let (used, saved) = (u128::from(sums.used.get()), u128::from(sums.saved.get()));
    match used {
        0 => 100,
        used => u64::try_from((used + saved) * 100 / used).unwrap_or(u64::MAX),
    }
}

/// All properties of a pool, user properties and features included.
pub(crate) fn describe(
    open: &OpenPool,
    health: &str,
    operation: &Operation,
) -> Result<Properties, PoolError> {
    let directory = open.pool.directory(operation);
    let stored = Stored {
        directory,
        zap: directory.find(name::PROPERTIES)?,
    };
    let space = space_of(&open.pool);
    let mut properties = Properties::new();
    for row in POOL_PROPERTIES {
        let value = match computed(open, row.name, space, health, operation)? {
            Some(value) => value,
            None => stored.value(row)?,
        };
        properties.insert(row.name.to_string(), value);
    }
    properties.extend(stored.of_users()?);
    let features = open.pool.features();
    for feature in Feature::ALL {
        let state = match features.count(feature.guid()) {
            None => "disabled",
            Some(0) => "enabled",
            Some(_) => "active",
        };
        let key = format!("feature@{}", feature.name());
        properties.insert(key, text(state, Source::Local));
    }
    for (guid, count) in features.iter() {
        if Feature::from_guid(guid).is_none() {
            let state = if count > 0 { "readonly" } else { "inactive" };
            properties.insert(format!("unsupported@{guid}"), text(state, Source::Local));
        }
    }
    Ok(properties)
}

/// Computed properties; none for stored ones.
fn computed(
    open: &OpenPool,
    property: &str,
    space: PoolSpace,
    health: &str,
    operation: &Operation,
) -> Result<Option<PropertyValue>, PoolError> {
    let pool = &open.pool;
    let facts = pool.facts();
    let free = space.size_bytes.saturating_sub(space.allocated_bytes);
    let optional = |value: Option<String>| match value {
        Some(value) => text(&value, Source::Local),
        None => absent(Source::Default),
    };
    Ok(Some(match property {
        "name" => text(pool.name(), Source::None),
        "size" => number(space.size_bytes),
        "allocated" => number(space.allocated_bytes),
        "free" => number(free),
        "capacity" => number(percent(space.allocated_bytes, space.size_bytes)),
        "fragmentation" => match space.fragmentation_percent {
            Some(percent) => number(percent),
            None => number(u64::MAX),
        },
        "health" => text(health, Source::None),
        "guid" => number(facts.guid.get()),
        "load_guid" => number(open.load_guid),
        "version" if facts.version == VERSION_FEATURES => absent(Source::Default),
        "version" => PropertyValue {
            source: Source::Local,
            ..number(facts.version)
        },
        "altroot" => optional(open.altroot.clone()),
        "cachefile" => match &*open.remembered.lock() {
            Remembered::ByInstance => absent(Source::Default),
            Remembered::Nowhere => text("none", Source::Local),
            Remembered::In(path) => text(path, Source::Local),
        },
        "comment" => optional(facts.comment.map(|comment| comment.to_string())),
        "compatibility" => match facts.compatibility {
            Some(sets) => text(&sets.to_string(), Source::Local),
            None => text("off", Source::Default),
        },
        "readonly" => {
            let is_on = pool.mode() == Mode::ReadOnly;
            text(if is_on { "on" } else { "off" }, Source::None)
        }
        "checkpoint" => match pool.checkpoint_status() {
            Some(checkpoint) => number(checkpoint.bytes),
            None => absent(Source::None),
        },
        "expandsize" => {
            let tops = pool.vdevs().top_levels();
            let bytes = |top: &tarn_vdev::TopLevel| pool.vdevs().expandable_bytes(top.id);
            number(tops.iter().map(bytes).sum())
        }
        "freeing" => number(freeing_bytes(pool, operation)?),
        "leaked" => number(internal_used(pool, "$LEAK", operation)?),
        "dedupratio" => number(dedup::ratio_hundredths(&dedup::tables(pool, operation)?)),
        "dedup_table_size" => number(dedup::tables(pool, operation)?.disk_bytes),
        "bcloneratio" => number(clone_ratio_hundredths(pool.clone_sums())),
        "bcloneused" => number(pool.clone_sums().used.get()),
        "bclonesaved" => number(pool.clone_sums().saved.get()),
        "dedupcached" => number(0),
        "last_scrubbed_txg" => {
            let stored = pool.directory(operation).value(name::LAST_SCRUBBED_TXG)?;
            number(stored.and_then(|value| value.as_word()).unwrap_or(0))
        }
        "bootfs" => return boot_file_system(pool, operation).map(Some),
        "tname" | "maxblocksize" | "maxdnodesize" => return Ok(None),
        _ => return Ok(None),
    }))
}

/// Space of what was destroyed and is not freed yet.
pub(super) fn freeing_bytes(pool: &Pool, operation: &Operation) -> Result<u64, PoolError> {
    internal_used(pool, "$FREE", operation)
}

/// Space of one of the pool's internal directories.
fn internal_used(pool: &Pool, component: &str, operation: &Operation) -> Result<u64, PoolError> {
    let view = pool.namespace().view(operation);
    match view.root()?.child(component)? {
        Some(directory) => Ok(directory.stored()?.used.get()),
        None => Ok(0),
    }
}

/// The name of the dataset in `bootfs`.
fn boot_file_system(pool: &Pool, operation: &Operation) -> Result<PropertyValue, PoolError> {
    let directory = pool.directory(operation);
    let Some(zap) = directory.find(name::PROPERTIES)? else {
        return Ok(absent(Source::Default));
    };
    let stored = directory.value_in(zap, "bootfs")?;
    let id = stored.and_then(|value| value.as_word()).unwrap_or(0);
    if id == 0 {
        return Ok(absent(Source::Default));
    }
    let view = pool.namespace().view(operation);
    let dataset = view.dataset_by_id(ObjectId::new(id))?;
    Ok(text(&dataset.name(), Source::Local))
}

/// The ZAP in which properties are stored.
struct Stored<'a> {
    directory: Directory<'a>,
    zap: Option<ObjectId>,
}

impl Stored<'_> {
    /// User properties.
    fn of_users(&self) -> Result<Vec<(String, PropertyValue)>, PoolError> {
        let Some(zap) = self.zap else {
            return Ok(Vec::new());
        };
        let entries = self.directory.entries(zap)?.into_iter();
        let of_users = entries.filter(|(name, _)| is_user_property(name));
        let shown = of_users.filter_map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_text()?).into_owned();
            Some((name, text(&value, Source::Local)))
        });
        Ok(shown.collect())
    }

    /// The value of a property that can be stored, or its default.
    fn value(&self, row: &Property) -> Result<PropertyValue, PoolError> {
        let found = match self.zap {
            Some(zap) => self.directory.value_in(zap, row.name)?,
            None => None,
        };
        let word_or_number = |stored: u64| match (row.form, row.word_of(stored)) {
            (Form::Word(_), Some(word)) => Value::Text(word.to_string()),
            _ => Value::Number(stored),
        };
        if let Some(found) = found {
            let value = match (row.form, found.as_text(), found.as_word()) {
                (Form::Text, Some(text), _) => {
                    Value::Text(String::from_utf8_lossy(text).into_owned())
                }
                (_, _, Some(stored)) => word_or_number(stored),
                _ => Value::Absent,
            };
            return Ok(PropertyValue {
                value,
                source: Source::Local,
                received: None,
            });
        }
        let value = match row.default {
            Default::Number(number) => word_or_number(number),
            Default::Text(text) => Value::Text(text.to_string()),
            Default::None => Value::Absent,
        };
        Ok(PropertyValue {
            value,
            source: Source::Default,
            received: None,
        })
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    match whole {
        0 => 0,
        _ => u64::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(u64::MAX),
    }
}

fn number(number: u64) -> PropertyValue {
    PropertyValue {
        value: Value::Number(number),
        source: Source::None,
        received: None,
    }
}

fn text(text: &str, source: Source) -> PropertyValue {
    PropertyValue {
        value: Value::Text(text.to_string()),
        source,
        received: None,
    }
}

fn absent(source: Source) -> PropertyValue {
    PropertyValue {
        value: Value::Absent,
        source,
        received: None,
    }
}
