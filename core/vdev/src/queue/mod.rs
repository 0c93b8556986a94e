//! The queue of each device: it limits how many requests of an I/O class the device has at once.
//!
//! # Mechanism
//! Requests are gathered per leaf and sorted by offset, so that each device gets them in the order
//! of its surface. Neighbours count as one ([`aggregate`]), and the [class](classes) of the
//! operation says how many of those a device may have. Where there are no limits, or room for all,
//! they are one batch. Else the calling thread sends as many as there is [`room`] for, in two
//! batches, and the next ones when one batch has finished, so that the device always has some.
//! Calls of scans send one after the other ([`sweeps`]), and those of scrubs in the [`gaps`] that
//! applications leave. Statistics count finished requests and errors per leaf, an aggregate as one
//! request.
//!
//! A flush does not wait for room, and neither do labels while a pool is searched for.
//!
//! # Invariants
//! - Outcomes come in the order of the requests.
//! - A leaf is marked as unflushed before and after a write to it.
//! - A thread that has requests at a device waits for these, never for room.

mod aggregate;
pub(crate) mod classes;
pub(crate) mod depth;
pub(crate) mod gaps;
pub(crate) mod room;
pub(crate) mod sweeps;

use crate::error::LeafFailure;
use crate::leaf::{Leaf, Window};
use crate::reports::{ReportKind, ReportedIo, errno_of};
use aggregate::{Aggregate, Asked, merged};
use classes::{Limits, is_of_scan, is_waited_for};
pub(crate) use classes::{read_class, write_class};
use gaps::Admitted;
use room::Taken;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use tarn_host::device::WriteData;
use tarn_host::{Batch, Buffer, DeviceError, Lateness, Request};
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::{Guid, Txg};
use tarn_probe::{FinishedIo, IoKind, IoPriority, Operation, Outcome as Happened, Stage};

/// A read or write that takes a device so long is slow, in nanoseconds: 30 seconds.
#[doc(alias = "zio_slow_io_ms")]
const SLOW_NS: u64 = 30_000_000_000;

/// A read or write that a device has not answered for five minutes is reported, and again each
/// minute.
#[doc(alias("zfs_deadman_ziotime_ms", "zfs_deadman_checktime_ms"))]
const HUNG: Lateness = Lateness {
    first_ns: 300_000_000_000,
    again_ns: 60_000_000_000,
};

/// One request to one leaf.
#[derive(Debug)]
pub(crate) struct LeafIo {
    /// The device.
    pub leaf: Arc<Leaf>,
    /// The request. Offsets count from the start of the leaf's window.
    pub request: Request,
    /// Of a write, the birth of the block or the txg of the label: it goes into the dirty time log
    /// when the write fails. Self-healing writes have none: where one fails, the device lacks no
    /// more than before.
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

    /// Writes `data`, which has this birth.
    pub fn write(leaf: &Arc<Leaf>, offset: u64, data: WriteData, birth: Option<Txg>) -> LeafIo {
        LeafIo {
            leaf: leaf.clone(),
            request: Request::write(offset, data),
            birth,
        }
    }

    /// Flushes the write cache of the device.
    pub fn flush(leaf: &Arc<Leaf>) -> LeafIo {
        LeafIo {
            leaf: leaf.clone(),
            request: Request::Flush,
            birth: None,
        }
    }
}

/// The leaf of a request, and the birth of what it wrote.
pub(crate) struct Owner {
    pub leaf: Arc<Leaf>,
    pub birth: Option<Txg>,
}

impl Owner {
    pub(crate) fn of(io: &LeafIo) -> Owner {
        Owner {
            leaf: io.leaf.clone(),
            birth: io.birth,
        }
    }

    pub(crate) fn of_flush(leaf: Arc<Leaf>) -> Owner {
        Owner { leaf, birth: None }
    }
}

/// The result of a request; a read gives its buffer.
pub(crate) type Outcome = Result<Option<Buffer>, LeafFailure>;

/// Carries out all requests. One outcome each, in their order.
pub(crate) fn run(ios: Vec<LeafIo>, class: IoPriority, operation: &Operation) -> Vec<Outcome> {
    run_lanes(ios, (class, false), operation)
}

/// The same for a scrub: in the [gaps] that applications leave.
pub(crate) fn run_in_gaps(ios: Vec<LeafIo>, operation: &Operation) -> Vec<Outcome> {
    run_lanes(ios, (read_class(operation), true), operation)
}

