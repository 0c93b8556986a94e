//! The times of txgs that a pool has in memory.

use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::txg_times::TxgTimes;

const NOTED: Rank = Rank::new(tarn_host::ranks::POOL + 20, "times of txgs");

/// The times of txgs, as the MOS has them.
pub(crate) struct TimesNoted(pub(crate) Mutex<Noted>);

/// The times of txgs, and when the last one was noted since the pool was opened, in seconds since
/// 1970.
#[derive(Default)]
pub(crate) struct Noted {
    pub(crate) times: TxgTimes,
    pub(crate) last_s: u64,
}

impl TimesNoted {
    pub(crate) fn new() -> TimesNoted {
        TimesNoted(Mutex::new(NOTED, Noted::default()))
    }
}
