//! Read delegations: given, recalled, returned, revoked and reclaimed.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;
use support::Bench;
use support::client4::{
    Client4, Delegated, FREE_STATEID, Operations, REMOVE, StateId, TEST_STATEID,
};
use support::client40::Client40;
use tarn_nfs::xdr::{Reader, Writer};

const DELAY: u32 = 10008;
const BAD_STATEID: u32 = 10025;
const OPENMODE: u32 = 10038;
const LOCKS_HELD: u32 = 10037;
const DELEG_REVOKED: u32 = 10087;
const OPTIONS: &str = "rw,no_root_squash,insecure";
/// Access to write.
const WRITES: (u32, u32) = (2, 0);
const WANTS_READ: u32 = 0x100;
const RECALLABLE_IS_REVOKED: u32 = 0x40;

/// A client that can be called, the root of `tank/a`, and an empty file in it.
fn reader(bench: &Bench) -> (Client4, Vec<u8>, Vec<u8>) {
    assert_eq!(bench.create("tank/a", &[("sharenfs", OPTIONS)]), [""; 0]);
    let mut client = Client4::that_is_called(bench.client(), b"reader");
    let root = client.look_up(&bench.path("tank/a")).unwrap();
    let (state, file) = client.open_empty(&root, "file", b"maker").unwrap();
    assert_eq!(client.delegated, Delegated::No, "it is open for writing");
    assert_eq!(client.write(&file, &state, 0, b"contents"), 0);
    assert_eq!(client.close(&file, &state), 0);
    (client, root, file)
}

