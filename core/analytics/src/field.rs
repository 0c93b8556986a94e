//! Fields: what operations can be broken down and filtered by.
//!
//! # Mechanism
//! A field is read from columns of a batch. A discrete field gives a key, such as the number of a
//! client; a breakdown counts by it. A numeric field gives a number; a heat map counts by the
//! bucket of `probe`'s log-linear histogram that it falls in.
//!
//! # Invariants
//! - Each operation has exactly one key of each discrete field, so the counts of a breakdown add up
//!   to the total.
//!
//! # What records lack
//! `lib.rs` lists the fields of the specification that need more than records have.

use std::sync::OnceLock;

use tarn_probe::{DeviceIo, DeviceNumber, IoPriority, Outcome, Protocol, Stage};

use crate::column_batch::{Batch, Column, ColumnSet, Numbers, has_outcome};

/// What operations are broken down or filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// By which way it came: `nfs3`, `fuse`.
    Protocol,
    /// The kind of operation: `read`, `getattr`.
    Operation,
    /// The client, as its front end numbered it.
    Client,
    /// The user's numeric id.
    User,
    /// Of a request to a device the device, as `probe` numbers them; of others none.
    Device,
    /// Of a request to a device its class; of others none.
    Class,
    /// The dataset, as `probe` numbers them.
    Dataset,
    /// Dataset and object number.
    File,
    /// What explains the latency first: see [`Cause`].
    Cause,
    /// All that happened, as one set: a breakdown counts each combination, `=` asks whether the
    /// outcome is in it.
    Outcomes,
    /// The stage with the most time.
    SlowestStage,
    /// Whether it was asked to be durable before it was answered.
    Synchronous,
    /// Whether it read several blocks, or the one behind a block that was read before.
    Sequential,
    /// Whether it failed.
    Failed,
    /// What it failed with, by the names of Linux and NFS.
    Error,
    /// Nanoseconds from begin to end.
    Latency,
    /// Bytes.
    Size,
    /// Where in the object, in bytes.
    Offset,
    /// Nanoseconds of one stage.
    StageTime(Stage),
}

/// How a field's values are read and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Keys with names: they are equal or not.
    Names,
    /// Numeric ids: they are equal or not, and have an order.
    Ids,
    /// Nanoseconds.
    Durations,
    /// Bytes.
    Bytes,
}

/// The stage that [`Field::SlowestStage`] gives where no stage has any time.
pub(crate) const NO_STAGE: u64 = Stage::COUNT as u64;

/// What explains the latency of an operation: of all its outcomes the one that weighs most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// None of the others: no block was needed.
    None,
    /// A block was found in the cache.
    CacheHit,
    /// It was answered from data not stored yet.
    Dirty,
    /// Another operation was already reading the block.
    CacheInFlight,
    /// A block came from the second level of the cache.
    SecondLevel,
    /// A block came from a special vdev.
    Special,
    /// A block came from another device of the pool.
    Disk,
    /// It waited for a device that a scrub or resilver was using.
    Scan,
    /// It waited until the intent log was written.
    Log,
    /// The intent log was written to a log device.
    LogDevice,
    /// It waited until a txg was stored.
    Txg,
    /// It waited for locks for a quarter of the time, or more.
    Lock,
    /// The write throttle delayed it.
    Throttled,
    /// It failed.
    Error,
}

impl Cause {
    /// All, from the one that weighs least to the one that weighs most; each at the place of its
    /// number.
    pub const ALL: [Cause; 14] = [
        Cause::None,
        Cause::CacheHit,
        Cause::Dirty,
        Cause::CacheInFlight,
        Cause::SecondLevel,
        Cause::Special,
        Cause::Disk,
        Cause::Scan,
        Cause::Log,
        Cause::LogDevice,
        Cause::Txg,
        Cause::Lock,
        Cause::Throttled,
        Cause::Error,
    ];

