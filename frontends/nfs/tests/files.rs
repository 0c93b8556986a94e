//! Files over NFS version 3, as a client sees them.

mod support;

use support::Bench;
use support::client::{Client, ROOT, User, post, put_mode, wcc, write_arguments};
use tarn_nfs::v3::procedure;
use tarn_nfs::xdr::{Reader, Writer};
use tarn_nfs::{mount_protocol, v3};

const NOENT: u32 = 2;
const ACCES: u32 = 13;
const EXIST: u32 = 17;
const XDEV: u32 = 18;
const NOTDIR: u32 = 20;
const ROFS: u32 = 30;
const NOTEMPTY: u32 = 66;
const DQUOT: u32 = 69;
const STALE: u32 = 70;
const BADHANDLE: u32 = 10001;
const NOT_SYNC: u32 = 10002;
const JUKEBOX: u32 = 10008;

/// Options with which root of a client is root, from any port.
const OPEN: &str = "rw,no_root_squash,insecure";

/// A share of `tank/a`, a client, and the handle of its root.
fn shared(options: &str) -> (Bench, Client, Vec<u8>) {
    let bench = Bench::new();
    assert_eq!(bench.create("tank/a", &[("sharenfs", options)]), [""; 0]);
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    (bench, client, root)
}

#[test]
fn what_is_written_is_read_and_a_commit_has_the_verifier_of_the_write() {
    let (_bench, mut client, root) = shared(OPEN);
    let file = client.create(&root, "f", 0o640).unwrap();
    let bytes: Vec<u8> = (0..300_001_u32).map(|at| at.to_le_bytes()[0]).collect();
    let (stable, verifier) = client.write(&file, 0, &bytes, 0).unwrap();
    assert_eq!(stable, 0, "it waits for a commit");
    assert_eq!(client.commit(&file).unwrap(), verifier);
    let (stable, again) = client.write(&file, 300_001, b"end", 2).unwrap();
    assert_eq!((stable, again), (2, verifier));
    assert_eq!(client.write(&file, 0, &[], 1).unwrap().0, 2);
    let (read, is_end) = client.read(&file, 0, 300_001).unwrap();
    assert!(read == bytes && !is_end);
    assert_eq!(
        client.read(&file, 299_999, 100).unwrap().0,
        [&bytes[299_999..], b"end"].concat()
    );
    assert_eq!(
        client.read(&file, 300_001, 10).unwrap(),
        (b"end".to_vec(), true)
    );
    assert_eq!(client.read(&file, 1 << 40, 10).unwrap(), (Vec::new(), true));
    let found = client.attributes(&file).unwrap();
    assert_eq!((found.kind, found.mode, found.size), (1, 0o640, 300_004));
}

#[test]
fn a_result_has_attributes_from_before_and_after_the_change() {
    let (_bench, mut client, root) = shared(OPEN);
    let file = client.create(&root, "f", 0o644).unwrap();
    client.write(&file, 0, b"12345", 2).unwrap();
    let arguments = write_arguments(&file, 5, b"678", 0);
    let rest = client.ask(procedure::WRITE, &arguments).unwrap();
    let (before, after) = wcc(&mut Reader::new(&rest));
    assert_eq!((before, after.unwrap().size), (Some(5), 8));
    // A failure has the attributes of now.
    let mut arguments = Writer::new();
    arguments.opaque(&root).opaque(b"none");
    let (status, rest) = client.status(procedure::REMOVE, &arguments);
    let (before, after) = wcc(&mut Reader::new(&rest));
    assert_eq!((status, before), (NOENT, None));
    assert_eq!(after.unwrap().kind, 2);
}

