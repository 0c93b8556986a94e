//! `cargo xtask golden`: pools that OpenZFS made, read through our mounts, equal what OpenZFS saw.
//!
//! # Mechanism
//! For each fixture: a working copy of its images, a host of its own, `zpool import -o readonly=on`
//! below a scratch root, `zfs mount -a`, and then everything the truth has is compared: the
//! manifest of every file system and snapshot through the mounts, `zfs list`, `zfs get`,
//! `zpool get`. With `--write`, the pool is then imported to be written, changed, exported, judged
//! by OpenZFS's `zdb`, imported again and compared with what it held.
//!
//! The truth of the fixture `zil` is that after its intent log was replayed. So it is also imported
//! to be written: what it then holds is compared, but for the times of what was replayed, and after
//! export nothing is left of the log. Read-only it shows what there was before.
//!
//! # Knows nothing about
//! how the commands do it: everything here is what a user could type.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use tarn_golden::allowed;
use tarn_golden::compare::{self, Differences};
use tarn_golden::truth::{LIST_COLUMNS, Truth, parse_list, parse_properties};
use tarn_golden::{Fixture, Fixtures, volume};
use tarn_oracle::instance::Instance;
use tarn_oracle::{judge, program};
use tarn_workload::tree;

use crate::changes;
use crate::golden_status;
use crate::golden_streams;
use crate::workspace::{Outcome, Steps, fixtures, openzfs, programs, scratch};

/// The fixtures that must be read whole.
const NAMES: [&str; 11] = [
    "basic",
    "mirror",
    "raidz1",
    "raidz2",
    "raidz3",
    "mixed",
    "gang",
    "degraded",
    "checkpoint",
    "v28",
    "reflink",
];

/// The fixtures that a writer can change: pools with every device and of the current version.
const WRITABLE: [&str; 8] = [
    "basic", "mirror", "raidz1", "raidz2", "raidz3", "mixed", "gang", "reflink",
];

/// The fixture with an intent log that was never replayed.
const WITH_LOG: &str = "zil";

/// The fixture that has streams, and no pool.
const WITH_STREAMS: &str = "streams";

/// How many differences of one comparison are told.
const TOLD_DIFFERENCES: usize = 12;

/// No fixture takes a working mount longer than this.
const LIMIT: Duration = Duration::from_secs(300);

/// What to compare.
#[derive(Debug, Default, Args)]
pub struct Arguments {
    /// The fixtures, by name; without names, all that must be read whole
    names: Vec<String>,
    /// Also import to write, change, export, have it judged, and import again
    #[arg(long)]
    write: bool,
    /// Leave the scratch folder of each fixture for a look
    #[arg(long)]
    keep: bool,
}

/// Compares every fixture asked for.
pub fn golden(arguments: &Arguments) -> Outcome {
    let fixtures = fixtures()?;
    let names: Vec<String> = match arguments.names.is_empty() {
        true => NAMES.map(str::to_string).to_vec(),
        false => arguments.names.clone(),
    };
    println!("pool properties that must differ in a second import, and are not compared:");
    for allowed in allowed::POOL {
        println!("  {}: {}", allowed.property, allowed.why);
    }
    let mut steps = Steps::default();
    if arguments.names.is_empty() {
        steps.run("golden zil, replayed", || {
            replay_fixture(&fixtures, arguments.keep)
        });
        steps.run("golden streams, received", || {
            golden_streams::receive_fixture(&fixtures, arguments.keep)
        });
        steps.run("golden damaged, scrubbed", || {
            golden_status::scrub_fixture(&fixtures, arguments.keep)
        });
    }
    for name in &names {
        if name == golden_status::DAMAGED {
            steps.run("golden damaged, scrubbed", || {
                golden_status::scrub_fixture(&fixtures, arguments.keep)
            });
            continue;
        }
        if name == WITH_LOG {
            steps.run("golden zil, replayed", || {
                replay_fixture(&fixtures, arguments.keep)
            });
            continue;
        }
        if name == WITH_STREAMS {
            steps.run("golden streams, received", || {
                golden_streams::receive_fixture(&fixtures, arguments.keep)
            });
            continue;
        }
        steps.run(&format!("golden {name}"), || {
            read_fixture(&fixtures, name, arguments.keep)
        });
        if arguments.write && WRITABLE.contains(&name.as_str()) {
            steps.run(&format!("golden {name}, changed"), || {
                changes::change_fixture(&fixtures, name)
            });
        } else if arguments.write {
            println!("{name} is not changed: it is not whole, or of a version we only read");
        }
    }
    steps.finish()
}

