//! System attributes: what a file has beside its contents, in its dnode's bonus.
//!
//! # Problem
//! Files of different kinds have different attributes (a link has a target, a device a number),
//! and new attributes come with new features. A fixed structure would waste the little room that a
//! dnode has.
//!
//! # Mechanism
//! A file system has a *registry*, a ZAP of attribute names: each has a number, a size (0 where
//! each value has its own) and a form (how the bytes turn with the byte order):
//!
//! ```text
//!   64           40         24        16                 0
//!   |   unused   |   size   |  form   |   number         |
//! ```
//!
//! A *layout* is a list of attribute numbers, and the file system has a ZAP of those too. A bonus
//! is a header that names its layout, and the values one after the other, each from a multiple of
//! eight bytes:
//!
//! ```text
//!   0       4                 6          8
//!   | magic | layout, header  | size 0   | size 1 …   pad | value | value | …
//!                10 bits, 6 bits: header bytes / 8
//! ```
//!
//! Sizes are there for the attributes without a fixed one, in their order. So the first of them
//! is free, and each further one takes two bytes of header.
//!
//! What does not fit in the bonus goes into a *spill block*, which is a second buffer of the same
//! form; the last 128 bytes of the bonus are then the pointer to it. Order is kept: the first
//! attributes are in the bonus, the rest in the spill block.
//!
//! Files made before ZPL version 5 have a fixed structure instead, [`znode`](crate::znode). Its
//! fields are attributes 0 to 15 in this order, so it is read like a layout without a header.
//!
//! # Invariants
//! - The byte order is that of the header's magic number, whatever the block pointer says: values
//!   turn by their form, which only the registry knows.
//! - A layout has each attribute once.

use crate::acl;
use crate::declare::{ByteOrder, Corrupt, widen};
use crate::zap::hash::CRC64_TABLE;
use crate::znode::ZNODE_SIZE;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Marks a buffer of attributes.
#[doc(alias = "SA_MAGIC")]
pub const MAGIC: u32 = 0x002f_505a;
/// The name of the layouts' ZAP in the attributes' master node.
#[doc(alias = "SA_LAYOUTS")]
pub const LAYOUTS_NAME: &str = "LAYOUTS";
/// The name of the registry's ZAP in the attributes' master node.
#[doc(alias = "SA_REGISTRY")]
pub const REGISTRY_NAME: &str = "REGISTRY";
/// The largest size of all attributes of a file together.
#[doc(alias = "SPA_OLD_MAXBLOCKSIZE")]
pub const SIZE_MAX: usize = 128 << 10;

/// The size of the pointer to the spill block, at the end of the bonus.
const POINTER_SIZE: usize = 128;
/// The header with room for one size.
#[doc(alias = "sa_hdr_phys_t")]
const HEADER_SIZE: usize = 8;
/// Layouts have numbers of ten bits.
const LAYOUT_BITS: u32 = 10;

const WHAT: &str = "system attributes";

/// The number of an attribute in one file system.
#[doc(alias = "sa_attr_type_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeId(pub u16);

/// The number of a layout in one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayoutId(pub u16);

