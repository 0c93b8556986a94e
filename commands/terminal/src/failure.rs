//! How a command fails: what it says, and its exit code.

use tarn_api::client::CallError;
use tarn_engine::messages::Refusal;

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
