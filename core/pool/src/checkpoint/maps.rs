//! The space map of each top-level vdev with what was freed since the checkpoint.
//!
//! Its entries are frees that the metaslabs' own space maps do not have. It is created with the
//! first of them, and goes when the checkpoint is discarded.

use super::state::KeptMap;
use crate::error::PoolError;
use crate::log_space_maps::top_zap;
use crate::pool::Pool;
use crate::space_maps::{Storing, create_map, head_of, set_head};
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_object::Object;
use tarn_object::zap::ZapValue;
use tarn_ondisk::pool_directory::VDEV_CHECKPOINT_SPACE_MAP;
use tarn_ondisk::space_map::{Action, Region, SpaceMapEncoder};
use tarn_ondisk::units::{AllocatedSize, VdevId, VdevOffset};
use tarn_space::{MetaslabChanges, Range};
use tarn_vdev::TopLevel;

/// The block size of such a map.
#[doc(alias = "zfs_vdev_standard_sm_blksz")]
const BLOCK_BYTES: u64 = 128 << 10;

/// The offsets that the map of a vdev describes.
pub(super) fn region_of(top: &TopLevel) -> Region {
    Region {
        start: VdevOffset::ZERO,
        size: AllocatedSize::from(top.asize.get() >> top.ashift << top.ashift),
        shift: top.ashift,
    }
}

/// Appends what this pass has kept.
pub(crate) fn store(
    pool: &Pool,
    storing: &Storing<'_>,
    changes: &[MetaslabChanges],
) -> Result<(), PoolError> {
    let mut by_vdev: BTreeMap<VdevId, Vec<&[Range]>> = BTreeMap::new();
    for metaslab in changes.iter().filter(|changes| !changes.kept.is_empty()) {
        by_vdev
            .entry(metaslab.vdev)
            .or_default()
            .push(&metaslab.kept);
    }
    if by_vdev.is_empty() {
        return Ok(());
    }
    let tops = pool.vdevs().top_levels();
    for (vdev, kept) in by_vdev {
        let top = tops.iter().find(|top| top.id == vdev);
        let top = top.expect("a vdev that blocks are freed on is there");
        append(pool, storing, top, &kept)?;
    }
    pool.publish_checkpoint();
    Ok(())
}

/// Appends ranges, given by metaslab.
fn append(
    pool: &Pool,
    storing: &Storing<'_>,
    top: &TopLevel,
    kept: &[&[Range]],
) -> Result<(), PoolError> {
    let object = open_or_create(pool, storing, top)?;
    let (mut head, _) = head_of(&object)?;
    let (at, block) = (head.length, object.block_size().get());
    let mut encoder = SpaceMapEncoder::new(region_of(top), storing.version, block, at);
    let (txg, pass) = (storing.writer.tx.txg(), storing.writer.tx.pass());
    for ranges in kept {
        encoder.begin(Action::Free, txg, pass);
        for range in *ranges {
            encoder.run(Action::Free, None, range.start, range.size);
            // The header is from disk: a wrong sum stays wrong.
            let bytes = range.size.get().cast_signed();
            head.allocated = head.allocated.saturating_sub(bytes);
        }
    }
    head.length = encoder.length();
    head.object = object.id().get();
    storing.writer.write(&object, at, &encoder.finish())?;
    set_head(storing.writer, &object, &head)?;
    let map = KeptMap {
        object: object.id(),
        bytes: head.allocated.unsigned_abs(),
    };
    pool.checkpoint.known.lock().maps.insert(top.id, map);
    Ok(())
}

fn open_or_create(
    pool: &Pool,
    storing: &Storing<'_>,
    top: &TopLevel,
) -> Result<Arc<Object>, PoolError> {
    let writer = storing.writer;
    let known = pool.checkpoint.maps().get(&top.id).copied();
    if let Some(map) = known {
        return writer.directory().object(map.object);
    }
    let zap = top_zap(&pool.vdevs().config(), top.id);
    let zap = zap.ok_or(PoolError::NoSpaceMaps { vdev: top.id })?;
    let object = create_map(writer, storing.features, BLOCK_BYTES)?;
    let word = ZapValue::word(object.id().get());
    writer.put(zap, VDEV_CHECKPOINT_SPACE_MAP, &word)?;
    Ok(object)
}
