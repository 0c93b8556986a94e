//! `zpool list`.

use crate::asked::{Asked, List};
use crate::list_vdevs;
use crate::pools;
use crate::vdevs::Names;
use serde_json::Value;
use tarn_administration::messages::pool::PoolDescription;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::interval::Interval;
use tarn_terminal::json::{self, Numbers};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::show::Exactness;
use tarn_terminal::table::{self, Align, Cell};
use tarn_terminal::timestamp::TimeForm;

const GRAMMAR: Grammar = Grammar {
    short: ":gjHLo:pPT:v",
    long: &[
        ("json", "j"),
        ("json-int", "json-int"),
        ("json-pool-key-guid", "json-pool-key-guid"),
    ],
};

/// What `-o` is when it is not given.
const COLUMNS: &str = "name,size,allocated,free,checkpoint,expandsize,fragmentation,\
                       capacity,dedupratio,health,altroot";

/// How wide the column of names is at least, where vdevs are in it.
const NAME_WIDTH_MIN: usize = 9;

/// A command line, understood.
#[derive(Debug)]
pub struct Request {
    pools: Vec<String>,
    columns: List,
    /// How vdevs are named.
    pub names: Names,
    /// `-H`.
    pub is_scripted: bool,
    is_verbose: bool,
    /// Of values.
    pub exactness: Exactness,
    json: Option<Numbers>,
    are_keys_guids: bool,
    time: Option<TimeForm>,
    interval: Interval,
}

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    /// The property in it.
    pub asked: Asked,
    /// Its width in lines of pools.
    pub width: usize,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    let mut done = 0;
    loop {
        let found = pools::find(&client, &request.pools, false)?;
        if found.pools.is_empty() {
            if request.pools.is_empty() && !request.is_scripted && request.json.is_none() {
                output::say("no pools available\n");
            }
            return Ok(u8::from(found.has_failed));
        }
        match request.json {
            Some(numbers) => json::print(frame(session, &request, numbers, &found.pools)),
            None => {
                if let Some(form) = request.time {
                    output::say(&format!("{}\n", form.now()));
                }
                output::say(&table(&request, &found.pools, done == 0));
            }
        }
        done += 1;
        if !request.interval.wait(done) {
            return Ok(u8::from(found.has_failed));
        }
    }
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut columns = COLUMNS.to_string();
    let mut names = Names::from_environment();
    let (mut is_scripted, mut is_exact, mut is_verbose) = (false, false, false);
    let (mut is_json, mut wants_integers, mut are_keys_guids) = (false, false, false);
    let mut time = None;
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "H" => is_scripted = true,
            "o" => columns = value,
            "p" => is_exact = true,
            "j" => is_json = true,
            "json-int" => wants_integers = true,
            "json-pool-key-guid" => are_keys_guids = true,
            "T" => time = Some(TimeForm::parse(&value)?),
            "v" => is_verbose = true,
            naming => _ = names.take(naming),
        }
    }
    if wants_integers && !is_json {
        return Err(Failure::usage("'--json-int' only works with '-j' option"));
    }
    if are_keys_guids && !is_json {
        return Err(Failure::usage(
            "'json-pool-key-guid' only works with '-j' option",
        ));
    }
    let mut pools = options.operands();
    let interval = Interval::take(&mut pools)?;
    Ok(Request {
        pools,
        columns: List::parse(&columns)?,
        names,
        is_scripted,
        is_verbose,
        exactness: match is_exact || wants_integers {
            true => Exactness::Exact,
            false => Exactness::Nice,
        },
        json: is_json.then_some(match wants_integers {
            true => Numbers::Integers,
            false => Numbers::Text,
        }),
        are_keys_guids,
        time,
        interval,
    })
}

