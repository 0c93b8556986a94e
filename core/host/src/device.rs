//! Devices that pools are stored on, and the batches of requests that they take.
//!
//! # Mechanism
//! A [`Device`] is a block device, a plain file, or a simulated disk. It takes many [`Request`]s at
//! once and gives back a [`Batch`] to wait for; in between the caller does something else.
//! Neighbours within a batch are moved together, and large requests are cut up. [`Device::read_at`]
//! is one small read at once, which needs no other thread.
//!
//! # Invariants
//! - The requests of a batch have no order, and must not overlap if one of them writes.
//! - A flush covers the writes that were complete when it was submitted, not those beside it in its
//!   batch.
//! - A failed flush is final: the device is retired, and every later write and flush fails with
//!   [`DeviceError::Retired`]. The system forgets the pages it could not write, so a second flush
//!   would succeed and lie.
//! - A device is never made larger by writing.
//! - A file that was cut off while it is open takes writes, but no flush. One that was removed is
//!   whole until it is closed.
//! - A batch that is dropped is not cancelled; its requests are carried out all the same.
//! - A thread that waits for a device waits until it answers, unless the device is given up. Its
//!   requests may still be carried out then.
//! - When the last handle of a device is dropped, it is closed: the next opener finds it free. Only
//!   a device that does not answer is waited for no longer than some seconds.

use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use crate::batch::{Batch, Completion};
use crate::buffer::Buffer;
use crate::error::{Action, DeviceError};
use crate::lease::WriteLease;
use crate::sim::Seat;

/// How a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenMode {
    /// Only to read. Others may use it.
    ReadOnly,
    /// To read and write. Others may use it; the caller knows what he does.
    ReadWrite,
    /// To read and write, and refused if it is in use.
    ReadWriteExclusive,
}

impl OpenMode {
    /// Whether writing is allowed.
    pub fn may_write(self) -> bool {
        self != OpenMode::ReadOnly
    }
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Where it was opened.
    pub path: Arc<Path>,
    /// Its size when it was opened.
    pub size_bytes: u64,
    /// The unit of addressing: requests must be multiples of it when `is_direct`.
    pub logical_sector_bytes: u32,
    /// The unit the device writes in at once. What is smaller is read, changed and written by it.
    pub physical_sector_bytes: u32,
    /// A block device, not a plain file.
    pub is_block_device: bool,
    /// Whether it turns; `None` if unknown.
    pub is_rotational: Option<bool>,
    /// Whether it takes [`Request::Discard`].
    pub can_discard: bool,
    /// Whether requests go past the system's page cache. They must then be aligned.
    pub is_direct: bool,
    /// Neighbours within a batch are moved by one call up to so many bytes.
    pub merged_bytes_max: u64,
    /// How it was opened.
    pub mode: OpenMode,
    /// The same for two paths to one device or file.
    pub identity: DeviceIdentity,
}

/// Tells whether two paths lead to the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceIdentity {
    /// A block device by its number.
    Block(u64),
    /// A file by its file system and inode.
    File(u64, u64),
    /// A simulated disk.
    Simulated(u64),
}

/// Bytes to be written: a buffer, or a part of one, shared and not copied.
#[derive(Clone, Debug)]
pub struct WriteData {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl WriteData {
    /// Part of a shared buffer.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    pub fn part(buffer: Arc<Buffer>, range: Range<usize>) -> WriteData {
        assert!(
            range.start <= range.end && range.end <= buffer.len(),
            "the range is in the buffer"
        );
        WriteData { buffer, range }
    }
}

impl Deref for WriteData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl From<Arc<Buffer>> for WriteData {
    fn from(buffer: Arc<Buffer>) -> WriteData {
        let range = 0..buffer.len();
        WriteData { buffer, range }
    }
}

impl From<Buffer> for WriteData {
    fn from(buffer: Buffer) -> WriteData {
        Arc::new(buffer).into()
    }
}

/// One thing a device is asked to do.
#[derive(Debug)]
pub enum Request {
    /// Fill `buffer` from `offset`. Its completion gives the buffer back.
    Read {
        /// Where, in bytes.
        offset: u64,
        /// What to fill; its length says how much.
        buffer: Buffer,
    },
    /// Write `data` at `offset`.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: WriteData,
    },
    /// Make durable what was written and completed before.
    Flush,
    /// Give up a range; its contents are undefined afterwards. Only a hint.
    Discard {
        /// Where, in bytes.
        offset: u64,
        /// How much.
        length: u64,
    },
    /// Make a range read as zeroes.
    WriteZeroes {
        /// Where, in bytes.
        offset: u64,
        /// How much.
        length: u64,
    },
}

impl Request {
    /// Reads `length` bytes at `offset`.
    pub fn read(offset: u64, length: usize) -> Request {
        Request::Read {
            offset,
            buffer: Buffer::for_overwrite(length),
        }
    }

