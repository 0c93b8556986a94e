//! One directory of the suite: its setup, its tests, its cleanup, on an instance and disks of their
//! own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tarn_oracle::program::{self, Spoken};

use super::super::known::{Ended, Verdict};
use super::LIMIT_OF_COMMANDS;
use super::layout::{NFS_PORT, Suite, USER};
use crate::workspace::{Outcome, programs};

/// Loop devices that tests get as `DISKS`, and their size.
const DISKS: usize = 3;
const DISK_BYTES: u64 = 4 << 30;

/// How long a test may take. Some of `rsend` and `bclone` take several minutes on a small machine.
const LIMIT_OF_TEST: Duration = Duration::from_secs(600);

/// What the suite's run files say of a directory.
#[derive(Debug, Default, PartialEq, Eq)]
struct Listed {
    setup: Option<String>,
    cleanup: Option<String>,
    /// Nothing is the user that has called the suite, not root.
    user: Option<String>,
    tests: Vec<String>,
}

/// A directory below `tests/functional`.
pub struct Directory<'a> {
    suite: &'a Suite,
    name: String,
    listed: Listed,
}

impl<'a> Directory<'a> {
    /// The directory as the run files have it.
    pub fn new(suite: &'a Suite, name: &str) -> Outcome<Directory<'a>> {
        let mut listed = Listed {
            setup: Some("setup".to_string()),
            cleanup: Some("cleanup".to_string()),
            user: Some("root".to_string()),
            ..Listed::default()
        };
        for file in ["common.run", "linux.run"] {
            let text = fs::read_to_string(suite.work.join("src/tests/runfiles").join(file))?;
            read_run_file(&text, name, &mut listed);
        }
        match listed.tests.is_empty() {
            true => Err(format!("zts: no run file lists tests/functional/{name}").into()),
            false => Ok(Directory {
                suite,
                name: name.to_string(),
                listed,
            }),
        }
    }

    /// Runs its tests, or those of them that are named.
    pub fn run(&self, only: &[&str]) -> Outcome<Vec<Verdict>> {
        self.clean();
        let disks = self.fresh_disks()?;
        let mut verdicts = Vec::new();
        self.ours("tarn", &["start", "--cache-size", "1G"])?;
        if let Some(setup) = &self.listed.setup {
            self.script(setup, "root", &disks)?;
        }
        for test in &self.listed.tests {
            if !only.is_empty() && !only.contains(&test.as_str()) {
                continue;
            }
            let user = self.listed.user.as_deref().unwrap_or(USER);
            let spoken = self.script(test, user, &disks)?;
            let verdict = self.verdict(test, &spoken);
            println!(
                "{:<8} {:>4} s {} {}",
                format!("{:?}", verdict.ended),
                verdict.seconds,
                verdict.test,
                verdict.note
            );
            verdicts.push(verdict);
            if !self
                .ours("zpool", &["list"])
                .is_ok_and(|list| list.succeeded())
            {
                println!("  {test} left a daemon that does not answer; it is ended");
                self.kill_daemon();
            }
        }
        if let Some(cleanup) = &self.listed.cleanup {
            self.script(cleanup, "root", &disks)?;
        }
        self.clean();
        Ok(verdicts)
    }

    fn ours(&self, program: &str, arguments: &[&str]) -> Outcome<Spoken> {
        let mut command = Command::new(programs().join(program));
        command
            .args(arguments)
            .env("TARN_DIR", &self.suite.state)
            .env("TARN_NFS_PORT", NFS_PORT);
        Ok(program::run(&mut command, Duration::from_secs(30))?)
    }

    /// Runs a script of the directory; what it prints stays in the log folder.
    fn script(&self, test: &str, user: &str, disks: &str) -> Outcome<Spoken> {
        let folder = self.suite.tests().join("tests/functional").join(&self.name);
        let plain = folder.join(test);
        let script = match plain.exists() {
            true => plain,
            false => folder.join(format!("{test}.ksh")),
        };
        // The daemon keeps no descriptor of the test's, and `timeout` ends all that the test
        // started.
        let mut line = String::from(
            "set -a; . \"$STF_SUITE/include/default.cfg\"; set +a; cd \"$0\"; PATH=$STF_PATH; export PATH; exec timeout -k 5 ",
        );
        line += &format!("{} ", LIMIT_OF_TEST.as_secs());
        if user != "root" {
            line += &format!("sudo -E -u {USER} -- ");
        }
        line += "\"$1\"";
        let files = &self.suite.files;
        let mut command = Command::new("bash");
        command
            .args(["-c", &line])
            .arg(&folder)
            .arg(&script)
            .env_remove("TARN_DIR")
            .env("STF_TOOLS", self.suite.work.join("src/tests/test-runner"))
            .env("STF_SUITE", self.suite.tests())
            .env("STF_PATH", &self.suite.path)
            .env("TARN_NFS_PORT", NFS_PORT)
            .env("ZTS_TUNABLES", self.suite.work.join("tunables"))
            .env("FILEDIR", files)
            .env("TMPDIR", files)
            .env("DISKS", disks)
            .env("KEEP", "rpool")
            .env("__ZFS_POOL_EXCLUDE", "")
            .env("TESTFAIL_CALLBACKS", "")
            .env("LOSETUP", "/sbin/losetup")
            .env("DMSETUP", "/sbin/dmsetup")
            .env("UNAME", "Linux")
            .env("LC_ALL", "C")
            .env("LANG", "C");
        let spoken = program::run(&mut command, LIMIT_OF_TEST + Duration::from_secs(60))?;
        let log = self.suite.work.join("log").join(&self.name);
        fs::create_dir_all(&log)?;
        fs::write(
            log.join(test),
            format!("{}{}", spoken.stdout, spoken.stderr),
        )?;
        Ok(spoken)
    }

    fn verdict(&self, test: &str, spoken: &Spoken) -> Verdict {
        // The suite's exit codes: 0 passed, 4 unsupported, 5 untested; `timeout` has 124 and 137.
        let ended = match spoken.code {
            Some(0) => Ended::Passed,
            Some(4 | 5) => Ended::NotRun,
            Some(124 | 137) | None => Ended::Hung,
            Some(_) => Ended::Failed,
        };
        let mut lines = spoken.stdout.lines().chain(spoken.stderr.lines());
        let said = lines
            .rfind(|line| line.contains("ERROR:"))
            .unwrap_or_default();
        Verdict {
            test: format!("{}/{test}", self.name),
            ended,
            seconds: spoken.duration.as_secs(),
            note: match ended {
                Ended::Passed => String::new(),
                _ => said.chars().take(160).collect(),
            },
        }
    }

    /// Loop devices over new sparse files, by name.
    fn fresh_disks(&self) -> Outcome<String> {
        let mut names = Vec::new();
        for index in 0..DISKS {
            let file = self.suite.work.join(format!("disk{index}"));
            let _ = fs::remove_file(&file);
            fs::File::create(&file)?.set_len(DISK_BYTES)?;
            let mut losetup = Command::new("losetup");
            losetup.args(["-P", "-f", "--show"]).arg(&file);
            let device = program::run(&mut losetup, LIMIT_OF_COMMANDS)?.expect_success()?;
            names.push(device.stdout.trim().trim_start_matches("/dev/").to_string());
        }
        Ok(names.join(" "))
    }

    fn daemon(&self) -> Option<u32> {
        let lock = fs::read_to_string(self.suite.state.join("tarnd.lock")).ok()?;
        let pid = lock.trim().parse().ok()?;
        PathBuf::from(format!("/proc/{pid}"))
            .exists()
            .then_some(pid)
    }

    fn kill_daemon(&self) {
        if let Some(pid) = self.daemon() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }

    /// Ends what tests left: pools, the daemon, mounts, loop devices, files. What fails here shows
    /// in the next test.
    fn clean(&self) {
        if self.daemon().is_some() {
            let listed = self.ours("zpool", &["list", "-Ho", "name"]);
            for pool in listed.map(|list| list.stdout).unwrap_or_default().lines() {
                let _ = self.ours("zpool", &["destroy", "-f", pool]);
            }
            if !self
                .ours("tarn", &["stop"])
                .is_ok_and(|stop| stop.succeeded())
            {
                self.kill_daemon();
            }
        }
        let files = self.suite.files.display();
        let script = format!(
            "awk '$3 ~ /^fuse/ && $2 ~ \"^/testpool\" || index($2, \"{files}/\") == 1 {{print $2}}' /proc/mounts | sort -r | xargs -r -d '\\n' umount -l
             losetup -l -n -O NAME,BACK-FILE | awk -v w='{}/' 'index($2, w) == 1 {{print $1}}' | xargs -r -n1 losetup -d
             rm -rf --one-file-system '{files}' '{}' /testpool* /poolA /poolB /etc/zfs/zpool.cache /dev/zvol
             [ ! -f /dev/zfs ] || rm -f /dev/zfs
             mkdir -p '{files}' '{1}' /etc/zfs; chmod 1777 '{files}'; chmod 755 '{1}'",
            self.suite.work.display(),
            self.suite.state.display(),
        );
        let _ = program::run(
            Command::new("bash").args(["-c", &script]),
            LIMIT_OF_COMMANDS,
        );
    }
}

/// Adds what a run file says of a directory: sections with `tests = ['a', 'b',` over several lines,
/// `pre`, `post`, `user`.
fn read_run_file(text: &str, name: &str, listed: &mut Listed) {
    let (mut inside, mut key) = (false, String::new());
    for line in text.lines() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        if let Some(section) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            let directory = section.split(':').next().unwrap_or_default();
            inside = directory == format!("tests/functional/{name}");
            continue;
        }
        if !inside {
            continue;
        }
        let mut value = line.trim();
        if !line.starts_with(char::is_whitespace)
            && let Some((found, rest)) = line.split_once('=')
        {
            (key, value) = (found.trim().to_string(), rest.trim());
        }
        let given = (!value.is_empty()).then(|| value.to_string());
        match key.as_str() {
            "pre" => listed.setup = given,
            "post" => listed.cleanup = given,
            "user" => listed.user = given,
            "tests" => {
                let names = value
                    .split(',')
                    .map(|word| word.trim_matches(['[', ']', '\'', '"', ' ']));
                for test in names.filter(|test| !test.is_empty()) {
                    if !listed.tests.iter().any(|known| known == test) {
                        listed.tests.push(test.to_string());
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Listed, read_run_file};

    #[test]
    fn a_run_file_lists_tests_setup_and_user_of_a_directory() {
        let text = "[DEFAULT]\npre = setup\n\n[tests/functional/atime]\ntests = ['atime_001_pos', 'atime_002_neg',\n    'root_atime_on']\ntags = ['functional', 'atime']\n\n\
                    [tests/functional/acl/off:Linux]\ntests = ['dosmode']\npre =\nuser =\n";
        let mut atime = Listed {
            setup: Some("setup".to_string()),
            ..Listed::default()
        };
        read_run_file(text, "atime", &mut atime);
        assert_eq!(
            atime.tests,
            ["atime_001_pos", "atime_002_neg", "root_atime_on"]
        );
        assert_eq!(atime.setup.as_deref(), Some("setup"));
        let mut acl = atime;
        read_run_file(text, "acl/off", &mut acl);
        assert_eq!((acl.setup, acl.user), (None, None));
        assert_eq!(acl.tests.last().map(String::as_str), Some("dosmode"));
    }
}
