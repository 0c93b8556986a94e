//! The device of a mount: replies and notices to the kernel.

use crate::protocol::{Answer, NOTIFY_FORGET_NODE, notice_head, reply_head};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::IoSlice;

/// Most parts of a reply that are written as they are. The system takes 1024 at once
/// (`UIO_MAXIOV`), of which one is the head.
const PARTS_MAX: usize = 1023;

/// The device of one mount.
#[derive(Debug)]
pub struct Device {
    pub(crate) descriptor: OwnedFd,
}

impl Device {
    /// Replies with these parts. Whose reply cannot be written is told that there was an error: he
    /// would wait for ever. Where he has gone or the mount has, nobody is left to tell.
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

    /// Tells the kernel that the attributes of a node are others than it has cached, and its access
    /// control lists. Its contents stay.
    pub fn forget_attributes(&self, node: u64) {
        // An offset below zero: no contents.
        self.forget(node, u64::MAX);
    }

    /// Tells the kernel that all of a node may be other than it has cached. It writes back what is
    /// dirty before it forgets that, and waits for reads: so no thread may call this that serves
    /// requests.
    pub fn forget_contents(&self, node: u64) {
        self.forget(node, 0);
    }

    /// From this offset to the end.
    fn forget(&self, node: u64, offset: u64) {
        let mut body = Answer::new();
        body.u64(node).u64(offset).u64(0);
        let head = notice_head(NOTIFY_FORGET_NODE, body.len());
        let slices = [IoSlice::new(&head), IoSlice::new(body.as_slice())];
        // A node that the kernel does not know any more is an error, and as good.
        let _ = rustix::io::writev(&self.descriptor, &slices);
    }

    /// Refuses.
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
    fn who_cannot_be_given_his_reply_is_told_so() {
        let (device, theirs) = device(SocketType::SEQPACKET);
        rustix::net::sockopt::set_socket_send_buffer_size(&device.descriptor, 4096).unwrap();
        device.reply(7, &[&[0; 64 << 10]]);
        let mut reply = [0; 32];
        let length = rustix::io::read(&theirs, &mut reply[..]).unwrap();
        assert_eq!(reply[..length], reply_head(7, Some(Errno::IO), 0));
    }
}
