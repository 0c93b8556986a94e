//! Mounts made by mount(8) come back when the daemon starts again.
//!
//! # Problem
//! The mount points of file systems with `mountpoint=legacy` are in no property: `/etc/fstab` has
//! them, or nothing. A kernel keeps such a mount until umount(8) ends it; a daemon that is
//! restarted has to mount it again.
//!
//! # Mechanism
//! A file in the run folder, which a reboot clears, lists these mounts with their folders and
//! options; after a reboot `/etc/fstab` counts. The file is written after each such mount, and once
//! more when the daemon stops in order. umount(8) does not update it. So after a crash only those
//! file systems are mounted again whose dead mounts are still on their folders.

use super::mount::cannot_mount;
use crate::engine::Engine;
use crate::mount_options::TemporaryOptions;
use crate::refusals::{Refusal, RefusalKind};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tarn_host::FileKind;
use tarn_probe::Operation;

/// The contents of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Remembered {
    /// The daemon wrote it at an orderly stop.
    is_last: bool,
    mounts: Vec<ByHand>,
}

/// One mount.
#[derive(Debug, Serialize, Deserialize)]
struct ByHand {
    dataset: String,
    place: PathBuf,
    options: TemporaryOptions,
}

impl Engine {
    /// Writes the list of mounts made by mount(8). `is_last`: the daemon is about to stop. If it
    /// cannot be written, those file systems have to be mounted with mount(8) again.
    pub(crate) fn remember_by_hand(&self, is_last: bool) {
        let mut mounts = Vec::new();
        for open in self.pools() {
            open.look_for_mounts();
            let mut served = open.all_served();
            served.retain(|(_, served)| served.is_by_hand && open.is_mounted(served));
            mounts.extend(served.into_iter().map(|(dataset, served)| ByHand {
                dataset,
                place: served.place,
                options: served.temporary,
            }));
        }
        let path = self.instance.mounts();
        if mounts.is_empty() {
            drop(self.host.remove_file(&path));
            return;
        }
        let remembered = Remembered { is_last, mounts };
        if let Ok(text) = serde_json::to_vec(&remembered) {
            drop(self.host.write_file_atomically(&path, &text));
        }
    }

    /// Mounts again what mount(8) had mounted when the last daemon ended.
    pub(crate) fn mount_by_hand_again(&self, operation: &Operation) -> Vec<Refusal> {
        let read = self.host.read_file(&self.instance.mounts());
        let Ok(remembered) = read.map(|text| serde_json::from_slice(&text).unwrap_or_default())
        else {
            return Vec::new();
        };
        let Remembered { is_last, mounts } = remembered;
        let mut refused = Vec::new();
        for mount in mounts {
            let has_remains = self.mounter.clear_remains(&mount.place);
            let Some(open) = self.find_pool(mount.dataset.split('/').next().unwrap_or_default())
            else {
                continue;
            };
            if !is_last && !has_remains {
                continue;
            }
            if self.host.file_kind(&mount.place) != FileKind::Directory {
                let (action, at) = (cannot_mount(&mount.dataset), mount.place.display());
                let reason = format!("{at} is no folder any more");
                refused.push(Refusal::new(RefusalKind::NotFound, action, reason));
                continue;
            }
            let mounted = self.turn(&open).and_then(|_turn| {
                let (name, options) = (&mount.dataset, mount.options);
                self.mount_legacy(&open, name, &mount.place, options, operation)
            });
            refused.extend(mounted.err());
        }
        self.remember_by_hand(false);
        refused
    }
}
