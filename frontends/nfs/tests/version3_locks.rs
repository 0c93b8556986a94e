//! Locks and reservations of version 3: between clients, with version 4, over a restart of the
//! server and of clients.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use support::Bench;
use support::client::{Client, Handle};
use support::client4::Client4;
use tarn_nfs::lock_manager::{self, procedure};
use tarn_nfs::status_monitor;
use tarn_nfs::xdr::{Reader, Writer};

const OPEN: &str = "rw,no_root_squash,insecure";

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const BLOCKED: u32 = 3;
const GRACE: u32 = 4;

/// A lock of a client.
#[derive(Clone)]
struct Lock {
    caller: &'static str,
    process: u32,
    file: Handle,
    range: (u64, u64),
    is_exclusive: bool,
    waits: bool,
    reclaims: bool,
    state: u32,
}

impl Lock {
    fn of(caller: &'static str, file: &Handle, range: (u64, u64)) -> Lock {
        Lock {
            caller,
            process: 1,
            file: file.clone(),
            range,
            is_exclusive: true,
            waits: false,
            reclaims: false,
            state: 0,
        }
    }

    fn waiting(&self) -> Lock {
        let waits = true;
        Lock {
            waits,
            ..self.clone()
        }
    }

    fn put(&self, out: &mut Writer) {
        out.opaque(self.caller.as_bytes()).opaque(&self.file);
        let owner = format!("{}@{}", self.process, self.caller);
        out.opaque(owner.as_bytes()).u32(self.process);
        out.u64(self.range.0).u64(self.range.1);
    }
}

/// Calls a procedure, and gives the status with what follows.
fn ask(client: &mut Client, number: u32, lock: &Lock) -> (u32, Vec<u8>) {
    let mut arguments = Writer::new();
    arguments.opaque(b"cookie");
    if matches!(number, procedure::LOCK | procedure::CANCEL) {
        arguments.bool(lock.waits);
    }
    if number != procedure::UNLOCK {
        arguments.bool(lock.is_exclusive);
    }
    lock.put(&mut arguments);
    if number == procedure::LOCK {
        arguments.bool(lock.reclaims).u32(lock.state);
    }
    let which = (lock_manager::PROGRAM, lock_manager::VERSION, number);
    let result = client.call(which, &arguments).unwrap();
    let mut reader = Reader::new(&result);
    assert_eq!(reader.opaque(64), Ok(&b"cookie"[..]));
    (reader.u32().unwrap(), reader.rest().to_vec())
}

fn status(client: &mut Client, number: u32, lock: &Lock) -> u32 {
    ask(client, number, lock).0
}

fn lock(client: &mut Client, wanted: &Lock) -> u32 {
    status(client, procedure::LOCK, wanted)
}

fn shared() -> (Bench, Client, Handle) {
    let bench = Bench::new();
    bench.create("tank/a", &[("sharenfs", OPEN)]);
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    let file = client.create(&root, "f", 0o644).unwrap();
    (bench, client, file)
}

/// The programs of a client that the server calls: its rpcbind, lock manager and status monitor at
/// one port. Gives the port, and the arguments of each call of the server with its program.
fn programs(status: u32) -> (u16, Receiver<(u32, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, calls) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut mark = [0; 4];
            stream.read_exact(&mut mark).unwrap();
            let length = u32::from_be_bytes(mark) & !(1 << 31);
            let mut call = vec![0; usize::try_from(length).unwrap()];
            stream.read_exact(&mut call).unwrap();
            let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
            let mut reply = Writer::new();
            reply.u32(0).u32(word(0)).u32(1).u32(0).u32(0).u32(0).u32(0);
            match word(12) {
                100_000 => drop(reply.u32(u32::from(port))),
                program => {
                    if sender.send((program, call[40..].to_vec())).is_err() {
                        return;
                    }
                    reply.opaque(b"").u32(status);
                }
            }
            let length = u32::try_from(reply.len() - 4).unwrap();
            reply.put_u32(0, length | 1 << 31);
            stream.write_all(reply.as_slice()).unwrap();
        }
    });
    (port, calls)
}

#[test]
fn locks_of_two_clients_exclude_each_other() {
    let (_bench, mut client, file) = shared();
    let (first, second) = (Lock::of("a", &file, (10, 5)), Lock::of("b", &file, (12, 0)));
    assert_eq!(status(&mut client, procedure::TEST, &second), GRANTED);
    assert_eq!(lock(&mut client, &first), GRANTED);
    assert_eq!(lock(&mut client, &first), GRANTED, "a repetition");
    assert_eq!(lock(&mut client, &second), DENIED);
    let (denied, holder) = ask(&mut client, procedure::TEST, &second);
    let mut expected = Writer::new();
    expected.bool(true).u32(1).opaque(b"1@a").u64(10).u64(5);
    assert_eq!((denied, &holder[..]), (DENIED, expected.as_slice()));
    let beside = Lock::of("b", &file, (15, 0));
    assert_eq!(lock(&mut client, &beside), GRANTED);
    assert_eq!(status(&mut client, procedure::UNLOCK, &first), GRANTED);
    assert_eq!(lock(&mut client, &second), GRANTED);
    // Shared locks go together; another process of the same client is another owner.
    let read = |process| Lock {
        process,
        is_exclusive: false,
        ..Lock::of("a", &file, (0, 2))
    };
    assert_eq!(lock(&mut client, &read(1)), GRANTED);
    assert_eq!(lock(&mut client, &read(2)), GRANTED);
    let write = Lock {
        is_exclusive: true,
        ..read(2)
    };
    assert_eq!(lock(&mut client, &write), DENIED);
}

