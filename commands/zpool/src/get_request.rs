//! The command line of `zpool get`, and the columns of its table.

use tarn_terminal::failure::Failure;
use tarn_terminal::json::Numbers;
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::show::Exactness;
use tarn_terminal::table::{self, Align, Cell};

const GRAMMAR: Grammar = Grammar {
    short: ":jHpo:",
    long: &[
        ("json", "j"),
        ("json-int", "json-int"),
        ("json-pool-key-guid", "json-pool-key-guid"),
    ],
};

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Name,
    Property,
    Value,
    Source,
}

impl Field {
    const ALL: [(&str, Field); 4] = [
        ("name", Field::Name),
        ("property", Field::Property),
        ("value", Field::Value),
        ("source", Field::Source),
    ];

    pub fn heading(self) -> &'static str {
        match self {
            Field::Name => "NAME",
            Field::Property => "PROPERTY",
            Field::Value => "VALUE",
            Field::Source => "SOURCE",
        }
    }
}

/// A command line, understood.
#[derive(Debug)]
pub struct Request {
    pub pools: Vec<String>,
    pub properties: String,
    pub fields: Vec<Field>,
    pub is_scripted: bool,
    pub exactness: Exactness,
    pub json: Option<Numbers>,
    pub are_keys_guids: bool,
}

/// Understands a command line.
///
/// # Errors
/// What is wrong with it.
pub fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut fields: Vec<Field> = Field::ALL.iter().map(|(_, field)| *field).collect();
    let (mut is_scripted, mut is_exact) = (false, false);
    let (mut is_json, mut wants_integers, mut are_keys_guids) = (false, false, false);
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "p" => is_exact = true,
            "H" => is_scripted = true,
            "j" => is_json = true,
            "json-int" => wants_integers = true,
            "json-pool-key-guid" => are_keys_guids = true,
            _ => fields = parse_fields(&value)?,
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
    if pools.is_empty() {
        return Err(Failure::usage("missing property argument"));
    }
    let properties = pools.remove(0);
    Ok(Request {
        pools,
        properties,
        fields,
        is_scripted,
        exactness: match is_exact || wants_integers {
            true => Exactness::Exact,
            false => Exactness::Nice,
        },
        json: is_json.then_some(match wants_integers {
            true => Numbers::Integers,
            false => Numbers::Text,
        }),
        are_keys_guids,
    })
}

fn parse_fields(text: &str) -> Result<Vec<Field>, Failure> {
    let mut fields = Vec::new();
    for word in text.split(',') {
        if fields.len() == Field::ALL.len() {
            return Err(Failure::usage("too many fields given to -o option"));
        }
        let known = Field::ALL.iter().find(|(name, _)| *name == word);
        match (word, known) {
            ("all", _) if fields.is_empty() => fields.extend(Field::ALL.map(|(_, field)| field)),
            ("all", _) => {
                let text = "\"all\" conflicts with specific fields given to -o option";
                return Err(Failure::usage(text));
            }
            (_, Some((_, field))) => fields.push(*field),
            (_, None) => return Err(Failure::usage(format!("invalid column name '{word}'"))),
        }
    }
    Ok(fields)
}

/// A line of the table.
pub fn filled(line: Vec<String>, widths: &[usize]) -> String {
    let cells: Vec<Cell> = line
        .into_iter()
        .zip(widths)
        .map(|(text, width)| Cell {
            text,
            width: *width,
            align: Align::Left,
        })
        .collect();
    table::line(&cells)
}
