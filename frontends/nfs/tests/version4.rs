//! Files over NFS versions 4.1 and 4.2, as a client sees them.

mod support;

use std::collections::BTreeSet;
use support::Bench;
use support::client4::{
    COMMIT, CREATE, Client4, DESTROY_CLIENTID, DESTROY_SESSION, FREE_STATEID, GETATTR, GETFH,
    Operations, PUTROOTFH, READ, READDIR, REMOVE, WRITE, status_of,
};
use tarn_nfs::xdr::{Reader, Writer};
use tarn_nfs::{v3, v4};

const NOENT: u32 = 2;
const EXIST: u32 = 17;
const TOOSMALL: u32 = 10005;
const NOTSUPP: u32 = 10004;
const DENIED: u32 = 10010;
const LOCKED: u32 = 10012;
const GRACE: u32 = 10013;
const SHARE_DENIED: u32 = 10015;
const MINOR_VERS_MISMATCH: u32 = 10021;
const STALE_CLIENTID: u32 = 10022;
const OLD_STATEID: u32 = 10024;
const BAD_STATEID: u32 = 10025;
const NO_GRACE: u32 = 10033;
const LOCKS_HELD: u32 = 10037;
const OPENMODE: u32 = 10038;
const OP_ILLEGAL: u32 = 10044;
const BADSESSION: u32 = 10052;
const BADSLOT: u32 = 10053;
const COMPLETE_ALREADY: u32 = 10054;
const SEQ_MISORDERED: u32 = 10063;
const SEQUENCE_POS: u32 = 10064;
const REP_TOO_BIG: u32 = 10066;
const TOO_MANY_OPS: u32 = 10070;
const OP_NOT_IN_SESSION: u32 = 10071;
const SEQ_FALSE_RETRY: u32 = 10076;
const CLIENTID_BUSY: u32 = 10074;

const OPTIONS: &str = "rw,no_root_squash,insecure";
/// Access to read and to write.
const BOTH: (u32, u32) = (3, 0);

/// A share of `tank/a`, a client, and the handle of its root.
fn shared() -> (Bench, Client4, Vec<u8>) {
    let bench = Bench::new();
    assert_eq!(bench.create("tank/a", &[("sharenfs", OPTIONS)]), [""; 0]);
    let mut client = Client4::new(bench.client(), b"one");
    let root = client.look_up(&bench.path("tank/a")).unwrap();
    (bench, client, root)
}

fn make_folder(root: &[u8], name: &str) -> Operations {
    Operations::at(root).with(CREATE, |out| {
        out.u32(2).opaque(name.as_bytes()).u32(0).opaque(&[]);
    })
}

#[test]
fn a_repeated_call_gets_the_reply_that_was_kept_and_is_not_carried_out_again() {
    let (_bench, mut client, root) = shared();
    client.keeps = true;
    let make = make_folder(&root, "folder");
    let first = client.run_in(3, 1, &make);
    assert_eq!(first.status, 0);
    let again = client.run_in(3, 1, &make);
    assert_eq!((again.status, again.bytes), (0, first.bytes));
    assert_eq!(client.run_in(3, 2, &make).status, EXIST);
    assert_eq!(client.run_in(3, 2, &make).status, EXIST, "this was kept");
    let other = make_folder(&root, "other");
    assert_eq!(client.run_in(3, 2, &other).status, SEQ_FALSE_RETRY);
    for wrong in [1, 4, 0] {
        assert_eq!(client.run_in(3, wrong, &make).status, SEQ_MISORDERED);
    }
    assert_eq!(client.run_in(4, 0, &make).status, SEQ_MISORDERED);
    assert_eq!(client.run_in(8, 1, &make).status, BADSLOT);
}

