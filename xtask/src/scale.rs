//! `cargo xtask scale`: a folder of a million files, ten thousand datasets, thousands of mounts,
//! and the memory they take.
//!
//! # Problem
//! Whatever is kept in memory for each file, dataset or mount is found by no small test, and takes
//! the machine down on the day there are many.
//!
//! # Mechanism
//! A daemon with a cache of a given size does it all from outside, as users would: files through a
//! mount, datasets by one `zfs create` each. After each step the most memory its process ever held
//! (`VmHWM`) is told beside the bound: the cache and [`BESIDE_CACHE_BYTES`]. It is looked at
//! meanwhile as well, for a process that ends takes the number along. It is ended and started again
//! in the middle, so that what it holds after an import is seen as well.
//!
//! # Invariants
//! - What was made is counted and looked at before and after the restart; a file or a mount too few
//!   fails the task.
//! - Memory above the bound fails the task, after everything else was tried.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tarn_oracle::instance::Instance;
use tarn_oracle::program;

use crate::build;
use crate::workspace::{Outcome, duration, programs, scratch};

/// What the daemon may hold beside its cache: promised to users.
const BESIDE_CACHE_BYTES: u64 = 512 << 20;

/// The pool's name.
const POOL: &str = "many";

/// The disk, sparse. A million empty files take some 2 GiB of it.
const IMAGE_BYTES: u64 = 16 << 30;

/// No single command may take longer.
const LIMIT: Duration = Duration::from_secs(3600);

/// So many `zfs create` run at once.
const WORKERS: u32 = 4;

/// How often memory is looked at during a step.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// One file in so many is looked at by name, and removed by name.
const SAMPLE: u32 = 97;

/// How much, and where.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Files in one folder
    #[arg(long, default_value_t = 1_000_000)]
    files: u32,
    /// Datasets in one pool
    #[arg(long, default_value_t = 10_000)]
    datasets: u32,
    /// How many of them are mounted at once
    #[arg(long, default_value_t = 2_603)]
    mounted: u32,
    /// The daemon's cache, in MiB
    #[arg(long, default_value_t = 512)]
    cache_mib: u64,
    /// Only one of the two
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// A folder for the disk's image; below `target` unless given
    #[arg(long)]
    images: Option<PathBuf>,
    /// Use the programs of the last build
    #[arg(long)]
    no_build: bool,
}

/// What there can be many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Files in a folder.
    Files,
    /// Datasets and mounts.
    Datasets,
}

impl Arguments {
    /// What every change is tried with.
    pub fn of_ci() -> Self {
        Self {
            files: 20_000,
            datasets: 200,
            mounted: 60,
            cache_mib: 128,
            only: None,
            images: None,
            no_build: true,
        }
    }
}

/// Makes many, counts them, and tells the memory.
pub fn scale(arguments: &Arguments) -> Outcome {
    if !arguments.no_build {
        build::build()?;
    }
    if arguments.mounted > arguments.datasets {
        return Err("more mounts than datasets".into());
    }
    let mut trial = Trial::start(arguments)?;
    let outcome = trial.run(arguments);
    let within = trial.memory.verdict();
    fs::remove_file(&trial.image)?;
    outcome.and(within)
}

/// A pool on one disk, and the daemon that serves it.
struct Trial {
    instance: Instance,
    image: PathBuf,
    cache: String,
    memory: Memory,
}

impl Trial {
    fn start(arguments: &Arguments) -> Outcome<Self> {
        let instance = Instance::new(&programs(), &scratch("scale"))?;
        let images = match &arguments.images {
            Some(folder) => fs::canonicalize(folder)?,
            None => fs::canonicalize(scratch("scale"))?,
        };
        let image = images.join("tarn-scale.img");
        let memory = Memory {
            most_bytes: 0,
            bound_bytes: (arguments.cache_mib << 20) + BESIDE_CACHE_BYTES,
        };
        let cache = format!("{}M", arguments.cache_mib);
        let trial = Self {
            instance,
            image,
            cache,
            memory,
        };
        File::create(&trial.image)?.set_len(IMAGE_BYTES)?;
        trial.start_daemon()?;
        trial.instance.zpool(&format!(
            "create -f -O atime=off -m {} {POOL} {}",
            trial.mount().display(),
            trial.image.display()
        ))?;
        Ok(trial)
    }

    fn mount(&self) -> PathBuf {
        self.instance.root().join(POOL)
    }

    fn start_daemon(&self) -> Outcome {
        self.instance
            .start_daemon(&["--cache-size", &self.cache], LIMIT)?;
        Ok(())
    }

    fn run(&mut self, arguments: &Arguments) -> Outcome {
        if arguments.only != Some(Part::Datasets) {
            self.files(arguments.files)?;
        }
        if arguments.only != Some(Part::Files) {
            self.datasets(arguments.datasets, arguments.mounted)?;
        }
        self.step("zpool destroy", |trial| {
            trial.zfs_or_zpool("zpool", &["destroy", POOL])
        })
    }

