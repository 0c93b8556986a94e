//! A client's connection: a source of requests of the serving threads.

use crate::message_receiver::{Message, Phase, Received, Receiver};
use crate::nbd_messages::{self, TRANSFER_BYTES_MAX, command, handshake_flag};
use crate::negotiation::Negotiation;
use crate::secured::{Secured, Security};
use crate::sending::Sender;
use crate::transmission::Export;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tarn_engine::Engine;
use tarn_engine::files::ClientId;
use tarn_engine::volumes::VolumeWatcher;
use tarn_serving::{Next, RequestTraits, Source};

/// From this size on a transfer counts as long: measured, below it another thread takes longer to
/// come to the next command than this one takes to move the bytes.
const LONG_BYTES: u32 = 1 << 20;

/// A connection.
pub(crate) struct Connection {
    engine: Arc<Engine>,
    client: ClientId,
    sender: Arc<Sender>,
    receiver: Mutex<Receiver>,
    /// Held while an option is carried out: what the bytes behind it are depends on it.
    negotiation: Mutex<Negotiation>,
    export: OnceLock<Export>,
    has_message: AtomicBool,
    moving: Arc<Moving>,
    security: Security,
    tell: Told,
}

/// What the server hears of a connection.
pub(crate) struct Told {
    /// The client has chosen a volume of this pool.
    pub(crate) on_chosen: Box<dyn Fn(&str) + Send + Sync>,
    /// It has gone.
    pub(crate) on_end: Box<dyn Fn() + Send + Sync>,
}

/// How many bytes commands move that are being carried out. A command enters and leaves without a
/// lock, unless there are too many.
#[derive(Default)]
struct Moving {
    bytes: AtomicU64,
    /// How many threads wait until there are fewer.
    waiting: AtomicU32,
    /// Held by a thread that looks whether it has to wait.
    looks: Mutex<()>,
    fewer: Condvar,
}

/// The bytes of one command.
pub(crate) struct Moved {
    moving: Arc<Moving>,
    bytes: u64,
}

impl Moving {
    /// Waits until the command may be carried out beside the others; before that calls
    /// `before_wait`.
    fn enter(self: &Arc<Self>, bytes: u64, before_wait: impl Fn()) -> Moved {
        if !self.may_enter(bytes) {
            before_wait();
            let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
            // A command that leaves after this is counted tells it; one that left before is seen.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            while !self.may_enter(bytes) {
                looks = (self.fewer.wait(looks)).unwrap_or_else(PoisonError::into_inner);
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        Moved {
            moving: self.clone(),
            bytes,
        }
    }

    /// Counts a command, if there is room for it.
    fn may_enter(&self, bytes: u64) -> bool {
        let most = u64::from(TRANSFER_BYTES_MAX);
        let more = |now: u64| (now == 0 || now + bytes <= most).then_some(now + bytes);
        let entered = (self.bytes).fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        entered.is_ok()
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        let moving = &self.moving;
        let before = moving.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        assert!(before >= self.bytes, "each command is counted once");
        if moving.waiting.load(Ordering::SeqCst) > 0 {
            let _looks = moving.looks.lock().unwrap_or_else(PoisonError::into_inner);
            moving.fewer.notify_all();
        }
    }
}

/// Ends the connection when its volume ends.
struct Ender(Weak<Sender>);

impl VolumeWatcher for Ender {
    /// The protocol has no way to tell: the client asks for the size when it connects.
    fn size_changed(&self, _: u64) {}

    fn ended(&self) {
        if let Some(sender) = self.0.upgrade() {
            sender.close();
        }
    }
}

impl Connection {
    /// Greets a client that has connected; its socket does not block.
    pub(crate) fn new(
        engine: Arc<Engine>,
        socket: OwnedFd,
        client: ClientId,
        security: Security,
        tell: Told,
    ) -> Arc<Connection> {
        let sender = Arc::new(Sender::new(socket));
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        sender.send(&[
            &nbd_messages::GREETING_MAGIC.to_be_bytes(),
            &nbd_messages::OPTION_MAGIC.to_be_bytes(),
            &flags.to_be_bytes(),
        ]);
        Arc::new(Connection {
            engine,
            client,
            sender,
            receiver: Mutex::new(Receiver::new()),
            negotiation: Mutex::new(Negotiation::default()),
            export: OnceLock::new(),
            has_message: AtomicBool::new(false),
            moving: Arc::default(),
            security,
            tell,
        })
    }

    /// Whether the client has chosen an export.
    pub(crate) fn is_negotiated(&self) -> bool {
        self.export.get().is_some()
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        self.sender.close();
    }

