//! `zfs list`.

use crate::answers;
use crate::asked::{Asked, List};
use crate::frame;
use crate::order::SortKey;
use crate::walk::{DATASETS, Walk, parse_depth, parse_kinds};
use tarn_administration::messages::dataset::{DatasetDescription, DatasetKind};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::json::{self, Numbers};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::show::Exactness;

const GRAMMAR: Grammar = Grammar {
    short: "jHS:d:o:prs:t:",
    long: &[("json", "j"), ("json-int", "json-int")],
};

/// What `-o` is when it is not given.
const COLUMNS: &str = "name,used,available,referenced,mountpoint";

/// A command line, understood.
#[derive(Debug)]
struct Request {
    walk: Walk,
    columns: List,
    keys: Vec<SortKey>,
    is_scripted: bool,
    /// Of values.
    exactness: Exactness,
    /// Of widths: `--json-int` does not change those.
    width_exactness: Exactness,
    json: Option<Numbers>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let mut properties = request.columns.names();
    if !properties.is_empty() {
        properties.extend(request.keys.iter().map(|key| key.asked.name().to_string()));
    }
    let client = session.connect()?;
    let found = request.walk.run(&client, properties, &request.keys)?;
    match request.json {
        Some(numbers) if !found.has_failed => {
            let mut out = json::frame(session);
            out.insert(
                "datasets".into(),
                objects(&request, numbers, &found.datasets),
            );
            json::print(out);
        }
        Some(_) => {}
        None => output::say(&table(&request, &found.datasets)),
    }
    if !found.has_failed && found.datasets.is_empty() && !request.is_scripted {
        complain("no datasets available");
    }
    Ok(u8::from(found.has_failed))
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut walk = Walk {
        kinds: DATASETS.to_vec(),
        are_snapshots_by_pool: true,
        ..Walk::default()
    };
    let (mut columns, mut keys) = (COLUMNS.to_string(), Vec::new());
    let (mut is_scripted, mut is_exact, mut is_json, mut wants_integers) =
        (false, false, false, false);
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "o" => columns = value,
            "p" => is_exact = true,
            "d" => {
                walk.depth_max = Some(parse_depth(&value)?);
                walk.is_recursive = true;
            }
            "r" => walk.is_recursive = true,
            "j" => is_json = true,
            "json-int" => wants_integers = true,
            "H" => is_scripted = true,
            "s" | "S" => keys.push(sort_key(&value, option == "S")?),
            _ => {
                walk.kinds = parse_kinds(&value)?;
                walk.are_snapshots_by_pool = false;
            }
        }
    }
    if wants_integers && !is_json {
        return Err(Failure::usage("'--json-int' only works with '-j' option"));
    }
    if columns == "space" && walk.are_snapshots_by_pool {
        walk.kinds.retain(|kind| *kind != DatasetKind::Snapshot);
    }
    walk.names = options.operands();
    walk.descend_to_snapshots();
    let exact = |condition| {
        if condition {
            Exactness::Exact
        } else {
            Exactness::Nice
        }
    };
    Ok(Request {
        walk,
        columns: List::parse(&columns)?,
        keys,
        is_scripted,
        exactness: exact(is_exact || wants_integers),
        width_exactness: exact(is_exact),
        json: match (is_json, wants_integers) {
            (false, _) => None,
            (true, false) => Some(Numbers::Text),
            (true, true) => Some(Numbers::Integers),
        },
    })
}

fn sort_key(name: &str, descending: bool) -> Result<SortKey, Failure> {
    let asked =
        Asked::find(name).ok_or_else(|| Failure::usage(format!("invalid property '{name}'")))?;
    Ok(SortKey { asked, descending })
}

/// The columns; `all` has the name before the others.
fn columns(request: &Request, datasets: &[DatasetDescription]) -> Vec<Asked> {
    let mut columns = request.columns.expand(datasets);
    if let List::All = request.columns {
        columns.splice(0..0, Asked::find("name"));
    }
    columns
}

