//! The grammar of options, as `getopt` has it: single letters that may be combined (`-rHp`), values
//! joined or apart (`-oname`, `-o name`), long names that may be shortened, and operands anywhere
//! between them. Where the environment has `POSIXLY_CORRECT`, the first operand ends the options.
//!
//! A grammar is written as `getopt` is given it: the letters, each with a colon when it takes a
//! value. When the first character is a colon, a missing value has a message of its own.

use crate::failure::Failure;

/// The options of one subcommand.
#[derive(Debug, Clone, Copy)]
pub struct Grammar {
    /// Letters.
    pub short: &'static str,
    /// Long names and what they are reported as: a letter, or the name itself. Those that stand for
    /// a letter that takes a value take one.
    pub long: &'static [(&'static str, &'static str)],
}

/// What is wrong with an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadOption {
    /// There is no such option.
    Unknown(String),
    /// Its value is missing, and the grammar has a message for that.
    NoValue(char),
}

impl From<BadOption> for Failure {
    fn from(bad: BadOption) -> Self {
        match bad {
            BadOption::Unknown(name) => Failure::Usage(format!("invalid option '{name}'")),
            BadOption::NoValue(letter) => {
                Failure::Usage(format!("missing argument for '{letter}' option"))
            }
        }
    }
}

/// Takes options from a command line, one at a time.
#[derive(Debug)]
pub struct Options<'a> {
    grammar: Grammar,
    rest: &'a [String],
    /// Letters of a combined argument that are still to be taken.
    cluster: &'a str,
    operands: Vec<String>,
    /// Options may stand behind operands, too.
    permutes: bool,
}

/// Set to anything, has options end at the first operand.
const POSIXLY_CORRECT: &str = "POSIXLY_CORRECT";

impl<'a> Options<'a> {
    /// Options of the arguments after the subcommand's name.
    pub fn new(grammar: Grammar, arguments: &'a [String]) -> Self {
        Options {
            grammar,
            rest: arguments,
            cluster: "",
            operands: Vec::new(),
            permutes: std::env::var_os(POSIXLY_CORRECT).is_none(),
        }
    }

    /// The next option and its value, which is empty for those that take none; `None` after the
    /// last.
    ///
    /// # Errors
    /// What is wrong with the option.
    pub fn take(&mut self) -> Result<Option<(&'static str, String)>, BadOption> {
        while self.cluster.is_empty() {
            let Some((argument, rest)) = self.rest.split_first() else {
                return Ok(None);
            };
            self.rest = rest;
            if argument == "--" {
                self.operands.extend(self.rest.iter().cloned());
                self.rest = &[];
            } else if let Some(name) = argument.strip_prefix("--")
                && !self.grammar.long.is_empty()
            {
                return self.long(name).map(Some);
            } else if argument.len() > 1 && argument.starts_with('-') {
                self.cluster = &argument[1..];
            } else {
                self.operands.push(argument.clone());
                if !self.permutes {
                    self.operands.append(&mut self.rest.to_vec());
                    self.rest = &[];
                }
            }
        }
        self.letter().map(Some)
    }

    /// What is not an option, in order. To be asked after the last [`Options::take`].
    pub fn operands(self) -> Vec<String> {
        self.operands
    }

