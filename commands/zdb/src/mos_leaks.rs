//! Checks that every object of the MOS is referenced, and every referenced object exists.
//!
//! # Mechanism
//! All structures that name objects of the MOS are followed: the pool directory, vdevs, datasets
//! with their lists, dedup tables, clones. An object that is not named is leaked; a named one that
//! does not exist is missing; an object with one owner that is named twice would be freed twice.

use crate::look::Look;
use crate::metaslab::{TOP_ZAP, logs, metaslabs, object_of, top_zap};
use crate::out::Out;
use crate::set::{extension, lists_of, show_dead_blocks};
use crate::zap_view;
use std::collections::BTreeSet;
use tarn_engine::inspect::InspectError;
use tarn_ondisk as ondisk;
use tarn_ondisk::block_cloning::{ClonedBlocks, object_name};
use tarn_ondisk::bookmark::Bookmark;
use tarn_ondisk::bpobj::PointerListHead;
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::deadlist::DeadlistForm;
use tarn_ondisk::declare::{ByteOrder, narrow};
use tarn_ondisk::dedup::{DedupClass, directory_name, log_name, table_name};
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::units::ObjectId;
use tarn_pool::PoolError;
use tarn_vdev::VdevConfig;

/// Deepest nesting of pointer lists.
const NESTING_MAX: usize = 64;

/// Largest plausible number of sublists of a list.
const SUBLISTS_MAX: u64 = 1 << 24;

/// Entries of the pool directory that lead to objects.
const NAMED: &[&str] = &[
    name::PROPERTIES,
    name::CONFIG,
    name::DEDUP_STATISTICS,
    name::FEATURE_DESCRIPTIONS,
    name::FEATURE_ENABLED_TXG,
    name::FEATURES_FOR_READ,
    name::FEATURES_FOR_WRITE,
    name::HISTORY,
    name::ERROR_LOG_LAST,
    name::ERROR_LOG_SCRUB,
    name::VDEV_ZAP_MAP,
    name::BLOCK_TREE,
    name::TEMPORARY_HOLDS,
    name::EMPTY_POINTER_LIST,
    name::CACHE_DEVICES,
    name::SPARES,
    name::LOG_SPACE_MAPS,
    name::DELETED_CLONES,
];

/// Verifies the MOS. Returns whether all is right.
pub fn verify(out: &mut Out, look: &Look<'_>) -> Result<bool, InspectError> {
    origin(out, look)?;
    let mut found = Referenced {
        look,
        objects: BTreeSet::new(),
        twice: BTreeSet::new(),
    };
    found.add(name::POOL_DIRECTORY);
    found.named()?;
    found.datasets()?;
    found.vdevs()?;
    found.tables()?;
    let Referenced {
        mut objects, twice, ..
    } = found;
    let mut is_right = true;
    let mos = look.pool().mos();
    let in_mos = |object| move |cause| InspectError::Object { object, cause };
    let mut last = ObjectId::ZERO;
    while let Some(id) = mos
        .next_object(last, look.operation())
        .map_err(in_mos(last))?
    {
        last = id;
        if !objects.remove(&id) {
            let object_type = mos
                .object(id, look.operation())
                .map_err(in_mos(id))?
                .object_type();
            writeln!(out, "MOS object {id} ({object_type}) leaked");
            is_right = false;
        }
    }
    for id in objects {
        writeln!(out, "MOS object {id} referenced but not allocated");
        is_right = false;
    }
    for id in twice {
        writeln!(out, "MOS object {id} referenced more than once");
        is_right = false;
    }
    Ok(is_right)
}

/// Prints the deadlists of `$ORIGIN`, which OpenZFS visits here.
fn origin(out: &mut Out, look: &Look<'_>) -> Result<(), InspectError> {
    let directory = look.directory();
    if let Some(clones) = directory.find(name::DELETED_CLONES)? {
        for (_, value) in directory.entries(clones)? {
            let livelist = ObjectId::new(value.as_word().unwrap_or(0));
            show_dead_blocks(out, look, livelist, "Deleted Livelist")?;
        }
    }
    let root: ondisk::dataset_dir::DatasetDirectory =
        directory.bonus(directory.require(name::ROOT_DATASET)?)?;
    let own = directory.value_in(root.children, "$ORIGIN")?;
    let Some(own) = own.and_then(|value| value.as_word()) else {
        return Ok(());
    };
    let own: ondisk::dataset_dir::DatasetDirectory = directory.bonus(ObjectId::new(own))?;
    let head: ondisk::dataset::Dataset = directory.bonus(own.head_dataset)?;
    show_dead_blocks(out, look, head.deadlist, "Deadlist")?;
    if !head.previous_snapshot.is_zero() {
        let snapshot: ondisk::dataset::Dataset = directory.bonus(head.previous_snapshot)?;
        show_dead_blocks(out, look, snapshot.deadlist, "Deadlist")?;
    }
    Ok(())
}

