//! Names under which a command asks how far a stream of its own is.

use std::time::{SystemTime, UNIX_EPOCH};

/// A name that no other command has.
pub fn name() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("{}-{}", std::process::id(), now.as_nanos())
}