/// The columns; with `all`, the name before the others.
fn columns(request: &Request, pools: &[PoolDescription]) -> Vec<Column> {
    let mut asked = request.columns.expand(pools);
    if let List::All = request.columns {
        asked.splice(0..0, Asked::find("name"));
    }
    let width = |asked: &Asked| asked.width(pools, request.exactness);
    let mut columns: Vec<Column> = asked
        .into_iter()
        .map(|asked| Column {
            width: width(&asked),
            asked,
        })
        .collect();
    if let Some(first) = columns.first_mut().filter(|_| request.is_verbose) {
        let widths = pools
            .iter()
            .map(|pool| request.names.width(&pool.name, &pool.layout));
        first.width = widths.fold(NAME_WIDTH_MIN, usize::max);
    }
    columns
}

/// The table. With vdevs in it, every output has its heading.
fn table(request: &Request, pools: &[PoolDescription], is_first: bool) -> String {
    let columns = columns(request, pools);
    let mut text = String::new();
    if !request.is_scripted && (is_first || request.is_verbose) {
        text.push_str(&heading(&columns));
    }
    for pool in pools {
        text.push_str(&line(request, &columns, pool));
        if request.is_verbose {
            text.push_str(&list_vdevs::table(request, &columns, &pool.layout));
        }
    }
    text
}

fn heading(columns: &[Column]) -> String {
    let cells: Vec<Cell> = columns
        .iter()
        .map(|column| cell(column, column.asked.heading()))
        .collect();
    table::line(&cells)
}

/// The line above vdevs of a class: its title, and dashes.
pub fn title(columns: &[Column], title: &str) -> String {
    let cells: Vec<Cell> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| match index {
            0 => Cell {
                align: Align::Left,
                ..cell(column, title.to_string())
            },
            _ => Cell {
                align: Align::Right,
                ..cell(column, "-".to_string())
            },
        })
        .collect();
    table::line(&cells)
}

fn line(request: &Request, columns: &[Column], pool: &PoolDescription) -> String {
    let text = |column: &Column| column.asked.text(pool, request.exactness);
    let texts = columns
        .iter()
        .map(|column| text(column).unwrap_or_else(|| "-".to_string()));
    if request.is_scripted {
        return texts.collect::<Vec<_>>().join("\t") + "\n";
    }
    let cells: Vec<Cell> = columns
        .iter()
        .zip(texts)
        .map(|(column, text)| cell(column, text))
        .collect();
    table::line(&cells)
}

fn cell(column: &Column, text: String) -> Cell {
    Cell {
        text,
        width: column.width,
        align: column.asked.align(),
    }
}

fn frame(
    session: &Session,
    request: &Request,
    numbers: Numbers,
    pools: &[PoolDescription],
) -> json::Object {
    let mut frame = json::frame(session);
    frame.insert("pools".into(), objects(request, numbers, pools));
    if let Some(form) = request.time {
        frame.insert("time".into(), time(form, numbers));
    }
    frame
}

/// The present time as a member.
pub fn time(form: TimeForm, numbers: Numbers) -> Value {
    match numbers {
        Numbers::Integers => numbers.value(&TimeForm::Unix.now()),
        Numbers::Text => form.now().into(),
    }
}

