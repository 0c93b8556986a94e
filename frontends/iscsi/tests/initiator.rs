//! A small initiator against a portal whose volumes are in memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tarn_iscsi::memory_volume::MemoryStorage;
use tarn_iscsi::portal::Portal;
use tarn_iscsi::protocol::login::{Admission, LoginRefusal};
use tarn_iscsi::protocol::pdu::{Digests, HEADER_BYTES, NO_TAG, Pdu, padding, replies};
use tarn_iscsi::protocol::text::Keys;
use tarn_iscsi::scsi::copying::NoOtherUnits;
use tarn_iscsi::scsi::{Identity, LogicalUnit, Nexus, Request};
use tarn_iscsi::storage::{Durability, Storage, StorageError};
use tarn_iscsi::target::{Target, Targets};
use tarn_serving::{AwakeProcessors, ServingThreads};

const NAME: &str = "iqn.2026-01.local.tarn:pool:vol";
const SIZE: u64 = 64 << 20;

const GUID: u64 = 0x1234_5678_9abc_def0;
const OTHER_GUID: u64 = 77;

fn naa_of(guid: u64) -> u64 {
    (3 << 60) | (guid & 0x0fff_ffff_ffff_ffff)
}

/// One target, and another to copy from and to.
struct One {
    target: Arc<Target>,
    other: Arc<Target>,
    released: AtomicUsize,
    logged: Mutex<Vec<String>>,
}

impl Targets for One {
    fn names(&self, _: &str) -> Vec<String> {
        vec![NAME.to_string()]
    }

    fn admit(&self, _: &str, target: Option<&str>) -> Admission {
        match target {
            None | Some(NAME) => Admission::Open,
            Some(_) => Admission::Refused(LoginRefusal::NotFound),
        }
    }

    fn open(&self, _: &str) -> Result<Arc<Target>, LoginRefusal> {
        Ok(self.target.clone())
    }

    fn open_unit(&self, naa: u64, _: &str) -> Option<Arc<Target>> {
        (naa == naa_of(OTHER_GUID)).then(|| self.other.clone())
    }

    fn release(&self, _: Arc<Target>) {
        self.released.fetch_add(1, Ordering::SeqCst);
    }

    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }

    fn log(&self, line: &str) {
        self.logged.lock().unwrap().push(line.to_string());
    }
}

struct World {
    threads: Arc<ServingThreads>,
    portal: Portal,
    targets: Arc<One>,
    storage: Arc<MemoryStorage>,
}

impl World {
    fn new() -> World {
        World::on(MemoryStorage::new(SIZE))
    }

    fn on(storage: MemoryStorage) -> World {
        let storage = Arc::new(storage);
        let target = |name: &str, guid, storage| {
            let identity = Identity {
                target: name.to_string(),
                guid,
            };
            Arc::new(Target {
                name: name.to_string(),
                pool: "pool".to_string(),
                unit: LogicalUnit::new(storage, identity, None).unwrap(),
            })
        };
        let other = Arc::new(MemoryStorage::new(SIZE));
        let targets = Arc::new(One {
            target: target(NAME, GUID, storage.clone()),
            other: target("iqn.other", OTHER_GUID, other),
            released: AtomicUsize::new(0),
            logged: Mutex::default(),
        });
        let threads = ServingThreads::new(AwakeProcessors::new(false)).unwrap();
        let portal = Portal::open(([127, 0, 0, 1], 0).into(), targets.clone(), &threads).unwrap();
        World {
            threads,
            portal,
            targets,
            storage,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.portal.address).unwrap();
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).unwrap();
        stream
    }

    /// An initiator that has logged in and heard of its unit attention.
    fn log_in(&self, name: &str, keys: &str) -> Initiator {
        let mut initiator = Initiator::log_in(self.connect(), name, keys);
        let (status, sense) = initiator.command(&[0; 6], &[], 0).status();
        assert_eq!((status, sense), (2, (6, 0x29, 0)));
        initiator
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.portal.close();
        self.threads.stop();
    }
}