#[test]
fn names_are_made_moved_and_removed() {
    let (_bench, mut client, root) = shared(OPEN);
    let folder = client.make_directory(&root, "d", 0o755).unwrap();
    let file = client.create(&folder, "f", 0o644).unwrap();
    assert_eq!(client.create(&folder, "f", 0o644), Err(EXIST));
    assert_eq!(client.create(&folder, "..", 0o644), Err(EXIST));
    assert_eq!(client.create(&folder, "a/b", 0o644), Err(ACCES));
    assert_eq!(client.create(&file, "x", 0o644), Err(NOTDIR));
    assert_eq!(client.lookup(&folder, "f"), Ok(file.clone()));
    assert_eq!(client.lookup(&folder, ".."), Ok(root.clone()));
    assert_eq!(client.lookup(&root, ".."), Ok(root.clone()));
    client.rename((&folder, "f"), (&root, "g")).unwrap();
    assert_eq!(client.lookup(&folder, "f"), Err(NOENT));
    assert_eq!(client.lookup(&root, "g"), Ok(file.clone()));
    let mut link = Writer::new();
    link.opaque(&file).opaque(&folder).opaque(b"h");
    client.ask(procedure::LINK, &link).unwrap();
    assert_eq!(client.attributes(&file).unwrap().links, 2);
    let mut rmdir = Writer::new();
    rmdir.opaque(&root).opaque(b"d");
    assert_eq!(client.ask(procedure::RMDIR, &rmdir), Err(NOTEMPTY));
    client.remove(&folder, "h").unwrap();
    client.ask(procedure::RMDIR, &rmdir).unwrap();
    assert_eq!(client.attributes(&folder), Err(STALE));
    client.remove(&root, "g").unwrap();
    assert_eq!(client.attributes(&file), Err(STALE));
    assert_eq!(client.remove(&root, "g"), Err(NOENT));
    assert_eq!(client.attributes(b"nonsense"), Err(BADHANDLE));
}

#[test]
fn links_and_special_files_are_made_and_read() {
    let (_bench, mut client, root) = shared(OPEN);
    let mut symlink = Writer::new();
    symlink.opaque(&root).opaque(b"l");
    put_mode(&mut symlink, 0o777);
    symlink.opaque(b"../target");
    client.ask(procedure::SYMLINK, &symlink).unwrap();
    let link = client.lookup(&root, "l").unwrap();
    let mut arguments = Writer::new();
    arguments.opaque(&link);
    let rest = client.ask(procedure::READLINK, &arguments).unwrap();
    let mut reader = Reader::new(&rest);
    assert_eq!(post(&mut reader).unwrap().kind, 5);
    assert_eq!(reader.opaque(99).unwrap(), b"../target");
    let mut node = Writer::new();
    node.opaque(&root).opaque(b"n").u32(4);
    put_mode(&mut node, 0o600);
    node.u32(1).u32(3);
    client.user = User::System(1000, 1000, Vec::new());
    assert_eq!(client.ask(procedure::MKNOD, &node), Err(1));
    client.user = ROOT;
    client.ask(procedure::MKNOD, &node).unwrap();
    let node = client.lookup(&root, "n").unwrap();
    assert_eq!(client.attributes(&node).unwrap().kind, 4);
}

#[test]
fn lists_go_on_by_their_cookies_while_entries_come_and_go() {
    let (_bench, mut client, root) = shared(OPEN);
    let names: Vec<String> = (0..700).map(|number| format!("file-{number}")).collect();
    for name in &names {
        client.create(&root, name, 0o644).unwrap();
    }
    for (is_plus, count) in [(false, 1000), (true, 4096), (true, 1 << 20)] {
        let listed = client.list(&root, is_plus, count).unwrap();
        let mut found: Vec<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
        found.sort_unstable();
        let mut expected: Vec<&str> = names.iter().map(String::as_str).collect();
        expected.extend([".", ".."]);
        expected.sort_unstable();
        assert_eq!(found, expected);
        if is_plus {
            let handle = listed.iter().find(|(name, _)| name == "file-7").unwrap();
            let looked_up = client.lookup(&root, "file-7").unwrap();
            assert_eq!(handle.1.as_ref(), Some(&looked_up));
        }
    }
    let mut arguments = Writer::new();
    arguments.opaque(&root).u64(0).u64(0).u32(100);
    assert_eq!(
        client.ask(procedure::READDIR, &arguments),
        Err(10005),
        "too small"
    );
}

