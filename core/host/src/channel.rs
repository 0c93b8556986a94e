//! Bounded channels: the inbox of a thread that owns state.
//!
//! Any number of senders and receivers. A full channel makes senders wait, so nothing piles up
//! without a bound. When all senders are gone, or the channel is closed, receivers get what is left
//! and then nothing; when all receivers are gone, senders get their message back.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::lock::{Condvar, Mutex, Rank};
use crate::ranks;

/// Nothing is called while it is held.
const CHANNEL: Rank = Rank::new(ranks::LEAF + 100, "channel");

/// A channel that holds at most `capacity` messages, at least one.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Queue {
        messages: VecDeque::new(),
        senders: 1,
        receivers: 1,
        is_closed: false,
    };
    let shared = Arc::new(Shared {
        queue: Mutex::new(CHANNEL, queue),
        capacity: capacity.max(1),
        not_empty: Condvar::new(),
        not_full: Condvar::new(),
    });
    (
        Sender {
            shared: shared.clone(),
        },
        Receiver { shared },
    )
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    capacity: usize,
    not_empty: Condvar,
    not_full: Condvar,
}

struct Queue<T> {
    messages: VecDeque<T>,
    senders: usize,
    receivers: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    fn takes_messages(&self) -> bool {
        !self.is_closed && self.receivers > 0
    }

    fn may_get_messages(&self) -> bool {
        !self.is_closed && self.senders > 0
    }
}

/// Puts messages in. Clone it for several senders.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Takes messages out. Clone it for several receivers; each message goes to one of them.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

/// All receivers are gone: the message comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Closed<T>(pub T);

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed")
    }
}

/// Why there was no message in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMessage {
    /// There is none yet.
    NotYet,
    /// There will be none.
    Closed,
}

impl<T> Sender<T> {
    /// Puts a message in; waits while the channel is full.
    pub fn send(&self, message: T) -> Result<(), Closed<T>> {
        let shared = &*self.shared;
        let mut queue = shared.queue.lock();
        let is_full = |q: &mut Queue<T>| q.messages.len() >= shared.capacity && q.takes_messages();
        shared.not_full.wait_while(&mut queue, is_full);
        if !queue.takes_messages() {
            return Err(Closed(message));
        }
        queue.messages.push_back(message);
        shared.not_empty.notify_one();
        Ok(())
    }

    /// Puts a message in if there is room. Gives it back if there is none, or no receiver is left.
    pub fn try_send(&self, message: T) -> Result<(), Closed<T>> {
        let mut queue = self.shared.queue.lock();
        if !queue.takes_messages() || queue.messages.len() >= self.shared.capacity {
            return Err(Closed(message));
        }
        queue.messages.push_back(message);
        self.shared.not_empty.notify_one();
        Ok(())
    }

    /// Lets no more messages in.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl<T> Receiver<T> {
    /// Waits for a message; nothing if there will be none.
    pub fn recv(&self) -> Option<T> {
        let shared = &*self.shared;
        let mut queue = shared.queue.lock();
        let is_empty = |q: &mut Queue<T>| q.messages.is_empty() && q.may_get_messages();
        shared.not_empty.wait_while(&mut queue, is_empty);
        shared.take(&mut queue)
    }

    /// A message if there is one.
    pub fn try_recv(&self) -> Result<T, NoMessage> {
        let mut queue = self.shared.queue.lock();
        let none = if queue.may_get_messages() {
            NoMessage::NotYet
        } else {
            NoMessage::Closed
        };
        self.shared.take(&mut queue).ok_or(none)
    }

    /// Waits for a message, but no longer than `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, NoMessage> {
        let shared = &*self.shared;
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = clock::monotonic_ns().saturating_add(timeout_ns);
        let mut queue = shared.queue.lock();
        loop {
            if let Some(message) = shared.take(&mut queue) {
                return Ok(message);
            }
            if !queue.may_get_messages() {
                return Err(NoMessage::Closed);
            }
            let left_ns = deadline_ns.saturating_sub(clock::monotonic_ns());
            if left_ns == 0 {
                return Err(NoMessage::NotYet);
            }
            let left = Duration::from_nanos(left_ns);
            let _ = shared.not_empty.wait_timeout(&mut queue, left);
        }
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.shared.queue.lock().messages.len()
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets no more messages in; those that are in can still be taken.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl<T> Shared<T> {
    fn take(&self, queue: &mut Queue<T>) -> Option<T> {
        let message = queue.messages.pop_front()?;
        self.not_full.notify_one();
        Some(message)
    }

    fn close(&self) {
        self.queue.lock().is_closed = true;
        self.wake_all();
    }

    fn wake_all(&self) {
        self.not_empty.notify_all();
        self.not_full.notify_all();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.queue.lock().senders += 1;
        Sender {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.senders -= 1;
        let is_last = queue.senders == 0;
        drop(queue);
        if is_last {
            self.shared.wake_all();
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.queue.lock().receivers += 1;
        Receiver {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.receivers -= 1;
        let unread = match queue.receivers {
            0 => std::mem::take(&mut queue.messages),
            _ => VecDeque::new(),
        };
        drop(queue);
        self.shared.wake_all();
        // Messages may hold anything; they are dropped with no lock held.
        drop(unread);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_order_and_end_with_the_last_sender() {
        let (sender, receiver) = bounded(2);
        std::thread::scope(|scope| {
            scope.spawn(move || (0..100).for_each(|n| sender.send(n).unwrap()));
            let received: Vec<i32> = std::iter::from_fn(|| receiver.recv()).collect();
            assert_eq!(received, (0..100).collect::<Vec<i32>>());
        });
    }

    #[test]
    fn a_closed_channel_gives_what_is_left_and_takes_nothing() {
        let (sender, receiver) = bounded(4);
        sender.send(1).unwrap();
        receiver.close();
        assert_eq!(sender.send(2), Err(Closed(2)));
        assert_eq!(receiver.recv(), Some(1));
        assert_eq!(receiver.recv(), None);
        assert_eq!(receiver.try_recv(), Err(NoMessage::Closed));
    }

    #[test]
    fn a_full_channel_takes_nothing_more_and_a_quiet_one_times_out() {
        let (sender, receiver) = bounded(1);
        assert_eq!(
            receiver.recv_timeout(Duration::from_millis(1)),
            Err(NoMessage::NotYet)
        );
        sender.try_send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(Closed(2)));
        drop(receiver);
        assert_eq!(sender.send(3), Err(Closed(3)));
    }
}
