//! `zpool get` and `zpool set` for vdevs.
//!
//! What only shows is computed from the tree, as OpenZFS computes it. What can be set and has an
//! effect, or is a note, is stored in the ZAP of the vdev; what would have no effect is refused.

use super::vdev_change::{FoundVdev, find_vdev};
use super::vdev_status::{layout_of_pool, state_word};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{DescribeVdevs, DescribedVdevs, SetVdev, VdevDescription, VdevStatus};
use crate::messages::{Done, Properties, PropertyValue, Refusal, RefusalKind, Source, Value};
use std::sync::Arc;
use tarn_engine::engine::OpenPool;
use tarn_engine::names::is_user_property;
use tarn_engine::properties::parse::{Setting, parse};
use tarn_engine::properties::value::{Change, Default, Form};
use tarn_engine::properties::vdev_table::{self, VDEV_PROPERTIES};
use tarn_engine::refusals::of_task;
use tarn_engine::turns::stuck;
use tarn_object::zap::ZapValue;
use tarn_ondisk::units::Guid;
use tarn_pool::PoolError;
use tarn_pool::events::state_number;
use tarn_pool::vdev_properties::{NOT_SET, QUEUE_DEPTH, QUEUE_DEPTHS};
use tarn_probe::{IoKind, Operation};
use tarn_vdev::health::VdevHealth;
use tarn_vdev::{VdevConfig, VdevKind};

/// The name of the root vdev.
const ROOT: &str = "root-0";

/// Longest value of a property.
const VALUE_MAX: usize = tarn_ondisk::zap::VALUE_BYTES_MAX - 1;

/// What the values of a vdev are computed from.
struct Facts<'a> {
    pool: &'a str,
    config: &'a VdevConfig,
    parent: Option<&'a VdevConfig>,
    health: &'a VdevHealth,
    status: &'a VdevStatus,
    /// Its sector size, or that of its top-level vdev.
    ashift: u64,
}

impl Administrator {
    #[doc(alias = "zfs_ioc_vdev_get_props")]
    pub(crate) fn describe_vdevs(
        &self,
        request: &DescribeVdevs,
    ) -> Result<DescribedVdevs, Refusal> {
        let open = self.engine.require_pool(&request.name)?;
        let asked = request.clone();
        let look =
            move |open: &Arc<OpenPool>, operation: &Operation| describe(open, &asked, operation);
        let described = self.engine.look(&open, look);
        let described = described.ok_or_else(|| stuck(&request.name))?;
        described.map_err(|error| {
            let action = format!("cannot get properties of '{}'", request.name);
            Refusal::new(RefusalKind::Corrupt, action, error.to_string())
        })
    }

    #[doc(alias = "zfs_ioc_vdev_set_props")]
    pub(crate) fn set_vdev(
        &self,
        call: &Call,
        request: &SetVdev,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let open = self.engine.require_pool(&request.name)?;
        let _turn = self.engine.turn(&open)?;
        let SetVdev {
            name,
            vdev,
            property,
            value,
        } = request;
        let action = format!("cannot set property {property} for {vdev} on {name}");
        let refuse = |kind, reason: String| Refusal::new(kind, action.clone(), reason);
        let guid = guid_of(&open, vdev)
            .ok_or_else(|| refuse(RefusalKind::NotFound, "no such device in pool".to_string()))?;
        if open.pool.mode() == tarn_pool::Mode::ReadOnly {
            return Err(refuse(
                RefusalKind::ReadOnly,
                "pool is read-only".to_string(),
            ));
        }
        if (property == "queue_depth" || property == QUEUE_DEPTH)
            && open.pool.vdevs().leaf(guid).is_none()
        {
            let reason = "only devices have a queue depth".to_string();
            return Err(refuse(RefusalKind::Invalid, reason));
        }
        let (stored_name, stored) =
            stored_value(property, value).map_err(|reason| refuse(RefusalKind::Invalid, reason))?;
        let set = open
            .pool
            .set_vdev_property(guid, &stored_name, stored, value, operation);
        set.map_err(|error| of_task(action, &error))?;
        self.record_command(call, name, operation);
        Ok(Done {})
    }
}

