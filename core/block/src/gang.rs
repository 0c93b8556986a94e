//! Gang blocks: a block in pieces, when no free range is large enough for it.
//!
//! # Mechanism
//! The block's pointer leads to a header of one sector with up to three pointers to pieces, and a
//! piece may be a gang again. The header guards itself: its checksum is keyed with its place and
//! birth, since the pointer's own is that of the whole block, whether it is in pieces or not.
//!
//! To write, the header is placed first, then each piece gets its share of what is left, near the
//! header; a piece that finds no room is split again. Headers have one copy more than the block
//! where metadata has, for without its header a gang cannot even be freed.
//!
//! A gang's allocated size, as its pointer has it, is that of the header and all pieces.
//!
//! A gang that was written by an earlier pass of the same txg is rewritten in place like any other
//! block: its headers say where the pieces are, each piece gets its new share, and the headers,
//! which have the checksums of the pieces, are made anew. A header's own checksum is keyed with its
//! place and birth, which stay.
//!
//! So a device that lost the later of two such writes has a header that verifies and leads to
//! pieces as they were: no piece is self-healed by such a header. A read gathers all parts without
//! healing any; only when the whole verifies by the pointer's checksum, the parts are read once
//! more and self-healed. If it does not verify, other copies are searched for a header that
//! differs.
//!
//! # Invariants
//! - The pieces' sizes add up to the block's, and each piece is smaller than what it is a piece of:
//!   so trees read from disk are finite. Their depth is bounded besides.
//! - To free, all headers are read before anything is freed: all or nothing. To rewrite, too.

use crate::error::ReadError;
use crate::io::BlockIo;
use crate::read::faults::Faults;
use crate::shapes::dva_of;
use crate::stored::StoredPointer;
use crate::write::devices::Batch;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind, StoredBlock};
use tarn_ondisk::checksum::{Checksum, ChecksumKind};
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{Corrupt, Stored};
use tarn_ondisk::gang::{GANG_HEADER_BYTES, GANG_MEMBERS_MAX, GangHeader};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{AllocatedSize, Level, LogicalSize, PhysicalSize, Txg};
use tarn_probe::Operation;
use tarn_space::{Allocation, NoSpace};
use tarn_transform::checksum::embedded;
use tarn_transform::{ChecksumAlgorithm, checksum};

/// How deep gangs may be nested. Three pieces each, the largest block has been cut to sectors by
/// then.
const DEPTH_MAX: usize = 16;

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
struct Header {
    /// As it is stored, perhaps with padding behind it.
    bytes: Buffer,
    /// Pointers to the pieces, checked to make up the size of the gang.
    members: Vec<BlockPointer>,
}

/// Reads a header that is none of those that were tried.
fn read_header(
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
        bytes: io.fetch(&stored, operation)?,
    }])
}

/// What all pieces of one block have in common.
#[derive(Clone, Copy)]
pub(crate) struct GangPolicy {
    pub(crate) checksum: ChecksumAlgorithm,
    pub(crate) copies: usize,
    pub(crate) header_copies: usize,
    pub(crate) class: tarn_space::Class,
    pub(crate) txg: Txg,
}

/// Writes `bytes` in pieces. Gives back the places of the leading header, whose sizes are those of
/// the whole gang.
pub(crate) fn write(
    io: &BlockIo,
    bytes: &[u8],
    policy: GangPolicy,
    batch: &mut Batch,
) -> Result<Vec<Dva>, NoSpace> {
    write_gang(io, bytes, policy, &[], DEPTH_MAX, batch)
}

fn write_gang(
    io: &BlockIo,
    bytes: &[u8],
    policy: GangPolicy,
    near: &[Allocation],
    depth_left: usize,
    batch: &mut Batch,
) -> Result<Vec<Dva>, NoSpace> {
    let header_copies = policy.header_copies.max(policy.copies);
    let size_on = |vdev| io.size_on(vdev, HEADER_SIZE);
    let places = io
        .space
        .allocate(policy.class, header_copies, near, &size_on, policy.txg)?;
    batch.taken.extend(&places);
    let mut totals: Vec<AllocatedSize> = places.iter().map(|place| place.size).collect();
    let mut members = Vec::with_capacity(GANG_MEMBERS_MAX);
    let mut rest = bytes;
    while !rest.is_empty() {
        let share = rest.len().div_ceil(GANG_MEMBERS_MAX - members.len());
        let share = rounded_up(share, io.shapes().allocation_min).min(rest.len());
        let (piece, later) = rest.split_at(share);
        let member = write_piece(io, piece, policy, &places, depth_left, batch)?;
        for (total, dva) in totals.iter_mut().zip(member.dvas()) {
            *total += dva.allocated_size();
        }
        members.push(member);
        rest = later;
    }
    let pieces: PhysicalSize = members.iter().map(BlockPointer::physical_size).sum();
    assert_eq!(
        pieces,
        PhysicalSize::of(bytes),
        "the pieces make up the block"
    );
    let dvas: Vec<Dva> = places
        .iter()
        .zip(totals)
        .map(|(place, total)| Dva::new(place.vdev, place.offset, total).as_gang())
        .collect();
    push_header(io, &dvas, &members, policy, batch);
    Ok(dvas)
}

/// Writes a header that leads to these pieces.
fn push_header(
    io: &BlockIo,
    dvas: &[Dva],
    members: &[BlockPointer],
    policy: GangPolicy,
    batch: &mut Batch,
) {
    let mut header = Buffer::from_slice(&GangHeader::new(members).to_bytes());
    let (vdev, offset) = (dvas[0].vdev(), dvas[0].offset());
    embedded::seal(
        ChecksumAlgorithm::GangHeader,
        &mut header,
        &embedded::gang_verifier(vdev.get(), offset.get(), policy.txg.get()),
        checksum::ByteOrder::Little,
    );
    debug_assert!(
        embedded::verify(
            ChecksumAlgorithm::GangHeader,
            &header,
            &embedded::gang_verifier(vdev.get(), offset.get(), policy.txg.get()),
        )
        .is_ok(),
        "what is written can be read back"
    );
    batch.push(&io.shapes(), dvas, HEADER_SIZE, header.into());
}

