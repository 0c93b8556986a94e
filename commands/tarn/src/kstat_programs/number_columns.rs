//! Numbers in columns of a fixed width, as `zarcstat` and `zilstat` print them.

/// A number of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// It was counted.
    Whole(i128),
    /// It was computed: a rate, a share.
    Real(f64),
}

impl Number {
    /// As a number with a point.
    pub fn real(self) -> f64 {
        match self {
            Number::Whole(number) => number as f64,
            Number::Real(number) => number,
        }
    }

    /// All of its digits: those of a real number tell it from all others, and have a point.
    pub fn exact(self) -> String {
        let number = match self {
            Number::Whole(number) => return number.to_string(),
            Number::Real(number) => number,
        };
        let size = number.abs();
        match number == 0.0 || (1e-4..1e16).contains(&size) {
            true => format!("{number:?}"),
            false => {
                let text = format!("{number:e}");
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, exponent) = match exponent.strip_prefix('-') {
                    Some(exponent) => ('-', exponent),
                    None => ('+', exponent),
                };
                format!("{digits}e{sign}{exponent:0>2}")
            }
        }
    }
}

/// What follows a number that was divided so many times.
const SUFFIXES: [&str; 6] = ["", "K", "M", "G", "T", "P"];

/// The size of what is left of a number, and how often it was divided. It is divided while it is
/// more than `step`.
fn divided(number: f64, step: Option<f64>) -> (f64, usize) {
    let (mut number, mut times) = (number, 0);
    if let Some(step) = step {
        while number.abs() > step && times < SUFFIXES.len() - 1 {
            number /= step;
            times += 1;
        }
    }
    (number, times)
}

/// A number of `zarcstat` in a column: one digit behind the point where there is room for it.
/// Rates of a second that are whole have no point.
pub fn rounded(number: Number, width: usize, step: Option<f64>, interval_s: u64) -> String {
    let (left, times) = divided(number.real(), step);
    let suffix = SUFFIXES[times];
    let room = width - suffix.len();
    let whole = format!("{left:.0}");
    let is_whole = interval_s == 1 && left.fract() == 0.0;
    match !is_whole && whole.len() + 2 <= room {
        true => format!("{left:>room$.1}{suffix}"),
        false => format!("{whole:>room$}{suffix}"),
    }
}

/// A number of `zilstat` in a column: one digit behind the point below ten.
pub fn cut(number: i128, width: usize, step: Option<f64>) -> String {
    let (left, times) = divided(number as f64, step);
    let suffix = SUFFIXES[times];
    let room = width - suffix.len();
    match times > 0 && left.abs() < 10.0 {
        true => format!("{left:>room$.1}{suffix}"),
        false => format!("{:>room$}{suffix}", left.trunc() as i128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What OpenZFS 2.3.2's `arcstat` printed for a `size` of these bytes.
    #[test]
    fn sizes_are_divided_while_they_are_more_than_1024() {
        for (bytes, text) in [
            (0, "    0"),
            (1000, " 1000"),
            (1024, " 1024"),
            (1025, " 1.0K"),
            (1280, " 1.2K"),
            (10_199, "10.0K"),
            (10_239, "10.0K"),
            (10_240, "  10K"),
            (99_999, "97.7K"),
            (101_376, "  99K"),
            (101_877, "99.5K"),
            (101_888, " 100K"),
            (1_048_576, "1024K"),
            (1_000_000_000, " 954M"),
            (1 << 60, "1024P"),
            (1 << 63, "8192P"),
            (-5000, "-4.9K"),
            (-500, " -500"),
        ] {
            let printed = rounded(Number::Whole(bytes), 5, Some(1024.0), 1);
            assert_eq!(printed, text, "{bytes}");
        }
        let two_seconds = |bytes| rounded(Number::Whole(bytes), 5, Some(1024.0), 2);
        assert_eq!(two_seconds(10_240), "10.0K");
        assert_eq!(two_seconds(1012), " 1012");
    }

    #[test]
    fn rates_have_a_point_where_there_is_room() {
        let of = |rate: f64, seconds| rounded(Number::Real(rate), 4, Some(1000.0), seconds);
        for (rate, seconds, text) in [
            (7.0, 1, "   7"),
            (6.0, 2, " 6.0"),
            (3.5, 2, " 3.5"),
            (123_457.0, 1, "123K"),
            (1999.0, 1, "2.0K"),
            (2000.0, 1, "  2K"),
            (61_728.5, 2, " 62K"),
            (500.5, 2, " 500"),
            (499.5, 2, " 500"),
            (95_005.0, 1, " 95K"),
            (5002.5, 2, "5.0K"),
        ] {
            assert_eq!(of(rate, seconds), text, "{rate}");
        }
        let share = |share: f64, width| rounded(Number::Real(share), width, None, 1);
        assert_eq!(share(77.77777777777777, 3), " 78");
        assert_eq!(share(99.999, 5), "100.0");
        assert_eq!(share(99.8, 4), " 100");
        assert_eq!(share(58.333, 4), "58.3");
    }

    /// What OpenZFS 2.3.2's `zilstat` printed.
    #[test]
    fn logs_have_a_point_below_ten() {
        let of = |number, step| cut(number, 5, Some(step));
        for (number, count, bytes) in [
            (5, "    5", "    5"),
            (1000, " 1000", " 1000"),
            (1001, " 1.0K", " 1001"),
            (99_999, "  99K", "  97K"),
            (102_399, " 102K", "  99K"),
            (10_240, "  10K", "  10K"),
            (10_188, "  10K", " 9.9K"),
            (10_199, "  10K", "10.0K"),
            (9999, "10.0K", " 9.8K"),
            (999_999, " 999K", " 976K"),
            (1_000_000_000_000_000_000, "1000P", " 888P"),
        ] {
            assert_eq!(of(number, 1000.0), count, "{number}");
            assert_eq!(of(number, 1024.0), bytes, "{number}");
        }
        assert_eq!(cut(97, 4, None), "  97");
    }

    #[test]
    fn exact_numbers_have_all_digits() {
        for (number, text) in [
            (Number::Whole(10_822_496), "10822496"),
            (Number::Real(12.0), "12.0"),
            (Number::Real(58.333333333333336), "58.333333333333336"),
            (Number::Real(0.0008099986229979095), "0.0008099986229979095"),
            (Number::Real(0.00002), "2e-05"),
            (Number::Real(1e16), "1e+16"),
        ] {
            assert_eq!(number.exact(), text);
        }
    }
}
