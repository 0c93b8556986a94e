//! Counting bookmarks: the space of a bookmark's blocks that were freed before the next snapshot
//! (feature `bookmark_written`).
//!
//! # Mechanism
//! `written#mark` and size estimates of streams from a bookmark need the freed space since. A
//! bookmark at or after the newest snapshot counts every block that the head kills and that existed
//! when the bookmark was made. When the next snapshot is taken, its count is final.

use crate::dataset::Dataset;
use crate::deadlist;
use crate::error::DatasetError;
use crate::space_charge::SpaceChange;
use crate::stored::is_zap;
use crate::task::TaskContext;
use std::collections::BTreeSet;
use tarn_object::zap::ZapValue;
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::{Bookmark, BookmarkVersion};
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::{AllocatedSize, Guid, LogicalSize, ObjectId, PhysicalSize, Txg};

/// A bookmark that counts, while one group is stored.
pub(crate) struct CountingBookmark {
    name: String,
    stored: Bookmark,
    freed: SpaceChange,
}

impl CountingBookmark {
    /// The txg of the snapshot that it was made of.
    pub(crate) fn created(&self) -> Txg {
        self.stored.creation_txg
    }

    /// The head has a block no more.
    #[doc(alias = "dsl_bookmark_block_killed")]
    pub(crate) fn count(&mut self, pointer: &BlockPointer, space: SpaceChange) {
        if pointer.birth() <= self.stored.creation_txg {
            self.freed.add(space);
        }
    }

    /// The bookmark with what it has counted.
    fn counted(&self) -> Bookmark {
        assert!(
            self.freed.used >= 0 && self.freed.compressed >= 0 && self.freed.uncompressed >= 0,
            "what was freed had space"
        );
        let more = |change: i128| u64::try_from(change).unwrap_or(0);
        let mut stored = self.stored;
        stored.referenced_freed_before_next = stored
            .referenced_freed_before_next
            .saturating_add(AllocatedSize::from(more(self.freed.used)));
        stored.compressed_freed_before_next = stored
            .compressed_freed_before_next
            .saturating_add(PhysicalSize::from(more(self.freed.compressed)));
        stored.uncompressed_freed_before_next = stored
            .uncompressed_freed_before_next
            .saturating_add(LogicalSize::from(more(self.freed.uncompressed)));
        stored
    }
}

/// The bookmarks of a head that count: those from its newest snapshot on.
pub(crate) fn counting_bookmarks(
    context: &TaskContext<'_>,
    head: ObjectId,
    newest_snapshot: Txg,
) -> Result<Vec<CountingBookmark>, DatasetError> {
    if !context.features.is_active(Feature::BookmarkWritten) {
        return Ok(Vec::new());
    }
    let Some(zap) = zap_of(context, head)? else {
        return Ok(Vec::new());
    };
    let bookmarks = context.writing().reading().bookmarks(zap)?;
    let counting = bookmarks.into_iter().filter(|bookmark| {
        bookmark.stored.flags & Bookmark::HAS_FREED_BEFORE_NEXT != 0
            && bookmark.stored.creation_txg >= newest_snapshot
    });
    Ok(counting
        .map(|bookmark| CountingBookmark {
            name: bookmark.name,
            stored: bookmark.stored,
            freed: SpaceChange::default(),
        })
        .collect())
}

/// A snapshot was taken: bookmarks since the one before keep blocks of before and after them apart
/// in the head's deadlist.
#[doc(alias = "dsl_bookmark_snapshotted")]
pub(crate) fn divide_deadlist(
    context: &TaskContext<'_>,
    head: ObjectId,
    deadlist: ObjectId,
    snapshot_before: Txg,
) -> Result<(), DatasetError> {
    let bookmarks = counting_bookmarks(context, head, snapshot_before.next())?;
    let births: BTreeSet<Txg> = bookmarks.iter().map(|it| it.stored.creation_txg).collect();
    births
        .into_iter()
        .try_for_each(|txg| deadlist::add_key(context, deadlist, txg))
}

/// A snapshot goes: bookmarks between it and the one before count what was freed until the next one
/// from now on. Says whether a bookmark stays in its place that counts, so that deadlists go on
/// keeping births before and after it apart.
#[doc(alias = "dsl_bookmark_ds_destroyed")]
pub(crate) fn snapshot_goes(
    context: &TaskContext<'_>,
    head: ObjectId,
    snapshot: &ondisk::dataset::Dataset,
) -> Result<bool, DatasetError> {
    let next: ondisk::dataset::Dataset = context
        .writing()
        .reading()
        .bonus_of(snapshot.next_snapshot)?;
    let mut bookmarks = counting_bookmarks(context, head, snapshot.previous_snapshot_txg)?;
    bookmarks.retain(|bookmark| bookmark.stored.creation_txg <= snapshot.creation_txg);
    let mut stays = false;
    for bookmark in &mut bookmarks {
        let created = bookmark.stored.creation_txg;
        if created < snapshot.creation_txg {
            bookmark.freed =
                deadlist::space_in(context.writing().reading(), next.deadlist, ..created)?;
        } else {
            bookmark.stored.flags &= !Bookmark::SNAPSHOT_EXISTS;
            stays = true;
        }
    }
    bookmarks
        .iter()
        .try_for_each(|bookmark| store(context, head, bookmark))?;
    Ok(stays)
}

