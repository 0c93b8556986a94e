//! The `space` layer.
