//! A line of InfluxDB's line protocol: `measurement,tag=value field=1u,other=2u
//! 1700000000000000000`.

use std::fmt::Write;

/// How whole numbers are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Integers {
    /// With `u`, as `zpool_influxdb` writes them.
    #[default]
    Unsigned,
    /// With `i` and without the highest bit: InfluxDB 1 takes no unsigned ones.
    Signed,
}

/// A line that is written.
#[derive(Debug)]
pub(crate) struct Line {
    text: String,
    integers: Integers,
    fields: u32,
}

impl Line {
    /// Begins a line. `tags` are written as they are, with a comma before them.
    pub(crate) fn new(measurement: &str, tags: &str, integers: Integers) -> Line {
        let mut text = measurement.to_owned();
        if !tags.is_empty() {
            text.push(',');
            text.push_str(tags);
        }
        Line {
            text,
            integers,
            fields: 0,
        }
    }

    /// Adds a tag; one without a value is left out, as there are none.
    pub(crate) fn tag(mut self, name: &str, value: &str) -> Line {
        if !value.is_empty() {
            let _ = write!(self.text, ",{name}={}", escaped(value));
        }
        self
    }

    /// Adds a field with a whole number.
    pub(crate) fn field(mut self, name: &str, value: u64) -> Line {
        self.begin_field(name);
        let _ = match self.integers {
            Integers::Unsigned => write!(self.text, "{value}u"),
            Integers::Signed => write!(self.text, "{}i", value & (u64::MAX >> 1)),
        };
        self
    }

    /// Adds a field with a number that is written already.
    pub(crate) fn number(mut self, name: &str, number: &str) -> Line {
        self.begin_field(name);
        self.text.push_str(number);
        self
    }

    /// Ends the line, with its time in nanoseconds since 1970.
    pub(crate) fn end(mut self, out: &mut String, time_ns: u64) {
        debug_assert!(self.fields > 0, "a line without fields is none");
        let _ = writeln!(self.text, " {time_ns}");
        out.push_str(&self.text);
    }

    fn begin_field(&mut self, name: &str) {
        self.text.push(if self.fields == 0 { ' ' } else { ',' });
        self.fields += 1;
        let _ = write!(self.text, "{name}=");
    }
}

/// Tags as they are written into each line, `a=b,c=d`, if they are some and break no line.
pub fn line_tags(text: &str) -> Option<String> {
    let is_tag = |tag: &str| {
        let parts = tag.split_once('=');
        parts.is_some_and(|(name, value)| !name.is_empty() && !value.is_empty())
    };
    let is_plain = !text.contains(|character: char| character == ' ' || character.is_control());
    (is_plain && text.split(',').all(is_tag)).then(|| text.to_owned())
}

/// A value of a tag. A line ends at a newline, whatever is before it: one in a value becomes a
/// space. A backslash before a comma must not escape that.
pub(crate) fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            ' ' | ',' | '=' | '\\' => out.extend(['\\', character]),
            '\n' | '\r' => out.push_str("\\ "),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_that_would_break_lines_are_refused() {
        assert_eq!(line_tags("host=a,site=b").as_deref(), Some("host=a,site=b"));
        for wrong in ["", "host", "host=", "=a", "a=b,", "a=b c=d", "a=b\nx=1"] {
            assert_eq!(line_tags(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn names_are_escaped_and_numbers_have_their_type() {
        let line = |integers| {
            let mut out = String::new();
            Line::new("zpool_stats", "host=a", integers)
                .tag("name", "my pool,\\x=\n")
                .tag("path", "")
                .field("alloc", u64::MAX)
                .number("pct", "1.50")
                .end(&mut out, 17);
            out
        };
        let name = r"my\ pool\,\\x\=\ ";
        let expected =
            |number| format!("zpool_stats,host=a,name={name} alloc={number},pct=1.50 17\n");
        assert_eq!(line(Integers::Unsigned), expected("18446744073709551615u"));
        assert_eq!(line(Integers::Signed), expected("9223372036854775807i"));
    }
}
