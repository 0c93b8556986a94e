//! What the calling thread has waited for locks, as operations take it.

use tarn_probe::LockWaits;

/// Until now.
pub(crate) fn lock_waits() -> LockWaits {
    let (thread, waited_ns) = tarn_host::lock_waits();
    LockWaits { thread, waited_ns }
}
