//! Serving threads with sources of their own, over sockets.

use crate::registered::CROWD;
use crate::request_loop::DELAYED_MAX;
use crate::{AwakeProcessors, Next, RequestTraits, ServingThreads, Source, SourceKey};
use rustix::event::{self, PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tarn_host::lock::{Condvar, Mutex, Rank};

/// Each request of `w` and `q` waits until one of `g` was served; echoes all, those of `p` and `q`
/// by a delayed reply.
struct Gate {
    let_in: Mutex<u32>,
    opened: Condvar,
    long: &'static [u8],
    /// How many delayed replies were sent at once.
    kept: std::sync::Mutex<Vec<usize>>,
    ended: AtomicBool,
    entered: AtomicBool,
    /// How many requests were empty.
    empty: AtomicU32,
    /// How many requests wait, and how many did at most.
    waiting: AtomicU32,
    waiting_most: AtomicU32,
}

/// A source whose requests are packets.
struct Packets {
    descriptor: OwnedFd,
    gate: Arc<Gate>,
}

impl Source for Packets {
    type Request = Vec<u8>;
    type DelayedReply = Vec<u8>;

    fn new_request() -> Vec<u8> {
        Vec::new()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn take_request(&self, request: &mut Vec<u8>) -> Next {
        let mut bytes = [0; 64];
        match rustix::io::read(&self.descriptor, &mut bytes[..]) {
            Ok(length) => *request = bytes[..length].to_vec(),
            Err(Errno::AGAIN | Errno::INTR) => return Next::Nothing,
            Err(_) => return Next::Ended,
        }
        Next::Request(RequestTraits {
            is_long: *request == self.gate.long,
            is_waited_for: true,
            may_delay_reply: matches!(&request[..], b"p" | b"q"),
        })
    }

    fn serve(&self, request: &mut Vec<u8>) -> Option<Vec<u8>> {
        let gate = &self.gate;
        match &request[..] {
            b"w" | b"q" => {
                gate.entered.store(true, Ordering::SeqCst);
                let waiting = gate.waiting.fetch_add(1, Ordering::SeqCst) + 1;
                gate.waiting_most.fetch_max(waiting, Ordering::SeqCst);
                let mut let_in = gate.let_in.lock();
                gate.opened.wait_while(&mut let_in, |let_in| *let_in == 0);
                *let_in -= 1;
                gate.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            b"g" => gate.let_one_in(),
            _ => {}
        }
        if matches!(&request[..], b"p" | b"q") {
            return Some(request.clone());
        }
        if request.is_empty() {
            // The other end has gone. An error may follow, as from the kernel; if none does the
            // test is over, and the thread ends.
            let count = gate.empty.fetch_add(1, Ordering::SeqCst);
            assert!(count < 1000, "the test is over");
            return None;
        }
        // The test may not hear it any more.
        let _ = rustix::io::write(&self.descriptor, request);
        None
    }

    fn reply_when_durable(&self, delayed: Vec<Vec<u8>>) {
        self.gate.kept.lock().unwrap().push(delayed.len());
        for request in delayed {
            rustix::io::write(&self.descriptor, &request).unwrap();
        }
    }

    fn gone(&self) {
        self.gate.ended.store(true, Ordering::SeqCst);
    }
}

impl Gate {
    fn let_one_in(&self) {
        *self.let_in.lock() += 1;
        self.opened.notify_all();
    }
}

fn served(long: &'static [u8], processors: usize) -> (Arc<ServingThreads>, OwnedFd) {
    let (server, socket, _) = serving(long, processors, &[]);
    (server, socket)
}

/// Our end and the other.
fn ends() -> (OwnedFd, OwnedFd) {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    rustix::io::ioctl_fionbio(&ours, true).unwrap();
    (ours, theirs)
}

fn gate(long: &'static [u8]) -> Arc<Gate> {
    Arc::new(Gate {
        let_in: Mutex::new(Rank::new(1, "gate"), 0),
        opened: Condvar::new(),
        long,
        kept: std::sync::Mutex::default(),
        ended: AtomicBool::new(false),
        entered: AtomicBool::new(false),
        empty: AtomicU32::new(0),
        waiting: AtomicU32::new(0),
        waiting_most: AtomicU32::new(0),
    })
}

/// With requests that are there from the beginning.
fn serving(
    long: &'static [u8],
    processors: usize,
    requests: &[&[u8]],
) -> (Arc<ServingThreads>, OwnedFd, Arc<Gate>) {
    let (ours, theirs) = ends();
    let server = ServingThreads::with_processors(AwakeProcessors::new(true), processors).unwrap();
    let gate = gate(long);
    requests.iter().for_each(|request| ask(&theirs, request));
    let source = Packets {
        descriptor: ours,
        gate: gate.clone(),
    };
    server.add(Arc::new(source), "pool").unwrap();
    (server, theirs, gate)
}

fn ask(socket: &OwnedFd, request: &[u8]) {
    rustix::io::write(socket, request).unwrap();
}

fn answer(socket: &OwnedFd) -> Vec<u8> {
    let mut bytes = [0; 16];
    let length = rustix::io::read(socket, &mut bytes[..]).unwrap();
    bytes[..length].to_vec()
}

#[test]
fn a_request_that_waits_keeps_no_other_from_being_served() {
    let (server, socket) = served(b"", 2);
    for _ in 0..3 {
        ask(&socket, b"a");
        assert_eq!(answer(&socket), b"a");
    }
    ask(&socket, b"w");
    ask(&socket, b"g");
    let mut answers = [answer(&socket), answer(&socket)];
    answers.sort();
    assert_eq!(answers, [b"g", b"w"]);
    server.stop();
}

fn answers(socket: &OwnedFd, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| answer(socket)).collect()
}

#[test]
fn replies_that_are_delayed_while_more_is_asked_are_sent_at_once() {
    let (server, socket, gate) = serving(b"", 2, &[&b"p"[..]; DELAYED_MAX + 5]);
    assert_eq!(answers(&socket, DELAYED_MAX + 5).len(), DELAYED_MAX + 5);
    assert_eq!(*gate.kept.lock().unwrap(), [DELAYED_MAX, 5]);
    server.stop();
}

#[test]
fn delayed_replies_are_sent_before_something_else_is_done() {
    let (server, socket, gate) = serving(b"x", 2, &[b"p", b"p", b"g", b"p", b"x", b"q"]);
    let before: [&[u8]; 4] = [b"p", b"p", b"g", b"p"];
    assert_eq!(answers(&socket, 4), before);
    // The source is released for what takes long, so another thread may be faster with what
    // follows.
    let mut last = answers(&socket, 2);
    last.sort();
    assert_eq!(last, [b"q", b"x"]);
    assert_eq!(*gate.kept.lock().unwrap(), [2, 1, 1]);
    server.stop();
}

#[test]
fn a_delayed_reply_is_sent_while_the_next_request_waits() {
    for _ in 0..50 {
        let (server, socket, gate) = serving(b"", 2, &[b"p", b"p", b"q"]);
        assert_eq!(answers(&socket, 2), [b"p", b"p"]);
        ask(&socket, b"p");
        assert_eq!(answer(&socket), b"p");
        ask(&socket, b"g");
        let mut last = answers(&socket, 2);
        last.sort();
        assert_eq!(last, [b"g", b"q"]);
        assert_eq!(gate.kept.lock().unwrap()[0], 2);
        server.stop();
    }
}

/// Of the only source.
fn key_of(server: &ServingThreads) -> SourceKey {
    SourceKey(*server.sources().keys().next().unwrap())
}

#[test]
fn a_removed_source_serves_not_even_clients_that_ask_without_a_pause() {
    const ENOUGH: u32 = 200_000;
    for _ in 0..20 {
        let (server, socket) = served(b"", 2);
        let key = key_of(&server);
        let asked = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| {
                while asked.fetch_add(1, Ordering::SeqCst) < ENOUGH {
                    let mut bytes = [0; 16];
                    let is_sent = rustix::io::write(&socket, b"x").is_ok();
                    if !is_sent || rustix::io::read(&socket, &mut bytes[..]) != Ok(1) {
                        return;
                    }
                }
            });
            while asked.load(Ordering::SeqCst) < 100 {
                std::thread::yield_now();
            }
            server.remove(key, Duration::from_secs(60)).unwrap();
            let at_the_end = asked.load(Ordering::SeqCst);
            asker.join().unwrap();
            // One was asked before it was removed and may have been answered; the next one is
            // refused.
            assert!(asked.load(Ordering::SeqCst) <= at_the_end + 2);
        });
        server.stop();
    }
}

