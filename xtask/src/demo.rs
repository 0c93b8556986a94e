//! `cargo xtask demo`: the first five minutes, on a machine with only Rust.
//!
//! # Mechanism
//! The programs are built and driven as a person would drive them, each command shown before it
//! runs, in a `TARN_DIR` and with a `PATH` of the demo's own, so that nothing else on the machine
//! is touched. Vdevs are sparse files below `target`. Files of this checkout go in, are read back
//! and compared; the exported pool is handed to OpenZFS's `zdb` if it is there, and to ours
//! otherwise; imported again, and once more after a restart of the daemon, the files are compared.
//!
//! # Invariants
//! - A demo that runs is ended before another begins, and `--once` and `--stop` leave nothing
//!   mounted, running or stored.
//! - What went in comes out, or the demo fails.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use tarn_oracle::instance;
use tarn_oracle::tools::{Unpacked, is_in_path};

use crate::build;
use crate::debian_packages::install;
use crate::workspace::{Outcome, checkout, duration, programs, run, scratch, target};

/// The pool's name.
const POOL: &str = "demo";

/// Five disks of this size, sparse.
const DISK_BYTES: u64 = 256 << 20;
const DISK_COUNT: usize = 5;

/// Folders of the checkout that are copied in, and the dataset each goes to.
const COPIED: [(&str, &str); 6] = [
    ("docs", "docs"),
    ("core", "sources"),
    ("frontends", "sources"),
    ("commands", "sources"),
    ("testing", "sources"),
    ("xtask", "sources"),
];

/// How long the daemon may take to store its pools and end.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// What to show.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Clean up at the end
    #[arg(long)]
    pub once: bool,
    /// Only end a demo that was left running, and remove what it stored
    #[arg(long, conflicts_with = "once")]
    pub stop: bool,
    /// Use the programs of the last build
    #[arg(long)]
    pub no_build: bool,
}

impl Arguments {
    /// What every change is tried with: the programs are there, and nothing stays.
    pub fn of_ci() -> Self {
        Self {
            once: true,
            stop: false,
            no_build: true,
        }
    }
}

/// Shows it.
pub fn demo(arguments: &Arguments) -> Outcome {
    let demo = Demo {
        folder: scratch("demo"),
    };
    demo.remove()?;
    if arguments.stop {
        println!("nothing of the demo is left");
        return Ok(());
    }
    install_needed()?;
    if !arguments.no_build {
        build::build()?;
    }
    let outcome = demo.show();
    if arguments.once || outcome.is_err() {
        demo.remove()?;
    } else {
        demo.say_where_to_go();
    }
    outcome
}

/// What a machine needs beside Rust: users that are not root are mounted for by `fusermount3`.
fn install_needed() -> Outcome {
    if !Path::new("/dev/fuse").exists() {
        return Err(
            "there is no /dev/fuse: load the fuse module, or give the container the device".into(),
        );
    }
    match rustix::process::geteuid().is_root() || is_in_path("fusermount3") {
        true => Ok(()),
        false => install(&["fuse3"]),
    }
}

/// Where it plays.
struct Demo {
    folder: PathBuf,
}

