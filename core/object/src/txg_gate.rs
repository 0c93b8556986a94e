//! The gate of the open txg: holds are given out and given back without a lock.
//!
//! # Mechanism
//! One word counts the holds, and has a bit that says whether the gate is shut. A writer enters by
//! counting itself, unless the bit is set; then it waits under the lock of [`Txgs`](crate::Txgs),
//! whose owner shuts and opens the gate. The last one that leaves a shut gate tells the thread that
//! waits for that. Beside it are the numbers of the open and of the stored txg, for readers.
//!
//! # Invariants
//! - The number of the open txg changes only while the gate is shut and there is no hold: a hold
//!   and the number read after it belong together.

use std::sync::atomic::{AtomicU64, Ordering};

use tarn_ondisk::units::Txg;

/// Set while no hold is given out. Below it is the number of holds.
const SHUT: u64 = 1 << 63;

/// The gate.
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU64,
    open: AtomicU64,
    stored: AtomicU64,
}

impl Gate {
    /// Open, for the txg behind the stored one.
    pub(crate) fn new(stored: Txg) -> Gate {
        Gate {
            word: AtomicU64::new(0),
            open: AtomicU64::new(stored.next().get()),
            stored: AtomicU64::new(stored.get()),
        }
    }

    /// A hold on the open txg. None while the gate is shut.
    pub(crate) fn enter(&self) -> Option<Txg> {
        let more = |word: u64| (word & SHUT == 0).then_some(word + 1);
        let entered = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        entered.is_ok().then(|| self.open_txg())
    }

    /// Gives a hold back. True when it was the last one and the gate is shut: a thread may wait
    /// for that.
    pub(crate) fn leave(&self) -> bool {
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        assert!(before & !SHUT > 0, "a hold is dropped once");
        before == SHUT | 1
    }

    /// How many holds there are.
    pub(crate) fn holds(&self) -> u64 {
        self.word.load(Ordering::Acquire) & !SHUT
    }

    /// Gives out no holds from now on, or gives them out again. Called under the lock of the txgs.
    pub(crate) fn set_shut(&self, is_shut: bool) {
        match is_shut {
            true => self.word.fetch_or(SHUT, Ordering::AcqRel),
            false => self.word.fetch_and(!SHUT, Ordering::AcqRel),
        };
    }

    /// Sets the numbers of the open and of the stored txg.
    pub(crate) fn set_txgs(&self, open: Txg, stored: Txg) {
        let is_new = self.open_txg() != open;
        debug_assert!(!is_new || self.holds() == 0, "a hold keeps its txg open");
        self.open.store(open.get(), Ordering::Release);
        self.stored.store(stored.get(), Ordering::Release);
    }

    pub(crate) fn open_txg(&self) -> Txg {
        Txg::from(self.open.load(Ordering::Acquire))
    }

    pub(crate) fn stored_txg(&self) -> Txg {
        Txg::from(self.stored.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_shut_gate_lets_none_in_and_tells_who_leaves_last() {
        let gate = Gate::new(Txg::from(4));
        assert_eq!(gate.enter(), Some(Txg::from(5)));
        assert_eq!(gate.enter(), Some(Txg::from(5)));
        assert!(!gate.leave(), "it is open");
        gate.set_shut(true);
        assert_eq!((gate.enter(), gate.holds()), (None, 1));
        assert!(gate.leave());
        gate.set_txgs(Txg::from(6), Txg::from(5));
        gate.set_shut(false);
        assert_eq!(gate.enter(), Some(Txg::from(6)));
        assert_eq!(gate.stored_txg(), Txg::from(5));
    }

    #[test]
    fn a_hold_keeps_its_txg_open() {
        let (gate, is_over) = (Gate::new(Txg::from(1)), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        if let Some(txg) = gate.enter() {
                            assert_eq!(gate.open_txg(), txg);
                            gate.leave();
                        }
                    }
                });
            }
            for open in 3..500 {
                gate.set_shut(true);
                while gate.holds() > 0 {
                    std::thread::yield_now();
                }
                gate.set_txgs(Txg::from(open), Txg::from(open - 2));
                gate.set_shut(false);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(gate.holds(), 0);
    }
}
