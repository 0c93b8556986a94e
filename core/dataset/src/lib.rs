//! The `dataset` layer.

pub mod properties;
