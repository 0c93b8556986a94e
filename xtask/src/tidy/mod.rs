//! `cargo xtask tidy`: the architecture, held by a program.
//!
//! # Problem
//! Layers and doors are lost one small exception at a time, each of which looks reasonable in its
//! change.
//!
//! # Mechanism
//! These checks fail:
//!
//! - an edge between layers that the table does not have ([`layers`]);
//! - a second door to an effect, or something dishonest in a source ([`effects`]);
//! - a path of the machine a file was written on ([`machine_paths`]);
//! - a decision that `docs/decisions/README.md` does not list ([`decisions`]);
//! - the same file name in two crates ([`same_names`]);
//! - a file of more than 1,000 lines in the core, but tables (of tests it is printed);
//! - a crate that became worse in assertions, comments or circles of files ([`ratchets`],
//!   [`comments`], [`circles`]).
//!
//! What stands out in length is printed and fails nothing: a clear long function beats three that
//! hand one state around.

mod circles;
mod comments;
mod decisions;
mod effects;
mod layers;
mod machine_paths;
mod ratchets;
mod same_names;
mod source;

use std::collections::BTreeMap;
use std::fs;

use crate::workspace::{Outcome, checkout, output};
use effects::Place;
use layers::Part;
use source::Source;

/// One screen: beginning and end of a function together.
const FUNCTION_LINES: usize = 70;
/// A file without its tests.
const FILE_LINES: usize = 800;

/// The most lines of a file of the core.
const CORE_FILE_LINES_MAX: usize = 1000;
/// Files of the core that are tables, and may be longer.
const TABLES: [&str; 1] = ["core/dataset/src/properties/table.rs"];

/// The macros that state an invariant.
const ASSERTIONS: [&str; 6] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
];

/// What `tidy` may be told.
#[derive(clap::Args, Debug, Default)]
pub struct Arguments {
    /// Write down in the table of ratchets what has become better
    #[arg(long)]
    tighten: bool,
    /// Print the files in the largest circle of each crate
    #[arg(long)]
    circles: bool,
}

/// Checks everything, prints what stands out and the counts.
pub fn tidy(arguments: &Arguments) -> Outcome {
    let document = fs::read_to_string(checkout().join("docs/ARCHITECTURE.md"))?;
    let table = layers::read_table(&document)?;
    let crates = layers::read_crates()?;
    let mut wrong = layers::check(&table, &crates);

    let files = committed_files()?;
    let mut counts = Counts {
        crates: crates.len(),
        ..Counts::default()
    };
    let mut stands_out = Vec::new();
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for path in files.iter().filter(|path| path.ends_with(".rs")) {
        // A file that was just removed is still listed until the removal is committed.
        let Ok(text) = fs::read_to_string(checkout().join(path)) else {
            continue;
        };
        let source = match source::read(&text, is_test_file(path)) {
            Ok(source) => source,
            Err(error) => {
                wrong.push(format!("{path}: {error}"));
                continue;
            }
        };
        if let Some(place) = place(path) {
            wrong.extend(effects::check(place, &source));
        }
        stands_out.extend(long_things(path, &source));
        wrong.extend(too_long(path, &source));
        counts.add(&source);
        tallies
            .entry(crate_of(path))
            .or_default()
            .add(path, text, &source);
    }
    wrong.extend(machine_paths::check(&files)?);
    wrong.extend(decisions::check(&files)?);
    wrong.extend(same_names::check(&files));
    let mut numbers = ratchets::Table::new();
    let mut circles = Vec::new();
    for (name, tally) in tallies {
        let circle = circles::largest(&tally.sources)?;
        circles.push(format!(
            "{name}: {} {}",
            circle.len(),
            match arguments.circles {
                true => circle.join(" "),
                false => String::new(),
            }
        ));
        numbers.insert(name, tally.numbers(circle.len()));
    }
    let (worse, better) = ratchets::check(&numbers, arguments.tighten)?;
    wrong.extend(worse);
    print_list("files in the largest circle of each crate", &circles);
    if !arguments.tighten {
        print_list("can be tightened (`cargo xtask tidy --tighten`)", &better);
    }

    print_list("stands out in length (no failure)", &stands_out);
    print_list("WRONG", &wrong);
    counts.print(&table);
    match wrong.len() {
        0 => Ok(()),
        count => Err(format!("tidy found {count} things wrong").into()),
    }
}

