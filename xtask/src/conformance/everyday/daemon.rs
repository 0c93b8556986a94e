//! Scenarios: what a daemon owes to the machine and to its callers.

use super::Scenario;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[];
