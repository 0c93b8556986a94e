//! Writes the records of a stream.

use std::io::Write;
use tarn_ondisk::checksum::Checksum;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::stream::{CHECKSUM_OFFSET, End, Record};
use tarn_transform::checksum::ByteOrder as SumOrder;
use tarn_transform::checksum::fletcher::Fletcher4;

/// The sending end of a stream.
#[derive(Debug)]
pub struct StreamWriter<W> {
    out: W,
    sum: Fletcher4,
    bytes: u64,
}

impl<W: Write> StreamWriter<W> {
    /// Begins a stream: the first record must be a [`Record::Begin`].
    pub fn new(out: W) -> Self {
        StreamWriter {
            out,
            sum: Fletcher4::new(),
            bytes: 0,
        }
    }

    /// Writes a record and its payload.
    ///
    /// # Errors
    /// The output fails.
    ///
    /// # Panics
    /// The length of the payload differs from the record's.
    pub fn write(&mut self, record: &Record, payload: &[u8]) -> std::io::Result<()> {
        let wanted = record.payload_bytes();
        assert_eq!(wanted, Ok(payload.len()), "a record says what follows it");
        let mut bytes = record.encode();
        self.sum.update(&bytes[..CHECKSUM_OFFSET], SumOrder::Little);
        if !matches!(record, Record::Begin { .. }) {
            Checksum(self.sum.finish().0).write_to(&mut bytes[CHECKSUM_OFFSET..]);
        }
        self.sum.update(&bytes[CHECKSUM_OFFSET..], SumOrder::Little);
        self.out.write_all(&bytes)?;
        self.bytes += u64::try_from(bytes.len() + payload.len()).expect("sizes fit 64 bits");
        if !payload.is_empty() {
            self.sum.update(payload, SumOrder::Little);
            self.out.write_all(payload)?;
        }
        Ok(())
    }

    /// Writes the last record, and returns the output.
    ///
    /// # Errors
    /// The output fails.
    pub fn finish(mut self, to_guid: u64) -> std::io::Result<W> {
        let checksum = Checksum(self.sum.finish().0);
        self.write(&Record::End(End { checksum, to_guid }), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Number of written bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The byte order of checksums.
pub(crate) fn sum_order(order: ByteOrder) -> SumOrder {
    match order {
        ByteOrder::Little => SumOrder::Little,
        ByteOrder::Big => SumOrder::Big,
    }
}