impl LayoutId {
    /// The layout of a file made before ZPL version 5. Never stored.
    pub const ZNODE: LayoutId = LayoutId(0);
    /// The layout without attributes. Never stored.
    pub const EMPTY: LayoutId = LayoutId(1);
    /// The first that is stored.
    pub const FIRST: LayoutId = LayoutId(2);
}

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
    fn turn(self, value: &mut [u8]) {
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

/// Declares the attributes that files have.
macro_rules! file_attributes {
    ($($(#[$attribute:meta])* $variant:ident $name:literal, $size:literal, $form:ident;)*) => {
        /// An attribute that files may have, whatever its number in a file system.
        #[doc(alias = "zpl_attr_t")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FileAttribute {
            $($(#[$attribute])* $variant,)*
        }

        impl FileAttribute {
            /// All of them, in the order in which a new file system numbers them.
            #[doc(alias = "zfs_attr_table")]
            pub const ALL: &[FileAttribute] = &[$(FileAttribute::$variant,)*];

            /// The name in the registry.
            pub const fn name(self) -> &'static str {
                match self {
                    $(FileAttribute::$variant => $name,)*
                }
            }

            /// The size of its values in bytes; 0 where each has its own.
            pub const fn size(self) -> u16 {
                match self {
                    $(FileAttribute::$variant => $size,)*
                }
            }

            /// How its values turn with the byte order.
            pub const fn form(self) -> AttributeForm {
                match self {
                    $(FileAttribute::$variant => AttributeForm::$form,)*
                }
            }
        }
    };
}

file_attributes! {
    /// When it was last read: seconds and nanoseconds.
    AccessTime "ZPL_ATIME", 16, Words;
    /// When its contents last changed: seconds and nanoseconds.
    ModificationTime "ZPL_MTIME", 16, Words;
    /// When anything of it last changed: seconds and nanoseconds.
    ChangeTime "ZPL_CTIME", 16, Words;
    /// When it was made: seconds and nanoseconds.
    CreationTime "ZPL_CRTIME", 16, Words;
    /// The txg in which it was made.
    Generation "ZPL_GEN", 8, Words;
    /// Type and permissions.
    Mode "ZPL_MODE", 8, Words;
    /// How many bytes it has; for directories, how many entries with `.` and `..`.
    Size "ZPL_SIZE", 8, Words;
    /// The directory it is in, or was last linked into.
    Parent "ZPL_PARENT", 8, Words;
    /// How many names it has.
    Links "ZPL_LINKS", 8, Words;
    /// The directory of its extended attributes, or 0.
    XattrDirectory "ZPL_XATTR", 8, Words;
    /// The number of a device, as the kernel that made it has them: Linux the minor number in the
    /// lower 20 bits, and the major number above.
    Device "ZPL_RDEV", 8, Words;
    /// [`ZnodeFlags`](crate::znode::ZnodeFlags).
    Flags "ZPL_FLAGS", 8, Words;
    /// Its owner, a [`Fuid`](crate::fuid::Fuid).
    Owner "ZPL_UID", 8, Words;
    /// Its group, a [`Fuid`](crate::fuid::Fuid).
    Group "ZPL_GID", 8, Words;
    /// Room that old files have, unused.
    Pad "ZPL_PAD", 32, Words;
    /// The access control list of old files, an [`AclPhys`](crate::acl::AclPhys).
    ZnodeAcl "ZPL_ZNODE_ACL", 88, Bytes;
    /// How many entries its access control list has.
    AclCount "ZPL_DACL_COUNT", 8, Words;
    /// The target of a symbolic link.
    LinkTarget "ZPL_SYMLINK", 0, Bytes;
    /// What a virus scanner left.
    ScanStamp "ZPL_SCANSTAMP", 32, Bytes;
    /// Its access control list's entries.
    AclEntries "ZPL_DACL_ACES", 0, Acl;
    /// Its extended attributes: an [`NvList`](crate::nvlist::NvList) of byte arrays, as XDR.
    Xattrs "ZPL_DXATTR", 0, Bytes;
    /// The project whose quota it counts against.
    Project "ZPL_PROJID", 8, Words;
}

impl FileAttribute {
    /// The number it has in every file system, for the sixteen that old files have.
    pub fn fixed_id(self) -> Option<AttributeId> {
        let number = FileAttribute::ALL
            .iter()
            .position(|&attribute| attribute == self)?;
        let number = u16::try_from(number).ok()?;
        (number < ZNODE_ATTRIBUTES).then_some(AttributeId(number))
    }
}

/// How many attributes old files have: the first of [`FileAttribute::ALL`].
const ZNODE_ATTRIBUTES: u16 = 16;

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
        let mut registry = Registry {
            registrations: BTreeMap::new(),
            ids: Vec::new(),
        };
        for &attribute in &FileAttribute::ALL[..usize::from(ZNODE_ATTRIBUTES)] {
            registry.register(attribute);
        }
        registry
    }

    /// The registry of a new file system.
    pub fn of_new_files() -> Registry {
        let mut registry = Registry::of_old_files();
        for &attribute in FileAttribute::ALL {
            registry.register(attribute);
        }
        registry
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

    /// The number behind the largest; where the disk gave that to one already, the smallest that is not in use.
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

    fn index(&mut self) {
        let id_of = |attribute: &FileAttribute| {
            let named = |(name, _): &&(String, Registration)| name == attribute.name();
            self.registrations
                .values()
                .find(named)
                .map(|(_, registration)| registration.id)
        };
        self.ids = FileAttribute::ALL.iter().map(id_of).collect();
    }

    fn known(&self, id: AttributeId) -> Result<Registration, Corrupt> {
        let unknown = || Corrupt::Value {
            what: WHAT,
            field: "attribute",
            offset: 0,
            found: u64::from(id.0),
        };
        self.registration(id).ok_or_else(unknown)
    }
}

/// A file system's layouts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layouts {
    layouts: BTreeMap<LayoutId, Vec<AttributeId>>,
}

impl Default for Layouts {
    fn default() -> Self {
        Layouts::new()
    }
}

impl Layouts {
    /// The two that are never stored.
    pub fn new() -> Layouts {
        let old = (0..ZNODE_ATTRIBUTES).map(AttributeId).collect();
        Layouts {
            layouts: BTreeMap::from([(LayoutId::ZNODE, old), (LayoutId::EMPTY, Vec::new())]),
        }
    }

    /// Adds a layout from its ZAP: its name there, which is its number in decimal, and its value.
    pub fn add_entry(&mut self, name: &[u8], attributes: &[u16]) -> Result<(), Corrupt> {
        let number = std::str::from_utf8(name)
            .ok()
            .and_then(|name| name.parse::<u16>().ok());
        let Some(number) = number.filter(|&n| n >= LayoutId::FIRST.0 && n >> LAYOUT_BITS == 0)
        else {
            return Err(inconsistent(
                0,
                "a layout's name is not a number that layouts have",
            ));
        };
        let mut seen = BTreeSet::new();
        if !attributes.iter().all(|attribute| seen.insert(attribute)) {
            return Err(inconsistent(0, "a layout has an attribute twice"));
        }
        let attributes = attributes.iter().copied().map(AttributeId).collect();
        self.layouts.insert(LayoutId(number), attributes);
        Ok(())
    }

    /// The attributes of a layout, in their order.
    pub fn attributes(&self, layout: LayoutId) -> Option<&[AttributeId]> {
        self.layouts.get(&layout).map(Vec::as_slice)
    }

    /// The layout with these attributes in this order, among those that are stored.
    #[doc(alias = "sa_find_layout")]
    pub fn find(&self, attributes: &[AttributeId]) -> Option<LayoutId> {
        let mut stored = self.layouts.range(LayoutId::FIRST..);
        stored
            .find(|(_, other)| other.as_slice() == attributes)
            .map(|(&layout, _)| layout)
    }

    /// The layout with these attributes in this order, made if need be. True with one that was
    /// made, and must be stored.
    ///
    /// `None` when the file system has all the layouts it may have.
    pub fn find_or_add(&mut self, attributes: &[AttributeId]) -> Option<(LayoutId, bool)> {
        if let Some(layout) = self.find(attributes) {
            return Some((layout, false));
        }
        let count = u16::try_from(self.layouts.len()).ok()?;
        let last = self
            .layouts
            .last_key_value()
            .map_or(0, |(layout, _)| layout.0 + 1);
        let layout = LayoutId(count.max(last));
        if layout.0 >> LAYOUT_BITS != 0 {
            return None;
        }
        self.layouts.insert(layout, attributes.to_vec());
        Some((layout, true))
    }

    /// All layouts that are stored.
    pub fn entries(&self) -> impl Iterator<Item = (LayoutId, &[AttributeId])> {
        let stored = self.layouts.range(LayoutId::FIRST..);
        stored.map(|(&layout, attributes)| (layout, attributes.as_slice()))
    }

    /// A number for a list of attributes, by which OpenZFS finds layouts in memory.
    #[doc(alias = "sa_layout_info_hash")]
    pub fn hash(attributes: &[AttributeId]) -> u64 {
        attributes.iter().fold(u64::MAX, |hash, attribute| {
            let [low, _] = attribute.0.to_le_bytes();
            hash ^ CRC64_TABLE[usize::from(!low)]
        })
    }
}

/// A file's attributes: those of its bonus, and behind them those of its spill block. Values are
/// little-endian.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// In their order.
    places: Vec<Place>,
    /// The values one behind the other, in the same order, without gaps.
    bytes: Vec<u8>,
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    id: AttributeId,
    start: usize,
    length: usize,
}

