//! Programs that run for events, as `zed` runs zedlets.
//!
//! # Mechanism
//! A thread follows the events of all pools. For each it runs the executables of a folder whose
//! names begin with `all` or with the name of the event (`statechange-notify.sh`, `scrub_finish`),
//! in the order of their names, with the values of the event in their environment: `ZEVENT_CLASS`,
//! `ZEVENT_POOL`, `ZEVENT_VDEV_PATH` and so on, as `zed` names and formats them. So the scripts
//! that send mail for OpenZFS send it here.
//!
//! `child_program.rs` says which may run, and for how long. Pools never wait for a program: they
//! only post events, and what comes faster than programs run gives way in the ring.

use crate::child_program::{self, may_run};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tarn_administration::event_values::{EventVariables, variables};
use tarn_engine::Engine;

/// Most events that are taken at once.
const EVENTS_MAX: usize = 64;

/// How long the thread waits for the next event before it looks whether the daemon stops.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the thread, which ends when the engine stops. The folder need not exist yet.
pub fn start(engine: &Arc<Engine>, folder: PathBuf, log: fn(&str)) -> std::io::Result<()> {
    let events = engine.events.clone();
    let run = move || {
        // Programs are none of the disk's threads, as those of the daemon may be.
        let _ = rustix::process::configure_io_flusher_behavior(false);
        let mut seen = events.newest();
        while !events.is_closed() {
            let after = events.wait_after(seen, EVENTS_MAX, PATIENCE);
            for event in after.events {
                seen = event.id;
                let event = variables(&event.list);
                for program in programs(&folder, &event.name) {
                    if let Err(why) = run_program(&program, &folder, &event) {
                        log(&format!("{}: {why}", program.display()));
                    }
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("tarnd-events".to_string())
        .spawn(run)?;
    Ok(())
}

/// The programs of a folder for an event of this name, in their order.
#[doc(alias = "zed_exec_process")]
fn programs(folder: &Path, event: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let own = rustix::process::geteuid().as_raw();
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let metadata = std::fs::metadata(entry.path());
            (is_for(&name, "all") || is_for(&name, event))
                && metadata.is_ok_and(|metadata| may_run(&metadata, own))
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Whether a program's name begins with the name of an event, and no letter follows.
fn is_for(program: &str, event: &str) -> bool {
    let rest = program.strip_prefix(event);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
}

fn run_program(program: &Path, folder: &Path, event: &EventVariables) -> Result<(), String> {
    let folder = folder.to_string_lossy();
    let variables = event.variables.iter();
    let variables = variables.map(|(name, value)| (name.as_str(), value.as_str()));
    let place = [("ZED_ZEDLET_DIR", folder.as_ref())];
    child_program::run(program, place.into_iter().chain(variables))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_are_chosen_by_the_beginning_of_their_names() {
        assert!(is_for("all-debug.sh", "all"));
        assert!(is_for("statechange-notify.sh", "statechange"));
        assert!(is_for("scrub_finish", "scrub_finish"));
        assert!(!is_for("scrub_finished", "scrub_finish"));
        assert!(!is_for("allow.sh", "all"));
        assert!(!is_for("data-notify.sh", "io"));
    }

    #[test]
    fn programs_get_the_values_of_the_event_and_others_cannot_place_any() {
        let folder = std::env::temp_dir().join(format!("tarnd-events-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let output = folder.join("output");
        let write = |name: &str, mode: u32| {
            let path = folder.join(name);
            let text = format!(
                "#!/bin/sh\necho \"$0 $ZEVENT_POOL\" >> {}\n",
                output.display()
            );
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let (all, own) = (write("all-1", 0o755), write("io-2", 0o700));
        write("io-others", 0o777);
        write("io-plain", 0o644);
        assert_eq!(programs(&folder, "io"), [all.clone(), own]);
        let event = EventVariables {
            name: "io".to_string(),
            variables: vec![("ZEVENT_POOL".to_string(), "tank".to_string())],
        };
        run_program(&all, &folder, &event).unwrap();
        let said = std::fs::read_to_string(&output).unwrap();
        assert_eq!(said, format!("{} tank\n", all.display()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
