//! Predicates as JSON, as Cloud Analytics had them.
//!
//! ```json
//! { "and": [ { "eq": ["op", "read"] }, { "gt": ["latency", 100000000] } ] }
//! ```
//!
//! Operators are `eq ne lt le gt ge and or`; ours besides are `not` with a predicate, and `in` and
//! `prefix` with a field and values. `{}` means all. Values are texts, numbers, `true` or `false`.

use serde_json::Value;

use crate::error::{Place, PredicateError, Wrong};
use crate::field::Field;
use crate::predicate::{BYTES_MAX, Comparison, DEPTH_MAX, Operator, Predicate};

const OPERATORS: [(&str, Operator); 8] = [
    ("eq", Operator::Equal),
    ("ne", Operator::NotEqual),
    ("lt", Operator::Less),
    ("le", Operator::LessOrEqual),
    ("gt", Operator::Greater),
    ("ge", Operator::GreaterOrEqual),
    ("in", Operator::In),
    ("prefix", Operator::Prefix),
];

impl Predicate {
    /// The predicate of JSON.
    pub fn parse_json(json: &[u8]) -> Result<Predicate, PredicateError> {
        let whole = Path::default();
        if json.len() > BYTES_MAX {
            let bytes_max = BYTES_MAX;
            return Err(whole.wrong(Wrong::TooLong { bytes_max }));
        }
        let value = serde_json::from_slice(json).map_err(|error| {
            let message = error.to_string();
            whole.wrong(Wrong::NotJson { message })
        })?;
        read(&value, &whole)
    }

    /// The predicate of a JSON value.
    pub fn from_json(value: &Value) -> Result<Predicate, PredicateError> {
        read(value, &Path::default())
    }
}

/// Where in the value the reader is.
#[derive(Debug, Default)]
struct Path {
    members: String,
    depth: usize,
}

impl Path {
    fn member(&self, name: &str) -> Path {
        let point = if self.members.is_empty() { "" } else { "." };
        Path {
            members: format!("{}{point}{name}", self.members),
            depth: self.depth + 1,
        }
    }

    fn element(&self, index: usize) -> Path {
        Path {
            members: format!("{}[{index}]", self.members),
            depth: self.depth,
        }
    }

    fn place(&self) -> Place {
        Place::Member(self.members.clone())
    }

    fn wrong(&self, wrong: Wrong) -> PredicateError {
        wrong.at(&self.place())
    }

    fn expected(&self, what: &'static str) -> PredicateError {
        self.wrong(Wrong::Expected { what })
    }
}

fn read(value: &Value, path: &Path) -> Result<Predicate, PredicateError> {
    if path.depth > DEPTH_MAX {
        let depth_max = DEPTH_MAX;
        return Err(path.wrong(Wrong::TooDeep { depth_max }));
    }
    let members = value.as_object();
    let members = members.ok_or_else(|| path.expected("an object with one operator"))?;
    let mut members = members.iter();
    let Some((name, operands)) = members.next() else {
        return Ok(Predicate::Always);
    };
    if members.next().is_some() {
        return Err(path.expected("an object with one operator"));
    }
    let path = path.member(name);
    match name.as_str() {
        "and" => read_list(operands, &path, Predicate::All),
        "or" => read_list(operands, &path, Predicate::Any),
        "not" => Ok(Predicate::Not(Box::new(read(operands, &path)?))),
        other => match OPERATORS.iter().find(|(known, _)| *known == other) {
            Some((_, operator)) => read_comparison(*operator, operands, &path),
            None => {
                let name = name.clone();
                Err(path.wrong(Wrong::UnknownOperator { name }))
            }
        },
    }
}

fn read_list(
    operands: &Value,
    path: &Path,
    join: fn(Vec<Predicate>) -> Predicate,
) -> Result<Predicate, PredicateError> {
    let parts = operands.as_array().filter(|parts| !parts.is_empty());
    let parts = parts.ok_or_else(|| path.expected("a list of predicates"))?;
    let parts = parts.iter().enumerate();
    let parts = parts.map(|(index, part)| read(part, &path.element(index)));
    Ok(Predicate::joined(parts.collect::<Result<_, _>>()?, join))
}

