//! Serving threads: one bounded set of threads takes and serves the requests of all front ends.
//!
//! # Problem
//! A client that sends one request after the other waits for each reply, and waking a thread takes
//! longer than most requests. But a request that waits for a disk must not delay others, and
//! thousands of mounts and connections must not have threads of their own.
//!
//! # Mechanism
//! A front end registers each [`Source`] of requests: the device of a FUSE mount, a client's
//! connection, a listening socket whose requests are connections. Idle threads wait together at one
//! epoll ([`ServingThreads`]). A source that has a request wakes one of them, which then *owns* the
//! source: epoll does not watch it (one shot). The owner takes a request and serves it from
//! beginning to end. It releases the source, so that epoll watches it and another thread serves the
//! next request, as soon as
//! - the owner is about to wait, for a disk, a lock or another thread (`host` calls the thread
//!   before it waits: `call_before_waits`), or
//! - the request moves many bytes: other requests can use other processors.
//!
//! After the reply the owner takes the source back, if no other thread owns it, and looks for the
//! next request for a while before it releases the source. A source on which that finds nothing is
//! released at once for some time.
//!
//! Several requests in a row that were already waiting show that several clients ask. Handing each
//! request to another thread would cost more than serving it, so the owner invites a second thread
//! to own the source with it: each takes and serves requests, up to half of the processors (clients
//! need the others), and leaves when it finds none. A source that cuts requests out of a byte
//! stream has one owner at a time ([`Source::may_have_owners`]).
//!
//! A request that must be durable is carried out, and its reply delayed ([`Source::serve`]). While
//! more such requests are there the owner goes on with them, up to 32, and one write to the intent
//! log makes all of them durable ([`Source::reply_when_durable`]). If the owner is about to wait
//! meanwhile, another thread replies to those that were carried out so far.
//!
//! During bursts of short requests idle processors are kept awake ([`AwakeProcessors`]).
//!
//! # Invariants
//! - Epoll watches a source, or at least one thread owns it and will release it; or it is not
//!   watched until fewer requests of the source, or of its pool, are being served.
//! - When a source is released there is an idle thread, or the bound of threads is reached: then
//!   requests queue in the kernel.
//! - Delayed replies are sent before their thread waits for requests or carries out a request whose
//!   reply is not delayed.
//! - No request of a removed source is taken. A source has *gone* when no thread has a request of
//!   it at hand, serves one or owes it a reply; until then its front end keeps the file system.
//!   Then the source is dropped, and its descriptor closed.
//! - One source has at most 64 threads that wait, and all sources of a pool about 256
//!   (`pool_bounds`); beyond that requests queue in the kernel. So a pool that does not answer
//!   leaves threads to the others. Threads held by abandoned sources do not count.

mod awake_processors;
mod delayed_replies;
mod outbox;
mod ownership;
mod pool_bounds;
mod registered;
mod removal;
mod request_loop;
mod serving_threads;
mod source;
mod thread_life;

pub use awake_processors::AwakeProcessors;
pub use outbox::{Fill, Outbox, Part, Wire};
pub use ownership::takes_next;
pub use removal::StillServed;
pub use serving_threads::{ServingThreads, SourceKey};
pub use source::{Next, RequestTraits, Source};

#[cfg(test)]
mod tests;