/// The table; nothing for no datasets.
fn table(request: &Request, datasets: &[DatasetDescription]) -> String {
    let columns = columns(request, datasets);
    let text = |dataset: &DatasetDescription, column: &Asked| {
        answers::text(dataset, column, request.exactness).unwrap_or_else(|| "-".to_string())
    };
    let rows = datasets.iter().map(|dataset| {
        columns
            .iter()
            .map(|column| text(dataset, column))
            .collect::<Vec<_>>()
    });
    if request.is_scripted {
        return rows.map(|row| row.join("\t") + "\n").collect();
    }
    if datasets.is_empty() {
        return String::new();
    }
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| column.width(datasets, request.width_exactness))
        .collect();
    let headings: Vec<String> = columns.iter().map(Asked::heading).collect();
    let heading = line(&columns, &widths, &headings, Asked::heading_aligns_right);
    let rows = rows.map(|row| line(&columns, &widths, &row, Asked::aligns_right));
    std::iter::once(heading).chain(rows).collect()
}

/// One line: columns two spaces apart, the last one not filled up when it is aligned to the left.
fn line(
    columns: &[Asked],
    widths: &[usize],
    row: &[String],
    aligns_right: impl Fn(&Asked) -> bool,
) -> String {
    let mut line = String::new();
    for (index, ((column, width), text)) in columns.iter().zip(widths).zip(row).enumerate() {
        let filling = " ".repeat(width.saturating_sub(text.len()));
        if index > 0 {
            line.push_str("  ");
        }
        if aligns_right(column) {
            line.push_str(&filling);
        }
        line.push_str(text);
        if !aligns_right(column) && index + 1 < columns.len() {
            line.push_str(&filling);
        }
    }
    line + "\n"
}

