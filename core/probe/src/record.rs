//! The record of a finished operation: 64 bytes, one cache line, no pointers.
//!
//! ```text
//!  0 started_ns    8 offset       16 object       24 latency   28 size
//! 32 dataset      36 client       40 user         44 kind 45 protocol 46 outcome bits
//! 48 stages: eight durations of 16 bits
//! ```
//!
//! Durations are packed as small floating point numbers. The latency has 27 bits of mantissa and is
//! exact up to 134 ms; a stage has 11, which is within 0.1 %. Both reach beyond any latency that
//! can happen.

use crate::dataset_table::DatasetId;
use crate::kind::{OperationKind, Outcome, Protocol, Stage};
use crate::operation::{What, Who};

/// The size of a record.
pub const RECORD_BYTES: usize = 64;

/// A client, numbered by its front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClientId(pub u32);

impl ClientId {
    /// Tarn itself.
    pub const INTERNAL: ClientId = ClientId(0);
    /// Administration by the commands.
    pub const ADMINISTRATION: ClientId = ClientId(1);
    /// The first number a front end may give.
    pub const FIRST_FREE: ClientId = ClientId(16);
}

/// A finished operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OperationRecord {
    /// When it began, by its clock.
    pub started_ns: u64,
    /// Where in the object, in bytes.
    pub offset: u64,
    /// The object (file) number; with [`MISSING_NAME`](crate::MISSING_NAME) the number of a name
    /// that was looked for in vain.
    pub object: u64,
    latency: u32,
    /// How many bytes; `u32::MAX` if more than that.
    pub size: u32,
    /// The dataset.
    pub dataset: DatasetId,
    /// The client.
    pub client: ClientId,
    /// The user's numeric id.
    pub user: u32,
    kind: u8,
    protocol: u8,
    outcome: u16,
    stages: [u16; Stage::COUNT],
}

const _: () = assert!(size_of::<OperationRecord>() == RECORD_BYTES);

impl OperationRecord {
    /// The record of an operation that began at `started_ns` and took `latency_ns`. `outcome` has
    /// the bits of each [`Outcome`], `stages_ns` a duration for each [`Stage`].
    ///
    /// An [`Operation`](crate::Operation) makes its record itself; this one is for records that
    /// come from elsewhere: an archive, a test.
    pub fn new(
        started_ns: u64,
        latency_ns: u64,
        who: &Who,
        what: &What,
        outcome: u16,
        stages_ns: &[u64; Stage::COUNT],
    ) -> OperationRecord {
        OperationRecord {
            started_ns,
            offset: what.offset,
            object: what.object,
            latency: pack_latency(latency_ns),
            size: u32::try_from(what.size).unwrap_or(u32::MAX),
            dataset: what.dataset,
            client: who.client,
            user: who.user,
            kind: what.kind.number(),
            protocol: who.protocol.number(),
            outcome,
            stages: std::array::from_fn(|i| pack_stage_ns(stages_ns[i])),
        }
    }

    /// What was asked for, if this version knows the number.
    pub fn kind(&self) -> Option<OperationKind> {
        OperationKind::from_number(self.kind)
    }

    /// By which way it came, if this version knows the number.
    pub fn protocol(&self) -> Option<Protocol> {
        Protocol::from_number(self.protocol)
    }

    /// How long it took altogether.
    pub fn latency_ns(&self) -> u64 {
        unpack(u64::from(self.latency), LATENCY_MANTISSA_BITS)
    }

    /// How long a stage took.
    pub fn stage_ns(&self, stage: Stage) -> u64 {
        unpack_stage_ns(self.stages[stage.index()])
    }

    /// How long a stage took, as [`pack_stage_ns`] packs it.
    pub fn packed_stage(&self, stage: Stage) -> u16 {
        self.stages[stage.index()]
    }

    /// Whether this happened on the way.
    pub fn is_marked(&self, outcome: Outcome) -> bool {
        self.outcome & outcome.bit() != 0
    }

    /// When it ended, by its clock.
    pub fn ended_ns(&self) -> u64 {
        self.started_ns.saturating_add(self.latency_ns())
    }

    /// All that happened, one bit for each [`Outcome`].
    pub fn outcome_bits(&self) -> u16 {
        self.outcome
    }

    /// The record as eight words, as the ring holds it.
    pub(crate) fn to_words(self) -> [u64; 8] {
        let stages = |from: usize| {
            (0..4).fold(0, |word, i| {
                word | u64::from(self.stages[from + i]) << (16 * i)
            })
        };
        [
            self.started_ns,
            self.offset,
            self.object,
            u64::from(self.latency) | u64::from(self.size) << 32,
            u64::from(self.dataset.0) | u64::from(self.client.0) << 32,
            u64::from(self.user)
                | u64::from(self.kind) << 32
                | u64::from(self.protocol) << 40
                | u64::from(self.outcome) << 48,
            stages(0),
            stages(4),
        ]
    }

