//! The `cache` layer.