#[test]
fn an_exclusive_creation_that_is_repeated_finds_its_file() {
    let (_bench, mut client, root) = shared(OPEN);
    let mut exclusive = |verifier: u64| {
        let mut arguments = Writer::new();
        arguments.opaque(&root).opaque(b"x").u32(2).u64(verifier);
        client.ask(procedure::CREATE, &arguments).map(drop)
    };
    assert_eq!(exclusive(7), Ok(()));
    assert_eq!(exclusive(7), Ok(()));
    assert_eq!(exclusive(8), Err(EXIST));
}

#[test]
fn attributes_are_set_only_if_the_guard_is_the_present_time() {
    let (_bench, mut client, root) = shared(OPEN);
    let file = client.create(&root, "f", 0o644).unwrap();
    let (seconds, nanoseconds) = client.attributes(&file).unwrap().ctime;
    let set = |seconds| {
        let mut arguments = Writer::new();
        arguments.opaque(&file);
        put_mode(&mut arguments, 0o600);
        arguments.bool(true).u32(seconds).u32(nanoseconds);
        arguments
    };
    let late = client.ask(procedure::SETATTR, &set(seconds + 1));
    assert_eq!(late, Err(NOT_SYNC));
    client.ask(procedure::SETATTR, &set(seconds)).unwrap();
    assert_eq!(client.attributes(&file).unwrap().mode, 0o600);
}

#[test]
fn users_are_checked_and_root_is_squashed() {
    let (bench, mut client, root) = shared(OPEN);
    let private = client.create(&root, "private", 0o600).unwrap();
    client.write(&private, 0, b"secret", 2).unwrap();
    let program = client.create(&root, "program", 0o711).unwrap();
    client.user = User::System(1000, 1000, vec![5]);
    assert_eq!(client.read(&private, 0, 9), Err(ACCES));
    assert_eq!(client.write(&private, 0, b"x", 2), Err(ACCES));
    assert_eq!(client.create(&root, "mine", 0o644), Err(ACCES));
    assert!(client.read(&program, 0, 9).is_ok(), "it may be executed");
    client.user = ROOT;
    let open = client.make_directory(&root, "open", 0o777).unwrap();
    client.user = User::System(1000, 1000, vec![5]);
    let mine = client.create(&open, "mine", 0).unwrap();
    let found = client.attributes(&mine).unwrap();
    assert_eq!((found.uid, found.gid, found.mode), (1000, 1000, 0));
    client.write(&mine, 0, b"by its owner", 2).unwrap();
    let mut access = Writer::new();
    access.opaque(&open).u32(0x3f);
    let rest = client.ask(procedure::ACCESS, &access).unwrap();
    assert_eq!(rest[rest.len() - 4..], [0, 0, 0, 0x1f]);
    client.user = User::Nobody;
    assert_eq!(client.read(&private, 0, 9), Err(ACCES));
    bench.set("tank/a", "sharenfs", "rw,insecure,anonuid=77,anongid=78");
    client.user = ROOT;
    assert_eq!(client.read(&private, 0, 9), Err(ACCES));
    let squashed = client.create(&open, "squashed", 0o644).unwrap();
    let found = client.attributes(&squashed).unwrap();
    assert_eq!((found.uid, found.gid), (77, 78));
}

#[test]
fn a_read_only_share_changes_nothing_and_a_quota_is_told_apart_from_a_full_pool() {
    let (bench, mut client, root) = shared(OPEN);
    let file = client.create(&root, "f", 0o644).unwrap();
    bench.set("tank/a", "compression", "off");
    bench.set("tank/a", "quota", "2M");
    let filled = (0..64_u64).try_for_each(|at| {
        let bytes: Vec<u8> = (0..1_u32 << 17)
            .map(|n| (n ^ n >> 7).to_le_bytes()[0])
            .collect();
        client.write(&file, at << 17, &bytes, 2).map(drop)
    });
    assert_eq!(filled, Err(DQUOT));
    bench.set("tank/a", "sharenfs", "ro,no_root_squash,insecure");
    assert_eq!(client.write(&file, 0, b"x", 2), Err(ROFS));
    assert_eq!(client.create(&root, "g", 0o644), Err(ROFS));
    assert_eq!(client.remove(&root, "f"), Err(ROFS));
    assert_eq!(client.rename((&root, "f"), (&root, "g")), Err(ROFS));
    assert!(client.read(&file, 0, 9).is_ok());
}

