//! The `host` layer.
