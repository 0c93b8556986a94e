//! Encoding the attributes of a file: what stays in the bonus, and what goes to the spill block.

use super::values::Place;
use super::{
    AttributeId, Attributes, HEADER_SIZE, LAYOUT_BITS, LayoutId, Layouts, MAGIC, POINTER_SIZE,
    Registration, Registry, SIZE_MAX,
};

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

impl Attributes {
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
        let pointer_size = plan.spill_at.map_or(0, |_| POINTER_SIZE);
        assert!(
            bonus.len() + pointer_size <= bonus_size,
            "what stays in the bonus fits, beside the pointer to the spill block"
        );
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

    /// Whether each attribute has a size of its own, and its size. A registry may lie about the
    /// sizes of attributes that are known.
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
