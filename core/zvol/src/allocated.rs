//! Which parts of a volume are allocated.

use tarn_ondisk::units::BlockId;
use tarn_probe::Operation;

use crate::error::VolumeError;
use crate::volume::Volume;

/// How many extents an answer has at most.
const EXTENTS_MAX: usize = 4096;

impl Volume {
    /// The extents from `offset` on, in order, each with its length in bytes and whether it is
    /// allocated; neighbours differ. What is not allocated reads as zeros. They cover the range, or
    /// the beginning of it where there are very many; a range of no bytes has none.
    ///
    /// # Errors
    /// `OutOfRange`, or a block of pointers that cannot be read.
    pub fn allocated(
        &self,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<Vec<(u64, bool)>, VolumeError> {
        let end = self.check_range(offset, length)?;
        let block_size = self.block_size();
        let mut extents: Vec<(u64, bool)> = Vec::new();
        let mut at = offset;
        while at < end && extents.len() < EXTENTS_MAX {
            let block = BlockId::from(at / block_size);
            let data = self.data.next_data(block, operation)?;
            let data = data.map_or(end, |data| data.get().saturating_mul(block_size));
            let is_data = data <= at;
            let stop = match is_data {
                true => self
                    .data
                    .next_hole(block, operation)?
                    .get()
                    .saturating_mul(block_size),
                false => data,
            };
            // It may have been freed between the two looks.
            let stop = stop.min(end).max(at + 1);
            match extents.last_mut() {
                Some((length, was_data)) if *was_data == is_data => *length += stop - at,
                _ => extents.push((stop - at, is_data)),
            }
            at = stop;
        }
        Ok(extents)
    }
}
