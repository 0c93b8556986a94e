//! The registry of a file system: which number, size and form each attribute has there.

use super::{FileAttribute, WHAT, ZNODE_ATTRIBUTES, inconsistent};
use crate::acl;
use crate::declare::Corrupt;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The number of an attribute in one file system.
#[doc(alias = "sa_attr_type_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeId(pub u16);

/// How the bytes of a value turn with the byte order.
#[doc(alias = "sa_bswap_type_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttributeForm {
    /// Eight by eight.
    #[doc(alias = "SA_UINT64_ARRAY")]
    Words,
    /// Four by four.
    #[doc(alias = "SA_UINT32_ARRAY")]
    Quads,
    /// Two by two.
    #[doc(alias = "SA_UINT16_ARRAY")]
    Halves,
    /// Not at all.
    #[doc(alias = "SA_UINT8_ARRAY")]
    Bytes,
    /// As the entries of an access control list.
    #[doc(alias = "SA_ACL")]
    Acl,
}

impl AttributeForm {
    /// The form that this number stands for.
    pub fn from_number(number: u8) -> Option<AttributeForm> {
        [
            Self::Words,
            Self::Quads,
            Self::Halves,
            Self::Bytes,
            Self::Acl,
        ]
        .into_iter()
        .find(|form| form.number() == number)
    }

    /// The number that stands for the form.
    pub const fn number(self) -> u8 {
        match self {
            AttributeForm::Words => 0,
            AttributeForm::Quads => 1,
            AttributeForm::Halves => 2,
            AttributeForm::Bytes => 3,
            AttributeForm::Acl => 4,
        }
    }

    /// Turns a value from the other byte order into little-endian.
    pub(super) fn turn(self, value: &mut [u8]) {
        match self {
            AttributeForm::Words => value
                .as_chunks_mut::<8>()
                .0
                .iter_mut()
                .for_each(|n| n.reverse()),
            AttributeForm::Quads => value
                .as_chunks_mut::<4>()
                .0
                .iter_mut()
                .for_each(|n| n.reverse()),
            AttributeForm::Halves => {
                value
                    .as_chunks_mut::<2>()
                    .0
                    .iter_mut()
                    .for_each(|n| n.reverse());
            }
            AttributeForm::Bytes => {}
            AttributeForm::Acl => acl::turn_entries(value),
        }
    }
}

/// What the registry says of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Registration {
    /// Its number.
    pub id: AttributeId,
    /// The size of its values in bytes; 0 where each has its own.
    pub size: u16,
    /// How its values turn with the byte order.
    pub form: AttributeForm,
}

impl Registration {
    /// From the value in the registry's ZAP.
    pub fn from_word(word: u64) -> Result<Registration, Corrupt> {
        let [low, high, form, size_low, size_high, ..] = word.to_le_bytes();
        let bad = || Corrupt::Value {
            what: "system attribute registration",
            field: "form",
            offset: 2,
            found: u64::from(form),
        };
        Ok(Registration {
            id: AttributeId(u16::from_le_bytes([low, high])),
            size: u16::from_le_bytes([size_low, size_high]),
            form: AttributeForm::from_number(form).ok_or_else(bad)?,
        })
    }

    /// The value for the registry's ZAP.
    #[doc(alias = "ATTR_ENCODE")]
    pub fn to_word(self) -> u64 {
        (u64::from(self.size) << 24) | (u64::from(self.form.number()) << 16) | u64::from(self.id.0)
    }

    /// True when each value has its own size.
    pub const fn is_variable(self) -> bool {
        self.size == 0
    }
}

/// A file system's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    registrations: BTreeMap<AttributeId, (String, Registration)>,
    ids: Vec<Option<AttributeId>>,
}

impl Registry {
    /// The registry of a file system without one: all of its files are old.
    #[doc(alias = "sa_legacy_attrs")]
    pub fn of_old_files() -> Registry {
        static OF_OLD_FILES: LazyLock<Registry> = LazyLock::new(|| {
            let mut registry = Registry {
                registrations: BTreeMap::new(),
                ids: Vec::new(),
            };
            for &attribute in &FileAttribute::ALL[..usize::from(ZNODE_ATTRIBUTES)] {
                registry.register(attribute);
            }
            registry
        });
        OF_OLD_FILES.clone()
    }

