//! The `vdev` layer.
