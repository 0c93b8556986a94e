//! `zpool get` of vdevs.
//!
//! Where the first operand is a pool and the others are not all pools, they are vdevs: by name,
//! `root`, or `all-vdevs`.

use crate::get_request::{Field, Request, filled};
use crate::pools;
use crate::vdev_json;
use tarn_administration::messages::pool::{DescribeVdevs, PoolDescription, VdevDescription};
use tarn_administration::messages::{Source, Value};
use tarn_api::client::Client;
use tarn_engine::names::is_user_property;
use tarn_engine::properties::value::{Form, Property};
use tarn_engine::properties::vdev_table::{VDEV_PROPERTIES, find};
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::json::{self, Numbers};
use tarn_terminal::number::nice_count;
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::show::{self, Exactness};

/// The word for all vdevs of a pool.
const ALL: &str = "all-vdevs";

/// The property of a device that OpenZFS takes for the property of a user, and its short name.
const QUEUE_DEPTH: (&str, &str) = ("tarn:queue_depth", "queue_depth");

/// A property that was asked for.
#[derive(Debug, Clone)]
enum Asked {
    Native(&'static Property),
    /// Of a user.
    Named(String),
}

impl Asked {
    fn name(&self) -> &str {
        match self {
            Asked::Native(row) => row.name,
            Asked::Named(name) => name,
        }
    }
}

/// Runs the subcommand for these vdevs of a pool.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(
    session: &Session,
    client: &Client,
    request: &Request,
    pool: &PoolDescription,
) -> Outcome {
    let names = &request.pools[1..];
    let vdevs = match names {
        [all] if all == ALL => Vec::new(),
        names => names.to_vec(),
    };
    let described = client.pool_describe_vdevs(DescribeVdevs {
        name: pool.name.clone(),
        vdevs,
    })?;
    if !described.unknown.is_empty() {
        return Err(unresolved(client, pool, names, &described.unknown));
    }
    let properties = parse(&request.properties, &described.vdevs)?;
    match request.json {
        Some(numbers) => {
            let mut out = json::frame(session);
            out.insert("pool".into(), pools::object(pool, false, numbers).into());
            out.insert(
                "vdevs".into(),
                objects(request, &properties, numbers, &described.vdevs),
            );
            json::print(out);
        }
        None => output::say(&table(request, &properties, &described.vdevs)),
    }
    Ok(0)
}

/// The failure where an operand is neither a pool nor a vdev.
#[doc(alias = "error_list_unresolved_vdevs")]
fn unresolved(
    client: &Client,
    pool: &PoolDescription,
    names: &[String],
    unknown: &[String],
) -> Failure {
    let all = pools::find(client, &[], false).unwrap_or_default();
    let what = |name: &String| match unknown.contains(name) {
        _ if all.pools.iter().any(|pool| pool.name == *name) => "pool",
        false => "vdev in this pool",
        true => "unknown",
    };
    let lines = names
        .iter()
        .map(|name| format!("\t{name} ({})\n", what(name)));
    let lines: String = lines.collect();
    Failure::usage(format!(
        "Expected a list of vdevs in \"{}\", but got:\n{lines}",
        pool.name
    ))
}

/// The properties in the order of printing.
fn parse(list: &str, vdevs: &[VdevDescription]) -> Result<Vec<Asked>, Failure> {
    if list == "all" {
        let native = VDEV_PROPERTIES.iter().map(Asked::Native);
        let mut of_users: Vec<&String> = Vec::new();
        for name in vdevs.iter().flat_map(|vdev| vdev.properties.keys()) {
            if find(name).is_none() && !of_users.contains(&name) {
                of_users.push(name);
            }
        }
        let of_users = of_users.into_iter().cloned().map(Asked::Named);
        return Ok(native.chain(of_users).collect());
    }
    let one = |name: &str| match find(name) {
        Some(row) => Ok(Asked::Native(row)),
        None if name == QUEUE_DEPTH.1 => Ok(Asked::Named(QUEUE_DEPTH.0.to_string())),
        None if name == "name" || is_user_property(name) => Ok(Asked::Named(name.to_string())),
        None => {
            let why = format!("bad property list: invalid property '{name}'");
            Err(Failure::usage(why))
        }
    };
    list.split(',').map(one).collect()
}

