//! Aggregates: neighbours on a device's surface are one request of its queue.
//!
//! # Mechanism
//! Requests come sorted. One that begins where the last ends joins it, while the aggregate is not
//! larger than the device takes in one call; reads also where the gap between them is small, which
//! is read as well and thrown away: it costs less than moving there anew. `host` makes one call of
//! what lies side by side.
//!
//! # Invariants
//! - Every request is in one aggregate, and writes are joined only where nothing lies between them.

use super::classes::Limits;
use crate::leaf::Window;
use tarn_host::{Completion, Request};
use tarn_ondisk::declare::{narrow, widen};
use tarn_probe::{FinishedIo, IoKind, IoPriority};

/// A request as the caller made it, as far as its completion needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// Its place in the outcomes; none for a gap between reads.
    pub index: Option<usize>,
    pub kind: IoKind,
    pub offset: u64,
    pub bytes: u64,
}

impl Asked {
    pub(super) fn new(index: Option<usize>, request: &Request) -> Asked {
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

    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// Whether the request only fills a gap between two reads.
    pub(super) fn is_gap(&self) -> bool {
        self.index.is_none()
    }
}

/// Neighbouring requests that count as one.
pub(super) struct Aggregate {
    /// In the order of the surface, with gaps between reads.
    pub requests: Vec<(Asked, Request)>,
    kind: IoKind,
    start: u64,
    end: u64,
}

impl Aggregate {
    fn new(asked: Asked, request: Request) -> Aggregate {
        Aggregate {
            requests: vec![(asked, request)],
            kind: asked.kind,
            start: asked.offset,
            end: asked.end(),
        }
    }

    /// A read whose bytes are thrown away.
    pub(super) fn of_gap(offset: u64, bytes: u64) -> Aggregate {
        let gap = Request::read(offset, narrow(bytes));
        Aggregate::new(Asked::new(None, &gap), gap)
    }

    /// Where it begins.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Where it ends.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// How many requests were asked for.
    pub(super) fn asked_count(&self) -> usize {
        self.requests
            .iter()
            .filter(|(asked, _)| !asked.is_gap())
            .count()
    }

    /// The part with the first request and those that end within so many bytes, and the rest.
    pub(super) fn cut(mut self, bytes_max: u64) -> (Aggregate, Option<Aggregate>) {
        let end_max = self.start.saturating_add(bytes_max);
        let mut count = self
            .requests
            .iter()
            .take_while(|(asked, _)| asked.end() <= end_max)
            .count()
            .max(1);
        // A gap before the rest is not read.
        let is_gap = |count: usize| self.requests[count - 1].0.is_gap();
        while count > 1 && is_gap(count) {
            count -= 1;
        }
        let mut rest = self.requests.split_off(count);
        let gaps = rest.iter().take_while(|(asked, _)| asked.is_gap()).count();
        rest.drain(..gaps);
        let last = self.requests.last().map(|(asked, _)| asked.end());
        let end = std::mem::replace(&mut self.end, last.expect("it has a request"));
        let start = rest.first().map(|(asked, _)| asked.offset);
        let rest = start.map(|start| Aggregate {
            requests: rest,
            kind: self.kind,
            start,
            end,
        });
        (self, rest)
    }

    /// The gap in front of a request that can join, in bytes.
    fn gap_before(&self, asked: &Asked, bytes_max: u64, read_gap_max: u64) -> Option<u64> {
        let gap_max = match self.kind {
            IoKind::Read => read_gap_max,
            IoKind::Write => 0,
            IoKind::Flush | IoKind::Trim => return None,
        };
        let gap = asked.offset.checked_sub(self.end)?;
        let fits = asked.end() - self.start <= bytes_max;
        (asked.kind == self.kind && fits && gap <= gap_max).then_some(gap)
    }

