//! The `vdev` layer.

pub mod config;
pub mod error;
pub mod gpt;
pub mod health;
pub mod label_config;
pub mod raidz_map;
pub mod sizes;
