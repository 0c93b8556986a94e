//! `zfs bookmark`: makes and destroys bookmarks.
//!
//! # Mechanism
//! A bookmark keeps what an incremental send needs of a snapshot, or of another bookmark: its guid
//! and its txg. It is in a ZAP of the head. In a pool with the feature `bookmark_written` it also
//! counts the blocks freed since ([`counting_bookmarks`]); as long as it does, deadlists keep
//! births before and after it apart, as they do for a snapshot.
//!
//! Several bookmarks are made or destroyed in one group, or none of them.

use super::destroy_snapshot::join_births;
use super::set::find;
use crate::counting_bookmarks::{self, of_snapshot, value_of, zap_of};
use crate::creation::create_names;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::names::{BadName, DatasetName, NameKind};
use crate::namespace::View;
use crate::task::{FeatureCounts, InternalEvent, Room, SyncTask, TaskContext, TaskRefusal};
use tarn_object::zap::ZapValue;
use tarn_ondisk as ondisk;
use tarn_ondisk::bookmark::{Bookmark, BookmarkVersion};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;

/// What of a dataset is stored.
type Stored = ondisk::dataset::Dataset;

/// Makes bookmarks: all of them in one group, or none.
#[derive(Debug, Clone)]
pub struct MakeBookmarks {
    /// Full names of the bookmarks, and of the snapshot or bookmark that each is of.
    pub bookmarks: Vec<(String, String)>,
}

/// Destroys bookmarks: all of them in one txg. Missing ones are skipped.
#[derive(Debug, Clone)]
pub struct DestroyBookmarks {
    /// Full names.
    pub names: Vec<String>,
}

/// What a bookmark is made of.
enum Origin<'a> {
    Snapshot(Dataset<'a>),
    Bookmark(Dataset<'a>, Bookmark),
}

impl SyncTask for MakeBookmarks {
    type Output = ();

    fn room(&self) -> Room {
        Room::normal(self.bookmarks.len())
    }

    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let mut refused = Vec::new();
        for (name, origin) in &self.bookmarks {
            if let Err(refusal) = check(view, name, origin, features) {
                refused.push((name.clone(), refusal));
            }
        }
        TaskRefusal::of_several(refused)
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            self.bookmarks
                .iter()
                .try_for_each(|(name, origin)| make(context, name, origin))
        })
    }
}

#[doc(alias = "dsl_bookmark_create_check_impl")]
fn check(
    view: View<'_>,
    name: &str,
    origin: &str,
    features: &dyn FeatureCounts,
) -> Result<(), TaskRefusal> {
    if !features.is_enabled(Feature::Bookmarks) {
        return Err(TaskRefusal::FeatureDisabled {
            feature: Feature::Bookmarks,
        });
    }
    let (parsed, short) = parse(name)?;
    let head = find(view, parsed.head())?;
    if head.bookmark(&short)?.is_some() {
        return Err(TaskRefusal::Exists {
            name: name.to_string(),
        });
    }
    let origin = find_origin(view, origin)?;
    let (of, made) = match &origin {
        Origin::Snapshot(snapshot) => (snapshot, snapshot.stored()?.creation_txg),
        Origin::Bookmark(head, bookmark) => (head, bookmark.creation_txg),
    };
    if !is_ancestor(&head, of, made)? {
        return Err(TaskRefusal::NotAnAncestor);
    }
    if of.uses_feature(Feature::RedactedDatasets.guid())? {
        return Err(TaskRefusal::NotSupported {
            what: "a bookmark of a redacted snapshot".to_string(),
        });
    }
    Ok(())
}

/// Takes the full name of a bookmark apart.
fn parse(name: &str) -> Result<(DatasetName, String), TaskRefusal> {
    let bad = |why: String| TaskRefusal::BadValue {
        property: "name".to_string(),
        why,
    };
    let parsed = DatasetName::parse(name).map_err(|reason| match reason {
        BadName::TooLong => TaskRefusal::NameTooLong {
            why: "dataset name is too long".to_string(),
        },
        reason => bad(reason.to_string()),
    })?;
    match (parsed.kind(), parsed.tail().map(str::to_string)) {
        (NameKind::Bookmark, Some(short)) => Ok((parsed, short)),
        _ => Err(bad("it is no bookmark".to_string())),
    }
}

fn find_origin<'a>(view: View<'a>, name: &str) -> Result<Origin<'a>, TaskRefusal> {
    let not_found = || TaskRefusal::NotFound {
        name: name.to_string(),
    };
    let parsed = DatasetName::parse(name).map_err(|_| not_found())?;
    match (parsed.kind(), parsed.tail()) {
        (NameKind::Snapshot, _) => find(view, name).map(Origin::Snapshot),
        (NameKind::Bookmark, Some(short)) => {
            let head = find(view, parsed.head())?;
            let bookmark = head.bookmark(short)?.ok_or_else(not_found)?;
            Ok(Origin::Bookmark(head, bookmark.stored))
        }
        _ => Err(not_found()),
    }
}

/// Whether what was made of this dataset then is a part of the past of a head: its own, or that of
/// what it is a clone of.
#[doc(alias = "dsl_dataset_is_before")]
fn is_ancestor(
    head: &Dataset<'_>,
    of: &Dataset<'_>,
    made: tarn_ondisk::units::Txg,
) -> Result<bool, DatasetError> {
    let view = head.directory().view();
    let mut directory = head.directory().clone();
    let mut until = tarn_ondisk::units::Txg::MAX;
    while directory.id() != of.directory().id() {
        let origin = directory.stored()?.origin;
        if origin.is_zero() {
            return Ok(false);
        }
        let origin = view.dataset_by_id(origin)?;
        until = origin.stored()?.creation_txg;
        directory = origin.directory().clone();
    }
    Ok(made <= until)
}

