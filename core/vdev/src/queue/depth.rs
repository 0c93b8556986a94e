//! The depth of a device's queue, found from what the device does.
//!
//! # Problem
//! A disk with one arm does no more with thirty requests than with two, and each of them waits
//! fifteen times as long. An array or a flash device does ten times as much with thirty. No
//! constant is right for both, and an administrator does not know it either.
//!
//! # Mechanism
//! While more requests are wanted than the depth admits, the device's rate is measured in *epochs*:
//! at the present depth, then at half as much again, then at two thirds. A depth that brings
//! clearly more is taken; a smaller one that brings as much, too. Otherwise the depth stays, and is
//! tried again after some epochs. An epoch ends after a number of requests, not after a time, so
//! that slow devices are measured as well as fast ones; the first requests after a change of the
//! depth do not count. Epochs in which the device could have had more requests say nothing.
//!
//! The rate counts requests and bytes: a request as much as [`REQUEST_BYTES`].
//!
//! An administrator can set the depth instead (`queue_depth` of the vdev).
//!
//! # Invariants
//! - The depth is within [`DEPTH_MIN`]`..=`[`DEPTH_MAX`].

use crate::ranks;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tarn_host::lock::Mutex;

/// The smallest depth: the device has the next request when one has finished.
pub(crate) const DEPTH_MIN: u32 = 2;
/// The largest depth.
pub(crate) const DEPTH_MAX: u32 = 127;
/// Before anything is known of a device. As many requests as OpenZFS gives to a class.
const DEPTH_FIRST: u32 = 10;

/// What a request counts beside its bytes.
const REQUEST_BYTES: u64 = 64 << 10;

/// A larger depth is taken if the rate is at least so many hundredths of that before.
const GAIN_PERCENT: u64 = 105;
/// A smaller depth is taken if the rate is at least so many hundredths of that before.
const KEEP_PERCENT: u64 = 99;

/// How many requests an epoch has: so many times the depth, and at least so many.
const EPOCH_DEPTHS: u64 = 24;
const EPOCH_REQUESTS_MIN: u64 = 96;

/// After so many epochs at one depth others are tried again.
const EPOCHS_SETTLED: u32 = 16;

/// What the present epoch measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// The depth that was found.
    Present,
    /// A larger one.
    Larger,
    /// A smaller one.
    Smaller,
}

#[derive(Debug)]
struct Epoch {
    trial: Trial,
    /// The depth that was found.
    found: u32,
    /// The rates at the depth that was found, and at the larger one.
    present_rate: u64,
    larger_rate: u64,
    /// Epochs at the depth that was found until others are tried.
    rests: u32,
    began_ns: u64,
}

/// The depth of one device.
#[derive(Debug)]
pub(crate) struct Depth {
    /// What an administrator has set; zero for none.
    fixed: AtomicU32,
    current: AtomicU32,
    /// Requests and units that finished since the epoch began.
    requests: AtomicU64,
    units: AtomicU64,
    /// Requests that are still to finish before the epoch begins.
    warming_up: AtomicU64,
    /// How often a request found no room in this epoch.
    refused: AtomicU64,
    epoch: Mutex<Epoch>,
}

impl Depth {
    pub(crate) fn new() -> Depth {
        Depth {
            fixed: AtomicU32::new(0),
            current: AtomicU32::new(DEPTH_FIRST),
            requests: AtomicU64::new(0),
            units: AtomicU64::new(0),
            warming_up: AtomicU64::new(u64::from(DEPTH_FIRST)),
            refused: AtomicU64::new(0),
            epoch: Mutex::new(
                ranks::ROOM,
                Epoch {
                    trial: Trial::Present,
                    found: DEPTH_FIRST,
                    present_rate: 0,
                    larger_rate: 0,
                    rests: 0,
                    began_ns: 0,
                },
            ),
        }
    }

    /// The depth now.
    pub(crate) fn get(&self) -> u32 {
        match self.fixed.load(Ordering::Relaxed) {
            0 => self.current.load(Ordering::Relaxed),
            fixed => fixed,
        }
    }

    /// The depth that an administrator has set.
    pub(crate) fn fixed(&self) -> Option<u32> {
        Some(self.fixed.load(Ordering::Relaxed)).filter(|fixed| *fixed != 0)
    }

    /// Sets the depth; none has it found. A depth out of bounds becomes the nearest.
    pub(crate) fn set(&self, fixed: Option<u32>) {
        let fixed = fixed.map_or(0, |fixed| fixed.clamp(DEPTH_MIN, DEPTH_MAX));
        self.fixed.store(fixed, Ordering::Relaxed);
    }