/// The pools as JSON, by name or guid.
fn objects(request: &Request, numbers: Numbers, pools: &[PoolDescription]) -> Value {
    let columns = columns(request, pools);
    let mut objects = json::Object::new();
    for pool in pools {
        let mut properties = json::Object::new();
        for column in columns
            .iter()
            .filter(|column| column.asked.name() != "name")
        {
            let asked = &column.asked;
            let text = asked.text(pool, request.exactness);
            let text = text.unwrap_or_else(|| "-".to_string());
            let value = json::property(&text, asked.source(pool), None, numbers);
            properties.insert(asked.name().to_string(), value);
        }
        let mut object = pools::object(pool, true, numbers);
        object.insert("properties".into(), properties.into());
        if request.is_verbose {
            let vdevs = list_vdevs::objects(request, &columns, numbers, &pool.layout);
            object.insert("vdevs".into(), vdevs.into());
        }
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

    fn request(line: &str) -> Request {
        try_request(line).unwrap()
    }

    fn try_request(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn columns_are_those_of_openzfs() {
        assert_eq!(
            table(&request(""), &[samples::basic()], true),
            "NAME      SIZE  ALLOC   FREE  CKPOINT  EXPANDSZ   FRAG    CAP  DEDUP    HEALTH  ALTROOT\n\
             fxbasic   176M  46.0M   130M        -         -     3%    26%  1.00x    ONLINE  -\n"
        );
    }

    #[test]
    fn script_mode_has_tabs_and_exact_numbers_on_request() {
        assert_eq!(
            table(
                &request("-Hp -o name,size,cap,ashift"),
                &[samples::basic()],
                true
            ),
            "fxbasic\t184549376\t26\t12\n"
        );
    }

    #[test]
    fn a_heading_stands_above_the_first_output_and_above_every_one_with_vdevs() {
        let text = |line, is_first| table(&request(line), &[samples::basic()], is_first);
        assert!(text("1", true).starts_with("NAME"));
        assert!(text("1", false).starts_with("fxbasic"));
        assert!(text("-v 1", false).starts_with("NAME"));
    }

    #[test]
    fn vdevs_are_listed_with_what_is_known_of_them() {
        assert_eq!(
            table(&request("-v"), &[samples::basic()], true),
            "NAME           SIZE  ALLOC   FREE  CKPOINT  EXPANDSZ   FRAG    CAP  DEDUP    HEALTH  ALTROOT\n\
             fxbasic        176M  46.0M   130M        -         -     3%    26%  1.00x    ONLINE  -\n  \
             /run/0.img   192M  46.0M   130M        -         -     3%  26.1%      -    ONLINE        -\n"
        );
    }

    #[test]
    fn classes_have_titles() {
        let text = table(
            &request("-v -o name,size,health"),
            &[samples::mixed()],
            true,
        );
        assert_eq!(
            text,
            "NAME             SIZE    HEALTH\n\
             fxmixed             -         -\n  \
               mirror-0          -    ONLINE\n    \
                 /run/0.img      -    ONLINE\n    \
                 /run/1.img      -    ONLINE\n  \
               mirror-1          -    ONLINE\n    \
                 /run/2.img      -    ONLINE\n    \
                 /run/3.img      -    ONLINE\n\
             logs                -         -\n  \
               mirror-2          -    ONLINE\n    \
                 /run/4.img      -    ONLINE\n    \
                 /run/5.img      -    ONLINE\n\
             spare               -         -\n  \
               /run/6.img        -     AVAIL\n"
        );
    }

    #[test]
    fn json_has_properties_and_vdevs() {
        let request = request("-j -v -o name,size");
        assert_eq!(
            objects(&request, Numbers::Text, &[samples::basic()]).to_string(),
            concat!(
                r#"{"fxbasic":{"name":"fxbasic","type":"POOL","state":"ONLINE","pool_guid":"4711","txg":"96","#,
                r#""spa_version":"5000","zpl_version":"5","properties":{"size":{"value":"176M","#,
                r#""source":{"type":"NONE","data":"-"}}},"vdevs":{"/run/0.img":{"name":"/run/0.img","#,
                r#""vdev_type":"file","guid":"100","path":"/run/0.img","class":"normal","state":"ONLINE","#,
                r#""properties":{"size":{"value":"192M","source":{"type":"NONE","data":"-"}}}}}}}"#
            )
        );
    }

    #[test]
    fn json_may_have_guids_as_keys_and_numbers_as_integers() {
        let request = request("-j --json-int --json-pool-key-guid -o size");
        let text = objects(&request, Numbers::Integers, &[samples::basic()]).to_string();
        assert!(text.starts_with(r#"{"4711":{"name":"fxbasic""#), "{text}");
        assert!(text.contains(r#"{"value":184549376,"#), "{text}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_usage() {
        for (line, text) in [
            ("--json-int", "'--json-int' only works with '-j' option"),
            (
                "--json-pool-key-guid",
                "'json-pool-key-guid' only works with '-j' option",
            ),
            ("-Q", "invalid option 'Q'"),
            ("-o", "missing argument for 'o' option"),
            ("-o x", "bad property list: invalid property 'x'"),
            ("tank 0", "interval cannot be zero"),
        ] {
            assert_eq!(
                try_request(line).unwrap_err(),
                Failure::usage(text),
                "{line}"
            );
        }
    }
}
