//! Queries over the operations that are held.

use super::asked_statement::invalid;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::Refusal;
use crate::messages::analytics::{Answer, Query};
use tarn_probe::Operation;

/// Most keys that an answer tells apart.
pub(super) const KEYS_MAX: u32 = 10_000;

impl Administrator {
    /// Answers a query.
    pub(crate) fn analytics_answer(
        &self,
        call: &Call,
        request: &Query,
        operation: &Operation,
    ) -> Result<Answer, Refusal> {
        let analytics = self.seen_operations(call)?;
        let asked = self.understand(&request.statement, request.filter.as_ref(), operation)?;
        let clock = self.wall_clock.lock().look(&self.engine.host);
        let range_ns = clock.columns(&request.when, request.column_ms, &self.engine.host);
        let range_ns = range_ns.map_err(|why| invalid(&request.statement, why))?;
        let query = tarn_analytics::Query {
            range_ns,
            column_ns: request.column_ms.saturating_mul(1_000_000),
            predicate: asked.predicate.clone(),
            breakdown: asked.statement.breakdown(),
            keys_max: usize::try_from(request.keys.min(KEYS_MAX)).unwrap_or(usize::MAX),
        };
        let answer = analytics.flight_recorder().answer(&query);
        let answer = answer.map_err(|error| invalid(&request.statement, error.to_string()))?;
        Ok(self.tell_answer(&asked.statement, asked.names, &answer, clock))
    }
}
