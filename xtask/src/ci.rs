//! `cargo xtask ci`: everything that must pass before a change lands.
//!
//! # Mechanism
//! Steps run one after the other, each told with its time; a failing step does not keep the later
//! ones from running, so that one run tells all. What the steps need from the machine is installed
//! first, when we may.
//!
//! Documentation tests run of those crates alone that have some: for each crate the compiler of
//! documentation takes seconds to say that there are none.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::debian_packages::install_missing;
use crate::workspace::{Outcome, Steps, cargo, duration, output, run};
use crate::{build, conformance, demo, fuzz, golden, hostile, oracle, scale, sim, tidy, web_page};
use serde_json::Value;

/// Programs the steps start, and the Debian package each is in.
const NEEDED: [(&str, &str); 4] = [
    ("fusermount3", "fuse3"),
    ("zstd", "zstd"),
    ("setfattr", "attr"),
    ("setfacl", "acl"),
];

/// Runs every step and says which failed.
pub fn ci() -> Outcome {
    let began = Instant::now();
    let mut steps = Steps::default();
    steps.run("what the machine needs", install_needed);
    steps.run("format", || run(&mut cargo(&["fmt", "--all", "--check"])));
    steps.run("lints", || {
        let lints = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ];
        run(&mut cargo(&lints))
    });
    steps.run("tidy", || tidy::tidy(&tidy::Arguments::default()));
    steps.run("page for browsers", web_page::check_where_node_is);
    steps.run("tests", tests);
    steps.run("hostile, small budget", hostile::small);
    steps.run("fuzz, small budget", fuzz::small);
    steps.run("docs", docs);
    steps.run("build", build::build_to_judge);
    steps.run("sim, small budget", sim::small);
    steps.run("demo", || demo::demo(&demo::Arguments::of_ci()));
    steps.run("scale, small budget", || {
        scale::scale(&scale::Arguments::of_ci())
    });
    steps.run("conformance, small budget", conformance::small);
    steps.run("golden", golden_all);
    steps.run("oracle, small budget", oracle_small);
    println!("\ntotal {}", duration(began.elapsed()));
    steps.finish()
}

fn tests() -> Outcome {
    let kinds = ["--lib", "--bins", "--tests", "--examples"];
    let mut test = cargo(&["test", "--workspace", "--quiet", "--no-fail-fast"]);
    let tested = run(test.args(kinds));
    let mut documented = Vec::new();
    for (name, sources) in libraries()? {
        if has_documentation_tests(&sources)? {
            documented.extend(["--package".to_owned(), name]);
        }
    }
    if !documented.is_empty() {
        run(cargo(&["test", "--doc", "--quiet"]).args(documented))?;
    }
    tested
}

/// The packages of the workspace that are libraries, by name, with the folder of their sources.
fn libraries() -> Outcome<Vec<(String, PathBuf)>> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let metadata: Value = serde_json::from_str(&output(&mut cargo(&arguments))?)?;
    let packages = metadata["packages"].as_array();
    let packages = packages.ok_or("cargo metadata lists no packages")?;
    let library = |package: &Value| {
        let name = package["name"].as_str()?.to_owned();
        let targets = package["targets"].as_array()?;
        let is_library = |target: &&Value| target["kind"][0] == "lib";
        let source = targets.iter().find(is_library)?["src_path"].as_str()?;
        Some((name, Path::new(source).parent()?.to_path_buf()))
    };
    Ok(packages.iter().filter_map(library).collect())
}

/// Whether a source below a folder has code in its documentation that is tested: a block that does
/// not say what else it is.
fn has_documentation_tests(folder: &Path) -> Outcome<bool> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let has = match path.is_dir() {
            true => has_documentation_tests(&path)?,
            false if path.extension().is_some_and(|end| end == "rs") => {
                has_tested_block(&fs::read_to_string(&path)?)
            }
            false => false,
        };
        if has {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_tested_block(source: &str) -> bool {
    let mut is_inside = false;
    for line in source.lines() {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let Some(kind) = text.and_then(|text| text.trim_start().strip_prefix("```")) else {
            continue;
        };
        if !is_inside && !matches!(kind.trim(), "text" | "sh" | "json" | "console") {
            return true;
        }
        is_inside = !is_inside;
    }
    false
}

fn golden_all() -> Outcome {
    golden::golden(&golden::Arguments::default())
}

fn oracle_small() -> Outcome {
    oracle::oracle(&oracle::Arguments::small())
}

fn docs() -> Outcome {
    let mut doc = cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--quiet",
    ]);
    // Our readers read the private items too, so public text may lead to them.
    let lints = "-D warnings -A rustdoc::private_intra_doc_links";
    run(doc.env("RUSTDOCFLAGS", lints))
}

/// Installs what is missing of all that the checks call, or says what to install.
pub fn install_needed() -> Outcome {
    install_missing(&NEEDED)
}

#[cfg(test)]
mod tests {
    use super::has_tested_block;

    #[test]
    fn a_block_without_a_kind_is_tested() {
        assert!(has_tested_block("/// ```\n/// assert!(true);\n/// ```\n"));
        assert!(has_tested_block(
            "    //! ```compile_fail\n    //! x\n    //! ```\n"
        ));
        assert!(!has_tested_block(
            "/// ```text\n///  0  magic\n/// ```\n// ```\n"
        ));
        assert!(!has_tested_block("let fence = \"```\";\n"));
    }
}
