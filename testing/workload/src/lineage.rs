//! File systems, snapshots and clones as a model: what a row of `zfs` commands must come to.
//!
//! # Mechanism
//! A [`Lineage`] has of each file system its files, its snapshots with theirs, and what it is a
//! clone of. [`Lineage::draw`] makes up the next [`Step`] that must succeed; the driver of
//! commands does it, and [`Lineage::apply`] does it to the model. In the end everything that can be
//! read must be what the model has ([`compare`]).
//!
//! A snapshot has an identity, which stands for its guid: it goes along when the snapshot is sent,
//! renamed, or given to a promoted clone. An increment fits where the identity is that it goes on
//! from.
//!
//! # Invariants
//! - Names of file systems and snapshots are never used twice, so a step never meets a name by
//!   chance.
//! - The steps follow from the source of chance alone.

mod contents;
mod steps;

pub use contents::{Change, Contents, change, compare, differences, read};
pub use steps::{Fate, Step};

use std::collections::BTreeMap;

use crate::twister::Twister;

/// So many file systems there are at most.
const FILESYSTEMS_MAX: usize = 7;
/// So many snapshots one of them has before more are destroyed than taken.
const SNAPSHOTS_MANY: usize = 6;

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The short name.
    pub name: String,
    /// The same for a snapshot and what was received of it.
    pub identity: u64,
    /// What is in it.
    pub contents: Contents,
}

/// A file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// What is in it.
    pub contents: Contents,
    /// Its snapshots, oldest first.
    pub snapshots: Vec<Snapshot>,
    /// The file system and the snapshot that it is a clone of.
    pub origin: Option<(String, String)>,
}

impl Filesystem {
    fn place(&self, short: &str) -> Option<usize> {
        self.snapshots.iter().position(|one| one.name == short)
    }

    fn place_of(&self, identity: u64) -> Option<usize> {
        let mut all = self.snapshots.iter();
        all.position(|one| one.identity == identity)
    }
}

/// All file systems, by name.
#[derive(Debug, Clone, Default)]
pub struct Lineage {
    /// Those there are.
    pub filesystems: BTreeMap<String, Filesystem>,
    last: u64,
}

impl Lineage {
    /// The next step.
    pub fn draw(&mut self, chance: &mut Twister) -> Step {
        self.last += 1;
        let names: Vec<String> = self.filesystems.keys().cloned().collect();
        let is_room = names.len() < FILESYSTEMS_MAX;
        if names.is_empty() || (is_room && chance.below(12) == 0) {
            return Step::Create {
                name: format!("f{}", self.last),
                properties: steps::properties(chance),
            };
        }
        let name = names[chance.index(names.len())].clone();
        let drawn = match chance.below(100) {
            0..26 => None,
            26..42 => Some(self.draw_snapshot(&names, name.clone(), chance)),
            42..50 => self.draw_clone(&name, chance),
            50..56 => self.draw_promotion(&name),
            56..63 => self.draw_rollback(&name, chance),
            63..71 => self.draw_destruction(&name, chance),
            71..74 => self.draw_end(&name),
            74..79 => Some(self.draw_rename(name.clone(), chance)),
            79..97 => self.draw_send(&name, &names, chance),
            _ => Some(Step::Export),
        };
        // What cannot be done now gives way to what always can.
        drawn.unwrap_or_else(|| Step::Write {
            changes: contents::draw(&self.filesystems[&name].contents, chance),
            name,
        })
    }

    /// All that is left is destroyed, one by one: what then remains in use was leaked.
    pub fn draw_last(&self, chance: &mut Twister) -> Option<Step> {
        let names: Vec<&String> = self.filesystems.keys().collect();
        let first = chance.index(names.len().max(1));
        let mut turned = names.iter().cycle().skip(first).take(names.len());
        turned.find_map(|name| {
            let of_snapshots = self.draw_destruction(name, chance);
            of_snapshots
                .filter(|_| chance.below(3) > 0)
                .or_else(|| self.draw_end(name))
        })
    }

    fn draw_snapshot(&self, names: &[String], name: String, chance: &mut Twister) -> Step {
        let short = format!("s{}", self.last);
        let names = match chance.below(4) {
            0 => names.to_vec(),
            _ => vec![name],
        };
        Step::Snapshot { names, short }
    }

