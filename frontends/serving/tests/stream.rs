//! A front end over TCP: a listener whose requests are connections, and connections whose requests
//! are records cut out of a byte stream.
//!
//! A record is its length (four bytes, the highest first) and its bytes. `w...` waits until a
//! `g...` was served; the replies of `d...` are delayed; all are echoed.

use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tarn_host::lock::{Condvar, Rank};
use tarn_serving::{AwakeProcessors, Next, RequestTraits, ServingThreads, Source, SourceKey};

/// What the sources of one test share.
struct Shared {
    let_in: tarn_host::lock::Mutex<u32>,
    opened: Condvar,
    /// How many replies were sent at once.
    together: Mutex<Vec<usize>>,
    gone: AtomicUsize,
    connections: Mutex<Vec<SourceKey>>,
}

struct Listener {
    listener: TcpListener,
    threads: Weak<ServingThreads>,
    shared: Arc<Shared>,
}

impl Source for Listener {
    type Request = Option<TcpStream>;
    type DelayedReply = ();

    fn new_request() -> Option<TcpStream> {
        None
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    fn take_request(&self, request: &mut Option<TcpStream>) -> Next {
        match self.listener.accept() {
            Ok((stream, _)) => *request = Some(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Nothing,
            Err(_) => return Next::Ended,
        }
        Next::Request(RequestTraits {
            is_long: false,
            is_waited_for: true,
            may_delay_reply: false,
        })
    }

    fn serve(&self, request: &mut Option<TcpStream>) -> Option<()> {
        let (stream, threads) = (request.take()?, self.threads.upgrade()?);
        stream.set_nonblocking(true).unwrap();
        let connection = Connection {
            stream,
            input: Mutex::default(),
            output: Mutex::default(),
            shared: self.shared.clone(),
        };
        let key = threads.add(Arc::new(connection), "pool").unwrap();
        self.shared.connections.lock().unwrap().push(key);
        None
    }

    fn reply_when_durable(&self, _: Vec<()>) {}

    fn gone(&self) {}
}

struct Connection {
    stream: TcpStream,
    /// Bytes that were read and belong to records that were not taken.
    input: Mutex<Vec<u8>>,
    /// Held while a reply is sent: replies are whole.
    output: Mutex<()>,
    shared: Arc<Shared>,
}

/// The length of the record at the beginning, if all of it is there.
fn whole(input: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes(*input.first_chunk()?);
    let length = 4 + usize::try_from(length).unwrap();
    (input.len() >= length).then_some(length)
}

impl Connection {
    fn input(&self) -> MutexGuard<'_, Vec<u8>> {
        self.input.lock().unwrap()
    }

    fn reply(&self, record: &[u8]) {
        let _whole = self.output.lock().unwrap();
        let mut bytes = u32::try_from(record.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(record);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match (&self.stream).write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut room = [PollFd::new(&self.stream, PollFlags::OUT)];
                    rustix::event::poll(&mut room, None).unwrap();
                }
                // The client has gone.
                Err(_) => return,
            }
        }
    }
}

impl Source for Connection {
    type Request = Vec<u8>;
    type DelayedReply = Vec<u8>;

    fn new_request() -> Vec<u8> {
        Vec::new()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn take_request(&self, request: &mut Vec<u8>) -> Next {
        let mut input = self.input();
        let length = loop {
            if let Some(length) = whole(&input) {
                break length;
            }
            let mut bytes = [0; 4096];
            match (&self.stream).read(&mut bytes) {
                Ok(0) => return Next::Ended,
                Ok(count) => input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Nothing,
                Err(_) => return Next::Ended,
            }
        };
        *request = input.drain(..length).skip(4).collect();
        Next::Request(RequestTraits {
            is_long: false,
            is_waited_for: true,
            may_delay_reply: request.starts_with(b"d"),
        })
    }

    fn has_request_in_memory(&self) -> bool {
        whole(&self.input()).is_some()
    }

    fn may_have_owners(&self) -> bool {
        false
    }

    fn serve(&self, request: &mut Vec<u8>) -> Option<Vec<u8>> {
        match request.first() {
            Some(b'd') => return Some(request.clone()),
            Some(b'w') => {
                let mut let_in = self.shared.let_in.lock();
                let opened = &self.shared.opened;
                opened.wait_while(&mut let_in, |let_in| *let_in == 0);
                *let_in -= 1;
            }
            Some(b'g') => {
                *self.shared.let_in.lock() += 1;
                self.shared.opened.notify_all();
            }
            _ => {}
        }
        self.reply(request);
        None
    }

    fn reply_when_durable(&self, delayed: Vec<Vec<u8>>) {
        self.shared.together.lock().unwrap().push(delayed.len());
        delayed.iter().for_each(|record| self.reply(record));
    }

    fn gone(&self) {
        self.shared.gone.fetch_add(1, Ordering::SeqCst);
    }
}

/// A daemon with one listener.
struct Daemon {
    threads: Arc<ServingThreads>,
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Daemon {
    fn start() -> Daemon {
        let threads = ServingThreads::new(AwakeProcessors::new(false)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            let_in: tarn_host::lock::Mutex::new(Rank::new(1, "gate"), 0),
            opened: Condvar::new(),
            together: Mutex::default(),
            gone: AtomicUsize::new(0),
            connections: Mutex::default(),
        });
        let source = Listener {
            listener,
            threads: Arc::downgrade(&threads),
            shared: shared.clone(),
        };
        threads.add(Arc::new(source), "listeners").unwrap();
        Daemon {
            threads,
            shared,
            address,
        }
    }

