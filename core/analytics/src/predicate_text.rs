//! The text of predicates and statements, taken apart.
//!
//! ```text
//! statement  = statistic { "[" field | expression "]" } [ ":" field ]
//! expression = and { "or" and }
//! and        = unary { "and" unary }
//! unary      = "not" unary | "(" expression ")" | comparison
//! comparison = field ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
//!            | field "in" "(" value { "," value } ")"
//!            | field ( "prefix" | "^=" ) value
//! value      = "\"" any, with \ before " and \ "\"" | any without space and ( ) [ ] , "
//! ```

use crate::error::{Place, PredicateError, Wrong};
use crate::field::Field;
use crate::predicate::{BYTES_MAX, Comparison, DEPTH_MAX, Operator, Predicate};

impl Predicate {
    /// The predicate of a text such as `op=read and latency>10ms`. An empty one means all.
    pub fn parse(text: &str) -> Result<Predicate, PredicateError> {
        let mut reader = Reader::new(text)?;
        reader.skip_space();
        if reader.rest().is_empty() {
            return Ok(Predicate::Always);
        }
        let predicate = reader.expression(0)?;
        match reader.rest().is_empty() {
            true => Ok(predicate),
            false => Err(reader.expected("`and`, `or`, or the end")),
        }
    }
}

/// Operators as they are written, longer ones before those that they begin with.
const SIGNS: [(&str, Operator); 11] = [
    ("!=", Operator::NotEqual),
    ("≠", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    ("≤", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("≥", Operator::GreaterOrEqual),
    ("^=", Operator::Prefix),
    ("==", Operator::Equal),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// Reads a text from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Result<Reader<'a>, PredicateError> {
        let reader = Reader { text, at: 0 };
        match text.len() > BYTES_MAX {
            true => Err(reader.wrong(Wrong::TooLong {
                bytes_max: BYTES_MAX,
            })),
            false => Ok(reader),
        }
    }

    /// What was not read.
    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Where it is.
    pub(crate) fn place(&self) -> Place {
        Place::Byte(self.at)
    }

    pub(crate) fn wrong(&self, wrong: Wrong) -> PredicateError {
        wrong.at(&self.place())
    }

    pub(crate) fn expected(&self, what: &'static str) -> PredicateError {
        self.wrong(Wrong::Expected { what })
    }

    pub(crate) fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Reads this text, if it is next.
    pub(crate) fn take(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    /// Reads as far as characters are of this kind.
    pub(crate) fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|character| !is_part(character));
        let taken = &rest[..end.unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// Reads this word, if it is next and is not the beginning of a longer one.
    fn take_word(&mut self, word: &str) -> bool {
        let mut ahead = Reader { ..*self };
        let is_next = ahead.take_while(is_of_word) == word;
        if is_next {
            self.at = ahead.at;
        }
        is_next
    }

    /// Reads the name of a field, and gives the field.
    pub(crate) fn field(&mut self) -> Result<Field, PredicateError> {
        let place = self.place();
        let name = self.take_while(is_of_word);
        if name.is_empty() {
            return Err(self.expected("the name of a field"));
        }
        Field::from_name(name).ok_or_else(|| {
            let name = name.to_owned();
            Wrong::UnknownField { name }.at(&place)
        })
    }

    /// Reads a field alone in brackets, if that is what is next, behind `[`.
    pub(crate) fn bare_field(&mut self) -> Result<Option<Field>, PredicateError> {
        let mut ahead = Reader { ..*self };
        ahead.skip_space();
        ahead.take_while(is_of_word);
        ahead.skip_space();
        if !ahead.rest().starts_with(']') {
            return Ok(None);
        }
        self.skip_space();
        let field = self.field()?;
        self.skip_space();
        Ok(Some(field))
    }

    /// Reads an expression and the space behind it.
    pub(crate) fn expression(&mut self, depth: usize) -> Result<Predicate, PredicateError> {
        self.list(depth, "or", Predicate::Any, |reader| {
            reader.list(depth, "and", Predicate::All, |reader| reader.unary(depth))
        })
    }

    fn list(
        &mut self,
        depth: usize,
        word: &str,
        join: fn(Vec<Predicate>) -> Predicate,
        mut part: impl FnMut(&mut Reader<'a>) -> Result<Predicate, PredicateError>,
    ) -> Result<Predicate, PredicateError> {
        if depth > DEPTH_MAX {
            return Err(self.wrong(Wrong::TooDeep {
                depth_max: DEPTH_MAX,
            }));
        }
        let mut parts = vec![part(self)?];
        while self.take_word(word) {
            parts.push(part(self)?);
        }
        Ok(Predicate::joined(parts, join))
    }

    fn unary(&mut self, depth: usize) -> Result<Predicate, PredicateError> {
        self.skip_space();
        let mut negations = 0;
        while self.take_word("not") {
            negations += 1;
            self.skip_space();
        }
        let inner = match self.take("(") {
            false => Predicate::Compare(self.comparison()?),
            true => {
                let inner = self.expression(depth + 1)?;
                if !self.take(")") {
                    return Err(self.expected("`and`, `or` or `)`"));
                }
                inner
            }
        };
        self.skip_space();
        Ok(match negations % 2 {
            0 => inner,
            _ => Predicate::Not(Box::new(inner)),
        })
    }

    fn comparison(&mut self) -> Result<Comparison, PredicateError> {
        let place = self.place();
        let field = self.field()?;
        self.skip_space();
        let operator = self.operator()?;
        self.skip_space();
        let values = match operator {
            Operator::In => self.values()?,
            _ => vec![self.value()?],
        };
        Ok(Comparison {
            field,
            operator,
            values,
            place,
        })
    }

    fn operator(&mut self) -> Result<Operator, PredicateError> {
        let sign = SIGNS.iter().find(|(sign, _)| self.rest().starts_with(sign));
        if let Some((sign, operator)) = sign {
            self.at += sign.len();
            return Ok(*operator);
        }
        if self.take_word("in") {
            return Ok(Operator::In);
        }
        match self.take_word("prefix") {
            true => Ok(Operator::Prefix),
            false => Err(self.expected("one of = != < <= > >= in prefix")),
        }
    }

    /// Values between parentheses, or without them up to the last comma's.
    fn values(&mut self) -> Result<Vec<String>, PredicateError> {
        let is_enclosed = self.take("(");
        let mut values = Vec::new();
        loop {
            self.skip_space();
            values.push(self.value()?);
            let mut ahead = Reader { ..*self };
            ahead.skip_space();
            if !ahead.take(",") {
                break;
            }
            self.at = ahead.at;
        }
        self.skip_space();
        match is_enclosed && !self.take(")") {
            true => Err(self.expected("`,` or `)`")),
            false => Ok(values),
        }
    }

    fn value(&mut self) -> Result<String, PredicateError> {
        if self.take("\"") {
            return self.quoted();
        }
        let value = self
            .take_while(|character| !character.is_whitespace() && !"()[],\"".contains(character));
        match value.is_empty() {
            true => Err(self.expected("a value, in \" if it has space or one of ()[],")),
            false => Ok(value.to_owned()),
        }
    }

    /// The rest of a value in quotation marks.
    fn quoted(&mut self) -> Result<String, PredicateError> {
        let mut value = String::new();
        let mut characters = self.rest().char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.at += at + 1;
                    return Ok(value);
                }
                '\\' => value.extend(characters.next().map(|(_, character)| character)),
                other => value.push(other),
            }
        }
        self.at = self.text.len();
        Err(self.expected("the `\"` that ends the value"))
    }
}