    fn draw_clone(&self, name: &str, chance: &mut Twister) -> Option<Step> {
        let made = &self.filesystems[name];
        let snapshot = made
            .snapshots
            .get(chance.index(made.snapshots.len().max(1)))?;
        (self.filesystems.len() < FILESYSTEMS_MAX).then(|| Step::Clone {
            of: name.to_string(),
            short: snapshot.name.clone(),
            name: format!("c{}", self.last),
        })
    }

    fn draw_promotion(&self, name: &str) -> Option<Step> {
        let has_origin = self.filesystems[name].origin.is_some();
        has_origin.then(|| Step::Promote {
            name: name.to_string(),
        })
    }

    fn draw_rollback(&self, name: &str, chance: &mut Twister) -> Option<Step> {
        let snapshots = &self.filesystems[name].snapshots;
        let place = chance.index(snapshots.len().max(1));
        let newer = snapshots.get(place + 1..)?;
        let is_free = newer.iter().all(|one| !self.has_clones(name, &one.name));
        is_free.then(|| Step::Rollback {
            name: name.to_string(),
            short: snapshots[place].name.clone(),
        })
    }

    fn draw_destruction(&self, name: &str, chance: &mut Twister) -> Option<Step> {
        let snapshots = &self.filesystems[name].snapshots;
        let first = chance.index(snapshots.len().max(1));
        let longest = snapshots
            .len()
            .checked_sub(first)
            .filter(|left| *left > 0)?;
        let is_many = snapshots.len() > SNAPSHOTS_MANY || chance.below(4) == 0;
        let count = if is_many {
            1 + chance.index(longest)
        } else {
            1
        };
        let range = &snapshots[first..first + count];
        let is_free = range.iter().all(|one| !self.has_clones(name, &one.name));
        is_free.then(|| Step::DestroySnapshots {
            name: name.to_string(),
            first: range[0].name.clone(),
            last: range[count - 1].name.clone(),
        })
    }

    fn draw_end(&self, name: &str) -> Option<Step> {
        let snapshots = &self.filesystems[name].snapshots;
        let is_free = snapshots
            .iter()
            .all(|one| !self.has_clones(name, &one.name));
        is_free.then(|| Step::Destroy {
            name: name.to_string(),
        })
    }

    fn draw_rename(&self, name: String, chance: &mut Twister) -> Step {
        let snapshots = &self.filesystems[&name].snapshots;
        match snapshots.get(chance.index(snapshots.len() + 1)) {
            Some(snapshot) => Step::RenameSnapshot {
                from: snapshot.name.clone(),
                to: format!("t{}", self.last),
                name,
            },
            None => Step::Rename {
                to: format!("n{}", self.last),
                from: name,
            },
        }
    }

    /// A snapshot that is sent: whole to a new file system, or what was changed to one that has a
    /// snapshot in common.
    fn draw_send(&self, name: &str, names: &[String], chance: &mut Twister) -> Option<Step> {
        let made = &self.filesystems[name];
        let mut ways = Vec::new();
        for target in names.iter().filter(|target| *target != name) {
            for (base, snapshot) in made.snapshots.iter().enumerate() {
                if self.takes_increment(target, snapshot.identity, &made.snapshots[base + 1..]) {
                    ways.push((base, target.clone()));
                }
            }
        }
        let send =
            |from: Option<&Snapshot>, to: &Snapshot, target: String, chance: &mut Twister| {
                let is_series = from.is_some() && chance.below(2) == 0;
                let fate = steps::fate(chance);
                Step::Send {
                    name: name.to_string(),
                    from: from.map(|from| from.name.clone()),
                    short: to.name.clone(),
                    is_series,
                    target,
                    options: steps::send_options(chance),
                    // Of a series that was cut, the streams that were whole stay: that is another
                    // story.
                    fate: if is_series { Fate::Whole } else { fate },
                }
            };
        let is_room = self.filesystems.len() < FILESYSTEMS_MAX;
        if !ways.is_empty() && (!is_room || chance.below(4) > 0) {
            let (base, target) = ways.swap_remove(chance.index(ways.len()));
            let newer = &made.snapshots[base + 1..];
            let to = &newer[chance.index(newer.len())];
            return Some(send(Some(&made.snapshots[base]), to, target, chance));
        }
        let to = made
            .snapshots
            .get(chance.index(made.snapshots.len().max(1)))?;
        is_room.then(|| send(None, to, format!("r{}", self.last), chance))
    }