#[test]
fn a_repeated_call_is_carried_out_once_also_when_its_client_connects_again() {
    let (bench, mut client, root) = shared(OPEN);
    client.create(&root, "f", 0o644).unwrap();
    let mut arguments = Writer::new();
    arguments.opaque(&root).opaque(b"f");
    let which = (v3::PROGRAM, v3::VERSION, procedure::REMOVE);
    client.send_as(77, which, &arguments);
    let first = client.receive();
    let mut again = client.connect_again(bench.server.port().unwrap());
    again.send_as(77, which, &arguments);
    assert_eq!(again.receive(), first);
    again.send_as(78, which, &arguments);
    assert_ne!(
        again.receive()[24..],
        first[24..],
        "another call finds no file"
    );
}

#[test]
fn programs_of_one_machine_whose_calls_look_alike_are_all_served() {
    let (bench, mut client, root) = shared(OPEN);
    let file = client.create(&root, "f", 0o644).unwrap();
    let which = (v3::PROGRAM, v3::VERSION, procedure::WRITE);
    for byte in [1, 2, 1] {
        let mut program = bench.client();
        program.send_as(77, which, &write_arguments(&file, 0, &[byte; 4096], 2));
        program.receive();
        assert_eq!(client.read(&file, 0, 4096).unwrap().0, [byte; 4096]);
    }
}

#[test]
fn many_calls_in_flight_are_all_answered() {
    let (_bench, mut client, root) = shared(OPEN);
    let file = client.create(&root, "f", 0o644).unwrap();
    let which = |procedure| (v3::PROGRAM, v3::VERSION, procedure);
    let mut sent: Vec<u32> = (0..200_u64)
        .map(|number| match number % 3 {
            0 => {
                let arguments = write_arguments(&file, number << 13, &[7; 9000], 2);
                client.send(which(procedure::WRITE), &arguments)
            }
            1 => {
                let arguments = write_arguments(&file, number << 13, &[7; 100], 0);
                client.send(which(procedure::WRITE), &arguments)
            }
            _ => {
                let mut arguments = Writer::new();
                arguments.opaque(&file).u64(0).u32(100_000);
                client.send(which(procedure::READ), &arguments)
            }
        })
        .collect();
    let xid = |reply: Vec<u8>| u32::from_be_bytes(*reply.first_chunk().unwrap());
    let mut answered: Vec<u32> = (0..200).map(|_| xid(client.receive())).collect();
    answered.sort_unstable();
    sent.sort_unstable();
    assert_eq!(answered, sent);
}

#[test]
fn calls_that_are_not_served_get_the_answers_of_rpc() {
    let (bench, mut client, root) = shared(OPEN);
    let nothing = Writer::new();
    assert_eq!(client.call((v3::PROGRAM, 3, 0), &nothing), Ok(Vec::new()));
    assert_eq!(client.call((400_000, 1, 0), &nothing), Err(1));
    assert_eq!(client.call((v3::PROGRAM, 4, 0), &nothing), Ok(Vec::new()));
    assert_eq!(client.call((v3::PROGRAM, 4, 1), &nothing), Err(4));
    assert_eq!(client.call((v3::PROGRAM, 4, 2), &nothing), Err(3));
    assert_eq!(client.call((v3::PROGRAM, 5, 0), &nothing), Err(2));
    assert_eq!(client.call((v3::PROGRAM, 2, 0), &nothing), Err(2));
    assert_eq!(
        client.call((mount_protocol::PROGRAM, 4, 0), &nothing),
        Err(2)
    );
    assert_eq!(client.call((v3::PROGRAM, 3, 22), &nothing), Err(3));
    assert_eq!(
        client.call((v3::PROGRAM, 3, procedure::WRITE), &nothing),
        Err(4)
    );
    // Again: it is not taken for a repetition that is under way.
    assert_eq!(
        client.call((v3::PROGRAM, 3, procedure::WRITE), &nothing),
        Err(4)
    );
    // RPC of another version; credentials of another kind.
    let mut call = Writer::new();
    call.u32(5).u32(0).u32(3);
    client.send_record(call.as_slice());
    let words = |reply: Vec<u8>| -> Vec<u32> {
        let (chunks, _) = reply.as_chunks();
        chunks
            .iter()
            .map(|chunk| u32::from_be_bytes(*chunk))
            .collect()
    };
    assert_eq!(words(client.receive()), [5, 1, 1, 0, 2, 2]);
    let mut call = Writer::new();
    call.u32(6).u32(0).u32(2).u32(v3::PROGRAM).u32(3).u32(1);
    call.u32(6).u32(0).u32(0).u32(0);
    client.send_record(call.as_slice());
    assert_eq!(words(client.receive()), [6, 1, 1, 1, 1]);
    assert!(client.attributes(&root).is_ok(), "the connection goes on");
    client.send_record(&[1, 2, 3]);
    assert!(client.is_ended());
    let mut client = bench.client();
    assert!(client.attributes(&root).is_ok());
}

