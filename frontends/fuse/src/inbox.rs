//! The buffers that requests are read into.
//!
//! # Problem
//! A large write brings a mebibyte of contents. Read into one buffer, they are copied once more
//! into the blocks that are stored, and that copy costs as much as the one out of the kernel.
//!
//! # Mechanism
//! The kernel fills several buffers by one read. The first has exactly the size of the structures
//! before a write's contents; each of the others is as large as a usual block, and so are its
//! contents when the write begins at a block. The thread that serves the write takes these buffers,
//! and they become the blocks. New ones take their places before the next read.
//!
//! For any other request, bytes after the first buffer are appended to it: some ten bytes as a
//! rule.
//!
//! # Invariants
//! - Buffers of contents are taken only for a write whose structures give exactly the length that
//!   came.

use crate::protocol::{Arguments, REQUEST_BYTES_MAX, WRITE_BYTES_MAX, WRITE_HEAD_BYTES, opcode};
use rustix::fd::AsFd;
use rustix::io::{Errno, IoSliceMut};
use tarn_engine::files::{Buffer, NewContents};

/// Size of a buffer for contents: the default `recordsize`. With other sizes the contents are
/// copied.
const PART_BYTES: usize = 128 << 10;

/// Number of buffers for contents.
const PARTS: usize = WRITE_BYTES_MAX / PART_BYTES;

/// Space after the contents of the largest write, for other requests of the largest size.
const REST_BYTES: usize = REQUEST_BYTES_MAX - WRITE_BYTES_MAX - WRITE_HEAD_BYTES;

/// A request with its buffers, which are used again for the next one.
#[derive(Debug)]
pub struct Request {
    /// Its first bytes; or all of them.
    bytes: Vec<u8>,
    /// The contents, where [`has_contents`](Request::has_contents) is true.
    parts: Vec<Buffer>,
    rest: Vec<u8>,
    length: usize,
    has_contents: bool,
}

impl Request {
    /// Buffers for requests.
    pub fn room() -> Request {
        Request {
            bytes: Vec::new(),
            parts: Vec::new(),
            rest: vec![0; REST_BYTES],
            length: 0,
            has_contents: false,
        }
    }

    /// Reads the next request.
    ///
    /// # Errors
    /// The device's error.
    pub fn read(&mut self, device: impl AsFd) -> Result<(), Errno> {
        self.has_contents = false;
        self.parts
            .resize_with(PARTS, || Buffer::for_overwrite(PART_BYTES));
        self.bytes.resize(WRITE_HEAD_BYTES, 0);
        let mut slices: [_; PARTS + 2] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let into = std::iter::once(&mut self.bytes[..])
            .chain(self.parts.iter_mut().map(|part| &mut part[..]))
            .chain(std::iter::once(&mut self.rest[..]));
        for (slice, buffer) in slices.iter_mut().zip(into) {
            *slice = IoSliceMut::new(buffer);
        }
        self.length = rustix::io::readv(device, &mut slices)?;
        let behind = self.length.saturating_sub(WRITE_HEAD_BYTES);
        self.bytes.truncate(self.length);
        self.has_contents = behind >= PART_BYTES && self.is_write_of(behind);
        if !self.has_contents {
            self.append(behind);
        }
        Ok(())
    }

    /// Whether the structures are those of a write of this length.
    fn is_write_of(&self, bytes: usize) -> bool {
        let written = Arguments::of_parts(&self.bytes, bytes).and_then(|(head, mut arguments)| {
            arguments.skip(16)?;
            Ok((head.opcode == opcode::WRITE).then_some(arguments.u32()?))
        });
        written.is_ok_and(|size| size.is_some_and(|size| usize::try_from(size) == Ok(bytes)))
    }

    /// Appends this many bytes of the other buffers to the first.
    fn append(&mut self, mut count: usize) {
        let behind = self.parts.iter().map(|part| &part[..]);
        for part in behind.chain(std::iter::once(&self.rest[..])) {
            let now = count.min(part.len());
            self.bytes.extend_from_slice(&part[..now]);
            count -= now;
        }
    }

