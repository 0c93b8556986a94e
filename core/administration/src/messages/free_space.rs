//! Requests and replies of `zpool initialize` and `zpool trim`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FreeSpaceCommand {
    /// Begin, or go on.
    #[default]
    Start,
    /// `-c`: end it.
    Cancel,
    /// `-s`: end it, to be started again.
    Suspend,
    /// `-u`: forget that it was ever done. Only of initializing.
    Forget,
}

/// `zpool initialize`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Initialize {
    /// The pool.
    pub name: String,
    /// The devices; all when empty.
    #[serde(default)]
    pub devices: Vec<String>,
    /// What is asked for.
    #[serde(default)]
    pub command: FreeSpaceCommand,
}

/// `zpool trim`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trim {
    /// The pool.
    pub name: String,
    /// The devices; all when empty.
    #[serde(default)]
    pub devices: Vec<String>,
    /// What is asked for.
    #[serde(default)]
    pub command: FreeSpaceCommand,
    /// `-r`: most bytes in a second; zero for no limit.
    #[serde(default)]
    pub rate: u64,
    /// `-d`: contents must not be recoverable.
    #[serde(default)]
    pub secure: bool,
}

/// Reply to [`Initialize`] and [`Trim`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FreeSpaceReply {
    /// The guids of the devices where it was done.
    #[serde(default)]
    pub devices: Vec<u64>,
    /// Why it was not done at others.
    #[serde(default)]
    pub refused: Vec<super::Refusal>,
}

/// How far initializing or trimming of a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FreeSpaceStatus {
    /// Whether it goes on.
    pub state: FreeSpaceState,
    /// When the state changed, in unix seconds.
    pub time_s: u64,
    /// What was done, in bytes.
    pub done_bytes: u64,
    /// How much there is to do in all, about.
    pub estimated_bytes: u64,
    /// How many requests failed.
    #[serde(default)]
    pub errors: u64,
}

/// Whether initializing or trimming goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FreeSpaceState {
    /// It goes on.
    Active,
    /// It was ended without the rest.
    Canceled,
    /// It was ended, to be started again.
    Suspended,
    /// It came to its end.
    Complete,
}