/// The named objects.
struct Referenced<'a, 'b> {
    look: &'a Look<'b>,
    objects: BTreeSet<ObjectId>,
    twice: BTreeSet<ObjectId>,
}

impl Referenced<'_, '_> {
    /// Adds an object with one owner.
    fn add(&mut self, id: ObjectId) {
        if !id.is_zero() && !self.objects.insert(id) {
            self.twice.insert(id);
        }
    }

    /// Adds an object that several may share.
    fn add_shared(&mut self, id: ObjectId) {
        if !id.is_zero() {
            self.objects.insert(id);
        }
    }

    fn add_found(&mut self, id: Option<ObjectId>) {
        if let Some(id) = id {
            self.add(id);
        }
    }

    /// The objects in the pool directory.
    fn named(&mut self) -> Result<(), InspectError> {
        let directory = self.look.directory();
        for entry in NAMED {
            let id = directory.find(entry)?;
            self.add_found(id);
        }
        if self
            .look
            .pool()
            .features()
            .count(Feature::HeadErrlog.guid())
            .is_some()
        {
            for log in [name::ERROR_LOG_LAST, name::ERROR_LOG_SCRUB] {
                if let Some(log) = directory.find(log)?.filter(|log| !log.is_zero()) {
                    for (_, value) in directory.entries(log)? {
                        self.add_found(value.as_word().map(ObjectId::new));
                    }
                }
            }
        }
        for list in [
            name::SYNC_POINTER_LIST,
            name::FREE_POINTER_LIST,
            name::OBSOLETE_POINTER_LIST,
        ] {
            if let Some(list) = directory.find(list)? {
                self.list(list, NESTING_MAX)?;
            }
        }
        if let Some(scan) = directory.value(name::SCAN)? {
            // The queue of a scan is its ninth word.
            let words = scan.to_words();
            self.add_found(words.get(SCAN_QUEUE_WORD).copied().map(ObjectId::new));
        }
        for log in logs(self.look)?.into_values() {
            self.add(log);
        }
        if let Some(clones) = directory.find(name::DELETED_CLONES)? {
            for (_, value) in directory.entries(clones)? {
                if let Some(livelist) = value.as_word() {
                    self.deadlist(ObjectId::new(livelist))?;
                }
            }
        }
        Ok(())
    }

    /// A pointer list and its sublists. The shared empty list has no owner.
    fn list(&mut self, id: ObjectId, nesting_left: usize) -> Result<(), InspectError> {
        if id.is_zero() {
            return Ok(());
        }
        self.add(id);
        let object = self.look.directory().object(id)?;
        let (head, _) = PointerListHead::from_bonus(&object.bonus(), ByteOrder::Little)
            .map_err(|cause| PoolError::Corrupt { object: id, cause })?;
        if head.sublists.is_zero() || nesting_left == 0 {
            return Ok(());
        }
        self.add(head.sublists);
        let names = self.look.directory().object(head.sublists)?;
        let mut bytes = vec![0; narrow(head.sublist_count.min(SUBLISTS_MAX)) * 8];
        names
            .read(0, &mut bytes, self.look.operation())
            .map_err(|cause| InspectError::Object {
                object: head.sublists,
                cause,
            })?;
        let (words, _) = bytes.as_chunks::<8>();
        for word in words {
            self.list(ObjectId::new(u64::from_le_bytes(*word)), nesting_left - 1)?;
        }
        Ok(())
    }

    /// A deadlist with its lists.
    fn deadlist(&mut self, id: ObjectId) -> Result<(), InspectError> {
        if id.is_zero() {
            return Ok(());
        }
        let directory = self.look.directory();
        let empty = directory.find(name::EMPTY_POINTER_LIST)?;
        if DeadlistForm::of(directory.object(id)?.object_type()) == Some(DeadlistForm::List) {
            return match empty == Some(id) {
                true => Ok(()),
                false => self.list(id, NESTING_MAX),
            };
        }
        self.add(id);
        for (_, list) in lists_of(self.look, id)? {
            if empty != Some(list) {
                self.list(list, NESTING_MAX)?;
            }
        }
        Ok(())
    }

    /// All directories, hidden ones included, and all their datasets.
    fn datasets(&mut self) -> Result<(), InspectError> {
        let directory = self.look.directory();
        let root = directory.require(name::ROOT_DATASET)?;
        let mut pending = vec![root];
        let mut seen = BTreeSet::new();
        while let Some(id) = pending.pop() {
            if !seen.insert(id) {
                continue;
            }
            let stored: ondisk::dataset_dir::DatasetDirectory = directory.bonus(id)?;
            self.add(id);
            for object in [
                stored.children,
                stored.permissions,
                stored.properties,
                stored.clones,
            ] {
                self.add(object);
            }
            let key = extension(self.look, id, ondisk::dataset_dir::CRYPTO_KEY)?;
            self.add_shared(key.unwrap_or(ObjectId::ZERO));
            if let Some(livelist) = extension(self.look, id, ondisk::dataset_dir::LIVELIST)? {
                self.deadlist(livelist)?;
            }
            if !stored.children.is_zero() {
                for (_, value) in directory.entries(stored.children)? {
                    pending.extend(value.as_word().map(ObjectId::new));
                }
            }
            // A snapshot is found from its head; `$ORIGIN` has only what is in its head.
            if !stored.head_dataset.is_zero() {
                self.head(stored.head_dataset)?;
            }
        }
        Ok(())
    }

