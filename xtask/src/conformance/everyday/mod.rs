//! `everyday`: what people and programs meet on a mount, at a prompt and in a daemon, one scenario
//! after the other.
//!
//! # Mechanism
//! A scenario is a function that gets a [`Setting`]: an instance with a pool of one file, mounted.
//! It does what a user would do and compares what it sees with what OpenZFS (or Linux on a file
//! system of its own) would show. Scenarios stand by subject, a file each; every one came from a
//! fault that a user met, and its docstring says which.
//!
//! # Rules
//! A scenario needs root, takes seconds, waits for events and not for time, and leaves nothing
//! behind.

mod daemon;
mod datasets;
mod files;
mod mounting;
mod page_cache;
mod pools;
mod room;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tarn_oracle::instance::Instance;
use tarn_oracle::program::{self, Spoken};

use super::Arguments;
use crate::workspace::{Outcome, Steps, programs, remove_folder, scratch};

/// How long a program of a scenario may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The pool of every scenario.
pub const POOL: &str = "everyday";

/// A scenario.
pub struct Scenario {
    /// What `--only` finds it by.
    pub name: &'static str,
    /// Does it; an error says what was expected and what was seen.
    pub run: fn(&Setting) -> Outcome,
    /// Options of `zpool create`, separated by spaces.
    pub pool_options: &'static str,
    /// The size of the pool's one file, in MiB.
    pub pool_mib: u64,
}

impl Scenario {
    /// A scenario on an ordinary pool: 256 MiB, attributes beside the file, POSIX access lists.
    pub const fn new(name: &'static str, run: fn(&Setting) -> Outcome) -> Scenario {
        Scenario {
            name,
            run,
            pool_options: "-O xattr=sa -O acltype=posix",
            pool_mib: 256,
        }
    }
}

/// The scenarios of each subject.
const SUBJECTS: [&[Scenario]; 7] = [
    page_cache::SCENARIOS,
    files::SCENARIOS,
    mounting::SCENARIOS,
    daemon::SCENARIOS,
    room::SCENARIOS,
    pools::SCENARIOS,
    datasets::SCENARIOS,
];

/// Where a scenario takes place.
pub struct Setting {
    /// The host, whose pool [`POOL`] is imported and mounted.
    pub instance: Instance,
    /// A folder for anything else; removed afterwards.
    pub folder: PathBuf,
    /// Where the pool's root file system is mounted.
    pub mount: PathBuf,
    /// The pool's one file.
    pub image: PathBuf,
}

impl Setting {
    /// Scenarios are numbered in the file system, since a socket's path has room for 107 bytes.
    fn new(scenario: &Scenario, number: usize) -> Outcome<Setting> {
        let folder = scratch("everyday").join(number.to_string());
        let instance = Instance::new(&programs(), &folder)?;
        let (mount, image) = (instance.root().join("pool"), folder.join("images/disk"));
        fs::create_dir_all(folder.join("images"))?;
        fs::File::create(&image)?.set_len(scenario.pool_mib << 20)?;
        let (at, disk) = (mount.display().to_string(), image.display().to_string());
        let options: Vec<&str> = scenario.pool_options.split_whitespace().collect();
        let words = [&["create", "-m", &at][..], &options, &[POOL, &disk]].concat();
        instance.must("zpool", &words)?;
        Ok(Setting {
            instance,
            folder,
            mount,
            image,
        })
    }

    /// Runs a command of ours with arguments separated by spaces, which must end with `code`.
    pub fn ends_with(&self, code: i32, line: &str) -> Outcome<Spoken> {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default();
        let spoken = self.instance.run(program, &words.collect::<Vec<_>>())?;
        match spoken.code == Some(code) {
            true => Ok(spoken),
            false => Err(format!(
                "`{line}` ended with {:?}, expected {code}: {}{}",
                spoken.code, spoken.stdout, spoken.stderr
            )
            .into()),
        }
    }

    /// What a command of ours prints, without the last line break; it must succeed.
    pub fn answer(&self, line: &str) -> Outcome<String> {
        Ok(self.ends_with(0, line)?.stdout.trim_end().to_string())
    }

    /// Runs another program in the mount's folder; its exit code is in the answer.
    pub fn program(&self, program: &str, arguments: &[&str]) -> Outcome<Spoken> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.mount);
        Ok(program::run(&mut command, LIMIT)?)
    }

    /// Runs a script of `bash -eu` in the mount's folder, which must succeed; gives what it prints.
    /// `$DIR` is [`Setting::folder`], and the commands of the instance are in `PATH`.
    pub fn script(&self, script: &str) -> Outcome<String> {
        let mut command = Command::new("bash");
        let path = std::env::var("PATH").unwrap_or_default();
        // A daemon that a command of the script starts is the same host.
        let of_instance = self.instance.command("tarn");
        let host = of_instance.get_envs();
        command.envs(host.filter_map(|(name, value)| Some((name, value?))));
        command
            .args(["-euc", script])
            .env("DIR", &self.folder)
            .env("TARN_DIR", self.instance.state())
            .env("PATH", format!("{}:{path}", programs().display()))
            .current_dir(&self.mount);
        let spoken = program::run(&mut command, LIMIT)?.expect_success()?;
        Ok(spoken.stdout.trim_end().to_string())
    }
}

/// Compares; an error says what was looked at.
pub fn expect<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, seen: T) -> Outcome {
    match expected == seen {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected:?}, seen {seen:?}").into()),
    }
}

/// Whether a mount is in this namespace's table at this place.
pub fn is_mounted(place: &Path) -> Outcome<bool> {
    let table = fs::read_to_string("/proc/self/mounts")?;
    let place = place.display().to_string();
    Ok(table
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(&place)))
}

/// Runs every scenario, or those whose name contains what `--only` says.
pub fn everyday(arguments: &Arguments) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err("everyday: needs root, to mount and to be other users".into());
    }
    let mut steps = Steps::default();
    for (number, scenario) in SUBJECTS.into_iter().flatten().enumerate() {
        let only = arguments.only.as_deref().unwrap_or_default();
        if !scenario.name.contains(only) {
            continue;
        }
        steps.run(scenario.name, || {
            let setting = Setting::new(scenario, number)?;
            let _watchdog = setting.instance.watchdog(scenario.name, LIMIT * 5);
            (scenario.run)(&setting)?;
            let folder = setting.folder.clone();
            drop(setting);
            match arguments.keep {
                true => Ok(()),
                false => remove_folder(&folder),
            }
        });
    }
    steps.finish()
}