fn read_comparison(
    operator: Operator,
    operands: &Value,
    path: &Path,
) -> Result<Predicate, PredicateError> {
    let what = "a list of a field and a value";
    let Some([field, values @ ..]) = operands.as_array().map(Vec::as_slice) else {
        return Err(path.expected(what));
    };
    let name = field.as_str().ok_or_else(|| path.expected(what))?;
    let field = Field::from_name(name).ok_or_else(|| {
        let name = name.to_owned();
        path.element(0).wrong(Wrong::UnknownField { name })
    })?;
    // Of `in`, the values are one list or stand behind the field.
    let values = match (operator, values) {
        (Operator::In, [Value::Array(values)]) => values.as_slice(),
        _ => values,
    };
    let count_is_right = match operator {
        Operator::In => !values.is_empty(),
        _ => values.len() == 1,
    };
    if !count_is_right {
        return Err(path.expected(what));
    }
    let values = values.iter().enumerate();
    let values = values.map(|(index, value)| read_value(value, &path.element(index + 1)));
    Ok(Predicate::Compare(Comparison {
        field,
        operator,
        values: values.collect::<Result<_, _>>()?,
        place: path.place(),
    }))
}

fn read_value(value: &Value, path: &Path) -> Result<String, PredicateError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        _ => Err(path.expected("a text, a number, true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the places, which differ.
    fn shape(predicate: &Predicate) -> String {
        match predicate {
            Predicate::Compare(Comparison {
                field,
                operator,
                values,
                ..
            }) => format!("{field:?} {operator:?} {values:?}"),
            Predicate::All(parts) => {
                format!("all{:?}", parts.iter().map(shape).collect::<Vec<_>>())
            }
            Predicate::Any(parts) => {
                format!("any{:?}", parts.iter().map(shape).collect::<Vec<_>>())
            }
            Predicate::Not(inner) => format!("not {}", shape(inner)),
            Predicate::Always => "always".to_owned(),
        }
    }

    #[test]
    fn json_means_what_the_text_means() {
        for (json, text) in [
            ("{}", ""),
            (r#"{"eq":["op","read"]}"#, "op=read"),
            (
                r#"{"and":[{"eq":["op","read"]},{"gt":["latency",100000000]}]}"#,
                "op=read and latency>100000000",
            ),
            (
                r#"{"or":[{"not":{"in":["client",["a","b"]]}},{"in":["user",0,1]}]}"#,
                "not client in (a,b) or user in (0,1)",
            ),
            (r#"{"prefix":["dataset","tank"]}"#, "dataset prefix tank"),
        ] {
            let from_json = Predicate::parse_json(json.as_bytes()).unwrap();
            assert_eq!(
                shape(&from_json),
                shape(&Predicate::parse(text).unwrap()),
                "{json}"
            );
        }
    }

    #[test]
    fn errors_name_the_member() {
        for (json, member) in [
            (
                r#"{"and":[{"eq":["op","read"]},{"gt":["colour",1]}]}"#,
                "and[1].gt[0]",
            ),
            (r#"{"or":[{"xor":[]}]}"#, "or[0].xor"),
            (r#"{"and":[]}"#, "and"),
            (r#"{"eq":["op"]}"#, "eq"),
            (r#"{"eq":["op",null]}"#, "eq[1]"),
            (r#"{"eq":["op",1],"ne":["op",2]}"#, ""),
            ("[]", ""),
            ("{", ""),
        ] {
            let error = Predicate::parse_json(json.as_bytes()).unwrap_err();
            assert_eq!(
                error.place,
                Place::Member(member.to_owned()),
                "{json}: {error}"
            );
        }
        let deep = r#"{"not":"#.repeat(60) + "{}" + &"}".repeat(60);
        let error = Predicate::parse_json(deep.as_bytes()).unwrap_err();
        assert!(matches!(error.wrong, Wrong::TooDeep { .. }), "{error}");
    }

    /// Bytes are cut, doubled and overwritten at random: each result is a predicate, which then
    /// compiles or is refused, or an error.
    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut random = tarn_host::sim::Random::new(4);
        let seed: &[u8] = br#"{"and":[{"in":["op",["read","\u00b5"]]},{"not":{"gt":["latency",1e9]}},{"prefix":["file","/"]}]}"#;
        let (mut read, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let mut json = seed.to_vec();
            for _ in 0..random.index(4) {
                let from = random.index(json.len());
                let to = (from + random.index(6)).min(json.len());
                let other = random.index(json.len());
                let pieces = [vec![random.byte()], json[other..].to_vec(), Vec::new()];
                json.splice(from..to, pieces[random.index(3)].iter().copied());
            }
            match Predicate::parse_json(&json) {
                Err(_) => refused += 1,
                Ok(predicate) => {
                    read += 1;
                    // Names that mean nothing are refused; that is no panic either.
                    drop(predicate.compile(&crate::ValueNames::new()));
                }
            }
        }
        assert!(
            read > 1000 && refused > 1000,
            "{read} read, {refused} refused"
        );
    }
}
