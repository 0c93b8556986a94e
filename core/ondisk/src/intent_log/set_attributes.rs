//! Records of attributes that were set, and the attributes beyond POSIX that records carry.

use super::encoding::{Bytes, domain_count, texts};
use crate::declare::{Corrupt, Reader, narrow};
use crate::fuid::Fuid;
use crate::nvlist::Text;
use crate::units::ObjectId;

/// Attributes beyond POSIX.
#[doc(alias("lr_attr_t", "lr_attr_end_t"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedExtended {
    /// Which are given, a bit for each.
    pub given: Vec<u32>,
    /// Those that are one bit each.
    pub bits: u64,
    /// Seconds and nanoseconds.
    pub creation_time: [u64; 2],
    /// A virus scanner's stamp, or in its first eight bytes a project.
    pub scan_stamp: [u8; 32],
}

/// Attributes that were set.
#[doc(alias = "lr_setattr_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedAttributes {
    /// The file.
    pub object: ObjectId,
    /// Which were set: [`mask`]s.
    pub mask: u64,
    /// Type and permissions.
    pub mode: u64,
    /// Its owner.
    pub owner: Fuid,
    /// Its group.
    pub group: Fuid,
    /// How many bytes it has.
    pub size: u64,
    /// Seconds and nanoseconds.
    pub access_time: [u64; 2],
    /// Seconds and nanoseconds.
    pub modification_time: [u64; 2],
    /// Attributes beyond POSIX.
    pub extended: Option<LoggedExtended>,
    /// The domains of owner and group.
    pub domains: Vec<Text>,
}

/// Which attributes were set, as Linux numbers them.
pub mod mask {
    /// The mode.
    pub const MODE: u64 = 0x1;
    /// The owner.
    pub const OWNER: u64 = 0x2;
    /// The group.
    pub const GROUP: u64 = 0x4;
    /// The size.
    pub const SIZE: u64 = 0x8;
    /// The access time.
    pub const ACCESS_TIME: u64 = 0x10;
    /// The modification time.
    pub const MODIFICATION_TIME: u64 = 0x20;
    /// The change time.
    pub const CHANGE_TIME: u64 = 0x40;
    /// Attributes beyond POSIX.
    #[doc(alias = "ATTR_XVATTR")]
    pub const EXTENDED: u64 = 1 << 31;
}

impl LoggedExtended {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<LoggedExtended, Corrupt> {
        let count = narrow(u64::from(reader.u32()?));
        let mut given = Vec::new();
        for _ in 0..count {
            given.push(reader.u32()?);
        }
        Ok(LoggedExtended {
            given,
            bits: reader.u64()?,
            creation_time: reader.value()?,
            scan_stamp: reader.array()?,
        })
    }

    pub(super) fn encode(&self, bytes: &mut Bytes) {
        let count = u32::try_from(self.given.len()).expect("there are a few attributes");
        bytes.0.extend(count.to_le_bytes());
        bytes
            .0
            .extend(self.given.iter().flat_map(|given| given.to_le_bytes()));
        bytes.u64(self.bits);
        bytes.two(self.creation_time);
        bytes.0.extend(self.scan_stamp);
    }
}

impl LoggedAttributes {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<LoggedAttributes, Corrupt> {
        let mut attributes = LoggedAttributes {
            object: reader.value()?,
            mask: reader.u64()?,
            mode: reader.u64()?,
            owner: Fuid::from_word(reader.u64()?),
            group: Fuid::from_word(reader.u64()?),
            size: reader.u64()?,
            access_time: reader.value()?,
            modification_time: reader.value()?,
            extended: None,
            domains: Vec::new(),
        };
        if attributes.mask & mask::EXTENDED != 0 {
            attributes.extended = Some(LoggedExtended::decode(reader)?);
        }
        let count = domain_count(attributes.owner, attributes.group);
        attributes.domains = texts(count, reader)?;
        Ok(attributes)
    }

    pub(super) fn encode(&self, bytes: &mut Bytes) {
        bytes.u64(self.object.get());
        bytes.u64(self.mask);
        bytes.u64(self.mode);
        bytes.u64(self.owner.word());
        bytes.u64(self.group.word());
        bytes.u64(self.size);
        bytes.two(self.access_time);
        bytes.two(self.modification_time);
        if let Some(extended) = &self.extended {
            extended.encode(bytes);
        }
        self.domains.iter().for_each(|domain| bytes.text(domain));
    }
}
