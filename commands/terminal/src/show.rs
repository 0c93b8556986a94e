//! Values of properties, as `get` and `list` print them.
//!
//! A reply has exact values; this is where they become what people read. With `-p` numbers stay
//! exact. Which form a number takes depends on what it counts, and OpenZFS's choices are kept, odd
//! ones included: a quota of nothing is `none` for people and `0` with `-p`, but a limit of nothing
//! is `none` in both.

use crate::number;
use tarn_administration::messages::{PropertyValue, Source, Value};

/// How exact the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exactness {
    /// For people.
    Nice,
    /// `-p`: exact.
    Exact,
}

/// The value of a property as text.
pub fn value(name: &str, value: &PropertyValue, exactness: Exactness) -> String {
    match &value.value {
        Value::Absent => "-".to_string(),
        Value::Text(text) => text.clone(),
        Value::Number(number) => self::number(name, *number, exactness),
    }
}

/// A number, by what the property counts.
fn number(name: &str, number: u64, exactness: Exactness) -> String {
    let is_exact = exactness == Exactness::Exact;
    match name {
        "compressratio" | "refcompressratio" | "dedupratio" | "bcloneratio" => {
            number::ratio(number, is_exact)
        }
        "filesystem_limit" | "snapshot_limit" | "filesystem_count" | "snapshot_count"
            if number == u64::MAX =>
        {
            "none".to_string()
        }
        "dedup_table_quota" if number == u64::MAX => "auto".to_string(),
        "dedup_table_quota" if number == 0 => "none".to_string(),
        "expandsize" | "checkpoint" if number == 0 => "-".to_string(),
        "fragmentation" if number == u64::MAX => "-".to_string(),
        _ if is_exact => number.to_string(),
        "creation" | "snapshots_changed" => date(number),
        "capacity" | "fragmentation" => format!("{number}%"),
        "quota" | "refquota" | "reservation" | "refreservation" if number == 0 => {
            "none".to_string()
        }
        name if is_owner_quota(name) && number == 0 => "none".to_string(),
        name if counts_objects(name) => number::nice_count(number),
        "guid" | "createtxg" | "objsetid" | "load_guid" | "pbkdf2iters" | "userrefs"
        | "version" | "ashift" | "last_scrubbed_txg" | "filesystem_limit" | "snapshot_limit"
        | "filesystem_count" | "snapshot_count" => number.to_string(),
        _ => number::nice_bytes(number),
    }
}

/// Whether a property is a quota of a user, a group or a project: `userquota@ann`.
fn is_owner_quota(name: &str) -> bool {
    let beginning = name.split_once('@').map(|(beginning, _)| beginning);
    beginning.is_some_and(|beginning| beginning.ends_with("quota"))
}

/// Whether a property counts objects of a user, group or project. Default quotas are shown as
/// counts too, whatever they limit.
fn counts_objects(name: &str) -> bool {
    let beginning = name.split_once('@').map(|(beginning, _)| beginning);
    beginning
        .is_some_and(|beginning| beginning.ends_with("objused") || beginning.ends_with("objquota"))
        || (name.starts_with("default") && name.ends_with("quota"))
}

/// A date as `zfs get creation` prints it, in local time: `Fri Nov 20 18:45 2026`.
pub fn date(unix_seconds: u64) -> String {
    let seconds = i64::try_from(unix_seconds).unwrap_or(i64::MAX);
    let Ok(time) = jiff::Timestamp::from_second(seconds) else {
        return unix_seconds.to_string();
    };
    time.to_zoned(jiff::tz::TimeZone::system())
        .strftime("%a %b %e %k:%M %Y")
        .to_string()
}

/// The source column.
pub fn source(source: &Source) -> String {
    match source {
        Source::None => "-".to_string(),
        Source::Default => "default".to_string(),
        Source::Local => "local".to_string(),
        Source::Inherited(from) => format!("inherited from {from}"),
        Source::Temporary => "temporary".to_string(),
        Source::Received => "received".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, number: u64, exactness: Exactness) -> String {
        let value = PropertyValue {
            value: Value::Number(number),
            source: Source::None,
            received: None,
        };
        super::value(name, &value, exactness)
    }

    /// From `zfs get all` and `zfs get -p all` of OpenZFS 2.3.2.
    #[test]
    fn numbers_take_the_form_of_their_property() {
        for (name, number, nice, exact) in [
            ("used", 48_099_328, "45.9M", "48099328"),
            ("quota", 0, "none", "0"),
            ("compressratio", 176, "1.76x", "1.76"),
            (
                "guid",
                14_516_726_832_257_825_122,
                "14516726832257825122",
                "14516726832257825122",
            ),
            ("filesystem_limit", u64::MAX, "none", "none"),
            ("recordsize", 131_072, "128K", "131072"),
            ("fragmentation", 0, "0%", "0"),
            ("expandsize", 0, "-", "-"),
            ("dedup_table_quota", u64::MAX, "auto", "auto"),
            ("userquota@ann", 0, "none", "0"),
            ("projectquota@7", 1 << 30, "1G", "1073741824"),
            ("groupused@staff", 512, "512B", "512"),
            ("groupobjused@staff", 512, "512", "512"),
            ("userobjquota@ann", 2048, "2K", "2048"),
            ("defaultuserquota", 0, "0", "0"),
            ("defaultuserquota", 512, "512", "512"),
        ] {
            assert_eq!(shown(name, number, Exactness::Nice), nice, "{name}");
            assert_eq!(shown(name, number, Exactness::Exact), exact, "{name}");
        }
    }
}
