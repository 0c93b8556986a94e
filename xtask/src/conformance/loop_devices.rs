//! Loop devices, which a machine in a container may not give.

use std::process::Command;
use std::time::Duration;

use tarn_oracle::program;

use crate::workspace::Outcome;

/// How long `losetup` may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Why no loop device can be had, if none can.
pub fn missing() -> Outcome<Option<String>> {
    let mut losetup = Command::new("losetup");
    let found = program::run(losetup.arg("-f"), LIMIT)?;
    Ok((!found.succeeded()).then(|| found.stderr.trim().to_string()))
}
