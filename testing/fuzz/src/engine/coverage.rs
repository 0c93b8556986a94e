//! What the watched code did: the other end of SanitizerCoverage.
//!
//! # Mechanism
//! The compiler gives each edge of the watched code a byte that counts how often it is taken, and
//! puts all of these bytes into one section of the program. Before `main` the program tells where
//! they are ([`__sanitizer_cov_8bit_counters_init`]). At each comparison of numbers it calls one of
//! the functions here with both sides; what was compared is remembered, a few hundred pairs of it,
//! so that one side can be put in place of the other in the input.
//!
//! Counts are taken by their magnitude: an edge and one of eight classes of counts are a *feature*.
//!
//! # Invariants
//! - Built without the pass there are no counters, and nothing is called; the search is then blind,
//!   and [`counter_count`] says so.
//! - One thread runs watched code. The watchdog's runs none.
//!
//! # Why unsafe
//! The counters lie in a section of the program that only the linker knows; and functions that are
//! called by name are `no_mangle`.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// How many pairs are remembered: enough for the comparisons of one input. A power of two.
const PAIRS: usize = 512;
/// So many cases of a `match` are remembered.
const CASES_MAX: usize = 24;

static START: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);
static IS_LISTENING: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static COMPARED: [[AtomicU64; 3]; PAIRS] =
    [const { [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)] }; PAIRS];

/// Two numbers that were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// How many bytes they have: 1, 2, 4 or 8.
    pub size: usize,
    /// Both sides.
    pub sides: [u64; 2],
}

/// How many counters there are; none in a program that is not watched.
pub fn counter_count() -> usize {
    LENGTH.load(Ordering::Relaxed)
}

/// Takes the features since the last time, sets all counters to zero, and calls `see` with each.
pub fn take_features(mut see: impl FnMut(u32)) {
    let (start, length) = (START.load(Ordering::Relaxed), counter_count());
    if start.is_null() {
        return;
    }
    // SAFETY: the linker's section of counters is `length` bytes from `start`, lives as long as the
    // program, and is written by watched code only, none of which runs while this function does.
    let counters = unsafe { std::slice::from_raw_parts_mut(start, length) };
    let mut place = 0_u32;
    let (words, rest) = counters.as_chunks_mut::<8>();
    for word in words {
        if *word != [0; 8] {
            for count in word.iter_mut() {
                if *count != 0 {
                    see(place * 8 + class(*count));
                    *count = 0;
                }
                place += 1;
            }
        } else {
            place += 8;
        }
    }
    for count in rest {
        if *count != 0 {
            see(place * 8 + class(*count));
            *count = 0;
        }
        place += 1;
    }
}

/// 1, 2, 3, 4, 8, 16, 32 and 128 times begin a class.
fn class(count: u8) -> u32 {
    match count {
        0..=3 => u32::from(count.saturating_sub(1)),
        4..=7 => 3,
        8..=15 => 4,
        16..=31 => 5,
        32..=127 => 6,
        128.. => 7,
    }
}

/// From now on what is compared is remembered, or not.
pub fn listen(is_listening: bool) {
    IS_LISTENING.store(is_listening, Ordering::Relaxed);
    if is_listening {
        NEXT.store(0, Ordering::Relaxed);
    }
}

/// What was compared since it was listened to: the last of it.
pub fn compared() -> Vec<Pair> {
    let count = NEXT.load(Ordering::Relaxed).min(PAIRS);
    let pairs = COMPARED.iter().take(count).map(|pair| {
        let [size, first, second] = [0, 1, 2].map(|part| pair[part].load(Ordering::Relaxed));
        Pair {
            size: usize::try_from(size).unwrap_or(8),
            sides: [first, second],
        }
    });
    pairs.collect()
}

fn remember(size: u64, first: u64, second: u64) {
    if first == second || !IS_LISTENING.load(Ordering::Relaxed) {
        return;
    }
    let place = NEXT.load(Ordering::Relaxed);
    NEXT.store(place.wrapping_add(1), Ordering::Relaxed);
    let pair = &COMPARED[place % PAIRS];
    pair[0].store(size, Ordering::Relaxed);
    pair[1].store(first, Ordering::Relaxed);
    pair[2].store(second, Ordering::Relaxed);
}

/// Called before `main`, once or more for each part of the program that is watched, each time with
/// all counters.
// SAFETY: no other function of the program has this name.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    START.store(start, Ordering::Relaxed);
    LENGTH.store(stop.addr() - start.addr(), Ordering::Relaxed);
}

/// Functions that are called with both sides of a comparison.
macro_rules! comparisons {
    ($($name:ident: $number:ty, $constant:ident;)*) => {$(
        // SAFETY: no other function of the program has this name.
        #[unsafe(no_mangle)]
        extern "C" fn $name(first: $number, second: $number) {
            remember(u64::from(<$number>::BITS / 8), u64::from(first), u64::from(second));
        }

        // SAFETY: no other function of the program has this name.
        #[unsafe(no_mangle)]
        extern "C" fn $constant(first: $number, second: $number) {
            remember(u64::from(<$number>::BITS / 8), u64::from(first), u64::from(second));
        }
    )*};
}

comparisons! {
    __sanitizer_cov_trace_cmp1: u8, __sanitizer_cov_trace_const_cmp1;
    __sanitizer_cov_trace_cmp2: u16, __sanitizer_cov_trace_const_cmp2;
    __sanitizer_cov_trace_cmp4: u32, __sanitizer_cov_trace_const_cmp4;
    __sanitizer_cov_trace_cmp8: u64, __sanitizer_cov_trace_const_cmp8;
}

/// Called at a `match` with its number, and a table: how many cases, how many bits, then the cases.
// SAFETY: no other function of the program has this name.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_switch(number: u64, table: *const u64) {
    if !IS_LISTENING.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the compiler passes a table whose first word says how many words follow the second.
    let cases = unsafe {
        let count = usize::try_from(table.read()).unwrap_or(0);
        std::slice::from_raw_parts(table, count + 2)
    };
    let [_, bits, cases @ ..] = cases else { return };
    for case in cases.iter().take(CASES_MAX) {
        remember(bits.div_ceil(8).next_power_of_two().min(8), number, *case);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compared_while_it_is_listened_to_is_remembered() {
        remember(4, 1, 2);
        listen(true);
        remember(4, 3, 4);
        remember(4, 5, 5);
        let table = [2, 16, 7, 8];
        __sanitizer_cov_trace_switch(7, table.as_ptr());
        listen(false);
        remember(4, 9, 10);
        let pair = |size, first, second| Pair {
            size,
            sides: [first, second],
        };
        assert_eq!(compared(), [pair(4, 3, 4), pair(2, 7, 8)]);
    }

    #[test]
    fn counts_fall_into_eight_classes() {
        let mut classes: Vec<u32> = (1..=u8::MAX).map(class).collect();
        assert!(classes.is_sorted());
        classes.dedup();
        assert_eq!(classes, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
