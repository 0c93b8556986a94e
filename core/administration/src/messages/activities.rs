//! Requests and replies of `zpool wait`: what goes on in a pool by itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What can be waited for, in OpenZFS's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[doc(alias = "zpool_wait_activity_t")]
pub enum Activity {
    /// A checkpoint is discarded.
    Discard,
    /// Destroyed datasets are freed.
    Free,
    /// Free space is written for the first time.
    Initialize,
    /// Devices are replaced.
    Replace,
    /// A top-level vdev is emptied.
    Remove,
    /// Devices are resilvered.
    Resilver,
    /// The pool is scrubbed.
    Scrub,
    /// Free space is trimmed.
    Trim,
    /// A raidz vdev gets another device.
    RaidzExpand,
}

impl Activity {
    /// All, in their order.
    pub const ALL: [Activity; 9] = [
        Activity::Discard,
        Activity::Free,
        Activity::Initialize,
        Activity::Replace,
        Activity::Remove,
        Activity::Resilver,
        Activity::Scrub,
        Activity::Trim,
        Activity::RaidzExpand,
    ];

    /// As `zpool wait -t` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Activity::Discard => "discard",
            Activity::Free => "free",
            Activity::Initialize => "initialize",
            Activity::Replace => "replace",
            Activity::Remove => "remove",
            Activity::Resilver => "resilver",
            Activity::Scrub => "scrub",
            Activity::Trim => "trim",
            Activity::RaidzExpand => "raidz_expand",
        }
    }
}

/// `zpool wait`: what goes on in a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListActivities {
    /// The pool.
    pub name: String,
    /// What is asked for; everything when empty.
    #[serde(default)]
    pub activities: Vec<Activity>,
    /// Only these devices, by their guids, of initializing and trimming; all when empty.
    #[serde(default)]
    pub devices: Vec<u64>,
    /// Wait some time for the end of what is asked for.
    #[serde(default)]
    pub wait: bool,
}

/// Reply to [`ListActivities`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Activities {
    /// What goes on, of what was asked for.
    pub under_way: Vec<UnderWay>,
}

/// Something that goes on in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnderWay {
    /// What.
    pub activity: Activity,
    /// How much is left to do.
    pub left_bytes: u64,
}