    fn join(&mut self, gap: u64, asked: Asked, request: Request) {
        assert!(
            gap == 0 || self.kind == IoKind::Read,
            "writes are joined only where nothing lies between them"
        );
        assert_eq!(
            asked.offset,
            self.end + gap,
            "a request joins where the aggregate ends"
        );
        if gap > 0 {
            let gap = Request::read(self.end, narrow(gap));
            self.requests.push((Asked::new(None, &gap), gap));
        }
        self.end = asked.end();
        self.requests.push((asked, request));
    }
}

/// The aggregates of requests that are sorted by their offsets.
pub(super) fn of_sorted(
    requests: Vec<(Asked, Request)>,
    window: &Window,
    limits: &Limits,
) -> Vec<Aggregate> {
    let bytes_max = window.info().merged_bytes_max;
    aggregate(requests, bytes_max, limits.read_gap_bytes_max)
}

fn aggregate(requests: Vec<(Asked, Request)>, bytes_max: u64, read_gap_max: u64) -> Vec<Aggregate> {
    let count = requests.len();
    let mut aggregates: Vec<Aggregate> = Vec::new();
    for (asked, request) in requests {
        let last = aggregates.last_mut();
        let joined = last.and_then(|last| {
            let gap = last.gap_before(&asked, bytes_max, read_gap_max)?;
            Some((last, gap))
        });
        match joined {
            Some((last, gap)) => last.join(gap, asked, request),
            None => aggregates.push(Aggregate::new(asked, request)),
        }
    }
    debug_assert_eq!(
        aggregates.iter().map(Aggregate::asked_count).sum::<usize>(),
        count,
        "every request is in one aggregate"
    );
    aggregates
}

/// The finished requests as `zpool iostat -r` counts them: neighbours as the one request that the
/// device saw.
pub(super) fn merged(
    class: IoPriority,
    bytes_max: u64,
    asked: &[Asked],
    completions: &[Completion],
) -> Vec<FinishedIo> {
    let mut finished: Vec<FinishedIo> = Vec::new();
    let mut last_end = None;
    let all = asked.iter().zip(completions);
    for (asked, completion) in all.filter(|(asked, _)| !asked.is_gap()) {
        let has_failed = completion.result.is_err();
        match finished.last_mut() {
            Some(run)
                if last_end == Some(asked.offset)
                    && run.kind == asked.kind
                    && asked.kind != IoKind::Flush
                    && run.bytes + asked.bytes <= bytes_max =>
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
                offset: asked.offset,
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

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::Buffer;

    fn read(index: usize, offset: u64, bytes: usize) -> (Asked, Request) {
        let request = Request::read(offset, bytes);
        (Asked::new(Some(index), &request), request)
    }

    fn write(index: usize, offset: u64, bytes: usize) -> (Asked, Request) {
        let request = Request::write(offset, Buffer::zeroed(bytes));
        (Asked::new(Some(index), &request), request)
    }

    /// Start, end and number of requests, with those that fill gaps.
    fn shapes(requests: Vec<(Asked, Request)>) -> Vec<(u64, u64, usize)> {
        let aggregates = aggregate(requests, 16384, 4096);
        let shape = |one: &Aggregate| (one.start, one.end, one.requests.len());
        for one in &aggregates {
            let mut at = one.start;
            for (_, request) in &one.requests {
                let asked = Asked::new(None, request);
                assert_eq!(asked.offset, at, "nothing is left out");
                at = asked.end();
            }
            assert_eq!(at, one.end);
        }
        aggregates.iter().map(shape).collect()
    }

    #[test]
    fn neighbours_are_joined_up_to_the_limit() {
        let four = (0..6).map(|index| read(narrow(index), index * 4096, 4096));
        assert_eq!(shapes(four.collect()), [(0, 16384, 4), (16384, 24576, 2)]);
        let large = vec![read(0, 0, 32768), read(1, 32768, 512)];
        assert_eq!(shapes(large), [(0, 32768, 1), (32768, 33280, 1)]);
    }

    #[test]
    fn an_aggregate_is_cut_between_its_requests() {
        let four = vec![
            read(0, 0, 4096),
            read(1, 4096, 4096),
            read(2, 12288, 4096),
            read(3, 16384, 512),
        ];
        let whole = || {
            let mut all = aggregate(four_of(&four), 1 << 20, 4096);
            all.pop().unwrap()
        };
        let shape = |one: &Aggregate| (one.start, one.end, one.requests.len());
        let cut = |bytes_max| {
            let (first, rest) = whole().cut(bytes_max);
            (shape(&first), rest.as_ref().map(shape))
        };
        assert_eq!(cut(0), ((0, 4096, 1), Some((4096, 16896, 4))));
        assert_eq!(cut(8192), ((0, 8192, 2), Some((12288, 16896, 2))));
        assert_eq!(cut(12288), ((0, 8192, 2), Some((12288, 16896, 2))));
        assert_eq!(cut(16384), ((0, 16384, 4), Some((16384, 16896, 1))));
        assert_eq!(cut(1 << 20), ((0, 16896, 5), None));
    }

    /// The same reads once more.
    fn four_of(reads: &[(Asked, Request)]) -> Vec<(Asked, Request)> {
        let again = reads.iter().enumerate();
        again
            .map(|(index, (asked, _))| read(index, asked.offset, narrow(asked.bytes)))
            .collect()
    }

    #[test]
    fn small_gaps_are_read_and_never_written() {
        let near = |one: fn(usize, u64, usize) -> (Asked, Request)| {
            vec![one(0, 0, 4096), one(1, 8192, 4096), one(2, 20480, 4096)]
        };
        let far = (20480, 24576, 1);
        assert_eq!(shapes(near(read)), [(0, 12288, 3), far]);
        assert_eq!(shapes(near(write)), [(0, 4096, 1), (8192, 12288, 1), far]);
        let mixed = vec![read(0, 0, 4096), write(1, 4096, 4096)];
        assert_eq!(shapes(mixed).len(), 2);
        // Two readers of one place.
        assert_eq!(shapes(vec![read(0, 0, 4096), read(1, 0, 4096)]).len(), 2);
    }
}
