//! The pool's history: commands and internal events since the pool was made, with user and time.
//!
//! # Mechanism
//! An object of fixed size is used as a ring, behind a part that is never overwritten: everything
//! up to the command that made the pool. The state of the ring is in the object's bonus.
//!
//! ```text
//!   0                  creation_end                                   ring_end
//!   | how it was made  | …newer | oldest kept          …older         |
//!                               ▲ begin, end: count on, modulo the ring's length
//! ```
//!
//! A record is its length, as a little-endian word on every machine, and a packed list. Records
//! may run over the end of the ring and continue at its beginning, also within the length.
//!
//! # Invariants
//! - `begin` is the start of a record, and `end` that of the next to be written.
//! - The ring is never full: there is always a byte between the newest record and the oldest.

use crate::declare::{Corrupt, Reader, narrow, widen};
use crate::nvlist::{Encoding, NvList};
use crate::on_disk;

/// The size of the ring of a small pool.
pub const SIZE_MIN: u64 = 128 << 10;
/// The size of the ring of a large pool.
pub const SIZE_MAX: u64 = 1 << 30;
/// Which part of the pool is the ring's.
const SHARE_OF_POOL: u64 = 1000;
/// The length before each record.
const LENGTH_SIZE: u64 = 8;
/// How much of a command line is kept: as much as OpenZFS's tools send.
#[doc(alias = "HIS_MAX_RECORD_LEN")]
pub const COMMAND_BYTES_MAX: usize = 2 * 4096;
/// No record is longer. A guess: command lines and their arguments, many times over.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// Positions count on for ever, and no pool writes so many bytes of history.
const POSITION_MAX: u64 = 1 << 62;

const WHAT: &str = "pool history";

/// Names in a record.
pub mod name {
    /// When, in seconds since 1970, UTC: a number.
    #[doc(alias = "ZPOOL_HIST_TIME")]
    pub const TIME: &str = "history time";
    /// The command line, in records of commands.
    #[doc(alias = "ZPOOL_HIST_CMD")]
    pub const COMMAND: &str = "history command";
    /// The user's uid: a number.
    #[doc(alias = "ZPOOL_HIST_WHO")]
    pub const WHO: &str = "history who";
    /// The zone it was done in.
    #[doc(alias = "ZPOOL_HIST_ZONE")]
    pub const ZONE: &str = "history zone";
    /// The host it was done on.
    #[doc(alias = "ZPOOL_HIST_HOST")]
    pub const HOST: &str = "history hostname";
    /// The txg of an internal event: a number.
    #[doc(alias = "ZPOOL_HIST_TXG")]
    pub const TXG: &str = "history txg";
    /// The number of an internal event, in records of old versions.
    #[doc(alias = "ZPOOL_HIST_INT_EVENT")]
    pub const EVENT_NUMBER: &str = "history internal event";
    /// What an internal event says.
    #[doc(alias = "ZPOOL_HIST_INT_STR")]
    pub const EVENT_TEXT: &str = "history internal str";
    /// The name of an internal event.
    #[doc(alias = "ZPOOL_HIST_INT_NAME")]
    pub const EVENT_NAME: &str = "internal_name";
    /// The name of a call, in records of calls.
    #[doc(alias = "ZPOOL_HIST_IOCTL")]
    pub const CALL: &str = "ioctl";
    /// What a call was given: a list.
    #[doc(alias = "ZPOOL_HIST_INPUT_NVL")]
    pub const INPUT: &str = "in_nvl";
    /// What a call gave back: a list.
    #[doc(alias = "ZPOOL_HIST_OUTPUT_NVL")]
    pub const OUTPUT: &str = "out_nvl";
    /// The size of what a call gave back, where that is too large to be kept.
    #[doc(alias = "ZPOOL_HIST_OUTPUT_SIZE")]
    pub const OUTPUT_SIZE: &str = "out_size";
    /// The dataset that an internal event is about.
    #[doc(alias = "ZPOOL_HIST_DSNAME")]
    pub const DATASET: &str = "dsname";
    /// The object of that dataset: a number.
    #[doc(alias = "ZPOOL_HIST_DSID")]
    pub const DATASET_OBJECT: &str = "dsid";
    /// The error of a call.
    #[doc(alias = "ZPOOL_HIST_ERRNO")]
    pub const ERRNO: &str = "errno";
    /// How long a call took, in nanoseconds.
    #[doc(alias = "ZPOOL_HIST_ELAPSED_NS")]
    pub const ELAPSED_NS: &str = "elapsed_ns";
}

