//! What changed between two states of a file system: `zfs diff`.
//!
//! # Problem
//! Two states of a file system have millions of files, and few of them differ. `zfs diff` has to
//! find these and their paths in both states; but a file's attributes name one parent, and no name.
//!
//! # Mechanism
//! The tree of dnodes of the later state is walked as far as it was born after the earlier one.
//! Each block of dnodes that changed has some thirty of them; a dnode that is the same in both
//! states has not changed. The others are compared: a file that only one state has was added or
//! removed; one with another generation is another file under the same number; otherwise the change
//! time shows whether it was modified, the name whether it was renamed, and the links whether it
//! got or lost one.
//!
//! Names are looked up for many files at once ([`Names`]): their parents are read level by level up
//! to the root, and each directory on the way is searched once for all files of the batch that are
//! in it. So the cost of a directory does not grow with the square of its size.
//!
//! The output has the same changes as OpenZFS's, which asks the kernel for each file. Names of
//! files with several links are those under which the file's recorded parent has it first; when the
//! parent has it no more, the file has no name.
//!
//! # Invariants
//! - Both states do not change: they are snapshots.
//! - Changes come in the order of object numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_object::zap::{Cursor, OwnedName};
use tarn_object::{
    Holes, META_DNODE, ObjectError, ObjectSet, Step, Visit, Visitor, WalkOptions, walk_objset,
};
use tarn_ondisk::declare::widen;
use tarn_ondisk::dnode::{Dnode, SLOT_BYTES};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_ondisk::znode::{self, ZNODE_SIZE, ZnodeFlags};
use tarn_probe::Operation;

use crate::directory::open_zap;
use crate::error::{MountError, PosixError, table_error};
use crate::facts::Facts;
use crate::filesystem::{MasterFacts, VERSION_NEWEST};
use crate::tables::{AttributeTables, Style};
use crate::types::{FileKind, Timestamp};
use crate::unlinked::unlinked_name;

/// The first batch has so many files, so that the first lines come soon.
const BATCH_FIRST: usize = 32;
/// Later batches have so many. A guess: some 10 MiB.
const BATCH_MAX: usize = 16 << 10;
/// So many names are kept for later batches.
const LINKS_MAX: usize = 256 << 10;
/// How many entries of a directory are read at a time.
const ENTRIES: usize = 1024;

/// The path that OpenZFS shows for an open file without a name.
const NAMELESS: &[u8] = b"(on_delete_queue)";
/// The path component that OpenZFS shows for the directory of a file's extended attributes.
const XATTR_DIRECTORY: &[u8] = b"<xattrdir>";

/// How a file changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its contents or attributes changed.
    Modified,
    /// It has so many links more, or fewer.
    Links(i64),
    /// It has this path now.
    Renamed(Vec<u8>),
}

/// A file that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// How it changed.
    pub change: Change,
    /// Its path from the root of the file system, with a slash before each component.
    pub path: Vec<u8>,
    /// Its kind; none where the mode has no known one.
    pub kind: Option<FileKind>,
    /// When it last changed.
    pub changed: Timestamp,
}

/// Which of the two states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Before.
    Earlier,
    /// After.
    Later,
}

/// A change, or an object that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A file changed.
    File(ChangedFile),
    /// An object that could not be read.
    Unknown {
        /// Its number.
        object: ObjectId,
        /// In which state.
        state: State,
        /// Linux' number for the reason.
        errno: i32,
    },
}

/// Why a comparison ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError<E> {
    /// One of the two cannot be read as a file system.
    #[error("{0}")]
    NotFileSystem(#[from] MountError),
    /// The tree of the later state cannot be read.
    #[error("{0}")]
    Unreadable(ObjectError),
    /// `tell` ended the comparison.
    #[error("it was stopped")]
    Stopped(E),
}

