//! The forms of `tarn kstat`: blocks for people, lines for scripts, JSON for programs.

use serde_json::{Map, Value};
use tarn_administration::messages::statistics::KstatGroup;
use tarn_terminal::table::{Align, Table};

/// The member of a histogram that only JSON shows.
const BUCKETS: &str = "buckets";

/// A block for each group, with a table where its statistics are rows.
pub fn blocks(groups: &[KstatGroup]) -> String {
    groups.iter().map(block).collect()
}

fn block(group: &KstatGroup) -> String {
    let head = format!(
        "module: {:<30}  instance: {}\nname:   {:<30}  class:    {}\n",
        group.module, group.instance, group.name, group.class
    );
    let body = match group.class.as_str() {
        "table" => table(group),
        _ => group.data.iter().map(value_line).collect(),
    };
    format!("{head}{body}\n")
}

fn value_line((name, value): (&String, &Value)) -> String {
    format!("\t{name:<30}  {}\n", plain(value))
}

/// A value on one line; of a histogram what sums it up.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            let members = members.iter().filter(|(name, _)| *name != BUCKETS);
            let each: Vec<String> = members
                .map(|(name, value)| format!("{name} {}", plain(value)))
                .collect();
            each.join("  ")
        }
        other => other.to_string(),
    }
}

/// The rows of a table, whose first column is the statistic's name.
fn table(group: &KstatGroup) -> String {
    let rows: Vec<(&String, &Map<String, Value>)> = group
        .data
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_object()?)))
        .collect();
    let Some((_, first)) = rows.first() else {
        return String::new();
    };
    let heading =
        std::iter::once(group.name.trim_end_matches('s')).chain(first.keys().map(String::as_str));
    let mut table = Table::new(
        heading
            .map(|name| (name.to_string(), Align::Right))
            .collect(),
    );
    for (name, row) in &rows {
        let cells = first
            .keys()
            .map(|column| row.get(column).map_or_else(String::new, plain));
        table.push(std::iter::once(name.to_string()).chain(cells).collect());
    }
    let lines = table.render(false, 2);
    lines.lines().map(|line| format!("\t{line}\n")).collect()
}

/// `module:instance:name:statistic`, a tab and the value, a line each. Members of rows and
/// histograms follow the statistic's name after a point.
pub fn lines(groups: &[KstatGroup]) -> String {
    let mut text = String::new();
    for (path, value) in paths(groups) {
        match value {
            Value::Object(members) => {
                let members = members.iter().filter(|(name, _)| *name != BUCKETS);
                for (name, value) in members {
                    text += &format!("{path}.{name}\t{}\n", plain(value));
                }
            }
            value => text += &format!("{path}\t{}\n", plain(value)),
        }
    }
    text
}

/// The names alone.
pub fn names(groups: &[KstatGroup]) -> String {
    paths(groups).map(|(path, _)| path + "\n").collect()
}

fn paths(groups: &[KstatGroup]) -> impl Iterator<Item = (String, &Value)> {
    groups.iter().flat_map(|group| {
        let head = format!("{}:{}:{}", group.module, group.instance, group.name);
        group
            .data
            .iter()
            .map(move |(name, value)| (format!("{head}:{name}"), value))
    })
}

/// One array on one line.
pub fn json(groups: &[KstatGroup]) -> String {
    let array = serde_json::to_string(groups).expect("plain values become JSON");
    array + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn groups() -> Vec<KstatGroup> {
        let group = |name: &str, class: &str, data: Value| KstatGroup {
            module: "zfs/tank".into(),
            instance: 0,
            name: name.into(),
            class: class.into(),
            snaptime: 5,
            data: data.as_object().cloned().unwrap_or_default(),
        };
        let latency = json!({ "count": 2, "p50": 1023, "buckets": [[992, 1023, 2]] });
        let row = |state: &str, stime: u64| json!({ "state": state, "stime": stime });
        vec![
            group(
                "objset-0x36",
                "misc",
                json!({ "dataset_name": "tank/home", "nread": 8192, "read_latency_ns": latency }),
            ),
            group(
                "txgs",
                "table",
                json!({ "9": row("C", 41_000), "10": row("O", 0) }),
            ),
        ]
    }

    #[test]
    fn people_get_a_block_for_each_group_and_a_table_of_rows() {
        let expected = [
            "module: zfs/tank                        instance: 0",
            "name:   objset-0x36                     class:    misc",
            "\tdataset_name                    tank/home",
            "\tnread                           8192",
            "\tread_latency_ns                 count 2  p50 1023",
            "",
            "module: zfs/tank                        instance: 0",
            "name:   txgs                            class:    table",
            "\ttxg  state  stime",
            "\t  9      C  41000",
            "\t 10      O      0",
            "",
            "",
        ];
        assert_eq!(blocks(&groups()), expected.join("\n"));
    }

    #[test]
    fn scripts_get_a_line_for_each_number() {
        let expected = [
            "zfs/tank:0:objset-0x36:dataset_name\ttank/home",
            "zfs/tank:0:objset-0x36:nread\t8192",
            "zfs/tank:0:objset-0x36:read_latency_ns.count\t2",
            "zfs/tank:0:objset-0x36:read_latency_ns.p50\t1023",
            "zfs/tank:0:txgs:9.state\tC",
            "zfs/tank:0:txgs:9.stime\t41000",
            "zfs/tank:0:txgs:10.state\tO",
            "zfs/tank:0:txgs:10.stime\t0",
            "",
        ];
        assert_eq!(lines(&groups()), expected.join("\n"));
        let listed = names(&groups());
        assert_eq!(listed.lines().count(), 5);
        assert!(listed.starts_with("zfs/tank:0:objset-0x36:dataset_name\n"));
    }

    #[test]
    fn programs_get_everything_as_one_array() {
        let text = json(&groups());
        let back: Vec<KstatGroup> = serde_json::from_str(&text).unwrap();
        assert_eq!(back, groups());
        assert!(text.ends_with("]\n") && text.matches('\n').count() == 1);
    }
}