#[test]
fn sessions_are_made_once_and_end() {
    let (_bench, mut client, root) = shared();
    let (id, sequence) = client.exchange_id(*b"verifier");
    assert_eq!(id, client.id, "it is the same client");
    let made = client.create_session(sequence).unwrap();
    assert_eq!(client.create_session(sequence), Ok(made.clone()));
    assert_eq!(client.create_session(sequence + 2), Err(SEQ_MISORDERED));
    assert_eq!(client.reclaim_complete(), COMPLETE_ALREADY);
    // A client that begins anew ends what it had.
    let (state, file) = client.open(&root, "f", b"o", (2, 2)).unwrap();
    let mut other = Client4::new(_bench.client(), b"two");
    assert_eq!(other.open(&root, "f", b"o", BOTH), Err(SHARE_DENIED));
    let (newer, sequence) = client.exchange_id(*b"second v");
    assert_ne!(newer, client.id);
    assert_eq!(client.write(&file, &state, 0, b"still"), 0);
    let old = std::mem::replace(&mut client.id, newer);
    client.create_session(sequence).unwrap();
    assert_eq!(client.write(&file, &state, 0, b"gone"), BADSESSION);
    client.id = old;
    assert_eq!(client.create_session(2), Err(STALE_CLIENTID));
    let (state, file) = other.open(&root, "f", b"o", BOTH).unwrap();
    let end = |id: u64| {
        Operations::default().with(DESTROY_CLIENTID, |out| {
            out.u64(id);
        })
    };
    let own = other.id;
    assert_eq!(other.compound(&end(own)).status, CLIENTID_BUSY);
    assert_eq!(other.close(&file, &state), 0);
    let session = other.session;
    let leave = Operations::default().with(DESTROY_SESSION, |out| {
        out.fixed(&session);
    });
    assert_eq!(other.compound(&leave).status, 0);
    assert_eq!(other.compound(&leave).status, BADSESSION);
    assert_eq!(other.compound(&end(own)).status, 0);
    assert_eq!(other.compound(&end(own)).status, STALE_CLIENTID);
}

#[test]
fn operations_come_in_sessions_of_versions_4_1_and_4_2() {
    let (_bench, mut client, root) = shared();
    let make = make_folder(&root, "folder");
    assert_eq!(client.compound(&make).status, OP_NOT_IN_SESSION);
    for other in [3, u32::MAX] {
        client.minor = other;
        let answer = client.run_in(5, 1, &make);
        assert_eq!((answer.status, answer.count), (MINOR_VERS_MISMATCH, 0));
    }
    client.minor = 1;
    let inner = Operations::at(&root).with(53, |out| {
        out.fixed(&[0; 16]).u32(1).u32(0).u32(0).bool(false);
    });
    assert_eq!(client.status(&inner), SEQUENCE_POS);
    let seek = |client: &mut Client4| {
        client.status(&Operations::at(&root).with(69, |out| {
            out.fixed(&[0; 16]).u64(0).u32(0);
        }))
    };
    assert_eq!(seek(&mut client), OP_ILLEGAL, "it is of version 4.2");
    client.minor = 2;
    assert_ne!(seek(&mut client), OP_ILLEGAL);
    // Delegations that outlive the client, or are of folders or without an open; layouts, named
    // attributes, and what only version 4.0 has.
    for number in [7, 19, 20, 35, 46, 47, 50, 56, 70] {
        let asked = Operations::at(&root).with(number, |_| {});
        assert_eq!(client.status(&asked), NOTSUPP, "of {number}");
    }
    for number in [0, 2, 76, 10044] {
        let asked = Operations::at(&root).with(number, |_| {});
        assert_eq!(client.status(&asked), OP_ILLEGAL, "of {number}");
    }
}

