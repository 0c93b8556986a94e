//! Send streams: what one pool says to another so that it makes the same snapshot.
//!
//! # Mechanism
//! A stream is a row of records of 312 bytes, each followed by its payload:
//!
//! ```text
//!   | begin | object | bonus | free | write | data | … | end |
//!
//!   record:   0      4         8                         280        312
//!            +------+---------+--------------------------+----------+
//!            | type | payload | fields of its type       | checksum |
//!            +------+---------+--------------------------+----------+
//! ```
//!
//! The *checksum* is fletcher4 of everything before it, from the first byte of the stream. Only the
//! first record has none: its name takes that place. The last record repeats, among its fields, the
//! checksum of all before it.
//!
//! A stream of several snapshots (`send -R`, `-I`, `-p`) is a *compound*: a begin whose payload is
//! a name-value list that describes them, its end, then one plain stream per snapshot, then an end
//! with a checksum of zeros.
//!
//! Numbers are in the byte order of the sender, which the magic number of the first record tells.
//!
//! # Invariants
//! - A record that OpenZFS wrote encodes to the same bytes again.
//! - Decoding takes a record's fields as they are; whether they are sensible is for `stream` to
//!   decide. Only what says how many bytes follow is checked here ([`Record::payload_bytes`]).
//!
//! # Knows nothing about
//! Checksum functions, and what is done with the records.

use crate::checksum::Checksum;
use crate::compression::Compression;
use crate::declare::{
    ByteOrder, Corrupt, Reader, Reserved, Stored, Writer, bits, widen, with_bits,
};
use crate::dedup::DedupKey;
use crate::on_disk;
use crate::sealing::Sealing;
use std::fmt;

/// The size of a record, without its payload.
pub const RECORD_BYTES: usize = 312;

/// Where the checksum begins in a record.
pub const CHECKSUM_OFFSET: usize = RECORD_BYTES - Checksum::SIZE;

/// What the first record begins with, after its type.
#[doc(alias = "DMU_BACKUP_MAGIC")]
pub const MAGIC: u64 = 0x2_f5ba_cbac;

/// Where the magic number is in the first record.
const MAGIC_OFFSET: usize = 8;

/// The highest payload that any record may have: the largest block.
pub const PAYLOAD_BYTES_MAX: u64 = 16 << 20;

const WHAT: &str = "send stream record";

/// An end of range that means all there is.
#[doc(alias = "DMU_OBJECT_END")]
pub const TO_OBJECT_END: u64 = u64::MAX;

/// What a receiver must know to understand a stream, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct StreamFeatures(pub u64);

/// Names of the features, by bit; source: `include/sys/zfs_ioctl.h` of OpenZFS.
const FEATURE_NAMES: &[(StreamFeatures, &str)] = &[
    (StreamFeatures::DEDUP, "dedup"),
    (StreamFeatures::DEDUP_PROPERTIES, "dedupprops"),
    (StreamFeatures::SPILL, "sa_spill"),
    (StreamFeatures::EMBEDDED, "embed_data"),
    (StreamFeatures::LZ4, "lz4"),
    (StreamFeatures::LARGE_BLOCKS, "large_blocks"),
    (StreamFeatures::RESUMING, "resuming"),
    (StreamFeatures::REDACTED, "redacted"),
    (StreamFeatures::COMPRESSED, "compressed"),
    (StreamFeatures::LARGE_DNODES, "large_dnode"),
    (StreamFeatures::RAW, "raw"),
    (StreamFeatures::ZSTD, "zstd"),
    (StreamFeatures::HOLDS, "holds"),
    (
        StreamFeatures::SWITCH_TO_LARGE_BLOCKS,
        "switch_to_large_blocks",
    ),
    (StreamFeatures::LONG_NAMES, "longname"),
    (StreamFeatures::LARGE_MICROZAPS, "large_microzap"),
];