/// Compares two states of a file system, and tells of the files that changed since `since`, the txg
/// of the earlier one: a few at first, then many at a time.
///
/// # Errors
/// One of the two is no file system; the later cannot be read; or the error of `tell`.
pub fn compare<E>(
    earlier: &Arc<ObjectSet>,
    later: &Arc<ObjectSet>,
    since: Txg,
    tell: &mut dyn FnMut(Vec<Told>) -> Result<(), E>,
    operation: &Operation,
) -> Result<(), DiffError<E>> {
    let mut comparison = Comparison {
        earlier: Names::open(earlier, operation)?,
        later: Names::open(later, operation)?,
        seen: Vec::new(),
        batch: BATCH_FIRST,
        tell,
        ended: None,
    };
    let options = WalkOptions {
        born_after: since,
        holes: Holes::MaybeNew,
        ..WalkOptions::default()
    };
    let root = later.root_pointer();
    let cache = &later.env().cache;
    walk_objset(
        cache,
        later.id(),
        &root,
        options,
        &mut comparison,
        operation,
    );
    if comparison.ended.is_none() {
        comparison.finish_batch();
    }
    match comparison.ended {
        None => Ok(()),
        Some(why) => Err(why),
    }
}

/// The paths of files in one state of a file system, in the order of their numbers. None for an
/// object that is no file, or has no name.
///
/// # Errors
/// It cannot be read as a file system.
#[doc(alias = "zfs_obj_to_path")]
pub fn paths_of(
    set: &Arc<ObjectSet>,
    ids: &[ObjectId],
    operation: &Operation,
) -> Result<Vec<Option<Vec<u8>>>, MountError> {
    let mut names = Names::open(set, operation)?;
    let looked = names.look_at(ids.iter().copied());
    let path = |looked: Looked| looked.path.ok().filter(|_| !looked.is_nameless);
    Ok(looked.into_iter().map(path).collect())
}

/// An object number whose dnode changed.
#[derive(Debug, Clone, Copy)]
enum Seen {
    /// The later state has an object of this number.
    There(ObjectId),
    /// Only the earlier state has an object of this number.
    Gone(ObjectId),
}

impl Seen {
    fn id(self) -> ObjectId {
        match self {
            Seen::There(id) | Seen::Gone(id) => id,
        }
    }
}

/// The walk, and what it has found so far.
struct Comparison<'a, E> {
    earlier: Names<'a>,
    later: Names<'a>,
    seen: Vec<Seen>,
    batch: usize,
    tell: &'a mut dyn FnMut(Vec<Told>) -> Result<(), E>,
    ended: Option<DiffError<E>>,
}

impl<E> Comparison<'_, E> {
    fn end(&mut self, why: DiffError<E>) -> Step {
        self.ended.get_or_insert(why);
        Step::Stop
    }

    fn add(&mut self, seen: Seen) -> Step {
        self.seen.push(seen);
        match self.seen.len() >= self.batch {
            true => self.finish_batch(),
            false => Step::Continue,
        }
    }

    /// Notes that the later state has no objects of these numbers.
    fn nothing_in(&mut self, first: u64, count: u64) -> Step {
        let end = first.saturating_add(count);
        let mut last = ObjectId::new(first.saturating_sub(1));
        loop {
            let next = self.earlier.set.next_object(last, self.earlier.operation);
            match next {
                Ok(Some(id)) if id.get() < end => {
                    last = id;
                    if self.add(Seen::Gone(id)) == Step::Stop {
                        return Step::Stop;
                    }
                }
                Ok(_) => return Step::Continue,
                Err(why) => return self.end(DiffError::Unreadable(why)),
            }
        }
    }

    /// Compares and tells of the files seen so far.
    fn finish_batch(&mut self) -> Step {
        let seen = std::mem::take(&mut self.seen);
        self.batch = (self.batch * 2).min(BATCH_MAX);
        let before = self.earlier.look_at(seen.iter().map(|seen| seen.id()));
        let there = seen.iter().filter_map(|seen| match seen {
            Seen::There(id) => Some(*id),
            Seen::Gone(_) => None,
        });
        let after = self.later.look_at(there);
        let mut after = after.into_iter();
        let mut told = Vec::new();
        for (seen, before) in seen.into_iter().zip(before) {
            match seen {
                Seen::Gone(id) => told_of_gone(id, before, &mut told),
                Seen::There(id) => {
                    let after = after.next().expect("all that are there were looked at");
                    told_of_there(id, before, after, &mut told);
                }
            }
        }
        self.earlier.forget_much();
        self.later.forget_much();
        match (self.tell)(told) {
            Ok(()) => Step::Continue,
            Err(why) => self.end(DiffError::Stopped(why)),
        }
    }
}

