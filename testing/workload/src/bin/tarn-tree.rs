//! `tarn-tree`: fills, changes and lists a tree of files, and runs `fsx`, from a shell.
//!
//! It needs nothing but system calls, so it can be built static and taken into a virtual machine,
//! where it lists what another file system holds.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use tarn_workload::fsx;
use tarn_workload::tree::{self, Sums, TreeSize};

const USAGE: &str = "usage: tarn-tree fill DIR SEED [small|full]
       tarn-tree churn DIR SEED
       tarn-tree manifest [--quick] DIR
       tarn-tree fsx FILE SEED COUNT";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tarn-tree: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    match *arguments {
        ["fill", root, seed] | ["fill", root, seed, "full"] => {
            tree::fill(Path::new(root), seed.parse()?, TreeSize::Full)?;
        }
        ["fill", root, seed, "small"] => {
            tree::fill(Path::new(root), seed.parse()?, TreeSize::Small)?;
        }
        ["churn", root, seed] => tree::churn(Path::new(root), seed.parse()?)?,
        ["manifest", root] => list(root, Sums::Sha256)?,
        ["manifest", "--quick", root] => list(root, Sums::Quick)?,
        ["fsx", file, seed, count] => {
            fsx::run(
                Path::new(file),
                &fsx::Plan::new(seed.parse()?, count.parse()?),
            )?;
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn list(root: &str, sums: Sums) -> Result<(), Box<dyn Error>> {
    let lines = tree::manifest_with(Path::new(root), sums)?;
    tree::manifest::write_lines(&lines, std::io::stdout().lock())?;
    Ok(())
}