impl StreamFeatures {
    /// Blocks are left out that the stream had before. No version of OpenZFS since 2.0 receives
    /// such streams.
    pub const DEDUP: StreamFeatures = StreamFeatures(1 << 0);
    /// The same, with the properties of blocks.
    pub const DEDUP_PROPERTIES: StreamFeatures = StreamFeatures(1 << 1);
    /// Objects may have spill blocks.
    pub const SPILL: StreamFeatures = StreamFeatures(1 << 2);
    /// Embedded blocks come as they are.
    pub const EMBEDDED: StreamFeatures = StreamFeatures(1 << 16);
    /// Blocks that come as they are stored may be compressed with LZ4.
    pub const LZ4: StreamFeatures = StreamFeatures(1 << 17);
    /// Blocks may be larger than 128 KiB.
    pub const LARGE_BLOCKS: StreamFeatures = StreamFeatures(1 << 19);
    /// The stream goes on where another one broke off.
    pub const RESUMING: StreamFeatures = StreamFeatures(1 << 20);
    /// Some contents are left out on purpose.
    pub const REDACTED: StreamFeatures = StreamFeatures(1 << 21);
    /// Blocks come as they are stored.
    pub const COMPRESSED: StreamFeatures = StreamFeatures(1 << 22);
    /// Dnodes may take several slots.
    pub const LARGE_DNODES: StreamFeatures = StreamFeatures(1 << 23);
    /// Everything comes encrypted, as it is stored.
    pub const RAW: StreamFeatures = StreamFeatures(1 << 24);
    /// Blocks that come as they are stored may be compressed with zstd.
    pub const ZSTD: StreamFeatures = StreamFeatures(1 << 25);
    /// The description has the holds of snapshots.
    pub const HOLDS: StreamFeatures = StreamFeatures(1 << 26);
    /// Large blocks may follow upon streams that had none.
    pub const SWITCH_TO_LARGE_BLOCKS: StreamFeatures = StreamFeatures(1 << 27);
    /// Names may be longer than 255 bytes.
    pub const LONG_NAMES: StreamFeatures = StreamFeatures(1 << 28);
    /// Micro ZAPs may be larger than 128 KiB.
    pub const LARGE_MICROZAPS: StreamFeatures = StreamFeatures(1 << 29);

    /// No feature.
    pub const NONE: StreamFeatures = StreamFeatures(0);

    /// True when all bits of `other` are set.
    pub const fn has(self, other: StreamFeatures) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other` too.
    #[must_use]
    pub const fn with(self, other: StreamFeatures) -> StreamFeatures {
        StreamFeatures(self.0 | other.0)
    }

    /// Without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: StreamFeatures) -> StreamFeatures {
        StreamFeatures(self.0 & !other.0)
    }
}

/// The names of the features, with commas between them.
impl fmt::Display for StreamFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut rest = *self;
        for (feature, name) in FEATURE_NAMES {
            if self.has(*feature) {
                write!(f, "{separator}{name}")?;
                separator = ",";
                rest = rest.without(*feature);
            }
        }
        if rest != StreamFeatures::NONE {
            write!(f, "{separator}{:#x}", rest.0)?;
        }
        Ok(())
    }
}

/// The bits of [`Begin::flags`].
pub mod begin_flags {
    /// The snapshot is the first of a clone, and the stream begins at its origin.
    #[doc(alias = "DRR_FLAG_CLONE")]
    pub const CLONE: u32 = 1 << 0;
    /// Names are not told apart by case.
    #[doc(alias = "DRR_FLAG_CI_DATA")]
    pub const CASE_INSENSITIVE: u32 = 1 << 1;
    /// A full stream says what is free, so that it can be received as a clone.
    #[doc(alias = "DRR_FLAG_FREERECORDS")]
    pub const FREE_RECORDS: u32 = 1 << 2;
    /// Objects and spill blocks say whether there is a spill block
    /// ([`record_flags`](super::record_flags)).
    #[doc(alias = "DRR_FLAG_SPILL_BLOCK")]
    pub const SPILL_BLOCK: u32 = 1 << 3;
}

/// The bits of the flags of other records.
pub mod record_flags {
    /// The checksum in the key is strong enough to tell blocks apart.
    #[doc(alias = "DRR_CHECKSUM_DEDUP")]
    pub const STRONG_CHECKSUM: u8 = 1 << 0;
    /// The raw contents are in the other byte order.
    #[doc(alias = "DRR_RAW_BYTESWAP")]
    pub const OTHER_BYTE_ORDER: u8 = 1 << 1;
    /// The object has a spill block.
    #[doc(alias = "DRR_OBJECT_SPILL")]
    pub const HAS_SPILL: u8 = 1 << 2;
    /// This spill block is not new: it is there for old receivers.
    #[doc(alias = "DRR_SPILL_UNMODIFIED")]
    pub const UNCHANGED_SPILL: u8 = 1 << 2;
}

/// What sort of stream a [`Begin`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// One snapshot.
    #[doc(alias = "DMU_SUBSTREAM")]
    Single,
    /// A description and several snapshots.
    #[doc(alias = "DMU_COMPOUNDSTREAM")]
    Compound,
    /// A kind this program does not know.
    Unknown(u64),
}

on_disk! {
    /// The name of a snapshot or file system, filled up with zeros.
    #[derive(Copy)]
    pub struct StreamName [256 bytes] {
        0 => bytes: Reserved<256>,
    }
}

impl StreamName {
    /// From a name; none where it is too long: 255 bytes are the most.
    pub fn new(name: &str) -> Option<StreamName> {
        let mut bytes = [0; 256];
        let room = bytes
            .get_mut(..name.len())
            .filter(|room| room.len() < 256)?;
        room.copy_from_slice(name.as_bytes());
        Some(StreamName {
            bytes: Reserved(bytes),
        })
    }

    /// The bytes up to the first zero.
    pub fn as_bytes(&self) -> &[u8] {
        let bytes = &self.bytes.0;
        let end = bytes.iter().position(|&byte| byte == 0);
        &bytes[..end.unwrap_or(bytes.len())]
    }

    /// The name, where it is text.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }
}

on_disk! {
    /// The first record: what the stream is.
    #[doc(alias = "drr_begin")]
    pub struct Begin [304 bytes] {
        0  => magic: u64,
        /// See the methods.
        8  => version: u64,
        /// When the snapshot was taken: seconds since 1970, UTC.
        16 => creation_time_s: u64,
        /// The stored code of an [`ObjsetType`](crate::objset::ObjsetType).
        24 => objset_type: u32,
        /// See [`begin_flags`].
        28 => flags: u32,
        /// Which snapshot comes out.
        32 => to_guid: u64,
        /// Which one it goes on from; zero for a full stream.
        40 => from_guid: u64,
        /// The snapshot's full name at the sender.
        48 => to_name: StreamName,
    }
}

/// ```text
///   63     58 57                                 2 1    0
///  +---------+------------------------------------+------+
///  |    0    |              features              | kind |
///  +---------+------------------------------------+------+
/// ```
impl Begin {
    /// What sort of stream follows.
    pub fn kind(&self) -> StreamKind {
        match bits(self.version, 0, 2) {
            1 => StreamKind::Single,
            2 => StreamKind::Compound,
            other => StreamKind::Unknown(other),
        }
    }