#[test]
fn a_client_is_called_when_it_gets_the_lock_that_it_waits_for() {
    let (bench, mut client, file) = shared();
    let (port, calls) = programs(GRANTED);
    bench.server.ask_clients_at(port);
    let (first, second) = (Lock::of("a", &file, (0, 0)), Lock::of("b", &file, (7, 7)));
    assert_eq!(lock(&mut client, &first), GRANTED);
    assert_eq!(lock(&mut client, &second.waiting()), BLOCKED);
    assert_eq!(
        lock(&mut client, &second.waiting()),
        BLOCKED,
        "it asks again"
    );
    assert_eq!(status(&mut client, procedure::UNLOCK, &first), GRANTED);
    let (program, arguments) = calls.recv().unwrap();
    assert_eq!(program, lock_manager::PROGRAM);
    let mut reader = Reader::new(&arguments);
    reader.opaque(64).unwrap();
    let mut expected = Writer::new();
    expected.bool(true);
    second.put(&mut expected);
    assert_eq!(reader.rest(), expected.as_slice());
    assert_eq!(lock(&mut client, &first), DENIED, "the other has it");
    assert_eq!(status(&mut client, procedure::UNLOCK, &second), GRANTED);
    assert_eq!(lock(&mut client, &first), GRANTED);
    // A request that was cancelled gets nothing.
    assert_eq!(lock(&mut client, &second.waiting()), BLOCKED);
    assert_eq!(
        status(&mut client, procedure::CANCEL, &second.waiting()),
        GRANTED
    );
    assert_eq!(status(&mut client, procedure::UNLOCK, &first), GRANTED);
    assert_eq!(lock(&mut client, &Lock::of("c", &file, (0, 0))), GRANTED);
    assert!(calls.try_recv().is_err(), "the client was called once");
}

#[test]
fn a_lock_that_its_client_does_not_want_any_more_is_released() {
    let (bench, mut client, file) = shared();
    let (port, calls) = programs(DENIED);
    bench.server.ask_clients_at(port);
    let (first, second) = (Lock::of("a", &file, (0, 0)), Lock::of("b", &file, (0, 0)));
    assert_eq!(lock(&mut client, &first), GRANTED);
    assert_eq!(lock(&mut client, &second.waiting()), BLOCKED);
    let third = Lock::of("c", &file, (0, 0)).waiting();
    assert_eq!(lock(&mut client, &third), BLOCKED);
    assert_eq!(status(&mut client, procedure::UNLOCK, &first), GRANTED);
    // The second gives it back, so the third is called.
    for caller in ["b", "c"] {
        let (_, arguments) = calls.recv().unwrap();
        let mut reader = Reader::new(&arguments);
        reader.opaque(64).unwrap();
        reader.bool().unwrap();
        assert_eq!(reader.opaque(64), Ok(caller.as_bytes()));
    }
}

#[test]
fn locks_are_reclaimed_after_a_restart_before_others_get_any() {
    let (bench, mut client, file) = shared();
    let (first, second) = (Lock::of("a", &file, (0, 9)), Lock::of("b", &file, (20, 9)));
    assert_eq!(lock(&mut client, &first), GRANTED);
    let before = life(&mut client);
    let bench = bench.restarted();
    let (port, calls) = programs(GRANTED);
    bench.server.ask_clients_at(port);
    let mut client = bench.client();
    assert_eq!(lock(&mut client, &second), GRACE);
    assert_eq!(status(&mut client, procedure::TEST, &second), GRACE);
    let reclaim = |lock: &Lock| Lock {
        reclaims: true,
        ..lock.clone()
    };
    assert_eq!(lock(&mut client, &reclaim(&second)), GRACE, "it had none");
    assert_eq!(lock(&mut client, &reclaim(&first)), GRANTED);
    // The client is told by the address at which it knows the server, and by its name.
    let (program, arguments) = calls.recv().unwrap();
    assert_eq!(program, status_monitor::PROGRAM);
    let mut reader = Reader::new(&arguments);
    let name = reader.opaque(64).unwrap();
    let machine = rustix::system::uname();
    assert!(name == b"127.0.0.1" || name == machine.nodename().to_bytes());
    assert_eq!(reader.u32(), Ok(before + 2));
    assert_eq!(life(&mut client), before + 2);
}

