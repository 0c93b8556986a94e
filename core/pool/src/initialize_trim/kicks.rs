//! What the thread of `autotrim` waits for: stored txgs.

use std::sync::Arc;
use tarn_host::JoinHandle;
use tarn_host::lock::{Condvar, Mutex, Rank};

/// What the thread waits for.
const KICKS: Rank = Rank::new(tarn_host::ranks::POOL + 18, "autotrim");
/// The thread.
const THREAD: Rank = Rank::new(tarn_host::ranks::POOL + 17, "autotrim thread").across_waits();

/// The thread, if the property is on.
pub(crate) struct Autotrim {
    pub(crate) kicks: Arc<Kicks>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

pub(crate) struct Kicks {
    pub(crate) state: Mutex<KickState>,
    pub(crate) changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct KickState {
    pub(crate) is_on: bool,
    /// Txgs that were stored since the thread has last looked.
    pub(crate) stored: u64,
}

impl Autotrim {
    pub(crate) fn new() -> Autotrim {
        Autotrim {
            kicks: Arc::new(Kicks {
                state: Mutex::new(KICKS, KickState::default()),
                changed: Condvar::new(),
            }),
            thread: Mutex::new(THREAD, None),
        }
    }

    /// A txg was stored.
    #[doc(alias = "vdev_autotrim_kick")]
    pub(crate) fn kick(&self) {
        let mut state = self.kicks.state.lock();
        if state.is_on {
            state.stored += 1;
            drop(state);
            self.kicks.changed.notify_all();
        }
    }
}
