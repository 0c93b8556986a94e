//! The test of the test: each deliberate fault must be caught.

use std::process::{Command, Stdio};
use std::time::Instant;

use tarn_host::canary::Canary;

/// So many cuts a fault may survive.
const CUTS: &str = "3000";

/// Where a fault shows soonest.
fn options_of(canary: Canary) -> &'static [&'static str] {
    match canary {
        Canary::ForgetFree | Canary::ForgetReference => &["--workload", "mixed"],
        Canary::SkipFlush | Canary::EarlyUberblock => {
            &["--workload", "names", "--layout", "single"]
        }
        Canary::SkipLogFlush | Canary::ReplayTwice | Canary::LeaveLoggedClones => {
            &["--workload", "database"]
        }
        Canary::SkipResilverWrite => &["--devices", "--layout", "mirror"],
        Canary::ForgetCheckpoint => &["--devices", "--layout", "single"],
        Canary::PassLogBlocks => &["--workload", "race", "--layout", "single-log"],
    }
}

/// Makes each fault within reach in processes of their own. True when all are caught.
pub fn all_are_caught() -> Result<bool, Box<dyn std::error::Error>> {
    let mut all = true;
    for canary in Canary::ALL {
        let began = Instant::now();
        let output = Command::new(std::env::current_exe()?)
            .args(["--canary", canary.name(), "--stop", "--cuts", CUTS])
            .args(options_of(canary))
            .stderr(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let how = text.lines().find(|line| line.contains(" FAILED: "));
        let seconds = began.elapsed().as_secs_f64();
        match how.filter(|_| !output.status.success()) {
            Some(how) => println!("{} is caught in {seconds:.1} s: {how}", canary.name()),
            None => {
                all = false;
                let last = text.lines().last().unwrap_or_default();
                println!("{} is NOT caught: {last}", canary.name());
            }
        }
    }
    Ok(all)
}

/// Makes the fault of this name from now on.
pub fn choose(name: &str) -> Result<(), String> {
    let found = Canary::ALL.into_iter().find(|canary| canary.name() == name);
    let canary = found.ok_or_else(|| {
        let names = Canary::ALL.map(Canary::name);
        format!("there is no canary {name}: {}", names.join(", "))
    })?;
    make(canary)
}

#[cfg(feature = "canary")]
fn make(canary: Canary) -> Result<(), String> {
    tarn_host::canary::choose(canary);
    Ok(())
}

#[cfg(not(feature = "canary"))]
fn make(canary: Canary) -> Result<(), String> {
    Err(format!(
        "{} is not compiled in: build with the feature canary, as cargo xtask sim does",
        canary.name()
    ))
}
