//! The `fuse` layer.
