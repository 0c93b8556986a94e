//! A client of iSCSI that speaks what it needs of the protocol: one session, one command at a time.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::conformance::crash::HANG_LIMIT;
use crate::workspace::Outcome;

/// Bytes of a logical block.
const SECTOR_BYTES: u64 = 512;
const HEADER_BYTES: usize = 48;

/// The status GOOD, and that of a command that a reservation keeps out.
const GOOD: u8 = 0x00;
pub const RESERVATION_CONFLICT: u8 = 0x18;
/// CHECK CONDITION: told once after each login, that the unit was reset.
const CHECK_CONDITION: u8 = 0x02;

/// The type of a reservation: only registered initiators write.
const REGISTRANTS_ONLY: u8 = 5;

/// A session.
pub struct Initiator {
    stream: TcpStream,
    number: u32,
}

/// What a command led to.
struct Reply {
    status: u8,
    data: Vec<u8>,
}

impl Initiator {
    /// Logs in to a target, by a name of an initiator.
    pub fn log_in(portal: &str, target: &str, name: &str) -> Outcome<Initiator> {
        let stream = TcpStream::connect(portal)?;
        stream.set_read_timeout(Some(HANG_LIMIT))?;
        stream.set_nodelay(true)?;
        let mut initiator = Initiator { stream, number: 1 };
        let keys = [
            format!("InitiatorName={name}"),
            format!("TargetName={target}"),
            "MaxRecvDataSegmentLength=262144".to_string(),
            "FirstBurstLength=262144".to_string(),
            "MaxBurstLength=262144".to_string(),
            "InitialR2T=Yes".to_string(),
            "ImmediateData=Yes".to_string(),
        ];
        let text = keys.join("\0") + "\0";
        let mut header = [0; HEADER_BYTES];
        // From the operational stage to the full feature phase.
        (header[0], header[1], header[8]) = (0x43, 0x87, 0x80);
        header[24..28].copy_from_slice(&initiator.number.to_be_bytes());
        initiator.send(header, text.as_bytes())?;
        let (header, _) = initiator.receive()?;
        if header[36] != 0 {
            let (class, detail) = (header[36], header[37]);
            return Err(format!("the login at {target} is refused: {class}, {detail}").into());
        }
        // TEST UNIT READY takes the unit attention.
        while initiator.command(&[0; 6], &[], 0)?.status == CHECK_CONDITION {}
        Ok(initiator)
    }

    fn send(&mut self, mut header: [u8; HEADER_BYTES], data: &[u8]) -> Outcome {
        let length = u32::try_from(data.len())?.to_be_bytes();
        header[5..8].copy_from_slice(&length[1..]);
        let padding = vec![0; data.len().next_multiple_of(4) - data.len()];
        self.stream
            .write_all(&[&header[..], data, &padding].concat())?;
        Ok(())
    }

