//! Streams that are cut at random bytes and gone on with, as often as the line breaks: what arrives
//! in the end is what was sent.
//!
//! # Mechanism
//! A pool has what OpenZFS sent (the fixture `streams`), and a file system of ours with a child and
//! three snapshots. Streams of both, of every kind, are cut, received with `-s`, and gone on with
//! from the token, up to three times each. What OpenZFS sent is so gone on with by us: its first
//! part and our second must fit.
//!
//! A package of several streams has no token as a whole: the stream that was cut goes on, and what
//! came after it is sent by itself, as programs do that replicate.
//!
//! In the end each snapshot has the guid and the files of the one that was sent, and OpenZFS's
//! `zdb` finds the pool clean.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_golden::{Fixture, compare};
use tarn_oracle::instance::Instance;
use tarn_workload::tree::{self, TreeSize};
use tarn_workload::twister::Twister;

use super::Arguments;
use crate::changes;
use crate::golden::judge_clean;
use crate::golden_streams::rootless;
use crate::streams::{cut, receive, receive_in_pieces, send, token};
use crate::workspace::{Outcome, fixtures, programs, scratch};

/// The pool has the name of the one that the fixture was sent from: a token names what to send by
/// that.
const POOL: &str = "fxstreams";
/// What OpenZFS sent.
const THEIRS: &str = "fxstreams/a";
/// What is sent by us.
const OURS: &str = "fxstreams/own";
/// Where streams go.
const TARGET: &str = "fxstreams/x";
const IMAGE_BYTES: u64 = 2 << 30;
const LIMIT: Duration = Duration::from_secs(3600);
/// A stream is cut so often at most.
const PIECES_MAX: u32 = 3;

/// A stream, and what it makes.
struct Case {
    name: String,
    /// Where it is.
    stream: PathBuf,
    /// What is received before it.
    before: Vec<PathBuf>,
    /// The file system that was sent.
    source: &'static str,
    /// What there is in the end: snapshots, by file systems below the source.
    made: Vec<(&'static str, Vec<&'static str>)>,
    is_package: bool,
}

/// Cuts streams of all kinds, as often as asked.
pub fn streams(arguments: &Arguments) -> Outcome {
    let fixture = fixtures()?.unpack("streams")?;
    let folder = scratch("conformance-streams");
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    let _watchdog = instance.watchdog("streams that are cut", LIMIT);
    let mut scene = Scene::make(&instance, &folder, &images, arguments.seed)?;
    let cases = scene.cases(&fixture)?;
    let mut round = 0;
    while scene.cuts < arguments.cuts {
        let case = &cases[round % cases.len()];
        scene
            .play(case)
            .map_err(|error| format!("{}, round {round}: {error}", case.name))?;
        round += 1;
    }
    println!(
        "  {round} streams of {} kinds: cut {} times, {} times gone on with, all of them equal",
        cases.len(),
        scene.cuts,
        scene.resumed
    );
    instance.must("zpool", &["export", POOL])?;
    drop(instance);
    judge_clean(&images, POOL)?;
    if !arguments.keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

struct Scene<'a> {
    instance: &'a Instance,
    folder: &'a Path,
    chance: Twister,
    cuts: u32,
    resumed: u32,
    /// What each snapshot has that is sent.
    manifests: BTreeMap<String, Vec<String>>,
}