fn run_lanes(
    ios: Vec<LeafIo>,
    (class, in_gaps): (IoPriority, bool),
    operation: &Operation,
) -> Vec<Outcome> {
    let mut outcomes: Vec<Option<Outcome>> = ios.iter().map(|_| None).collect();
    let mut lanes: BTreeMap<Guid, Lane> = BTreeMap::new();
    for (index, io) in ios.into_iter().enumerate() {
        let LeafIo {
            leaf,
            request,
            birth,
        } = io;
        match leaf.window() {
            None => outcomes[index] = Some(Err(leaf.not_usable())),
            Some(window) => {
                let lane = lanes.entry(leaf.guid);
                let begun_ns = operation.started_ns();
                let lane =
                    lane.or_insert_with(|| Lane::new(leaf, window, (class, in_gaps), begun_ns));
                lane.push(index, request, birth);
            }
        }
    }
    let mut lanes: Vec<Lane> = lanes.into_values().collect();
    let mut slowest = Slowest::default();
    lanes.iter_mut().for_each(Lane::wait_for_turn);
    lanes.iter_mut().for_each(Lane::begin);
    while let Some(late) = lanes.iter().position(Lane::has_unsent) {
        // Requests of this call are waited for before room: other callers may wait for the room
        // that they take.
        let busy = match lanes[late].is_busy() {
            true => Some(late),
            false => lanes.iter().position(Lane::is_busy),
        };
        match busy {
            Some(busy) => lanes[busy].finish_oldest(&mut outcomes, &mut slowest, operation),
            None => {
                if lanes[late].waits_behind_scan() {
                    operation.mark(Happened::Scan);
                }
                lanes[late].wait_for_room();
            }
        }
        lanes.iter_mut().for_each(Lane::send);
    }
    for lane in &mut lanes {
        while lane.is_busy() {
            lane.finish_oldest(&mut outcomes, &mut slowest, operation);
        }
    }
    operation.add(Stage::DeviceQueue, slowest.queue_ns);
    operation.add(Stage::Device, slowest.device_ns);
    let each = outcomes.into_iter();
    each.map(|outcome| outcome.expect("every request has an outcome"))
        .collect()
}

/// Flushes one leaf, in the calling thread where the device can do that.
pub(crate) fn flush_here(leaf: &Arc<Leaf>, operation: &Operation) -> Outcome {
    let class = write_class(operation);
    let window = leaf.window().ok_or_else(|| leaf.not_usable())?;
    leaf.probes.statistics.add_active(class, 1);
    let started_ns = tarn_host::monotonic_ns();
    let flushed = window.device().flush();
    let device_ns = tarn_host::monotonic_ns().saturating_sub(started_ns);
    leaf.probes.statistics.add_active(class, -1);
    let finished = FinishedIo {
        kind: IoKind::Flush,
        priority: class,
        offset: 0,
        bytes: 0,
        queue_ns: 0,
        device_ns,
        is_merged: false,
        has_failed: flushed.is_err(),
    };
    leaf.probes.finish(&finished, operation);
    operation.add(Stage::Device, device_ns);
    flushed.map(|()| None).map_err(|error| {
        let failure = leaf.device_failure(error);
        if !failure.is_lease_expired() {
            leaf.errors.count_write();
        }
        failure
    })
}

/// The longest times in queue and device.
#[derive(Debug, Default)]
struct Slowest {
    queue_ns: u64,
    device_ns: u64,
}

/// The requests to one leaf.
struct Lane {
    leaf: Arc<Leaf>,
    window: Window,
    class: IoPriority,
    /// When the operation began.
    begun_ns: u64,
    limits: &'static Limits,
    /// An application or txg waits for a device with limits.
    is_asking: bool,
    /// It waits for [gaps] of a device with limits.
    in_gaps: bool,
    /// Its [turn](sweeps) has begun and not ended.
    has_turn: bool,
    /// Before they are sorted.
    requests: Vec<(Asked, Request)>,
    /// The births of what is written.
    births: Option<RangeInclusive<Txg>>,
    /// Aggregates that wait for room, in the order of their offsets.
    unsent: VecDeque<Aggregate>,
    /// When waiting for room began.
    unsent_since_ns: u64,
    under_way: VecDeque<UnderWay>,
    /// How many requests have their outcomes.
    asked_count: u64,
}

