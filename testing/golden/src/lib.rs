//! The `golden` layer.
