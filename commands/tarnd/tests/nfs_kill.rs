//! `kill -9` of `tarnd` under load by NFS: nothing that was acknowledged is lost, and clients of
//! versions 3 and 4 reclaim their locks.
//!
//! # Mechanism
//! A daemon with one shared file system. A client sends many writes at a time: some are
//! `FILE_SYNC`, and count when their replies are there; the others are `UNSTABLE`, and count when a
//! `COMMIT` was replied to that was sent after their replies. Both are over a whole file, in
//! rounds, so that each piece of a file is of a round that was acknowledged, or of a later one, and
//! whole. A client of each version has a range locked. The daemon is killed while writes are under
//! way, and started again.
//!
//! `TARN_NFS_KILLS` says how often, three times unless given. Root only, and where there is FUSE:
//! elsewhere nothing is checked, and the test says so.

#[path = "../../../frontends/nfs/tests/support/client.rs"]
#[allow(dead_code, reason = "the tests of NFS use more of it")]
mod client;
#[path = "../../../frontends/nfs/tests/support/client4.rs"]
#[allow(dead_code, reason = "the tests of NFS use more of it")]
mod client4;

use client::{Client, Handle, write_arguments};
use client4::{Client4, StateId};
use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_engine::instance::Instance;
use tarn_engine::{Engine, EngineOptions, Host, RealOptions};
use tarn_fuse::FuseMounter;
use tarn_nfs::lock_manager;
use tarn_nfs::v3;
use tarn_nfs::v3::procedure;
use tarn_nfs::xdr::{Reader, Writer};
use tarn_serving::{AwakeProcessors, ServingThreads};

/// Bytes of a write.
const PIECE: usize = 5000;
/// Pieces of a file.
const PIECES: u64 = 40;
/// Of the engine that makes the pool and of the daemon: else the pool would be another host's.
const HOST_ID: u32 = 7;
const SHARED: &str = "rw,no_root_squash,insecure";
/// The values of `stable_how` (RFC 1813, 3.3.7).
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;
/// The values of `nlm4_stats` (X/Open NFS, chapter 14).
const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const GRACE: u32 = 4;

/// The folder of an instance.
struct Place {
    folder: tempfile::TempDir,
    port: u16,
}

