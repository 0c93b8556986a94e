//! Scenarios: promises of room, quotas and full pools.

use super::Scenario;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[];