/// The name and the value to store; no value to remove it.
#[doc(alias = "zpool_valid_proplist")]
fn stored_value(property: &str, value: &str) -> Result<(String, Option<ZapValue>), String> {
    if property == "queue_depth" || property == QUEUE_DEPTH {
        return queue_depth(value);
    }
    let Some(row) = vdev_table::find(property) else {
        if !is_user_property(property) {
            return Err(format!("invalid property '{property}'"));
        }
        if value.len() > VALUE_MAX {
            return Err(format!("property value for '{property}' is too long"));
        }
        let stored = (!value.is_empty()).then(|| ZapValue::text(value));
        return Ok((property.to_string(), stored));
    };
    let name = row.name;
    if row.change == Change::ReadOnly {
        return Err(format!("'{name}' is readonly"));
    }
    match name {
        "path" | "allocating" | "failfast" => Err(format!(
            "setting '{name}' is not supported by this version of tarn"
        )),
        "comment" if value.len() > VALUE_MAX => {
            Err(format!("property value for '{name}' is too long"))
        }
        "comment" => Ok((name.to_string(), Some(ZapValue::text(value)))),
        // All others are thresholds.
        _ if value == "none" => Ok((name.to_string(), Some(ZapValue::word(NOT_SET)))),
        _ => match parse(row, value)? {
            Setting::Number(number) => Ok((name.to_string(), Some(ZapValue::word(number)))),
            _ => Err(format!("'{name}' must be a number")),
        },
    }
}

/// `auto` removes what is stored.
fn queue_depth(value: &str) -> Result<(String, Option<ZapValue>), String> {
    let depth = value
        .parse()
        .ok()
        .filter(|depth| QUEUE_DEPTHS.contains(depth));
    match (value, depth) {
        ("auto", _) => Ok((QUEUE_DEPTH.to_string(), None)),
        (_, Some(depth)) => Ok((
            QUEUE_DEPTH.to_string(),
            Some(ZapValue::text(&depth.to_string())),
        )),
        _ => Err(format!(
            "'queue_depth' must be 'auto' or a number from {} to {}",
            QUEUE_DEPTHS.start(),
            QUEUE_DEPTHS.end()
        )),
    }
}

/// The guid of the vdev of this name.
fn guid_of(open: &OpenPool, name: &str) -> Option<Guid> {
    if name == ROOT || name == "root" {
        return Some(open.pool.vdevs().config().guid);
    }
    match find_vdev(open, name)? {
        FoundVdev::Tree(vdev) => Some(vdev.config.guid),
        FoundVdev::Auxiliary(..) => None,
    }
}

fn describe(
    open: &OpenPool,
    request: &DescribeVdevs,
    operation: &Operation,
) -> Result<DescribedVdevs, PoolError> {
    let root = open.pool.vdevs().config();
    let health = open.pool.vdevs().health();
    let layout = layout_of_pool(open, &health);
    let all = VdevStatus {
        kind: "root".to_string(),
        name: ROOT.to_string(),
        state: state_word(health.standing).to_string(),
        allocated_bytes: layout.iter().map(|top| top.allocated_bytes).sum(),
        size_bytes: layout.iter().map(|top| top.size_bytes).sum(),
        deflated_bytes: layout.iter().map(|top| top.deflated_bytes).sum(),
        children: layout,
        ..VdevStatus::default()
    };
    let mut described = DescribedVdevs::default();
    let mut one = |guid: Guid, name: Option<&str>| -> Result<(), PoolError> {
        let Some(facts) = facts_of(open, &root, &health, &all, guid) else {
            return Ok(());
        };
        let stored = open.pool.vdev_properties(guid, operation)?;
        described.vdevs.push(VdevDescription {
            name: name.unwrap_or(&facts.status.name).to_string(),
            vdev: VdevStatus {
                children: Vec::new(),
                ..facts.status.clone()
            },
            properties: properties(open, &facts, &stored),
        });
        Ok(())
    };
    if request.vdevs.is_empty() {
        let is_shown = |vdev: &&VdevConfig| {
            !matches!(
                vdev.kind,
                VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing
            )
        };
        for vdev in root.walk().into_iter().filter(is_shown) {
            one(vdev.guid, None)?;
        }
        return Ok(described);
    }
    let mut unknown = Vec::new();
    for name in &request.vdevs {
        match guid_of(open, name) {
            Some(guid) => one(guid, Some(if name == "root" { ROOT } else { name }))?,
            None => unknown.push(name.clone()),
        }
    }
    described.unknown = unknown;
    Ok(described)
}

fn facts_of<'a>(
    open: &'a OpenPool,
    root: &'a VdevConfig,
    health: &'a VdevHealth,
    all: &'a VdevStatus,
    guid: Guid,
) -> Option<Facts<'a>> {
    let is_root = root.guid == guid;
    let top = root.children.iter().find(|top| top.find(guid).is_some());
    let walk = root.walk();
    let is_parent = |vdev: &&&VdevConfig| vdev.children.iter().any(|child| child.guid == guid);
    let facts = top.and_then(|top| top.top_level.as_ref());
    Some(Facts {
        pool: open.pool.name(),
        config: root.find(guid)?,
        parent: walk.iter().find(is_parent).copied(),
        health: find_health(health, guid)?,
        status: match is_root {
            true => all,
            false => find_status(all, guid.get())?,
        },
        ashift: facts.map_or(0, |facts| u64::from(facts.ashift)),
    })
}

