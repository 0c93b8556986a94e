//! Lies in streams: records that say something else, are missing, come twice or belong elsewhere,
//! under checksums that are right.
//!
//! # Mechanism
//! A stream is taken apart into its records and what follows each, changed, and put together again;
//! then all checksums are computed anew, so that the receiver believes what it reads, or are left
//! as they were. See [`tarn_ondisk::stream`] for the layout.

use tarn_host::sim::Random;
use tarn_ondisk::checksum::Checksum;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::stream::{CHECKSUM_OFFSET, RECORD_BYTES, Record};
use tarn_transform::checksum::ByteOrder as SumOrder;
use tarn_transform::checksum::fletcher::Fletcher4;

/// Codes of records that begin and end a stream; source: `include/sys/zfs_ioctl.h` of OpenZFS.
const BEGIN: u32 = 0;
const END: u32 = 5;
/// There are so many types of records.
const CODES: u64 = 12;
/// Where the fields of a record begin, and those of most records have ended.
const FIELDS: usize = 8;
const FIELDS_END: usize = 104;

/// A record and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    head: [u8; RECORD_BYTES],
    payload: Vec<u8>,
}

impl Piece {
    fn code(&self) -> u32 {
        u32::from_le_bytes([self.head[0], self.head[1], self.head[2], self.head[3]])
    }
}

/// The records of a stream; as many as can be told.
fn take_apart(stream: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = stream;
    while let Some((head, after)) = rest.split_first_chunk::<RECORD_BYTES>() {
        let length = Record::decode(head, ByteOrder::Little)
            .and_then(|framed| framed.record.payload_bytes());
        let Some(payload) = length.ok().and_then(|length| after.get(..length)) else {
            break;
        };
        pieces.push(Piece {
            head: *head,
            payload: payload.to_vec(),
        });
        rest = &after[payload.len()..];
    }
    pieces
}

/// Puts a stream together, with checksums that are right.
fn put_together(pieces: &[Piece]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut sum = Fletcher4::new();
    let mut is_open = false;
    for piece in pieces {
        let mut head = piece.head;
        match piece.code() {
            BEGIN => {
                sum = Fletcher4::new();
                is_open = true;
            }
            END if is_open => {
                let end = FIELDS + Checksum::SIZE;
                Checksum(sum.finish().0).write_to(&mut head[FIELDS..end]);
            }
            _ => {}
        }
        sum.update(&head[..CHECKSUM_OFFSET], SumOrder::Little);
        if is_open && piece.code() != BEGIN {
            Checksum(sum.finish().0).write_to(&mut head[CHECKSUM_OFFSET..]);
        }
        sum.update(&head[CHECKSUM_OFFSET..], SumOrder::Little);
        sum.update(&piece.payload, SumOrder::Little);
        stream.extend_from_slice(&head);
        stream.extend_from_slice(&piece.payload);
        is_open &= piece.code() != END;
    }
    stream
}

/// A stream with one record more, before the one of this index.
#[cfg(test)]
pub fn with_record(stream: &[u8], index: usize, record: &Record) -> Vec<u8> {
    let mut pieces = take_apart(stream);
    let piece = Piece {
        head: record.encode(),
        payload: Vec::new(),
    };
    pieces.insert(index, piece);
    put_together(&pieces)
}

/// A stream with lies in it, and what they are. Records of `other` may get into it.
pub fn tell(stream: &[u8], other: &[u8], random: &mut Random) -> (Vec<u8>, String) {
    let mut pieces = take_apart(stream);
    let mut told = Vec::new();
    for _ in 0..=random.index(4) {
        told.push(change(&mut pieces, &take_apart(other), random));
    }
    let mut bytes = match random.chance(7, 8) {
        true => put_together(&pieces),
        false => {
            told.push("checksums are as they were".to_string());
            let piece = |piece: Piece| [&piece.head[..], &piece.payload].concat();
            pieces.into_iter().flat_map(piece).collect()
        }
    };
    if random.chance(1, 8) && !bytes.is_empty() {
        bytes.truncate(random.index(bytes.len()));
        told.push(format!("cut after {} bytes", bytes.len()));
    }
    (bytes, told.join("; "))
}

