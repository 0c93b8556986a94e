//! The page for browsers, driven in Chromium beside clients of NFS.
//!
//! # Mechanism
//! A pool on a disk that takes 8 ms for whatever is asked of it (`TARN_SLOW_DEVICES`), with a log
//! device in memory, is shared. Clients of our own load it, each from an address of its own
//! ([`loads`]). Scripts below `frontends/web/page/tests` open the page in Chromium by Playwright,
//! click and type, have axe judge what they see, and leave pictures. What the terminal says at the
//! same time is kept beside them.
//!
//! Scripts and their tools are installed by `npm ci`, at the versions of a lock file.

mod loads;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;
use tarn_oracle::instance::Instance;
use tarn_workload::twister::Twister;

use self::loads::{HOT_BYTES, Load, Loads, TABLE_BYTES};
use crate::debian_packages::install_missing;
use crate::servers::{START_LIMIT, free_port};
use crate::workspace::{Outcome, checkout, output, programs, remove_folder, run, scratch};

const POOL: &str = "tank";
const SLOW_MS: u32 = 8;
const DISK_BYTES: u64 = 2 << 30;
/// Less than the table has, so that reads of it wait for the disk.
const CACHE: &str = "64M";
const NEEDED: [(&str, &str); 3] = [("node", "nodejs"), ("npm", "npm"), ("chromium", "chromium")];

/// What is shown, by which script, under which loads, and for how long these run before.
struct Showing {
    name: &'static str,
    loads: &'static [Load],
    before: Duration,
    /// What is asked in the terminal besides.
    statements: &'static [&'static str],
}

/// The clicks of the script of a missing file, as statements.
const MISSING_FILE: [&str; 4] = [
    "nfs.ops[client]",
    "nfs.ops[client=\"kiowa (127.0.0.11)\"][op]",
    "nfs.ops[client=\"kiowa (127.0.0.11)\"][op=lookup][file]",
    "nfs.ops[client=\"kiowa (127.0.0.11)\"][op=lookup][file=\"/tmp/tarn-browser/tank/home/brendan/.elinks\"]:latency",
];

const SHOWINGS: [Showing; 6] = [
    Showing {
        name: "missing-file",
        loads: &[Load::MissingFile],
        before: Duration::from_secs(60),
        statements: &MISSING_FILE,
    },
    Showing {
        name: "latency-bands",
        loads: &[Load::Hot, Load::Cold, Load::Logged, Load::SlowWrites],
        before: Duration::from_secs(60),
        statements: &[],
    },
    Showing {
        name: "cache",
        loads: &[Load::Hot, Load::Phases],
        before: Duration::from_secs(60),
        statements: &[],
    },
    Showing {
        name: "drive",
        loads: &[Load::MissingFile, Load::Hot, Load::Cold, Load::Logged],
        before: Duration::from_secs(30),
        statements: &[],
    },
    Showing {
        name: "archive",
        loads: &[Load::Hot, Load::Cold, Load::Logged],
        before: Duration::from_secs(45),
        statements: &[],
    },
    Showing {
        name: "tick",
        loads: &[Load::MissingFile, Load::Hot, Load::Cold, Load::Logged],
        before: Duration::from_secs(5),
        statements: &[],
    },
];

/// What is wanted of it.
pub struct Wanted<'a> {
    /// Only showings whose name contains this.
    pub only: &'a str,
    /// Where pictures go; a scratch folder unless given.
    pub pictures: Option<&'a Path>,
    /// Whether the scratch folder is left for a look.
    pub keep: bool,
}