/// Another dataset than before is the next after this snapshot: bookmarks of it count anew what is
/// freed until that one.
#[doc(alias = "dsl_bookmark_next_changed")]
pub(crate) fn next_has_changed(
    context: &TaskContext<'_>,
    head: ObjectId,
    snapshot: &ondisk::dataset::Dataset,
) -> Result<(), DatasetError> {
    let reading = context.writing().reading();
    let next: ondisk::dataset::Dataset = reading.bonus_of(snapshot.next_snapshot)?;
    let mut bookmarks = counting_bookmarks(context, head, snapshot.creation_txg)?;
    bookmarks.retain(|bookmark| bookmark.stored.creation_txg == snapshot.creation_txg);
    for bookmark in &mut bookmarks {
        bookmark.stored.referenced_freed_before_next = AllocatedSize::ZERO;
        bookmark.stored.compressed_freed_before_next = PhysicalSize::ZERO;
        bookmark.stored.uncompressed_freed_before_next = LogicalSize::ZERO;
        bookmark.freed = deadlist::space_in(reading, next.deadlist, ..)?;
        store(context, head, bookmark)?;
    }
    Ok(())
}

/// A new bookmark of a snapshot. In a pool whose bookmarks count, it counts what was freed until
/// the next one.
#[doc(alias = "dsl_bookmark_set_phys")]
pub(crate) fn of_snapshot(
    context: &TaskContext<'_>,
    snapshot: &Dataset<'_>,
) -> Result<Bookmark, DatasetError> {
    let stored = snapshot.stored()?;
    let mut bookmark = Bookmark {
        guid: stored.guid,
        creation_txg: stored.creation_txg,
        creation_time_s: stored.creation_time_s,
        ..Bookmark::default()
    };
    if context.features.is_enabled(Feature::BookmarkV2) {
        let guid = snapshot.extension(ondisk::dataset::IVSET_GUID)?;
        bookmark.ivset_guid = Guid::new(guid.unwrap_or(0));
    }
    if !context.features.is_enabled(Feature::BookmarkWritten) {
        return Ok(bookmark);
    }
    let reading = context.writing().reading();
    let next: ondisk::dataset::Dataset = reading.bonus_of(stored.next_snapshot)?;
    let counting = CountingBookmark {
        name: String::new(),
        freed: deadlist::space_in(reading, next.deadlist, ..)?,
        stored: Bookmark {
            flags: Bookmark::SNAPSHOT_EXISTS | Bookmark::HAS_FREED_BEFORE_NEXT,
            referenced: stored.referenced,
            compressed: stored.compressed,
            uncompressed: stored.uncompressed,
            ..bookmark
        },
    };
    Ok(counting.counted())
}

/// Stores what bookmarks have counted.
#[doc(alias = "dsl_bookmark_sync_done")]
pub(crate) fn store_bookmarks(
    context: &TaskContext<'_>,
    head: ObjectId,
    bookmarks: &[CountingBookmark],
) -> Result<(), DatasetError> {
    let has_counted = |bookmark: &&CountingBookmark| bookmark.freed != SpaceChange::default();
    bookmarks
        .iter()
        .filter(has_counted)
        .try_for_each(|bookmark| store(context, head, bookmark))
}

fn store(
    context: &TaskContext<'_>,
    head: ObjectId,
    bookmark: &CountingBookmark,
) -> Result<(), DatasetError> {
    let Some(zap) = zap_of(context, head)? else {
        return Ok(());
    };
    let value = value_of(&bookmark.counted(), BookmarkVersion::V2);
    context.writing().put(zap, &bookmark.name, &value)
}

/// A bookmark as it is stored in the ZAP.
pub(crate) fn value_of(bookmark: &Bookmark, version: BookmarkVersion) -> ZapValue {
    let bytes = bookmark.to_stored(version);
    assert!(
        bytes.len().is_multiple_of(8),
        "a bookmark is stored as whole numbers"
    );
    let words = bytes.chunks_exact(8).map(|word| {
        let word = word.try_into().expect("a chunk has eight bytes");
        u64::from_le_bytes(word)
    });
    ZapValue::Words(words.collect())
}

/// The ZAP of a head's bookmarks.
pub(crate) fn zap_of(
    context: &TaskContext<'_>,
    head: ObjectId,
) -> Result<Option<ObjectId>, DatasetError> {
    let reading = context.writing().reading();
    if !is_zap(&*reading.object(head)?) {
        return Ok(None);
    }
    let zap = reading.number(head, ondisk::dataset::BOOKMARK_NAMES)?;
    Ok(zap.map(ObjectId::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bookmark_counts_what_was_there_when_it_was_made() {
        let mut bookmark = CountingBookmark {
            name: "mark".to_string(),
            stored: Bookmark {
                creation_txg: Txg::from(10),
                referenced_freed_before_next: AllocatedSize::from(100),
                ..Bookmark::default()
            },
            freed: SpaceChange::default(),
        };
        for (birth, bytes) in [(9, 1), (10, 2), (11, 4)] {
            let mut pointer = BlockPointer::HOLE;
            pointer.set_births(Txg::from(birth), Txg::from(birth));
            bookmark.count(&pointer, SpaceChange::of_used(bytes));
        }
        assert_eq!(bookmark.counted().referenced_freed_before_next.get(), 103);
    }
}