/// Requests that were handed over.
struct UnderWay {
    batch: Batch,
    /// The requests of the caller, and gaps between reads.
    asked: Vec<Asked>,
    /// How much room they take.
    room: u32,
    /// How long they waited for it.
    waited_ns: u64,
}

impl Lane {
    fn new(
        leaf: Arc<Leaf>,
        window: Window,
        (class, in_gaps): (IoPriority, bool),
        begun_ns: u64,
    ) -> Lane {
        let is_direct = window.info().is_direct;
        let is_asked = leaf.note_asked(class, is_direct);
        let is_asking = is_direct && is_waited_for(class);
        if is_asking {
            leaf.gaps.begin_asking();
        }
        Lane {
            limits: Limits::of(window.info(), leaf.depth.get(), is_asked),
            is_asking,
            in_gaps: in_gaps && is_direct,
            has_turn: false,
            leaf,
            window,
            class,
            begun_ns,
            requests: Vec::new(),
            births: None,
            unsent: VecDeque::new(),
            unsent_since_ns: 0,
            under_way: VecDeque::new(),
            asked_count: 0,
        }
    }

    fn push(&mut self, index: usize, request: Request, birth: Option<Txg>) {
        self.requests
            .push((Asked::new(Some(index), &request), request));
        if let Some(birth) = birth {
            let births = self.births.take();
            self.births = Some(births.map_or(birth..=birth, |births| {
                birth.min(*births.start())..=birth.max(*births.end())
            }));
        }
    }

    fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn is_busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Waits until the calls of scans that came before have sent their requests.
    fn wait_for_turn(&mut self) {
        assert!(
            !self.is_busy() && !self.has_turn,
            "a call waits for its turn before it has any request under way"
        );
        if self.window.info().is_direct && is_of_scan(self.class) {
            self.leaf.sweeps.begin();
            self.has_turn = true;
        }
    }

    fn end_turn(&mut self) {
        if std::mem::take(&mut self.has_turn) {
            self.leaf.sweeps.end();
        }
    }

    /// Hands over all requests, or as many as there is room for.
    fn begin(&mut self) {
        assert!(
            !self.is_busy() && !self.has_unsent(),
            "a lane is begun once"
        );
        let mut requests = std::mem::take(&mut self.requests);
        requests.sort_by_key(|(asked, _)| (asked.offset, asked.index));
        let asked = || requests.iter().map(|(asked, _)| *asked);
        let (bytes, end) = (asked().map(|asked| asked.bytes).sum(), asked().next_back());
        self.leaf.begin(bytes, end.map_or(0, |asked| asked.end()));
        if asked().any(|asked| asked.kind == IoKind::Write) {
            self.note_written();
        }
        let is_limited = self.limits.classes[self.class.index()].is_some();
        if !is_limited || asked().any(|asked| asked.kind == IoKind::Flush) {
            self.end_turn();
            return self.submit(requests, 0, 0);
        }
        let aggregates = aggregate::of_sorted(requests, &self.window, self.limits);
        self.unsent = aggregates.into();
        self.unsent_since_ns = tarn_host::monotonic_ns();
        self.count_pending(1);
        self.send();
    }

    /// Hands over as many aggregates as there is room for.
    fn send(&mut self) {
        if self.has_unsent() {
            let wanted = match self.admitted() {
                Admitted::All => self.unsent.len(),
                Admitted::One(bytes_max) => {
                    self.cut_first(bytes_max);
                    1
                }
                Admitted::Move => {
                    self.move_to_first();
                    1
                }
                Admitted::NoneFor(_) => return,
            };
            let room = &self.leaf.room;
            let taken = room.take(self.limits, self.class, wanted);
            self.send_taken(taken);
            if self.has_unsent() && self.leaf.room.is_full(self.limits) {
                self.leaf.depth.note_refused();
            }
        }
    }

    /// Waits for room, and hands over as many aggregates as there is room for. The call has no
    /// requests under way.
    fn wait_for_room(&mut self) {
        assert!(
            !self.is_busy(),
            "a thread with requests at a device waits for these, never for room"
        );
        let wanted = match self.admitted() {
            Admitted::All => self.unsent.len(),
            Admitted::One(bytes_max) => {
                self.cut_first(bytes_max);
                1
            }
            Admitted::Move => {
                self.move_to_first();
                1
            }
            Admitted::NoneFor(wait_ns) => return self.leaf.gaps.wait(wait_ns),
        };
        let room = &self.leaf.room;
        let taken = room.wait(self.limits, self.class, wanted);
        self.send_taken(taken);
    }

