//! Files over NFS version 4.0, as a client sees them: its numbers, and the order of its owners'
//! operations.

mod support;

use support::Bench;
use support::client::User;
use support::client4::{CREATE, GETATTR, Operations, REMOVE, SEQUENCE, status_of};
use support::client40::{Client40, Opened};
use tarn_nfs::xdr::{Reader, Writer};
use tarn_nfs::{v3, v4};

const NOENT: u32 = 2;
const INVAL: u32 = 22;
const EXPIRED: u32 = 10011;
const DENIED: u32 = 10010;
const GRACE: u32 = 10013;
const CLID_INUSE: u32 = 10017;
const RESOURCE: u32 = 10018;
const STALE_CLIENTID: u32 = 10022;
const STALE_STATEID: u32 = 10023;
const OLD_STATEID: u32 = 10024;
const BAD_STATEID: u32 = 10025;
const BAD_SEQID: u32 = 10026;
const NO_GRACE: u32 = 10033;
const LOCKS_HELD: u32 = 10037;
const OP_ILLEGAL: u32 = 10044;

const OPTIONS: &str = "rw,no_root_squash,insecure";

/// A share of `tank/a`, a client, and the handle of its root.
fn shared() -> (Bench, Client40, Vec<u8>) {
    let bench = Bench::new();
    assert_eq!(bench.create("tank/a", &[("sharenfs", OPTIONS)]), [""; 0]);
    let mut client = Client40::new(bench.client(), b"one", *b"verifier");
    let root = client.look_up(&bench.path("tank/a"));
    (bench, client, root)
}

/// Opens a file by an owner that the server does not know, with the numbers 0 and 1.
fn open(client: &mut Client40, root: &[u8], owner: &[u8]) -> Opened {
    let opened = client.open(root, "f", owner, 0).unwrap();
    assert!(opened.must_confirm);
    let state = client.confirm_open(&opened.file, &opened.state, 1).unwrap();
    Opened { state, ..opened }
}

#[test]
fn an_owner_opens_in_order_and_a_repetition_gets_the_same_result() {
    let (_bench, mut client, root) = shared();
    let first = client.open(&root, "f", b"o", 7).unwrap();
    assert_eq!(client.open(&root, "f", b"o", 7), Ok(first.clone()));
    // Before it is confirmed, the open is good for nothing else.
    assert_eq!(client.write(&first.file, &first.state, b"x"), BAD_STATEID);
    let wrong = client.confirm_open(&first.file, &first.state, 9);
    assert_eq!(wrong, Err(BAD_SEQID));
    let state = client.confirm_open(&first.file, &first.state, 8).unwrap();
    let again = client.confirm_open(&first.file, &first.state, 8);
    assert_eq!(again, Ok(state));
    let twice = client.confirm_open(&first.file, &state, 9);
    assert_eq!(twice, Err(BAD_STATEID));
    assert_eq!(client.write(&first.file, &state, b"contents"), 0);
    assert_eq!(client.read(&first.file, &first.state), Err(OLD_STATEID));
    assert_eq!(client.read(&first.file, &state), Ok(b"contents".to_vec()));
    // A failure counts, too.
    assert_eq!(client.open(&root, "", b"o", 9), Err(INVAL));
    assert_eq!(client.open(&root, "f", b"o", 11), Err(BAD_SEQID));
    let second = client.open(&root, "f", b"o", 10).unwrap();
    assert!(!second.must_confirm);
    assert_eq!(second.state[4..], state[4..]);
    assert_eq!(client.close(&first.file, &state, 11), Err(OLD_STATEID));
    let closed = client.close(&first.file, &second.state, 12).unwrap();
    let again = client.close(&first.file, &second.state, 12);
    assert_eq!(again, Ok(closed));
    let after = client.close(&first.file, &second.state, 13);
    assert_eq!(after, Err(BAD_STATEID));
    // The owner of an open that was not confirmed begins anew.
    client.open(&root, "g", b"p", 3).unwrap();
    let anew = client.open(&root, "f", b"p", 100).unwrap();
    assert!(anew.must_confirm);
}

