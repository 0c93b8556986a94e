//! Space maps: logs of what was allocated and freed.
//!
//! # Problem
//! What is free changes with every txg. Storing it as a whole each time costs as much as the
//! device is large; storing it as a tree costs random writes.
//!
//! # Mechanism
//! A space map is a log of words in the data of an object, appended to, and rewritten when it has
//! grown much longer than what it says. Places count in units of `2^shift` bytes from the start of
//! what the map describes (a metaslab; or, for log space maps, all vdevs). There are three kinds
//! of entry:
//!
//! ```text
//!  one word        63  62                          16   15   14               0
//!                 +---+------------------------------+------+------------------+
//!                 | 0 |           offset             | free |     run - 1      |
//!                 +---+------------------------------+------+------------------+
//!
//!  two words       63 62  61 60  59                      24  23               0
//!                 +------+------+--------------------------+------------------+
//!                 | 1  1 |  0   |         run - 1          |       vdev       |
//!                 +------+------+--------------------------+------------------+
//!                 | free |                     offset                         |
//!                 +------+----------------------------------------------------+
//!                   63     62                                                0
//!
//!  debug           63 62  61 60  59            50  49                         0
//!                 +------+------+----------------+----------------------------+
//!                 | 1  0 | free |   sync pass    |            txg             |
//!                 +------+------+----------------+----------------------------+
//! ```
//!
//! Two-word entries exist since the feature `spacemap_v2`. Only log space maps name a vdev; a map
//! of one vdev stores none (OpenZFS leaves zero there). A two-word entry never crosses a block: the
//! last word of a block is padded with an empty debug entry instead. A debug entry opens what one
//! pass of one txg appended.
//!
//! The bonus has the length of the log, what is allocated by it, and a histogram of free runs by
//! power of two, from which a metaslab is judged without being loaded.
//!
//! # Invariants
//! - Within a map, a place is freed only after it was allocated, and the other way round.
//! - Bytes past `length` mean nothing.

use crate::declare::{ByteOrder, Corrupt, Reader, Reserved, Stored, bit, bits, widen, with_bits};
use crate::on_disk;
use crate::units::{AllocatedSize, Txg, VdevId, VdevOffset};

/// How many powers of two the histogram has.
pub const HISTOGRAM_BUCKETS: usize = 32;

/// The largest run of a one-word entry, in units.
#[doc(alias = "SM_RUN_MAX")]
pub const ONE_WORD_RUN_MAX: u64 = 1 << 15;
/// One more than the largest offset of a one-word entry, in units.
#[doc(alias = "SM_OFFSET_BITS")]
pub const ONE_WORD_OFFSET_END: u64 = 1 << 47;
/// The largest run of a two-word entry, in units.
#[doc(alias = "SM2_RUN_MAX")]
pub const TWO_WORD_RUN_MAX: u64 = 1 << 36;
/// Log space maps count in units of `2^9` bytes.
pub const LOG_SHIFT: u32 = 9;

/// The size of a word.
const WORD_BYTES: u64 = 8;
/// How many bits of a two-word entry name the vdev. OpenZFS writes "no vdev" as `2^24`, which those
/// bits cut to 0; so whether a vdev is meant depends on the map, not the entry.
const VDEV_BITS: u32 = 24;

on_disk! {
    /// The bonus of a space map. Maps from before the feature `spacemap_histogram` have only the
    /// first 24 bytes.
    #[doc(alias = "space_map_phys_t")]
    #[derive(Copy)]
    pub struct SpaceMapHead [320 bytes] {
        /// The object itself; not read.
        0  => object: u64,
        /// How many bytes of the object's data are the log.
        8  => length: u64,
        /// Allocated less freed, in bytes. Negative for a map that mostly frees.
        16 => allocated: i64,
        24 => reserved: Reserved<40>,
        /// Free runs of `2^(i + shift)` bytes up to twice that; the last counts all larger ones.
        64 => histogram: [u64; 32],
    }
}

impl SpaceMapHead {
    /// The size without histogram, in bytes.
    #[doc(alias = "SPACE_MAP_SIZE_V0")]
    pub const SIZE_V0: usize = 24;

