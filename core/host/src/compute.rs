//! Plain functions over a batch of items, on all processors.
//!
//! # Problem
//! Checksums, compression and parity of a txg are thousands of independent pieces of work. Starting
//! a thread for them costs more than many of the pieces, and so does waking one.
//!
//! # Mechanism
//! Workers, one fewer than processors, wait for work. [`Compute::map`] begins in the calling
//! thread, and measures: only when [`INLINE_NS`] have passed and items are left does it call for
//! help. Small batches never leave their thread, and callers need not estimate the cost of an item.
//! Helpers and caller then take items from one counter until there are none. A background thread
//! whose work has time ([`Pace`](crate::background::Pace)) does it alone.
//!
//! # Invariants
//! - `map` returns only after the last helper has left the batch, so items and results may borrow
//!   from the caller.
//! - The caller works too, so a `map` within a `map` always ends.
//! - In a simulation all is done by the caller, in order.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::background;
use crate::clock;
use crate::sim::baton;
use crate::waiting::about_to_wait;

/// How long the caller works alone. Waking a thread costs some 10 µs here; below twice that help
/// comes too late.
const INLINE_NS: u64 = 20_000;

/// Runs batches on all processors.
#[derive(Debug)]
pub struct Compute {
    shared: Arc<Shared>,
    helpers: usize,
    started: std::sync::Once,
}

#[derive(Debug)]
struct Shared {
    calls: Mutex<Calls>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct Calls {
    /// Calls for help, one entry a helper wanted.
    waiting: VecDeque<Call>,
    is_closed: bool,
}

/// A call for help with one batch, whose type the helper does not know.
#[derive(Clone, Copy)]
struct Call {
    batch: *const (),
    help: unsafe fn(*const ()),
    desk: *const Desk,
}

// SAFETY: `map` keeps the batch alive until all helpers have left it, and the batch is made for
// many threads.
unsafe impl Send for Call {}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Call")
    }
}

/// Where the helpers of a batch sign off.
#[derive(Default)]
struct Desk {
    helpers: Mutex<usize>,
    left: Condvar,
}

impl Compute {
    /// For a machine with that many processors.
    pub(crate) fn new(processors: usize) -> Compute {
        let shared = Shared {
            calls: Mutex::default(),
            work: Condvar::new(),
        };
        let helpers = processors.saturating_sub(1);
        Compute {
            shared: Arc::new(shared),
            helpers,
            started: std::sync::Once::new(),
        }
    }

    /// Applies `function` to every item, and gives the results in the order of the items.
    ///
    /// # Panics
    /// If `function` panics for an item, with its panic, after the items already begun are done.
    pub fn map<T: Send, R: Send>(&self, items: Vec<T>, function: impl Fn(T) -> R + Sync) -> Vec<R> {
        let batch = MapBatch::new(items, &function);
        if self.helpers == 0 || baton::current().is_some() || background::has_time() {
            batch.work(|_| true);
        } else {
            self.work_with_help(&batch);
        }
        batch.finish()
    }

    fn work_with_help<T: Send, R: Send, F: Fn(T) -> R + Sync>(
        &self,
        batch: &MapBatch<'_, T, R, F>,
    ) {
        let begun_ns = clock::real_monotonic_ns();
        let is_short = |_| clock::real_monotonic_ns() - begun_ns < INLINE_NS;
        batch.work(is_short);
        let left = batch.left();
        if left == 0 {
            return;
        }
        // Not a wait yet, but as long as one.
        about_to_wait();
        let desk = Desk::default();
        let call = Call {
            batch: (&raw const *batch).cast(),
            help: MapBatch::<T, R, F>::help,
            desk: &raw const desk,
        };
        // Whatever happens from here on, `desk` and `batch` stay until the last helper has left.
        let _until_left = UntilLeft {
            compute: self,
            call,
        };
        // With one item left the caller does it; a helper would only watch.
        self.call_for_help(call, self.helpers.min(left - 1));
        batch.work(|_| true);
    }

    fn call_for_help(&self, call: Call, helpers: usize) {
        self.started.call_once(|| self.start_helpers());
        let mut calls = self.shared.calls.lock();
        for _ in 0..helpers {
            calls.waiting.push_back(call);
        }
        drop(calls);
        for _ in 0..helpers {
            self.shared.work.notify_one();
        }
    }

    /// Without helpers, which may fail to start, the caller does all the work.
    fn start_helpers(&self) {
        for _ in 0..self.helpers {
            let shared = self.shared.clone();
            let name = "tarn-compute".to_owned();
            let help = move || {
                background::give_way();
                shared.help();
            };
            let _ = std::thread::Builder::new().name(name).spawn(help);
        }
    }
}

impl Drop for Compute {
    fn drop(&mut self) {
        self.shared.calls.lock().is_closed = true;
        self.shared.work.notify_all();
    }
}

/// Takes back calls that no helper has answered, and waits for the helpers that have.
struct UntilLeft<'a> {
    compute: &'a Compute,
    call: Call,
}

impl Drop for UntilLeft<'_> {
    fn drop(&mut self) {
        let is_other = |call: &Call| !std::ptr::eq(call.desk, self.call.desk);
        self.compute.shared.calls.lock().waiting.retain(is_other);
        // SAFETY: the desk outlives this guard, which was made after it.
        let desk = unsafe { &*self.call.desk };
        let mut helpers = desk.helpers.lock();
        desk.left.wait_while(&mut helpers, |helpers| *helpers > 0);
    }
}