impl<E> Visitor for Comparison<'_, E> {
    fn enter(&mut self, visit: &Visit<'_>) -> Step {
        let (Some(meta), true) = (visit.dnode, visit.mark.object == META_DNODE) else {
            return Step::Continue;
        };
        if !visit.pointer.is_hole() {
            return Step::Continue;
        }
        let per_block = (meta.data_block_size.get() / widen(SLOT_BYTES)).max(1);
        let level = u32::try_from(visit.mark.level).unwrap_or(0);
        let blocks = 1u64.checked_shl(level * meta.pointers_per_block_shift());
        let count = blocks.and_then(|blocks| blocks.checked_mul(per_block));
        let first = count.and_then(|count| count.checked_mul(visit.mark.block));
        // Numbers beyond the largest were never used.
        match (first, count) {
            (Some(first), Some(count)) => self.nothing_in(first, count),
            _ => Step::Continue,
        }
    }

    fn object(&mut self, id: ObjectId, dnode: &Dnode) -> Step {
        if id == META_DNODE {
            return Step::Continue;
        }
        // The accounting objects are no files.
        if id.get().cast_signed() < 0 {
            return Step::Skip;
        }
        let before = self.earlier.set.object(id, self.earlier.operation);
        let is_same = before.is_ok_and(|object| object.stored_dnode() == *dnode);
        if !is_same && self.add(Seen::There(id)) == Step::Stop {
            return Step::Stop;
        }
        // A large dnode covers numbers that the earlier state may have used.
        let others = widen(dnode.slots()) - 1;
        match self.nothing_in(id.get() + 1, others) {
            Step::Stop => Step::Stop,
            _ => Step::Skip,
        }
    }

    fn free_numbers(&mut self, first: ObjectId, count: u64) -> Step {
        self.nothing_in(first.get(), count)
    }

    fn unreadable(&mut self, _: &Visit<'_>, why: &ObjectError) -> Step {
        self.end(DiffError::Unreadable(why.clone()))
    }
}

/// The attributes of a file that are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stats {
    mode: u32,
    generation: u64,
    links: u64,
    changed: Timestamp,
}

impl Stats {
    const KIND: u32 = 0o170_000;

    fn is_directory(&self) -> bool {
        self.mode & Stats::KIND == FileKind::Directory.mode_bits()
    }

    fn told(&self, change: Change, path: Vec<u8>) -> Told {
        Told::File(ChangedFile {
            change,
            path,
            kind: FileKind::from_mode(self.mode),
            changed: self.changed,
        })
    }
}

/// Why a file has no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoPath {
    /// It does not exist, is no file, or its parent does not have it any more: no change is told.
    Nothing,
    /// Linux' number for the reason.
    Failed(i32),
}

/// Invalid argument: the parent is no directory.
const EINVAL: i32 = 22;
/// Too many levels: a directory is below itself.
const ELOOP: i32 = 40;

/// A file as one state has it. The facts are zeros where there is none.
#[derive(Debug, Clone)]
struct Looked {
    stats: Stats,
    path: Result<Vec<u8>, NoPath>,
    is_nameless: bool,
}

/// Tells of an object that only the earlier state has.
#[doc(alias = "describe_free")]
fn told_of_gone(id: ObjectId, before: Looked, told: &mut Vec<Told>) {
    match before.path {
        Ok(_) if before.is_nameless => {}
        Ok(path) => told.push(before.stats.told(Change::Removed, path)),
        Err(NoPath::Nothing) => {}
        Err(NoPath::Failed(errno)) => told.push(Told::Unknown {
            object: id,
            state: State::Earlier,
            errno,
        }),
    }
}