impl Attributes {
    /// No attributes.
    pub fn new() -> Attributes {
        Attributes::default()
    }

    /// Adds the attributes of a bonus or a spill block.
    #[doc(alias = "sa_build_index")]
    pub fn add_buffer(
        &mut self,
        buffer: &[u8],
        registry: &Registry,
        layouts: &Layouts,
    ) -> Result<LayoutId, Corrupt> {
        let header = Header::decode(buffer)?;
        let Some(attributes) = layouts.attributes(header.layout) else {
            return Err(Corrupt::Value {
                what: WHAT,
                field: "layout",
                offset: 4,
                found: u64::from(header.layout.0),
            });
        };
        let before = self.places.len();
        self.places.reserve(attributes.len());
        let mut sizes = header.sizes(buffer);
        let mut place = header.size;
        for &id in attributes {
            let registration = registry.known(id)?;
            if self.places[..before].iter().any(|place| place.id == id) {
                // Both could be read, but nobody could say which is meant, nor store them in one buffer.
                return Err(inconsistent(
                    4,
                    "a spill block has an attribute of its bonus again",
                ));
            }
            let size = match registration.size {
                0 => sizes
                    .next()
                    .ok_or_else(|| inconsistent(4, "a size is missing"))?,
                fixed => fixed,
            };
            place = self.add_value(buffer, place, registration, size, header.order)?;
        }
        // Thousands of files are kept in memory, and few get more attributes.
        self.places.shrink_to_fit();
        self.bytes.shrink_to_fit();
        Ok(header.layout)
    }

