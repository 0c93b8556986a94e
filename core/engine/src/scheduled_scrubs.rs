//! Scrubs that begin by themselves, by the property `tarn:scrub_schedule` of a pool.
//!
//! A thread looks at all pools once a minute. It holds no lock while it waits, and a pool that does
//! not answer is asked again the next time.

use crate::engine::Engine;
use crate::importing::dates::local_time;
use std::sync::Arc;
use std::time::Duration;
use tarn_pool::ScanChange;
use tarn_pool::scan::schedule::minute_of;
use tarn_probe::{Operation, OperationKind};

/// How often the thread looks, in nanoseconds.
const LOOK_NS: u64 = 60_000_000_000;

/// How long it waits at a time. It wakes up earlier when the engine stops, and for events.
const PATIENCE: Duration = Duration::from_secs(60);

impl Engine {
    /// Starts the thread, which ends when the engine stops.
    pub fn start_scheduled_scrubs(self: &Arc<Self>) {
        let (engine, events) = (Arc::downgrade(self), self.events.clone());
        let run = move || {
            let mut looked_ns: Option<u64> = None;
            while !events.is_closed() {
                let _ = events.wait_after(events.newest(), 1, PATIENCE);
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                let now_ns = engine.host.monotonic_ns();
                let is_time = looked_ns.is_none_or(|looked| now_ns - looked >= LOOK_NS);
                if is_time && !events.is_closed() {
                    engine.begin_due_scrubs();
                    looked_ns = Some(now_ns);
                }
            }
        };
        drop(self.host.spawn("tarn-schedule", run));
    }

    /// Begins the scrubs that are due.
    fn begin_due_scrubs(&self) {
        let now_s = self.host.unix_time().seconds;
        let minute = minute_of(&local_time(now_s, "%H:%M")).unwrap_or(0);
        for open in self.pools() {
            let kind = OperationKind::Administration;
            let operation = Operation::internal(tarn_host::monotonic_ns, kind);
            // A pool whose properties cannot be read now is looked at again.
            if open.pool.is_scrub_due(minute, &operation).unwrap_or(false) {
                drop(open.pool.change_scan(ScanChange::Scrub, &operation));
            }
            operation.finish();
        }
    }
}