    /// A client that gives up where a reply does not come.
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.threads.stop();
    }
}

fn records(bodies: &[&str]) -> Vec<u8> {
    let record = |body: &&str| {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&length[..], body.as_bytes()].concat()
    };
    bodies.iter().flat_map(record).collect()
}

fn reply(stream: &mut TcpStream) -> String {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("a reply comes");
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut body).expect("a reply is whole");
    String::from_utf8(body).unwrap()
}

#[test]
fn records_that_come_in_pieces_over_many_connections_are_all_answered() {
    const RECORDS: usize = 1000;
    let daemon = Daemon::start();
    std::thread::scope(|scope| {
        for client in 0..6 {
            let mut stream = daemon.connect();
            scope.spawn(move || {
                let bodies: Vec<String> = (0..RECORDS)
                    .map(|number| match number % 5 {
                        0 => format!("d{number}"),
                        _ => format!("e{number}{}", "x".repeat(number % 997)),
                    })
                    .collect();
                let texts: Vec<&str> = bodies.iter().map(String::as_str).collect();
                let (bytes, mut sender) = (records(&texts), stream.try_clone().unwrap());
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        for piece in bytes.chunks(1 + client * 1231) {
                            sender.write_all(piece).unwrap();
                        }
                    });
                    let replies: BTreeSet<String> =
                        (0..RECORDS).map(|_| reply(&mut stream)).collect();
                    assert_eq!(replies, bodies.iter().cloned().collect());
                });
            });
        }
    });
}

#[test]
fn a_record_in_memory_is_served_while_the_one_before_it_waits() {
    let daemon = Daemon::start();
    let mut stream = daemon.connect();
    for round in 0..100 {
        let (waits, lets_in) = (format!("w{round}"), format!("g{round}"));
        // One segment: all of them are read by one read.
        let bytes = records(&[&waits, &lets_in, "e"]);
        stream.write_all(&bytes).unwrap();
        let replies: BTreeSet<String> = (0..3).map(|_| reply(&mut stream)).collect();
        assert_eq!(replies, BTreeSet::from([waits, lets_in, "e".to_string()]));
    }
}

#[test]
fn delayed_replies_are_sent_together_and_before_a_reply_that_is_not() {
    let daemon = Daemon::start();
    let mut stream = daemon.connect();
    stream
        .write_all(&records(&["d1", "d2", "d3", "e1", "d4"]))
        .unwrap();
    let replies: Vec<String> = (0..5).map(|_| reply(&mut stream)).collect();
    assert_eq!(replies, ["d1", "d2", "d3", "e1", "d4"]);
    assert_eq!(*daemon.shared.together.lock().unwrap(), [3, 1]);
}

#[test]
fn a_connection_that_the_client_closes_goes_when_its_last_request_is_done() {
    let daemon = Daemon::start();
    let (stream, mut other) = (daemon.connect(), daemon.connect());
    (&stream).write_all(&records(&["w"])).unwrap();
    drop(stream);
    other.write_all(&records(&["e"])).unwrap();
    assert_eq!(reply(&mut other), "e");
    let keys = daemon.shared.connections.lock().unwrap().clone();
    let served = |key: &&SourceKey| daemon.threads.is_served(**key);
    while keys.iter().filter(served).count() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(daemon.shared.gone.load(Ordering::SeqCst), 0);
    other.write_all(&records(&["g"])).unwrap();
    assert_eq!(reply(&mut other), "g");
    while daemon.shared.gone.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    // The front end ends the other one itself, and is not told.
    let left = keys
        .iter()
        .find(|key| daemon.threads.is_served(**key))
        .unwrap();
    daemon
        .threads
        .remove(*left, Duration::from_secs(60))
        .unwrap();
    assert!(!daemon.threads.has(*left));
    assert_eq!(
        other.read(&mut [0; 1]).unwrap(),
        0,
        "the connection is closed"
    );
    assert_eq!(daemon.shared.gone.load(Ordering::SeqCst), 1);
}
