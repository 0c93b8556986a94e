//! How large a stream will be, without looking at what is in it.
//!
//! # Mechanism
//! A snapshot knows how many bytes of blocks it has, and deadlists know how many were written since
//! another. From those come off, by a guess, the pointers to blocks, which are not sent; and
//! records come on, one for each block, as if all blocks were of the size that new ones have. The
//! guess is OpenZFS's, so that sizes are the same in comparisons.

use super::SendError;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::properties::inherit::{self, Found};
use tarn_dataset::properties::table;
use tarn_dataset::properties::value::Default as DefaultValue;
use tarn_dataset::space_used::{Since, sizes_written};
use tarn_ondisk::declare::widen;
use tarn_ondisk::stream::RECORD_BYTES;

/// What a block costs on disk beside its contents: a pointer.
const POINTER_BYTES: u64 = 128;

/// How large the stream of a snapshot will be; `None` where only [`measure`](super::measure) can
/// tell.
///
/// # Errors
/// When the tree of names cannot be read.
#[doc(alias = "dmu_send_estimate_fast")]
pub fn estimate(
    target: &Dataset<'_>,
    since: Option<&Since<'_>>,
    is_compressed: bool,
) -> Result<Option<u64>, SendError> {
    let (uncompressed, compressed) = match since {
        None => {
            let stored = target.stored()?;
            (stored.uncompressed.get(), stored.compressed.get())
        }
        Some(since) => match sizes_written(target, since)? {
            Some(sizes) => (sizes.uncompressed, sizes.compressed),
            None => return Ok(None),
        },
    };
    let blocks = uncompressed / block_size(target)?.max(1);
    let contents = if is_compressed {
        compressed
    } else {
        uncompressed
    };
    let records = widen(RECORD_BYTES);
    // As OpenZFS, which lets it wrap round: of small blocks the pointers can be more than all there
    // is.
    let size = contents
        .wrapping_sub(blocks.wrapping_mul(POINTER_BYTES))
        .wrapping_add(blocks.wrapping_mul(records))
        .wrapping_add(2 * records);
    Ok(Some(size))
}

/// The size that new blocks have. That of volumes is not inherited by snapshots, so OpenZFS takes
/// the default for theirs.
fn block_size(target: &Dataset<'_>) -> Result<u64, SendError> {
    let name = match contents::outline(target)? {
        Contents::Volume(_) => "volblocksize",
        _ => "recordsize",
    };
    let property = table::find(name).expect("the property is in the table");
    Ok(match (inherit::find(target, property)?, property.default) {
        (Some((Found::Number(size), _)), _) => size,
        (_, DefaultValue::Number(size)) => size,
        _ => 128 << 10,
    })
}
