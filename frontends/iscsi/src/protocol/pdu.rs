//! A PDU: its basic header segment, additional header segments and data.

use crate::scsi::fields::{put, three_bytes, u24_at, u32_at};

/// Length of the basic header segment, in bytes.
pub const HEADER_BYTES: usize = 48;

/// A task tag or transfer tag that names none.
pub const NO_TAG: u32 = 0xffff_ffff;

/// Operation codes of initiators.
#[allow(missing_docs)] // Each is named as in RFC 7143, 11.2.1.2.
pub mod requests {
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
}

/// Operation codes of targets.
#[allow(missing_docs)] // Each is named as in RFC 7143, 11.2.1.2.
pub mod replies {
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    pub const TASK_MANAGEMENT: u8 = 0x22;
    pub const LOGIN: u8 = 0x23;
    pub const TEXT: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT: u8 = 0x26;
    pub const READY_TO_TRANSFER: u8 = 0x31;
    pub const ASYNC_MESSAGE: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// The final bit of the second byte of a header.
pub const FINAL: u8 = 0x80;

/// A PDU. Digests and padding are no part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pdu {
    /// The basic header segment. Its lengths are set when it is sent.
    pub header: [u8; HEADER_BYTES],
    /// Additional header segments.
    pub additional: Vec<u8>,
    /// The data segment.
    pub data: Vec<u8>,
}

impl Pdu {
    /// A PDU of an operation, final, without data.
    pub fn new(opcode: u8) -> Pdu {
        let mut header = [0; HEADER_BYTES];
        header[0] = opcode;
        header[1] = FINAL;
        Pdu {
            header,
            additional: Vec::new(),
            data: Vec::new(),
        }
    }

    /// The reply of an operation to a request.
    pub fn reply(opcode: u8, task_tag: u32) -> Pdu {
        Pdu::new(opcode).with_u32(16, task_tag)
    }

    /// The same with a number at a place of the header.
    pub fn with_u32(mut self, at: usize, value: u32) -> Pdu {
        put(&mut self.header, at, &value.to_be_bytes());
        self
    }

    /// The same with a byte of the header.
    pub fn with_u8(mut self, at: usize, value: u8) -> Pdu {
        self.header[at] = value;
        self
    }

    /// The same with data.
    pub fn with_data(mut self, data: Vec<u8>) -> Pdu {
        self.data = data;
        self
    }

    /// Its operation.
    pub fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    /// It is delivered at once and takes no command number.
    pub fn is_immediate(&self) -> bool {
        self.header[0] & 0x40 != 0
    }

    /// Its final bit.
    pub fn is_final(&self) -> bool {
        self.header[1] & FINAL != 0
    }

    /// A number of the header.
    pub fn u32(&self, at: usize) -> u32 {
        u32_at(&self.header, at)
    }

    /// The initiator task tag.
    pub fn task_tag(&self) -> u32 {
        self.u32(16)
    }

    /// The target transfer tag.
    pub fn transfer_tag(&self) -> u32 {
        self.u32(20)
    }

    /// CmdSN.
    pub fn command_number(&self) -> u32 {
        self.u32(24)
    }

    /// The logical unit.
    pub fn lun(&self) -> [u8; 8] {
        let mut lun = [0; 8];
        lun.copy_from_slice(&self.header[8..16]);
        lun
    }

    /// Length of the data segment that a header announces, in bytes.
    pub fn announced_data(header: &[u8; HEADER_BYTES]) -> usize {
        usize::try_from(u24_at(header, 5)).expect("24 bits fit")
    }

    /// Length of the additional header segments that a header announces, in bytes.
    pub fn announced_additional(header: &[u8; HEADER_BYTES]) -> usize {
        usize::from(header[4]) * 4
    }

    /// Its bytes, with the digests that were negotiated.
    pub fn encode(&self, digests: Digests) -> Vec<u8> {
        let mut bytes = self.encode_header(digests, self.data.len());
        bytes.extend_from_slice(&self.data);
        let sum = digests
            .data
            .then(|| sum_of(&[&self.data], padding(self.data.len())));
        bytes.extend(trailer(self.data.len(), sum));
        bytes
    }

    /// The header and its digest, for so many bytes of data that follow.
    pub fn encode_header(&self, digests: Digests, data_bytes: usize) -> Vec<u8> {
        let mut bytes = self.header.to_vec();
        bytes[4] = u8::try_from(self.additional.len() / 4).expect("at most 255 words");
        put(&mut bytes, 5, &three_bytes(data_bytes));
        bytes.extend_from_slice(&self.additional);
        if digests.header {
            let sum = crc32c::crc32c(&bytes);
            bytes.extend_from_slice(&sum.to_le_bytes());
        }
        bytes
    }
}

/// What follows data: padding, and its digest.
pub fn trailer(data_bytes: usize, sum: Option<u32>) -> Vec<u8> {
    let mut bytes = vec![0; padding(data_bytes)];
    if let Some(sum) = sum.filter(|_| data_bytes > 0) {
        bytes.extend_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// The digest of data in parts, with its padding.
pub fn sum_of(parts: &[&[u8]], padding: usize) -> u32 {
    let sum = parts
        .iter()
        .fold(0, |sum, part| crc32c::crc32c_append(sum, part));
    crc32c::crc32c_append(sum, &[0; 3][..padding])
}

/// How many bytes of padding follow so many bytes.
pub fn padding(bytes: usize) -> usize {
    bytes.next_multiple_of(4) - bytes
}

/// Which digests are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digests {
    /// CRC32C of headers.
    pub header: bool,
    /// CRC32C of data.
    pub data: bool,
}