    /// The attributes of a file made before ZPL version 5. `order` is that of the block that the
    /// bonus is in.
    pub fn of_old_file(bonus: &[u8], order: ByteOrder) -> Result<Attributes, Corrupt> {
        let mut attributes = Attributes::new();
        let mut place = 0;
        for (_, registration) in Registry::of_old_files().entries() {
            let size = registration.size;
            place = attributes.add_value(bonus, place, registration, size, order)?;
        }
        debug_assert_eq!(place, ZNODE_SIZE);
        Ok(attributes)
    }

    fn add_value(
        &mut self,
        buffer: &[u8],
        place: usize,
        registration: Registration,
        size: u16,
        order: ByteOrder,
    ) -> Result<usize, Corrupt> {
        let size = usize::from(size);
        let Some(value) = buffer.get(place..place + size) else {
            return Err(Corrupt::Truncated {
                what: WHAT,
                offset: widen(place),
                needed: widen(size),
                present: widen(buffer.len().saturating_sub(place)),
            });
        };
        self.push(registration.id, value);
        if order == ByteOrder::Big {
            let start = self.bytes.len() - size;
            registration.form.turn(&mut self.bytes[start..]);
        }
        Ok((place + size).next_multiple_of(8))
    }

    /// The bytes of an attribute.
    pub fn get(&self, id: AttributeId) -> Option<&[u8]> {
        self.find(id).map(|place| self.value(place))
    }

    /// An attribute of one word.
    pub fn word(&self, id: AttributeId) -> Option<u64> {
        let value = self.get(id)?.as_array::<8>()?;
        Some(u64::from_le_bytes(*value))
    }

    /// An attribute of two words, as times are.
    pub fn two_words(&self, id: AttributeId) -> Option<[u64; 2]> {
        let (words, rest) = self.get(id)?.as_chunks::<8>();
        match (words, rest) {
            ([first, second], []) => {
                Some([u64::from_le_bytes(*first), u64::from_le_bytes(*second)])
            }
            _ => None,
        }
    }

    /// Sets an attribute: in its place where it is there already, else at the end.
    pub fn set(&mut self, id: AttributeId, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        match self.find(id) {
            None => self.push(id, value),
            Some(place) if place.length == value.len() => {
                self.bytes[place.start..][..place.length].copy_from_slice(value);
            }
            Some(_) => {
                let old = std::mem::take(self);
                for (other, kept) in old.iter() {
                    self.push(other, if other == id { value } else { kept });
                }
            }
        }
    }

    fn push(&mut self, id: AttributeId, value: &[u8]) {
        self.places.push(Place {
            id,
            start: self.bytes.len(),
            length: value.len(),
        });
        self.bytes.extend_from_slice(value);
    }

    fn find(&self, id: AttributeId) -> Option<Place> {
        self.places.iter().copied().find(|place| place.id == id)
    }

    fn value(&self, place: Place) -> &[u8] {
        &self.bytes[place.start..][..place.length]
    }

    /// Sets an attribute of one word.
    pub fn set_word(&mut self, id: AttributeId, word: u64) {
        self.set(id, word.to_le_bytes());
    }