fn find_health(vdev: &VdevHealth, guid: Guid) -> Option<&VdevHealth> {
    if vdev.guid == guid {
        return Some(vdev);
    }
    vdev.children
        .iter()
        .find_map(|child| find_health(child, guid))
}

fn find_status(vdev: &VdevStatus, guid: u64) -> Option<&VdevStatus> {
    if vdev.guid == guid {
        return Some(vdev);
    }
    vdev.children
        .iter()
        .find_map(|child| find_status(child, guid))
}

/// The name that other vdevs call it by.
#[doc(alias = "vdev_name")]
fn kernel_name(pool: &str, vdev: &VdevConfig) -> String {
    match (&vdev.path, vdev.kind) {
        (Some(path), _) => path.to_string(),
        (None, VdevKind::Root) => pool.to_string(),
        (None, kind) => format!("{}-{}", kind.name(), vdev.id),
    }
}

/// All properties of a vdev.
fn properties(open: &OpenPool, facts: &Facts<'_>, stored: &[(String, ZapValue)]) -> Properties {
    let mut all = Properties::new();
    for row in VDEV_PROPERTIES {
        let stored = stored.iter().find(|(name, _)| name == row.name);
        let stored = stored.map(|(_, value)| value);
        let (value, source) = match computed(open, facts, row.name) {
            Some(value) => (value, Source::None),
            None => match (row.change, stored.map(value_of)) {
                (Change::Local, Some(value)) if !is_default(&value, &row.default) => {
                    (value, Source::Local)
                }
                (_, _) => (default_of(&row.default), Source::Default),
            },
        };
        let is_of_raidz = matches!(facts.config.kind, VdevKind::Raidz { .. });
        if row.name == "raidz_expanding" && !is_of_raidz {
            continue;
        }
        all.insert(
            row.name.to_string(),
            property(in_words(value, row.form), source),
        );
    }
    // Numbers under other names are not properties.
    for (name, value) in stored.iter().filter(|(name, _)| name.contains(':')) {
        if let Some(text) = value.as_text() {
            let text = String::from_utf8_lossy(text).into_owned();
            all.insert(name.clone(), property(Value::Text(text), Source::Local));
        }
    }
    all
}

/// The word for a number, where the values are words.
fn in_words(value: Value, form: Form) -> Value {
    let (Value::Number(number), Form::Word(words)) = (&value, form) else {
        return value;
    };
    let word = words.iter().find(|(_, stored)| stored == number);
    word.map_or(value, |(word, _)| Value::Text(word.to_string()))
}

fn property(value: Value, source: Source) -> PropertyValue {
    PropertyValue {
        value,
        source,
        received: None,
    }
}

fn value_of(stored: &ZapValue) -> Value {
    match (stored.as_word(), stored.as_text()) {
        (Some(number), _) => Value::Number(number),
        (None, Some(text)) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        (None, None) => Value::Absent,
    }
}

fn default_of(default: &Default) -> Value {
    match default {
        Default::Number(number) => Value::Number(*number),
        _ => Value::Absent,
    }
}

fn is_default(value: &Value, default: &Default) -> bool {
    matches!((value, default), (Value::Number(value), Default::Number(default)) if value == default)
}