    /// What the receiver must know.
    pub fn features(&self) -> StreamFeatures {
        StreamFeatures(bits(self.version, 2, 56))
    }

    /// The version word for a stream.
    ///
    /// # Panics
    /// For a kind that is not known.
    pub fn version_of(kind: StreamKind, features: StreamFeatures) -> u64 {
        let kind = match kind {
            StreamKind::Single => 1,
            StreamKind::Compound => 2,
            StreamKind::Unknown(_) => panic!("a stream is begun with a known kind"),
        };
        with_bits(kind, 2, 56, features.0)
    }
}

on_disk! {
    /// The last record.
    #[doc(alias = "drr_end")]
    #[derive(Copy, Default)]
    pub struct End [40 bytes] {
        /// Of all that came before.
        0  => checksum: Checksum,
        32 => to_guid: u64,
    }
}

on_disk! {
    /// An object, which may be new, changed or the same. Its bonus follows.
    #[doc(alias = "drr_object")]
    #[derive(Copy, Default)]
    pub struct ObjectRecord [56 bytes] {
        0  => object: u64,
        8  => object_type: u32,
        12 => bonus_type: u32,
        16 => block_size: u32,
        20 => bonus_bytes: u32,
        24 => checksum_type: u8,
        25 => compression: u8,
        /// How many slots the dnode takes; zero, from old senders, for one.
        26 => slots: u8,
        /// See [`record_flags`].
        27 => flags: u8,
        /// In raw streams: how many bytes follow.
        28 => raw_bonus_bytes: u32,
        32 => to_guid: u64,
        /// In raw streams, like the next three.
        40 => indirect_shift: u8,
        41 => levels: u8,
        42 => pointer_count: u8,
        43 => pad: Reserved<5>,
        48 => max_block: u64,
    }
}

on_disk! {
    /// Numbers that are no objects.
    #[doc(alias = "drr_freeobjects")]
    #[derive(Copy, Default)]
    pub struct FreeObjects [24 bytes] {
        0  => first_object: u64,
        8  => count: u64,
        16 => to_guid: u64,
    }
}

on_disk! {
    /// Contents of an object, which follow.
    #[doc(alias = "drr_write")]
    #[derive(Copy, Default)]
    pub struct WriteRecord [132 bytes] {
        0  => object: u64,
        8  => object_type: u32,
        12 => pad: Reserved<4>,
        16 => offset: u64,
        24 => logical_size: u64,
        32 => to_guid: u64,
        /// The stored code of a [`ChecksumKind`](crate::checksum::ChecksumKind): of the key.
        40 => checksum_type: u8,
        /// See [`record_flags`].
        41 => flags: u8,
        /// Zero for contents that are plain.
        42 => compression: u8,
        43 => pad_2: Reserved<5>,
        48 => key: DedupKey,
        /// How many bytes follow, when they are compressed.
        88 => compressed_size: u64,
        /// In raw streams.
        96 => sealing: Sealing,
    }
}

on_disk! {
    /// A range that is a hole.
    #[doc(alias = "drr_free")]
    #[derive(Copy, Default)]
    pub struct FreeRecord [32 bytes] {
        0  => object: u64,
        8  => offset: u64,
        /// [`TO_OBJECT_END`] for all there is.
        16 => length: u64,
        24 => to_guid: u64,
    }
}

on_disk! {
    /// Contents that the stream had before. No longer received.
    #[doc(alias = "drr_write_byref")]
    #[derive(Copy, Default)]
    pub struct WriteByReference [104 bytes] {
        0  => object: u64,
        8  => offset: u64,
        16 => length: u64,
        24 => to_guid: u64,
        32 => reference_guid: u64,
        40 => reference_object: u64,
        48 => reference_offset: u64,
        56 => checksum_type: u8,
        57 => flags: u8,
        58 => pad: Reserved<6>,
        64 => key: DedupKey,
    }
}

on_disk! {
    /// A spill block, which follows.
    #[doc(alias = "drr_spill")]
    #[derive(Copy, Default)]
    pub struct SpillRecord [80 bytes] {
        0  => object: u64,
        8  => length: u64,
        16 => to_guid: u64,
        /// See [`record_flags`].
        24 => flags: u8,
        25 => compression: u8,
        26 => pad: Reserved<6>,
        /// In raw streams, like the next two.
        32 => compressed_size: u64,
        40 => sealing: Sealing,
        76 => object_type: u32,
    }
}

on_disk! {
    /// A block that was embedded in its pointer; what was there follows, filled up to a multiple of
    /// eight bytes.
    #[doc(alias = "drr_write_embedded")]
    #[derive(Copy, Default)]
    pub struct WriteEmbedded [48 bytes] {
        0  => object: u64,
        8  => offset: u64,
        /// The size of the block.
        16 => length: u64,
        24 => to_guid: u64,
        32 => compression: u8,
        /// The stored code of an [`EmbeddedType`](crate::embedded::EmbeddedType).
        33 => embedded_type: u8,
        34 => pad: Reserved<6>,
        40 => logical_size: u32,
        44 => physical_size: u32,
    }
}

on_disk! {
    /// In raw streams: a block of dnodes.
    #[doc(alias = "drr_object_range")]
    #[derive(Copy, Default)]
    pub struct ObjectRange [64 bytes] {
        0  => first_object: u64,
        8  => slots: u64,
        16 => to_guid: u64,
        24 => sealing: Sealing,
        /// See [`record_flags`].
        60 => flags: u8,
        61 => pad: Reserved<3>,
    }
}

/// A record, without its payload and checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The first.
    Begin {
        /// Its fields.
        begin: Box<Begin>,
        /// How many bytes of name-value list follow.
        payload_bytes: u32,
    },
    /// An object.
    Object(ObjectRecord),
    /// Numbers that are no objects.
    FreeObjects(FreeObjects),
    /// Contents.
    Write(WriteRecord),
    /// A hole.
    Free(FreeRecord),
    /// The last.
    End(End),
    /// Contents that came before.
    WriteByReference(WriteByReference),
    /// A spill block.
    Spill(SpillRecord),
    /// An embedded block.
    WriteEmbedded(WriteEmbedded),
    /// Dnodes of a raw stream.
    ObjectRange(ObjectRange),
    /// A range that was left out on purpose.
    Redact(FreeRecord),
}

