//! `zfs get`.

use crate::answers;
use crate::asked::{Asked, List};
use crate::frame;
use crate::walk::{DATASETS, Found, Walk, parse_depth, parse_kinds};
use tarn_administration::messages::Source;
use tarn_administration::messages::dataset::{DatasetDescription, DatasetKind};
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::json::{self, Numbers};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::show::{self, Exactness};

const GRAMMAR: Grammar = Grammar {
    short: ":d:o:s:jrt:Hp",
    long: &[("json", "j"), ("json-int", "json-int")],
};

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Property,
    Value,
    Received,
    Source,
}

impl Field {
    const ALL: [Field; 5] = [
        Field::Name,
        Field::Property,
        Field::Value,
        Field::Received,
        Field::Source,
    ];

    fn parse(word: &str) -> Option<Field> {
        Field::ALL
            .into_iter()
            .find(|field| field.heading().eq_ignore_ascii_case(word))
            .filter(|_| word.bytes().all(|letter| letter.is_ascii_lowercase()))
    }

    fn heading(self) -> &'static str {
        match self {
            Field::Name => "NAME",
            Field::Property => "PROPERTY",
            Field::Value => "VALUE",
            Field::Received => "RECEIVED",
            Field::Source => "SOURCE",
        }
    }
}

/// Sources by the words of `-s`.
const SOURCES: [&str; 6] = [
    "local",
    "default",
    "inherited",
    "received",
    "temporary",
    "none",
];

/// A command line, understood.
#[derive(Debug)]
struct Request {
    walk: Walk,
    properties: List,
    fields: Vec<Field>,
    sources: Vec<String>,
    is_scripted: bool,
    exactness: Exactness,
    json: Option<Numbers>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    let found = request.walk.run(&client, request.properties.names(), &[])?;
    print(session, &request, &found);
    Ok(u8::from(found.has_failed))
}

fn print(session: &Session, request: &Request, found: &Found) {
    match request.json {
        Some(numbers) if !found.has_failed => {
            let mut out = json::frame(session);
            out.insert(
                "datasets".into(),
                objects(request, numbers, &found.datasets),
            );
            json::print(out);
        }
        Some(_) => {}
        None => output::say(&table(request, &found.datasets)),
    }
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut walk = Walk {
        kinds: DATASETS.to_vec(),
        ..Walk::default()
    };
    walk.kinds.push(DatasetKind::Bookmark);
    let mut fields = vec![Field::Name, Field::Property, Field::Value, Field::Source];
    let mut sources: Vec<String> = SOURCES.iter().map(|word| word.to_string()).collect();
    let (mut is_scripted, mut is_exact, mut is_json, mut wants_integers) =
        (false, false, false, false);
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "p" => is_exact = true,
            "d" => {
                walk.depth_max = Some(parse_depth(&value)?);
                walk.is_recursive = true;
            }
            "r" => walk.is_recursive = true,
            "H" => is_scripted = true,
            "j" => is_json = true,
            "json-int" => wants_integers = true,
            "o" => fields = parse_fields(&value)?,
            "s" => sources = parse_sources(&value)?,
            _ => walk.kinds = parse_kinds(&value)?,
        }
    }
    let mut operands = options.operands();
    if operands.is_empty() {
        return Err(Failure::usage("missing property argument"));
    }
    if wants_integers && !is_json {
        return Err(Failure::usage("'--json-int' only works with '-j' option"));
    }
    let properties = operands.remove(0);
    walk.names = operands;
    walk.descend_to_snapshots();
    Ok(Request {
        walk,
        properties: List::parse(&properties)?,
        fields,
        sources,
        is_scripted,
        exactness: if is_exact || wants_integers {
            Exactness::Exact
        } else {
            Exactness::Nice
        },
        json: match (is_json, wants_integers) {
            (false, _) => None,
            (true, false) => Some(Numbers::Text),
            (true, true) => Some(Numbers::Integers),
        },
    })
}

fn parse_fields(text: &str) -> Result<Vec<Field>, Failure> {
    let mut fields = Vec::new();
    for word in text.split(',') {
        if fields.len() == Field::ALL.len() {
            return Err(Failure::usage("too many fields given to -o option"));
        }
        match (word, Field::parse(word)) {
            ("all", _) if fields.is_empty() => fields.extend(Field::ALL),
            ("all", _) => {
                let text = "\"all\" conflicts with specific fields given to -o option";
                return Err(Failure::usage(text));
            }
            (_, Some(field)) => fields.push(field),
            (_, None) => return Err(Failure::usage(format!("invalid column name '{word}'"))),
        }
    }
    Ok(fields)
}

