//! iSCSI: PDUs and text that come from a network, and commands of initiators.

use crate::target::{Input, Target};
use tarn_iscsi::memory_volume::MemoryStorage;
use tarn_iscsi::protocol::input::{self, Read};
use tarn_iscsi::protocol::login::{Admission, Gatekeeper, Login, Secrets, Step};
use tarn_iscsi::protocol::parameters::Parameters;
use tarn_iscsi::protocol::pdu::{Digests, Pdu};
use tarn_iscsi::protocol::tasks::{Taken, Tasks};
use tarn_iscsi::protocol::text::Keys;
use tarn_iscsi::scsi::copying::NoOtherUnits;
use tarn_iscsi::scsi::{Identity, LogicalUnit, Nexus, Request, data_out_bytes, registrations};

/// What is given to the decoders besides the bytes is small.
const MEMORY_EXTRA: usize = 4 << 20;
/// Room for data that a session has asked its initiator for: it is set apart before it comes.
const ASKED_BYTES_MAX: usize = 64 << 20;

/// A stream of PDUs: a login, then commands with their data.
pub const PDUS: Target = Target {
    name: "iscsi-pdus",
    about: "a stream of iSCSI PDUs: login, commands, data",
    run: pdus,
    seed: |_| {
        Some(
            Pdu::new(0x43)
                .with_data(b"InitiatorName=iqn.a\0".to_vec())
                .encode(Digests::default()),
        )
    },
    size_max: 16 << 10,
    memory_per_byte: 64,
    memory_extra: MEMORY_EXTRA + ASKED_BYTES_MAX,
};

/// SCSI commands on a small disk.
pub const COMMANDS: Target = Target {
    name: "scsi-commands",
    about: "SCSI commands with their data, on a disk in memory",
    run: commands,
    seed: |_| {
        Some(vec![
            0x12, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ])
    },
    size_max: 8 << 10,
    memory_per_byte: 64,
    memory_extra: 64 << 20,
};

/// Text keys and saved reservations.
pub const TEXT: Target = Target {
    name: "iscsi-text",
    about: "text keys of iSCSI, and saved persistent reservations",
    run: text,
    seed: |_| Some(b"\0InitiatorName=iqn.a\0HeaderDigest=CRC32C,None\0".to_vec()),
    size_max: 16 << 10,
    memory_per_byte: 64,
    memory_extra: 0,
};

struct Gate;

impl Gatekeeper for Gate {
    fn admit(&self, initiator: &str, _: Option<&str>) -> Admission {
        match initiator.len() % 2 {
            0 => Admission::Open,
            _ => Admission::Chap(Secrets::default()),
        }
    }

    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

fn pdus(bytes: &[u8]) {
    let mut rest = bytes;
    let mut input = input::Input::new(64 << 10);
    let mut login = Some(Login::default());
    let agreed = Parameters {
        initial_r2t: false,
        ..Parameters::default()
    };
    let mut tasks = Tasks::new(0);
    loop {
        let read = |into: &mut [u8]| {
            let count = into.len().min(rest.len()).min(100);
            let (these, others) = rest.split_at(count);
            into[..count].copy_from_slice(these);
            rest = others;
            match count {
                0 => Read::Nothing,
                count => Read::Bytes(count),
            }
        };
        let Ok(Some(pdu)) = input.take(read) else {
            return;
        };
        if let Some(mut one) = login.take() {
            match one.step(&pdu, &Gate) {
                Step::More(_) => login = Some(one),
                Step::Done(logged_in, _) => tasks = Tasks::new(logged_in.command_number),
                Step::Failed(_) => {}
            }
            continue;
        }
        let tag = pdu.task_tag();
        let taken = match pdu.opcode() {
            1 => tasks.take_command(pdu, &agreed),
            5 => tasks.take_data(pdu, &agreed),
            2 => {
                tasks.abort(pdu.transfer_tag());
                continue;
            }
            _ => continue,
        };
        if let Ok(Taken::Ready(command)) = taken {
            let taken = data_out_bytes(&command.cdb);
            assert!(
                command.data.len() as u64 <= taken,
                "no more data than is taken"
            );
            tasks.end(tag, &agreed);
        }
        let (expected, most) = tasks.window();
        assert!(
            most.wrapping_sub(expected).wrapping_add(1) <= 128,
            "the window is bounded"
        );
    }
}

fn commands(bytes: &[u8]) {
    let storage = std::sync::Arc::new(MemoryStorage::new(1 << 20));
    let identity = Identity {
        target: "iqn.t".to_string(),
        guid: 5,
    };
    let Ok(unit) = LogicalUnit::new(storage, identity, None) else {
        return;
    };
    let nexuses = [
        Nexus("iqn.a,i,0x1".to_string()),
        Nexus("iqn.b,i,0x2".to_string()),
    ];
    let mut input = Input::new(bytes);
    while input.rest.len() >= 17 {
        let nexus = &nexuses[usize::from(input.byte() & 1)];
        let (cdb, rest) = input.rest.split_at(16);
        let mut whole = [0; 16];
        whole.copy_from_slice(cdb);
        let taken = usize::try_from(data_out_bytes(&whole)).unwrap_or(0);
        let (data, rest) = rest.split_at(taken.min(rest.len()));
        input.rest = rest;
        let request = Request {
            nexus,
            cdb: &whole,
            data,
            announced_bytes: data.len() as u64,
            others: &NoOtherUnits,
        };
        if let Ok(done) = unit.execute(&request) {
            assert!(done.data.len() <= 8 << 20, "replies are bounded");
        }
        let _ = unit.sense_format();
    }
}

fn text(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.byte() & 1 != 0 {
        let Ok(text) = std::str::from_utf8(input.rest) else {
            return;
        };
        if let Some(read) = registrations::Registrations::from_saved(text, 7) {
            let again = registrations::Registrations::from_saved(&read.saved(7), 7);
            assert_eq!(again, Some(read), "reservations changed by being saved");
        }
        return;
    }
    let Ok(keys) = Keys::parse(input.rest) else {
        return;
    };
    assert_eq!(Keys::parse(&keys.encode()), Ok(keys.clone()));
    let mut answer = Keys::default();
    Parameters::default().negotiate(&keys, &mut answer);
}
