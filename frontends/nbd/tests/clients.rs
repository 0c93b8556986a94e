//! Clients of the server, by a small client of our own: what they list and choose, what they read
//! and write, and what becomes of those that send nonsense or go away.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{Create, Destroy, Set, Snapshot};
use tarn_administration::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_engine::instance::Instance;
use tarn_engine::{Engine, EngineOptions, Host, RealOptions};
use tarn_nbd::nbd_messages::{
    OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    command, command_flag, error, export_flag, info, option, reply,
};
use tarn_nbd::{Listening, NbdServer};
use tarn_serving::{AwakeProcessors, ServingThreads};
use tarn_unmounted::NoMounts;
use tempfile::TempDir;

#[path = "clients/tls.rs"]
mod tls;

const SIZE: u64 = 16 << 20;

/// A server of a pool with the volumes `tank/a` and `tank/b`, and the snapshot `tank/b@s`.
struct Bench {
    administrator: Arc<Administrator>,
    engine: Arc<Engine>,
    server: Arc<NbdServer>,
    threads: Arc<ServingThreads>,
    folder: TempDir,
}

fn call() -> Call {
    Call {
        command: "test".to_string(),
        ..Call::default()
    }
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        let file = std::fs::File::create(&disk).unwrap();
        file.set_len(128 << 20).unwrap();
        let options = EngineOptions {
            cache_bytes: Some(64 << 20),
            ..EngineOptions::default()
        };
        let host = Host::real(RealOptions::default());
        let instance = Instance::at(folder.path());
        let engine = Engine::new(
            host,
            instance.clone(),
            Arc::new(NoMounts::default()),
            options,
        );
        let administrator = Administrator::new(engine.clone());
        let leaf = VdevSpec {
            kind: VdevKind::Leaf,
            path: Some(disk.display().to_string()),
            children: Vec::new(),
            role: VdevRole::Data,
        };
        let create = pool::Create {
            name: "tank".to_string(),
            altroot: Some(folder.path().join("mnt").display().to_string()),
            vdevs: vec![leaf],
            ..pool::Create::default()
        };
        administrator.pool_create(&call(), create).unwrap();
        for name in ["tank/a", "tank/b"] {
            let create = Create {
                name: name.to_string(),
                volume_bytes: Some(SIZE),
                sparse: true,
                ..Create::default()
            };
            administrator.dataset_create(&call(), create).unwrap();
        }
        let request = Snapshot {
            names: vec!["tank/b@s".to_string()],
            ..Snapshot::default()
        };
        administrator.dataset_snapshot(&call(), request).unwrap();
        let threads = ServingThreads::new(AwakeProcessors::new(false)).unwrap();
        let server = NbdServer::new(engine.clone(), threads.clone());
        let socket = Listening::Unix(instance.nbd_socket());
        server.listen(&socket).unwrap();
        Bench {
            administrator,
            engine,
            server,
            threads,
            folder,
        }
    }

    fn connect(&self) -> Client<UnixStream> {
        let socket = Instance::at(self.folder.path()).nbd_socket();
        Client::greeted(UnixStream::connect(socket).unwrap())
    }

    /// A client that has chosen a volume, with structured replies and block status.
    fn client(&self, name: &str) -> Client<UnixStream> {
        let mut client = self.connect();
        client.choose(name);
        client
    }

    fn destroy(&self, name: &str) -> Result<(), String> {
        let request = Destroy {
            name: name.to_string(),
            ..Destroy::default()
        };
        let done = self.administrator.dataset_destroy(&call(), request);
        done.map(drop).map_err(|refusal| refusal.to_string())
    }

    /// Waits until the server has noticed which clients are gone.
    fn wait_for(&self, connections: usize) {
        while self.server.connection_count() != connections {
            std::thread::yield_now();
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.server.stop();
        self.engine.stop();
        self.threads.stop();
    }
}

struct Client<S> {
    stream: S,
    last: u64,
}

/// The reply to a command: its error, and what it carries.
type Replied = (u32, Vec<u8>);

impl<S: Read + Write> Client<S> {
    fn greeted(stream: S) -> Client<S> {
        let mut client = Client { stream, last: 0 };
        let greeting = client.take(18);
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(greeting[16..], [0, 3]);
        client.send(&[&3_u32.to_be_bytes()]);
        client
    }

