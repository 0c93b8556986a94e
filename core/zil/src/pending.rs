//! Records in memory: in order, by txg, and by file where only its commits need them.
//!
//! # Mechanism
//! Each group has a list that every commit needs, and lists that only commits of one file need. A
//! commit takes the lists it needs out of all groups and merges them by their order; what others
//! need stays. So an `fsync` stores what was done to its own file, and the names that everything
//! builds on, but not what was written into other files.
//!
//! A write whose bytes are fetched later is joined to the one before it where they touch: a file
//! written from front to end has one record for a group.
//!
//! Bytes are fetched as they are when the record is stored. A commit of a file stores all its
//! records, so they are right together. Where every commit needs a list ([`Pending::share`]), a
//! commit of another file may store some of its bytes newer than the record: contents that were not
//! synced may be there in part, as ever.
//!
//! # Invariants
//! - Order and groups agree: a later group's records were all made after an earlier one's.
//! - No record is in two lists.

use std::collections::BTreeMap;

use tarn_ondisk::intent_log::LoggedChange;
use tarn_ondisk::units::{ObjectId, Txg};

use crate::record::{Contents, IntentRecord};

/// What a record takes in a block beside its contents, at most for most: a guess for those with
/// names.
const RECORD_BYTES: u64 = 512;
/// What a pointer takes.
const POINTER_BYTES: u64 = 128;
/// From this length on a write leads to its blocks where there is no log device.
#[doc(alias = "zfs_immediate_write_sz")]
pub(crate) const INDIRECT_BYTES_MIN: u64 = 32 << 10;
/// Writes are joined up to this size. A guess: what is larger gets its places in few steps.
const JOINED_BYTES_MAX: u64 = 4 << 20;

/// A record with its place among all.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Counts records as they were made.
    pub(crate) order: u64,
    /// That of the first record of the same operation: from there on they are in the log all or not
    /// at all.
    pub(crate) first_order: u64,
    /// The group its change is part of.
    pub(crate) txg: Txg,
    /// The record.
    pub(crate) record: IntentRecord,
    /// It was one file's alone, and every commit needs it now: later records build on it.
    pub(crate) is_built_on: bool,
}

impl Entry {
    /// Whether it may take a file's last name.
    pub(crate) fn may_remove(&self) -> bool {
        matches!(
            self.record.change,
            LoggedChange::Remove { .. }
                | LoggedChange::RemoveDirectory { .. }
                | LoggedChange::Rename(_)
        )
    }
}

/// About how much room records take in the log.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// When all of them carry their bytes.
    pub(crate) bytes: u64,
    /// Of these, what writes have that are large enough to lead to their blocks.
    pub(crate) large_bytes: u64,
}

impl Room {
    fn of(record: &IntentRecord) -> Room {
        Room {
            bytes: stored_bytes(&record.change),
            large_bytes: match &record.change {
                LoggedChange::Write(write) => large_bytes(&record.contents, write.length),
                _ => 0,
            },
        }
    }

    fn add(&mut self, other: Room) {
        self.bytes += other.bytes;
        self.large_bytes += other.large_bytes;
    }
}

/// The bytes of a write, if it is large enough to lead to its blocks.
fn large_bytes(contents: &Contents, length: u64) -> u64 {
    let is_fetched = matches!(contents, Contents::Fetch { .. });
    match is_fetched && length >= INDIRECT_BYTES_MIN {
        true => length,
        false => 0,
    }
}

/// How much a commit may write to the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// So many bytes in the log's own blocks.
    pub(crate) carried_bytes: u64,
    /// So many bytes in blocks that records lead to.
    pub(crate) led_bytes: u64,
}

/// Some records in order, and about how much room they take.
#[derive(Debug, Default)]
struct List {
    entries: Vec<Entry>,
    room: Room,
}

impl List {
    fn push(&mut self, entry: Entry) {
        self.room.add(Room::of(&entry.record));
        self.entries.push(entry);
    }

    /// Whether the record was joined to the last one.
    fn join(&mut self, record: &IntentRecord) -> bool {
        let Some(last) = self.entries.last_mut() else {
            return false;
        };
        let is_fetched = matches!(record.contents, Contents::Fetch { .. });
        if !is_fetched || last.record.contents != record.contents {
            return false;
        }
        let (LoggedChange::Write(before), LoggedChange::Write(write)) =
            (&mut last.record.change, &record.change)
        else {
            return false;
        };
        if before.object != write.object {
            return false;
        }
        let end = before.offset.saturating_add(before.length);
        let new_end = write.offset.saturating_add(write.length).max(end);
        let touches = before.offset <= write.offset && write.offset <= end;
        let length = new_end - before.offset;
        if !touches || length > JOINED_BYTES_MAX {
            return false;
        }
        self.room.bytes += length - before.length;
        self.room.large_bytes -= large_bytes(&record.contents, before.length);
        self.room.large_bytes += large_bytes(&record.contents, length);
        assert!(
            self.room.large_bytes <= self.room.bytes,
            "large writes are a part of all"
        );
        before.length = length;
        true
    }
}

/// The records of one group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    shared: List,
    own: BTreeMap<ObjectId, List>,
}

/// All records that are neither stored nor in the log.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    groups: BTreeMap<Txg, Group>,
    next_order: u64,
}

impl Pending {
    /// The place that the next record has among all.
    pub(crate) fn next_order(&self) -> u64 {
        self.next_order
    }

