//! Gang headers: a block that found no room in one piece, as a list of smaller ones.
//!
//! # Mechanism
//! Where a DVA has its gang bit, its place holds a header of up to three block pointers, whose
//! blocks concatenated are the block; each may be a gang again. The header is one sector of 512
//! bytes and carries its own checksum in its tail, keyed by its place and birth
//! ([`gang_verifier`](crate::checksum::gang_verifier)), since the pointer's checksum is that of the
//! whole block.
//!
//! With the feature `dynamic_gang_header` (OpenZFS 2.4) headers may be as large as the vdev's
//! smallest allocation, and hold more pointers. Those we recognise and refuse.

use crate::block_pointer::BlockPointer;
use crate::checksum::{Checksum, EmbeddedChecksum};
use crate::declare::{ByteOrder, Corrupt, Reserved, Stored, widen};
use crate::on_disk;

/// The size of a gang header, in bytes.
#[doc(alias = "SPA_OLD_GANGBLOCKSIZE")]
pub const GANG_HEADER_BYTES: usize = 512;

/// How many members a gang header can hold.
pub const GANG_MEMBERS_MAX: usize = 3;

on_disk! {
    /// The list of a block's pieces.
    #[doc(alias = "zio_gbh_phys_t")]
    pub struct GangHeader [512 bytes] {
        0   => members: [BlockPointer; 3],
        384 => reserved: Reserved<88>,
        472 => tail: EmbeddedChecksum,
    }
}

impl GangHeader {
    /// A header of these members, its checksum still to be computed.
    ///
    /// # Panics
    /// When there are more than three.
    pub fn new(members: &[BlockPointer]) -> GangHeader {
        let mut header = GangHeader {
            members: [BlockPointer::HOLE; GANG_MEMBERS_MAX],
            reserved: Reserved::default(),
            tail: EmbeddedChecksum::new(Checksum::ZERO),
        };
        header.members[..members.len()].copy_from_slice(members);
        header
    }

    /// Decodes a header, whose byte order its tail tells.
    pub fn from_block(bytes: &[u8]) -> Result<GangHeader, Corrupt> {
        if bytes.len() > GANG_HEADER_BYTES && has_larger_header(bytes) {
            return Err(Corrupt::Unsupported {
                what: "GangHeader",
                offset: 0,
                which: "a gang header larger than 512 bytes (feature dynamic_gang_header)",
            });
        }
        let header = bytes.get(..GANG_HEADER_BYTES).ok_or(Corrupt::Truncated {
            what: "GangHeader",
            offset: 0,
            needed: widen(GANG_HEADER_BYTES),
            present: widen(bytes.len()),
        })?;
        let (_, order) = EmbeddedChecksum::of_block("GangHeader", header)?;
        GangHeader::from_bytes(header, order)
    }

    /// The members that are there, in order.
    pub fn present_members(&self) -> impl Iterator<Item = &BlockPointer> {
        self.members.iter().filter(|member| !member.is_hole())
    }
}

/// True where the tail of a header is at the end of all bytes, and not at that of 512.
fn has_larger_header(bytes: &[u8]) -> bool {
    let magic_at = |end: usize| {
        let start = end.saturating_sub(EmbeddedChecksum::SIZE);
        ByteOrder::of_magic(&bytes[start..], EmbeddedChecksum::MAGIC).is_some()
    };
    !magic_at(GANG_HEADER_BYTES) && magic_at(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_a_larger_one_is_named() {
        let header = GangHeader::new(&[]);
        let bytes = header.to_bytes();
        assert_eq!(GangHeader::from_block(&bytes), Ok(header));

        let mut larger = vec![0; 4096];
        EmbeddedChecksum::new(Checksum::ZERO).write_to_end_of(&mut larger);
        assert!(matches!(
            GangHeader::from_block(&larger),
            Err(Corrupt::Unsupported { .. })
        ));
    }

    #[test]
    fn a_header_without_its_tail_is_refused() {
        assert!(matches!(
            GangHeader::from_block(&[0; 512]),
            Err(Corrupt::Magic { .. })
        ));
        assert!(GangHeader::from_block(&[0; 100]).is_err());
    }
}
