//! Names of values: which numbers of records a name means, and back.
//!
//! # Mechanism
//! Records have numbers of clients, datasets and files. The engine and the front ends know their
//! names, and hand them down as a [`ValueNames`] with each predicate. Where there is no name, `#17`
//! means the number 17, `#3:42` object 42 of dataset 3, and `#3:missing-7` a name that was looked
//! for there in vain.

use std::collections::{BTreeMap, BTreeSet};

use tarn_probe::{
    ClientId, DatasetId, DeviceNumber, ErrorCode, IoPriority, MISSING_NAME, OperationKind, Outcome,
    Protocol, Stage,
};

use crate::field::{Cause, Field, NO_CLASS, NO_STAGE, Values, class_number};

/// The names of clients, users, datasets and files, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct ValueNames {
    by_name: BTreeMap<(Field, String), BTreeSet<u128>>,
    by_key: BTreeMap<(Field, u128), String>,
}

impl ValueNames {
    /// No names.
    pub fn new() -> ValueNames {
        ValueNames::default()
    }

    /// A client's name. Several clients may have the same.
    pub fn add_client(&mut self, client: ClientId, name: &str) {
        self.add(Field::Client, client.0.into(), name);
    }

    /// A user's name.
    pub fn add_user(&mut self, user: u32, name: &str) {
        self.add(Field::User, user.into(), name);
    }

    /// A dataset's name.
    pub fn add_dataset(&mut self, dataset: DatasetId, name: &str) {
        self.add(Field::Dataset, dataset.0.into(), name);
    }

    /// A device's path. Its last part means it, too.
    pub fn add_device(&mut self, device: DeviceNumber, path: &str) {
        let key = device.number().into();
        if let Some((_, last)) = path.rsplit_once('/').filter(|(_, last)| !last.is_empty()) {
            let keys = (Field::Device, last.to_owned());
            self.by_name.entry(keys).or_default().insert(key);
        }
        self.add(Field::Device, key, path);
    }

    /// A file's path.
    pub fn add_file(&mut self, dataset: DatasetId, object: u64, path: &str) {
        let key = u128::from(dataset.0) << 64 | u128::from(object);
        self.add(Field::File, key, path);
    }

    fn add(&mut self, field: Field, key: u128, name: &str) {
        let keys = self.by_name.entry((field, name.to_owned())).or_default();
        keys.insert(key);
        self.by_key.insert((field, key), name.to_owned());
    }

    /// The name that a field has for a value that a protocol calls otherwise: `sync` for `commit`.
    pub fn spelling(field: Field, text: &str) -> &str {
        other_spelling(field, text)
    }

    /// The keys of a discrete field that a text means; none if it means nothing.
    pub(crate) fn keys(&self, field: Field, text: &str) -> BTreeSet<u128> {
        if let Some(keys) = self.by_name.get(&(field, text.to_owned())) {
            return keys.clone();
        }
        let fixed = fixed_names(field).into_iter();
        let is_meant = |(name, _): &(&str, u64)| *name == other_spelling(field, text);
        let fixed: BTreeSet<u128> = (fixed.filter(is_meant).map(|(_, key)| key.into())).collect();
        match fixed.is_empty() {
            true => key_of_number(field, text).into_iter().collect(),
            false => fixed,
        }
    }

    /// The keys of a discrete field whose names begin so.
    pub(crate) fn keys_with_prefix(&self, field: Field, prefix: &str) -> BTreeSet<u128> {
        let known = self.by_name.range((field, prefix.to_owned())..);
        let known = known.take_while(|((of, name), _)| *of == field && name.starts_with(prefix));
        let known = known.flat_map(|(_, keys)| keys.iter().copied());
        let fixed = fixed_names(field).into_iter();
        let fixed = fixed.filter(|(name, _)| name.starts_with(prefix));
        known.chain(fixed.map(|(_, key)| key.into())).collect()
    }

    /// The name of a key of a discrete field, or its number as a predicate takes it.
    pub fn name(&self, field: Field, key: u128) -> String {
        if let Some(name) = self.by_key.get(&(field, key)) {
            return name.clone();
        }
        if field == Field::Outcomes {
            return outcome_names(key);
        }
        let fixed = fixed_names(field);
        match fixed.iter().find(|(_, number)| u128::from(*number) == key) {
            Some((name, _)) => (*name).to_owned(),
            None if field == Field::Device && key == 0 => "none".to_owned(),
            None if field == Field::File => file_by_number(key),
            None if field.values() == Values::Ids => key.to_string(),
            None => format!("#{key}"),
        }
    }
}

/// All values of a field, where they are always the same; a field without such values has none.
pub fn fixed_values(field: Field) -> Option<Vec<&'static str>> {
    let names: Vec<&str> = fixed_names(field)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    (!names.is_empty()).then_some(names)
}