#[test]
fn handles_stay_good_over_a_restart_and_what_was_acknowledged_is_there() {
    let (bench, mut client, root) = shared(OPEN);
    let file = client.create(&root, "f", 0o644).unwrap();
    let (_, before) = client.write(&file, 0, b"stable", 2).unwrap();
    let bench = bench.restarted();
    let mut client = bench.client();
    let mut other = file.clone();
    other[8] ^= 1;
    assert_eq!(
        client.read(&other, 0, 9),
        Err(JUKEBOX),
        "its share may still come"
    );
    assert_eq!(client.read(&file, 0, 99).unwrap().0, b"stable");
    assert_eq!(client.lookup(&root, "f"), Ok(file.clone()));
    let (_, after) = client.write(&file, 0, b"STABLE", 0).unwrap();
    assert_ne!(before, after, "clients write again what is not committed");
}

#[test]
fn shares_below_and_snapshots_are_crossed_into() {
    let (bench, mut client, root) = shared(OPEN);
    bench.create("tank/a/b", &[]);
    let below = client.lookup(&root, "b");
    assert_eq!(
        below,
        Err(NOENT),
        "the folder of the mount is not there without mounts"
    );
    client.make_directory(&root, "b", 0o755).unwrap();
    bench.set("tank/a", "sharenfs", "rw,no_root_squash,insecure,sync");
    let below = client.lookup(&root, "b").unwrap();
    let (above, found) = (
        client.attributes(&root).unwrap(),
        client.attributes(&below).unwrap(),
    );
    assert_ne!(found.fsid, above.fsid);
    assert_eq!(client.mount(&bench.path("tank/a/b")), Ok(below.clone()));
    assert_eq!(client.lookup(&below, ".."), Ok(root.clone()));
    let file = client.create(&below, "f", 0o644).unwrap();
    client.write(&file, 0, b"old", 2).unwrap();
    assert_eq!(client.rename((&below, "f"), (&root, "f")), Err(XDEV));
    let mut rmdir = Writer::new();
    rmdir.opaque(&root).opaque(b"b");
    assert_eq!(client.ask(procedure::RMDIR, &rmdir), Err(ACCES));
    bench.snapshot("tank/a/b@s");
    client.write(&file, 0, b"new", 2).unwrap();
    let control = client.lookup(&below, ".zfs").unwrap();
    let snapshots = client.lookup(&control, "snapshot").unwrap();
    let listed = client.list(&snapshots, true, 4096).unwrap();
    assert_eq!(listed.last().unwrap(), &("s".to_string(), None));
    let snapshot = client.lookup(&snapshots, "s").unwrap();
    let old = client.lookup(&snapshot, "f").unwrap();
    assert_eq!(client.read(&old, 0, 9).unwrap().0, b"old");
    assert_eq!(client.write(&old, 0, b"x", 2), Err(ROFS));
    assert_eq!(client.lookup(&snapshot, ".."), Ok(snapshots));
    let bench = bench.restarted();
    let mut client = bench.client();
    assert_eq!(client.read(&old, 0, 9).unwrap().0, b"old");
}
