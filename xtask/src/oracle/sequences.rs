//! Rows of snapshots, clones, promotions, rollbacks, destructions, renames, streams and writes,
//! drawn at random, done by our commands, and judged by OpenZFS.
//!
//! # Mechanism
//! What comes next is drawn from a model ([`Lineage`]), which also says what must be in every file
//! system and every snapshot in the end. Each sequence has a pool of its own, of one layout after
//! the other. When it is done the pool is exported, OpenZFS's `zdb -bcc` walks it, and it is
//! imported again and compared. Then all of it is destroyed, file system by file system and range
//! by range, and `zdb` walks what is left: a block that a deadlist forgot is leaked now.
//!
//! A sequence follows from the seed and its number. One that fails prints the line that does it
//! again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tarn_oracle::instance::Instance;
use tarn_oracle::judge;
use tarn_oracle::layout::{LAYOUTS, Layout};
use tarn_oracle::tools::Unpacked;
use tarn_workload::lineage::{self, Fate, Lineage, Step};
use tarn_workload::twister::Twister;

use super::{LIMIT, POOL};
use crate::changes::mount_of;
use crate::streams;
use crate::workspace::{Outcome, openzfs, programs, scratch};

/// Sparse; a sequence writes some tens of megabytes.
const IMAGE_BYTES: u64 = 512 << 20;
/// A sequence has so many steps at least, and so many more at most.
const STEPS: (u32, u32) = (25, 40);
/// Destroying all takes fewer steps than this.
const LAST_STEPS_MAX: usize = 1000;
/// So many sequences are told of at a time.
const TELL_EVERY: u64 = 25;

/// Does sequences from this number on.
pub fn judge(seed: u64, first: u64, count: u64, keep: bool) -> Outcome {
    let folder = scratch("oracle-sequences");
    let instance = Instance::new(&programs(), &folder)?;
    let tools = openzfs()?;
    let mut told = Told::default();
    for number in first..first + count {
        let mut sequence = Sequence::new(&instance, &tools, &folder, seed, number);
        sequence.run().map_err(|error| {
            let trace = sequence.trace.join("\n  ");
            format!(
                "sequence {number} on {}:\n  {trace}\n{error}\n\
                 again: cargo xtask oracle --only sequences --seed {seed} --sequence {number}",
                sequence.layout
            )
        })?;
        told.add(&sequence.told);
        if (number + 1 - first).is_multiple_of(TELL_EVERY) || number + 1 == first + count {
            println!("  {} sequences: {told}", number + 1 - first);
        }
    }
    drop(instance);
    if !keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// What was done.
#[derive(Debug, Default)]
struct Told {
    steps: u64,
    streams: u64,
    resumed: u64,
    compared: u64,
    blocks: u64,
}

impl Told {
    fn add(&mut self, other: &Told) {
        self.steps += other.steps;
        self.streams += other.streams;
        self.resumed += other.resumed;
        self.compared += other.compared;
        self.blocks += other.blocks;
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{} steps, {} streams, {} times gone on with, {} file systems and snapshots compared, {} blocks clean",
            self.steps, self.streams, self.resumed, self.compared, self.blocks
        )
    }
}

struct Sequence<'a> {
    instance: &'a Instance,
    tools: &'a Unpacked,
    images: PathBuf,
    stream: PathBuf,
    layout: Layout,
    chance: Twister,
    lineage: Lineage,
    trace: Vec<String>,
    told: Told,
}