    /// Writes `data` at `offset`.
    pub fn write(offset: u64, data: impl Into<WriteData>) -> Request {
        Request::Write {
            offset,
            data: data.into(),
        }
    }
}

/// Something to store bytes on.
pub trait Device: Send + Sync + std::fmt::Debug {
    /// What it is.
    fn describe(&self) -> &DeviceInfo;

    /// How large it is now; it may have grown since it was opened.
    fn size_bytes_now(&self) -> Result<u64, DeviceError>;

    /// Hands over a batch. Returns before it is done, except where it is done at once.
    ///
    /// # Panics
    /// If the device is direct and a request is not aligned to its logical sectors: that is a
    /// mistake of ours.
    fn submit(&self, requests: Vec<Request>) -> Batch;

    /// As [`submit`](Device::submit), also without a valid [`WriteLease`]: for a
    /// host that asks for one, and writes nothing that is stored.
    fn submit_without_lease(&self, requests: Vec<Request>) -> Batch {
        self.submit(requests)
    }

    /// Reads `length` bytes at `offset`, in the calling thread if that is possible.
    fn read_at(&self, offset: u64, length: usize) -> Result<Buffer, DeviceError> {
        let done = self.submit(vec![Request::read(offset, length)]).wait_one();
        Ok(done.result?.expect("a read gives its buffer back"))
    }

    /// Writes `data` at `offset`.
    fn write_at(&self, offset: u64, data: WriteData) -> Result<(), DeviceError> {
        self.submit(vec![Request::Write { offset, data }])
            .wait_one()
            .result
            .map(|_| ())
    }

    /// Makes durable what was written.
    fn flush(&self) -> Result<(), DeviceError> {
        self.submit(vec![Request::Flush])
            .wait_one()
            .result
            .map(|_| ())
    }

    /// Whether a flush failed, so that nothing more can be written.
    fn is_retired(&self) -> bool;

    /// How long it has given no answer at all, though it owes some; zero when it owes none.
    fn silent_ns(&self) -> u64;

    /// Waiting threads get an error, and so does every later request. Requests may still be carried
    /// out, should the device ever answer.
    fn give_up(&self);
}

impl Batch {
    /// Waits for a batch of one request.
    fn wait_one(self) -> Completion {
        self.wait().pop().expect("one request, one completion")
    }
}

/// A device that is written only while a lease is valid.
#[derive(Debug)]
pub(crate) struct LeasedDevice {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) lease: Arc<WriteLease>,
    /// The simulated host that opened it, which may be paused.
    pub(crate) seat: Option<Arc<Seat>>,
}

impl LeasedDevice {
    /// The last thing before the device: a host that was paused finds here that its lease has
    /// expired.
    fn may_write(&self) -> bool {
        if let Some(seat) = &self.seat {
            seat.wait_while_paused();
        }
        self.lease.is_valid()
    }

    fn expired(&self, action: Action) -> DeviceError {
        let path: Arc<Path> = self.device.describe().path.clone();
        DeviceError::LeaseExpired { path, action }
    }
}

impl Device for LeasedDevice {
    fn describe(&self) -> &DeviceInfo {
        self.device.describe()
    }

    fn size_bytes_now(&self) -> Result<u64, DeviceError> {
        self.device.size_bytes_now()
    }

    fn submit(&self, requests: Vec<Request>) -> Batch {
        let is_change = |request: &Request| !matches!(request, Request::Read { .. });
        if requests.iter().any(is_change) && !self.may_write() {
            let errors = requests
                .iter()
                .map(|request| self.expired(action_of(request)));
            return Batch::refused(errors.collect());
        }
        self.device.submit(requests)
    }

    fn submit_without_lease(&self, requests: Vec<Request>) -> Batch {
        if let Some(seat) = &self.seat {
            seat.wait_while_paused();
        }
        self.device.submit(requests)
    }

    fn read_at(&self, offset: u64, length: usize) -> Result<Buffer, DeviceError> {
        self.device.read_at(offset, length)
    }

    fn write_at(&self, offset: u64, data: WriteData) -> Result<(), DeviceError> {
        match self.may_write() {
            true => self.device.write_at(offset, data),
            false => Err(self.expired(Action::Write)),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        match self.may_write() {
            true => self.device.flush(),
            false => Err(self.expired(Action::Flush)),
        }
    }

    fn is_retired(&self) -> bool {
        self.device.is_retired()
    }

    fn silent_ns(&self) -> u64 {
        self.device.silent_ns()
    }

    fn give_up(&self) {
        self.device.give_up();
    }
}

fn action_of(request: &Request) -> Action {
    match request {
        Request::Read { .. } => Action::Read,
        Request::Write { .. } => Action::Write,
        Request::Flush => Action::Flush,
        Request::Discard { .. } => Action::Discard,
        Request::WriteZeroes { .. } => Action::WriteZeroes,
    }
}
