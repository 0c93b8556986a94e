//! Room of a device: how many requests of each I/O class it has, and the calls that wait for fewer.
//!
//! # Mechanism
//! The counts of all classes are in one word, so that taking room is one atomic exchange without a
//! lock. When there is none, the caller waits until requests come back. A caller that has requests
//! at any device never waits here: it waits for those instead, so that no two callers wait for each
//! other.
//!
//! # Invariants
//! - A limited class has no more requests at the device than its most.
//! - All limited classes together have no more than the depth, but for requests within their least.

use super::classes::{ClassLimits, Limits};
use crate::ranks;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tarn_host::lock::{Condvar, Mutex};
use tarn_probe::IoPriority;

/// Bits of a class's count.
const COUNT_BITS: usize = 7;
/// No class has more requests at a device.
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
const _: () = assert!(COUNT_BITS * IoPriority::COUNT <= 64);

/// The room of one device.
#[derive(Debug)]
pub(crate) struct Room {
    /// The counts of all classes, each in its bits.
    active: AtomicU64,
    waiting: AtomicUsize,
    turn: Mutex<()>,
    freed: Condvar,
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy)]
struct Active(u64);

impl Active {
    fn of(self, class: usize) -> u32 {
        let count = self.0 >> (class * COUNT_BITS) & u64::from(COUNT_MAX);
        u32::try_from(count).expect("a count has seven bits")
    }

    /// How many requests of limited classes there are.
    fn total(self, limits: &Limits) -> u32 {
        let limited = limits.classes.iter().enumerate();
        let limited = limited.filter(|(_, limits)| limits.is_some());
        limited.map(|(class, _)| self.of(class)).sum()
    }

    /// How many more of a class there is room for.
    fn room(self, limits: &Limits, class: usize) -> u32 {
        let Some(ClassLimits { least, most }) = limits.classes[class] else {
            return COUNT_MAX;
        };
        let own = self.of(class);
        let in_depth = limits.depth.saturating_sub(self.total(limits));
        let most = most.min(COUNT_MAX);
        in_depth
            .max(least.saturating_sub(own))
            .min(most.saturating_sub(own))
    }
}

/// What a class takes of a device's room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The class has no limits at this device: room for all requests.
    All,
    /// Room for so many, at least one. The caller [gives it back](Room::give_back).
    Some(u32),
    /// There is no room now.
    None,
}

impl Room {
    /// Of a device that has no requests.
    pub(crate) fn new() -> Room {
        Room {
            active: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            turn: Mutex::new(ranks::ROOM, ()),
            freed: Condvar::new(),
        }
    }

    /// Whether the depth, and not the most of a class, is what keeps requests waiting.
    pub(crate) fn is_full(&self, limits: &Limits) -> bool {
        Active(self.active.load(Ordering::Relaxed)).total(limits) >= limits.depth
    }

    /// Whether the device has requests of a class.
    pub(crate) fn has_any(&self, class: IoPriority) -> bool {
        Active(self.active.load(Ordering::SeqCst)).of(class.index()) > 0
    }

    /// Takes room for as many of `wanted` requests as there is.
    pub(crate) fn take(&self, limits: &Limits, class: IoPriority, wanted: usize) -> Taken {
        let class = class.index();
        if limits.classes[class].is_none() {
            return Taken::All;
        }
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let mut before = self.active.load(Ordering::SeqCst);
        loop {
            let taken = Active(before).room(limits, class).min(wanted);
            debug_assert!(
                taken == 0
                    || limits.classes[class].is_some_and(|own| {
                        Active(before).of(class) + taken <= own.most.max(own.least)
                    }),
                "a class has no more than its most"
            );
            if taken == 0 {
                return Taken::None;
            }
            let after = before + (u64::from(taken) << (class * COUNT_BITS));
            debug_assert_eq!(
                Active(after).of(class),
                Active(before).of(class) + taken,
                "the count of a class stays within its bits"
            );
            match self.active.compare_exchange_weak(
                before,
                after,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return Taken::Some(taken),
                Err(now) => before = now,
            }
        }
    }

    /// Waits for room and takes it for as many of `wanted` as there is. The caller has no requests
    /// at any device.
    pub(crate) fn wait(&self, limits: &Limits, class: IoPriority, wanted: usize) -> Taken {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut turn = self.turn.lock();
        let taken = loop {
            match self.take(limits, class, wanted) {
                Taken::None => self.freed.wait(&mut turn),
                taken => break taken,
            }
        };
        drop(turn);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        taken
    }