/// The names of a field that are always the same, with their numbers. Of outcomes: with their
/// bits.
fn fixed_names(field: Field) -> Vec<(&'static str, u64)> {
    match field {
        Field::Protocol => (Protocol::ALL.iter())
            .map(|word| (word.name(), word.number().into()))
            .collect(),
        Field::Operation => (OperationKind::ALL.iter())
            .map(|word| (word.name(), word.number().into()))
            .collect(),
        Field::Cause => (Cause::ALL.iter())
            .map(|cause| (cause.name(), cause.number()))
            .collect(),
        Field::Outcomes => (Outcome::ALL.iter())
            .map(|word| (word.name(), word.bit().into()))
            .collect(),
        Field::Error => ErrorCode::all()
            .map(|error| (error.name(), error.number().into()))
            .collect(),
        Field::Class => (IoPriority::ALL.iter())
            .map(|class| (class.name(), class_number(*class)))
            .chain([("none", NO_CLASS)])
            .collect(),
        Field::SlowestStage => (Stage::ALL.iter())
            .map(|word| (word.name(), word.number().into()))
            .chain([("none", NO_STAGE)])
            .collect(),
        Field::Synchronous | Field::Sequential | Field::Failed => vec![("no", 0), ("yes", 1)],
        _ => Vec::new(),
    }
}

/// The word of ours for one of the protocols' own.
fn other_spelling(field: Field, text: &str) -> &str {
    match (field, text) {
        (Field::Operation, "commit" | "fsync") => OperationKind::Sync.name(),
        (Field::Synchronous | Field::Sequential | Field::Failed, "true") => "yes",
        (Field::Synchronous | Field::Sequential | Field::Failed, "false") => "no",
        _ => text,
    }
}

/// Before the number of a name that was looked for in vain.
const MISSING: &str = "missing-";

/// A file, or a name that was looked for in vain, as a predicate takes it.
fn file_by_number(key: u128) -> String {
    let object = u64::try_from(key & u128::from(u64::MAX)).expect("masked to 64 bits");
    match object & MISSING_NAME {
        0 => format!("#{}:{object}", key >> 64),
        bit => format!("#{}:{MISSING}{}", key >> 64, object ^ bit),
    }
}

/// What `#17`, `#3:42`, or for a user `1000`, means.
fn key_of_number(field: Field, text: &str) -> Option<u128> {
    let small = |text: &str| text.parse::<u32>().ok().map(u128::from);
    match field {
        Field::User => small(text.strip_prefix('#').unwrap_or(text)),
        Field::Device if text == "none" => Some(DeviceNumber::NONE.number().into()),
        Field::Client | Field::Dataset | Field::Device => small(text.strip_prefix('#')?),
        Field::File => {
            let (dataset, object) = text.strip_prefix('#')?.split_once(':')?;
            let (object, bits) = match object.strip_prefix(MISSING) {
                Some(name) => (name, MISSING_NAME),
                None => (object, 0),
            };
            let object = object
                .parse::<u64>()
                .ok()
                .filter(|n| n & MISSING_NAME == 0)?;
            Some(small(dataset)? << 64 | u128::from(object | bits))
        }
        _ => None,
    }
}

fn outcome_names(bits: u128) -> String {
    let of_bits = |word: &&Outcome| bits & u128::from(word.bit()) != 0;
    let names: Vec<&str> = (Outcome::ALL.iter().filter(of_bits))
        .map(|word| word.name())
        .collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join("+"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_is_called_means_that_key() {
        let mut names = ValueNames::new();
        names.add_client(ClientId(17), "10.0.0.1");
        names.add_client(ClientId(18), "10.0.0.1");
        names.add_dataset(DatasetId(3), "tank/home");
        names.add_file(DatasetId(3), 42, "/a b");
        let file = 3 << 64 | 42;
        for (field, key) in [
            (Field::Client, 17),
            (Field::Client, 99),
            (Field::User, 1000),
            (Field::Dataset, 3),
            (Field::Dataset, 4),
            (Field::File, file),
            (Field::File, file + 1),
            (Field::File, file + 1 + (1 << 63)),
            (Field::Operation, 18),
            (Field::Cause, 0),
            (Field::SlowestStage, 8),
            (Field::Failed, 1),
            (Field::Error, 2),
            (Field::Error, 255),
            (Field::Outcomes, 8),
        ] {
            let name = names.name(field, key);
            assert!(names.keys(field, &name).contains(&key), "{field:?} {name}");
        }
        assert_eq!(names.keys(Field::Client, "10.0.0.1").len(), 2);
        assert_eq!(names.keys(Field::Client, "10.0.0.2"), BTreeSet::new());
        assert_eq!(
            names.keys_with_prefix(Field::Dataset, "tank"),
            BTreeSet::from([3])
        );
        assert_eq!(names.keys_with_prefix(Field::Protocol, "nfs").len(), 2);
        assert_eq!(names.name(Field::Outcomes, 0b1001), "cache_hit+disk");
    }
}