    /// Whether a file system has this snapshot, nothing that would be in the way, and may lose what
    /// is newer.
    fn takes_increment(&self, target: &str, base: u64, newer: &[Snapshot]) -> bool {
        let there = &self.filesystems[target];
        let Some(place) = there.place_of(base) else {
            return false;
        };
        let lost = &there.snapshots[place + 1..];
        let is_free = lost.iter().all(|one| !self.has_clones(target, &one.name));
        // A name that is in the way is refused even where its snapshot would go by force.
        let has_it = |one: &Snapshot| {
            there.place_of(one.identity).is_some() || there.place(&one.name).is_some()
        };
        !newer.is_empty() && is_free && !newer.iter().any(has_it)
    }

    fn has_clones(&self, name: &str, short: &str) -> bool {
        let mut all = self.filesystems.values();
        all.any(|made| {
            let origin = made.origin.as_ref();
            origin.is_some_and(|(of, snapshot)| of == name && snapshot == short)
        })
    }

    /// Does a step.
    ///
    /// # Panics
    /// When the step is not one that [`Lineage::draw`] gave for this model.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Create { name, .. } => {
                self.filesystems.insert(name.clone(), Filesystem::default());
            }
            Step::Write { name, changes } => {
                let contents = &mut self.filesystem(name).contents;
                changes.iter().for_each(|change| change.apply(contents));
            }
            Step::Snapshot { names, short } => {
                for name in names {
                    self.last += 1;
                    let identity = self.last;
                    let made = self.filesystem(name);
                    made.snapshots.push(Snapshot {
                        name: short.clone(),
                        identity,
                        contents: made.contents.clone(),
                    });
                }
            }
            Step::Clone { of, short, name } => {
                let origin = &self.filesystems[of];
                let place = origin.place(short).expect("the origin is there");
                let clone = Filesystem {
                    contents: origin.snapshots[place].contents.clone(),
                    snapshots: Vec::new(),
                    origin: Some((of.clone(), short.clone())),
                };
                self.filesystems.insert(name.clone(), clone);
            }
            Step::Promote { name } => self.promote(name),
            Step::Rollback { name, short } => {
                let made = self.filesystem(name);
                let place = made.place(short).expect("the snapshot is there");
                made.snapshots.truncate(place + 1);
                made.contents = made.snapshots[place].contents.clone();
            }
            Step::DestroySnapshots { name, first, last } => {
                let made = self.filesystem(name);
                let first = made.place(first).expect("the first is there");
                let last = made.place(last).expect("the last is there");
                made.snapshots.drain(first..=last);
            }
            Step::Destroy { name } => {
                self.filesystems.remove(name);
            }
            Step::Rename { from, to } => {
                let made = self.filesystems.remove(from).expect("it is there");
                self.filesystems.insert(to.clone(), made);
                self.each_origin(|of, _| {
                    if of == from {
                        of.clone_from(to);
                    }
                });
            }
            Step::RenameSnapshot { name, from, to } => {
                let made = self.filesystem(name);
                let place = made.place(from).expect("the snapshot is there");
                made.snapshots[place].name.clone_from(to);
                self.each_origin(|of, short| {
                    if of == name && short == from {
                        short.clone_from(to);
                    }
                });
            }
            Step::Send {
                name,
                from,
                short,
                is_series,
                target,
                fate,
                ..
            } => {
                // A receiver that refuses a stream has changed nothing, not even with `-F`.
                if fate.arrives() {
                    self.send(name, from.as_deref(), short, *is_series, target);
                }
            }
            Step::Export => {}
        }
    }

    fn filesystem(&mut self, name: &str) -> &mut Filesystem {
        let found = self.filesystems.get_mut(name);
        found.expect("the file system is there")
    }

    fn each_origin(&mut self, mut change: impl FnMut(&mut String, &mut String)) {
        for made in self.filesystems.values_mut() {
            if let Some((of, short)) = &mut made.origin {
                change(of, short);
            }
        }
    }

    /// The snapshots up to its origin go to the clone.
    fn promote(&mut self, name: &str) {
        let origin = self.filesystems[name].origin.clone();
        let (parent, short) = origin.expect("a clone is promoted");
        let old = self.filesystem(&parent);
        let count = old.place(&short).expect("the origin is there") + 1;
        let moved: Vec<Snapshot> = old.snapshots.drain(..count).collect();
        let beyond = old.origin.replace((name.to_string(), short));
        let names: Vec<String> = moved.iter().map(|one| one.name.clone()).collect();
        let new = self.filesystem(name);
        new.snapshots.splice(0..0, moved);
        new.origin = beyond;
        self.each_origin(|of, short| {
            if *of == parent && names.contains(short) {
                *of = name.to_string();
            }
        });
    }

    fn send(&mut self, name: &str, from: Option<&str>, short: &str, is_series: bool, target: &str) {
        let made = &self.filesystems[name];
        let last = made.place(short).expect("what is sent is there");
        let base = from.map(|from| made.place(from).expect("the base is there"));
        let first = match (base, is_series) {
            (Some(base), true) => base + 1,
            _ => last,
        };
        let sent: Vec<Snapshot> = made.snapshots[first..=last].to_vec();
        let base = base.map(|base| made.snapshots[base].identity);
        let there = self.filesystems.entry(target.to_string()).or_default();
        if let Some(base) = base {
            let place = there.place_of(base).expect("the increment fits");
            there.snapshots.truncate(place + 1);
        }
        there.contents = sent[sent.len() - 1].contents.clone();
        there.snapshots.extend(sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lineage(steps: &[Step]) -> Lineage {
        let mut lineage = Lineage::default();
        steps.iter().for_each(|step| lineage.apply(step));
        lineage
    }

    fn create(name: &str) -> Step {
        Step::Create {
            name: name.to_string(),
            properties: String::new(),
        }
    }

    fn snapshot(name: &str, short: &str) -> Step {
        Step::Snapshot {
            names: vec![name.to_string()],
            short: short.to_string(),
        }
    }

    fn shorts(lineage: &Lineage, name: &str) -> Vec<String> {
        let snapshots = &lineage.filesystems[name].snapshots;
        snapshots.iter().map(|one| one.name.clone()).collect()
    }

    fn clone(of: &str, short: &str, name: &str) -> Step {
        Step::Clone {
            of: of.to_string(),
            short: short.to_string(),
            name: name.to_string(),
        }
    }

    #[test]
    fn a_promoted_clone_takes_the_snapshots_up_to_its_origin() {
        let promote = Step::Promote {
            name: "c".to_string(),
        };
        let steps = [
            create("f"),
            snapshot("f", "one"),
            snapshot("f", "two"),
            snapshot("f", "three"),
            clone("f", "one", "d"),
            clone("f", "two", "c"),
            clone("f", "three", "e"),
            promote,
        ];
        let lineage = lineage(&steps);
        assert_eq!(shorts(&lineage, "c"), ["one", "two"]);
        assert_eq!(shorts(&lineage, "f"), ["three"]);
        let origin = |name: &str| lineage.filesystems[name].origin.clone();
        let pair = |of: &str, short: &str| Some((of.to_string(), short.to_string()));
        assert_eq!(origin("c"), None);
        assert_eq!(origin("f"), pair("c", "two"));
        assert_eq!(origin("d"), pair("c", "one"));
        assert_eq!(origin("e"), pair("f", "three"));
    }

    #[test]
    fn an_increment_goes_where_its_base_is_and_takes_the_place_of_what_is_newer() {
        let send = |from: Option<&str>, short: &str, is_series: bool| Step::Send {
            name: "f".to_string(),
            from: from.map(str::to_string),
            short: short.to_string(),
            is_series,
            target: "r".to_string(),
            options: "",
            fate: Fate::Whole,
        };
        let mut lineage = lineage(&[
            create("f"),
            snapshot("f", "one"),
            send(None, "one", false),
            snapshot("r", "own"),
            snapshot("f", "two"),
            snapshot("f", "three"),
        ]);
        let newer = lineage.filesystems["f"].snapshots[1..].to_vec();
        let base = lineage.filesystems["f"].snapshots[0].identity;
        assert!(lineage.takes_increment("r", base, &newer));
        lineage.apply(&send(Some("one"), "three", true));
        assert_eq!(shorts(&lineage, "r"), ["one", "two", "three"]);
        assert!(!lineage.takes_increment("r", base, &newer));
    }

    /// Each step fits the model that it was drawn for, until nothing is left.
    #[test]
    fn every_step_that_is_drawn_can_be_done() {
        for seed in 0..200 {
            let mut chance = Twister::new(seed);
            let mut lineage = Lineage::default();
            for _ in 0..120 {
                let step = lineage.draw(&mut chance);
                lineage.apply(&step);
            }
            let mut count = 0;
            while !lineage.filesystems.is_empty() {
                if let Some(step) = lineage.draw_last(&mut chance) {
                    lineage.apply(&step);
                }
                count += 1;
                assert!(count < 10_000, "something cannot be destroyed");
            }
        }
    }
}