    /// So many requests of a class have come back.
    pub(crate) fn give_back(&self, class: IoPriority, count: u32) {
        let index = class.index();
        let before = self
            .active
            .fetch_sub(u64::from(count) << (index * COUNT_BITS), Ordering::SeqCst);
        assert!(
            Active(before).of(index) >= count,
            "what comes back was at the device"
        );
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // A call that found no room holds the lock or waits at `freed`: notify after it does
            // the latter.
            drop(self.turn.lock());
            self.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// The first three classes, of a device that takes few.
    fn limits(depth: u32) -> Limits {
        let mut classes = [None; IoPriority::COUNT];
        let limited = |least, most| Some(ClassLimits { least, most });
        classes[IoPriority::SyncRead.index()] = limited(2, 4);
        classes[IoPriority::SyncWrite.index()] = limited(1, 4);
        classes[IoPriority::Scrub.index()] = limited(1, 3);
        Limits {
            classes,
            depth,
            read_gap_bytes_max: 0,
        }
    }

    #[test]
    fn a_class_gets_its_most_while_there_is_room_and_its_least_always() {
        let (room, limits) = (Room::new(), limits(5));
        assert_eq!(room.take(&limits, IoPriority::AsyncRead, 100), Taken::All);
        assert_eq!(room.take(&limits, IoPriority::Scrub, 100), Taken::Some(3));
        assert_eq!(room.take(&limits, IoPriority::Scrub, 1), Taken::None);
        assert_eq!(room.take(&limits, IoPriority::SyncRead, 9), Taken::Some(2));
        assert!(room.is_full(&limits));
        assert_eq!(room.take(&limits, IoPriority::SyncRead, 9), Taken::None);
        // Beyond the depth, but within its least.
        assert_eq!(room.take(&limits, IoPriority::SyncWrite, 9), Taken::Some(1));
        room.give_back(IoPriority::Scrub, 3);
        assert_eq!(room.take(&limits, IoPriority::SyncRead, 9), Taken::Some(2));
        assert_eq!(room.take(&limits, IoPriority::SyncRead, 9), Taken::None);
        assert_eq!(room.take(&limits, IoPriority::Scrub, 9), Taken::Some(1));
    }

    #[test]
    fn a_call_that_finds_no_room_goes_on_when_requests_come_back() {
        let (room, limits) = (Arc::new(Room::new()), Arc::new(limits(100)));
        assert_eq!(room.take(&limits, IoPriority::Scrub, 9), Taken::Some(3));
        let waiting = std::thread::spawn({
            let (room, limits) = (room.clone(), limits.clone());
            move || room.wait(&limits, IoPriority::Scrub, 9)
        });
        while room.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        room.give_back(IoPriority::Scrub, 2);
        assert_eq!(waiting.join().unwrap(), Taken::Some(2));
        assert_eq!(room.waiting.load(Ordering::SeqCst), 0);
    }

    proptest! {
        /// Whatever is taken and given back, no class has more than its most, nor all of them more
        /// than the depth and what is reserved; and one that has less than its least finds room.
        #[test]
        fn limits_hold_whatever_is_taken(
            depth in 4u32..12,
            steps in prop::collection::vec((0usize..3, 1usize..6, any::<bool>()), 0..60)
        ) {
            let (room, limits) = (Room::new(), limits(depth));
            let classes = [IoPriority::SyncRead, IoPriority::SyncWrite, IoPriority::Scrub];
            let mut held = [0u32; 3];
            for (index, wanted, is_taken) in steps {
                let class = classes[index];
                let own = limits.classes[class.index()].unwrap();
                if !is_taken {
                    room.give_back(class, held[index]);
                    held[index] = 0;
                    continue;
                }
                match room.take(&limits, class, wanted) {
                    Taken::Some(count) => held[index] += count,
                    Taken::None => prop_assert!(held[index] >= own.least),
                    Taken::All => prop_assert!(false, "it is limited"),
                }
                prop_assert!(held[index] <= own.most);
                let leasts = 2 + 1 + 1;
                prop_assert!(held.iter().sum::<u32>() <= depth + leasts);
            }
        }
    }
}
