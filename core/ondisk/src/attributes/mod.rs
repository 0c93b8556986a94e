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
//!
//! # Map
//! `file_attribute` lists the attributes of files, `registry` and `layouts` have what a file system
//! registers, `header` is the start of a buffer, `values` has the attributes of one file, and
//! `encode` decides what goes into the bonus and what into the spill block.

mod encode;
mod file_attribute;
mod header;
mod layouts;
mod registry;
#[cfg(test)]
mod tests;
mod values;

pub use encode::{CannotEncode, Encoded};
pub use file_attribute::FileAttribute;
pub use layouts::{LayoutId, Layouts};
pub use registry::{AttributeForm, AttributeId, Registration, Registry};
pub use values::Attributes;

use crate::declare::Corrupt;

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

/// How many attributes old files have: the first of [`FileAttribute::ALL`].
const ZNODE_ATTRIBUTES: u16 = 16;

fn inconsistent(offset: u64, why: &'static str) -> Corrupt {
    Corrupt::Inconsistent {
        what: WHAT,
        offset,
        why,
    }
}