/// The files under version control, and those about to be.
fn committed_files() -> Outcome<Vec<String>> {
    let mut git = std::process::Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(checkout());
    let mut files: Vec<String> = output(&mut git)?.lines().map(str::to_string).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// A folder or file that is named for tests is seen by tests only.
fn is_test_file(path: &str) -> bool {
    path.split('/')
        .any(|part| ["tests", "benches", "examples", "tests.rs"].contains(&part))
}

fn place(path: &str) -> Option<Place<'_>> {
    let mut parts = path.split('/');
    let (top, layer) = (parts.next()?, parts.next()?);
    let part = match top {
        "core" => Part::Core,
        "frontends" => Part::Frontend,
        "commands" => Part::Command,
        _ => Part::Testing,
    };
    Some(Place { path, layer, part })
}

fn long_things(path: &str, source: &Source) -> Vec<String> {
    let long = source
        .functions
        .iter()
        .filter(|function| function.line_count > FUNCTION_LINES);
    let mut found: Vec<String> = long
        .map(|function| {
            let (name, count) = (&function.name, function.line_count);
            format!("{path}:{}: fn {name} has {count} lines", function.line)
        })
        .collect();
    let line_count = source.line_count - source.test_line_count;
    if line_count > FILE_LINES {
        found.push(format!("{path}: {line_count} lines without its tests"));
    }
    if is_test_file(path) && source.line_count > CORE_FILE_LINES_MAX {
        found.push(format!("{path}: {} lines of tests", source.line_count));
    }
    if !source.has_theory {
        found.push(format!("{path}: does not open with //!"));
    }
    found
}

/// The crate's folder: `core/space`, `xtask`.
fn crate_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').take(2).collect();
    match parts[..] {
        ["xtask", ..] => "xtask".to_string(),
        _ => parts.join("/"),
    }
}

fn too_long(path: &str, source: &Source) -> Option<String> {
    let is_long = source.line_count > CORE_FILE_LINES_MAX;
    let counts = path.starts_with("core/") && !TABLES.contains(&path) && !is_test_file(path);
    (is_long && counts).then(|| {
        let lines = source.line_count;
        format!("{path}: {lines} lines: divide it by mechanism, {CORE_FILE_LINES_MAX} at most")
    })
}

/// What is counted of a crate for its ratchets.
#[derive(Default)]
struct Tally {
    lines: usize,
    assertions: usize,
    comments: comments::Comments,
    /// The files that ship, by their paths below `src`.
    sources: BTreeMap<String, String>,
}

impl Tally {
    fn add(&mut self, path: &str, text: String, source: &Source) {
        let found = comments::count(&text);
        self.comments.wide += found.wide;
        self.comments.hidden += found.hidden;
        let is_shipped = |path: &&source::NamedPath| !path.is_test && path.followed_by == Some('!');
        let is_assertion = |path: &&source::NamedPath| {
            let last = path.segments.last().map(String::as_str).unwrap_or_default();
            ASSERTIONS.contains(&last)
        };
        let paths = source.paths.iter().filter(is_shipped);
        self.assertions += paths.filter(is_assertion).count();
        self.lines += source.line_count - source.test_line_count;
        if let Some((_, below)) = path.split_once("/src/").filter(|_| !is_test_file(path)) {
            self.sources.insert(below.to_string(), text);
        }
    }

    fn numbers(&self, circle: usize) -> ratchets::Numbers {
        ratchets::Numbers {
            assertions: self.assertions * 10_000 / self.lines.max(1),
            wide: self.comments.wide,
            hidden: self.comments.hidden,
            circle,
        }
    }
}

fn print_list(title: &str, lines: &[String]) {
    if !lines.is_empty() {
        println!("{title}:");
        lines.iter().for_each(|line| println!("  {line}"));
    }
}

#[derive(Default)]
struct Counts {
    crates: usize,
    files: usize,
    lines: usize,
    test_lines: usize,
    functions: usize,
    short_functions: usize,
    tests: usize,
    unsafe_words: usize,
}

impl Counts {
    fn add(&mut self, source: &Source) {
        self.files += 1;
        self.lines += source.line_count - source.test_line_count;
        self.test_lines += source.test_line_count;
        self.tests += source.test_count;
        let shipped = source.functions.iter().filter(|function| !function.is_test);
        for function in shipped {
            self.functions += 1;
            self.short_functions += usize::from(function.line_count <= 30);
        }
        let is_unsafe = |path: &&source::NamedPath| path.segments == ["unsafe"];
        self.unsafe_words += source.paths.iter().filter(is_unsafe).count();
    }

    fn print(&self, table: &layers::Table) {
        let edges: usize = table.values().map(Vec::len).sum();
        println!(
            "{} crates, {} layers with {edges} allowed edges; {} files, {} lines and {} lines of tests; \
             {} functions, {} of them within 30 lines; {} tests; {} times unsafe",
            self.crates,
            table.len(),
            self.files,
            self.lines,
            self.test_lines,
            self.functions,
            self.short_functions,
            self.tests,
            self.unsafe_words,
        );
    }
}