#[test]
fn a_source_is_removed_when_what_is_under_way_is_done_and_delayed_replies_are_sent() {
    for requests in [&[&b"w"[..]][..], &[b"q"], &[b"p", b"p", b"q"]] {
        let (server, socket, gate) = serving(b"", 2, requests);
        let key = key_of(&server);
        while !gate.entered.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let refused = server.remove(key, Duration::from_millis(1)).unwrap_err();
        assert!(refused.is_connected);
        assert!(!gate.ended.load(Ordering::SeqCst));
        gate.let_one_in();
        server.remove(key, Duration::from_secs(60)).unwrap();
        assert_eq!(answers(&socket, requests.len()), requests);
        assert!(answer(&socket).is_empty(), "the descriptor is closed");
        server.stop();
    }
}

#[test]
fn the_end_of_a_source_is_told_when_its_last_request_is_done() {
    let (server, socket, gate) = serving(b"", 2, &[b"w"]);
    let key = key_of(&server);
    while !gate.entered.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    // An answer that was not read makes the other end get an error.
    ask(&socket, b"x");
    let mut readable = [PollFd::new(&socket, PollFlags::IN)];
    event::poll(&mut readable, None).unwrap();
    drop(socket);
    while server.is_served(key) {
        std::thread::yield_now();
    }
    assert!(!gate.ended.load(Ordering::SeqCst));
    gate.let_one_in();
    while !gate.ended.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    server.remove(key, Duration::ZERO).unwrap();
    server.stop();
}

