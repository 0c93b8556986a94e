//! The messages of the protocol: bytes to values and back. All numbers are big-endian.

/// The first words of the server: `NBDMAGIC`, `IHAVEOPT`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Begins each option of a client, and follows [`GREETING_MAGIC`].
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins each command.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// The data of an option may have so many bytes: names have at most 4096.
pub const OPTION_BYTES_MAX: u32 = 32 << 10;
/// A command may move so many bytes, as clients expect that are not told another number.
pub const TRANSFER_BYTES_MAX: u32 = 32 << 20;
/// A name may have so many bytes.
pub const NAME_BYTES_MAX: u32 = 4096;

/// The size of the header of an option, in bytes.
pub const OPTION_HEADER_BYTES: usize = 16;
/// The size of a command without what it writes, in bytes.
pub const REQUEST_BYTES: usize = 28;

/// Flags of the server in the greeting, and those of the client that answer them.
pub mod handshake_flag {
    /// The server is of the fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The 124 zeros at the end of the answer to `EXPORT_NAME` may be left out.
    pub const NO_ZEROES: u16 = 2;
}

/// Options of the handshake.
pub mod option {
    /// Choose an export, and begin; the only answer to a fault is the end of the connection.
    pub const EXPORT_NAME: u32 = 1;
    /// End the connection.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Go on with TLS.
    pub const STARTTLS: u32 = 5;
    /// Tell of an export.
    pub const INFO: u32 = 6;
    /// Choose an export, and begin.
    pub const GO: u32 = 7;
    /// Reply to reads in chunks.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List contexts of block status.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose contexts of block status.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub mod reply {
    /// It was carried out.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// A fact about an export.
    pub const INFO: u32 = 3;
    /// A context of block status.
    pub const META_CONTEXT: u32 = 4;
    /// The option is not known, or not supported.
    pub const ERR_UNSUP: u32 = 0x8000_0001;
    /// The option's data makes no sense here.
    pub const ERR_INVALID: u32 = 0x8000_0003;
    /// TLS must begin first.
    pub const ERR_TLS_REQD: u32 = 0x8000_0005;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = 0x8000_0006;
    /// The server is about to stop.
    pub const ERR_SHUTDOWN: u32 = 0x8000_0007;
    /// The option's data is too long.
    pub const ERR_TOO_BIG: u32 = 0x8000_0009;
}

/// Facts about an export.
pub mod info {
    /// Its size and its flags.
    pub const EXPORT: u16 = 0;
    /// Its name.
    pub const NAME: u16 = 1;
    /// The smallest, the preferred and the largest transfer.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
pub mod export_flag {
    /// There are flags.
    pub const HAS_FLAGS: u16 = 1;
    /// It cannot be written.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` is known.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The flag FUA is known.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `TRIM` is known.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` is known.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The flag DF is known.
    pub const SEND_DF: u16 = 1 << 7;
    /// Several connections see the same, and a flush of one holds for all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `CACHE` is known.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The flag FAST_ZERO is known.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands.
pub mod command {
    /// Read bytes.
    pub const READ: u16 = 0;
    /// Write bytes.
    pub const WRITE: u16 = 1;
    /// End the connection.
    pub const DISC: u16 = 2;
    /// Make all that was written durable.
    pub const FLUSH: u16 = 3;
    /// Discard a range.
    pub const TRIM: u16 = 4;
    /// Bring a range into the cache.
    pub const CACHE: u16 = 5;
    /// Make a range read as zeros.
    pub const WRITE_ZEROES: u16 = 6;
    /// Tell which parts of a range are allocated.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub mod command_flag {
    /// Durable when the reply comes.
    pub const FUA: u16 = 1;
    /// Zeros that are allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The reply to a read is one chunk.
    pub const DF: u16 = 1 << 2;
    /// One extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail where zeroing is no faster than writing.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Types of chunks of structured replies.
pub mod chunk {
    /// The bytes of a read.
    pub const OFFSET_DATA: u16 = 1;
    /// The extents of a range.
    pub const BLOCK_STATUS: u16 = 5;
    /// The command has failed.
    pub const ERROR: u16 = (1 << 15) + 1;
    /// The flag of the last chunk.
    pub const DONE: u16 = 1;
}

/// Errors of commands, as numbers of Linux.
pub mod error {
    /// It is read-only.
    pub const EPERM: u32 = 1;
    /// It cannot be read or stored.
    pub const EIO: u32 = 5;
    /// The request makes no sense.
    pub const EINVAL: u32 = 22;
    /// There is no space, or the range of a write reaches beyond the end.
    pub const ENOSPC: u32 = 28;
    /// The command cannot be carried out so fast.
    pub const ENOTSUP: u32 = 95;
    /// The export is gone.
    pub const ESHUTDOWN: u32 = 108;
}

/// The context of block status that says what is allocated.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The number under which replies name it.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// The extent is not allocated, and reads as zeros.
pub const STATE_HOLE_AND_ZERO: u32 = 3;

/// Why bytes are no message. The connection ends: where the next message begins is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The magic number is another.
    #[error("a message begins with {found:#x}, not with {expected:#x}")]
    Magic {
        /// What came.
        found: u64,
        /// What was to come.
        expected: u64,
    },
    /// A message is longer than it may be.
    #[error("a message of {bytes} bytes; at most {most} are taken")]
    TooLong {
        /// How long it says it is.
        bytes: u32,
        /// How long it may be.
        most: u32,
    },
}

/// The header of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which it is.
    pub option: u32,
    /// How many bytes of data follow.
    pub length: u32,
}

impl OptionHeader {
    /// Takes a header from the front of these bytes; none where they do not reach.
    ///
    /// # Errors
    /// The magic number is wrong, or the data would be too long.
    pub fn parse(bytes: &[u8]) -> Result<Option<OptionHeader>, Malformed> {
        let mut words = Words(bytes);
        let (Some(magic), Some(option), Some(length)) = (words.u64(), words.u32(), words.u32())
        else {
            return Ok(None);
        };
        if magic != OPTION_MAGIC {
            return Err(Malformed::Magic {
                found: magic,
                expected: OPTION_MAGIC,
            });
        }
        match length > OPTION_BYTES_MAX {
            true => Err(Malformed::TooLong {
                bytes: length,
                most: OPTION_BYTES_MAX,
            }),
            false => Ok(Some(OptionHeader { option, length })),
        }
    }
}

/// A command, without what it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Its flags.
    pub flags: u16,
    /// Which it is.
    pub command: u16,
    /// The client's number for it.
    pub cookie: u64,
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// How many bytes it has.
    pub length: u32,
}