macro_rules! codes {
    ($($code:literal $variant:ident $fields:ty,)*) => {
        impl Record {
            /// Takes the fields of a record of any type but the first.
            fn of_code(code: u32, reader: &mut Reader<'_>) -> Result<Record, Corrupt> {
                match code {
                    $($code => <$fields>::decode(reader).map(Record::$variant),)*
                    other => Err(Corrupt::Value {
                        what: WHAT,
                        field: "type",
                        offset: 0,
                        found: u64::from(other),
                    }),
                }
            }

            /// The stored type.
            fn code(&self) -> u32 {
                match self {
                    Record::Begin { .. } => 0,
                    $(Record::$variant(_) => $code,)*
                }
            }

            fn encode_fields(&self, writer: &mut Writer<'_>) {
                match self {
                    Record::Begin { begin, .. } => begin.encode(writer),
                    $(Record::$variant(fields) => fields.encode(writer),)*
                }
            }
        }
    };
}

codes! {
    1 Object ObjectRecord,
    2 FreeObjects FreeObjects,
    3 Write WriteRecord,
    4 Free FreeRecord,
    5 End End,
    6 WriteByReference WriteByReference,
    7 Spill SpillRecord,
    8 WriteEmbedded WriteEmbedded,
    9 ObjectRange ObjectRange,
    10 Redact FreeRecord,
}

