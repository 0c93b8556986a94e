//! Requests and replies of `zfs allow` and `zfs unallow`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The holder of delegated permissions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Holder {
    /// `-s`: a set of permissions, by its name with the `@`.
    Set(String),
    /// `-c`: the creator of a dataset below.
    Creator,
    /// `-u`: a user, by number.
    User(u32),
    /// `-g`: a group, by number.
    Group(u32),
    /// `-e`.
    Everyone,
}

/// Permissions that are delegated, or taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// The holder.
    pub holder: Holder,
    /// `-l`: for the dataset itself. Sets and creators have neither this nor the other.
    #[serde(default)]
    pub local: bool,
    /// `-d`: for what is below it, and for snapshots.
    #[serde(default)]
    pub descendent: bool,
    /// Names of permissions, and of sets with their `@`. To take back: all, when empty.
    #[serde(default)]
    pub permissions: Vec<String>,
}

/// `zfs allow`: delegates permissions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Allow {
    /// Full name of a file system or volume.
    pub name: String,
    /// What is given.
    pub grants: Vec<Grant>,
}

/// `zfs unallow`: takes permissions back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unallow {
    /// Full name of a file system or volume.
    pub name: String,
    /// What is taken back.
    pub grants: Vec<Grant>,
    /// `-r`: of everything below it too.
    #[serde(default)]
    pub recursive: bool,
}

/// `zfs allow DATASET`: what is delegated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListAllowed {
    /// Full name of a file system or volume.
    pub name: String,
}

/// Reply to [`ListAllowed`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Allowed {
    /// The dataset and those above it that delegate something, the nearest first.
    pub places: Vec<AllowedAt>,
}

/// What one dataset delegates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllowedAt {
    /// Its full name.
    pub dataset: String,
    /// Each holder may come several times.
    pub grants: Vec<Grant>,
}
