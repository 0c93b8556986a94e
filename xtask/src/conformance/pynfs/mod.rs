//! `pynfs`: what RFC 7530 and RFC 8881 say of each operation of NFS versions 4.0 and 4.1, and RFC
//! 7862 and RFC 8276 of holes and extended attributes, asked one by one.
//!
//! # Mechanism
//! The suite is not in Debian's archive nor on PyPI: it is cloned from its own repository, at the
//! commit [`COMMIT`]; `$TARN_PYNFS` names the clone. What it generates from the protocol's
//! descriptions is generated in a copy. It runs without Kerberos, as root, against a pool of its
//! own whose daemon has a short lease, as many tests wait for one to run out. `known.tsv` has the
//! tests that do not pass, each with its reason.
//!
//! A small budget leaves out the tests that wait.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tarn_oracle::instance::Instance;
use tarn_oracle::program;

use super::known::{Ended, Known, Verdict};
use crate::debian_packages;
use crate::servers::free_port;
use crate::workspace::{Outcome, output, programs, remove_folder, run, scratch};

/// The commit whose results the table stands for.
const COMMIT: &str = "3c14d9e";
/// Debian's Python, which has the modules of Debian's packages: another one may come first in PATH.
const PYTHON: &str = "/usr/bin/python3";
/// Where it is found.
const REPOSITORY: &str = "https://github.com/kofemann/pynfs";

/// The pool.
const POOL: &str = "shared";

/// How much is run, and what is left of it.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Tests that wait for leases are left out.
    pub is_small: bool,
    /// The folder is left for a look.
    pub keep: bool,
}

/// Seconds of a lease: the least that the daemon takes.
const LEASE_S: &str = "10";

/// Some tests wait for two leases, one after the other.
const LIMIT: Duration = Duration::from_secs(1800);

/// What is asked of a version. `all` of version 4.2 would be that of 4.1 once more.
struct Version {
    name: &'static str,
    folder: &'static str,
    minor: Option<&'static str>,
    groups: &'static [&'static str],
    /// These wait for leases.
    slow_groups: &'static [&'static str],
}

/// The group `delegations` of version 4.0, but for the tests that ask for a write delegation, and
/// those that ask a person to change files on the server meanwhile.
const DELEGATIONS_OF_4_0: [&str; 19] = [
    "DELEG1", "DELEG2", "DELEG3a", "DELEG3b", "DELEG3c", "DELEG3d", "DELEG3e", "DELEG4", "DELEG5",
    "DELEG6", "DELEG7", "DELEG8", "DELEG9", "DELEG14", "DELEG15a", "DELEG15b", "DELEG15c",
    "DELEG15d", "DELEG21",
];

const VERSIONS: [Version; 3] = [
    Version {
        name: "4.0",
        folder: "nfs4.0",
        minor: None,
        groups: &["all"],
        slow_groups: &DELEGATIONS_OF_4_0,
    },
    Version {
        name: "4.1",
        folder: "nfs4.1",
        minor: Some("--minorversion=1"),
        groups: &["all"],
        slow_groups: &[],
    },
    Version {
        name: "4.2",
        folder: "nfs4.1",
        minor: Some("--minorversion=2"),
        groups: &["xattr", "sparse"],
        slow_groups: &[],
    },
];

/// Descriptions of protocols, below the folder where each is generated.
const DESCRIPTIONS: [(&str, &[&str]); 5] = [
    ("rpc", &["rpc.x", "gss.x"]),
    (
        "nfs4.1/xdrdef",
        &[
            "mnt3.x",
            "nfs3.x",
            "nfs4.x",
            "pnfs_block.x",
            "portmap.x",
            "sctrl.x",
        ],
    ),
    ("nfs4.0/xdrdef", &["nfs3.x", "nfs4.x"]),
    ("nfs4.0/lib/rpc", &["rpc.x"]),
    ("nfs4.0/lib/rpc/rpcsec", &["gss.x"]),
];

/// Runs the suites. Only known tests may fail.
pub fn pynfs(budget: Budget) -> Outcome {
    let Some(clone) = std::env::var_os("TARN_PYNFS").map(PathBuf::from) else {
        let missing = format!(
            "pynfs is not there: `git clone {REPOSITORY}`, `git checkout {COMMIT}`, and set TARN_PYNFS to the clone"
        );
        // CI's machine may have none: a small budget says so and goes on.
        return match budget.is_small {
            true => {
                println!("{missing}. NOT RUN");
                Ok(())
            }
            false => Err(missing.into()),
        };
    };
    if !rustix::process::geteuid().is_root() {
        return Err("pynfs makes devices and acts as several users: it needs root".into());
    }
    check_commit(&clone)?;
    let folder = scratch("conformance-pynfs");
    let instance = Instance::new(&programs(), &folder)?;
    let _watchdog = instance.watchdog("pynfs", LIMIT);
    let suite = folder.join("pynfs");
    prepare(&clone, &suite)?;
    let (port, mount) = (free_port()?, folder.join("share"));
    let port_text = port.to_string();
    instance.start_daemon(
        &["--nfs-lease", LEASE_S, "--nfs-port", &port_text],
        Duration::from_secs(60),
    )?;
    make_pool(&instance, &folder, &mount)?;
    let known = Known::parse(include_str!("known.tsv"))?;
    let place = Place {
        suite: &suite,
        port,
        mount: &mount,
    };
    let is_small = budget.is_small;
    let runs = VERSIONS.map(|version| place.run(version, is_small));
    let verdicts = runs.into_iter().collect::<Outcome<Vec<_>>>()?.concat();
    instance.must("zpool", &["destroy", POOL])?;
    drop(instance);
    if !budget.keep {
        remove_folder(&folder)?;
    }
    known.judge("pynfs", &verdicts)
}