    /// Whether it waits for a device that a scan is using, and is of none itself.
    fn waits_behind_scan(&self) -> bool {
        let statistics = &self.leaf.probes.statistics;
        let is_scanned = |class: &IoPriority| is_of_scan(*class) && statistics.is_active(*class);
        !is_of_scan(self.class) && IoPriority::ALL.iter().any(is_scanned)
    }

    /// What the device admits of the call beside its limits.
    fn admitted(&self) -> Admitted {
        let next = self.unsent.front().filter(|_| self.in_gaps);
        let Some(next) = next else {
            return Admitted::All;
        };
        match self
            .leaf
            .gaps
            .admits(next.start(), tarn_host::monotonic_ns())
        {
            // The call before has sent its last one, which is served.
            Admitted::One(_) | Admitted::Move if self.leaf.room.has_any(self.class) => {
                Admitted::NoneFor(gaps::LOOK_NS_MIN)
            }
            admitted => admitted,
        }
    }

    /// Leaves no more bytes in the aggregate that is sent next, but for its first request.
    fn cut_first(&mut self, bytes_max: u64) {
        let first = self.unsent.pop_front();
        let first = first.expect("a lane with unsent requests sends");
        let (first, rest) = first.cut(bytes_max);
        if let Some(rest) = rest {
            self.unsent.push_front(rest);
        }
        self.unsent.push_front(first);
    }

    /// Puts a small read before the aggregate that would be sent next, directly before its place.
    fn move_to_first(&mut self) {
        let first = self.unsent.front();
        let first = first.expect("a lane with unsent requests sends");
        let sector = u64::from(self.window.info().logical_sector_bytes);
        let bytes = gaps::MOVING_BYTES.max(sector);
        match first.start().checked_sub(bytes) {
            // It waits for room since the last time.
            _ if first.asked_count() == 0 => {}
            Some(offset) => self.unsent.push_front(Aggregate::of_gap(offset, bytes)),
            None => self.cut_first(bytes),
        }
    }

    fn send_taken(&mut self, taken: Taken) {
        let count = match taken {
            Taken::None => return,
            Taken::Some(count) => count,
            Taken::All => unreachable!("a lane without limits has sent all"),
        };
        assert!(count > 0, "room that is taken is for at least one request");
        assert!(
            usize::try_from(count).is_ok_and(|count| count <= self.unsent.len()),
            "no more room is taken than there are requests"
        );
        // Two batches: when one has finished, the device still has the other.
        let first = match self.unsent.len() > usize::try_from(count).expect("a small number") {
            true => count.div_ceil(2),
            false => count,
        };
        let mut end = 0;
        for room in [first, count - first] {
            if room > 0 {
                self.count_pending(-1);
                let aggregates = usize::try_from(room).expect("a small number");
                let requests = self.unsent.drain(..aggregates);
                let requests = requests.inspect(|aggregate| end = aggregate.end());
                let requests = requests.flat_map(|aggregate| aggregate.requests).collect();
                self.count_pending(1);
                let now_ns = tarn_host::monotonic_ns();
                let waited_ns = now_ns.saturating_sub(self.unsent_since_ns);
                self.submit(requests, room, waited_ns);
            }
        }
        if self.in_gaps {
            self.leaf.gaps.note_admitted(end);
        }
        if !self.has_unsent() {
            self.end_turn();
        }
    }

    /// Adds the unsent requests to the statistic of pending ones, or subtracts them.
    fn count_pending(&self, sign: i64) {
        let asked = self.unsent.iter().map(|aggregate| aggregate.asked_count());
        let statistics = &self.leaf.probes.statistics;
        statistics.add_pending(self.class, sign * signed(asked.sum()));
    }

    fn submit(&mut self, requests: Vec<(Asked, Request)>, room: u32, waited_ns: u64) {
        let (asked, requests): (Vec<Asked>, Vec<Request>) = requests.into_iter().unzip();
        let count = signed(asked.iter().filter(|asked| !asked.is_gap()).count());
        self.leaf.probes.statistics.add_active(self.class, count);
        let shifted = requests.into_iter();
        let shifted = shifted.map(|request| shift(request, &self.window));
        let batch = self.window.device().submit(shifted.collect());
        self.under_way.push_back(UnderWay {
            batch,
            asked,
            room,
            waited_ns,
        });
    }

