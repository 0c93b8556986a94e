//! A Rust source file as tokens: the paths it names, its functions, its test parts.
//!
//! # Mechanism
//! Tokens have no comments and no strings in them, so words in prose are no findings; and they know
//! their lines. A path is read where it stands, and `use` with braces is spread out:
//! `use std::{fs, time::Instant}` names `std::fs` and `std::time::Instant`. What stands under
//! `#[cfg(test)]` or `#[test]` is marked as test. Macros are read like everything else.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A name with its segments, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    /// `["std", "fs"]`
    pub segments: Vec<String>,
    /// Counted from 1.
    pub line: usize,
    /// Whether it stands in code that only tests see.
    pub is_test: bool,
    /// Whether `!` follows, or `(`.
    pub followed_by: Option<char>,
}

/// A function and how long it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub line: usize,
    /// From `fn` to the closing brace.
    pub line_count: usize,
    /// Whether only tests see it.
    pub is_test: bool,
}

/// What tidy looks at in one file.
#[derive(Debug, Default)]
pub struct Source {
    /// Every path and single name.
    pub paths: Vec<NamedPath>,
    /// Every function with a body.
    pub functions: Vec<Function>,
    /// Lines of `#[ignore]`.
    pub ignored_tests: Vec<usize>,
    /// How many functions are `#[test]`.
    pub test_count: usize,
    /// Lines that only tests see.
    pub test_line_count: usize,
    /// All lines.
    pub line_count: usize,
    /// Whether the file opens with `//!`.
    pub has_theory: bool,
}

/// Reads a file's text. `is_test` says that all of it is for tests.
pub fn read(text: &str, is_test: bool) -> Result<Source, String> {
    let tokens: TokenStream = text.parse().map_err(|error| format!("no Rust: {error}"))?;
    let mut source = Source {
        line_count: text.lines().count(),
        has_theory: text.trim_start().starts_with("//!"),
        ..Source::default()
    };
    if is_test {
        source.test_line_count = source.line_count;
    }
    walk(
        &tokens.into_iter().collect::<Vec<_>>(),
        is_test,
        &mut source,
    );
    Ok(source)
}

fn walk(tokens: &[TokenTree], is_test: bool, source: &mut Source) {
    let mut at = 0;
    // Set by an attribute, until the item it stands on has ended.
    let mut next_is_test = false;
    while at < tokens.len() {
        let inside = is_test || next_is_test;
        match &tokens[at] {
            TokenTree::Group(group) => {
                walk(&children(group), inside, source);
                if next_is_test && group.delimiter() == Delimiter::Brace {
                    if !is_test {
                        source.test_line_count += lines_of(group);
                    }
                    next_is_test = false;
                }
                at += 1;
            }
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                if let Some(TokenTree::Group(attribute)) = tokens.get(at + 1) {
                    next_is_test |= is_test_attribute(attribute, source);
                }
                at += 1;
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => {
                next_is_test = false;
                at += 1;
            }
            TokenTree::Ident(word) if word == "fn" => {
                function(tokens, at, inside, source);
                at += 1;
            }
            TokenTree::Ident(_) => at = path(tokens, at, &[], inside, source),
            _ => at += 1,
        }
    }
}

fn children(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

fn lines_of(group: &Group) -> usize {
    group.span_close().start().line - group.span_open().start().line + 1
}

/// Whether an attribute makes its item a test; counts tests and ignored ones on the way.
fn is_test_attribute(attribute: &Group, source: &mut Source) -> bool {
    let tokens = children(attribute);
    let Some(TokenTree::Ident(name)) = tokens.first() else {
        return false;
    };
    match name.to_string().as_str() {
        "test" => {
            source.test_count += 1;
            true
        }
        "ignore" => {
            source.ignored_tests.push(name.span().start().line);
            false
        }
        "cfg" => match tokens.get(1) {
            Some(TokenTree::Group(condition)) => {
                let text = condition.stream().to_string();
                let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
                words.contains(&"test") && !words.contains(&"not")
            }
            _ => false,
        },
        _ => false,
    }
}

/// Notes the function at `fn`, if it has a body.
fn function(tokens: &[TokenTree], at: usize, is_test: bool, source: &mut Source) {
    let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
        return;
    };
    for token in &tokens[at + 2..] {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ';' => return,
            TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                let line = tokens[at].span().start().line;
                let line_count = body.span_close().start().line - line + 1;
                let name = name.to_string();
                source.functions.push(Function {
                    name,
                    line,
                    line_count,
                    is_test,
                });
                return;
            }
            _ => {}
        }
    }
}

