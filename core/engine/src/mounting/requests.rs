//! Requests to mount and unmount file systems.

use crate::refusals::Refusal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `zfs mount`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Mount {
    /// Full name; `None` for `-a`.
    #[serde(default)]
    pub name: Option<String>,
    /// `-R`: with what is below it.
    #[serde(default)]
    pub recursive: bool,
    /// `-o` options.
    #[serde(default)]
    pub options: Vec<String>,
    /// `-O`: over a folder that is not empty.
    #[serde(default)]
    pub overlay: bool,
    /// `-f`.
    #[serde(default)]
    pub force: bool,
    /// The folder that mount(8) names: a path without symbolic links in the daemon's mount
    /// namespace. None where the mount point decides.
    #[serde(default)]
    pub place: Option<String>,
    /// The number of the mount that this folder is in, as the caller sees it.
    #[serde(default)]
    pub place_mount: Option<u64>,
}

/// Reply to [`Mount`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Mounted {
    /// What was mounted, and where.
    pub mounts: Vec<MountEntry>,
    /// What could not be.
    #[serde(default)]
    pub refused: Vec<Refusal>,
}

/// One mount.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MountEntry {
    /// Dataset.
    pub dataset: String,
    /// Path.
    pub path: String,
}

/// `zfs unmount`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Unmount {
    /// Dataset or path; `None` for `-a`.
    #[serde(default)]
    pub name: Option<String>,
    /// `-f`.
    #[serde(default)]
    pub force: bool,
}

/// `zfs share`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// Full name; `None` for `-a`.
    #[serde(default)]
    pub name: Option<String>,
}

/// Reply to [`Share`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Shared {
    /// With `-a`: what could not be shared. All else is.
    #[serde(default)]
    pub refused: Vec<Refusal>,
}

/// `zfs unshare`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Unshare {
    /// Dataset or path; `None` for `-a`.
    #[serde(default)]
    pub name: Option<String>,
}

/// Reply to [`Unshare`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Unshared {
    /// With `-a`: what is still shared.
    #[serde(default)]
    pub refused: Vec<Refusal>,
}

/// Reply to [`Unmount`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Unmounted {
    /// With `-a`: what could not be unmounted. All else was.
    #[serde(default)]
    pub refused: Vec<Refusal>,
}
