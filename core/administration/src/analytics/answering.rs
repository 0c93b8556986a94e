//! Queries over the operations that are held.

use super::asked_statement::invalid;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::Refusal;
use crate::messages::analytics::{Answer, Query};
use tarn_archive::{Asked as ArchiveAsked, Sampled};
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
        let clock = self.wall_clock.lock().look(&self.engine.host);
        if let Some(sampled) = sampled(request)? {
            return self.archived_answer(ArchiveAsked::Sampled(sampled), request, clock);
        }
        let asked = self.understand(&request.statement, request.filter.as_ref(), operation)?;
        let (begin, _) = (clock.range(&request.when, &self.engine.host))
            .map_err(|why| invalid(&request.statement, why))?;
        let held_ns = analytics.flight_recorder().state().from_ns;
        let held_ns = held_ns.map_or(i64::MAX, |held_ns| clock.unix_ns(held_ns));
        if begin < held_ns && request.column_ms >= 1000 && self.is_archived_before(held_ns) {
            // What the archive keeps no breakdown of is answered as far as operations are held.
            let archived = ArchiveAsked::Operations(asked.statement.clone());
            if let Ok(answer) = self.archived_answer(archived, request, clock) {
                return Ok(answer);
            }
        }
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

    /// Whether the archive has anything of the time before that, in unix nanoseconds.
    fn is_archived_before(&self, unix_ns: i64) -> bool {
        let oldest_s = self
            .engine
            .archive()
            .map(|archive| archive.state().oldest_s);
        let oldest_s = oldest_s.into_iter().flatten().flatten().min();
        oldest_s.is_some_and(|oldest_s| {
            i64::try_from(oldest_s).is_ok_and(|oldest_s| oldest_s < unix_ns / 1_000_000_000)
        })
    }
}

/// The sampled statistic that a query asks for, if it does.
fn sampled(request: &Query) -> Result<Option<Sampled>, Refusal> {
    let refused = |why: String| invalid(&request.statement, why);
    let sampled = Sampled::parse(&request.statement).map_err(|error| refused(error.to_string()))?;
    match (&sampled, &request.filter) {
        (Some(_), Some(_)) => {
            let why = "a sampled statistic has its filters in brackets: net.bytes[interface=eth0]";
            Err(refused(why.to_owned()))
        }
        _ => Ok(sampled),
    }
}