    /// A long option, with its value where it takes one: joined by `=`, or apart.
    fn long(&mut self, argument: &str) -> Result<(&'static str, String), BadOption> {
        let (name, joined) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (argument, None),
        };
        let meaning = self.meaning_of(name)?;
        let takes_value = self
            .grammar
            .short
            .split_once(meaning)
            .is_some_and(|(_, rest)| meaning.len() == 1 && rest.starts_with(':'));
        match (takes_value, joined) {
            (false, None) => Ok((meaning, String::new())),
            (false, Some(_)) => Err(BadOption::Unknown(argument.to_string())),
            (true, Some(value)) => Ok((meaning, value.to_string())),
            (true, None) => match self.rest.split_first() {
                Some((value, rest)) => {
                    self.rest = rest;
                    Ok((meaning, value.clone()))
                }
                None => Err(BadOption::NoValue(meaning.chars().next().unwrap_or(' '))),
            },
        }
    }

    /// What a long name is reported as: a whole name, or a beginning that only one has.
    fn meaning_of(&self, name: &str) -> Result<&'static str, BadOption> {
        let long = self.grammar.long;
        if let Some((_, meaning)) = long.iter().find(|(known, _)| *known == name) {
            return Ok(meaning);
        }
        let mut candidates = long.iter().filter(|(known, _)| known.starts_with(name));
        match (candidates.next(), candidates.next()) {
            (Some((_, meaning)), None) => Ok(meaning),
            _ => Err(BadOption::Unknown(name.to_string())),
        }
    }

    /// The next letter of a combined argument.
    fn letter(&mut self) -> Result<(&'static str, String), BadOption> {
        let Some(letter) = self.cluster.chars().next() else {
            return Err(BadOption::Unknown(String::new()));
        };
        self.cluster = &self.cluster[letter.len_utf8()..];
        let short = self.grammar.short;
        let known = short.find(letter).filter(|_| letter != ':');
        let Some(at) = known else {
            self.cluster = "";
            return Err(BadOption::Unknown(letter.to_string()));
        };
        let name = &short[at..at + letter.len_utf8()];
        if !short[at + letter.len_utf8()..].starts_with(':') {
            return Ok((name, String::new()));
        }
        if !self.cluster.is_empty() {
            return Ok((name, std::mem::take(&mut self.cluster).to_string()));
        }
        if let Some((value, rest)) = self.rest.split_first() {
            self.rest = rest;
            return Ok((name, value.clone()));
        }
        Err(if short.starts_with(':') {
            BadOption::NoValue(letter)
        } else {
            BadOption::Unknown(letter.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAMMAR: Grammar = Grammar {
        short: ":Hpo:j",
        long: &[("json", "j"), ("json-int", "json-int")],
    };

    type Parsed = (Vec<(&'static str, String)>, Vec<String>);

    fn parsed(arguments: &[&str]) -> Result<Parsed, BadOption> {
        let arguments: Vec<String> = arguments.iter().map(|text| text.to_string()).collect();
        let mut options = Options::new(GRAMMAR, &arguments);
        let mut taken = Vec::new();
        while let Some(option) = options.take()? {
            taken.push(option);
        }
        Ok((taken, options.operands()))
    }

    #[test]
    fn letters_combine_and_operands_stand_anywhere() {
        let (taken, operands) = parsed(&["tank", "-Hpo", "name", "-oused", "--", "-x"]).unwrap();
        let flag = String::new();
        assert_eq!(
            taken,
            [
                ("H", flag.clone()),
                ("p", flag),
                ("o", "name".into()),
                ("o", "used".into())
            ]
        );
        assert_eq!(operands, ["tank", "-x"]);
    }

    #[test]
    fn strict_options_end_at_the_first_operand() {
        let arguments = ["-H", "all", "-r", "tank"].map(str::to_string);
        let mut options = Options::new(GRAMMAR, &arguments);
        options.permutes = false;
        assert_eq!(options.take(), Ok(Some(("H", String::new()))));
        assert_eq!(options.take(), Ok(None));
        assert_eq!(options.operands(), ["all", "-r", "tank"]);
    }

    #[test]
    fn a_lone_dash_is_an_operand() {
        assert_eq!(parsed(&["-"]).unwrap().1, ["-"]);
    }

    #[test]
    fn long_names_may_be_shortened_while_they_are_clear() {
        assert_eq!(parsed(&["--json"]).unwrap().0[0].0, "j");
        assert_eq!(parsed(&["--json-i"]).unwrap().0[0].0, "json-int");
        assert_eq!(parsed(&["--js"]), Err(BadOption::Unknown("js".into())));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parsed(&["-HQ"]), Err(BadOption::Unknown("Q".into())));
        assert_eq!(parsed(&["-o"]), Err(BadOption::NoValue('o')));
        assert_eq!(
            Failure::from(BadOption::NoValue('o')),
            Failure::Usage("missing argument for 'o' option".into())
        );
    }
}
