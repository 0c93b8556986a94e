//! Deferred frees: a list in the MOS of blocks that late passes leave to the next txg.

use crate::error::PoolError;
use crate::mos_writer::MosWriter;
use tarn_block::{BlockIo, WritePhase};
use tarn_object::{Entry, PointerList, Step};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bpobj::PointerListVersion;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::pool_directory::SYNC_POINTER_LIST;

/// The block size of the list, as OpenZFS's: the list is stored in every txg, in full size, also
/// where the pool has no large free range left.
const BLOCK_BYTES: u64 = 16 << 10;

/// Creates the list of a new pool. It is not compressed: passes converge sooner when blocks keep
/// their size.
pub(crate) fn create(writer: MosWriter<'_>) -> Result<(), PoolError> {
    let list = PointerList::create(
        writer.mos,
        writer.tx,
        PointerListVersion::Nested,
        BLOCK_BYTES,
        writer.operation,
    );
    let list = list.map_err(|cause| PoolError::Object {
        object: tarn_ondisk::units::ObjectId::ZERO,
        cause,
    })?;
    let object = writer.directory().object(list.id())?;
    object
        .set_compression(writer.tx, Compression::Off)
        .map_err(|cause| PoolError::Object {
            object: list.id(),
            cause,
        })?;
    writer.link(SYNC_POINTER_LIST, list.id())
}

fn open(writer: MosWriter<'_>) -> Result<PointerList, PoolError> {
    let id = writer.directory().require(SYNC_POINTER_LIST)?;
    let list = PointerList::open(writer.mos, id, writer.operation);
    list.map_err(|cause| PoolError::Object { object: id, cause })
}

/// Frees the blocks that the last txg deferred. Called in the first pass.
#[doc(alias = "spa_sync_deferred_frees")]
pub(crate) fn free_all(writer: MosWriter<'_>, io: &BlockIo) -> Result<(), PoolError> {
    assert_eq!(
        writer.tx.pass(),
        1,
        "frees of the group before are due in the first pass"
    );
    let list = open(writer)?;
    let phase = WritePhase {
        txg: writer.tx.txg(),
        pass: writer.tx.pass(),
    };
    let mut outcome = Ok(());
    let freed = list.take_each(writer.tx, writer.operation, |entry| {
        let freed = io.free(&entry.pointer, phase, writer.operation);
        outcome = std::mem::replace(&mut outcome, Ok(())).and(freed);
        match outcome {
            Ok(()) => Step::Continue,
            Err(_) => Step::Stop,
        }
    });
    outcome?;
    freed.map_err(|cause| PoolError::Object {
        object: list.id(),
        cause,
    })
}

/// Defers frees.
pub(crate) fn put(writer: MosWriter<'_>, pointers: &[BlockPointer]) -> Result<(), PoolError> {
    let list = open(writer)?;
    let entries: Vec<Entry> = pointers
        .iter()
        .map(|pointer| Entry {
            pointer: *pointer,
            is_freed: false,
        })
        .collect();
    list.append_all(writer.tx, &entries, writer.operation)
        .map_err(|cause| PoolError::Object {
            object: list.id(),
            cause,
        })
}
