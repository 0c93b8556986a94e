//! A registered source: its owning thread, its requests under way, and their rate.

use crate::pool_bounds::PoolBound;
use crate::source::{AnyDelayedReply, AnySource, Next};
use rustix::event::{self, PollFd, PollFlags, epoll};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread that has replied looks for the next request. As long as it takes to put a
/// thread to sleep and wake it again, on the machines this was measured on: so looking in vain
/// costs at most twice.
const LINGER_MAX: Duration = Duration::from_micros(50);

/// Pauses between two looks: some microsecond, so that looking keeps neither the kernel's queue
/// from those that send requests nor the processor from a sibling thread.
const SPINS: u32 = 20;

/// After looking in vain so often in a row, a thread looks again only after one reply in so many.
pub(crate) const PATIENCE: u32 = 8;

/// A look that took so long gave the processor to a program that computes: a client would have had
/// it for some ten microseconds.
const TAKEN: Duration = Duration::from_millis(1);

/// After that no thread looks for so many replies: a thread that waits gets a processor at once
/// when a request comes, one that has offered its own waits for the other program's slice. A guess:
/// a slice is some milliseconds, as long as some hundred replies take.
const TAKEN_REPLIES: u32 = 1000;

/// So many requests in a row that were waiting already show that several clients ask.
pub(crate) const CROWD: u32 = 8;

/// A source that is served.
pub(crate) struct Registered {
    pub(crate) key: u64,
    pub(crate) source: Arc<dyn AnySource>,
    /// The pool that its requests count for. The lock is held while one is counted, so that all
    /// under way count for the same.
    pool: Mutex<Arc<PoolBound>>,
    /// Threads that own it.
    pub(crate) owners: AtomicUsize,
    /// Threads that serve requests, or send delayed replies.
    pub(crate) busy: AtomicUsize,
    /// Delayed replies of a thread that waits, until another thread has them.
    handed_over: Mutex<Vec<AnyDelayedReply>>,
    /// Epoll does not watch it: too many requests of it are being served.
    pub(crate) is_choked: AtomicBool,
    /// Threads that take its requests, or have one that they took.
    pub(crate) at_hand: AtomicUsize,
    /// No request of it is to be taken any more. A thread counts itself in `at_hand` before it
    /// looks here, and this is set before `at_hand` is looked at: one of them sees the other.
    pub(crate) is_removed: AtomicBool,
    /// Its front end does not wait any more for the threads that serve it.
    pub(crate) is_abandoned: AtomicBool,
    /// How often in a row nothing came while a thread lingered. A source begins as one where that
    /// was too often: of ten thousand mounts that are made at once, each sends one request.
    in_vain: AtomicU32,
    /// For how many replies no thread looks, as processors are wanted.
    not_looking: AtomicU32,
    /// How many requests in a row were there at once.
    at_once: AtomicU32,
    /// The source is to be told when it has gone.
    pub(crate) is_to_tell: AtomicBool,
}

impl Registered {
    pub(crate) fn new(key: u64, source: Arc<dyn AnySource>, pool: Arc<PoolBound>) -> Registered {
        Registered {
            key,
            source,
            pool: Mutex::new(pool),
            owners: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            handed_over: Mutex::default(),
            is_choked: AtomicBool::new(false),
            at_hand: AtomicUsize::new(0),
            is_removed: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            in_vain: AtomicU32::new(PATIENCE + 1),
            not_looking: AtomicU32::new(0),
            at_once: AtomicU32::new(0),
            is_to_tell: AtomicBool::new(false),
        }
    }

    /// Makes this thread an owner, unless the source has so many.
    pub(crate) fn own(&self, most: usize) -> bool {
        assert!(most > 0, "each source may have an owner");
        let more = |owners| (owners < most).then_some(owners + 1);
        let owned = self
            .owners
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        owned.is_ok()
    }

