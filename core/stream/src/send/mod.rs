//! Send: the records of a snapshot, in OpenZFS's order.
//!
//! # Problem
//! Any ZFS must receive the same snapshot from this stream as from another sender's. Blocks that
//! the receiver has are not sent; a terabyte must be sent as fast as the devices read it; and the
//! receiver may pause for hours.
//!
//! # Mechanism
//! The facts of datasets are read first ([`Source`]). Then one thread walks over all blocks born
//! after the base ([`find`]), others read them ([`read_ahead`]), and the caller makes records of
//! them ([`records`]) and writes these.
//!
//! ```text
//!   walk ──batches──▶ read ┬─▶ records ──▶ pipe
//!                └──▶ read ┘
//! ```
//!
//! # Invariants
//! - The same snapshot, base and choices make the same bytes as OpenZFS's sender.
//! - While the pipe is full, the send holds only memory, of bounded size.
//! - A stream that ends early has no end record, so receivers know that it is cut.
//!
//! # Knows nothing about
//! Names that users type, the choice of snapshots, holds.

mod find;
mod form;
mod read_ahead;
mod records;
pub mod series;
mod size;
mod source;

use crate::writing::StreamWriter;
use form::Forms;
use read_ahead::ReadAhead;
use records::{Records, Sink, Terms};
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_block::ReadError;
use tarn_dataset::error::DatasetError;
use tarn_object::ObjectError;
use tarn_ondisk::declare::{Corrupt, widen};
use tarn_ondisk::stream::{RECORD_BYTES, Record};
use tarn_ondisk::units::ObjectId;
use tarn_pool::Pool;

pub use find::Walk;
pub use size::estimate;
pub use source::{Base, Source};

/// Bytes that are collected before a write, since records are short.
const WRITE_BYTES: usize = 128 << 10;

/// The forms that the receiver accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Choices {
    /// `-L`: blocks larger than 128 KiB.
    pub large_blocks: bool,
    /// `-e`: embedded blocks as such.
    pub embedded: bool,
    /// `-c`: compressed blocks as stored.
    pub compressed: bool,
    /// `-w`: all blocks as stored.
    pub raw: bool,
}

/// Where a cut stream is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// The object.
    pub object: u64,
    /// The offset in it, in bytes.
    pub offset: u64,
}

/// The progress of a send.
#[derive(Debug, Default)]
pub struct Progress {
    /// Number of written bytes.
    pub bytes: AtomicU64,
    /// The walk.
    pub walk: Arc<Walk>,
}

impl Progress {
    /// Number of visited blocks and objects.
    pub fn visited(&self) -> u64 {
        self.walk.visited.load(Ordering::Relaxed)
    }
}

/// Why a send failed or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The stream cannot be written.
    #[error("{}", tarn_host::words_of(.0))]
    Pipe(std::io::Error),
    /// The tree of datasets cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// An indirect block or a dnode cannot be read.
    #[error("{0}")]
    Object(ObjectError),
    /// A block cannot be read.
    #[error("object {object}, block {block}: {cause}")]
    Block {
        /// The object.
        object: ObjectId,
        /// Its block.
        block: u64,
        /// The reason.
        cause: ReadError,
    },
    /// The pointer to a block is malformed.
    #[error("object {object}, block {block}: {what}")]
    BadBlock {
        /// The object.
        object: ObjectId,
        /// Its block.
        block: u64,
        /// The fault.
        what: Corrupt,
    },
    /// The pointer to a spill block is malformed.
    #[error("the spill block of object {object} cannot be")]
    BadSpill {
        /// The object.
        object: ObjectId,
    },
    /// The length of a block differs from its pointer's.
    #[error("a block is {found} bytes long where {expected} were expected")]
    Length {
        /// The length in its pointer.
        expected: usize,
        /// The length that was read.
        found: usize,
    },
    /// A record cannot be encoded.
    #[error("{0}")]
    Record(Corrupt),
    /// A block of an encrypted dataset is not encrypted: the pool was tampered with.
    #[error("object {object} has a block that is not encrypted")]
    NotEncrypted {
        /// The object.
        object: ObjectId,
    },
    /// A block has the other byte order, and its contents are structures that cannot be sent as
    /// bytes.
    #[error(
        "object {object} has a block in the other byte order, and cannot be sent by this version"
    )]
    ByteOrder {
        /// The object.
        object: ObjectId,
    },
    /// The snapshot was received redacted.
    #[error("it is redacted, and redacted snapshots cannot be sent by this version")]
    Redacted,
    /// The base is not an ancestor of the snapshot.
    #[error("not an earlier snapshot from the same fs")]
    NotEarlier,
    /// A head has no estimate of its size.
    #[error("it is no snapshot")]
    NotSnapshot,
    /// The dataset is encrypted, and the send is not raw.
    #[error("dataset key must be loaded")]
    KeyNotLoaded,
    /// Micro ZAPs are larger than the blocks that may be sent.
    #[error("it has large microzaps, which need -L")]
    LargeMicrozap,
    /// The name does not fit into a record.
    #[error("dataset name too long")]
    NameTooLong,
    /// The file system has no version.
    #[error("it has no version")]
    NoVersion,
}

