//! The `posix` layer.
