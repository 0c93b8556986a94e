//! Requests to import pools: what `zpool import` and the start of the daemon ask.

use crate::refusals::Refusal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where to look for pools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Search {
    /// `-d`: folders and devices; the usual ones when empty.
    #[serde(default)]
    pub places: Vec<String>,
    /// `-c`: a cache file instead.
    #[serde(default)]
    pub cache_file: Option<String>,
    /// `-D`: destroyed pools instead of the others.
    #[serde(default)]
    pub destroyed: bool,
}

/// `zpool import NAME|GUID` or `-a`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Import {
    /// Where to look.
    pub search: Search,
    /// Name or guid; `None` for `-a`.
    #[serde(default)]
    pub pool: Option<String>,
    /// The new name.
    #[serde(default)]
    pub rename: Option<String>,
    /// `-t`: the new name is for this session only.
    #[serde(default)]
    pub temporary: bool,
    /// `-o property=value` (pool properties, `readonly=on`, and mount options).
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// `-R`.
    #[serde(default)]
    pub altroot: Option<String>,
    /// `-N`: mount nothing.
    #[serde(default)]
    pub no_mount: bool,
    /// `-f`.
    #[serde(default)]
    pub force: bool,
    /// `-m`: without its log devices.
    #[serde(default)]
    pub missing_log: bool,
    /// `-F`: rewind if needed.
    #[serde(default)]
    pub rewind: bool,
    /// `-n` with `-F`.
    #[serde(default)]
    pub dry_run: bool,
    /// `-X` with `-F`: as far back as there is anything.
    #[serde(default)]
    pub extreme: bool,
    /// `-T`: this txg.
    #[serde(default)]
    pub txg: Option<u64>,
    /// `--rewind-to-checkpoint`: the state of the checkpoint; all that came later is given up.
    #[serde(default)]
    pub rewinds_to_checkpoint: bool,
}

/// Reply to [`Import`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Imported {
    /// Names of what was imported.
    pub pools: Vec<String>,
    /// What was given up by rewinding, or would be, in lines for people.
    #[serde(default)]
    pub notes: Vec<String>,
    /// `-n`: nothing was imported, and this pool cannot be without being rewound, if at all.
    #[serde(default)]
    pub is_trial_failed: bool,
    /// Warnings for people, such as mounts that failed.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Pools of `-a` that could not be imported, each with its reason.
    #[serde(default)]
    pub refused: Vec<Refusal>,
}
