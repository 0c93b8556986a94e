//! EXTENDED COPY (LID1) and RECEIVE COPY RESULTS: copies between units, without the network.
//!
//! Source and destination are named by their NAA names, as INQUIRY tells them, or as the unit that
//! the command is sent to (identifier FFFFh). Other units are looked for among those that the
//! initiator may use ([`OtherUnits`]); one that is not found is COPY TARGET DEVICE NOT REACHABLE.
//! All segments are checked before the first is copied: their units, extents, and reservations. A
//! copy is done when its status is sent, so COPY STATUS has only finished ones.
//!
//! Within a pool blocks are copied by references to them
//! ([`HeldVolume::copy_from`](tarn_engine::volumes::HeldVolume::copy_from)).

use crate::scsi::block_commands::Extent;
use crate::scsi::fields::{low_u32, put, to_usize, u16_at, u32_at, u64_at};
use crate::scsi::logical_unit::{Done, LogicalUnit, Outcome, Refused, Request, refused_by};
use crate::scsi::sense::codes as asc;
use crate::scsi::{Cdb, SECTOR_BYTES, Sense, SenseKey, codes};
use std::collections::VecDeque;

const HEADER_BYTES: usize = 16;
const TARGET_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 28;

/// Most descriptors of targets and of segments. A guess: initiators use two and a few.
const TARGETS_MAX: usize = 8;
const SEGMENTS_MAX: usize = 64;
const LIST_BYTES_MAX: usize = TARGETS_MAX * TARGET_BYTES + SEGMENTS_MAX * SEGMENT_BYTES;

/// An identification descriptor of a target, and a segment from blocks to blocks.
const TARGET_TYPE: u8 = 0xe4;
const SEGMENT_TYPE: u8 = 0x02;

/// The identifier of the unit that the command is sent to.
const OWN_UNIT: u16 = 0xffff;

/// Most bytes of a segment, whose blocks are counted by 16 bits.
const SEGMENT_BYTES_MAX: u32 = 0xffff * 512;

/// How many finished copies are remembered.
const FINISHED_MAX: usize = 32;

/// A copy that was done: whose, its list identifier, segments, and blocks.
#[derive(Debug, Clone)]
struct Finished {
    nexus: crate::scsi::Nexus,
    list: u8,
    segments: u16,
    blocks: u32,
}

/// Those that were done last.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    finished: VecDeque<Finished>,
}

/// The units beside the one that a command is sent to.
pub trait OtherUnits {
    /// The unit of this NAA name, in use as long as what is given is kept; none where there is
    /// none that the initiator may use.
    fn find(&self, naa: u64) -> Option<Box<dyn AsRef<LogicalUnit> + '_>>;
}

/// There are none.
pub struct NoOtherUnits;

impl OtherUnits for NoOtherUnits {
    fn find(&self, _: u64) -> Option<Box<dyn AsRef<LogicalUnit> + '_>> {
        None
    }
}

/// A unit that a parameter list names.
enum Named<'a> {
    Own(&'a LogicalUnit),
    Other(Box<dyn AsRef<LogicalUnit> + 'a>),
}

impl Named<'_> {
    fn unit(&self) -> &LogicalUnit {
        match self {
            Named::Own(unit) => unit,
            Named::Other(other) => (**other).as_ref(),
        }
    }
}

/// What one segment copies: the units by their places in the list of targets.
struct Segment {
    source: u16,
    from: Extent,
    target: u16,
    to: u64,
}

/// What a parameter list asks for.
struct Wanted<'a> {
    targets: Vec<Named<'a>>,
    own: Named<'a>,
    segments: Vec<Segment>,
}

impl Wanted<'_> {
    fn unit(&self, index: u16) -> Result<&LogicalUnit, Refused> {
        if index == OWN_UNIT {
            return Ok(self.own.unit());
        }
        let named = self.targets.get(usize::from(index));
        named.map(Named::unit).ok_or(unreachable())
    }
}

fn unreachable() -> Refused {
    Sense::new(SenseKey::CopyAborted, asc::COPY_TARGET_UNREACHABLE).into()
}

