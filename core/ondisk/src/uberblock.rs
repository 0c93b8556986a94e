//! The uberblock: the root of the pool as of one txg.
//!
//! # Mechanism
//! Every label has a ring of slots; each txg writes the next one, so older roots stay for a while
//! ([`label`](crate::label) has the ring). The uberblock is at the start of its slot, zeros follow,
//! and an [`EmbeddedChecksum`] ends the slot, with the slot's place on the device as verifier. The
//! pool *is* the best uberblock that verifies: the highest txg, and of equals the latest.
//!
//! # Invariants
//! - An uberblock is written only after everything it leads to is on stable storage.
//! - The number of a slot follows from the txg, so a txg's uberblock is in the same slot of all
//!   labels.
//!
//! # After a crash
//! A slot that was half written fails its checksum, and the txg before it is the pool.

use crate::block_pointer::BlockPointer;
use crate::checksum::{Checksum, EmbeddedChecksum};
use crate::declare::{ByteOrder, Corrupt, Stored, bit, bits, narrow, with_bits};
use crate::on_disk;
use crate::units::{Guid, Txg};
use std::cmp::Ordering;

on_disk! {
    /// The root of the pool as of one txg, found by its place in the label; everything else is
    /// found from `root`.
    #[doc(alias = "uberblock_t")]
    #[derive(Copy)]
    pub struct Uberblock [216 bytes] {
        /// `MAGIC` in the byte order of the machine that wrote it.
        0   => magic: u64,
        /// Version of the format: 1 to 28, or 5000 for feature flags.
        8   => version: u64,
        16  => txg: Txg,
        /// Wrapping sum of every vdev guid; a mismatch means a device is missing.
        24  => guid_sum: Guid,
        /// Seconds since 1970, UTC. For people, and to order uberblocks of one txg.
        32  => timestamp_s: u64,
        /// The meta object set.
        40  => root: BlockPointer,
        /// The highest version that the program knew which wrote this.
        168 => software_version: u64,
        /// [`Uberblock::MULTIHOST_MAGIC`], or zero from before multihost was known.
        176 => multihost_magic: u64,
        /// Zero while multihost is off; else nanoseconds since the last multihost write.
        184 => multihost_delay_ns: u64,
        /// See [`Multihost`].
        192 => multihost_config: u64,
        /// Zero, or the txg this uberblock had when it was kept as a checkpoint.
        200 => checkpoint_txg: Txg,
        /// See [`Reflow`].
        208 => raidz_reflow: u64,
    }
}

impl Uberblock {
    /// Marks an uberblock.
    #[doc(alias = "UBERBLOCK_MAGIC")]
    pub const MAGIC: u64 = 0x00ba_b10c;

    /// Marks valid multihost fields.
    #[doc(alias = "MMP_MAGIC")]
    pub const MULTIHOST_MAGIC: u64 = 0xa11c_ea11;

    /// Decodes the uberblock at the start of a slot, whose byte order its magic number tells. The
    /// slot's checksum is for the caller to verify.
    pub fn from_slot(slot: &[u8]) -> Result<(Uberblock, ByteOrder), Corrupt> {
        let Some(order) = ByteOrder::of_magic(slot, Self::MAGIC) else {
            return Err(Corrupt::Magic {
                what: "Uberblock",
                offset: 0,
                found: u64::from_short_bytes(slot, ByteOrder::Little)?,
                expected: Self::MAGIC,
            });
        };
        Ok((Uberblock::from_bytes(slot, order)?, order))
    }

    /// A whole slot with this uberblock, its checksum still to be computed.
    pub fn to_slot(&self, slot_size: u64) -> Vec<u8> {
        let mut slot = vec![0; narrow(slot_size)];
        assert!(
            slot.len() >= Self::SIZE + EmbeddedChecksum::SIZE,
            "a slot has room for an uberblock and its checksum"
        );
        self.write_to(&mut slot);
        EmbeddedChecksum::new(Checksum::ZERO).write_to_end_of(&mut slot);
        // Tests write uberblocks with another magic number.
        debug_assert!(
            self.magic != Self::MAGIC
                || Uberblock::from_slot(&slot) == Ok((*self, ByteOrder::Little)),
            "an uberblock reads back as it was written"
        );
        slot
    }