    /// The registry of a new file system.
    pub fn of_new_files() -> Registry {
        static OF_NEW_FILES: LazyLock<Registry> = LazyLock::new(|| {
            let mut registry = Registry::of_old_files();
            for &attribute in FileAttribute::ALL {
                registry.register(attribute);
            }
            registry
        });
        OF_NEW_FILES.clone()
    }

    /// From the entries of the registry's ZAP.
    #[doc(alias = "sa_attr_table_setup")]
    pub fn from_entries<'a>(
        entries: impl IntoIterator<Item = (&'a [u8], u64)>,
    ) -> Result<Registry, Corrupt> {
        let mut registry = Registry::of_old_files();
        for (name, word) in entries {
            let name = String::from_utf8_lossy(name).into_owned();
            let registration = Registration::from_word(word)?;
            let old = registry
                .registrations
                .insert(registration.id, (name, registration));
            if old.is_some_and(|old| old != registry.registrations[&registration.id]) {
                return Err(inconsistent(0, "two attributes have one number"));
            }
        }
        registry.index();
        Ok(registry)
    }

    /// The entries for the registry's ZAP, in the order of their numbers.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Registration)> {
        self.registrations
            .values()
            .map(|(name, registration)| (name.as_str(), *registration))
    }

    /// The number of an attribute here; `None` where no file had one yet.
    pub fn id(&self, attribute: FileAttribute) -> Option<AttributeId> {
        let place = FileAttribute::ALL
            .iter()
            .position(|&other| other == attribute)?;
        self.ids.get(place).copied().flatten()
    }

    /// Gives an attribute a number, if it has none.
    pub fn register(&mut self, attribute: FileAttribute) -> AttributeId {
        if let Some(id) = self.id(attribute) {
            return id;
        }
        let id = attribute.fixed_id().unwrap_or_else(|| self.next_id());
        let registration = Registration {
            id,
            size: attribute.size(),
            form: attribute.form(),
        };
        self.registrations
            .insert(id, (attribute.name().to_owned(), registration));
        self.index();
        id
    }

    /// The number behind the largest; where the disk gave that to one already, the smallest that is
    /// not in use.
    fn next_id(&self) -> AttributeId {
        let largest = self.registrations.last_key_value();
        let next = largest.map_or(Some(0), |(id, _)| id.0.checked_add(1));
        let is_free = |id: &AttributeId| !self.registrations.contains_key(id);
        next.map(AttributeId)
            .or_else(|| (0..=u16::MAX).map(AttributeId).find(is_free))
            .unwrap_or(AttributeId(u16::MAX))
    }

    /// What is registered under a number.
    pub fn registration(&self, id: AttributeId) -> Option<Registration> {
        self.registrations
            .get(&id)
            .map(|(_, registration)| *registration)
    }

    /// The name under a number.
    pub fn name(&self, id: AttributeId) -> Option<&str> {
        self.registrations.get(&id).map(|(name, _)| name.as_str())
    }

    /// Brings the numbers of attributes up to date. Where the disk has one name twice, the smallest
    /// number counts.
    fn index(&mut self) {
        static PLACES: LazyLock<BTreeMap<&str, usize>> = LazyLock::new(|| {
            let names = FileAttribute::ALL.iter().map(|attribute| attribute.name());
            names
                .enumerate()
                .map(|(place, name)| (name, place))
                .collect()
        });
        debug_assert_eq!(
            PLACES.len(),
            FileAttribute::ALL.len(),
            "names are different"
        );
        self.ids = vec![None; FileAttribute::ALL.len()];
        for (name, registration) in self.registrations.values() {
            if let Some(place) = PLACES.get(name.as_str()) {
                self.ids[*place].get_or_insert(registration.id);
            }
        }
    }

    pub(super) fn known(&self, id: AttributeId) -> Result<Registration, Corrupt> {
        let unknown = || Corrupt::Value {
            what: WHAT,
            field: "attribute",
            offset: 0,
            found: u64::from(id.0),
        };
        self.registration(id).ok_or_else(unknown)
    }
}