impl<'a> Scene<'a> {
    /// The pool, with a file system of ours.
    fn make(
        instance: &'a Instance,
        folder: &'a Path,
        images: &Path,
        seed: u64,
    ) -> Outcome<Scene<'a>> {
        fs::create_dir_all(images)?;
        let image = images.join("disk");
        File::create(&image)?.set_len(IMAGE_BYTES)?;
        let (root, image) = (
            instance.root().display().to_string(),
            image.display().to_string(),
        );
        instance.must("zpool", &["create", "-R", &root, POOL, &image])?;
        instance.zfs(&format!(
            "create -o compression=lz4 -o recordsize=1m -o xattr=sa -o dnodesize=auto {OURS}"
        ))?;
        instance.zfs(&format!(
            "create -o recordsize=8k -o compression=zstd {OURS}/kid"
        ))?;
        for (number, short) in (1..).zip(["one", "two", "three"]) {
            for name in [OURS.to_string(), format!("{OURS}/kid")] {
                if number == 1 {
                    changes::fill(instance, &name, seed, TreeSize::Small)?;
                } else {
                    let mount = changes::mount_of(instance, &name)?;
                    tree::churn(&mount, seed + number)?;
                }
            }
            instance.zfs(&format!("snapshot -r {OURS}@{short}"))?;
        }
        Ok(Scene {
            instance,
            folder,
            chance: Twister::new(seed ^ 0x6375_7473),
            cuts: 0,
            resumed: 0,
            manifests: BTreeMap::new(),
        })
    }

    /// All streams there are.
    fn cases(&self, fixture: &Fixture) -> Outcome<Vec<Case>> {
        let sent = |name: &str| fixture.folder().join(format!("out/{name}.zsend"));
        receive(self.instance, &[THEIRS], &sent("replicate"))?.expect_success()?;
        let mut cases = Vec::new();
        let (one, two, all) = (vec!["one"], vec!["one", "two"], vec!["one", "two", "three"]);
        for (name, before, made) in [
            ("full", None, &one),
            ("full-cLe", None, &one),
            ("incr", Some("full"), &two),
            ("frombookmark", Some("full"), &two),
            ("all-incr", Some("full"), &all),
        ] {
            cases.push(Case {
                name: format!("{name}, sent by OpenZFS"),
                stream: sent(name),
                before: before.map(sent).into_iter().collect(),
                source: THEIRS,
                made: vec![("", made.clone())],
                is_package: name == "all-incr",
            });
        }
        cases.push(Case {
            name: "replicate, sent by OpenZFS".to_string(),
            stream: sent("replicate"),
            before: Vec::new(),
            source: THEIRS,
            made: vec![("", all.clone()), ("/kid", vec!["three"])],
            is_package: true,
        });
        let full = self.own("full", &["-L", &format!("{OURS}@one")])?;
        for (name, options, from, to) in [
            ("full", "-L", None, "one"),
            ("full-c", "-c -L", None, "one"),
            ("full-cLe", "-c -L -e", None, "one"),
            ("full-small", "", None, "one"),
            ("full-p", "-p -L", None, "one"),
            ("incr", "-L", Some("-i @one"), "two"),
            ("incr-ce", "-c -L -e", Some("-i @one"), "two"),
            ("all-incr", "-L", Some("-I @one"), "three"),
            ("replicate", "-R -L -c", None, "three"),
        ] {
            let what = format!("{OURS}@{to}");
            let mut words: Vec<&str> = options.split_whitespace().collect();
            words.extend(from.iter().flat_map(|from| from.split(' ')));
            words.push(&what);
            let made = match (name, to) {
                ("replicate", _) => vec![("", all.clone()), ("/kid", all.clone())],
                (_, "one") => vec![("", one.clone())],
                (_, "two") => vec![("", two.clone())],
                _ => vec![("", all.clone())],
            };
            cases.push(Case {
                name: format!("{name}, sent by us"),
                stream: self.own(name, &words)?,
                before: from.map(|_| full.clone()).into_iter().collect(),
                source: OURS,
                made,
                is_package: matches!(name, "full-p" | "all-incr" | "replicate"),
            });
        }
        Ok(cases)
    }

    fn own(&self, name: &str, words: &[&str]) -> Outcome<PathBuf> {
        let path = self.folder.join(format!("{name}.zsend"));
        send(self.instance, words, &path)?;
        Ok(path)
    }

    /// Receives a stream in pieces, and looks at what came of it.
    fn play(&mut self, case: &Case) -> Outcome {
        for before in &case.before {
            receive(self.instance, &[TARGET], before)?.expect_success()?;
        }
        let whole = self.folder.join("whole");
        fs::copy(&case.stream, &whole)?;
        if case.is_package {
            self.package(case, &whole)?;
        } else {
            self.pieces(TARGET, &whole)?;
        }
        self.expect_equal(case)?;
        self.instance.zfs(&format!("destroy -r {TARGET}"))?;
        Ok(())
    }

    fn pieces(&mut self, target: &str, whole: &Path) -> Outcome {
        let mut left = 1 + self.chance.below(PIECES_MAX);
        let (chance, cuts) = (&mut self.chance, &mut self.cuts);
        let place = |length: u64| {
            left = left.checked_sub(1)?;
            *cuts += 1;
            Some(chance.below_wide(length))
        };
        self.resumed += receive_in_pieces(self.instance, &[], target, whole, place)?;
        Ok(())
    }

    /// The stream of a package that was cut goes on; what came after it is sent by itself.
    fn package(&mut self, case: &Case, whole: &Path) -> Outcome {
        let length = fs::metadata(whole)?.len();
        cut(whole, self.chance.below_wide(length))?;
        self.cuts += 1;
        let spoken = receive(self.instance, &["-s", TARGET], whole)?;
        if spoken.succeeded() {
            return Err(format!("a package that was cut was taken: {spoken:?}").into());
        }
        for (below, shorts) in &case.made {
            let (source, target) = (
                format!("{}{below}", case.source),
                format!("{TARGET}{below}"),
            );
            if let Some(token) = token(self.instance, &target)? {
                send(self.instance, &["-t", &token], whole)?;
                self.resumed += 1;
                self.pieces(&target, whole)?;
            }
            let mut base: Option<&str> = None;
            for short in shorts {
                let name = format!("{target}@{short}");
                let found = self.instance.run("zfs", &["list", "-H", &name])?;
                if !found.succeeded() {
                    let from = base.map(|base| format!("@{base}"));
                    let what = format!("{source}@{short}");
                    let mut words = vec!["-L"];
                    words.extend(from.iter().flat_map(|from| ["-i", from.as_str()]));
                    words.push(&what);
                    send(self.instance, &words, whole)?;
                    receive(self.instance, &["-F", &target], whole)?.expect_success()?;
                }
                base = Some(*short);
            }
            // A package that broke off mounts nothing; and what is below comes upon what it is
            // below.
            self.instance.zfs("mount -a")?;
        }
        Ok(())
    }

    fn expect_equal(&mut self, case: &Case) -> Outcome {
        for (below, shorts) in &case.made {
            for short in shorts {
                let source = format!("{}{below}@{short}", case.source);
                let target = format!("{TARGET}{below}@{short}");
                let guids = ["get", "-Hp", "-o", "value", "guid", &source, &target];
                let guids = self.instance.must("zfs", &guids)?.stdout;
                let guids: Vec<&str> = guids.lines().collect();
                if guids.len() != 2 || guids[0] != guids[1] {
                    return Err(format!("{target} has another guid than {source}").into());
                }
                if !self.manifests.contains_key(&source) {
                    let manifest = self.manifest(&source)?;
                    self.manifests.insert(source.clone(), manifest);
                }
                let differences =
                    compare::manifests(&self.manifests[&source], &self.manifest(&target)?);
                if !differences.is_empty() {
                    let told: Vec<String> = differences.into_iter().take(8).collect();
                    return Err(format!(
                        "{target} differs from {source}:\n  {}",
                        told.join("\n  ")
                    )
                    .into());
                }
            }
        }
        Ok(())
    }

    fn manifest(&self, snapshot: &str) -> Outcome<Vec<String>> {
        let (dataset, short) = snapshot.split_once('@').ok_or("it is a snapshot")?;
        let place = self.instance.root().join(dataset);
        Ok(rootless(&tree::manifest(
            &place.join(".zfs/snapshot").join(short),
        )?))
    }
}
