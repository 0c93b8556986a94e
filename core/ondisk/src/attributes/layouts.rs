//! The layouts of a file system: which attributes a buffer has, in which order.

use super::{AttributeId, LAYOUT_BITS, ZNODE_ATTRIBUTES, inconsistent};
use crate::declare::Corrupt;
use crate::zap::hash::CRC64_TABLE;
use std::collections::{BTreeMap, BTreeSet};

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
