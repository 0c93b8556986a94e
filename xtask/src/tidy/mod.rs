//! `cargo xtask tidy`: the architecture, held by a program.
//!
//! # Problem
//! Layers and doors are lost one small exception at a time, each of which looks reasonable in its change.
//!
//! # Mechanism
//! Three checks fail: an edge between layers that the table does not have ([`layers`]), a second door to an
//! effect or something dishonest in a source ([`effects`]), and a path of the machine it was written on in a
//! committed file ([`machine_paths`]). What stands out in length is printed and fails nothing: a clear long function
//! beats three that hand one state around.

mod effects;
mod layers;
mod machine_paths;
mod source;

use std::fs;

use crate::workspace::{Outcome, checkout, output};
use effects::Place;
use layers::Part;
use source::Source;

/// One screen: beginning and end of a function together.
const FUNCTION_LINES: usize = 70;
/// A file without its tests.
const FILE_LINES: usize = 800;

/// Checks everything, prints what stands out and the counts.
pub fn tidy() -> Outcome {
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
        counts.add(&source);
    }
    wrong.extend(machine_paths::check(&files)?);

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
    if !source.has_theory {
        found.push(format!("{path}: does not open with //!"));
    }
    found
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
