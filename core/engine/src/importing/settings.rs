//! Pool properties as users set them: `-o` of `zpool create` and `zpool import`, and `zpool set`.
//!
//! Each property has its place: the ZAP of the MOS, the labels, the features, or only memory, for
//! those that hold while the pool is imported. The refusals have OpenZFS's words.

use super::compatibility;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tarn_dataset::names::is_user_property;
use tarn_dataset::properties::parse::{Setting, parse};
use tarn_dataset::properties::pool_table;
use tarn_dataset::properties::value::Change;
use tarn_host::Host;
use tarn_object::zap::ZapValue;
use tarn_ondisk::features::{Feature, Support};
use tarn_pool::multihost;
use tarn_pool::scan::schedule;

/// Smallest and largest `ashift`.
const ASHIFT_RANGE: std::ops::RangeInclusive<u64> = 9..=16;
/// Longest comment.
const COMMENT_MAX: usize = 32;
/// Longest name of a user property.
const USER_NAME_MAX: usize = 255;
/// Longest value of a property.
const VALUE_MAX: usize = tarn_ondisk::zap::VALUE_BYTES_MAX - 1;

/// The command that sets the properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// `zpool create`.
    Create,
    /// `zpool import`.
    Import,
    /// `zpool set`.
    Set,
}

/// Properties of a pool, by where they are stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolSettings {
    /// `ashift` other than 0.
    pub ashift: Option<u32>,
    /// `altroot`.
    pub altroot: Option<String>,
    /// `cachefile`.
    pub cache_file: Option<String>,
    /// `readonly`.
    pub read_only: Option<bool>,
    /// `comment`.
    pub comment: Option<String>,
    /// `compatibility`.
    pub compatibility: Option<String>,
    /// `version`, of pools without features.
    pub version: Option<u64>,
    /// `feature@…`: whether it is to be enabled.
    pub features: BTreeMap<Feature, bool>,
    /// Properties stored in the MOS: name, value, and the value as history shows it.
    pub stored: Vec<(String, ZapValue, String)>,
}

impl PoolSettings {
    /// Checks properties.
    ///
    /// # Errors
    /// The reason against the first bad one.
    #[doc(alias = "zpool_valid_proplist")]
    pub fn parse(
        host: &Host,
        given: &[(String, String)],
        occasion: Occasion,
    ) -> Result<PoolSettings, String> {
        let mut settings = PoolSettings::default();
        for (name, value) in given {
            settings.add(host, name, value, occasion)?;
        }
        Ok(settings)
    }

    fn add(
        &mut self,
        host: &Host,
        name: &str,
        value: &str,
        occasion: Occasion,
    ) -> Result<(), String> {
        if let Some(feature) = name.strip_prefix("feature@") {
            return self.add_feature(feature, name, value, occasion);
        }
        let Some(property) = pool_table::find(name) else {
            return self.add_user_property(name, value);
        };
        let name = property.name;
        if property.change == Change::ReadOnly {
            return Err(format!("'{name}' is readonly"));
        }
        if property.change == Change::Once && occasion != Occasion::Create {
            return Err(format!(
                "property '{name}' can only be set at creation time"
            ));
        }
        let setting = parse(property, value)?;
        let at_import_only = format!("property '{name}' can only be set at import time");
        match (name, &setting) {
            ("ashift", Setting::Number(0)) => self.store(name, ZapValue::word(0), value),
            ("ashift", Setting::Number(shift)) if ASHIFT_RANGE.contains(shift) => {
                self.ashift = u32::try_from(*shift).ok();
                self.store(name, ZapValue::word(*shift), value);
            }
            ("ashift", Setting::Number(shift)) => {
                let (least, most) = (ASHIFT_RANGE.start(), ASHIFT_RANGE.end());
                return Err(format!(
                    "property '{name}' number {shift} is invalid, only values between {least} and {most} are allowed."
                ));
            }
            ("altroot", _) => self.altroot = Some(check_altroot(name, value, occasion)?),
            ("cachefile", _) => self.cache_file = Some(check_cache_file(host, name, value)?),
            ("comment", _) => self.comment = Some(check_comment(value)?),
            ("compatibility", _) => {
                compatibility::allowed(host, value)?;
                self.compatibility = Some(value.to_string());
            }
            ("readonly", _) if occasion != Occasion::Import => return Err(at_import_only),
            ("readonly", Setting::Number(on)) => self.read_only = Some(*on != 0),
            ("version", Setting::Number(version @ (1..=28 | 5000))) => {
                self.version = Some(*version);
            }
            ("version", Setting::Number(version)) => {
                return Err(format!("property '{name}' number {version} is invalid."));
            }
            (multihost::PROPERTY, Setting::Number(on))
                if *on != 0 && host.identity().hostid == 0 =>
            {
                return Err("requires a non-zero system hostid".to_string());
            }
            ("bootfs", _) if occasion != Occasion::Set => {
                return Err(format!(
                    "property '{name}' cannot be set at creation or import time"
                ));
            }
            ("tname" | "dedupditto", _) => {}
            (_, Setting::Number(number)) => self.store(name, ZapValue::word(*number), value),
            (_, Setting::Text(text)) => self.store(name, ZapValue::text(text), value),
        }
        Ok(())
    }

