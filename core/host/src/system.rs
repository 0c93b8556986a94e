//! The calls that carry out a job, with what every call must handle: interruptions and partial
//! results.
#![allow(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::background;
use crate::batch::{Failure, Job, Segment, Times};
use crate::clock;
use crate::error::Action;
use crate::file_device::Flow;
use crate::slow::Arm;

/// A call writes no more than this through the page cache: others wait for it.
const BUFFERED_WRITE_BYTES_MAX: usize = 256 << 10;

/// The same for background work. Where a page costs 7 µs, the kernel copies 256 KiB for half a
/// millisecond, and meanwhile lets no other thread run on that processor or write to that file.
const LEISURELY_WRITE_BYTES_MAX: usize = 64 << 10;

/// Carries a job out in the calling thread, and ends it.
pub(crate) fn carry_out(job: Job, flow: &Flow) {
    let turn = flow.arm().map(Arm::take_turn);
    let started_ns = clock::real_monotonic_ns();
    flow.asked(started_ns);
    if let Some(turn) = &turn {
        turn.move_there();
    }
    let failure = attempt(&job, flow).err();
    drop(turn);
    let ended_ns = clock::real_monotonic_ns();
    flow.answered(ended_ns);
    let service_ns = ended_ns - started_ns;
    let times = Times {
        queue_ns: started_ns.saturating_sub(job.submitted_ns()),
        service_ns,
    };
    end(job, flow, times, failure);
}

/// Ends a job. If it failed and was made of several requests, each is tried alone first, so that
/// only those fail that must.
pub(crate) fn end(job: Job, flow: &Flow, times: Times, failure: Option<Failure>) {
    let mut failure = failure;
    if job.action == Action::Flush {
        match failure {
            Some(Failure::Errno(errno)) => flow.retire(errno),
            // Another one has failed meanwhile, and may have lost what this one was to cover.
            _ => failure = failure.or(flow.retirement().map(Failure::Errno)),
        }
    }
    if failure.is_none() || job.segments.len() <= 1 {
        return job.end(times, failure);
    }
    let mut offset = job.offset;
    for segment in &job.segments {
        if let Err(failure) = transfer(job.action, flow.file(), offset, &[*segment]) {
            job.segment_failed(segment, &failure);
        }
        offset += u64::try_from(segment.length).expect("less than 2^64");
    }
    job.end(times, None);
}

/// A file that was cut off takes writes, and has lost others. One that was removed is whole as long
/// as it is open.
fn refuse_lost_file(flow: &Flow) -> Result<(), Failure> {
    if flow.is_block_device() {
        return Ok(());
    }
    let status = rustix::fs::fstat(flow.file()).map_err(Failure::from)?;
    let size_bytes = u64::try_from(status.st_size).unwrap_or(0);
    match size_bytes < flow.info().size_bytes {
        true => Err(Failure::Errno(crate::error::Errno::IO)),
        false => Ok(()),
    }
}

fn attempt(job: &Job, flow: &Flow) -> Result<(), Failure> {
    let file = flow.file();
    match job.action {
        Action::Read | Action::Write if flow.info().is_direct || job.action == Action::Read => {
            transfer(job.action, file, job.offset, &job.segments)
        }
        Action::Read | Action::Write => write_in_turn(flow, job),
        Action::Flush => {
            let flush = || {
                refuse_lost_file(flow)?;
                retry(|| rustix::fs::fdatasync(file))
            };
            match flow.shares_errors() {
                true => flow.flushes().share(flush),
                false => flush(),
            }
        }
        Action::Discard => discard(file, flow.is_block_device(), job.offset, job.length),
        Action::WriteZeroes => write_zeroes(file, flow.is_block_device(), job.offset, job.length),
        Action::Measure => Ok(()),
    }
}

/// Reads only what is in memory already, without waiting. Says whether that was all of it.
pub(crate) fn read_without_waiting(job: &Job, flow: &Flow) -> Result<bool, Errno> {
    // SAFETY: the memory belongs to the job, and nothing else looks at it.
    let mut slices = unsafe { slices_mut(&job.segments) };
    let flags = ReadWriteFlags::NOWAIT;
    let read = rustix::io::preadv2(flow.file(), &mut slices, job.offset, flags)?;
    Ok(u64::try_from(read).is_ok_and(|read| read == job.length))
}

/// Writes through the page cache.
fn write_in_turn(flow: &Flow, job: &Job) -> Result<(), Failure> {
    let (file, turns) = (flow.file(), flow.turns());
    if job.length <= widen(call_bytes_max()) {
        return turns.small(|| transfer(Action::Write, file, job.offset, &job.segments));
    }
    turns.large(|| {
        let (mut left, mut offset) = (job.segments.clone(), job.offset);
        while !left.is_empty() {
            turns.wait_turn();
            background::offer_turn();
            let now = first_of(&left, call_bytes_max());
            transfer(Action::Write, file, offset, &now)?;
            let count = now.iter().map(|segment| segment.length).sum();
            offset += widen(count);
            advance(&mut left, count);
        }
        Ok(())
    })
}

/// How much the calling thread writes through the page cache with one call.
pub(crate) fn call_bytes_max() -> usize {
    match background::has_time() {
        true => LEISURELY_WRITE_BYTES_MAX,
        false => BUFFERED_WRITE_BYTES_MAX,
    }
}

fn widen(count: usize) -> u64 {
    u64::try_from(count).expect("less than 2^64")
}

