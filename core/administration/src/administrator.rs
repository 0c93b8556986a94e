//! The administrator: carries out commands on an engine, with the state that commands share.

use crate::alerts::alert_rules::AlertRules;
use crate::analytics::instrumented::Instrumented;
use crate::analytics::wall_clock::WallClock;
use crate::datasets::{Watched, WatchedReceive};
use crate::messages::pool::PoolDescription;
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_engine::Engine;
use tarn_host::lock::{Mutex, Rank};

/// Watched sends.
const WATCHED: Rank = Rank::new(tarn_host::ranks::ENGINE + 17, "watched sendings");
/// The last descriptions of pools.
const LAST_SEEN: Rank = Rank::new(tarn_host::ranks::ENGINE + 20, "last seen pools");
/// Watched receives.
const WATCHED_RECEIVES: Rank = Rank::new(tarn_host::ranks::ENGINE + 22, "watched receives");

/// Instrumentations of operations.
const INSTRUMENTED: Rank = Rank::new(tarn_host::ranks::ENGINE + 23, "instrumentations");
/// The difference of two clocks.
const WALL_CLOCK: Rank = Rank::new(tarn_host::ranks::ENGINE + 24, "wall clock");

/// Alerts, and how they are.
const ALERTS: Rank = Rank::new(tarn_host::ranks::ENGINE + 26, "alerts");

/// Carries out the commands of `zpool` and `zfs` on the pools of an engine.
pub struct Administrator {
    pub(crate) engine: Arc<Engine>,
    /// The last description of each open pool, by its `load_guid`: shown while the pool is stuck.
    pub(crate) last_seen: Mutex<BTreeMap<u64, PoolDescription>>,
    /// Sends that a command watches, by their names.
    pub(crate) watched: Mutex<BTreeMap<String, Arc<Watched>>>,
    /// Receives that a command watches, by their names.
    pub(crate) watched_receives: Mutex<BTreeMap<String, Arc<WatchedReceive>>>,
    /// What instrumentations were asked for, by their numbers.
    pub(crate) instrumented: Mutex<BTreeMap<u64, Instrumented>>,
    /// The time of day of operations.
    pub(crate) wall_clock: Mutex<WallClock>,
    /// Alerts, and how they are.
    pub(crate) alerts: Mutex<AlertRules>,
}

impl Administrator {
    /// Administration of the pools of this engine.
    pub fn new(engine: Arc<Engine>) -> Arc<Administrator> {
        Arc::new(Administrator {
            engine,
            last_seen: Mutex::new(LAST_SEEN, BTreeMap::new()),
            watched: Mutex::new(WATCHED, BTreeMap::new()),
            watched_receives: Mutex::new(WATCHED_RECEIVES, BTreeMap::new()),
            instrumented: Mutex::new(INSTRUMENTED, BTreeMap::new()),
            wall_clock: Mutex::new(WALL_CLOCK, WallClock::default()),
            alerts: Mutex::new(ALERTS, AlertRules::default()),
        })
    }
}
