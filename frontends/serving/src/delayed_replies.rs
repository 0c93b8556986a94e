//! Replies that wait until what their requests did is durable.

use crate::ownership::take_owned;
use crate::registered::Registered;
use crate::serving_threads::ServingThreads;
use crate::source::AnyDelayedReply;
use std::sync::Arc;

impl ServingThreads {
    /// Sends the delayed replies of a thread that owns the source. False when the thread does not
    /// own it any more.
    pub(crate) fn send_delayed(
        self: &Arc<Self>,
        registered: &Arc<Registered>,
        delayed: Vec<AnyDelayedReply>,
    ) -> bool {
        self.set_owned(registered, Vec::new());
        registered.source.reply_when_durable(delayed);
        self.served_one(registered);
        take_owned().is_some() || self.take_back(registered)
    }

    /// This thread is about to wait, maybe for long: another thread sends its delayed replies.
    pub(crate) fn hand_over_delayed(
        self: &Arc<Self>,
        registered: &Arc<Registered>,
        delayed: Vec<AnyDelayedReply>,
    ) {
        registered.hand_over(delayed);
        registered.begin_one();
        let (threads, its) = (self.clone(), registered.clone());
        let started = std::thread::Builder::new()
            .name("serving-delayed".to_string())
            .spawn(move || {
                let delayed = its.take_handed_over();
                if !delayed.is_empty() {
                    its.source.reply_when_durable(delayed);
                }
                threads.served_one(&its);
            });
        if started.is_err() {
            // This thread sends them, late, when it has waited.
            self.served_one(registered);
        }
    }
}