impl Shared {
    /// The life of a helper.
    fn help(&self) {
        let mut calls = self.calls.lock();
        loop {
            if let Some(call) = calls.waiting.pop_front() {
                // SAFETY: the call is still listed, so `map` waits for the lock we hold, and then
                // for the desk.
                let desk = unsafe { &*call.desk };
                *desk.helpers.lock() += 1;
                drop(calls);
                // SAFETY: the batch lives until we sign off at the desk, and is of the type `help`
                // knows.
                unsafe { (call.help)(call.batch) };
                let mut helpers = desk.helpers.lock();
                *helpers -= 1;
                // Notified under the lock: as soon as it is released the desk may be gone.
                desk.left.notify_all();
                drop(helpers);
                calls = self.calls.lock();
            } else if calls.is_closed {
                return;
            } else {
                self.work.wait(&mut calls);
            }
        }
    }
}

/// The items and results of one `map`.
struct MapBatch<'f, T, R, F> {
    function: &'f F,
    items: Vec<UnsafeCell<Option<T>>>,
    results: Vec<UnsafeCell<Option<R>>>,
    next: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: each item and result is touched only by the thread that drew its number from `next`, and
// after all of them have signed off by the owner.
unsafe impl<T: Send, R: Send, F: Sync> Sync for MapBatch<'_, T, R, F> {}

impl<'f, T: Send, R: Send, F: Fn(T) -> R + Sync> MapBatch<'f, T, R, F> {
    fn new(items: Vec<T>, function: &'f F) -> Self {
        MapBatch {
            function,
            results: items.iter().map(|_| UnsafeCell::new(None)).collect(),
            items: items
                .into_iter()
                .map(|item| UnsafeCell::new(Some(item)))
                .collect(),
            next: AtomicUsize::new(0),
            panic: Mutex::new(None),
        }
    }

    /// How many items no thread has begun.
    fn left(&self) -> usize {
        self.items
            .len()
            .saturating_sub(self.next.load(Ordering::Relaxed))
    }

    /// Does items until there are none, or until `go_on` says no, which is asked after each.
    fn work(&self, go_on: impl Fn(()) -> bool) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let (Some(item), Some(result)) = (self.items.get(number), self.results.get(number))
            else {
                // Keep the counter from growing without end.
                self.next.store(self.items.len(), Ordering::Relaxed);
                return;
            };
            // SAFETY: `number` was drawn once, by us.
            let item = unsafe { (*item.get()).take() }.expect("an item is taken once");
            match catch_unwind(AssertUnwindSafe(|| (self.function)(item))) {
                // SAFETY: as above.
                Ok(value) => unsafe { *result.get() = Some(value) },
                Err(payload) => {
                    self.panic.lock().get_or_insert(payload);
                    self.next.store(self.items.len(), Ordering::Relaxed);
                    return;
                }
            }
            if !go_on(()) {
                return;
            }
            background::offer_turn();
        }
    }

    /// # Safety
    /// `batch` points to a living batch of exactly this type.
    unsafe fn help(batch: *const ()) {
        // SAFETY: promised by the caller.
        let batch = unsafe { &*batch.cast::<Self>() };
        batch.work(|()| true);
    }

    /// The results, after all other threads have finished.
    fn finish(self) -> Vec<R> {
        if let Some(payload) = self.panic.into_inner() {
            resume_unwind(payload);
        }
        let value = |cell: UnsafeCell<Option<R>>| cell.into_inner().expect("all items are done");
        self.results.into_iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough that help is called.
    fn slow_square(number: u64) -> u64 {
        let until = clock::real_monotonic_ns() + 3_000;
        while clock::real_monotonic_ns() < until {}
        number * number
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let compute = Compute::new(4);
        for count in [0, 1, 2, 500] {
            let items: Vec<u64> = (0..count).collect();
            let expected: Vec<u64> = items.iter().map(|n| n * n).collect();
            assert_eq!(compute.map(items, slow_square), expected);
        }
    }

    #[test]
    fn items_and_function_may_borrow_from_the_caller() {
        let compute = Compute::new(4);
        let words = ["one".to_owned(), "three".to_owned()];
        let extra = 10;
        let lengths = compute.map(words.iter().collect(), |word: &String| word.len() + extra);
        assert_eq!(lengths, [13, 15]);
    }

    #[test]
    fn a_map_within_a_map_ends() {
        let compute = Compute::new(3);
        let sums = compute.map((0..20).collect(), |outer: u64| {
            compute
                .map((0..20).collect(), |inner| slow_square(inner) + outer)
                .iter()
                .sum::<u64>()
        });
        assert_eq!(sums[1] - sums[0], 20);
    }

    #[test]
    fn a_panic_of_one_item_reaches_the_caller_and_no_other_item() {
        let compute = Compute::new(4);
        let work = || {
            compute.map((0..200).collect(), |n: u64| {
                assert!(n != 100, "item 100");
                slow_square(n)
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        assert_eq!(compute.map(vec![3], slow_square), [9]);
    }
}