fn read_fixture(fixtures: &Fixtures, name: &str, keep: bool) -> Outcome {
    let fixture = fixtures.unpack(name)?;
    let truth = fixture.truth()?;
    let folder = scratch(&format!("golden-{name}"));
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    fixture.working_copy(&images)?;
    let _watchdog = instance.watchdog(&format!("golden {name}"), LIMIT);

    import(&instance, &fixture, &images, &["-o", "readonly=on"])?;
    instance.must("zfs", &["mount", "-a"])?;
    let outcome = compare_everything(&instance, &fixture, &truth);
    let exported = instance.must("zpool", &["export", &fixture.pool()]);
    drop(instance);
    outcome?;
    exported?;
    unchanged(&fixture, &images)?;
    if !keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// A pool with an intent log: read-only nothing is replayed and no byte is written; then all of it
/// is replayed, and nothing of it left.
fn replay_fixture(fixtures: &Fixtures, keep: bool) -> Outcome {
    let fixture = fixtures.unpack(WITH_LOG)?;
    let pool = fixture.pool();
    let folder = scratch("golden-zil");
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    fixture.working_copy(&images)?;
    let _watchdog = instance.watchdog("golden zil", LIMIT);

    import(&instance, &fixture, &images, &["-o", "readonly=on"])?;
    instance.must("zfs", &["mount", "-a"])?;
    let before = changes::listing(&instance, &pool)?;
    instance.must("zpool", &["export", &pool])?;
    unchanged(&fixture, &images)?;

    // Claimed by one import, and replayed after another.
    import(&instance, &fixture, &images, &[])?;
    instance.must("zpool", &["export", &pool])?;
    judge_clean(&images, &pool)?;
    import(&instance, &fixture, &images, &[])?;
    instance.must("zfs", &["mount", "-a"])?;
    let mut tally = Tally::default();
    // This truth has manifests only.
    for name in ["a", "b"] {
        let truth = fixture
            .folder()
            .join(format!("truth/files-{pool}_{name}.jsonl"));
        let truth: Vec<String> = fs::read_to_string(truth)?
            .lines()
            .map(str::to_string)
            .collect();
        let seen = tree::manifest(&instance.root().join(&pool).join(name))?;
        let differences = compare::manifests(&timeless(&truth), &timeless(&seen));
        tally.add(&format!("{pool}/{name}"), truth.len(), differences);
    }
    let after = changes::listing(&instance, &pool)?;
    instance.must("zpool", &["export", &pool])?;
    drop(instance);
    tally.finish()?;
    if before == after {
        return Err("read-only the pool showed what was not replayed yet".into());
    }
    judge_clean(&images, &pool)?;
    if !keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

pub fn judge_clean(images: &Path, pool: &str) -> Outcome {
    judge::judge(&openzfs()?, images, pool)?;
    Ok(())
}

/// Lines of a manifest without the times of change: what was written by replay has those of the
/// replay.
fn timeless(lines: &[String]) -> Vec<String> {
    let without = |line: &String| match line.split_once("\"mtime_ns\": ") {
        Some((start, rest)) => {
            let end = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
            format!("{start}\"mtime_ns\": 0{end}")
        }
        None => line.clone(),
    };
    lines.iter().map(without).collect()
}

/// Imports the fixture's pool below the instance's root, without mounting.
pub fn import(instance: &Instance, fixture: &Fixture, images: &Path, options: &[&str]) -> Outcome {
    let (root, images) = (
        instance.root().display().to_string(),
        images.display().to_string(),
    );
    let mut arguments = vec!["import", "-N", "-f", "-R", &root, "-d", &images];
    arguments.extend(options);
    let pool = fixture.pool();
    arguments.push(&pool);
    instance.must("zpool", &arguments)?;
    Ok(())
}

fn compare_everything(instance: &Instance, fixture: &Fixture, truth: &Truth) -> Outcome {
    let (pool, root) = (fixture.pool(), instance.root().display().to_string());
    let mut tally = Tally::default();

    for files in &truth.files {
        let seen =
            tree::manifest(&files.place(&instance.root())).map_err(|error| error.to_string());
        match seen {
            Ok(seen) => tally.add(
                &files.name(),
                files.lines.len(),
                compare::manifests(&files.lines, &seen),
            ),
            Err(error) => tally.add(&files.name(), 0, vec![error]),
        }
    }
    let list = [
        "list",
        "-Hp",
        "-t",
        "all",
        "-r",
        "-o",
        &LIST_COLUMNS.join(","),
        &pool,
    ];
    let seen = instance.run("zfs", &list)?.expect_success();
    tally.add_table("zfs list", truth.list.len(), seen, |text| {
        Ok(compare::lists(
            &truth.list,
            &parse_list(Path::new("zfs list"), text)?,
            &root,
        ))
    });
    let seen = instance
        .run("zfs", &["get", "-Hp", "-t", "all", "-r", "all", &pool])?
        .expect_success();
    tally.add_table("zfs get", truth.zfs_get.len(), seen, |text| {
        Ok(compare::properties(
            &truth.zfs_get,
            &parse_properties(Path::new("zfs get"), text)?,
            &root,
        ))
    });
    let seen = instance
        .run("zpool", &["get", "-Hp", "all", &pool])?
        .expect_success();
    tally.add_table("zpool get", truth.zpool_get.len(), seen, |text| {
        let seen = parse_properties(Path::new("zpool get"), text)?;
        Ok(compare::properties(&truth.zpool_get, &seen, &root))
    });
    for volume in &truth.volumes {
        let sum = volume_sum(instance, &volume.dataset)?;
        let differs = (sum != volume.sha256).then(|| format!("the sum of its bytes is {sum}"));
        tally.add(&volume.dataset, 1, differs.into_iter().collect());
    }
    tally.finish()
}

/// The SHA-256 of all bytes of a volume. Nothing makes a block device of it, so they are read by
/// `zfs send`.
fn volume_sum(instance: &Instance, dataset: &str) -> Outcome<String> {
    let size = instance.must("zfs", &["get", "-Hp", "-o", "value", "volsize", dataset])?;
    let stream = tempfile::NamedTempFile::new_in(instance.root())?;
    let mut send = instance.command("zfs");
    send.args(["send", dataset]);
    program::run_writing(&mut send, stream.reopen()?.into(), LIMIT)?.expect_success()?;
    let contents = volume::contents(&mut stream.reopen()?, size.stdout.trim().parse()?)?;
    let bytes = tempfile::NamedTempFile::new_in(instance.root())?;
    fs::write(bytes.path(), contents)?;
    Ok(tree::manifest::sha256_of_file(bytes.path())?)
}

/// A pool that was imported read-only must leave every byte of its images as it was.
fn unchanged(fixture: &Fixture, images: &Path) -> Outcome {
    for image in fixture.images()? {
        let copy = images.join(image.file_name().ok_or("an image has a name")?);
        let sum = |path: &Path| tree::manifest::sha256_of_file(path);
        if sum(&image)? != sum(&copy)? {
            return Err(format!("the read-only import changed {}", copy.display()).into());
        }
    }
    Ok(())
}

/// What was compared, and what differs.
#[derive(Default)]
pub struct Tally {
    compared: usize,
    line_count: usize,
    differing: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, what: &str, line_count: usize, differences: Differences) {
        self.compared += 1;
        self.line_count += line_count;
        if differences.is_empty() {
            return;
        }
        self.differing.push(what.to_string());
        println!("  {what}: {} differences", differences.len());
        differences
            .iter()
            .take(TOLD_DIFFERENCES)
            .for_each(|line| println!("    {line}"));
        if differences.len() > TOLD_DIFFERENCES {
            println!("    ... and {} more", differences.len() - TOLD_DIFFERENCES);
        }
    }

    /// Compares what a command printed, or tells why it printed nothing.
    fn add_table(
        &mut self,
        what: &str,
        line_count: usize,
        seen: Result<tarn_oracle::program::Spoken, tarn_oracle::program::ProgramError>,
        differences: impl FnOnce(&str) -> Outcome<Differences>,
    ) {
        let found = match seen {
            Ok(spoken) => {
                differences(&spoken.stdout).unwrap_or_else(|error| vec![error.to_string()])
            }
            Err(error) => vec![error.to_string()],
        };
        self.add(what, line_count, found);
    }

    pub fn finish(self) -> Outcome {
        println!(
            "  {} comparisons, {} lines of truth",
            self.compared, self.line_count
        );
        match self.differing.is_empty() {
            true => Ok(()),
            false => Err(format!("differ from the truth: {}", self.differing.join(", ")).into()),
        }
    }
}
