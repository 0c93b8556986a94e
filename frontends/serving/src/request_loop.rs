//! What an owner does with a source: take a request, serve it, look for the next.

use crate::ownership::{release_before_wait, take_owned};
use crate::registered::Registered;
use crate::serving_threads::ServingThreads;
use crate::source::{AnyDelayedReply, Next, RequestTraits};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most requests that are carried out before their delayed replies are sent. A guess: each makes
/// the others wait for some ten microseconds.
pub(crate) const DELAYED_MAX: usize = 32;

/// A thread that takes requests of a source, and serves them.
struct AtHand<'a> {
    threads: &'a ServingThreads,
    registered: &'a Registered,
}

impl<'a> AtHand<'a> {
    fn new(threads: &'a ServingThreads, registered: &'a Registered) -> AtHand<'a> {
        registered.at_hand.fetch_add(1, Ordering::SeqCst);
        AtHand {
            threads,
            registered,
        }
    }
}

impl Drop for AtHand<'_> {
    fn drop(&mut self) {
        self.registered.at_hand.fetch_sub(1, Ordering::SeqCst);
        self.threads.tell_if_gone(self.registered);
    }
}

/// Takes the next request; where there is none, sends the replies that were held back.
fn take_or_send(registered: &Registered, request: &mut dyn Any) -> Next {
    let next = registered.take_request(request);
    if !matches!(next, Next::Request(_)) {
        registered.source.send_held();
    }
    next
}

impl ServingThreads {
    /// Serves an owned source until it is quiet, or other threads'.
    pub(crate) fn serve_owned(
        self: &Arc<Self>,
        registered: &Arc<Registered>,
        request: &mut dyn Any,
    ) {
        let _at_hand = AtHand::new(self, registered);
        let mut delayed = Vec::new();
        let mut next = take_or_send(registered, request);
        loop {
            let traits = match next {
                Next::Request(traits) => traits,
                Next::Nothing => return self.release(registered),
                Next::Ended => return self.other_end_has_gone(registered),
            };
            let Some(left) = self.serve(registered, request, traits, delayed) else {
                return;
            };
            delayed = left;
            next = take_or_send(registered, request);
            let is_request = matches!(next, Next::Request(_));
            if !delayed.is_empty() && (!is_request || delayed.len() >= DELAYED_MAX) {
                let is_owned = self.send_delayed(registered, std::mem::take(&mut delayed));
                match next {
                    Next::Nothing if is_owned => next = take_or_send(registered, request),
                    Next::Ended if is_owned => registered.source.send_held(),
                    _ if is_owned => {}
                    // It was taken, so it is served, whichever thread owns the source.
                    Next::Request(_) => return self.serve_not_owned(registered, request),
                    Next::Ended => return self.other_end_has_gone(registered),
                    Next::Nothing => return,
                }
            }
            match next {
                Next::Request(traits) => {
                    self.processors.answered();
                    if registered.is_crowded(traits.is_waited_for) {
                        self.invite(registered);
                    }
                    continue;
                }
                Next::Ended => return self.other_end_has_gone(registered),
                Next::Nothing => registered.end_crowd(),
            }
            if registered.leave_to_others() {
                return;
            }
            if !self.can_linger || !registered.has_patience() {
                return self.release(registered);
            }
            next = registered.linger(request);
            if matches!(next, Next::Request(_)) {
                self.processors.answered();
            }
        }
    }

    /// No request comes any more. The source is told when what other threads have at hand is done,
    /// unless its front end has removed it, which then waits itself.
    fn other_end_has_gone(&self, registered: &Registered) {
        if !registered.is_removed.load(Ordering::SeqCst) {
            registered.is_to_tell.store(true, Ordering::SeqCst);
            self.begin_removing(registered.key);
        }
    }

    /// Serves a request of a source that this thread owns. Gives the delayed replies that were not
    /// sent; `None` when the thread does not own the source any more, and nothing is left to do.
    fn serve(
        self: &Arc<Self>,
        registered: &Arc<Registered>,
        request: &mut dyn Any,
        traits: RequestTraits,
        delayed: Vec<AnyDelayedReply>,
    ) -> Option<Vec<AnyDelayedReply>> {
        let delays_none = !traits.may_delay_reply || traits.is_long;
        let delayed = match delayed.is_empty() || !delays_none {
            true => delayed,
            false if self.send_delayed(registered, delayed) => Vec::new(),
            false => {
                self.serve_not_owned(registered, request);
                return None;
            }
        };
        if delayed.is_empty() {
            registered.begin_one();
        }
        self.set_owned(registered, delayed);
        if traits.is_long {
            self.processors.moves_much();
            release_before_wait();
        }
        let reply = registered.source.serve(request);
        match take_owned() {
            Some(mut owned) => {
                owned.delayed.extend(reply);
                if owned.delayed.is_empty() {
                    self.served_one(registered);
                }
                Some(owned.delayed)
            }
            None => {
                let mut delayed = registered.take_handed_over();
                delayed.extend(reply);
                if !delayed.is_empty() {
                    registered.source.reply_when_durable(delayed);
                }
                self.served_one(registered);
                self.take_back(registered).then(Vec::new)
            }
        }
    }

    /// Serves a request that was taken when the thread owned the source.
    fn serve_not_owned(&self, registered: &Registered, request: &mut dyn Any) {
        registered.begin_one();
        if let Some(reply) = registered.source.serve(request) {
            registered.source.reply_when_durable(vec![reply]);
        }
        self.served_one(registered);
    }

    /// A request was served: another may be taken.
    pub(crate) fn served_one(&self, registered: &Registered) {
        registered.end_one();
        if registered.is_abandoned.load(Ordering::Acquire) {
            let less = |lost: usize| lost.checked_sub(1);
            let _ = self
                .lost
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
        match registered.is_choked.swap(false, Ordering::AcqRel) {
            true => self.watch_if_room(registered),
            false => self.watch_next(&registered.pool()),
        }
        self.tell_if_gone(registered);
    }
}
