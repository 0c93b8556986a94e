//! Scenarios: the kernel's page cache beside what is stored.

use super::Scenario;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[];
