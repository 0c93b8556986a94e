//! The `block` layer.
