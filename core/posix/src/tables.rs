//! The attribute tables of a file system: its registry and its layouts.
//!
//! # Mechanism
//! Both are read when the file system is opened and kept in memory, for they are small and every
//! file needs them. They grow: a file with a new combination of attributes needs a new layout, and
//! an old file system may lack a newer attribute. A new entry is first added to its ZAP, in the
//! same transaction as the file that needs it, and then shown to other threads.
//!
//! # Invariants
//! - A layout that a stored file names is in the ZAP: both are of one transaction.
//! - Readers take an unchangeable copy, and hold a lock only to take it.

use std::sync::Arc;

use tarn_host::lock::{Mutex, RwLock};
use tarn_object::zap::ZapValue;
use tarn_object::{Object, ObjectSet, Tx};
use tarn_ondisk as ondisk;
use tarn_ondisk::acl::AclVersion;
use tarn_ondisk::attributes::{
    AttributeId, Encoded, FileAttribute, LAYOUTS_NAME, LayoutId, Layouts, REGISTRY_NAME, Registry,
};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::directory::{create_zap, open_zap};
use crate::error::{PosixError, table_error};
use crate::ranks;

/// Files have attributes from this version on.
#[doc(alias = "ZPL_VERSION_SA")]
pub(crate) const VERSION_ATTRIBUTES: u64 = 5;
/// Owners are FUIDs, and access control lists have entries of several sizes, from this version on.
#[doc(alias = "ZPL_VERSION_FUID")]
pub(crate) const VERSION_FUID: u64 = 3;

/// The tables at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub registry: Registry,
    pub layouts: Layouts,
    /// How new files are stored here.
    pub style: Style,
}

/// The form in which a file system of some version stores files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// By layouts: from version 5 on.
    Attributes,
    /// In a structure, with access control lists of this form: versions before.
    Structure(AclVersion),
}

impl Style {
    /// The style of a ZPL version.
    pub fn of(version: u64) -> Style {
        match version {
            VERSION_ATTRIBUTES.. => Style::Attributes,
            VERSION_FUID.. => Style::Structure(AclVersion::Fuid),
            _ => Style::Structure(AclVersion::Initial),
        }
    }
}

impl Tables {
    /// The tables of a new file system.
    pub fn new(style: Style) -> Tables {
        let registry = match style {
            Style::Attributes => Registry::of_new_files(),
            Style::Structure(_) => Registry::of_old_files(),
        };
        Tables {
            registry,
            layouts: Layouts::new(),
            style,
        }
    }
}

impl Tables {
    /// The number of an attribute, if any file may have it.
    pub fn id(&self, attribute: FileAttribute) -> Option<AttributeId> {
        self.registry.id(attribute)
    }
}

/// The tables, and where they are stored.
pub(crate) struct AttributeTables {
    set: Arc<ObjectSet>,
    master: Option<ObjectId>,
    current: RwLock<Arc<Tables>>,
    /// The layouts with those that are being added.
    growing: Mutex<Layouts>,
}

impl AttributeTables {
    /// Reads the tables. `master` is what the master node names; none for a file system with old
    /// files only.
    pub fn load(
        set: &Arc<ObjectSet>,
        master: Option<ObjectId>,
        style: Style,
        operation: &Operation,
    ) -> Result<AttributeTables, PosixError> {
        let mut tables = Tables {
            registry: Registry::of_old_files(),
            layouts: Layouts::new(),
            style,
        };
        if let Some(master) = master {
            tables.registry = load_registry(set, master, operation)?;
            tables.layouts = load_layouts(set, master, operation)?;
        }
        Ok(AttributeTables::of(set, master, tables))
    }

    /// From tables in memory, as those of a new file system.
    pub fn of(set: &Arc<ObjectSet>, master: Option<ObjectId>, tables: Tables) -> AttributeTables {
        AttributeTables {
            set: set.clone(),
            master,
            growing: Mutex::new(ranks::LAYOUTS, tables.layouts.clone()),
            current: RwLock::new(ranks::TABLES, Arc::new(tables)),
        }
    }

    /// As they are now.
    pub fn current(&self) -> Arc<Tables> {
        self.current.read().clone()
    }

    /// Encodes attributes for a bonus with this much room. Layouts that are new are stored.
    pub fn encode(
        &self,
        tx: &Tx,
        object: ObjectId,
        values: &ondisk::attributes::Attributes,
        room: usize,
        operation: &Operation,
    ) -> Result<Encoded, PosixError> {
        let tables = self.current();
        let mut growing = self.growing.lock();
        let encoded = values.encode(room, &tables.registry, &mut growing);
        let encoded = encoded.map_err(|why| PosixError::CannotStore { object, why })?;
        if !encoded.new_layouts.is_empty() {
            let stored = self.store_layouts(tx, &growing, &encoded.new_layouts, operation);
            if let Err(error) = stored {
                *growing = self.current().layouts.clone();
                return Err(error);
            }
            let grown = Tables {
                layouts: growing.clone(),
                ..(*self.current()).clone()
            };
            *self.current.write() = Arc::new(grown);
        }
        Ok(encoded)
    }

