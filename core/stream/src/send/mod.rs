//! Sending: the records of a snapshot, in OpenZFS's order.
//!
//! # Problem
//! Another ZFS makes a snapshot of what we send, and the same one as from any other sender of it.
//! What it has already is not to be sent again; a terabyte is to be sent as fast as devices read
//! it; and the receiver may stop for hours.
//!
//! # Mechanism
//! What is to be known of datasets is found out first ([`Source`]). Then one thread walks over all
//! blocks born after the base ([`find`]), others read ([`read_ahead`]), and the caller makes
//! records of what they give ([`records`]) and writes them.
//!
//! ```text
//!   walk ──batches──▶ read ┬─▶ records ──▶ pipe
//!                └──▶ read ┘
//! ```
//!
//! # Invariants
//! - The same snapshot, base and choices make the same bytes on each machine: those that OpenZFS
//!   makes.
//! - While the pipe is waited for nothing is held but memory, which is bounded.
//! - A stream that ends early has no last record, so that no receiver takes it for whole.
//!
//! # Knows nothing about
//! Names that users type, which snapshots belong together, holds.

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

/// How much is collected before it is written: records are short.
const WRITE_BYTES: usize = 128 << 10;

/// What the receiver was said to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Choices {
    /// Blocks larger than 128 KiB (`-L`).
    pub large_blocks: bool,
    /// Blocks as they are embedded in pointers (`-e`).
    pub embedded: bool,
    /// Blocks as they are compressed (`-c`).
    pub compressed: bool,
    /// Everything as it is stored (`-w`).
    pub raw: bool,
}

/// Where a stream goes on that broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// The object.
    pub object: u64,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// How far a stream is, for `zfs send -v` and `-V`.
#[derive(Debug, Default)]
pub struct Progress {
    /// How many bytes were written.
    pub bytes: AtomicU64,
    /// The walk.
    pub walk: Arc<Walk>,
}

impl Progress {
    /// How many blocks and objects were looked at.
    pub fn visited(&self) -> u64 {
        self.walk.visited.load(Ordering::Relaxed)
    }
}

/// Why a stream was not sent, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// It goes nowhere any more.
    #[error("{}", tarn_host::words_of(.0))]
    Pipe(std::io::Error),
    /// The tree of names cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// What leads to blocks cannot be read.
    #[error("{0}")]
    Object(ObjectError),
    /// A block cannot be read.
    #[error("object {object}, block {block}: {cause}")]
    Block {
        /// The object.
        object: ObjectId,
        /// Its block.
        block: u64,
        /// Why.
        cause: ReadError,
    },
    /// The pointer to a block makes no sense.
    #[error("object {object}, block {block}: {what}")]
    BadBlock {
        /// The object.
        object: ObjectId,
        /// Its block.
        block: u64,
        /// What is wrong.
        what: Corrupt,
    },
    /// The pointer to a spill block makes no sense.
    #[error("the spill block of object {object} cannot be")]
    BadSpill {
        /// The object.
        object: ObjectId,
    },
    /// A block is not as long as its pointer says.
    #[error("a block is {found} bytes long where {expected} were expected")]
    Length {
        /// What its pointer says.
        expected: usize,
        /// What was read.
        found: usize,
    },
    /// A record cannot be.
    #[error("{0}")]
    Record(Corrupt),
    /// A block of an encrypted dataset is plain: the pool was tampered with.
    #[error("object {object} has a block that is not encrypted")]
    NotEncrypted {
        /// The object.
        object: ObjectId,
    },
    /// A block was written by a machine of the other byte order, and what is in it is not plain
    /// bytes.
    #[error(
        "object {object} has a block in the other byte order, and cannot be sent by this version"
    )]
    ByteOrder {
        /// The object.
        object: ObjectId,
    },
    /// Contents were left out of it on purpose.
    #[error("it is redacted, and redacted snapshots cannot be sent by this version")]
    Redacted,
    /// The base is not in the past of what is sent.
    #[error("not an earlier snapshot from the same fs")]
    NotEarlier,
    /// Its size cannot be guessed: it is no snapshot.
    #[error("it is no snapshot")]
    NotSnapshot,
    /// It is encrypted, and is to be sent plain.
    #[error("dataset key must be loaded")]
    KeyNotLoaded,
    /// It has micro ZAPs that are larger than the blocks that may be sent.
    #[error("it has large microzaps, which need -L")]
    LargeMicrozap,
    /// Its name does not fit into a record.
    #[error("dataset name too long")]
    NameTooLong,
    /// It is no file system though it says so.
    #[error("it has no version")]
    NoVersion,
}

/// Writes the stream of one snapshot, from its first record to its last. Gives back where it went.
/// `check` is asked now and then whether to go on.
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

/// How long the stream would be: by walking over everything, and reading no contents.
///
/// # Errors
/// When something that leads to blocks cannot be read.
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

/// Everything between the first record and the last.
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
