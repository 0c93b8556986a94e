//! Where the events of a pool go: to the ring of the instance, or into memory until the pool joins
//! it.

use super::ring::EventRing;
use std::sync::Arc;
use tarn_host::UnixTime;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::nvlist::NvList;

/// Where the events of a pool go.
const DESTINATION: Rank = Rank::new(tarn_host::ranks::POOL + 14, "events of a pool");

/// So many events are kept before a pool joins the ring. More than an import makes.
const KEPT_MAX: usize = 64;

/// Where the events of a pool go.
pub(crate) struct PoolEvents(Mutex<Destination>);

enum Destination {
    /// The pool has not joined a ring: its first events.
    Kept(Vec<(NvList, UnixTime)>),
    Ring(Arc<EventRing>),
}

impl PoolEvents {
    pub(crate) fn new() -> PoolEvents {
        PoolEvents(Mutex::new(DESTINATION, Destination::Kept(Vec::new())))
    }

    pub(crate) fn post(&self, list: NvList, time: UnixTime) {
        match &mut *self.0.lock() {
            Destination::Kept(kept) if kept.len() < KEPT_MAX => kept.push((list, time)),
            Destination::Kept(_) => {}
            Destination::Ring(ring) => ring.post(list, time),
        }
    }

    pub(crate) fn join(&self, ring: &Arc<EventRing>) {
        let mut destination = self.0.lock();
        let before = std::mem::replace(&mut *destination, Destination::Ring(ring.clone()));
        if let Destination::Kept(kept) = before {
            kept.into_iter()
                .for_each(|(list, time)| ring.post(list, time));
        }
    }
}
