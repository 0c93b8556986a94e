//! JSON text of any bytes, in ASCII, as Python writes it.
//!
//! File names are bytes, and JSON knows characters. Bytes that are not UTF-8 become the lone
//! surrogates U+DC80 to U+DCFF, one for each byte, which is what Python's `surrogateescape` does;
//! so no two names look alike.

use std::fmt::Write;

/// Appends a JSON string with its quotes.
pub fn push_string(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        chunk
            .valid()
            .chars()
            .for_each(|character| push_character(out, character));
        for &byte in chunk.invalid() {
            push_unit(out, 0xdc00 + u16::from(byte));
        }
    }
    out.push('"');
}

fn push_character(out: &mut String, character: char) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        ' '..='~' => out.push(character),
        _ => character
            .encode_utf16(&mut [0; 2])
            .iter()
            .for_each(|&unit| push_unit(out, unit)),
    }
}

fn push_unit(out: &mut String, unit: u16) {
    write!(out, "\\u{unit:04x}").expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(bytes: &[u8]) -> String {
        let mut out = String::new();
        push_string(&mut out, bytes);
        out
    }

    #[test]
    fn names_that_are_not_text_keep_every_byte() {
        assert_eq!(json(b"a\xff\xc3(b"), "\"a\\udcff\\udcc3(b\"");
    }

    #[test]
    fn characters_beyond_ascii_are_written_as_utf16() {
        assert_eq!(
            json("ï🐟\u{7f}\n\"\\".as_bytes()),
            r#""\u00ef\ud83d\udc1f\u007f\n\"\\""#
        );
    }
}
