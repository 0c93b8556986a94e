//! Receiving: bytes of the socket become messages.
//!
//! # Mechanism
//! Bytes are read ahead into a small buffer, from which headers are taken. What a command writes is
//! read into buffers of its own, each one block of the volume where the range lies so; only what
//! the small buffer has of it already is copied.

use crate::nbd_messages::{Malformed, OPTION_HEADER_BYTES, OptionHeader, REQUEST_BYTES, Request};
use rustix::io::Errno;
use tarn_engine::files::Buffer;
use tarn_tls::Channel;

/// How many bytes are read ahead: an option with its data fits.
const AHEAD_BYTES: usize = 64 << 10;
/// The smallest blocks that are received one by one.
const BLOCK_BYTES_MIN: usize = 4 << 10;
/// The largest buffer.
const BUFFER_BYTES_MAX: usize = 128 << 10;

/// What the next bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The flags with which a client begins.
    Flags,
    /// Options of the handshake.
    Options,
    /// Commands, for a volume with blocks of this size.
    Commands {
        /// In bytes.
        block_size: usize,
    },
}

/// A message.
#[derive(Debug)]
pub(crate) enum Message {
    /// The client's flags.
    Flags(u32),
    /// An option with its data.
    Option(u32, Vec<u8>),
    /// A command, and the bytes that it writes.
    Command(Request, Vec<Buffer>),
}

/// What a look for the next message found.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message.
    Message(Message),
    /// A part of a message, or nothing.
    Nothing,
    /// The client has gone, or what it sends makes no sense.
    Ended,
}

/// The bytes of a command that are being received.
struct Payload {
    request: Request,
    whole: Vec<Buffer>,
    last: Option<(Buffer, usize)>,
    /// How many bytes are not in buffers yet.
    rest: usize,
    /// Where the next buffer begins, in the volume.
    at: u64,
}

impl Payload {
    fn new(request: Request) -> Payload {
        Payload {
            request,
            whole: Vec::new(),
            last: None,
            rest: size(request.payload_bytes()),
            at: request.offset,
        }
    }

    /// Where the next bytes go; none when all are there.
    fn place(&mut self, block_size: usize) -> Option<&mut [u8]> {
        if self.last.is_none() && self.rest > 0 {
            let unit = match block_size {
                BLOCK_BYTES_MIN..=BUFFER_BYTES_MAX => block_size,
                _ => BUFFER_BYTES_MAX,
            };
            let unit_bytes = u64::try_from(unit).expect("it is small");
            let within = usize::try_from(self.at % unit_bytes).expect("it is below the unit");
            let length = (unit - within).min(self.rest);
            self.rest -= length;
            self.at = self
                .at
                .wrapping_add(u64::try_from(length).expect("it is small"));
            self.last = Some((Buffer::for_overwrite(length), 0));
        }
        let (buffer, filled) = self.last.as_mut()?;
        Some(&mut buffer[*filled..])
    }

    fn advance(&mut self, count: usize) {
        let (buffer, filled) = self.last.as_mut().expect("bytes came into a buffer");
        *filled += count;
        if *filled == buffer.len() {
            let full = self.last.take();
            self.whole.extend(full.map(|(buffer, _)| buffer));
        }
    }
}

/// The reading end of a connection.
pub(crate) struct Receiver {
    ahead: Vec<u8>,
    start: usize,
    end: usize,
    payload: Option<Payload>,
    /// What the next bytes are.
    pub(crate) phase: Phase,
}

impl Receiver {
    pub(crate) fn new() -> Receiver {
        Receiver {
            ahead: vec![0; AHEAD_BYTES],
            start: 0,
            end: 0,
            payload: None,
            phase: Phase::Flags,
        }
    }

    /// Takes the next message, without waiting.
    pub(crate) fn receive(&mut self, channel: &Channel) -> Received {
        loop {
            match self.take_message() {
                Ok(Some(message)) => return Received::Message(message),
                Ok(None) => {}
                Err(_) => return Received::Ended,
            }
            match self.read(channel) {
                Ok(0) => return Received::Ended,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Received::Nothing,
                Err(_) => return Received::Ended,
            }
        }
    }

    /// Whether nothing was read that was not taken.
    pub(crate) fn is_drained(&self) -> bool {
        self.start == self.end && self.payload.is_none()
    }

    /// Whether a whole message was read ahead.
    pub(crate) fn has_message(&self) -> bool {
        let bytes = &self.ahead[self.start..self.end];
        let needed = match self.phase {
            Phase::Flags => 4,
            Phase::Options => match OptionHeader::parse(bytes) {
                Ok(Some(header)) => OPTION_HEADER_BYTES + size(header.length),
                Ok(None) => OPTION_HEADER_BYTES,
                Err(_) => 0,
            },
            Phase::Commands { .. } => match Request::parse(bytes) {
                Ok(Some(request)) => REQUEST_BYTES + size(request.payload_bytes()),
                Ok(None) => REQUEST_BYTES,
                Err(_) => 0,
            },
        };
        self.payload.is_none() && bytes.len() >= needed
    }

    /// Reads from the socket: what a command writes into its buffers, else ahead.
    fn read(&mut self, channel: &Channel) -> Result<usize, Errno> {
        if let (Phase::Commands { block_size }, Some(payload)) = (self.phase, &mut self.payload)
            && let Some(place) = payload.place(block_size)
        {
            let count = channel.read(place)?;
            if count > 0 {
                payload.advance(count);
            }
            return Ok(count);
        }
        self.ahead.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let count = channel.read(&mut self.ahead[self.end..])?;
        self.end += count;
        Ok(count)
    }

    fn take_message(&mut self) -> Result<Option<Message>, Malformed> {
        let bytes = &self.ahead[self.start..self.end];
        match self.phase {
            Phase::Flags => {
                let Some(flags) = bytes.first_chunk::<4>() else {
                    return Ok(None);
                };
                let flags = u32::from_be_bytes(*flags);
                self.start += 4;
                self.phase = Phase::Options;
                Ok(Some(Message::Flags(flags)))
            }
            Phase::Options => {
                let Some(header) = OptionHeader::parse(bytes)? else {
                    return Ok(None);
                };
                let end = OPTION_HEADER_BYTES + size(header.length);
                let Some(data) = bytes.get(OPTION_HEADER_BYTES..end) else {
                    return Ok(None);
                };
                let data = data.to_vec();
                self.start += end;
                Ok(Some(Message::Option(header.option, data)))
            }
            Phase::Commands { block_size } => self.take_command(block_size),
        }
    }

    fn take_command(&mut self, block_size: usize) -> Result<Option<Message>, Malformed> {
        if self.payload.is_none() {
            let Some(request) = Request::parse(&self.ahead[self.start..self.end])? else {
                return Ok(None);
            };
            self.start += REQUEST_BYTES;
            self.payload = Some(Payload::new(request));
        }
        let payload = self.payload.as_mut().expect("there is one now");
        while let Some(place) = payload.place(block_size) {
            let count = place.len().min(self.end - self.start);
            if count == 0 {
                return Ok(None);
            }
            place[..count].copy_from_slice(&self.ahead[self.start..self.start + count]);
            self.start += count;
            payload.advance(count);
        }
        let payload = self.payload.take().expect("it is whole");
        Ok(Some(Message::Command(payload.request, payload.whole)))
    }
}

fn size(bytes: u32) -> usize {
    usize::try_from(bytes).expect("memory is addressed by 32 bits at least")
}
