//! How large an answer may be.

/// An answer would have too many columns and keys. The sender's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{columns} columns of {keys} keys are more than an answer has ({CELLS_MAX}): \
     take wider columns, a shorter time, or fewer keys"
)]
pub struct AnswerTooLarge {
    /// Columns asked for.
    pub columns: u64,
    /// Keys asked for.
    pub keys: usize,
}

/// Columns times keys of an answer, total and `other` included.
pub const CELLS_MAX: u64 = 65_536;

/// How many columns an answer has with so many keys.
///
/// # Errors
/// More columns and keys than an answer has.
pub fn columns_of_answer(columns: u64, keys: usize) -> Result<usize, AnswerTooLarge> {
    let rows = u64::try_from(keys).unwrap_or(u64::MAX).saturating_add(2);
    match columns.checked_mul(rows) {
        Some(cells) if cells <= CELLS_MAX => {
            Ok(usize::try_from(columns).expect("at most the cells"))
        }
        _ => Err(AnswerTooLarge { columns, keys }),
    }
}
