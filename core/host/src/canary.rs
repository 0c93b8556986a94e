//! Deliberate faults that test the tests: each search for losses must find them.
//!
//! # Mechanism
//! A program that is built with the feature `canary` chooses at most one fault for its whole
//! process. Where the fault belongs, the core asks [`sings`]. Without the feature, as in all
//! programs that are shipped, the answer is a constant, and nothing of it is left in the code.
//!
//! # Invariants
//! - No fault but those chosen by a test, and none in a build without the feature.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Canary {
    /// Devices are not flushed before the uberblock is written.
    SkipFlush = 1,
    /// The uberblock is written before the devices are flushed, and not after.
    EarlyUberblock = 2,
    /// Devices are not flushed after blocks of an intent log were written.
    SkipLogFlush = 3,
    /// Some block that is killed is not freed.
    ForgetFree = 4,
    /// Records of an intent log are replayed though they were already.
    ReplayTwice = 5,
    /// A group is stored while blocks of an intent log that it knows are still on their way.
    PassLogBlocks = 6,
    /// Some reference to a block that is cloned is not counted.
    ForgetReference = 7,
    /// Blocks that records of clones in an intent log lead to get no references when the log is
    /// claimed.
    LeaveLoggedClones = 8,
    /// A resilver does not write to the devices that miss a block, and they count as whole then.
    SkipResilverWrite = 9,
    /// Freed blocks that the checkpoint has are handed out again.
    ForgetCheckpoint = 10,
}

impl Canary {
    /// All of them.
    pub const ALL: [Canary; 10] = [
        Canary::SkipFlush,
        Canary::EarlyUberblock,
        Canary::SkipLogFlush,
        Canary::ForgetFree,
        Canary::ReplayTwice,
        Canary::PassLogBlocks,
        Canary::ForgetReference,
        Canary::LeaveLoggedClones,
        Canary::SkipResilverWrite,
        Canary::ForgetCheckpoint,
    ];

    /// What it is called on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Canary::SkipFlush => "skip-flush",
            Canary::EarlyUberblock => "early-uberblock",
            Canary::SkipLogFlush => "skip-log-flush",
            Canary::ForgetFree => "forget-free",
            Canary::ReplayTwice => "replay-twice",
            Canary::PassLogBlocks => "pass-log-blocks",
            Canary::ForgetReference => "forget-reference",
            Canary::LeaveLoggedClones => "leave-logged-clones",
            Canary::SkipResilverWrite => "skip-resilver-write",
            Canary::ForgetCheckpoint => "forget-checkpoint",
        }
    }
}

#[cfg(feature = "canary")]
mod chosen {
    use super::Canary;
    use std::sync::atomic::{AtomicU8, Ordering};

    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// Chooses the fault of this process.
    pub fn choose(canary: Canary) {
        CHOSEN.store(canary as u8, Ordering::Relaxed);
    }

    /// Whether this fault is to be made.
    #[inline]
    pub fn sings(canary: Canary) -> bool {
        CHOSEN.load(Ordering::Relaxed) == canary as u8
    }
}

#[cfg(feature = "canary")]
pub use chosen::{choose, sings};

/// Whether this fault is to be made: never.
#[cfg(not(feature = "canary"))]
#[inline(always)]
pub const fn sings(_: Canary) -> bool {
    false
}
