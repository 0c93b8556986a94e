//! Gang blocks: a block in pieces, when no free range is large enough for it.
//!
//! # Mechanism
//! The block's pointer leads to a header of one sector with up to three pointers to pieces, and a
//! piece may be a gang again. The header guards itself: its checksum is keyed with its place and
//! birth, since the pointer's own is that of the whole block, whether it is in pieces or not.
//!
//! A gang's allocated size, as its pointer has it, is that of the header and all pieces.
//!
//! [`write::gang`](crate::write) writes gangs, and rewrites those of the same txg in place.
//! A device that lost the later of two such writes has a header that verifies and leads to
//! pieces as they were: no piece is self-healed by such a header. A read gathers all parts without
//! healing any; only when the whole verifies by the pointer's checksum, the parts are read once
//! more and self-healed. If it does not verify, other copies are searched for a header that
//! differs.
//!
//! # Invariants
//! - The pieces' sizes add up to the block's, and each piece is smaller than what it is a piece of:
//!   so trees read from disk are finite. Their depth is bounded besides.
//! - To free, all headers are read before anything is freed: all or nothing.

use crate::error::ReadError;
use crate::faults::Faults;
use crate::io::BlockIo;
use crate::stored::StoredPointer;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::gang::{GANG_HEADER_BYTES, GangHeader};
use tarn_ondisk::units::{PhysicalSize, Txg};
use tarn_probe::Operation;
use tarn_space::Allocation;
use tarn_transform::checksum::embedded;
use tarn_transform::{ChecksumAlgorithm, checksum};

/// How deep gangs may be nested. Three pieces each, the largest block has been cut to sectors by
/// then.
pub(crate) const DEPTH_MAX: usize = 16;

/// The size of a header as its vdev stores it.
pub(crate) const HEADER_SIZE: PhysicalSize = PhysicalSize::new(512);

/// How many further headers are tried for one block. A guess: more than stale copies can make, and
/// a bound on the time that a crafted pool can take.
const OTHER_HEADERS_MAX: u32 = 64;

/// Reads a block from its pieces.
pub(crate) fn read(
    io: &BlockIo,
    stored: &StoredPointer<'_>,
    operation: &Operation,
) -> Result<Buffer, ReadError> {
    let parts = right_parts(io, stored, operation)?;
    Ok(whole_of(&parts, stored.physical_bytes()))
}

/// What the pieces make up.
fn whole_of(parts: &[Part], size: usize) -> Buffer {
    let mut whole = Buffer::zeroed(size);
    let mut rest = &mut whole[..];
    for piece in parts.iter().filter(|part| !part.pointer.is_gang()) {
        let (place, later) = rest.split_at_mut(piece.size.to_usize());
        place.copy_from_slice(&piece.bytes[..place.len()]);
        rest = later;
    }
    whole
}

/// The headers and pieces of a gang that make up the block its pointer means. Devices that had
/// others, or none, are self-healed with these.
fn right_parts(
    io: &BlockIo,
    stored: &StoredPointer<'_>,
    operation: &Operation,
) -> Result<Vec<Part>, ReadError> {
    let is_wrong = AtomicBool::new(false);
    let mut search = Search {
        io,
        operation,
        faults: Faults::Note(&is_wrong),
        others_left: OTHER_HEADERS_MAX,
    };
    let found = search.gang(stored.pointer, DEPTH_MAX).and_then(|found| {
        let block = stored.address();
        let mismatch = ReadError::GangMismatch { block };
        found.is_right.then_some(found.parts).ok_or(mismatch)
    });
    match &found {
        Ok(parts)
            if is_wrong.load(Ordering::Relaxed) && io.is_settled(stored.pointer, operation) =>
        {
            for part in parts {
                part.self_heal(io, operation);
            }
        }
        Ok(_) => {}
        Err(_) => {
            let mut blaming = Search {
                faults: Faults::Blame,
                others_left: 0,
                ..search
            };
            let _ = blaming.gang(stored.pointer, DEPTH_MAX);
        }
    }
    found
}

