//! The same change to several datasets, one after the other.
//!
//! What fails is said, and the others go on. A pool's history shows the command once, however many
//! of its datasets were changed: only the first change of each pool carries the command line.

use tarn_administration::messages::Refusal;
use tarn_api::client::{CallError, Client};
use tarn_terminal::connection;
use tarn_terminal::failure::{Failure, complain};
use tarn_terminal::program::Session;

/// Calls for each of these datasets, sorted by name; gives the exit code, which is `code_failed`
/// when a change was refused, and 1 when there was no such dataset.
///
/// # Errors
/// Why nothing could be asked.
pub fn dataset(
    session: &Session,
    names: &[String],
    code_failed: u8,
    change: impl Fn(&Client, &str) -> Result<(), CallError>,
) -> Result<u8, Failure> {
    let recorded = session.connect()?;
    let unrecorded = connection::connect("")?;
    let mut changed_pools: Vec<&str> = Vec::new();
    let mut code = 0;
    for name in sorted(names) {
        let pool = name.split(['/', '@']).next().unwrap_or_default();
        let client = if changed_pools.contains(&pool) {
            &unrecorded
        } else {
            &recorded
        };
        match change(client, name) {
            Ok(()) => changed_pools.push(pool),
            Err(CallError::Refused(refusal)) => {
                complain(&refusal);
                code |= code_of(&refusal, code_failed);
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(code)
}

/// By name, each once.
fn sorted(names: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What could not be opened is told from what could not be changed.
fn code_of(refusal: &Refusal, code_failed: u8) -> u8 {
    if refusal.action.starts_with("cannot open") {
        1
    } else {
        code_failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_administration::messages::RefusalKind;

    #[test]
    fn datasets_are_changed_in_order_of_names_and_once() {
        let names = ["tank/b", "tank", "tank/b"].map(str::to_string);
        assert_eq!(sorted(&names), ["tank", "tank/b"]);
    }

    #[test]
    fn a_dataset_that_is_not_there_has_a_code_of_its_own() {
        let refusal = |action: &str| Refusal::new(RefusalKind::NotFound, action, "");
        assert_eq!(code_of(&refusal("cannot open 'tank/x'"), 255), 1);
        assert_eq!(
            code_of(&refusal("cannot set property for 'tank'"), 255),
            255
        );
    }
}
