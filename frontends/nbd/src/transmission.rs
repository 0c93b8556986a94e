//! Commands on the export that was chosen.

use crate::nbd_messages::{
    BASE_ALLOCATION_ID, Request, STATE_HOLE_AND_ZERO, TRANSFER_BYTES_MAX, chunk, command,
    command_flag, error, error_chunk, only_chunk, simple_reply,
};
use crate::negotiation::Negotiation;
use crate::sending::Sender;
use std::sync::Arc;
use tarn_engine::files::{Buffer, ClientId, ErrorCode, HolderId};
use tarn_engine::volumes::{
    Durable, HeldVolume, NewContents, Operation, OperationKind, Protocol, ReadData, VolumeError,
    Who,
};

/// How much `CACHE` reads at once.
const CACHED_TOGETHER: u64 = 1 << 20;

/// The volume of a connection, and how it is spoken of.
pub(crate) struct Export {
    volume: Arc<HeldVolume>,
    is_structured: bool,
    tells_allocation: bool,
    who: Who,
}

/// Why a command fails: the number for the client, and the reason for people.
struct Failure {
    number: u32,
    why: String,
}

/// What a command gives.
enum Answer {
    Done,
    Data(ReadData),
    /// Lengths, and whether they are allocated.
    Extents(Vec<(u64, bool)>),
}

impl Failure {
    fn invalid(why: &str) -> Failure {
        Failure {
            number: error::EINVAL,
            why: why.to_string(),
        }
    }

    /// The failure of an operation on the volume. Clients take `ENOSPC` where a write reaches
    /// beyond the end.
    fn of(error: &VolumeError, command: u16) -> Failure {
        let is_write = matches!(command, command::WRITE | command::WRITE_ZEROES);
        let number = match error {
            VolumeError::OutOfRange { .. } if is_write => error::ENOSPC,
            VolumeError::OutOfRange { .. } => error::EINVAL,
            VolumeError::ReadOnly => error::EPERM,
            VolumeError::NoSpace | VolumeError::QuotaExceeded => error::ENOSPC,
            VolumeError::Gone => error::ESHUTDOWN,
            _ => error::EIO,
        };
        Failure {
            number,
            why: error.to_string(),
        }
    }
}

impl Export {
    pub(crate) fn new(
        volume: Arc<HeldVolume>,
        negotiation: &Negotiation,
        client: ClientId,
    ) -> Export {
        Export {
            volume,
            is_structured: negotiation.is_structured,
            tells_allocation: negotiation.tells_allocation,
            who: Who {
                client,
                protocol: Protocol::Nbd,
                user: 0,
                holder: HolderId::NONE,
            },
        }
    }

    pub(crate) fn volume(&self) -> &HeldVolume {
        &self.volume
    }

    /// Carries out a command, and replies. `has_next`: another one is in memory.
    pub(crate) fn carry_out(
        &self,
        request: Request,
        payload: Vec<Buffer>,
        (sender, has_next): (&Sender, bool),
    ) {
        let kind = match request.command {
            command::READ | command::CACHE => OperationKind::Read,
            command::WRITE | command::WRITE_ZEROES => OperationKind::Write,
            command::TRIM => OperationKind::Discard,
            command::FLUSH => OperationKind::Sync,
            command::BLOCK_STATUS => OperationKind::Seek,
            _ => OperationKind::Other,
        };
        let range = (request.offset, u64::from(request.length));
        let operation = self.volume.begin(self.who, kind, range);
        let answer = self.answer(request, payload, &operation);
        if let Err(failure) = &answer {
            let errno = i32::try_from(failure.number).unwrap_or_default();
            operation.fail(ErrorCode::of_errno(errno));
        }
        let (header, data) = self.reply_of(request, answer);
        sender.reply(header, data, has_next);
        self.volume.finish(operation);
    }