struct Initiator {
    stream: TcpStream,
    digests: Digests,
    number: u32,
    tag: u32,
    session: u16,
}

/// What a command led to.
struct Answer {
    data: Vec<u8>,
    last: Pdu,
}

impl Answer {
    /// The status and the sense data: key, code and qualifier.
    fn status(&self) -> (u8, (u8, u8, u8)) {
        let sense = &self.last.data;
        match self.last.opcode() == replies::SCSI_RESPONSE && sense.len() > 15 {
            true => (self.last.header[3], (sense[4] & 15, sense[14], sense[15])),
            false => (self.last.header[3], (0, 0, 0)),
        }
    }

    fn good(self) -> Vec<u8> {
        assert_eq!(self.status(), (0, (0, 0, 0)));
        self.data
    }
}

impl Initiator {
    fn log_in(stream: TcpStream, name: &str, keys: &str) -> Initiator {
        let mut initiator = Initiator {
            stream,
            digests: Digests::default(),
            number: 1,
            tag: 1,
            session: 0,
        };
        let reply = initiator.ask_login(&format!("InitiatorName={name} TargetName={NAME} {keys}"));
        assert_eq!(reply.header[36], 0, "the login is refused");
        initiator.session = u16::from_be_bytes([reply.header[14], reply.header[15]]);
        initiator.digests = Digests {
            header: keys.contains("HeaderDigest=CRC32C"),
            data: keys.contains("DataDigest=CRC32C"),
        };
        initiator
    }

    fn ask_login(&mut self, keys: &str) -> Pdu {
        let text = keys.trim().replace(' ', "\0") + "\0";
        let request = Pdu::new(0x43)
            .with_u8(1, 0x87)
            .with_u8(8, 0x80)
            .with_u32(24, self.number)
            .with_data(text.into_bytes());
        self.send(&request);
        self.receive()
    }

    fn send(&mut self, pdu: &Pdu) {
        self.stream.write_all(&pdu.encode(self.digests)).unwrap();
    }

    fn receive(&mut self) -> Pdu {
        self.try_receive().expect("a reply comes")
    }

    fn try_receive(&mut self) -> Option<Pdu> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header).ok()?;
        let head_sum = if self.digests.header { 4 } else { 0 };
        let length = Pdu::announced_data(&header);
        let data_sum = if self.digests.data && length > 0 {
            4
        } else {
            0
        };
        let mut rest = vec![0; head_sum + length + padding(length) + data_sum];
        self.stream.read_exact(&mut rest).ok()?;
        let pdu = Pdu {
            header,
            additional: Vec::new(),
            data: rest[head_sum..head_sum + length].to_vec(),
        };
        let encoded = pdu.encode(self.digests);
        assert!(
            encoded[HEADER_BYTES..] == rest[..],
            "digests and padding are right"
        );
        Some(pdu)
    }

    fn begin(&mut self, cdb: &[u8], data_bytes: usize, room: u32) -> Pdu {
        self.tag += 1;
        let mut pdu = Pdu::new(1)
            .with_u8(
                1,
                0x80 | if data_bytes > 0 { 0x20 } else { 0 } | if room > 0 { 0x40 } else { 0 },
            )
            .with_u32(16, self.tag)
            .with_u32(20, room.max(u32::try_from(data_bytes).unwrap()))
            .with_u32(24, self.number);
        pdu.header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.number += 1;
        pdu
    }

    /// A command; data is sent when it is asked for.
    fn command(&mut self, cdb: &[u8], data: &[u8], room: u32) -> Answer {
        let pdu = self.begin(cdb, data.len(), room);
        self.send(&pdu);
        self.finish(data)
    }

    fn finish(&mut self, data: &[u8]) -> Answer {
        let mut got = Vec::new();
        loop {
            let pdu = self.receive();
            match pdu.opcode() {
                replies::READY_TO_TRANSFER => self.send_asked(&pdu, data),
                replies::DATA_IN => {
                    assert_eq!(pdu.u32(40), u32::try_from(got.len()).unwrap());
                    got.extend_from_slice(&pdu.data);
                    if pdu.header[1] & 1 != 0 {
                        return Answer {
                            data: got,
                            last: pdu,
                        };
                    }
                }
                _ => {
                    return Answer {
                        data: got,
                        last: pdu,
                    };
                }
            }
        }
    }

    fn send_asked(&mut self, ask: &Pdu, data: &[u8]) {
        let offset = usize::try_from(ask.u32(40)).unwrap();
        let length = usize::try_from(ask.u32(44)).unwrap();
        let pieces: Vec<&[u8]> = data[offset..offset + length].chunks(8192).collect();
        let mut at = offset;
        for (index, piece) in pieces.iter().enumerate() {
            let mut pdu = Pdu::new(5)
                .with_u32(16, ask.task_tag())
                .with_u32(20, ask.transfer_tag())
                .with_u32(36, u32::try_from(index).unwrap())
                .with_u32(40, u32::try_from(at).unwrap())
                .with_data(piece.to_vec());
            if index + 1 < pieces.len() {
                pdu.header[1] = 0;
            }
            at += piece.len();
            self.send(&pdu);
        }
    }

    fn write(&mut self, lba: u8, data: &[u8]) -> Answer {
        let blocks = u16::try_from(data.len() / 512).unwrap().to_be_bytes();
        let cdb = [0x2a, 0, 0, 0, 0, lba, 0, blocks[0], blocks[1], 0];
        self.command(&cdb, data, 0)
    }

    fn read(&mut self, lba: u8, blocks: u16) -> Answer {
        let [high, low] = blocks.to_be_bytes();
        let cdb = [0x28, 0, 0, 0, 0, lba, 0, high, low, 0];
        self.command(&cdb, &[], u32::from(blocks) * 512)
    }
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at % 251).unwrap() ^ seed)
        .collect()
}

