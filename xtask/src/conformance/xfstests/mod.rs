//! `xfstests`: the `generic` group of the suite that Linux's file systems are tested with, on two
//! file systems of a pool.
//!
//! # Mechanism
//! The suite is not in Debian's archive: it is cloned and built from its own repository (`make`,
//! `make install`), which leaves it in `/var/lib/xfstests`; `$TARN_XFSTESTS` names another tree. It
//! knows `FSTYP=fuse`, which is what a mount shows, so nothing of it is changed:
//! `mount -t fuse.tarn DATASET FOLDER` calls a helper that [`mount_helper`] lays out, and "mkfs"
//! removes the files. The tests run by the suite's own `check`, some at a time; one that takes too
//! long is ended. `known.tsv` has the tests that do not pass, each with its reason; those of its
//! class `long` are left out unless they are named. `not_run.tsv` says why tests do not run.

mod mount_helper;
mod not_run;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tarn_oracle::instance::Instance;
use tarn_oracle::program;

use super::Arguments;
use super::known::{Ended, Known, Verdict};
use crate::debian_packages;
use crate::workspace::{Outcome, programs, remove_folder, scratch};
use mount_helper::MountHelper;
use not_run::Reasons;

/// Where `make install` puts the suite.
const INSTALLED: &str = "/var/lib/xfstests";

/// Programs that tests call, and the Debian package each is in.
const NEEDED: [(&str, &str); 8] = [
    ("setfacl", "acl"),
    ("setfattr", "attr"),
    ("bc", "bc"),
    ("fio", "fio"),
    ("gawk", "gawk"),
    ("quota", "quota"),
    ("xfs_io", "xfsprogs"),
    ("capsh", "libcap2-bin"),
];

/// Users that tests turn into.
const USERS: [&str; 3] = ["fsgqa", "fsgqa2", "123456-fsgqa"];

/// The pool, and the two file systems: what a test fills is `scratch`, the other keeps room.
const POOL: &str = "xt";
const POOL_BYTES: u64 = 6 << 30;

/// What every change is tried with: calls that FUSE has to carry.
const SMALL: &str = "001 002 004 005 007 011 023 024 025 028 078 080 087 088 105 126 184 213 221 245 257 258 \
                     309 313 319 375 389 401 403 420 437 444 448 452 471 490 504 523 525 528 529 533 \
                     591 609 611 632 637 697";

/// How many tests `check` gets at a time.
const ROUND: usize = 20;

/// How long a test may take; some write millions of small pieces, or run for 200 seconds on
/// purpose.
const LIMIT_OF_TEST: Duration = Duration::from_secs(400);

/// The class of tests that take longer, or a machine of their own.
const LONG: &str = "long";

/// Runs the tests of `--only` (numbers, or a group such as `-g quick` or `-g all`), else the group
/// `quick`, or the small budget's.
pub fn xfstests(arguments: &Arguments) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err("xfstests mounts and turns into other users: it needs root".into());
    }
    let tree =
        std::env::var_os("TARN_XFSTESTS").map_or_else(|| PathBuf::from(INSTALLED), PathBuf::from);
    if !tree.join("check").is_file() || !tree.join("ltp/fsx").is_file() {
        let missing = format!(
            "there is no built xfstests in {}: clone git.kernel.org's fs/xfs/xfstests-dev, `make && make install`, \
             or set TARN_XFSTESTS to a built tree",
            tree.display()
        );
        // CI's machine may have none, and no way to one: a small budget says so and goes on.
        return match arguments.small {
            true => {
                println!("{missing}. NOT RUN");
                Ok(())
            }
            false => Err(missing.into()),
        };
    }
    debian_packages::install_missing(&NEEDED)?;
    add_users()?;
    let known = Known::parse(include_str!("known.tsv"))?;
    let tests = wanted(arguments, &tree, &known)?;
    let mut run = Run::new(&tree)?;
    let verdicts = run.all(tests)?;
    drop(run);
    if !arguments.keep {
        remove_folder(&scratch("conformance-xfstests"))?;
    }
    for line in Reasons::parse(include_str!("not_run.tsv"))?.counted(&verdicts) {
        println!("  not run: {line}");
    }
    known.judge("xfstests", &verdicts)
}

/// The tests asked for, as `generic/NNN`.
fn wanted(arguments: &Arguments, tree: &Path, known: &Known) -> Outcome<Vec<String>> {
    let words = match (&arguments.only, arguments.small) {
        (Some(only), _) => only.as_str(),
        (None, true) => SMALL,
        (None, false) => "-g quick",
    };
    match words.strip_prefix("-g ") {
        Some(group) => {
            let list = fs::read_to_string(tree.join("tests/generic/group.list"))?;
            let of_group = of_group(&list, group.trim())?.into_iter();
            let (long, others): (Vec<_>, Vec<_>) =
                of_group.partition(|test| known.class(test) == Some(LONG));
            if !long.is_empty() {
                println!("left out, for they take long: {}", long.join(" "));
            }
            Ok(others)
        }
        None => Ok(words
            .split_whitespace()
            .map(|number| format!("generic/{number}"))
            .collect()),
    }
}

