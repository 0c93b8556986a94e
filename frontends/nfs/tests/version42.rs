//! What version 4.2 adds to files: extended attributes and holes; and lists, as far as a file
//! system has them.

mod support;

use support::Bench;
use support::client4::{Client4, GETATTR, Operations, READ, WRITE};
use tarn_nfs::xdr::{Reader, Writer};

const EXIST: u32 = 17;
const TOOSMALL: u32 = 10005;
const ATTRNOTSUPP: u32 = 10032;
const OP_ILLEGAL: u32 = 10044;
const NOXATTR: u32 = 10095;

const ACCESS: u32 = 3;
const SETATTR: u32 = 34;
const READ_PLUS: u32 = 68;
const GETXATTR: u32 = 72;
const SETXATTR: u32 = 73;
const LISTXATTRS: u32 = 74;
const REMOVEXATTR: u32 = 75;

const OPTIONS: &str = "rw,no_root_squash,insecure";
const BOTH: (u32, u32) = (3, 0);

/// A share of `tank/a` with these properties, a client of version 4.2, and an open file.
fn shared(properties: &[(&str, &str)]) -> (Bench, Client4, [u8; 16], Vec<u8>) {
    let bench = Bench::new();
    let all = [&[("sharenfs", OPTIONS)], properties].concat();
    assert_eq!(bench.create("tank/a", &all), [""; 0]);
    let mut client = Client4::new(bench.client(), b"one");
    client.minor = 2;
    let root = client.look_up(&bench.path("tank/a")).unwrap();
    let (state, file) = client.open(&root, "f", b"o", BOTH).unwrap();
    (bench, client, state, file)
}

/// The result of an operation on a file, behind its status.
fn ask(
    client: &mut Client4,
    file: &[u8],
    number: u32,
    put: impl FnOnce(&mut Writer),
) -> Result<Vec<u8>, u32> {
    match client.run(&Operations::at(file).with(number, put)) {
        (0, bytes) => Ok(bytes[16..].to_vec()),
        (status, _) => Err(status),
    }
}

fn set(client: &mut Client4, file: &[u8], how: u32, name: &[u8], value: &[u8]) -> Result<u64, u32> {
    let changed = ask(client, file, SETXATTR, |out| {
        out.u32(how).opaque(name).opaque(value);
    })?;
    // Whether it is exact, and the numbers before and afterwards.
    let mut reader = Reader::new(&changed);
    assert_eq!(reader.bool(), Ok(true));
    let (before, after) = (reader.u64().unwrap(), reader.u64().unwrap());
    assert_ne!(before, after);
    Ok(after)
}

fn get(client: &mut Client4, file: &[u8], name: &[u8]) -> Result<Vec<u8>, u32> {
    let value = ask(client, file, GETXATTR, |out| {
        out.opaque(name);
    })?;
    Ok(Reader::new(&value).opaque(1 << 17).unwrap().to_vec())
}

fn list(client: &mut Client4, file: &[u8], most: u32) -> Result<Vec<Vec<u8>>, u32> {
    let (mut cookie, mut names) = (0, Vec::new());
    loop {
        let listed = ask(client, file, LISTXATTRS, |out| {
            out.u64(cookie).u32(most);
        })?;
        let mut reader = Reader::new(&listed);
        cookie = reader.u64().unwrap();
        for _ in 0..reader.u32().unwrap() {
            names.push(reader.opaque(255).unwrap().to_vec());
        }
        if reader.bool().unwrap() {
            return Ok(names);
        }
    }
}

#[test]
fn extended_attributes_are_those_of_the_user_namespace() {
    const CREATE: u32 = 1;
    const REPLACE: u32 = 2;
    let (_bench, mut client, _, file) = shared(&[]);
    assert_eq!(get(&mut client, &file, b"a"), Err(NOXATTR));
    assert_eq!(set(&mut client, &file, REPLACE, b"a", b"1"), Err(NOXATTR));
    set(&mut client, &file, CREATE, b"a", b"one").unwrap();
    assert_eq!(set(&mut client, &file, CREATE, b"a", b"2"), Err(EXIST));
    set(&mut client, &file, REPLACE, b"a", b"two").unwrap();
    assert_eq!(get(&mut client, &file, b"a"), Ok(b"two".to_vec()));
    let large = vec![7; 40_000];
    set(&mut client, &file, 0, b"large", &large).unwrap();
    assert_eq!(get(&mut client, &file, b"large"), Ok(large));
    for number in 0..20 {
        let name = format!("name-{number:02}");
        set(&mut client, &file, 0, name.as_bytes(), b"").unwrap();
    }
    let all = list(&mut client, &file, 4096).unwrap();
    assert_eq!(all.len(), 22);
    assert_eq!(list(&mut client, &file, 64), Ok(all));
    assert_eq!(list(&mut client, &file, 16), Err(TOOSMALL));
    let remove = |client: &mut Client4| {
        ask(client, &file, REMOVEXATTR, |out| {
            out.opaque(b"a");
        })
    };
    assert!(remove(&mut client).is_ok());
    assert_eq!(remove(&mut client), Err(NOXATTR));
    // The rights to read, list and change them.
    let rights = ask(&mut client, &file, ACCESS, |out| {
        out.u32(0x1c0);
    });
    assert_eq!(rights, Ok([0, 0, 1, 0xc0].repeat(2)));
    client.minor = 1;
    assert_eq!(get(&mut client, &file, b"large"), Err(OP_ILLEGAL));
}