    /// The head of an empty map.
    pub fn new(object: u64) -> SpaceMapHead {
        SpaceMapHead {
            object,
            length: 0,
            allocated: 0,
            reserved: Reserved::default(),
            histogram: [0; HISTOGRAM_BUCKETS],
        }
    }

    /// Decodes a bonus of either size, and tells whether it has a histogram.
    pub fn from_bonus(bonus: &[u8], order: ByteOrder) -> Result<(SpaceMapHead, bool), Corrupt> {
        if bonus.len() < Self::SIZE_V0 {
            return Err(Corrupt::Truncated {
                what: Self::NAME,
                offset: 0,
                needed: 24,
                present: widen(bonus.len()),
            });
        }
        if bonus.len() < Self::SIZE {
            let head = SpaceMapHead::from_short_bytes(&bonus[..Self::SIZE_V0], order)?;
            return Ok((head, false));
        }
        Ok((SpaceMapHead::from_bytes(bonus, order)?, true))
    }
}

/// The bucket of the histogram that counts a free run of this size; none for a run smaller than
/// the map's unit.
pub fn histogram_bucket(size: AllocatedSize, shift: u32) -> Option<usize> {
    let power = size.get().checked_ilog2()?;
    let bucket = usize::try_from(power.checked_sub(shift)?).ok()?;
    Some(bucket.min(HISTOGRAM_BUCKETS - 1))
}

/// What happened to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// It was allocated.
    Allocate,
    /// It was freed.
    Free,
}

impl Action {
    const fn code(self) -> u64 {
        match self {
            Action::Allocate => 0,
            Action::Free => 1,
        }
    }

    const fn from_bit(free: bool) -> Action {
        if free { Action::Free } else { Action::Allocate }
    }
}

/// The part of a vdev that a map describes, and its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Where it starts.
    pub start: VdevOffset,
    /// How large it is.
    pub size: AllocatedSize,
    /// Its unit is `2^shift` bytes.
    pub shift: u32,
}

impl Region {
    /// What log space maps describe: all of every vdev.
    pub const LOG: Region = Region {
        start: VdevOffset::ZERO,
        size: AllocatedSize::MAX,
        shift: LOG_SHIFT,
    };

    /// Whether a run is of whole units, at least one, and all of it is here.
    pub fn holds(&self, start: VdevOffset, size: AllocatedSize) -> bool {
        let unit = 1u64 << self.shift;
        let from = start.get().checked_sub(self.start.get());
        let Some(end) = from.and_then(|from| from.checked_add(size.get())) else {
            return false;
        };
        let is_whole = start.get().is_multiple_of(unit) && size.get().is_multiple_of(unit);
        is_whole && !size.is_zero() && end <= self.size.get()
    }
}

/// One run that was allocated or freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// On which vdev; none where the map is of one vdev only.
    pub vdev: Option<VdevId>,
    /// Where the run starts.
    pub start: VdevOffset,
    /// How long it is.
    pub size: AllocatedSize,
    /// When, as the last debug entry said; zero before the first.
    pub txg: Txg,
    /// In which pass of that txg.
    pub pass: u32,
}

/// Reads a map, block after block: what a debug entry says holds for blocks that follow.
#[derive(Debug, Clone)]
pub struct SpaceMapDecoder {
    region: Region,
    names_vdevs: bool,
    txg: Txg,
    pass: u32,
}

impl SpaceMapDecoder {
    /// Reads a map of one vdev, from its start.
    pub fn new(region: Region) -> Self {
        SpaceMapDecoder {
            region,
            names_vdevs: false,
            txg: Txg::ZERO,
            pass: 0,
        }
    }

    /// Reads a log space map, whose entries name their vdevs, from its start.
    pub fn of_log() -> Self {
        SpaceMapDecoder {
            region: Region::LOG,
            names_vdevs: true,
            txg: Txg::ZERO,
            pass: 0,
        }
    }

