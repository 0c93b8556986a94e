//! How a command fails: what it says, and its exit code.

use tarn_administration::messages::{Refusal, RefusalKind};
use tarn_api::client::CallError;

/// A subcommand's result: the exit code, or why there is nothing more to do.
pub type Outcome = Result<u8, Failure>;

/// Why a command ends early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The command line makes no sense: this text (if any), the usage, and exit code 2.
    Usage(String),
    /// This text and exit code 1.
    Error(String),
    /// Everything was said already; this exit code.
    Silent(u8),
}

impl Failure {
    /// A usage error with its text.
    pub fn usage(text: impl Into<String>) -> Self {
        Failure::Usage(text.into())
    }

    /// An error with its text.
    pub fn error(text: impl Into<String>) -> Self {
        Failure::Error(text.into())
    }

    /// What the daemon refused, where OpenZFS takes a dataset that is not there for a wrong command
    /// line.
    pub fn usage_if_not_there(error: CallError) -> Self {
        match &error {
            CallError::Refused(refusal)
                if refusal.kind == RefusalKind::NotFound
                    && refusal.action.starts_with("cannot open") =>
            {
                Failure::usage(refusal.to_string())
            }
            _ => error.into(),
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Failure::Error(error.to_string())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Error(refusal.to_string())
    }
}

/// Says on standard error what was refused. The command goes on with its other operands.
pub fn complain(error: impl std::fmt::Display) {
    crate::output::complain(&error.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_that_is_not_there_is_a_wrong_command_line() {
        let refusal = |kind, action| CallError::Refused(Refusal::new(kind, action, "no"));
        assert!(matches!(
            Failure::usage_if_not_there(refusal(RefusalKind::NotFound, "cannot open 'x'")),
            Failure::Usage(_)
        ));
        assert!(matches!(
            Failure::usage_if_not_there(refusal(
                RefusalKind::Exists,
                "cannot create snapshot 'x@a'"
            )),
            Failure::Error(_)
        ));
    }
}