/// The value of a vdev as text; none where it has no such property.
fn text(asked: &Asked, vdev: &VdevDescription, exactness: Exactness) -> Option<String> {
    let found = vdev.properties.get(asked.name());
    let row = match asked {
        Asked::Named(name) if name == "name" => return None,
        Asked::Named(_) => {
            return Some(match found.map(|found| &found.value) {
                Some(Value::Text(text)) => text.clone(),
                None if asked.name() == QUEUE_DEPTH.0 && vdev.vdev.path.is_some() => {
                    "auto".to_string()
                }
                _ => "-".to_string(),
            });
        }
        Asked::Native(row) => row,
    };
    Some(match &found?.value {
        Value::Absent => "-".to_string(),
        Value::Text(text) => text.clone(),
        Value::Number(number) => number_text(row, *number, exactness == Exactness::Exact),
    })
}

/// A number in the form of its property.
#[doc(alias = "zpool_get_vdev_prop_value")]
fn number_text(row: &Property, number: u64, is_exact: bool) -> String {
    let name = row.name;
    let is_threshold = name.ends_with("_n") || name.ends_with("_t");
    match name {
        _ if is_threshold && number == u64::MAX => "-".to_string(),
        _ if is_threshold => number.to_string(),
        "fragmentation" if number == u64::MAX => "-".to_string(),
        "expandsize" if number == 0 => "-".to_string(),
        "fragmentation" => format!("{number}%"),
        "guid" | "ashift" | "parity" | "numchildren" => number.to_string(),
        _ if is_exact => number.to_string(),
        "capacity" => format!("{number}%"),
        "state" => state(number).to_string(),
        _ => nice_count(number),
    }
}

const fn state(number: u64) -> &'static str {
    match number {
        2 => "OFFLINE",
        3 => "REMOVED",
        4 => "UNAVAIL",
        5 => "FAULTED",
        6 => "DEGRADED",
        7 => "ONLINE",
        _ => "UNKNOWN",
    }
}

fn source<'a>(asked: &Asked, vdev: &'a VdevDescription) -> &'a Source {
    let found = vdev.properties.get(asked.name());
    found.map_or(&Source::Default, |found| &found.source)
}

fn table(request: &Request, properties: &[Asked], vdevs: &[VdevDescription]) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for vdev in vdevs {
        for asked in properties {
            let Some(value) = text(asked, vdev, request.exactness) else {
                continue;
            };
            let cell = |field: &Field| match field {
                Field::Name => vdev.name.clone(),
                Field::Property => asked.name().to_string(),
                Field::Value => value.clone(),
                Field::Source => show::source(source(asked, vdev)),
            };
            lines.push(request.fields.iter().map(cell).collect());
        }
    }
    if request.is_scripted {
        return lines.iter().map(|line| line.join("\t") + "\n").collect();
    }
    if lines.is_empty() {
        return String::new();
    }
    let width = |field: &Field| width(*field, properties, vdevs, request.exactness);
    let widths: Vec<usize> = request.fields.iter().map(width).collect();
    let heading = request
        .fields
        .iter()
        .map(|field| field.heading().to_string());
    lines.insert(0, heading.collect());
    lines
        .into_iter()
        .map(|line| filled(line, &widths))
        .collect()
}

/// The width of a column.
fn width(
    field: Field,
    properties: &[Asked],
    vdevs: &[VdevDescription],
    exactness: Exactness,
) -> usize {
    let names = vdevs.iter().map(|vdev| vdev.name.len()).max().unwrap_or(0);
    let heading = field.heading().len();
    match field {
        Field::Name => heading.max(names),
        Field::Property => properties
            .iter()
            .map(|asked| asked.name().len())
            .fold(heading, usize::max),
        Field::Value => properties
            .iter()
            .map(|asked| value_width(asked, vdevs, exactness))
            .fold(heading, usize::max),
        // Room for a value inherited from the longest name, which no vdev has.
        Field::Source if names > Field::Name.heading().len() => names + "inherited from".len(),
        Field::Source => heading,
    }
}

