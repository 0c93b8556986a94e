//! `cargo xtask page`: makes the page for browsers from its sources, and checks that the one that
//! lies in the repository is what they give.
//!
//! # Mechanism
//! The page is TypeScript; what is built of it lies in `frontends/web/page/built`, so that a
//! machine with only Rust builds everything. `npm ci` fetches the two tools that the lock file
//! pins, into a scratch folder. The same sources and tools give the same bytes. Where node is not
//! there and cannot be had, a test of `tarn-web` still holds the sums of the sources against those
//! that the built page was made of.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::debian_packages::install_missing;
use crate::workspace::{Outcome, checkout, remove_folder, run, scratch};

/// The programs, and the Debian package that each is in.
const NEEDED: [(&str, &str); 2] = [("node", "nodejs"), ("npm", "npm")];

/// What of the page is not its sources.
const NOT_SOURCES: [&str; 3] = ["built", "node_modules", ".gitignore"];

/// Options of `cargo xtask page`.
#[derive(Args)]
pub struct Arguments {
    /// Change nothing: fail when the built page is not what its sources give
    #[arg(long)]
    check: bool,
}

/// Makes the page anew, or checks it.
pub fn page(arguments: &Arguments) -> Outcome {
    install_missing(&NEEDED)?;
    let made = make()?;
    match arguments.check {
        true => compare(&made, &folder().join("built")),
        false => copy(&made, &folder().join("built")),
    }
}

/// What CI does: the same check, where node is there or can be installed.
pub fn check_where_node_is() -> Outcome {
    if let Err(error) = install_missing(&NEEDED) {
        println!("not checked, as node cannot be had: {error}");
        return Ok(());
    }
    page(&Arguments { check: true })
}

fn folder() -> PathBuf {
    checkout().join("frontends/web/page")
}

/// Checks the types, runs the tests and builds, in a scratch folder; gives the folder of what was
/// made.
fn make() -> Outcome<PathBuf> {
    let work = scratch("page");
    remove_folder(&work)?;
    std::fs::create_dir_all(&work)?;
    for entry in std::fs::read_dir(folder())? {
        let entry = entry?;
        let name = entry.file_name();
        if NOT_SOURCES.iter().any(|other| name == *other) {
            continue;
        }
        let path = entry.path();
        run(Command::new("cp").arg("-r").arg(path).arg(&work))?;
    }
    let npm = [
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ];
    run(Command::new("npm").args(npm).current_dir(&work))?;
    run(Command::new("npm")
        .args(["run", "--silent", "check"])
        .current_dir(&work))?;
    run(Command::new("npm")
        .args(["test", "--silent"])
        .current_dir(&work))?;
    run(Command::new("node")
        .args(["build.mjs", "made"])
        .current_dir(&work))?;
    Ok(work.join("made"))
}

fn names(folder: &Path) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn compare(made: &Path, built: &Path) -> Outcome {
    let wanted = names(made)?;
    let mut different: Vec<String> = names(built)?;
    different.retain(|name| !wanted.contains(name));
    for name in wanted {
        let is = std::fs::read(built.join(&name)).unwrap_or_default();
        if is != std::fs::read(made.join(&name))? {
            different.push(name);
        }
    }
    match different.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "frontends/web/page/built is not what its sources give ({}): run `cargo xtask page`",
            different.join(", ")
        )
        .into()),
    }
}

fn copy(made: &Path, built: &Path) -> Outcome {
    remove_folder(built)?;
    std::fs::create_dir_all(built)?;
    for name in names(made)? {
        std::fs::copy(made.join(&name), built.join(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Canaries: a file that differs, one too many and one too few are told by name.
    #[test]
    fn another_built_page_is_found() {
        let work = scratch("page-canaries");
        remove_folder(&work).unwrap();
        let (made, built) = (work.join("made"), work.join("built"));
        std::fs::create_dir_all(&made).unwrap();
        std::fs::write(made.join("page.js"), "1").unwrap();
        std::fs::write(made.join("page.css"), "2").unwrap();
        copy(&made, &built).unwrap();
        compare(&made, &built).unwrap();
        std::fs::write(built.join("page.js"), "3").unwrap();
        std::fs::write(built.join("more.js"), "4").unwrap();
        std::fs::remove_file(built.join("page.css")).unwrap();
        let told = compare(&made, &built).unwrap_err().to_string();
        for name in ["page.js", "more.js", "page.css"] {
            assert!(told.contains(name), "{told}");
        }
        remove_folder(&work).unwrap();
    }
}