    /// Does one step and tells its time and the memory after it.
    fn step(&mut self, name: &str, step: impl FnOnce(&Self) -> Outcome) -> Outcome {
        let began = Instant::now();
        let (outcome, seen_bytes) = self.watched(step);
        let took = duration(began.elapsed());
        self.memory.see(seen_bytes);
        let bound = self.memory.bound_bytes >> 20;
        let memory = match self.instance.daemon_memory() {
            None => format!(
                " no tarnd now, {:>5} MiB at most, bound {bound} MiB",
                seen_bytes >> 20
            ),
            Some(memory) => {
                self.memory.see(memory.most_bytes);
                let (now, most) = (memory.now_bytes >> 20, memory.most_bytes >> 20);
                format!("{now:>5} MiB now, {most:>5} MiB at most, bound {bound} MiB")
            }
        };
        println!("{name:<44} {took:>12}   {memory}");
        outcome.map_err(|error| format!("{name}: {error}").into())
    }

    /// Does a step, and looks at the daemon's memory meanwhile.
    fn watched(&self, step: impl FnOnce(&Self) -> Outcome) -> (Outcome, u64) {
        let is_done = AtomicBool::new(false);
        let instance = &self.instance;
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut most_bytes = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let memory = instance.daemon_memory();
                    most_bytes = memory.map_or(most_bytes, |seen| most_bytes.max(seen.most_bytes));
                    std::thread::sleep(LOOK_EVERY);
                }
                most_bytes
            });
            let outcome = step(self);
            is_done.store(true, Ordering::Relaxed);
            (outcome, watcher.join().expect("the watcher does not panic"))
        })
    }

    fn zfs_or_zpool(&self, program: &str, arguments: &[&str]) -> Outcome {
        let mut command = self.instance.command(program);
        program::run(command.args(arguments), LIMIT)?.expect_success()?;
        Ok(())
    }

    fn restart(&mut self) -> Outcome {
        self.step("tarn stop", |trial| {
            Ok(trial.instance.stop_daemon(LIMIT)?)
        })?;
        self.step("start tarnd, import, mount", Self::start_daemon)
    }

    fn files(&mut self, count: u32) -> Outcome {
        let folder = self.mount().join("files");
        let dataset = format!("{POOL}/files");
        self.zfs_or_zpool("zfs", &["create", &dataset])?;
        self.step(&format!("create {count} files in one folder"), |_| {
            create_files(&folder, count)
        })?;
        self.step("list them, look at some", |_| expect_files(&folder, count))?;
        self.restart()?;
        self.step("list them again, look at some", |_| {
            expect_files(&folder, count)
        })?;
        self.step(&format!("remove one in {SAMPLE} by name"), |_| {
            remove_some(&folder, count)
        })?;
        self.step("zfs destroy", |trial| {
            trial.zfs_or_zpool("zfs", &["destroy", &dataset])
        })?;
        self.step("wait until their space is free", Self::wait_until_freed)
    }

    fn datasets(&mut self, count: u32, mounted: u32) -> Outcome {
        let parent = format!("{POOL}/sets");
        self.zfs_or_zpool("zfs", &["create", "-o", "canmount=off", &parent])?;
        let made = format!("create {count} datasets, mount {mounted}");
        self.step(&made, |trial| {
            trial.create_datasets(&parent, count, mounted)
        })?;
        self.step("list them, count mounts", |trial| {
            trial.expect_datasets(&parent, count, mounted)
        })?;
        let folder = self.mount().join("sets");
        self.step("a file in each mount", |_| write_each(&folder, mounted))?;
        self.restart()?;
        self.step("list them again, count mounts", |trial| {
            trial.expect_datasets(&parent, count, mounted)
        })?;
        self.step("read the file in each mount", |_| {
            read_each(&folder, mounted)
        })?;
        self.step("zfs destroy -r", |trial| {
            trial.zfs_or_zpool("zfs", &["destroy", "-r", &parent])
        })?;
        self.step("wait until their space is free", Self::wait_until_freed)
    }

    fn create_datasets(&self, parent: &str, count: u32, mounted: u32) -> Outcome {
        let next = AtomicU32::new(0);
        let work = || -> Result<(), String> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                let name = format!("{parent}/{}", name_of(number));
                let created = match number < mounted {
                    true => self.zfs_or_zpool("zfs", &["create", &name]),
                    false => self.zfs_or_zpool("zfs", &["create", "-o", "canmount=noauto", &name]),
                };
                if let Err(error) = created {
                    // The others need not go on for an answer that is known.
                    next.store(count, Ordering::Relaxed);
                    return Err(error.to_string());
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
            let outcomes = workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker does not panic"));
            outcomes.collect::<Result<Vec<()>, String>>()
        })?;
        Ok(())
    }

    fn expect_datasets(&self, parent: &str, count: u32, mounted: u32) -> Outcome {
        let mut command = self.instance.command("zfs");
        command.args([
            "list",
            "-H",
            "-r",
            "-t",
            "filesystem",
            "-o",
            "name,mounted",
            parent,
        ]);
        let listed = program::run(&mut command, LIMIT)?.expect_success()?.stdout;
        let below = format!("{parent}/");
        let of_parent: Vec<&str> = listed
            .lines()
            .filter(|line| line.starts_with(&below))
            .collect();
        expect_count("datasets", count, of_parent.len())?;
        let yes = of_parent.iter().filter(|line| line.ends_with("\tyes"));
        expect_count("mounts that zfs list tells", mounted, yes.count())?;
        let folder = self.mount().join("sets");
        let mounts = tarn_oracle::instance::mounts_below(&folder);
        expect_count("mounts that the kernel has", mounted, mounts.len())
    }

    /// Destroyed datasets give their space back in the background.
    fn wait_until_freed(&self) -> Outcome {
        let began = Instant::now();
        loop {
            let freeing = self
                .instance
                .zpool(&format!("get -Hp -o value freeing {POOL}"))?;
            match freeing.stdout.trim() {
                "0" | "-" => return Ok(()),
                left if began.elapsed() > LIMIT => {
                    return Err(format!("{left} bytes are still to be freed").into());
                }
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

/// The most memory of all daemons of the trial, and what was promised.
struct Memory {
    most_bytes: u64,
    bound_bytes: u64,
}

impl Memory {
    fn see(&mut self, most_bytes: u64) {
        self.most_bytes = self.most_bytes.max(most_bytes);
    }

    fn verdict(&self) -> Outcome {
        let (most, bound) = (self.most_bytes >> 20, self.bound_bytes >> 20);
        match self.most_bytes <= self.bound_bytes {
            true => {
                println!("at most {most} MiB of {bound} MiB: PASS");
                Ok(())
            }
            false => Err(format!(
                "tarnd held {most} MiB, above the bound of {bound} MiB (its cache and {} MiB): FAIL",
                BESIDE_CACHE_BYTES >> 20
            )
            .into()),
        }
    }
}

/// The name of a file or a dataset.
fn name_of(number: u32) -> String {
    format!("number-{number:07}")
}

fn create_files(folder: &Path, count: u32) -> Outcome {
    for number in 0..count {
        File::create_new(folder.join(name_of(number)))?;
    }
    Ok(())
}

fn expect_files(folder: &Path, count: u32) -> Outcome {
    let names: BTreeSet<String> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, _>>()?;
    expect_count("names", count, names.len())?;
    for number in (0..count).step_by(SAMPLE as usize) {
        let name = name_of(number);
        if !names.contains(&name) {
            return Err(format!("{name} is not listed").into());
        }
        if !fs::symlink_metadata(folder.join(&name))?.is_file() {
            return Err(format!("{name} is no file any more").into());
        }
    }
    Ok(())
}

fn remove_some(folder: &Path, count: u32) -> Outcome {
    for number in (0..count).step_by(SAMPLE as usize) {
        fs::remove_file(folder.join(name_of(number)))?;
    }
    let left = count - count.div_ceil(SAMPLE);
    expect_count("names that are left", left, fs::read_dir(folder)?.count())
}

fn write_each(folder: &Path, mounted: u32) -> Outcome {
    for number in 0..mounted {
        let name = name_of(number);
        fs::write(folder.join(&name).join("file"), &name)?;
    }
    Ok(())
}

fn read_each(folder: &Path, mounted: u32) -> Outcome {
    for number in 0..mounted {
        let name = name_of(number);
        let path = folder.join(&name).join("file");
        let held =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if held != name {
            return Err(format!("{} holds {held:?}", path.display()).into());
        }
    }
    Ok(())
}

fn expect_count(what: &str, expected: u32, found: usize) -> Outcome {
    match found == expected as usize {
        true => Ok(()),
        false => Err(format!("{found} {what}, and not {expected}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_missing_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        create_files(folder.path(), 300).unwrap();
        expect_files(folder.path(), 300).unwrap();
        remove_some(folder.path(), 300).unwrap();
        let error = expect_files(folder.path(), 300).unwrap_err().to_string();
        assert_eq!(error, "296 names, and not 300");
    }

    #[test]
    fn memory_above_the_bound_fails() {
        let mut memory = Memory {
            most_bytes: 0,
            bound_bytes: 700 << 20,
        };
        memory.see(700 << 20);
        memory.see(1 << 20);
        assert!(memory.verdict().is_ok());
        memory.see((700 << 20) + 1);
        assert!(memory.verdict().is_err());
    }
}
