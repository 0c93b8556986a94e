//! `[interval [count]]` at the end of a command line, and repeating by it.

use crate::failure::Failure;
use std::time::Duration;

/// How often to print.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Interval {
    /// Time between two outputs; zero for one output only.
    pub pause: Duration,
    /// How many outputs; 0 for no end.
    pub count: u64,
}

impl Interval {
    /// Takes the numbers off the end of the operands.
    ///
    /// # Errors
    /// An interval of zero.
    pub fn take(operands: &mut Vec<String>) -> Result<Interval, Failure> {
        let Some(last) = take_number(operands)? else {
            return Ok(Interval::default());
        };
        let Some(before) = take_number(operands)? else {
            return Ok(Interval {
                pause: Duration::from_secs_f64(last),
                count: 0,
            });
        };
        // The whole part, as a count has no other; a number from `take_number` is not negative.
        Ok(Interval {
            pause: Duration::from_secs_f64(before),
            count: last.trunc() as u64,
        })
    }

    /// Waits for the next output; false after the last. `done` outputs were printed.
    pub fn wait(&self, done: u64) -> bool {
        if self.pause.is_zero() || (self.count != 0 && done >= self.count) {
            return false;
        }
        std::thread::sleep(self.pause);
        true
    }
}

/// The last operand when it is a number.
fn take_number(operands: &mut Vec<String>) -> Result<Option<f64>, Failure> {
    let number = operands
        .last()
        .filter(|text| is_number(text))
        .and_then(|text| text.parse::<f64>().ok());
    // Longer pauses than a `Duration` holds make no sense either.
    let Some(number) = number.filter(|number| *number < 1e15) else {
        return Ok(None);
    };
    if number == 0.0 {
        return Err(Failure::usage("interval cannot be zero"));
    }
    operands.pop();
    Ok(Some(number))
}

/// Digits with at most one point, which is not the last character.
fn is_number(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_digit() || c == '.')
        && text.matches('.').count() <= 1
        && !text.ends_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(operands: &[&str]) -> (Vec<String>, Result<Interval, Failure>) {
        let mut operands: Vec<String> = operands.iter().map(|text| text.to_string()).collect();
        let interval = Interval::take(&mut operands);
        (operands, interval)
    }

    #[test]
    fn numbers_at_the_end_are_interval_and_count() {
        let (rest, interval) = taken(&["tank", "0.5", "3"]);
        assert_eq!(rest, ["tank"]);
        assert_eq!(
            interval,
            Ok(Interval {
                pause: Duration::from_millis(500),
                count: 3
            })
        );
        let (rest, interval) = taken(&["tank", "2"]);
        assert_eq!(rest, ["tank"]);
        assert_eq!(
            interval,
            Ok(Interval {
                pause: Duration::from_secs(2),
                count: 0
            })
        );
        assert_eq!(taken(&["tank"]).1, Ok(Interval::default()));
    }

    #[test]
    fn an_interval_of_zero_is_refused() {
        assert_eq!(
            taken(&["0"]).1,
            Err(Failure::usage("interval cannot be zero"))
        );
    }
}