/// A record as it came, with its checksum; of the first record that is part of the name, and means
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Framed {
    /// What it says.
    pub record: Record,
    /// Of everything before it in the stream.
    pub checksum: Checksum,
}

/// The byte order of a stream that begins with this record.
///
/// # Errors
/// When it is not the first record of a stream, in either order.
pub fn order_of(record: &[u8; RECORD_BYTES]) -> Result<ByteOrder, Corrupt> {
    let magic = &record[MAGIC_OFFSET..MAGIC_OFFSET + 8];
    ByteOrder::of_magic(magic, MAGIC).ok_or_else(|| Corrupt::Magic {
        what: "send stream",
        offset: widen(MAGIC_OFFSET),
        found: magic
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte)),
        expected: MAGIC,
    })
}

impl Record {
    /// Takes a record apart.
    ///
    /// # Errors
    /// When its type is none that exists.
    pub fn decode(bytes: &[u8; RECORD_BYTES], order: ByteOrder) -> Result<Framed, Corrupt> {
        let mut reader = Reader::new(WHAT, bytes, order);
        let (code, payload_bytes) = (reader.u32()?, reader.u32()?);
        let record = match code {
            0 => Record::Begin {
                begin: Box::new(Begin::decode(&mut reader)?),
                payload_bytes,
            },
            other => Record::of_code(other, &mut reader)?,
        };
        let checksum = Checksum::from_bytes(&bytes[CHECKSUM_OFFSET..], order)?;
        Ok(Framed { record, checksum })
    }

    /// The record's bytes, with zeros for its checksum.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.u32(self.code());
        writer.u32(match self {
            Record::Begin { payload_bytes, .. } => *payload_bytes,
            _ => 0,
        });
        self.encode_fields(&mut writer);
        bytes
    }

    /// How many bytes follow it.
    ///
    /// # Errors
    /// When it claims more than [`PAYLOAD_BYTES_MAX`], or a description larger than that.
    pub fn payload_bytes(&self) -> Result<usize, Corrupt> {
        let (field, count) = match self {
            Record::Begin { payload_bytes, .. } => ("payload length", u64::from(*payload_bytes)),
            Record::Object(object) => match object.raw_bonus_bytes {
                0 => (
                    "bonus length",
                    u64::from(object.bonus_bytes).next_multiple_of(8),
                ),
                raw => ("raw bonus length", u64::from(raw)),
            },
            Record::Write(write) if write.compression == 0 => ("logical size", write.logical_size),
            Record::Write(write) => ("compressed size", write.compressed_size),
            Record::Spill(spill) => match spill.compressed_size {
                0 => ("length", spill.length),
                compressed => ("compressed size", compressed),
            },
            Record::WriteEmbedded(write) => (
                "physical size",
                u64::from(write.physical_size).next_multiple_of(8),
            ),
            Record::FreeObjects(_)
            | Record::Free(_)
            | Record::End(_)
            | Record::WriteByReference(_)
            | Record::ObjectRange(_)
            | Record::Redact(_) => return Ok(0),
        };
        match usize::try_from(count) {
            Ok(bytes) if count <= PAYLOAD_BYTES_MAX => Ok(bytes),
            _ => Err(Corrupt::Value {
                what: WHAT,
                field,
                offset: 0,
                found: count,
            }),
        }
    }

    /// The snapshot it says it belongs to.
    pub fn to_guid(&self) -> u64 {
        match self {
            Record::Begin { begin, .. } => begin.to_guid,
            Record::Object(record) => record.to_guid,
            Record::FreeObjects(record) => record.to_guid,
            Record::Write(record) => record.to_guid,
            Record::Free(record) | Record::Redact(record) => record.to_guid,
            Record::End(record) => record.to_guid,
            Record::WriteByReference(record) => record.to_guid,
            Record::Spill(record) => record.to_guid,
            Record::WriteEmbedded(record) => record.to_guid,
            Record::ObjectRange(record) => record.to_guid,
        }
    }
}

impl WriteRecord {
    /// How the contents that follow are compressed.
    pub fn compression(&self) -> Compression {
        Compression::from_code(self.compression)
    }
}
