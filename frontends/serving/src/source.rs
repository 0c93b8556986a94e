//! What a front end implements: a source of requests.

use rustix::fd::BorrowedFd;
use std::any::Any;

/// What the threads have to know of a request that was taken, before they serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTraits {
    /// Serving it takes long, though it wait for nothing: it moves many bytes.
    pub is_long: bool,
    /// Its client waits for the reply before it sends more. Requests that are not waited for tell
    /// nothing about how many clients there are.
    pub is_waited_for: bool,
    /// Serving it may end in a delayed reply.
    pub may_delay_reply: bool,
}

/// What a look for the next request found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A request was taken.
    Request(RequestTraits),
    /// There is none now. Part of one may have come.
    Nothing,
    /// The other end has gone, or what comes makes no sense: no request will be taken any more.
    Ended,
}

/// Where requests come from: the device of a mount, the connection of a client.
///
/// All methods are called by serving threads, several at a time.
pub trait Source: Send + Sync + 'static {
    /// What a request is read into. Each thread keeps one for each kind of source, and uses it for
    /// one request after the other.
    type Request: Send + 'static;

    /// A request that was carried out, and is replied to when what it did is durable.
    type DelayedReply: Send + 'static;

    /// A place for requests.
    fn new_request() -> Self::Request;

    /// What is readable when there are requests. The same one as long as the source lives.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Takes the next request, without waiting: the descriptor is non-blocking.
    fn take_request(&self, request: &mut Self::Request) -> Next;

    /// Whether bytes of the next request, in whole, were read together with those before it, so
    /// that the descriptor does not announce it; or replies were held back that are not sent.
    /// Called while a thread is about to wait inside the core: it must not wait itself.
    fn has_request_in_memory(&self) -> bool {
        false
    }

    /// Whether several threads may take requests at the same time: each comes whole, by one read.
    fn may_have_owners(&self) -> bool {
        true
    }

    /// Carries out a request. Replies to it, or gives what [`Source::reply_when_durable`] needs
    /// for the reply.
    fn serve(&self, request: &mut Self::Request) -> Option<Self::DelayedReply>;

    /// Makes durable what these requests did, all by one write where that is possible, and replies
    /// to each.
    fn reply_when_durable(&self, delayed: Vec<Self::DelayedReply>);

    /// Sends replies that were held back while there were more requests ([`takes_next`]): there is
    /// none now. May wait for the client.
    ///
    /// [`takes_next`]: crate::takes_next
    fn send_held(&self) {}

    /// The same, of as much as the client takes without waiting, since the thread is about to wait
    /// for something else. Must neither wait nor take a lock under which a thread waits. What is
    /// left is sent by [`Source::send_held`], which is called when the descriptor is writable, if
    /// [`Source::has_request_in_memory`] says so.
    fn send_held_at_once(&self) {}

    /// The source has gone, and the front end did not remove it or was told [`StillServed`] when it
    /// tried. Called once.
    ///
    /// [`StillServed`]: crate::StillServed
    fn gone(&self);
}

/// A delayed reply of some source.
pub(crate) type AnyDelayedReply = Box<dyn Any + Send>;

/// A source of any kind, as the threads see it. `request` is what `new_request` of the same source
/// gave.
pub(crate) trait AnySource: Send + Sync {
    fn new_request(&self) -> Box<dyn Any + Send>;
    fn is_place_for_requests(&self, request: &dyn Any) -> bool;
    fn descriptor(&self) -> BorrowedFd<'_>;
    fn take_request(&self, request: &mut dyn Any) -> Next;
    fn has_request_in_memory(&self) -> bool;
    fn may_have_owners(&self) -> bool;
    fn serve(&self, request: &mut dyn Any) -> Option<AnyDelayedReply>;
    fn reply_when_durable(&self, delayed: Vec<AnyDelayedReply>);
    fn send_held(&self);
    fn send_held_at_once(&self);
    fn gone(&self);
}

/// The request in a place that `new_request` of the same kind of source made.
fn request_of<S: Source>(request: &mut dyn Any) -> &mut S::Request {
    request
        .downcast_mut()
        .expect("a thread uses for a source the place that the same kind of source made")
}

impl<S: Source> AnySource for S {
    fn new_request(&self) -> Box<dyn Any + Send> {
        Box::new(S::new_request())
    }

    fn is_place_for_requests(&self, request: &dyn Any) -> bool {
        request.is::<S::Request>()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        Source::descriptor(self)
    }

    fn take_request(&self, request: &mut dyn Any) -> Next {
        Source::take_request(self, request_of::<S>(request))
    }

    fn has_request_in_memory(&self) -> bool {
        Source::has_request_in_memory(self)
    }

    fn may_have_owners(&self) -> bool {
        Source::may_have_owners(self)
    }

    fn serve(&self, request: &mut dyn Any) -> Option<AnyDelayedReply> {
        let delayed = Source::serve(self, request_of::<S>(request))?;
        Some(Box::new(delayed))
    }

    fn reply_when_durable(&self, delayed: Vec<AnyDelayedReply>) {
        let own = |one: AnyDelayedReply| {
            let own = one.downcast::<S::DelayedReply>();
            *own.expect("a source is given the delayed replies that it made")
        };
        Source::reply_when_durable(self, delayed.into_iter().map(own).collect());
    }

    fn send_held(&self) {
        Source::send_held(self);
    }

    fn send_held_at_once(&self) {
        Source::send_held_at_once(self);
    }

    fn gone(&self) {
        Source::gone(self);
    }
}
