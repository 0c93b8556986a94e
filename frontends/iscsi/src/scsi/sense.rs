//! Sense data: why a command failed, exactly.

use crate::scsi::fields::{low_u32, put};

/// The general category of an error (SPC-4, 4.5.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenseKey {
    /// Nothing is wrong.
    NoSense = 0,
    /// The unit cannot be used now.
    NotReady = 2,
    /// A block could not be read or written.
    MediumError = 3,
    /// The command or its parameters are wrong.
    IllegalRequest = 5,
    /// Something of interest to the initiator happened before the command.
    UnitAttention = 6,
    /// The block is protected.
    DataProtect = 7,
    /// A copy could not go on.
    CopyAborted = 10,
    /// The target ended the command.
    AbortedCommand = 11,
    /// Compared bytes differ.
    Miscompare = 14,
}

/// An additional sense code and its qualifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code(pub u8, pub u8);

/// The additional sense codes that this target gives.
#[allow(missing_docs)] // Each is named as in SPC-4, table F.1.
pub mod codes {
    use super::Code;
    pub const NONE: Code = Code(0, 0);
    pub const NOT_READY_CAUSE_NOT_REPORTABLE: Code = Code(0x04, 0x00);
    pub const INITIALIZING_COMMAND_REQUIRED: Code = Code(0x04, 0x02);
    pub const WRITE_ERROR: Code = Code(0x0c, 0x00);
    pub const UNRECOVERED_READ_ERROR: Code = Code(0x11, 0x00);
    pub const PARAMETER_LIST_LENGTH_ERROR: Code = Code(0x1a, 0x00);
    pub const MISCOMPARE_DURING_VERIFY: Code = Code(0x1d, 0x00);
    pub const INVALID_COMMAND_OPERATION_CODE: Code = Code(0x20, 0x00);
    pub const LBA_OUT_OF_RANGE: Code = Code(0x21, 0x00);
    pub const INVALID_FIELD_IN_CDB: Code = Code(0x24, 0x00);
    pub const LOGICAL_UNIT_NOT_SUPPORTED: Code = Code(0x25, 0x00);
    pub const INVALID_FIELD_IN_PARAMETER_LIST: Code = Code(0x26, 0x00);
    pub const PARAMETER_VALUE_INVALID: Code = Code(0x26, 0x02);
    pub const INVALID_RELEASE_OF_PERSISTENT_RESERVATION: Code = Code(0x26, 0x04);
    pub const TOO_MANY_TARGET_DESCRIPTORS: Code = Code(0x26, 0x06);
    pub const UNSUPPORTED_TARGET_DESCRIPTOR: Code = Code(0x26, 0x07);
    pub const TOO_MANY_SEGMENT_DESCRIPTORS: Code = Code(0x26, 0x08);
    pub const UNSUPPORTED_SEGMENT_DESCRIPTOR: Code = Code(0x26, 0x09);
    pub const WRITE_PROTECTED: Code = Code(0x27, 0x00);
    pub const SOFTWARE_WRITE_PROTECTED: Code = Code(0x27, 0x02);
    pub const SPACE_ALLOCATION_FAILED: Code = Code(0x27, 0x07);
    pub const POWER_ON_OR_RESET: Code = Code(0x29, 0x00);
    pub const BUS_DEVICE_RESET: Code = Code(0x29, 0x03);
    pub const MODE_PARAMETERS_CHANGED: Code = Code(0x2a, 0x01);
    pub const RESERVATIONS_PREEMPTED: Code = Code(0x2a, 0x03);
    pub const RESERVATIONS_RELEASED: Code = Code(0x2a, 0x04);
    pub const REGISTRATIONS_PREEMPTED: Code = Code(0x2a, 0x05);
    pub const CAPACITY_CHANGED: Code = Code(0x2a, 0x09);
    pub const COPY_TARGET_UNREACHABLE: Code = Code(0x0d, 0x02);
    pub const SAVING_NOT_SUPPORTED: Code = Code(0x39, 0x00);
    pub const DATA_PHASE_ERROR: Code = Code(0x4b, 0x00);
    pub const INSUFFICIENT_REGISTRATION_RESOURCES: Code = Code(0x55, 0x04);
}

/// Which byte of the command or of the parameter list is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// In the command, rather than in the parameter list.
    pub in_cdb: bool,
    /// Its byte.
    pub byte: u16,
    /// Its highest bit, if it is not a whole byte.
    pub bit: Option<u8>,
}

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// The category.
    pub key: SenseKey,
    /// What it is.
    pub code: Code,
    /// The INFORMATION field: a block, or an offset for a miscompare.
    pub information: Option<u32>,
    /// The wrong field.
    pub field: Option<Field>,
}

/// Length of sense data of the fixed format, in bytes.
const FIXED_BYTES: usize = 18;

