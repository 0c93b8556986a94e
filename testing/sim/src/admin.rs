//! What an administrator does meanwhile: file systems are made, filled, renamed, given properties, destroyed; everything is stored.
//!
//! # Mechanism
//! One administrator makes one call after the other. What a command reports is stored, so after a cut all of them are there, and perhaps the one that
//! had not returned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tarn_engine::administration::Administration;
use tarn_engine::messages::dataset::{self, DatasetKind};
use tarn_engine::messages::{Refusal, Value, pool};
use tarn_engine::{Engine, Host};
use tarn_host::sim::Random;
use tarn_hostile::house::{Files, House, call, noise};

use crate::work::Book;
use crate::world::POOL;

/// Below this he has his file systems.
pub const FOLDER: &str = "tank/x";
/// A property of users.
const PROPERTY: &str = "tarn:sim";
/// The file in each file system.
const FILE: &str = "file";
/// So many file systems he has at most.
const COUNT_MAX: usize = 5;

/// A file system of his.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// From which its file's contents follow; 0 when it has none.
    pub file: u64,
    /// The property.
    pub value: Option<String>,
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
    /// `zfs set` of something that changes how a file system works, and nothing in it.
    Tune(String, &'static str, &'static str),
}

impl Command {
    fn apply(&self, datasets: &mut Datasets) {
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
            }
            Command::Set(name, value) => {
                datasets.entry(name.clone()).or_default().value = Some(value.clone());
            }
            Command::Sync | Command::Tune(..) => {}
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
                    name == other && file && one.value == found.value
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

/// Finds his file systems.
///
/// # Errors
/// What cannot be listed or read.
pub fn find(house: &House) -> Result<Datasets, String> {
    let request = dataset::Describe {
        names: vec![FOLDER.to_string()],
        depth: Some(1),
        kinds: vec![DatasetKind::Filesystem],
        ..dataset::Describe::default()
    };
    let described = house.engine.dataset_describe(&call(), request);
    let described = described.map_err(|refusal| format!("zfs list: {refusal}"))?;
    let mounted: BTreeMap<String, _> = house.trees().into_iter().collect();
    let mut datasets = Datasets::new();
    for one in described.datasets {
        if one.name == FOLDER {
            continue;
        }
        let value = one
            .properties
            .get(PROPERTY)
            .and_then(|value| match &value.value {
                Value::Text(text) => Some(text.clone()),
                _ => None,
            });
        let tree = mounted.get(&one.name);
        let tree = tree.ok_or_else(|| format!("{} is not mounted", one.name))?;
        let file = contents(&Files::of(tree.files().clone()))
            .map_err(|why| format!("{}: {why}", one.name))?;
        datasets.insert(one.name, Made { file, value });
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

/// An administrator at work.
pub struct Administrator {
    /// Where he writes down what he does.
    pub book: Book,
    /// Whom he tells.
    pub house: Arc<House>,
    /// From which he draws.
    pub random: Random,
    /// The machine.
    pub host: Host,
    /// The file systems of actors.
    pub others: Vec<String>,
}

impl Administrator {
    /// Gives so many commands.
    pub fn work(mut self, commands: usize) {
        for _ in 0..commands {
            let wait = self.random.below(2_000_000);
            self.host
                .sleep(Duration::from_micros(wait * wait / 1_000_000));
            let command = self.draw();
            let begin = {
                let mut pages = self.book.pages();
                let begin = pages.history.tick();
                pages.note(format!("administrator: [{begin}] {command:?}"));
                pages.admin.under_way = Some(command.clone());
                begin
            };
            let outcome = self.give(&command);
            let mut pages = self.book.pages();
            let end = pages.history.tick();
            pages.admin.under_way = None;
            match outcome {
                Ok(()) => {
                    pages.note(format!("administrator: [{end}] done"));
                    command.apply(&mut pages.admin.done);
                    if !matches!(command, Command::Fill(..)) {
                        // What a command reports is stored, and all before it.
                        pages.history.stored = pages.history.stored.max(begin);
                    }
                }
                Err(why) if why.contains("out of space") || why.contains("no space") => {
                    pages.note(format!("administrator: {why}"));
                    if let Command::Fill(..) = command {
                        // Perhaps a part is there; he looks away for the rest of this life.
                        pages.admin.under_way = Some(command);
                        return;
                    }
                }
                Err(why) => {
                    let text = format!("administrator: {command:?}: {why}");
                    pages.note(text.clone());
                    pages.findings.push(text);
                    return;
                }
            }
        }
    }

    fn draw(&mut self) -> Command {
        let mut pages = self.book.pages();
        pages.admin.last += 1;
        let last = pages.admin.last;
        let names: Vec<String> = pages.admin.done.keys().cloned().collect();
        let empty = |name: &&String| pages.admin.done[*name].file == 0;
        let unfilled = names.iter().find(empty).cloned();
        drop(pages);
        let new = format!("{FOLDER}/n{last}");
        let one = names.get(self.random.index(names.len())).cloned();
        let chance = self.random.below(100);
        match (chance, one, unfilled) {
            (0..25, _, _) => Command::Sync,
            (25..40, _, _) => {
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
            (_, _, Some(name)) if chance < 60 => Command::Fill(name, last),
            (60..70, Some(name), _) => Command::Set(name, format!("value {last}")),
            (70..80, Some(name), _) => Command::Rename(name, new),
            (80..90, Some(name), _) => Command::Destroy(name),
            _ if names.len() < COUNT_MAX => Command::Create(new),
            (_, Some(name), _) => Command::Destroy(name),
            _ => Command::Sync,
        }
    }

    fn engine(&self) -> &Engine {
        &self.house.engine
    }

    fn give(&self, command: &Command) -> Result<(), String> {
        let told = |refusal: Refusal| refusal.to_string();
        match command {
            Command::Create(name) => {
                let request = dataset::Create {
                    name: name.clone(),
                    ..dataset::Create::default()
                };
                self.engine()
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
                    ..dataset::Destroy::default()
                };
                self.engine()
                    .dataset_destroy(&call(), request)
                    .map(drop)
                    .map_err(told)
            }
            Command::Rename(from, to) => {
                let request = dataset::Rename {
                    from: from.clone(),
                    to: to.clone(),
                    ..dataset::Rename::default()
                };
                self.engine()
                    .dataset_rename(&call(), request)
                    .map(drop)
                    .map_err(told)
            }
            Command::Set(name, value) => self.set(name, PROPERTY, value),
            Command::Tune(name, property, value) => self.set(name, property, value),
            Command::Sync => {
                let request = pool::Sync {
                    names: vec![POOL.to_string()],
                };
                self.engine()
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
        self.engine()
            .dataset_set(&call(), request)
            .map(drop)
            .map_err(|refusal| refusal.to_string())
    }
}