    /// Which of two uberblocks is the pool: the later txg, then the later time, then the later
    /// multihost write.
    #[doc(alias = "vdev_uberblock_compare")]
    pub fn compare(&self, other: &Uberblock) -> Ordering {
        let sequence = |uberblock: &Uberblock| {
            uberblock
                .multihost()
                .and_then(|multihost| multihost.sequence)
                .unwrap_or(0)
        };
        self.txg
            .cmp(&other.txg)
            .then(self.timestamp_s.cmp(&other.timestamp_s))
            .then(sequence(self).cmp(&sequence(other)))
    }

    /// The multihost fields, if the program that wrote this knew them.
    pub fn multihost(&self) -> Option<Multihost> {
        (self.multihost_magic == Self::MULTIHOST_MAGIC)
            .then(|| Multihost::from_word(self.multihost_config))
    }

    /// Sets the multihost fields.
    pub fn set_multihost(&mut self, delay_ns: u64, multihost: Multihost) {
        self.multihost_magic = Self::MULTIHOST_MAGIC;
        self.multihost_delay_ns = delay_ns;
        self.multihost_config = multihost.to_word();
    }

    /// True for an uberblock that is a checkpoint.
    pub const fn is_checkpoint(&self) -> bool {
        !self.checkpoint_txg.is_zero()
    }

    /// How far a RAID-Z expansion has come.
    pub const fn reflow(&self) -> Reflow {
        Reflow {
            offset_bytes: bits(self.raidz_reflow, 0, 55).saturating_mul(512),
            state: bits(self.raidz_reflow, 55, 9),
        }
    }
}

/// What a host says about its multihost writes; what it does not say is none.
///
/// ```text
///   63            48 47            32 31                    8 7      0
///  +----------------+----------------+-----------------------+--------+
///  | fail intervals |    sequence    |     interval (ms)     |  valid |
///  +----------------+----------------+-----------------------+--------+
/// ```
///
/// `valid` has a bit for each: 1 interval, 2 sequence, 4 fail intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Multihost {
    /// Milliseconds between writes.
    pub interval_ms: Option<u64>,
    /// Counts writes within one second.
    pub sequence: Option<u64>,
    /// After how many missed intervals the host suspends the pool.
    pub fail_intervals: Option<u64>,
}

impl Multihost {
    /// Takes the word apart.
    pub fn from_word(word: u64) -> Multihost {
        let field = |valid, low, count| bit(word, valid).then(|| bits(word, low, count));
        Multihost {
            interval_ms: field(0, 8, 24),
            sequence: field(1, 32, 16),
            fail_intervals: field(2, 48, 16),
        }
    }

    /// Puts the word together.
    ///
    /// # Panics
    /// When a value has more bits than its field.
    pub fn to_word(self) -> u64 {
        let mut word = 0;
        let fields = [
            (0, 8, 24, self.interval_ms),
            (1, 32, 16, self.sequence),
            (2, 48, 16, self.fail_intervals),
        ];
        for (valid, low, count, value) in fields {
            if let Some(value) = value {
                word = with_bits(with_bits(word, valid, 1, 1), low, count, value);
            }
        }
        word
    }
}

/// How far a RAID-Z expansion has come.
///
/// ```text
///   63      55 54                                               0
///  +----------+--------------------------------------------------+
///  |  state   |                 offset / 512                     |
///  +----------+--------------------------------------------------+
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reflow {
    /// Everything before it, on the vdev, has its new layout.
    pub offset_bytes: u64,
    /// Whether the scratch area in the boot region holds blocks: 0 when it is not in use.
    pub state: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multihost_fields_come_back_as_they_were_said() {
        let said = Multihost {
            interval_ms: Some(1000),
            sequence: None,
            fail_intervals: Some(10),
        };
        assert_eq!(Multihost::from_word(said.to_word()), said);
        assert_eq!(said.to_word(), 0x000a_0000_0003_e805);
    }

    #[test]
    fn a_slot_of_something_else_is_refused() {
        assert!(matches!(
            Uberblock::from_slot(&[0; 1024]),
            Err(Corrupt::Magic { .. })
        ));
        assert!(Uberblock::from_slot(&Uberblock::MAGIC.to_le_bytes()).is_err());
        assert!(Uberblock::from_slot(&[]).is_err());
    }
}