    /// Leaves the source to its other owners. False when there are none.
    pub(crate) fn leave_to_others(&self) -> bool {
        let fewer = |owners| (owners > 1).then(|| owners - 1);
        let left = self
            .owners
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
        left.is_ok()
    }

    /// Takes the next request, unless the source was removed.
    pub(crate) fn take_request(&self, request: &mut dyn Any) -> Next {
        debug_assert!(self.at_hand.load(Ordering::SeqCst) > 0);
        match self.is_removed.load(Ordering::SeqCst) {
            true => Next::Ended,
            false => self.source.take_request(request),
        }
    }

    /// One more request is being served, or delayed replies are being sent.
    pub(crate) fn begin_one(&self) {
        let pool = self.pool_lock();
        self.busy.fetch_add(1, Ordering::SeqCst);
        pool.begin();
    }

    /// A request was served, or delayed replies were sent.
    pub(crate) fn end_one(&self) {
        let pool = self.pool_lock();
        let before = self.busy.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "each request that is served was begun");
        pool.end();
    }

    /// The pool that its requests count for.
    pub(crate) fn pool(&self) -> Arc<PoolBound> {
        self.pool_lock().clone()
    }

    /// Has its requests count for another pool, those under way as well.
    pub(crate) fn count_for(&self, other: Arc<PoolBound>) {
        let mut pool = self.pool_lock();
        for _ in 0..self.busy.load(Ordering::SeqCst) {
            other.begin();
            pool.end();
        }
        *pool = other;
    }

    fn pool_lock(&self) -> MutexGuard<'_, Arc<PoolBound>> {
        // A thread that panicked with it counted one request wrong.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is something to take.
    pub(crate) fn has_request(&self) -> bool {
        if self.source.has_request_in_memory() {
            return true;
        }
        let descriptor = self.source.descriptor();
        let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        event::poll(&mut polled, Some(&rustix::time::Timespec::default())) == Ok(1)
    }

    /// What announces its next request: that the descriptor is readable; where a request is in
    /// memory already also that it is writable, as it is at once or when the client has read some
    /// replies.
    pub(crate) fn announcements(&self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        if self.source.has_request_in_memory() {
            flags |= epoll::EventFlags::OUT;
        }
        flags
    }

    /// Whether nothing of it is under way. `at_hand` first: delayed replies are counted as busy
    /// before the thread that hands them over is done.
    pub(crate) fn is_quiet(&self) -> bool {
        self.at_hand.load(Ordering::SeqCst) == 0 && self.busy.load(Ordering::SeqCst) == 0
    }

    /// Whether the other end is still there.
    pub(crate) fn is_connected(&self) -> bool {
        let descriptor = self.source.descriptor();
        let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        let is_polled = event::poll(&mut polled, Some(&rustix::time::Timespec::default())).is_ok();
        let ends = PollFlags::ERR | PollFlags::HUP;
        is_polled && !polled[0].revents().intersects(ends)
    }

    /// Whether looks for the next request after a reply found some lately.
    pub(crate) fn rewards_looking(&self) -> bool {
        self.not_looking.load(Ordering::Relaxed) == 0
            && self.in_vain.load(Ordering::Relaxed) < PATIENCE
    }

    /// Whether to look for the next request after this reply.
    pub(crate) fn has_patience(&self) -> bool {
        let not_looking = self.not_looking.load(Ordering::Relaxed);
        if not_looking > 0 {
            // Counts that several threads change at the same time may be off, which does no harm.
            self.not_looking.store(not_looking - 1, Ordering::Relaxed);
            return false;
        }
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain < PATIENCE {
            return true;
        }
        let next = in_vain.wrapping_add(1).max(PATIENCE);
        self.in_vain.store(next, Ordering::Relaxed);
        in_vain.is_multiple_of(PATIENCE)
    }

    /// A request was there at once: whether several clients ask. One that is not waited for tells
    /// nothing: its client goes on asking. Counts that several threads change at the same time may
    /// be off, which does no harm.
    pub(crate) fn is_crowded(&self, is_waited_for: bool) -> bool {
        let in_a_row = match is_waited_for {
            true => self.at_once.load(Ordering::Relaxed) + 1,
            false => 0,
        };
        let is_crowded = in_a_row >= CROWD;
        let kept = if is_crowded { 0 } else { in_a_row };
        self.at_once.store(kept, Ordering::Relaxed);
        is_crowded
    }

    /// No request was there at once.
    pub(crate) fn end_crowd(&self) {
        self.at_once.store(0, Ordering::Relaxed);
    }

    /// Delayed replies that another thread is to send.
    pub(crate) fn hand_over(&self, delayed: Vec<AnyDelayedReply>) {
        self.handed_over().extend(delayed);
    }

    /// Takes those that were handed over, unless another thread has.
    pub(crate) fn take_handed_over(&self) -> Vec<AnyDelayedReply> {
        std::mem::take(&mut *self.handed_over())
    }

    fn handed_over(&self) -> MutexGuard<'_, Vec<AnyDelayedReply>> {
        // A thread that panicked while it held them was adding some.
        self.handed_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for the next request for a while. Between two looks other threads may have the
    /// processor, as the client may be one that waits for it. When that takes longer than a thread
    /// looks, the processors are wanted: looking counts as in vain, even if a request has come.
    /// When a program that computes had it, no thread looks for a while.
    pub(crate) fn linger(&self, request: &mut dyn Any) -> Next {
        let began = Instant::now();
        let mut next = self.take_request(request);
        let mut elapsed = Duration::ZERO;
        while next == Next::Nothing && elapsed <= LINGER_MAX {
            for _ in 0..SPINS {
                std::hint::spin_loop();
            }
            std::thread::yield_now();
            elapsed = began.elapsed();
            next = self.take_request(request);
        }
        self.note_look(elapsed);
        next
    }

    /// A look for the next request took so long.
    fn note_look(&self, elapsed: Duration) {
        let in_vain = match elapsed <= LINGER_MAX {
            true => 0,
            false => self.in_vain.load(Ordering::Relaxed).saturating_add(1),
        };
        self.in_vain.store(in_vain, Ordering::Relaxed);
        if elapsed >= TAKEN {
            self.not_looking.store(TAKEN_REPLIES, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::BorrowedFd;

    /// It has no requests.
    struct Silent(std::net::UdpSocket);

    impl crate::source::Source for Silent {
        type Request = ();
        type DelayedReply = ();

        fn new_request() {}

        fn descriptor(&self) -> BorrowedFd<'_> {
            rustix::fd::AsFd::as_fd(&self.0)
        }

        fn take_request(&self, (): &mut ()) -> Next {
            Next::Nothing
        }

        fn serve(&self, (): &mut ()) -> Option<()> {
            None
        }

        fn reply_when_durable(&self, _: Vec<()>) {}

        fn gone(&self) {}
    }

    #[test]
    fn no_thread_looks_for_a_while_when_a_program_that_computes_took_the_processor() {
        let silent = Silent(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let pool = crate::pool_bounds::PoolBounds::new(1).find("pool");
        let registered = Registered::new(1, Arc::new(silent), pool);
        registered.note_look(Duration::ZERO);
        let looks = |count: u32| (0..count).filter(|_| registered.has_patience()).count();
        registered.note_look(LINGER_MAX);
        assert!(looks(10) == 10 && registered.rewards_looking());
        // A client that works longer than a thread looks is no such program.
        registered.note_look(2 * LINGER_MAX);
        assert!(looks(10) == 10 && registered.rewards_looking());
        registered.note_look(TAKEN);
        assert!(!registered.rewards_looking());
        assert_eq!(looks(TAKEN_REPLIES), 0);
        assert!(looks(10) == 10 && registered.rewards_looking());
    }
}
