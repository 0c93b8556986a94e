//! Gang blocks, written: a block in pieces, when no free range is large enough for it. What a gang
//! is, and how it is read, is in [`gang`](crate::gang).
//!
//! # Mechanism
//! The header is placed first, then each piece gets its share of what is left, near the header; a
//! piece that finds no room is split again. Headers have one copy more than the block where
//! metadata has, for without its header a gang cannot even be freed.
//!
//! A gang that was written by an earlier pass of the same txg is rewritten in place like any other
//! block: its headers say where the pieces are, each piece gets its new share, and the headers,
//! which have the checksums of the pieces, are made anew. A header's own checksum is keyed with its
//! place and birth, which stay.
//!
//! # Invariants
//! - The pieces' sizes add up to the block's, and each piece is smaller than what it is a piece of.
//! - All headers are read before anything is rewritten.

use super::devices::Batch;
use crate::faults::Faults;
use crate::gang::{DEPTH_MAX, HEADER_SIZE, read_header};
use crate::io::BlockIo;
use crate::shapes::dva_of;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, Dva, StoredBlock};
use tarn_ondisk::checksum::{Checksum, ChecksumKind};
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::Stored;
use tarn_ondisk::gang::{GANG_MEMBERS_MAX, GangHeader};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{AllocatedSize, Level, LogicalSize, PhysicalSize, Txg};
use tarn_probe::Operation;
use tarn_space::{Allocation, NoSpace};
use tarn_transform::checksum::embedded;
use tarn_transform::{ChecksumAlgorithm, checksum};

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
    assert_eq!(
        places.len(),
        header_copies,
        "each copy of a header has a place"
    );
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
    assert!(
        (1..=GANG_MEMBERS_MAX).contains(&members.len()),
        "a header leads to one to three pieces"
    );
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
