//! Reading: blocks of the cache are handed to the front end uncopied.

use tarn_object::{Caching, ReadData};
use tarn_ondisk::declare::widen;
use tarn_probe::Operation;

use crate::error::VolumeError;
use crate::volume::Volume;

impl Volume {
    /// Reads bytes. What was never written, or was discarded, reads as zeros.
    ///
    /// # Errors
    /// `OutOfRange`, or the block that cannot be read.
    #[doc(alias = "zvol_read")]
    pub fn read(
        &self,
        offset: u64,
        length: usize,
        operation: &Operation,
    ) -> Result<ReadData, VolumeError> {
        let end = self.check_range(offset, widen(length))?;
        let data = self.data.read_data(offset..end, Caching::Ours, operation)?;
        assert_eq!(data.len(), length, "a read gives all bytes asked for");
        Ok(data)
    }
}