    /// Waits for the batch that was handed over first, counts its requests, and stores their
    /// outcomes.
    fn finish_oldest(
        &mut self,
        outcomes: &mut [Option<Outcome>],
        slowest: &mut Slowest,
        operation: &Operation,
    ) {
        let oldest = self.under_way.pop_front();
        let oldest = oldest.expect("only a busy lane is waited for");
        let UnderWay {
            batch,
            asked,
            room,
            waited_ns,
        } = oldest;
        let mut report_hung = |waited_ns| self.report_hung(&asked, waited_ns);
        let completions = batch.wait_calling(HUNG, &mut report_hung);
        assert_eq!(
            completions.len(),
            asked.len(),
            "each request of a batch completes once"
        );
        if room > 0 {
            self.leaf.room.give_back(self.class, room);
            let bytes = asked.iter().map(|asked| asked.bytes).sum();
            self.leaf.depth.note_finished(u64::from(room), bytes);
        }
        let leaf = &self.leaf;
        if asked.iter().any(|asked| asked.kind == IoKind::Write) {
            // A flush that began during the write does not cover it.
            self.note_written();
        }
        let statistics = &leaf.probes.statistics;
        let own = || asked.iter().filter(|asked| !asked.is_gap());
        statistics.add_active(self.class, -signed(own().count()));
        leaf.end(own().map(|asked| asked.bytes).sum());
        if self.is_asking
            && let Some((_, read)) = asked
                .iter()
                .zip(&completions)
                .find(|(asked, _)| asked.kind == IoKind::Read)
        {
            leaf.gaps.note_read(read.service_ns);
        }
        self.asked_count += widen(own().count());
        let bytes_max = self.window.info().merged_bytes_max;
        for mut finished in merged(self.class, bytes_max, &asked, &completions) {
            finished.queue_ns += waited_ns;
            slowest.queue_ns = slowest.queue_ns.max(finished.queue_ns);
            slowest.device_ns = slowest.device_ns.max(finished.device_ns);
            leaf.probes.finish(&finished, operation);
        }
        for (asked, completion) in asked.iter().zip(completions) {
            let Some(index) = asked.index else { continue };
            assert!(outcomes[index].is_none(), "a request has one outcome");
            let is_slow = completion.service_ns >= SLOW_NS;
            if is_slow && matches!(asked.kind, IoKind::Read | IoKind::Write) {
                leaf.errors.count_slow();
                leaf.report(ReportKind::Slow {
                    request: self.reported(asked),
                    device_ns: completion.service_ns,
                });
            }
            outcomes[index] = Some(completion.result.map_err(|error| {
                let failure = leaf.device_failure(error.clone());
                if !failure.is_lease_expired() {
                    self.note_error(asked, &error);
                }
                failure
            }));
        }
    }

    /// Counts a request that failed, and reports it.
    fn note_error(&self, asked: &Asked, error: &DeviceError) {
        match asked.kind {
            IoKind::Read => self.leaf.errors.count_read(),
            IoKind::Write | IoKind::Flush => self.leaf.errors.count_write(),
            IoKind::Trim => {}
        }
        if matches!(asked.kind, IoKind::Read | IoKind::Write) {
            self.leaf.report(ReportKind::Io {
                request: self.reported(asked),
                errno: errno_of(error),
            });
        }
    }

    fn reported(&self, asked: &Asked) -> ReportedIo {
        ReportedIo {
            kind: asked.kind,
            priority: self.class,
            offset: asked.offset,
            bytes: asked.bytes,
            begun_ns: self.begun_ns,
        }
    }

    /// Reports the first read or write of a batch that the device does not answer.
    #[doc(alias = "zio_deadman")]
    fn report_hung(&self, asked: &[Asked], waited_ns: u64) {
        let mut own = asked.iter().filter(|asked| !asked.is_gap());
        let is_waited_for = |asked: &&Asked| matches!(asked.kind, IoKind::Read | IoKind::Write);
        if let Some(asked) = own.find(is_waited_for) {
            let request = self.reported(asked);
            self.leaf.report(ReportKind::Hung { request, waited_ns });
        }
    }

    /// Marks the leaf as unflushed, with the births of these writes.
    fn note_written(&self) {
        if let Some(births) = &self.births {
            self.leaf.note_written(births.clone());
        }
        self.leaf.set_unflushed(true);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.end_turn();
        if self.is_asking {
            self.leaf.gaps.end_asking(self.asked_count);
        }
    }
}

/// The request with its offset on the device.
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

fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("requests are counted in 63 bits")
}