    /// The number of an attribute, which is registered if it has none.
    pub fn id_or_register(
        &self,
        tx: &Tx,
        attribute: FileAttribute,
        operation: &Operation,
    ) -> Result<AttributeId, PosixError> {
        if let Some(id) = self.current().id(attribute) {
            return Ok(id);
        }
        let _growing = self.growing.lock();
        let mut tables = (*self.current()).clone();
        if let Some(id) = tables.id(attribute) {
            return Ok(id);
        }
        let id = tables.registry.register(attribute);
        let registration = tables.registry.registration(id).expect("it was registered");
        let object = self.table(tx, REGISTRY_NAME, ObjectType::SaRegistration, operation)?;
        open_zap(&object, operation)
            .update(
                tx,
                attribute.name(),
                &ZapValue::word(registration.to_word()),
            )
            .map_err(table_error(object.id()))?;
        *self.current.write() = Arc::new(tables);
        debug_assert_eq!(
            self.current().id(attribute),
            Some(id),
            "a registered attribute has its number"
        );
        Ok(id)
    }

    /// Stores the whole registry, which a new file system does once.
    pub fn store_registry(&self, tx: &Tx, operation: &Operation) -> Result<(), PosixError> {
        let object = self.table(tx, REGISTRY_NAME, ObjectType::SaRegistration, operation)?;
        let zap = open_zap(&object, operation);
        for (name, registration) in self.current().registry.entries() {
            let word = ZapValue::word(registration.to_word());
            zap.update(tx, name, &word)
                .map_err(table_error(object.id()))?;
        }
        Ok(())
    }

    fn store_layouts(
        &self,
        tx: &Tx,
        layouts: &Layouts,
        new: &[LayoutId],
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let object = self.table(tx, LAYOUTS_NAME, ObjectType::SaLayouts, operation)?;
        let zap = open_zap(&object, operation);
        for layout in new {
            let attributes = layouts.attributes(*layout).expect("a new layout is there");
            let numbers = attributes.iter().map(|attribute| attribute.0).collect();
            zap.update(
                tx,
                layout.0.to_string().as_str(),
                &ZapValue::Halves(numbers),
            )
            .map_err(table_error(object.id()))?;
        }
        Ok(())
    }

    /// One of the two tables, which is made if there is none.
    fn table(
        &self,
        tx: &Tx,
        name: &str,
        object_type: ObjectType,
        operation: &Operation,
    ) -> Result<Arc<Object>, PosixError> {
        let master = self
            .master
            .ok_or(PosixError::NotSupported("attributes in this version"))?;
        let master = self.set.object(master, operation)?;
        let zap = open_zap(&master, operation);
        if let Some(id) = zap.lookup_word(name).map_err(table_error(master.id()))? {
            return Ok(self.set.object(ObjectId::from(id), operation)?);
        }
        let object = create_zap(&self.set, tx, object_type, operation)?;
        zap.insert(tx, name, &ZapValue::word(object.id().get()))
            .map_err(table_error(master.id()))?;
        Ok(object)
    }
}

fn load_registry(
    set: &Arc<ObjectSet>,
    master: ObjectId,
    operation: &Operation,
) -> Result<Registry, PosixError> {
    let Some((object, entries)) = entries_of(set, master, REGISTRY_NAME, operation)? else {
        return Ok(Registry::of_new_files());
    };
    let words = entries
        .iter()
        .filter_map(|(name, value)| Some((name.as_slice(), value.as_word()?)));
    Registry::from_entries(words).map_err(|what| PosixError::Attributes { object, what })
}

fn load_layouts(
    set: &Arc<ObjectSet>,
    master: ObjectId,
    operation: &Operation,
) -> Result<Layouts, PosixError> {
    let mut layouts = Layouts::new();
    let Some((object, entries)) = entries_of(set, master, LAYOUTS_NAME, operation)? else {
        return Ok(layouts);
    };
    for (name, value) in entries {
        let ZapValue::Halves(attributes) = value else {
            return Err(PosixError::Damaged {
                object,
                why: "a layout is not a list of attributes",
            });
        };
        layouts
            .add_entry(&name, &attributes)
            .map_err(|what| PosixError::Attributes { object, what })?;
    }
    Ok(layouts)
}

type Entries = Vec<(Vec<u8>, ZapValue)>;

/// All entries of the table that the attributes' master node has under this name.
fn entries_of(
    set: &Arc<ObjectSet>,
    master: ObjectId,
    name: &str,
    operation: &Operation,
) -> Result<Option<(ObjectId, Entries)>, PosixError> {
    let object = set.object(master, operation)?;
    let found = open_zap(&object, operation)
        .lookup_word(name)
        .map_err(table_error(master))?;
    let Some(table) = found.map(ObjectId::from) else {
        return Ok(None);
    };
    let object = set.object(table, operation)?;
    let entries = open_zap(&object, operation)
        .entries()
        .map_err(table_error(table))?;
    let text = |entry: tarn_object::zap::ZapEntry| match entry.name {
        tarn_object::zap::OwnedName::Text(name) => Some((name, entry.value)),
        tarn_object::zap::OwnedName::Words(_) => None,
    };
    Ok(Some((
        table,
        entries.into_iter().filter_map(text).collect(),
    )))
}