/// The width of the values of a property, which its column heading has at least.
fn value_width(asked: &Asked, vdevs: &[VdevDescription], exactness: Exactness) -> usize {
    let least = match asked {
        Asked::Native(row) => match row.form {
            Form::Number => row.column.len().max(5),
            _ => row.column.len(),
        },
        Asked::Named(name) => name.len(),
    };
    let texts = vdevs.iter().filter_map(|vdev| text(asked, vdev, exactness));
    texts.map(|text| text.len()).fold(least, usize::max)
}

/// The vdevs as JSON, by name.
fn objects(
    request: &Request,
    properties: &[Asked],
    numbers: Numbers,
    vdevs: &[VdevDescription],
) -> serde_json::Value {
    let mut objects = json::Object::new();
    for vdev in vdevs {
        let mut shown = json::Object::new();
        for asked in properties {
            if let Some(value) = text(asked, vdev, request.exactness) {
                let value = json::property(&value, source(asked, vdev), None, numbers);
                shown.insert(asked.name().to_string(), value);
            }
        }
        if shown.is_empty() {
            continue;
        }
        let mut object = json::Object::new();
        object.insert("name".into(), vdev.name.clone().into());
        object.insert("type".into(), "VDEV".into());
        object.extend(vdev_json::object(&vdev.name, &vdev.vdev, numbers));
        object.insert("properties".into(), shown.into());
        objects.insert(vdev.name.clone(), object.into());
    }
    objects.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::get_request;
    use crate::samples;

    fn vdev(name: &str) -> VdevDescription {
        let mut vdev = VdevDescription {
            name: name.to_string(),
            vdev: samples::leaf(0),
            ..VdevDescription::default()
        };
        for (name, value, source) in [
            ("size", Value::Number(184_549_376), Source::None),
            ("checksum_n", Value::Number(u64::MAX), Source::Default),
            ("io_n", Value::Number(20), Source::Local),
            ("state", Value::Number(6), Source::None),
            ("comment", Value::Absent, Source::Default),
            ("my:note", Value::Text("hi".to_string()), Source::Local),
        ] {
            let property = samples::answer(value, source);
            vdev.properties.insert(name.to_string(), property);
        }
        vdev
    }

    fn shown(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        let request = get_request::parse(&words).unwrap();
        let vdevs = [vdev("mirror-0")];
        table(
            &request,
            &parse(&request.properties, &vdevs).unwrap(),
            &vdevs,
        )
    }

    #[test]
    fn values_take_the_forms_of_their_properties() {
        assert_eq!(
            shown("-H size,checksum_n,io_n,state,comment,my:note,no:note tank mirror-0"),
            concat!(
                "mirror-0\tsize\t176M\t-\n",
                "mirror-0\tchecksum_n\t-\tdefault\n",
                "mirror-0\tio_n\t20\tlocal\n",
                "mirror-0\tstate\tDEGRADED\t-\n",
                "mirror-0\tcomment\t-\tdefault\n",
                "mirror-0\tmy:note\thi\tlocal\n",
                "mirror-0\tno:note\t-\tdefault\n",
            )
        );
        assert_eq!(
            shown("-Hp -o value size,state tank mirror-0"),
            "184549376\n6\n"
        );
    }

    #[test]
    fn all_has_native_properties_first_and_those_of_users_last() {
        let all = parse("all", &[vdev("a")]).unwrap();
        assert_eq!(all[0].name(), "capacity");
        assert_eq!(all.last().map(Asked::name), Some("my:note"));
        assert_eq!(
            parse("nonsense", &[]).unwrap_err(),
            Failure::usage("bad property list: invalid property 'nonsense'")
        );
    }
}