/// Writes the stream of one snapshot, from its first record to its last, and returns `out`. `check`
/// is called now and then, and may stop the send.
///
/// # Errors
/// Why it ended early.
pub fn send<W: Write>(
    pool: &Pool,
    source: &Source,
    out: W,
    progress: &Progress,
    check: &dyn Fn() -> Result<(), SendError>,
) -> Result<W, SendError> {
    let mut writer = StreamWriter::new(BufWriter::with_capacity(WRITE_BYTES, out));
    let begin = Record::Begin {
        begin: Box::new(source.begin.clone()),
        payload_bytes: u32::try_from(source.payload.len()).expect("a few numbers"),
    };
    writer
        .write(&begin, &source.payload)
        .map_err(SendError::Pipe)?;
    count(progress, RECORD_BYTES + source.payload.len());
    let sink = run(pool, source, Sink::Stream(writer), progress, check)?;
    let Sink::Stream(writer) = sink else {
        unreachable!("it was a stream");
    };
    let out = writer
        .finish(source.begin.to_guid)
        .map_err(SendError::Pipe)?;
    count(progress, RECORD_BYTES);
    out.into_inner()
        .map_err(|error| SendError::Pipe(error.into_error()))
}

/// The size of the stream, by a walk over all blocks that reads no contents.
///
/// # Errors
/// An indirect block or a dnode cannot be read.
#[doc(alias = "full_estimate")]
pub fn measure(
    pool: &Pool,
    source: &Source,
    check: &dyn Fn() -> Result<(), SendError>,
) -> Result<u64, SendError> {
    let progress = Progress::default();
    count(&progress, 2 * RECORD_BYTES + source.payload.len());
    run::<std::io::Sink>(pool, source, Sink::Size, &progress, check)?;
    Ok(progress.bytes.load(Ordering::Relaxed))
}

fn count(progress: &Progress, bytes: usize) {
    progress.bytes.fetch_add(widen(bytes), Ordering::Relaxed);
}

/// All records between the first and the last.
fn run<W: Write>(
    pool: &Pool,
    source: &Source,
    sink: Sink<W>,
    progress: &Progress,
    check: &dyn Fn() -> Result<(), SendError>,
) -> Result<Sink<W>, SendError> {
    let forms = Forms {
        set: source.search.set,
        features: source.features,
        is_dry: matches!(sink, Sink::Size),
    };
    let terms = Terms {
        forms,
        to_guid: source.begin.to_guid,
        base_txg: source.base_txg,
        numbers_end: source.numbers_end,
    };
    let (host, cache) = (pool.host(), pool.cache());
    let search = source.search.clone();
    let mut items = ReadAhead::start(host, cache, search, forms, progress.walk.clone());
    let mut records = Records::new(sink, terms, &progress.bytes);
    while let Some(item) = items.next(check)? {
        records.add(item)?;
    }
    records.finish()
}