fn parse_sources(text: &str) -> Result<Vec<String>, Failure> {
    let words: Vec<String> = text.split(',').map(str::to_string).collect();
    match words.iter().find(|word| !SOURCES.contains(&word.as_str())) {
        Some(word) => Err(Failure::usage(format!("invalid source '{word}'"))),
        None => Ok(words),
    }
}

/// One line of the table.
#[derive(Debug)]
struct Row<'a> {
    dataset: &'a DatasetDescription,
    asked: &'a Asked,
    value: String,
    source: &'a Source,
    received: Option<String>,
}

impl Row<'_> {
    fn text(&self, field: Field) -> String {
        match field {
            Field::Name => self.dataset.name.clone(),
            Field::Property => self.asked.name().to_string(),
            Field::Value => self.value.clone(),
            Field::Received => self.received.clone().unwrap_or_else(|| "-".to_string()),
            Field::Source => show::source(self.source),
        }
    }
}

/// The word of a source in `-s`.
fn source_word(source: &Source) -> &'static str {
    match source {
        Source::Local => "local",
        Source::Default => "default",
        Source::Inherited(_) => "inherited",
        Source::Received => "received",
        Source::Temporary => "temporary",
        Source::None => "none",
    }
}

/// What is shown of one dataset.
fn rows<'a>(
    request: &'a Request,
    properties: &'a [Asked],
    dataset: &'a DatasetDescription,
) -> impl Iterator<Item = Row<'a>> {
    let is_all = matches!(request.properties, List::All);
    properties.iter().filter_map(move |asked| {
        let value = answers::text(dataset, asked, request.exactness);
        if value.is_none() && is_all {
            return None;
        }
        let source = answers::source(dataset, asked);
        if !request
            .sources
            .iter()
            .any(|word| word == source_word(source))
        {
            return None;
        }
        let received = answers::received(dataset, asked, request.exactness);
        let value = value.unwrap_or_else(|| "-".to_string());
        Some(Row {
            dataset,
            asked,
            value,
            source,
            received,
        })
    })
}

/// The table, whose heading is there only with something below it.
fn table(request: &Request, datasets: &[DatasetDescription]) -> String {
    let properties = request.properties.expand(datasets);
    let mut lines = Vec::new();
    for dataset in datasets {
        for row in rows(request, &properties, dataset) {
            lines.push(
                request
                    .fields
                    .iter()
                    .map(|field| row.text(*field))
                    .collect::<Vec<_>>(),
            );
        }
    }
    if request.is_scripted {
        return lines.iter().map(|line| line.join("\t") + "\n").collect();
    }
    if lines.is_empty() {
        return String::new();
    }
    let widths: Vec<usize> = request
        .fields
        .iter()
        .map(|field| width(*field, &properties, datasets))
        .collect();
    let heading = request
        .fields
        .iter()
        .map(|field| field.heading().to_string())
        .collect();
    lines.insert(0, heading);
    lines.iter().map(|line| fill(line, &widths)).collect()
}

/// The width of a column. It is found before anything is left out, and from values as people read
/// them, even when exact ones are shown: OpenZFS does so.
fn width(field: Field, properties: &[Asked], datasets: &[DatasetDescription]) -> usize {
    let names = datasets
        .iter()
        .map(|dataset| dataset.name.len())
        .max()
        .unwrap_or(0);
    let heading = field.heading().len();
    match field {
        Field::Name => heading.max(names),
        Field::Property => properties
            .iter()
            .map(|asked| asked.name().len())
            .fold(heading, usize::max),
        Field::Value => properties
            .iter()
            .map(|asked| asked.width(datasets, Exactness::Nice))
            .fold(heading, usize::max),
        Field::Received => datasets
            .iter()
            .flat_map(|dataset| dataset.properties.values())
            .filter_map(|answer| answer.received.as_ref().map(String::len))
            .fold(heading, usize::max),
        // Room for a value inherited from the longest name, whether there is one or not.
        Field::Source if names > Field::Name.heading().len() => names + "inherited from".len(),
        Field::Source => heading,
    }
}

fn fill(line: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (index, (cell, width)) in line.iter().zip(widths).enumerate() {
        text.push_str(cell);
        if index + 1 < line.len() {
            text.push_str(&" ".repeat(width.saturating_sub(cell.len()) + 2));
        }
    }
    text + "\n"
}

