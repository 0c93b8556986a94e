//! The administrator's file systems as the commands that have returned leave them, and which states
//! may be found after a power cut.

use std::collections::BTreeMap;

use tarn_administration::messages::pool;
use tarn_hostile::streams::{Fate, Part, Sending};

/// A file system of his.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// From which its file's contents follow; 0 when it has none.
    pub file: u64,
    /// The property.
    pub value: Option<String>,
    /// Its snapshots, oldest first: the short name, and the file at that time.
    pub snapshots: Vec<(String, u64)>,
    /// What it is a clone of: a file system and its snapshot.
    pub origin: Option<(String, String)>,
    /// What came to it of a stream.
    pub part: Option<Part>,
}

impl Made {
    /// Where the snapshot of this short name is.
    pub(crate) fn snapshot(&self, short: &str) -> Option<usize> {
        self.snapshots.iter().position(|(name, _)| name == short)
    }

    /// Where the newest snapshot is that the other has, too.
    pub(crate) fn newest_of(&self, other: &Made) -> Option<usize> {
        let mut all = self.snapshots.iter();
        all.rposition(|(short, _)| other.snapshot(short).is_some())
    }
}

/// His file systems, by name.
pub type Datasets = BTreeMap<String, Made>;

/// A command.
#[derive(Debug, Clone)]
pub enum Command {
    /// `zfs create`.
    Create(String),
    /// Its file is written and made durable.
    Fill(String, u64),
    /// `zfs destroy`.
    Destroy(String),
    /// `zfs rename`.
    Rename(String, String),
    /// `zfs set`.
    Set(String, String),
    /// `zpool sync`.
    Sync,
    /// `zpool scrub`, which may be refused.
    Scrub(pool::ScrubAction),
    /// `zfs snapshot` of a file system by a short name.
    Snapshot(String, String),
    /// `zfs destroy` of a snapshot.
    DestroySnapshot(String, String),
    /// `zfs rollback -r`.
    RollBack(String, String),
    /// `zfs clone` of a snapshot, as this file system.
    Clone(String, String, String),
    /// `zfs promote`.
    Promote(String),
    /// `zfs send | zfs receive`.
    Send(Sending),
    /// `zfs send -t | zfs receive`.
    GoOn(String),
    /// `zfs receive -A`.
    GiveUp(String),
    /// `zfs set` of something that changes how a file system works, and nothing in it.
    Tune(String, &'static str, &'static str),
}

impl Command {
    /// Does it.
    pub(crate) fn apply(&self, datasets: &mut Datasets) {
        match self {
            Command::Create(name) => {
                datasets.insert(name.clone(), Made::default());
            }
            Command::Fill(name, file) => {
                datasets.entry(name.clone()).or_default().file = *file;
            }
            Command::Destroy(name) => {
                datasets.remove(name);
            }
            Command::Rename(from, to) => {
                if let Some(made) = datasets.remove(from) {
                    datasets.insert(to.clone(), made);
                }
                let clones = datasets
                    .values_mut()
                    .filter_map(|made| made.origin.as_mut());
                clones
                    .filter(|(name, _)| name == from)
                    .for_each(|(name, _)| name.clone_from(to));
            }
            Command::Set(name, value) => {
                datasets.entry(name.clone()).or_default().value = Some(value.clone());
            }
            Command::Snapshot(name, short) => {
                let made = datasets.entry(name.clone()).or_default();
                made.snapshots.push((short.clone(), made.file));
            }
            Command::DestroySnapshot(name, short) => {
                let made = datasets.entry(name.clone()).or_default();
                made.snapshots.retain(|(other, _)| other != short);
            }
            Command::RollBack(name, short) => {
                let made = datasets.entry(name.clone()).or_default();
                if let Some(place) = made.snapshot(short) {
                    made.snapshots.truncate(place + 1);
                    made.file = made.snapshots[place].1;
                }
            }
            Command::Clone(name, short, new) => {
                let origin = &datasets[name];
                let place = origin.snapshot(short);
                let made = Made {
                    file: place.map_or(0, |place| origin.snapshots[place].1),
                    origin: Some((name.clone(), short.clone())),
                    ..Made::default()
                };
                datasets.insert(new.clone(), made);
            }
            Command::Promote(name) => promote(datasets, name),
            Command::Send(sending) => match sending.fate {
                Fate::Whole => arrive(datasets, &sending.from, &sending.target),
                Fate::Kept(_) => {
                    let (name, short) = &sending.from;
                    let part = Part {
                        sent: format!("{name}@{short}"),
                        makes_new: sending.base.is_none(),
                    };
                    let target = datasets.entry(sending.target.clone()).or_default();
                    target.part = Some(part);
                }
                Fate::Refused(_) => {}
            },
            Command::GoOn(target) => {
                let part = datasets[target].part.clone();
                let sent = part.as_ref().and_then(|part| part.sent.split_once('@'));
                if let Some((name, short)) = sent {
                    arrive(datasets, &(name.to_string(), short.to_string()), target);
                }
            }
            Command::GiveUp(target) => {
                let given_up = datasets.get_mut(target);
                let part = given_up.and_then(|made| made.part.take());
                if part.is_some_and(|part| part.makes_new) {
                    datasets.remove(target);
                }
            }
            Command::Sync | Command::Scrub(_) | Command::Tune(..) => {}
        }
    }
}