impl Demo {
    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn disks(&self) -> PathBuf {
        self.folder.join("disks")
    }

    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Ends the daemon of a demo before this one, and removes what it stored.
    fn remove(&self) -> Outcome {
        if !instance::stop_daemon(&self.state(), STOP_LIMIT) {
            return Err(format!(
                "tarnd of the demo does not end; its TARN_DIR is {}",
                self.state().display()
            )
            .into());
        }
        for mount in instance::mounts_below(&self.folder) {
            // A daemon that was killed leaves its mounts; each answers with an error until it is
            // gone.
            let _ = Command::new("umount")
                .args(["-l", "--"])
                .arg(&mount)
                .output();
            let _ = Command::new("fusermount3")
                .args(["-u", "-z", "--"])
                .arg(&mount)
                .output();
        }
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("cannot remove {}: {error}", self.folder.display()).into())
            }
            _ => Ok(()),
        }
    }

    fn show(&self) -> Outcome {
        let began = Instant::now();
        for folder in [self.state(), self.disks()] {
            fs::create_dir_all(folder)?;
        }
        self.tell("Five files of 256 MiB are the disks. A pool on them that survives the loss of any one:");
        self.type_create()?;
        self.tell("Two datasets, one compressed harder:");
        self.type_in("zfs", &["create", "demo/docs"])?;
        self.type_in("zfs", &["create", "-o", "compression=zstd", "demo/sources"])?;

        self.tell("Real files go in: this checkout's documents and sources.");
        let copied = self.copy_in()?;
        println!("{copied}");
        self.type_out("ls", &["-l".into(), self.files().join("docs").into()])?;
        self.expect_equal()?;

        self.type_in(
            "zfs",
            &[
                "list",
                "-o",
                "name,used,refer,compressratio,mountpoint",
                "-r",
                POOL,
            ],
        )?;
        self.type_in("zpool", &["list", POOL])?;
        self.type_in("zpool", &["status", POOL])?;
        self.tell("Every command that changed the pool is kept in it:");
        self.type_in("zpool", &["history", POOL])?;

        self.tell("Exported, the pool is five ordinary files that any OpenZFS can read.");
        self.type_in("zpool", &["export", POOL])?;
        self.judge()?;
        let disks = self.disks();
        self.type_out(
            "zpool",
            &["import".into(), "-d".into(), disks.into(), POOL.into()],
        )?;
        self.expect_equal()?;

        self.tell("The daemon ends, and the next one has the pool again:");
        self.type_in("tarn", &["stop"])?;
        self.type_in("tarn", &["start"])?;
        self.expect_equal()?;
        println!("\nAll of this took {}.", duration(began.elapsed()));
        Ok(())
    }

    fn type_create(&self) -> Outcome {
        let mut arguments: Vec<OsString> = [
            "create",
            "-o",
            "ashift=12",
            "-O",
            "compression=lz4",
            "-O",
            "atime=off",
            "-m",
        ]
        .map(OsString::from)
        .to_vec();
        arguments.extend([self.files().into(), POOL.into(), "raidz".into()]);
        for index in 0..DISK_COUNT {
            let disk = self.disks().join(format!("disk{index}"));
            File::create(&disk)?.set_len(DISK_BYTES)?;
            arguments.push(disk.into());
        }
        self.type_out("zpool", &arguments)
    }

    fn copy_in(&self) -> Outcome<Copied> {
        let began = Instant::now();
        let mut copied = Copied::default();
        for (folder, dataset) in COPIED {
            let to = match folder == dataset {
                true => self.files().join(dataset),
                false => self.files().join(dataset).join(folder),
            };
            copy_folder(&checkout().join(folder), &to, &mut copied)?;
        }
        copied.took = began.elapsed();
        Ok(copied)
    }

    /// Reads every file back.
    fn expect_equal(&self) -> Outcome {
        let mut compared = 0;
        for (folder, dataset) in COPIED {
            let kept = match folder == dataset {
                true => self.files().join(dataset),
                false => self.files().join(dataset).join(folder),
            };
            compared += compare_folder(&checkout().join(folder), &kept)?;
        }
        println!("\n{compared} files are what they were in the checkout, byte for byte.");
        Ok(())
    }

    /// Hands the exported pool to OpenZFS's `zdb`.
    fn judge(&self) -> Outcome {
        let disks = self.disks();
        let arguments: [OsString; 5] = [
            "-e".into(),
            "-p".into(),
            disks.into(),
            "-bcc".into(),
            POOL.into(),
        ];
        if let Some(mut zdb) = foreign_zdb() {
            self.tell("OpenZFS's own zdb walks every block and checks every checksum:");
            println!("$ zdb {}", words(&arguments));
            return run(zdb.args(&arguments));
        }
        self.tell("There is no zdb of OpenZFS on this machine, so ours walks every block (`cargo xtask openzfs zdb` unpacks theirs on Debian):");
        self.type_out("zdb", &arguments)
    }

    fn type_in(&self, program: &str, arguments: &[&str]) -> Outcome {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        self.type_out(program, &arguments)
    }

    /// Shows a command and runs it.
    fn type_out(&self, program: &str, arguments: &[OsString]) -> Outcome {
        println!("\n$ {program} {}", words(arguments));
        let ours = programs().join(program);
        let mut command = match ours.is_file() {
            true => Command::new(ours),
            false => Command::new(program),
        };
        run(command.args(arguments).env("TARN_DIR", self.state()))
    }

    fn tell(&self, what: &str) {
        println!("\n{what}");
    }

    fn say_where_to_go(&self) {
        println!(
            "\nThe pool stays mounted. To look around:\n\n  \
             export TARN_DIR={} PATH={}:$PATH\n  \
             ls {}\n  \
             zpool status; zfs get all demo/sources; zfs create demo/yours\n\n\
             To stop, and remove all of it:\n\n  \
             cargo xtask demo --stop\n\n\
             Where to go next: docs/ARCHITECTURE.md says how it is built, docs/TESTING.md how each claim is tested,\n\
             docs/man/ has the commands. `cargo xtask oracle` has OpenZFS judge what we write, `cargo xtask bench` measures.",
            self.state().display(),
            programs().display(),
            self.files().display(),
        );
    }
}