on_disk! {
    /// The state of the ring.
    #[doc(alias = "spa_history_phys_t")]
    #[derive(Copy, Default)]
    pub struct HistoryHead [40 bytes] {
        /// Where the part ends that is never overwritten; 0 until the pool is made.
        0 => creation_end: u64,
        /// Where the ring ends.
        8 => ring_end: u64,
        /// The oldest record that is kept, as if the ring had no end.
        16 => begin: u64,
        /// Behind the newest record, as if the ring had no end.
        24 => end: u64,
        /// How many records were overwritten.
        32 => lost_count: u64,
    }
}

/// A part of the history's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it has.
    pub length: u64,
}

impl HistoryHead {
    /// An empty ring, for a pool with room for so many bytes.
    #[doc(alias = "spa_history_create_obj")]
    pub fn new(pool_bytes: u64) -> HistoryHead {
        HistoryHead {
            ring_end: (pool_bytes / SHARE_OF_POOL).clamp(SIZE_MIN, SIZE_MAX),
            ..HistoryHead::default()
        }
    }

    /// Refuses a state that no ring can have.
    pub fn check(&self) -> Result<(), Corrupt> {
        let is_sound = self.creation_end < self.ring_end
            && self.begin >= self.creation_end
            && self.begin <= self.end
            && self.end <= POSITION_MAX
            && self.end - self.begin <= self.ring_end - self.creation_end;
        if is_sound {
            return Ok(());
        }
        Err(Corrupt::Inconsistent {
            what: WHAT,
            offset: 0,
            why: "its ring begins or ends outside",
        })
    }

    /// All that is kept, in the order in which it was written. To be read one behind the other,
    /// and given to [`records`].
    ///
    /// Only for a state that [`check`](HistoryHead::check) accepts.
    #[doc(alias = "spa_history_get")]
    pub fn pieces(&self) -> Vec<Piece> {
        let creation = Piece {
            offset: 0,
            length: self.creation_end,
        };
        let ring = self.pieces_of(self.begin, self.end - self.begin);
        std::iter::once(creation)
            .chain(ring)
            .filter(|piece| piece.length > 0)
            .collect()
    }

    /// Whether a record of `length` encoded bytes fits without dropping an old one.
    pub fn has_room(&self, length: u64) -> bool {
        self.ring_length() - (self.end - self.begin) > length
    }

    /// Whether a record of `length` encoded bytes fits at all.
    pub fn can_hold(&self, length: u64) -> bool {
        length < self.ring_length()
    }

    /// Where the oldest record's length is. To be read, and given to
    /// [`drop_oldest`](HistoryHead::drop_oldest).
    pub fn oldest_length(&self) -> Vec<Piece> {
        self.pieces_of(self.begin, LENGTH_SIZE)
    }

    /// Gives up the oldest record, whose length this is.
    #[doc(alias = "spa_history_advance_bof")]
    pub fn drop_oldest(&mut self, length: [u8; 8]) -> Result<(), Corrupt> {
        let length = u64::from_le_bytes(length);
        let next = self
            .begin
            .checked_add(LENGTH_SIZE)
            .and_then(|next| next.checked_add(length));
        let Some(next) = next.filter(|&next| next <= self.end) else {
            return Err(bad_length(self.begin, length));
        };
        self.begin = next;
        self.lost_count = self.lost_count.saturating_add(1);
        Ok(())
    }