#[test]
fn files_are_opened_written_committed_read_and_closed() {
    let (_bench, mut client, root) = shared();
    let (state, file) = client.open(&root, "f", b"owner", BOTH).unwrap();
    let write = Operations::at(&file).with(WRITE, |out| {
        out.fixed(&state).u64(0).u32(0).opaque(b"contents");
    });
    let (status, bytes) = client.run(&write);
    assert_eq!(status, 0);
    // The number of bytes, that they wait for a commit, and the verifier.
    let (written, verifier) = (&bytes[16..24], &bytes[24..32]);
    assert_eq!(written, [0, 0, 0, 8, 0, 0, 0, 0]);
    let commit = Operations::at(&file).with(COMMIT, |out| {
        out.u64(0).u32(0);
    });
    let (status, bytes) = client.run(&commit);
    assert_eq!((status, &bytes[16..]), (0, verifier));
    let all = Ok((true, b"contents".to_vec()));
    assert_eq!(client.read(&file, &state, 0), all);
    assert_eq!(client.read(&file, &state, 9), Ok((true, Vec::new())));
    // A second open of the owner is the same state, which has changed.
    let (second, same) = client.open(&root, "f", b"owner", (1, 0)).unwrap();
    assert_eq!(same, file);
    assert_eq!(second[4..], state[4..]);
    assert_eq!(client.read(&file, &state, 0), Err(OLD_STATEID));
    let (other, _) = client.open(&root, "f", b"reads", (1, 0)).unwrap();
    assert_eq!(client.write(&file, &other, 0, b"x"), OPENMODE);
    assert_eq!(
        client.open(&root, "f", b"denies", (1, 2)),
        Err(SHARE_DENIED)
    );
    assert_eq!(client.close(&file, &second), 0);
    assert_eq!(client.read(&file, &second, 0), Err(BAD_STATEID));
    let (denies, _) = client.open(&root, "f", b"denies", (1, 2)).unwrap();
    assert_eq!(client.open(&root, "f", b"owner", BOTH), Err(SHARE_DENIED));
    assert_eq!(client.open_empty(&root, "f", b"owner"), Err(SHARE_DENIED));
    assert_eq!(client.write(&file, &[0; 16], 0, b"x"), LOCKED);
    assert_eq!(client.read(&file, &[0; 16], 0), all, "it is not truncated");
    assert_eq!(client.close(&file, &denies), 0);
    let (empties, _) = client.open_empty(&root, "f", b"owner").unwrap();
    assert_eq!(client.read(&file, &empties, 0), Ok((true, Vec::new())));
    assert_eq!(client.write(&file, &empties, 0, b"contents"), 0);
    assert_eq!(client.close(&file, &empties), 0);
    // A file that has no name any more is there as long as it is open.
    let remove = Operations::at(&root).with(REMOVE, |out| {
        out.opaque(b"f");
    });
    assert_eq!(client.status(&remove), 0);
    assert_eq!(client.read(&file, &other, 0), all);
    assert_eq!(client.close(&file, &other), 0);
    assert_eq!(client.look_up("/none"), Err(NOENT));
}

#[test]
fn locks_exclude_other_owners_and_clients() {
    let (bench, mut client, root) = shared();
    let mut other = Client4::new(bench.client(), b"two");
    let (open, file) = client.open(&root, "f", b"o", BOTH).unwrap();
    let (others, _) = other.open(&root, "f", b"o", BOTH).unwrap();
    let lock = client
        .lock(&file, &open, b"locker", (10, 5), false)
        .unwrap();
    let (status, conflict) = other
        .lock(&file, &others, b"l", (0, 100), false)
        .unwrap_err();
    assert_eq!(status, DENIED);
    let mut reader = Reader::new(&conflict);
    assert_eq!(
        (reader.u64(), reader.u64(), reader.u32()),
        (Ok(10), Ok(5), Ok(2))
    );
    assert_eq!(reader.u64(), Ok(client.id));
    assert_eq!(reader.opaque(100), Ok(&b"locker"[..]));
    let next = other.lock(&file, &others, b"l", (15, 5), false).unwrap();
    let free = |state: &[u8; 16]| {
        Operations::default().with(FREE_STATEID, |out| {
            out.fixed(state);
        })
    };
    assert_eq!(client.status(&free(&lock)), LOCKS_HELD);
    assert_eq!(other.status(&free(&lock)), BAD_STATEID, "it is another's");
    let unlocked = client.unlock(&file, &lock).unwrap();
    assert_eq!(client.unlock(&file, &lock), Err(OLD_STATEID));
    assert_eq!(client.status(&free(&unlocked)), 0);
    assert_eq!(client.status(&free(&unlocked)), BAD_STATEID);
    let (status, _) = client
        .lock(&file, &open, b"locker", (0, 16), false)
        .unwrap_err();
    assert_eq!(status, DENIED);
    // The locks of an open file end with it.
    assert_eq!(other.close(&file, &others), 0);
    assert_eq!(other.unlock(&file, &next), Err(BAD_STATEID));
    client
        .lock(&file, &open, b"locker", (0, 16), false)
        .unwrap();
}