/// Arguments as one would type them.
fn words(arguments: &[OsString]) -> String {
    let words: Vec<_> = arguments
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    words.join(" ")
}

/// OpenZFS's zdb: the one `$TARN_OPENZFS` names, one that was unpacked before, or the machine's.
fn foreign_zdb() -> Option<Command> {
    let folder = target().join("oracle");
    let is_there = std::env::var_os("TARN_OPENZFS").is_some() || folder.join("openzfs").is_dir();
    if is_there {
        return Unpacked::openzfs(&folder).ok()?.command("zdb").ok();
    }
    // The demo's own programs are not in the path, so this one is another.
    is_in_path("zdb").then(|| Command::new("zdb"))
}

/// What went in.
#[derive(Debug, Default)]
struct Copied {
    files: u64,
    folders: u64,
    bytes: u64,
    took: Duration,
}

impl std::fmt::Display for Copied {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kib = self.bytes >> 10;
        let Self {
            files,
            folders,
            took,
            ..
        } = self;
        write!(
            out,
            "{files} files in {folders} folders, {kib} KiB, in {}",
            duration(*took)
        )
    }
}

fn copy_folder(from: &Path, to: &Path, copied: &mut Copied) -> Outcome {
    fs::create_dir_all(to)?;
    copied.folders += 1;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_folder(&from, &to, copied)?;
        } else if kind.is_file() {
            copied.bytes += fs::copy(&from, &to)?;
            copied.files += 1;
        }
    }
    Ok(())
}

/// Compares what was copied with what it was copied from, and gives the number of files.
fn compare_folder(original: &Path, kept: &Path) -> Outcome<u64> {
    let mut compared = 0;
    for entry in fs::read_dir(kept)? {
        let entry = entry?;
        let (original, kept) = (original.join(entry.file_name()), entry.path());
        if entry.file_type()?.is_dir() {
            compared += compare_folder(&original, &kept)?;
        } else if read(&original)? != read(&kept)? {
            return Err(format!("{} is not what {} is", kept.display(), original.display()).into());
        } else {
            compared += 1;
        }
    }
    Ok(compared)
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_equal_until_one_byte_of_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("below")).unwrap();
        fs::write(from.join("below/file"), b"as it was").unwrap();
        let mut copied = Copied::default();
        copy_folder(&from, &to, &mut copied).unwrap();
        assert_eq!((copied.files, copied.bytes), (1, 9));
        assert_eq!(compare_folder(&from, &to).unwrap(), 1);
        fs::write(to.join("below/file"), b"as it is.").unwrap();
        assert!(compare_folder(&from, &to).is_err());
    }
}