/// The tests of a group, or of all.
fn of_group(list: &str, group: &str) -> Outcome<Vec<String>> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let tests: Vec<String> = lines
        .filter_map(|line| {
            let (number, groups) = line.split_once(' ')?;
            let is_listed = group == "all" || groups.split_whitespace().any(|word| word == group);
            is_listed.then(|| format!("generic/{number}"))
        })
        .collect();
    match tests.is_empty() {
        true => Err(format!("no test of `generic` is in the group {group}").into()),
        false => Ok(tests),
    }
}

fn add_users() -> Outcome {
    for user in USERS {
        let known = program::run(Command::new("id").arg(user), LIMIT_OF_TEST)?;
        if !known.succeeded() {
            let mut add = Command::new("useradd");
            add.args(["-m", "--badname", user]);
            program::run(&mut add, LIMIT_OF_TEST)?.expect_success()?;
        }
    }
    Ok(())
}

/// The pool, the helper and the folders of a run.
struct Run {
    tree: PathBuf,
    folder: PathBuf,
    instance: Instance,
    /// Taken away with the run.
    _helper: MountHelper,
}

impl Run {
    fn new(tree: &Path) -> Outcome<Run> {
        let folder = scratch("conformance-xfstests");
        let instance = Instance::new(&programs(), &folder)?;
        let (test, scratched) = (folder.join("test"), folder.join("scratch"));
        for path in [&test, &scratched, &folder.join("results")] {
            fs::create_dir_all(path)?;
        }
        let image = folder.join("disk").display().to_string();
        fs::File::create(&image)?.set_len(POOL_BYTES)?;
        let options = "-O mountpoint=none -O xattr=sa -O acltype=posix";
        instance.zpool(&format!("create {options} {POOL} {image}"))?;
        for (name, at, more) in [
            ("test", &test, "-o reservation=1G "),
            ("scratch", &scratched, ""),
        ] {
            let at = at.display();
            instance.zfs(&format!(
                "create -o canmount=noauto {more}-o mountpoint={at} {POOL}/{name}"
            ))?;
        }
        let configuration = format!(
            "export FSTYP=fuse FUSE_SUBTYP=.tarn TEST_DEV={POOL}/test SCRATCH_DEV={POOL}/scratch TEST_DIR={} SCRATCH_MNT={}\n",
            test.display(),
            scratched.display()
        );
        fs::write(folder.join("config"), configuration)?;
        Ok(Run {
            tree: tree.to_path_buf(),
            _helper: MountHelper::lay_out(&instance.state(), &folder)?,
            folder,
            instance,
        })
    }

    /// Runs the tests in rounds.
    fn all(&mut self, tests: Vec<String>) -> Outcome<Vec<Verdict>> {
        let mut left = VecDeque::from(tests);
        let mut verdicts = Vec::new();
        while !left.is_empty() {
            let round: Vec<String> = left.iter().take(ROUND).cloned().collect();
            let seen = self.round(&round)?;
            if seen.is_empty() {
                let log = fs::read_to_string(self.folder.join("check.out"))?;
                return Err(format!("xfstests' check does not begin: {log}").into());
            }
            for verdict in seen {
                println!(
                    "{:<8} {:>4} s {} {}",
                    format!("{:?}", verdict.ended),
                    verdict.seconds,
                    verdict.test,
                    verdict.note
                );
                left.retain(|test| *test != verdict.test);
                verdicts.push(verdict);
            }
        }
        Ok(verdicts)
    }

    fn round(&self, tests: &[String]) -> Outcome<Vec<Verdict>> {
        let log = self.folder.join("check.out");
        let output = fs::File::create(&log)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut check = Command::new("./check")
            .current_dir(&self.tree)
            .args(["-fuse", "--exact-order"])
            .args(tests)
            .env("HOST_OPTIONS", self.folder.join("config"))
            .env("RESULT_BASE", self.folder.join("results"))
            .env(
                "PATH",
                format!("{}:{path}", MountHelper::programs(&self.folder).display()),
            )
            .env("LC_ALL", "C")
            .env_remove("TARN_DIR")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        let hung = self.watch(&mut check)?;
        let said = fs::read_to_string(&log)?;
        Ok(self.verdicts(&said, tests, &hung))
    }

    /// Waits for `check`, and ends tests that take too long; gives their names.
    fn watch(&self, check: &mut Child) -> Outcome<Vec<String>> {
        let mut hung = Vec::new();
        let mut current = (String::new(), Instant::now());
        while check.try_wait()?.is_none() {
            thread::sleep(Duration::from_millis(500));
            let said = fs::read_to_string(self.folder.join("check.out"))?;
            let line = said.lines().rfind(|line| line.starts_with("generic/"));
            let test = line
                .and_then(|line| line.split_whitespace().next())
                .unwrap_or_default();
            if test != current.0 {
                current = (test.to_string(), Instant::now());
            } else if !test.is_empty() && current.1.elapsed() > LIMIT_OF_TEST {
                hung.push(test.to_string());
                let ended = end_test(test);
                if !ended {
                    // It waits in the kernel: the end of the daemon answers it.
                    let _ = self.instance.kill_daemon();
                }
                current.1 = Instant::now();
            }
        }
        Ok(hung)
    }

