//! What becomes of copies that do not verify while another does: [`Faults`].

use std::sync::atomic::{AtomicBool, Ordering};

/// What becomes of copies that were wrong, while another was right.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Faults<'a> {
    /// The device counts a checksum error, and the copy is self-healed.
    Heal,
    /// Nothing but a note that there are some: perhaps they are right, and what they were compared
    /// with is wrong.
    Note(&'a AtomicBool),
    /// The device counts a checksum error.
    Blame,
}

impl Faults<'_> {
    /// Something was wrong.
    pub(crate) fn note(self) {
        if let Faults::Note(noted) = self {
            noted.store(true, Ordering::Relaxed);
        }
    }
}

/// Says whether bytes are those that were wanted.
pub(crate) type Verify<'a> = &'a (dyn Fn(&[u8]) -> bool + Sync);