/// Looks for the headers of a gang that lead to what its pointer means.
struct Search<'a> {
    io: &'a BlockIo,
    operation: &'a Operation,
    faults: Faults<'a>,
    others_left: u32,
}

/// What a header led to.
struct Found {
    parts: Vec<Part>,
    /// Whether that is what the pointer to the header means.
    is_right: bool,
}

impl Search<'_> {
    fn gang(&mut self, pointer: &BlockPointer, depth_left: usize) -> Result<Found, ReadError> {
        let mut tried: Vec<Buffer> = Vec::new();
        let mut best: Option<Result<Found, ReadError>> = None;
        loop {
            let (io, operation) = (self.io, self.operation);
            let header = read_header(io, pointer, depth_left, operation, self.faults, &tried);
            let header = match (header, best.take()) {
                (Ok(header), earlier) => {
                    best = earlier;
                    header
                }
                (Err(_), Some(earlier)) => return earlier,
                (Err(error), None) => return Err(error),
            };
            let found = self.below(pointer, &header, depth_left);
            if found.as_ref().is_ok_and(|found| found.is_right) {
                if !tried.is_empty() {
                    self.faults.note();
                }
                return found;
            }
            // OpenZFS does not look at the checksums of pieces that are gangs: perhaps this one is
            // right all the same.
            if found.is_ok() && best.as_ref().is_none_or(Result::is_err) || best.is_none() {
                best = Some(found);
            }
            if self.others_left == 0 {
                return best.expect("it was set just now, if not before");
            }
            self.others_left -= 1;
            tried.push(header.bytes);
        }
    }

    fn below(
        &mut self,
        pointer: &BlockPointer,
        header: &Header,
        depth_left: usize,
    ) -> Result<Found, ReadError> {
        let mut parts = Vec::new();
        for member in &header.members {
            if member.is_gang() {
                parts.extend(self.gang(member, depth_left - 1)?.parts);
            } else {
                let stored = StoredPointer::parse(member)?;
                let verify = |bytes: &[u8]| stored.verifies(bytes, self.io.salt());
                let size = member.physical_size();
                let (operation, faults) = (self.operation, self.faults);
                self.io.probes.reads.increment();
                parts.push(Part {
                    pointer: *member,
                    size,
                    bytes: self
                        .io
                        .read_copies(member, size, operation, faults, &verify)?,
                });
            }
        }
        let whole = whole_of(&parts, pointer.physical_size().to_usize());
        let stored = StoredPointer::parse(pointer);
        let is_right = stored.is_ok_and(|stored| stored.verifies(&whole, self.io.salt()));
        parts.push(Part {
            pointer: *pointer,
            size: HEADER_SIZE,
            bytes: header.bytes.clone(),
        });
        Ok(Found { parts, is_right })
    }
}

/// A header that verified.
pub(crate) struct Header {
    /// As it is stored, perhaps with padding behind it.
    bytes: Buffer,
    /// Pointers to the pieces, checked to make up the size of the gang.
    pub(crate) members: Vec<BlockPointer>,
}

/// Reads a header that is none of those that were tried.
pub(crate) fn read_header(
    io: &BlockIo,
    pointer: &BlockPointer,
    depth_left: usize,
    operation: &Operation,
    faults: Faults<'_>,
    tried: &[Buffer],
) -> Result<Header, ReadError> {
    let block = crate::io::address(pointer);
    let corrupt = |what| ReadError::Corrupt { block, what };
    let inconsistent = |why| {
        corrupt(Corrupt::Inconsistent {
            what: "GangHeader",
            offset: 0,
            why,
        })
    };
    if depth_left == 0 {
        return Err(inconsistent("gangs are nested too deeply"));
    }
    let verifier = verifier_of(pointer);
    let bytes = io.read_copies(pointer, HEADER_SIZE, operation, faults, &|bytes| {
        bytes.get(..GANG_HEADER_BYTES).is_some_and(|header| {
            let is_tried = |other: &Buffer| &other[..GANG_HEADER_BYTES] == header;
            embedded::verify(ChecksumAlgorithm::GangHeader, header, &verifier).is_ok()
                && !tried.iter().any(is_tried)
        })
    })?;
    let header = GangHeader::from_block(&bytes).map_err(corrupt)?;
    let members: Vec<BlockPointer> = header.present_members().copied().collect();
    for member in &members {
        member.check().map_err(corrupt)?;
        if member.kind() != PointerKind::Stored {
            return Err(inconsistent("a piece is not a stored block"));
        }
        if member.physical_size().get() != member.logical_size().get() {
            return Err(inconsistent("a piece is compressed"));
        }
    }
    let sizes: PhysicalSize = members.iter().map(BlockPointer::physical_size).sum();
    if sizes != pointer.physical_size() {
        return Err(inconsistent("the pieces do not add up to the block"));
    }
    Ok(Header { bytes, members })
}

