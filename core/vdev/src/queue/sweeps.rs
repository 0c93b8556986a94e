//! Sweeps: calls of scans move over a device one after the other.
//!
//! # Problem
//! A few threads of a scan have runs of neighbours under way, so that one is read while another is
//! compared or written. Each sends its run in parts, as there is room. Where the parts of two runs
//! alternate, the arm of a disk goes to and fro between them, and moves longer than it reads.
//!
//! # Mechanism
//! A call of a scan takes its place in the line of each device, in the order of their guids, before
//! it has any request under way. It leaves the line when all its requests were sent; the next call
//! sends while the last ones are served, so the device is never without any.
//!
//! # Invariants
//! - A call waits in a line only while it has no request at any device, and with the lines of
//!   devices with smaller guids only: no two calls wait for each other.

use crate::ranks;
use tarn_host::lock::{Condvar, Mutex};

/// The line of one device.
#[derive(Debug)]
pub(crate) struct Sweeps {
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    /// The number of the next call that comes.
    next: u64,
    /// The number of the call whose turn it is.
    now: u64,
}

impl Sweeps {
    pub(crate) fn new() -> Sweeps {
        Sweeps {
            line: Mutex::new(ranks::ROOM, Line::default()),
            moved: Condvar::new(),
        }
    }

    /// Waits for the turn of the caller, which [ends](Sweeps::end) it.
    pub(crate) fn begin(&self) {
        let mut line = self.line.lock();
        let number = line.next;
        line.next += 1;
        self.moved.wait_while(&mut line, |line| line.now != number);
    }

    /// The turn of the caller is over.
    pub(crate) fn end(&self) {
        let mut line = self.line.lock();
        assert!(line.now < line.next, "a turn that ends had begun");
        line.now += 1;
        drop(line);
        self.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn calls_have_their_turns_in_the_order_in_which_they_came() {
        let sweeps = Arc::new(Sweeps::new());
        sweeps.begin();
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let threads: Vec<_> = (1..4u64)
            .map(|number| {
                let thread = std::thread::spawn({
                    let (sweeps, order) = (sweeps.clone(), order.clone());
                    move || {
                        sweeps.begin();
                        order.lock().unwrap().push(number);
                        sweeps.end();
                    }
                });
                while sweeps.line.lock().next <= number {
                    std::thread::yield_now();
                }
                thread
            })
            .collect();
        assert!(order.lock().unwrap().is_empty());
        sweeps.end();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(*order.lock().unwrap(), [1, 2, 3]);
    }
}