/// Tells of an object of the later state whose dnode changed.
#[doc(alias = "write_inuse_diffs_one")]
fn told_of_there(id: ObjectId, before: Looked, after: Looked, told: &mut Vec<Told>) {
    let failed = |looked: &Looked| match looked.path {
        Err(NoPath::Failed(errno)) => Some(errno),
        _ => None,
    };
    let unknown = match (failed(&before), failed(&after)) {
        // One error for a file is enough.
        (Some(errno), _) => Some((State::Earlier, errno)),
        (None, Some(errno)) => Some((State::Later, errno)),
        (None, None) => None,
    };
    told.extend(unknown.map(|(state, errno)| Told::Unknown {
        object: id,
        state,
        errno,
    }));
    let (old, new) = (before.stats, after.stats);
    let has_links = !old.is_directory() && !new.is_directory() && old.links != 0 && new.links != 0;
    let links = match has_links {
        true => new.links.wrapping_sub(old.links).cast_signed(),
        false => 0,
    };
    let one_side = |stats: Stats, change, path| match links {
        0 => stats.told(change, path),
        links => stats.told(Change::Links(links), path),
    };
    match (before.path, after.path) {
        (Err(_), Err(_)) => {}
        (Err(_), Ok(path)) => told.push(one_side(new, Change::Added, path)),
        (Ok(path), Err(_)) => told.push(one_side(old, Change::Removed, path)),
        (Ok(from), Ok(to)) => {
            let is_other = old.generation != new.generation
                || old.mode & Stats::KIND != new.mode & Stats::KIND;
            if is_other {
                told.push(old.told(Change::Removed, from));
                told.push(new.told(Change::Added, to));
            } else if old.changed != new.changed {
                told.push(match links {
                    0 if from == to => new.told(Change::Modified, from),
                    0 => new.told(Change::Renamed(to), from),
                    1.. => new.told(Change::Links(links), from),
                    _ => new.told(Change::Links(links), to),
                });
            }
        }
    }
}

/// How a file is reached from its parent.
#[derive(Debug, Clone)]
enum Link {
    /// It is the root.
    Root,
    /// In this directory, under this name.
    In(ObjectId, Vec<u8>),
    /// Not at all.
    Lost(NoPath),
}

/// One of the two states, with the names found so far.
struct Names<'a> {
    set: &'a Arc<ObjectSet>,
    tables: AttributeTables,
    unlinked: Option<ObjectId>,
    operation: &'a Operation,
    links: BTreeMap<ObjectId, Link>,
}

/// The attributes of a file by which its name is found.
struct Place {
    stats: Stats,
    parent: ObjectId,
    is_xattr_directory: bool,
}

