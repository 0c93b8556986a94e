//! Patterns of statistics: `module[:instance[:name[:statistic]]]`, each part a glob, as illumos'
//! kstat(8) has them.
//!
//! `*` stands for any text, `?` for one character, `[a-z]` for one of a set, `[!a-z]` for one that
//! is not in it, and `\` takes the next character as it is. An empty part, or one that is missing,
//! means any. The name of a pool may have a colon in it: `\:` or `?` stands for that one.
//!
//! # Invariants
//! - Whatever the pattern, matching takes at most its length times the length of the text: patterns
//!   come from unprivileged users.

/// One part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Glob(Vec<Token>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// Any text, also none.
    Any,
    /// Any one character.
    One,
    /// This character.
    Exact(char),
    /// One of these ranges, or none of them.
    Set {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Token {
    fn takes(&self, character: char) -> bool {
        match self {
            Token::Any => false,
            Token::One => true,
            Token::Exact(exact) => *exact == character,
            Token::Set { is_negated, ranges } => {
                let is_in = |(low, high): &(char, char)| (*low..=*high).contains(&character);
                ranges.iter().any(is_in) != *is_negated
            }
        }
    }
}

impl Glob {
    fn parse(text: &str) -> Glob {
        let mut characters = text.chars();
        let mut tokens = Vec::new();
        while let Some(character) = characters.next() {
            tokens.push(match character {
                '*' => Token::Any,
                '?' => Token::One,
                '\\' => Token::Exact(characters.next().unwrap_or('\\')),
                '[' => match parse_set(characters.as_str()) {
                    Some((set, rest)) => {
                        characters = rest.chars();
                        set
                    }
                    None => Token::Exact('['),
                },
                other => Token::Exact(other),
            });
        }
        Glob(tokens)
    }

    /// Whether the whole text is one that the pattern means.
    fn matches(&self, text: &str) -> bool {
        let (tokens, text) = (&self.0, text.chars().collect::<Vec<char>>());
        let (mut token, mut at) = (0, 0);
        // The last `*` that was met, and how far the text is that it stands for.
        let mut star: Option<(usize, usize)> = None;
        while at < text.len() {
            match tokens.get(token) {
                Some(Token::Any) => {
                    star = Some((token, at));
                    token += 1;
                    continue;
                }
                Some(other) if other.takes(text[at]) => {
                    token += 1;
                    at += 1;
                    continue;
                }
                _ => {}
            }
            let Some((star_token, taken_to)) = star else {
                return false;
            };
            star = Some((star_token, taken_to + 1));
            token = star_token + 1;
            at = taken_to + 1;
        }
        tokens[token..].iter().all(|token| *token == Token::Any)
    }
}

/// A set and what follows it, from the text after its `[`. `None` when nothing ends it.
fn parse_set(text: &str) -> Option<(Token, &str)> {
    let (is_negated, body) = match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut ranges = Vec::new();
    let mut characters = body.chars();
    loop {
        let low = match characters.next()? {
            // In the first place it is a member.
            ']' if !ranges.is_empty() => break,
            '\\' => characters.next()?,
            other => other,
        };
        let mut ahead = characters.clone();
        match (ahead.next(), ahead.next()) {
            (Some('-'), Some(high)) if high != ']' => {
                characters = ahead;
                ranges.push((low, high));
            }
            _ => ranges.push((low, low)),
        }
    }
    Some((Token::Set { is_negated, ranges }, characters.as_str()))
}

/// What a reader asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    module: Option<Glob>,
    instance: Option<Glob>,
    name: Option<Glob>,
    statistic: Option<Glob>,
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Pattern {
        let mut parts = split(text)
            .into_iter()
            .map(|part| Some(part).filter(|part| !part.is_empty()).map(Glob::parse));
        let mut next = || parts.next().flatten();
        Pattern {
            module: next(),
            instance: next(),
            name: next(),
            statistic: next(),
        }
    }

    /// Whether any statistic of these may be wanted.
    pub(crate) fn wants(&self, module: &str, instance: u32, name: &str) -> bool {
        means(&self.module, module)
            && means(&self.name, name)
            && means(&self.instance, &instance.to_string())
    }

    /// Whether a statistic of that name is wanted.
    pub(crate) fn wants_statistic(&self, statistic: &str) -> bool {
        means(&self.statistic, statistic)
    }
}

fn means(glob: &Option<Glob>, text: &str) -> bool {
    glob.as_ref().is_none_or(|glob| glob.matches(text))
}

/// At most four parts, cut at colons that no `\` stands before; the last one may have colons.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut is_escaped) = (0, false);
    for (at, character) in text.char_indices() {
        if character == ':' && !is_escaped && parts.len() < 3 {
            parts.push(&text[begin..at]);
            begin = at + 1;
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    parts.push(&text[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_texts() {
        for (glob, text, expected) in [
            ("hits", "hits", true),
            ("hits", "hit", false),
            ("hit", "hits", false),
            ("*", "", true),
            ("*hits", "mru_ghost_hits", true),
            ("*_hits", "hits", false),
            ("m*_*t?", "mru_ghost_size_ts", true),
            ("demand_*_hits", "demand_data_misses", false),
            ("objset-0x[0-9a-f]*", "objset-0x36", true),
            ("[!m]*", "mru", false),
            ("[!m]*", "size", true),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            ("a[", "a[", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            ("ü?", "üö", true),
        ] {
            assert_eq!(Glob::parse(glob).matches(text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_few() {
        assert!(!Glob::parse(&("*a".repeat(200) + "b")).matches(&"a".repeat(5000)));
    }

    #[test]
    fn a_colon_in_the_name_of_a_pool_is_escaped_or_any_character() {
        for text in [r"zfs/a\:b:0:txgs:12", "zfs/a?b:0:txgs:12"] {
            let pattern = Pattern::parse(text);
            assert!(pattern.wants("zfs/a:b", 0, "txgs"), "{text}");
            assert!(pattern.wants_statistic("12") && !pattern.wants_statistic("13"));
        }
        assert!(!Pattern::parse("zfs/a:b:0:txgs").wants("zfs/a:b", 0, "txgs"));
    }

    #[test]
    fn an_empty_part_means_any() {
        let pattern = Pattern::parse("::arcstats");
        assert!(pattern.wants("zfs", 7, "arcstats") && pattern.wants_statistic("hits"));
        assert!(!pattern.wants("zfs", 7, "txgs"));
        assert!(Pattern::parse("").wants("a", 1, "b"));
    }
}
