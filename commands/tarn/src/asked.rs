//! What `tarn kstat` was asked for.

use tarn_terminal::failure::Failure;
use tarn_terminal::interval::Interval;
use tarn_terminal::options::{Grammar, Options};

const GRAMMAR: Grammar = Grammar {
    short: ":jlpqc:m:i:n:s:",
    long: &[("json", "j")],
};

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people: a block for each group.
    Blocks,
    /// `-p`.
    Lines,
    /// `-j`.
    Json,
    /// `-l`.
    Names,
    /// `-q`.
    Nothing,
}

/// A command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// How it is printed.
    pub form: Form,
    /// Only groups of this class.
    pub class: Option<String>,
    /// One or more patterns for the engine.
    pub patterns: Vec<String>,
    /// How often.
    pub interval: Interval,
}

/// Reads the command line.
///
/// # Errors
/// What is wrong with it.
pub fn parse(arguments: &[String]) -> Result<Asked, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut form = None;
    let mut class = None;
    let mut parts: [Option<String>; 4] = [const { None }; 4];
    while let Some((name, value)) = options.take()? {
        match name {
            "c" => class = Some(value),
            "m" => parts[0] = Some(value),
            "i" => parts[1] = Some(value),
            "n" => parts[2] = Some(value),
            "s" => parts[3] = Some(value),
            letter => {
                let wanted = form_of(letter);
                if form.is_some_and(|form| form != wanted) {
                    return Err(Failure::usage("-j, -l, -p and -q exclude each other"));
                }
                form = Some(wanted);
            }
        }
    }
    let mut patterns = options.operands();
    let interval = Interval::take(&mut patterns)?;
    if parts.iter().any(Option::is_some) {
        if !patterns.is_empty() {
            return Err(Failure::usage(
                "-m, -i, -n and -s take the place of module:instance:name:statistic",
            ));
        }
        patterns.push(joined(parts));
    }
    if patterns.is_empty() {
        patterns.push(String::new());
    }
    Ok(Asked {
        form: form.unwrap_or(Form::Blocks),
        class,
        patterns,
        interval,
    })
}

fn form_of(letter: &str) -> Form {
    match letter {
        "j" => Form::Json,
        "l" => Form::Names,
        "q" => Form::Nothing,
        _ => Form::Lines,
    }
}

/// One pattern of its parts; a colon in one of them is a colon of the name.
fn joined(parts: [Option<String>; 4]) -> String {
    let part = |part: Option<String>| part.unwrap_or_default().replace(':', "\\:");
    parts.map(part).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Asked, Failure> {
        let arguments: Vec<String> = arguments.iter().map(|text| text.to_string()).collect();
        parse(&arguments)
    }

    #[test]
    fn a_command_line_is_patterns_a_form_and_an_interval() {
        let asked = parsed(&["-p", "zfs:0:arcstats", "vdev", "0.5", "3"]).unwrap();
        assert_eq!(asked.patterns, ["zfs:0:arcstats", "vdev"]);
        assert_eq!(asked.form, Form::Lines);
        assert_eq!(asked.interval.count, 3);
        let all = parsed(&["-jc", "table"]).unwrap();
        assert_eq!((all.form, all.patterns), (Form::Json, vec![String::new()]));
        assert_eq!(all.class.as_deref(), Some("table"));
    }

    #[test]
    fn parts_by_option_become_one_pattern() {
        let asked = parsed(&["-m", "zfs/a:b", "-n", "txgs"]).unwrap();
        assert_eq!(asked.patterns, ["zfs/a\\:b::txgs:"]);
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        assert!(matches!(parsed(&["-jp"]), Err(Failure::Usage(_))));
        assert!(matches!(
            parsed(&["-m", "zfs", "vdev"]),
            Err(Failure::Usage(_))
        ));
        assert!(matches!(parsed(&["-m"]), Err(Failure::Usage(_))));
    }
}
