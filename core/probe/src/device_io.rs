//! The record of a request to a device: which operation it was for, and where its time went.
//!
//! It has the fields of an operation's record: client, dataset and object are those of the
//! operation that asked for it, offset and size those of the device, and the place of the user has
//! the number of the device and the class.
//!
//! ```text
//! user: device u24 | class u8
//! ```

use crate::device_table::DeviceNumber;
use crate::error_code::ErrorCode;
use crate::kind::{OperationKind, Outcome, Protocol, Stage};
use crate::operation::Operation;
use crate::record::OperationRecord;
use crate::recorder::recorder;
use crate::request::{What, Who};
use crate::usdt;
use crate::vdev_statistics::{FinishedIo, IoKind, IoPriority};

/// Bits of the class.
const CLASS_BITS: u32 = 8;

/// Device and class of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIo {
    /// Which device.
    pub device: DeviceNumber,
    /// The class; none if this version does not know it.
    pub class: Option<IoPriority>,
}

impl DeviceIo {
    /// Records a request that has just ended, if records are kept.
    pub fn record(device: DeviceNumber, finished: &FinishedIo, operation: &Operation) {
        usdt::device_io(|| {
            [
                user_of(device, finished).into(),
                kind_of(finished).number().into(),
                finished.offset,
                finished.bytes,
                finished.queue_ns,
                finished.device_ns,
                operation.what().dataset.0.into(),
                operation.what().object,
            ]
        });
        if recorder().keeps_records() {
            let now_ns = operation.clock()();
            let record = record_of(device, finished, operation, now_ns);
            recorder().record_uncounted(&record);
        }
    }

    /// What the place of the user means in a record whose protocol is [`Protocol::Device`].
    pub fn of_user(user: u32) -> DeviceIo {
        let class = usize::try_from(user & ((1 << CLASS_BITS) - 1)).ok();
        DeviceIo {
            device: DeviceNumber(user >> CLASS_BITS),
            class: class.and_then(|class| IoPriority::ALL.get(class).copied()),
        }
    }
}

/// The kind of operation that a request to a device is.
fn kind_of(finished: &FinishedIo) -> OperationKind {
    match finished.kind {
        IoKind::Read => OperationKind::Read,
        IoKind::Write => OperationKind::Write,
        IoKind::Flush => OperationKind::Sync,
        IoKind::Trim => OperationKind::Discard,
    }
}

/// Device and class in the place of the user.
fn user_of(device: DeviceNumber, finished: &FinishedIo) -> u32 {
    let class = u32::try_from(finished.priority.index()).unwrap_or(u32::MAX);
    (device.number() << CLASS_BITS) | class
}

fn record_of(
    device: DeviceNumber,
    finished: &FinishedIo,
    operation: &Operation,
    now_ns: u64,
) -> OperationRecord {
    let latency_ns = finished.queue_ns.saturating_add(finished.device_ns);
    let who = Who {
        protocol: Protocol::Device,
        user: user_of(device, finished),
        ..*operation.who()
    };
    let what = What {
        kind: kind_of(finished),
        offset: finished.offset,
        size: finished.bytes,
        ..*operation.what()
    };
    let mut stages_ns = [0; Stage::COUNT];
    stages_ns[Stage::DeviceQueue.index()] = finished.queue_ns;
    stages_ns[Stage::Device.index()] = finished.device_ns;
    let outcome = match finished.has_failed {
        true => Outcome::Error.bit(),
        false => 0,
    };
    let began_ns = now_ns.saturating_sub(latency_ns);
    let record = OperationRecord::new(began_ns, latency_ns, &who, &what, outcome, &stages_ns);
    match finished.has_failed {
        true => record.with_error(ErrorCode::IO),
        false => record,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset_table::DatasetId;

    #[test]
    fn a_record_tells_device_class_and_for_whom_it_was() {
        let what = What::plain(OperationKind::Lookup, DatasetId(3), 42);
        let operation = Operation::begin(|| 5_000_000, Who::INTERNAL, what);
        let finished = FinishedIo {
            kind: IoKind::Read,
            priority: IoPriority::Scrub,
            offset: 4096,
            bytes: 8192,
            queue_ns: 1_000,
            device_ns: 2_000,
            is_merged: false,
            has_failed: true,
        };
        let device = DeviceNumber(0x0102);
        let record = record_of(device, &finished, &operation, 5_000_000);
        let meant = DeviceIo::of_user(record.user);
        assert_eq!(
            (meant.device, meant.class),
            (device, Some(IoPriority::Scrub))
        );
        assert_eq!(record.protocol(), Some(Protocol::Device));
        assert_eq!(record.kind(), Some(OperationKind::Read));
        assert_eq!((record.dataset, record.object()), (DatasetId(3), 42));
        assert_eq!((record.offset, record.size), (4096, 8192));
        assert_eq!((record.ended_ns(), record.latency_ns()), (5_000_000, 3_000));
        assert_eq!(record.stage_ns(Stage::Device), 2_000);
        assert!(record.is_marked(Outcome::Error));
        assert_eq!(record.error(), ErrorCode::IO);
    }
}
