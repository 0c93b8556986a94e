//! Datasets: file systems, volumes, snapshots, and the tree of directories that names them.
//!
//! # Problem
//! A pool holds thousands of file systems, each with properties, limits and space counts that must
//! be right to the byte, in a tree that is renamed and destroyed while it is in use.
//!
//! # Mechanism
//! The tree is stored in the MOS, as directories and datasets ([`namespace`] has the theory). A
//! change to it is a task that runs in the syncing txg, where nothing else can change; reading
//! needs no lock. Space is counted where blocks are born and killed ([`space_used`]). Properties
//! are looked up along the tree ([`properties::inherit`]).
//!
//! # Knows nothing about
//! Files, devices, mounts.

mod chain_changes;
pub mod contents;
mod counting_bookmarks;
mod creation;
pub mod crypto_key;
pub mod dataset;
mod deadlist;
pub mod delegation;
pub mod directory;
pub mod error;
mod feature_use;
mod filesystem_counts;
pub mod free_in_background;
mod heads;
pub mod in_use;
pub mod initialize;
pub mod intent_log;
pub mod ledger;
pub mod limits;
mod livelist;
pub mod look_through;
pub mod names;
pub mod namespace;
mod open;
mod open_logs;
pub mod ops;
pub mod properties;
pub mod receiving;
mod snapshot_names;
pub mod snapshots_served;
mod space_charge;
pub mod space_door;
pub mod space_used;
mod stored;
mod stored_tree;
mod sync_datasets;
pub mod task;
pub mod volume_reservation;
mod writing;

pub use chain_changes::ChainChange;
