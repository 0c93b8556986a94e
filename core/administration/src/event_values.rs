//! The values of events as environment variables, under the names and in the forms that OpenZFS's
//! `zed` gives its zedlets.

use tarn_engine::importing::dates::local_time;
use tarn_ondisk::nvlist::{NvList, NvValue};

/// What a program gets of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventVariables {
    /// The last part of its class: `statechange`, `scrub_finish`.
    pub name: String,
    /// Names and values.
    pub variables: Vec<(String, String)>,
}

/// The variables of an event.
#[doc(alias = "zed_event_service")]
pub fn variables(event: &NvList) -> EventVariables {
    let class = event.string("class").unwrap_or_default();
    let name = class.split_once("fs.zfs.").map_or(class, |(_, name)| name);
    let mut variables = Vec::new();
    for (name, value) in event.iter() {
        let name = name.to_string();
        variables.push((variable(&name), text(&name, value)));
        if let NvValue::Uint64(number) = value
            && let Some(word) = word_of(&name, *number)
        {
            variables.push((variable(&format!("{name}_str")), word.to_string()));
        }
    }
    variables.push((variable("subclass"), name.to_string()));
    if let Some(NvValue::Int64Array(time)) = event.get("time")
        && let [seconds, nanoseconds] = time.as_slice()
    {
        variables.push((variable("time_secs"), seconds.to_string()));
        variables.push((variable("time_nsecs"), nanoseconds.to_string()));
        let time = local_time(*seconds, "%Y-%m-%d %H:%M:%S%z");
        variables.push((variable("time_string"), time));
    }
    EventVariables {
        name: name.to_string(),
        variables,
    }
}

fn variable(name: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    let name: String = name.chars().map(plain).collect();
    format!("ZEVENT_{name}")
}

#[doc(alias = "_zed_event_add_nvpair")]
fn text(name: &str, value: &NvValue) -> String {
    let is_guid = name.ends_with("_guid") || name.ends_with("_guids");
    let number = |number: u64| match is_guid {
        true => format!("0x{number:016X}"),
        false => number.to_string(),
    };
    // Each element is followed by a space, the last one too.
    let each =
        |texts: Vec<String>| -> String { texts.iter().map(|text| format!("{text} ")).collect() };
    match value {
        NvValue::Boolean => "1".to_string(),
        NvValue::BooleanValue(flag) => u8::from(*flag).to_string(),
        NvValue::Uint8(number) => number.to_string(),
        NvValue::Int32(number) => number.to_string(),
        NvValue::Uint32(number) => number.to_string(),
        NvValue::Int64(number) => number.to_string(),
        NvValue::Uint64(value) => number(*value),
        NvValue::String(text) => text.to_string(),
        NvValue::Int64Array(numbers) => each(numbers.iter().map(ToString::to_string).collect()),
        NvValue::Uint64Array(numbers) => each(numbers.iter().copied().map(number).collect()),
        NvValue::StringArray(texts) => each(texts.iter().map(ToString::to_string).collect()),
        _ => "_NOT_IMPLEMENTED_".to_string(),
    }
}

/// The word for a state.
fn word_of(name: &str, number: u64) -> Option<&'static str> {
    match name {
        "vdev_state" | "vdev_laststate" => Some(match number {
            0..=2 => "OFFLINE",
            3 => "REMOVED",
            4 => "UNAVAIL",
            5 => "FAULTED",
            6 => "DEGRADED",
            7 => "ONLINE",
            _ => "UNKNOWN",
        }),
        "pool_state" => Some(match number {
            0 => "ACTIVE",
            1 => "EXPORTED",
            2 => "DESTROYED",
            3 => "SPARE",
            4 => "L2CACHE",
            5 => "UNINITIALIZED",
            6 => "UNAVAIL",
            7 => "POTENTIALLY_ACTIVE",
            _ => "UNKNOWN",
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_names_and_forms_of_zed() {
        let event = NvList::new()
            .with("version", NvValue::Uint8(0))
            .with("class", "resource.fs.zfs.statechange")
            .with("pool", "tank")
            .with("pool_guid", 0xabcu64)
            .with("pool_context", NvValue::Int32(-1))
            .with("vdev_state", 6u64)
            .with("vdev_spare_guids", NvValue::Uint64Array(vec![1, 2]))
            .with("detector", NvList::new())
            .with("time", NvValue::Int64Array(vec![7, 9]))
            .with("eid", 3u64);
        let found = variables(&event);
        assert_eq!(found.name, "statechange");
        for (name, value) in [
            ("ZEVENT_CLASS", "resource.fs.zfs.statechange"),
            ("ZEVENT_SUBCLASS", "statechange"),
            ("ZEVENT_POOL", "tank"),
            ("ZEVENT_POOL_GUID", "0x0000000000000ABC"),
            ("ZEVENT_POOL_CONTEXT", "-1"),
            ("ZEVENT_VDEV_STATE", "6"),
            ("ZEVENT_VDEV_STATE_STR", "DEGRADED"),
            (
                "ZEVENT_VDEV_SPARE_GUIDS",
                "0x0000000000000001 0x0000000000000002 ",
            ),
            ("ZEVENT_DETECTOR", "_NOT_IMPLEMENTED_"),
            ("ZEVENT_TIME", "7 9 "),
            ("ZEVENT_TIME_SECS", "7"),
            ("ZEVENT_TIME_NSECS", "9"),
            ("ZEVENT_EID", "3"),
        ] {
            let mut all = found.variables.iter();
            let of_name = all.find(|(other, _)| other == name);
            assert_eq!(
                of_name.map(|(_, value)| value.as_str()),
                Some(value),
                "{name}"
            );
        }
    }
}