    /// The entries of the next block, or of what of it is within the map's length. After an error
    /// nothing more comes.
    pub fn entries<'a>(&'a mut self, block: &'a [u8], order: ByteOrder) -> Entries<'a> {
        let reader = Reader::new("space map", block, order);
        Entries {
            decoder: self,
            reader,
        }
    }

    fn debug(&mut self, word: u64) {
        let txg = Txg::from(bits(word, 0, 50));
        if !txg.is_zero() {
            self.txg = txg;
            self.pass = u32::try_from(bits(word, 50, 10)).expect("10 bits fit 32");
        }
    }
}

/// The entries of one block of a space map.
#[derive(Debug)]
pub struct Entries<'a> {
    decoder: &'a mut SpaceMapDecoder,
    reader: Reader<'a>,
}

impl Entries<'_> {
    /// Where in the block the next entry begins, with the debug entries before it.
    pub fn position(&self) -> usize {
        self.reader.position()
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, Corrupt> {
        while !self.reader.is_at_end() {
            let word = self.reader.u64()?;
            match bits(word, 62, 2) {
                0b10 => self.decoder.debug(word),
                0b11 => return self.two_words(word).map(Some),
                _ => return self.one_word(word).map(Some),
            }
        }
        Ok(None)
    }

    fn one_word(&self, word: u64) -> Result<Entry, Corrupt> {
        if self.decoder.names_vdevs {
            return Err(self.reader.inconsistent("an entry of a log names no vdev"));
        }
        let action = Action::from_bit(bit(word, 15));
        self.entry(action, None, bits(word, 16, 47), bits(word, 0, 15) + 1)
    }

    fn two_words(&mut self, first: u64) -> Result<Entry, Corrupt> {
        let second = self.reader.u64()?;
        let vdev = VdevId::from(bits(first, 0, VDEV_BITS));
        let vdev = self.decoder.names_vdevs.then_some(vdev);
        let run = bits(first, VDEV_BITS, 36) + 1;
        self.entry(
            Action::from_bit(bit(second, 63)),
            vdev,
            bits(second, 0, 63),
            run,
        )
    }

    fn entry(
        &self,
        action: Action,
        vdev: Option<VdevId>,
        offset: u64,
        run: u64,
    ) -> Result<Entry, Corrupt> {
        let SpaceMapDecoder {
            region, txg, pass, ..
        } = *self.decoder;
        let outside = || {
            self.reader
                .inconsistent("a run lies outside the region of the map")
        };
        let unit = 1u64.checked_shl(region.shift).ok_or_else(outside)?;
        let from = offset.checked_mul(unit).ok_or_else(outside)?;
        let size = run.checked_mul(unit).ok_or_else(outside)?;
        let to = from.checked_add(size).ok_or_else(outside)?;
        if to > region.size.get() {
            return Err(outside());
        }
        let start = region.start.get().checked_add(from).ok_or_else(outside)?;
        Ok(Entry {
            action,
            vdev,
            start: VdevOffset::from(start),
            size: AllocatedSize::from(size),
            txg,
            pass,
        })
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_entry().transpose();
        if matches!(next, Some(Err(_))) {
            self.reader.rest();
        }
        next
    }
}

/// Which entries may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceMapVersion {
    /// One word only.
    V1,
    /// Two words where one does not suffice (feature `spacemap_v2`).
    V2,
}

/// Makes what is appended to a map.
#[derive(Debug)]
pub struct SpaceMapEncoder {
    region: Region,
    version: SpaceMapVersion,
    block_bytes: u64,
    /// Where the map ended before.
    length: u64,
    appended: Vec<u8>,
}

impl SpaceMapEncoder {
    /// Appends to a map that is `length` bytes long, in an object with blocks of `block_bytes`.
    ///
    /// # Panics
    /// When either is not whole words, or there are no blocks.
    pub fn new(region: Region, version: SpaceMapVersion, block_bytes: u64, length: u64) -> Self {
        assert!(
            block_bytes >= 2 * WORD_BYTES,
            "a block holds a two-word entry"
        );
        assert!(
            block_bytes.is_multiple_of(WORD_BYTES),
            "a block is whole words"
        );
        assert!(
            length.is_multiple_of(WORD_BYTES),
            "a space map is whole words"
        );
        SpaceMapEncoder {
            region,
            version,
            block_bytes,
            length,
            appended: Vec::new(),
        }
    }