#[test]
fn locks_are_taken_in_order_and_owners_without_locks_are_released() {
    let (bench, mut client, root) = shared();
    let opened = open(&mut client, &root, b"o");
    let file = opened.file;
    let at = (&opened.state, 2);
    let lock = client.lock(&file, at, (b"l", 0), (0, 10), false).unwrap();
    let again = client.lock(&file, at, (b"l", 0), (0, 10), false);
    assert_eq!(again, Ok(lock));
    let wrong = client.lock_more(&file, (&lock, 5), (20, 10));
    assert_eq!(wrong, Err(BAD_SEQID));
    let more = client.lock_more(&file, (&lock, 1), (20, 10)).unwrap();
    assert_eq!(client.lock_more(&file, (&lock, 1), (20, 10)), Ok(more));
    let mut other = Client40::new(bench.client(), b"two", *b"verifier");
    let others = open(&mut other, &root, b"o");
    let refused = other.lock(&file, (&others.state, 2), (b"l", 0), (25, 1), false);
    assert_eq!(refused, Err(DENIED));
    assert_eq!(client.release(b"l"), LOCKS_HELD);
    // The same number with another operation is no repetition.
    assert_eq!(client.unlock(&file, &more, 1), Err(BAD_SEQID));
    let unlocked = client.unlock(&file, &more, 2).unwrap();
    assert_eq!(client.unlock(&file, &more, 2), Ok(unlocked));
    assert_eq!(client.release(b"l"), 0);
    assert_eq!(client.unlock(&file, &unlocked, 3), Err(BAD_STATEID));
    other
        .lock(&file, (&others.state, 3), (b"l", 1), (25, 1), false)
        .unwrap();
}

#[test]
fn a_client_has_one_number_until_it_restarts() {
    let (bench, mut client, root) = shared();
    let opened = open(&mut client, &root, b"o");
    let id = client.id;
    // The same verifier confirms the same client once more.
    let (same, confirms) = client.introduce(b"one", *b"verifier").unwrap();
    assert_eq!((same, client.confirm(id, confirms)), (id, 0));
    assert_eq!(client.confirm(id, confirms), 0, "it is a repetition");
    assert_eq!(client.confirm(id, confirms + 1), STALE_CLIENTID);
    assert_eq!(client.write(&opened.file, &opened.state, b"x"), 0);
    // Another user may not take its place while it has opens.
    let mut thief = bench.client();
    thief.user = User::System(7, 7, Vec::new());
    let mut thief = Client40 {
        connection: thief,
        id: 0,
        address: String::new(),
    };
    assert_eq!(thief.introduce(b"one", *b"stealing"), Err(CLID_INUSE));
    // A client that restarts has lost its state when it is confirmed.
    let (unused, never) = client.introduce(b"one", *b"second v").unwrap();
    let (new, confirms) = client.introduce(b"one", *b"third  v").unwrap();
    assert_ne!(new, id);
    assert_eq!(client.confirm(unused, never), STALE_CLIENTID);
    assert_eq!(client.renew(new), STALE_CLIENTID, "it is not confirmed");
    assert_eq!(client.write(&opened.file, &opened.state, b"y"), 0);
    assert_eq!(client.confirm(new, confirms), 0);
    assert_eq!(client.write(&opened.file, &opened.state, b"z"), EXPIRED);
    assert_eq!((client.renew(id), client.renew(new)), (EXPIRED, 0));
    assert_eq!(client.renew(0), STALE_CLIENTID);
    assert_eq!(client.open(&root, "f", b"o", 2), Err(EXPIRED));
}

