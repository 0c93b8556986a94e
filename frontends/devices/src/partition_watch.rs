//! Partitions come and go without the daemon: a program writes a partition table, and Linux reads
//! it. Linux tells of each change of its devices on a socket (the one that udev listens to).

use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::io;
use std::time::Duration;

/// The group to which Linux itself sends.
const FROM_KERNEL: u32 = 1;

/// No message is larger.
const MESSAGE_BYTES: usize = 8 << 10;

/// How long the thread waits before it looks whether it is still needed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Starts a thread that calls `changed` with the number of each loop device of which a partition
/// came or went, until it returns false. None of them is called twice at the same time.
///
/// # Errors
/// The system's: there is no such socket here.
pub(crate) fn start(changed: impl Fn(Option<u32>) -> bool + Send + 'static) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        flags,
        Some(KOBJECT_UEVENT),
    )?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, FROM_KERNEL))?;
    std::thread::Builder::new()
        .name("tarnd-parts".to_string())
        .spawn(move || run(&socket, &changed))?;
    Ok(())
}

fn run(socket: &OwnedFd, changed: &dyn Fn(Option<u32>) -> bool) {
    let mut bytes = vec![0; MESSAGE_BYTES];
    let patience = rustix::time::Timespec::try_from(PATIENCE).ok();
    loop {
        let mut readable = [PollFd::new(socket, PollFlags::IN)];
        // An interrupted wait is one that ended early.
        let _ = rustix::event::poll(&mut readable, patience.as_ref());
        let length = match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((length, _)) => length,
            // Messages were lost: the next one is looked at.
            Err(_) => 0,
        };
        let device = bytes.get(..length).and_then(device_of);
        if !changed(device) {
            return;
        }
    }
}

/// The loop device of whose partition a message tells.
fn device_of(message: &[u8]) -> Option<u32> {
    // It begins with what happened and where: `add@/devices/virtual/block/loop0/loop0p1`.
    let first = message.split(|byte| *byte == 0).next()?;
    let text = std::str::from_utf8(first).ok()?;
    let (what, place) = text.split_once("@/devices/virtual/block/loop")?;
    let (number, partition) = place.split_once('/')?;
    let is_partition = partition.starts_with(&format!("loop{number}p"));
    let is_change = ["add", "remove", "change"].contains(&what);
    number.parse().ok().filter(|_| is_change && is_partition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_about_partitions_of_loop_devices_count() {
        let of = |text: &str| device_of(format!("{text}\0ACTION=add\0").as_bytes());
        assert_eq!(of("add@/devices/virtual/block/loop12/loop12p1"), Some(12));
        assert_eq!(of("remove@/devices/virtual/block/loop1/loop1p3"), Some(1));
        assert_eq!(of("change@/devices/virtual/block/loop1"), None);
        assert_eq!(of("add@/devices/virtual/block/zram0"), None);
        assert_eq!(of("add@/devices/virtual/block/loop1/loop2p3"), None);
        assert_eq!(device_of(b"\xff\0"), None);
    }
}