/// Notes the path that begins at `at`, after `before`, and gives the place after it.
fn path(
    tokens: &[TokenTree],
    at: usize,
    before: &[String],
    is_test: bool,
    source: &mut Source,
) -> usize {
    let mut segments = before.to_vec();
    let line = tokens[at].span().start().line;
    let mut at = at;
    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
        segments.push(word.to_string());
        at += 1;
        if !is_double_colon(tokens, at) {
            break;
        }
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(_)) => at += 2,
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                spread(group, &segments, is_test, source);
                return at + 3;
            }
            _ => break,
        }
    }
    let followed_by = match tokens.get(at) {
        Some(TokenTree::Punct(mark)) => Some(mark.as_char()),
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => Some('('),
        _ => None,
    };
    source.paths.push(NamedPath {
        segments,
        line,
        is_test,
        followed_by,
    });
    at
}

/// The names between the braces of a `use`.
fn spread(group: &Group, before: &[String], is_test: bool, source: &mut Source) {
    let tokens = children(group);
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) if word == "as" => at += 2,
            TokenTree::Ident(_) => at = path(&tokens, at, before, is_test, source),
            _ => at += 1,
        }
    }
}

fn is_double_colon(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon =
        |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    is_colon(at) && is_colon(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let source = read(text, false).unwrap();
        source
            .paths
            .iter()
            .map(|path| path.segments.join("::"))
            .collect()
    }

    #[test]
    fn a_use_with_braces_names_every_path() {
        let found = paths("use std::{fs, sync::{Arc, Mutex as Lock}, time::Instant};");
        for path in [
            "std::fs",
            "std::sync::Arc",
            "std::sync::Mutex",
            "std::time::Instant",
        ] {
            assert!(found.contains(&path.to_string()), "{found:?}");
        }
    }

    #[test]
    fn words_in_comments_and_strings_are_no_names() {
        let found = paths("/// std::fs\nfn a() { b(\"std::fs\") } // std::fs");
        assert!(!found.iter().any(|path| path.contains("std")), "{found:?}");
    }

    #[test]
    fn names_inside_macros_are_seen() {
        let found = paths("fn a() { println!(\"{}\", std::time::Instant::now()); }");
        assert!(
            found.contains(&"std::time::Instant::now".to_string()),
            "{found:?}"
        );
    }

    #[test]
    fn what_stands_under_cfg_test_is_test() {
        let text = "use a::b;\n#[cfg(test)]\nmod tests {\n use c::d;\n #[test]\n fn e() {}\n}\nuse f::g;\n";
        let source = read(text, false).unwrap();
        let test = |name: &str| {
            source
                .paths
                .iter()
                .find(|path| path.segments[0] == name)
                .map(|path| path.is_test)
        };
        assert_eq!(
            (test("a"), test("c"), test("f")),
            (Some(false), Some(true), Some(false))
        );
        assert_eq!((source.test_count, source.test_line_count), (1, 5));
    }

    #[test]
    fn a_function_is_as_long_as_its_lines() {
        let source = read("fn a(\n    b: u8,\n) {\n    b;\n}\nfn c();\n", false).unwrap();
        assert_eq!(source.functions.len(), 1);
        assert_eq!(
            (source.functions[0].line, source.functions[0].line_count),
            (1, 5)
        );
    }
}