#[test]
fn what_is_written_reads_back_with_and_without_digests() {
    let world = World::new();
    for keys in [
        "",
        "HeaderDigest=CRC32C DataDigest=CRC32C MaxRecvDataSegmentLength=1000",
    ] {
        let mut initiator = world.log_in("iqn.a", keys);
        let seed = u8::try_from(keys.len()).unwrap();
        let data = pattern(2 << 20, seed);
        assert!(initiator.write(8, &data).good().is_empty());
        assert!(initiator.read(8, 4096).good() == data);
        assert_eq!(initiator.read(0, 1).good(), [0; 512]);
    }
}

/// The parameter list of a copy: units by their names, and for each segment the two units, blocks,
/// and where from and to.
fn copy_list(names: &[u64], segments: &[(u16, u16, u16, u64, u64)]) -> Vec<u8> {
    let mut list = vec![0; 16];
    list[0] = 5;
    list[3] = u8::try_from(names.len() * 32).unwrap();
    list[11] = u8::try_from(segments.len() * 28).unwrap();
    for name in names {
        let mut target = [0; 32];
        (target[0], target[4], target[5], target[7]) = (0xe4, 1, 3, 8);
        target[8..16].copy_from_slice(&name.to_be_bytes());
        target[30] = 2;
        list.extend(target);
    }
    for (source, target, blocks, from, to) in segments {
        let mut segment = [0; 28];
        (segment[0], segment[3]) = (2, 24);
        segment[4..6].copy_from_slice(&source.to_be_bytes());
        segment[6..8].copy_from_slice(&target.to_be_bytes());
        segment[10..12].copy_from_slice(&blocks.to_be_bytes());
        segment[12..20].copy_from_slice(&from.to_be_bytes());
        segment[20..28].copy_from_slice(&to.to_be_bytes());
        list.extend(segment);
    }
    list
}

