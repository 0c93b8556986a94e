//! Sending replies: each whole, one after the other.

use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_engine::files::ReadData;
use tarn_serving::{Fill, Outbox, Part, takes_next};
use tarn_tls::Channel;

/// How long a client may leave its replies unread. A guess: longer than a network is away for a
/// moment.
const PATIENCE_S: i64 = 60;

/// The writing end of a connection.
pub(crate) struct Sender {
    channel: Arc<Channel>,
    outbox: Outbox,
    is_closing: AtomicBool,
}

impl Sender {
    pub(crate) fn new(socket: OwnedFd) -> Sender {
        Sender {
            outbox: Outbox::of_socket(socket.as_fd(), PATIENCE_S),
            channel: Arc::new(Channel::new(socket)),
            is_closing: AtomicBool::new(false),
        }
    }

    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Whether no more messages are to be taken.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Ends the connection: the client finds it closed, and the threads that serve it as well.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.channel.close();
    }

    /// Sends these parts as one message. A client that is gone, or reads nothing for too long, is
    /// given up.
    pub(crate) fn send(&self, parts: &[&[u8]]) {
        self.outbox.put([Part::Own(parts.concat())]);
        self.close_if_failed(self.outbox.send_last(&*self.channel));
    }

    /// Replies to a command: these bytes, and what was read. Where the next command is in memory
    /// already, one call of the system sends several replies.
    pub(crate) fn reply(&self, header: Vec<u8>, data: Option<ReadData>, has_next: bool) {
        let data = data.map(Part::Blocks);
        let fill = self
            .outbox
            .put(std::iter::once(Part::Own(header)).chain(data));
        if fill == Fill::Enough || !has_next || !takes_next() {
            self.send_held();
        }
    }

    /// Whether replies are not sent.
    pub(crate) fn has_held(&self) -> bool {
        self.outbox.has_unsent()
    }

    /// Sends the replies that are not sent.
    pub(crate) fn send_held(&self) {
        self.close_if_failed(self.outbox.send(&*self.channel));
    }

    /// Sends as many of them as the socket takes at once.
    pub(crate) fn send_held_at_once(&self) {
        self.close_if_failed(self.outbox.send_at_once(&*self.channel));
    }

    fn close_if_failed<E>(&self, sent: Result<(), E>) {
        if sent.is_err() {
            self.close();
        }
    }
}