    /// Adds the newest record, of an operation that began with the record of this order. True if it
    /// is the first of its group.
    pub(crate) fn add(&mut self, txg: Txg, first_order: u64, record: IntentRecord) -> bool {
        let is_first = !self.groups.contains_key(&txg);
        let group = self.groups.entry(txg).or_default();
        let list = match record.object {
            Some(object) => group.own.entry(object).or_default(),
            None => &mut group.shared,
        };
        if !list.join(&record) {
            let order = self.next_order;
            self.next_order += 1;
            list.push(Entry {
                order,
                first_order,
                txg,
                record,
                is_built_on: false,
            });
        }
        is_first
    }

    /// Only this file needed them, and it is gone.
    pub(crate) fn forget(&mut self, object: ObjectId) {
        for group in self.groups.values_mut() {
            group.own.remove(&object);
        }
    }

    /// Whether a record waits that may take a file's last name.
    pub(crate) fn has_removals(&self) -> bool {
        let mut shared = self.groups.values().flat_map(|group| &group.shared.entries);
        shared.any(Entry::may_remove)
    }

    /// From now on all commits need what so far only this file did.
    pub(crate) fn share(&mut self, object: ObjectId) {
        for group in self.groups.values_mut() {
            if let Some(own) = group.own.remove(&object) {
                group.shared.room.add(own.room);
                let built_on = own.entries.into_iter().map(|entry| Entry {
                    is_built_on: true,
                    ..entry
                });
                group.shared.entries.extend(built_on);
                group.shared.entries.sort_by_key(|entry| entry.order);
            }
        }
    }

    /// Drops what is stored with its group.
    pub(crate) fn drop_stored(&mut self, stored: Txg) -> Vec<Group> {
        let later = self.groups.split_off(&stored.next());
        let dropped = std::mem::replace(&mut self.groups, later);
        dropped.into_values().collect()
    }

    /// About how much room a commit takes: of this file, or of all.
    pub(crate) fn room(&self, object: Option<ObjectId>, stored: Txg) -> Room {
        let mut room = Room::default();
        let groups = self.groups.range(stored.next()..);
        groups.for_each(|(_, group)| room.add(group.room(object)));
        room
    }

    /// The group up to which a commit has more than it may write to the log; none where it has not.
    /// Large writes of the group `leading` lead to their blocks.
    pub(crate) fn too_much(
        &self,
        object: Option<ObjectId>,
        stored: Txg,
        leading: Option<Txg>,
        limits: Limits,
    ) -> Option<Txg> {
        let mut carried_bytes = 0;
        let mut groups = self.groups.range(stored.next()..).rev();
        let found = groups.find(|(txg, group)| {
            let room = group.room(object);
            let led_bytes = match leading == Some(**txg) {
                true => room.large_bytes,
                false => 0,
            };
            assert!(led_bytes <= room.bytes, "large writes are a part of all");
            carried_bytes += room.bytes - led_bytes;
            carried_bytes > limits.carried_bytes || led_bytes > limits.led_bytes
        });
        found.map(|(txg, _)| *txg)
    }

    /// The newest group that a commit needs something of; zero for none.
    pub(crate) fn newest(&self, object: Option<ObjectId>) -> Txg {
        let mut groups = self.groups.iter().rev();
        let newest = groups.find(|(_, group)| {
            let mut lists = group.needed(object);
            lists.any(|list| !list.entries.is_empty())
        });
        newest.map_or(Txg::ZERO, |(txg, _)| *txg)
    }

    /// Takes out, in order, what commits of these files need. Among them `None` is all files.
    pub(crate) fn take(&mut self, objects: &[Option<ObjectId>], stored: Txg) -> Vec<Entry> {
        let takes_all = objects.contains(&None);
        let mut taken = Vec::new();
        for (_, group) in self.groups.range_mut(stored.next()..) {
            let start = taken.len();
            let shared = std::mem::take(&mut group.shared);
            taken.extend(shared.entries);
            if takes_all {
                let own = std::mem::take(&mut group.own);
                taken.extend(own.into_values().flat_map(|list| list.entries));
            } else {
                for object in objects.iter().flatten() {
                    let own = group.own.remove(object);
                    taken.extend(own.into_iter().flat_map(|list| list.entries));
                }
            }
            taken[start..].sort_by_key(|entry| entry.order);
        }
        taken
    }
}

impl Group {
    /// What a commit needs of it.
    fn room(&self, object: Option<ObjectId>) -> Room {
        let mut room = Room::default();
        self.needed(object).for_each(|list| room.add(list.room));
        room
    }

    /// The lists that a commit needs.
    fn needed(&self, object: Option<ObjectId>) -> impl Iterator<Item = &List> {
        let own = match object {
            Some(object) => self.own.range(object..=object),
            None => self.own.range(..),
        };
        std::iter::once(&self.shared).chain(own.map(|(_, list)| list))
    }
}

/// About how much room a record takes.
fn stored_bytes(change: &LoggedChange) -> u64 {
    let contents = match change {
        LoggedChange::Write(write) => write.length,
        LoggedChange::SetXattr { value, .. } => tarn_ondisk::declare::widen(value.len()),
        LoggedChange::SetAcl { acl, .. } => tarn_ondisk::declare::widen(acl.entries.len()),
        LoggedChange::CloneRange { pointers, .. } => {
            tarn_ondisk::declare::widen(pointers.len()) * POINTER_BYTES
        }
        _ => 0,
    };
    RECORD_BYTES + contents
}
