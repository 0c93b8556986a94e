//! Estimates the size of a stream without reading blocks.
//!
//! # Mechanism
//! A snapshot has the size of its blocks, and deadlists give the bytes written since another.
//! Subtracted from these is an estimate of the block pointers, which are not sent; added is a
//! record for each block, as if all blocks had the present record size. The estimate is OpenZFS's,
//! so that both programs print the same size.

use super::SendError;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::properties::inherit::{self, Found};
use tarn_dataset::properties::table;
use tarn_dataset::properties::value::Default as DefaultValue;
use tarn_dataset::space_used::{Since, sizes_written};
use tarn_ondisk::declare::widen;
use tarn_ondisk::stream::RECORD_BYTES;

/// Bytes of a block pointer, which a block costs beside its contents.
const POINTER_BYTES: u64 = 128;

/// The estimated size of a snapshot's stream; `None` where only [`measure`](super::measure) can
/// tell.
///
/// # Errors
/// The tree of datasets cannot be read.
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
    // Wraps round as in OpenZFS: the pointers of small blocks can be larger than the rest.
    let size = contents
        .wrapping_sub(blocks.wrapping_mul(POINTER_BYTES))
        .wrapping_add(blocks.wrapping_mul(records))
        .wrapping_add(2 * records);
    Ok(Some(size))
}

/// The block size of new blocks. Snapshots do not inherit `volblocksize`, so OpenZFS takes its
/// default for theirs.
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
