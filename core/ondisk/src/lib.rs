//! The `ondisk` layer.
