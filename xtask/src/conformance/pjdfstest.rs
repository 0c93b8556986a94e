//! `pjdfstest`: what POSIX says of each call, its errors and its times, asked one by one.
//!
//! # Mechanism
//! The suite runs as root and turns into other users where a rule is about them. It runs twice:
//! first everything that does not mount the file system anew read-only; then, in a process of its
//! own, what does. (In one process the second part meets files that earlier tests have open still,
//! and `mount` says busy, on every file system.) A test counts as skipped when neither run had it.
//!
//! What may be skipped is a list with reasons, so that nothing is skipped unseen.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tarn_oracle::instance::Instance;
use tarn_oracle::program;
use tarn_oracle::tools::is_in_path;

use super::suite::Suite;
use super::{Arguments, make_pool};
use crate::workspace::{Outcome, programs, run, scratch};

const SUITE: Suite = Suite {
    name: "pjdfstest",
    version: "0.2.2",
};

/// Tests that cannot run here, each with its reason.
const SKIPPED: [(&str, &str); 1] = [(
    "link::link_count_max",
    "pathconf(_PC_LINK_MAX) has no answer for FUSE: the C library knows limits by file system type, and no request asks for it",
)];

/// Long enough for a loaded machine; usually it takes seconds.
const LIMIT: Duration = Duration::from_secs(900);

/// Runs the suite on a mount. No test may fail, and only known ones be skipped.
pub fn pjdfstest(arguments: &Arguments) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err("pjdfstest turns into other users: it needs root".into());
    }
    add_user("tests")?;
    let folder = scratch("conformance-pjdfstest");
    let instance = Instance::new(&programs(), &folder)?;
    let _watchdog = instance.watchdog("pjdfstest", LIMIT);
    let place = ShortMount::new()?;
    let mount = &place.path;
    make_pool(&instance, &folder.join("images"), mount)?;
    fs::set_permissions(mount, fs::Permissions::from_mode(0o777))?;
    let mut results = suite(&folder, mount, Remounting::Never, "")?;
    results.extend(suite(&folder, mount, Remounting::Allowed, "::erofs_")?);
    instance.must("zpool", &["destroy", super::POOL])?;
    drop(instance);
    if !arguments.keep {
        fs::remove_dir_all(&folder)?;
    }
    judge(&results)
}

/// A mount point that every user can reach, with a path that leaves room in the 107 bytes of a
/// socket's.
struct ShortMount {
    path: PathBuf,
}