impl<'a> Names<'a> {
    fn open(set: &'a Arc<ObjectSet>, operation: &'a Operation) -> Result<Names<'a>, MountError> {
        if set.objset_type() != ObjsetType::Zfs {
            return Err(MountError::NotFileSystem);
        }
        let master = MasterFacts::read(set, operation)?;
        if master.version > VERSION_NEWEST {
            return Err(MountError::Version {
                version: master.version,
            });
        }
        let style = Style::of(master.version);
        Ok(Names {
            set,
            tables: AttributeTables::load(set, master.attributes, style, operation)?,
            unlinked: master.unlinked,
            operation,
            links: BTreeMap::new(),
        })
    }

    /// The files of these numbers in this state, each with its path, in their order.
    fn look_at(&mut self, ids: impl Iterator<Item = ObjectId>) -> Vec<Looked> {
        let found = ids.map(|id| {
            let place = self.place(id);
            let found = place.and_then(|place| {
                let is_nameless = self.is_nameless(id);
                is_nameless.map(|is_nameless| (place, is_nameless))
            });
            (id, found)
        });
        let found: Vec<_> = found.collect();
        let named = found.iter().filter_map(|(id, found)| match found {
            Ok((place, false)) => Some((*id, place)),
            _ => None,
        });
        self.find_links(named.map(|(id, place)| (id, place.parent, place.is_xattr_directory)));
        let looked = found.into_iter().map(|(id, found)| match found {
            Err(why) => Looked {
                stats: Stats::default(),
                path: Err(why),
                is_nameless: false,
            },
            Ok((place, is_nameless)) => Looked {
                stats: place.stats,
                path: match is_nameless {
                    true => Ok(NAMELESS.to_vec()),
                    false => self.path(id),
                },
                is_nameless,
            },
        });
        looked.collect()
    }

    /// Keeps the names in memory bounded.
    fn forget_much(&mut self) {
        if self.links.len() > LINKS_MAX {
            self.links.clear();
        }
    }

    #[doc(alias = "zfs_obj_to_stats")]
    fn place(&self, id: ObjectId) -> Result<Place, NoPath> {
        let object = self.set.object(id, self.operation).map_err(no_path)?;
        let (bonus_type, bonus) = object.typed_bonus();
        let is_file = match bonus_type {
            ObjectType::SystemAttributes => true,
            ObjectType::Znode => bonus.len() >= ZNODE_SIZE,
            _ => false,
        };
        if !is_file {
            return Err(NoPath::Nothing);
        }
        let spill = object.spill(self.operation).map_err(no_path)?;
        let facts = Facts::decode(bonus_type, &bonus, spill.as_deref(), &self.tables.current());
        let facts = facts.map_err(|what| no_path(PosixError::Attributes { object: id, what }))?;
        Ok(Place {
            stats: Stats {
                mode: facts.mode,
                generation: facts.generation,
                links: facts.links,
                changed: facts.changed,
            },
            parent: facts.parent,
            is_xattr_directory: facts.flags.has(ZnodeFlags::XATTR) && facts.is_directory(),
        })
    }

    /// Whether a file is in the unlinked set: it was open when it lost its last name.
    fn is_nameless(&self, id: ObjectId) -> Result<bool, NoPath> {
        let Some(unlinked) = self.unlinked else {
            return Ok(false);
        };
        let object = self.set.object(unlinked, self.operation).map_err(no_path)?;
        let zap = open_zap(&object, self.operation);
        let found = zap.lookup_word(unlinked_name(id).as_str());
        let found = found.map_err(|why| no_path(table_error(unlinked)(why)))?;
        Ok(found.is_some())
    }

    /// Finds how these files, and all directories above them, are reached: number, parent, and
    /// whether it is a directory of extended attributes.
    #[doc(alias = "zfs_obj_to_pobj")]
    fn find_links(&mut self, files: impl Iterator<Item = (ObjectId, ObjectId, bool)>) {
        let mut level: Vec<(ObjectId, ObjectId, bool)> = files.collect();
        while !level.is_empty() {
            let mut parents = BTreeMap::new();
            let mut wanted: BTreeMap<ObjectId, BTreeMap<ObjectId, Option<Vec<u8>>>> =
                BTreeMap::new();
            for (id, parent, is_xattr_directory) in level {
                if self.links.contains_key(&id) {
                    continue;
                }
                let link = match self.place(parent) {
                    Err(why) => Link::Lost(why),
                    Ok(_) if parent == id => Link::Root,
                    Ok(place) if !is_xattr_directory && !place.stats.is_directory() => {
                        Link::Lost(NoPath::Failed(EINVAL))
                    }
                    Ok(place) => {
                        parents.insert(parent, (place.parent, place.is_xattr_directory));
                        if !is_xattr_directory {
                            wanted.entry(parent).or_default().insert(id, None);
                        }
                        Link::In(parent, XATTR_DIRECTORY.to_vec())
                    }
                };
                self.links.insert(id, link);
            }
            for (directory, files) in wanted {
                self.name_files(directory, files);
            }
            level = parents
                .into_iter()
                .map(|(id, (parent, is_xattr_directory))| (id, parent, is_xattr_directory))
                .collect();
        }
    }

    /// Looks through a directory for files that should be in it. Of several names of a file the
    /// first counts.
    fn name_files(&mut self, directory: ObjectId, mut files: BTreeMap<ObjectId, Option<Vec<u8>>>) {
        let searched = self.search(directory, &mut files);
        for (id, name) in files {
            let link = match (name, searched) {
                (Some(name), _) => Link::In(directory, name),
                (None, Ok(())) => Link::Lost(NoPath::Nothing),
                (None, Err(why)) => Link::Lost(why),
            };
            self.links.insert(id, link);
        }
    }

    #[doc(alias = "zap_value_search")]
    fn search(
        &self,
        directory: ObjectId,
        files: &mut BTreeMap<ObjectId, Option<Vec<u8>>>,
    ) -> Result<(), NoPath> {
        let object = self
            .set
            .object(directory, self.operation)
            .map_err(no_path)?;
        let zap = open_zap(&object, self.operation);
        let mut missing = files.len();
        let mut cursor = Cursor::START;
        while missing > 0 {
            let entries = zap.entries_from(cursor, ENTRIES);
            let entries = entries.map_err(|why| no_path(table_error(directory)(why)))?;
            let Some(last) = entries.last() else { break };
            cursor = last.next;
            for entry in entries {
                let Some(word) = entry.value.as_word() else {
                    continue;
                };
                let id = znode::DirectoryEntry::from_word(word).object;
                if let (Some(name @ None), OwnedName::Text(text)) = (files.get_mut(&id), entry.name)
                {
                    *name = Some(text);
                    missing -= 1;
                }
            }
        }
        Ok(())
    }

    /// The path of a file whose links were found.
    #[doc(alias = "zfs_obj_to_path")]
    fn path(&self, id: ObjectId) -> Result<Vec<u8>, NoPath> {
        let mut components: Vec<&[u8]> = Vec::new();
        let mut at = id;
        loop {
            match self.links.get(&at) {
                Some(Link::Root) => break,
                Some(Link::In(parent, name)) => {
                    // Each is in the table once, so a longer way goes in a circle.
                    if components.len() > self.links.len() {
                        return Err(NoPath::Failed(ELOOP));
                    }
                    components.push(name);
                    at = *parent;
                }
                Some(Link::Lost(why)) => return Err(*why),
                None => return Err(NoPath::Nothing),
            }
        }
        let mut path = Vec::new();
        for component in components.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(component);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }
}

