//! Reading and writing the MOS: stored structures in bonus buffers, values in ZAPs.
//!
//! The tree of datasets is stored in objects of the MOS. The functions here are the only ones of
//! this crate that read their bytes. Object number zero means that there is none: its ZAP is empty.

use crate::error::DatasetError;
use std::sync::Arc;
use tarn_object::zap::{Cursor, Normalize, ObjectZap, OwnedName, ZapError, ZapValue};
use tarn_object::{Object, ObjectSet};
use tarn_ondisk as ondisk;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// A bookmark, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedBookmark {
    /// Short name.
    pub name: String,
    /// What is stored of it.
    pub stored: ondisk::bookmark::Bookmark,
}

/// The first number of a value.
pub(crate) fn number_of(value: &ZapValue) -> Option<u64> {
    value.to_words().first().copied()
}

/// A value as text.
pub(crate) fn text_of(value: &ZapValue) -> Option<String> {
    let text = value.as_text()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// An object set to read, and the operation on whose behalf it is read.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) set: &'a Arc<ObjectSet>,
    pub(crate) operation: &'a Operation,
}

impl<'a> Reading<'a> {
    /// The object of this number.
    pub(crate) fn object(self, id: ObjectId) -> Result<Arc<Object>, DatasetError> {
        let found = self.set.object(id, self.operation);
        found.map_err(|cause| DatasetError::Object { object: id, cause })
    }

    /// The structure in the bonus of this object.
    pub(crate) fn bonus_of<T: Stored>(self, id: ObjectId) -> Result<T, DatasetError> {
        read_bonus(&*self.object(id)?)
    }

