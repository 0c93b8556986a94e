//! Rounds of receiving: a pool takes streams that lie, and must be whole afterwards.
//!
//! # Mechanism
//! The pool has a file system that was sent, in several ways, before any round; a copy of it, for
//! increments; and one that nothing is received into. A round tells lies in some of the streams and
//! receives them, as users do: by force, to be resumed, with other names. Then the pool is walked:
//! every block belongs to something, and nothing leaks.
//!
//! # What is demanded
//! - No panic, no pool that stops, no wait without end.
//! - A stream of one snapshot that is refused, and was not to be resumed, leaves all names and
//!   guids as they were; but for parents that `-d` and `-e` make first.
//! - Datasets that received nothing can be read as before.

use crate::house::{DISKS, House, call, noise};
use crate::images::Base;
use crate::look::{self, Seen};
use crate::{leaks, stream_lies, streams};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use tarn_administration::administration::Administration;
use tarn_administration::messages::Value;
use tarn_administration::messages::dataset::{
    DatasetKind, Describe, Receive, ReceiveNames, Send, Series, Snapshot,
};
use tarn_administration::messages::pool::VdevKind;
use tarn_host::sim::{Random, SimHost};

const POOL: &str = "tank";
/// What is sent.
const SOURCE: &str = "tank/source";
/// What has the first snapshot of it.
const COPY: &str = "tank/copy";
/// What nothing is received into.
const APART: &str = "tank/apart";
/// The file there, and its size.
const KEPT: &str = "kept";
const KEPT_BYTES: usize = 100_000;

/// A stream before it is damaged.
pub struct Sent {
    /// What it is.
    name: &'static str,
    bytes: Vec<u8>,
    /// It goes on from the first snapshot.
    is_increment: bool,
    /// It has one snapshot.
    is_single: bool,
}

/// The pool.
pub fn base(name: &str) -> Base {
    Base::make_with(name, VdevKind::Leaf, 1, |house| {
        for dataset in [SOURCE, "tank/source/below", APART] {
            house.create_dataset(dataset).expect("there is room");
        }
        let kept = house.files(APART).make(KEPT).expect("there is room");
        let written = house.files(APART).write(kept, 0, &noise(3, KEPT_BYTES));
        assert_eq!(written.ok(), Some(KEPT_BYTES));
        change(house, 1);
        take(house, "one");
        change(house, 2);
        take(house, "two");
        change(house, 3);
        take(house, "three");
        let one = streams::send(&house.administrator, sending("one", None)).expect("it is sent");
        let request = Receive {
            target: COPY.to_string(),
            ..Receive::default()
        };
        streams::receive(&house.administrator, &one, request).expect("it is received");
    })
}

fn sending(short: &str, from: Option<&str>) -> Send {
    Send {
        name: format!("{SOURCE}@{short}"),
        from: from.map(|from| format!("{SOURCE}@{from}")),
        ..Send::default()
    }
}

/// Files of many kinds, changed a little each time.
fn change(house: &House, round: u64) {
    let files = house.files(SOURCE);
    for number in 0..8 {
        let name = format!("file {number} of {round}");
        let file = files.make(&name).expect("there is room");
        let size = [0, 50, 700, 5000, 140_000, 300_000][(number % 6) as usize];
        files
            .write(file, number % 3 * 4096, &noise(number * 7 + round, size))
            .expect("there is room");
        if number % 3 == 0 {
            files
                .set_xattr(file, "user.note", &noise(number, 900))
                .expect("there is room");
        }
    }
    let text = "the same line, again and again\n".repeat(9000);
    let file = files.make(&format!("text {round}")).expect("there is room");
    files
        .write(file, 0, text.as_bytes())
        .expect("there is room");
    if round > 1 {
        let before = round - 1;
        files
            .unlink(&format!("file 3 of {before}"))
            .expect("it is there");
        let cut = files
            .find(&format!("file 4 of {before}"))
            .expect("it is there");
        files.resize(cut, 131_072 / 2).expect("there is room");
        let below = house.files("tank/source/below");
        let file = below.make(&format!("{round}")).expect("there is room");
        below.write(file, 0, b"below").expect("there is room");
    }
    house.sync().expect("a good disk stores");
}

