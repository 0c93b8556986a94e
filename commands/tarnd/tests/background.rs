//! A daemon in the background keeps no state of the program that started it, and reports why it
//! does not start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An instance in a folder of its own, whose daemon ends with it.
struct Instance {
    folder: tempfile::TempDir,
}

impl Instance {
    fn new() -> Instance {
        Instance {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Runs a script of bash; `$TARND` is the program and `$DIR` a folder.
    fn script(&self, script: &str) -> Output {
        let mut command = Command::new("bash");
        command
            .args(["-euc", script])
            .env("TARND", env!("CARGO_BIN_EXE_tarnd"))
            .env("DIR", self.folder.path())
            .env("TARN_DIR", self.state())
            // The port of the page may be that of a daemon beside it.
            .env("TARN_WEB", "off")
            .env("TZ", "Asia/Tokyo")
            .env("LC_ALL", "C.UTF-8");
        command.output().unwrap()
    }

    fn process(&self) -> Option<u32> {
        let text = fs::read_to_string(self.state().join("tarnd.lock")).ok()?;
        text.trim().parse().ok()
    }

    fn of_process(&self, name: &str) -> PathBuf {
        let process = self.process().expect("it runs");
        Path::new("/proc").join(process.to_string()).join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.of_process(name)).unwrap()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let Some(process) = self.process() else {
            return;
        };
        let alive = Path::new("/proc").join(process.to_string());
        let _ = Command::new("kill").arg(process.to_string()).output();
        while fs::read_to_string(alive.join("stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::yield_now();
        }
    }
}

/// The value of a line of `/proc/PID/status`.
fn value<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default().trim()
}

#[test]
fn a_daemon_keeps_nothing_of_its_caller() {
    let instance = Instance::new();
    let started = instance.script(
        r#"
        mkdir "$DIR/here"; cd "$DIR/here"
        exec 9>"$DIR/lock"; flock 9
        ulimit -Sn 40; ulimit -Sf 100000; umask 0
        trap '' CHLD USR1 TERM
        nice -n 5 "$TARND" --by-command
        "#,
    );
    assert!(started.status.success(), "{started:?}");

    let lock = fs::File::open(instance.folder.path().join("lock")).unwrap();
    assert!(lock.try_lock().is_ok(), "the caller's lock is held");
    let descriptors = fs::read_dir(instance.of_process("fd")).unwrap();
    let here = instance.folder.path();
    for descriptor in descriptors {
        let target = fs::read_link(descriptor.unwrap().path()).unwrap_or_default();
        let is_own = !target.starts_with(here) || target.starts_with(instance.state());
        assert!(is_own, "{}", target.display());
    }
    let folder = fs::read_link(instance.of_process("cwd")).unwrap();
    assert_eq!(folder, Path::new("/"));

    let process = instance.process().unwrap().to_string();
    let stat = instance.read("stat");
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    assert_eq!(fields[4], process, "it leads a session of its own");
    assert_eq!(fields[5], "0", "it has no terminal");

    let status = instance.read("status");
    assert_eq!(value(&status, "Umask"), "0022");
    let signals = |name| u64::from_str_radix(value(&status, name), 16).unwrap();
    let bit = |signal: u32| 1 << (signal - 1);
    assert_eq!(signals("SigBlk"), 0);
    // SIGCHLD, SIGUSR1, SIGTERM.
    assert_eq!(signals("SigIgn") & (bit(17) | bit(10) | bit(15)), 0);
    assert_ne!(signals("SigCgt") & bit(15), 0, "it can be told to end");

    let limits = instance.read("limits");
    for name in ["Max open files", "Max file size"] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let mut words = line[name.len()..].split_whitespace();
        assert_eq!(words.next(), words.next(), "{line}");
    }

    let variables = instance.read("environ");
    let variables: Vec<&str> = variables.split('\0').collect();
    assert!(variables.iter().any(|pair| pair.starts_with("TARN_DIR=")));
    for name in ["TZ=", "LC_ALL=", "DIR="] {
        assert!(!variables.iter().any(|pair| pair.starts_with(name)));
    }

    // A root with all privileges gets the usual priority back; others keep theirs.
    if value(&status, "CapEff").ends_with("ffffffff") {
        assert_eq!(fields[17], "0", "nice");
    }
}

#[test]
fn no_other_user_can_lock_what_a_daemon_needs_or_change_its_folder() {
    let instance = Instance::new();
    let started = instance.script(r#"umask 0; "$TARND""#);
    assert!(started.status.success(), "{started:?}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&instance.state().join("tarnd.lock")), 0o600);
    assert_eq!(mode(&instance.state()), 0o755);
    assert_eq!(mode(&instance.state().join("tarnd.log")), 0o644);
}

#[test]
fn a_relative_folder_is_the_one_where_it_was_started() {
    let instance = Instance::new();
    let started = instance.script(r#"cd "$DIR"; TARN_DIR=state "$TARND""#);
    assert!(started.status.success(), "{started:?}");
    assert!(instance.process().is_some());
}

#[test]
fn a_daemon_that_cannot_serve_says_why() {
    let instance = Instance::new();
    let started = instance.script(r#"mkdir -p "$TARN_DIR/tarnd.streams/full"; "$TARND""#);
    assert_eq!(started.status.code(), Some(1));
    let words = String::from_utf8(started.stderr).unwrap();
    let path = instance.state().join("tarnd.sock");
    let expected = format!(
        "tarnd: cannot serve {}: Address already in use\n",
        path.display()
    );
    assert_eq!(words, expected);
}