    /// Sets an attribute of two words.
    pub fn set_two_words(&mut self, id: AttributeId, [first, second]: [u64; 2]) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&second.to_le_bytes());
        self.set(id, bytes);
    }

    /// Removes an attribute. True when it was there.
    pub fn remove(&mut self, id: AttributeId) -> bool {
        if self.find(id).is_none() {
            return false;
        }
        let old = std::mem::take(self);
        for (other, kept) in old.iter().filter(|(other, _)| *other != id) {
            self.push(other, kept);
        }
        true
    }

    /// The attributes in their order.
    pub fn iter(&self) -> impl Iterator<Item = (AttributeId, &[u8])> {
        self.places
            .iter()
            .map(|place| (place.id, self.value(*place)))
    }

    /// The bytes of a file made before ZPL version 5.
    ///
    /// `None` when the attributes are not those of such a file.
    pub fn to_old_file(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(ZNODE_SIZE);
        for (_, registration) in Registry::of_old_files().entries() {
            let value = self.get(registration.id)?;
            if value.len() != usize::from(registration.size) {
                return None;
            }
            bytes.extend(value);
        }
        Some(bytes)
    }

    /// Encodes the attributes, in their order, as OpenZFS does: a bonus of at most `bonus_size`
    /// bytes, and a spill block where that is too small. Layouts that are needed are made.
    ///
    /// # Panics
    /// When an attribute is not registered, or `bonus_size` is not a multiple of 8.
    #[doc(alias = "sa_build_layouts")]
    pub fn encode(
        &self,
        bonus_size: usize,
        registry: &Registry,
        layouts: &mut Layouts,
    ) -> Result<Encoded, CannotEncode> {
        assert!(bonus_size.is_multiple_of(8), "a bonus has whole words");
        let plan = plan_bonus(&self.sizes(registry)?, bonus_size);
        if plan.total > SIZE_MAX {
            return Err(CannotEncode::TooLarge);
        }
        let (first, rest) = self
            .places
            .split_at(plan.spill_at.unwrap_or(self.places.len()));
        let mut new_layouts = Vec::new();
        let mut buffer = |places: &[Place], header_size| {
            let ids: Vec<AttributeId> = places.iter().map(|place| place.id).collect();
            let (layout, is_new) = layouts.find_or_add(&ids).ok_or(CannotEncode::NoLayout)?;
            if is_new {
                new_layouts.push(layout);
            }
            Ok(self.encode_buffer(places, layout, header_size, registry))
        };
        let mut bonus = buffer(first, plan.header_size)?;
        if plan.spill_at.is_none() {
            return Ok(Encoded {
                bonus,
                spill: None,
                new_layouts,
            });
        }
        bonus.resize(
            (bonus_size - POINTER_SIZE).min(plan.total + plan.header_size),
            0,
        );
        let sizes: Vec<(bool, usize)> = self.sizes(registry)?.split_off(first.len());
        let spill = buffer(rest, spill_header_size(&sizes))?;
        if spill.len() > SIZE_MAX {
            return Err(CannotEncode::TooLarge);
        }
        Ok(Encoded {
            bonus,
            spill: Some(spill),
            new_layouts,
        })
    }

    /// Whether each attribute has a size of its own, and its size. A registry may lie about the sizes of attributes that are known.
    fn sizes(&self, registry: &Registry) -> Result<Vec<(bool, usize)>, CannotEncode> {
        let size = |place: &Place| {
            let registration = registry
                .registration(place.id)
                .expect("the attribute is registered");
            let fits = registration.is_variable() || usize::from(registration.size) == place.length;
            match fits {
                true => Ok((registration.is_variable(), place.length)),
                false => Err(CannotEncode::OtherSize {
                    attribute: place.id.0,
                    size: place.length,
                    registered: registration.size,
                }),
            }
        };
        self.places.iter().map(size).collect()
    }

    fn encode_buffer(
        &self,
        places: &[Place],
        layout: LayoutId,
        header_size: usize,
        registry: &Registry,
    ) -> Vec<u8> {
        let words = u16::try_from(header_size / 8).expect("a header is small");
        assert!(
            words >> (16 - LAYOUT_BITS) == 0,
            "a header has at most 504 bytes"
        );
        let values_size: usize = places.iter().map(|place| place.length + 8).sum();
        let mut bytes = Vec::with_capacity(header_size + values_size);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(((words << LAYOUT_BITS) | layout.0).to_le_bytes());
        for place in places {
            if registry
                .registration(place.id)
                .is_some_and(Registration::is_variable)
            {
                let size = u16::try_from(place.length).expect("a value has less than 64 KiB");
                bytes.extend(size.to_le_bytes());
            }
        }
        bytes.resize(header_size, 0);
        for place in places {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes.extend_from_slice(self.value(*place));
        }
        bytes
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Attributes as they are to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The bonus, as long as it must be. With a spill block, the pointer to that goes to the last
    /// 128 bytes of the dnode, which the bonus leaves free.
    pub bonus: Vec<u8>,
    /// The contents of the spill block, where one is needed. The block has whole sectors.
    pub spill: Option<Vec<u8>>,
    /// Layouts that are new, and must be stored.
    pub new_layouts: Vec<LayoutId>,
}

/// Why attributes cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CannotEncode {
    /// They are larger than a spill block can be.
    #[error("the attributes are larger than 128 KiB")]
    TooLarge,
    /// The file system has all the layouts it may have.
    #[error("the file system has 1024 attribute layouts, and can have no more")]
    NoLayout,
    /// The file system has registered an attribute with another size than its value has.
    #[error("attribute {attribute} has {size} bytes, and is registered with {registered}")]
    OtherSize {
        /// Its number.
        attribute: u16,
        /// How many bytes the value has.
        size: usize,
        /// How many it should have.
        registered: u16,
    },
}

