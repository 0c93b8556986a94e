//! Plans the renames, promotions and destructions that give a tree here the shape of the sender's.
//!
//! # Problem
//! Since the increment's first snapshot, file systems and snapshots may have been destroyed,
//! renamed, moved and promoted at the sender. The package does not list these changes, only the
//! present state.
//!
//! # Mechanism
//! Guids decide. A snapshot here that no file system of the package has was destroyed at the
//! sender, and nothing else was: after a promotion the snapshots of one file system belong to two.
//! A file system here corresponds to the one in the package that has its newest snapshot.
//!
//! Promotions come first, since they move snapshots; then file systems, since destroyed ones may
//! keep snapshots of others; then snapshots. A new name may still be taken: possible steps are done
//! before others, and where none is possible (names were exchanged, or the new parent is yet to be
//! received) one dataset gets a temporary name.
//!
//! # Invariants
//! - A snapshot that the package has under any name is not destroyed. A file system with others
//!   below it is not destroyed.

use super::package::Package;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::look_through::Look;
use tarn_dataset::namespace::Namespace;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::Txg;
use tarn_probe::Operation;

/// A file system or volume of the tree here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Local {
    pub(super) name: String,
    pub(super) guid: u64,
    /// Oldest first.
    pub(super) snapshots: Vec<LocalSnapshot>,
    /// The guid of its origin.
    pub(super) origin: Option<u64>,
}

/// A snapshot of the tree here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LocalSnapshot {
    /// Short.
    pub(super) name: String,
    pub(super) guid: u64,
    pub(super) created: Txg,
}

/// A tree here beside the package that goes on from it.
pub(super) struct Tree<'a> {
    package: &'a Package,
    /// The short name, at the sender, of the increment's first snapshot.
    from: &'a str,
    /// The process id of the receiving command, a part of temporary names.
    process: u32,
    /// The name of the tree's root.
    top: String,
    /// Parents before children.
    heads: Vec<Local>,
    /// The package's file system for each of them, where there is one.
    known: Vec<Option<usize>>,
}

/// A rename, with full names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Renaming {
    pub(super) from: String,
    pub(super) to: String,
    /// The new name is temporary.
    pub(super) is_aside: bool,
    /// The final name; empty where the new parent is not here yet.
    pub(super) wanted: Option<String>,
}

/// The beginning of temporary names.
const BESIDE: &str = "recv-";

/// When the tree is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Before the streams: names that they need must become free.
    Before,
    /// After all streams.
    After,
}

/// Snapshots of one file system to destroy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) head: String,
    /// Short names.
    pub(super) snapshots: Vec<String>,
}

/// The next step for file systems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Destroys one with its snapshots.
    Destroy(Gone),
    Rename(Renaming),
}

/// The steps that remain for file systems, by guid, since names change.
#[derive(Debug, Default)]
pub(super) struct Heads {
    /// To be destroyed.
    gone: BTreeSet<u64>,
    /// To be moved, with their places.
    moved: BTreeMap<u64, Place>,
    /// To get temporary names.
    in_the_way: BTreeSet<u64>,
    /// With temporary names.
    aside: BTreeSet<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// The guid of the parent; none where it is not here.
    parent: Option<u64>,
    component: String,
}

/// Reads the tree below this file system.
pub(super) fn read(
    namespace: &Namespace,
    top: &str,
    operation: &Operation,
) -> Result<Vec<Local>, DatasetError> {
    namespace.look_through(top, None, operation, |directory| {
        Ok(Look {
            found: local(directory)?.into_iter().collect(),
            goes_on: true,
        })
    })
}

fn local(directory: &Directory<'_>) -> Result<Option<Local>, DatasetError> {
    let Some(head) = directory.head()? else {
        return Ok(None);
    };
    let snapshot = |one: &Dataset<'_>| {
        let stored = one.stored()?;
        Ok(LocalSnapshot {
            name: one.snapshot_name().unwrap_or_default().to_string(),
            guid: stored.guid.get(),
            created: stored.creation_txg,
        })
    };
    let snapshots = head.snapshots()?;
    let snapshots: Result<_, DatasetError> = snapshots.iter().map(snapshot).collect();
    let origin = match directory.stored()?.origin {
        none if none.is_zero() => None,
        origin => {
            let origin = directory.view().dataset_by_id(origin)?;
            Some(origin.stored()?.guid.get())
        }
    };
    Ok(Some(Local {
        name: directory.name().to_string(),
        guid: head.stored()?.guid.get(),
        snapshots: snapshots?,
        origin,
    }))
}