impl LogicalUnit {
    /// EXTENDED COPY.
    pub(crate) fn extended_copy(&self, request: &Request<'_>) -> Outcome {
        if request.cdb[1] & 0x1f != 0 {
            return Err(Sense::bit_in_cdb(1, 4).into());
        }
        let length = to_usize(u64::from(u32_at(request.cdb, 10)));
        if length == 0 {
            return Ok(Done::nothing());
        }
        let data = request.data;
        if length < HEADER_BYTES || data.len() < length {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR).into());
        }
        let wanted = self.wanted(request, data)?;
        let mut blocks = 0;
        for segment in &wanted.segments {
            let (source, target) = (wanted.unit(segment.source)?, wanted.unit(segment.target)?);
            copy_segment(source, target, segment)?;
            blocks += segment.from.blocks;
        }
        // The status tells that all is durable where a write cache is off: this unit is flushed
        // with others' statuses, other units here.
        let is_own = |unit: &LogicalUnit| std::ptr::eq(unit, self);
        let mut flushes_own = false;
        for segment in &wanted.segments {
            let target = wanted.unit(segment.target)?;
            match is_own(target) {
                true => flushes_own = self.must_flush(false),
                false if target.must_flush(false) => {
                    let flushed = target.storage.flush();
                    flushed.map_err(|error| refused_by(error, true))?;
                }
                false => {}
            }
        }
        let mut state = self.state();
        let finished = &mut state.copies.finished;
        finished.retain(|one| one.nexus != *request.nexus || one.list != data[0]);
        finished.push_back(Finished {
            nexus: request.nexus.clone(),
            list: data[0],
            segments: u16::try_from(wanted.segments.len()).expect("at most 64"),
            blocks: low_u32(to_usize(blocks)),
        });
        while finished.len() > FINISHED_MAX {
            finished.pop_front();
        }
        drop(state);
        Ok(Done::flushed(flushes_own))
    }

    /// What a parameter list asks for: each segment in its units, which the initiator may use.
    fn wanted<'a>(&'a self, request: &Request<'a>, data: &[u8]) -> Result<Wanted<'a>, Refused> {
        let targets_length = usize::from(u16_at(data, 2));
        let segments_length = to_usize(u64::from(u32_at(data, 8)));
        if u32_at(data, 12) != 0 {
            // Inline data.
            return Err(Sense::in_parameters(12).into());
        }
        if !targets_length.is_multiple_of(TARGET_BYTES) {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR).into());
        }
        let targets = data.get(HEADER_BYTES..HEADER_BYTES + targets_length);
        let at = HEADER_BYTES + targets_length;
        let segments = at.checked_add(segments_length);
        let segments = segments.and_then(|end| data.get(at..end));
        let (Some(targets), Some(segments)) = (targets, segments) else {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR).into());
        };
        if targets_length + segments_length > LIST_BYTES_MAX {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR).into());
        }
        if targets_length / TARGET_BYTES > TARGETS_MAX {
            return Err(Sense::illegal(asc::TOO_MANY_TARGET_DESCRIPTORS).into());
        }
        if segments_length / SEGMENT_BYTES > SEGMENTS_MAX {
            return Err(Sense::illegal(asc::TOO_MANY_SEGMENT_DESCRIPTORS).into());
        }
        let mut wanted = Wanted {
            targets: Vec::new(),
            own: Named::Own(self),
            segments: Vec::new(),
        };
        for target in targets.chunks_exact(TARGET_BYTES) {
            wanted.targets.push(self.named(request, target)?);
        }
        let mut rest = segments;
        while !rest.is_empty() {
            if rest[0] != SEGMENT_TYPE {
                return Err(Sense::illegal(asc::UNSUPPORTED_SEGMENT_DESCRIPTOR).into());
            }
            let Some((segment, others)) = rest.split_at_checked(SEGMENT_BYTES) else {
                return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR).into());
            };
            let segment = segment_in(segment, &wanted)?;
            check_use(wanted.unit(segment.source)?, request, codes::READ_16)?;
            check_use(wanted.unit(segment.target)?, request, codes::WRITE_16)?;
            wanted.segments.push(segment);
            rest = others;
        }
        Ok(wanted)
    }

    /// The unit of a target descriptor, whose designator is the NAA name of it.
    fn named<'a>(&'a self, request: &Request<'a>, target: &[u8]) -> Result<Named<'a>, Refused> {
        if target[0] != TARGET_TYPE {
            return Err(Sense::illegal(asc::UNSUPPORTED_TARGET_DESCRIPTOR).into());
        }
        let is_naa = target[4] & 0x0f == 1 && target[5] & 0x3f == 3 && target[7] == 8;
        if !is_naa {
            return Err(unreachable());
        }
        match u64_at(target, 8) {
            own if own == self.naa() => Ok(Named::Own(self)),
            other => request
                .others
                .find(other)
                .map(Named::Other)
                .ok_or(unreachable()),
        }
    }

    /// RECEIVE COPY RESULTS: COPY STATUS and OPERATING PARAMETERS.
    pub(crate) fn receive_copy_results(&self, request: &Request<'_>) -> Outcome {
        let cdb: &Cdb = request.cdb;
        let room = to_usize(u64::from(u32_at(cdb, 10)));
        let bytes = match cdb[1] & 0x1f {
            0 => {
                let state = self.state();
                let mut finished = state.copies.finished.iter();
                let is_it = |one: &&Finished| one.nexus == *request.nexus && one.list == cdb[2];
                let one = finished.find(is_it).ok_or(Sense::in_cdb(2))?;
                let mut bytes = vec![0; 12];
                put(&mut bytes, 0, &8_u32.to_be_bytes());
                // Done without errors.
                bytes[4] = 1;
                put(&mut bytes, 5, &one.segments.to_be_bytes());
                // The count is of destination blocks.
                bytes[7] = 0xf1;
                put(&mut bytes, 8, &one.blocks.to_be_bytes());
                bytes
            }
            3 => operating_parameters(),
            _ => return Err(Sense::bit_in_cdb(1, 4).into()),
        };
        Ok(Done::cut(bytes, room))
    }
}

