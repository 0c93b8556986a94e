//! What a volume holds, read out of a stream of it.
//!
//! A pool may be compared where nothing makes a block device of a volume. `zfs send` reads all of
//! it, and what it prints is a simple thing for a plain full stream: records of 312 bytes, some of
//! them followed by contents. This is the smallest reader of it, with nothing of the program that
//! is judged.

use std::io::Read;

/// Every record is as large.
const RECORD_BYTES: usize = 312;

/// A volume's bytes are in its object of this number.
const DATA_OBJECT: u64 = 1;

/// The numbers of the kinds of records (`sys/zfs_ioctl.h`, `dmu_replay_record_t`).
mod kind {
    pub const BEGIN: u32 = 0;
    pub const OBJECT: u32 = 1;
    pub const FREE_OBJECTS: u32 = 2;
    pub const WRITE: u32 = 3;
    pub const FREE: u32 = 4;
    pub const END: u32 = 5;
}

/// The bytes of a volume of this size, whose plain full stream this is. What the stream does not
/// have is zero.
///
/// # Errors
/// What kept it from being read.
pub fn contents(stream: &mut dyn Read, size: usize) -> Result<Vec<u8>, String> {
    let mut contents = vec![0; size];
    let mut record = [0; RECORD_BYTES];
    let mut read = |bytes: &mut [u8]| {
        stream
            .read_exact(bytes)
            .map_err(|error| format!("the stream of a volume: {error}"))
    };
    loop {
        read(&mut record)?;
        let follows = match word32(&record, 0) {
            kind::BEGIN => u64::from(word32(&record, 4)),
            kind::OBJECT => u64::from(word32(&record, 28)).next_multiple_of(8),
            kind::FREE_OBJECTS | kind::FREE => 0,
            kind::WRITE if record[50] != 0 => return Err("contents are compressed".to_owned()),
            kind::WRITE => word64(&record, 32),
            kind::END => return Ok(contents),
            other => {
                return Err(format!(
                    "a record of kind {other} in the stream of a volume"
                ));
            }
        };
        let mut payload = vec![0; to_usize(follows)?];
        read(&mut payload)?;
        if word32(&record, 0) == kind::WRITE && word64(&record, 8) == DATA_OBJECT {
            let start = to_usize(word64(&record, 24))?;
            let place = contents.get_mut(start..start.saturating_add(payload.len()));
            let place = place.ok_or("contents beyond the volume's end")?;
            place.copy_from_slice(&payload);
        }
    }
}

fn to_usize(number: u64) -> Result<usize, String> {
    usize::try_from(number).map_err(|error| error.to_string())
}

fn word32(record: &[u8; RECORD_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"))
}

fn word64(record: &[u8; RECORD_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[(usize, u64)]) -> Vec<u8> {
        let mut record = vec![0; RECORD_BYTES];
        record[..4].copy_from_slice(&kind.to_le_bytes());
        for (at, word) in words {
            record[*at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        record
    }

    fn write(object: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
        let length = u64::try_from(bytes.len()).unwrap();
        let mut write = record(kind::WRITE, &[(8, object), (24, offset), (32, length)]);
        write.extend(bytes);
        write
    }

    #[test]
    fn what_is_written_is_where_it_belongs_and_the_rest_is_zero() {
        let object = record(kind::OBJECT, &[(8, 1), (28, 3)]);
        let stream = [
            record(kind::BEGIN, &[]),
            [object, vec![7; 8]].concat(),
            write(2, 0, b"another object"),
            write(1, 4, b"four"),
            record(kind::FREE, &[(8, 1), (16, 8)]),
            record(kind::END, &[]),
        ];
        let read = contents(&mut &stream.concat()[..], 10).unwrap();
        assert_eq!(read, b"\0\0\0\0four\0\0");
    }

    #[test]
    fn what_cannot_be_is_said() {
        let outside = write(1, 8, b"four");
        assert!(contents(&mut &outside[..], 10).unwrap_err().contains("end"));
        let mut compressed = write(1, 0, b"four");
        compressed[50] = 15;
        assert!(contents(&mut &compressed[..], 10).is_err());
        assert!(contents(&mut &[][..], 10).is_err());
    }
}