    fn receive(&mut self) -> Outcome<([u8; HEADER_BYTES], Vec<u8>)> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        let length = usize::try_from(length)?;
        let mut data = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        data.truncate(length);
        Ok((header, data))
    }

    /// A command with all of its data, of which the target takes as much at once.
    fn command(&mut self, cdb: &[u8], data: &[u8], room: u32) -> Outcome<Reply> {
        self.number += 1;
        let mut header = [0; HEADER_BYTES];
        let direction = match (data.is_empty(), room) {
            (false, _) => 0x20,
            (true, 0) => 0,
            (true, _) => 0x40,
        };
        (header[0], header[1]) = (0x01, 0x80 | direction);
        header[16..20].copy_from_slice(&self.number.to_be_bytes());
        let expected = room.max(u32::try_from(data.len())?);
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[24..28].copy_from_slice(&(self.number - 1).to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.send(header, data)?;
        let mut got = Vec::new();
        loop {
            let (header, data) = self.receive()?;
            let (opcode, has_status) = (header[0] & 0x3f, header[1] & 1 != 0);
            match opcode {
                // Data-In.
                0x25 => {
                    got.extend(data);
                    if has_status {
                        return Ok(Reply {
                            status: header[3],
                            data: got,
                        });
                    }
                }
                // SCSI Response.
                0x21 => {
                    return Ok(Reply {
                        status: header[3],
                        data: got,
                    });
                }
                other => return Err(format!("a PDU of operation {other:#04x} comes").into()),
            }
        }
    }

    fn expect_good(&mut self, cdb: &[u8], data: &[u8], room: u32) -> Outcome<Vec<u8>> {
        let reply = self.command(cdb, data, room)?;
        match reply.status {
            GOOD => Ok(reply.data),
            other => Err(format!("command {:#04x} ends with status {other:#04x}", cdb[0]).into()),
        }
    }

    fn range(code: u8, flags: u8, offset: u64, length: usize) -> Outcome<[u8; 16]> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (code, flags);
        cdb[2..10].copy_from_slice(&(offset / SECTOR_BYTES).to_be_bytes());
        let blocks = u32::try_from(u64::try_from(length)? / SECTOR_BYTES)?;
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        Ok(cdb)
    }

    /// WRITE (16). With `is_forced` (FUA) it is durable when it is acknowledged.
    pub fn write(&mut self, offset: u64, bytes: &[u8], is_forced: bool) -> Outcome {
        let flags = if is_forced { 0x08 } else { 0 };
        let cdb = Initiator::range(0x8a, flags, offset, bytes.len())?;
        self.expect_good(&cdb, bytes, 0).map(drop)
    }

    /// The status of WRITE (16).
    pub fn status_of_write(&mut self, offset: u64, bytes: &[u8]) -> Outcome<u8> {
        let cdb = Initiator::range(0x8a, 0, offset, bytes.len())?;
        Ok(self.command(&cdb, bytes, 0)?.status)
    }

    /// READ (16).
    pub fn read(&mut self, offset: u64, length: usize) -> Outcome<Vec<u8>> {
        let cdb = Initiator::range(0x88, 0, offset, length)?;
        let bytes = self.expect_good(&cdb, &[], u32::try_from(length)?)?;
        match bytes.len() == length {
            true => Ok(bytes),
            false => Err("a read gives fewer bytes than asked for".into()),
        }
    }

    /// SYNCHRONIZE CACHE (10) of all.
    pub fn flush(&mut self) -> Outcome {
        self.expect_good(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], 0)
            .map(drop)
    }

    /// MODE SELECT (6): the write cache is on or off, also after a restart (SP).
    pub fn set_write_cache(&mut self, is_on: bool) -> Outcome {
        let mut page = [0; 24];
        (page[4], page[5]) = (8, 18);
        page[6] = if is_on { 4 } else { 0 };
        self.expect_good(&[0x15, 0x11, 0, 0, 24, 0], &page, 0)
            .map(drop)
    }

    /// PERSISTENT RESERVE OUT: registers a key that stays when power is lost, and reserves the unit
    /// for those that have one.
    pub fn reserve(&mut self, key: u64) -> Outcome {
        for (action, kind, old, new) in [(6, 0, 0, key), (1, REGISTRANTS_ONLY, key, 0)] {
            let mut list = [0; 24];
            list[..8].copy_from_slice(&u64::to_be_bytes(old));
            list[8..16].copy_from_slice(&u64::to_be_bytes(new));
            // APTPL.
            list[20] = 1;
            self.expect_good(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &list, 0)?;
        }
        Ok(())
    }

    /// PERSISTENT RESERVE IN: the key of the holder and the type of its reservation, if there is
    /// one, and how many keys there are.
    pub fn reservation(&mut self) -> Outcome<(Option<(u64, u8)>, usize)> {
        let keys = self.expect_good(&[0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[], 256)?;
        let held = self.expect_good(&[0x5e, 1, 0, 0, 0, 0, 0, 1, 0, 0], &[], 256)?;
        let held = match held.get(8..24) {
            Some(held) => Some((u64::from_be_bytes(held[..8].try_into()?), held[13] & 0x0f)),
            None => None,
        };
        Ok((held, (keys.len() - 8) / 8))
    }

    /// The reservation that [`reserve`](Initiator::reserve) makes.
    pub fn expected_reservation(key: u64) -> (Option<(u64, u8)>, usize) {
        (Some((key, REGISTRANTS_ONLY)), 1)
    }
}
