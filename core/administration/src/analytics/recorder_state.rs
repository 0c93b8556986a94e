//! What is kept of operations.

use super::told_answer::wide;
use crate::administrator::Administrator;
use crate::messages::analytics::{ArchivedState, RecorderState};
use tarn_archive::Archive;

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
            archive: self.engine.archive().map(|archive| archived_state(archive)),
        }
    }
}

fn archived_state(archive: &Archive) -> ArchivedState {
    let state = archive.state();
    let oldest = |oldest_s: Option<u64>| oldest_s.map(|oldest_s| oldest_s.saturating_mul(1000));
    let skipped = archive.skipped().into_iter();
    ArchivedState {
        bytes: state.bytes,
        cap_bytes: state.cap_bytes,
        series: wide(state.series),
        oldest_ms: state.oldest_s.map(oldest).to_vec(),
        refused: state.refused,
        skipped: skipped
            .map(|skipped| format!("{}: {}", skipped.path.display(), skipped.why))
            .collect(),
    }
}