/// Makes the pool, of one file, and shares it.
fn make_pool(instance: &Instance, folder: &Path, mount: &Path) -> Outcome {
    let image = folder.join("image");
    fs::File::create(&image)?.set_len(2 << 30)?;
    let (mount, image) = (mount.display(), image.display());
    instance.zpool(&format!(
        "create -O acltype=nfsv4 -m {mount} {POOL} {image}"
    ))?;
    let share = "sharenfs=rw,no_root_squash,insecure";
    instance.zfs(&format!("set {share} {POOL}"))?;
    Ok(())
}

/// Refuses another version of the suite than that of the table.
fn check_commit(clone: &Path) -> Outcome {
    let mut git = Command::new("git");
    let found = output(git.arg("-C").arg(clone).args(["rev-parse", "HEAD"]))?;
    match found.starts_with(COMMIT) {
        true => Ok(()),
        false => Err(format!(
            "TARN_PYNFS is at {}; known.tsv is about {COMMIT}: check that out",
            found.trim()
        )
        .into()),
    }
}

/// Copies the suite, and generates what it needs.
fn prepare(clone: &Path, suite: &Path) -> Outcome {
    let has_ply = Command::new(PYTHON).args(["-c", "import ply"]).output()?;
    if !has_ply.status.success() {
        debian_packages::install(&["python3-ply"])?;
    }
    run(Command::new("cp").arg("-a").arg(clone).arg(suite))?;
    for (folder, descriptions) in DESCRIPTIONS {
        for description in descriptions {
            let mut generate = Command::new(PYTHON);
            generate.arg(suite.join("xdr/xdrgen.py")).arg(description);
            output(generate.current_dir(suite.join(folder)))?;
        }
    }
    Ok(())
}

/// Where the suite runs, and against what.
struct Place<'a> {
    suite: &'a Path,
    port: u16,
    mount: &'a Path,
}

impl Place<'_> {
    /// Runs the tests of a version.
    fn run(&self, version: Version, is_small: bool) -> Outcome<Vec<Verdict>> {
        let results = self.suite.join(format!("results-{}.json", version.name));
        let mount = self.mount.display();
        let mut python = Command::new(PYTHON);
        python
            .current_dir(self.suite.join(version.folder))
            .args(["testserver.py", "--maketree"])
            .arg(format!("--json={}", results.display()));
        python.args(version.minor);
        python.arg(format!("127.0.0.1:{}{mount}", self.port));
        python.args(version.groups);
        match is_small {
            true => python.args(["notimed", "nocourteous", "nocourtesy"]),
            false => python.args(version.slow_groups),
        };
        let said = program::run(&mut python, LIMIT)?;
        let text = fs::read_to_string(&results);
        let text = text.map_err(|error| {
            format!(
                "pynfs {} has no results: {error}\n{}",
                version.name, said.stdout
            )
        })?;
        verdicts(version.name, &serde_json::from_str(&text)?)
    }
}

/// The results of a run. Tests that were not asked for are skipped there.
fn verdicts(version: &str, results: &Value) -> Outcome<Vec<Verdict>> {
    let tests = results["testcase"].as_array();
    let tests = tests.ok_or("pynfs has written results without tests")?;
    let verdict = |test: &Value| -> Option<Verdict> {
        if test.get("skipped").is_some() {
            return None;
        }
        let failure = test.get("failure").or_else(|| test.get("error"));
        let note = failure.and_then(|failure| failure["message"].as_str());
        Some(Verdict {
            test: format!("{version}/{}", test["code"].as_str()?),
            ended: match failure {
                Some(_) => Ended::Failed,
                None => Ended::Passed,
            },
            seconds: 0,
            note: note.unwrap_or_default().replace('\n', " "),
        })
    };
    Ok(tests.iter().filter_map(verdict).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_and_tests_that_were_not_asked_for_are_not() {
        let results = serde_json::json!({ "testcase": [
            { "code": "OPEN1" },
            { "code": "OPEN2", "failure": { "message": "expected\nOK" } },
            { "code": "OPEN3", "skipped": 1 },
        ] });
        let verdicts = verdicts("4.0", &results).unwrap();
        let ended: Vec<_> = verdicts
            .iter()
            .map(|one| (&one.test[..], one.ended))
            .collect();
        assert_eq!(
            ended,
            [("4.0/OPEN1", Ended::Passed), ("4.0/OPEN2", Ended::Failed)]
        );
        assert_eq!(verdicts[1].note, "expected OK");
    }
}
