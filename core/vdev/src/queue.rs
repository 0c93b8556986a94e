//! The queue: many requests to many leaves, handed over at once.
//!
//! # Mechanism
//! Requests are gathered per leaf and sorted by offset, so that each device gets one batch in the order
//! of its surface; `host` moves neighbours together. Then all batches are waited for. What comes back
//! is counted per leaf, neighbours as the one request they were, and errors are counted too.
//!
//! # Invariants
//! - Outcomes come in the order of the requests.
//! - A leaf that is being written, or was, has something to be flushed from then on.

use crate::error::LeafFailure;
use crate::leaf::{Leaf, Window};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tarn_host::device::WriteData;
use tarn_host::{Batch, Buffer, Completion, Request};
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::{Guid, Txg};
use tarn_probe::{FinishedIo, IoKind, IoPriority, Operation, OperationKind, Stage};

/// Neighbouring requests are counted as one up to this size.
#[doc(alias = "zfs_vdev_aggregation_limit")]
const MERGED_BYTES_MAX: u64 = 1 << 20;

/// One request to one leaf.
#[derive(Debug)]
pub(crate) struct LeafIo {
    /// Whom to ask.
    pub leaf: Arc<Leaf>,
    /// What for. Offsets count from the start of the leaf's window.
    pub request: Request,
    /// For a write that may be missed, the birth of the block, or the txg of the label. Self-healing
    /// has none: where it fails, the device lacks no more than before.
    pub birth: Option<Txg>,
}

impl LeafIo {
    /// Reads `size` bytes.
    pub fn read(leaf: &Arc<Leaf>, offset: u64, size: usize) -> LeafIo {
        LeafIo {
            leaf: leaf.clone(),
            request: Request::read(offset, size),
            birth: None,
        }
    }

    /// Writes what belongs to this txg.
    pub fn write(leaf: &Arc<Leaf>, offset: u64, data: WriteData, birth: Option<Txg>) -> LeafIo {
        LeafIo {
            leaf: leaf.clone(),
            request: Request::write(offset, data),
            birth,
        }
    }

    /// Makes durable what was written before.
    pub fn flush(leaf: &Arc<Leaf>) -> LeafIo {
        LeafIo {
            leaf: leaf.clone(),
            request: Request::Flush,
            birth: None,
        }
    }
}

/// What came of a request: a read gives its buffer.
pub(crate) type Outcome = Result<Option<Buffer>, LeafFailure>;

/// The class in which the requests of an operation are counted.
pub(crate) fn read_class(operation: &Operation) -> IoPriority {
    match operation.what().kind {
        OperationKind::Prefetch => IoPriority::AsyncRead,
        OperationKind::Scan => IoPriority::Scrub,
        _ => IoPriority::SyncRead,
    }
}

/// The class in which the requests of an operation are counted.
pub(crate) fn write_class(operation: &Operation) -> IoPriority {
    match operation.what().kind {
        OperationKind::TxgSync => IoPriority::AsyncWrite,
        OperationKind::Scan => IoPriority::Scrub,
        _ => IoPriority::SyncWrite,
    }
}

/// Carries out all requests. One outcome each, in their order.
pub(crate) fn run(ios: Vec<LeafIo>, class: IoPriority, operation: &Operation) -> Vec<Outcome> {
    let mut outcomes: Vec<Option<Outcome>> = ios.iter().map(|_| None).collect();
    let mut groups: BTreeMap<Guid, Group> = BTreeMap::new();
    for (index, io) in ios.into_iter().enumerate() {
        let LeafIo {
            leaf,
            request,
            birth,
        } = io;
        match leaf.window() {
            None => outcomes[index] = Some(Err(leaf.not_usable())),
            Some(window) => {
                let group = groups
                    .entry(leaf.guid)
                    .or_insert_with(|| Group::new(leaf, window));
                group.requests.push((index, request));
                if let Some(birth) = birth {
                    group.add_birth(birth);
                }
            }
        }
    }
    let under_way: Vec<UnderWay> = groups
        .into_values()
        .map(|group| group.submit(class))
        .collect();
    let mut slowest = (0, 0);
    for batch in under_way {
        let (queue_ns, device_ns) = batch.finish(class, &mut outcomes);
        slowest = (slowest.0.max(queue_ns), slowest.1.max(device_ns));
    }
    operation.add(Stage::DeviceQueue, slowest.0);
    operation.add(Stage::Device, slowest.1);
    let each = outcomes.into_iter();
    each.map(|outcome| outcome.expect("every request has an outcome"))
        .collect()
}

/// Makes durable what was written to one leaf before, in the calling thread where the device can do that.
pub(crate) fn flush_here(leaf: &Arc<Leaf>, operation: &Operation) -> Outcome {
    let class = write_class(operation);
    let window = leaf.window().ok_or_else(|| leaf.not_usable())?;
    leaf.probes.statistics.add_active(class, 1);
    let started_ns = tarn_host::monotonic_ns();
    let flushed = window.device().flush();
    let device_ns = tarn_host::monotonic_ns().saturating_sub(started_ns);
    leaf.probes.statistics.add_active(class, -1);
    leaf.probes.statistics.finish(&FinishedIo {
        kind: IoKind::Flush,
        priority: class,
        bytes: 0,
        queue_ns: 0,
        device_ns,
        is_merged: false,
        has_failed: flushed.is_err(),
    });
    operation.add(Stage::Device, device_ns);
    flushed.map(|()| None).map_err(|error| {
        leaf.errors.count_write();
        leaf.device_failure(error)
    })
}

/// The requests to one leaf.
struct Group {
    leaf: Arc<Leaf>,
    window: Window,
    requests: Vec<(usize, Request)>,
    /// The births of what is written.
    births: Option<RangeInclusive<Txg>>,
}

