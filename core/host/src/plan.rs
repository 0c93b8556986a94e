//! Plans system calls for requests: merges neighbours, and divides large requests.
//!
//! A batch of a txg may hold thousands of blocks that lie side by side. One vectored call moves as
//! many of them as [`DeviceInfo::merged_bytes_max`] says; a request larger than
//! [`MERGED_BYTES_MAX`] becomes several calls, which the device can work on at once.

use std::sync::Arc;

use crate::batch::{BatchState, Job, Segment, Wish};
use crate::device::DeviceInfo;
use crate::error::{Action, DeviceError};
use crate::file_device::Flow;

/// The most one call moves. Measured on block devices elsewhere: larger calls gain nothing and hold
/// others up.
#[doc(alias = "zfs_vdev_aggregation_limit")]
pub(crate) const MERGED_BYTES_MAX: usize = 1 << 20;
/// The most that neighbours are joined to on a direct device that does not turn: its calls are
/// cheap, and it works on several at once.
#[doc(alias = "zfs_vdev_aggregation_limit_non_rotating")]
pub(crate) const MERGED_BYTES_MAX_OF_FLASH: usize = 128 << 10;
/// The most pieces of memory one call moves. The system allows 1024.
const SEGMENTS_MAX: usize = 256;

/// Makes jobs of all requests of a batch that can be carried out, and refuses the others.
pub(crate) fn plan(batch: &Arc<BatchState>, flow: &Flow) -> Vec<Job> {
    let mut reads = Vec::new();
    let mut writes = Vec::new();
    let mut jobs = Vec::new();
    for wish in batch.wishes() {
        if let Err(error) = check(flow, &wish) {
            batch.refuse(wish.segment.request, error);
            continue;
        }
        assert_aligned(flow.info(), &wish);
        match wish.action {
            Action::Read => reads.push(wish),
            Action::Write => writes.push(wish),
            _ => {
                let range = (wish.offset, wish.length);
                jobs.push(Job::new(batch, wish.action, range, vec![wish.segment]));
            }
        }
    }
    let bytes_max = usize::try_from(flow.info().merged_bytes_max).unwrap_or(MERGED_BYTES_MAX);
    merge(batch, reads, bytes_max, &mut jobs);
    merge(batch, writes, bytes_max, &mut jobs);
    batch.expect_jobs(jobs.len());
    jobs
}

/// Whether a request can be carried out at all.
fn check(flow: &Flow, wish: &Wish) -> Result<(), DeviceError> {
    let Wish {
        action,
        offset,
        length,
        ..
    } = *wish;
    let path = || flow.info().path.clone();
    if flow.is_given_up() {
        return Err(DeviceError::GivenUp {
            path: path(),
            action,
        });
    }
    if action != Action::Read {
        if !flow.info().mode.may_write() {
            return Err(DeviceError::ReadOnly {
                path: path(),
                action,
            });
        }
        if let Some(errno) = flow.retirement() {
            return Err(DeviceError::Retired {
                path: path(),
                action,
                errno,
            });
        }
    }
    flow.check_range(action, offset, length)
}

/// What goes past the page cache must be made of whole sectors. Callers know the sector size.
fn assert_aligned(info: &DeviceInfo, wish: &Wish) {
    if !info.is_direct {
        return;
    }
    let sector = u64::from(info.logical_sector_bytes);
    let sector_in_memory = usize::try_from(sector).expect("a sector is small");
    assert_eq!(
        wish.offset % sector,
        0,
        "requests to direct devices begin at a sector"
    );
    assert_eq!(
        wish.length % sector,
        0,
        "requests to direct devices are whole sectors"
    );
    let address = wish.segment.pointer.addr();
    assert_eq!(
        address % sector_in_memory,
        0,
        "memory for direct devices is aligned"
    );
}

/// Cuts and joins reads, or writes.
fn merge(batch: &Arc<BatchState>, mut wishes: Vec<Wish>, bytes_max: usize, jobs: &mut Vec<Job>) {
    wishes.sort_by_key(|wish| wish.offset);
    let mut open: Option<Open> = None;
    for wish in &wishes {
        for (offset, segment) in pieces(wish) {
            let joined = open
                .as_mut()
                .is_some_and(|open| open.join(offset, segment, bytes_max));
            if !joined {
                jobs.extend(open.take().map(|open| open.close(batch)));
                open = Some(Open::new(wish.action, offset, segment));
            }
        }
    }
    jobs.extend(open.map(|open| open.close(batch)));
}

/// The pieces of at most [`MERGED_BYTES_MAX`] a request is made of.
fn pieces(wish: &Wish) -> impl Iterator<Item = (u64, Segment)> {
    let whole = wish.segment;
    let starts = (0..whole.length).step_by(MERGED_BYTES_MAX);
    let wish_offset = wish.offset;
    starts.map(move |start| {
        let length = MERGED_BYTES_MAX.min(whole.length - start);
        let pointer = whole.pointer.wrapping_add(start);
        let offset = wish_offset + u64::try_from(start).expect("less than 2^64");
        (
            offset,
            Segment {
                request: whole.request,
                pointer,
                length,
            },
        )
    })
}

/// A job that still takes neighbours.
struct Open {
    action: Action,
    offset: u64,
    end: u64,
    bytes: usize,
    segments: Vec<Segment>,
}

impl Open {
    fn new(action: Action, offset: u64, segment: Segment) -> Open {
        let mut open = Open {
            action,
            offset,
            end: offset,
            bytes: 0,
            segments: Vec::new(),
        };
        open.push(segment);
        open
    }

    /// Takes a piece if it follows and there is room.
    fn join(&mut self, offset: u64, segment: Segment, bytes_max: usize) -> bool {
        let has_room = self.bytes + segment.length <= bytes_max;
        if offset != self.end || !has_room || self.segments.len() == SEGMENTS_MAX {
            return false;
        }
        self.push(segment);
        true
    }

    fn push(&mut self, segment: Segment) {
        self.bytes += segment.length;
        self.end += u64::try_from(segment.length).expect("less than 2^64");
        self.segments.push(segment);
    }

    fn close(self, batch: &Arc<BatchState>) -> Job {
        Job::new(
            batch,
            self.action,
            (self.offset, self.end - self.offset),
            self.segments,
        )
    }
}
