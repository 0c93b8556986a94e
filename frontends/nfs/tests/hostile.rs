//! Clients that lie, flood and do not read: others are served all the same.

mod support;

use support::Bench;
use support::client::{Client, Handle, User, put_mode, write_arguments};
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
