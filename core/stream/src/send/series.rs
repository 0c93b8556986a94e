//! The header and the end of a package of streams.
//!
//! # Mechanism
//! A record with a name-value list comes first; then its end record, with the checksum of both.
//! After the streams of the snapshots, each complete in itself, comes one more end record, of
//! zeros.

use std::io::Write;
use tarn_ondisk::checksum::Checksum;
use tarn_ondisk::stream::{
    Begin, CHECKSUM_OFFSET, End, MAGIC, Record, StreamFeatures, StreamKind, StreamName,
};
use tarn_transform::checksum::ByteOrder;
use tarn_transform::checksum::fletcher::Fletcher4;

use super::SendError;

/// Writes the package list. `name` is the full name of the last snapshot.
///
/// # Errors
/// The stream cannot be written, or the name is too long.
///
/// # Panics
/// The list has 4 GiB or more.
#[doc(alias = "send_prelim_records")]
pub fn write_description<W: Write>(
    out: &mut W,
    name: &str,
    features: StreamFeatures,
    description: &[u8],
) -> Result<(), SendError> {
    let begin = Record::Begin {
        begin: Box::new(Begin {
            magic: MAGIC,
            version: Begin::version_of(StreamKind::Compound, features),
            creation_time_s: 0,
            objset_type: 0,
            flags: 0,
            to_guid: 0,
            from_guid: 0,
            to_name: StreamName::new(name).ok_or(SendError::NameTooLong)?,
        }),
        payload_bytes: u32::try_from(description.len()).expect("a list of less than 4 GiB"),
    };
    let bytes = begin.encode();
    let mut sum = Fletcher4::new();
    sum.update(&bytes[..CHECKSUM_OFFSET], ByteOrder::Little);
    sum.update(&bytes[CHECKSUM_OFFSET..], ByteOrder::Little);
    sum.update(description, ByteOrder::Little);
    let end = Record::End(End {
        checksum: Checksum(sum.finish().0),
        to_guid: 0,
    });
    for part in [&bytes[..], description, &end.encode()] {
        out.write_all(part).map_err(SendError::Pipe)?;
    }
    Ok(())
}

/// Writes the end of a package.
///
/// # Errors
/// The stream cannot be written.
#[doc(alias = "send_conclusion_record")]
pub fn write_conclusion<W: Write>(out: &mut W) -> Result<(), SendError> {
    let end = Record::End(End::default()).encode();
    out.write_all(&end).map_err(SendError::Pipe)
}