fn take(house: &House, short: &str) {
    let request = Snapshot {
        names: vec![
            format!("{SOURCE}@{short}"),
            format!("tank/source/below@{short}"),
        ],
        ..Snapshot::default()
    };
    house
        .administrator
        .dataset_snapshot(&call(), request)
        .expect("there is room");
}

/// All streams of the pool.
///
/// # Panics
/// When a good pool does not send.
pub fn send_all(base: &Base) -> Vec<Sent> {
    let machine = base.machine(1);
    let sent = machine.run(|host| {
        let house = House::new(host);
        house.import(None, &[]).expect("a good pool is imported");
        let series = |replicate| {
            Some(Series {
                replicate,
                all_between: true,
                ..Series::default()
            })
        };
        let ways = |send: Send| Send {
            large_blocks: true,
            embedded: true,
            compressed: true,
            ..send
        };
        let (whole, part) = (sending("one", None), sending("two", Some("one")));
        let raw = Send {
            raw: true,
            ..whole.clone()
        };
        let several = Send {
            series: series(false),
            ..sending("three", Some("one"))
        };
        let everything = Send {
            series: series(true),
            properties: true,
            ..sending("three", None)
        };
        let requests = [
            ("full", whole.clone(), false, true),
            ("full -Lec", ways(whole), false, true),
            ("full -w", raw, false, true),
            ("-i", part.clone(), true, true),
            ("-i -Lec", ways(part), true, true),
            ("-I", several, true, false),
            ("-R", everything, false, false),
        ];
        let sent = requests.map(|(name, request, is_increment, is_single)| {
            let stream = streams::send(&house.administrator, request).expect("a good pool sends");
            Sent {
                name,
                bytes: bytes_of(&stream),
                is_increment,
                is_single,
            }
        });
        house.export(POOL, false).expect("a good pool is exported");
        sent
    });
    sent.expect("nobody cuts the power").into()
}

fn bytes_of(mut stream: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = stream
        .seek(SeekFrom::Start(0))
        .and_then(|_| stream.read_to_end(&mut bytes));
    read.expect("memory can be read");
    bytes
}

fn stream_of(bytes: &[u8]) -> File {
    let memory = rustix::fs::memfd_create("stream", rustix::fs::MemfdFlags::CLOEXEC);
    let mut stream = File::from(memory.expect("there is memory"));
    stream.write_all(bytes).expect("there is memory");
    stream
}

/// What will be received in a round.
pub struct Plan {
    steps: Vec<Step>,
    /// Printed with a finding.
    pub told: String,
}

struct Step {
    stream: Vec<u8>,
    request: Receive,
    is_single: bool,
}

/// Plans a round.
pub fn plan(sent: &[Sent], random: &mut Random) -> Plan {
    let (mut steps, mut told) = (Vec::new(), Vec::new());
    for _ in 0..=random.index(3) {
        let one = &sent[random.index(sent.len())];
        let other = &sent[random.index(sent.len())];
        let (stream, lies) = stream_lies::tell(&one.bytes, &other.bytes, random);
        let usual = match one.is_increment {
            true => COPY,
            false => "tank/new",
        };
        let target = match random.index(10) {
            0 => COPY,
            1 => "tank/new@of-this-name",
            _ => usual,
        };
        let request = Receive {
            target: target.to_string(),
            names: match random.index(8) {
                0 => ReceiveNames::AllButPool,
                1 => ReceiveNames::Last,
                _ => ReceiveNames::AsGiven,
            },
            force: random.chance(1, 2),
            resumable: random.chance(1, 4),
            no_mount: random.chance(1, 4),
            ..Receive::default()
        };
        told.push(format!("{} to {target}: {lies}", one.name));
        steps.push(Step {
            stream,
            request,
            is_single: one.is_single,
        });
    }
    Plan {
        steps,
        told: told.join(" | "),
    }
}

