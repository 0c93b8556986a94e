//! The `probe` layer.
