//! Clients that lie, flood and do not read: others are served all the same.

mod support;

use support::Bench;
use support::client::{Client, Handle, User, put_mode, write_arguments};
use support::client4::{Client4, Operations};
use tarn_host::sim::Random;
use tarn_nfs::v3::procedure;
use tarn_nfs::xdr::Writer;
use tarn_nfs::{mount_protocol, v3};

const OPEN: &str = "rw,no_root_squash,insecure";

fn shared() -> (Bench, Client, Handle) {
    let bench = Bench::new();
    bench.create("tank/a", &[("sharenfs", OPEN)]);
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    (bench, client, root)
}

/// Records of calls with good arguments, of each procedure one.
fn good_calls(root: &[u8], file: &[u8]) -> Vec<Vec<u8>> {
    let named = |directory: &[u8], name: &[u8]| {
        let mut arguments = Writer::new();
        arguments.opaque(directory).opaque(name);
        arguments
    };
    let mut calls = Vec::new();
    for number in 0..=21 {
        let mut arguments = match number {
            procedure::LOOKUP | procedure::REMOVE | procedure::RMDIR => named(root, b"x"),
            procedure::CREATE | procedure::MKDIR | procedure::SYMLINK | procedure::MKNOD => {
                named(root, b"y")
            }
            procedure::RENAME => named(root, b"y"),
            procedure::WRITE => write_arguments(file, 77, b"contents", 2),
            procedure::READDIR | procedure::READDIRPLUS => named(root, b""),
            _ => {
                let mut arguments = Writer::new();
                arguments.opaque(file);
                arguments
            }
        };
        match number {
            procedure::SETATTR | procedure::MKDIR | procedure::SYMLINK => {
                put_mode(&mut arguments, 0o755);
                arguments.opaque(b"target");
            }
            procedure::CREATE | procedure::MKNOD => {
                arguments.u32(4);
                put_mode(&mut arguments, 0o644);
                arguments.u32(1).u32(2);
            }
            procedure::RENAME | procedure::LINK => {
                arguments.opaque(root).opaque(b"z");
            }
            procedure::READ | procedure::COMMIT => {
                arguments.u64(3).u32(100);
            }
            _ => drop(arguments.u64(0).u64(0).u32(9000).u32(9000)),
        }
        calls.push(call((v3::PROGRAM, v3::VERSION, number), &arguments));
    }
    for number in 0..=5 {
        let which = (mount_protocol::PROGRAM, mount_protocol::VERSION, number);
        calls.push(call(which, &named(b"/tank/a", b"")));
    }
    calls
}

fn call(which: (u32, u32, u32), arguments: &Writer) -> Vec<u8> {
    let mut call = Writer::new();
    call.u32(1).u32(0).u32(2);
    call.u32(which.0).u32(which.1).u32(which.2);
    let mut user = Writer::new();
    user.u32(0).opaque(b"test").u32(0).u32(0).u32(1).u32(5);
    call.u32(1).opaque(user.as_slice()).u32(0).u32(0);
    call.fixed(arguments.as_slice());
    call.into_bytes()
}

/// Changes a few bytes or numbers, or the length.
fn damage(record: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.index(record.len());
        match random.below(4) {
            0 => record[at] = random.draw().to_le_bytes()[0],
            1 => record.truncate(at.max(1)),
            2 => {
                let word = at & !3;
                let edges = [0, 1, 4, 0x7fff_ffff, u32::MAX, 64, 65];
                let edge = edges[random.index(7)];
                if word + 4 <= record.len() {
                    record[word..word + 4].copy_from_slice(&edge.to_be_bytes());
                }
            }
            _ => record.extend_from_slice(&random.draw().to_le_bytes()),
        }
    }
}

#[test]
fn damaged_calls_are_answered_or_end_their_connection() {
    let (bench, mut client, root) = shared();
    let file = client.create(&root, "f", 0o644).unwrap();
    let calls = good_calls(&root, &file);
    let mut random = Random::new(7);
    for _ in 0..60 {
        let mut liar = bench.client();
        for _ in 0..40 {
            let mut record = calls[random.index(calls.len())].clone();
            damage(&mut record, &mut random);
            liar.send_quietly(&record);
        }
        // Whatever it gets, its connection ends when it has no more to say.
        liar.finish();
    }
    assert!(client.attributes(&root).is_ok());
    let fresh = client.create(&root, "fresh", 0o644).unwrap();
    assert!(client.write(&fresh, 0, b"x", 2).is_ok());
}

#[test]
fn a_client_that_reads_no_replies_holds_up_no_other() {
    let (bench, mut client, root) = shared();
    let file = client.create(&root, "f", 0o644).unwrap();
    client.write(&file, 0, &vec![7; 1 << 20], 2).unwrap();
    let mut deaf: Vec<Client> = (0..4).map(|_| bench.client()).collect();
    for one in &mut deaf {
        let mut arguments = Writer::new();
        arguments.opaque(&file).u64(0).u32(1 << 20);
        // Far more than the buffers of both sides have room for.
        for _ in 0..100 {
            one.send((v3::PROGRAM, v3::VERSION, procedure::READ), &arguments);
        }
    }
    for _ in 0..50 {
        assert_eq!(client.read(&file, 0, 1 << 20).unwrap().0.len(), 1 << 20);
        client.write(&file, 5, b"others", 2).unwrap();
    }
}

