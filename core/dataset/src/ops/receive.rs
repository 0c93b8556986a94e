//! Receiving a snapshot: where the contents of a stream go while they come, and what makes a
//! snapshot of them.
//!
//! # Mechanism
//! A stream for a file system that is not there goes into a new one; a stream for one that is there
//! goes into a clone of its snapshot, a directory `%recv` below it. Both are marked inconsistent:
//! nobody opens them, and an import destroys them unless the stream may go on ([`resumable`]). At
//! the end, in one group, the clone's contents become those of the file system, with all that is
//! charged for them, the clone is removed, and the snapshot is taken that the stream was of: with
//! its guid, so that the next increment finds it.
//!
//! # Invariants
//! - What is half received is given up as it was made: nothing comes below it, and nobody promotes
//!   it or receives into it a second time.
//! - The clone's contents are what follows its snapshot. So they become the target's only if that
//!   snapshot is still the target's own.
//! - Until that last group, who looks at the file system sees nothing of the stream.
//! - Whoever asks for the end has seen to it that nobody writes into the clone any more, and that
//!   nobody has the file system open.

use super::bookmark::DestroyBookmarks;
use super::clone::{forget_log, is_of_this_group};
use super::create::{Made, apply_settings_to, check_name, check_new, check_place};
use super::destroy::{check_abandoned, destroy, give_away, remove};
use super::destroy_snapshot::{
    DestroySnapshots, Going, check_stays_or_unused, check_unused, destroy_if_marked,
};
use super::inherit::check_user_name;
use super::rollback::{origin_txg, paid_for, written_since};
use super::set::{
    Source, apply_one, check_limit_of, check_received, check_settings, clear_received, find,
    store_with_limits,
};
use super::snapshot::{Identity, check_moment, check_set_aside, take};
use crate::counting_bookmarks;
use crate::creation::{self, ORIGIN, create_set, origin_snapshot};
use crate::crypto_key::{self, KeyFacts};
use crate::dataset::Dataset;
use crate::deadlist;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::feature_use;
use crate::heads::decides_writing;
use crate::livelist;
use crate::names::{DatasetName, NAME_BYTES_MAX, RECEIVE_COMPONENT};
use crate::namespace::View;
use crate::properties::inherit::{INHERIT_SUFFIX, local_number};
use crate::properties::parse::Checked;
use crate::properties::set::{Entry, note_received};
use crate::properties::value::Kinds;
use crate::space_charge::{Part, SpaceChange, charge, move_between};
use crate::stored::is_zap;
use crate::task::{FeatureCounts, InternalEvent, Room, SyncTask, TaskContext, TaskRefusal};
use tarn_object::read_head;
use tarn_object::zap::ZapValue;
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset::{
    DatasetFlags, IVSET_GUID, REMAP_DEADLIST, RESUME_BYTES, RESUME_COMPRESSED, RESUME_EMBEDDED,
    RESUME_FROM_GUID, RESUME_LARGE_BLOCK, RESUME_OBJECT, RESUME_OFFSET, RESUME_RAW,
    RESUME_REDACTION_SNAPSHOTS, RESUME_TO_GUID, RESUME_TO_NAME,
};
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::StreamFeatures;
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg};

/// What of a dataset is stored.
type Stored = ondisk::dataset::Dataset;

/// By how much what is received may exceed a refquota: what one transaction can store at most, as
/// it could at the sender.
#[doc(alias = "refquota_slack")]
const REFQUOTA_SLACK_BYTES: u64 = (64 << 20) * 24;

/// What the first record of a stream says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFacts {
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// The guid of the snapshot before it; zero for a full stream.
    pub from_guid: u64,
    /// The full name of the snapshot at the sender.
    pub to_name: String,
    /// When it was taken there, in seconds since 1970.
    pub creation_time_s: u64,
    /// What it is a snapshot of.
    pub objset_type: ObjsetType,
    /// The snapshot is the first of a clone.
    pub is_clone: bool,
    /// A full stream says what is free, so that it can become a clone.
    pub has_free_records: bool,
    /// Names are not told apart by case.
    pub is_case_insensitive: bool,
    /// What a receiver must know.
    pub features: StreamFeatures,
}

impl StreamFacts {
    fn kinds(&self) -> Kinds {
        match self.objset_type {
            ObjsetType::Zvol => Kinds::VOLUME,
            _ => Kinds::FILESYSTEM,
        }
    }
}