/// Why there is no path, when something cannot be read.
fn no_path(error: impl Into<PosixError>) -> NoPath {
    match error.into() {
        PosixError::NotFound => NoPath::Nothing,
        other => NoPath::Failed(other.errno()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(path: &str, generation: u64, links: u64, changed_s: i64) -> Looked {
        Looked {
            stats: Stats {
                mode: 0o100_644,
                generation,
                links,
                changed: Timestamp {
                    seconds: changed_s,
                    nanoseconds: 0,
                },
            },
            path: Ok(path.as_bytes().to_vec()),
            is_nameless: false,
        }
    }

    fn nothing() -> Looked {
        Looked {
            stats: Stats::default(),
            path: Err(NoPath::Nothing),
            is_nameless: false,
        }
    }

    /// What is told, as `zfs diff` begins its lines, and the paths.
    fn told(before: Looked, after: Looked) -> Vec<String> {
        let mut told = Vec::new();
        told_of_there(ObjectId::new(7), before, after, &mut told);
        let shown = told.into_iter().map(|told| match told {
            Told::Unknown { state, errno, .. } => format!("{state:?} {errno}"),
            Told::File(file) => {
                let path = String::from_utf8(file.path).unwrap();
                match file.change {
                    Change::Added => format!("+ {path}"),
                    Change::Removed => format!("- {path}"),
                    Change::Modified => format!("M {path}"),
                    Change::Links(links) => format!("M {path} ({links:+})"),
                    Change::Renamed(to) => format!("R {path} {}", String::from_utf8(to).unwrap()),
                }
            }
        });
        shown.collect()
    }

    #[test]
    fn the_time_says_whether_and_the_name_how_a_file_changed() {
        let before = || looked("/a", 4, 1, 10);
        assert!(told(before(), looked("/b", 4, 1, 10)).is_empty());
        assert_eq!(told(before(), looked("/a", 4, 1, 11)), ["M /a"]);
        assert_eq!(told(before(), looked("/b", 4, 1, 11)), ["R /a /b"]);
        assert_eq!(told(before(), nothing()), ["- /a"]);
        assert_eq!(told(nothing(), before()), ["+ /a"]);
        assert!(told(nothing(), nothing()).is_empty());
    }

    #[test]
    fn another_generation_or_kind_is_another_file() {
        let before = || looked("/a", 4, 1, 10);
        assert_eq!(told(before(), looked("/b", 5, 1, 10)), ["- /a", "+ /b"]);
        let mut directory = looked("/a", 4, 2, 10);
        directory.stats.mode = 0o040_755;
        assert_eq!(told(before(), directory), ["- /a", "+ /a"]);
    }

    /// More links: the old name; fewer: the new one, for the old may be gone.
    #[test]
    fn a_link_more_or_less_is_told_as_such() {
        let before = || looked("/a", 4, 2, 10);
        assert_eq!(told(before(), looked("/b", 4, 3, 11)), ["M /a (+1)"]);
        assert_eq!(told(before(), looked("/b", 4, 1, 11)), ["M /b (-1)"]);
        let lost = Looked {
            path: Err(NoPath::Nothing),
            ..looked("", 4, 1, 11)
        };
        assert_eq!(told(before(), lost.clone()), ["M /a (-1)"]);
        assert_eq!(told(lost, before()), ["M /a (+1)"]);
    }

    #[test]
    fn what_cannot_be_found_out_is_told_once() {
        let broken = || Looked {
            path: Err(NoPath::Failed(EINVAL)),
            ..looked("", 4, 1, 11)
        };
        let after = looked("/a", 4, 1, 12);
        assert_eq!(told(broken(), after), ["Earlier 22", "+ /a"]);
        assert_eq!(told(broken(), broken()), ["Earlier 22"]);
        assert_eq!(told(nothing(), broken()), ["Later 22"]);
    }
}