#[test]
fn a_record_without_an_end_ends_its_connection() {
    let (bench, mut client, root) = shared();
    let mut endless = bench.client();
    endless.send_raw(&[0x7f, 0xff, 0xff, 0xff]);
    assert!(endless.is_ended());
    let many: Vec<Client> = (0..200).map(|_| bench.client()).collect();
    client.user = User::Nobody;
    assert!(client.attributes(&root).is_ok());
    drop(many);
}

/// Operations of version 4 with good arguments, by their numbers.
fn good_operations(handle: &[u8], state: &[u8; 16]) -> Vec<(u32, Writer)> {
    let name = |out: &mut Writer| {
        out.opaque(b"x");
    };
    // A bitmap of one word, and attributes of no bytes.
    let nothing = |out: &mut Writer| {
        out.u32(1).u32(0).opaque(&[]);
    };
    let ranged = |out: &mut Writer| {
        out.fixed(state).u64(3).u64(100);
    };
    let mut all = Vec::new();
    for number in [
        3, 4, 5, 6, 9, 11, 12, 13, 14, 15, 17, 18, 21, 22, 25, 26, 28, 29, 34, 37, 38,
    ]
    .into_iter()
    .chain([41, 42, 43, 45, 52, 55, 59, 60, 62, 69, 71])
    {
        let mut out = Writer::new();
        match number {
            3 | 52 => drop(out.u32(1)),
            4 => drop(out.u32(0).fixed(state)),
            5 => drop(out.u64(0).u32(0)),
            6 => {
                out.u32(2).opaque(b"directory");
                nothing(&mut out);
            }
            9 => drop(out.u32(2).u32(0x1818_091a).u32(0x00b0_a23a)),
            11 | 15 | 28 => name(&mut out),
            12 => {
                out.u32(2)
                    .bool(false)
                    .u64(0)
                    .u64(u64::MAX)
                    .bool(true)
                    .u32(0);
                out.fixed(state).u32(0).u64(1).opaque(b"owner");
            }
            13 => drop(out.u32(2).u64(0).u64(9).u64(1).opaque(b"owner")),
            14 => drop(out.u32(2).u32(0).fixed(state).u64(0).u64(9)),
            17 | 37 => nothing(&mut out),
            18 => {
                out.u32(0).u32(3).u32(0).u64(1).opaque(b"owner");
                out.u32(1).u32(0).u32(1).u32(0).opaque(&[]);
                out.u32(0).opaque(b"opened");
            }
            21 => drop(out.fixed(state).u32(0).u32(1).u32(0)),
            22 => drop(out.opaque(handle)),
            25 => drop(out.fixed(state).u64(0).u32(100)),
            26 => drop(out.u64(0).u64(0).u32(900).u32(900).u32(1).u32(0x0010_001a)),
            29 => {
                name(&mut out);
                name(&mut out);
            }
            34 => {
                out.fixed(state);
                nothing(&mut out);
            }
            38 => drop(out.fixed(state).u64(0).u32(2).opaque(b"contents")),
            41 => drop(out.fixed(state).u32(3).bool(false)),
            42 => drop(out.u64(7).opaque(b"another").u32(0).u32(0).u32(0)),
            43 => drop(out.u64(7).u32(1).u32(0)),
            55 => drop(out.u32(2).fixed(state).fixed(state)),
            69 => drop(out.fixed(state).u64(0).u32(1)),
            60 | 71 => drop(out.fixed(state).fixed(state).u64(0).u64(5).u64(9)),
            45 => drop(out.fixed(state)),
            _ => ranged(&mut out),
        }
        all.push((number, out));
    }
    all
}

#[test]
fn damaged_compounds_are_answered_and_others_are_served() {
    let (bench, mut client, root) = shared();
    let file = client.create(&root, "f", 0o644).unwrap();
    let mut random = Random::new(11);
    for round in 0..8 {
        let owner = format!("liar {round}");
        let mut liar = Client4::new(bench.client(), owner.as_bytes());
        let Ok((state, _)) = liar.open(&root, "f", b"opener", (3, 0)) else {
            panic!("the file is opened");
        };
        let good = good_operations(&file, &state);
        for _ in 0..150 {
            let mut bytes = Vec::new();
            let count = 1 + random.index(3);
            for _ in 0..count {
                let (number, arguments) = &good[random.index(good.len())];
                bytes.extend_from_slice(&number.to_be_bytes());
                bytes.extend_from_slice(arguments.as_slice());
            }
            damage(&mut bytes, &mut random);
            let at = [&root, &file][random.index(2)];
            let mut operations = Operations::at(at);
            operations.bytes.fixed(&bytes);
            operations.count += u32::try_from(count).unwrap();
            let (_, result) = liar.run(&operations);
            if result.is_empty() {
                // It has ended its own session.
                break;
            }
            assert!(result.len() < 1 << 20, "a reply is bounded");
        }
    }
    assert!(client.attributes(&root).is_ok());
    let fresh = client.create(&root, "fresh", 0o644).unwrap();
    assert!(client.write(&fresh, 0, b"x", 2).is_ok());
}