/// Whether names of fields and operators may have it. `hit/miss` is one.
fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_/".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(field: Field, operator: Operator, values: &[&str], at: usize) -> Predicate {
        Predicate::Compare(Comparison {
            field,
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            place: Place::Byte(at),
        })
    }

    #[test]
    fn and_binds_closer_than_or_and_not_closest() {
        let text = "op=read or not user>=1000 and dataset prefix tank/a";
        let read = compare(Field::Operation, Operator::Equal, &["read"], 0);
        let user = compare(Field::User, Operator::GreaterOrEqual, &["1000"], 15);
        let prefix = compare(Field::Dataset, Operator::Prefix, &["tank/a"], 30);
        let both = Predicate::All(vec![Predicate::Not(Box::new(user)), prefix]);
        let expected = Predicate::Any(vec![read, both]);
        assert_eq!(Predicate::parse(text).unwrap(), expected);
    }

    #[test]
    fn lists_and_quoted_values_are_read() {
        let expected = compare(Field::Client, Operator::In, &["10.0.0.1", "a, \"b\""], 0);
        for text in [
            r#"client in (10.0.0.1, "a, \"b\"")"#,
            r#"client in 10.0.0.1,"a, \"b\"" "#,
        ] {
            assert_eq!(Predicate::parse(text).unwrap(), expected, "{text}");
        }
        assert_eq!(Predicate::parse("  ").unwrap(), Predicate::Always);
    }

    #[test]
    fn errors_name_the_place() {
        for (text, at) in [
            ("op=read and colour=red", 12),
            ("op", 2),
            ("op=", 3),
            ("op=read latency>1", 8),
            ("(op=read", 8),
            ("op in (read write)", 12),
            ("op=\"read", 8),
            ("op≠", 5),
            ("and", 0),
        ] {
            let error = Predicate::parse(text).unwrap_err();
            assert_eq!(error.place, Place::Byte(at), "{text}: {error}");
        }
    }

    #[test]
    fn depth_and_length_are_bounded() {
        for text in ["(".repeat(10_000), "not (".repeat(3000)] {
            let error = Predicate::parse(&text).unwrap_err();
            assert!(matches!(error.wrong, Wrong::TooDeep { .. }), "{error}");
        }
        let error = Predicate::parse(&"a".repeat(BYTES_MAX + 1)).unwrap_err();
        assert!(matches!(error.wrong, Wrong::TooLong { .. }), "{error}");
        let many = vec!["not not op=read"; 800].join(" or ");
        assert!(Predicate::parse(&many).is_ok());
    }
}
