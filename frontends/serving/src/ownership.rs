//! Which threads own a source, and when epoll watches it.

use crate::registered::Registered;
use crate::serving_threads::ServingThreads;
use crate::source::AnyDelayedReply;
use rustix::event::epoll;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most threads that serve one source. A guess, above the queue depth of most pools.
const THREADS_OF_SOURCE: usize = 64;

/// The source that a thread owns while it serves a request.
pub(crate) struct Owned {
    threads: Arc<ServingThreads>,
    registered: Arc<Registered>,
    /// Delayed replies to requests that the thread carried out before.
    pub(crate) delayed: Vec<AnyDelayedReply>,
}

thread_local! {
    static OWNED: RefCell<Option<Owned>> = const { RefCell::new(None) };
}

/// This thread is about to wait: it releases the source that it owns, if it does, and hands over
/// its delayed replies.
pub(crate) fn release_before_wait() {
    if let Some(owned) = take_owned() {
        owned.registered.source.send_held_at_once();
        if !owned.delayed.is_empty() {
            owned
                .threads
                .hand_over_delayed(&owned.registered, owned.delayed);
        }
        owned.threads.release(&owned.registered);
        owned.threads.start_thread_if_none_is_idle();
    }
}

/// Whether this thread will look for the next request of the source that it serves, so that it may
/// hold replies back: [`Source::send_held`](crate::Source::send_held).
pub fn takes_next() -> bool {
    OWNED.with_borrow(Option::is_some)
}

/// What this thread still owns. It is not released before it waits any more.
pub(crate) fn take_owned() -> Option<Owned> {
    OWNED.with_borrow_mut(Option::take)
}

impl ServingThreads {
    /// This thread owns a source while it serves a request, until it is about to wait.
    pub(crate) fn set_owned(
        self: &Arc<Self>,
        registered: &Arc<Registered>,
        delayed: Vec<AnyDelayedReply>,
    ) {
        let owned = Owned {
            threads: self.clone(),
            registered: registered.clone(),
            delayed,
        };
        let before = OWNED.replace(Some(owned));
        debug_assert!(before.is_none(), "a thread owns one source at a time");
    }

    /// How many threads may own a source together.
    pub(crate) fn owners_max_of(&self, registered: &Registered) -> usize {
        match registered.source.may_have_owners() {
            true => self.owners_max,
            false => 1,
        }
    }

    /// Lets a second thread own a source that this thread owns.
    pub(crate) fn invite(&self, registered: &Registered) {
        if registered.owners.load(Ordering::Relaxed) < self.owners_max_of(registered) {
            self.watch_now(registered);
            self.start_thread_if_none_is_idle();
        }
    }

    /// Takes a source back that was released, if no other thread owns it and it is worth it.
    pub(crate) fn take_back(&self, registered: &Registered) -> bool {
        let wants = self.can_linger && registered.rewards_looking();
        let is_owned = wants && registered.own(1);
        if is_owned {
            // A thread that was woken meanwhile finds it owned.
            self.change_watch(registered, epoll::EventFlags::ONESHOT);
        }
        is_owned
    }

    /// Releases an owned source: epoll watches it again, unless other threads own it.
    pub(crate) fn release(&self, registered: &Registered) {
        let before = registered.owners.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a source is released by a thread that owns it");
        if before > 1 {
            return;
        }
        if registered.busy.load(Ordering::Acquire) >= THREADS_OF_SOURCE {
            registered.is_choked.store(true, Ordering::Release);
            // Unless all of them ended in between: then no thread would see the mark.
            let is_choked = registered.busy.load(Ordering::Acquire) >= THREADS_OF_SOURCE
                || !registered.is_choked.swap(false, Ordering::AcqRel);
            if is_choked {
                return;
            }
        }
        self.watch_if_room(registered);
    }

    /// Watches a source without owners; or has it in line, where too many requests of its pool are
    /// being served.
    pub(crate) fn watch_if_room(&self, registered: &Registered) {
        let pool = registered.pool();
        match pool.is_full() {
            true => pool.get_in_line(registered.key),
            false => self.watch_now(registered),
        }
        self.watch_next(&pool);
    }

    /// Watches the first source in line that has a request, if there is room for it.
    pub(crate) fn watch_next(&self, pool: &crate::pool_bounds::PoolBound) {
        while let Some(key) = pool.next_in_line() {
            let Some(next) = self.find(key) else { continue };
            // One that counts for another pool by now takes none of this room.
            let is_of_it = std::ptr::eq(Arc::as_ptr(&next.pool()), pool);
            let has_request = next.has_request();
            self.watch_now(&next);
            if has_request && is_of_it {
                return;
            }
        }
    }

    fn watch_now(&self, registered: &Registered) {
        self.change_watch(registered, registered.announcements());
    }

    fn change_watch(&self, registered: &Registered, flags: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(registered.key);
        let descriptor = registered.source.descriptor();
        // A source that was removed is watched no more.
        let _ = epoll::modify(&self.epoll, descriptor, data, flags);
    }
}