impl Place {
    fn new() -> Place {
        // A port that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        Place {
            folder: tempfile::tempdir().unwrap(),
            port: free.local_addr().unwrap().port(),
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn mountpoint(&self) -> PathBuf {
        self.path().join("mnt")
    }

    /// Makes a pool with a shared file system, in an engine that ends.
    fn make_pool(&self) {
        let threads = ServingThreads::new(AwakeProcessors::new(false)).unwrap();
        let mounter = Arc::new(FuseMounter::new(threads.clone()));
        let host = Host::real(RealOptions {
            hostid: Some(HOST_ID),
            ..RealOptions::default()
        });
        let options = EngineOptions::default();
        let engine = Engine::new(host, Instance::at(self.path()), mounter, options);
        let administrator = Administrator::new(engine.clone());
        let disk = self.path().join("disk");
        let file = std::fs::File::create(&disk).unwrap();
        file.set_len(256 << 20).unwrap();
        let create = pool::Create {
            name: format!("nfs{}", self.port),
            vdevs: vec![VdevSpec {
                kind: VdevKind::Leaf,
                path: Some(disk.display().to_string()),
                children: Vec::new(),
                role: VdevRole::Data,
            }],
            mountpoint: Some(self.mountpoint().display().to_string()),
            dataset_properties: vec![("sharenfs".to_string(), SHARED.to_string())],
            ..pool::Create::default()
        };
        administrator.pool_create(&Call::default(), create).unwrap();
        engine.stop();
        threads.stop();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What a killed daemon has left.
        let mountpoint = self.mountpoint();
        let _ = Command::new("umount").arg("-l").arg(mountpoint).output();
    }
}

/// The daemon, which is killed when this is dropped.
struct Daemon(Child);

impl Daemon {
    /// Starts it, and waits until it serves.
    fn start(place: &Place) -> Daemon {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tarnd"))
            .args(["--foreground", "--nfs-port", &place.port.to_string()])
            .env("TARN_DIR", place.path())
            .env("TARN_HOSTID", format!("{HOST_ID:x}"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while TcpStream::connect(("127.0.0.1", place.port)).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "the daemon serves");
            std::thread::yield_now();
        }
        Daemon(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The bytes of a piece of a file in a round.
fn piece(round: u64, number: u64) -> Vec<u8> {
    let seed = round * 1000 + number;
    let byte = |at: u64| (seed.wrapping_mul(0x9e37_79b9) >> (at % 24)).to_le_bytes()[0];
    (0..PIECE as u64).map(byte).collect()
}

/// A file, and the newest round of each of its pieces that was acknowledged.
struct Expected {
    file: Handle,
    rounds: Vec<u64>,
}

impl Expected {
    fn make(client: &mut Client, root: &[u8], name: &str) -> Expected {
        let file = client.create(root, name, 0o644).unwrap();
        for number in 0..PIECES {
            let bytes = piece(0, number);
            let offset = number * PIECE as u64;
            client.write(&file, offset, &bytes, UNSTABLE).unwrap();
        }
        client.commit(&file).unwrap();
        let rounds = vec![0; PIECES as usize];
        Expected { file, rounds }
    }

    fn check(&self, client: &mut Client, round: u64) {
        for (number, acknowledged) in (0..).zip(&self.rounds) {
            let offset = number * PIECE as u64;
            let read = client.read(&self.file, offset, PIECE as u32).unwrap().0;
            // A write that was not acknowledged may be there or not, and as a whole.
            let may_be = (*acknowledged..=round).any(|round| read == piece(round, number));
            assert!(
                may_be,
                "piece {number} is of no round from {acknowledged} to {round}"
            );
        }
    }
}

/// Asks for a lock of the whole file by version 3, and gives the status.
fn lock3(client: &mut Client, caller: &str, file: &[u8], reclaims: bool) -> u32 {
    let mut arguments = Writer::new();
    arguments.opaque(b"cookie").bool(false).bool(true);
    arguments.opaque(caller.as_bytes()).opaque(file);
    arguments.opaque(b"owner").u32(1).u64(0).u64(0);
    arguments.bool(reclaims).u32(0);
    let number = lock_manager::procedure::LOCK;
    let which = (lock_manager::PROGRAM, lock_manager::VERSION, number);
    let result = client.call(which, &arguments).unwrap();
    let mut reader = Reader::new(&result);
    reader.opaque(64).unwrap();
    reader.u32().unwrap()
}

/// The first call after a start: the share may come a moment later than the port.
fn mounted(place: &Place) -> (Client, Handle) {
    let path = place.mountpoint().display().to_string();
    loop {
        let mut client = Client::connect(place.port);
        if let Ok(root) = client.mount(&path) {
            return (client, root);
        }
    }
}

/// Two files that are written in rounds, one by `FILE_SYNC`, one by `UNSTABLE` and `COMMIT`.
struct Load {
    stable: Expected,
    committed: Expected,
}

/// Writes that were sent, by the numbers of their calls.
#[derive(Default)]
struct Sent {
    stable: HashMap<u32, usize>,
    unstable: HashMap<u32, usize>,
}

const fn of_version3(procedure: u32) -> (u32, u32, u32) {
    (v3::PROGRAM, v3::VERSION, procedure)
}

/// Takes a reply, whose status must be 0, and gives the number of its call.
fn take_reply(client: &mut Client) -> u32 {
    let reply = client.receive();
    assert_eq!(&reply[24..28], [0; 4], "the call has succeeded");
    Reader::new(&reply).u32().unwrap()
}

impl Load {
    fn send(&self, client: &mut Client, round: u64) -> Sent {
        let mut sent = Sent::default();
        for (number, at) in (0..PIECES).zip(0..) {
            let (bytes, offset) = (piece(round, number), number * PIECE as u64);
            let arguments = write_arguments(&self.committed.file, offset, &bytes, UNSTABLE);
            let call = client.send(of_version3(procedure::WRITE), &arguments);
            sent.unstable.insert(call, at);
            let arguments = write_arguments(&self.stable.file, offset, &bytes, FILE_SYNC);
            let call = client.send(of_version3(procedure::WRITE), &arguments);
            sent.stable.insert(call, at);
        }
        sent
    }

    /// Sends a round of writes, takes some of the replies, and sends a `COMMIT` behind those that
    /// are under way. After its reply what `UNSTABLE` writes had replies before it counts.
    fn write_in_part(&mut self, client: &mut Client, round: u64, replies: u64) {
        let sent = self.send(client, round);
        let mut answered: Vec<usize> = Vec::new();
        for _ in 0..replies {
            let call = take_reply(client);
            if let Some(at) = sent.stable.get(&call) {
                self.stable.rounds[*at] = round;
            }
            answered.extend(sent.unstable.get(&call).copied());
        }
        let mut all = Writer::new();
        all.opaque(&self.committed.file).u64(0).u32(0);
        let commit = client.send(of_version3(procedure::COMMIT), &all);
        loop {
            let call = take_reply(client);
            if let Some(at) = sent.stable.get(&call) {
                self.stable.rounds[*at] = round;
            }
            if call == commit {
                break;
            }
        }
        for at in answered {
            self.committed.rounds[at] = round;
        }
    }

    fn check(&self, client: &mut Client, round: u64) {
        self.stable.check(client, round);
        self.committed.check(client, round);
    }
}

/// A client of version 4 with a lock of a file.
fn lock4(place: &Place, root_path: &str) -> (Client4, Handle) {
    let mut client = Client4::new(Client::connect(place.port), b"client of version 4");
    let root = client.look_up(root_path).unwrap();
    let (open, file) = client.open(&root, "locked4", b"opener", (3, 0)).unwrap();
    let locked = client.lock(&file, &open, b"locker", (0, u64::MAX), false);
    locked.unwrap();
    (client, file)
}

fn reclaim4(place: &Place, file: &[u8]) -> (Client4, StateId) {
    let connection = Client::connect(place.port);
    let mut client = Client4::that_may_reclaim(connection, b"client of version 4");
    let (open, _) = client.reclaim(file, b"opener").unwrap();
    let locked = client.lock(file, &open, b"locker", (0, u64::MAX), true);
    let state = locked.unwrap();
    assert_eq!(client.reclaim_complete(), 0);
    (client, state)
}

#[test]
fn nothing_acknowledged_is_lost_and_locks_are_reclaimed_after_kill_9() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("not seen: mounts need root and /dev/fuse");
        return;
    }
    let kills = std::env::var("TARN_NFS_KILLS").map_or(3, |text| text.parse().unwrap());
    let place = Place::new();
    place.make_pool();
    let mut daemon = Daemon::start(&place);
    let (mut client, root) = mounted(&place);
    let mut load = Load {
        stable: Expected::make(&mut client, &root, "stable"),
        committed: Expected::make(&mut client, &root, "committed"),
    };
    let locked = client.create(&root, "locked3", 0o644).unwrap();
    assert_eq!(lock3(&mut client, "a", &locked, false), GRANTED);
    let path = place.mountpoint().display().to_string();
    let (mut _holder, of_version4) = lock4(&place, &path);
    for round in 1..=kills {
        let name = format!("name-{round}");
        client.create(&root, &name, 0o600).unwrap();
        load.write_in_part(&mut client, round, round * 37 % (2 * PIECES));
        daemon.kill();
        daemon = Daemon::start(&place);
        (client, _) = mounted(&place);
        load.check(&mut client, round);
        assert!(
            client.lookup(&root, &name).is_ok(),
            "the name was acknowledged"
        );
        assert_eq!(lock3(&mut client, "b", &locked, false), GRACE);
        assert_eq!(lock3(&mut client, "a", &locked, true), GRANTED);
        (_holder, _) = reclaim4(&place, &of_version4);
        // The server may end its grace when all have reclaimed.
        for held in [&locked, &of_version4] {
            let status = lock3(&mut client, "b", held, false);
            assert!(
                [GRACE, DENIED].contains(&status),
                "a lock is held: {status}"
            );
        }
    }
    drop(daemon);
}