    /// Leaves out the oldest records until those that are left in the ring have at most so many
    /// bytes. `read` gives the bytes of pieces.
    ///
    /// # Errors
    /// The outer one is that of `read`.
    pub fn leave_out_oldest<E>(
        &mut self,
        bytes_max: u64,
        read: impl Fn(Vec<Piece>) -> Result<Vec<u8>, E>,
    ) -> Result<Result<(), Corrupt>, E> {
        while self.end - self.begin > bytes_max {
            let length = read(self.oldest_length())?;
            let length = length.try_into().expect("as many bytes as were asked for");
            if let Err(corrupt) = self.drop_oldest(length) {
                return Ok(Err(corrupt));
            }
        }
        Ok(Ok(()))
    }

    /// Makes room for a record of `length` encoded bytes behind the newest, and says where it is to
    /// be written.
    ///
    /// # Panics
    /// When there is no room; see [`has_room`](HistoryHead::has_room).
    #[doc(alias = "spa_history_write")]
    pub fn append(&mut self, length: u64) -> Vec<Piece> {
        assert!(
            self.has_room(length),
            "old records were dropped before a new one"
        );
        let pieces = self.pieces_of(self.end, length);
        self.end += length;
        pieces
    }

    /// Keeps all that was written so far for good: the command that made the pool was the last.
    /// Does nothing when that was so before, or when the ring went round since: what made the pool
    /// is gone then.
    pub fn keep_creation(&mut self) {
        if self.creation_end == 0 && self.end < self.ring_end {
            self.creation_end = self.end;
            self.begin = self.end;
        }
    }

    fn ring_length(&self) -> u64 {
        self.ring_end - self.creation_end
    }

    /// Where so many bytes are that begin at `start`, as if the ring had no end.
    #[doc(alias = "spa_history_log_to_phys")]
    fn pieces_of(&self, start: u64, length: u64) -> Vec<Piece> {
        let offset = (start - self.creation_end) % self.ring_length() + self.creation_end;
        let first = length.min(self.ring_end - offset);
        let pieces = [
            Piece {
                offset,
                length: first,
            },
            Piece {
                offset: self.creation_end,
                length: length - first,
            },
        ];
        pieces
            .into_iter()
            .filter(|piece| piece.length > 0)
            .collect()
    }
}

/// A record as it is to be written: its length and its list.
pub fn encode_record(record: &NvList) -> Vec<u8> {
    let packed = record.encode(Encoding::Native);
    let mut bytes = widen(packed.len()).to_le_bytes().to_vec();
    bytes.extend(packed);
    bytes
}

/// The records in the bytes of all [`pieces`](HistoryHead::pieces). After one that is refused
/// there are no more: where the next begins is not known.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<NvList, Corrupt>> + '_ {
    let mut reader = Reader::new(WHAT, bytes, Default::default());
    std::iter::from_fn(move || {
        if reader.is_at_end() {
            return None;
        }
        let record = next_record(&mut reader);
        if record.is_err() {
            reader.rest();
        }
        Some(record)
    })
}

fn next_record(reader: &mut Reader<'_>) -> Result<NvList, Corrupt> {
    let offset = widen(reader.position());
    let length = reader.u64()?;
    if length > RECORD_BYTES_MAX {
        return Err(bad_length(offset, length));
    }
    let packed = reader.take(narrow(length))?;
    match NvList::decode_prefix(packed)? {
        (record, size) if size == packed.len() => Ok(record),
        _ => Err(bad_length(offset, length)),
    }
}

