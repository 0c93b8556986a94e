//! Scenarios: names, attributes and contents of files on a mount.

use super::Scenario;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[];
