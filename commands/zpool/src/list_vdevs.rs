//! The vdevs in `zpool list -v`.
//!
//! Of the properties of a pool few are known of a vdev, and some of those only of a top-level one.
//! What is not known is `-`. Capacity has decimals here, and the columns do not grow: both are
//! OpenZFS's choices.

use crate::list::{Column, Request, title};
use crate::vdev_json;
use crate::vdevs::{CLASSES, with_role};
use tarn_administration::messages::Source;
use tarn_administration::messages::pool::{VdevRole, VdevStatus};
use tarn_terminal::json::{self, Numbers};
use tarn_terminal::number::nice_count;
use tarn_terminal::show::Exactness;

/// Lists that stand below the vdevs, with their titles and their names in JSON output.
const LISTS: [(VdevRole, &str, &str); 5] = [
    (CLASSES[0].0, CLASSES[0].1, CLASSES[0].1),
    (CLASSES[1].0, CLASSES[1].1, CLASSES[1].1),
    (CLASSES[2].0, CLASSES[2].1, CLASSES[2].1),
    (VdevRole::Cache, "cache", "l2cache"),
    (VdevRole::Spare, "spare", "spares"),
];

/// The lines of all vdevs of a pool.
pub fn table(request: &Request, columns: &[Column], layout: &[VdevStatus]) -> String {
    let mut text = String::new();
    for vdev in with_role(layout, VdevRole::Data) {
        lines(request, columns, vdev, 2, &mut text);
    }
    for (role, word, _) in LISTS {
        for (index, vdev) in with_role(layout, role).enumerate() {
            if index == 0 {
                text.push_str(&title(columns, word));
            }
            lines(request, columns, vdev, 2, &mut text);
        }
    }
    text
}

/// The lines of a vdev and its members.
fn lines(
    request: &Request,
    columns: &[Column],
    vdev: &VdevStatus,
    depth: usize,
    text: &mut String,
) {
    let name = request.names.of(vdev);
    if request.is_scripted {
        text.push_str(&format!("\t{name}"));
    } else {
        let width = columns.first().map_or(0, |column| column.width);
        text.push_str(&format!(
            "{:depth$}{name:<width$}",
            "",
            width = width.saturating_sub(depth)
        ));
    }
    for column in columns
        .iter()
        .filter(|column| column.asked.name() != "name")
    {
        let value = value(vdev, column.asked.name(), request.exactness);
        let width = column.asked.least_width();
        match request.is_scripted {
            true => text.push_str(&format!("\t{value}")),
            false => text.push_str(&format!("  {value:>width$}")),
        }
    }
    text.push('\n');
    for child in &vdev.children {
        lines(request, columns, child, depth + 2, text);
    }
}

/// What is known of a vdev.
fn value(vdev: &VdevStatus, property: &str, exactness: Exactness) -> String {
    let none = || "-".to_string();
    let (size, allocated) = (vdev.size_bytes, vdev.allocated_bytes);
    let is_top = size != 0;
    let is_exact = exactness == Exactness::Exact;
    let number = |number: u64| match is_exact {
        true => number.to_string(),
        false => nice_count(number),
    };
    let not_zero = |value: u64| if value == 0 { none() } else { number(value) };
    match property {
        "size" if vdev.children.is_empty() && vdev.physical_bytes > 0 => {
            number(vdev.physical_bytes)
        }
        "size" => not_zero(size),
        "allocated" if is_top => number(allocated),
        "free" if is_top => number(size.saturating_sub(allocated)),
        "expandsize" => not_zero(vdev.expandable_bytes),
        "fragmentation" if is_top => match (vdev.fragmentation_percent, is_exact) {
            (None, _) => none(),
            (Some(percent), true) => percent.to_string(),
            (Some(percent), false) => format!("{percent}%"),
        },
        "capacity" if is_top => capacity(allocated, size, is_exact),
        "health" => vdev.state.clone(),
        _ => none(),
    }
}

/// How full a vdev is, with as many decimals as there is room for.
fn capacity(allocated: u64, size: u64, is_exact: bool) -> String {
    let parts = u128::from(allocated) * 10_000 / u128::from(size.max(1));
    let parts = u32::try_from(parts).unwrap_or(u32::MAX);
    if is_exact {
        return (parts / 100).to_string();
    }
    let percent = f64::from(parts) / 100.0;
    match parts {
        0..1000 => format!("{percent:.2}%"),
        1000..10_000 => format!("{percent:.1}%"),
        _ => format!("{percent:3.0}%"),
    }
}

/// All vdevs as JSON, by name.
pub fn objects(
    request: &Request,
    columns: &[Column],
    numbers: Numbers,
    layout: &[VdevStatus],
) -> json::Object {
    let mut objects = json::Object::new();
    for vdev in with_role(layout, VdevRole::Data) {
        insert(request, columns, numbers, vdev, &mut objects);
    }
    for (role, _, key) in LISTS {
        let mut list = json::Object::new();
        for vdev in with_role(layout, role) {
            insert(request, columns, numbers, vdev, &mut list);
        }
        if !list.is_empty() {
            objects.insert(key.to_string(), list.into());
        }
    }
    objects
}

fn insert(
    request: &Request,
    columns: &[Column],
    numbers: Numbers,
    vdev: &VdevStatus,
    into: &mut json::Object,
) {
    let name = request.names.of(vdev);
    let mut object = vdev_json::object(&name, vdev, numbers);
    let mut properties = json::Object::new();
    for column in columns
        .iter()
        .filter(|column| column.asked.name() != "name")
    {
        let text = value(vdev, column.asked.name(), request.exactness);
        let value = json::property(&text, &Source::None, None, numbers);
        properties.insert(column.asked.name().to_string(), value);
    }
    object.insert("properties".into(), properties.into());
    let mut children = json::Object::new();
    for child in &vdev.children {
        insert(request, columns, numbers, child, &mut children);
    }
    if !children.is_empty() {
        object.insert("vdevs".into(), children.into());
    }
    into.insert(name, object.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_has_the_decimals_it_has_room_for() {
        for (allocated, text) in [(5, "0.50%"), (262, "26.2%"), (1000, "100%")] {
            assert_eq!(capacity(allocated, 1000, false), text);
        }
        assert_eq!(capacity(262, 1000, true), "26");
    }

    #[test]
    fn a_member_of_a_group_has_a_size_and_no_space() {
        let leaf = VdevStatus {
            physical_bytes: 1 << 30,
            ..crate::samples::leaf(0)
        };
        assert_eq!(value(&leaf, "size", Exactness::Nice), "1G");
        assert_eq!(value(&leaf, "allocated", Exactness::Nice), "-");
        assert_eq!(value(&leaf, "capacity", Exactness::Exact), "-");
    }
}
