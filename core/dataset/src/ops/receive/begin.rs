//! Beginning to receive: a new file system, or the clone `%recv` of the snapshot that an increment
//! follows.

use super::finish::check_newer_can_go;
use super::{
    Begun, ReceiveSettings, Receiver, Stored, StreamFacts, busy, check_name_length, check_names,
    check_snapshot_name, check_whole, is_clone, is_modified, not_found, not_supported,
    receive_name, set_all, waits_for_contents,
};
use crate::creation::{create_set, origin_snapshot};
use crate::crypto_key::KeyFacts;
use crate::dataset::Dataset;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::heads::decides_writing;
use crate::names::{DatasetName, RECEIVE_COMPONENT};
use crate::namespace::View;
use crate::ops::clone::{forget_log, is_of_this_group};
use crate::ops::create::{Made, check_name, check_new, check_place};
use crate::ops::set::{Source, apply_one, check_settings, find};
use crate::properties::value::Kinds;
use crate::task::{FeatureCounts, Room, SyncTask, TaskContext, TaskRefusal};
use crate::{creation, crypto_key, deadlist, feature_use};
use tarn_object::zap::ZapValue;
use tarn_ondisk::dataset::{
    DatasetFlags, IVSET_GUID, REMAP_DEADLIST, RESUME_BYTES, RESUME_COMPRESSED, RESUME_EMBEDDED,
    RESUME_FROM_GUID, RESUME_LARGE_BLOCK, RESUME_OBJECT, RESUME_OFFSET, RESUME_RAW, RESUME_TO_GUID,
    RESUME_TO_NAME,
};
use tarn_ondisk::features::Feature;
use tarn_ondisk::stream::StreamFeatures;
use tarn_ondisk::units::ObjectId;

/// Makes room for a stream.
#[derive(Debug, Clone)]
pub struct BeginReceive {
    /// The full name of the file system or volume that gets the snapshot.
    pub target: String,
    /// The snapshot's short name.
    pub snapshot: String,
    /// A snapshot that the new file system is to be a clone of.
    pub origin: Option<String>,
    /// What the stream says of itself.
    pub stream: StreamFacts,
    /// What was changed or added at the target since the common snapshot is given up.
    pub force: bool,
    /// The stream may be cut, and go on later.
    pub resumable: bool,
    /// What something new gets set; of what is there already, what decides how the stream is
    /// written.
    pub settings: ReceiveSettings,
    /// The key, in a raw stream of something encrypted.
    pub key: Option<KeyFacts>,
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

/// Refuses a stream for which the pool lacks a feature.
#[doc(alias = "recv_begin_check_feature_flags_impl")]
fn check_features(
    stream: &StreamFacts,
    resumable: bool,
    features: &dyn FeatureCounts,
) -> Result<(), TaskRefusal> {
    let needed = [
        (StreamFeatures::LZ4, Feature::Lz4Compress),
        (StreamFeatures::ZSTD, Feature::ZstdCompress),
        (StreamFeatures::EMBEDDED, Feature::EmbeddedData),
        (StreamFeatures::LARGE_BLOCKS, Feature::LargeBlocks),
        (StreamFeatures::LARGE_DNODES, Feature::LargeDnode),
        (StreamFeatures::LONG_NAMES, Feature::Longname),
        (StreamFeatures::RAW, Feature::Encryption),
    ];
    for (in_stream, feature) in needed {
        if stream.features.has(in_stream) && !features.is_enabled(feature) {
            return Err(TaskRefusal::FeatureDisabled { feature });
        }
    }
    if resumable && !features.is_enabled(Feature::ExtensibleDataset) {
        return Err(TaskRefusal::FeatureDisabled {
            feature: Feature::ExtensibleDataset,
        });
    }
    Ok(())
}

impl BeginReceive {
    #[doc(alias = "recv_begin_check_existing_impl")]
    fn check_existing(
        &self,
        view: View<'_>,
        target: &Dataset<'_>,
        features: &dyn FeatureCounts,
    ) -> Result<(), TaskRefusal> {
        if self.origin.is_some() || self.stream.is_clone {
            return Err(TaskRefusal::Exists {
                name: self.target.clone(),
            });
        }
        check_name_length(&self.target)?;
        let directory = target.directory();
        if directory.child(RECEIVE_COMPONENT)?.is_some() {
            return Err(busy("dataset is busy"));
        }
        check_whole(target)?;
        if target.snapshot(&self.snapshot)?.is_some() {
            return Err(TaskRefusal::Exists {
                name: format!("{}@{}", self.target, self.snapshot),
            });
        }
        let is_encrypted = crypto_key::key_of(directory)?.is_some();
        if self.stream.from_guid == 0 {
            if self.force && (is_encrypted || self.key.is_some()) {
                return Err(TaskRefusal::BadKey {
                    why: "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one with an encrypted one".to_string(),
                });
            }
        } else {
            self.check_key(directory)?;
        }
        let is_divided = deadlist::is_divided(view.mos(), target.stored()?.deadlist)?;
        if target.extension(REMAP_DEADLIST)?.is_some() || !is_divided {
            return Err(not_supported(
                "receiving into a dataset with blocks on removed vdevs, or of before pool version 26",
            ));
        }
        if self.stream.kinds() == Kinds::VOLUME && !directory.child_ids()?.is_empty() {
            return Err(TaskRefusal::ParentNotFilesystem {
                name: self.target.clone(),
            });
        }
        check_settings(
            Some(target),
            &self.settings.local,
            self.stream.kinds(),
            features,
        )?;
        if self.stream.from_guid == 0 && is_clone(view, target)? {
            return Err(TaskRefusal::Exists {
                name: self.target.clone(),
            });
        }
        let Some(base) = self.base(target)? else {
            return Ok(());
        };
        if view.is_syncing() && is_of_this_group(view, &base)? {
            return Err(TaskRefusal::NotInThisGroup);
        }
        self.check_vectors(&base)?;
        if self.force && !view.is_syncing() {
            check_newer_can_go(target, base.stored()?.creation_txg)?;
        }
        check_large_blocks(&base, &self.stream)
    }

