//! How much memory an input takes: an allocator that counts.
//!
//! # Mechanism
//! Everything is handed on to the system's allocator, and the bytes that live are counted, with the
//! most there were since the last look. Beyond a limit that no decoder needs nothing is given any
//! more, which ends the process, and the supervisor finds the input that did it. What libraries in
//! C allocate is not counted; the process as a whole has a limit too.
//!
//! # Why unsafe
//! An allocator is `unsafe` to implement: here each call is handed on as it came.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// No process may have more: 1 GiB.
const LIVE_BYTES_MAX: usize = 1 << 30;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The allocator of this program.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts bytes that are to be given; false where that is too much.
fn count(bytes: usize) -> bool {
    let live = LIVE
        .fetch_add(bytes, Ordering::Relaxed)
        .saturating_add(bytes);
    if live > LIVE_BYTES_MAX {
        LIVE.fetch_sub(bytes, Ordering::Relaxed);
        return false;
    }
    MOST.fetch_max(live, Ordering::Relaxed);
    true
}

// SAFETY: every block comes from `System` and goes back to it with the layout it came with;
// counting touches no block.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match count(layout.size()) {
            // SAFETY: the caller keeps the rules of `alloc`, which are those of `System`.
            true => unsafe { System.alloc(layout) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match count(layout.size()) {
            // SAFETY: the caller keeps the rules of `alloc_zeroed`, which are those of `System`.
            true => unsafe { System.alloc_zeroed(layout) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the block came from `System` with this layout.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old block and the new one live side by side while one is copied into the other.
        if !count(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the block came from `System` with this layout, and the caller keeps the rules for
        // the size.
        let moved = unsafe { System.realloc(block, layout, size) };
        let gone = if moved.is_null() { size } else { layout.size() };
        LIVE.fetch_sub(gone, Ordering::Relaxed);
        moved
    }
}

/// Runs something, and tells the most memory there was at once beyond what there was before.
pub fn measure<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = run();
    let most = MOST.load(Ordering::Relaxed);
    (result, most.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_given_back_was_taken() {
        let (_, taken) = measure(|| drop(std::hint::black_box(vec![1_u8; 5 << 20])));
        assert!(taken >= 5 << 20);
    }
}
