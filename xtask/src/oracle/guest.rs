//! Shared by the oracles with a guest machine: scripts that run beside OpenZFS's kernel module, and
//! records that its `zdb` must find in intent logs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tarn_oracle::machine::Machine;

use crate::changes::Listing;
use crate::workspace::{Outcome, openzfs};

/// The longest that a script may take. Software emulation is some twenty times slower than the
/// machine.
const SCRIPT_MAX: Duration = Duration::from_secs(1200);

/// Runs a script in the guest, which sees `share`, and prints what it says.
pub fn in_machine(machine: &Machine, share: &Path, script: &str, text: &str) -> Outcome {
    let script = share.join(script);
    fs::write(&script, text)?;
    let spoken = machine.run(share, &script, SCRIPT_MAX)?;
    print!("{}", spoken.stdout);
    spoken.expect_success()?;
    Ok(())
}

/// Demands that OpenZFS's `zdb` finds these records in the intent logs of datasets of a pool.
pub fn expect_records(images: &Path, pool: &str, records: &[(&str, &[&str])]) -> Outcome {
    let (tools, place) = (openzfs()?, images.display().to_string());
    for (name, records) in records {
        let dataset = format!("{pool}/{name}");
        let words = ["-e", "-p", &place, "-iiii", &dataset];
        let spoken = tools.run("zdb", &words, Duration::from_secs(300))?;
        let spoken = spoken.expect_success()?;
        let is_missing = |record: &&&str| !spoken.stdout.contains(**record);
        if let Some(record) = records.iter().find(is_missing) {
            return Err(format!(
                "zdb finds no {record} in the log of {dataset}, but this:\n{}",
                spoken.stdout
            )
            .into());
        }
    }
    Ok(())
}

/// The listings the guest left, `PREFIX-DATASET.jsonl` with `/` as `+`.
pub fn guest_listing(folder: &Path, prefix: &str) -> Outcome<Listing> {
    let mut listing = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let dataset = name
            .strip_prefix(&format!("{prefix}-"))
            .and_then(|name| name.strip_suffix(".jsonl"));
        if let Some(dataset) = dataset {
            let lines = fs::read_to_string(&path)?
                .lines()
                .map(str::to_string)
                .collect();
            listing.insert(dataset.replace('+', "/"), lines);
        }
    }
    match listing.is_empty() {
        true => Err("the virtual machine left no listing: the pool was not imported there".into()),
        false => Ok(listing),
    }
}