    /// The record of eight words.
    pub(crate) fn from_words(words: [u64; 8]) -> OperationRecord {
        let [started_ns, offset, object, w3, w4, w5, w6, w7] = words;
        let stage = |i: usize| low_u16(if i < 4 { w6 } else { w7 } >> (16 * (i % 4)));
        OperationRecord {
            started_ns,
            offset,
            object,
            latency: low_u32(w3),
            size: low_u32(w3 >> 32),
            dataset: DatasetId(low_u32(w4)),
            client: ClientId(low_u32(w4 >> 32)),
            user: low_u32(w5),
            kind: low_u8(w5 >> 32),
            protocol: low_u8(w5 >> 40),
            outcome: low_u16(w5 >> 48),
            stages: std::array::from_fn(stage),
        }
    }
}

/// A duration of a stage as records hold it: exact below 2048 ns, within 0.1 % above. A longer
/// duration never gives a lower number.
pub fn pack_stage_ns(nanoseconds: u64) -> u16 {
    u16::try_from(pack(nanoseconds, STAGE_MANTISSA_BITS)).unwrap_or(u16::MAX)
}

/// The duration, in nanoseconds, that [`pack_stage_ns`] packed. Packing it again gives the same
/// number.
pub fn unpack_stage_ns(packed: u16) -> u64 {
    unpack(u64::from(packed), STAGE_MANTISSA_BITS)
}

/// Bits of mantissa of the latency; the other 5 are the exponent.
const LATENCY_MANTISSA_BITS: u32 = 27;
/// Bits of mantissa of a stage; the other 5 are the exponent.
const STAGE_MANTISSA_BITS: u32 = 11;

fn pack_latency(nanoseconds: u64) -> u32 {
    u32::try_from(pack(nanoseconds, LATENCY_MANTISSA_BITS)).unwrap_or(u32::MAX)
}

/// A number as `mantissa << exponent`, the exponent (at most 31) in the bits above the mantissa.
/// Saturates.
fn pack(value: u64, mantissa_bits: u32) -> u64 {
    let exponent = (64 - value.leading_zeros()).saturating_sub(mantissa_bits);
    if exponent > 31 {
        return (1 << (mantissa_bits + 5)) - 1;
    }
    u64::from(exponent) << mantissa_bits | value >> exponent
}

fn unpack(packed: u64, mantissa_bits: u32) -> u64 {
    let mantissa = packed & ((1 << mantissa_bits) - 1);
    mantissa << (packed >> mantissa_bits)
}

fn low_u32(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).expect("masked to 32 bits")
}

fn low_u16(word: u64) -> u16 {
    u16::try_from(word & 0xffff).expect("masked to 16 bits")
}

fn low_u8(word: u64) -> u8 {
    u8::try_from(word & 0xff).expect("masked to 8 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::HolderId;

    #[test]
    fn latency_is_exact_to_134_ms_and_close_above() {
        for value in [0, 1, 63, 64, 999_999, 134_000_000] {
            assert_eq!(
                unpack(u64::from(pack_latency(value)), LATENCY_MANTISSA_BITS),
                value
            );
        }
        for value in [137_000_000_000_u64, 3_600_000_000_000] {
            let back = unpack(u64::from(pack_latency(value)), LATENCY_MANTISSA_BITS);
            assert!(
                back <= value && value - back <= value >> 25,
                "{value} became {back}"
            );
        }
    }

    #[test]
    fn stages_are_within_a_thousandth_and_saturate() {
        for shift in 0..42 {
            let value = (1_u64 << shift) + (1 << shift) / 3;
            let back = unpack_stage_ns(pack_stage_ns(value));
            assert!(
                back <= value && (value - back) * 1000 <= value,
                "{value} became {back}"
            );
        }
        assert!(unpack_stage_ns(pack_stage_ns(u64::MAX)) > 1 << 41);
        for packed in 0..=u16::MAX {
            let again = pack_stage_ns(unpack_stage_ns(packed));
            assert_eq!(unpack_stage_ns(again), unpack_stage_ns(packed));
        }
    }

    #[test]
    fn words_and_back_is_the_same_record() {
        let who = Who {
            client: ClientId(0xaabb_ccdd),
            protocol: Protocol::Nfs4,
            user: u32::MAX,
            holder: HolderId::NONE,
        };
        let what = What {
            kind: OperationKind::Rename,
            dataset: DatasetId(0x1234_5678),
            object: u64::MAX,
            offset: 1 << 60,
            size: 1 << 40,
        };
        let stages = [1, 2, 3, 4, 5, 6, 7, 1 << 41];
        let record = OperationRecord::new(9, 1 << 50, &who, &what, 0x8001, &stages);
        assert_eq!(OperationRecord::from_words(record.to_words()), record);
        assert_eq!(record.size, u32::MAX);
    }
}