fn verifier_of(pointer: &BlockPointer) -> checksum::Checksum {
    let first = pointer.dva_words[0];
    embedded::gang_verifier(
        first.vdev().get(),
        first.offset().get(),
        pointer.physical_birth().get(),
    )
}

/// Every place that a gang's headers and pieces take, found by reading all headers.
pub(crate) fn places(
    io: &BlockIo,
    pointer: &BlockPointer,
    operation: &Operation,
) -> Result<Vec<(Allocation, Txg)>, ReadError> {
    let mut found = Vec::new();
    collect_places(io, pointer, DEPTH_MAX, &mut found, operation)?;
    Ok(found)
}

fn collect_places(
    io: &BlockIo,
    pointer: &BlockPointer,
    depth_left: usize,
    found: &mut Vec<(Allocation, Txg)>,
    operation: &Operation,
) -> Result<(), ReadError> {
    let birth = pointer.physical_birth();
    if !pointer.is_gang() {
        found.extend(pointer.dvas().map(|dva| {
            let place = Allocation {
                vdev: dva.vdev(),
                offset: dva.offset(),
                size: dva.allocated_size(),
            };
            (place, birth)
        }));
        return Ok(());
    }
    let header = read_header(io, pointer, depth_left, operation, Faults::Heal, &[])?;
    for member in header.members {
        collect_places(io, &member, depth_left - 1, found, operation)?;
    }
    found.extend(pointer.dvas().map(|dva| {
        let place = Allocation {
            vdev: dva.vdev(),
            offset: dva.offset(),
            size: io.size_on(dva.vdev(), HEADER_SIZE),
        };
        (place, birth)
    }));
    Ok(())
}

/// Bytes that are stored in one piece, in one place or several.
pub(crate) struct Part {
    /// What leads there: to a header, if it is that of a gang.
    pub(crate) pointer: BlockPointer,
    pub(crate) size: PhysicalSize,
    /// What is stored there, perhaps with padding behind it.
    pub(crate) bytes: Buffer,
}

impl Part {
    /// Reads the part again, now that it is known to be right: devices with other bytes are
    /// self-healed.
    fn self_heal(&self, io: &BlockIo, operation: &Operation) {
        let right = self.bytes.get(..self.size.to_usize());
        let is_right = |bytes: &[u8]| bytes.get(..self.size.to_usize()) == right;
        // The reader has its bytes. What is not healed now is found again by the next read.
        let _ = io.read_copies(&self.pointer, self.size, operation, Faults::Heal, &is_right);
    }
}

/// All that a block consists of, each part verified: the block itself, or the headers and pieces of
/// a gang.
pub(crate) fn parts(
    io: &BlockIo,
    pointer: &BlockPointer,
    operation: &Operation,
) -> Result<Vec<Part>, ReadError> {
    let stored = StoredPointer::parse(pointer)?;
    if pointer.is_gang() {
        return right_parts(io, &stored, operation);
    }
    Ok(vec![Part {
        pointer: *pointer,
        size: pointer.physical_size(),
        bytes: io.fetch(&stored, None, operation)?,
    }])
}