    /// Reads what `check` said of its tests: `generic/001  3s`, ` [not run] why`,
    /// ` - output mismatch ...`, ` [failed, ...`.
    fn verdicts(&self, said: &str, tests: &[String], hung: &[String]) -> Vec<Verdict> {
        let lines = said.lines().filter(|line| line.starts_with("generic/"));
        let mut verdicts: Vec<Verdict> = Vec::new();
        for line in lines {
            let Some((test, rest)) = line.split_once(char::is_whitespace) else {
                continue;
            };
            let expected = tests.iter().any(|one| one == test);
            if !expected || verdicts.iter().any(|one| one.test == test) {
                continue;
            }
            let ended = end_of(rest, hung.iter().any(|one| one == test));
            verdicts.push(Verdict {
                test: test.to_string(),
                ended,
                seconds: seconds_of(rest),
                note: self.note(test, ended),
            });
        }
        verdicts
    }

    /// In the words of the test: why it did not run, or the first line that differs.
    fn note(&self, test: &str, ended: Ended) -> String {
        let result = |suffix: &str| {
            let file = self.folder.join("results").join(format!("{test}{suffix}"));
            fs::read_to_string(file).unwrap_or_default()
        };
        let note = match ended {
            Ended::NotRun => result(".notrun")
                .lines()
                .next()
                .unwrap_or_default()
                .to_string(),
            Ended::Failed | Ended::Hung => {
                let expected = fs::read_to_string(self.tree.join(format!("tests/{test}.out")));
                let expected = expected.unwrap_or_default();
                let seen = result(".out.bad");
                let differs = seen
                    .lines()
                    .find(|line| !expected.lines().any(|other| other == *line));
                differs.unwrap_or_default().to_string()
            }
            Ended::Passed => String::new(),
        };
        note.chars().take(160).collect()
    }
}

/// How a test ended, by the rest of its line.
fn end_of(rest: &str, hung: bool) -> Ended {
    let failed = [
        "[failed",
        "output mismatch",
        "_check_",
        "dumped core",
        "no qualified",
    ];
    if hung {
        return Ended::Hung;
    }
    match rest {
        _ if rest.contains("[not run]") => Ended::NotRun,
        _ if failed.iter().any(|word| rest.contains(word)) => Ended::Failed,
        _ if rest.trim_end().ends_with('s') => Ended::Passed,
        _ => Ended::Failed,
    }
}

/// The last number that `s` follows.
fn seconds_of(rest: &str) -> u64 {
    let words = rest.split_whitespace().rev();
    words
        .filter_map(|word| word.strip_suffix('s')?.parse().ok())
        .next()
        .unwrap_or(0)
}

/// Ends the processes of a test, with all that they started, and waits until they let go of the
/// file system; false if some are left.
fn end_test(test: &str) -> bool {
    let pattern = format!("tests/{test}( |$)");
    let script =
        "below() { local c; for c in $(pgrep -P \"$1\"); do below \"$c\"; done; echo \"$1\"; }
                  mapfile -t found < <(pgrep -f \"$0\" | grep -vx $$)
                  all=$(for p in \"${found[@]}\"; do below \"$p\"; done)
                  [ -z \"$all\" ] || kill -KILL $all 2>/dev/null
                  for i in $(seq 100); do
                      left=
                      for p in $all; do
                          case $(ps -o state= -p \"$p\") in '' | Z*) ;; *) left=$p ;; esac
                      done
                      [ -n \"$left\" ] || exit 0
                      sleep 0.1
                  done
                  exit 1";
    let mut bash = Command::new("bash");
    bash.args(["-c", script, &pattern]);
    program::run(&mut bash, Duration::from_secs(30)).is_ok_and(|spoken| spoken.succeeded())
}

#[cfg(test)]
mod tests {
    use super::{Ended, end_of, of_group, seconds_of};

    #[test]
    fn the_rest_of_a_line_says_how_a_test_ended() {
        assert_eq!(end_of("  3s", false), Ended::Passed);
        assert_eq!(end_of(" 2s ...  3s", false), Ended::Passed);
        assert_eq!(
            end_of("       [not run] no kernel support", false),
            Ended::NotRun
        );
        assert_eq!(
            end_of(" - output mismatch (see results)", false),
            Ended::Failed
        );
        assert_eq!(end_of(" [failed, exit status 1]", false), Ended::Failed);
        assert_eq!(end_of("  3s", true), Ended::Hung);
        assert_eq!(end_of("", false), Ended::Failed);
        assert_eq!(seconds_of(" 2s ...  31s"), 31);
    }

    #[test]
    fn a_group_has_its_tests() {
        let list = "# comment\n001 rw dir udf auto quick\n002 metadata\n";
        assert_eq!(of_group(list, "quick").unwrap(), ["generic/001"]);
        assert_eq!(
            of_group(list, "all").unwrap(),
            ["generic/001", "generic/002"]
        );
        assert!(of_group(list, "nothing").is_err());
    }
}