/// The start of a buffer of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    order: ByteOrder,
    layout: LayoutId,
    size: usize,
}

impl Header {
    fn decode(buffer: &[u8]) -> Result<Header, Corrupt> {
        let Some(&[a, b, c, d, e, f, ..]) = buffer.get(..HEADER_SIZE) else {
            return Err(Corrupt::Truncated {
                what: WHAT,
                offset: 0,
                needed: widen(HEADER_SIZE),
                present: widen(buffer.len()),
            });
        };
        let order = match u32::from_le_bytes([a, b, c, d]) {
            // A bonus of which nothing was written yet.
            MAGIC | 0 => ByteOrder::Little,
            other if other.swap_bytes() == MAGIC => ByteOrder::Big,
            other => {
                return Err(Corrupt::Magic {
                    what: WHAT,
                    offset: 0,
                    found: u64::from(other),
                    expected: u64::from(MAGIC),
                });
            }
        };
        let info = match order {
            ByteOrder::Little => u16::from_le_bytes([e, f]),
            ByteOrder::Big => u16::from_be_bytes([e, f]),
        };
        let layout = match info & ((1 << LAYOUT_BITS) - 1) {
            0 => LayoutId::EMPTY,
            number => LayoutId(number),
        };
        let size = 8 * usize::from(info >> LAYOUT_BITS);
        if layout != LayoutId::EMPTY && (size < HEADER_SIZE || size > buffer.len()) {
            return Err(Corrupt::Value {
                what: WHAT,
                field: "header size",
                offset: 4,
                found: widen(size),
            });
        }
        Ok(Header {
            order,
            layout,
            size,
        })
    }

    /// The sizes of values that have their own, as many as the header has room for.
    fn sizes<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = u16> + 'a {
        let order = self.order;
        let sizes = buffer.get(6..self.size).unwrap_or_default();
        sizes
            .as_chunks::<2>()
            .0
            .iter()
            .map(move |&size| match order {
                ByteOrder::Little => u16::from_le_bytes(size),
                ByteOrder::Big => u16::from_be_bytes(size),
            })
    }
}

/// What goes where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    /// The size of the bonus' header.
    header_size: usize,
    /// The size of all values, padding between them included.
    total: usize,
    /// The first attribute that goes into the spill block.
    spill_at: Option<usize>,
}

/// Decides which attributes stay in a bonus with `room` bytes.
///
/// If all fit, they stay. If not, those stay that end before the spill block's pointer; the room
/// that their sizes take in the header was counted as they came, and is given back for those that
/// then leave.
#[doc(alias = "sa_find_sizes")]
fn plan_bonus(sizes: &[(bool, usize)], room: usize) -> Plan {
    let mut header_size = HEADER_SIZE;
    let mut header_given_back = 0;
    let mut total = 0usize;
    let mut variable_count = 0;
    let mut spill_at = None;
    let mut spills = false;
    for (index, &(is_variable, size)) in sizes.iter().enumerate() {
        total = total.next_multiple_of(8) + size;
        if spills {
            continue;
        }
        variable_count += usize::from(is_variable);
        let needs_header = is_variable && variable_count > 1;
        let grown = header_size + if needs_header { 2 } else { 0 };
        let reaches_pointer = spill_at.is_none()
            && total + grown.next_multiple_of(8) > room.saturating_sub(POINTER_SIZE);
        if needs_header {
            if grown + total < room {
                header_size = grown;
                if spill_at.is_some() || reaches_pointer {
                    header_given_back += 2;
                }
            } else {
                spill_at.get_or_insert(index);
                spills = true;
                continue;
            }
        }
        if reaches_pointer {
            spill_at = Some(index);
        }
        spills = total + header_size.next_multiple_of(8) > room;
    }
    if spills {
        header_size -= header_given_back;
    } else {
        spill_at = None;
    }
    Plan {
        header_size: header_size.next_multiple_of(8),
        total,
        spill_at,
    }
}

/// The size of the header of a spill block.
fn spill_header_size(sizes: &[(bool, usize)]) -> usize {
    let variable_count = sizes.iter().filter(|(is_variable, _)| *is_variable).count();
    (HEADER_SIZE + 2 * variable_count.saturating_sub(1)).next_multiple_of(8)
}