#[test]
fn units_are_copied_to_each_other_where_the_initiator_may_use_both() {
    let world = World::new();
    let mut initiator = world.log_in("iqn.a", "");
    let mut copy = |list: &[u8]| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[13]) = (0x83, u8::try_from(list.len()).unwrap());
        initiator.command(&cdb, list, 0).status()
    };
    let (own, other, storage) = (naa_of(GUID), naa_of(OTHER_GUID), &world.storage);
    let there = world.targets.other.unit.storage();
    let bytes = pattern(8 * 512, 3);
    storage.write(0, &bytes, Durability::Later).unwrap();
    // There and back again, to another place of its own; FFFFh is the unit that is asked.
    let list = copy_list(&[own, other], &[(0, 1, 8, 0, 16), (1, 0xffff, 8, 16, 100)]);
    assert_eq!(copy(&list), (0, (0, 0, 0)));
    assert!(there.read(16 * 512, 8 * 512).unwrap().to_vec() == bytes);
    assert!(storage.read(100 * 512, 8 * 512).unwrap().to_vec() == bytes);
    assert_eq!(world.targets.released.load(Ordering::SeqCst), 1);
    let aborted = |code| (2, (0xa, code, if code == 0 { 0 } else { 2 }));
    let unknown = copy_list(&[own, naa_of(5)], &[(0, 1, 1, 0, 0)]);
    assert_eq!(copy(&unknown), aborted(0x0d));
    assert_eq!(copy(&copy_list(&[own], &[(0, 1, 1, 0, 0)])), aborted(0x0d));
    let end = SIZE / 512;
    let beyond = copy_list(&[own, other], &[(0, 1, 1, 0, 9), (0, 1, 2, 0, end - 1)]);
    assert_eq!(copy(&beyond), aborted(0));
    assert!(there.read(9 * 512, 512).unwrap().to_vec() == [0; 512]);
    // The other unit is reserved by another initiator.
    let nexus = Nexus("iqn.b,i,0x1".to_string());
    let reserve = Request {
        nexus: &nexus,
        cdb: &[0x16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        data: &[],
        announced_bytes: 0,
        others: &NoOtherUnits,
    };
    world.targets.other.unit.begin_nexus(&nexus);
    let _attention = world.targets.other.unit.execute(&reserve);
    assert!(world.targets.other.unit.execute(&reserve).is_ok());
    for pair in [(0, 1), (1, 0)] {
        let list = copy_list(&[own, other], &[(pair.0, pair.1, 1, 0, 0)]);
        assert_eq!(copy(&list), (0x18, (0, 0, 0)));
    }
}

#[test]
fn the_page_of_third_party_copies_lists_what_is_supported() {
    let world = World::new();
    let mut initiator = world.log_in("iqn.a", "");
    let pages = initiator.command(&[0x12, 1, 0, 0, 255, 0], &[], 255).good();
    assert!(pages[4..].contains(&0x8f));
    let page = initiator.command(&[0x12, 1, 0x8f, 0, 255, 0], &[], 255);
    let page = page.good();
    let length = usize::from(u16::from_be_bytes([page[2], page[3]]));
    assert_eq!((page[1], length + 4), (0x8f, page.len()));
    let (mut found, mut rest) = (Vec::new(), &page[4..]);
    while let [high, low, ..] = *rest {
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        assert!(length.is_multiple_of(4));
        found.push((
            u16::from_be_bytes([high, low]),
            rest[4..4 + length].to_vec(),
        ));
        rest = &rest[4 + length..];
    }
    let kinds: Vec<u16> = found.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0001, 0x0004, 0x0008, 0x000c, 0x8001]);
    assert_eq!(found[0].1[..8], [7, 0x83, 1, 0, 0x84, 2, 0, 3]);
    assert_eq!(found[2].1[..3], [2, 0x02, 0xe4]);
    assert_eq!((found[1].1.len(), found[4].1.len()), (28, 32));
}

#[test]
fn many_commands_at_once_are_all_answered() {
    let world = World::new();
    let mut initiator = world.log_in("iqn.a", "");
    let mut waiting = std::collections::BTreeMap::new();
    for lba in 0..100_u8 {
        let cdb = [0x2a, 0, 0, 0, 0, lba, 0, 0, 1, 0];
        let pdu = initiator.begin(&cdb, 512, 0).with_data(vec![lba; 512]);
        waiting.insert(pdu.task_tag(), lba);
        initiator.send(&pdu);
    }
    while !waiting.is_empty() {
        let reply = initiator.receive();
        assert_eq!(
            (reply.opcode(), reply.header[3]),
            (replies::SCSI_RESPONSE, 0)
        );
        assert!(waiting.remove(&reply.task_tag()).is_some());
    }
    for lba in 0..100 {
        assert_eq!(initiator.read(lba, 1).good(), vec![lba; 512]);
    }
}