    /// Says what follows: runs that were allocated or freed in this pass of this txg.
    pub fn begin(&mut self, action: Action, txg: Txg, pass: u32) {
        // Both fields are for people, and hold the low bits of what does not fit.
        let mut word = with_bits(0b10 << 62, 60, 2, action.code());
        word = with_bits(word, 50, 10, bits(u64::from(pass), 0, 10));
        word = with_bits(word, 0, 50, bits(txg.get(), 0, 50));
        self.word(word);
    }

    /// Appends one run, in as many entries as it takes.
    ///
    /// # Panics
    /// When the run is empty, not in the region or not whole units; or when it names a vdev or
    /// lies too far out, and the version has no two-word entries.
    pub fn run(
        &mut self,
        action: Action,
        vdev: Option<VdevId>,
        start: VdevOffset,
        size: AllocatedSize,
    ) {
        let unit = 1u64 << self.region.shift;
        let from = start
            .distance_from(self.region.start)
            .expect("a run is in the region");
        let end = from.checked_add(size).expect("a run is in the region");
        assert!(end <= self.region.size, "a run is in the region");
        assert!(from.is_multiple_of(unit), "a run starts at a unit");
        assert!(
            size.is_multiple_of(unit) && !size.is_zero(),
            "a run is whole units"
        );
        let (offset, count) = (from.get() / unit, size.get() / unit);
        let is_small = vdev.is_none() && offset < ONE_WORD_OFFSET_END && count <= ONE_WORD_RUN_MAX;
        match self.version {
            SpaceMapVersion::V2 if !is_small => self.two_words(action, vdev, offset, count),
            _ => {
                assert!(vdev.is_none(), "a one-word entry names no vdev");
                self.one_word(action, offset, count);
            }
        }
    }

    /// How long the map is now.
    pub fn length(&self) -> u64 {
        self.length + widen(self.appended.len())
    }

    /// What is to be written behind the map's former end.
    pub fn finish(self) -> Vec<u8> {
        self.appended
    }

    fn one_word(&mut self, action: Action, mut offset: u64, mut count: u64) {
        while count > 0 {
            let run = count.min(ONE_WORD_RUN_MAX);
            let word = with_bits(with_bits(0, 16, 47, offset), 15, 1, action.code());
            self.word(with_bits(word, 0, 15, run - 1));
            (offset, count) = (offset + run, count - run);
        }
    }

    fn two_words(&mut self, action: Action, vdev: Option<VdevId>, mut offset: u64, mut count: u64) {
        while count > 0 {
            if self.length() % self.block_bytes == self.block_bytes - WORD_BYTES {
                self.word(0b10 << 62);
            }
            let run = count.min(TWO_WORD_RUN_MAX);
            let vdev = vdev.map_or(0, VdevId::get);
            let first = with_bits(0b11 << 62, VDEV_BITS, 36, run - 1);
            self.word(with_bits(first, 0, VDEV_BITS, vdev));
            self.word(with_bits(with_bits(0, 63, 1, action.code()), 0, 63, offset));
            (offset, count) = (offset + run, count - run);
        }
    }