/// The datasets as JSON, by name; those of which nothing is shown are left out.
fn objects(
    request: &Request,
    numbers: Numbers,
    datasets: &[DatasetDescription],
) -> serde_json::Value {
    let properties = request.properties.expand(datasets);
    let mut objects = json::Object::new();
    for dataset in datasets {
        let mut shown = json::Object::new();
        for row in rows(request, &properties, dataset) {
            let received = request
                .fields
                .contains(&Field::Received)
                .then(|| row.received.clone());
            let received = received.flatten();
            let received = received.as_deref();
            let value = json::property(&row.value, row.source, received, numbers);
            shown.insert(row.asked.name().to_string(), value);
        }
        if !shown.is_empty() {
            let mut object = frame::dataset(dataset, numbers);
            object.insert("properties".into(), shown.into());
            objects.insert(dataset.name.clone(), object.into());
        }
    }
    objects.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tarn_administration::messages::Value;

    fn request(line: &str) -> Request {
        try_request(line).unwrap()
    }

    fn try_request(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    /// Values of the fixture `basic`.
    fn props() -> DatasetDescription {
        let text = |text: &str| Value::Text(text.to_string());
        let mut dataset = samples::dataset("fxbasic/props", &[]);
        for (name, value, source) in [
            ("used", Value::Number(131_072), Source::None),
            ("quota", Value::Number(0), Source::Default),
            ("mountpoint", text("/fxbasic/elsewhere"), Source::Local),
            (
                "xattr",
                text("on"),
                Source::Inherited("fxbasic".to_string()),
            ),
            ("readonly", text("on"), Source::Temporary),
            ("com.example:note", text("hello world"), Source::Local),
        ] {
            dataset = samples::with(dataset, name, value, source);
        }
        dataset
    }

    #[test]
    fn the_table_is_the_one_of_openzfs() {
        let asked = request("used,quota,mountpoint,xattr,com.example:note fxbasic/props");
        assert_eq!(
            table(&asked, &[props()]),
            "NAME           PROPERTY          VALUE               SOURCE\n\
             fxbasic/props  used              128K                -\n\
             fxbasic/props  quota             none                default\n\
             fxbasic/props  mountpoint        /fxbasic/elsewhere  local\n\
             fxbasic/props  xattr             on                  inherited from fxbasic\n\
             fxbasic/props  com.example:note  hello world         local\n"
        );
    }

    #[test]
    fn the_value_column_has_room_for_the_longest_heading() {
        let text = table(&request("special_small_blocks,used x"), &[props()]);
        let heading = text.lines().next().unwrap();
        assert_eq!(
            heading,
            "NAME           PROPERTY              VALUE                 SOURCE"
        );
    }

    #[test]
    fn all_leaves_out_what_does_not_apply_and_asking_shows_a_dash() {
        let text = table(&request("-H all x"), &[props()]);
        assert_eq!(text.lines().count(), 6);
        assert_eq!(
            table(&request("-H volsize,name x"), &[props()]),
            "fxbasic/props\tvolsize\t-\t-\nfxbasic/props\tname\tfxbasic/props\t-\n"
        );
    }

    #[test]
    fn exact_values_are_those_of_the_recorded_truth() {
        assert_eq!(
            table(&request("-Hp used,quota x"), &[props()]),
            "fxbasic/props\tused\t131072\t-\nfxbasic/props\tquota\t0\tdefault\n"
        );
    }

    #[test]
    fn sources_and_fields_are_chosen() {
        assert_eq!(
            table(
                &request("-H -s local,temporary -o property,value all x"),
                &[props()]
            ),
            "mountpoint\t/fxbasic/elsewhere\nreadonly\ton\ncom.example:note\thello world\n"
        );
        assert_eq!(
            table(&request("-H -o all used x"), &[props()]),
            "fxbasic/props\tused\t128K\t-\t-\n"
        );
    }

    #[test]
    fn a_heading_stands_only_above_something() {
        assert_eq!(table(&request("-s received all x"), &[props()]), "");
    }

    #[test]
    fn json_has_values_and_sources() {
        assert_eq!(
            objects(&request("-j xattr x"), Numbers::Text, &[props()]).to_string(),
            concat!(
                r#"{"fxbasic/props":{"name":"fxbasic/props","type":"FILESYSTEM","pool":"fxbasic","createtxg":"1","#,
                r#""properties":{"xattr":{"value":"on","source":{"type":"INHERITED","data":"fxbasic"}}}}}"#
            )
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_usage() {
        for (line, text) in [
            ("", "missing property argument"),
            ("-o name,nonsense all", "invalid column name 'nonsense'"),
            (
                "-o name,all all",
                "\"all\" conflicts with specific fields given to -o option",
            ),
            ("-o all,name all", "too many fields given to -o option"),
            ("-s nobody all", "invalid source 'nobody'"),
            ("-o", "missing argument for 'o' option"),
            ("-d x all", "x is not an integer"),
            (
                "nonsense tank",
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
}