#[test]
fn with_the_write_cache_off_a_write_is_durable_when_it_is_acknowledged() {
    let world = World::new();
    let mut initiator = world.log_in("iqn.a", "");
    initiator.write(1, &[1; 512]).good();
    assert!(world.storage.unflushed() > 0);
    // FUA.
    let cdb = [0x2a, 0x08, 0, 0, 0, 2, 0, 0, 1, 0];
    initiator.command(&cdb, &[2; 512], 0).good();
    assert_eq!(world.storage.unflushed(), 0);
    initiator.write(1, &[1; 512]).good();
    // SYNCHRONIZE CACHE.
    initiator
        .command(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], 0)
        .good();
    assert_eq!(world.storage.unflushed(), 0);
    // MODE SELECT: WCE=0, and back.
    let mut page = vec![0; 24];
    (page[4], page[5]) = (8, 18);
    initiator.write(1, &[1; 512]).good();
    initiator
        .command(&[0x15, 0x10, 0, 0, 24, 0], &page, 0)
        .good();
    assert_eq!(
        world.storage.unflushed(),
        0,
        "what was acknowledged before is durable"
    );
    initiator.write(1, &[3; 512]).good();
    assert_eq!(world.storage.unflushed(), 0);
    page[6] = 4;
    initiator
        .command(&[0x15, 0x10, 0, 0, 24, 0], &page, 0)
        .good();
    initiator.write(1, &[3; 512]).good();
    assert!(world.storage.unflushed() > 0);
}

#[test]
fn a_write_cache_that_was_switched_off_and_saved_is_off_after_a_reset_and_a_restart() {
    let world = World::new();
    let mut initiator = world.log_in("iqn.a", "");
    let mut page = vec![0; 24];
    (page[4], page[5]) = (8, 18);
    let switch = |initiator: &mut Initiator, page: &[u8], is_saved: u8| {
        let cdb = [0x15, 0x10 | is_saved, 0, 0, 24, 0];
        initiator.command(&cdb, page, 0).good();
    };
    // Header, descriptor, page: PS, and WCE of the current (0) or saved (3) values.
    let shown = |initiator: &mut Initiator, control: u8| {
        let cdb = [0x1a, 0x08, (control << 6) | 8, 0, 24, 0];
        let bytes = initiator.command(&cdb, &[], 24).good();
        assert_eq!(bytes[4], 0x88);
        bytes[6] & 4 != 0
    };
    let reset = |world: &World| {
        let nexus = tarn_iscsi::scsi::Nexus("another".to_string());
        world.targets.target.unit.reset(&nexus);
    };
    let heard_of_reset = |initiator: &mut Initiator| {
        let (status, (key, code, _)) = initiator.command(&[0; 6], &[], 0).status();
        assert_eq!((status, key, code), (2, 6, 0x29));
    };
    // Not saved, it is on again after a reset.
    switch(&mut initiator, &page, 0);
    assert!(!shown(&mut initiator, 0) && shown(&mut initiator, 3));
    reset(&world);
    heard_of_reset(&mut initiator);
    assert!(shown(&mut initiator, 0));
    switch(&mut initiator, &page, 1);
    assert!(!shown(&mut initiator, 0) && !shown(&mut initiator, 3));
    reset(&world);
    heard_of_reset(&mut initiator);
    initiator.write(1, &[3; 512]).good();
    assert_eq!(world.storage.unflushed(), 0, "off after the reset");
    // A unit made anew of the same volume.
    use tarn_iscsi::storage::Storage;
    assert!(!world.storage.saved_write_cache().unwrap());
    page[6] = 4;
    switch(&mut initiator, &page, 1);
    assert!(world.storage.saved_write_cache().unwrap());
    assert!(shown(&mut initiator, 3));
}

