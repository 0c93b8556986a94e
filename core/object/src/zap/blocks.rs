//! The interface between a ZAP and its object.
//!
//! The trait stands between the ZAP and objects so that the ZAP can be tested against blocks in
//! memory, with nothing below it.

use super::ZapError;
use super::state::ZapState;

/// An object's blocks, as a ZAP uses them. Bytes are in little-endian form
/// (`ondisk::zap::to_little_endian`), whatever the pool's order.
pub trait ZapBlocks {
    /// The permission to change blocks: a transaction.
    type Tx: ?Sized;

    /// The size of every block, in bytes.
    fn block_size(&self) -> usize;

    /// Lets `look` see a block. A block that was never written is zeros.
    fn look(&self, block: u64, look: &mut dyn FnMut(&[u8])) -> Result<(), ZapError>;

    /// Lets `change` change a block in place, in this transaction.
    fn change(
        &self,
        tx: &Self::Tx,
        block: u64,
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), ZapError>;

    /// Gives blocks back; they read as zeros afterwards.
    fn free(&self, tx: &Self::Tx, first: u64, count: u64) -> Result<(), ZapError>;

    /// Changes the block size of an object that has only block 0, which keeps what fits.
    fn set_block_size(&self, tx: &Self::Tx, bytes: usize) -> Result<(), ZapError>;

    /// The longest name, in bytes with its final zero.
    fn name_bytes_max(&self) -> usize {
        tarn_ondisk::zap::LONG_NAME_BYTES_MAX
    }

    /// What is remembered of the ZAP between calls, one for all handles of this object.
    fn state(&self) -> &ZapState;
}
