//! Creates the head that a stream is received into.

use super::begin::{BeginReceive, check_features};
use super::receiver::{Receiver, Stored, check_snapshot_name, not_found, receive_name};
use super::resume::note_resume_facts;
use super::settings::{NotSet, check_names, set_all, waits_for_contents};
use crate::creation::{self, create_set, origin_snapshot};
use crate::crypto_key;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::feature_use;
use crate::heads::decides_writing;
use crate::names::DatasetName;
use crate::namespace::View;
use crate::ops::clone::forget_log;
use crate::ops::create::Made;
use crate::ops::set::{Source, apply_one, find};
use crate::task::{FeatureCounts, Room, SyncTask, TaskContext, TaskRefusal};
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::features::Feature;
use tarn_ondisk::stream::StreamFeatures;
use tarn_ondisk::units::ObjectId;

/// A receive has begun.
#[derive(Debug)]
pub struct Begun {
    /// Where the stream goes.
    pub receiver: Receiver,
    /// What of the settings of something new was not made.
    pub not_set: Vec<NotSet>,
}

impl SyncTask for BeginReceive {
    type Output = Begun;

    fn room(&self) -> Room {
        Room::normal(5)
    }

    #[doc(alias = "dmu_recv_begin_check")]
    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        check_features(&self.stream, self.resumable, features)?;
        check_names(&self.settings)?;
        check_snapshot_name(&self.target, &self.snapshot)?;
        match find(view, &self.target) {
            Ok(target) => self.check_existing(view, &target, features),
            Err(TaskRefusal::NotFound { .. }) => self.check_new(view, features),
            Err(refusal) => Err(refusal),
        }
    }

    #[doc(alias = "dmu_recv_begin_sync")]
    fn apply(self, context: &TaskContext<'_>) -> Result<Begun, DatasetError> {
        context.namespace.change(|| {
            let begun = match context.view().directory(&self.target) {
                Ok(directory) => {
                    let target = directory.head()?.ok_or_else(|| not_found(&self.target))?;
                    self.make_clone(context, &target)?
                }
                Err(DatasetError::NotFound { .. }) => self.make_new(context)?,
                Err(error) => return Err(error),
            };
            self.prepare(context, begun.receiver)?;
            Ok(begun)
        })
    }
}

impl BeginReceive {
    /// Makes the clone of an existing target.
    fn make_clone(
        &self,
        context: &TaskContext<'_>,
        target: &Dataset<'_>,
    ) -> Result<Begun, DatasetError> {
        let base = self.base(target).map_err(|_| DatasetError::Inconsistent {
            object: target.id(),
            why: "its snapshots have changed in the midst of a change",
        })?;
        let base = match base {
            Some(base) => Some(base.id()),
            None => origin_snapshot(context)?,
        };
        let name = receive_name(&self.target);
        let made = Made::from(context, &name, base)?;
        take_over_features(context, made.head())?;
        let directory = context.view().directory(&name)?;
        crypto_key::share(context, target.directory(), &directory)?;
        let head = Dataset::open_unnamed(context.view(), made.head())?;
        let local = self.settings.local.iter();
        for checked in local.filter(|one| decides_writing(&one.name)) {
            let (name, setting) = (&checked.name, &checked.setting);
            apply_one(context, &head, name, setting, Source::Local)?;
        }
        made.record(context, "receive", " ".to_string());
        let receiver = Receiver {
            head: made.head(),
            is_new: false,
        };
        Ok(Begun {
            receiver,
            not_set: Vec::new(),
        })
    }

    /// Makes a new file system or volume, with its settings.
    fn make_new(&self, context: &TaskContext<'_>) -> Result<Begun, DatasetError> {
        let origin = match &self.origin {
            Some(origin) => {
                let name = DatasetName::parse(origin).map_err(|_| not_found(origin))?;
                Some(context.view().dataset(&name)?.id())
            }
            None => origin_snapshot(context)?,
        };
        let made = Made::from(context, &self.target, origin)?;
        take_over_features(context, made.head())?;
        let head = context.view().directory(&self.target)?.head()?;
        let head = head.ok_or_else(|| not_found(&self.target))?;
        match (&self.origin, &self.key) {
            (Some(_), Some(_)) => {
                let origin = origin.ok_or_else(|| not_found(&self.target))?;
                let origin = context.view().dataset_by_id(origin)?;
                crypto_key::share(context, origin.directory(), head.directory())?;
            }
            (None, Some(key)) => key.create(context, &head)?,
            (_, None) => {}
        }
        let mut settings = self.settings.clone();
        settings.received.retain(|one| !waits_for_contents(one));
        let not_set = set_all(context, &head, &settings)?;
        made.record(context, "receive", " ".to_string());
        let receiver = Receiver {
            head: made.head(),
            is_new: true,
        };
        Ok(Begun { receiver, not_set })
    }

    /// Marks the head, so that it is not opened, and has it ready for the first record.
    fn prepare(&self, context: &TaskContext<'_>, receiver: Receiver) -> Result<(), DatasetError> {
        let (writing, id) = (context.writing(), receiver.head);
        let stored = writing.change(id, |stored: &mut Stored| {
            stored.flags = stored.flags.with(DatasetFlags::INCONSISTENT);
            if self.stream.is_case_insensitive {
                stored.flags = stored.flags.with(DatasetFlags::CASE_INSENSITIVE);
            }
        })?;
        let features = self.stream.features;
        for (in_stream, feature) in [
            (StreamFeatures::LARGE_BLOCKS, Feature::LargeBlocks),
            (StreamFeatures::LONG_NAMES, Feature::Longname),
            // Blocks are stored as they came.
            (StreamFeatures::ZSTD, Feature::ZstdCompress),
        ] {
            if features.has(in_stream) {
                feature_use::activate(context, id, feature)?;
            }
        }
        if self.resumable {
            note_resume_facts(context, id, &self.stream)?;
        }
        match (stored.root.is_hole(), &self.key) {
            (true, Some(key)) => {
                creation::create_sealed_set(context, id, self.stream.objset_type, key.new_set())
            }
            (true, None) => create_set(context, id, self.stream.objset_type).map(drop),
            (false, _) => forget_log(context, id),
        }
    }
}

/// Has a new head use the features of the snapshot that it begins with. Settings may have it use
/// more.
fn take_over_features(context: &TaskContext<'_>, head: ObjectId) -> Result<(), DatasetError> {
    let stored: Stored = context.writing().reading().bonus_of(head)?;
    match stored.previous_snapshot.is_zero() {
        true => Ok(()),
        false => feature_use::take_over(context, stored.previous_snapshot, head),
    }
}
