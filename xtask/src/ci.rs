//! `cargo xtask ci`: everything that must pass before a change lands.
//!
//! # Mechanism
//! Steps run one after the other, each told with its time; a failing step does not keep the later
//! ones from running, so that one run tells all. What the steps need from the machine is installed
//! first, when we may.

use std::process::Command;
use std::time::Instant;

use tarn_oracle::tools::is_in_path;

use crate::workspace::{Outcome, Steps, cargo, duration, run};
use crate::{build, conformance, demo, fuzz, golden, hostile, oracle, scale, sim, tidy};

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
    steps.run("tests", || {
        run(&mut cargo(&[
            "test",
            "--workspace",
            "--quiet",
            "--no-fail-fast",
        ]))
    });
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

/// Installs the packages of those programs that are missing, or says what to install.
pub fn install_missing(needed: &[(&str, &'static str)]) -> Outcome {
    let missing: Vec<&str> = needed
        .iter()
        .filter(|(program, _)| !is_in_path(program))
        .map(|(_, package)| *package)
        .collect();
    install(&missing)
}

/// Installs Debian packages, when we are root and there are any to install.
pub fn install(packages: &[&str]) -> Outcome {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !rustix::process::geteuid().is_root() || !is_in_path("apt-get") {
        return Err(format!("missing on this machine: install {list}").into());
    }
    println!("installing {list}");
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        run(apt
            .args(["-qq", "-o", "Dpkg::Use-Pty=0"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())
}