    /// Notes that more requests are wanted than the depth admits.
    pub(crate) fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes finished requests, and what they moved.
    pub(crate) fn note_finished(&self, requests: u64, bytes: u64) {
        if self.fixed.load(Ordering::Relaxed) != 0 {
            return;
        }
        let left = self.warming_up.load(Ordering::Relaxed);
        if left > 0 {
            let left = left.saturating_sub(requests);
            self.warming_up.store(left, Ordering::Relaxed);
            if left == 0
                && let Some(mut epoch) = self.epoch.try_lock()
            {
                self.begin_epoch(&mut epoch, 0);
            }
            return;
        }
        let units = requests * REQUEST_BYTES + bytes;
        self.units.fetch_add(units, Ordering::Relaxed);
        let done = self.requests.fetch_add(requests, Ordering::Relaxed) + requests;
        let depth = u64::from(self.current.load(Ordering::Relaxed));
        if done >= EPOCH_REQUESTS_MIN.max(EPOCH_DEPTHS * depth)
            && let Some(mut epoch) = self.epoch.try_lock()
        {
            self.end_epoch(&mut epoch);
        }
    }

    /// Begins an epoch, after so many requests that do not count.
    fn begin_epoch(&self, epoch: &mut Epoch, warming_up: u64) {
        epoch.began_ns = tarn_host::monotonic_ns();
        self.warming_up.store(warming_up, Ordering::Relaxed);
        self.requests.store(0, Ordering::Relaxed);
        self.units.store(0, Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
    }

    /// Judges an epoch, and begins the next.
    fn end_epoch(&self, epoch: &mut Epoch) {
        let now_ns = tarn_host::monotonic_ns();
        let micros = (now_ns.saturating_sub(epoch.began_ns) / 1000).max(1);
        let rate = self.units.load(Ordering::Relaxed) / micros;
        let is_full = self.refused.load(Ordering::Relaxed) > 0;
        let before = self.current.load(Ordering::Relaxed);
        let next = match is_full {
            true => epoch.judge(rate),
            // The device could have had more: what it did is no measure. It is measured anew.
            false => {
                epoch.trial = Trial::Present;
                epoch.found
            }
        };
        assert!(
            (DEPTH_MIN..=DEPTH_MAX).contains(&next),
            "a depth is within its bounds"
        );
        self.current.store(next, Ordering::Relaxed);
        let warming_up = match next == before {
            true => 0,
            false => u64::from(next.max(before)),
        };
        self.begin_epoch(epoch, warming_up);
    }
}

impl Epoch {
    /// Takes a rate of the device into account. Gives the depth of the next epoch.
    fn judge(&mut self, rate: u64) -> u32 {
        debug_assert!(
            self.trial == Trial::Present || self.rests == 0,
            "others are tried after all rests"
        );
        assert!(
            self.smaller() <= self.found && self.found <= self.larger(),
            "a smaller depth is tried below the one that was found, and a larger one above"
        );
        match self.trial {
            Trial::Present if self.rests > 0 => {
                self.rests -= 1;
                self.found
            }
            Trial::Present => {
                self.present_rate = rate;
                self.trial = Trial::Larger;
                self.larger()
            }
            Trial::Larger => {
                self.larger_rate = rate;
                if self.is_at_least(rate, GAIN_PERCENT) {
                    self.found = self.larger();
                    self.present_rate = rate;
                    return self.larger();
                }
                self.trial = Trial::Smaller;
                self.smaller()
            }
            Trial::Smaller => {
                self.trial = Trial::Present;
                match self.is_at_least(rate, KEEP_PERCENT) && self.found > DEPTH_MIN {
                    true => self.found = self.smaller(),
                    false => self.rests = EPOCHS_SETTLED,
                }
                self.found
            }
        }
    }

    fn is_at_least(&self, rate: u64, percent: u64) -> bool {
        rate.saturating_mul(100) >= self.present_rate.saturating_mul(percent)
    }

    /// The depth that is tried next above. At the largest it is the same.
    fn larger(&self) -> u32 {
        (self.found + self.found.div_ceil(2)).min(DEPTH_MAX)
    }

    fn smaller(&self) -> u32 {
        (self.found * 2 / 3).max(DEPTH_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a device judge epochs whose rate is this function of the depth.
    fn settle(rate: impl Fn(u32) -> u64) -> u32 {
        let depth = Depth::new();
        let mut epoch = depth.epoch.lock();
        let mut now = DEPTH_FIRST;
        for _ in 0..200 {
            now = epoch.judge(rate(now));
        }
        epoch.found
    }

    #[test]
    fn the_depth_follows_what_the_device_can_do_at_once() {
        // One arm: the rate does not depend on the depth.
        assert!(settle(|_| 1000) <= 3);
        // Each request adds as much.
        assert_eq!(settle(|depth| 100 * u64::from(depth)), DEPTH_MAX);
        // Ten arms, asked at random.
        let of_ten = |depth: u32| 100_000 * u64::from(depth) / u64::from(depth + 9);
        let found = settle(of_ten);
        assert!(of_ten(found) > 80_000, "{found}");
        assert!(found < DEPTH_MAX, "{found}");
    }

    #[test]
    fn an_administrator_sets_the_depth() {
        let depth = Depth::new();
        depth.set(Some(64));
        assert_eq!((depth.get(), depth.fixed()), (64, Some(64)));
        depth.set(Some(1));
        assert_eq!(depth.get(), DEPTH_MIN);
        depth.set(None);
        assert_eq!((depth.get(), depth.fixed()), (DEPTH_FIRST, None));
    }
}