impl Command {
    /// Whether all is stored that was done before, when it has returned. A stream that is refused
    /// may be so before anything is done.
    pub(crate) fn stores(&self) -> bool {
        match self {
            Command::Fill(..) | Command::Scrub(_) => false,
            Command::Send(sending) => sending.fate == Fate::Whole,
            _ => true,
        }
    }
}

/// A snapshot is received: behind the newest that both have, or as all there is.
fn arrive(datasets: &mut Datasets, (name, short): &(String, String), target: &str) {
    let source = &datasets[name];
    let Some(place) = source.snapshot(short) else {
        return;
    };
    let (snapshot, source) = (source.snapshots[place].clone(), source.clone());
    let there = datasets.entry(target.to_string()).or_default();
    let base = there.newest_of(&source).map_or(0, |base| base + 1);
    there.snapshots.truncate(base);
    there.file = snapshot.1;
    there.snapshots.push(snapshot);
    there.part = None;
}

/// The snapshots up to its origin go to the clone.
fn promote(datasets: &mut Datasets, name: &str) {
    let Some((parent, short)) = datasets[name].origin.clone() else {
        return;
    };
    let old = datasets.entry(parent.clone()).or_default();
    let count = old.snapshot(&short).map_or(0, |place| place + 1);
    let moved: Vec<(String, u64)> = old.snapshots.drain(..count).collect();
    let beyond = old.origin.replace((name.to_string(), short));
    let new = datasets.entry(name.to_string()).or_default();
    new.snapshots.splice(0..0, moved.iter().cloned());
    new.origin = beyond;
    for (other, made) in datasets {
        if let Some((from, short)) = &mut made.origin
            && *from == parent
            && other != name
            && moved.iter().any(|(moved, _)| moved == short)
        {
            *from = name.to_string();
        }
    }
}

/// What the administrator has done.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// What there is, for certain.
    pub done: Datasets,
    /// The command that has not returned.
    pub under_way: Option<Command>,
    /// Counts files.
    pub last: u64,
}

impl Log {
    /// Whether these file systems may be found.
    ///
    /// # Errors
    /// How they differ.
    pub fn judge(&self, found: &Datasets) -> Result<(), String> {
        let mut perhaps = self.done.clone();
        if let Some(command) = &self.under_way {
            command.apply(&mut perhaps);
        }
        let is_begun = matches!(self.under_way, Some(Command::Fill(..)));
        let same = |one: &Datasets| {
            one.len() == found.len()
                && one.iter().zip(found).all(|((name, one), (other, found))| {
                    let file = one.file == found.file || (is_begun && found.file == u64::MAX);
                    let rest = one.value == found.value
                        && one.snapshots == found.snapshots
                        && one.origin == found.origin
                        && one.part == found.part;
                    name == other && file && rest
                })
        };
        match same(&self.done) || same(&perhaps) {
            true => Ok(()),
            false => Err(format!(
                "file systems of the administrator: found {found:?}, done {:?}, under way {:?}",
                self.done, self.under_way
            )),
        }
    }
}
