//! The worker: searches one target until its time is over.
//!
//! # Mechanism
//! It begins with what broke something once, what an earlier search kept, and what pieces of pools
//! give; then it changes what it has. It tells in lines: `found KIND FILE WHAT` for what broke,
//! `done ...` at the end.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::{Duration, Instant};

use tarn_fuzz::Target;
use tarn_fuzz::piece::Piece;

use crate::corpus::Corpus;
use crate::minimise::minimise;
use crate::run::{Broken, Watchdog, keep_panics, limit_process, run};
use crate::{Arguments, Outcome, coverage, files, mutation};
use tarn_host::sim::Random;

/// How often an input that was drawn is changed before another is drawn.
const CHANGES: usize = 32;
/// Findings of one worker: when there are more, the first are to be cured first.
const FINDINGS_MAX: usize = 20;
/// How often the clock is looked at.
const LOOK_EVERY: u64 = 256;
/// So often a finding is run to make it small.
const MINIMISING_TRIES: usize = 5_000;

/// Searches in this process.
pub fn work(arguments: &Arguments, target: &'static Target) -> Outcome {
    let began = Instant::now();
    limit_process()?;
    for folder in ["findings", "current"] {
        std::fs::create_dir_all(arguments.folder.join(folder))?;
    }
    let watchdog = Watchdog::start(Some(&arguments.folder_of("current", target)))?;
    keep_panics();
    let mut worker = Worker {
        arguments,
        target,
        watchdog,
        random: Random::new(arguments.seed),
        corpus: Corpus::default(),
        features: Vec::new(),
        marks: BTreeSet::new(),
        executions: 0,
    };
    worker.begin()?;
    let end = began + Duration::from_secs(arguments.seconds);
    while worker.marks.len() < FINDINGS_MAX && Instant::now() < end {
        worker.search(end)?;
    }
    worker.store()?;
    println!(
        "done {} executions, {} features of {} counters, {} inputs kept, {} seconds",
        worker.executions,
        worker.corpus.feature_count(),
        coverage::counter_count(),
        worker.corpus.inputs().len(),
        began.elapsed().as_secs().max(1),
    );
    Ok(())
}

struct Worker<'a> {
    arguments: &'a Arguments,
    target: &'static Target,
    watchdog: Watchdog,
    random: Random,
    corpus: Corpus,
    features: Vec<u32>,
    /// What was found, by [`Broken::mark`].
    marks: BTreeSet<String>,
    executions: u64,
}

impl Worker<'_> {
    /// Runs all there is to begin with.
    fn begin(&mut self) -> Outcome {
        self.execute(&[])?;
        let name = self.target.name;
        for folder in [
            self.arguments.regressions.join(name),
            self.arguments.folder_of("corpus", self.target),
        ] {
            for path in files(&folder)? {
                self.execute(&std::fs::read(path)?)?;
            }
        }
        for path in files(&self.arguments.folder.join("pieces"))? {
            let Some(piece) = Piece::read(&path)? else {
                continue;
            };
            if let Some(mut seed) = (self.target.seed)(&piece) {
                seed.truncate(self.target.size_max);
                self.execute(&seed)?;
            }
        }
        Ok(())
    }

    /// Changes one input some times.
    fn search(&mut self, end: Instant) -> Outcome {
        let input = self.corpus.draw(&mut self.random).to_vec();
        // What it compares is known from running it once more.
        coverage::listen(true);
        self.execute(&input)?;
        coverage::listen(false);
        let pairs = coverage::compared();
        for _ in 0..CHANGES {
            let other = self.corpus.draw(&mut self.random).to_vec();
            let mut changed = input.clone();
            mutation::change(
                &mut changed,
                &mut self.random,
                &pairs,
                &other,
                self.target.size_max,
            );
            self.execute(&changed)?;
            if self.executions.is_multiple_of(LOOK_EVERY) && Instant::now() >= end {
                break;
            }
        }
        Ok(())
    }

    /// Runs an input, and keeps it where it is worth it.
    fn execute(&mut self, input: &[u8]) -> Outcome {
        self.executions += 1;
        self.watchdog.begin(input)?;
        let broken = run(self.target, input);
        self.features.clear();
        let features = &mut self.features;
        coverage::take_features(|feature| features.push(feature));
        match broken {
            Some(broken) => self.found(input, &broken),
            None => {
                self.corpus.consider(input, &self.features);
                Ok(())
            }
        }
    }

    fn found(&mut self, input: &[u8], broken: &Broken) -> Outcome {
        let mark = broken.mark();
        if !self.marks.insert(mark.clone()) {
            return Ok(());
        }
        let (target, watchdog) = (self.target, &self.watchdog);
        let small = minimise(input, MINIMISING_TRIES, |candidate| {
            let is_watched = watchdog.begin(candidate).is_ok();
            is_watched && run(target, candidate).is_some_and(|broken| broken.mark() == mark)
        });
        coverage::take_features(|_| {});
        let path = store(&self.arguments.folder_of("findings", target), &small)?;
        let told = run(target, &small)
            .unwrap_or_else(|| broken.clone())
            .to_string();
        println!("found {path} {}", told.replace('\n', " / "));
        Ok(())
    }

    /// Keeps what was reached for the next search.
    fn store(&self) -> Outcome {
        let folder = self.arguments.folder_of("corpus", self.target);
        std::fs::create_dir_all(&folder)?;
        for path in files(&folder)? {
            std::fs::remove_file(path)?;
        }
        for input in self.corpus.inputs() {
            store(&folder, input)?;
        }
        Ok(())
    }
}

/// Writes an input into a file that is named after it, and gives back the path.
pub fn store(folder: &Path, input: &[u8]) -> Outcome<String> {
    std::fs::create_dir_all(folder)?;
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = folder.join(format!("{:016x}", hasher.finish()));
    std::fs::write(&path, input)?;
    Ok(path.display().to_string())
}
