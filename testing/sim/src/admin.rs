//! What an administrator does meanwhile: file systems are made, filled, renamed, given properties,
//! destroyed; snapshots of them taken, cloned, gone back to, sent and received, in one piece or
//! several; everything is stored.
//!
//! # Mechanism
//! One administrator makes one call after the other. What a command reports is stored, so after a
//! cut all of them are there, and perhaps the one that had not returned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tarn_administration::administration::Administration;
use tarn_administration::messages::dataset::{self, DatasetKind};
use tarn_administration::messages::{Refusal, RefusalKind, Value, pool};
use tarn_engine::Host;
use tarn_engine::files::Operation;
use tarn_host::sim::Random;
use tarn_hostile::house::{Files, House, call, noise};

use crate::administered::{Command, Datasets, Made};
use crate::work::Book;
use crate::world::POOL;
use tarn_hostile::streams::{self, Fate, Part, Sending};

/// Below this he has his file systems.
pub const FOLDER: &str = "tank/x";
/// A property of users.
const PROPERTY: &str = "tarn:sim";
/// The file in each file system.
const FILE: &str = "file";
/// So many file systems he has at most.
const COUNT_MAX: usize = 5;
/// So many snapshots each of them has at most, unless it is promoted.
const SNAPSHOTS_MAX: usize = 3;

/// Finds his file systems.
///
/// # Errors
/// What cannot be listed or read.
pub fn find(house: &House) -> Result<Datasets, String> {
    let request = dataset::Describe {
        names: vec![FOLDER.to_string()],
        depth: Some(2),
        kinds: vec![DatasetKind::Filesystem, DatasetKind::Snapshot],
        ..dataset::Describe::default()
    };
    let described = house.administrator.dataset_describe(&call(), request);
    let described = described.map_err(|refusal| format!("zfs list: {refusal}"))?;
    if let Some(refused) = described.refused.first() {
        return Err(format!("zfs list: {refused}"));
    }
    let mounted: BTreeMap<String, _> = house.trees().into_iter().collect();
    let mut datasets = Datasets::new();
    let read = |name: &str, files| {
        let read = contents(&Files::of(files));
        read.map_err(|why| format!("{name}: {why}"))
    };
    for one in described.datasets {
        let (name, short) = match one.name.split_once('@') {
            None => (one.name.as_str(), None),
            Some((name, short)) => (name, Some(short)),
        };
        if name == FOLDER {
            continue;
        }
        let part = match streams::token_of(&one) {
            Some(token) => Some(Part {
                sent: streams::sent_name(&house.administrator, token)?,
                makes_new: !mounted.contains_key(name),
            }),
            None => None,
        };
        if part.as_ref().is_some_and(|part| part.makes_new) {
            let made = datasets.entry(name.to_string()).or_default();
            made.part = part;
            continue;
        }
        let tree = mounted.get(name);
        let tree = tree.ok_or_else(|| format!("{name} is not mounted"))?;
        let text = |property: &str| match &one.properties.get(property)?.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        let made = datasets.entry(name.to_string()).or_default();
        match short {
            None => {
                made.part = part;
                made.value = text(PROPERTY);
                made.file = read(name, tree.files().clone())?;
                let origin = text("origin");
                let origin = origin.as_deref().and_then(|origin| origin.split_once('@'));
                made.origin = origin.map(|(name, short)| (name.to_string(), short.to_string()));
            }
            Some(short) => {
                let entered = tree.snapshot(short.as_bytes(), &Operation::unmeasured());
                let entered = entered.map_err(|error| format!("{}: {error}", one.name))?;
                let file = read(&one.name, entered.files().clone())?;
                made.snapshots.push((short.to_string(), file));
            }
        }
    }
    Ok(datasets)
}

/// The number of a file's contents; 0 when it is not there, the largest when it is there in part.
fn contents(files: &Files) -> Result<u64, String> {
    use tarn_engine::files::PosixError;
    let id = match files.find(FILE) {
        Ok(id) => id,
        Err(PosixError::NotFound) => return Ok(0),
        Err(error) => return Err(error.to_string()),
    };
    let read = files
        .read(id, 0, 1 << 20)
        .map_err(|error| error.to_string())?;
    let Some(number) = read.first_chunk::<8>() else {
        return Ok(u64::MAX);
    };
    let number = u64::from_le_bytes(*number);
    match read == file_bytes(number) {
        true => Ok(number),
        false => Ok(u64::MAX),
    }
}

