//! The `dataset` layer.
