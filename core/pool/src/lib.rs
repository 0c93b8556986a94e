//! Pools: all layers put together.
//!
//! # Mechanism
//! [`Pool`] owns what the layers below share: the device tree, what is free, the pipelines, the cached
//! view, the transaction groups, the MOS, and the tree of datasets. [`import`](mod@import) finds all of it from labels;
//! `create` makes it; `sync` stores one group after the other.
//!
//! # Knows nothing about
//! Files, mounts, commands.

pub mod checkpoint;
pub mod directory;
pub mod error;
pub mod features;
pub mod history;
pub mod import;
pub mod pool;
pub mod size;

pub use error::{ImportError, PoolError};
pub use import::ImportRequest;
pub use pool::{Mode, Pool};
