//! The ring of events of an instance: the newest ones, in their order.
//!
//! # Invariants
//! - Numbers of events grow by one, and never repeat while the instance runs.
//! - The ring has at most [`LENGTH_MAX`] events: the oldest gives way to the newest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tarn_host::UnixTime;
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_ondisk::nvlist::{Encoding, NvList, NvValue};

const RING: Rank = Rank::new(tarn_host::ranks::POOL + 15, "ring of events");

/// OpenZFS's default.
#[doc(alias = "zfs_zevent_len_max")]
const LENGTH_MAX: usize = 512;

/// A list that is longer, packed, is left out.
#[doc(alias = "ERPT_DATA_SZ")]
const EVENT_BYTES_MAX: usize = 6 << 10;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number, from 1.
    pub id: u64,
    /// Its values, with `time` and `eid` at their end.
    pub list: NvList,
}

/// The newest events.
#[derive(Debug)]
pub struct EventRing {
    kept: Mutex<Kept>,
    posted: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    /// The number of the newest event.
    newest: u64,
    /// The number of the newest event that gave way.
    gone: u64,
    is_closed: bool,
}

/// Events behind a number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventsAfter {
    /// In their order.
    pub events: Vec<Arc<Event>>,
    /// How many behind that number gave way before they were asked for.
    pub dropped: u64,
}

impl EventRing {
    /// An empty ring.
    pub fn new() -> Arc<EventRing> {
        Arc::new(EventRing {
            kept: Mutex::new(RING, Kept::default()),
            posted: Condvar::new(),
        })
    }

    /// Adds an event of this time.
    #[doc(alias = "zfs_zevent_post")]
    pub fn post(&self, mut list: NvList, time: UnixTime) {
        let time = vec![time.seconds, i64::from(time.nanoseconds)];
        list.set("time", NvValue::Int64Array(time));
        let mut kept = self.kept.lock();
        let id = kept.newest + 1;
        list.set("eid", id);
        kept.newest = id;
        if list.encode(Encoding::Xdr).len() > EVENT_BYTES_MAX {
            return;
        }
        if kept.events.len() == LENGTH_MAX {
            let oldest = kept.events.pop_front();
            kept.gone = oldest.expect("a full ring has an oldest event").id;
        }
        assert!(
            kept.events.back().is_none_or(|last| last.id < id) && kept.gone < id,
            "events are numbered in their order"
        );
        kept.events.push_back(Arc::new(Event { id, list }));
        assert!(
            kept.events.len() <= LENGTH_MAX,
            "the ring of events is bounded"
        );
        drop(kept);
        self.posted.notify_all();
    }

    /// The events with larger numbers than this, at most so many.
    pub fn after(&self, id: u64, most: usize) -> EventsAfter {
        self.kept.lock().after(id, most)
    }

    /// The same, and waits so long for one where there is none.
    #[doc(alias = "zfs_zevent_wait")]
    pub fn wait_after(&self, id: u64, most: usize, patience: Duration) -> EventsAfter {
        let mut kept = self.kept.lock();
        if kept.newest <= id && !kept.is_closed {
            let _ = self.posted.wait_timeout(&mut kept, patience);
        }
        kept.after(id, most)
    }

    /// The number of the newest event; zero before the first.
    pub fn newest(&self) -> u64 {
        self.kept.lock().newest
    }

    /// Removes all events. Gives how many there were.
    #[doc(alias = "zfs_zevent_drain_all")]
    pub fn clear(&self) -> usize {
        let mut kept = self.kept.lock();
        let count = kept.events.len();
        kept.events.clear();
        count
    }

    /// Readers do not wait any more.
    pub fn close(&self) {
        self.kept.lock().is_closed = true;
        self.posted.notify_all();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.kept.lock().is_closed
    }
}

impl Kept {
    fn after(&self, id: u64, most: usize) -> EventsAfter {
        let first = self.events.partition_point(|event| event.id <= id);
        EventsAfter {
            events: self.events.range(first..).take(most).cloned().collect(),
            dropped: self.gone.saturating_sub(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str) -> NvList {
        NvList::new().with("class", name)
    }

    fn ids(after: &EventsAfter) -> Vec<u64> {
        after.events.iter().map(|event| event.id).collect()
    }

    #[test]
    fn events_have_time_and_number_behind_their_values() {
        let ring = EventRing::new();
        let time = UnixTime {
            seconds: 7,
            nanoseconds: 9,
        };
        ring.post(event("a"), time);
        let after = ring.after(0, 10);
        let expected = event("a")
            .with("time", NvValue::Int64Array(vec![7, 9]))
            .with("eid", 1u64);
        assert_eq!(after.events[0].list, expected);
        assert_eq!((ids(&ring.after(1, 10)), ring.newest()), (vec![], 1));
    }

    #[test]
    fn the_oldest_give_way_and_readers_hear_how_many() {
        let ring = EventRing::new();
        let length = u64::try_from(LENGTH_MAX).unwrap();
        (0..length + 2).for_each(|_| ring.post(event("a"), UnixTime::default()));
        let after = ring.after(0, 2);
        assert_eq!((ids(&after), after.dropped), (vec![3, 4], 2));
        assert_eq!(ring.after(4, 1).dropped, 0);
        assert_eq!(ring.clear(), LENGTH_MAX);
        assert_eq!(ring.after(4, 1), EventsAfter::default());
        ring.post(event("b"), UnixTime::default());
        assert_eq!(ids(&ring.after(4, 9)), [length + 3]);
    }

    #[test]
    fn a_list_that_is_too_long_is_left_out() {
        let ring = EventRing::new();
        let long = "x".repeat(EVENT_BYTES_MAX);
        ring.post(event("a").with("text", long.as_str()), UnixTime::default());
        ring.post(event("b"), UnixTime::default());
        assert_eq!(ids(&ring.after(0, 9)), [2]);
    }
}