/// Drives the page.
pub fn browser(asked: &Wanted<'_>) -> Outcome {
    install_missing(&NEEDED)?;
    let only = asked.only;
    let wanted: Vec<&Showing> = (SHOWINGS.iter())
        .filter(|showing| showing.name.contains(only))
        .collect();
    if wanted.is_empty() {
        let names = SHOWINGS.map(|showing| showing.name).join(", ");
        return Err(format!("there is no showing '{only}': {names}").into());
    }
    let scene = Scene::make(asked.pictures)?;
    for showing in wanted {
        println!("{}:", showing.name);
        let start = || -> Outcome<Loads> {
            let loads = Loads::start(showing.loads, scene.nfs_port, &scene.mount())?;
            thread::sleep(showing.before);
            Ok(loads)
        };
        let mut loads = start()?;
        if showing.name == "archive" {
            loads.stop()?;
            scene.restart()?;
            loads = start()?;
        }
        let shown = scene.show(showing);
        // A load that ended early is told before what the script missed.
        loads.stop()?;
        shown?;
    }
    let folder = scene.folder.clone();
    drop(scene);
    if !asked.keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// A pool that is served, and the tools of scripts.
struct Scene {
    instance: Instance,
    folder: PathBuf,
    tools: PathBuf,
    pictures: PathBuf,
    nfs_port: u16,
    web_port: u16,
}

impl Scene {
    fn make(pictures: Option<&Path>) -> Outcome<Scene> {
        let folder = scratch("conformance-browser");
        let instance = Instance::new(&programs(), &folder)?;
        // What a run before has left that was ended.
        unmount(&shown_folder().join(POOL));
        remove_folder(&shown_folder())?;
        let tools = install_tools()?;
        let pictures = pictures.map_or_else(|| folder.join("pictures"), Path::to_path_buf);
        fs::create_dir_all(&pictures)?;
        let nfs_port = free_port()?;
        let scene = Scene {
            instance,
            tools,
            // Scripts run elsewhere.
            pictures: pictures.canonicalize()?,
            nfs_port,
            web_port: free_port()?,
            folder,
        };
        scene.serve()?;
        scene.fill()?;
        Ok(scene)
    }

    fn serve(&self) -> Outcome {
        let slow = slow_disks();
        fs::create_dir_all(&slow)?;
        let (disk, log) = (slow.join("disk.img"), log_image());
        for image in [&disk, &log, &slow.join("new.img")] {
            File::create(image)?.set_len(DISK_BYTES)?;
        }
        self.start_daemon()?;
        self.instance.zpool(&format!(
            "create -f -o ashift=12 -O compression=off -O atime=off -O recordsize=8k \
             -O sharenfs=rw,insecure,no_root_squash -m {} {POOL} {} log {}",
            self.mount().display(),
            disk.display(),
            log.display()
        ))?;
        self.instance.zfs(&format!("create {POOL}/home"))?;
        self.instance.zfs(&format!("create {POOL}/db"))?;
        // Its durable writes pass the log device by.
        let bulk = format!("create -o logbias=throughput {POOL}/bulk");
        self.instance.zfs(&bulk)?;
        Ok(())
    }

    fn start_daemon(&self) -> Outcome {
        let web = format!("127.0.0.1:{}", self.web_port);
        let port = self.nfs_port.to_string();
        let words = ["--nfs-port", &port, "--web", &web, "--cache-size", CACHE];
        let slowed = format!("{SLOW_MS}:{}", slow_disks().display());
        let environment = [("TARN_SLOW_DEVICES", slowed.as_str())];
        self.instance
            .start_daemon_with(&words, &environment, START_LIMIT)?;
        Ok(())
    }

    /// What the flight recorder held is gone, and in the archive.
    fn restart(&self) -> Outcome {
        self.instance.stop_daemon(START_LIMIT)?;
        self.start_daemon()
    }

    fn mount(&self) -> PathBuf {
        shown_folder().join(POOL)
    }

    fn fill(&self) -> Outcome {
        let home = self.mount().join("home");
        fs::create_dir_all(home.join("brendan"))?;
        let db = self.mount().join("db");
        let mut chance = Twister::new(1);
        for (name, bytes) in [("hot", HOT_BYTES), ("table", TABLE_BYTES)] {
            fs::write(db.join(name), chance.bytes(usize::try_from(bytes)?))?;
        }
        self.instance.zpool("sync")?;
        self.instance.zfs(&format!("snapshot {POOL}/home@monday"))?;
        Ok(())
    }

    /// Runs a script, and keeps what the terminal says.
    fn show(&self, showing: &Showing) -> Outcome {
        let url = |more: &[&str]| -> Outcome<String> {
            let words = [&["web", "url"], more].concat();
            Ok(self.instance.must("tarn", &words)?.stdout.trim().to_owned())
        };
        let slow = slow_disks();
        let told = json!({
            "url": url(&[])?, "viewerUrl": url(&["-v"])?, "pool": POOL,
            "dataset": format!("{POOL}/home"), "mount": self.mount(),
            "oldDevice": slow.join("disk.img"), "newDevice": slow.join("new.img"),
            "pictures": self.pictures, "built": checkout().join("frontends/web/page/built"),
        });
        let script = format!("{}.mjs", showing.name);
        run(Command::new("node")
            .arg(&script)
            .arg(told.to_string())
            .current_dir(&self.tools))?;
        self.keep_words(showing)
    }

    /// What the terminal says at the time.
    fn keep_words(&self, showing: &Showing) -> Outcome {
        let keep = |name: &str, told: String| -> Outcome {
            let file = format!("terminal-{}{name}.txt", showing.name);
            Ok(fs::write(self.pictures.join(file), told)?)
        };
        let say = |words: &[&str]| output(self.instance.command("tarn").args(words));
        if showing.name == "cache" {
            keep("", say(&["top", "-b", "nfs.ops"])?)?;
            keep("-stacked", say(&["top", "-bs", "nfs.ops"])?)?;
        }
        let mut told = String::new();
        for statement in showing.statements {
            let text = say(&["analytics", "query", statement])?;
            told += &format!("$ tarn analytics query '{statement}'\n{text}\n");
        }
        match told.is_empty() {
            true => Ok(()),
            false => keep("", told),
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // It is not below the instance's folder, which is cleaned by itself.
        let _ = self.instance.run("zpool", &["export", "-f", POOL]);
        unmount(&self.mount());
        let _ = fs::remove_dir_all(shown_folder());
        let _ = fs::remove_file(log_image());
    }
}

fn unmount(mountpoint: &Path) {
    let _ = Command::new("umount").arg("-l").arg(mountpoint).output();
}

/// What pictures and statements show the path of: it is short, and says nothing of this machine.
fn shown_folder() -> PathBuf {
    PathBuf::from("/tmp/tarn-browser")
}

fn slow_disks() -> PathBuf {
    shown_folder().join("disks")
}

/// The log device: in memory, where the machine has a file system for that.
fn log_image() -> PathBuf {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.join("tarn-browser-log.img"),
        false => scratch("conformance-browser").join("log.img"),
    }
}

/// Scripts with Playwright and axe beside them.
fn install_tools() -> Outcome<PathBuf> {
    let tools = scratch("browser-tools");
    remove_folder(&tools)?;
    run(Command::new("cp")
        .arg("-r")
        .arg(checkout().join("frontends/web/page/tests"))
        .arg(&tools))?;
    let words = [
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ];
    run(Command::new("npm").args(words).current_dir(&tools))?;
    Ok(tools)
}