impl ShortMount {
    fn new() -> Outcome<ShortMount> {
        let path = std::env::temp_dir().join(format!("tarn-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(ShortMount { path })
    }
}

impl Drop for ShortMount {
    fn drop(&mut self) {
        // After a failure it may be mounted still, without a daemon. There is no reader to be told
        // if this fails as well.
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
        let _ = fs::remove_dir(&self.path);
    }
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Result {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Whether tests may mount the file system anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remounting {
    Never,
    Allowed,
}

/// Runs those tests whose name contains `pattern`.
fn suite(
    folder: &Path,
    mount: &Path,
    remounting: Remounting,
    pattern: &str,
) -> Outcome<BTreeMap<String, Result>> {
    let configuration = folder.join("pjdfstest.toml");
    fs::write(&configuration, configuration_text(folder, remounting))?;
    let mut path = vec![plain_mount(folder)?];
    path.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    let mut command = SUITE.command()?;
    command
        .arg("-c")
        .arg(&configuration)
        .arg("-p")
        .arg(mount)
        .env("PATH", std::env::join_paths(path)?)
        .env("NO_COLOR", "1")
        .env_remove("RUST_BACKTRACE");
    if !pattern.is_empty() {
        command.arg(pattern);
    }
    let spoken = program::run(&mut command, LIMIT)?;
    let results = read_results(&spoken.stdout);
    match results.len() {
        0 => Err(format!("`{}` ran no test: {}", spoken.command, spoken.stderr).into()),
        _ => Ok(results),
    }
}

fn configuration_text(folder: &Path, remounting: Remounting) -> String {
    let group = |name: &str| {
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let has = groups
            .lines()
            .any(|line| line.starts_with(&format!("{name}:")));
        has.then(|| name.to_string())
    };
    let nobody = group("nobody").or(group("nogroup")).unwrap_or_default();
    let allowed = remounting == Remounting::Allowed;
    // The scratch folder is on another file system than the mount.
    let other = folder.display();
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         secondary_fs = \"{other}\"\n[settings]\nnaptime = 0.01\nallow_remount = {allowed}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"{nobody}\"], [\"tests\", \"tests\"]]\n"
    )
}

/// A folder with a `mount` that asks the system itself. For type `fuse`, `mount` would start the
/// helper `mount.fuse`, which takes the source for a program to be run.
fn plain_mount(folder: &Path) -> Outcome<PathBuf> {
    let path = folder.join("path");
    fs::create_dir_all(&path)?;
    let script = path.join("mount");
    fs::write(
        &script,
        "#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin exec mount -i \"$@\"\n",
    )?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// The users that the suite turns into.
fn add_user(name: &str) -> Outcome {
    let users = fs::read_to_string("/etc/passwd")?;
    if users
        .lines()
        .any(|line| line.starts_with(&format!("{name}:")))
    {
        return Ok(());
    }
    if !is_in_path("useradd") {
        return Err(format!("pjdfstest needs a user and a group `{name}`: add them").into());
    }
    println!("adding the user {name}");
    let arguments = [
        "--user-group",
        "--no-create-home",
        "--shell",
        "/bin/false",
        name,
    ];
    run(Command::new("useradd").args(arguments))
}

/// Takes the suite's output apart: a line with name and outcome, then indented lines that say why.
fn read_results(text: &str) -> BTreeMap<String, Result> {
    let mut results = BTreeMap::new();
    let mut last: Option<String> = None;
    for line in text.lines() {
        if line.starts_with([' ', '\t']) {
            let why = last.as_ref().and_then(|name| results.get_mut(name));
            if let Some(Result::Failed(why) | Result::Skipped(why)) = why {
                why.push_str(line.trim());
                why.push(' ');
            }
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(name), Some(outcome), None) = (words.next(), words.next(), words.next()) else {
            last = None;
            continue;
        };
        let result = match outcome {
            "ok" => Result::Passed,
            "FAILED" => Result::Failed(String::new()),
            "skipped" => Result::Skipped(String::new()),
            _ => continue,
        };
        results.insert(name.to_string(), result);
        last = Some(name.to_string());
    }
    results
}

fn judge(results: &BTreeMap<String, Result>) -> Outcome {
    let (mut passed, mut wrong) = (0, Vec::new());
    for (name, result) in results {
        let reason = SKIPPED.iter().find(|(known, _)| known == name);
        match (result, reason) {
            (Result::Passed, None) => passed += 1,
            (Result::Passed, Some(_)) => {
                wrong.push(format!("{name} passes, and is listed as skipped"));
            }
            (Result::Failed(why), _) => wrong.push(format!("{name} failed: {why}")),
            (Result::Skipped(_), Some((_, reason))) => println!("  skipped {name}: {reason}"),
            (Result::Skipped(why), None) => wrong.push(format!("{name} was skipped: {why}")),
        }
    }
    println!("  {passed} tests passed, {} failed", wrong.len());
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_with_their_reasons() {
        let text = "link::max      skipped\n\tno limit\nopen::a  ok\nrmdir::b   FAILED\n\tassertion\n\tof line 3\n\nSummary: 1 failed\n";
        let results = read_results(text);
        assert_eq!(
            results["link::max"],
            Result::Skipped("no limit ".to_string())
        );
        assert_eq!(results["open::a"], Result::Passed);
        assert_eq!(
            results["rmdir::b"],
            Result::Failed("assertion of line 3 ".to_string())
        );
        assert_eq!(results.len(), 3);
        assert!(
            judge(&results)
                .unwrap_err()
                .to_string()
                .starts_with("link::max was skipped")
        );
    }
}