/// A segment descriptor, which lies in the units that it names.
fn segment_in(segment: &[u8], wanted: &Wanted<'_>) -> Result<Segment, Refused> {
    if usize::from(u16_at(segment, 2)) != SEGMENT_BYTES - 4 {
        return Err(Sense::illegal(asc::INVALID_FIELD_IN_PARAMETER_LIST).into());
    }
    let blocks = u64::from(u16_at(segment, 10));
    let within = |unit: u16, at: usize| {
        let lba = u64_at(segment, at);
        let extent = wanted.unit(unit)?.inside(Extent { lba, blocks });
        extent.map_err(|_| Refused::from(Sense::new(SenseKey::CopyAborted, asc::NONE)))
    };
    let (source, target) = (u16_at(segment, 4), u16_at(segment, 6));
    Ok(Segment {
        source,
        from: within(source, 12)?,
        target,
        to: within(target, 20)?.lba,
    })
}

/// Refuses to read or write a unit which the initiator could not read or write by a command of its
/// own: it is reserved, stopped, or read-only.
fn check_use(unit: &LogicalUnit, request: &Request<'_>, code: u8) -> Result<(), Refused> {
    let mut cdb: Cdb = [0; 16];
    cdb[0] = code;
    {
        let state = unit.state();
        if state.conflicts(&Request {
            nexus: request.nexus,
            cdb: &cdb,
            data: &[],
            announced_bytes: 0,
            others: &NoOtherUnits,
        }) {
            return Err(Refused::Conflict);
        }
        if state.is_stopped {
            let code = asc::INITIALIZING_COMMAND_REQUIRED;
            return Err(Sense::new(SenseKey::NotReady, code).into());
        }
    }
    match code {
        codes::WRITE_16 => unit.refuse_read_only(),
        _ => Ok(()),
    }
}

fn copy_segment(
    source: &LogicalUnit,
    target: &LogicalUnit,
    segment: &Segment,
) -> Result<(), Refused> {
    let length = segment.from.blocks * SECTOR_BYTES;
    if length == 0 {
        return Ok(());
    }
    let _beside_others = target.begin_write();
    let from = (&*source.storage, segment.from.lba * SECTOR_BYTES);
    let to = segment.to * SECTOR_BYTES;
    let copied = target.storage.copy_from(from, to, length);
    copied.map_err(|error| refused_by(error, true))
}

/// The page of vital product data for third-party copies (SPC-4, 7.8.17): the commands, the bounds
/// of parameter lists, descriptor types, identifiers of units, and bounds of copies.
pub(crate) fn third_party_copy() -> Vec<u8> {
    let count = |count: usize| u16::try_from(count).expect("a small bound").to_be_bytes();
    let mut bytes = Vec::new();
    let mut add = |kind: u16, body: &[u8]| {
        let length = body.len().next_multiple_of(4);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&count(length));
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    };
    let copy = [codes::EXTENDED_COPY, 1, 0];
    let results = [codes::RECEIVE_COPY_RESULTS, 2, 0, 3];
    let commands = [&copy[..], &results[..]].concat();
    add(0x0001, &[&[7][..], &commands].concat());
    let mut parameters = [0; 28];
    put(&mut parameters, 4, &count(TARGETS_MAX));
    put(&mut parameters, 6, &count(SEGMENTS_MAX));
    put(&mut parameters, 8, &low_u32(LIST_BYTES_MAX).to_be_bytes());
    add(0x0004, &parameters);
    add(0x0008, &[2, SEGMENT_TYPE, TARGET_TYPE]);
    let [high, low] = OWN_UNIT.to_be_bytes();
    add(0x000c, &[0, 2, high, low]);
    let mut general = [0; 32];
    put(&mut general, 0, &1_u32.to_be_bytes());
    put(&mut general, 4, &1_u32.to_be_bytes());
    put(&mut general, 8, &SEGMENT_BYTES_MAX.to_be_bytes());
    // Of logical blocks.
    general[12] = 9;
    add(0x8001, &general);
    bytes
}

fn operating_parameters() -> Vec<u8> {
    let count = |count: usize| u16::try_from(count).expect("a small bound").to_be_bytes();
    let mut bytes = vec![0; 44];
    // SNLID: a copy without a list identifier is possible.
    bytes[4] = 1;
    put(&mut bytes, 8, &count(TARGETS_MAX));
    put(&mut bytes, 10, &count(SEGMENTS_MAX));
    put(&mut bytes, 12, &low_u32(LIST_BYTES_MAX).to_be_bytes());
    put(&mut bytes, 16, &SEGMENT_BYTES_MAX.to_be_bytes());
    put(&mut bytes, 34, &1_u16.to_be_bytes());
    bytes[36] = 1;
    bytes[37] = 9;
    bytes[43] = 2;
    bytes.extend_from_slice(&[SEGMENT_TYPE, TARGET_TYPE]);
    let told = low_u32(bytes.len() - 4).to_be_bytes();
    put(&mut bytes, 0, &told);
    bytes
}