/// Carries a plan out.
///
/// # Panics
/// When something is not as it must be: a finding.
pub fn carry_out(machine: &SimHost, plan: &Plan, was_imported: &mut [bool; 2], seen: &mut Seen) {
    let run = machine.run(|host| {
        let house = House::new(host);
        house.import(None, &[]).expect("a good pool is imported");
        was_imported[0] = true;
        for step in &plan.steps {
            let before = names(&house);
            let stream = stream_of(&step.stream);
            let received = streams::receive(&house.administrator, &stream, step.request.clone());
            let refused = received.err();
            if refused.is_none() {
                was_imported[1] = true;
            }
            let state = house.status(POOL).map(|status| status.state);
            assert_eq!(state.ok().as_deref(), Some("ONLINE"), "the pool goes on");
            if let Some(why) = &refused
                && step.is_single
                && !step.request.resumable
                && step.request.names == ReceiveNames::AsGiven
            {
                assert_eq!(names(&house), before, "a stream was refused: {why}");
            }
            seen.errors.extend(refused);
        }
        look::commands(&house, seen);
        look::files(&house, seen);
        let kept = house.files(APART);
        let file = kept.find(KEPT).expect("it is there as before");
        let read = kept.read(file, 0, KEPT_BYTES + 1).expect("it can be read");
        assert!(read == noise(3, KEPT_BYTES), "what is apart is as it was");
        house.export(POOL, false).expect("a good pool is exported");
        if let Err(why) = leaks::walk(host, POOL) {
            panic!("{DISKS}: {why}");
        }
    });
    run.expect("nobody cuts the power");
}

/// All datasets and snapshots, with their guids.
fn names(house: &House) -> Vec<(String, Option<Value>)> {
    let request = Describe {
        kinds: vec![
            DatasetKind::Filesystem,
            DatasetKind::Volume,
            DatasetKind::Snapshot,
        ],
        properties: vec!["guid".to_string()],
        ..Describe::default()
    };
    let described = house.administrator.dataset_describe(&call(), request);
    let described = described.expect("a good pool can be listed").datasets;
    let named = described.into_iter().map(|mut one| {
        let guid = one.properties.remove("guid");
        (one.name, guid.map(|guid| guid.value))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::stream::{FreeObjects, Record};

    /// Found by lies, seed 31: what was received was to be destroyed, as if it had not been.
    #[test]
    fn what_was_received_and_cannot_be_mounted_stays() {
        let base = base("own-sent");
        let sent = send_all(&base);
        let increment = sent.iter().find(|one| one.name == "-i").unwrap();
        let nothing_is_left = Record::FreeObjects(FreeObjects {
            first_object: 1,
            count: 1 << 20,
            to_guid: 0,
        });
        let stream = stream_lies::with_record(&increment.bytes, 1, &nothing_is_left);
        let run = base.machine(1).run(|host| {
            let house = House::new(host);
            house.import(None, &[]).unwrap();
            let request = Receive {
                target: COPY.to_string(),
                force: true,
                ..Receive::default()
            };
            let received = streams::receive(&house.administrator, &stream_of(&stream), request);
            let warnings = received.unwrap().warnings;
            assert!(
                matches!(&warnings[..], [one] if one.contains("cannot mount 'tank/copy'")),
                "{warnings:?}"
            );
            let is_there = |(name, _): &(String, _)| name == "tank/copy@two";
            assert!(names(&house).iter().any(is_there));
            house.export(POOL, false).unwrap();
            leaks::walk(host, POOL).unwrap();
        });
        run.unwrap();
    }
}
