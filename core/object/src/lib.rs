//! The `object` layer.
