//! Calls on paths, made by threads without descriptors.
//!
//! # Mechanism
//! A path may lead into a file system that this process serves over FUSE: the mount point of
//! `tank/home` lies in the mount of `tank`. The kernel then asks this process, and the thread that
//! made the call waits. If the process is killed meanwhile, the kernel lets the thread wait for the
//! answer to a request that was read already; other threads end. The connection is aborted when the
//! last descriptor of `/dev/fuse` is closed; but threads share a table of descriptors, which lasts
//! as long as one of them does. The waiting thread would keep the connection that it waits for, and
//! the process and every user of the mount would stay for ever.
//!
//! So such a call is made by a thread of its own, which has a table of its own (unshare(2),
//! `CLONE_FILES`) from which all but the standard streams are closed. If the process is killed, the
//! shared table goes with the other threads, the kernel aborts the connection, and the call
//! returns.
//!
//! A function pointer is called and not a closure, so that no descriptor comes along by mistake.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::thread::UnshareFlags;

/// The descriptors that stay: the standard streams, by which a panic is told.
const STREAMS: RawFd = 3;

/// Calls `call` with `path` in a thread without descriptors, and waits for it. Where the system
/// gives no thread, or no table of descriptors, the call is made all the same.
///
/// `call` may use no descriptor that another thread opened.
pub fn call_apart<T: Send>(path: &Path, call: fn(&Path) -> T) -> T {
    in_thread(|| {
        leave_descriptors(None);
        call(path)
    })
    .unwrap_or_else(|| call(path))
}

/// Opens a path as [`call_apart`] makes calls; the descriptor is the calling thread's.
///
/// # Errors
/// What the system said.
pub fn open_apart(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let open = || rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let sent = in_thread(|| {
        leave_descriptors(Some(theirs.as_raw_fd()));
        send(&theirs, &open()?)
    });
    match sent {
        Some(sent) => sent.and_then(|()| receive(&ours)),
        None => open(),
    }
}

/// Runs `work` in a thread; none where the system gives no thread. What panics there panics here.
fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("path".to_owned());
        let thread = builder.spawn_scoped(scope, work).ok()?;
        let ended = thread.join();
        Some(ended.unwrap_or_else(|payload| std::panic::resume_unwind(payload)))
    })
}

/// Gives the calling thread a table of descriptors of its own, and closes all but the standard
/// streams and `kept` in it.
fn leave_descriptors(kept: Option<RawFd>) {
    // SAFETY: the table is copied, so descriptors of other threads stay open. This thread ends
    // after one call, which opens what it uses; `kept` is not closed. Gained: the thread holds no
    // connection that it may wait for.
    let is_apart = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }.is_ok();
    if !is_apart {
        return;
    }
    match kept.filter(|kept| *kept >= STREAMS) {
        None => close_range(STREAMS, RawFd::MAX),
        Some(kept) => {
            close_range(STREAMS, kept - 1);
            close_range(kept + 1, RawFd::MAX);
        }
    }
}

/// Closes descriptors of this thread's own table, both ends included. Kernels before 5.9 cannot,
/// and nothing is closed there.
fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: the call takes numbers and touches no memory; the table is the thread's own, and what
    // is closed is not used by it again.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

fn send(socket: &OwnedFd, opened: &OwnedFd) -> Result<(), Errno> {
    use std::os::fd::AsFd;
    let descriptors = [opened.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(
        control.push(SendAncillaryMessage::ScmRights(&descriptors)),
        "the buffer has room for one descriptor"
    );
    let word = [io::IoSlice::new(b"o")];
    rustix::net::sendmsg(socket, &word, &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

fn receive(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0_u8; 1];
    let mut words = [io::IoSliceMut::new(&mut word)];
    // It was sent before the thread ended.
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    rustix::net::recvmsg(socket, &mut words, &mut control, flags)?;
    let opened = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    opened.ok_or(Errno::MFILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// The numbers above the standard streams that a thread has open.
    fn descriptors(_: &Path) -> Vec<RawFd> {
        let names = std::fs::read_dir("/proc/thread-self/fd").unwrap();
        let number = |entry: io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().to_str()?.parse().ok()
        };
        names
            .filter_map(number)
            .filter(|one| *one >= STREAMS)
            .collect()
    }

    #[test]
    fn a_call_apart_has_no_descriptors_and_closes_none_of_other_threads() {
        let path = Path::new("/proc/self/stat");
        let held = File::open(path).unwrap();
        assert!(descriptors(path).contains(&held.as_raw_fd()));
        // The one by which they are listed.
        assert_eq!(call_apart(path, descriptors), [STREAMS]);
        assert!(std::io::read_to_string(held).unwrap().contains('('));
    }

    #[test]
    fn what_is_opened_apart_is_the_caller_s() {
        let folder = open_apart(Path::new("/proc"), OFlags::PATH | OFlags::DIRECTORY).unwrap();
        let shown = format!("/proc/self/fd/{}", folder.as_raw_fd());
        assert_eq!(std::fs::read_link(shown).unwrap(), Path::new("/proc"));
        let gone = open_apart(Path::new("/proc/not there"), OFlags::PATH);
        assert_eq!(gone.unwrap_err(), Errno::NOENT);
    }

    #[test]
    #[should_panic(expected = "told")]
    fn a_panic_apart_is_one_of_the_caller() {
        call_apart(Path::new("/"), |_| panic!("told"));
    }
}
