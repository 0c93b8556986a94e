//! The record of a finished operation: 64 bytes, one cache line, no pointers.
//!
//! ```text
//!  0 started_ns    8 offset       16 subject      24 latency   28 size
//! 32 dataset      36 client       40 user         44 kind 45 protocol 46 outcome bits
//! 48 stages: nine durations of 14 bits
//! ```
//!
//! The subject is object and error:
//!
//! ```text
//! missing name u1 | 0 u7 | error u8 | object u48
//! ```
//!
//! Durations are packed as small floating point numbers. The latency has 27 bits of mantissa and is
//! exact up to 134 ms; a stage has 9, which is within 0.2 %. Both reach beyond any latency that
//! can happen.

use crate::client_id::ClientId;
use crate::dataset_table::DatasetId;
use crate::error_code::ErrorCode;
use crate::kind::{OperationKind, Outcome, Protocol, Stage};
use crate::missing_names::MISSING_NAME;
use crate::request::{What, Who};

/// The size of a record.
pub const RECORD_BYTES: usize = 64;

/// A finished operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OperationRecord {
    /// When it began, by its clock.
    pub started_ns: u64,
    /// Where in the object, in bytes.
    pub offset: u64,
    subject: u64,
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
    stages: [u64; 2],
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
            subject: what.object & OBJECT,
            latency: pack_latency(latency_ns),
            size: u32::try_from(what.size).unwrap_or(u32::MAX),
            dataset: what.dataset,
            client: who.client,
            user: who.user,
            kind: what.kind.number(),
            protocol: who.protocol.number(),
            outcome,
            stages: pack_stages(stages_ns),
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
        unpack_stage_ns(self.packed_stage(stage))
    }

    /// How long a stage took, as [`pack_stage_ns`] packs it.
    pub fn packed_stage(&self, stage: Stage) -> u16 {
        let stages = (u128::from(self.stages[1]) << 64) | u128::from(self.stages[0]);
        let place = u32::from(stage.number()) * STAGE_BITS;
        let packed = (stages >> place) & ((1 << STAGE_BITS) - 1);
        u16::try_from(packed).expect("masked to 14 bits")
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

    /// The object (file) number, of 48 bits; with [`MISSING_NAME`] the number of a name that was
    /// looked for in vain.
    pub fn object(&self) -> u64 {
        self.subject & OBJECT
    }

    /// What it failed with.
    pub fn error(&self) -> ErrorCode {
        let number = (self.subject >> ERROR_SHIFT) & 0xff;
        ErrorCode::from_number(low_u8(number))
    }

    /// The same, failed with this error.
    #[must_use]
    pub fn with_error(self, error: ErrorCode) -> OperationRecord {
        OperationRecord {
            subject: (self.subject & OBJECT) | (u64::from(error.number()) << ERROR_SHIFT),
            ..self
        }
    }

    /// The record as eight words, as the ring holds it.
    pub(crate) fn to_words(self) -> [u64; 8] {
        let [low, high] = self.stages;
        [
            self.started_ns,
            self.offset,
            self.subject,
            u64::from(self.latency) | u64::from(self.size) << 32,
            u64::from(self.dataset.0) | u64::from(self.client.0) << 32,
            u64::from(self.user)
                | u64::from(self.kind) << 32
                | u64::from(self.protocol) << 40
                | u64::from(self.outcome) << 48,
            low,
            high,
        ]
    }

    /// The record of eight words.
    pub(crate) fn from_words(words: [u64; 8]) -> OperationRecord {
        let [started_ns, offset, subject, w3, w4, w5, low, high] = words;
        OperationRecord {
            started_ns,
            offset,
            subject,
            latency: low_u32(w3),
            size: low_u32(w3 >> 32),
            dataset: DatasetId(low_u32(w4)),
            client: ClientId(low_u32(w4 >> 32)),
            user: low_u32(w5),
            kind: low_u8(w5 >> 32),
            protocol: low_u8(w5 >> 40),
            outcome: low_u16(w5 >> 48),
            stages: [low, high],
        }
    }
}

/// The durations of all stages, each in its bits.
fn pack_stages(stages_ns: &[u64; Stage::COUNT]) -> [u64; 2] {
    let mut packed = 0_u128;
    for (stage, time_ns) in Stage::ALL.iter().zip(stages_ns) {
        if *time_ns > 0 {
            let place = u32::from(stage.number()) * STAGE_BITS;
            packed |= u128::from(pack_stage_ns(*time_ns)) << place;
        }
    }
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).expect("64 bits");
    [half(packed), half(packed >> 64)]
}

/// A duration of a stage as records hold it, in 14 bits: exact below 512 ns, within 0.2 % above. A
/// longer duration never gives a lower number.
pub fn pack_stage_ns(nanoseconds: u64) -> u16 {
    u16::try_from(pack(nanoseconds, STAGE_MANTISSA_BITS)).unwrap_or(u16::MAX)
}

/// The duration, in nanoseconds, that [`pack_stage_ns`] packed. Packing it again gives the same
/// number.
pub fn unpack_stage_ns(packed: u16) -> u64 {
    unpack(u64::from(packed), STAGE_MANTISSA_BITS)
}

/// The bits of the subject that are the object's.
const OBJECT: u64 = MISSING_NAME | ((1 << ERROR_SHIFT) - 1);
/// Where in the subject the error is.
const ERROR_SHIFT: u32 = 48;

/// Bits of mantissa of the latency; the other 5 are the exponent.
const LATENCY_MANTISSA_BITS: u32 = 27;
/// Bits of mantissa of a stage; the other 5 are the exponent.
const STAGE_MANTISSA_BITS: u32 = 9;
/// Bits of a stage.
const STAGE_BITS: u32 = STAGE_MANTISSA_BITS + 5;
const _: () = assert!(STAGE_BITS as usize * Stage::COUNT <= 128);

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
    use crate::request::HolderId;

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
    fn stages_are_within_two_thousandths_and_saturate() {
        for shift in 0..40 {
            let value = (1_u64 << shift) + (1 << shift) / 3;
            let back = unpack_stage_ns(pack_stage_ns(value));
            assert!(
                back <= value && (value - back) * 500 <= value,
                "{value} became {back}"
            );
        }
        assert!(unpack_stage_ns(pack_stage_ns(u64::MAX)) > 1 << 39);
        for packed in 0..1 << STAGE_BITS {
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
            object: MISSING_NAME | 77,
            offset: 1 << 60,
            size: 1 << 40,
        };
        let stages = [1, 2, 3, 4, 5, 6, 7, 1 << 39, 511];
        let record = OperationRecord::new(9, 1 << 50, &who, &what, 0x8001, &stages);
        assert_eq!(OperationRecord::from_words(record.to_words()), record);
        let of_record = Stage::ALL.iter().map(|stage| record.stage_ns(*stage));
        assert!(of_record.eq(stages));
        assert_eq!(record.size, u32::MAX);
        assert_eq!(record.object(), MISSING_NAME | 77);
        assert_eq!(record.error(), ErrorCode::NONE);
        let failed = record.with_error(ErrorCode::UNKNOWN);
        assert_eq!(OperationRecord::from_words(failed.to_words()), failed);
        assert_eq!(failed.error(), ErrorCode::UNKNOWN);
        assert_eq!(failed.with_error(ErrorCode::NONE), record);
    }
}