    fn answer(
        &self,
        request: Request,
        payload: Vec<Buffer>,
        operation: &Operation,
    ) -> Result<Answer, Failure> {
        let volume = &self.volume;
        let (offset, length) = (request.offset, u64::from(request.length));
        let failed = |error: VolumeError| Failure::of(&error, request.command);
        let durable = match request.has(command_flag::FUA) {
            true => Durable::Now,
            false => Durable::Later,
        };
        check_flags(request)?;
        match request.command {
            command::READ if request.length == 0 => Err(Failure::invalid("nothing is read")),
            command::READ if request.length > TRANSFER_BYTES_MAX => {
                Err(Failure::invalid("more is read than a command may move"))
            }
            command::READ => {
                let length = usize::try_from(request.length).unwrap_or(usize::MAX);
                let data = volume.read(offset, length, operation).map_err(failed)?;
                Ok(Answer::Data(data))
            }
            command::WRITE => {
                let contents = NewContents::Buffers {
                    length: payload.iter().map(|buffer| buffer.len()).sum(),
                    buffers: payload,
                };
                let written = volume.write(offset, contents, durable, operation);
                written.map(|()| Answer::Done).map_err(failed)
            }
            command::FLUSH => {
                let flushed = volume.flush(operation);
                flushed.map(|()| Answer::Done).map_err(failed)
            }
            command::TRIM => {
                let freed = volume.discard(offset, length, durable, operation);
                freed.map(|()| Answer::Done).map_err(failed)
            }
            command::WRITE_ZEROES => {
                let may_free = !request.has(command_flag::NO_HOLE);
                if request.has(command_flag::FAST_ZERO) && !may_free {
                    return Err(Failure {
                        number: error::ENOTSUP,
                        why: "zeros that are allocated are written".to_string(),
                    });
                }
                let zeroed = volume.write_zeros(offset, length, may_free, durable, operation);
                zeroed.map(|()| Answer::Done).map_err(failed)
            }
            command::CACHE => {
                self.bring_into_cache(offset, length, operation)
                    .map_err(failed)?;
                Ok(Answer::Done)
            }
            command::BLOCK_STATUS if !self.tells_allocation => {
                Err(Failure::invalid("no context of block status was chosen"))
            }
            command::BLOCK_STATUS if length == 0 => Err(Failure::invalid("the range is empty")),
            command::BLOCK_STATUS => {
                let mut extents = volume
                    .allocated(offset, length, operation)
                    .map_err(failed)?;
                if request.has(command_flag::REQ_ONE) {
                    extents.truncate(1);
                }
                Ok(Answer::Extents(extents))
            }
            _ => Err(Failure::invalid("the command is not known")),
        }
    }

    /// Reads a range, in parts, so that the cache has it.
    fn bring_into_cache(
        &self,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<(), VolumeError> {
        let mut done = 0;
        while done < length {
            let count = CACHED_TOGETHER.min(length - done);
            let at = offset.saturating_add(done);
            let size = usize::try_from(count).unwrap_or(0);
            self.volume.read(at, size, operation)?;
            done += count;
        }
        Ok(())
    }

    /// The reply: bytes, and behind them what was read.
    fn reply_of(
        &self,
        request: Request,
        answer: Result<Answer, Failure>,
    ) -> (Vec<u8>, Option<ReadData>) {
        let cookie = request.cookie;
        let is_in_chunks = match request.command {
            command::READ => self.is_structured,
            command::BLOCK_STATUS => self.tells_allocation,
            _ => false,
        };
        match answer {
            Err(failure) if is_in_chunks => {
                (error_chunk(cookie, failure.number, &failure.why), None)
            }
            Err(failure) => (simple_reply(cookie, failure.number), None),
            Ok(Answer::Done) => (simple_reply(cookie, 0), None),
            Ok(Answer::Data(data)) => {
                let header = match is_in_chunks {
                    true => {
                        let mut header = only_chunk(cookie, chunk::OFFSET_DATA, request.length + 8);
                        header.extend(request.offset.to_be_bytes());
                        header
                    }
                    false => simple_reply(cookie, 0),
                };
                (header, Some(data))
            }
            Ok(Answer::Extents(extents)) => {
                let mut body = BASE_ALLOCATION_ID.to_be_bytes().to_vec();
                for (length, is_data) in extents {
                    let length = u32::try_from(length).expect("the range has so many bytes");
                    let state = if is_data { 0 } else { STATE_HOLE_AND_ZERO };
                    body.extend(length.to_be_bytes());
                    body.extend(state.to_be_bytes());
                }
                let size = u32::try_from(body.len()).expect("there are some thousands");
                let mut reply = only_chunk(cookie, chunk::BLOCK_STATUS, size);
                reply.extend(body);
                (reply, None)
            }
        }
    }
}

/// Refuses flags that the command does not have.
fn check_flags(request: Request) -> Result<(), Failure> {
    use command_flag::{DF, FAST_ZERO, FUA, NO_HOLE, REQ_ONE};
    // FUA is allowed everywhere, and means nothing where nothing is written.
    let known = FUA
        | match request.command {
            command::READ => DF,
            command::WRITE_ZEROES => NO_HOLE | FAST_ZERO,
            command::BLOCK_STATUS => REQ_ONE,
            _ => 0,
        };
    match request.flags & !known {
        0 => Ok(()),
        _ => Err(Failure::invalid("the command does not have these flags")),
    }
}
