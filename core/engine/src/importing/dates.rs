//! Dates and sizes in texts of OpenZFS: as `ctime` and `zfs_nicenum` write them.

/// A date in local time, as `ctime` writes it: `Fri Nov 20 18:45:12 2026`.
pub fn date(unix_s: u64) -> String {
    let seconds = i64::try_from(unix_s).unwrap_or(i64::MAX);
    local_time(seconds, "%a %b %e %H:%M:%S %Y")
}

/// A time in local time by a `strftime` pattern; the number itself when it is no time.
pub fn local_time(unix_s: i64, pattern: &str) -> String {
    match jiff::Timestamp::from_second(unix_s) {
        Ok(time) => {
            let zoned = time.to_zoned(jiff::tz::TimeZone::system());
            zoned.strftime(pattern).to_string()
        }
        Err(_) => unix_s.to_string(),
    }
}

/// A duration, as `zpool status` writes it: `00:01:05`, `2 days 03:00:00`.
pub fn duration(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let time = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    match days {
        0 => time,
        days => format!("{days} days {time}"),
    }
}

/// A number of bytes in few characters: `732K`, `1.50M`.
#[doc(alias = "zfs_nicenum")]
pub fn nice(number: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut index = 0;
    while index < UNITS.len() - 1 && number >> (10 * (index + 1)) != 0 {
        index += 1;
    }
    let shift = 10 * index;
    let (whole, unit) = (number >> shift, UNITS[index]);
    if index == 0 || whole << shift == number {
        return format!("{whole}{unit}");
    }
    // The largest numbers lose their last digits in this division, far below what is shown.
    let value = number as f64 / (1_u64 << shift) as f64;
    (0..=2)
        .rev()
        .map(|decimals| format!("{value:.decimals$}{unit}"))
        .find(|text| text.len() <= 5)
        .unwrap_or_else(|| format!("{value:.0}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_short() {
        assert_eq!(nice(749_568), "732K");
        assert_eq!(nice(1_572_864), "1.50M");
        assert_eq!(nice(1 << 30), "1G");
        assert_eq!(nice(0), "0");
        assert_eq!(duration(65), "00:01:05");
        assert_eq!(duration(2 * 86_400 + 3 * 3600), "2 days 03:00:00");
    }
}
