//! Scenarios: file systems, snapshots and streams at the prompt.

use super::Scenario;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[];
