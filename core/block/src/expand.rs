//! The last stage of reading: decompression.

use crate::error::ReadError;
use crate::stored::StoredPointer;
use tarn_host::buffer::Buffer;
use tarn_ondisk::units::LogicalSize;
use tarn_transform::{CompressionAlgorithm, DecompressError, compress};

/// The plain contents, of compressed ones. A block that is stored plain is given back uncopied.
///
/// # Errors
/// The bytes cannot be decompressed to the logical size.
pub(crate) fn expand(stored: &StoredPointer<'_>, compressed: Buffer) -> Result<Buffer, ReadError> {
    let logical_size = stored.pointer.logical_size();
    let is_plain = stored.compression == CompressionAlgorithm::Off;
    if is_plain && compressed.len() == logical_size.to_usize() {
        return Ok(compressed);
    }
    decompress(stored.compression, &compressed, logical_size).map_err(|why| {
        ReadError::Undecodable {
            block: stored.address(),
            why,
        }
    })
}

/// Decompresses into a buffer of its own, of `logical_size`, which was checked to be possible.
///
/// # Errors
/// The bytes are not what the algorithm makes, or make another size.
pub(crate) fn decompress(
    compression: CompressionAlgorithm,
    stored: &[u8],
    logical_size: LogicalSize,
) -> Result<Buffer, DecompressError> {
    let mut plain = Buffer::for_overwrite(logical_size.to_usize());
    compress::decompress(compression, stored, &mut plain)?;
    Ok(plain)
}
