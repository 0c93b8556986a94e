//! The `pool` layer.
