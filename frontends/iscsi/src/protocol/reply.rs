//! Replies to SCSI commands: data in PDUs, status, residuals, sense data.

use crate::protocol::parameters::Parameters;
use crate::protocol::pdu::{FINAL, NO_TAG, Pdu, replies};
use crate::protocol::tasks::Command;
use crate::scsi::data_out_bytes;
use crate::scsi::fields::{low_u16, low_u32, put};

/// Statuses of SCSI.
#[allow(missing_docs)] // Each is named as in SAM-5, table 49.
pub mod status {
    pub const GOOD: u8 = 0x00;
    pub const CHECK_CONDITION: u8 = 0x02;
    pub const BUSY: u8 = 0x08;
    pub const RESERVATION_CONFLICT: u8 = 0x18;
}

/// How the transferred data differs from what the initiator expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residual {
    flags: u8,
    count: u32,
}

impl Residual {
    /// The initiator expected `expected` bytes, and the command has `actual`.
    pub fn of(expected: u32, actual: u64) -> Residual {
        let difference = u64::from(expected).abs_diff(actual);
        Residual {
            flags: match u64::from(expected).cmp(&actual) {
                std::cmp::Ordering::Less => 0x04,
                std::cmp::Ordering::Equal => 0,
                std::cmp::Ordering::Greater => 0x02,
            },
            count: u32::try_from(difference).unwrap_or(u32::MAX),
        }
    }

    /// That of a command which was carried out and gave so much data.
    pub fn of_command(command: &Command, given_bytes: usize) -> Residual {
        let actual = match command.writes {
            true => data_out_bytes(&command.cdb),
            false => u64::try_from(given_bytes).unwrap_or(u64::MAX),
        };
        Residual::of(command.expected_bytes, actual)
    }
}

/// A SCSI response. Its numbers are filled in when it is sent.
pub fn response(command: &Command, status: u8, residual: Residual, sense: &[u8]) -> Pdu {
    let mut pdu = Pdu::reply(replies::SCSI_RESPONSE, command.tag)
        .with_u8(1, FINAL | residual.flags)
        .with_u8(3, status)
        .with_u32(44, residual.count);
    if !sense.is_empty() {
        let mut data = low_u16(sense.len()).to_be_bytes().to_vec();
        data.extend_from_slice(sense);
        pdu.data = data;
    }
    pdu
}

/// A piece of data: where it is, and its header, which has GOOD status if it is the last.
#[derive(Debug)]
pub struct Piece {
    /// Its header. Numbers are filled in when it is sent.
    pub pdu: Pdu,
    /// Its range of the data.
    pub range: std::ops::Range<usize>,
    /// It has the status.
    pub is_last: bool,
}

/// The PDUs of the data that a command gave, of which the initiator has room for a part.
pub fn pieces(command: &Command, given_bytes: usize, agreed: &Parameters) -> Vec<Piece> {
    let room = usize::try_from(command.expected_bytes).unwrap_or(usize::MAX);
    let total = given_bytes.min(room);
    let residual = Residual::of_command(command, given_bytes);
    let burst = usize::try_from(agreed.burst_bytes_max).unwrap_or(usize::MAX);
    let (mut pieces, mut at, mut in_burst) = (Vec::new(), 0, 0);
    while at < total {
        let length = agreed.sent_bytes_max.min(total - at).min(burst - in_burst);
        let end = at + length;
        in_burst += length;
        let is_last = end == total;
        let mut flags = 0;
        if is_last || in_burst == burst {
            flags = FINAL;
            in_burst = 0;
        }
        let mut pdu = Pdu::reply(replies::DATA_IN, command.tag)
            .with_u32(20, NO_TAG)
            .with_u32(36, low_u32(pieces.len()))
            .with_u32(40, low_u32(at));
        put(&mut pdu.header, 8, &command.lun);
        if is_last {
            flags |= 0x01 | residual.flags;
            pdu = pdu.with_u32(44, residual.count);
        }
        pieces.push(Piece {
            pdu: pdu.with_u8(1, flags),
            range: at..end,
            is_last,
        });
        at = end;
    }
    pieces
}

/// The parts of some contents that lie in a range of it.
pub fn parts_in<'a>(parts: &[&'a [u8]], range: std::ops::Range<usize>) -> Vec<&'a [u8]> {
    let (mut found, mut at) = (Vec::new(), 0);
    for part in parts {
        let end = at + part.len();
        let (from, to) = (range.start.max(at), range.end.min(end));
        if from < to {
            found.push(&part[from - at..to - at]);
        }
        at = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_cut_at_pdus_and_bursts_and_ends_with_the_status() {
        let command = Command {
            tag: 1,
            lun: [0; 8],
            cdb: [0; 16],
            data: Vec::new(),
            expected_bytes: 5000,
            is_garbled: false,
            reads: true,
            writes: false,
            is_aborted: Default::default(),
        };
        let agreed = Parameters {
            sent_bytes_max: 1000,
            burst_bytes_max: 1500,
            ..Parameters::default()
        };
        let found = pieces(&command, 4000, &agreed);
        let ranges: Vec<_> = found.iter().map(|piece| piece.range.clone()).collect();
        assert_eq!(
            ranges,
            [0..1000, 1000..1500, 1500..2500, 2500..3000, 3000..4000]
        );
        let flags: Vec<u8> = found.iter().map(|piece| piece.pdu.header[1]).collect();
        assert_eq!(flags, [0, 0x80, 0, 0x80, 0x83]);
        assert_eq!(found[4].pdu.u32(44), 1000);
        // More than the initiator has room for.
        let found = pieces(&command, 6000, &agreed);
        assert_eq!(found.last().unwrap().range.end, 5000);
        assert_eq!(found.last().unwrap().pdu.header[1], 0x85);
    }

    #[test]
    fn parts_of_a_range_are_found() {
        let parts: [&[u8]; 3] = [&[0, 1, 2], &[], &[3, 4, 5, 6]];
        assert_eq!(parts_in(&parts, 2..5).concat(), [2, 3, 4]);
        assert_eq!(parts_in(&parts, 3..3).concat(), [0; 0]);
    }
}