#[test]
fn requests_one_after_the_other_and_many_at_once_are_all_answered() {
    for processors in [1, 2, 8] {
        let (server, socket) = served(b"long", processors);
        for round in 0..2000_u32 {
            let many = if round % 100 == 0 { 50 } else { 1 };
            let request: &[u8] = match round % 7 {
                0 => b"long",
                1 | 2 => b"p",
                _ => b"x",
            };
            (0..many).for_each(|_| ask(&socket, request));
            (0..many).for_each(|_| assert_eq!(answer(&socket), request));
        }
        server.stop();
    }
}

#[test]
fn a_pool_that_does_not_answer_leaves_threads_to_others_and_answers_all_in_the_end() {
    const BOUND: usize = 4;
    for (mounts, requests) in [(3_u32, 20_u32), (20, 3), (40, 1)] {
        let server = ServingThreads::with_bound(AwakeProcessors::new(false), 2, BOUND).unwrap();
        let (slow, quick) = (gate(b""), gate(b""));
        let add = |pool: &str, gate: &Arc<Gate>| {
            let (ours, theirs) = ends();
            let source = Packets {
                descriptor: ours,
                gate: gate.clone(),
            };
            server.add(Arc::new(source), pool).unwrap();
            theirs
        };
        let sockets: Vec<OwnedFd> = (0..mounts).map(|_| add("slow", &slow)).collect();
        let other = add("quick", &quick);
        for socket in &sockets {
            (0..requests).for_each(|_| ask(socket, b"w"));
        }
        while slow.waiting.load(Ordering::SeqCst) < 4 {
            std::thread::yield_now();
        }
        for _ in 0..100 {
            ask(&other, b"x");
            assert_eq!(answer(&other), b"x");
        }
        (0..mounts * requests).for_each(|_| slow.let_one_in());
        for socket in &sockets {
            (0..requests).for_each(|_| assert_eq!(answer(socket), b"w"));
        }
        // Each mount may have begun to read one when the others took the last places.
        let most = slow.waiting_most.load(Ordering::SeqCst);
        assert!(
            (4..=4 + mounts).contains(&most),
            "{most} of {mounts} mounts"
        );
        server.stop();
    }
}

#[test]
fn requests_under_way_count_for_the_pool_that_their_source_was_given_to() {
    const BOUND: usize = 4;
    let server = ServingThreads::with_bound(AwakeProcessors::new(false), 2, BOUND).unwrap();
    let (slow, quick) = (gate(b""), gate(b""));
    let add = |pool: &str, gate: &Arc<Gate>| {
        let (ours, theirs) = ends();
        let source = Packets {
            descriptor: ours,
            gate: gate.clone(),
        };
        (server.add(Arc::new(source), pool).unwrap(), theirs)
    };
    let (key, stuck) = add("unknown", &slow);
    (0..2 * BOUND).for_each(|_| ask(&stuck, b"w"));
    while slow.waiting.load(Ordering::SeqCst) < 4 {
        std::thread::yield_now();
    }
    // It came while the bound of all that are not known was reached.
    let (_, other) = add("unknown", &quick);
    ask(&other, b"x");
    server.count_for(key, "slow");
    assert_eq!(answer(&other), b"x");
    (0..2 * BOUND).for_each(|_| slow.let_one_in());
    (0..2 * BOUND).for_each(|_| assert_eq!(answer(&stuck), b"w"));
    for _ in 0..100 {
        ask(&stuck, b"x");
        assert_eq!(answer(&stuck), b"x");
    }
    server.stop();
}

#[test]
fn a_crowd_is_served_by_threads_that_own_the_source_together() {
    let (server, socket) = served(b"", 8);
    // Each that asks waits for its answer, so all threads that own it must release it for another
    // to be served.
    for round in 0..200_u32 {
        let waiting = round % 4;
        (0..waiting).for_each(|_| ask(&socket, b"w"));
        (0..CROWD * 3).for_each(|_| ask(&socket, b"x"));
        (0..waiting).for_each(|_| ask(&socket, b"g"));
        let answers: Vec<_> = (0..waiting * 2 + CROWD * 3)
            .map(|_| answer(&socket))
            .collect();
        assert_eq!(answers.iter().filter(|answer| *answer == b"x").count(), 24);
    }
    let owners = |server: &ServingThreads| {
        let table = server.sources();
        table
            .values()
            .map(|one| one.owners.load(Ordering::Relaxed))
            .sum::<usize>()
    };
    assert!(owners(&server) <= 4);
    server.stop();
}