    fn send(&mut self, parts: &[&[u8]]) {
        self.stream.write_all(&parts.concat()).unwrap();
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn number(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 64]), Ok(0) | Err(_))
    }

    /// Sends an option; gives the replies up to the last.
    fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let length = u32::try_from(data.len()).unwrap();
        self.send(&[
            &OPTION_MAGIC.to_be_bytes(),
            &option.to_be_bytes(),
            &length.to_be_bytes(),
            data,
        ]);
        let mut replies = Vec::new();
        loop {
            assert_eq!(self.take(8), OPTION_REPLY_MAGIC.to_be_bytes());
            assert_eq!(self.number(), option);
            let kind = self.number();
            let length = usize::try_from(self.number()).unwrap();
            replies.push((kind, self.take(length)));
            if kind == reply::ACK || kind >= reply::ERR_UNSUP {
                return replies;
            }
        }
    }

    fn choose(&mut self, name: &str) -> (u64, u16) {
        let acknowledged = [(reply::ACK, Vec::new())];
        assert_eq!(self.option(option::STRUCTURED_REPLY, &[]), acknowledged);
        let contexts = [
            named(name),
            1_u32.to_be_bytes().to_vec(),
            named("base:allocation"),
        ];
        let chosen = self.option(option::SET_META_CONTEXT, &contexts.concat());
        assert_eq!(chosen[0].0, reply::META_CONTEXT);
        let replies = self.option(option::GO, &[named(name), vec![0, 0]].concat());
        let export = &replies[0].1;
        assert_eq!(export[..2], info::EXPORT.to_be_bytes());
        let size = u64::from_be_bytes(export[2..10].try_into().unwrap());
        (size, u16::from_be_bytes(export[10..12].try_into().unwrap()))
    }

    fn request(&mut self, flags: u16, command: u16, offset: u64, length: u32) -> u64 {
        self.last += 1;
        let cookie = self.last;
        self.send(&[
            &REQUEST_MAGIC.to_be_bytes(),
            &flags.to_be_bytes(),
            &command.to_be_bytes(),
            &cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            &length.to_be_bytes(),
        ]);
        cookie
    }

    /// The next reply, with the number of its command.
    fn reply(&mut self) -> (u64, Replied) {
        let magic = self.number();
        if magic == SIMPLE_REPLY_MAGIC {
            let error = self.number();
            let cookie = u64::from_be_bytes(self.take(8).try_into().unwrap());
            return (cookie, (error, Vec::new()));
        }
        assert_eq!(magic, STRUCTURED_REPLY_MAGIC);
        let kind = self.number() & 0xffff;
        let cookie = u64::from_be_bytes(self.take(8).try_into().unwrap());
        let length = usize::try_from(self.number()).unwrap();
        let body = self.take(length);
        let error = match kind & 0x8000 {
            0 => 0,
            _ => u32::from_be_bytes(body[..4].try_into().unwrap()),
        };
        (cookie, (error, body))
    }

    fn ask(&mut self, flags: u16, command: u16, offset: u64, length: u32) -> Replied {
        let cookie = self.request(flags, command, offset, length);
        let (of, replied) = self.reply();
        assert_eq!(of, cookie);
        replied
    }

    fn write(&mut self, flags: u16, offset: u64, bytes: &[u8]) -> u32 {
        let length = u32::try_from(bytes.len()).unwrap();
        let cookie = self.request(flags, command::WRITE, offset, length);
        self.send(&[bytes]);
        let (of, (error, _)) = self.reply();
        assert_eq!(of, cookie);
        error
    }

    fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        let (error, body) = self.ask(0, command::READ, offset, length);
        assert_eq!(error, 0);
        assert_eq!(body[..8], offset.to_be_bytes());
        body[8..].to_vec()
    }

    /// The extents of a range: lengths and states.
    fn status(&mut self, flags: u16, offset: u64, length: u32) -> Vec<(u32, u32)> {
        let (error, body) = self.ask(flags, command::BLOCK_STATUS, offset, length);
        assert_eq!((error, &body[..4]), (0, &1_u32.to_be_bytes()[..]));
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        let extents = body[4..].chunks_exact(8);
        extents
            .map(|extent| (word(&extent[..4]), word(&extent[4..])))
            .collect()
    }
}

fn named(name: &str) -> Vec<u8> {
    let length = u32::try_from(name.len()).unwrap();
    [&length.to_be_bytes()[..], name.as_bytes()].concat()
}

