//! Where the judge takes place: an instance with two pools, what can be named in them, and what
//! must not be harmed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tarn_oracle::instance::Instance;

use super::rules::LIMIT;
use super::socket;
use crate::workspace::{Outcome, programs, scratch};

/// The user without privilege.
pub const USER: u32 = 65_534;

/// The pools: one with all features, one with none.
const POOLS: [&str; 2] = ["abused", "plain"];

/// What is made in the pools.
const CONTENTS: &[&str] = &[
    "zfs create abused/fs",
    "zfs create abused/fs/child",
    "zfs create -s -V 16M abused/vol",
    "zfs set org:note=kept abused/fs",
    "zfs snapshot -r abused@one",
    "zfs snapshot abused/fs@two",
    "zfs bookmark abused/fs@one abused/fs#mark",
    "zfs clone abused/fs@two abused/clone",
    "zfs hold keep abused/fs@one",
    "zfs allow -s @set send,hold abused",
    "zfs create plain/fs",
    "zfs snapshot plain/fs@one",
];

/// Datasets without which commands would have nothing to be about.
const NEEDED: &[&str] = &[
    "abused",
    "abused/clone",
    "abused/fs",
    "abused/fs/child",
    "abused/fs@one",
    "abused/fs@two",
    "abused/received",
    "abused/vol",
    "abused@one",
    "plain",
    "plain/fs",
    "plain/fs@one",
];

/// Properties of pools that change by themselves.
const RESTLESS: &[&str] = &[
    "\tsize\t",
    "\tcapacity\t",
    "\tfree\t",
    "\tallocated\t",
    "\tfragmentation\t",
    "\tfreeing\t",
    "\tload_guid\t",
    "\tlast_scrubbed_txg\t",
    "\texpandsize\t",
    "\tdedupcached\t",
    "\tdedup_table_size\t",
];

/// The arena.
pub struct Arena {
    pub instance: Instance,
    pub folder: PathBuf,
    daemon: Option<i32>,
    log_read: usize,
}

