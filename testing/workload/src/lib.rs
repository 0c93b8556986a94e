//! The `workload` layer.
