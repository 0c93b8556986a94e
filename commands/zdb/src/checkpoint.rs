//! The checkpoint, if the pool has one.

use crate::look::Look;
use crate::out::Out;
use crate::uberblock;
use tarn_engine::inspect::InspectError;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory::CHECKPOINT;
use tarn_ondisk::uberblock::Uberblock;

/// Prints the checkpoint's uberblock.
pub fn show(out: &mut Out, look: &Look<'_>) -> Result<(), InspectError> {
    if !look
        .pool()
        .features()
        .is_active(Feature::ZpoolCheckpoint.guid())
    {
        return Ok(());
    }
    let Some(value) = look.directory().value(CHECKPOINT)? else {
        writeln!(out, "\nPartially discarded checkpoint state found:");
        return Ok(());
    };
    let mut bytes: Vec<u8> = value
        .to_words()
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    // Older programs stored fewer words.
    bytes.resize(bytes.len().max(Uberblock::SIZE), 0);
    let Ok(kept) = Uberblock::from_bytes(&bytes[..Uberblock::SIZE], ByteOrder::Little) else {
        look.is_corrupt.set(true);
        writeln!(out, "\nThe checkpointed uberblock makes no sense");
        return Ok(());
    };
    writeln!(out, "\nCheckpointed uberblock found:");
    uberblock::show(out, &kept, look.options.level('u'));
    writeln!(out);
    if kept.checkpoint_txg.is_zero() {
        look.is_corrupt.set(true);
        writeln!(out, "\nub_checkpoint_txg not set in checkpointed uberblock");
    }
    Ok(())
}
