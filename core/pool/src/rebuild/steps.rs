//! The steps of a rebuild that are under way: a few threads copy them.
//!
//! # Mechanism
//! Each step is read as one batch, and then written as one. While one thread writes, another one
//! reads, and the requests of a third wait at the source already: an arm goes on from step to step
//! without a stop. Steps end in any order; what lies before the first one that has not ended is
//! copied.
//!
//! # Invariants
//! - At most [`THREADS`] steps are under way: that bounds the memory.
//! - A step is under way until its outcome was handed over.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_host::{Host, JoinHandle, background};
use tarn_vdev::copy_ranges::Copied;

/// The steps of one rebuild.
const STEPS: Rank = Rank::new(tarn_host::ranks::POOL + 50, "steps of a rebuild");

/// One reads, one waits behind it, one writes.
#[doc(alias = "zfs_rebuild_vdev_limit")]
const THREADS: usize = 3;

/// The pieces of a step: ranges of a top-level vdev in the order of their offsets.
type Pieces = Vec<Range<u64>>;

/// A step that has ended.
pub(crate) struct Ended {
    pub(crate) pieces: Pieces,
    /// None where no device is to be filled any more.
    pub(crate) copied: Option<Copied>,
}

/// Steps under way. The threads end when it is dropped.
pub(crate) struct Steps {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// No thread has these yet.
    waiting: VecDeque<Pieces>,
    /// The offset at which each begins that is under way.
    under_way: BTreeSet<u64>,
    ended: Vec<Ended>,
    /// Threads are to end.
    is_over: bool,
}

impl Steps {
    /// Starts the threads, which have the name of the rebuild and a number.
    pub(crate) fn begin(
        host: &Host,
        name: &str,
        copy: impl Fn(&[Range<u64>]) -> Option<Copied> + Send + Sync + 'static,
    ) -> Steps {
        let shared = Arc::new(Shared {
            state: Mutex::new(STEPS, State::default()),
            changed: Condvar::new(),
        });
        let copy = Arc::new(copy);
        let start = |number: usize| {
            let (copy, shared) = (copy.clone(), shared.clone());
            let work = move || shared.copy_steps(&*copy);
            host.spawn_background(&format!("{name}-{number}"), work)
        };
        let threads = (0..THREADS).map(start).collect();
        Steps { shared, threads }
    }

    /// Begins a step that lies behind all others, once there is room for it. Gives those that have
    /// ended meanwhile.
    pub(crate) fn begin_one(&self, pieces: Pieces) -> Vec<Ended> {
        let start = pieces.first().expect("a step has pieces").start;
        let mut state = self.shared.state.lock();
        self.shared.changed.wait_while(&mut state, |state| {
            state.under_way.len() - state.ended.len() >= THREADS
        });
        let ended = state.hand_over();
        assert!(
            state.under_way.last().is_none_or(|last| *last < start),
            "steps begin in the order of their offsets"
        );
        state.under_way.insert(start);
        state.waiting.push_back(pieces);
        drop(state);
        self.shared.changed.notify_all();
        ended
    }

    /// Waits until none is under way.
    pub(crate) fn wait(&self) -> Vec<Ended> {
        let mut state = self.shared.state.lock();
        self.shared.changed.wait_while(&mut state, |state| {
            state.under_way.len() > state.ended.len()
        });
        state.hand_over()
    }

    /// Where the first one begins whose outcome was not handed over.
    pub(crate) fn first_under_way(&self) -> Option<u64> {
        self.shared.state.lock().under_way.first().copied()
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of it is the panic of the process; in a simulation, the loss of power.
            drop(thread.join());
        }
    }
}

impl State {
    fn hand_over(&mut self) -> Vec<Ended> {
        let mut ended = std::mem::take(&mut self.ended);
        for step in &ended {
            let start = step.pieces.first().map(|piece| piece.start);
            let was_there = start.is_some_and(|start| self.under_way.remove(&start));
            assert!(was_there, "a step is handed over once");
        }
        ended.sort_by_key(|step| step.pieces.first().map(|piece| piece.start));
        ended
    }
}

impl Shared {
    fn copy_steps(&self, copy: &dyn Fn(&[Range<u64>]) -> Option<Copied>) {
        // It has its own rate: the sync thread's does not count.
        background::keep_pace(None);
        while let Some(pieces) = self.next() {
            let copied = copy(&pieces);
            self.state.lock().ended.push(Ended { pieces, copied });
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Pieces> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(pieces) = state.waiting.pop_front() {
                return Some(pieces);
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::sim::{SimHost, SimOptions};

    /// Steps of any duration: all are handed over once, and none is passed by what was copied.
    #[test]
    fn steps_end_in_any_order_and_the_first_under_way_is_known() {
        for seed in 0..20 {
            let machine = SimHost::new(SimOptions {
                switch_one_in: 2,
                stall_one_in: 3,
                ..SimOptions::seed(seed)
            });
            let run = machine.run(|host| {
                let steps = Steps::begin(host, "rebuild", |pieces| {
                    let read_bytes = pieces[0].end - pieces[0].start;
                    Some(Copied {
                        read_bytes,
                        ..Copied::default()
                    })
                });
                let (mut ended, mut bytes) = (Vec::new(), 0);
                for start in 0..40 {
                    let handed =
                        steps.begin_one(std::iter::once(start * 10..start * 10 + 4).collect());
                    ended.extend(handed);
                    let first = steps.first_under_way().expect("one was just begun");
                    let count = ended
                        .iter()
                        .filter(|step: &&Ended| step.pieces[0].start < first);
                    assert_eq!(u64::try_from(count.count()).unwrap(), first / 10);
                }
                ended.extend(steps.wait());
                assert_eq!(steps.first_under_way(), None);
                for step in &ended {
                    bytes += step.copied.as_ref().unwrap().read_bytes;
                }
                (ended.len(), bytes)
            });
            assert_eq!(run.unwrap(), (40, 160));
        }
    }
}