fn bad_length(offset: u64, found: u64) -> Corrupt {
    Corrupt::Value {
        what: WHAT,
        field: "record length",
        offset,
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A history in memory.
    struct History {
        head: HistoryHead,
        object: Vec<u8>,
    }

    impl History {
        fn new(size: u64) -> History {
            let head = HistoryHead {
                ring_end: size,
                ..HistoryHead::default()
            };
            History {
                head,
                object: vec![0; narrow(size)],
            }
        }

        fn read(&self, pieces: &[Piece]) -> Vec<u8> {
            let part = |piece: &Piece| {
                self.object[narrow(piece.offset)..narrow(piece.offset + piece.length)].to_vec()
            };
            pieces.iter().flat_map(part).collect()
        }

        fn write(&mut self, record: &NvList) {
            let mut bytes = &encode_record(record)[..];
            while !self.head.has_room(widen(bytes.len())) {
                let length = self.read(&self.head.oldest_length());
                let length = length.try_into().expect("a length has eight bytes");
                self.head.drop_oldest(length).expect("we wrote it");
            }
            for piece in self.head.append(widen(bytes.len())) {
                let (part, rest) = bytes.split_at(narrow(piece.length));
                self.object[narrow(piece.offset)..][..part.len()].copy_from_slice(part);
                bytes = rest;
            }
        }

        fn records(&self) -> Vec<NvList> {
            self.head.check().expect("it stayed valid");
            let bytes = self.read(&self.head.pieces());
            records(&bytes)
                .collect::<Result<_, _>>()
                .expect("we wrote it")
        }
    }

    fn command(number: usize) -> NvList {
        NvList::new()
            .with(name::COMMAND, "c".repeat(number % 50))
            .with(name::TIME, widen(number))
    }

    #[test]
    fn the_ring_has_a_size_by_that_of_the_pool() {
        assert_eq!(HistoryHead::new(1 << 30).ring_end, 1_073_741);
        assert_eq!(HistoryHead::new(64 << 20).ring_end, SIZE_MIN);
        assert_eq!(HistoryHead::new(u64::MAX).ring_end, SIZE_MAX);
    }

    #[test]
    fn of_a_long_ring_the_newest_records_are_read() {
        let mut history = History::new(16 << 10);
        for number in 0..500 {
            history.write(&command(number));
        }
        let all: Vec<NvList> = {
            let bytes = history.read(&history.head.pieces());
            records(&bytes).map(Result::unwrap).collect()
        };
        let mut head = history.head;
        let read = |pieces: Vec<Piece>| Ok::<_, ()>(history.read(&pieces));
        head.leave_out_oldest(2000, read).unwrap().unwrap();
        assert!(head.end - head.begin <= 2000);
        let bytes = history.read(&head.pieces());
        let newest: Vec<NvList> = records(&bytes).map(Result::unwrap).collect();
        assert!(newest.len() > 5 && newest.len() < all.len());
        assert_eq!(newest, all[all.len() - newest.len()..]);
    }

    #[test]
    fn a_state_that_no_ring_can_have_is_refused() {
        let sound = HistoryHead {
            creation_end: 100,
            ring_end: 1000,
            begin: 5000,
            end: 5900,
            lost_count: 7,
        };
        assert_eq!(sound.check(), Ok(()));
        assert!(
            HistoryHead {
                creation_end: 1000,
                ..sound
            }
            .check()
            .is_err()
        );
        assert!(HistoryHead { begin: 99, ..sound }.check().is_err());
        assert!(
            HistoryHead {
                begin: 5901,
                ..sound
            }
            .check()
            .is_err()
        );
        assert!(HistoryHead { end: 5901, ..sound }.check().is_err());
        assert!(HistoryHead::default().check().is_err());
        let mut damaged = sound;
        assert!(damaged.drop_oldest([0xff; 8]).is_err());
        assert!(damaged.drop_oldest(893u64.to_le_bytes()).is_err());
        assert!(damaged.drop_oldest(892u64.to_le_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn a_ring_keeps_the_creation_and_the_newest(count in 0usize..200, before in 0usize..3) {
            let mut history = History::new(2048);
            let mut written = Vec::new();
            for number in 0..before + count {
                if number == before {
                    history.head.keep_creation();
                }
                history.write(&command(number));
                written.push(command(number));
            }
            let kept = history.records();
            let lost = usize::try_from(history.head.lost_count).expect("there are few");
            prop_assert_eq!(kept.len() + lost, written.len());
            if count > 0 {
                written.drain(before..before + lost);
            }
            prop_assert_eq!(kept, written);
        }

        #[test]
        fn any_bytes_are_records_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = records(&bytes).count();
            if let Some((length, rest)) = bytes.split_at_checked(8) {
                let mut bytes = vec![length[0] % 64, 0, 0, 0, 0, 0, 0, 0];
                bytes.extend(rest);
                let _ = records(&bytes).count();
            }
        }
    }
}
