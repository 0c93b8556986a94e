//! Scenarios: pools at the prompt.

use super::Scenario;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[];
