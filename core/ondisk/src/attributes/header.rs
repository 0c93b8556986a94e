//! The header of a buffer of attributes: byte order, layout, and the sizes of variable attributes.

use super::{HEADER_SIZE, LAYOUT_BITS, LayoutId, MAGIC, WHAT};
use crate::declare::{ByteOrder, Corrupt, widen};

/// The start of a buffer of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) order: ByteOrder,
    pub(super) layout: LayoutId,
    pub(super) size: usize,
}

impl Header {
    pub(super) fn decode(buffer: &[u8]) -> Result<Header, Corrupt> {
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
    pub(super) fn sizes<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = u16> + 'a {
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