fn file_bytes(number: u64) -> Vec<u8> {
    let length = 100 + usize::try_from(number * 7919 % 60_000).unwrap_or(0);
    [number.to_le_bytes().to_vec(), noise(number, length)].concat()
}

/// Whether a snapshot of a file system, or any of them, has clones.
fn has_clones(datasets: &Datasets, name: &str, short: Option<&str>) -> bool {
    let origins = datasets.values().filter_map(|made| made.origin.as_ref());
    let mut of_name = origins.filter(|(origin, _)| origin == name);
    of_name.any(|(_, of)| short.is_none_or(|short| short == of))
}

/// Whether a file system waits for the rest of a stream, or that is to be sent of it: both are left
/// alone until it came.
fn is_held(datasets: &Datasets, name: &str) -> bool {
    let mut parts = datasets
        .iter()
        .filter_map(|(target, made)| Some((target, made.part.as_ref()?)));
    parts.any(|(target, part)| {
        let source = part.sent.split('@').next();
        target == name || source == Some(name)
    })
}

/// An administrator at work.
pub struct Administrator {
    /// Where he writes down what he does.
    pub book: Book,
    /// Where it reports.
    pub house: Arc<House>,
    /// From which he draws.
    pub random: Random,
    /// The machine.
    pub host: Host,
    /// The file systems of actors.
    pub others: Vec<String>,
}

impl Administrator {
    /// Gives so many commands. Before each he waits, seldom for as long as that.
    pub fn work(mut self, commands: usize, wait_us_max: u64) {
        for _ in 0..commands {
            let wait = self.random.below(wait_us_max);
            let wait = Duration::from_micros(wait * wait / wait_us_max);
            self.host.sleep(wait);
            let command = self.draw();
            let begin = {
                let mut pages = self.book.pages();
                let begin = pages.history.tick();
                pages.note(format!("administrator: [{begin}] {command:?}"));
                pages.set_admin_under_way(Some(command.clone()));
                begin
            };
            let outcome = self.give(&command);
            let has_part = self.has_part(&command);
            let mut pages = self.book.pages();
            let end = pages.history.tick();
            match outcome {
                Ok(()) => {
                    pages.note(format!("administrator: [{end}] done"));
                    if has_part != Some(false) {
                        command.apply(&mut pages.admin.done);
                    }
                    pages.set_admin_under_way(None);
                    if command.stores() {
                        // What a command reports is stored, and all before it.
                        pages.history.stored = pages.history.stored.max(begin);
                    }
                }
                Err(why) if why.contains("out of space") || why.contains("no space") => {
                    pages.note(format!("administrator: {why}"));
                    if has_part == Some(true) {
                        command.apply(&mut pages.admin.done);
                    }
                    if let Command::Fill(..) = command {
                        // Perhaps a part is there; he looks away for the rest of this life.
                        pages.set_admin_under_way(Some(command));
                        return;
                    }
                    pages.set_admin_under_way(None);
                }
                Err(why) => {
                    let text = format!("administrator: {command:?}: {why}");
                    pages.set_admin_under_way(None);
                    pages.note(text.clone());
                    pages.findings.push(text);
                    return;
                }
            }
        }
    }

    /// Whether something stayed of a stream that was cut, where it should. What is cut too soon
    /// leaves nothing.
    fn has_part(&self, command: &Command) -> Option<bool> {
        let Command::Send(Sending {
            fate: Fate::Kept(_),
            target,
            ..
        }) = command
        else {
            return None;
        };
        Some(streams::token(self.administrator(), target).is_ok_and(|token| token.is_some()))
    }

