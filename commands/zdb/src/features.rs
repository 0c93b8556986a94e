//! Checks whether the stored use count of each feature is right.

use crate::look::Look;
use crate::metaslab;
use crate::out::Out;
use crate::set::{SetView, extension};
use std::collections::BTreeMap;
use tarn_engine::inspect::InspectError;
use tarn_ondisk as ondisk;
use tarn_ondisk::bookmark::Bookmark;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory as name;
use tarn_vdev::{VdevConfig, VdevKind};

/// Features of the whole pool whose uses are counted here.
const COUNTED: &[Feature] = &[
    Feature::RedactionBookmarks,
    Feature::RedactionListSpill,
    Feature::BookmarkWritten,
    Feature::Livelist,
];

/// The found uses of features.
#[derive(Default)]
pub struct Uses {
    counts: BTreeMap<&'static str, u64>,
    remapped_deadlists: u64,
}

impl Uses {
    fn add(&mut self, feature: Feature) {
        *self.counts.entry(feature.guid()).or_default() += 1;
    }

    /// Counts the features that a dataset uses.
    pub fn count(&mut self, look: &Look<'_>, view: &SetView) -> Result<(), InspectError> {
        let directory = look.directory();
        if directory.object(view.id)?.object_type().is_zap() {
            for (entry, _) in directory.entries(view.id)? {
                if let Some(feature) = Feature::from_guid(&entry) {
                    self.add(feature);
                }
            }
        }
        if extension(look, view.id, ondisk::dataset::REMAP_DEADLIST)?.is_some() {
            self.remapped_deadlists += 1;
        }
        if let Some(bookmarks) = extension(look, view.id, ondisk::dataset::BOOKMARK_NAMES)? {
            for (_, value) in directory.entries(bookmarks)? {
                self.count_bookmark(look, &value.to_words())?;
            }
        }
        let is_snapshot = view.dataset.is_some_and(|dataset| dataset.is_snapshot());
        let has_livelist = view
            .directory
            .as_ref()
            .is_some_and(|directory| directory.livelist.is_some());
        if has_livelist && !is_snapshot {
            self.add(Feature::Livelist);
        }
        Ok(())
    }

    fn count_bookmark(&mut self, look: &Look<'_>, words: &[u64]) -> Result<(), InspectError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let Ok(bookmark) = Bookmark::from_stored(&bytes, ByteOrder::Little) else {
            return Ok(());
        };
        if !bookmark.redaction.is_zero() {
            self.add(Feature::RedactionBookmarks);
            if look
                .directory()
                .object(bookmark.redaction)?
                .info()
                .has_spill
            {
                self.add(Feature::RedactionListSpill);
            }
        }
        if bookmark.flags & Bookmark::HAS_FREED_BEFORE_NEXT != 0 {
            self.add(Feature::BookmarkWritten);
        }
        Ok(())
    }

    /// Counts livelists of destroyed clones.
    pub fn count_deleted_clones(&mut self, look: &Look<'_>) -> Result<(), InspectError> {
        if let Some(clones) = look.directory().find(name::DELETED_CLONES)? {
            for _ in look.directory().entries(clones)? {
                self.add(Feature::Livelist);
            }
        }
        Ok(())
    }

    /// Compares the stored count of each feature. Returns whether all are right.
    pub fn verify(&self, out: &mut Out, look: &Look<'_>) -> Result<bool, InspectError> {
        let features = look.pool().features();
        let mut all_right = true;
        for feature in Feature::ALL {
            let is_counted = feature.is_per_dataset() || COUNTED.contains(feature);
            let Some(stored) = features.count(feature.guid()).filter(|_| is_counted) else {
                continue;
            };
            let found = self.counts.get(feature.guid()).copied().unwrap_or(0);
            all_right &= verdict(out, feature.name(), found, stored);
        }
        Ok(all_right)
    }

    /// The same for features of device removal.
    pub fn verify_removal(&self, out: &mut Out, look: &Look<'_>) -> Result<bool, InspectError> {
        let features = look.pool().features();
        let count = |feature: Feature| features.count(feature.guid()).unwrap_or(0);
        let root = look.pool().vdevs().config();
        let mut indirect = 0;
        let mut obsolete = self.remapped_deadlists;
        for vdev in &root.children {
            indirect += u64::from(vdev.kind == VdevKind::Indirect);
            obsolete += self.obsolete_of(look, vdev)?;
        }
        obsolete += u64::from(
            look.directory()
                .find(name::OBSOLETE_POINTER_LIST)?
                .is_some(),
        );
        if let Some(value) = look.directory().value(name::CONDENSING_INDIRECT)? {
            // The second word is the mapping that is under construction.
            obsolete += 2 * u64::from(value.to_words().get(1).is_some_and(|mapping| *mapping != 0));
        }
        let mut all_right = true;
        let stored = count(Feature::DeviceRemoval);
        if stored == indirect {
            writeln!(
                out,
                "Verified device_removal feature refcount of {stored} is correct"
            );
        } else {
            all_right = false;
            writeln!(
                out,
                "Number of indirect vdevs ({indirect}) does not match feature count ({stored})"
            );
        }
        let stored = count(Feature::ObsoleteCounts);
        if stored == obsolete {
            writeln!(
                out,
                "Verified indirect_refcount feature refcount of {stored} is correct"
            );
        } else {
            all_right = false;
            writeln!(
                out,
                "Number of obsolete counts objects ({obsolete}) does not match feature count ({stored})"
            );
        }
        Ok(all_right)
    }

    fn obsolete_of(&self, look: &Look<'_>, vdev: &VdevConfig) -> Result<u64, InspectError> {
        let Some(zap) = metaslab::object_of(vdev, metaslab::TOP_ZAP) else {
            return Ok(0);
        };
        let value = |entry: &str| look.directory().value_in(zap, entry);
        let is_precise = value(name::VDEV_OBSOLETE_COUNTS_PRECISE)?
            .and_then(|value| value.as_word())
            .is_some_and(|word| word != 0);
        let has_map = value(name::VDEV_OBSOLETE_SPACE_MAP)?.is_some();
        let has_counts = match metaslab::object_of(vdev, "com.delphix:indirect_object") {
            Some(mapping) => look.directory().object(mapping)?.bonus().len() > 24,
            None => false,
        };
        Ok(u64::from(is_precise) + u64::from(has_map) + u64::from(has_counts))
    }
}

fn verdict(out: &mut Out, name: &str, found: u64, stored: u64) -> bool {
    if found == stored {
        writeln!(
            out,
            "Verified {name} feature refcount of {stored} is correct"
        );
    } else {
        writeln!(
            out,
            "{name} feature refcount mismatch: {found} consumers != {stored} refcount"
        );
    }
    found == stored
}