fn inconsistent(offset: u64, why: &'static str) -> Corrupt {
    Corrupt::Inconsistent {
        what: WHAT,
        offset,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(registry: &Registry, attribute: FileAttribute) -> AttributeId {
        registry
            .id(attribute)
            .expect("a new file system has all attributes")
    }

    /// A file with several attributes of their own size, the last of `size` bytes.
    fn sample(registry: &Registry, size: usize) -> Attributes {
        let mut attributes = Attributes::new();
        attributes.set_word(id(registry, FileAttribute::Mode), 0o100_644);
        attributes.set_two_words(id(registry, FileAttribute::AccessTime), [1, 2]);
        attributes.set(id(registry, FileAttribute::AclEntries), vec![0; 24]);
        attributes.set(id(registry, FileAttribute::LinkTarget), b"target");
        attributes.set_word(id(registry, FileAttribute::Links), 1);
        attributes.set(id(registry, FileAttribute::Xattrs), vec![7; size]);
        attributes
    }

    #[test]
    fn attributes_have_the_numbers_they_have_in_every_file_system() {
        let registry = Registry::of_new_files();
        assert_eq!(id(&registry, FileAttribute::AccessTime), AttributeId(0));
        assert_eq!(id(&registry, FileAttribute::ZnodeAcl), AttributeId(15));
        assert_eq!(id(&registry, FileAttribute::AclEntries), AttributeId(19));
        assert_eq!(id(&registry, FileAttribute::Project), AttributeId(21));
        assert_eq!(FileAttribute::Project.fixed_id(), None);
    }

    #[test]
    fn a_registration_is_the_word_that_openzfs_stores() {
        // As `zdb` prints ZPL_SCANSTAMP: 20030012 : [32:3:18].
        let scan_stamp = Registration {
            id: AttributeId(18),
            size: 32,
            form: AttributeForm::Bytes,
        };
        assert_eq!(scan_stamp.to_word(), 0x2003_0012);
        assert_eq!(Registration::from_word(0x2003_0012), Ok(scan_stamp));
        assert!(Registration::from_word(0x2009_0012).is_err());
    }

    #[test]
    fn what_fits_stays_in_the_bonus_and_the_rest_spills() {
        let registry = Registry::of_new_files();
        let mut layouts = Layouts::new();
        let small = sample(&registry, 8).encode(320, &registry, &mut layouts);
        let small = small.expect("it is small");
        assert_eq!(small.spill, None);
        assert_eq!(small.new_layouts, [LayoutId(2)]);
        // Three sizes: the first is in the header's eight bytes, two more need eight again.
        assert_eq!(small.bonus.len(), 16 + 8 + 16 + 24 + 8 + 8 + 8);
        let large = sample(&registry, 300).encode(320, &registry, &mut layouts);
        let large = large.expect("it is not too large");
        let spill = large.spill.expect("300 bytes do not fit");
        assert_eq!(spill.len(), 8 + 300);
        assert_eq!(large.bonus.len(), 320 - 128);
        assert_eq!(large.new_layouts, [LayoutId(3), LayoutId(4)]);
        let too_large = sample(&registry, 65_000);
        assert!(too_large.encode(320, &registry, &mut layouts).is_ok());
    }

    /// What the disk says of an attribute's size is not what its values have.
    #[test]
    fn a_registry_that_lies_is_an_error_for_who_stores() {
        let mode = FileAttribute::Mode;
        let lying = Registration {
            size: 24,
            ..Registry::of_new_files()
                .registration(AttributeId(5))
                .expect("mode has a number in every file system")
        };
        let word = [(mode.name().as_bytes(), lying.to_word())];
        let refused = Registry::from_entries(word);
        assert!(refused.is_err(), "its number is known");
        let project = Registration {
            id: AttributeId(u16::MAX),
            size: 24,
            form: AttributeForm::Words,
        };
        let name = FileAttribute::Project.name().as_bytes();
        let entries = [(name, project.to_word())];
        let mut registry = Registry::from_entries(entries).expect("the number is free");
        let mut attributes = Attributes::new();
        attributes.set_word(id(&registry, FileAttribute::Project), 7);
        let encoded = attributes.encode(320, &registry, &mut Layouts::new());
        let expected = CannotEncode::OtherSize {
            attribute: u16::MAX,
            size: 8,
            registered: 24,
        };
        assert_eq!(encoded.map(|_| ()), Err(expected));
        let next = registry.register(FileAttribute::Xattrs);
        assert!(next < AttributeId(u16::MAX), "there is none behind it");
    }

    #[test]
    fn a_big_endian_buffer_reads_the_same() {
        let registry = Registry::of_new_files();
        let mut layouts = Layouts::new();
        let mode = id(&registry, FileAttribute::Mode);
        let target = id(&registry, FileAttribute::LinkTarget);
        layouts
            .add_entry(b"2", &[mode.0, target.0])
            .expect("it is a layout");
        let mut buffer = MAGIC.to_be_bytes().to_vec();
        buffer.extend(((1u16 << 10) | 2).to_be_bytes());
        buffer.extend(3u16.to_be_bytes());
        buffer.extend(0o120_777u64.to_be_bytes());
        buffer.extend(b"way");
        let mut attributes = Attributes::new();
        attributes
            .add_buffer(&buffer, &registry, &layouts)
            .expect("both byte orders are read");
        assert_eq!(attributes.word(mode), Some(0o120_777));
        assert_eq!(attributes.get(target), Some(&b"way"[..]));
    }

    #[test]
    fn an_old_file_reads_as_attributes_and_back() {
        let mut bytes: Vec<u8> = (0..=255).chain(0..8).collect();
        let attributes = Attributes::of_old_file(&bytes, ByteOrder::Little);
        let attributes = attributes.expect("it is long enough");
        let size = FileAttribute::Size
            .fixed_id()
            .expect("old files have a size");
        let expected = u64::from_le_bytes([80, 81, 82, 83, 84, 85, 86, 87]);
        assert_eq!(attributes.word(size), Some(expected));
        assert_eq!(attributes.to_old_file().as_ref(), Some(&bytes));
        bytes.pop();
        assert!(Attributes::of_old_file(&bytes, ByteOrder::Little).is_err());
    }

    #[test]
    fn a_layout_that_is_not_one_is_refused() {
        let mut layouts = Layouts::new();
        assert!(layouts.add_entry(b"1", &[1]).is_err());
        assert!(layouts.add_entry(b"1024", &[1]).is_err());
        assert!(layouts.add_entry(b"two", &[1]).is_err());
        assert!(layouts.add_entry(b"2", &[1, 1]).is_err());
        assert!(layouts.add_entry(b"2", &[1, 2]).is_ok());
        assert_eq!(
            layouts.find(&[AttributeId(1), AttributeId(2)]),
            Some(LayoutId(2))
        );
        assert_eq!(
            layouts.find_or_add(&[AttributeId(2)]),
            Some((LayoutId(3), true))
        );
    }

    proptest! {
        #[test]
        fn attributes_survive_being_stored(
            sizes in (0usize..400, 0usize..400, 0usize..400),
            bonus_words in 24usize..100,
        ) {
            let registry = Registry::of_new_files();
            let mut layouts = Layouts::new();
            let mut attributes = sample(&registry, sizes.0);
            attributes.set(id(&registry, FileAttribute::LinkTarget), vec![1; sizes.1]);
            attributes.set(id(&registry, FileAttribute::AclEntries), vec![2; sizes.2]);
            let bonus_size = 8 * bonus_words;
            let stored = attributes.encode(bonus_size, &registry, &mut layouts);
            let stored = stored.expect("it is not too large");
            let mut read = Attributes::new();
            read.add_buffer(&stored.bonus, &registry, &layouts).expect("we wrote it");
            let room = match &stored.spill {
                None => bonus_size,
                Some(spill) => {
                    read.add_buffer(spill, &registry, &layouts).expect("we wrote it");
                    bonus_size - POINTER_SIZE
                }
            };
            prop_assert!(stored.bonus.len() <= room);
            prop_assert_eq!(read, attributes);
        }

        #[test]
        fn any_bytes_are_attributes_or_refused(
            mut buffer in prop::collection::vec(any::<u8>(), 0..300),
            layout in 0u8..4,
            size in 0u8..64,
        ) {
            let registry = Registry::of_new_files();
            let mut layouts = Layouts::new();
            layouts.add_entry(b"2", &[5, 19, 0, 20, 17]).expect("it is a layout");
            layouts.add_entry(b"3", &[99]).expect("it is a layout");
            let _ = Attributes::new().add_buffer(&buffer, &registry, &layouts);
            if buffer.len() >= 8 {
                for magic in [MAGIC.to_le_bytes(), MAGIC.to_be_bytes()] {
                    buffer[..4].copy_from_slice(&magic);
                    let info = (u16::from(size) << 10) | u16::from(layout);
                    buffer[4..6].copy_from_slice(&info.to_le_bytes());
                    let _ = Attributes::new().add_buffer(&buffer, &registry, &layouts);
                    buffer[4..6].copy_from_slice(&info.to_be_bytes());
                    let _ = Attributes::new().add_buffer(&buffer, &registry, &layouts);
                }
            }
            let _ = Attributes::of_old_file(&buffer, ByteOrder::Big);
        }
    }
}
