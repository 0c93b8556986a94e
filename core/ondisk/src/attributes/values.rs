//! The attributes of one file: read from its bonus and spill block, asked for and set.

use super::header::Header;
use super::{AttributeId, LayoutId, Layouts, Registration, Registry, WHAT, inconsistent};
use crate::declare::{ByteOrder, Corrupt, widen};
use crate::znode::ZNODE_SIZE;
use std::fmt;

/// A file's attributes: those of its bonus, and behind them those of its spill block. Values are
/// little-endian.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// In their order.
    pub(super) places: Vec<Place>,
    /// The values one behind the other, in the same order, without gaps.
    bytes: Vec<u8>,
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) id: AttributeId,
    start: usize,
    pub(super) length: usize,
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
                // Both could be read, but which one is meant is unknown, and one buffer cannot
                // store both.
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

    pub(super) fn value(&self, place: Place) -> &[u8] {
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
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
