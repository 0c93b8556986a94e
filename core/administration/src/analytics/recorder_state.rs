//! What is kept of operations.

use super::told_answer::wide;
use crate::administrator::Administrator;
use crate::messages::analytics::RecorderState;

impl Administrator {
    /// What is kept. All may know: it names nothing.
    pub(crate) fn recorder_state(&self) -> RecorderState {
        let Some(analytics) = self.engine.analytics() else {
            return RecorderState::default();
        };
        let clock = self.wall_clock.lock().look(&self.engine.host);
        let state = analytics.flight_recorder().state();
        let passes = analytics.pass_totals();
        let unix_ms = |clock_ns: Option<u64>| clock_ns.map(|time| clock.unix_ms(time));
        RecorderState {
            is_on: true,
            held_from_ms: unix_ms(state.from_ns),
            held_until_ms: unix_ms(state.to_ns),
            records: state.held,
            bytes: wide(state.bytes),
            budget_bytes: wide(state.budget_bytes),
            drained: state.held + state.overwritten,
            dropped: state.dropped,
            pass_ns: passes.time_ns,
            passes: passes.passes,
            live: wide(analytics.instrumentations().len()),
        }
    }
}
