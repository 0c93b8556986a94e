//! Debian packages of the programs that tasks call.

use std::process::Command;

use tarn_oracle::tools::is_in_path;

use crate::workspace::{Outcome, run};

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