impl Request {
    /// Takes a command from the front of these bytes; none where they do not reach.
    ///
    /// # Errors
    /// The magic number is wrong, or more would be written than a command may.
    pub fn parse(bytes: &[u8]) -> Result<Option<Request>, Malformed> {
        let mut words = Words(bytes);
        let (Some(magic), Some(flags), Some(command)) = (words.u32(), words.u16(), words.u16())
        else {
            return Ok(None);
        };
        let (Some(cookie), Some(offset), Some(length)) = (words.u64(), words.u64(), words.u32())
        else {
            return Ok(None);
        };
        if magic != REQUEST_MAGIC {
            return Err(Malformed::Magic {
                found: magic.into(),
                expected: REQUEST_MAGIC.into(),
            });
        }
        let request = Request {
            flags,
            command,
            cookie,
            offset,
            length,
        };
        match request.payload_bytes() > TRANSFER_BYTES_MAX {
            true => Err(Malformed::TooLong {
                bytes: length,
                most: TRANSFER_BYTES_MAX,
            }),
            false => Ok(Some(request)),
        }
    }

    /// How many bytes follow it.
    pub fn payload_bytes(&self) -> u32 {
        match self.command {
            command::WRITE => self.length,
            _ => 0,
        }
    }

    /// Whether it has a flag.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// The data of `INFO` and `GO`: an export, and the facts that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoRequest {
    /// The name of the export.
    pub name: String,
    /// The facts.
    pub wanted: Vec<u16>,
}