    /// A ZAP; `None` when there is none. The only ones of the MOS that normalise are those of
    /// snapshot names, which are ASCII: they find a name in any case, for datasets that do not tell
    /// cases apart.
    fn zap(self, id: ObjectId) -> Result<Option<ObjectZap<'a>>, DatasetError> {
        if id.is_zero() {
            return Ok(None);
        }
        let upper: Normalize = Arc::new(|name| name.to_ascii_uppercase());
        Ok(Some(
            ObjectZap::of(&self.object(id)?, self.operation).with_normalize(upper),
        ))
    }

    /// The value of a name.
    pub(crate) fn lookup(self, id: ObjectId, name: &str) -> Result<Option<ZapValue>, DatasetError> {
        let Some(zap) = self.zap(id)? else {
            return Ok(None);
        };
        zap.lookup(name).map_err(in_zap(id))
    }

    /// The first number of a name's value.
    pub(crate) fn number(self, id: ObjectId, name: &str) -> Result<Option<u64>, DatasetError> {
        Ok(self.lookup(id, name)?.as_ref().and_then(number_of))
    }

    /// The object that exactly this name has, and the name as it is stored where `any_case` finds
    /// another.
    pub(crate) fn named_object(
        self,
        id: ObjectId,
        name: &str,
        any_case: bool,
    ) -> Result<Option<(String, ObjectId)>, DatasetError> {
        let Some(zap) = self.zap(id)? else {
            return Ok(None);
        };
        let Some(entry) = zap.find(name).map_err(in_zap(id))? else {
            return Ok(None);
        };
        let OwnedName::Text(stored) = entry.name else {
            return Ok(None);
        };
        let stored = String::from_utf8_lossy(&stored).into_owned();
        let is_meant = any_case || stored == name;
        Ok(entry
            .value
            .as_word()
            .filter(|_| is_meant)
            .map(|id| (stored, ObjectId::new(id))))
    }

    /// All entries of a ZAP. Names that are no text are passed over: the tree of datasets has none.
    pub(crate) fn entries(self, id: ObjectId) -> Result<Vec<(String, ZapValue)>, DatasetError> {
        let Some(zap) = self.zap(id)? else {
            return Ok(Vec::new());
        };
        let entries = zap.entries().map_err(in_zap(id))?;
        let named = entries.into_iter().filter_map(|entry| match entry.name {
            OwnedName::Text(name) => Some((String::from_utf8(name).ok()?, entry.value)),
            OwnedName::Words(_) => None,
        });
        Ok(named.collect())
    }

    /// Names and the object numbers they have, sorted by name.
    pub(crate) fn names_and_objects(
        self,
        id: ObjectId,
    ) -> Result<Vec<(String, ObjectId)>, DatasetError> {
        let mut names: Vec<_> = self
            .entries(id)?
            .into_iter()
            .filter_map(|(name, value)| Some((name, ObjectId::new(value.as_word()?))))
            .collect();
        names.sort();
        Ok(names)
    }

    /// Names and the object numbers they have, in their stored order, from a cookie on; each with
    /// the cookie of what follows.
    pub(crate) fn named_objects_from(
        self,
        id: ObjectId,
        cookie: u64,
        count_max: usize,
    ) -> Result<Vec<(String, ObjectId, u64)>, DatasetError> {
        let Some(zap) = self.zap(id)? else {
            return Ok(Vec::new());
        };
        let flags = zap.flags().map_err(in_zap(id))?;
        let cursor = match cookie {
            0 => Cursor::START,
            cookie => Cursor::from_cookie(cookie, flags),
        };
        let entries = zap.entries_from(cursor, count_max).map_err(in_zap(id))?;
        let named = entries.into_iter().filter_map(|entry| {
            let OwnedName::Text(name) = entry.name else {
                return None;
            };
            let name = String::from_utf8(name).ok()?;
            let object = ObjectId::new(entry.value.as_word()?);
            Some((name, object, entry.next.to_cookie(flags)))
        });
        Ok(named.collect())
    }

    /// Numbers that are names in a ZAP, in hexadecimal.
    pub(crate) fn number_names(self, id: ObjectId) -> Result<Vec<ObjectId>, DatasetError> {
        let names = self.entries(id)?.into_iter();
        let mut numbers: Vec<ObjectId> = names
            .filter_map(|(name, _)| u64::from_str_radix(&name, 16).ok().map(ObjectId::new))
            .collect();
        numbers.sort();
        Ok(numbers)
    }

    /// How many entries a ZAP has.
    pub(crate) fn count(self, id: ObjectId) -> Result<u64, DatasetError> {
        let Some(zap) = self.zap(id)? else {
            return Ok(0);
        };
        zap.count().map_err(in_zap(id))
    }

    /// Bookmarks by name: a ZAP whose values are bookmarks.
    pub(crate) fn bookmarks(self, id: ObjectId) -> Result<Vec<NamedBookmark>, DatasetError> {
        let mut found = Vec::new();
        for (name, value) in self.entries(id)? {
            let bytes: Vec<u8> = value
                .to_words()
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect();
            let stored = ondisk::bookmark::Bookmark::from_stored(&bytes, ByteOrder::Little)
                .map_err(|cause| DatasetError::Corrupt { object: id, cause })?;
            found.push(NamedBookmark { name, stored });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// The allocated bytes of all blocks of a deadlist, in either of its forms.
    pub(crate) fn deadlist_used(self, id: ObjectId) -> Result<u64, DatasetError> {
        use ondisk::deadlist::{DeadlistForm, DeadlistHead};
        if id.is_zero() {
            return Ok(0);
        }
        let object = self.object(id)?;
        match DeadlistForm::of(object.object_type()) {
            Some(DeadlistForm::Map) => {
                read_bonus::<DeadlistHead>(&object).map(|head| head.used.get())
            }
            Some(DeadlistForm::List) => {
                let list =
                    ondisk::bpobj::PointerListHead::from_bonus(&object.bonus(), ByteOrder::Little);
                list.map(|(head, _)| head.allocated.get())
                    .map_err(|cause| DatasetError::Corrupt { object: id, cause })
            }
            None => Err(DatasetError::Inconsistent {
                object: id,
                why: "it is no deadlist",
            }),
        }
    }
}

/// The structure in an object's bonus.
pub(crate) fn read_bonus<T: Stored>(object: &Object) -> Result<T, DatasetError> {
    T::from_short_bytes(&object.bonus(), ByteOrder::Little).map_err(|cause| DatasetError::Corrupt {
        object: object.id(),
        cause,
    })
}

/// True when the object's data are a ZAP: datasets and directories grow one when they need it.
pub(crate) fn is_zap(object: &Object) -> bool {
    object.object_type().layout() == Some(ondisk::object_type::Layout::Zap)
}

/// An error of this ZAP.
fn in_zap(object: ObjectId) -> impl Fn(ZapError) -> DatasetError {
    move |cause| DatasetError::Zap { object, cause }
}