#[test]
fn a_client_lists_exports_is_told_of_them_and_chooses_one() {
    let bench = Bench::new();
    let mut client = bench.connect();
    let names = |replies: Vec<(u32, Vec<u8>)>| {
        let servers = replies
            .into_iter()
            .filter(|(kind, _)| *kind == reply::SERVER);
        let names = servers.map(|(_, data)| String::from_utf8(data[4..].to_vec()).unwrap());
        names.collect::<Vec<_>>()
    };
    assert_eq!(
        names(client.option(option::LIST, &[])),
        ["tank/a", "tank/b"]
    );
    let set = Set {
        name: "tank/b".to_string(),
        properties: vec![("snapdev".to_string(), "visible".to_string())],
        no_mount: false,
    };
    bench.administrator.dataset_set(&call(), set).unwrap();
    let listed = names(client.option(option::LIST, &[]));
    assert_eq!(listed, ["tank/a", "tank/b", "tank/b@s"]);
    let refused = client.option(option::STARTTLS, &[]);
    assert_eq!(refused[0].0, reply::ERR_UNSUP);
    for (name, kind) in [("tank", reply::ERR_UNKNOWN), ("tank/c", reply::ERR_UNKNOWN)] {
        let replies = client.option(option::INFO, &[named(name), vec![0, 0]].concat());
        assert_eq!(replies[0].0, kind);
        let why = String::from_utf8(replies[0].1.clone()).unwrap();
        assert!(why.starts_with(&format!("cannot open '{name}': ")), "{why}");
    }
    let malformed = client.option(option::GO, &[0, 0, 0, 9, 1]);
    assert_eq!(malformed[0].0, reply::ERR_INVALID);
    let sizes = [named("tank/a"), vec![0, 1, 0, 3]].concat();
    let replies = client.option(option::INFO, &sizes);
    let expected = [0, 3, 0, 0, 0, 1, 0, 0, 0x40, 0, 2, 0, 0, 0];
    assert_eq!(replies[1], (reply::INFO, expected.to_vec()));
    let (size, flags) = client.choose("tank/b@s");
    assert_eq!(size, SIZE);
    assert_ne!(flags & export_flag::READ_ONLY, 0);
    assert_eq!(client.write(0, 0, &[1; 512]), error::EPERM);
    assert_eq!(client.read(0, 512), [0; 512]);
}

#[test]
fn what_one_connection_writes_all_read_and_what_is_trimmed_is_free() {
    let bench = Bench::new();
    let (mut one, mut two) = (bench.client("tank/a"), bench.client("tank/a"));
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    assert_eq!(one.write(0, 5000, &bytes), 0);
    assert_eq!(two.read(5000, 300_000), bytes);
    assert_eq!(two.ask(0, command::FLUSH, 0, 0).0, 0);
    let block: u32 = 16 << 10;
    let at = u64::from(block);
    assert_eq!(
        one.ask(command_flag::FUA, command::TRIM, 2 * at, 2 * block)
            .0,
        0
    );
    let zeroes = command::WRITE_ZEROES;
    assert_eq!(one.ask(0, zeroes, 6 * at, block).0, 0);
    let fast = command_flag::FAST_ZERO | command_flag::NO_HOLE;
    assert_eq!(one.ask(fast, zeroes, 6 * at, block).0, error::ENOTSUP);
    let status = two.status(0, 0, 8 * block);
    let expected = [(2, 0), (2, 3), (2, 0), (1, 3), (1, 0)];
    assert_eq!(
        status,
        expected.map(|(blocks, state)| (blocks * block, state))
    );
    let first = two.status(command_flag::REQ_ONE, at, 7 * block);
    assert_eq!(first, [(block, 0)]);
    assert_eq!(one.ask(command_flag::NO_HOLE, zeroes, 2 * at, block).0, 0);
    assert_eq!(two.status(0, 2 * at, block), [(block, 0)]);
    assert_eq!(two.read(2 * at, block), vec![0; 16 << 10]);
    assert_eq!(one.ask(0, command::CACHE, 0, 4 << 20).0, 0);
}

#[test]
fn commands_that_make_no_sense_fail_and_the_connection_goes_on() {
    let bench = Bench::new();
    let mut client = bench.client("tank/a");
    assert_eq!(client.write(0, SIZE - 10, &[1; 20]), error::ENOSPC);
    for (flags, command, offset, length, expected) in [
        (0, command::READ, SIZE - 10, 20, error::EINVAL),
        (0, command::READ, u64::MAX, 20, error::EINVAL),
        (0, command::READ, 0, 0, error::EINVAL),
        (0, command::READ, 0, 64 << 20, error::EINVAL),
        (0, command::TRIM, SIZE, 1, error::EINVAL),
        (0, command::BLOCK_STATUS, 0, 0, error::EINVAL),
        (command_flag::REQ_ONE, command::READ, 0, 1, error::EINVAL),
        (0x8000, command::TRIM, 0, 1, error::EINVAL),
        (0, 99, 0, 0, error::EINVAL),
        (0, command::FLUSH, 0, 0, 0),
    ] {
        let (error, _) = client.ask(flags, command, offset, length);
        assert_eq!(error, expected, "{command} at {offset} of {length}");
    }
}

