//! What all log records have: type, length, txg and sequence number.

use super::LoggedChange;
use super::change::WHAT;
use super::encoding::Bytes;
use crate::declare::{ByteOrder, Corrupt, Reader, Stored, narrow, widen};
use crate::units::Txg;

/// The size of the header of each record.
const RECORD_HEADER_SIZE: usize = 32;
/// In the type of a record: names were looked up without regard to case.
#[doc(alias = "TX_CI")]
const CASE_INSENSITIVE: u64 = 1 << 63;

/// A record of the intent log.
#[doc(alias = "lr_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// The txg in which it is stored for good.
    pub txg: Txg,
    /// Its place in the order of all records of the log.
    pub sequence: u64,
    /// Names were looked up without regard to case.
    pub case_insensitive: bool,
    /// The logged change.
    pub change: LoggedChange,
}

impl LogRecord {
    /// Decodes the record at the start of `bytes`, and gives its length.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<(LogRecord, usize), Corrupt> {
        let mut header = Reader::new(WHAT, bytes, order);
        let type_word = header.u64()?;
        let length_word = header.u64()?;
        let txg = Txg::from(header.u64()?);
        let sequence = header.u64()?;
        let length = narrow(length_word);
        let whole = bytes
            .get(..length)
            .filter(|whole| whole.len() >= RECORD_HEADER_SIZE);
        let Some(whole) = whole.filter(|whole| whole.len().is_multiple_of(8)) else {
            return Err(Corrupt::Value {
                what: WHAT,
                field: "length",
                offset: 8,
                found: length_word,
            });
        };
        let mut reader = Reader::new(WHAT, whole, order);
        reader.skip(RECORD_HEADER_SIZE)?;
        let change = LoggedChange::decode(type_word & !CASE_INSENSITIVE, &mut reader)?;
        let case_insensitive = type_word & CASE_INSENSITIVE != 0;
        Ok((
            LogRecord {
                txg,
                sequence,
                case_insensitive,
                change,
            },
            length,
        ))
    }

    /// Encodes the record, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Bytes(vec![0; RECORD_HEADER_SIZE]);
        self.change.encode(&mut bytes);
        bytes.pad();
        let Bytes(mut bytes) = bytes;
        let ci = if self.case_insensitive {
            CASE_INSENSITIVE
        } else {
            0
        };
        let header = [
            self.change.number() | ci,
            widen(bytes.len()),
            self.txg.get(),
            self.sequence,
        ];
        header.write_to(&mut bytes);
        assert!(
            bytes.len().is_multiple_of(8),
            "records are multiples of eight bytes"
        );
        debug_assert_eq!(
            LogRecord::decode(&bytes, ByteOrder::Little).as_ref(),
            Ok(&(self.clone(), bytes.len())),
            "a record reads back as it was written"
        );
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent_log::samples::{everything, record};
    use crate::nvlist::Text;
    use crate::units::ObjectId;

    #[test]
    fn every_type_survives_being_stored() {
        let mut numbers = std::collections::BTreeSet::new();
        for change in everything() {
            numbers.insert(change.number());
            let record = record(change);
            let bytes = record.encode();
            assert_eq!(bytes.len() % 8, 0);
            assert_eq!(
                LogRecord::decode(&bytes, ByteOrder::Little),
                Ok((record, bytes.len()))
            );
        }
        assert_eq!(
            numbers.into_iter().collect::<Vec<_>>(),
            (1..=24).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_record_of_the_other_byte_order_decodes() {
        let change = LoggedChange::Remove {
            directory: ObjectId::new(34),
            name: Text::from("n"),
        };
        let mut bytes = record(change.clone()).encode();
        for word in bytes[..40].as_chunks_mut::<8>().0 {
            word.reverse();
        }
        let (read, _) = LogRecord::decode(&bytes, ByteOrder::Big).expect("both are read");
        assert_eq!(read.change, change);
    }
}
