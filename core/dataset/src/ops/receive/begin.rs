//! The beginning of a receive: the request, and its refusals.

use super::half_received::check_whole;
use super::newer::check_newer_can_go;
use super::receiver::{busy, is_clone, is_modified, receive_name};
use super::settings::ReceiveSettings;
use super::stream_facts::StreamFacts;
use crate::crypto_key::{self, KeyFacts};
use crate::dataset::Dataset;
use crate::deadlist;
use crate::directory::Directory;
use crate::names::{NAME_BYTES_MAX, RECEIVE_COMPONENT};
use crate::namespace::View;
use crate::ops::clone::is_of_this_group;
use crate::ops::create::{check_name, check_new, check_place};
use crate::ops::set::{check_settings, find};
use crate::properties::value::Kinds;
use crate::task::{FeatureCounts, TaskRefusal};
use tarn_ondisk::dataset::{IVSET_GUID, REMAP_DEADLIST};
use tarn_ondisk::features::Feature;
use tarn_ondisk::stream::StreamFeatures;

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

fn not_supported(what: &str) -> TaskRefusal {
    TaskRefusal::NotSupported {
        what: what.to_string(),
    }
}

/// Refuses a stream for which the pool lacks a feature.
#[doc(alias = "recv_begin_check_feature_flags_impl")]
pub(super) fn check_features(
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
    pub(super) fn check_existing(
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
    pub(super) fn base<'a>(
        &self,
        target: &Dataset<'a>,
    ) -> Result<Option<Dataset<'a>>, TaskRefusal> {
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

    pub(super) fn check_new(
        &self,
        view: View<'_>,
        features: &dyn FeatureCounts,
    ) -> Result<(), TaskRefusal> {
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