    /// What is encrypted goes on with the same key, and nothing else does.
    fn check_key(&self, goes_on_from: &Directory<'_>) -> Result<(), TaskRefusal> {
        let is_encrypted = crypto_key::key_of(goes_on_from)?.is_some();
        let bad_key = |why: &str| TaskRefusal::BadKey {
            why: why.to_string(),
        };
        match &self.key {
            None if is_encrypted => Err(bad_key("inherited key must be loaded")),
            Some(_) if !is_encrypted => Err(bad_key(
                "cannot perform raw receive on top of existing unencrypted dataset",
            )),
            Some(key) if !key.is_key_of(goes_on_from)? => {
                Err(bad_key("encryption key does not match existing key"))
            }
            _ => Ok(()),
        }
    }

    /// The snapshot that a raw stream goes on from has the vectors that it had at the sender: none
    /// of them is used twice.
    #[doc(alias = "ZFS_ERR_FROM_IVSET_GUID_MISMATCH")]
    fn check_vectors(&self, base: &Dataset<'_>) -> Result<(), TaskRefusal> {
        let Some(key) = &self.key else {
            return Ok(());
        };
        let there = base.extension(IVSET_GUID)?.unwrap_or(0);
        let why = match (there, key.from_ivset_guid) {
            (0, _) | (_, 0) => {
                "IV set guid missing. See errata 4 at https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER."
            }
            (there, sent) if there != sent => {
                "IV set guid mismatch. See the 'zfs receive' man page section\n discussing the limitations of raw encrypted send streams."
            }
            _ => return Ok(()),
        };
        Err(TaskRefusal::BadKey {
            why: why.to_string(),
        })
    }