/// The names of a folder, in pieces of so many bytes.
fn names(client: &mut Client4, folder: &[u8], most: u32) -> Result<Vec<String>, u32> {
    let (mut names, mut cookie, mut is_end) = (Vec::new(), 0, false);
    while !is_end {
        let (status, bytes) = client.run(&Operations::at(folder).with(READDIR, |out| {
            out.u64(cookie).u64(0).u32(most).u32(most);
            // The type and the number.
            out.u32(1).u32(1 << 1 | 1 << 20);
        }));
        if status != 0 {
            return Err(status);
        }
        assert!(bytes.len() - 16 <= most as usize);
        let mut reader = Reader::new(&bytes[24..]);
        while reader.bool().unwrap() {
            cookie = reader.u64().unwrap();
            names.push(String::from_utf8(reader.opaque(255).unwrap().to_vec()).unwrap());
            assert_eq!((reader.u32(), reader.u32()), (Ok(1), Ok(1 << 1 | 1 << 20)));
            assert_eq!(reader.opaque(12).unwrap().len(), 12);
        }
        is_end = reader.bool().unwrap();
    }
    Ok(names)
}

#[test]
fn a_folder_is_listed_in_pieces_and_each_name_once() {
    let (bench, mut client, root) = shared();
    for number in 0..300 {
        assert_eq!(
            client.status(&make_folder(&root, &format!("folder-{number}"))),
            0
        );
    }
    for most in [200, 4096, 1 << 20] {
        let names = names(&mut client, &root, most).unwrap();
        let each: BTreeSet<&String> = names.iter().collect();
        assert_eq!((names.len(), each.len()), (300, 300));
    }
    assert_eq!(names(&mut client, &root, 40), Err(TOOSMALL));
    // The folders above lead to the share.
    let path = bench.path("tank");
    let above = client.look_up(&path).unwrap();
    assert_eq!(names(&mut client, &above, 4096), Ok(vec!["a".to_string()]));
    assert_eq!(
        client.status(&make_folder(&above, "none")),
        30,
        "it is read-only"
    );
}

#[test]
fn after_a_restart_clients_reclaim_before_others_get_anything() {
    let (bench, mut client, root) = shared();
    let (open, file) = client.open(&root, "f", b"o", BOTH).unwrap();
    client.lock(&file, &open, b"l", (0, 10), false).unwrap();
    assert_eq!(client.write(&file, &open, 0, b"before"), 0);
    let commit = Operations::at(&file).with(COMMIT, |out| {
        out.u64(0).u32(0);
    });
    let before = client.run(&commit).1;
    let (id, session) = (client.id, client.session);
    let bench = bench.restarted();
    // Nothing of the earlier life is known, and nothing is taken for it.
    let mut other = Client4::that_may_reclaim(bench.client(), b"two");
    let own = std::mem::replace(&mut other.session, session);
    assert_eq!(other.status(&commit), BADSESSION);
    let new_id = std::mem::replace(&mut other.id, id);
    assert_eq!(other.create_session(1), Err(STALE_CLIENTID));
    (other.session, other.id, other.sequence) = (own, new_id, 0);
    assert_eq!(other.reclaim(&file, b"o"), Err(NO_GRACE), "it had nothing");
    assert_eq!(other.reclaim_complete(), 0);
    assert_eq!(other.open(&root, "f", b"o", BOTH), Err(GRACE));
    assert_eq!(other.write(&file, &[0; 16], 0, b"x"), GRACE);
    let mut client = Client4::that_may_reclaim(bench.client(), b"one");
    assert_eq!(client.read(&file, &open, 0), Err(BAD_STATEID));
    assert_eq!(client.open(&root, "f", b"o", BOTH), Err(GRACE));
    let (open, same) = client.reclaim(&file, b"o").unwrap();
    assert_eq!(same, file);
    let refused = client.lock(&file, &open, b"l", (0, 10), false);
    assert_eq!(refused.unwrap_err().0, GRACE);
    client.lock(&file, &open, b"l", (0, 10), true).unwrap();
    assert_eq!(client.reclaim_complete(), 0);
    assert_eq!(client.reclaim(&file, b"o"), Err(NO_GRACE));
    assert_eq!(client.read(&file, &open, 0), Ok((true, b"before".to_vec())));
    assert_ne!(client.run(&commit).1, before, "writes are to be sent again");
    // All have reclaimed, so others are served, and excluded by what was reclaimed.
    let (others, _) = other.open(&root, "f", b"o", BOTH).unwrap();
    let refused = other.lock(&file, &others, b"l", (0, 10), false);
    assert_eq!(refused.unwrap_err().0, DENIED);
}

