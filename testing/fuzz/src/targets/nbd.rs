//! What clients of the NBD server send: options of the handshake with their data, and commands.

use crate::piece::Piece;
use crate::target::{Input, Target, told};
use tarn_nbd::nbd_messages::{
    ContextRequest, InfoRequest, OPTION_BYTES_MAX, OPTION_HEADER_BYTES, OPTION_MAGIC, OptionHeader,
    REQUEST_BYTES, REQUEST_MAGIC, Request, TRANSFER_BYTES_MAX, error_chunk, option_reply,
};

/// One option after the other, and then commands.
pub const MESSAGES: Target = Target {
    name: "nbd",
    about: "options and commands of NBD clients",
    run,
    seed,
    size_max: 4096,
    memory_per_byte: 64,
    memory_extra: 0,
};

/// Pools have no messages: they are made of the bytes of a piece.
fn seed(piece: &Piece) -> Option<Vec<u8>> {
    let data = &piece.bytes[..piece.bytes.len().min(64)];
    let length = u32::try_from(data.len()).ok()?;
    let mut bytes = Vec::new();
    for option in 1..=10_u32 {
        bytes.extend(OPTION_MAGIC.to_be_bytes());
        bytes.extend(option.to_be_bytes());
        bytes.extend((length + 10).to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        bytes.extend([0, 2, 0, 1, 0, 3]);
    }
    bytes.extend(REQUEST_MAGIC.to_be_bytes());
    bytes.extend(&piece.bytes[..piece.bytes.len().min(24)]);
    told(&[10], &bytes)
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let options = input.byte();
    let mut rest = input.rest;
    for _ in 0..options {
        let Ok(Some(header)) = OptionHeader::parse(rest) else {
            break;
        };
        assert!(header.length <= OPTION_BYTES_MAX);
        let length = usize::try_from(header.length).expect("it is short");
        let Some(data) = rest.get(OPTION_HEADER_BYTES..OPTION_HEADER_BYTES + length) else {
            return;
        };
        if let Some(info) = InfoRequest::parse(data) {
            assert_eq!(data.len(), 6 + info.name.len() + 2 * info.wanted.len());
        }
        if let Some(contexts) = ContextRequest::parse(data) {
            let names = contexts.queries.iter().map(|query| 4 + query.len());
            assert_eq!(data.len(), 8 + contexts.name.len() + names.sum::<usize>());
            let _ = (
                contexts.wants_allocation(true),
                contexts.wants_allocation(false),
            );
        }
        let reply = option_reply(header.option, 1, data);
        assert_eq!(reply.len(), 20 + data.len());
        rest = &rest[OPTION_HEADER_BYTES + length..];
    }
    while let Ok(Some(request)) = Request::parse(rest) {
        assert!(request.payload_bytes() <= TRANSFER_BYTES_MAX);
        let why = String::from_utf8_lossy(rest);
        let _ = error_chunk(request.cookie, 22, &why);
        rest = &rest[REQUEST_BYTES..];
    }
}