/// What the server's status monitor says of its life.
fn life(client: &mut Client) -> u32 {
    let mut arguments = Writer::new();
    arguments.opaque(b"a");
    let which = (status_monitor::PROGRAM, status_monitor::VERSION, 1);
    let result = client.call(which, &arguments).unwrap();
    let mut reader = Reader::new(&result);
    assert_eq!(reader.u32(), Ok(0));
    reader.u32().unwrap()
}

#[test]
fn what_a_client_had_ends_when_it_restarts() {
    let (_bench, mut client, file) = shared();
    let of = |caller| Lock::of(caller, &file, (0, 0));
    let named = |name: &str| {
        let mut arguments = Writer::new();
        arguments.opaque(name.as_bytes()).u32(9);
        arguments
    };
    assert_eq!(lock(&mut client, &of("a.example")), GRANTED);
    let notify = (
        status_monitor::PROGRAM,
        status_monitor::VERSION,
        status_monitor::NOTIFY,
    );
    client.call(notify, &named("b")).unwrap();
    assert_eq!(lock(&mut client, &of("b")), DENIED, "another has restarted");
    client.call(notify, &named("a")).unwrap();
    assert_eq!(lock(&mut client, &of("b")), GRANTED);
    let free_all = (
        lock_manager::PROGRAM,
        lock_manager::VERSION,
        procedure::FREE_ALL,
    );
    client.call(free_all, &named("b")).unwrap();
    // A lock asked for in another life says the same.
    let in_life = |state, range| Lock {
        state,
        range,
        ..of("c")
    };
    assert_eq!(lock(&mut client, &in_life(5, (0, 9))), GRANTED);
    assert_eq!(lock(&mut client, &in_life(5, (20, 9))), GRANTED);
    assert_eq!(lock(&mut client, &of("d")), DENIED);
    assert_eq!(lock(&mut client, &in_life(7, (100, 1))), GRANTED);
    assert_eq!(lock(&mut client, &Lock::of("d", &file, (0, 99))), GRANTED);
}

#[test]
fn reservations_deny_what_they_name() {
    let (_bench, mut client, file) = shared();
    let mut reserve = |number, caller: &str, denies: u32, access: u32| {
        let mut arguments = Writer::new();
        arguments
            .opaque(b"k")
            .opaque(caller.as_bytes())
            .opaque(&file);
        arguments
            .opaque(b"owner")
            .u32(denies)
            .u32(access)
            .bool(false);
        let which = (lock_manager::PROGRAM, lock_manager::VERSION, number);
        let result = client.call(which, &arguments).unwrap();
        let mut reader = Reader::new(&result);
        reader.opaque(64).unwrap();
        reader.u32().unwrap()
    };
    let (share, unshare) = (procedure::SHARE, procedure::UNSHARE);
    assert_eq!(reserve(share, "a", 2, 1), GRANTED);
    assert_eq!(reserve(share, "b", 0, 2), DENIED);
    assert_eq!(reserve(share, "b", 0, 1), GRANTED);
    assert_eq!(reserve(share, "a", 3, 1), DENIED, "the other reads");
    assert_eq!(reserve(share, "a", 0, 1), GRANTED);
    assert_eq!(reserve(share, "b", 2, 2), GRANTED);
    assert_eq!(reserve(unshare, "b", 2, 2), GRANTED);
    assert_eq!(reserve(share, "a", 3, 3), GRANTED);
}

#[test]
fn locks_of_versions_3_and_4_exclude_each_other() {
    let (bench, mut client, file) = shared();
    let mut other = Client4::new(bench.client(), b"client 4");
    let root = other.look_up(&bench.path("tank/a")).unwrap();
    let (open, same) = other.open(&root, "f", b"opener", (3, 0)).unwrap();
    assert_eq!(same, file);
    let locked = other
        .lock(&file, &open, b"locker", (10, 10), false)
        .unwrap();
    let wanted = Lock::of("a", &file, (15, 20));
    assert_eq!(lock(&mut client, &wanted), DENIED);
    let (denied, holder) = ask(&mut client, procedure::TEST, &wanted);
    let mut expected = Writer::new();
    // An owner of version 4 has no process.
    expected.bool(true).u32(0).opaque(b"").u64(10).u64(10);
    assert_eq!((denied, &holder[..]), (DENIED, expected.as_slice()));
    other.unlock(&file, &locked).unwrap();
    assert_eq!(lock(&mut client, &wanted), GRANTED);
    const DENIED4: u32 = 10_010;
    let (status, _) = other
        .lock(&file, &open, b"again", (0, 16), false)
        .unwrap_err();
    assert_eq!(status, DENIED4);
    // While clients of version 3 reclaim, those of version 4 get nothing new.
    let bench = bench.restarted();
    let mut other = Client4::new(bench.client(), b"client 4");
    const GRACE4: u32 = 10_013;
    let root = other.look_up(&bench.path("tank/a")).unwrap();
    let opened = other.open(&root, "f", b"opener", (3, 0));
    assert_eq!(opened.unwrap_err(), GRACE4);
}