impl<'a> Sequence<'a> {
    fn new(
        instance: &'a Instance,
        tools: &'a Unpacked,
        folder: &Path,
        seed: u64,
        number: u64,
    ) -> Sequence<'a> {
        let place = usize::try_from(number).unwrap_or(0) % LAYOUTS.len();
        Sequence {
            instance,
            tools,
            images: folder.join("images"),
            stream: folder.join("stream"),
            layout: LAYOUTS[place],
            chance: Twister::new(seed.wrapping_mul(1_000_003).wrapping_add(number)),
            lineage: Lineage::default(),
            trace: Vec::new(),
            told: Told::default(),
        }
    }

    fn run(&mut self) -> Outcome {
        let _watchdog = self.instance.watchdog("a sequence", LIMIT);
        self.make()?;
        let steps = STEPS.0 + self.chance.below(STEPS.1);
        for _ in 0..steps {
            let step = self.lineage.draw(&mut self.chance);
            self.take(&step)?;
        }
        self.expect_model()?;
        self.judge()?;
        self.import()?;
        self.expect_model()?;
        for _ in 0..LAST_STEPS_MAX {
            if self.lineage.filesystems.is_empty() {
                break;
            }
            if let Some(step) = self.lineage.draw_last(&mut self.chance) {
                self.take(&step)?;
            }
        }
        self.expect_model()?;
        self.judge()?;
        fs::remove_dir_all(&self.images)?;
        Ok(())
    }

    fn make(&mut self) -> Outcome {
        self.layout.make_images(&self.images, IMAGE_BYTES)?;
        let root = self.instance.root().display().to_string();
        let ashift = format!("ashift={}", [9, 12][self.chance.index(2)]);
        let words = self.layout.words(&self.images);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let create = ["create", "-R", &root, "-o", &ashift, POOL];
        self.instance
            .must("zpool", &[&create[..], &words[..]].concat())?;
        Ok(())
    }

    fn import(&self) -> Outcome {
        let root = self.instance.root().display().to_string();
        let images = self.images.display().to_string();
        let words = ["import", "-R", &root, "-d", &images, POOL];
        self.instance.must("zpool", &words)?;
        Ok(())
    }

    /// Exports the pool and has `zdb` walk it.
    fn judge(&mut self) -> Outcome {
        self.instance.must("zpool", &["export", POOL])?;
        let clean = judge::judge(self.tools, &self.images, POOL)?;
        self.told.blocks += clean.block_count;
        Ok(())
    }

    /// Does a step, and then the model does it.
    fn take(&mut self, step: &Step) -> Outcome {
        self.trace.push(shown(step));
        self.told.steps += 1;
        self.give(step)?;
        self.lineage.apply(step);
        Ok(())
    }

    fn give(&mut self, step: &Step) -> Outcome {
        let zfs = |line: String| self.instance.zfs(&line).map(drop);
        match step {
            Step::Create { name, properties } => zfs(format!("create {properties} {POOL}/{name}"))?,
            Step::Write { name, changes } => {
                let mount = mount_of(self.instance, &format!("{POOL}/{name}"))?;
                lineage::change(&mount, changes)?;
            }
            Step::Snapshot { names, short } => {
                let names = names.iter().map(|name| format!(" {POOL}/{name}@{short}"));
                zfs(format!("snapshot{}", names.collect::<String>()))?;
            }
            Step::Clone { of, short, name } => {
                zfs(format!("clone {POOL}/{of}@{short} {POOL}/{name}"))?;
            }
            Step::Promote { name } => zfs(format!("promote {POOL}/{name}"))?,
            Step::Rollback { name, short } => zfs(format!("rollback -r {POOL}/{name}@{short}"))?,
            Step::DestroySnapshots { name, first, last } if first == last => {
                zfs(format!("destroy {POOL}/{name}@{first}"))?;
            }
            Step::DestroySnapshots { name, first, last } => {
                zfs(format!("destroy {POOL}/{name}@{first}%{last}"))?;
            }
            Step::Destroy { name } => zfs(format!("destroy -r {POOL}/{name}"))?,
            Step::Rename { from, to } => zfs(format!("rename {POOL}/{from} {POOL}/{to}"))?,
            Step::RenameSnapshot { name, from, to } => {
                zfs(format!("rename {POOL}/{name}@{from} {POOL}/{name}@{to}"))?;
            }
            Step::Send { .. } => self.send(step)?,
            Step::Export => {
                self.instance.must("zpool", &["export", POOL])?;
                self.import()?;
            }
        }
        Ok(())
    }

    fn send(&mut self, step: &Step) -> Outcome {
        let Step::Send {
            name,
            from,
            short,
            is_series,
            target,
            options,
            fate,
        } = step
        else {
            return Ok(());
        };
        self.told.streams += 1;
        let (what, target) = (format!("{POOL}/{name}@{short}"), format!("{POOL}/{target}"));
        let mut words: Vec<&str> = options.split_whitespace().collect();
        let from = from.as_deref().map(|from| format!("@{from}"));
        if let Some(from) = &from {
            words.extend([if *is_series { "-I" } else { "-i" }, from]);
        }
        words.push(&what);
        streams::send(self.instance, &words, &self.stream)?;
        // An increment goes to what may have changed since; what is new needs no force.
        let force: &[&str] = if from.is_some() { &["-F"] } else { &[] };
        let receive = |more: &[&str]| {
            let words = [force, more, &[target.as_str()]].concat();
            streams::receive(self.instance, &words, &self.stream)
        };
        let length = fs::metadata(&self.stream)?.len();
        let refused = |more: &[&str], place: u32| -> Outcome {
            streams::cut(&self.stream, thousandths(length, place))?;
            let spoken = receive(more)?;
            match spoken.succeeded() {
                true => Err(format!("a stream was taken that was cut: {spoken:?}").into()),
                false => Ok(()),
            }
        };
        match fate {
            Fate::Whole => {
                receive(&[])?.expect_success()?;
            }
            Fate::Refused(place) => refused(&[], *place)?,
            Fate::GivenUp(place) => {
                refused(&["-s"], *place)?;
                if streams::token(self.instance, &target)?.is_some() {
                    self.instance.zfs(&format!("receive -A {target}"))?;
                }
            }
            Fate::Resumed(places) => {
                let mut places = places.iter();
                let resumed = streams::receive_in_pieces(
                    self.instance,
                    force,
                    &target,
                    &self.stream,
                    |left| places.next().map(|place| thousandths(left, *place)),
                )?;
                self.told.resumed += u64::from(resumed);
            }
        }
        Ok(())
    }

    /// There is what the model has, and nothing else.
    fn expect_model(&mut self) -> Outcome {
        let listed = ["list", "-H", "-t", "filesystem,snapshot", "-r", "-o"];
        let words = [&listed[..], &["name,origin,mountpoint", POOL]].concat();
        let text = self.instance.must("zfs", &words)?.stdout;
        let mut found = BTreeSet::new();
        for line in text.lines() {
            let row: Vec<&str> = line.split('\t').collect();
            let [name, origin, mountpoint] = row[..] else {
                return Err(format!("zfs list said: {line}").into());
            };
            let Some(name) = name.strip_prefix(&format!("{POOL}/")) else {
                continue;
            };
            found.insert((name.to_string(), origin.to_string()));
            if name.contains('@') {
                continue;
            }
            let Some(expected) = self.lineage.filesystems.get(name) else {
                continue;
            };
            let place = Path::new(mountpoint);
            lineage::compare(&expected.contents, place)?;
            for snapshot in &expected.snapshots {
                let place = place.join(".zfs/snapshot").join(&snapshot.name);
                lineage::compare(&snapshot.contents, &place)?;
            }
            self.told.compared += 1 + u64::try_from(expected.snapshots.len())?;
        }
        let mut expected = BTreeSet::new();
        for (name, made) in &self.lineage.filesystems {
            let origin = made.origin.as_ref();
            let origin = origin.map(|(of, short)| format!("{POOL}/{of}@{short}"));
            expected.insert((name.clone(), origin.unwrap_or("-".to_string())));
            let snapshots = made.snapshots.iter();
            expected.extend(snapshots.map(|one| (format!("{name}@{}", one.name), "-".to_string())));
        }
        match found == expected {
            true => Ok(()),
            false => Err(format!(
                "not what there should be, with their origins: missing {:?}, too many {:?}",
                expected.difference(&found).collect::<Vec<_>>(),
                found.difference(&expected).collect::<Vec<_>>()
            )
            .into()),
        }
    }
}

fn thousandths(length: u64, place: u32) -> u64 {
    (length * u64::from(place) / 1000).max(1)
}

/// A step in a line.
fn shown(step: &Step) -> String {
    match step {
        Step::Write { name, changes } => format!("write {name}, {} changes", changes.len()),
        other => format!("{other:?}"),
    }
}
