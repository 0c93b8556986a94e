//! `zpool get`.

use crate::asked::{Asked, List};
use crate::get_request::{Field, Request, filled, parse};
use crate::get_vdevs;
use crate::pools;
use tarn_administration::messages::pool::{Describe, PoolDescription};
use tarn_api::client::{CallError, Client};
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::json::{self, Numbers};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::show::{self, Exactness};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    if let Some(pool) = pool_of_vdevs(&client, &request.pools)? {
        return get_vdevs::run(session, &client, &request, &pool);
    }
    let properties = List::parse(&request.properties)?;
    let found = pools::find(&client, &request.pools, false)?;
    match request.json {
        Some(numbers) => {
            let mut out = json::frame(session);
            let objects = objects(&request, &properties, numbers, &found.pools);
            out.insert("pools".into(), objects);
            json::print(out);
        }
        None => output::say(&table(&request, &properties, &found.pools)),
    }
    Ok(u8::from(found.has_failed))
}

/// The pool whose vdevs are asked for: where not all operands are pools, the first has to be one,
/// and the others are vdevs.
fn pool_of_vdevs(client: &Client, names: &[String]) -> Result<Option<PoolDescription>, Failure> {
    let find = |name: &String| match client.pool_describe(Describe {
        names: vec![name.clone()],
        with_errors: false,
    }) {
        Ok(described) => Ok(described.pools.into_iter().next()),
        Err(CallError::Refused(_)) => Ok(None),
        Err(other) => Err(other),
    };
    let Some((first, others)) = names.split_first() else {
        return Ok(None);
    };
    let Some(pool) = find(first)? else {
        return Err(Failure::error(format!(
            "Cannot get properties of {first}: no such pool available."
        )));
    };
    for name in others {
        if find(name)?.is_none() {
            return Ok(Some(pool));
        }
    }
    Ok(None)
}

/// The properties that a pool has, with their values.
fn values<'a>(
    request: &'a Request,
    properties: &'a [Asked],
    pool: &'a PoolDescription,
) -> impl Iterator<Item = (&'a Asked, String)> {
    properties.iter().filter_map(move |asked| {
        let value = asked.text(pool, request.exactness)?;
        Some((asked, value))
    })
}

/// The table, whose heading is there only with something below it.
fn table(request: &Request, properties: &List, pools: &[PoolDescription]) -> String {
    let properties = properties.expand(pools);
    let cell = |pool: &PoolDescription, asked: &Asked, value: &str, field| match field {
        Field::Name => pool.name.clone(),
        Field::Property => asked.name().to_string(),
        Field::Value => value.to_string(),
        Field::Source => show::source(asked.source(pool)),
    };
    let mut lines: Vec<Vec<String>> = Vec::new();
    for pool in pools {
        for (asked, value) in values(request, &properties, pool) {
            let fields = request.fields.iter();
            lines.push(
                fields
                    .map(|field| cell(pool, asked, &value, *field))
                    .collect(),
            );
        }
    }
    if request.is_scripted {
        return lines.iter().map(|line| line.join("\t") + "\n").collect();
    }
    if lines.is_empty() {
        return String::new();
    }
    let heading = request
        .fields
        .iter()
        .map(|field| field.heading().to_string());
    lines.insert(0, heading.collect());
    let fields = request.fields.iter();
    let widths: Vec<usize> = fields
        .map(|field| width(*field, &properties, pools, request.exactness))
        .collect();
    lines
        .into_iter()
        .map(|line| filled(line, &widths))
        .collect()
}

/// The width of a column. Names of features count as values, too: OpenZFS does so.
fn width(
    field: Field,
    properties: &[Asked],
    pools: &[PoolDescription],
    exactness: Exactness,
) -> usize {
    let names = pools.iter().map(|pool| pool.name.len()).max().unwrap_or(0);
    let heading = field.heading().len();
    match field {
        Field::Name => heading.max(names),
        Field::Property => properties
            .iter()
            .map(|asked| asked.name().len())
            .fold(heading, usize::max),
        Field::Value => properties
            .iter()
            .map(|asked| asked.width(pools, exactness))
            .fold(heading, usize::max),
        // Room for a value inherited from the longest name, which no pool has.
        Field::Source if names > Field::Name.heading().len() => names + "inherited from".len(),
        Field::Source => heading,
    }
}

/// The pools as JSON, by name or guid; those of which nothing is shown are left out.
fn objects(
    request: &Request,
    properties: &List,
    numbers: Numbers,
    pools: &[PoolDescription],
) -> serde_json::Value {
    let properties = properties.expand(pools);
    let mut objects = json::Object::new();
    for pool in pools {
        let mut shown = json::Object::new();
        for (asked, value) in values(request, &properties, pool) {
            let value = json::property(&value, asked.source(pool), None, numbers);
            shown.insert(asked.name().to_string(), value);
        }
        if shown.is_empty() {
            continue;
        }
        let mut object = pools::object(pool, true, numbers);
        object.insert("properties".into(), shown.into());
        let key = match request.are_keys_guids {
            true => pool.guid.to_string(),
            false => pool.name.clone(),
        };
        objects.insert(key, object.into());
    }
    objects.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn try_request(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    fn shown(line: &str) -> String {
        let request = try_request(line).unwrap();
        let properties = List::parse(&request.properties).unwrap();
        table(&request, &properties, &[samples::basic()])
    }

    #[test]
    fn the_table_is_the_one_of_openzfs() {
        assert_eq!(
            shown("size,altroot,ashift,failmode,feature@lz4_compress"),
            "NAME     PROPERTY              VALUE                 SOURCE\n\
             fxbasic  size                  176M                  -\n\
             fxbasic  altroot               -                     default\n\
             fxbasic  ashift                12                    local\n\
             fxbasic  failmode              wait                  default\n\
             fxbasic  feature@lz4_compress  active                local\n"
        );
    }

    #[test]
    fn script_mode_has_tabs_and_exact_numbers_on_request() {
        assert_eq!(shown("-Hp -o value,name size"), "184549376\tfxbasic\n");
    }

    #[test]
    fn exact_numbers_widen_the_column() {
        assert_eq!(
            shown("-p -o value,source size"),
            "VALUE      SOURCE\n184549376  -\n"
        );
    }

    #[test]
    fn what_a_pool_has_not_is_not_shown() {
        assert_eq!(shown("feature@nonsense"), "");
    }

    #[test]
    fn json_has_values_and_sources() {
        let request = try_request("-j ashift").unwrap();
        let properties = List::parse(&request.properties).unwrap();
        assert_eq!(
            objects(&request, &properties, Numbers::Text, &[samples::basic()]).to_string(),
            concat!(
                r#"{"fxbasic":{"name":"fxbasic","type":"POOL","state":"ONLINE","pool_guid":"4711","txg":"96","#,
                r#""spa_version":"5000","zpl_version":"5","properties":{"ashift":{"value":"12","#,
                r#""source":{"type":"LOCAL","data":"-"}}}}}"#
            )
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_usage() {
        for (line, text) in [
            ("", "missing property argument"),
            ("-o name,received all", "invalid column name 'received'"),
            ("-o all,name all", "too many fields given to -o option"),
            (
                "-o name,all all",
                "\"all\" conflicts with specific fields given to -o option",
            ),
            ("--json-int all", "'--json-int' only works with '-j' option"),
        ] {
            assert_eq!(
                try_request(line).unwrap_err(),
                Failure::usage(text),
                "{line}"
            );
        }
    }
}
