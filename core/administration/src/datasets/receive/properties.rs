//! Received properties, and those that `-o` and `-x` give.

use super::Run;
use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::names::is_user_property;
use tarn_dataset::ops::receive::ReceiveSettings;
use tarn_dataset::ops::set::needed_feature;
use tarn_dataset::properties::inherit::RECEIVED_SUFFIX;
use tarn_dataset::properties::parse::{Checked, Moment, Setting, check, check_range, parse};
use tarn_dataset::properties::table;
use tarn_dataset::properties::value::{Form, Kinds, Property};
use tarn_dataset::task::FeatureCounts;
use tarn_engine::engine::OpenPool;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_ondisk::zap::can_hold_name;

/// Properties of the key, which a raw stream brings.
#[doc(alias = "zfs_prop_encryption_key_param")]
const OF_KEY: [&str; 4] = ["encryption", "keyformat", "pbkdf2salt", "pbkdf2iters"];

/// Where the key is. Only an encryption root has this property, and which datasets are roots is
/// known after all streams.
pub(super) const KEY_LOCATION: &str = "keylocation";

impl Run<'_> {
    /// The settings of a target. Received values stay marked as received; `-o` and `-x` override
    /// them. Datasets below the package's first file system inherit the values of `-o`.
    #[doc(alias = "zfs_setup_cmdline_props")]
    pub(super) fn settings(
        &mut self,
        open: &OpenPool,
        target: &Target<'_>,
        sent: Option<&NvList>,
    ) -> Result<ReceiveSettings, Refusal> {
        let &Target { name, kinds, .. } = target;
        if target.is_raw {
            self.check_of_key()?;
        }
        let mut settings = ReceiveSettings {
            received: match sent {
                Some(list) => self.received(open, name, kinds, list),
                None => Vec::new(),
            },
            ..ReceiveSettings::default()
        };
        let comes_with_key = |name: &str| OF_KEY.contains(&name) || name == KEY_LOCATION;
        settings
            .received
            .retain(|one| !target.is_raw || !comes_with_key(&one.name));
        let request = self.request;
        for (property, value) in &request.properties {
            let full = full_name(property);
            if full == "origin" {
                continue;
            }
            let applies = table::find(full).is_none_or(|row| row.kinds.meets(kinds));
            if !applies && target.is_of_tree {
                continue;
            }
            let checked = check(property, value, kinds, Moment::Creation);
            let checked = checked
                .map_err(|reason| Refusal::new(RefusalKind::Invalid, super::CANNOT, reason))?;
            if !target.is_top {
                inherit(&mut settings, full);
                continue;
            }
            settings
                .local
                .retain(|one: &Checked| one.name != checked.name);
            settings.local.push(checked);
        }
        for property in &request.excluded {
            let full = full_name(property);
            if table::find(full).is_some_and(|row| !row.kinds.meets(kinds)) {
                self.done.warnings.push(format!(
                    "Warning: {name}: property '{property}' does not apply to datasets of this type"
                ));
                continue;
            }
            inherit(&mut settings, full);
        }
        Ok(settings)
    }

    /// Refuses `-o` and `-x` of properties that cannot differ from the stream: those fixed in the
    /// contents, and computed ones.
    #[doc(alias = "zfs_receive_checkprops")]
    pub(super) fn check_said(&self) -> Result<(), Refusal> {
        let set = self.request.properties.iter().map(|(name, _)| name);
        let mut said = set.chain(&self.request.excluded);
        match said.find(|name| !may_be_said(name)) {
            None => Ok(()),
            Some(name) => {
                let reason = format!("invalid property '{name}'");
                Err(Refusal::new(RefusalKind::Invalid, super::CANNOT, reason))
            }
        }
    }

    /// Refuses `-o` and `-x` of properties that come with the key.
    fn check_of_key(&self) -> Result<(), Refusal> {
        let set = self.request.properties.iter().map(|(name, _)| name);
        let mut said = set.chain(&self.request.excluded);
        match said.find(|name| OF_KEY.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let reason = format!(
                    "encryption property '{name}' cannot be set or excluded for raw streams."
                );
                Err(Refusal::new(RefusalKind::Invalid, super::CANNOT, reason))
            }
        }
    }

    /// The received properties. One that cannot be stored is left out, with a warning.
    pub(super) fn received(
        &mut self,
        open: &OpenPool,
        name: &str,
        kinds: Kinds,
        list: &NvList,
    ) -> Vec<Checked> {
        let mut kept = Vec::new();
        for (property, value) in list.iter() {
            let Some(property) = property.as_str() else {
                continue;
            };
            match setting_of(property, value, kinds) {
                Ok(Some(checked)) if is_possible(open, &checked) => kept.push(checked),
                Ok(Some(_)) => self.done.warnings.push(format!(
                    "cannot receive {property} property on {name}: pool must be upgraded to set this property or value"
                )),
                Ok(None) => {}
                Err(why) => {
                    let warning = format!("cannot receive {property} property on {name}: {why}");
                    self.done.warnings.push(warning);
                }
            }
        }
        kept
    }
}