    fn store(&mut self, name: &str, value: ZapValue, shown: &str) {
        self.stored.retain(|(other, _, _)| other != name);
        self.stored
            .push((name.to_string(), value, shown.to_string()));
    }

    fn add_feature(
        &mut self,
        feature: &str,
        name: &str,
        value: &str,
        occasion: Occasion,
    ) -> Result<(), String> {
        let found = Feature::from_name(feature)
            .ok_or_else(|| format!("feature '{feature}' unsupported by kernel"))?;
        let is_wanted = match value {
            "enabled" => true,
            "disabled" if occasion == Occasion::Create => false,
            "disabled" => {
                return Err(format!(
                    "property '{name}' can only be set to 'disabled' at creation time"
                ));
            }
            _ => {
                return Err(format!(
                    "property '{name}' can only be set to 'enabled' or 'disabled'"
                ));
            }
        };
        if is_wanted && found.support() != Support::ReadWrite {
            return Err(format!(
                "feature '{feature}' cannot be written by this version of tarn"
            ));
        }
        self.features.insert(found, is_wanted);
        Ok(())
    }

    fn add_user_property(&mut self, name: &str, value: &str) -> Result<(), String> {
        if !is_user_property(name) {
            return Err(format!("invalid property '{name}'"));
        }
        if name.len() > USER_NAME_MAX {
            return Err(format!("property name '{name}' is too long"));
        }
        if value.len() > VALUE_MAX {
            return Err(format!("property value '{value}' is too long"));
        }
        if value.contains('\0') {
            return Err(format!("invalid value for '{name}'"));
        }
        let of_multihost = multihost::settings::refuse_value(name, value);
        if let Some(refusal) = of_multihost.or_else(|| schedule::refuse_value(name, value)) {
            return Err(refusal);
        }
        self.store(name, ZapValue::text(value), value);
        Ok(())
    }

    /// The features of a new pool.
    ///
    /// # Errors
    /// The error in `compatibility`.
    pub fn wanted_features(&self, host: &Host, no_features: bool) -> Result<Vec<Feature>, String> {
        let allowed = match &self.compatibility {
            Some(sets) => compatibility::allowed(host, sets)?,
            None => Feature::ALL.iter().copied().collect::<BTreeSet<_>>(),
        };
        let is_wanted = |feature: &Feature| match self.features.get(feature) {
            Some(is_wanted) => *is_wanted,
            None => !no_features && feature.is_enabled_by_default() && allowed.contains(feature),
        };
        Ok(Feature::ALL.iter().copied().filter(is_wanted).collect())
    }

    /// A warning for each enabled feature that is not in the `compatibility` set.
    pub fn incompatible_features(&self, host: &Host, features: &[Feature]) -> Vec<String> {
        let Some(Ok(allowed)) = self
            .compatibility
            .as_ref()
            .map(|sets| compatibility::allowed(host, sets))
        else {
            return Vec::new();
        };
        let outside = features.iter().filter(|feature| !allowed.contains(feature));
        outside
            .map(|feature| {
                format!(
                    "Warning: feature \"{}\" enabled but is not in specified 'compatibility' feature set.",
                    feature.name()
                )
            })
            .collect()
    }
}

fn check_altroot(name: &str, value: &str, occasion: Occasion) -> Result<String, String> {
    if occasion == Occasion::Set {
        return Err(format!(
            "property '{name}' can only be set during pool creation or import"
        ));
    }
    if !value.starts_with('/') {
        return Err(format!("bad alternate root '{value}'"));
    }
    Ok(value.to_string())
}

fn check_cache_file(host: &Host, name: &str, value: &str) -> Result<String, String> {
    if value.is_empty() || value == "none" {
        return Ok(value.to_string());
    }
    let path = Path::new(value);
    if !path.is_absolute() {
        return Err(format!(
            "property '{name}' must be empty, an absolute path, or 'none'"
        ));
    }
    let is_file = !(value.ends_with('/') || value.ends_with("/.") || value.ends_with("/.."));
    let Some(folder) = path.parent().filter(|_| is_file) else {
        return Err(format!("'{value}' is not a valid file"));
    };
    if host.file_kind(folder) != tarn_host::FileKind::Directory {
        return Err(format!("'{}' is not a valid directory", folder.display()));
    }
    Ok(value.to_string())
}

fn check_comment(value: &str) -> Result<String, String> {
    if !value.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
        return Err("comment may only have printable characters".to_string());
    }
    if value.len() > COMMENT_MAX {
        return Err(format!("comment must not exceed {COMMENT_MAX} characters"));
    }
    Ok(value.to_string())
}