    /// The snapshot of the target that the stream goes on from; none for a full stream.
    fn base<'a>(&self, target: &Dataset<'a>) -> Result<Option<Dataset<'a>>, TaskRefusal> {
        if self.stream.from_guid == 0 {
            return match self.force {
                true => Ok(None),
                false => Err(TaskRefusal::Exists {
                    name: self.target.clone(),
                }),
            };
        }
        let mut snapshots = target.snapshots()?;
        snapshots.sort_by_key(|snapshot| {
            let stored = snapshot.stored();
            stored.map_or(0, |stored| stored.creation_txg.get())
        });
        let mut found = None;
        for snapshot in &snapshots {
            if snapshot.stored()?.guid.get() == self.stream.from_guid {
                found = Some(snapshot.clone());
            }
        }
        let found = found.ok_or(TaskRefusal::NoBase)?;
        if self.force {
            return Ok(Some(found));
        }
        if is_modified(target, &found)? {
            return Err(TaskRefusal::Modified);
        }
        // Snapshots of no change since may stay; but they have vectors of their own.
        let newest = snapshots.pop();
        let is_newest = newest
            .as_ref()
            .is_some_and(|newest| newest.id() == found.id());
        if self.key.is_some() && !is_newest {
            return Err(TaskRefusal::Modified);
        }
        Ok(newest)
    }

    fn check_new(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let has_origin = self.origin.is_some();
        if self.stream.is_clone && !has_origin {
            return Err(TaskRefusal::NoBase);
        }
        if self.stream.from_guid != 0 && !has_origin {
            return Err(TaskRefusal::NotFound {
                name: self.target.clone(),
            });
        }
        let parent = match self.key {
            Some(_) => check_place(view, &self.target)?,
            None => check_name(view, &self.target)?,
        };
        check_name_length(&self.target)?;
        check_new(&parent, &self.settings.local, self.stream.kinds(), features)?;
        let Some(origin) = &self.origin else {
            return Ok(());
        };
        let origin = find(view, origin)?;
        if !origin.is_snapshot() {
            return Err(TaskRefusal::BadValue {
                property: "origin".to_string(),
                why: "operation not applicable to datasets of this type".to_string(),
            });
        }
        if self.stream.from_guid == 0 && !self.stream.has_free_records {
            return Err(TaskRefusal::NoBase);
        }
        let is_other = origin.stored()?.guid.get() != self.stream.from_guid;
        if self.stream.from_guid != 0 && is_other {
            return Err(TaskRefusal::NoBase);
        }
        self.check_key(origin.directory())?;
        if view.is_syncing() && is_of_this_group(view, &origin)? {
            return Err(TaskRefusal::NotInThisGroup);
        }
        self.check_vectors(&origin)?;
        check_large_blocks(&origin, &self.stream)
    }

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
            self.note_resume_facts(context, id)?;
        }
        match (stored.root.is_hole(), &self.key) {
            (true, Some(key)) => {
                creation::create_sealed_set(context, id, self.stream.objset_type, key.new_set())
            }
            (true, None) => create_set(context, id, self.stream.objset_type).map(drop),
            (false, _) => forget_log(context, id),
        }
    }

    /// Says of the head what a stream that goes on must be.
    fn note_resume_facts(
        &self,
        context: &TaskContext<'_>,
        head: ObjectId,
    ) -> Result<(), DatasetError> {
        let (writing, stream) = (context.writing(), &self.stream);
        writing.extend(head, context.features)?;
        let put = |name: &str, value: u64| writing.put(head, name, &ZapValue::word(value));
        if stream.from_guid != 0 {
            put(RESUME_FROM_GUID, stream.from_guid)?;
        }
        put(RESUME_TO_GUID, stream.to_guid)?;
        writing.put(head, RESUME_TO_NAME, &ZapValue::text(&stream.to_name))?;
        put(RESUME_OBJECT, 1)?;
        put(RESUME_OFFSET, 0)?;
        put(RESUME_BYTES, 0)?;
        for (feature, name) in [
            (StreamFeatures::LARGE_BLOCKS, RESUME_LARGE_BLOCK),
            (StreamFeatures::EMBEDDED, RESUME_EMBEDDED),
            (StreamFeatures::COMPRESSED, RESUME_COMPRESSED),
            (StreamFeatures::RAW, RESUME_RAW),
        ] {
            if stream.features.has(feature) {
                put(name, 1)?;
            }
        }
        Ok(())
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

/// Refuses a stream whose blocks would be smaller than those that it goes on from.
fn check_large_blocks(base: &Dataset<'_>, stream: &StreamFacts) -> Result<(), TaskRefusal> {
    let has_large = base.uses_feature(Feature::LargeBlocks.guid())?;
    match has_large && !stream.features.has(StreamFeatures::LARGE_BLOCKS) {
        true => Err(TaskRefusal::SmallBlocks),
        false => Ok(()),
    }
}
