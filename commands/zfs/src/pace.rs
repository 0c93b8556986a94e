//! How fast a stream goes, and how long it will go on, for people before a screen.

use std::time::Duration;
use tarn_terminal::number::nice_bytes;

/// Bytes in each second, up to now.
pub fn rate(bytes: u64, elapsed: Duration) -> u64 {
    let nanoseconds = elapsed.as_nanos().max(1);
    let rate = u128::from(bytes) * 1_000_000_000 / nanoseconds;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The same in words: `128M/s`.
pub fn rate_text(bytes: u64, elapsed: Duration) -> String {
    format!("{}/s", nice_bytes(rate(bytes, elapsed)))
}

/// How long what is left takes if it goes on as up to now, in hours, minutes and seconds; `-` when
/// it does not go.
pub fn left_text(bytes: u64, expected_bytes: u64, elapsed: Duration) -> String {
    let rate = rate(bytes, elapsed);
    let left = expected_bytes.saturating_sub(bytes);
    if rate == 0 {
        return "-".to_string();
    }
    let seconds = left.div_ceil(rate);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_it_did_up_to_now() {
        let two = Duration::from_secs(2);
        assert_eq!(rate(0, Duration::ZERO), 0);
        assert_eq!(rate(3000, two), 1500);
        assert_eq!(rate_text(3 << 20, two), "1.50M/s");
        assert_eq!(left_text(1 << 20, 10 << 20, two), "00:00:18");
        assert_eq!(left_text(1000, 10_000_000, two), "05:33:18");
        assert_eq!(left_text(500, 1_000_000_000, two), "1111:06:38");
        // It was a guess.
        assert_eq!(left_text(2000, 1000, two), "00:00:00");
        assert_eq!(left_text(0, 1000, two), "-");
    }
}