impl InfoRequest {
    /// Takes the data apart; none where it makes no sense.
    pub fn parse(data: &[u8]) -> Option<InfoRequest> {
        let mut words = Words(data);
        let name = words.name()?;
        let count = words.u16()?;
        let wanted: Option<Vec<u16>> = (0..count).map(|_| words.u16()).collect();
        words.0.is_empty().then_some(InfoRequest {
            name,
            wanted: wanted?,
        })
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`: an export, and which contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextRequest {
    /// The name of the export.
    pub name: String,
    /// The contexts, by names or patterns.
    pub queries: Vec<String>,
}

impl ContextRequest {
    /// Takes the data apart; none where it makes no sense.
    pub fn parse(data: &[u8]) -> Option<ContextRequest> {
        let mut words = Words(data);
        let name = words.name()?;
        let count = words.u32()?;
        // Each query has at least its length.
        let most = words.0.len() / 4;
        if usize::try_from(count).ok()? > most {
            return None;
        }
        let queries: Option<Vec<String>> = (0..count).map(|_| words.name()).collect();
        words.0.is_empty().then_some(ContextRequest {
            name,
            queries: queries?,
        })
    }

    /// Whether a query chooses `base:allocation`. In a list, `base:` stands for all contexts that
    /// begin so, and no query for all.
    pub fn wants_allocation(&self, is_list: bool) -> bool {
        let is_it = |query: &String| query == BASE_ALLOCATION || (is_list && query == "base:");
        self.queries.iter().any(is_it) || (is_list && self.queries.is_empty())
    }
}

/// Numbers at the front of bytes.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text with its length before it.
    fn name(&mut self) -> Option<String> {
        let length = self.u32().filter(|length| *length <= NAME_BYTES_MAX)?;
        let (name, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        String::from_utf8(name.to_vec()).ok()
    }
}

/// The reply to an option.
pub fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("a reply is short");
    let mut bytes = Vec::with_capacity(20 + data.len());
    bytes.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    bytes
}

/// A simple reply, without the bytes of a read. No error is zero.
pub fn simple_reply(cookie: u64, error: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    bytes.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes.extend(error.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes
}

/// The header of the only chunk of a structured reply, with so many bytes behind it.
pub fn only_chunk(cookie: u64, kind: u16, length: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    bytes.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes.extend(chunk::DONE.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// A structured reply that says why a command has failed.
pub fn error_chunk(cookie: u64, error: u32, why: &str) -> Vec<u8> {
    let why = &why.as_bytes()[..why.len().min(usize::from(u16::MAX >> 4))];
    let text = u16::try_from(why.len()).expect("it was cut");
    let mut bytes = only_chunk(cookie, chunk::ERROR, u32::from(text) + 6);
    bytes.extend(error.to_be_bytes());
    bytes.extend(text.to_be_bytes());
    bytes.extend(why);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write of 512 bytes at 4096, as qemu sends it.
    const WRITE: [u8; REQUEST_BYTES] = [
        0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0,
        0, 2, 0,
    ];

    #[test]
    fn a_command_is_taken_when_it_is_there_whole() {
        for length in 0..REQUEST_BYTES {
            assert_eq!(Request::parse(&WRITE[..length]), Ok(None), "{length}");
        }
        let request = Request::parse(&WRITE).unwrap().unwrap();
        assert_eq!(request.command, command::WRITE);
        assert_eq!((request.offset, request.length), (4096, 512));
        assert_eq!(request.cookie, 0x0102_0304_0506_0708);
        assert!(request.has(command_flag::FUA) && !request.has(command_flag::NO_HOLE));
        assert_eq!(request.payload_bytes(), 512);
    }

    #[test]
    fn what_is_too_long_or_no_message_is_refused() {
        let mut other = WRITE;
        other[0] = 0;
        assert!(matches!(
            Request::parse(&other),
            Err(Malformed::Magic { .. })
        ));
        let mut long = WRITE;
        long[24] = 0xff;
        assert!(matches!(
            Request::parse(&long),
            Err(Malformed::TooLong { .. })
        ));
        // A read of that length is answered with an error.
        long[7] = 0;
        assert!(Request::parse(&long).unwrap().is_some());
        let option = |length: u32| {
            let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
            bytes.extend(option::LIST.to_be_bytes());
            bytes.extend(length.to_be_bytes());
            OptionHeader::parse(&bytes)
        };
        assert_eq!(option(0).unwrap().unwrap().option, option::LIST);
        assert!(option(OPTION_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn names_and_queries_are_as_long_as_they_say() {
        let data = [&[0, 0, 0, 6][..], b"tank/v", &[0, 2, 0, 3, 0, 1]].concat();
        let parsed = InfoRequest::parse(&data).unwrap();
        assert_eq!(
            (parsed.name.as_str(), parsed.wanted),
            ("tank/v", vec![3, 1])
        );
        for length in 0..data.len() {
            assert_eq!(InfoRequest::parse(&data[..length]), None, "{length}");
        }
        assert_eq!(InfoRequest::parse(&[data, vec![0]].concat()), None);
        let contexts = |queries: &[&str]| {
            let mut data = vec![0, 0, 0, 0];
            data.extend(u32::try_from(queries.len()).unwrap().to_be_bytes());
            for query in queries {
                data.extend(u32::try_from(query.len()).unwrap().to_be_bytes());
                data.extend(query.as_bytes());
            }
            ContextRequest::parse(&data).unwrap()
        };
        assert!(contexts(&["qemu:x", "base:allocation"]).wants_allocation(false));
        assert!(!contexts(&["base:"]).wants_allocation(false));
        assert!(contexts(&["base:"]).wants_allocation(true));
        assert!(contexts(&[]).wants_allocation(true) && !contexts(&[]).wants_allocation(false));
        // Many queries without bytes.
        assert_eq!(ContextRequest::parse(&[0, 0, 0, 0, 0xff, 0, 0, 0]), None);
    }
}