    fn draw(&mut self) -> Command {
        let mut pages = self.book.pages();
        pages.admin.last += 1;
        let last = pages.admin.last;
        let done = pages.admin.done.clone();
        drop(pages);
        let waiting = done.iter().find(|(_, made)| made.part.is_some());
        if let Some((name, _)) = waiting
            && self.random.chance(1, 4)
        {
            return match self.random.chance(3, 4) {
                true => Command::GoOn(name.clone()),
                false => Command::GiveUp(name.clone()),
            };
        }
        let names = done.keys().filter(|name| !is_held(&done, name));
        let names: Vec<String> = names.cloned().collect();
        let empty = |name: &&String| done[*name].file == 0;
        let unfilled = names.iter().find(empty).cloned();
        let new = format!("{FOLDER}/n{last}");
        let one = names.get(self.random.index(names.len())).cloned();
        let chance = self.random.below(100);
        match (chance, one, unfilled) {
            (0..5, _, _) => Command::Sync,
            (5..11, _, _) => Command::Scrub(pool::ScrubAction::Start),
            (11..13, _, _) => Command::Scrub(pool::ScrubAction::Pause),
            (13..15, _, _) => Command::Scrub(pool::ScrubAction::Stop),
            (15..22, _, _) => {
                let other = self.others[self.random.index(self.others.len())].clone();
                let tunings = [
                    ("compression", "off"),
                    ("compression", "zstd"),
                    ("recordsize", "8K"),
                    ("recordsize", "128K"),
                    ("atime", "off"),
                    ("atime", "on"),
                    ("checksum", "sha256"),
                    ("checksum", "on"),
                ];
                let (name, value) = tunings[self.random.index(tunings.len())];
                Command::Tune(other, name, value)
            }
            (_, _, Some(name)) if chance < 40 => Command::Fill(name, last),
            (40..46, Some(name), _) => Command::Set(name, format!("value {last}")),
            (46..54, Some(name), _) => Command::Rename(name, new),
            (54..60, Some(name), _) if !has_clones(&done, &name, None) => Command::Destroy(name),
            (60..95, Some(name), _) => self.draw_snapshot(&done, name, new),
            _ if done.len() < COUNT_MAX => Command::Create(new),
            (_, Some(name), _) if !has_clones(&done, &name, None) => Command::Destroy(name),
            _ => Command::Sync,
        }
    }

    /// Something with snapshots of this file system, which may make one of that new name.
    fn draw_snapshot(&mut self, done: &Datasets, name: String, new: String) -> Command {
        let made = &done[&name];
        let count = made.snapshots.len();
        let which = self.random.index(count);
        let short = made.snapshots.get(which).map(|(short, _)| short.clone());
        let newer = made.snapshots.get(which + 1..).unwrap_or_default();
        let keeps_clones = |(short, _): &(String, u64)| has_clones(done, &name, Some(short));
        let origin = made.origin.as_ref();
        let can_promote = origin.is_some_and(|(parent, _)| !is_held(done, parent));
        match (self.random.below(16), short) {
            (0..3, Some(short)) if done.len() < COUNT_MAX => Command::Clone(name, short, new),
            (3..5, Some(short)) if !newer.iter().any(keeps_clones) => {
                Command::RollBack(name, short)
            }
            (5..7, Some(short)) if !has_clones(done, &name, Some(&short)) => {
                Command::DestroySnapshot(name, short)
            }
            (7..9, _) if can_promote => Command::Promote(name),
            (9..13, Some(short)) => self.draw_sending(done, name, short, new),
            _ if count < SNAPSHOTS_MAX => {
                let short = new.rsplit('/').next().unwrap_or_default().to_string();
                Command::Snapshot(name, short)
            }
            _ => Command::Sync,
        }
    }

    /// A snapshot goes to a new file system, or to one that has an older one of this file system.
    fn draw_sending(
        &mut self,
        done: &Datasets,
        name: String,
        short: String,
        new: String,
    ) -> Command {
        let made = &done[&name];
        let place = made.snapshot(&short).unwrap_or(0);
        let takes = |(target, there): &(&String, &Made)| {
            let newest = there.newest_of(made);
            let base = newest.and_then(|newest| made.snapshot(&there.snapshots[newest].0));
            let lost = newest.map_or(&[][..], |newest| &there.snapshots[newest + 1..]);
            let is_free = !lost
                .iter()
                .any(|(short, _)| has_clones(done, target, Some(short)));
            let is_older = base.is_some_and(|base| base < place);
            **target != name && !is_held(done, target) && is_free && is_older
        };
        let targets: Vec<_> = done.iter().filter(takes).collect();
        let target = targets.get(self.random.index(targets.len()));
        let base = target.and_then(|(_, there)| {
            let newest = there.newest_of(made)?;
            Some(there.snapshots[newest].0.clone())
        });
        if target.is_none() && done.len() >= COUNT_MAX {
            return Command::Sync;
        }
        let cut = 50 + self.random.below(949);
        Command::Send(Sending {
            from: (name, short),
            base,
            target: target.map_or(new, |(target, _)| (*target).clone()),
            fate: match self.random.below(6) {
                0 => Fate::Refused(cut),
                1 | 2 => Fate::Kept(cut),
                _ => Fate::Whole,
            },
        })
    }