    /// The name shown to people.
    pub fn name(self) -> &'static str {
        self.outcome().map_or("none", Outcome::name)
    }

    /// Its number, as a key has it.
    pub fn number(self) -> u64 {
        self as u64
    }

    /// The outcome that it is.
    fn outcome(self) -> Option<Outcome> {
        match self {
            Cause::None => None,
            Cause::CacheHit => Some(Outcome::CacheHit),
            Cause::Dirty => Some(Outcome::Dirty),
            Cause::CacheInFlight => Some(Outcome::CacheInFlight),
            Cause::SecondLevel => Some(Outcome::SecondLevel),
            Cause::Disk => Some(Outcome::Disk),
            Cause::Log => Some(Outcome::Log),
            Cause::Throttled => Some(Outcome::Throttled),
            Cause::Error => Some(Outcome::Error),
            Cause::Special => Some(Outcome::Special),
            Cause::LogDevice => Some(Outcome::LogDevice),
            Cause::Lock => Some(Outcome::Lock),
            Cause::Txg => Some(Outcome::Txg),
            Cause::Scan => Some(Outcome::Scan),
        }
    }

    /// The cause of an operation with these outcomes.
    pub fn of(outcome_bits: u64) -> Cause {
        let [low, high, ..] = outcome_bits.to_le_bytes();
        let causes = causes();
        let number = causes[0][usize::from(low)].max(causes[1][usize::from(high)]);
        Cause::ALL[usize::from(number)]
    }

    /// The cause that weighs most of all whose outcomes these are.
    fn heaviest(outcome_bits: u64) -> Cause {
        let is_cause = |cause: &Cause| {
            (cause.outcome()).is_none_or(|outcome| has_outcome(outcome_bits, outcome))
        };
        let mut heaviest_first = Cause::ALL.into_iter().rev();
        heaviest_first.find(is_cause).unwrap_or(Cause::None)
    }
}

/// Fields that have one name, with other names that are accepted: those of Fishworks.
const NAMED: [(Field, &[&str]); 18] = [
    (Field::Protocol, &["protocol", "version"]),
    (Field::Operation, &["op", "operation", "type", "command"]),
    (Field::Client, &["client", "initiator", "host"]),
    (Field::User, &["user", "uid"]),
    (Field::Device, &["device", "disk", "vdev"]),
    (Field::Class, &["class", "priority"]),
    (Field::Dataset, &["dataset", "share", "lun", "project"]),
    (Field::File, &["file", "filename", "path"]),
    (Field::Cause, &["cause", "hit/miss"]),
    (Field::Outcomes, &["outcome"]),
    (Field::SlowestStage, &["slowest_stage", "stage"]),
    (Field::Synchronous, &["synchronous", "sync"]),
    (Field::Sequential, &["sequential"]),
    (Field::Failed, &["failed"]),
    (Field::Error, &["error", "errno", "status"]),
    (Field::Latency, &["latency"]),
    (Field::Size, &["size"]),
    (Field::Offset, &["offset"]),
];

impl Field {
    /// All fields.
    pub fn all() -> impl Iterator<Item = Field> {
        let stages = Stage::ALL.iter().map(|stage| Field::StageTime(*stage));
        NAMED.iter().map(|(field, _)| *field).chain(stages)
    }

    /// Its name: `op`, `latency`, `device_time`.
    pub fn name(self) -> String {
        match self {
            Field::StageTime(stage) => format!("{}_time", stage.name()),
            other => {
                let names = NAMED.iter().find(|(field, _)| *field == other);
                names.expect("each field but stages is in the list").1[0].to_owned()
            }
        }
    }

    /// The field of a name, or of one of its other names.
    pub fn from_name(name: &str) -> Option<Field> {
        let named = NAMED.iter().find(|(_, names)| names.contains(&name));
        let of_stage = || {
            let stage = name.strip_suffix("_time")?;
            let stage = Stage::ALL.iter().find(|known| known.name() == stage)?;
            Some(Field::StageTime(*stage))
        };
        named.map(|(field, _)| *field).or_else(of_stage)
    }

    /// How its values are read and compared.
    pub fn values(self) -> Values {
        match self {
            Field::Latency | Field::StageTime(_) => Values::Durations,
            Field::Size | Field::Offset => Values::Bytes,
            Field::User => Values::Ids,
            _ => Values::Names,
        }
    }