#[test]
fn malformed_compounds_get_errors_and_replies_are_bounded() {
    let (_bench, mut client, root) = shared();
    let (state, file) = client.open(&root, "f", b"o", BOTH).unwrap();
    for at in 0..3 {
        assert_eq!(client.write(&file, &state, at << 19, &vec![7; 1 << 19]), 0);
    }
    let mut reads = Operations::at(&file);
    for _ in 0..30 {
        reads = reads.with(READ, |out| {
            out.fixed(&state).u64(0).u32(1 << 20);
        });
    }
    client.sequence += 1;
    let session = client.session;
    let mut arguments = Writer::new();
    arguments.opaque(b"tag").u32(1).u32(reads.count + 1).u32(53);
    arguments
        .fixed(&session)
        .u32(client.sequence)
        .u32(0)
        .u32(0)
        .bool(false);
    arguments.fixed(reads.bytes.as_slice());
    let which = (v3::PROGRAM, v4::VERSION, v4::COMPOUND);
    let reply = client.connection.call(which, &arguments).unwrap();
    assert_eq!(Reader::new(&reply).u32(), Ok(REP_TOO_BIG));
    assert!(reply.len() <= (1 << 20) + 4096);
    let many = Operations {
        count: 65,
        ..Operations::default()
    };
    assert_eq!(client.compound(&many).status, TOO_MANY_OPS);
    // Cut off anywhere, and with any byte changed, a call gets a reply.
    let whole = Operations::at(&file)
        .with(GETATTR, |out| {
            out.u32(2).u32(u32::MAX).u32(u32::MAX);
        })
        .with(18, |out| {
            out.u32(0).u32(3).u32(0).u64(1).opaque(b"o");
            out.u32(1)
                .u32(0)
                .u32(2)
                .u32(0)
                .u32(2)
                .opaque(&[0, 0, 1, 0xa4]);
            out.u32(0).opaque(b"g");
        })
        .with(READDIR, |out| {
            out.u64(0).u64(0).u32(4096).u32(4096).u32(1).u32(2);
        })
        .with(PUTROOTFH, |_| {})
        .with(GETFH, |_| {});
    let bytes = whole.bytes.as_slice();
    for at in 0..bytes.len() {
        let mut cut = Operations {
            count: whole.count,
            bytes: Writer::new(),
        };
        if at % 4 == 0 {
            cut.bytes.fixed(&bytes[..at]);
            assert_ne!(client.status(&cut), 0);
        }
        let mut changed = bytes.to_vec();
        changed[at] ^= 0xff;
        cut.bytes = Writer::new();
        cut.bytes.fixed(&changed);
        client.status(&cut);
    }
    let (status, bytes) = client.run(&Operations::at(&file).with(GETFH, |_| {}));
    let mut reader = Reader::new(&bytes[8..]);
    assert_eq!((status, status_of(&mut reader, GETFH)), (0, 0));
}