    fn administrator(&self) -> &tarn_administration::Administrator {
        &self.house.administrator
    }

    fn give(&self, command: &Command) -> Result<(), String> {
        let told = |refusal: Refusal| refusal.to_string();
        match command {
            Command::Create(name) => {
                let request = dataset::Create {
                    name: name.clone(),
                    ..dataset::Create::default()
                };
                self.administrator()
                    .dataset_create(&call(), request)
                    .map(drop)
                    .map_err(told)
            }
            Command::Fill(name, number) => {
                let files = self.house.files(name);
                let fill = || {
                    let id = files.make(FILE)?;
                    files.write(id, 0, &file_bytes(*number))?;
                    files.sync(id)
                };
                fill().map_err(|error| error.to_string())
            }
            Command::Destroy(name) => {
                let request = dataset::Destroy {
                    name: name.clone(),
                    recursive: true,
                    ..dataset::Destroy::default()
                };
                self.administrator()
                    .dataset_destroy(&call(), request)
                    .map(drop)
                    .map_err(told)
            }
            Command::Snapshot(name, short) => {
                let request = dataset::Snapshot {
                    names: vec![format!("{name}@{short}")],
                    ..dataset::Snapshot::default()
                };
                let done = self.administrator().dataset_snapshot(&call(), request);
                done.map(drop).map_err(told)
            }
            Command::DestroySnapshot(name, short) => {
                let request = dataset::Destroy {
                    name: format!("{name}@{short}"),
                    ..dataset::Destroy::default()
                };
                let done = self.administrator().dataset_destroy(&call(), request);
                done.map(drop).map_err(told)
            }
            Command::RollBack(name, short) => {
                let request = dataset::Rollback {
                    name: format!("{name}@{short}"),
                    newer: true,
                    ..dataset::Rollback::default()
                };
                let done = self.administrator().dataset_rollback(&call(), request);
                done.map(drop).map_err(told)
            }
            Command::Clone(name, short, new) => {
                let request = dataset::MakeClone {
                    origin: format!("{name}@{short}"),
                    name: new.clone(),
                    ..dataset::MakeClone::default()
                };
                let done = self.administrator().dataset_clone(&call(), request);
                done.map(drop).map_err(told)
            }
            Command::Promote(name) => {
                let request = dataset::Promote { name: name.clone() };
                let done = self.administrator().dataset_promote(&call(), request);
                done.map(drop).map_err(told)
            }
            Command::Send(sending) => sending.give(self.administrator()),
            Command::GoOn(target) => streams::go_on(self.administrator(), target),
            Command::GiveUp(target) => streams::give_up(self.administrator(), target),
            Command::Rename(from, to) => {
                let request = dataset::Rename {
                    from: from.clone(),
                    to: to.clone(),
                    ..dataset::Rename::default()
                };
                self.administrator()
                    .dataset_rename(&call(), request)
                    .map(drop)
                    .map_err(told)
            }
            Command::Set(name, value) => self.set(name, PROPERTY, value),
            Command::Tune(name, property, value) => self.set(name, property, value),
            Command::Scrub(action) => {
                let request = pool::Scrub {
                    name: POOL.to_string(),
                    action: *action,
                };
                let scrubbed = self.administrator().pool_scrub(&call(), request);
                match scrubbed {
                    // It runs already, or none does.
                    Err(refusal)
                        if matches!(refusal.kind, RefusalKind::Busy | RefusalKind::NotFound) =>
                    {
                        Ok(())
                    }
                    scrubbed => scrubbed.map(drop).map_err(told),
                }
            }
            Command::Sync => {
                let request = pool::Sync {
                    names: vec![POOL.to_string()],
                    force: false,
                };
                self.administrator()
                    .pool_sync(&call(), request)
                    .map(drop)
                    .map_err(told)
            }
        }
    }

    fn set(&self, name: &str, property: &str, value: &str) -> Result<(), String> {
        let request = dataset::Set {
            name: name.to_string(),
            properties: vec![(property.to_string(), value.to_string())],
            no_mount: false,
        };
        self.administrator()
            .dataset_set(&call(), request)
            .map(drop)
            .map_err(|refusal| refusal.to_string())
    }
}