#[test]
fn after_a_restart_a_client_reclaims_before_others_get_anything() {
    let (bench, mut client, root) = shared();
    let opened = open(&mut client, &root, b"o");
    let at = (&opened.state, 2);
    client
        .lock(&opened.file, at, (b"l", 0), (0, 10), false)
        .unwrap();
    let old = client.id;
    let bench = bench.restarted();
    let mut other = Client40::new(bench.client(), b"two", *b"verifier");
    assert_eq!(other.renew(old), STALE_CLIENTID);
    assert_eq!(
        other.write(&opened.file, &opened.state, b"x"),
        STALE_STATEID
    );
    assert_eq!(other.open(&root, "f", b"o", 0), Err(GRACE));
    assert_eq!(other.reclaim(&opened.file, b"o", 1), Err(NO_GRACE));
    let mut client = Client40::new(bench.client(), b"one", *b"verifier");
    let again = client.reclaim(&opened.file, b"o", 5).unwrap();
    assert!(!again.must_confirm, "it is no repetition");
    let at = (&again.state, 6);
    let locked = client.lock(&opened.file, at, (b"l", 0), (0, 10), false);
    assert_eq!(locked, Err(GRACE));
    let at = (&again.state, 7);
    client
        .lock(&opened.file, at, (b"l", 1), (0, 10), true)
        .unwrap();
    assert_eq!(client.write(&opened.file, &again.state, b"mine"), 0);
    // What the owner asks for next leaves it what it has reclaimed.
    assert_eq!(client.open(&root, "g", b"o", 8), Err(GRACE));
    assert_eq!(client.write(&opened.file, &again.state, b"mine"), 0);
}

#[test]
fn a_repeated_call_without_an_owner_is_carried_out_once() {
    let (_bench, mut client, root) = shared();
    let make = Operations::at(&root).with(CREATE, |out| {
        out.u32(2).opaque(b"folder").u32(0).opaque(&[]);
    });
    let remove = Operations::at(&root).with(REMOVE, |out| {
        out.opaque(b"folder");
    });
    assert_eq!(client.status(&make), 0);
    let which = (v3::PROGRAM, v4::VERSION, v4::COMPOUND);
    let arguments = remove.arguments(0);
    let mut status = |xid: u32| {
        client.connection.send_as(xid, which, &arguments);
        let reply = client.connection.receive();
        Reader::new(&reply[24..]).u32().unwrap()
    };
    assert_eq!((status(1000), status(1000)), (0, 0));
    assert_eq!(status(1001), NOENT);
}

#[test]
fn version_4_0_has_operations_of_its_own() {
    let (_bench, mut client, root) = shared();
    for number in [0, 2, 40, SEQUENCE, 60, 10044] {
        let asked = Operations::at(&root).with(number, |_| {});
        assert_eq!(client.status(&asked), OP_ILLEGAL, "of {number}");
    }
    let many = Operations {
        count: 65,
        ..Operations::default()
    };
    assert_eq!(client.status(&many), RESOURCE);
    // The set of attributes that there are is that of the version.
    let answer = client.compound(&Operations::at(&root).with(GETATTR, |out| {
        out.u32(1).u32(1);
    }));
    let mut reader = Reader::new(&answer.bytes[8..]);
    assert_eq!(status_of(&mut reader, GETATTR), 0);
    assert_eq!((reader.u32(), reader.u32()), (Ok(1), Ok(1)));
    let supported = reader.opaque(16).unwrap();
    assert_eq!(Reader::new(supported).u32(), Ok(2), "none of a third word");
    // Cut off anywhere, a call gets a reply.
    let whole = Operations::at(&root).with(18, |out| {
        out.u32(0).u32(3).u32(0).u64(1).opaque(b"o");
        out.u32(0).u32(0).opaque(b"g");
    });
    for at in (0..whole.bytes.len()).step_by(4) {
        let mut bytes = Writer::new();
        bytes.fixed(&whole.bytes.as_slice()[..at]);
        let cut = Operations {
            count: whole.count,
            bytes,
        };
        assert_ne!(client.status(&cut), 0);
    }
}
