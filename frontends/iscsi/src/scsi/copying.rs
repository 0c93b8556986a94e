//! EXTENDED COPY (LID1) and RECEIVE COPY RESULTS: copies within the unit, without the network.
//!
//! Source and destination must both be this unit, which is what hypervisors copy within: other
//! units are COPY TARGET DEVICE NOT REACHABLE. All segments are checked before the first is copied.
//! A copy is done when its status is sent, so COPY STATUS has only finished ones.

use crate::scsi::block_commands::Extent;
use crate::scsi::fields::{low_u32, put, to_usize, u16_at, u32_at, u64_at};
use crate::scsi::logical_unit::{Done, LogicalUnit, Outcome, Refused, Request, refused_by};
use crate::scsi::sense::codes as asc;
use crate::scsi::{Cdb, Sense, SenseKey, TRANSFER_BLOCKS_MAX};
use crate::storage::Durability;
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

/// What one segment copies.
struct Segment {
    from: Extent,
    to: u64,
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
        let segments = self.segments(data)?;
        self.refuse_read_only()?;
        let mut blocks = 0;
        for segment in &segments {
            self.copy_segment(segment)?;
            blocks += segment.from.blocks;
        }
        let mut state = self.state();
        let finished = &mut state.copies.finished;
        finished.retain(|one| one.nexus != *request.nexus || one.list != data[0]);
        finished.push_back(Finished {
            nexus: request.nexus.clone(),
            list: data[0],
            segments: u16::try_from(segments.len()).expect("at most 64"),
            blocks: low_u32(to_usize(blocks)),
        });
        while finished.len() > FINISHED_MAX {
            finished.pop_front();
        }
        drop(state);
        Ok(Done::flushed(self.must_flush(false)))
    }

    /// The segments of a parameter list, each in the unit.
    fn segments(&self, data: &[u8]) -> Result<Vec<Segment>, Refused> {
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
        let targets: Vec<&[u8]> = targets.chunks_exact(TARGET_BYTES).collect();
        for target in &targets {
            if target[0] != TARGET_TYPE {
                return Err(Sense::illegal(asc::UNSUPPORTED_TARGET_DESCRIPTOR).into());
            }
        }
        let mut read = Vec::new();
        let mut rest = segments;
        while !rest.is_empty() {
            if rest[0] != SEGMENT_TYPE {
                return Err(Sense::illegal(asc::UNSUPPORTED_SEGMENT_DESCRIPTOR).into());
            }
            let Some((segment, others)) = rest.split_at_checked(SEGMENT_BYTES) else {
                return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR).into());
            };
            read.push(self.segment(segment, &targets)?);
            rest = others;
        }
        Ok(read)
    }

    fn segment(&self, segment: &[u8], targets: &[&[u8]]) -> Result<Segment, Refused> {
        if usize::from(u16_at(segment, 2)) != SEGMENT_BYTES - 4 {
            return Err(Sense::illegal(asc::INVALID_FIELD_IN_PARAMETER_LIST).into());
        }
        for at in [4, 6] {
            let index = usize::from(u16_at(segment, at));
            let target = targets.get(index);
            let target = target.ok_or(Sense::new(
                SenseKey::CopyAborted,
                asc::COPY_TARGET_UNREACHABLE,
            ))?;
            if !self.is_named_by(target) {
                let code = asc::COPY_TARGET_UNREACHABLE;
                return Err(Sense::new(SenseKey::CopyAborted, code).into());
            }
        }
        let blocks = u64::from(u16_at(segment, 10));
        let in_unit = |at: usize| {
            let lba = u64_at(segment, at);
            let code = asc::NONE;
            self.inside(Extent { lba, blocks })
                .map_err(|_| Refused::from(Sense::new(SenseKey::CopyAborted, code)))
        };
        let to = in_unit(20)?.lba;
        Ok(Segment {
            from: in_unit(12)?,
            to,
        })
    }

    /// Whether the designator of a target descriptor is the NAA name of this unit.
    fn is_named_by(&self, target: &[u8]) -> bool {
        let is_naa = target[4] & 0x0f == 1 && target[5] & 0x3f == 3;
        is_naa && target[7] == 8 && u64_at(target, 8) == self.naa()
    }

    fn copy_segment(&self, segment: &Segment) -> Result<(), Refused> {
        let mut done = 0;
        while done < segment.from.blocks {
            let blocks = (segment.from.blocks - done).min(TRANSFER_BLOCKS_MAX);
            let (lba, to) = (segment.from.lba + done, segment.to + done);
            let _alone = self.exclude_writes();
            let bytes = self.read_extent(Extent { lba, blocks })?.to_vec();
            let offset = Extent { lba: to, blocks }.offset();
            let written = self.storage.write(offset, &bytes, Durability::Later);
            written.map_err(|error| refused_by(error, true))?;
            done += blocks;
        }
        Ok(())
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

fn operating_parameters() -> Vec<u8> {
    let count = |count: usize| u16::try_from(count).expect("a small bound").to_be_bytes();
    let mut bytes = vec![0; 44];
    // SNLID: a copy without a list identifier is possible.
    bytes[4] = 1;
    put(&mut bytes, 8, &count(TARGETS_MAX));
    put(&mut bytes, 10, &count(SEGMENTS_MAX));
    put(&mut bytes, 12, &low_u32(LIST_BYTES_MAX).to_be_bytes());
    put(&mut bytes, 16, &(u32::from(u16::MAX) * 512).to_be_bytes());
    put(&mut bytes, 34, &1_u16.to_be_bytes());
    bytes[36] = 1;
    bytes[37] = 9;
    bytes[43] = 2;
    bytes.extend_from_slice(&[SEGMENT_TYPE, TARGET_TYPE]);
    let told = low_u32(bytes.len() - 4).to_be_bytes();
    put(&mut bytes, 0, &told);
    bytes
}
