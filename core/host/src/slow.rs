//! Devices as slow as a rotating disk, for measurements: one request at a time, with a delay.

use parking_lot::{Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which devices are slowed, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowDevices {
    /// Those whose path begins with this.
    pub below: PathBuf,
    /// What each read, write or flush takes longer.
    pub time: Duration,
}

impl SlowDevices {
    /// From `MILLISECONDS:PATH`.
    pub(crate) fn parse(text: &str) -> Option<SlowDevices> {
        let (milliseconds, below) = text.split_once(':')?;
        let time = Duration::from_millis(milliseconds.parse().ok()?);
        (!below.is_empty()).then(|| SlowDevices {
            below: PathBuf::from(below),
            time,
        })
    }

    /// The arm of this device, if it is slowed.
    pub(crate) fn arm_of(&self, path: &Path) -> Option<Arm> {
        path.starts_with(&self.below).then(|| Arm {
            time: self.time,
            turn: Mutex::new(()),
        })
    }
}

/// What can be at one place at a time.
#[derive(Debug)]
pub(crate) struct Arm {
    time: Duration,
    turn: Mutex<()>,
}

impl Arm {
    /// Waits until no other request has the arm; it is the caller's until he drops it.
    pub(crate) fn take_turn(&self) -> Turn<'_> {
        Turn {
            time: self.time,
            _guard: self.turn.lock(),
        }
    }
}

/// The arm, for one request.
pub(crate) struct Turn<'a> {
    time: Duration,
    _guard: MutexGuard<'a, ()>,
}

impl Turn<'_> {
    /// Takes as long as the arm does: time in the device, and none in its queue.
    pub(crate) fn move_there(&self) {
        std::thread::sleep(self.time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_slowed_by_the_beginning_of_their_path() {
        let slow = SlowDevices::parse("8:/disks/slow").unwrap();
        assert_eq!(slow.time, Duration::from_millis(8));
        assert!(slow.arm_of(Path::new("/disks/slow/0")).is_some());
        assert!(slow.arm_of(Path::new("/disks/fast/0")).is_none());
        for wrong in ["8", "x:/disks", "8:", ":/disks"] {
            assert_eq!(SlowDevices::parse(wrong), None, "{wrong}");
        }
    }
}