impl Arena {
    /// Makes everything.
    pub fn make(name: &str) -> Outcome<Arena> {
        let folder = scratch(name);
        let instance = Instance::new(&programs(), &folder)?;
        let arena = Arena {
            instance,
            daemon: None,
            log_read: 0,
            folder,
        };
        let at = |name: &str| arena.folder.join(name);
        for name in ["images", "empty", "elsewhere", "home"] {
            fs::create_dir_all(at(name))?;
        }
        fs::write(at("text"), "text\n")?;
        fs::write(at("images/nothing"), "")?;
        fs::write(at("images/tiny"), vec![0; 65536])?;
        symlink(at("elsewhere"), at("link"))?;
        symlink(at("loop"), at("loop"))?;
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            mode,
            0,
        )?;
        let mut arena = arena;
        arena.fill()?;
        Ok(arena)
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.instance.state().join("tarnd.sock")
    }

    /// Makes the pools anew, whatever became of those that were.
    pub fn fill(&mut self) -> Outcome {
        for pool in self.pools().unwrap_or_default() {
            let forced = ["export", "-f", pool.as_str()];
            if !self
                .instance
                .run("zpool", &["destroy", "-f", &pool])?
                .succeeded()
            {
                self.instance.run("zpool", &forced)?;
            }
        }
        // What was written while nothing was mounted there.
        for name in POOLS {
            drop(fs::remove_dir_all(self.instance.root().join(name)));
        }
        for (name, bytes) in [
            ("d1", 256 << 20),
            ("d2", 128 << 20),
            ("spare", 128 << 20),
            ("spare2", 128 << 20),
        ] {
            let path = self.folder.join("images").join(name);
            drop(fs::remove_file(&path));
            fs::File::create(&path)?.set_len(bytes)?;
        }
        let image = |name: &str| self.folder.join("images").join(name).display().to_string();
        let mount = |name: &str| self.instance.root().join(name).display().to_string();
        self.instance.must(
            "zpool",
            &[
                "create",
                "-f",
                "-O",
                "xattr=sa",
                "-m",
                &mount("abused"),
                "abused",
                &image("d1"),
            ],
        )?;
        self.instance.must(
            "zpool",
            &[
                "create",
                "-f",
                "-d",
                "-m",
                &mount("plain"),
                "plain",
                &image("d2"),
            ],
        )?;
        for line in CONTENTS {
            let mut words = line.split(' ');
            let program = words.next().unwrap_or_default();
            self.instance.must(program, &words.collect::<Vec<_>>())?;
        }
        fs::write(self.instance.root().join("abused/fs/file"), vec![7; 5000])?;
        let stream = fs::File::create(self.stream())?;
        let mut send = self.instance.command("zfs");
        let sent = send
            .args(["send", "-p", "abused/fs@two"])
            .stdout(stream)
            .status()?;
        let mut receive = self.instance.command("zfs");
        let stream = fs::File::open(self.stream())?;
        let received = receive
            .args(["receive", "abused/received"])
            .stdin(stream)
            .status()?;
        if !sent.success() || !received.success() {
            return Err("the arena has no received file system".into());
        }
        self.daemon = self.instance.daemon();
        Ok(())
    }

    /// A stream of a snapshot.
    pub fn stream(&self) -> PathBuf {
        self.folder.join("stream")
    }

    /// Names of the pools there are.
    fn pools(&self) -> Outcome<Vec<String>> {
        let said = self.instance.must("zpool", &["list", "-H", "-o", "name"])?;
        Ok(said.stdout.lines().map(str::to_string).collect())
    }

    /// Whether what commands are about is still there.
    pub fn is_whole(&self) -> Outcome<bool> {
        let said = self
            .instance
            .run("zfs", &["list", "-H", "-t", "all", "-o", "name"])?;
        let names: Vec<&str> = said.stdout.lines().collect();
        Ok(names.len() < 60 && NEEDED.iter().all(|needed| names.contains(needed)))
    }

    /// Everything that a refused command must leave as it is.
    pub fn fingerprint(&self) -> Outcome<String> {
        let lines: [&[&str]; 6] = [
            &[
                "zfs",
                "list",
                "-H",
                "-p",
                "-t",
                "all",
                "-o",
                "name,guid,mounted,origin,userrefs,defer_destroy,volsize",
            ],
            &[
                "zfs",
                "get",
                "-H",
                "-p",
                "-t",
                "all",
                "-s",
                "local,received",
                "all",
            ],
            &["zfs", "holds", "-r", "-H", "abused@one"],
            &["zpool", "get", "-H", "-p", "all"],
            &["zpool", "status"],
            &[
                "zfs",
                "userspace",
                "-H",
                "-n",
                "-p",
                "-o",
                "type,name,quota",
                "abused/fs",
            ],
        ];
        let mut all = String::new();
        for line in lines {
            all += &self.instance.run(line[0], &line[1..])?.stdout;
        }
        for of in POOLS.into_iter().chain(["abused/fs", "plain/fs"]) {
            all += &self.instance.run("zfs", &["allow", of])?.stdout;
        }
        let is_restless = |line: &&str| RESTLESS.iter().any(|name| line.contains(name));
        let kept = all.lines().filter(|line| !is_restless(line));
        Ok(kept.map(|line| format!("{line}\n")).collect())
    }

    /// What was harmed: the daemon, or a pool.
    pub fn harm(&mut self) -> Option<String> {
        if !self
            .daemon
            .is_some_and(|process| self.instance.is_daemon(process))
        {
            self.daemon = self.instance.daemon();
            return Some("the daemon died".to_string());
        }
        if let Some(line) = self.panic_in_log() {
            return Some(format!("the daemon's log: {line}"));
        }
        match states(&self.socket(), LIMIT) {
            Err(error) => Some(format!("the daemon does not answer: {error}")),
            Ok(states) => {
                let mut harmed = states.into_iter().filter(|(_, state)| state != "ONLINE");
                harmed
                    .next()
                    .map(|(name, state)| format!("pool {name} is {state}"))
            }
        }
    }

    /// A line of the log, behind those that were looked at, that tells of a panic.
    fn panic_in_log(&mut self) -> Option<String> {
        let log = fs::read(self.instance.state().join("tarnd.log")).unwrap_or_default();
        let new =
            String::from_utf8_lossy(log.get(self.log_read..).unwrap_or_default()).into_owned();
        self.log_read = log.len();
        let mut lines = new.lines();
        lines
            .find(|line| line.contains("panicked"))
            .map(str::to_string)
    }
}

/// The states of all pools.
fn states(socket: &Path, limit: Duration) -> Outcome<Vec<(String, String)>> {
    let described = socket::ask(socket, "pool/describe", json!({}), limit)?;
    let pools = described["pools"].as_array().ok_or("no pools")?;
    let text = |pool: &Value, name: &str| pool[name].as_str().unwrap_or_default().to_string();
    Ok(pools
        .iter()
        .map(|pool| (text(pool, "name"), text(pool, "state")))
        .collect())
}