    fn negotiation(&self) -> MutexGuard<'_, Negotiation> {
        // A thread that panicked in here has answered an option or not; the client finds out.
        self.negotiation
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn receiver(&self) -> MutexGuard<'_, Receiver> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out an option, and begins the transmission where it chose an export.
    fn negotiate(&self, negotiation: &mut Negotiation, option: u32, data: &[u8]) {
        let is_drained = || self.receiver().is_drained();
        match self.security.answer(&self.sender, option, data, is_drained) {
            Secured::Passes => {}
            Secured::Answered => return,
            // What was agreed on in plain may be another's words.
            Secured::Began => {
                negotiation.release(&self.engine);
                return negotiation.begin_again();
            }
        }
        let chosen = negotiation.answer(&self.engine, &self.sender, option, data);
        let Some(volume) = chosen else { return };
        volume.watch(Arc::new(Ender(Arc::downgrade(&self.sender))));
        // The volume may have ended before it was watched.
        if volume.is_ended() {
            self.sender.close();
        }
        (self.tell.on_chosen)(volume.pool_name());
        let block_size = usize::try_from(volume.block_size()).unwrap_or(0);
        let export = Export::new(volume, negotiation, self.client);
        assert!(
            self.export.set(export).is_ok(),
            "an export is chosen once, as commands follow"
        );
        let mut receiver = self.receiver();
        receiver.phase = Phase::Commands { block_size };
        self.has_message
            .store(receiver.has_message(), Ordering::SeqCst);
    }
}

impl Source for Connection {
    type Request = Option<(Message, Option<Moved>)>;
    type DelayedReply = Infallible;

    fn new_request() -> Self::Request {
        None
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.sender.channel().as_fd()
    }

    fn take_request(&self, request: &mut Self::Request) -> Next {
        // What comes behind an option that is being carried out is not known yet.
        let negotiation = match self.export.get() {
            Some(_) => None,
            None => Some(self.negotiation()),
        };
        if self.sender.is_closing() {
            return Next::Ended;
        }
        let mut receiver = self.receiver();
        let received = receiver.receive(self.sender.channel());
        self.has_message
            .store(receiver.has_message(), Ordering::SeqCst);
        drop(receiver);
        drop(negotiation);
        let message = match received {
            Received::Message(message) => message,
            Received::Nothing => return Next::Nothing,
            Received::Ended => return Next::Ended,
        };
        let mut traits = RequestTraits {
            is_long: false,
            is_waited_for: true,
            may_delay_reply: false,
        };
        let mut moved = None;
        if let Message::Command(command, _) = &message {
            if command.command == command::DISC {
                return Next::Ended;
            }
            traits.is_long = command.length >= LONG_BYTES;
            let bytes = match command.command {
                command::READ | command::WRITE => command.length.min(TRANSFER_BYTES_MAX),
                _ => 0,
            };
            moved = Some(self.moving.enter(bytes.into(), || self.sender.send_held()));
        }
        *request = Some((message, moved));
        Next::Request(traits)
    }

    fn has_request_in_memory(&self) -> bool {
        self.has_message.load(Ordering::SeqCst)
            || self.sender.has_held()
            || self.sender.channel().has_more()
    }

    fn may_have_owners(&self) -> bool {
        false
    }

    fn serve(&self, request: &mut Self::Request) -> Option<Infallible> {
        let (message, moved) = request.take()?;
        match (message, self.export.get()) {
            (Message::Command(command, payload), Some(export)) => {
                let has_next = self.has_message.load(Ordering::SeqCst);
                export.carry_out(command, payload, (&self.sender, has_next));
            }
            (Message::Flags(flags), None) => {
                if !self.negotiation().take_flags(flags) {
                    self.sender.close();
                }
            }
            (Message::Option(option, data), None) => {
                self.negotiate(&mut self.negotiation(), option, &data);
            }
            // The phases exclude it.
            _ => self.sender.close(),
        }
        drop(moved);
        None
    }

    fn reply_when_durable(&self, delayed: Vec<Infallible>) {
        debug_assert!(delayed.is_empty(), "no reply is delayed");
    }

    fn send_held(&self) {
        self.sender.send_held();
    }

    fn send_held_at_once(&self) {
        self.sender.send_held_at_once();
    }

    fn gone(&self) {
        self.sender.close();
        self.negotiation().release(&self.engine);
        if let Some(export) = self.export.get() {
            // What could not be stored is told by the pool.
            let _ = self.engine.release_volume(export.volume());
        }
        (self.tell.on_end)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_wait_while_others_move_as_much_as_may_be() {
        let (moving, most) = (Arc::new(Moving::default()), u64::from(TRANSFER_BYTES_MAX));
        let none = || panic!("there is room");
        let (first, second) = (moving.enter(most - 9, none), moving.enter(9, none));
        let waits = Arc::new(AtomicBool::new(false));
        let (shared, told) = (moving.clone(), waits.clone());
        let third = std::thread::spawn(move || {
            shared.enter(10, || told.store(true, Ordering::SeqCst));
        });
        while moving.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(second);
        assert!(waits.load(Ordering::SeqCst) && !third.is_finished());
        drop(first);
        third.join().unwrap();
        assert_eq!(moving.bytes.load(Ordering::SeqCst), 0);
        // One that is larger than that is carried out alone.
        drop(moving.enter(2 * most, none));
    }

    #[test]
    fn no_thread_waits_for_ever() {
        let (moving, most) = (Arc::new(Moving::default()), u64::from(TRANSFER_BYTES_MAX));
        std::thread::scope(|scope| {
            for share in 1..5 {
                let moving = &moving;
                scope.spawn(move || {
                    for step in 1..2000 {
                        drop(moving.enter(most / share / (step % 3 + 1), || {}));
                    }
                });
            }
        });
        assert_eq!(moving.bytes.load(Ordering::SeqCst), 0);
    }
}
