//! Directories as tables: a ZAP from names to object numbers and types.
//!
//! Functions that open and make the other ZAPs of this crate are here too: the master node, the
//! unlinked set, attribute tables.

use std::sync::Arc;

use tarn_object::zap::{NewZap, ObjectZap, OwnedName, ZapValue};
use tarn_object::{NewObject, Object, ObjectSet, Tx};
use tarn_ondisk as ondisk;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::EntryType;
use tarn_probe::Operation;

use crate::error::{PosixError, table_error};
use crate::names::Naming;
use crate::properties::NAME_BYTES_MAX;
use crate::types::FileKind;

/// The ZAP in an object, without normalization of names.
pub(crate) fn open_zap<'a>(object: &Arc<Object>, operation: &'a Operation) -> ObjectZap<'a> {
    ObjectZap::of(object, operation)
}

/// A new object with an empty ZAP in it.
pub(crate) fn create_zap(
    set: &Arc<ObjectSet>,
    tx: &Tx,
    object_type: ObjectType,
    operation: &Operation,
) -> Result<Arc<Object>, PosixError> {
    let new = NewObject::plain(object_type, 0);
    let zap = ObjectZap::allocate(set, tx, new, NewZap::micro(set), operation)?;
    Ok(zap.object().clone())
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The file.
    pub id: ObjectId,
    /// Its kind, if the entry has a type.
    pub kind: Option<FileKind>,
    /// The name as it is stored.
    pub name: Vec<u8>,
}

/// A directory's table.
pub(crate) struct Directory<'a> {
    pub id: ObjectId,
    pub zap: ObjectZap<'a>,
    /// Whether entries have a type (ZPL version 2).
    pub has_types: bool,
}

impl<'a> Directory<'a> {
    /// The table of a directory.
    pub fn open(object: &Arc<Object>, naming: &Naming, operation: &'a Operation) -> Self {
        let mut zap = open_zap(object, operation);
        if let Some(normalize) = naming.normalize() {
            zap = zap.with_normalize(normalize);
        }
        if let Some(compare) = naming.compare() {
            zap = zap.with_comparison(compare);
        }
        Directory {
            id: object.id(),
            zap,
            has_types: true,
        }
    }

    /// Makes the table of a new directory in its object.
    pub fn create(
        object: &Arc<Object>,
        naming: &Naming,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let set = object.set().ok_or(PosixError::NotFound)?;
        let NewZap::Micro { salt, .. } = NewZap::micro(&set) else {
            unreachable!("a micro ZAP is one")
        };
        let new = NewZap::Micro {
            salt,
            normalization: naming.form,
        };
        ObjectZap::make(object, tx, new, operation)?;
        Ok(())
    }

    /// The entry that answers to a name.
    pub fn find(&self, name: &[u8]) -> Result<Option<Entry>, PosixError> {
        if name.is_empty() {
            return Ok(None);
        }
        let Some(found) = self.zap.find(name).map_err(table_error(self.id))? else {
            return Ok(None);
        };
        self.entry(found.name, &found.value).map(Some)
    }

    /// Adds an entry.
    pub fn insert(
        &self,
        tx: &Tx,
        name: &[u8],
        id: ObjectId,
        kind: FileKind,
    ) -> Result<(), PosixError> {
        let value = ZapValue::word(self.value_of(id, kind));
        if name.len() > NAME_BYTES_MAX
            && let Some(set) = self.zap.object().set()
        {
            // The sync activates the feature `longname` for the dataset.
            set.note_long_name();
        }
        self.zap
            .insert(tx, name, &value)
            .map_err(table_error(self.id))
    }

    /// Changes the file that an entry leads to.
    pub fn replace(
        &self,
        tx: &Tx,
        name: &[u8],
        id: ObjectId,
        kind: FileKind,
    ) -> Result<(), PosixError> {
        let value = ZapValue::word(self.value_of(id, kind));
        self.zap
            .update(tx, name, &value)
            .map_err(table_error(self.id))
    }

    /// Removes an entry, which is called as it is stored.
    pub fn remove(&self, tx: &Tx, name: &[u8]) -> Result<(), PosixError> {
        self.zap.remove(tx, name).map_err(table_error(self.id))
    }

    fn value_of(&self, id: ObjectId, kind: FileKind) -> u64 {
        if self.has_types {
            entry_word(id, kind)
        } else {
            id.get()
        }
    }

    /// How many entries there are.
    pub fn count(&self) -> Result<u64, PosixError> {
        self.zap.count().map_err(table_error(self.id))
    }

    /// The entry of a stored name and value.
    pub fn entry(&self, name: OwnedName, value: &ZapValue) -> Result<Entry, PosixError> {
        let damaged = |why| PosixError::Damaged {
            object: self.id,
            why,
        };
        let OwnedName::Text(name) = name else {
            return Err(damaged("a directory's entry is called by numbers"));
        };
        let word = value
            .as_word()
            .ok_or(damaged("a directory's entry is not one number"))?;
        let entry = ondisk::znode::DirectoryEntry::from_word(word);
        Ok(Entry {
            id: entry.object,
            kind: kind_of(entry.entry_type),
            name,
        })
    }
}

/// The value of an entry.
fn entry_word(id: ObjectId, kind: FileKind) -> u64 {
    let entry_type = EntryType::of_mode(u64::from(kind.mode_bits()));
    ondisk::znode::DirectoryEntry {
        object: id,
        entry_type,
    }
    .to_word()
}

/// The kind of file of an entry's type.
fn kind_of(entry_type: EntryType) -> Option<FileKind> {
    FileKind::from_mode(u32::from(entry_type.number()) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_an_entry_is_that_of_the_mode() {
        for kind in [
            FileKind::Fifo,
            FileKind::CharacterDevice,
            FileKind::Directory,
            FileKind::BlockDevice,
            FileKind::Regular,
            FileKind::SymbolicLink,
            FileKind::Socket,
        ] {
            let word = entry_word(ObjectId::from(7), kind);
            let entry = ondisk::znode::DirectoryEntry::from_word(word);
            assert_eq!(
                (entry.object.get(), kind_of(entry.entry_type)),
                (7, Some(kind))
            );
        }
        assert_eq!(kind_of(EntryType::Unknown), None);
        // As `zdb -R` shows a regular file of number 42 in a directory of OpenZFS.
        assert_eq!(
            entry_word(ObjectId::from(42), FileKind::Regular),
            0x8000_0000_0000_002a
        );
    }
}
