//! The FUSE device of a mount: replies and notices to the kernel.

use crate::protocol::{
    Answer, NOTIFY_FORGET_NAME, NOTIFY_FORGET_NODE, NOTIFY_STORE, notice_head, reply_head,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io::IoSlice;

/// Most parts of a reply that are written without copying. The kernel takes 1024 at once
/// (`UIO_MAXIOV`), of which one is the head.
const PARTS_MAX: usize = 1023;

/// The device of one mount.
#[derive(Debug)]
pub struct Device {
    pub(crate) descriptor: OwnedFd,
}

impl Device {
    /// The device of a mount that was just made.
    pub fn new(descriptor: OwnedFd) -> Device {
        Device { descriptor }
    }

    /// Where requests come from.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Writes a reply with these parts. If that fails, an error is written, since the program would
    /// wait for ever. It fails too when the program or the mount has gone, and then no reply is
    /// needed.
    pub fn reply(&self, unique: u64, parts: &[&[u8]]) {
        let joined;
        let parts = match parts.len() > PARTS_MAX {
            true => {
                joined = parts.concat();
                &[&joined[..]]
            }
            false => parts,
        };
        let body = parts.iter().map(|part| part.len()).sum();
        let head = reply_head(unique, None, body);
        let mut slices = Vec::with_capacity(parts.len() + 1);
        slices.push(IoSlice::new(&head));
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        match rustix::io::writev(&self.descriptor, &slices) {
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(_) => self.refuse(unique, Errno::IO),
        }
    }

    /// Has the kernel drop the cached attributes and access control lists of a node. Its pages
    /// stay.
    ///
    /// # Errors
    /// `ENOENT` when the kernel does not know the node, so that there was nothing to drop.
    pub fn forget_attributes(&self, node: u64) -> Result<(), Errno> {
        // A negative offset: no pages.
        self.forget(node, u64::MAX, 0)
    }

    /// Has the kernel drop everything cached of a node. The kernel writes dirty pages back before,
    /// and waits for reads: threads that serve requests must not call this.
    pub fn forget_contents(&self, node: u64) {
        let _ = self.forget_range(node, 0, u64::MAX);
    }

    /// The same for `length` bytes from `offset` on, with the attributes. The kernel drops whole
    /// pages.
    ///
    /// # Errors
    /// `ENOENT` when the kernel does not know the node, so that there was nothing to drop.
    pub fn forget_range(&self, node: u64, offset: u64, length: u64) -> Result<(), Errno> {
        const LAST: u64 = i64::MAX.cast_unsigned();
        let end = offset.checked_add(length).filter(|end| *end <= LAST);
        match (length, end) {
            (0, _) => self.forget_attributes(node),
            // A length of zero means to the end.
            (_, None) => self.forget(node, offset.min(LAST), 0),
            (length, Some(_)) => self.forget(node, offset, length),
        }
    }

    /// Stores the last byte of a file of this size in the kernel's page cache, and with it the
    /// size, where the kernel knew a smaller one. Waits for the lock of the page, as
    /// [`forget_range`](Self::forget_range) does.
    pub fn tell_end(&self, node: u64, size: u64, last: u8) {
        let mut body = Answer::new();
        body.u64(node).u64(size - 1).u32(1).u32(0).bytes(&[last]);
        let _ = self.notify(NOTIFY_STORE, &body);
    }

    fn forget(&self, node: u64, offset: u64, length: u64) -> Result<(), Errno> {
        let mut body = Answer::new();
        body.u64(node).u64(offset).u64(length);
        self.notify(NOTIFY_FORGET_NODE, &body)
    }

    /// Has the kernel drop a cached name of a directory. The kernel waits for the lock of the
    /// directory, which it holds while requests about names in it are answered: threads that serve
    /// requests of this mount must not call this.
    pub fn forget_name(&self, directory: u64, name: &[u8]) {
        let Ok(length) = u32::try_from(name.len()) else {
            return;
        };
        let mut body = Answer::new();
        body.u64(directory).u32(length).u32(0).bytes(name).zeros(1);
        // `ENOENT`: the kernel does not know the name, so there was nothing to drop.
        let _ = self.notify(NOTIFY_FORGET_NAME, &body);
    }

    fn notify(&self, what: i32, body: &Answer) -> Result<(), Errno> {
        let head = notice_head(what, body.len());
        let slices = [IoSlice::new(&head), IoSlice::new(body.as_slice())];
        rustix::io::writev(&self.descriptor, &slices).map(drop)
    }

    /// Replies with an error.
    pub fn refuse(&self, unique: u64, errno: Errno) {
        let head = reply_head(unique, Some(errno), 0);
        let _ = rustix::io::write(&self.descriptor, &head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn device(kind: SocketType) -> (Device, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (descriptor, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        (Device { descriptor }, theirs)
    }

    #[test]
    fn a_reply_of_more_parts_than_the_system_takes_at_once_arrives_whole() {
        for count in [1, PARTS_MAX, PARTS_MAX + 1, 3 * PARTS_MAX] {
            let (device, theirs) = device(SocketType::SEQPACKET);
            let numbers: Vec<[u8; 8]> = (0..count).map(usize::to_ne_bytes).collect();
            let parts: Vec<&[u8]> = numbers.iter().map(|number| &number[..]).collect();
            device.reply(7, &parts);
            let mut reply = vec![0; 16 + count * 8 + 1];
            let length = rustix::io::read(&theirs, &mut reply[..]).unwrap();
            assert_eq!(reply[..16], reply_head(7, None, count * 8));
            assert_eq!(reply[16..length], parts.concat());
        }
    }

    #[test]
    fn a_reply_that_cannot_be_written_becomes_an_error() {
        let (device, theirs) = device(SocketType::SEQPACKET);
        rustix::net::sockopt::set_socket_send_buffer_size(&device.descriptor, 4096).unwrap();
        device.reply(7, &[&[0; 64 << 10]]);
        let mut reply = [0; 32];
        let length = rustix::io::read(&theirs, &mut reply[..]).unwrap();
        assert_eq!(reply[..length], reply_head(7, Some(Errno::IO), 0));
    }
}
