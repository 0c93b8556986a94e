//! Log blocks: the chain that joins them, and the records in between.

use super::LogRecord;
use crate::block_pointer::BlockPointer;
use crate::checksum::{ChecksumKind, EmbeddedChecksum};
use crate::declare::{ByteOrder, Corrupt, Reader, Stored, narrow, widen};
use crate::on_disk;

/// The smallest log block.
#[doc(alias = "ZIL_MIN_BLKSZ")]
pub const BLOCK_BYTES_MIN: usize = 4096;

/// Which word of the checksum in a pointer to a log block counts the blocks. The first two are the
/// log's own random number, the third is its object set.
#[doc(alias = "ZIL_ZC_SEQ")]
pub const SEQUENCE_WORD: usize = 3;
/// Which word of the checksum in a pointer to a log block is the object set.
#[doc(alias = "ZIL_ZC_OBJSET")]
pub const OBJECT_SET_WORD: usize = 2;

on_disk! {
    /// What joins a log block to the next.
    #[doc(alias = "zil_chain_t")]
    pub struct LogChain [184 bytes] {
        0 => pad: u64,
        /// The next block, which is perhaps not yet written.
        8 => next: BlockPointer,
        /// How many bytes of the block are used: in `zilog` those of the records, in `zilog2`
        /// those of the chain and the records.
        136 => used_bytes: u64,
        144 => tail: EmbeddedChecksum,
    }
}

/// A log block, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBlock<'a> {
    /// The chain.
    pub chain: LogChain,
    /// The bytes of the records.
    pub records: &'a [u8],
    /// The byte order of both.
    pub order: ByteOrder,
}

/// The two forms of a log block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogForm {
    /// The chain at the end: pools before version 26.
    Zilog,
    /// The chain at the start, so that a block need not be read whole.
    Zilog2,
}

impl LogForm {
    /// The form of blocks with this kind of checksum.
    pub fn of_checksum(kind: ChecksumKind) -> Option<LogForm> {
        match kind {
            ChecksumKind::IntentLog => Some(LogForm::Zilog),
            ChecksumKind::IntentLog2 => Some(LogForm::Zilog2),
            _ => None,
        }
    }
}

impl<'a> LogBlock<'a> {
    /// Takes a block apart, whose checksum was verified. Its byte order is that of the magic
    /// number beside the checksum.
    #[doc(alias = "zil_read_log_block")]
    pub fn decode(block: &'a [u8], form: LogForm) -> Result<LogBlock<'a>, Corrupt> {
        let chain_at = match form {
            LogForm::Zilog => block.len().saturating_sub(LogChain::SIZE),
            LogForm::Zilog2 => 0,
        };
        let mut reader = Reader::new("intent log chain", block, ByteOrder::Little);
        reader.seek(chain_at)?;
        let bytes = reader.take(LogChain::SIZE)?;
        let magic = &bytes[LogChain::SIZE - EmbeddedChecksum::SIZE..];
        let Some(order) = ByteOrder::of_magic(magic, EmbeddedChecksum::MAGIC) else {
            return Err(reader.inconsistent("the chain has no magic number"));
        };
        let chain = LogChain::from_bytes(bytes, order)?;
        let used = narrow(chain.used_bytes);
        let records = match form {
            LogForm::Zilog => block[..chain_at].get(..used),
            LogForm::Zilog2 => block.get(LogChain::SIZE..used),
        };
        let bad_size = || reader.bad_value("used bytes", 48, chain.used_bytes);
        let records = records.ok_or_else(bad_size)?;
        Ok(LogBlock {
            records,
            order,
            chain,
        })
    }

    /// The records, one by one; after one that is refused there are no more.
    pub fn records(&self) -> Records<'a> {
        Records {
            rest: self.records,
            order: self.order,
        }
    }

    /// Puts a block together of records that are encoded. What the chain says of its size is set;
    /// its checksum is to be computed over the result.
    ///
    /// # Panics
    /// When the block has no room for them.
    pub fn encode(block: &mut [u8], form: LogForm, next: BlockPointer, records: &[u8]) {
        assert!(
            LogChain::SIZE + records.len() <= block.len(),
            "the records fit in the block"
        );
        let (chain_at, records_at, used) = match form {
            LogForm::Zilog => (block.len() - LogChain::SIZE, 0, records.len()),
            LogForm::Zilog2 => (0, LogChain::SIZE, LogChain::SIZE + records.len()),
        };
        let chain = LogChain {
            pad: 0,
            next,
            used_bytes: widen(used),
            tail: EmbeddedChecksum::new(crate::checksum::Checksum::ZERO),
        };
        block.fill(0);
        block[records_at..records_at + records.len()].copy_from_slice(records);
        chain.write_to(&mut block[chain_at..]);
        debug_assert!(
            LogBlock::decode(block, form).is_ok_and(|read| read.records == records),
            "a log block has the records that it was made of"
        );
    }
}

/// The records of a block.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl Iterator for Records<'_> {
    type Item = Result<LogRecord, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match LogRecord::decode(self.rest, self.order) {
            Ok((record, length)) => {
                self.rest = &self.rest[length..];
                Some(Ok(record))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent_log::samples::{everything, pointer, record};
    use proptest::prelude::*;

    #[test]
    fn records_are_taken_from_a_block_of_either_form() {
        let records: Vec<LogRecord> = everything().into_iter().map(record).collect();
        let bytes: Vec<u8> = records.iter().flat_map(LogRecord::encode).collect();
        for form in [LogForm::Zilog, LogForm::Zilog2] {
            let mut block = vec![1; 8192];
            LogBlock::encode(&mut block, form, pointer(), &bytes);
            let decoded = LogBlock::decode(&block, form).expect("we wrote it");
            let read: Result<Vec<_>, _> = decoded.records().collect();
            assert_eq!(read.as_ref(), Ok(&records));
        }
    }

    #[test]
    fn a_chain_that_claims_too_much_is_refused() {
        for form in [LogForm::Zilog, LogForm::Zilog2] {
            for used in [4096 - 183, 4097, u64::MAX] {
                let mut block = vec![0; 4096];
                LogBlock::encode(&mut block, form, pointer(), &[]);
                let at = if form == LogForm::Zilog {
                    4096 - 184
                } else {
                    0
                } + 136;
                block[at..at + 8].copy_from_slice(&used.to_le_bytes());
                let is_inside = form == LogForm::Zilog2 && used == 4096 - 183;
                assert_eq!(LogBlock::decode(&block, form).is_ok(), is_inside);
            }
        }
        assert!(LogBlock::decode(&[0; 100], LogForm::Zilog).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_refused(
            number in 0u64..26,
            length in prop_oneof![Just(32u64), Just(112), Just(192), 0u64..300],
            rest in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..300),
        ) {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let mut bytes = Vec::new();
                for word in [number, length, 7, 3] {
                    match order {
                        ByteOrder::Little => bytes.extend(word.to_le_bytes()),
                        ByteOrder::Big => bytes.extend(word.to_be_bytes()),
                    }
                }
                bytes.extend(&rest);
                let _ = LogRecord::decode(&bytes, order);
                let _ = LogBlock::decode(&bytes, LogForm::Zilog);
            }
        }
    }
}
