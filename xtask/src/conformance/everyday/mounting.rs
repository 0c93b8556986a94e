//! Scenarios: what is mounted, where, and how it ends.

use super::{POOL, Scenario, Setting, expect, is_mounted};
use crate::workspace::Outcome;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[Scenario::new(
    "unmount-and-mount-keeps-files",
    unmount_and_mount_keeps_files,
)];

/// `zfs unmount` takes a mount away, `zfs mount` brings it back with what was written.
fn unmount_and_mount_keeps_files(here: &Setting) -> Outcome {
    let copied = here.program("cp", &["/proc/version", "version"])?;
    expect("cp ends with", Some(0), copied.code)?;
    here.answer(&format!("zfs unmount {POOL}"))?;
    expect("mounted after unmount", false, is_mounted(&here.mount)?)?;
    here.answer(&format!("zfs mount {POOL}"))?;
    expect("mounted after mount", true, is_mounted(&here.mount)?)?;
    here.script("cmp /proc/version version")?;
    here.answer(&format!("zpool export {POOL}"))?;
    let images = here.image.parent().ok_or("the image has a folder")?;
    here.answer(&format!("zpool import -N -d {} {POOL}", images.display()))?;
    Ok(())
}