/// Whether `-o` and `-x` may name a property. Properties of keys are checked when the stream is
/// known; `origin` names the origin of a new clone.
fn may_be_said(name: &str) -> bool {
    /// Settable later, but fixed by the stream's contents.
    const OF_CONTENTS: [&str; 2] = ["version", "volsize"];
    let Some(row) = table::find(name) else {
        return is_user_property(name);
    };
    let is_of_key = OF_KEY.contains(&row.name) || row.name == KEY_LOCATION;
    row.name == "origin" || is_of_key || (row.is_settable() && !OF_CONTENTS.contains(&row.name))
}

/// The facts of a target that its settings depend on.
pub(super) struct Target<'a> {
    pub(super) name: &'a str,
    pub(super) kinds: Kinds,
    /// It is the target of the first stream.
    pub(super) is_top: bool,
    /// It comes in a package of a whole tree.
    pub(super) is_of_tree: bool,
    /// Its stream is raw.
    pub(super) is_raw: bool,
}

/// The name of a property that may be given by its column's name.
fn full_name(property: &str) -> &str {
    table::find(property).map_or(property, |row| row.name)
}

/// Excludes a received value: the property is inherited. One that cannot be inherited is dropped.
fn inherit(settings: &mut ReceiveSettings, name: &str) {
    match table::find(name).is_none_or(Property::is_inheritable) {
        true => settings.inherited.push(name.to_string()),
        false => settings.received.retain(|one| one.name != name),
    }
}

/// Whether the pool has the feature that a value needs.
fn is_possible(open: &OpenPool, checked: &Checked) -> bool {
    let Setting::Number(number) = checked.setting else {
        return true;
    };
    let needed = needed_feature(&checked.name, number);
    needed.is_none_or(|feature| open.pool.features().is_enabled(feature))
}

/// The setting for a value of the list; none for properties fixed in the contents.
fn setting_of(name: &str, value: &NvValue, kinds: Kinds) -> Result<Option<Checked>, String> {
    // Newer senders name the source of each value.
    let value = match value {
        NvValue::List(list) => list
            .get("value")
            .ok_or("invalid property value(s) specified")?,
        value => value,
    };
    let invalid = || "invalid property value(s) specified".to_string();
    let Some(property) = table::find(name) else {
        let NvValue::String(text) = value else {
            return Err(invalid());
        };
        if !is_user_property(name) {
            return Err("not known to this version".to_string());
        }
        if !can_hold_name(&format!("{name}{RECEIVED_SUFFIX}")) {
            return Err(format!("property name '{name}' is too long"));
        }
        return check(
            name,
            text.as_str().ok_or_else(invalid)?,
            kinds,
            Moment::Creation,
        )
        .map(Some);
    };
    if !property.is_settable() || !property.kinds.meets(kinds) {
        return Ok(None);
    }
    let setting = match (value, property.form) {
        (NvValue::Uint64(number), Form::Word(_)) => match property.word_of(*number) {
            Some(_) => Setting::Number(*number),
            None => return Err(invalid()),
        },
        (NvValue::Uint64(number), Form::Number) => Setting::Number(*number),
        (NvValue::String(text), _) => {
            let text = text.as_str().ok_or_else(invalid)?;
            parse(property, text)?
        }
        _ => return Err(invalid()),
    };
    if property.name != KEY_LOCATION {
        check_range(property, &setting)?;
    }
    Ok(Some(Checked {
        name: property.name.to_string(),
        property: Some(property),
        setting,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_the_contents_are_not_for_the_receiver_to_say() {
        for name in [
            "version",
            "volsize",
            "utf8only",
            "casesensitivity",
            "normalization",
            "volblocksize",
            "used",
            "nonsense",
            "Quota",
        ] {
            assert!(!may_be_said(name), "{name}");
        }
        for name in ["quota", "compress", "origin", "keylocation", "a:b"] {
            assert!(may_be_said(name), "{name}");
        }
    }

    #[test]
    fn a_value_that_could_not_be_set_is_not_received() {
        let number =
            |name: &str, number: u64| setting_of(name, &NvValue::Uint64(number), Kinds::FILESYSTEM);
        assert!(number("recordsize", 128 << 10).unwrap().is_some());
        for wrong in [0, 3, 513, 32 << 20, u64::MAX] {
            assert!(number("recordsize", wrong).is_err(), "{wrong}");
        }
        assert!(number("special_small_blocks", 3).is_err());
        assert!(number("compression", 9999).is_err());
        let text = |name: &str, value: &str| {
            setting_of(name, &NvValue::String(value.into()), Kinds::FILESYSTEM)
        };
        assert!(text("mountpoint", "not/absolute").is_err());
        assert!(text("org:note", &"v".repeat(8192)).is_err());
        assert!(text("org:note", "kept").unwrap().is_some());
        assert!(text(&format!("x:{}", "n".repeat(248)), "").is_err());
    }
}