    /// The bytes of the request, without contents in other buffers.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The length of the request in bytes, contents included.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The request's head and arguments, up to contents in other buffers.
    ///
    /// # Errors
    /// `EINVAL` when the request is cut.
    pub fn arguments(&self) -> Result<(crate::protocol::RequestHead, Arguments<'_>), Errno> {
        Arguments::of_parts(&self.bytes, self.length - self.bytes.len())
    }

    /// Takes the contents in other buffers: all contents of a large write.
    pub fn take_contents(&mut self) -> Option<NewContents<'static>> {
        if !std::mem::take(&mut self.has_contents) {
            return None;
        }
        let length = self.length - WRITE_HEAD_BYTES;
        let used = length.div_ceil(PART_BYTES);
        Some(NewContents::Buffers {
            buffers: self.parts.drain(..used).collect(),
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Answer;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A write of `count` bytes that contain their own positions, whose structures give the length
    /// `said`.
    fn write(count: usize, said: usize, code: u32) -> Vec<u8> {
        let mut bytes = Answer::new();
        let length = u32::try_from(WRITE_HEAD_BYTES + count).unwrap();
        bytes.u32(length).u32(code).u64(7).u64(1).zeros(16);
        bytes.u64(1).u64(4096).u32(u32::try_from(said).unwrap());
        bytes.zeros(20);
        assert_eq!(bytes.len(), WRITE_HEAD_BYTES);
        bytes.bytes(&contents(count));
        bytes.as_slice().to_vec()
    }

    fn contents(count: usize) -> Vec<u8> {
        let word = |at: usize| u8::try_from((at * 7 + at / 251) % 256).unwrap();
        (0..count).map(word).collect()
    }

    fn joined(contents: &NewContents<'_>) -> Vec<u8> {
        let NewContents::Buffers { buffers, length } = contents else {
            panic!("these are in buffers")
        };
        let mut bytes: Vec<u8> = buffers.iter().flat_map(|one| one.iter().copied()).collect();
        bytes.truncate(*length);
        bytes
    }

    #[test]
    fn only_contents_of_large_writes_are_in_buffers_of_their_own() {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&theirs, 4 << 20).unwrap();
        let mut request = Request::room();
        let sizes = [0, 1, 4096, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1];
        let sizes = sizes
            .into_iter()
            .chain([3 * PART_BYTES, PART_BYTES * 3 / 2]);
        for (count, is_taken) in sizes.flat_map(|count| [(count, false), (count, true)]) {
            let sent = write(count, count, opcode::WRITE);
            rustix::io::write(&theirs, &sent).unwrap();
            request.read(&ours).unwrap();
            assert_eq!(request.length(), sent.len());
            assert!(request.arguments().is_ok());
            if count < PART_BYTES {
                assert_eq!(request.bytes(), sent);
                assert!(request.take_contents().is_none());
                continue;
            }
            assert_eq!(request.bytes(), &sent[..WRITE_HEAD_BYTES]);
            if is_taken {
                let taken = request.take_contents().unwrap();
                assert_eq!(joined(&taken), &sent[WRITE_HEAD_BYTES..]);
                assert!(request.take_contents().is_none());
                assert!(request.arguments().is_ok());
            }
        }
        for (said, code) in [
            (PART_BYTES - 1, opcode::WRITE),
            (PART_BYTES, opcode::SETXATTR),
        ] {
            let sent = write(PART_BYTES, said, code);
            rustix::io::write(&theirs, &sent).unwrap();
            request.read(&ours).unwrap();
            assert_eq!(request.bytes(), sent);
            assert!(request.take_contents().is_none());
        }
        rustix::io::write(&theirs, b"cut").unwrap();
        request.read(&ours).unwrap();
        assert_eq!(request.bytes(), b"cut");
        assert_eq!(request.arguments().err(), Some(Errno::INVAL));
    }
}