/// The same, handed over.
struct UnderWay {
    leaf: Arc<Leaf>,
    batch: Batch,
    asked: Vec<Asked>,
    births: Option<RangeInclusive<Txg>>,
}

/// What was asked for, as far as it is needed afterwards.
#[derive(Debug, Clone, Copy)]
struct Asked {
    index: usize,
    kind: IoKind,
    offset: u64,
    bytes: u64,
}

impl Asked {
    fn new(index: usize, request: &Request) -> Asked {
        let (kind, offset, bytes) = match request {
            Request::Read { offset, buffer } => (IoKind::Read, *offset, widen(buffer.len())),
            Request::Write { offset, data } => (IoKind::Write, *offset, widen(data.len())),
            Request::WriteZeroes { offset, length } => (IoKind::Write, *offset, *length),
            Request::Discard { offset, length } => (IoKind::Trim, *offset, *length),
            Request::Flush => (IoKind::Flush, 0, 0),
        };
        Asked {
            index,
            kind,
            offset,
            bytes,
        }
    }

    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

impl Group {
    fn new(leaf: Arc<Leaf>, window: Window) -> Group {
        Group {
            leaf,
            window,
            requests: Vec::new(),
            births: None,
        }
    }

    fn add_birth(&mut self, birth: Txg) {
        let births = self.births.take();
        self.births = Some(births.map_or(birth..=birth, |births| {
            birth.min(*births.start())..=birth.max(*births.end())
        }));
    }

    fn submit(self, class: IoPriority) -> UnderWay {
        let Group {
            leaf,
            window,
            requests,
            births,
        } = self;
        let mut requests: Vec<_> = requests
            .into_iter()
            .map(|(index, request)| (Asked::new(index, &request), request))
            .collect();
        requests.sort_by_key(|(asked, _)| (asked.offset, asked.index));
        let asked: Vec<Asked> = requests.iter().map(|(asked, _)| *asked).collect();
        leaf.probes
            .statistics
            .add_active(class, signed(asked.len()));
        let bytes = asked.iter().map(|asked| asked.bytes).sum();
        leaf.begin(bytes, asked.last().map_or(0, Asked::end));
        note_written(&leaf, &asked, births.as_ref());
        let shifted = requests
            .into_iter()
            .map(|(_, request)| shift(request, &window));
        let batch = window.device().submit(shifted.collect());
        UnderWay {
            leaf,
            batch,
            asked,
            births,
        }
    }
}

/// Notes what is to be flushed from now on.
fn note_written(leaf: &Leaf, asked: &[Asked], births: Option<&RangeInclusive<Txg>>) {
    if let Some(births) = births {
        leaf.note_written(births.clone());
    }
    if asked.iter().any(|asked| asked.kind == IoKind::Write) {
        leaf.set_unflushed(true);
    }
}

/// The request as the device knows it.
fn shift(mut request: Request, window: &Window) -> Request {
    match &mut request {
        Request::Read { offset, .. }
        | Request::Write { offset, .. }
        | Request::WriteZeroes { offset, .. }
        | Request::Discard { offset, .. } => *offset = window.device_offset(*offset),
        Request::Flush => {}
    }
    request
}

impl UnderWay {
    /// Waits, counts, and puts the outcomes where they belong. Gives the longest times in queue and
    /// device.
    fn finish(self, class: IoPriority, outcomes: &mut [Option<Outcome>]) -> (u64, u64) {
        let UnderWay {
            leaf,
            batch,
            asked,
            births,
        } = self;
        let completions = batch.wait();
        // A flush that began meanwhile has not covered it.
        note_written(&leaf, &asked, births.as_ref());
        leaf.probes
            .statistics
            .add_active(class, -signed(asked.len()));
        leaf.end(asked.iter().map(|asked| asked.bytes).sum());
        let mut slowest = (0, 0);
        for finished in merged(class, &asked, &completions) {
            slowest = (
                slowest.0.max(finished.queue_ns),
                slowest.1.max(finished.device_ns),
            );
            leaf.probes.statistics.finish(&finished);
        }
        for (asked, completion) in asked.iter().zip(completions) {
            outcomes[asked.index] = Some(completion.result.map_err(|error| {
                match asked.kind {
                    IoKind::Read => leaf.errors.count_read(),
                    IoKind::Write | IoKind::Flush => leaf.errors.count_write(),
                    IoKind::Trim => {}
                }
                leaf.device_failure(error)
            }));
        }
        slowest
    }
}

/// Neighbours taken together.
fn merged(class: IoPriority, asked: &[Asked], completions: &[Completion]) -> Vec<FinishedIo> {
    let mut finished: Vec<FinishedIo> = Vec::new();
    let mut last_end = None;
    for (asked, completion) in asked.iter().zip(completions) {
        let has_failed = completion.result.is_err();
        match finished.last_mut() {
            Some(run)
                if last_end == Some(asked.offset)
                    && run.kind == asked.kind
                    && asked.kind != IoKind::Flush
                    && run.bytes + asked.bytes <= MERGED_BYTES_MAX =>
            {
                run.bytes += asked.bytes;
                run.queue_ns = run.queue_ns.max(completion.queue_ns);
                run.device_ns = run.device_ns.max(completion.service_ns);
                run.is_merged = true;
                run.has_failed |= has_failed;
            }
            _ => finished.push(FinishedIo {
                kind: asked.kind,
                priority: class,
                bytes: asked.bytes,
                queue_ns: completion.queue_ns,
                device_ns: completion.service_ns,
                is_merged: false,
                has_failed,
            }),
        }
        last_end = Some(asked.end());
    }
    finished
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("requests are counted in 63 bits")
}
