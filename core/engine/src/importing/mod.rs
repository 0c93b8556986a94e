//! Import and export of pools, and the cache file for the next start.

pub mod apply_settings;
pub mod cache_file;
pub mod compatibility;
pub mod dates;
mod export;
pub mod import;
pub mod import_refusal;
pub mod own_mounts;
pub mod requests;
pub mod search;
pub mod settings;