#[test]
fn many_commands_are_under_way_at_once_and_each_has_its_reply() {
    const COUNT: u64 = 200;
    let bench = Bench::new();
    let mut client = bench.client("tank/a");
    let block: u32 = 8192;
    let mut sender = Client {
        stream: client.stream.try_clone().unwrap(),
        last: 0,
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..COUNT {
                let flags = match number % 16 {
                    0 => command_flag::FUA,
                    _ => 0,
                };
                sender.request(flags, command::WRITE, number * u64::from(block), block);
                let byte = number.to_le_bytes()[0];
                sender.send(&[&vec![byte; 8192]]);
            }
        });
        let mut replied: Vec<u64> = (0..COUNT)
            .map(|_| {
                let (cookie, (error, _)) = client.reply();
                assert_eq!(error, 0);
                cookie
            })
            .collect();
        replied.sort_unstable();
        assert!(replied.into_iter().eq(1..=COUNT));
    });
    for number in 0..COUNT {
        let read = client.read(number * u64::from(block), block);
        assert!(read == vec![number.to_le_bytes()[0]; 8192], "{number}");
    }
}

#[test]
fn an_old_client_chooses_by_name_and_gets_simple_replies() {
    let bench = Bench::new();
    let mut client = bench.connect();
    client.send(&[
        &OPTION_MAGIC.to_be_bytes(),
        &[0, 0, 0, 1, 0, 0, 0, 6],
        b"tank/a",
    ]);
    assert_eq!(client.take(8), SIZE.to_be_bytes());
    client.take(2);
    assert_eq!(client.write(command_flag::FUA, 100, &[7; 600]), 0);
    let cookie = client.request(0, command::READ, 0, 1000);
    assert_eq!(client.reply(), (cookie, (0, Vec::new())));
    let expected = [vec![0; 100], vec![7; 600], vec![0; 300]].concat();
    assert_eq!(client.take(1000), expected);
    let mut other = bench.connect();
    other.send(&[
        &OPTION_MAGIC.to_be_bytes(),
        &[0, 0, 0, 1, 0, 0, 0, 6],
        b"tank/x",
    ]);
    assert!(other.is_closed());
}

#[test]
fn a_volume_is_busy_while_a_client_has_it_and_ends_with_its_pool() {
    let bench = Bench::new();
    let mut client = bench.client("tank/a");
    assert_eq!(client.write(0, 0, &[1; 512]), 0);
    let busy = "cannot destroy 'tank/a': dataset is busy";
    assert_eq!(bench.destroy("tank/a"), Err(busy.to_string()));
    client.request(0, command::DISC, 0, 0);
    assert!(client.is_closed());
    bench.wait_for(0);
    bench.destroy("tank/a").unwrap();
    let mut client = bench.client("tank/b");
    // One that only asked, and one that sends half a command.
    let mut asking = bench.connect();
    asking.option(option::INFO, &[named("tank/b"), vec![0, 0]].concat());
    let mut half = bench.client("tank/b");
    half.request(0, command::WRITE, 0, 4096);
    half.send(&[&[1; 100]]);
    drop((asking, half));
    bench.wait_for(1);
    assert_eq!(client.read(0, 512), [0; 512]);
    let export = pool::Export {
        name: "tank".to_string(),
        force: true,
    };
    bench.administrator.pool_export(&call(), export).unwrap();
    assert!(client.is_closed());
    bench.wait_for(0);
}

#[test]
fn clients_that_send_nonsense_or_come_in_floods_harm_no_others() {
    let bench = Bench::new();
    let mut good = bench.client("tank/a");
    let bad_magic = [0; 16];
    let too_long = [
        &OPTION_MAGIC.to_be_bytes()[..],
        &[0, 0, 0, 6, 0xff, 0, 0, 0],
    ]
    .concat();
    for nonsense in [&bad_magic[..], &too_long] {
        let mut client = bench.connect();
        client.send(&[nonsense]);
        assert!(client.is_closed());
    }
    let mut client = bench.client("tank/b");
    client.send(&[&[0; 28]]);
    assert!(client.is_closed());
    let mut client = bench.client("tank/b");
    client.request(0, command::WRITE, 0, u32::MAX);
    assert!(client.is_closed());
    let socket = Instance::at(bench.folder.path()).nbd_socket();
    let flood: Vec<UnixStream> = (0..400)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    assert_eq!(good.write(0, 0, &[1; 512]), 0);
    assert!(bench.server.connection_count() <= 256);
    drop(flood);
    bench.wait_for(1);
    assert_eq!(bench.client("tank/b").read(0, 512), [0; 512]);
}

#[test]
fn volumes_are_served_on_tcp_where_that_is_asked_for() {
    let bench = Bench::new();
    let anywhere = Listening::Tcp("127.0.0.1:0".parse().unwrap());
    let address = bench.server.listen(&anywhere).unwrap().unwrap();
    let mut client = Client::greeted(TcpStream::connect(address).unwrap());
    assert_eq!(client.choose("tank/a").0, SIZE);
    assert_eq!(client.write(0, 0, &[9; 512]), 0);
    assert_eq!(bench.client("tank/a").read(0, 512), [9; 512]);
    let taken = Listening::Tcp(address);
    let refused = bench.server.listen(&taken).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
}
