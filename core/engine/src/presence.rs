//! Whether a caller still waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a caller still waits for the reply. Operations that take hours check it from time to
/// time. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Presence(Arc<AtomicBool>);

impl Presence {
    /// The caller has gone.
    pub fn end(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the caller has gone.
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