    /// Whether it has numbers, of which heat maps are made; the others are broken down by key.
    pub fn is_numeric(self) -> bool {
        matches!(self.values(), Values::Durations | Values::Bytes)
    }

    /// The columns that it is read from.
    pub fn columns(self) -> ColumnSet {
        let none = ColumnSet::default();
        match self {
            Field::File => none.with(Column::Dataset).with(Column::Object),
            Field::SlowestStage => Stage::ALL
                .iter()
                .fold(none, |set, stage| set.with(Column::Stage(*stage))),
            Field::User | Field::Device | Field::Class => {
                none.with(Column::User).with(Column::Protocol)
            }
            other => none.with(other.column()),
        }
    }

    /// The column that it is read from, of those columns the first.
    pub(crate) fn column(self) -> Column {
        match self {
            Field::Protocol => Column::Protocol,
            Field::Operation => Column::Kind,
            Field::Client => Column::Client,
            Field::User | Field::Device | Field::Class => Column::User,
            Field::Dataset | Field::File => Column::Dataset,
            Field::Cause
            | Field::Outcomes
            | Field::Synchronous
            | Field::Sequential
            | Field::Failed => Column::Outcome,
            Field::Error => Column::Error,
            Field::SlowestStage => Column::Stage(Stage::Protocol),
            Field::Latency => Column::Latency,
            Field::Size => Column::Size,
            Field::Offset => Column::Offset,
            Field::StageTime(stage) => Column::Stage(stage),
        }
    }

    /// The column that has its values as they are; for a file that of the object. None where they
    /// are made of others.
    pub(crate) fn plain_column(self) -> Option<Column> {
        match self {
            Field::File => Some(Column::Object),
            Field::Cause | Field::Synchronous | Field::Sequential | Field::Failed => None,
            Field::SlowestStage | Field::User | Field::Device | Field::Class => None,
            other => Some(other.column()),
        }
    }

    /// Its value for one operation of a batch, as 64 bits: for a file only the object.
    pub(crate) fn number(self, batch: &Batch, place: usize) -> u64 {
        let number = |column| batch.numbers(column)[place];
        let is_marked = |outcome| u64::from(has_outcome(number(Column::Outcome), outcome));
        match self {
            Field::File => number(Column::Object),
            Field::Cause => Cause::of(number(Column::Outcome)).number(),
            Field::Synchronous => is_marked(Outcome::Synchronous),
            Field::Sequential => is_marked(Outcome::Sequential),
            Field::Failed => is_marked(Outcome::Error),
            Field::SlowestStage => slowest_stage(batch, place),
            Field::User | Field::Device | Field::Class => {
                let is_device = number(Column::Protocol) == u64::from(Protocol::Device.number());
                self.of_user(number(Column::User), is_device)
            }
            other => number(other.column()),
        }
    }

    /// Its values for all operations of a batch, as [`number`](Self::number) has them; those at and
    /// beyond its length mean nothing.
    pub(crate) fn fill_numbers(self, batch: &Batch, numbers: &mut Numbers) {
        let outcomes = batch.numbers(Column::Outcome);
        let mut fill_marked = |outcome| {
            for (number, bits) in numbers.iter_mut().zip(outcomes) {
                *number = u64::from(has_outcome(*bits, outcome));
            }
        };
        match self {
            Field::Cause => {
                let causes = causes();
                for (number, bits) in numbers.iter_mut().zip(outcomes) {
                    let [low, high, ..] = bits.to_le_bytes();
                    let of_low = causes[0][usize::from(low)];
                    *number = of_low.max(causes[1][usize::from(high)]).into();
                }
            }
            Field::Synchronous => fill_marked(Outcome::Synchronous),
            Field::Sequential => fill_marked(Outcome::Sequential),
            Field::Failed => fill_marked(Outcome::Error),
            _ => {
                for (place, number) in numbers[..batch.len()].iter_mut().enumerate() {
                    *number = self.number(batch, place);
                }
            }
        }
    }