#[test]
fn holes_are_told_and_not_sent() {
    let (_bench, mut client, state, file) =
        shared(&[("recordsize", "4096"), ("compression", "off")]);
    let mut write = |at: u64| {
        ask(&mut client, &file, WRITE, |out| {
            out.fixed(&state).u64(at).u32(2).opaque(&[7; 4096]);
        })
        .unwrap();
    };
    write(1 << 20);
    write(3 << 20);
    let read = |client: &mut Client4, offset: u64, count: u32| {
        let bytes = ask(client, &file, READ_PLUS, |out| {
            out.fixed(&state).u64(offset).u32(count);
        })
        .unwrap();
        let mut reader = Reader::new(&bytes);
        let is_end = reader.bool().unwrap();
        let mut parts = Vec::new();
        for _ in 0..reader.u32().unwrap() {
            let kind = reader.u32().unwrap();
            let at = reader.u64().unwrap();
            let length = match kind {
                0 => u64::try_from(reader.opaque(1 << 20).unwrap().len()).unwrap(),
                _ => reader.u64().unwrap(),
            };
            parts.push((kind, at, length));
        }
        (is_end, parts)
    };
    let (is_end, parts) = read(&mut client, (1 << 20) - 100, 1 << 20);
    let (data, rest) = ((1 << 20), (1 << 20) - 100 - 4096);
    assert!(!is_end);
    assert_eq!(
        parts,
        [
            (1, data - 100, 100),
            (0, data, 4096),
            (1, data + 4096, rest)
        ]
    );
    let end = (3 << 20) + 4096;
    assert_eq!(
        read(&mut client, end - 10, 100),
        (true, vec![(0, end - 10, 10)])
    );
    assert_eq!(read(&mut client, end + 10, 100), (true, Vec::new()));
    // The same bytes as READ gives.
    let read = ask(&mut client, &file, READ, |out| {
        out.fixed(&state).u64((1 << 20) - 4).u32(8);
    });
    assert_eq!(read.unwrap()[8..], [0, 0, 0, 0, 7, 7, 7, 7]);
}

/// Asks for attributes of the first word, and gives their set and their bytes.
fn attributes(client: &mut Client4, file: &[u8], word: u32) -> (u32, Vec<u8>) {
    let found = ask(client, file, GETATTR, |out| {
        out.u32(1).u32(word);
    });
    let found = found.unwrap();
    let mut reader = Reader::new(&found);
    let set = match reader.u32().unwrap() {
        0 => 0,
        _ => reader.u32().unwrap(),
    };
    (set, reader.opaque(4096).unwrap().to_vec())
}

#[test]
fn lists_are_those_of_file_systems_that_have_them() {
    const ACL: u32 = 1 << 12;
    const SUPPORT: u32 = 1 << 13;
    let mut wanted = Writer::new();
    wanted.u32(2);
    wanted.u32(0).u32(0).u32(0x3).opaque(b"1000");
    wanted.u32(0).u32(0).u32(0x1601ff).opaque(b"OWNER@");
    let set = |client: &mut Client4, file: &[u8]| {
        ask(client, file, SETATTR, |out| {
            out.fixed(&[0; 16])
                .u32(1)
                .u32(ACL)
                .opaque(wanted.as_slice());
        })
    };
    let (_bench, mut client, _, file) = shared(&[("acltype", "nfsv4")]);
    let (has, before) = attributes(&mut client, &file, ACL | SUPPORT);
    assert_eq!(has, ACL | SUPPORT);
    assert_eq!(before[before.len() - 4..], [0, 0, 0, 3]);
    set(&mut client, &file).unwrap();
    assert_eq!(
        attributes(&mut client, &file, ACL),
        (ACL, wanted.as_slice().to_vec())
    );
    let (_bench, mut client, _, file) = shared(&[]);
    assert_eq!(attributes(&mut client, &file, ACL), (0, Vec::new()));
    assert_eq!(set(&mut client, &file), Err(ATTRNOTSUPP));
}