/// A value that follows from the tree; none of properties that are stored, or absent here.
fn computed(open: &OpenPool, facts: &Facts<'_>, name: &str) -> Option<Value> {
    let number = |number| Some(Value::Number(number));
    let text = |text: String| Some(Value::Text(text));
    let (status, health, config) = (facts.status, facts.health, facts.config);
    let is_leaf = config.kind.is_leaf();
    let is_sized = config.top_level.is_some() || config.kind == VdevKind::Root;
    let statistics = &health.statistics;
    let of_works = |kind| {
        let status = open.pool.work_status(config.guid, kind);
        Value::Number(status.map_or(0, |status| status.errors))
    };
    let percent = |part: u64, all: u64| {
        let part = u128::from(part) * 100;
        let percent = part.checked_div(u128::from(all)).unwrap_or(0);
        u64::try_from(percent).unwrap_or(u64::MAX)
    };
    match name {
        "capacity" => number(percent(status.allocated_bytes, status.size_bytes)),
        "state" => number(state_number(health.standing.state)),
        "guid" => number(config.guid.get()),
        "asize" => number(match is_leaf {
            true => open
                .pool
                .vdevs()
                .leaf(config.guid)
                .and_then(|leaf| leaf.data_size())
                .map_or(0, |size| size.get()),
            false => health.asize.get(),
        }),
        "psize" => number(device_bytes(open, config)),
        "ashift" => number(facts.ashift),
        "size" => number(status.size_bytes),
        "free" => number(status.size_bytes.saturating_sub(status.allocated_bytes)),
        "allocated" => number(status.allocated_bytes),
        "expandsize" => number(status.expandable_bytes),
        "fragmentation" if is_sized => {
            number(status.fragmentation_percent.unwrap_or(match config.kind {
                VdevKind::Root => 0,
                _ => u64::MAX,
            }))
        }
        "fragmentation" => number(0),
        "parity" => number(match config.kind {
            VdevKind::Raidz { parity } | VdevKind::Draid { parity } => u64::from(parity),
            _ => 0,
        }),
        "path" => config
            .path
            .as_ref()
            .map(|path| Value::Text(path.to_string())),
        "parent" => {
            let parent = facts.parent?;
            text(kernel_name(facts.pool, parent))
        }
        "children" if config.children.is_empty() => None,
        "children" => {
            let names = config
                .children
                .iter()
                .map(|child| kernel_name(facts.pool, child));
            text(names.collect::<Vec<_>>().join(","))
        }
        "numchildren" => number(u64::try_from(config.children.len()).unwrap_or(u64::MAX)),
        "read_errors" => number(health.errors.read),
        "write_errors" => number(health.errors.write),
        "checksum_errors" => number(health.errors.checksum),
        "slow_ios" => number(health.errors.slow),
        "initialize_errors" => Some(of_works(
            tarn_pool::initialize_trim::FreeSpaceWork::Initialize,
        )),
        "trim_errors" => Some(of_works(tarn_pool::initialize_trim::FreeSpaceWork::Trim)),
        "read_ops" => number(statistics.operations(IoKind::Read)),
        "write_ops" => number(statistics.operations(IoKind::Write)),
        "trim_ops" => number(statistics.operations(IoKind::Trim)),
        "read_bytes" => number(statistics.bytes(IoKind::Read)),
        "write_bytes" => number(statistics.bytes(IoKind::Write)),
        "trim_bytes" => number(statistics.bytes(IoKind::Trim)),
        "null_ops" | "free_ops" | "claim_ops" => number(0),
        "null_bytes" | "free_bytes" | "claim_bytes" => number(0),
        "removing" => {
            let top = config.top_level.as_ref();
            number(u64::from(top.is_some_and(|top| top.removing)))
        }
        "raidz_expanding" => number(0),
        // A leaf below a top-level vdev has no space of its own.
        "allocating" if !is_sized => Some(Value::Text("-".to_string())),
        "trim_support" if is_leaf => {
            let leaf = open.pool.vdevs().leaf(config.guid);
            number(u64::from(leaf.is_some_and(|leaf| leaf.can_discard())))
        }
        "trim_support" => Some(Value::Absent),
        _ => None,
    }
}

/// The bytes of a device.
fn device_bytes(open: &OpenPool, config: &VdevConfig) -> u64 {
    let leaf = open.pool.vdevs().leaf(config.guid);
    let window = leaf.and_then(|leaf| leaf.window());
    window.map_or(0, |window| window.size_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_is_refused_and_thresholds_are_numbers() {
        let stored = |property, value| stored_value(property, value);
        assert_eq!(
            stored("cksum_n", "5"),
            Ok(("checksum_n".to_string(), Some(ZapValue::word(5))))
        );
        assert_eq!(
            stored("io_t", "none"),
            Ok(("io_t".to_string(), Some(ZapValue::word(NOT_SET))))
        );
        assert_eq!(stored("a:b", ""), Ok(("a:b".to_string(), None)));
        assert_eq!(
            stored("queue_depth", "8"),
            Ok((QUEUE_DEPTH.to_string(), Some(ZapValue::text("8"))))
        );
        assert_eq!(
            stored(QUEUE_DEPTH, "auto"),
            Ok((QUEUE_DEPTH.to_string(), None))
        );
        for (property, value, reason) in [
            (
                "queue_depth",
                "128",
                "'queue_depth' must be 'auto' or a number from 2 to 127",
            ),
            ("nonsense", "1", "invalid property 'nonsense'"),
            ("size", "1", "'size' is readonly"),
            (
                "failfast",
                "off",
                "setting 'failfast' is not supported by this version of tarn",
            ),
        ] {
            assert_eq!(stored(property, value), Err(reason.to_string()));
        }
        assert!(stored("io_n", "many").is_err());
    }
}
