//! `kill -9` under load: what was acknowledged as stable, or committed, is there after the restart.
//!
//! The server is a process of its own: this program again, which runs the test
//! [`serves_until_it_is_killed`] with the folder in its environment. `TARN_NFS_KILLS` says how
//! often it is killed, three times unless given.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::client::{Client, Handle, write_arguments};
use support::{Bench, Folder};
use tarn_nfs::v3;
use tarn_nfs::v3::procedure;
use tarn_nfs::xdr::Reader;

const FOLDER: &str = "TARN_NFS_TEST_FOLDER";
/// Bytes of a write.
const PIECE: usize = 5000;
/// Pieces of a file.
const PIECES: u64 = 40;

#[test]
fn serves_until_it_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let is_first = !folder.join("disk").exists();
    let bench = match is_first {
        true => Bench::with_new_pool(Folder::Others(folder.clone())),
        false => Bench::with_old_pool(Folder::Others(folder.clone())),
    };
    if is_first {
        bench.create("tank/a", &[("sharenfs", "rw,no_root_squash,insecure")]);
    }
    let port = bench.server.port().expect("it is shared").to_string();
    std::fs::write(folder.join("port.new"), port).unwrap();
    std::fs::rename(folder.join("port.new"), folder.join("port")).unwrap();
    loop {
        std::thread::park();
    }
}

/// The server, which is killed when this is dropped.
struct Server(Child);

impl Server {
    fn start(folder: &Path) -> (Server, Client) {
        let port = folder.join("port");
        let _ = std::fs::remove_file(&port);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serves_until_it_is_killed"])
            .env(FOLDER, folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let port = loop {
            if let Ok(text) = std::fs::read_to_string(&port) {
                break text.parse().unwrap();
            }
            assert!(child.try_wait().unwrap().is_none(), "the server serves");
            std::thread::yield_now();
        };
        (Server(child), Client::connect(port))
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Server {
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

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let kills = std::env::var("TARN_NFS_KILLS").map_or(3, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = Server::start(folder.path());
    let root = client
        .mount(&format!("{}/mnt/tank/a", folder.path().display()))
        .unwrap();
    let make = |name: &str, client: &mut Client| {
        let file = client.create(&root, name, 0o644).unwrap();
        for number in 0..PIECES {
            let bytes = piece(0, number);
            client
                .write(&file, number * PIECE as u64, &bytes, 0)
                .unwrap();
        }
        client.commit(&file).unwrap();
        Expected {
            file,
            rounds: vec![0; PIECES as usize],
        }
    };
    let (mut stable, mut committed) = (make("stable", &mut client), make("committed", &mut client));
    for round in 1..=kills {
        let name = format!("name-{round}");
        client.create(&root, &name, 0o600).unwrap();
        // All of them are under way when the server is killed after some replies.
        let which = |procedure| (v3::PROGRAM, v3::VERSION, procedure);
        let mut sent = Vec::new();
        for number in 0..PIECES {
            let (bytes, offset) = (piece(round, number), number * PIECE as u64);
            let arguments = write_arguments(&committed.file, offset, &bytes, 0);
            client.send(which(procedure::WRITE), &arguments);
            let arguments = write_arguments(&stable.file, offset, &bytes, 2);
            sent.push((client.send(which(procedure::WRITE), &arguments), number));
        }
        let replies = (round * 37) % (2 * PIECES);
        for _ in 0..replies {
            let reply = client.receive();
            let mut reader = Reader::new(&reply);
            let xid = reader.u32().unwrap();
            assert_eq!(&reply[24..28], [0; 4], "the write is done");
            if let Some((_, number)) = sent.iter().find(|(sent, _)| *sent == xid) {
                stable.rounds[usize::try_from(*number).unwrap()] = round;
            }
        }
        if round % 2 == 0 {
            for _ in replies..2 * PIECES {
                client.receive();
            }
            stable.rounds.fill(round);
            client.commit(&committed.file).unwrap();
            committed.rounds.fill(round);
        }
        server.kill();
        (server, client) = Server::start(folder.path());
        stable.check(&mut client, round);
        committed.check(&mut client, round);
        assert!(
            client.lookup(&root, &name).is_ok(),
            "the name was acknowledged"
        );
    }
    drop(server);
}