/// PERSISTENT RESERVE OUT.
fn reserve_out(
    initiator: &mut Initiator,
    action: u8,
    kind: u8,
    keys: (u64, u64),
) -> (u8, (u8, u8, u8)) {
    let mut data = [keys.0.to_be_bytes(), keys.1.to_be_bytes(), [0; 8]].concat();
    data[20] = 1;
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    initiator.command(&cdb, &data, 0).status()
}

const GOOD: (u8, (u8, u8, u8)) = (0, (0, 0, 0));
const CONFLICT: (u8, (u8, u8, u8)) = (0x18, (0, 0, 0));

#[test]
fn a_persistent_reservation_keeps_others_out_also_after_a_restart() {
    let world = World::new();
    let (mut a, mut b) = (world.log_in("iqn.a", ""), world.log_in("iqn.b", ""));
    assert_eq!(reserve_out(&mut a, 0, 0, (0, 7)), GOOD);
    assert_eq!(reserve_out(&mut a, 1, 3, (7, 0)), GOOD);
    assert_eq!(b.write(0, &[1; 512]).status(), CONFLICT);
    assert_eq!(b.read(0, 1).status(), CONFLICT);
    assert_eq!(a.write(0, &[1; 512]).status(), GOOD);
    assert_eq!(reserve_out(&mut b, 1, 3, (0, 0)), CONFLICT);
    // The unit is made anew of the same volume.
    let identity = Identity {
        target: NAME.to_string(),
        guid: 0x1234_5678_9abc_def0,
    };
    let unit = LogicalUnit::new(world.storage.clone(), identity, None).unwrap();
    assert_eq!(unit.park().registrations.key_of_holder(), 7);
    // Preempted, the first one is told.
    assert_eq!(reserve_out(&mut b, 0, 0, (0, 8)), GOOD);
    assert_eq!(reserve_out(&mut b, 4, 1, (8, 7)), GOOD);
    assert_eq!(a.write(0, &[1; 512]).status(), (2, (6, 0x2a, 5)));
    assert_eq!(a.write(0, &[1; 512]).status(), CONFLICT);
    assert_eq!(a.read(0, 1).status(), GOOD);
}

#[test]
fn errors_of_the_volume_have_their_sense_data() {
    let world = World::new();
    let mut initiator = world.log_in("iqn.a", "");
    for (error, status, sense) in [
        (StorageError::Suspended, 8, (0, 0, 0)),
        (StorageError::NoSpace, 2, (7, 0x27, 7)),
        (StorageError::Io, 2, (3, 0x0c, 0)),
        (StorageError::Ended, 2, (2, 4, 0)),
    ] {
        world.storage.fail_with(Some(error));
        let got = initiator.write(0, &[1; 512]).status();
        assert_eq!(got, (status, sense), "{error:?}");
    }
    world.storage.fail_with(None);
    initiator.write(0, &[1; 512]).good();
    let last = u32::try_from(SIZE / 512).unwrap().to_be_bytes();
    let cdb = [0x28, 0, last[0], last[1], last[2], last[3], 0, 0, 1, 0];
    assert_eq!(
        initiator.command(&cdb, &[], 512).status(),
        (2, (5, 0x21, 0))
    );
    assert_eq!(
        initiator.command(&[0xff; 6], &[], 0).status(),
        (2, (5, 0x20, 0))
    );
    let world = World::on(MemoryStorage::read_only(SIZE));
    let mut initiator = world.log_in("iqn.a", "");
    assert_eq!(initiator.write(0, &[1; 512]).status(), (2, (7, 0x27, 0)));
}

#[test]
fn a_second_login_of_an_initiator_takes_the_place_of_the_first() {
    let world = World::new();
    let mut old = world.log_in("iqn.a", "");
    let mut new = world.log_in("iqn.a", "");
    assert_ne!(old.session, new.session);
    assert!(old.try_receive().is_none(), "the old connection is closed");
    new.write(0, &[1; 512]).good();
    assert_eq!(world.portal.sessions().len(), 1);
}

