//! Lock requests: waits, interruptions, and closes that unlock.

use super::*;
use crate::protocol::{LOCK_IS_FLOCK, OPEN_NO_FLUSH, RELEASE_UNLOCKS};

const TO_END: u64 = i64::MAX.cast_unsigned();

/// The arguments of a lock request.
fn lock(owner: u64, range: (u64, u64), kind: i32, flags: u32) -> Answer {
    lock_of((0, owner, 4242), range, kind, flags)
}

/// The same for a handle, owner and process.
fn lock_of(
    (handle, owner, process): (u64, u64, u32),
    (first, last): (u64, u64),
    kind: i32,
    flags: u32,
) -> Answer {
    let mut body = Answer::new();
    body.u64(handle).u64(owner).u64(first).u64(last);
    body.u32(kind.cast_unsigned())
        .u32(process)
        .u32(flags)
        .u32(0);
    body
}

impl Kernel {
    fn send(&self, unique: u64, code: u32, node: u64, body: &Answer) {
        let mut request = Answer::new();
        let length = u32::try_from(40 + body.len()).unwrap();
        request
            .u32(length)
            .u32(code)
            .u64(unique)
            .u64(node)
            .zeros(16);
        request.bytes(body.as_slice());
        rustix::io::write(&self.socket, request.as_slice()).unwrap();
    }

    fn interrupt(&self, unique: u64) {
        let mut body = Answer::new();
        body.u64(unique);
        self.send(unique | 1, opcode::INTERRUPT, 0, &body);
    }

    /// The next reply: the request's number, and the error.
    fn receive(&self) -> (u64, i32) {
        let mut reply = [0; 256];
        loop {
            rustix::io::read(&self.socket, &mut reply[..]).unwrap();
            let unique = u64::from_ne_bytes(reply[8..16].try_into().unwrap());
            if unique != 0 {
                let error = i32::from_ne_bytes(reply[4..8].try_into().unwrap());
                return (unique, -error);
            }
        }
    }

    fn set_lock(&self, node: u64, body: &Answer) -> Result<(), Errno> {
        self.ask(opcode::SETLK, node, body).map(drop)
    }
}

#[test]
fn a_waiting_lock_request_is_answered_by_a_release_or_an_interruption() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let (node, _) = kernel.create("file", libc::O_RDWR);
    let (range, exclusive) = ((10, 19), libc::F_WRLCK);
    kernel
        .set_lock(node, &lock(1, range, exclusive, 0))
        .unwrap();
    let refused = kernel.set_lock(node, &lock(2, (0, TO_END), libc::F_RDLCK, 0));
    assert_eq!(refused, Err(Errno::AGAIN));
    let found = kernel.ask(opcode::GETLK, node, &lock(2, (0, TO_END), exclusive, 0));
    let found = found.unwrap();
    let mut found = Arguments::of(&found);
    assert_eq!((found.u64(), found.u64()), (Ok(10), Ok(19)));
    assert_eq!(found.u32(), Ok(exclusive.cast_unsigned()));
    assert_eq!(found.u32(), Ok(4242));
    // It waits without a thread.
    kernel.send(20, opcode::SETLKW, node, &lock(2, range, exclusive, 0));
    kernel.send(22, opcode::SETLKW, node, &lock(3, range, exclusive, 0));
    kernel.interrupt(22);
    assert_eq!(kernel.receive(), (22, libc::EINTR));
    kernel.send(24, opcode::SETLK, node, &lock(1, range, libc::F_UNLCK, 0));
    let mut replies = [kernel.receive(), kernel.receive()];
    replies.sort_unstable();
    assert_eq!(replies, [(20, 0), (24, 0)]);
    let refused = kernel.set_lock(node, &lock(3, range, exclusive, 0));
    assert_eq!(refused, Err(Errno::AGAIN));
    // A request that was interrupted before it began does not wait.
    kernel.interrupt(30);
    kernel.send(30, opcode::SETLKW, node, &lock(3, range, exclusive, 0));
    assert_eq!(kernel.receive(), (30, libc::EINTR));
    // The third waits for the second, so the second may not wait for the third.
    kernel
        .set_lock(node, &lock(3, (50, 59), exclusive, 0))
        .unwrap();
    kernel.send(40, opcode::SETLKW, node, &lock(3, range, exclusive, 0));
    let mut deadlock = Err(Errno::AGAIN);
    for unique in (50..250).step_by(2) {
        // This one waits, and is interrupted, until the other one has begun to wait.
        kernel.send(
            unique,
            opcode::SETLKW,
            node,
            &lock(2, (50, 59), exclusive, 0),
        );
        kernel.interrupt(unique);
        deadlock = Err(Errno::from_raw_os_error(kernel.receive().1));
        if deadlock == Err::<(), _>(Errno::DEADLK) {
            break;
        }
    }
    assert_eq!(deadlock, Err(Errno::DEADLK));
}

