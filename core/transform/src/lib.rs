//! The `transform` layer.