impl<'a> Tree<'a> {
    /// A tree, and the package that goes on from this snapshot. None where the tree's root has
    /// nothing of the package, which is then for another tree.
    pub(super) fn of(
        package: &'a Package,
        from: &'a str,
        process: u32,
        heads: Vec<Local>,
    ) -> Option<Tree<'a>> {
        let top = heads.first()?.name.clone();
        let mut tree = Tree {
            package,
            from,
            process,
            top,
            heads,
            known: Vec::new(),
        };
        tree.known = tree.find_known();
        tree.has_any(&tree.heads[0]).then_some(tree)
    }

    /// The number of file systems.
    pub(super) fn count(&self) -> usize {
        self.heads.len()
    }

    /// The package's file system for each one here. Several here may have snapshots of one (a
    /// promotion is yet to be done, or the dataset was copied): the one with the increment's first
    /// snapshot counts; of several such, the one in its place, or else the oldest.
    fn find_known(&self) -> Vec<Option<usize>> {
        let mut best = BTreeMap::new();
        for (index, local) in self.heads.iter().enumerate() {
            let owned = |one: &LocalSnapshot| Some((self.package.owner(one.guid)?, one.created));
            let Some((sent, created)) = local.snapshots.iter().rev().find_map(owned) else {
                continue;
            };
            let rank = match self.first_of(local, sent) {
                Some(first) => {
                    let is_in_place = self.place_of(sent).as_ref() == Some(&local.name);
                    (1, u8::from(is_in_place), Reverse(first.created), Txg::ZERO)
                }
                None => (0, 0, Reverse(Txg::ZERO), created),
            };
            if best.get(&sent).is_none_or(|(other, _)| rank > *other) {
                best.insert(sent, (rank, index));
            }
        }
        let mut known = vec![None; self.heads.len()];
        for (sent, (_, index)) in best {
            known[index] = Some(sent);
        }
        known
    }

    /// The snapshot here that the increment of this file system of the package goes on from.
    fn first_of<'l>(&self, local: &'l Local, sent: usize) -> Option<&'l LocalSnapshot> {
        let sent = self.package.sent(sent);
        let mut all = local.snapshots.iter();
        all.find(|one| sent.snapshot(one.guid) == Some(self.from))
    }

    fn has_any(&self, local: &Local) -> bool {
        let mut all = local.snapshots.iter();
        all.any(|one| self.package.owner(one.guid).is_some())
    }

    /// Whether a file system was destroyed at the sender: it has nothing of the package, and came
    /// from the sender if it has a snapshot of the increment's first name.
    fn is_gone(&self, local: &Local) -> bool {
        let mut all = local.snapshots.iter();
        !self.has_any(local) && all.any(|one| one.name == self.from)
    }

    /// The name here of one of the package, when it is in its place.
    fn place_of(&self, sent: usize) -> Option<String> {
        let name = &self.package.sent(sent).name;
        let rest = name.strip_prefix(self.package.base())?;
        Some(format!("{}{rest}", self.top))
    }

    /// A temporary name that is not taken.
    fn aside_name(&self, before: &str, is_taken: impl Fn(&str) -> bool) -> String {
        let process = self.process;
        let names = (1u64..).map(|number| format!("{before}{BESIDE}{process}-{number}"));
        let mut free = names.filter(|name| !is_taken(name));
        free.next().expect("there are more numbers than names")
    }

    /// Clones here that own their origin's snapshot at the sender: each was promoted there. Where
    /// that snapshot is destroyed, the promotion came before the destruction.
    pub(super) fn promoted(&self) -> Vec<String> {
        let mut owners = BTreeMap::new();
        for (index, local) in self.heads.iter().enumerate() {
            owners.extend(local.snapshots.iter().map(|one| (one.guid, index)));
        }
        let all = self.heads.iter().zip(&self.known);
        let is_promoted = |(local, known): &(&Local, &Option<usize>)| {
            let (Some(origin), Some(sent)) = (local.origin, **known) else {
                return false;
            };
            let Some(parent) = owners.get(&origin) else {
                return false;
            };
            match self.package.owner(origin) {
                Some(owner) => owner == sent,
                None => {
                    self.known[*parent].is_none() && self.package.sent(sent).origin != Some(origin)
                }
            }
        };
        all.filter(is_promoted)
            .map(|(local, _)| local.name.clone())
            .collect()
    }

    /// Snapshots that the sender has destroyed, of file systems that it has.
    pub(super) fn gone_snapshots(&self) -> Vec<Gone> {
        let all = self.heads.iter().zip(&self.known);
        let known = all.filter(|(_, known)| known.is_some());
        let gone = known.map(|(local, _)| {
            let snapshots = local.snapshots.iter();
            // Temporary names are this program's.
            let is_gone = |one: &&LocalSnapshot| {
                self.package.owner(one.guid).is_none() && !one.name.contains('%')
            };
            let gone = snapshots.filter(is_gone);
            Gone {
                head: local.name.clone(),
                snapshots: gone.map(|one| one.name.clone()).collect(),
            }
        });
        gone.filter(|gone| !gone.snapshots.is_empty()).collect()
    }

    /// Snapshots by their names here, with their properties at the sender.
    pub(super) fn with_properties(&self) -> Vec<(String, NvList)> {
        let all = self.heads.iter().zip(&self.known);
        let known = all.filter_map(|(local, known)| Some((local, self.package.sent((*known)?))));
        let of_head = known.flat_map(|(local, sent)| {
            let snapshots = local.snapshots.iter();
            snapshots.map(|one| {
                let name = format!("{}@{}", local.name, one.name);
                (name, sent.properties_of(one.guid))
            })
        });
        of_head
            .filter(|(_, sent)| sent.iter().next().is_some())
            .collect()
    }

    /// Updates the snapshots that a file system has left.
    pub(super) fn keep_snapshots(&mut self, head: &str, left: &[String]) {
        let mut heads = self.heads.iter_mut();
        if let Some(local) = heads.find(|local| local.name == head) {
            local.snapshots.retain(|one| left.contains(&one.name));
        }
    }

    /// Renames of snapshots, in an order in which they are possible. A snapshot that could not be
    /// destroyed gets a temporary name if its name is needed.
    pub(super) fn renamed_snapshots(&self, force: bool, when: When) -> Vec<Renaming> {
        let all = self.heads.iter().zip(&self.known);
        let known = all.filter_map(|(local, known)| Some((local, (*known)?)));
        known
            .flat_map(|(local, sent)| self.renamed_snapshots_of(local, sent, force, when))
            .collect()
    }

    fn renamed_snapshots_of(
        &self,
        local: &Local,
        sent: usize,
        force: bool,
        when: When,
    ) -> Vec<Renaming> {
        let sent = self.package.sent(sent);
        let mut names: BTreeSet<String> = BTreeSet::new();
        let mut waiting: Vec<(String, Option<&str>)> = Vec::new();
        for one in &local.snapshots {
            names.insert(one.name.clone());
            let to = sent.snapshot(one.guid);
            let is_in_the_way =
                force && self.package.owner(one.guid).is_none() && sent.has(&one.name);
            if is_in_the_way || to.is_some_and(|to| to != one.name) {
                waiting.push((one.name.clone(), to));
            }
        }
        let full = |name: &str| format!("{}@{name}", local.name);
        let mut all = Vec::new();
        let mut rename =
            |names: &mut BTreeSet<String>, from: &str, to: &str, wanted: Option<&str>| {
                names.remove(from);
                names.insert(to.to_string());
                all.push(Renaming {
                    from: full(from),
                    to: full(to),
                    is_aside: wanted != Some(to),
                    wanted: wanted.map(full),
                });
            };
        loop {
            let is_free =
                |(_, to): &(String, Option<&str>)| to.is_some_and(|to| !names.contains(to));
            if let Some(index) = waiting.iter().position(is_free) {
                let (from, to) = waiting.remove(index);
                rename(&mut names, &from, to.unwrap_or_default(), to);
                continue;
            }
            let index = waiting
                .iter()
                .position(|(from, _)| !from.starts_with(BESIDE));
            let Some(index) = index.filter(|_| when == When::Before) else {
                break;
            };
            let aside = self.aside_name("", |name| names.contains(name));
            rename(&mut names, &waiting[index].0, &aside, waiting[index].1);
            match waiting[index].1 {
                Some(_) => waiting[index].0 = aside,
                None => drop(waiting.remove(index)),
            }
        }
        if when == When::After {
            // Their names are taken for good: the renames will be refused, with the reason.
            for (from, to) in waiting {
                rename(&mut names, &from, to.unwrap_or(&from), to);
            }
        }
        all
    }

    /// The steps for file systems.
    pub(super) fn heads(&self) -> Heads {
        let by_name: BTreeMap<&str, usize> = self
            .heads
            .iter()
            .enumerate()
            .map(|(index, local)| (local.name.as_str(), index))
            .collect();
        let mut heads = Heads::default();
        // The request names the root of the tree.
        for (local, known) in self.heads.iter().zip(&self.known).skip(1) {
            if self.is_gone(local) {
                heads.gone.insert(local.guid);
            }
            let Some((parent, component)) = local.name.rsplit_once('/') else {
                continue;
            };
            if let Some(known) = *known
                && self.first_of(local, known).is_some()
                && let Some(parent) = by_name.get(parent)
                && let Some(place) = self.new_place(*parent, component, known)
            {
                heads.moved.insert(local.guid, place);
            }
        }
        heads
    }

    /// The new place of a file system of the package that is here below `parent` under this name,
    /// if that is another place. The guid of its parent's snapshot identifies the new parent.
    fn new_place(&self, parent: usize, component: &str, sent: usize) -> Option<Place> {
        let sent = self.package.sent(sent);
        let (_, new_component) = sent.name.rsplit_once('/')?;
        let new_parent = self.package.owner(sent.parent_guid);
        // A file system that was moved below one that is not the sender's was moved by the
        // receiver, and stays.
        let came = self.known[parent].is_some() || self.is_gone(&self.heads[parent]);
        let is_moved = new_parent.is_some() && came && self.known[parent] != new_parent;
        let parent = match is_moved {
            false => Some(self.heads[parent].guid),
            true => {
                let here = self.known.iter().position(|one| *one == new_parent);
                here.map(|here| self.heads[here].guid)
            }
        };
        (is_moved || component != new_component).then(|| Place {
            parent,
            component: new_component.to_string(),
        })
    }

    /// Names of file systems without the increment's first snapshot: it was destroyed here.
    pub(super) fn without_first(&self) -> Vec<String> {
        let all = self.heads.iter().zip(&self.known);
        let lack = |(local, known): &(&Local, &Option<usize>)| {
            known.is_some_and(|known| self.first_of(local, known).is_none())
        };
        all.filter(lack)
            .map(|(local, _)| local.name.clone())
            .collect()
    }

    /// Names of file systems whose new parent is not here.
    pub(super) fn without_parent(&self, heads: &Heads) -> Vec<String> {
        let waits = |local: &&Local| {
            let place = heads.moved.get(&local.guid);
            place.is_some_and(|place| place.parent.is_none())
        };
        let all = self.heads.iter().filter(waits);
        all.map(|local| local.name.clone()).collect()
    }

    /// The next step; none when no further one is possible. `force` says whether datasets may be
    /// destroyed.
    pub(super) fn next(&self, heads: &Heads, force: bool, when: When) -> Option<Next> {
        let all = || self.heads.iter();
        let is_gone = |local: &&Local| force && heads.gone.contains(&local.guid);
        let is_alone = |local: &&Local| {
            let below = format!("{}/", local.name);
            let is_clone = |one: &Local| {
                let mut snapshots = local.snapshots.iter();
                snapshots.any(|snapshot| Some(snapshot.guid) == one.origin)
            };
            !all().any(|one| one.name.starts_with(&below) || is_clone(one))
        };
        let destroy = |local: &Local| {
            let snapshots = local.snapshots.iter();
            Next::Destroy(Gone {
                head: local.name.clone(),
                snapshots: snapshots.map(|one| one.name.clone()).collect(),
            })
        };
        // The deepest come last.
        let mut gone = all().rev().filter(is_gone);
        if let Some(local) = gone.find(is_alone) {
            return Some(destroy(local));
        }
        for local in all() {
            if let Some(to) = self.free_place(heads, local) {
                return Some(Next::Rename(Renaming {
                    from: local.name.clone(),
                    wanted: Some(to.clone()),
                    to,
                    is_aside: false,
                }));
            }
        }
        let waits = |local: &&Local| {
            let guid = local.guid;
            let is_to_go = heads.moved.contains_key(&guid) || heads.in_the_way.contains(&guid);
            is_to_go && !heads.aside.contains(&guid) && !self.is_beside(&local.name)
        };
        if when == When::Before
            && let Some(local) = all().find(waits)
        {
            let is_taken = |name: &str| all().any(|one| one.name == name);
            return Some(Next::Rename(Renaming {
                from: local.name.clone(),
                to: self.aside_name(&format!("{}/", self.top), is_taken),
                is_aside: true,
                wanted: self.wanted_place(heads, local),
            }));
        }
        // Their names are taken for good: the renames will be refused, with the reason.
        let mut places = all().filter_map(|local| Some((local, self.wanted_place(heads, local)?)));
        if when == When::After
            && let Some((local, to)) = places.find(|(_, to)| !to.is_empty())
        {
            return Some(Next::Rename(Renaming {
                from: local.name.clone(),
                wanted: Some(to.clone()),
                to,
                is_aside: false,
            }));
        }
        all().rev().find(is_gone).map(destroy)
    }

    /// Whether it has a temporary name.
    fn is_beside(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.top.as_str());
        let rest = rest.and_then(|rest| rest.strip_prefix('/'));
        rest.is_some_and(|rest| rest.starts_with(BESIDE) && !rest.contains('/'))
    }

    /// The name that a file system is to have; empty where its parent is not here.
    fn wanted_place(&self, heads: &Heads, local: &Local) -> Option<String> {
        let place = heads.moved.get(&local.guid)?;
        let is_parent = |one: &&Local| Some(one.guid) == place.parent;
        let parent = self.heads.iter().find(is_parent);
        Some(parent.map_or_else(String::new, |parent| {
            format!("{}/{}", parent.name, place.component)
        }))
    }

    /// The same, if that name is free.
    fn free_place(&self, heads: &Heads, local: &Local) -> Option<String> {
        let to = self.wanted_place(heads, local)?;
        if to.is_empty() {
            return None;
        }
        let is_below_itself = to.starts_with(&format!("{}/", local.name));
        let is_taken = self.heads.iter().any(|one| one.name == to);
        (!is_below_itself && !is_taken).then_some(to)
    }

    /// Updates the names of a renamed file system and those below it. One with a temporary name may
    /// have to be moved once more.
    pub(super) fn rename(&mut self, heads: &mut Heads, done: &Renaming) {
        for local in &mut self.heads {
            let Some(rest) = local.name.strip_prefix(done.from.as_str()) else {
                continue;
            };
            if rest.is_empty() {
                heads.in_the_way.remove(&local.guid);
                match done.is_aside {
                    true => drop(heads.aside.insert(local.guid)),
                    false => drop(heads.moved.remove(&local.guid)),
                }
            }
            if rest.is_empty() || rest.starts_with('/') {
                local.name = format!("{}{rest}", done.to);
            }
        }
    }

    /// Removes a destroyed file system.
    pub(super) fn forget(&mut self, heads: &mut Heads, name: &str) {
        if let Some(index) = self.heads.iter().position(|one| one.name == name) {
            heads.gone.remove(&self.heads[index].guid);
            self.heads.remove(index);
            self.known.remove(index);
        }
    }

    /// Drops a step that failed. A file system that could not be destroyed gets a temporary name if
    /// its name is needed.
    pub(super) fn give_up(&self, heads: &mut Heads, name: &str) {
        let Some(local) = self.heads.iter().find(|one| one.name == name) else {
            return;
        };
        heads.moved.remove(&local.guid);
        heads.in_the_way.remove(&local.guid);
        let was_gone = heads.gone.remove(&local.guid);
        let is_place = |sent| self.place_of(sent).as_deref() == Some(name);
        if was_gone && (0..self.package.count()).any(is_place) {
            heads.in_the_way.insert(local.guid);
        }
    }
}