/// What the target of a stream gets set.
#[derive(Debug, Clone, Default)]
pub struct ReceiveSettings {
    /// What somebody sets.
    pub local: Vec<Checked>,
    /// What came with the stream.
    pub received: Vec<Checked>,
    /// What is inherited whatever came, unless somebody has set it at the target.
    pub inherited: Vec<String>,
}

/// A setting that was not made. What is received is whole without it.
#[derive(Debug)]
pub struct NotSet {
    /// The property.
    pub property: String,
    /// Why.
    pub why: TaskRefusal,
}

/// Room for a stream was made.
#[derive(Debug)]
pub struct Begun {
    /// Where the stream goes.
    pub receiver: Receiver,
    /// What of the settings of something new was not made.
    pub not_set: Vec<NotSet>,
}

/// Where a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receiver {
    /// The head that takes it in.
    pub head: ObjectId,
    /// Whether that is the file system itself, and no clone of it.
    pub is_new: bool,
}

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

fn not_found(name: &str) -> DatasetError {
    DatasetError::NotFound {
        name: name.to_string(),
    }
}

fn busy(why: &str) -> TaskRefusal {
    TaskRefusal::Busy {
        why: why.to_string(),
    }
}

fn not_supported(what: &str) -> TaskRefusal {
    TaskRefusal::NotSupported {
        what: what.to_string(),
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

    /// Marks the head, so that nobody opens it, and has it ready for the first record.
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

/// Refuses a head that is half received.
pub(super) fn check_whole(head: &Dataset<'_>) -> Result<(), TaskRefusal> {
    let flags = head.stored()?.flags;
    match flags.contains(DatasetFlags::INCONSISTENT) || resumes(head)? {
        true => Err(busy("dataset is busy")),
        false => Ok(()),
    }
}

/// The name of the clone that an increment goes into.
pub fn receive_name(target: &str) -> String {
    format!("{target}/{RECEIVE_COMPONENT}")
}

/// Refuses settings whose names cannot be stored with the suffixes that they get.
fn check_names(settings: &ReceiveSettings) -> Result<(), TaskRefusal> {
    check_received(&settings.received)?;
    let mut inherited = settings.inherited.iter();
    inherited.try_for_each(|name| check_user_name(name, INHERIT_SUFFIX))
}

/// Refuses a snapshot that cannot be named.
fn check_snapshot_name(target: &str, short: &str) -> Result<(), TaskRefusal> {
    match DatasetName::parse(&format!("{target}@{short}")) {
        Ok(name) if name.tail() == Some(short) => Ok(()),
        _ => Err(TaskRefusal::BadValue {
            property: "name".to_string(),
            why: "invalid name".to_string(),
        }),
    }
}

/// Refuses a target whose clone could not be named.
fn check_name_length(target: &str) -> Result<(), TaskRefusal> {
    match receive_name(target).len() > NAME_BYTES_MAX {
        true => Err(TaskRefusal::NameTooLong {
            why: "dataset name is too long".to_string(),
        }),
        false => Ok(()),
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

/// Whether a head began as a snapshot of another.
///
/// # Errors
/// When it cannot be read.
pub fn is_clone(view: View<'_>, head: &Dataset<'_>) -> Result<bool, DatasetError> {
    let Some(beginning) = beginning_of_all(view)? else {
        return Ok(false);
    };
    Ok(head.directory().stored()?.origin != beginning)
}

/// The snapshot that is nobody's, with which everything begins; pools of before version 11 have
/// none.
fn beginning_of_all(view: View<'_>) -> Result<Option<ObjectId>, DatasetError> {
    let Some(origin) = view.root()?.child(ORIGIN)? else {
        return Ok(None);
    };
    let origin: Stored = view.mos().bonus_of(origin.stored()?.head_dataset)?;
    Ok(Some(origin.previous_snapshot))
}

/// Whether a head waits for a stream that was cut.
fn resumes(head: &Dataset<'_>) -> Result<bool, DatasetError> {
    Ok(head.extension(RESUME_TO_GUID)?.is_some())
}

/// Whether a head is not what its snapshot is. Its intent log does not matter.
#[doc(alias = "dsl_dataset_modified_since_snap")]
fn is_modified(head: &Dataset<'_>, snapshot: &Dataset<'_>) -> Result<bool, DatasetError> {
    let (now, then) = (head.stored()?, snapshot.stored()?);
    if now.root.logical_birth <= then.creation_txg {
        return Ok(false);
    }
    if then.root.is_hole() {
        return Ok(true);
    }
    let view = head.directory().view();
    let cache = &view.namespace().mos().env().cache;
    let objset = |id, root| {
        let read = read_head(cache, id, root, view.operation());
        read.map_err(|cause| DatasetError::Object { object: id, cause })
    };
    let now = objset(head.id(), &now.root)?;
    let then = objset(snapshot.id(), &then.root)?;
    Ok(now.meta_dnode != then.meta_dnode)
}

/// What a token says for the sender to go on with: of the head itself, or of the clone that its
/// increment was cut in. None where nothing waits.
///
/// # Errors
/// When it cannot be read.
#[doc(alias = "dsl_get_receive_resume_token")]
pub fn resume_list(head: &Dataset<'_>) -> Result<Option<NvList>, DatasetError> {
    let clone = head.directory().child(RECEIVE_COMPONENT)?;
    let clone = match clone {
        Some(directory) => directory.head()?,
        None => None,
    };
    let Some(head) = [Some(head.clone()), clone]
        .into_iter()
        .flatten()
        .find(|head| resumes(head).unwrap_or(false))
    else {
        return Ok(None);
    };
    let mut list = NvList::new();
    for (name, stored) in [
        ("fromguid", RESUME_FROM_GUID),
        ("object", RESUME_OBJECT),
        ("offset", RESUME_OFFSET),
        ("bytes", RESUME_BYTES),
        ("toguid", RESUME_TO_GUID),
    ] {
        if let Some(number) = head.extension(stored)? {
            list.set(name, number);
        }
    }
    let reading = head.directory().view().mos();
    if let Some(name) = reading.lookup(head.id(), RESUME_TO_NAME)? {
        let name = name.as_text().unwrap_or_default();
        list.set("toname", String::from_utf8_lossy(name).as_ref());
    }
    for (name, stored) in [
        ("largeblockok", RESUME_LARGE_BLOCK),
        ("embedok", RESUME_EMBEDDED),
        ("compressok", RESUME_COMPRESSED),
        ("rawok", RESUME_RAW),
    ] {
        if head.extension(stored)?.is_some() {
            list.set_flag(name);
        }
    }
    Ok(Some(list))
}

/// Whether a received value is set only when the contents are there: a snapshot may be larger than
/// what the file system was limited to later.
#[doc(alias = "extract_delay_props")]
fn waits_for_contents(received: &Checked) -> bool {
    received.name == "refquota"
}

/// Gives a head what came with the stream, what somebody sets, and what is to be inherited. What
/// limits do not allow is left out, and told.
fn set_all(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    settings: &ReceiveSettings,
) -> Result<Vec<NotSet>, DatasetError> {
    let properties = head.directory().stored()?.properties;
    if !settings.received.is_empty() {
        note_received(context.writing(), properties)?;
    }
    let mut not_set = set_possible(context, head, &settings.received, Source::Received)?;
    not_set.extend(set_possible(context, head, &settings.local, Source::Local)?);
    for name in &settings.inherited {
        if !is_set_here(head, name)? {
            store_with_limits(context, head, name, &Entry::Inherited)?;
        }
    }
    context.namespace.policies_changed(head.directory());
    Ok(not_set)
}

/// Sets what limits allow. What is refused is tried again after the others.
fn set_possible(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    settings: &[Checked],
    source: Source,
) -> Result<Vec<NotSet>, DatasetError> {
    let mut waiting: Vec<&Checked> = settings.iter().collect();
    loop {
        let (count, mut refused, mut not_set) = (waiting.len(), Vec::new(), Vec::new());
        for checked in waiting {
            // What came with a stream does not count where somebody has set something else.
            let counts = source == Source::Local || !is_set_here(head, &checked.name)?;
            match check_limit_of(head, checked) {
                Err(TaskRefusal::Dataset(error)) => return Err(error),
                Err(why) if counts => {
                    refused.push(checked);
                    not_set.push(NotSet {
                        property: checked.name.clone(),
                        why,
                    });
                }
                _ => apply_settings_to(context, head, std::slice::from_ref(checked), source)?,
            }
        }
        if refused.is_empty() || refused.len() == count {
            return Ok(not_set);
        }
        waiting = refused;
    }
}

/// Whether somebody has set a property on the head itself.
fn is_set_here(head: &Dataset<'_>, name: &str) -> Result<bool, DatasetError> {
    let properties = head.directory().stored()?.properties;
    let reading = head.directory().view().mos();
    Ok(reading.lookup(properties, name)?.is_some())
}

/// What a target waits for, whose stream was cut: the head that has the beginning, and whether that
/// is the target itself.
///
/// # Errors
/// When the stream that goes on is not the rest of the one that was cut.
#[doc(alias = "dmu_recv_resume_begin_check")]
pub fn resumable(
    view: View<'_>,
    target: &str,
    stream: &StreamFacts,
    force: bool,
) -> Result<Receiver, TaskRefusal> {
    let mismatch = |why: &str| TaskRefusal::BadValue {
        property: "receive_resume_token".to_string(),
        why: why.to_string(),
    };
    let clone = match view.directory(&receive_name(target)) {
        Ok(directory) => directory.head()?,
        Err(DatasetError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let is_new = clone.is_none();
    let head = match clone {
        Some(clone) => clone,
        None => find(view, target)?,
    };
    if !is_new && stream.from_guid == 0 && !force {
        return Err(TaskRefusal::Exists {
            name: target.to_string(),
        });
    }
    let stored = head.stored()?;
    if !stored.flags.contains(DatasetFlags::INCONSISTENT) || !resumes(&head)? {
        return Err(mismatch("nothing was partially received here"));
    }
    if head.extension(RESUME_TO_GUID)? != Some(stream.to_guid) {
        return Err(mismatch("another snapshot was partially received here"));
    }
    if head.extension(RESUME_FROM_GUID)?.unwrap_or(0) != stream.from_guid {
        return Err(mismatch(
            "what was partially received goes on from another snapshot",
        ));
    }
    if view.namespace().is_receiving(head.id()) {
        return Err(busy("dataset is busy"));
    }
    Ok(Receiver {
        head: head.id(),
        is_new,
    })
}

/// Ends a receive: the snapshot is there.
#[derive(Debug, Clone)]
pub struct FinishReceive {
    /// The full name of the file system or volume.
    pub target: String,
    /// The snapshot's short name.
    pub snapshot: String,
    /// Where the stream went.
    pub receiver: Receiver,
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// When it was taken at the sender, in seconds since 1970.
    pub creation_time_s: u64,
    /// What was changed or added at the target since the common snapshot is given up.
    pub force: bool,
    /// What the target gets set.
    pub settings: ReceiveSettings,
    /// Whether something new was given its settings when room was made for it, but for those that
    /// wait for the contents.
    pub is_set: bool,
    /// Whether properties came with the stream at all: what was received before and did not come
    /// again goes.
    pub has_properties: bool,
    /// What came with the stream for the snapshot.
    pub snapshot_settings: Vec<Checked>,
    /// The key, in a raw stream of something encrypted.
    pub key: Option<KeyFacts>,
}

/// The file system or volume that gets the snapshot: whatever it is called by now.
///
/// # Errors
/// When the head cannot be read, or is gone.
pub fn target_of(view: View<'_>, receiver: Receiver) -> Result<Dataset<'_>, DatasetError> {
    let head = view.dataset_by_id(receiver.head)?;
    if receiver.is_new {
        return Ok(head);
    }
    let missing = || not_found(&head.name());
    let parent = head.directory().parent()?.ok_or_else(missing)?;
    parent.head()?.ok_or_else(missing)
}

impl SyncTask for FinishReceive {
    /// What of the settings was not made.
    type Output = Vec<NotSet>;

    fn room(&self) -> Room {
        Room::normal(3)
    }

    #[doc(alias = "dmu_recv_end_check")]
    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let head = view.dataset_without_name(self.receiver.head)?;
        let stored = head.stored()?;
        if view.is_syncing() {
            check_moment(view, &head, &stored)?;
        }
        check_settings(None, &self.snapshot_settings, Kinds::SNAPSHOT, features)?;
        check_received(&self.snapshot_settings)?;
        check_names(&self.settings)?;
        check_snapshot_name(&self.target, &self.snapshot)?;
        let target = target_of(view, self.receiver)?;
        if target.name() != self.target {
            return Err(TaskRefusal::NotFound {
                name: self.target.clone(),
            });
        }
        if target.snapshot(&self.snapshot)?.is_some() {
            return Err(TaskRefusal::Exists {
                name: format!("{}@{}", self.target, self.snapshot),
            });
        }
        check_set_aside(&target)?;
        if self.receiver.is_new {
            return Ok(());
        }
        check_unused(view, target.id())?;
        check_whole(&target)?;
        check_base(view, &target, &stored)?;
        let going = Going {
            holds: 0,
            clones: 1,
        };
        check_stays_or_unused(view, stored.previous_snapshot, going)?;
        let before = target.stored()?;
        if view.is_syncing() {
            check_moment(view, &target, &before)?;
        }
        if let Some(key) = &self.key
            && !key.is_key_of(target.directory())?
        {
            return Err(TaskRefusal::BadKey {
                why: "encryption key does not match existing key".to_string(),
            });
        }
        if self.force {
            let newer = newer_than(&target, stored.previous_snapshot_txg)?;
            newer.snapshots.check(view, features)?;
            newer.bookmarks.check(view, features)?;
        } else if before.previous_snapshot != stored.previous_snapshot {
            return Err(TaskRefusal::Modified);
        } else {
            let base = Dataset::open_unnamed(view, before.previous_snapshot)?;
            if is_modified(&target, &base)? {
                return Err(TaskRefusal::Modified);
            }
        }
        check_room(&target, &stored)
    }

    #[doc(alias = "dmu_recv_end_sync")]
    fn apply(self, context: &TaskContext<'_>) -> Result<Vec<NotSet>, DatasetError> {
        context.namespace.change(|| {
            if !self.receiver.is_new {
                self.exchange(context)?;
            }
            let target = context.view().directory(&self.target)?.head()?;
            let target = target.ok_or_else(|| not_found(&self.target))?;
            context.record(InternalEvent {
                name: "finish receiving",
                dataset: Some((target.name(), target.id())),
                text: format!("snap={}", self.snapshot),
            });
            let writing = context.writing();
            writing.change(target.id(), |stored: &mut Stored| {
                stored.flags = stored.flags.without(DatasetFlags::INCONSISTENT);
            })?;
            if is_zap(&*writing.reading().object(target.id())?) {
                for name in [
                    RESUME_FROM_GUID,
                    RESUME_TO_GUID,
                    RESUME_TO_NAME,
                    RESUME_OBJECT,
                    RESUME_OFFSET,
                    RESUME_BYTES,
                    RESUME_LARGE_BLOCK,
                    RESUME_EMBEDDED,
                    RESUME_COMPRESSED,
                    RESUME_RAW,
                    RESUME_REDACTION_SNAPSHOTS,
                ] {
                    writing.remove(target.id(), name)?;
                }
            }
            if !self.receiver.is_new && self.has_properties {
                clear_received(context, &target, &self.settings.received)?;
            }
            let mut settings = self.settings.clone();
            if self.receiver.is_new && self.is_set {
                settings.received.retain(waits_for_contents);
                settings.local.clear();
                settings.inherited.clear();
            }
            let not_set = set_all(context, &target, &settings)?;
            let name = format!("{}@{}", self.target, self.snapshot);
            let identity = Identity::Received {
                guid: Guid::new(self.to_guid),
                creation_time_s: self.creation_time_s,
            };
            let base = target.stored()?.previous_snapshot;
            take(context, &name, &[], identity)?;
            let parsed = DatasetName::parse(&name).map_err(|_| not_found(&name))?;
            let snapshot = context.view().dataset(&parsed)?;
            if let Some(key) = &self.key {
                if !self.receiver.is_new {
                    key.replace(context, target.directory())?;
                }
                if key.to_ivset_guid != 0 {
                    writing.extend(snapshot.id(), context.features)?;
                    let guid = ZapValue::word(key.to_ivset_guid);
                    writing.put(snapshot.id(), IVSET_GUID, &guid)?;
                }
            }
            for checked in &self.snapshot_settings {
                let (name, setting) = (&checked.name, &checked.setting);
                apply_one(context, &snapshot, name, setting, Source::Received)?;
            }
            if !self.receiver.is_new {
                // The clone may have been all that kept it.
                destroy_if_marked(context, base)?;
            }
            Ok(not_set)
        })
    }
}

/// Refuses a target whose snapshots are not those any more that the clone's contents follow: a
/// promotion has given them to another.
#[doc(alias = "dmu_recv_end_check")]
fn check_base(view: View<'_>, target: &Dataset<'_>, clone: &Stored) -> Result<(), TaskRefusal> {
    let (base, own) = (clone.previous_snapshot, target.directory().id());
    let is_own = |id: ObjectId| -> Result<bool, DatasetError> {
        let stored: Stored = view.mos().bonus_of(id)?;
        Ok(stored.directory == own)
    };
    let begins_anew = base.is_zero() || beginning_of_all(view)? == Some(base);
    if !begins_anew && !is_own(base)? {
        return Err(TaskRefusal::NoBase);
    }
    let mut at = target.stored()?.previous_snapshot;
    let mut steps_left = target.snapshot_count()?;
    while at != base {
        if at.is_zero() || steps_left == 0 || !is_own(at)? {
            return Err(TaskRefusal::NoBase);
        }
        let stored: Stored = view.mos().bonus_of(at)?;
        at = stored.previous_snapshot;
        steps_left -= 1;
    }
    Ok(())
}

/// What of a target is newer than what the clone was made of, and goes.
struct Newer {
    snapshots: DestroySnapshots,
    /// Of a past that is no longer the target's: an increment from there would be wrong.
    bookmarks: DestroyBookmarks,
}

/// What of a target is newer than its snapshot of this group.
fn newer_than(target: &Dataset<'_>, base: Txg) -> Result<Newer, DatasetError> {
    let mut snapshots = Vec::new();
    for snapshot in target.snapshots()? {
        if snapshot.stored()?.creation_txg > base {
            snapshots.push(snapshot.name());
        }
    }
    let bookmarks = target.bookmarks()?;
    let bookmarks = bookmarks
        .iter()
        .filter(|one| one.stored.creation_txg > base);
    let bookmarks = bookmarks.map(|one| format!("{}#{}", target.name(), one.name));
    Ok(Newer {
        snapshots: DestroySnapshots {
            names: snapshots,
            defer: false,
        },
        bookmarks: DestroyBookmarks {
            names: bookmarks.collect(),
        },
    })
}

/// Refuses a stream at its beginning that could not be ended: snapshots would have to go that
/// clones or holds keep. Whether they do is decided at the end.
fn check_newer_can_go(target: &Dataset<'_>, base: Txg) -> Result<(), TaskRefusal> {
    let mut refused = Vec::new();
    for snapshot in target.snapshots()? {
        let stored = snapshot.stored()?;
        if stored.creation_txg <= base {
            continue;
        }
        if stored.child_count > 1 {
            refused.push((snapshot.name(), TaskRefusal::Cloned));
        } else if snapshot.hold_count()? > 0 {
            refused.push((snapshot.name(), busy("dataset is busy")));
        }
    }
    TaskRefusal::of_several(refused)
}

/// Refuses what would not fit the target's refquota.
#[doc(alias = "dsl_dataset_clone_swap_check_impl")]
fn check_room(target: &Dataset<'_>, clone: &Stored) -> Result<(), TaskRefusal> {
    let limit = local_number(target.directory(), "refquota")?.unwrap_or(0);
    if limit != 0 && clone.referenced.get() > limit.saturating_add(REFQUOTA_SLACK_BYTES) {
        return Err(TaskRefusal::NoSpace {
            why: "quota exceeded".to_string(),
        });
    }
    Ok(())
}

impl FinishReceive {
    /// Gives the target what the clone has, and removes the clone.
    #[doc(alias = "dsl_dataset_clone_swap_sync_impl")]
    fn exchange(&self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        let directory = context.view().directory(&self.target)?;
        let head_of = || -> Result<_, DatasetError> {
            directory.head()?.ok_or_else(|| not_found(&self.target))
        };
        let clone = context
            .view()
            .directory(&receive_name(&self.target))?
            .head()?
            .filter(|clone| clone.id() == self.receiver.head)
            .ok_or_else(|| not_found(&receive_name(&self.target)))?;
        if self.force {
            let newer = newer_than(&head_of()?, clone.stored()?.previous_snapshot_txg)?;
            newer.bookmarks.apply(context)?;
            newer.snapshots.apply(context)?;
        }
        let head = head_of()?;
        give_up_changes(context, &head)?;
        take_contents(context, &head, &clone)?;
        let emptied = clone.stored()?;
        remove(context, &clone, &emptied)?;
        context.namespace.forget_head(head.id());
        livelist::remove(context, directory.id())
    }
}

/// Gives away what a head has stored since its newest snapshot, and brings its directory's charges
/// to where they were then. What the head leads to is to be replaced in the same group.
fn give_up_changes(context: &TaskContext<'_>, head: &Dataset<'_>) -> Result<(), DatasetError> {
    let writing = context.writing();
    let before = head.stored()?;
    let newest: Stored = writing.reading().bonus_of(before.previous_snapshot)?;
    let directory = head.directory().id();
    let paid = paid_for(head)?;
    let dead = deadlist::space_in(writing.reading(), before.deadlist, ..)?;
    give_away(context, head, written_since(&before, &newest, dead))?;
    let origin = origin_txg(context, head)?;
    let alive = deadlist::space_in(writing.reading(), before.deadlist, origin..)?;
    move_between(writing, directory, alive.used, Part::Snapshots, Part::Head)?;
    deadlist::free(context, before.deadlist)?;
    let paid = SpaceChange::of_used(i128::from(paid));
    charge(writing, directory, Part::RefReservation, paid)
}

/// Has a head, which has nothing of its own, be what the clone is.
fn take_contents(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    clone: &Dataset<'_>,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let taken = clone.stored()?;
    let base: Stored = writing.reading().bonus_of(taken.previous_snapshot)?;
    let dead = deadlist::space_in(writing.reading(), taken.deadlist, ..)?;
    let written = written_since(&taken, &base, dead);
    let (from, to) = (clone.directory().id(), head.directory().id());
    charge(writing, from, Part::Head, written.negated())?;
    charge(writing, to, Part::Head, written)?;
    let origin = origin_txg(context, head)?;
    let shared = deadlist::space_in(writing.reading(), taken.deadlist, origin..)?;
    move_between(writing, to, shared.used, Part::Head, Part::Snapshots)?;
    let only_base = deadlist::space_in(
        writing.reading(),
        taken.deadlist,
        base.previous_snapshot_txg..,
    )?;
    writing.change(taken.previous_snapshot, |stored: &mut Stored| {
        stored.unique = AllocatedSize::from(u64::try_from(only_base.used).unwrap_or(0));
    })?;
    writing.change(head.id(), |stored: &mut Stored| {
        stored.deadlist = taken.deadlist;
        stored.root = taken.root;
        stored.referenced = taken.referenced;
        stored.compressed = taken.compressed;
        stored.uncompressed = taken.uncompressed;
        stored.unique = taken.unique;
        stored.flags = stored.flags.with(DatasetFlags::UNIQUE_ACCURATE);
        if taken.flags.contains(DatasetFlags::CASE_INSENSITIVE) {
            stored.flags = stored.flags.with(DatasetFlags::CASE_INSENSITIVE);
        }
    })?;
    let paid = SpaceChange::of_used(-i128::from(paid_for(head)?));
    charge(writing, to, Part::RefReservation, paid)?;
    feature_use::deactivate_all(context, head.id())?;
    feature_use::take_over(context, clone.id(), head.id())?;
    feature_use::deactivate_all(context, clone.id())?;
    let base: Stored = writing.reading().bonus_of(taken.previous_snapshot)?;
    if base.next_snapshot == head.id() {
        counting_bookmarks::next_has_changed(context, head.id(), &base)?;
    }
    Ok(())
}

/// Gives up what was received so far.
#[derive(Debug, Clone)]
pub struct AbandonReceive {
    /// Where the stream went.
    pub head: ObjectId,
}

impl SyncTask for AbandonReceive {
    type Output = ();

    fn room(&self) -> Room {
        Room::any()
    }

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let head = view.dataset_without_name(self.head)?;
        let stored = head.stored()?;
        if !stored.flags.contains(DatasetFlags::INCONSISTENT) {
            return Err(busy("dataset is busy"));
        }
        check_abandoned(view, &head)
    }

    #[doc(alias = "dmu_recv_cleanup_ds")]
    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            let head = context.view().dataset_by_id(self.head)?;
            let origin = head.stored()?.previous_snapshot;
            destroy(context, &head)?;
            destroy_if_marked(context, origin)
        })
    }
}