fn change(pieces: &mut Vec<Piece>, others: &[Piece], random: &mut Random) -> String {
    if pieces.is_empty() {
        return "nothing is left".to_string();
    }
    let index = random.index(pieces.len());
    let what = match random.index(16) {
        0 => {
            pieces.remove(index);
            "is missing".to_string()
        }
        1 => {
            let again = pieces[index].clone();
            pieces.insert(random.index(pieces.len() + 1), again);
            "comes again".to_string()
        }
        2 => {
            let with = random.index(pieces.len());
            pieces.swap(index, with);
            format!("changes places with {with}")
        }
        3 if !others.is_empty() => {
            let stranger = others[random.index(others.len())].clone();
            pieces.insert(index, stranger);
            "follows one of another stream".to_string()
        }
        4 => {
            let code = u32::try_from(random.below(CODES + 2)).unwrap_or(u32::MAX);
            pieces[index].head[..4].copy_from_slice(&code.to_le_bytes());
            format!("says that it is a {code}")
        }
        5 => {
            let length = random.index(pieces[index].payload.len() * 2 + 64);
            pieces[index].payload.resize(length, 0x5a);
            format!("is followed by {length} bytes")
        }
        6..=8 if !pieces[index].payload.is_empty() => {
            let payload = &mut pieces[index].payload;
            let count = 1 + random.index(8);
            for _ in 0..count {
                let at = random.index(payload.len());
                payload[at] = lied_byte(payload[at], random);
            }
            format!("is followed by {count} other bytes")
        }
        9 => {
            let at = random.index(RECORD_BYTES);
            let head = &mut pieces[index].head;
            head[at] = lied_byte(head[at], random);
            format!("has another byte {at}")
        }
        _ => say_otherwise(pieces, index, random),
    };
    format!("record {index} {what}")
}

fn lied_byte(byte: u8, random: &mut Random) -> u8 {
    match random.index(4) {
        0 => 0,
        1 => 0xff,
        2 => byte ^ (1 << random.index(8)),
        _ => byte
            .wrapping_add(u8::from(random.chance(1, 2)))
            .wrapping_sub(1),
    }
}

/// A field says something else.
fn say_otherwise(pieces: &mut [Piece], index: usize, random: &mut Random) -> String {
    let width = [1, 4, 8][random.index(3)];
    let words = (FIELDS_END - FIELDS) / width;
    let at = FIELDS + random.index(words) * width;
    let of = |piece: &Piece| {
        let mut word = [0; 8];
        word[..width].copy_from_slice(&piece.head[at..at + width]);
        u64::from_le_bytes(word)
    };
    let old = of(&pieces[index]);
    let new = match random.index(8) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ (1 << random.index(64)),
        5 => of(&pieces[random.index(pieces.len())]),
        6 => random.magnitude(u64::MAX),
        _ => random.draw(),
    };
    pieces[index].head[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    format!("says {new:#x} at {at}, where it said {old:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::stream::FreeRecord;

    /// A stream of two records, as a sender would write it but for its checksums.
    fn stream() -> Vec<u8> {
        let mut begin = Piece {
            head: [0; RECORD_BYTES],
            payload: b"described".to_vec(),
        };
        begin.head[4] = 9;
        let free = Record::Free(FreeRecord {
            object: 3,
            offset: 0,
            length: 512,
            to_guid: 7,
        });
        let mut end = [0; RECORD_BYTES];
        end[0] = 5;
        let pieces = [
            begin,
            Piece {
                head: free.encode(),
                payload: Vec::new(),
            },
            Piece {
                head: end,
                payload: Vec::new(),
            },
        ];
        put_together(&pieces)
    }

    #[test]
    fn a_stream_is_what_it_was_when_it_is_put_together_again() {
        let stream = stream();
        let pieces = take_apart(&stream);
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[0].payload, b"described");
        assert_eq!(put_together(&pieces), stream);
        assert_ne!(pieces[1].head[CHECKSUM_OFFSET..], [0; 32]);
        assert_ne!(pieces[2].head[8..40], [0; 32]);
    }

    #[test]
    fn lies_change_a_stream_and_follow_from_the_seed() {
        let stream = stream();
        let lies = |seed| tell(&stream, &stream, &mut Random::new(seed));
        let changed = (0..200).filter(|seed| lies(*seed).0 != stream).count();
        assert!(changed > 180, "{changed}");
        assert!((0..200).all(|seed| lies(seed) == lies(seed)));
    }
}