fn make(context: &TaskContext<'_>, name: &str, origin: &str) -> Result<(), DatasetError> {
    let view = context.view();
    let refused = |refusal| match refusal {
        TaskRefusal::Dataset(cause) => cause,
        _ => DatasetError::NotFound {
            name: name.to_string(),
        },
    };
    let (parsed, short) = parse(name).map_err(refused)?;
    let head = find(view, parsed.head()).map_err(refused)?;
    let (bookmark, whose, text) = match find_origin(view, origin).map_err(refused)? {
        Origin::Snapshot(snapshot) => {
            let bookmark = of_snapshot(context, &snapshot)?;
            let text = format!("target_snap={} redact_obj=0", snapshot.id());
            (bookmark, head.clone(), text)
        }
        Origin::Bookmark(whose, other) => {
            let bookmark = Bookmark {
                redaction: ObjectId::ZERO,
                ..other
            };
            let text = format!("source_guid={}", other.guid.get());
            (bookmark, whose, text)
        }
    };
    if bookmark.flags & Bookmark::HAS_FREED_BEFORE_NEXT != 0 {
        context.features.increment(Feature::BookmarkWritten)?;
    }
    if bookmark.version() == BookmarkVersion::V2 {
        context.features.increment(Feature::BookmarkV2)?;
    }
    add(context, head.id(), &short, &bookmark)?;
    let created = bookmark.creation_txg;
    context.record(InternalEvent {
        name: "bookmark",
        dataset: Some((whose.name(), whose.id())),
        text: format!("name={short} creation_txg={created} {text}"),
    });
    Ok(())
}

/// Puts a bookmark into the head's ZAP of bookmarks, which is made when it is first needed.
#[doc(alias = "dsl_bookmark_node_add")]
pub(super) fn add(
    context: &TaskContext<'_>,
    head: ObjectId,
    short: &str,
    bookmark: &Bookmark,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let zap = match zap_of(context, head)? {
        Some(zap) => zap,
        None => {
            let zap = create_names(context, ObjectType::ZapMetadata)?;
            context.features.increment(Feature::Bookmarks)?;
            writing.extend(head, context.features)?;
            let value = ZapValue::word(zap.get());
            writing.put(head, ondisk::dataset::BOOKMARK_NAMES, &value)?;
            zap
        }
    };
    writing.put(zap, short, &value_of(bookmark, bookmark.version()))
}

impl SyncTask for DestroyBookmarks {
    type Output = ();

    fn room(&self) -> Room {
        Room::reserved(self.names.len())
    }

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let mut refused = Vec::new();
        for name in &self.names {
            let checked = parse(name).and_then(|(parsed, short)| {
                let head = find(view, parsed.head())?;
                match head.bookmark(&short)? {
                    Some(bookmark) if !bookmark.stored.redaction.is_zero() => {
                        Err(TaskRefusal::NotSupported {
                            what: "destroying a redaction bookmark".to_string(),
                        })
                    }
                    _ => Ok(()),
                }
            });
            if let Err(refusal) = checked {
                refused.push((name.clone(), refusal));
            }
        }
        TaskRefusal::of_several(refused)
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            for name in &self.names {
                let parsed = DatasetName::parse(name)
                    .map_err(|_| DatasetError::NotFound { name: name.clone() })?;
                let directory = context.view().directory(parsed.head())?;
                if let (Some(head), Some(short)) = (directory.head()?, parsed.tail()) {
                    destroy(context, &head, short)?;
                }
            }
            Ok(())
        })
    }
}

#[doc(alias = "dsl_bookmark_destroy_sync_impl")]
fn destroy(context: &TaskContext<'_>, head: &Dataset<'_>, short: &str) -> Result<(), DatasetError> {
    let (Some(bookmark), Some(zap)) = (head.bookmark(short)?, zap_of(context, head.id())?) else {
        return Ok(());
    };
    context.writing().remove(zap, &bookmark.name)?;
    end_uses(context, &bookmark.stored)?;
    let created = bookmark.stored.creation_txg;
    let was_counting = bookmark.stored.flags & Bookmark::HAS_FREED_BEFORE_NEXT != 0;
    let snapshot_is_there = bookmark.stored.flags & Bookmark::SNAPSHOT_EXISTS != 0;
    let others = counting_bookmarks::counting_bookmarks(context, head.id(), created)?;
    let another_counts = others.iter().any(|other| other.created() == created);
    let before: Stored = head.stored()?;
    let divides = created < before.previous_snapshot_txg;
    if was_counting && !snapshot_is_there && !another_counts && divides {
        join_births(context, head, created)?;
    }
    Ok(())
}

/// A bookmark is gone: it uses features no more.
pub(super) fn end_uses(context: &TaskContext<'_>, bookmark: &Bookmark) -> Result<(), DatasetError> {
    if bookmark.flags & Bookmark::HAS_FREED_BEFORE_NEXT != 0 {
        context.features.decrement(Feature::BookmarkWritten)?;
    }
    // OpenZFS does not always count these down.
    let is_counted = context.features.is_active(Feature::BookmarkV2);
    if bookmark.version() == BookmarkVersion::V2 && is_counted {
        context.features.decrement(Feature::BookmarkV2)?;
    }
    Ok(())
}