/// The datasets as JSON, by name.
fn objects(
    request: &Request,
    numbers: Numbers,
    datasets: &[DatasetDescription],
) -> serde_json::Value {
    let columns = columns(request, datasets);
    let mut objects = json::Object::new();
    for dataset in datasets {
        let mut properties = json::Object::new();
        for column in columns.iter().filter(|column| column.name() != "name") {
            let text = answers::text(dataset, column, request.exactness);
            let text = text.unwrap_or_else(|| "-".to_string());
            let value = json::property(&text, answers::source(dataset, column), None, numbers);
            properties.insert(column.name().to_string(), value);
        }
        let mut object = frame::dataset(dataset, numbers);
        object.insert("properties".into(), properties.into());
        objects.insert(dataset.name.clone(), object.into());
    }
    objects.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::arrange;
    use crate::samples;
    use tarn_administration::messages::{Source, Value};

    fn request(line: &str) -> Request {
        try_request(line).unwrap()
    }

    fn try_request(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    /// Values of the fixture `basic`, as OpenZFS gave them with `-p`.
    fn basic() -> Vec<DatasetDescription> {
        let row = |name: &str, used, referenced, mountpoint: &str| {
            samples::dataset(
                name,
                &[
                    ("used", Value::Number(used)),
                    ("available", Value::Number(44_175_360)),
                    ("referenced", Value::Number(referenced)),
                    ("mountpoint", Value::Text(mountpoint.to_string())),
                ],
            )
        };
        let mut snapshot = samples::snapshot("fxbasic/full@before", 60, 2_887_680);
        let referenced = Value::Number(9_220_096);
        snapshot = samples::with(snapshot, "referenced", referenced, Source::None);
        let datasets = vec![
            snapshot,
            row("fxbasic/full", 12_328_960, 5_185_536, "/fxbasic/full"),
            row("fxbasic", 48_099_328, 114_688, "/fxbasic"),
        ];
        arrange(datasets, &[])
    }

    #[test]
    fn columns_are_those_of_openzfs() {
        assert_eq!(
            table(&request(""), &basic()),
            "NAME                  USED  AVAIL  REFER  MOUNTPOINT\n\
             fxbasic              45.9M  42.1M   112K  /fxbasic\n\
             fxbasic/full         11.8M  42.1M  4.95M  /fxbasic/full\n\
             fxbasic/full@before  2.75M      -  8.79M  -\n"
        );
    }

    #[test]
    fn script_mode_has_tabs_and_exact_numbers_on_request() {
        assert_eq!(
            table(&request("-Hp -o name,used,avail"), &basic()),
            "fxbasic\t48099328\t44175360\n\
             fxbasic/full\t12328960\t44175360\n\
             fxbasic/full@before\t2887680\t-\n"
        );
    }

    #[test]
    fn exact_numbers_widen_their_columns() {
        assert_eq!(
            table(&request("-p -o used,name"), &basic()[..1]),
            "    USED  NAME\n48099328  fxbasic\n"
        );
    }

    #[test]
    fn nothing_is_printed_of_nothing() {
        assert_eq!(table(&request(""), &[]), "");
    }

    #[test]
    fn json_has_the_dataset_and_its_properties() {
        let request = request("-j -o name,used,mountpoint");
        let snapshot = &basic()[2..];
        assert_eq!(
            objects(&request, Numbers::Text, snapshot).to_string(),
            concat!(
                r#"{"fxbasic/full@before":{"name":"fxbasic/full@before","type":"SNAPSHOT","pool":"fxbasic","#,
                r#""createtxg":"60","dataset":"fxbasic/full","snapshot_name":"before","properties":{"#,
                r#""used":{"value":"2.75M","source":{"type":"NONE","data":"-"}},"#,
                r#""mountpoint":{"value":"-","source":{"type":"NONE","data":"-"}}}}}"#
            )
        );
    }

    #[test]
    fn json_numbers_are_exact_integers_on_request() {
        let request = request("-j --json-int -o used");
        let text = objects(&request, Numbers::Integers, &basic()[..1]).to_string();
        assert!(
            text.contains(r#""createtxg":1,"properties":{"used":{"value":48099328,"#),
            "{text}"
        );
    }

    #[test]
    fn all_has_the_name_first_and_user_properties_last() {
        let note = Value::Text("hello world".to_string());
        let dataset = samples::with(basic().remove(0), "com.example:note", note, Source::Local);
        let text = table(&request("-H -o all"), &[dataset]);
        let cells: Vec<&str> = text.trim_end().split('\t').collect();
        assert_eq!(cells.first(), Some(&"fxbasic"));
        assert_eq!(cells.last(), Some(&"hello world"));
    }

    #[test]
    fn snapshots_are_shown_by_pool_unless_kinds_are_named() {
        assert!(request("tank").walk.are_snapshots_by_pool);
        assert!(!request("-t all").walk.are_snapshots_by_pool);
        assert_eq!(request("-o space").walk.kinds.len(), 2);
        assert_eq!(request("-t snapshot tank").walk.depth_max, Some(1));
        assert_eq!(request("-t snapshot -r tank").walk.depth_max, None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_usage() {
        for (line, text) in [
            ("-s nonsense", "invalid property 'nonsense'"),
            ("--json-int", "'--json-int' only works with '-j' option"),
            ("-Q", "invalid option 'Q'"),
            (
                "-o name,nonsense",
                "bad property list: invalid property 'nonsense'",
            ),
        ] {
            assert_eq!(
                try_request(line).unwrap_err(),
                Failure::usage(text),
                "{line}"
            );
        }
    }

    #[test]
    fn a_source_is_shown_in_json() {
        let value = Value::Text("off".to_string());
        let source = Source::Inherited("tank".to_string());
        let dataset = samples::with(samples::dataset("tank/a", &[]), "atime", value, source);
        let text = objects(&request("-j -o atime"), Numbers::Text, &[dataset]).to_string();
        assert!(
            text.contains(r#""source":{"type":"INHERITED","data":"tank"}"#),
            "{text}"
        );
    }
}