    /// A head with its snapshots.
    fn head(&mut self, id: ObjectId) -> Result<(), InspectError> {
        let stored: ondisk::dataset::Dataset = self.look.directory().bonus(id)?;
        self.dataset(id, &stored)?;
        if !stored.snapshot_names.is_zero() {
            for (_, value) in zap_view::entries(self.look, stored.snapshot_names)? {
                if let Some(snapshot) = value.as_word().map(ObjectId::new) {
                    let stored = self.look.directory().bonus(snapshot)?;
                    self.dataset(snapshot, &stored)?;
                }
            }
        }
        Ok(())
    }

    fn dataset(
        &mut self,
        id: ObjectId,
        stored: &ondisk::dataset::Dataset,
    ) -> Result<(), InspectError> {
        for object in [
            id,
            stored.next_clones,
            stored.snapshot_properties,
            stored.user_holds,
            stored.snapshot_names,
        ] {
            self.add(object);
        }
        self.deadlist(stored.deadlist)?;
        if let Some(remapped) = extension(self.look, id, ondisk::dataset::REMAP_DEADLIST)? {
            self.deadlist(remapped)?;
        }
        let bookmarks = extension(self.look, id, ondisk::dataset::BOOKMARK_NAMES)?;
        let Some(bookmarks) = bookmarks else {
            return Ok(());
        };
        self.add(bookmarks);
        for (_, value) in self.look.directory().entries(bookmarks)? {
            let words = value.to_words();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            if let Ok(bookmark) = Bookmark::from_stored(&bytes, ByteOrder::Little) {
                self.add(bookmark.redaction);
            }
        }
        Ok(())
    }

    /// The objects of vdevs.
    fn vdevs(&mut self) -> Result<(), InspectError> {
        let look = self.look;
        let root = look.pool().vdevs().config();
        for vdev in root.walk() {
            self.vdev(vdev);
        }
        for vdev in look.pool().vdevs().top_levels() {
            self.add(vdev.metaslab_array);
            for metaslab in metaslabs(look, &vdev)? {
                self.add_found(metaslab.map.map(|(id, _)| id));
            }
            let Some(zap) = top_zap(look, vdev.id) else {
                continue;
            };
            for entry in [
                name::VDEV_UNFLUSHED_TXGS,
                name::VDEV_CHECKPOINT_SPACE_MAP,
                name::VDEV_OBSOLETE_SPACE_MAP,
            ] {
                let value = look.directory().value_in(zap, entry)?;
                self.add_found(value.and_then(|value| value.as_word()).map(ObjectId::new));
            }
        }
        Ok(())
    }

    fn vdev(&mut self, vdev: &VdevConfig) {
        self.add_found(vdev.dtl);
        for entry in [
            TOP_ZAP,
            "com.delphix:vdev_zap_leaf",
            "com.klarasystems:vdev_zap_root",
            "com.delphix:indirect_object",
            "com.delphix:indirect_births",
        ] {
            self.add_found(object_of(vdev, entry));
        }
    }

    /// Tables of deduplicated and cloned blocks.
    fn tables(&mut self) -> Result<(), InspectError> {
        let directory = self.look.directory();
        for code in 0..=ChecksumKind::Blake3.code() {
            let checksum = ChecksumKind::from_code(code);
            let own = directory.find(&directory_name(checksum))?;
            self.add_found(own);
            let zap = own.unwrap_or(name::POOL_DIRECTORY);
            let mut names: Vec<String> = DedupClass::ALL
                .iter()
                .map(|class| table_name(checksum, *class))
                .collect();
            names.extend([0, 1].map(|index| log_name(checksum, index)));
            for entry in names {
                let value = directory.value_in(zap, &entry)?;
                self.add_found(value.and_then(|value| value.as_word()).map(ObjectId::new));
            }
        }
        for vdev in self.look.pool().vdevs().top_levels() {
            if let Some(table) = directory.find(&object_name(vdev.id))? {
                self.add(table);
                let facts: ClonedBlocks = directory.bonus(table)?;
                self.add(facts.entries);
            }
        }
        Ok(())
    }
}

/// Where the queue of a scan is in its state.
const SCAN_QUEUE_WORD: usize = 8;
