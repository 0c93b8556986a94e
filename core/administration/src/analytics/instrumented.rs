//! What an instrumentation was asked for.

use tarn_analytics::Statement;

/// An instrumentation that counts.
#[derive(Debug, Clone)]
pub(crate) struct Instrumented {
    /// With its filter.
    pub(crate) statement: Statement,
    /// How many keys are told apart.
    pub(crate) keys: u32,
}