/// Moves bytes until all are moved.
fn transfer(
    action: Action,
    file: BorrowedFd<'_>,
    offset: u64,
    segments: &[Segment],
) -> Result<(), Failure> {
    let mut left = segments.to_vec();
    let mut offset = offset;
    while !left.is_empty() {
        // SAFETY: the memory belongs to the job; reads have it for themselves, writes only look.
        let moved = match action {
            Action::Read => rustix::io::preadv(file, &mut unsafe { slices_mut(&left) }, offset),
            _ => rustix::io::pwritev(file, &unsafe { slices(&left) }, offset),
        };
        match moved {
            Ok(0) => return Err(Failure::Ended { at: offset }),
            Ok(count) => {
                offset += u64::try_from(count).expect("less than 2^64");
                advance(&mut left, count);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// The first of these segments, with so many bytes at most.
fn first_of(segments: &[Segment], most: usize) -> Vec<Segment> {
    let mut left = most;
    let cut = segments.iter().map_while(|segment| {
        let length = segment.length.min(left);
        left -= length;
        (length > 0).then_some(Segment { length, ..*segment })
    });
    cut.collect()
}

/// Drops the first `count` bytes.
pub(crate) fn advance(segments: &mut Vec<Segment>, mut count: usize) {
    let done = segments.iter().take_while(|segment| {
        let is_done = segment.length <= count;
        count -= if is_done { segment.length } else { 0 };
        is_done
    });
    let done = done.count();
    segments.drain(..done);
    if let Some(first) = segments.first_mut() {
        first.pointer = first.pointer.wrapping_add(count);
        first.length -= count;
    }
}

/// # Safety
/// The memory of the segments is alive, and nothing else uses it as long as the slices live.
unsafe fn slices_mut<'a>(segments: &[Segment]) -> Vec<IoSliceMut<'a>> {
    let slice = |s: &Segment| {
        // SAFETY: promised by the caller.
        IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(s.pointer, s.length) })
    };
    segments.iter().map(slice).collect()
}

/// # Safety
/// The memory of the segments is alive, and nothing writes to it as long as the slices live.
unsafe fn slices<'a>(segments: &[Segment]) -> Vec<IoSlice<'a>> {
    let slice = |s: &Segment| {
        // SAFETY: promised by the caller.
        IoSlice::new(unsafe { std::slice::from_raw_parts(s.pointer, s.length) })
    };
    segments.iter().map(slice).collect()
}

fn retry(mut call: impl FnMut() -> rustix::io::Result<()>) -> Result<(), Failure> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result.map_err(Failure::from),
        }
    }
}

/// Errors that mean "this device does not do that".
fn unsupported(failure: Failure) -> Failure {
    let never = [libc::EOPNOTSUPP, libc::ENOTTY, libc::ENOSYS, libc::EINVAL];
    match failure {
        Failure::Errno(errno) if never.contains(&errno.0) => Failure::Unsupported,
        failure => failure,
    }
}

fn discard(file: BorrowedFd<'_>, is_block: bool, offset: u64, length: u64) -> Result<(), Failure> {
    let done = match is_block {
        true => range_ioctl(file, BLKDISCARD, offset, length),
        false => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            retry(|| rustix::fs::fallocate(file, flags, offset, length))
        }
    };
    done.map_err(unsupported)
}

fn write_zeroes(
    file: BorrowedFd<'_>,
    is_block: bool,
    offset: u64,
    length: u64,
) -> Result<(), Failure> {
    let done = match is_block {
        true => range_ioctl(file, BLKZEROOUT, offset, length),
        false => {
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            retry(|| rustix::fs::fallocate(file, flags, offset, length))
        }
    };
    match done.map_err(unsupported) {
        Err(Failure::Unsupported) => write_zeroes_by_hand(file, offset, length),
        done => done,
    }
}

fn write_zeroes_by_hand(file: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Failure> {
    let chunk = u64::try_from(crate::plan::MERGED_BYTES_MAX).expect("less than 2^64");
    let zeroes = crate::buffer::Buffer::zeroed(crate::plan::MERGED_BYTES_MAX);
    let mut at = offset;
    while at < offset + length {
        let now = usize::try_from(chunk.min(offset + length - at)).expect("at most the chunk");
        let pointer = zeroes.raw().as_ptr();
        transfer(
            Action::Write,
            file,
            at,
            &[Segment {
                request: 0,
                pointer,
                length: now,
            }],
        )?;
        at += chunk;
    }
    Ok(())
}

/// `BLKDISCARD` and `BLKZEROOUT` of linux/fs.h; libc does not name them.
const BLKDISCARD: libc::c_ulong = 0x1277;
const BLKZEROOUT: libc::c_ulong = 0x127f;

fn range_ioctl(
    file: BorrowedFd<'_>,
    request: libc::c_ulong,
    offset: u64,
    length: u64,
) -> Result<(), Failure> {
    use std::os::fd::AsRawFd;
    let range = [offset, length];
    retry(|| {
        // SAFETY: both calls read two u64 from the address and touch nothing else of ours.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, range.as_ptr()) };
        if result == 0 {
            Ok(())
        } else {
            Err(last_errno())
        }
    })
}

fn last_errno() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The size of a block device or file.
pub(crate) fn size_of_file(file: impl AsFd, is_block: bool) -> Result<u64, Errno> {
    if is_block {
        return rustix::fs::seek(file, rustix::fs::SeekFrom::End(0));
    }
    let status = rustix::fs::fstat(file)?;
    Ok(u64::try_from(status.st_size).unwrap_or(0))
}