    /// Its key for one operation of a batch. Of a file: the dataset in the upper 64 bits, the
    /// object in the lower.
    pub fn key(self, batch: &Batch, place: usize) -> u128 {
        let number = u128::from(self.number(batch, place));
        match self {
            Field::File => u128::from(batch.numbers(Column::Dataset)[place]) << 64 | number,
            _ => number,
        }
    }
}

/// The cause of each byte of outcomes, the lower and the upper one: the cause of both is the one
/// with the larger number.
fn causes() -> &'static [[u8; 256]; 2] {
    static CAUSES: OnceLock<[[u8; 256]; 2]> = OnceLock::new();
    CAUSES.get_or_init(|| {
        let cause = |bits: u64| u8::try_from(Cause::heaviest(bits).number());
        let cause = |bits: u64| cause(bits).expect("causes are few");
        let of_byte = |shift: u32| {
            let mut causes = [0; 256];
            for (byte, number) in (0..).zip(&mut causes) {
                *number = cause(byte << shift);
            }
            causes
        };
        [of_byte(0), of_byte(8)]
    })
}

/// The class of what is no request to a device.
pub(crate) const NO_CLASS: u64 = 255;

impl Field {
    /// What the place of the user means.
    fn of_user(self, user: u64, is_device: bool) -> u64 {
        if self == Field::User {
            return if is_device { 0 } else { user };
        }
        let io = DeviceIo::of_user(u32::try_from(user).unwrap_or(u32::MAX));
        match (self, is_device) {
            (Field::Device, true) => io.device.number().into(),
            (Field::Class, true) => io.class.map_or(NO_CLASS, class_number),
            (Field::Class, false) => NO_CLASS,
            _ => DeviceNumber::NONE.number().into(),
        }
    }
}

/// The number of a class.
pub(crate) fn class_number(class: IoPriority) -> u64 {
    u64::try_from(class.index()).expect("there are few classes")
}

fn slowest_stage(batch: &Batch, place: usize) -> u64 {
    let mut slowest = (NO_STAGE, 0);
    for stage in Stage::ALL {
        let time_ns = batch.numbers(Column::Stage(*stage))[place];
        if time_ns > slowest.1 {
            slowest = (u64::from(stage.number()), time_ns);
        }
    }
    slowest.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found_by_its_name_and_no_name_means_two() {
        for field in Field::all() {
            assert_eq!(Field::from_name(&field.name()), Some(field));
        }
        let mut names: Vec<&str> = NAMED
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(
            Field::from_name("device_queue_time"),
            Some(Field::StageTime(Stage::DeviceQueue))
        );
        assert_eq!(Field::from_name("nothing_time"), None);
    }

    #[test]
    fn the_heaviest_outcome_is_the_cause() {
        let bits = |outcomes: &[Outcome]| {
            u64::from(
                outcomes
                    .iter()
                    .fold(0, |bits, outcome| bits | outcome.bit()),
            )
        };
        assert_eq!(Cause::of(0), Cause::None);
        assert_eq!(Cause::of(bits(&[Outcome::Sequential])), Cause::None);
        assert_eq!(
            Cause::of(bits(&[Outcome::CacheHit, Outcome::Disk])),
            Cause::Disk
        );
        assert_eq!(Cause::of(u64::MAX), Cause::Error);
        let mut batch = Batch::new();
        let mut numbers = [0; crate::column_batch::BATCH_RECORDS];
        for bits in 0..=u64::from(u16::MAX) {
            let place = usize::try_from(bits % 256).unwrap();
            batch.numbers_mut(Column::Outcome)[place] = bits;
            if place == 255 {
                batch.set_length(256);
                Field::Cause.fill_numbers(&batch, &mut numbers);
                let outcomes = batch.numbers(Column::Outcome).iter();
                let expected = outcomes.map(|bits| Cause::heaviest(*bits).number());
                assert!(expected.eq(numbers));
                assert_eq!(Cause::of(bits), Cause::heaviest(bits));
            }
        }
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause.number(), number as u64);
        }
    }
}
