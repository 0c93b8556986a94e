//! Statements and filters as they are asked, with the names that are known when they are.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::{Refusal, RefusalKind};
use std::sync::Arc;
use tarn_analytics::{Analytics, CompiledPredicate, Predicate, Statement, ValueNames};
use tarn_archive::Sampled;
use tarn_probe::Operation;

/// What is asked.
pub(crate) struct Asked {
    /// With the filter.
    pub(crate) statement: Statement,
    pub(crate) predicate: CompiledPredicate,
    pub(super) names: ValueNames,
}

/// The refusal of something asked that cannot be.
pub(super) fn invalid(statement: &str, why: impl Into<String>) -> Refusal {
    let action = format!("cannot answer '{statement}'");
    Refusal::new(RefusalKind::Invalid, action, why)
}

impl Administrator {
    /// Refuses a caller that may not see names.
    pub(crate) fn may_see_names(&self, call: &Call) -> Result<(), Refusal> {
        if self.trusts(&call.caller) {
            return Ok(());
        }
        let reason = "permission denied";
        let refusal = Refusal::new(RefusalKind::Denied, "cannot show operations", reason);
        Err(refusal.with_hint(
            "they name clients, users and files: root and the user of tarnd may see them",
        ))
    }

    /// The operations that are kept, for a caller that may see names.
    pub(super) fn seen_operations(&self, call: &Call) -> Result<&Arc<Analytics>, Refusal> {
        self.may_see_names(call)?;
        let on = self.engine.analytics();
        on.ok_or_else(|| {
            let reason = "tarnd was started with --analytics off";
            Refusal::new(RefusalKind::Unsupported, "no operations are kept", reason)
        })
    }

    /// Understands a statement and a filter.
    pub(crate) fn understand(
        &self,
        text: &str,
        filter: Option<&serde_json::Value>,
        operation: &Operation,
    ) -> Result<Asked, Refusal> {
        if let Ok(Some(_)) = Sampled::parse(text) {
            return Err(sampled(text));
        }
        let statement = Statement::parse(text);
        let mut statement = statement.map_err(|error| invalid(text, error.to_string()))?;
        if let Some(filter) = filter {
            let filter = Predicate::from_json(filter);
            let filter = filter.map_err(|error| invalid(text, error.to_string()))?;
            statement.add_filter(filter);
        }
        let names = self.engine.names_for(&statement.predicate, operation);
        let predicate = statement.predicate.compile(&names);
        let predicate = predicate.map_err(|error| invalid(text, error.to_string()))?;
        Ok(Asked {
            statement,
            predicate,
            names,
        })
    }
}

/// Statistics that are not of operations are not counted as operations come.
fn sampled(text: &str) -> Refusal {
    let action = format!("cannot answer '{text}'");
    let reason = "it is sampled once a second, and has no single operations";
    let refusal = Refusal::new(RefusalKind::Unsupported, action, reason);
    refusal.with_hint("'tarn analytics query' answers it from the archive")
}