fn write_piece(
    io: &BlockIo,
    piece: &[u8],
    policy: GangPolicy,
    near: &[Allocation],
    depth_left: usize,
    batch: &mut Batch,
) -> Result<BlockPointer, NoSpace> {
    let size = PhysicalSize::of(piece);
    let dvas = match io.allocate(policy.class, policy.copies, near, size, policy.txg) {
        Ok(places) => {
            batch.taken.extend(&places);
            let dvas: Vec<Dva> = places.iter().map(dva_of).collect();
            batch.push(&io.shapes(), &dvas, size, Buffer::from_slice(piece).into());
            dvas
        }
        Err(error) => {
            let is_smallest = size.get() <= io.shapes().allocation_min;
            if is_smallest || depth_left == 0 {
                return Err(error);
            }
            write_gang(io, piece, policy, near, depth_left - 1, batch)?
        }
    };
    Ok(pointer_to_piece(io, &dvas, piece, policy))
}

/// What a header has of a piece.
fn pointer_to_piece(io: &BlockIo, dvas: &[Dva], piece: &[u8], policy: GangPolicy) -> BlockPointer {
    let order = checksum::ByteOrder::Little;
    let sum = checksum::checksum(policy.checksum, piece, order, io.salt());
    BlockPointer::stored(&StoredBlock {
        dvas,
        logical_size: LogicalSize::of(piece),
        physical_size: PhysicalSize::of(piece),
        compression: Compression::Off,
        checksum_kind: ChecksumKind::from_code(policy.checksum.code()),
        checksum: Checksum(sum.0),
        object_type: ObjectType::None,
        level: Level::ZERO,
        birth: policy.txg,
        fill: 0,
    })
}

/// A gang of this txg, as its headers describe it.
struct Node {
    pointer: BlockPointer,
    /// Its pieces, of which some may be gangs. None of what is in one piece.
    members: Vec<Node>,
}

/// Writes `bytes` over a gang of this txg and of the same size, where it is. Gives back the places
/// of its leading header.
///
/// Nothing is written, and `None` given back, when a header cannot be read, or the gang is not what
/// would be written now.
#[doc(alias = "zio_rewrite_gang")]
pub(crate) fn rewrite(
    io: &BlockIo,
    pointer: &BlockPointer,
    bytes: &[u8],
    policy: GangPolicy,
    batch: &mut Batch,
    operation: &Operation,
) -> Option<Vec<Dva>> {
    assert_eq!(pointer.physical_size(), PhysicalSize::of(bytes));
    let gang = read_node(io, pointer, policy, DEPTH_MAX, operation)?;
    Some(rewrite_node(io, &gang, bytes, policy, batch))
}

fn read_node(
    io: &BlockIo,
    pointer: &BlockPointer,
    policy: GangPolicy,
    depth_left: usize,
    operation: &Operation,
) -> Option<Node> {
    if !is_as_written(io, pointer, policy) {
        return None;
    }
    let members = if pointer.is_gang() {
        let header = read_header(io, pointer, depth_left, operation, Faults::Heal, &[]).ok()?;
        let members = header.members.iter();
        members
            .map(|member| read_node(io, member, policy, depth_left - 1, operation))
            .collect::<Option<Vec<Node>>>()?
    } else {
        Vec::new()
    };
    Some(Node {
        pointer: *pointer,
        members,
    })
}

/// Whether this policy wrote it. A header comes from a device, which may lie: impossible places are
/// not written to.
fn is_as_written(io: &BlockIo, pointer: &BlockPointer, policy: GangPolicy) -> bool {
    let (copies, size) = match pointer.is_gang() {
        true => (policy.header_copies.max(policy.copies), HEADER_SIZE),
        false => (policy.copies, pointer.physical_size()),
    };
    let shapes = io.shapes();
    pointer.birth() == policy.txg
        && pointer.physical_birth() == policy.txg
        && pointer.dva_count() == copies
        && pointer.dvas().all(|dva| {
            let place = shapes.place(dva, size, policy.txg);
            let is_whole =
                pointer.is_gang() || dva.allocated_size() == io.size_on(dva.vdev(), size);
            place.is_some_and(|place| io.vdevs.is_place_possible(place)) && is_whole
        })
}

fn rewrite_node(
    io: &BlockIo,
    node: &Node,
    bytes: &[u8],
    policy: GangPolicy,
    batch: &mut Batch,
) -> Vec<Dva> {
    let dvas: Vec<Dva> = node.pointer.dvas().collect();
    if !node.pointer.is_gang() {
        let data = Buffer::from_slice(bytes).into();
        batch.push(&io.shapes(), &dvas, PhysicalSize::of(bytes), data);
        return dvas;
    }
    let mut rest = bytes;
    let mut members = Vec::with_capacity(node.members.len());
    for member in &node.members {
        let (piece, later) = rest.split_at(member.pointer.physical_size().to_usize());
        let places = rewrite_node(io, member, piece, policy, batch);
        members.push(pointer_to_piece(io, &places, piece, policy));
        rest = later;
    }
    assert!(rest.is_empty(), "the pieces make up the block");
    push_header(io, &dvas, &members, policy, batch);
    dvas
}

fn rounded_up(size: usize, step: u64) -> usize {
    LogicalSize::new(u64::try_from(size).expect("a length fits 64 bits"))
        .round_up(step)
        .to_usize()
}