/// Opens the file for reading alone, and gives the delegation.
fn delegated(client: &mut Client4, root: &[u8], wanted: u32) -> StateId {
    client.open_to_read(root, "file", wanted);
    match client.delegated {
        Delegated::Yes(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reader_has_the_file_until_another_client_opens_it_for_writing() {
    let bench = Bench::new();
    let (mut client, root, file) = reader(&bench);
    let mut other = Client4::new(bench.client(), b"other");
    other.open_to_read(&root, "file", WANTS_READ);
    assert_eq!(
        other.delegated,
        Delegated::NoSince(2),
        "it cannot be called"
    );
    let id = delegated(&mut client, &root, 0);
    let second = client.open_to_read(&root, "file", WANTS_READ);
    assert_eq!(client.delegated, Delegated::NoSince(1), "it has one");
    assert_eq!(client.close(&file, &second.0), 0);
    // It is good for reading, also when the file is closed, and the client may write itself.
    assert_eq!(client.read(&file, &id, 0).unwrap().1, b"contents");
    assert_eq!(client.write(&file, &id, 0, b"x"), OPENMODE);
    let (own, _) = client.open(&root, "file", b"writer", WRITES).unwrap();
    assert_eq!(client.write(&file, &own, 0, b"C"), 0);
    assert_eq!(client.close(&file, &own), 0);
    assert_eq!(other.open(&root, "file", b"w", WRITES).unwrap_err(), DELAY);
    assert_eq!(client.take_recall(), (id, file.clone()));
    // It opens what it has opened without the server, and returns it.
    assert!(client.open_delegated(&file, &id).is_ok());
    assert_eq!(client.delegated, Delegated::No);
    assert_eq!(other.open(&root, "file", b"w", WRITES).unwrap_err(), DELAY);
    assert_eq!(client.return_delegation(&file, &id), 0);
    assert_eq!(client.return_delegation(&file, &id), BAD_STATEID);
    assert_eq!(client.open_delegated(&file, &id).unwrap_err(), BAD_STATEID);
    let (state, _) = other.open(&root, "file", b"w", WRITES).unwrap();
    assert_eq!(other.close(&file, &state), 0);
    client.open_to_read(&root, "file", WANTS_READ);
    assert_eq!(
        client.delegated,
        Delegated::NoSince(1),
        "it was recalled lately"
    );
}

#[test]
fn other_changes_recall_too_and_the_reader_says_what_it_wants() {
    let bench = Bench::new();
    let (mut client, root, file) = reader(&bench);
    for (wanted, why) in [(0x400, 0), (0x500, 7), (0x200, 4)] {
        client.open_to_read(&root, "file", wanted);
        assert_eq!(client.delegated, Delegated::NoSince(why));
    }
    let id = delegated(&mut client, &root, 0x300);
    let mut old = bench.client();
    let handle = old.mount(&bench.path("tank/a")).unwrap();
    let found = old.lookup(&handle, "file").unwrap();
    assert_eq!(old.write(&found, 0, b"N", 2).unwrap_err(), DELAY);
    assert_eq!(client.take_recall().0, id);
    assert_eq!(client.return_delegation(&file, &id), 0);
    old.write(&found, 0, b"N", 2).unwrap();
    // Of another file, by removal of its name.
    let (state, file) = client.open_empty(&root, "other", b"maker").unwrap();
    assert_eq!(client.close(&file, &state), 0);
    client.open_to_read(&root, "other", 0);
    let Delegated::Yes(id) = client.delegated else {
        panic!("{:?}", client.delegated);
    };
    assert_eq!(old.remove(&handle, "other").unwrap_err(), DELAY);
    assert_eq!(client.take_recall(), (id, file.clone()));
    // The client itself may remove it only when it has returned it.
    let remove = Operations::at(&root).with(REMOVE, |out| {
        out.opaque(b"other");
    });
    assert_eq!(client.status(&remove), DELAY);
    assert_eq!(client.return_delegation(&file, &id), 0);
    assert_eq!(client.status(&remove), 0);
}

#[test]
fn what_is_not_returned_for_a_lease_is_revoked_and_freed() {
    let bench = Bench::with_short_leases(Duration::from_secs(1));
    let (mut client, root, file) = reader(&bench);
    let id = delegated(&mut client, &root, WANTS_READ);
    let free = Operations::default().with(FREE_STATEID, |out| {
        out.fixed(&id);
    });
    assert_eq!(
        client.status(&free),
        LOCKS_HELD,
        "it is returned, not freed"
    );
    let mut other = Client4::new(bench.client(), b"other");
    assert_eq!(other.open(&root, "file", b"w", WRITES).unwrap_err(), DELAY);
    assert_eq!(client.take_recall().0, id);
    while let Err(status) = other.open(&root, "file", b"w", WRITES) {
        assert_eq!(status, DELAY);
        // It keeps its lease, and returns nothing.
        client.flags_of_state();
        std::thread::yield_now();
    }
    assert_eq!(client.read(&file, &id, 0).unwrap_err(), DELEG_REVOKED);
    assert_eq!(client.flags_of_state(), RECALLABLE_IS_REVOKED);
    let test = Operations::default().with(TEST_STATEID, |out| {
        out.u32(1).fixed(&id);
    });
    let (status, result) = client.run(&test);
    let mut result = Reader::new(&result[8..]);
    assert_eq!(
        (status, result.u32(), result.u32()),
        (0, Ok(1), Ok(DELEG_REVOKED))
    );
    assert_eq!(client.status(&free), 0);
    assert_eq!(client.status(&free), BAD_STATEID);
    assert_eq!(client.flags_of_state(), 0);
}

#[test]
fn a_roll_back_ends_what_was_delegated() {
    let bench = Bench::new();
    let (mut client, root, file) = reader(&bench);
    bench.snapshot("tank/a@one");
    let id = delegated(&mut client, &root, 0);
    bench.roll_back("tank/a@one");
    assert_eq!(client.take_recall().0, id, "it was asked for before");
    assert_eq!(client.flags_of_state(), RECALLABLE_IS_REVOKED);
    assert_eq!(client.read(&file, &id, 0).unwrap_err(), DELEG_REVOKED);
}

#[test]
fn after_a_restart_what_may_have_changed_is_given_to_be_returned() {
    let bench = Bench::new();
    let (mut client, root, file) = reader(&bench);
    delegated(&mut client, &root, 0);
    drop(client);
    let bench = bench.restarted();
    let mut client = Client4::with_flags(bench.client(), b"reader", 2);
    assert!(client.reclaim_delegated(&file).is_ok());
    // The file was changed less than a minute ago.
    let Delegated::Recalled(id) = client.delegated else {
        panic!("{:?}", client.delegated);
    };
    assert_eq!(client.reclaim_complete(), 0);
    assert_eq!(client.return_delegation(&file, &id), 0);
}

/// Answers calls of the server; what it recalls is sent.
fn answer_calls(listener: &TcpListener, recalled: &mpsc::Sender<StateId>) {
    while let Ok((mut stream, _)) = listener.accept() {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).unwrap();
        let length = u32::from_be_bytes(mark) & !(1 << 31);
        if length == 0 {
            return;
        }
        let mut call = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut call).unwrap();
        let mut reader = Reader::new(&call);
        let xid = reader.u32().unwrap();
        let _head: [u8; 16] = reader.fixed().unwrap();
        let procedure = reader.u32().unwrap();
        reader.u32().unwrap();
        reader.opaque(400).unwrap();
        assert_eq!(reader.u64(), Ok(0));
        let mut reply = Writer::new();
        reply.u32(0).u32(xid).u32(1).u32(0).u32(0).u32(0).u32(0);
        if procedure == 1 {
            assert_eq!(reader.opaque(16), Ok(&b""[..]));
            let head = [reader.u32(), reader.u32(), reader.u32(), reader.u32()];
            assert_eq!(head, [Ok(0), Ok(1), Ok(1), Ok(4)], "CB_RECALL alone");
            recalled.send(reader.fixed().unwrap()).unwrap();
            reply.u32(0).opaque(b"").u32(1).u32(4).u32(0);
        }
        let length = u32::try_from(reply.len() - 4).unwrap();
        reply.put_u32(0, length | 1 << 31);
        stream.write_all(reply.as_slice()).unwrap();
    }
}

#[test]
fn a_client_of_version_4_0_is_called_at_its_address() {
    let bench = Bench::new();
    assert_eq!(bench.create("tank/a", &[("sharenfs", OPTIONS)]), [""; 0]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = format!("127.0.0.1.{}.{}", port >> 8, port & 0xff);
    let (recalled, recalls) = mpsc::channel();
    let calls = std::thread::spawn(move || answer_calls(&listener, &recalled));
    let connection = bench.client();
    let mut client = Client40::that_is_called(connection, b"reader", [1; 8], &address);
    let root = client.look_up(&bench.path("tank/a"));
    let made = client.open(&root, "file", b"maker", 1).unwrap();
    let state = client.confirm_open(&made.file, &made.state, 2).unwrap();
    client.close(&made.file, &state, 3).unwrap();
    // An owner that is not confirmed gets none; nor does a client before it has answered a call.
    let first = client.open_for(&root, "file", (b"reads", 1), 1).unwrap();
    assert_eq!(first.delegated, Delegated::No);
    let state = client.confirm_open(&first.file, &first.state, 2).unwrap();
    let mut sequence = 3;
    let id = loop {
        let opened = client
            .open_for(&root, "file", (b"reads", sequence), 1)
            .unwrap();
        sequence += 1;
        match opened.delegated {
            Delegated::Yes(id) => break id,
            other => assert_eq!(other, Delegated::No),
        }
        std::thread::yield_now();
    };
    assert_ne!(id, state);
    assert_eq!(client.renew(client.id), 0);
    let mut other = Client40::new(bench.client(), b"other", [2; 8]);
    let refused = other.open_for(&root, "file", (b"w", 1), 2);
    assert_eq!(refused.unwrap_err(), DELAY);
    assert_eq!(recalls.recv(), Ok(id));
    assert_eq!(client.return_delegation(&first.file, &id), 0);
    assert!(other.open_for(&root, "file", (b"w", 2), 2).is_ok());
    let mut end = TcpStream::connect(("127.0.0.1", port)).unwrap();
    end.write_all(&(1_u32 << 31).to_be_bytes()).unwrap();
    calls.join().unwrap();
}
