//! Requests and replies of `zpool get` and `zpool set` for vdevs.

use super::Properties;
use super::pool::VdevStatus;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `zpool get PROPERTY POOL VDEV`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DescribeVdevs {
    /// The pool.
    pub name: String,
    /// The vdevs, by path, the last part of it, guid, kind and number, or `root`; all when empty.
    #[serde(default)]
    pub vdevs: Vec<String>,
}

/// Reply to [`DescribeVdevs`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DescribedVdevs {
    /// The vdevs, in the order in which they were named, or of the tree.
    pub vdevs: Vec<VdevDescription>,
    /// Names that no vdev has.
    #[serde(default)]
    pub unknown: Vec<String>,
}

/// A vdev with its properties.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VdevDescription {
    /// As it was named, or as `zpool status` names it with kind and number.
    pub name: String,
    /// Its status, without its members.
    pub vdev: VdevStatus,
    /// Properties.
    pub properties: Properties,
}

/// `zpool set PROPERTY=VALUE POOL VDEV`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetVdev {
    /// The pool.
    pub name: String,
    /// The vdev.
    pub vdev: String,
    /// The property.
    pub property: String,
    /// The new value.
    pub value: String,
}
