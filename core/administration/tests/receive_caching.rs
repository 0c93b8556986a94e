//! Which blocks a receive leaves in the cache. The test has a process of its own, as the cache's
//! statistics are those of all engines in a process.

mod support;

use std::fs::File;
use std::io::Seek;
use std::os::unix::net::UnixStream;
use support::{Bench, call};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{Receive, Send, Snapshot};
use tarn_administration::messages::statistics::Kstat;
use tarn_engine::Pipe;

const MIB: usize = 1 << 20;

/// A call with a descriptor, and the caller's end of its line.
fn call_with(file: &File) -> (Call, UnixStream) {
    let (line, callers) = UnixStream::pair().unwrap();
    let file = file.try_clone().unwrap();
    let call = Call {
        pipe: Some(Pipe::new(file.into(), line.into()).unwrap()),
        ..call("")
    };
    (call, callers)
}

fn cached_bytes(bench: &Bench) -> u64 {
    let request = Kstat {
        pattern: "zfs:0:arcstats:size".to_string(),
    };
    let found = bench
        .administrator
        .statistics_kstat(&call(""), request)
        .unwrap();
    found.groups[0].data["size"].as_u64().unwrap()
}

#[test]
fn received_contents_take_no_room_in_the_cache() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "large", 16 * MIB).unwrap();
    let snapshot = Snapshot {
        names: vec!["tank/a@one".to_string()],
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), snapshot)
        .unwrap();
    let mut stream = tempfile::tempfile().unwrap();
    let (sender, _line) = call_with(&stream);
    let send = Send {
        name: "tank/a@one".to_string(),
        ..Send::default()
    };
    bench.administrator.dataset_send(&sender, send).unwrap();
    stream.rewind().unwrap();
    let before = cached_bytes(&bench);
    let (receiver, _line) = call_with(&stream);
    let receive = Receive {
        target: "tank/b".to_string(),
        ..Receive::default()
    };
    bench
        .administrator
        .dataset_receive(&receiver, receive)
        .unwrap();
    bench.sync();
    let grown = cached_bytes(&bench).saturating_sub(before);
    assert!(grown < 4 * MIB as u64, "{grown} bytes more are cached");
    assert!(bench.number("tank/b", "referenced") > 16 * MIB as u64);
}
