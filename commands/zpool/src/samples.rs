//! Pools for tests: those of the recorded fixtures.

use tarn_administration::messages::pool::{PoolDescription, RootStatus, VdevRole, VdevStatus};
use tarn_administration::messages::{PropertyValue, Source, Value};

/// A value with its source.
pub fn answer(value: Value, source: Source) -> PropertyValue {
    PropertyValue {
        value,
        source,
        received: None,
    }
}

/// A leaf in a file.
pub fn leaf(number: u64) -> VdevStatus {
    VdevStatus {
        name: format!("/run/{number}.img"),
        kind: "file".to_string(),
        path: Some(format!("/run/{number}.img")),
        guid: 100 + number,
        state: "ONLINE".to_string(),
        ..VdevStatus::default()
    }
}

/// A group of leaves.
pub fn group(name: &str, role: VdevRole, children: Vec<VdevStatus>) -> VdevStatus {
    let children = children.into_iter();
    VdevStatus {
        name: name.to_string(),
        kind: name.split('-').next().unwrap_or_default().to_string(),
        state: "ONLINE".to_string(),
        guid: 200,
        role,
        children: children.map(|child| VdevStatus { role, ..child }).collect(),
        ..VdevStatus::default()
    }
}

/// A pool of these vdevs, and nothing wrong with it.
pub fn pool(name: &str, layout: Vec<VdevStatus>) -> PoolDescription {
    PoolDescription {
        name: name.to_string(),
        guid: 4711,
        state: "ONLINE".to_string(),
        txg: 96,
        root: RootStatus {
            state: "ONLINE".to_string(),
            ..RootStatus::default()
        },
        layout,
        ..PoolDescription::default()
    }
}

/// The fixture `basic`.
pub fn basic() -> PoolDescription {
    let top = VdevStatus {
        size_bytes: 184_549_376,
        allocated_bytes: 48_271_360,
        fragmentation_percent: Some(3),
        physical_bytes: 201_326_592,
        ..leaf(0)
    };
    let mut pool = pool("fxbasic", vec![top]);
    for (name, value, source) in [
        ("size", Value::Number(184_549_376), Source::None),
        ("allocated", Value::Number(48_271_360), Source::None),
        ("free", Value::Number(136_278_016), Source::None),
        ("capacity", Value::Number(26), Source::None),
        ("fragmentation", Value::Number(3), Source::None),
        ("dedupratio", Value::Number(100), Source::None),
        ("health", Value::Text("ONLINE".to_string()), Source::None),
        ("altroot", Value::Absent, Source::Default),
        ("checkpoint", Value::Absent, Source::None),
        ("expandsize", Value::Number(0), Source::None),
        (
            "guid",
            Value::Number(7_154_389_783_083_793_937),
            Source::None,
        ),
        ("ashift", Value::Number(12), Source::Local),
        ("failmode", Value::Text("wait".to_string()), Source::Default),
        (
            "feature@lz4_compress",
            Value::Text("active".to_string()),
            Source::Local,
        ),
        (
            "unsupported@com.example:future",
            Value::Text("inactive".to_string()),
            Source::Local,
        ),
    ] {
        pool.properties
            .insert(name.to_string(), answer(value, source));
    }
    pool
}

/// The fixture `mixed`: two mirrors, a mirrored log and a spare.
pub fn mixed() -> PoolDescription {
    let mirror =
        |name: &str, role, first: u64| group(name, role, vec![leaf(first), leaf(first + 1)]);
    let spare = VdevStatus {
        role: VdevRole::Spare,
        state: "AVAIL".to_string(),
        ..leaf(6)
    };
    pool(
        "fxmixed",
        vec![
            mirror("mirror-0", VdevRole::Data, 0),
            mirror("mirror-1", VdevRole::Data, 2),
            mirror("mirror-2", VdevRole::Log, 4),
            spare,
        ],
    )
}
