//! REPORT SUPPORTED OPERATION CODES.

use crate::scsi::fields::{low_u16, low_u32, put, to_usize, u16_at, u32_at};
use crate::scsi::logical_unit::{Done, Outcome};
use crate::scsi::{Cdb, Sense, codes};

/// A command: its code, its service action, and which bits of its CDB mean something (the usage
/// map, whose first byte is the code).
struct Known {
    code: u8,
    action: Option<u16>,
    usage: &'static [u8],
}

const fn known(code: u8, usage: &'static [u8]) -> Known {
    Known {
        code,
        action: None,
        usage,
    }
}

const fn action(code: u8, action: u16, usage: &'static [u8]) -> Known {
    Known {
        code,
        action: Some(action),
        usage,
    }
}

/// The usage map of a command of ten bytes with a range, whose second byte is given.
macro_rules! ten {
    ($flags:literal) => {
        &[0, $flags, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0]
    };
}
macro_rules! twelve {
    ($flags:literal) => {
        &[
            0, $flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0,
        ]
    };
}
macro_rules! sixteen {
    ($flags:literal) => {
        &[
            0, $flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0,
        ]
    };
}

const KNOWN: &[Known] = &[
    known(codes::TEST_UNIT_READY, &[0, 0, 0, 0, 0, 0]),
    known(codes::REQUEST_SENSE, &[0, 1, 0, 0, 0xff, 0]),
    known(codes::READ_6, &[0, 0x1f, 0xff, 0xff, 0xff, 0]),
    known(codes::WRITE_6, &[0, 0x1f, 0xff, 0xff, 0xff, 0]),
    known(codes::INQUIRY, &[0, 1, 0xff, 0xff, 0xff, 0]),
    known(codes::MODE_SELECT_6, &[0, 0x10, 0, 0, 0xff, 0]),
    known(codes::RESERVE_6, &[0, 0, 0, 0, 0, 0]),
    known(codes::RELEASE_6, &[0, 0, 0, 0, 0, 0]),
    known(codes::MODE_SENSE_6, &[0, 0x08, 0xff, 0xff, 0xff, 0]),
    known(codes::START_STOP_UNIT, &[0, 1, 0, 0, 0xf3, 0]),
    known(codes::PREVENT_ALLOW_MEDIUM_REMOVAL, &[0, 0, 0, 0, 3, 0]),
    known(codes::READ_CAPACITY_10, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    known(codes::READ_10, ten!(0x18)),
    known(codes::WRITE_10, ten!(0x18)),
    known(codes::WRITE_AND_VERIFY_10, ten!(0x12)),
    known(codes::VERIFY_10, ten!(0x16)),
    known(codes::PRE_FETCH_10, ten!(0x02)),
    known(codes::SYNCHRONIZE_CACHE_10, ten!(0x02)),
    known(
        codes::READ_DEFECT_DATA_10,
        &[0, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0],
    ),
    known(codes::WRITE_SAME_10, ten!(0x08)),
    known(codes::UNMAP, &[0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    known(
        codes::MODE_SELECT_10,
        &[0, 0x10, 0, 0, 0, 0, 0, 0xff, 0xff, 0],
    ),
    known(
        codes::MODE_SENSE_10,
        &[0, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0],
    ),
    action(codes::PERSISTENT_RESERVE_IN, 0, RESERVE_IN),
    action(codes::PERSISTENT_RESERVE_IN, 1, RESERVE_IN),
    action(codes::PERSISTENT_RESERVE_IN, 2, RESERVE_IN),
    action(codes::PERSISTENT_RESERVE_IN, 3, RESERVE_IN),
    action(codes::PERSISTENT_RESERVE_OUT, 0, RESERVE_OUT),
    action(codes::PERSISTENT_RESERVE_OUT, 1, RESERVE_OUT),
    action(codes::PERSISTENT_RESERVE_OUT, 2, RESERVE_OUT),
    action(codes::PERSISTENT_RESERVE_OUT, 3, RESERVE_OUT),
    action(codes::PERSISTENT_RESERVE_OUT, 4, RESERVE_OUT),
    action(codes::PERSISTENT_RESERVE_OUT, 5, RESERVE_OUT),
    action(codes::PERSISTENT_RESERVE_OUT, 6, RESERVE_OUT),
    action(codes::PERSISTENT_RESERVE_OUT, 7, RESERVE_OUT),
    action(codes::EXTENDED_COPY, 0, COPY),
    action(codes::RECEIVE_COPY_RESULTS, 0, COPY_RESULTS),
    action(codes::RECEIVE_COPY_RESULTS, 3, COPY_RESULTS),
    known(codes::READ_16, sixteen!(0x18)),
    known(
        codes::COMPARE_AND_WRITE,
        &[
            0, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0, 0,
        ],
    ),
    known(codes::WRITE_16, sixteen!(0x18)),
    known(codes::ORWRITE_16, sixteen!(0x18)),
    known(codes::WRITE_AND_VERIFY_16, sixteen!(0x12)),
    known(codes::VERIFY_16, sixteen!(0x16)),
    known(codes::PRE_FETCH_16, sixteen!(0x02)),
    known(codes::SYNCHRONIZE_CACHE_16, sixteen!(0x02)),
    known(codes::WRITE_SAME_16, sixteen!(0x09)),
    action(codes::SERVICE_ACTION_IN_16, 0x10, SERVICE_IN),
    action(codes::SERVICE_ACTION_IN_16, 0x12, SERVICE_IN),
    known(
        codes::REPORT_LUNS,
        &[0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    ),
    action(
        codes::MAINTENANCE_IN,
        0x0a,
        &[0, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    ),
    action(
        codes::MAINTENANCE_IN,
        0x0c,
        &[
            0, 0x1f, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0,
        ],
    ),
    known(codes::READ_12, twelve!(0x18)),
    known(codes::WRITE_12, twelve!(0x18)),
    known(codes::WRITE_AND_VERIFY_12, twelve!(0x12)),
    known(codes::VERIFY_12, twelve!(0x16)),
    known(codes::READ_DEFECT_DATA_12, twelve!(0x1f)),
];

const RESERVE_IN: &[u8] = &[0, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
const RESERVE_OUT: &[u8] = &[0, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
const COPY: &[u8] = &[
    0, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0,
];
const COPY_RESULTS: &[u8] = &[
    0, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0,
];
const SERVICE_IN: &[u8] = &[
    0, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0,
];

/// A descriptor of timeouts that says none.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// REPORT SUPPORTED OPERATION CODES.
pub fn report(cdb: &Cdb) -> Outcome {
    let room = to_usize(u64::from(u32_at(cdb, 6)));
    let has_timeouts = cdb[2] & 0x80 != 0;
    let (code, wanted) = (cdb[3], u16_at(cdb, 4));
    let of_code: Vec<&Known> = KNOWN.iter().filter(|known| known.code == code).collect();
    let has_actions = of_code.iter().any(|known| known.action.is_some());
    let bytes = match cdb[2] & 7 {
        0 => all(has_timeouts),
        1 if has_actions => return Err(Sense::bit_in_cdb(2, 2).into()),
        1 => one(of_code.first().copied(), has_timeouts),
        2 if !has_actions => return Err(Sense::bit_in_cdb(2, 2).into()),
        2 | 3 => {
            let is_it = |known: &&Known| known.action.unwrap_or(0) == wanted;
            one(of_code.iter().copied().find(is_it), has_timeouts)
        }
        _ => return Err(Sense::bit_in_cdb(2, 2).into()),
    };
    Ok(Done::cut(bytes, room))
}

fn all(has_timeouts: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for known in KNOWN {
        let mut descriptor = [0; 8];
        descriptor[0] = known.code;
        put(&mut descriptor, 2, &known.action.unwrap_or(0).to_be_bytes());
        descriptor[5] = u8::from(known.action.is_some()) | if has_timeouts { 2 } else { 0 };
        put(
            &mut descriptor,
            6,
            &low_u16(known.usage.len()).to_be_bytes(),
        );
        bytes.extend_from_slice(&descriptor);
        if has_timeouts {
            bytes.extend_from_slice(&TIMEOUTS);
        }
    }
    let told = low_u32(bytes.len() - 4).to_be_bytes();
    put(&mut bytes, 0, &told);
    bytes
}

fn one(known: Option<&Known>, has_timeouts: bool) -> Vec<u8> {
    let Some(known) = known else {
        // Not supported.
        return vec![0, 1, 0, 0];
    };
    let mut bytes = vec![0, 3, 0, 0];
    put(&mut bytes, 2, &low_u16(known.usage.len()).to_be_bytes());
    let mut usage = known.usage.to_vec();
    usage[0] = known.code;
    if let Some(action) = known.action {
        usage[1] = (usage[1] & 0xe0) | u8::try_from(action).unwrap_or(0x1f);
    }
    bytes.extend(usage);
    if has_timeouts {
        bytes[1] |= 0x80;
        bytes.extend_from_slice(&TIMEOUTS);
    }
    bytes
}
