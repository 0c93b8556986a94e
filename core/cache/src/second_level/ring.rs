//! Where a cache device is written next: round and round, with what is written over given up ahead.
//!
//! # Invariants
//! - Between the hand and the evicted place nothing is kept, so a write there is over nothing.
//! - In the first round nothing lies ahead, and nothing is given up.

use std::ops::Range;

/// A write takes at most this part of the room, so that it always fits once the hand is back at the
/// start.
pub(super) const WRITE_SHARE: u64 = 4;

/// The places of one device, in bytes from its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ring {
    /// All that can be written.
    pub(super) room: Range<u64>,
    /// Where the next buffer goes.
    #[doc(alias = "l2ad_hand")]
    pub(super) hand: u64,
    /// What was written the last time round is given up to here.
    #[doc(alias = "l2ad_evict")]
    pub(super) evicted: u64,
    /// Nothing was written over yet.
    #[doc(alias = "l2ad_first")]
    pub(super) is_first_round: bool,
}

impl Ring {
    /// An empty device.
    pub(super) fn new(room: Range<u64>) -> Ring {
        assert!(room.start < room.end, "a cache device has room");
        Ring {
            hand: room.start,
            evicted: room.start,
            is_first_round: true,
            room,
        }
    }

    /// How many bytes there are.
    pub(super) fn length(&self) -> u64 {
        self.room.end - self.room.start
    }

    /// Has `size` bytes free at the hand, which may go back to the start for it. Gives the places
    /// of which the buffers are given up, in the order in which they were written.
    ///
    /// # Panics
    /// The size is more than a [share](WRITE_SHARE) of the room.
    #[doc(alias = "l2arc_evict")]
    pub(super) fn make_room(&mut self, size: u64) -> Vec<Range<u64>> {
        assert!(
            size <= self.length() / WRITE_SHARE,
            "a write fits the device"
        );
        let mut given_up = Vec::new();
        if self.room.end - self.hand < size {
            if !self.is_first_round {
                given_up.push(self.evicted..self.room.end);
            }
            self.hand = self.room.start;
            self.evicted = self.room.start;
            self.is_first_round = false;
        }
        let target = self.hand + size;
        if !self.is_first_round && target > self.evicted {
            given_up.push(self.evicted..target);
            self.evicted = target;
        }
        assert!(
            self.is_first_round || target <= self.evicted,
            "what is written next is given up"
        );
        given_up.retain(|range| !range.is_empty());
        given_up
    }

    /// Takes `size` bytes at the hand. Gives where they are.
    ///
    /// # Panics
    /// They were not made room for.
    pub(super) fn take(&mut self, size: u64) -> u64 {
        let place = self.hand;
        self.hand += size;
        assert!(self.hand <= self.room.end, "a write ends within the room");
        assert!(
            self.is_first_round || self.hand <= self.evicted,
            "a write is over nothing that is kept"
        );
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_gives_up_nothing_and_later_ones_what_lies_ahead() {
        let mut ring = Ring::new(100..500);
        assert_eq!(ring.make_room(100), []);
        assert_eq!(ring.take(60), 100);
        for place in [160, 260, 360] {
            assert_eq!(ring.make_room(100), []);
            assert_eq!(ring.take(100), place);
        }
        // The rest is too short: back to the start.
        assert_eq!(
            ring.make_room(100),
            vec![Range {
                start: 100,
                end: 200
            }]
        );
        assert!(!ring.is_first_round);
        assert_eq!(ring.take(40), 100);
        assert_eq!(
            ring.make_room(100),
            vec![Range {
                start: 200,
                end: 240
            }]
        );
        assert_eq!(ring.take(100), 140);
        for _ in 0..2 {
            ring.make_room(100);
            ring.take(100);
        }
        // 440 to 500 is given up with the turn, then the start again.
        assert_eq!(ring.make_room(100), [440..500, 100..200]);
    }
}
