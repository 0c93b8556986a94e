//! Records while they are in memory.

use std::sync::Arc;

use tarn_object::{IndirectWrites, Object, ObjectError, Tx};
use tarn_ondisk::declare::widen;
use tarn_ondisk::intent_log::{LoggedChange, LoggedWrite};
use tarn_ondisk::units::{BlockId, ObjectId};
use tarn_probe::Operation;

/// One change for the log, kept in memory until its txg is stored or a commit takes it.
#[derive(Debug, Clone)]
pub struct IntentRecord {
    /// What has changed.
    pub change: LoggedChange,
    /// The file whose commits need it. `None`: every commit stores it, in order, for others build
    /// on it (names).
    pub object: Option<ObjectId>,
    /// Whether the bytes of a write are in the record.
    pub contents: Contents,
}

/// Where the bytes of a record are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// The record has all it needs.
    #[doc(alias = "WR_COPIED")]
    InRecord,
    /// It is a [`LoggedChange::Write`] without data. The [`LogSource`] is asked for them when the
    /// record is stored.
    #[doc(alias = "WR_NEED_COPY")]
    Fetch {
        /// In which group the file was made: its number may be another file's by then.
        generation: u64,
    },
}

/// The bytes of a file at the range of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// As many bytes as were written, or newer ones.
    Bytes(Vec<u8>),
    /// The file ends before the write did: it was shortened since.
    Shortened {
        /// As many bytes as were written, zeros behind the end; none when the file ends before the
        /// write began.
        bytes: Vec<u8>,
        /// Where the file ends now.
        size_bytes: u64,
    },
    /// No name leads to the file after a crash: the record is dropped.
    Gone,
}

/// A door: the contents of files, for records without bytes. Called by the thread that commits,
/// which holds no transaction and no lock of the log.
pub trait LogSource: Send + Sync {
    /// The bytes of this write into the file of this number and generation; they may be newer than
    /// it.
    ///
    /// # Errors
    /// When they cannot be read. The commit then waits for the group.
    fn contents(
        &self,
        write: &LoggedWrite,
        generation: u64,
        operation: &Operation,
    ) -> Result<Fetched, ObjectError>;

    /// Gives the blocks that a write of the open group has changed their places now, so that
    /// records lead to them instead of carrying their bytes; such only as the write reaches the end
    /// of. The file must be of this generation, have a name, and reach to the end of the write.
    /// `None`, with nothing placed, when that is not so or not worth it. Asked with a transaction,
    /// and with no lock of the log.
    fn place(
        &self,
        write: &LoggedWrite,
        generation: u64,
        whole_blocks: WholeBlocks,
        tx: &Tx,
        operation: &Operation,
    ) -> Option<PlacedWrites>;
}

/// Which writes are worth their blocks' places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WholeBlocks {
    /// All.
    NotNeeded,
    /// Only those that fill their blocks.
    Needed,
}

/// A write that leads to its blocks.
#[derive(Debug)]
pub struct PlacedWrites {
    /// Its parts, one for each block, with pointers to these.
    pub parts: Vec<LoggedWrite>,
    /// What comes after them and carries its bytes.
    pub rest: Option<LoggedWrite>,
    /// The blocks.
    pub blocks: IndirectWrites,
}

impl PlacedWrites {
    /// Writes the blocks of `object` that a write reaches the end of, where they stay, and divides
    /// the write among them. None when there are none, or they cannot be written.
    ///
    /// A replay writes the whole block that a record leads to. Behind the end of the write, its
    /// last block may have bytes that were written later and are not logged, or were cut off since:
    /// so the rest of the write carries its bytes.
    pub fn of(
        write: &LoggedWrite,
        object: &Arc<Object>,
        tx: &Tx,
        operation: &Operation,
    ) -> Option<PlacedWrites> {
        let end = write.offset.checked_add(write.length)?;
        let block_size = object.block_size().get();
        let led_end = end - end % block_size;
        if write.offset >= led_end {
            return None;
        }
        let range = write.offset / block_size..led_end / block_size;
        let blocks = object.place_for_log(tx, range.clone(), operation)?;
        let count = range.end - range.start;
        let parts = range.filter_map(|block| {
            let offset = write.offset.max(block * block_size);
            Some(LoggedWrite {
                offset,
                length: (block + 1) * block_size - offset,
                pointer: *blocks.pointer(BlockId::from(block))?,
                ..write.clone()
            })
        });
        let parts: Vec<LoggedWrite> = parts.collect();
        assert_eq!(
            widen(parts.len()),
            count,
            "a record leads to each block that was placed, or bytes would be missing after a crash"
        );
        let rest = (led_end < end).then(|| LoggedWrite {
            offset: led_end,
            length: end - led_end,
            ..write.clone()
        });
        Some(PlacedWrites {
            parts,
            rest,
            blocks,
        })
    }
}