#[test]
fn targets_are_discovered() {
    let world = World::new();
    let mut initiator = Initiator {
        stream: world.connect(),
        digests: Digests::default(),
        number: 1,
        tag: 1,
        session: 0,
    };
    let reply = initiator.ask_login("InitiatorName=iqn.a SessionType=Discovery");
    assert_eq!(reply.header[36], 0);
    let text = Pdu::new(4)
        .with_u32(16, 9)
        .with_u32(20, NO_TAG)
        .with_u32(24, 1)
        .with_data(b"SendTargets=All\0".to_vec());
    initiator.send(&text);
    let reply = initiator.receive();
    let keys = Keys::parse(&reply.data).unwrap();
    assert_eq!(keys.value("TargetName"), Some(NAME));
    let address = format!("{},1", world.portal.address);
    assert_eq!(keys.value("TargetAddress"), Some(&*address));
    // A discovery session has no units.
    initiator.number = 2;
    let command = initiator.begin(&[0; 6], 0, 0);
    initiator.send(&command);
    assert_eq!(initiator.receive().opcode(), replies::REJECT);
}

#[test]
fn tasks_are_aborted_and_units_reset() {
    let world = World::new();
    let (mut a, mut b) = (world.log_in("iqn.a", ""), world.log_in("iqn.b", ""));
    // A write whose data does not come.
    let write = a.begin(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512, 0);
    a.send(&write);
    assert_eq!(a.receive().opcode(), replies::READY_TO_TRANSFER);
    let manage = |initiator: &mut Initiator, function: u8, tag: u32| {
        let number = initiator.number;
        let pdu = Pdu::new(0x42)
            .with_u8(1, 0x80 | function)
            .with_u32(16, 5000)
            .with_u32(20, tag)
            .with_u32(24, number);
        initiator.send(&pdu);
        let reply = initiator.receive();
        assert_eq!(reply.opcode(), replies::TASK_MANAGEMENT);
        reply.header[2]
    };
    assert_eq!(manage(&mut a, 1, write.task_tag()), 0);
    assert_eq!(
        manage(&mut a, 1, write.task_tag()),
        1,
        "there is no such task"
    );
    assert_eq!(manage(&mut a, 8, 1), 4, "nothing is reassigned");
    assert_eq!(manage(&mut a, 5, NO_TAG), 0);
    assert_eq!(b.read(0, 1).status(), (2, (6, 0x29, 3)));
    a.read(0, 1).good();
}

#[test]
fn nonsense_ends_its_connection_and_no_other() {
    let world = World::new();
    let mut good = world.log_in("iqn.a", "");
    let mut huge = [0; HEADER_BYTES];
    (huge[0], huge[5]) = (0x43, 0xff);
    for nonsense in [vec![0xff; 4096], vec![0; 4096], huge.to_vec()] {
        let mut stream = world.connect();
        // The target may have closed it already.
        let _ = stream.write_all(&nonsense);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 4096);
    }
    // Data that was not asked for, in a session.
    let mut bad = world.log_in("iqn.b", "");
    let write = bad.begin(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512, 0);
    bad.send(&write);
    let ask = bad.receive();
    let wrong = Pdu::new(5)
        .with_u32(16, ask.task_tag())
        .with_u32(20, 77)
        .with_data(vec![0; 512]);
    bad.send(&wrong);
    assert!(bad.try_receive().is_none());
    good.write(0, &[1; 512]).good();
}

#[test]
fn a_session_that_ends_lets_go_of_its_target() {
    let world = World::new();
    let mut initiator = world.log_in("iqn.a", "");
    let number = initiator.number;
    let logout = Pdu::new(0x46).with_u32(16, 77).with_u32(24, number);
    initiator.send(&logout);
    let reply = initiator.receive();
    assert_eq!((reply.opcode(), reply.header[2]), (replies::LOGOUT, 0));
    assert!(initiator.try_receive().is_none());
    while world.targets.released.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert!(world.portal.sessions().is_empty());
    assert!(world.targets.logged.lock().unwrap().is_empty());
}