    fn word(&mut self, word: u64) {
        self.appended.extend_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: Region = Region {
        start: VdevOffset::new(1 << 30),
        size: AllocatedSize::new(1 << 40),
        shift: 12,
    };

    fn decode(bytes: &[u8], region: Region) -> Vec<Entry> {
        let mut decoder = SpaceMapDecoder::new(region);
        decoder
            .entries(bytes, ByteOrder::Little)
            .collect::<Result<_, _>>()
            .unwrap()
    }

    #[test]
    fn a_region_holds_whole_units_within_it() {
        let region = Region {
            start: VdevOffset::from(1 << 20),
            size: AllocatedSize::from(1 << 20),
            shift: 12,
        };
        let holds = |start: u64, size: u64| {
            region.holds(VdevOffset::from(start), AllocatedSize::from(size))
        };
        assert!(holds(1 << 20, 1 << 20));
        assert!(holds((2 << 20) - 4096, 4096));
        assert!(!holds((2 << 20) - 4096, 8192), "beyond its end");
        assert!(!holds((1 << 20) - 4096, 8192), "before its start");
        assert!(!holds(1 << 20, 0));
        assert!(!holds((1 << 20) + 512, 4096) && !holds(1 << 20, 512));
    }

    #[test]
    fn a_run_comes_back_with_its_txg_and_pass() {
        let mut encoder = SpaceMapEncoder::new(REGION, SpaceMapVersion::V1, 4096, 0);
        encoder.begin(Action::Free, Txg::from(99), 3);
        let (start, size) = (
            VdevOffset::from((1 << 30) + 8192),
            AllocatedSize::from(4096),
        );
        encoder.run(Action::Free, None, start, size);
        assert_eq!(encoder.length(), 16);
        let entries = decode(&encoder.finish(), REGION);
        let action = Action::Free;
        assert_eq!(
            entries,
            [Entry {
                action,
                vdev: None,
                start,
                size,
                txg: Txg::from(99),
                pass: 3
            }]
        );
    }

    #[test]
    fn a_long_run_takes_several_words_or_one_pair() {
        let size = AllocatedSize::from((ONE_WORD_RUN_MAX + 1) << 12);
        for (version, length) in [(SpaceMapVersion::V1, 16), (SpaceMapVersion::V2, 16)] {
            let mut encoder = SpaceMapEncoder::new(REGION, version, 4096, 0);
            encoder.run(Action::Allocate, None, REGION.start, size);
            assert_eq!(encoder.length(), length);
            let entries = decode(&encoder.finish(), REGION);
            assert_eq!(
                entries
                    .iter()
                    .map(|entry| entry.size)
                    .sum::<AllocatedSize>(),
                size
            );
        }
    }

    #[test]
    fn a_pair_of_words_does_not_cross_a_block() {
        let mut encoder = SpaceMapEncoder::new(Region::LOG, SpaceMapVersion::V2, 64, 0);
        encoder.begin(Action::Allocate, Txg::from(7), 1);
        for vdev in 0..5 {
            let size = AllocatedSize::from(512);
            encoder.run(
                Action::Allocate,
                Some(VdevId::from(vdev)),
                VdevOffset::ZERO,
                size,
            );
        }
        let bytes = encoder.finish();
        assert_eq!(bytes.len(), 8 * (1 + 6 + 1 + 4));
        assert_eq!(bytes[56..64], (0b10u64 << 62).to_le_bytes());
        let mut decoder = SpaceMapDecoder::of_log();
        let vdevs: Vec<_> = bytes
            .chunks(64)
            .flat_map(|block| {
                decoder
                    .entries(block, ByteOrder::Little)
                    .collect::<Vec<_>>()
            })
            .map(|entry| entry.unwrap().vdev.unwrap().get())
            .collect();
        assert_eq!(vdevs, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_run_outside_its_region_or_cut_in_two_is_refused() {
        let word = with_bits(0, 16, 47, 1 << 40).to_le_bytes();
        let mut decoder = SpaceMapDecoder::new(REGION);
        let entries: Vec<_> = decoder.entries(&word, ByteOrder::Little).collect();
        assert!(matches!(entries[..], [Err(Corrupt::Inconsistent { .. })]));

        let half = (0b11u64 << 62).to_le_bytes();
        let entries: Vec<_> = decoder.entries(&half, ByteOrder::Little).collect();
        assert!(matches!(entries[..], [Err(Corrupt::Truncated { .. })]));
    }

    #[test]
    fn free_runs_are_counted_by_powers_of_two() {
        let bucket = |size| histogram_bucket(AllocatedSize::from(size), 12);
        assert_eq!(bucket(4096), Some(0));
        assert_eq!(bucket(8191), Some(0));
        assert_eq!(bucket(8192), Some(1));
        assert_eq!(bucket(u64::MAX), Some(31));
        assert_eq!(bucket(512), None);
        assert_eq!(bucket(0), None);
    }
}
