//! Of the checkpoint of a pool.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is done with the checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointAction {
    /// The present state of the pool is kept.
    #[default]
    Create,
    /// `-d`: the state that is kept is given up; its space is freed by and by.
    Discard,
}

/// `zpool checkpoint`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// The pool.
    pub name: String,
    /// What is done.
    #[serde(default)]
    pub action: CheckpointAction,
}
