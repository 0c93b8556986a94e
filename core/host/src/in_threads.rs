//! Blocking work on many items, in several threads.
//!
//! [`Compute`](crate::compute::Compute) is for what keeps a processor busy. Here the system or a
//! device is waited for, so more threads than processors make sense; they are made for the call,
//! and end with it.

use crate::lock;
use crate::waiting::about_to_wait;
use parking_lot::Mutex;

/// Applies `function` to every item, in up to `threads_max` threads of which the caller is one, and
/// gives the results in the order of the items.
///
/// # Panics
/// If `function` panics for an item, after the items already begun are done.
pub(crate) fn map<T: Send, R: Send>(
    items: Vec<T>,
    threads_max: usize,
    function: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    lock::check_wait("other threads");
    let threads = threads_max.min(items.len());
    if threads < 2 {
        return items.into_iter().map(function).collect();
    }
    about_to_wait();
    let count = items.len();
    let left = Mutex::new(items.into_iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(count));
    let work = || {
        loop {
            let Some((number, item)) = left.lock().next() else {
                return;
            };
            let result = function(item);
            done.lock().push((number, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let builder = std::thread::Builder::new().name("tarn-parallel".to_string());
            // Where the system has no more threads, those that there are do it.
            drop(builder.spawn_scoped(scope, work));
        }
        work();
    });
    let mut done = done.into_inner();
    assert_eq!(done.len(), count, "each item has its result");
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn items_that_wait_for_each_other_are_done_and_results_are_in_order() {
        let all_are_there = Barrier::new(4);
        let doubled = map(vec![1, 2, 3, 4], 4, |item| {
            all_are_there.wait();
            item * 2
        });
        assert_eq!(doubled, [2, 4, 6, 8]);
        assert_eq!(map(Vec::<u8>::new(), 4, |item| item), []);
        assert_eq!(
            map((0..1000).collect(), 3, |item| item),
            (0..1000).collect::<Vec<u32>>()
        );
    }
}