#[test]
fn fcntl_locks_end_with_a_descriptor_and_flock_with_the_open_file() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let (node, handle) = kernel.create("file", libc::O_RDWR);
    let all = (0, TO_END);
    kernel
        .set_lock(node, &lock(1, all, libc::F_WRLCK, 0))
        .unwrap();
    kernel
        .set_lock(node, &lock(1, all, libc::F_WRLCK, LOCK_IS_FLOCK))
        .unwrap();
    let mut flush = Answer::new();
    flush.u64(handle).u64(0).u64(1);
    kernel.ask(opcode::FLUSH, node, &flush).unwrap();
    kernel
        .set_lock(node, &lock(2, all, libc::F_WRLCK, 0))
        .unwrap();
    let flock = lock(2, all, libc::F_RDLCK, LOCK_IS_FLOCK);
    assert_eq!(kernel.set_lock(node, &flock), Err(Errno::AGAIN));
    let mut release = Answer::new();
    release.u64(handle).u32(0).u32(RELEASE_UNLOCKS).u64(1);
    kernel.ask(opcode::RELEASE, node, &release).unwrap();
    kernel.set_lock(node, &flock).unwrap();
}

#[test]
fn flush_is_sent_for_all_files_after_the_first_lock() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let (node, _) = kernel.create("file", libc::O_RDWR);
    let open = |flags: i32| {
        let mut body = Answer::new();
        body.u32(flags.cast_unsigned()).u32(0);
        let opened = kernel.ask(opcode::OPEN, node, &body).unwrap();
        let mut opened = Arguments::of(&opened);
        let handle = opened.u64().unwrap();
        (handle, opened.u32().unwrap() & OPEN_NO_FLUSH == 0)
    };
    assert!(open(libc::O_RDWR).1);
    let (handle, is_told) = open(libc::O_WRONLY);
    assert!(!is_told && !open(libc::O_RDONLY).1);
    let first = lock_of((handle, 1, 0), (0, TO_END), libc::F_WRLCK, 0);
    kernel.set_lock(node, &first).unwrap();
    assert!(open(libc::O_WRONLY).1);
    assert!(open(libc::O_WRONLY).1);
    // It ends with the open file.
    let second = lock(2, (0, TO_END), libc::F_WRLCK, 0);
    assert_eq!(kernel.set_lock(node, &second), Err(Errno::AGAIN));
    kernel.close((node, handle));
    kernel.set_lock(node, &second).unwrap();
}

#[test]
fn a_lock_of_an_open_file_description_ends_with_it_and_of_a_process_that_locked_again_does_not() {
    let bench = Bench::new();
    let kernel = Kernel::of(bench.tree.clone());
    let (node, first) = kernel.create("file", libc::O_RDWR);
    let all = (0, TO_END);
    let lock_by = |handle, owner| lock_of((handle, owner, 0), all, libc::F_WRLCK, 0);
    kernel.set_lock(node, &lock_by(first, 1)).unwrap();
    let mut flush = Answer::new();
    flush.u64(first).u64(0).u64(1);
    kernel.ask(opcode::FLUSH, node, &flush).unwrap();

    // The kernel tells of the first open file when its process has locked through another one.
    let mut body = Answer::new();
    body.u32(libc::O_RDWR.cast_unsigned()).u32(0);
    let opened = kernel.ask(opcode::OPEN, node, &body).unwrap();
    let second = Arguments::of(&opened).u64().unwrap();
    kernel.set_lock(node, &lock_by(second, 1)).unwrap();
    kernel.close((node, first));
    let other = lock_by(0, 2);
    assert_eq!(kernel.set_lock(node, &other), Err(Errno::AGAIN));

    // `FLUSH` names the process, and not the open file description that has locked.
    let mut flush = Answer::new();
    flush.u64(second).u64(0).u64(1);
    kernel.ask(opcode::FLUSH, node, &flush).unwrap();
    kernel.set_lock(node, &lock_by(second, 3)).unwrap();
    kernel.ask(opcode::FLUSH, node, &flush).unwrap();
    assert_eq!(kernel.set_lock(node, &other), Err(Errno::AGAIN));
    kernel.close((node, second));
    kernel.set_lock(node, &other).unwrap();
}