/// The forms of sense data: the D_SENSE bit of the control mode page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SenseFormat {
    /// Fields at fixed places.
    #[default]
    Fixed,
    /// A list of descriptors.
    Descriptors,
}

impl Sense {
    /// An error without further information.
    pub const fn new(key: SenseKey, code: Code) -> Sense {
        Sense {
            key,
            code,
            information: None,
            field: None,
        }
    }

    /// ILLEGAL REQUEST.
    pub const fn illegal(code: Code) -> Sense {
        Sense::new(SenseKey::IllegalRequest, code)
    }

    /// INVALID FIELD IN CDB, at a byte.
    pub const fn in_cdb(byte: u16) -> Sense {
        Sense {
            field: Some(Field {
                in_cdb: true,
                byte,
                bit: None,
            }),
            ..Sense::illegal(codes::INVALID_FIELD_IN_CDB)
        }
    }

    /// INVALID FIELD IN CDB, at a bit of a byte.
    pub const fn bit_in_cdb(byte: u16, bit: u8) -> Sense {
        Sense {
            field: Some(Field {
                in_cdb: true,
                byte,
                bit: Some(bit),
            }),
            ..Sense::illegal(codes::INVALID_FIELD_IN_CDB)
        }
    }

    /// INVALID FIELD IN PARAMETER LIST, at a byte.
    pub fn in_parameters(byte: usize) -> Sense {
        Sense {
            field: u16::try_from(byte).ok().map(|byte| Field {
                in_cdb: false,
                byte,
                bit: None,
            }),
            ..Sense::illegal(codes::INVALID_FIELD_IN_PARAMETER_LIST)
        }
    }

    /// The same with the INFORMATION field.
    pub fn with_information(self, information: usize) -> Sense {
        Sense {
            information: Some(low_u32(information)),
            ..self
        }
    }

    /// The sense data of a format.
    pub fn bytes(&self, format: SenseFormat) -> Vec<u8> {
        match format {
            SenseFormat::Fixed => self.fixed().to_vec(),
            SenseFormat::Descriptors => self.descriptors(),
        }
    }

    /// Sense data of the fixed format (SPC-4, 4.5.3).
    fn fixed(&self) -> [u8; FIXED_BYTES] {
        let mut bytes = [0; FIXED_BYTES];
        bytes[0] = 0x70;
        if let Some(information) = self.information {
            bytes[0] |= 0x80;
            put(&mut bytes, 3, &information.to_be_bytes());
        }
        bytes[2] = self.key as u8;
        bytes[7] = 10;
        bytes[12] = self.code.0;
        bytes[13] = self.code.1;
        if let Some(field) = self.field {
            put(&mut bytes, 15, &field.bytes());
        }
        bytes
    }

    /// Sense data of the descriptor format (SPC-4, 4.5.2).
    fn descriptors(&self) -> Vec<u8> {
        let mut bytes = vec![0x72, self.key as u8, self.code.0, self.code.1, 0, 0, 0, 0];
        if let Some(information) = self.information {
            bytes.extend_from_slice(&[0, 10, 0x80, 0]);
            bytes.extend_from_slice(&u64::from(information).to_be_bytes());
        }
        if let Some(field) = self.field {
            bytes.extend_from_slice(&[2, 6, 0, 0]);
            bytes.extend_from_slice(&field.bytes());
            bytes.push(0);
        }
        bytes[7] = u8::try_from(bytes.len() - 8).expect("two descriptors are 20 bytes");
        bytes
    }
}

impl Field {
    /// The sense key specific bytes that point to it.
    fn bytes(self) -> [u8; 3] {
        let mut flags = 0x80;
        if self.in_cdb {
            flags |= 0x40;
        }
        if let Some(bit) = self.bit {
            flags |= 0x08 | (bit & 7);
        }
        let [high, low] = self.byte.to_be_bytes();
        [flags, high, low]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_sense_data_names_the_wrong_bit_and_the_place_of_a_miscompare() {
        let bytes = Sense::bit_in_cdb(1, 7).bytes(SenseFormat::Fixed);
        assert_eq!(bytes[..3], [0x70, 0, 5]);
        assert_eq!(bytes[12..], [0x24, 0, 0, 0xcf, 0, 1]);
        let miscompare = Sense::new(SenseKey::Miscompare, codes::MISCOMPARE_DURING_VERIFY);
        let bytes = miscompare
            .with_information(0x1234)
            .bytes(SenseFormat::Fixed);
        assert_eq!(bytes[..7], [0xf0, 0, 14, 0, 0, 0x12, 0x34]);
        let bytes = Sense::in_cdb(4).bytes(SenseFormat::Descriptors);
        let expected = [0x72, 5, 0x24, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0xc0, 0, 4, 0];
        assert_eq!(bytes, expected);
    }
}
