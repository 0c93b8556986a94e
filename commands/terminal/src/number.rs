//! Numbers as the commands print them.
//!
//! A number is cut to at most five characters: `0B`, `512B`, `1.50K`, `10.0G`, `128M`. A whole
//! multiple of its unit has no decimals. `-p` prints exact numbers instead, and does not come
//! through here.

/// What a number counts, which decides its unit letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A count: no letter below 1024.
    Count,
    /// Bytes: `B` below 1024.
    Bytes,
    /// Nanoseconds.
    Time,
}

/// The number in at most five characters.
pub fn nice(number: u64, unit: Unit) -> String {
    let (letters, base): (&[&str], u64) = match unit {
        Unit::Count => (&["", "K", "M", "G", "T", "P", "E"], 1024),
        Unit::Bytes => (&["B", "K", "M", "G", "T", "P", "E"], 1024),
        Unit::Time => (&["ns", "us", "ms", "s"], 1000),
    };
    if unit == Unit::Time && number == 0 {
        return "-".to_string();
    }
    let (mut whole, mut index, mut divisor) = (number, 0, 1);
    while whole >= base && index + 1 < letters.len() {
        whole /= base;
        divisor *= base;
        index += 1;
    }
    let letter = letters[index];
    if index == 0 || number.is_multiple_of(divisor) || unit == Unit::Time {
        return format!("{whole}{letter}");
    }
    // The largest exact integers lose their last digits in this division, far below what is shown.
    let value = number as f64 / divisor as f64;
    (0..=2)
        .rev()
        .map(|decimals| format!("{value:.decimals$}{letter}"))
        .find(|text| text.len() <= 5)
        .unwrap_or_else(|| format!("{value:.0}{letter}"))
}

/// Bytes in at most five characters.
pub fn nice_bytes(bytes: u64) -> String {
    nice(bytes, Unit::Bytes)
}

/// A count in at most five characters.
pub fn nice_count(count: u64) -> String {
    nice(count, Unit::Count)
}

/// Nanoseconds in at most five characters; `-` for none.
pub fn nice_time(nanoseconds: u64) -> String {
    nice(nanoseconds, Unit::Time)
}

/// A ratio that is stored times 100: `1.76x`, or `1.76` when exact numbers are asked for.
pub fn ratio(hundredths: u64, exact: bool) -> String {
    let suffix = if exact { "" } else { "x" };
    format!("{}.{:02}{suffix}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are what `zfs list` and `zpool list` of OpenZFS 2.3.2 print for these
    /// numbers.
    #[test]
    fn numbers_fit_in_five_characters() {
        for (number, expected) in [
            (0, "0B"),
            (512, "512B"),
            (1023, "1023B"),
            (1024, "1K"),
            (1536, "1.50K"),
            (10_239, "10.0K"),
            (48_099_328, "45.9M"),
            (44_175_360, "42.1M"),
            (1_048_576, "1M"),
            (1_047_552, "1023K"),
            (u64::MAX, "16.0E"),
        ] {
            assert_eq!(nice_bytes(number), expected, "{number}");
        }
    }

    #[test]
    fn times_have_no_decimals() {
        assert_eq!(nice_time(0), "-");
        assert_eq!(nice_time(999), "999ns");
        assert_eq!(nice_time(1_999), "1us");
        assert_eq!(nice_time(72_000_000_000_000), "72000s");
    }

    #[test]
    fn ratios_have_two_decimals() {
        assert_eq!(ratio(100, false), "1.00x");
        assert_eq!(ratio(176, true), "1.76");
    }
}
