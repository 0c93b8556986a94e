//! The `oracle` layer.
